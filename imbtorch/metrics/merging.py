"""Workarounds for torchmetrics."""

from __future__ import annotations

import sys
from collections.abc import KeysView
from typing import Any

import torch
from torchmetrics import Metric, MetricCollection

# --- torchmetrics ---------------------------------------------------------------------------------------------------

# torchmetrics/collections.py, MetricCollection.update: "only update the first member" of a compute group, `m0.update(
# *args, **m0._filter_kwargs(**kwargs))`; then `_compute_groups_create_state_ref` gives all members its state. No
# argument tells the metric that this update is for all of them.
_COLLECTION_UPDATE = MetricCollection.update.__code__


def updated_by_collection() -> bool:
    """Return whether the caller's caller is a ``MetricCollection`` that updates the first member of a group."""
    if torch.compiler.is_compiling():
        return False
    caller = sys._getframe(2)
    return caller.f_code is _COLLECTION_UPDATE and bool(caller.f_locals["self"]._groups_checked)


# torchmetrics/collections.py, _equal_metric_states: `if metric1._defaults.keys() != metric2._defaults.keys(): return
# False`. Else metrics whose states are equal after the first update are merged, whatever their `update` reads.
class _OwnKeys(KeysView[str]):
    """Keys of a mapping that equal the keys of no other mapping."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OwnKeys) and other._mapping is self._mapping  # type: ignore[attr-defined]


class UnmergedDefaults(dict[str, Any]):
    """Defaults of the states of a metric that a ``MetricCollection`` merges with no other metric, nor its copies."""

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        """Return keys that equal only themselves."""
        return _OwnKeys(self)


# torchmetrics/metric.py, Metric.forward: `self._forward_cache = ...` is the only place that keeps the value of a batch.
# Results of Lightning's `self.log` (`_ResultMetric`) are metrics that set it themselves.
def batch_value(metric: Metric) -> Any:
    """Return the value that a metric, or a logged number of Lightning, had for its last batch; None without one."""
    return metric._forward_cache
