"""Metrics of scores rather than of counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors
from typing_extensions import Unpack

from imbtorch.confusion import ratio
from imbtorch.counting import FAULTS, Counting
from imbtorch.kernels import reading_is_free
from imbtorch.metric import TorchmetricsArguments
from imbtorch.state import SummedState, rank_zero

__all__ = ["HandTill"]


class HandTill(SummedState):
    r"""M measure of Hand and Till: the AUC of every pair of classes, averaged; insensitive to class shares.

    .. math:: M = \frac{2}{K(K-1)} \sum_{i<j} \frac{A(i \mid j) + A(j \mid i)}{2}

    A(i | j) is the probability that a sample of class i has a higher score for class i than one of class j; ties count
    one half. For two classes it is the AUC.

    Args:
        num_classes: number of classes.
        thresholds: None keeps all scores and is exact; a number keeps K x K histograms of so many bins in [0, 1], with
            an update of O(batch * K) and one ``all_reduce``, and counts scores in one bin as ties.
        logits: whether scores are logits, to which softmax is applied; never guessed.
        ignore_index: target of the samples to leave out.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    ``compute`` returns a value in [0, 1], .5 for scores that tell nothing; higher is better. A class without targets
    takes no part; fewer than two classes with targets give nan and a warning. Equal to
    ``sklearn.metrics.roc_auc_score(multi_class="ovo", average="macro")``.

    Raises:
        ValueError: for fewer than two classes or bins.

    Source: Hand and Till (2001), A simple generalisation of the area under the ROC curve for multiple class
    classification problems.

    >>> metric = HandTill(num_classes=3)
    >>> metric.update(torch.eye(3)[[0, 1, 2, 2]], torch.tensor([0, 1, 2, 1]))
    >>> metric.compute()
    tensor(0.8750)
    """

    higher_is_better = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0

    def __init__(
        self,
        num_classes: int,
        *,
        thresholds: int | None = None,
        logits: bool = False,
        ignore_index: int | None = None,
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        if thresholds is not None and (
            isinstance(thresholds, bool) or not isinstance(thresholds, int) or thresholds < 2
        ):
            raise ValueError(f"thresholds must be None or a number of bins >= 2, got {thresholds!r}")
        counting = Counting.of("multiclass", num_classes, logits=logits, ignore_index=ignore_index)
        kind = "exact" if thresholds is None else f"{thresholds}_bins"
        name = f"hand_till_{kind}_{'logits_' * logits}{counting.name}"
        cells = num_classes**2 * (thresholds or 0)
        super().__init__(name, cells + len(FAULTS), **kwargs)
        self._counting, self._cells = counting, cells
        self.num_classes, self.thresholds, self.logits = num_classes, thresholds, logits
        self.ignore_index = ignore_index
        self.scores: list[Tensor] = []
        self.targets: list[Tensor] = []
        if thresholds is None:  # states like the counts, so that collections share and checkpoints hold them
            for kept in ("scores", "targets"):
                self._defaults[kept], self._persistent[kept], self._reductions[kept] = [], False, None
        self._local_scores: tuple[list[Tensor], list[Tensor]] | None = None

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count or keep a batch.

        Args:
            preds: scores ``[N, C, ...]``; in [0, 1] where they are binned.
            target: class indices ``[N, ...]``.

        Raises:
            ValueError: for shapes that do not fit, and on the CPU of a single process for targets out of range, NaN
                scores, and scores outside [0, 1] where they are binned; elsewhere ``compute`` raises, on all processes.
            TypeError: for predictions that are no scores.
        """
        if not isinstance(preds, Tensor) or not preds.is_floating_point():
            got = preds.dtype if isinstance(preds, Tensor) else type(preds).__name__
            raise TypeError(f"preds must be floating scores [N, C, ...], got {got}; class indices cannot be ranked")
        self._counting.check(preds, target)
        if preds.device != self._state.device:
            raise ValueError(f"preds are on {preds.device} but the metric is on {self._state.device}; move the metric")
        scores = preds.detach().movedim(1, -1).reshape(-1, self.num_classes)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # bins and softmax need the digits
        scores = scores.softmax(-1) if self.logits else scores
        truth = target.reshape(-1).long()
        kept = torch.ones_like(truth, dtype=torch.bool) if self.ignore_index is None else truth != self.ignore_index
        outside = (truth < 0) | (truth >= self.num_classes)
        nan = scores.isnan().any(-1)
        unbounded = ((scores < 0) | (scores > 1)).any(-1) & (self.thresholds is not None)
        faults = [kept & outside, torch.zeros_like(nan), kept & ~outside & nan, kept & ~outside & ~nan & unbounded]
        sound = kept & ~outside & ~nan & ~unbounded
        if reading_is_free(self._state) and not self._distributed():
            for fault, each in enumerate(faults):
                if bool(each.any()):
                    beyond = scores[each][(scores[each] < 0) | (scores[each] > 1)] if fault == 3 else truth[each]
                    raise ValueError(self._counting.error_message(fault, beyond, len(truth)))
        state = self._writable(exclusive=not self._leads)
        state[self._cells :] += torch.stack([each.sum() for each in faults])
        if self.thresholds is None:
            self.scores = [*self.scores, scores[sound]]  # a new list: a collection's members share theirs
            self.targets = [*self.targets, truth[sound]]
            return
        bins = (scores.nan_to_num(0).clamp(0, 1) * self.thresholds).long().clamp(max=self.thresholds - 1)
        first = torch.arange(self.num_classes, device=truth.device) * self.num_classes
        index = (first + truth.clamp(0, self.num_classes - 1).unsqueeze(-1)) * self.thresholds + bins
        state.index_add_(0, index.flatten(), sound.long().unsqueeze(-1).expand_as(index).flatten())

    def forward(self, preds: Tensor, target: Tensor) -> Tensor:
        """Count or keep a batch and return its own value; arguments as for :meth:`update`.

        With ``dist_sync_on_step=True`` the value is that of the batches of all processes. Samples that cannot be
        counted take no part where :meth:`update` leaves them to ``compute``.
        """
        alone = HandTill(
            self.num_classes,
            thresholds=self.thresholds,
            logits=self.logits,
            ignore_index=self.ignore_index,
            process_group=self.process_group,
            dist_sync_fn=self.dist_sync_fn,
            distributed_available_fn=self.distributed_available_fn,
        ).to(self._state.device)
        self.update(preds, target)
        alone.update(preds, target)
        with alone.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self.dist_sync_on_step):
            value = alone._value()
        self._forward_cache = value
        return value

    def compute(self) -> Tensor:
        """Value of all samples, of all processes.

        Raises:
            ValueError: if samples could not be counted.
        """
        tally = self._state[self._cells :].tolist()
        if any(tally):
            found = ", ".join(f"{count} {fault}" for count, fault in zip(tally, FAULTS, strict=True) if count)
            raise ValueError(f"HandTill did not count {sum(tally)} of the samples it was given: {found}; call reset()")
        value = self._value()
        if bool(value.isnan()) and rank_zero():
            warnings.warn("HandTill needs targets of at least two classes; its value is nan", stacklevel=4)
        return value

    def _value(self) -> Tensor:
        """Value of the samples that could be counted."""
        wins, members = self._exact() if self.thresholds is None else self._binned()
        present = members > 0
        pairs = present.unsqueeze(-1) & present & ~torch.eye(self.num_classes, dtype=torch.bool, device=present.device)
        areas = ratio(wins, members.unsqueeze(-1) * members)
        mean = areas[pairs].mean()  # nan without pairs
        wide = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
        return mean.to(device=self._state.device, dtype=wide)

    def _exact(self) -> tuple[Tensor, Tensor]:
        """Wins ``[i, j]`` of class i over class j by the score for i, ties one half; and the members of each class."""
        size, device = self.num_classes, self._state.device
        scores = torch.cat(self.scores) if self.scores else torch.zeros(0, size, device=device)
        target = torch.cat(self.targets) if self.targets else torch.zeros(0, dtype=torch.long, device=device)
        members = torch.bincount(target, minlength=size).double()
        wins = torch.zeros(size, size, dtype=torch.float64, device=device)
        for each in range(size):
            column = scores[:, each].contiguous()
            own = column[target == each].sort().values
            lower = torch.searchsorted(own, column) + torch.searchsorted(own, column, right=True)
            wins[each].index_add_(0, target, len(own) - lower.double() / 2)
        return wins, members

    def _binned(self) -> tuple[Tensor, Tensor]:
        assert self.thresholds is not None
        histogram = self._state[: self._cells].view(self.num_classes, self.num_classes, self.thresholds).double()
        own = histogram.diagonal(dim1=0, dim2=1).T  # [i, bins]: scores for i of the members of i
        below = histogram.cumsum(-1) - histogram / 2
        return (below * own.unsqueeze(1)).sum(-1), histogram[0].sum(-1)

    # --- kept scores ------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget all samples."""
        super().reset()
        self.scores, self.targets = [], []

    def sync(
        self,
        dist_sync_fn: Callable[..., list[Tensor]] | None = None,
        process_group: Any | None = None,
        should_sync: bool = True,
        distributed_available: Callable[[], bool] | None = None,
    ) -> None:
        """Put the counts and scores of all processes in place of this one's; see :meth:`SummedState.sync`."""
        before = self._is_synced
        super().sync(dist_sync_fn, process_group, should_sync, distributed_available)
        if self._is_synced and not before and self.thresholds is None:
            self._local_scores = self.scores, self.targets
            gather, group = dist_sync_fn or gather_all_tensors, process_group or self.process_group
            empty = torch.zeros(0, self.num_classes, dtype=torch.float64, device=self._state.device)
            scores = torch.cat([empty, *self.scores])  # float64 holds all dtypes, and all processes must agree on one
            targets = torch.cat([empty[:, 0].long(), *self.targets])
            self.scores, self.targets = gather(scores, group=group), gather(targets, group=group)

    def _unsync_state(self) -> None:
        super()._unsync_state()
        if self._local_scores is not None:
            self.scores, self.targets = self._local_scores
            self._local_scores = None

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        missing = [kept for kept in ("scores", "targets") if kept not in incoming_state]
        if missing and self.thresholds is None and self._state_name in incoming_state:
            raise ValueError(f"incoming_state must be the metric_state of an exact HandTill, but has no {missing}")
        super()._reduce_states(incoming_state)
        if self.thresholds is None:
            device = self._state.device
            self.scores = [*self.scores, *(each.to(device) for each in incoming_state["scores"])]
            self.targets = [*self.targets, *(each.to(device) for each in incoming_state["targets"])]

    def merge_state(self, incoming_state: Any) -> None:
        """Add the samples of another metric that counts alike, or of its ``metric_state``; errors as there."""
        updates = self._update_count + (incoming_state._update_count if isinstance(incoming_state, HandTill) else 1)
        super().merge_state(incoming_state.metric_state if isinstance(incoming_state, HandTill) else incoming_state)
        self._update_count = updates

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> torch.nn.Module:
        kept = self.scores, self.targets
        super()._apply(fn, *args, **kwargs)
        self.scores, self.targets = ([each.to(self._state.device) for each in part] for part in kept)
        return self

    def __repr__(self) -> str:
        """One line."""
        return f"HandTill(num_classes={self.num_classes}, thresholds={self.thresholds})"
