"""Decision rules as modules, whose parameters travel in checkpoints: logit adjustment and thresholds."""

# without `from __future__ import annotations`, whose postponed types torch.jit.script cannot read

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from imbtorch.compat import warn_caller
from imbtorch.counts import has_float64

__all__ = ["LogitAdjustment", "Threshold", "checked_prior"]

NAMED = 20  # most classes that an error names


class _Rule(nn.Module):
    """Base of the rules: a module without parameters whose buffers stay in float64."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Move the buffers to another device; they keep their precision, which ``half()`` would take from them."""
        for name, buffer in self._buffers.items():
            assert buffer is not None
            probe = fn(torch.zeros(1, device=buffer.device))
            wide = torch.float64 if has_float64(probe.device) else torch.float32
            if buffer.is_meta and not probe.is_meta:  # to_empty: a state dict is loaded next
                moved = torch.zeros(buffer.shape, dtype=wide, device=probe.device)
            else:
                moved = buffer.to(probe.device, wide)
            if probe.device.type == "cpu" and probe.is_shared():  # type: ignore[no-untyped-call]
                moved.share_memory_()  # type: ignore[no-untyped-call]
            self._buffers[name] = moved
        return self


class LogitAdjustment(_Rule):
    """Post-hoc logit adjustment: logits minus ``tau`` times the log class shares of training.

    A network trained with a plain loss favours frequent classes, as it should for accuracy. With ``tau=1`` the highest
    adjusted logit is the best decision for balanced accuracy, if the probabilities are calibrated; other measures have
    other best values of ``tau``, which :class:`~imbtorch.LogitAdjustmentSweep` finds on validation data. Training does
    not change::

        self.rule = LogitAdjustment(torch.bincount(train_labels, minlength=num_classes))
        self.sweep = LogitAdjustmentSweep("balanced_accuracy", self.rule.prior, logits=True, prefix="val_")

        self.sweep.update(logits, y)  # in validation_step, without the rule
        self.log_dict(self.sweep)  # in on_validation_epoch_end: val_tau and val_value
        self.rule.take(self.sweep)  # and there too: from now on a checkpoint holds this epoch's tau

        self.test_report.update(self.rule(logits), y)  # in test_step, also after ckpt_path="best"

    For deployment, append it to the network: ``nn.Sequential(network, rule)``. It can be exported and scripted.

    **When 1 is right.** ``tau=1`` is right for balanced accuracy after training with a plain loss, without validation
    data. It harms a network that was trained with class weights, with oversampling or with a balanced loss, which has
    made the same correction already: after a class-weighted loss it cost 17.8 points of imbalance accuracy (mean of 24
    units of data, ``examples/evidence.md``). For accuracy in the training population, 0 is right.

    Args:
        prior: ``[K]`` number or share of the training samples of each class, in any unit; all must be positive.
        tau: multiple of the log shares that is subtracted; 0 changes nothing, negative values favour frequent classes.

    Attributes:
        prior: class shares of training, float64 ``[K]``, which sum to 1.
        tau: multiple of their logarithms, float64 ``[]``.

    Raises:
        ValueError: for a class without training samples, negative and infinite numbers, fewer than two classes, and a
            ``tau`` that is not finite.
        TypeError: for anything but numbers.

    Source: Menon et al. (2021), Long-tail learning via logit adjustment, eq. 9.

    >>> rule = LogitAdjustment([90, 10])
    >>> logits = torch.tensor([[1.0, 0.0]])
    >>> logits.argmax(1), rule(logits).argmax(1)
    (tensor([0]), tensor([1]))
    """

    prior: Tensor
    tau: Tensor

    def __init__(self, prior: Tensor | Sequence[float], tau: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("prior", checked_prior(prior))
        self.register_buffer("tau", _number("tau", tau))

    def forward(self, logits: Tensor) -> Tensor:
        """Shift logits by ``tau`` times the log shares.

        Args:
            logits: ``[N, K, ...]``; log-probabilities serve as well.

        Returns:
            Adjusted logits in the same shape, in float64 for float64, else in float32.

        Raises:
            ValueError: for another number of classes.
        """
        classes = self.prior.shape[0]
        if logits.dim() < 2 or logits.shape[1] != classes:
            raise ValueError(
                f"logits must be [N, {classes}, ...], a score for each class of the prior; got another shape"
            )
        shape = [1] * logits.dim()
        shape[1] = classes
        shift = (self.tau * self.prior.log()).view(shape)
        wide = logits if logits.dtype == torch.float64 else logits.to(torch.float32)
        return wide - shift.to(wide.dtype)

    def take(self, source: Any) -> None:
        """Take over ``tau`` and ``prior`` from a sweep, in place.

        A checkpoint that is saved afterwards holds them. Metric states are not part of checkpoints, so that after
        ``ckpt_path="best"`` the sweep itself would still hold the ``tau`` of the last epoch.

        Args:
            source: :class:`~imbtorch.LogitAdjustmentSweep`, which is then computed over all processes (a collective
                step); or its result, or a point of :meth:`~imbtorch.LogitAdjustmentSweep.best`, on one process.

        Raises:
            ValueError: for another number of classes.
            TypeError: for anything else.
        """
        result = _computed(source)
        if not hasattr(result, "tau") or not hasattr(result, "prior"):
            raise TypeError(f"source must be a LogitAdjustmentSweep or its result, got a {type(source).__name__}")
        prior = torch.as_tensor(result.prior)
        if prior.shape != self.prior.shape:
            raise ValueError(f"source has {len(prior)} classes, but this rule has {len(self.prior)}")
        self.prior.copy_(prior)
        self.tau.fill_(float(result.tau))

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return f"num_classes={len(self.prior)}, tau={float(self.tau):g}"


class Threshold(_Rule):
    """Threshold of one score, or of the scores of several labels: 1 strictly above it, else 0.

    It holds the threshold of a :class:`~imbtorch.ThresholdSweep`, so that each checkpoint holds its own::

        self.rule = Threshold(0.5, logits=True)
        self.sweep = ThresholdSweep("f1", logits=True, prefix="val_")

        self.sweep.update(logits, y)  # in validation_step
        self.log_dict(self.sweep)  # in on_validation_epoch_end: val_threshold and val_value
        self.rule.take(self.sweep)  # and there too

        self.test_report.update(self.rule(logits), y)  # in test_step, also after ckpt_path="best"

    Args:
        threshold: probability in [0, 1] strictly above which 1 is predicted; for several labels one for each, ``[L]``.
        logits: whether scores are logits; the threshold remains a probability.

    Attributes:
        threshold: probabilities, float64 ``[]``, or ``[L]`` for labels.
        logits: whether scores are logits.

    Raises:
        ValueError: for thresholds outside [0, 1].
        TypeError: for anything but numbers.

    >>> rule = Threshold(0.2)
    >>> rule(torch.tensor([0.1, 0.2, 0.3]))
    tensor([0, 0, 1])
    """

    threshold: Tensor
    logits: bool

    def __init__(self, threshold: float | Sequence[float] | Tensor, logits: bool = False) -> None:
        super().__init__()
        self.register_buffer("threshold", _number("threshold", threshold, several=True))
        if not bool(((self.threshold >= 0) & (self.threshold <= 1)).all()):
            raise ValueError(f"threshold must lie in [0, 1], got {threshold!r}; thresholds of logits are probabilities")
        self.logits = logits

    def forward(self, scores: Tensor) -> Tensor:
        """Decide for 1 where scores are above the threshold, else for 0.

        Args:
            scores: ``[N, ...]`` probabilities or logits of class 1; ``[N, L, ...]`` for several labels.

        Returns:
            int64 0 and 1 in the same shape.
        """
        limit = self.threshold
        if self.logits:
            limit = limit.log() - torch.log1p(-limit)
        if limit.dim() == 1:
            shape = [1] * scores.dim()
            shape[1] = limit.shape[0]
            limit = limit.view(shape)
        wide = scores if scores.dtype == torch.float64 else scores.to(torch.float32)
        return (wide > limit.to(wide.dtype)).to(torch.int64)

    def take(self, source: Any) -> None:
        """Take over the threshold from a sweep, in place; a checkpoint that is saved afterwards holds it.

        Args:
            source: :class:`~imbtorch.ThresholdSweep`, which is then computed over all processes (a collective step); or
                its result, or an operating point of :meth:`~imbtorch.ThresholdSweep.best` (for several labels the dict
                of them), on one process.

        Raises:
            ValueError: for another number of thresholds.
            TypeError: for anything else.
        """
        result: Any = _computed(source)
        found: list[float] | None = None
        if hasattr(result, "rows"):
            found = [float(value) for row, value in result.rows.items() if row.measure == "threshold"]
        elif hasattr(result, "threshold"):
            found = [float(result.threshold)]
        elif isinstance(result, dict) and all(hasattr(point, "threshold") for point in result.values()):
            found = [float(point.threshold) for point in result.values()]
        if not found:
            raise TypeError(
                "source must be a ThresholdSweep, its result or an operating point, got a " + type(source).__name__
            )
        if len(found) != self.threshold.numel():
            raise ValueError(
                f"source has {len(found)} thresholds, but this rule has {self.threshold.numel()}; build it with one "
                "for each label, as in Threshold([0.5] * num_labels)"
            )
        taken = torch.tensor(found, dtype=torch.float64).reshape(self.threshold.shape)
        self.threshold.copy_(taken)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return f"threshold={self.threshold.tolist()}, logits={self.logits}"


def _computed(source: Any) -> Any:
    """Return the result of a sweep, computed now; return anything else unchanged."""
    if hasattr(source, "compute") and hasattr(source, "result"):
        source.compute()  # result() alone may be that of the epoch before, on several processes
        return source.result()
    return source


def _number(name: str, value: Any, several: bool = False) -> Tensor:
    """Convert a finite number, or several, to a float64 tensor, on its own device or the default one."""
    found = _converted(name, value, "a number such as 0.5" + ", or one for each label" * several)
    if found.ndim > int(several) or not bool(found.isfinite().all()) or not found.numel():
        raise ValueError(f"{name} must be a finite number{' or a sequence of them' * several}, got {value!r}")
    return found


def _converted(name: str, value: Any, expected: str) -> Tensor:
    """Convert numbers to a float64 tensor (float32 on devices without it) that shares no memory with them."""
    wide = torch.float64 if has_float64(value.device if isinstance(value, Tensor) else None) else torch.float32
    try:
        if isinstance(value, (str, bool)):
            raise TypeError
        if isinstance(value, Tensor):
            return value.detach().to(wide, copy=True)
        return torch.tensor(value, dtype=wide)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be {expected}, got {value!r}") from error


def checked_prior(prior: Tensor | Sequence[float], class_names: Sequence[str] | None = None) -> Tensor:
    """Check class counts or shares of training, and return them as float64 shares ``[K]``.

    Args:
        prior: ``[K]`` numbers in any unit.
        class_names: names of the classes, for errors; by default their indices.

    Raises:
        ValueError: for a class without samples, negative and infinite numbers, and fewer than two classes.
        TypeError: for anything but numbers.
    """
    found = _converted("prior", prior, "the number or share of training samples of each class, such as [900, 90, 10]")
    if found.ndim != 1 or len(found) < 2:
        raise ValueError(
            "prior must hold the number or share of training samples of each of at least two classes, [K], got shape "
            f"{list(found.shape)}; torch.bincount(labels, minlength=K) counts them"
        )
    if not bool((found.isfinite() & (found >= 0)).all()):
        raise ValueError(f"prior must be finite and not negative, got {found.tolist()[:NAMED]}")
    if not bool((found > 0).all()):
        empty = (found == 0).nonzero().flatten().tolist()
        names = [str(index) if class_names is None else repr(class_names[index]) for index in empty]
        shown = ", ".join(names[:NAMED]) + ", ..." * (len(names) > NAMED)
        raise ValueError(
            f"prior is 0 for {'class' if len(names) == 1 else 'classes'} {shown}, which would get an infinite score; "
            "give them a small number such as 0.5 samples, or leave them out of the network"
        )
    if bool((found == found[0]).all()):
        warn_caller("prior is the same for all classes, so that logit adjustment changes no decision")
    return found / found.sum()
