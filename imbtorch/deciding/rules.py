"""Decision rules as modules, whose numbers travel in checkpoints: logit adjustment and thresholds."""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from imbtorch.compat import checks_trace, is_traced, is_tracked, rank_zero, warn_caller
from imbtorch.counting.logits import (
    ENOUGH,
    PROBABILITIES,
    SUMS,
    like_probabilities,
    logit_threshold,
    of_class_one,
    sum_to_one,
)
from imbtorch.counts import has_float64

NAMED = 20  # most classes that an error names
KINDS = {True: "logits", False: "probabilities"}
SLACK = 1e-4  # rounding of shares and of probabilities in saved states
MOST_OF_MARKS = {"chosen": 1, "class_axis": 64}  # greatest value; torch has tensors of 64 dimensions at most


class _Rule(nn.Module):
    """Base of the rules: a module without parameters and buffers, whose numbers stay as they were chosen.

    The numbers are float64 tensors in plain attributes. As buffers they would be cast (FullyShardedDataParallel),
    averaged (AveragedModel) or broadcast in each step (DistributedDataParallel). The state dict still holds them, and
    they follow the module to other devices; on the meta device they keep their values, on the CPU.

    Attributes:
        of_a_sweep: whether a sweep owns the rule. A state dict may then lack it, for a sweep that was added later.
        chosen: whether the numbers were chosen, float64 ``[]`` on the CPU: 0 for the rule of a sweep at its start, and
            for one that has loaded the state of such a rule; 1 if a state does not say.
        quiet: whether the rule may be used before it is chosen, without a warning.
    """

    chosen: Tensor

    __jit_unused_properties__ = cast(
        "list[str]", ["used", "tau", "threshold", "log_odds"]
    )  # but the instance's numbers
    _numbers = cast("tuple[str, ...]", ())  # names of the attributes that hold numbers; TorchScript reads annotations
    _marks = cast("tuple[str, ...]", ("chosen",))  # those that stay on the CPU, and that older states lack
    _unit = ""  # what a number stands for, in errors
    _moved = ""  # name of the number that a sweep chooses, which is 0 at its start
    _start = ""  # text of that start

    def __init__(self) -> None:
        super().__init__()
        self.of_a_sweep = False
        self._mark("chosen", 1)
        self.quiet = False
        self._missing = False  # whether the state that was loaded last held no rule
        self._checked = False  # whether enough scores were compared with the kind that the rule takes
        self._uses: set[str] = set()  # how it was used by programs
        self._told = False  # whether a use of it before it was chosen has been told

    @property
    def used(self) -> bool:
        """True if a program has called, traced or scripted the rule, read its number, or let it take another one."""
        return bool(self._uses)

    def _note_use(self) -> None:
        if not torch.compiler.is_dynamo_compiling():  # whose graph would hold it
            self._uses.add("used")

    def _mark(self, name: str, value: int) -> None:
        """Change a mark in place."""
        self._write(name, torch.tensor(value, dtype=torch.float64, device="cpu"))

    def _write(self, name: str, value: Tensor) -> None:
        """Change a number in place, inside and outside ``inference_mode``."""
        own: Any = self.__dict__.get(name)
        with torch.inference_mode(False), torch.no_grad():
            if own is None:
                setattr(self, name, value.clone())
            elif own.is_inference():  # a copy that was made inside inference_mode
                setattr(self, name, value.to(own.device, own.dtype, copy=True))
            else:
                own.copy_(value, non_blocking=True)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Move the numbers to another device; they keep their precision, which ``half()`` would take from them."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in (*self._numbers, *self._marks):
            own = self.__dict__[name]
            probe = fn(torch.zeros(1, device=own.device))
            if probe.is_meta:
                continue
            kind = torch.float64 if has_float64(probe.device) else torch.float32
            with torch.inference_mode(False):
                moved = own if name in self._marks else own.to(probe.device, kind)
            if probe.device.type == "cpu" and probe.is_shared():  # type: ignore[no-untyped-call]
                moved.share_memory_()
            setattr(self, name, moved)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in (*self._numbers, *self._marks):
            destination[prefix + name] = self.__dict__[name]

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Copy saved numbers into the rule; refuse another number of classes or labels."""
        others = dict(state_dict)
        names = [name for name in (*self._numbers, *self._marks) if prefix + name in state_dict]
        saved = {name: _read(others.pop(prefix + name)) for name in names}
        missing = [prefix + name for name in self._numbers if name not in saved]
        if not self.of_a_sweep:
            missing_keys += missing
        elif saved and missing:
            error_msgs.append(f"{', '.join(missing)} is missing, but the state holds {prefix}{', '.join(saved)}")
        saved = {} if missing else saved
        if saved and (error := self._error_in(saved)):
            error_msgs.append(f"{prefix}{error}")
            return
        if saved and "chosen" not in saved:  # a state of an older version
            self._mark("chosen", 1)
        for name, value in saved.items():
            self._write(name, value)
        self._missing = not saved
        unexpected_keys[:] = [key for key in unexpected_keys if not is_tracked(key, prefix)]
        super()._load_from_state_dict(others, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def _error_in(self, saved: dict[str, Any]) -> str:
        """Describe an error in saved numbers; return an empty text without one."""
        for name, value in saved.items():
            own = self.__dict__[name]
            dense = isinstance(value, Tensor) and value.layout == torch.strided and not value.is_meta
            if not (dense and value.is_floating_point()):
                return f"{name} must be a dense tensor of real numbers, got {_got(value)}"
            if value.shape != own.shape:
                return (
                    f"{name} holds {value.numel()} {self._unit}, but this {type(self).__name__} has {own.numel()}; "
                    f"build the module with as many {self._unit} as the saved one, or remove the entry"
                )
        numbers = {name: value.cpu().double() for name, value in saved.items()}
        wrong = [name for name in self._marks if name in saved and not 0 <= numbers[name] <= MOST_OF_MARKS[name]]
        fault = f"{wrong[0]} is {numbers[wrong[0]].item()}" if wrong else self._fault(numbers)
        return fault and f"{fault}, which no {type(self).__name__} has; remove the rule from the state"

    def _fault(self, saved: dict[str, Tensor]) -> str:
        """Describe numbers, float64, that no rule can have; return an empty text for possible ones."""
        raise NotImplementedError

    def _take(self, source: Any, **numbers: Any) -> None:
        """Set numbers, which are those of a result or of a point, after a check of the kind of its scores."""
        kind = getattr(source, "logits", None)
        if kind is not None and kind != self.logits:
            raise ValueError(
                f"source was chosen for {KINDS[kind]}, but this {type(self).__name__} takes {KINDS[not kind]}; build "
                f"it with logits={kind}, or use the rule of the sweep, sweep.rule"
            )
        for name, value in numbers.items():
            self._write(name, torch.as_tensor(value, dtype=torch.float64, device="cpu"))
        self._note_use()
        self._mark("chosen", 1)
        self._missing = False

    def _misfit(self, scores: Tensor) -> str:
        """Return a warning about scores that are probabilities; empty if they may be logits."""
        raise NotImplementedError

    def _check_use(self, scores: Tensor) -> None:
        """Warn at the first use of a rule that was not chosen, or, on the CPU, of probabilities in place of logits."""
        self._note_use()
        if is_traced(scores):
            return
        name = type(self).__name__
        if self.logits and scores.is_cpu and not self._checked:
            text = self._misfit(scores.detach())
            self._checked = bool(text) or scores.numel() >= ENOUGH
            if text:
                warn_caller(f"{name}: {text}")
        untold = self._missing or not (bool(self.chosen) or self._told)
        if self.quiet or not untold or not rank_zero() or checks_trace():
            return
        text = (
            f"{name}: the rule of the sweep predicts at its start, {self._start}: log the sweep, or call compute(), so "
            "that it chooses; or set it by sweep.rule.take(...)"
        )
        if self._missing:
            own = self if getattr(self, self._moved).is_cpu else f"the {name}"  # reading it would wait for a device
            text = (
                f"the state that was loaded holds no rule, so {own} decides as before; validate once, so that its "
                "sweep chooses it, or set it by sweep.rule.take(...)"
            )
        self._missing, self._told = False, True
        warn_caller(text)

    def _advice_on(self, value: float, place: int, named: str) -> str:
        """Return how to take a point whose number is not that of the rule; an empty text if it is."""
        own = self.__dict__[self._moved].reshape(-1)[place]
        return "" if bool(own == own.new_tensor(value)) else f"; to decide by it, sweep.rule.take({named})"


class LogitAdjustment(_Rule):
    """Post-hoc logit adjustment: logits minus ``tau`` times the log class shares of training.

    A network trained with an unweighted loss favours frequent classes, as it should for accuracy. With ``tau=1`` the
    highest adjusted logit is the best decision for balanced accuracy, if the probabilities are calibrated; other
    measures have other best values of ``tau``. :class:`~imbtorch.LogitAdjustmentSweep` finds the best value on
    validation data; its own rule, ``sweep.rule``, changes after each validation. A rule that you make keeps its
    ``tau``::

        self.rule = LogitAdjustment(torch.bincount(train_labels, minlength=num_classes), logits=True)
        self.test_report.update(self.rule(logits), y)  # in test_step

    For deployment, append it to the network: ``nn.Sequential(network, rule)``. It can be exported and scripted.
    ``prior`` and ``tau`` are neither parameters nor buffers, so nothing averages them or casts them to half precision.
    They follow the module to another device, and its state dict holds them.

    **When to use tau = 1.** After training with an unweighted loss, ``tau=1`` is a good choice for balanced accuracy
    and needs no validation data. It raised balanced accuracy by 5.7 [3.0, 8.3] points, but changed IAM (the imbalance
    accuracy metric) by -4.0 [-7.8, -0.3] and accuracy by -3.8 [-5.4, -2.3] points (means of 24 units of data with 95%
    intervals; the page "Evidence for decisions" links the study). Do not use it after training with class weights, with
    oversampling or with a balanced loss, which already favours rare classes: after a class-weighted loss it cost 17.8
    points of IAM. If you report accuracy on data with the class shares of training, use ``tau=0``, which changes
    nothing.

    Args:
        prior: ``[K]`` number or share of the training samples of each class, as a sequence, array or tensor, in any
            unit; all must be positive.
        tau: number by which the log shares are multiplied before they are subtracted; 0 changes nothing, negative
            values favour frequent classes.
        logits: True if scores are logits, False if they are probabilities, whose logarithms are adjusted.

    Attributes:
        prior: class shares of training, float64 ``[K]``, which sum to 1.
        tau: multiple of their logarithms, float64 ``[]``.
        logits: True if scores are logits.

    Raises:
        ValueError: for a class without training samples, negative and infinite numbers, fewer than two classes, and a
            ``tau`` that is not finite.
        TypeError: for anything but numbers.

    Source: Menon et al. (2021), Long-tail learning via logit adjustment, eq. 9.

    >>> rule = LogitAdjustment([90, 10], logits=True)
    >>> logits = torch.tensor([[1.0, 0.0]])
    >>> logits.argmax(1), rule.predict(logits)
    (tensor([0]), tensor([1]))
    """

    prior: Tensor
    tau: Tensor
    logits: bool

    _numbers = ("prior", "tau")
    _unit = "classes"
    _moved, _start = "tau", "tau 0"

    def __init__(self, prior: Tensor | Sequence[float], tau: float = 1.0, *, logits: bool) -> None:
        super().__init__()
        shares = checked_shares(prior)
        if bool((shares == shares[0]).all()):
            warn_caller("prior is the same for all classes, so that logit adjustment changes no decision")
        self._write("prior", shares)
        self._write("tau", _number("tau", tau))
        self.logits = logits

    def _fault(self, saved: dict[str, Tensor]) -> str:
        if not bool(saved["tau"].isfinite()):
            return f"tau is {saved['tau'].item()}"
        prior = saved["prior"]
        possible = bool((prior > 0).all()) and abs(prior.sum().item() - 1) < SLACK
        return "" if possible else "prior holds no positive shares that sum to 1"

    def _misfit(self, scores: Tensor) -> str:
        return f"scores {SUMS}" if scores.dim() > 1 and sum_to_one(scores) else ""

    def forward(self, scores: Tensor) -> Tensor:
        """Shift logits, or the logarithms of probabilities, by ``tau`` times the log shares.

        Args:
            scores: ``[N, K, ...]`` logits or log-probabilities; with ``logits=False`` probabilities.

        Returns:
            Adjusted logits in the same shape, in float64 for float64, else in float32.

        Raises:
            ValueError: for another number of classes.
        """
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            self._check_use(scores)
        classes = self.prior.shape[0]
        if scores.dim() < 2 or scores.shape[1] != classes:
            raise ValueError(
                f"scores must be [N, {classes}, ...], a score for each class of the prior; got another shape"
            )
        shape = [1] * scores.dim()
        shape[1] = classes
        shift = (self.tau * self.prior.log()).view(shape)
        wide = scores if scores.dtype == torch.float64 else scores.to(torch.float32)
        if not self.logits:
            wide = wide.log()
        return wide - shift.to(wide)

    def predict(self, scores: Tensor) -> Tensor:
        """Return the class of the highest adjusted score, as the sweep counts it.

        Args:
            scores: ``[N, K, ...]``, as for :meth:`forward`.

        Returns:
            int64 ``[N, ...]``; of tied classes the one with the lowest index.
        """
        adjusted: Tensor = self(scores.double() if has_float64(scores.device) else scores)
        return adjusted.argmax(1)

    def take(self, source: Any) -> None:
        """Set ``tau`` and ``prior`` to the values in a sweep's result or in a point of its ``best``, in place.

        A state dict that is saved afterwards holds them. The rule of a sweep keeps them until the sweep's ``compute``
        is called with new samples.

        Args:
            source: result of a :class:`~imbtorch.LogitAdjustmentSweep`, or a point of its
                :meth:`~imbtorch.LogitAdjustmentSweep.best`.

        Raises:
            ValueError: for another number of classes, and for another kind of scores.
            TypeError: for anything else, also a sweep, which owns a rule already.
        """
        if isinstance(source, nn.Module) or not hasattr(source, "tau") or not hasattr(source, "prior"):
            raise TypeError(_not_taken("LogitAdjustmentSweep", source))
        classes = len(source.prior)
        if classes != len(self.prior):
            raise ValueError(f"source has {classes} classes, but this rule has {len(self.prior)}")
        self._take(source, prior=source.prior, tau=source.tau)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return f"num_classes={len(self.prior)}, tau={float(self.__dict__['tau']):g}" + ", logits=False" * (
            not self.logits
        )


class Threshold(_Rule):
    """Threshold of one score, or of the scores of several labels: 1 strictly above it, else 0.

    :class:`~imbtorch.ThresholdSweep` chooses thresholds on validation data; its own rule, ``sweep.rule``, changes after
    each validation. A rule that you make keeps its threshold::

        self.rule = Threshold(0.3, logits=True)
        self.test_report.update(self.rule(logits), y)  # in test_step

    The threshold is neither a parameter nor a buffer, so nothing averages it or casts it to half precision. It follows
    the module to another device, and its state dict holds it, as a probability and as log-odds. Logits are compared
    with the log-odds, since the probability of a logit above 36.7 is 1 in float64.

    The rule takes what its sweep was updated with: if these were scores of both classes, ``[N, 2, ...]`` for targets
    ``[N, ...]``, it returns a class for each target. Without such a sweep it compares each score.

    Args:
        threshold: probability in [0, 1] strictly above which 1 is predicted; for several labels one for each, ``[L]``.
        logits: True if scores are logits; the threshold remains a probability.
        log_odds: log-odds of the threshold, in place of ``threshold``; -inf and inf are the probabilities 0 and 1.

    Attributes:
        threshold: probabilities, float64 ``[]``, or ``[L]`` for labels.
        log_odds: their log-odds, in the same shape.
        logits: True if scores are logits.
        class_axis: number of dimensions of scores of both classes, float64 ``[]`` on the CPU; 0 if the sweep took none.

    Raises:
        ValueError: for thresholds outside [0, 1], log-odds that are nan, and unless one of both is given.
        TypeError: for anything but numbers.

    >>> rule = Threshold(0.2)
    >>> rule(torch.tensor([0.1, 0.2, 0.3]))
    tensor([0, 0, 1])
    >>> Threshold(log_odds=45.0, logits=True)(torch.tensor([44.0, 46.0]))
    tensor([0, 1])
    """

    threshold: Tensor
    log_odds: Tensor
    class_axis: Tensor
    logits: bool
    dimensions: int

    _numbers = ("threshold", "log_odds")
    _marks = ("chosen", "class_axis")
    _unit = "thresholds"
    _moved, _start = "log_odds", "threshold 0.5"

    def __init__(
        self,
        threshold: float | Sequence[float] | Tensor | None = None,
        logits: bool = False,
        *,
        log_odds: float | Sequence[float] | Tensor | None = None,
    ) -> None:
        super().__init__()
        self._mark("class_axis", 0)
        if (threshold is None) == (log_odds is None):
            raise ValueError("Threshold takes either threshold, a probability, or log_odds; pass one of them")
        if log_odds is None:
            numbers = {"threshold": _number("threshold", threshold, several=True)}
        else:
            odds = _number("log_odds", log_odds, several=True, infinite=True)
            numbers = {"threshold": odds.sigmoid(), "log_odds": odds}
        if not bool(((numbers["threshold"] >= 0) & (numbers["threshold"] <= 1)).all()):
            raise ValueError(
                f"threshold must lie in [0, 1], got {threshold!r}; thresholds of logits are probabilities, or log_odds="
            )
        for name, value in _with_odds(numbers).items():
            self._write(name, value)
        self.logits = logits

    def _fault(self, saved: dict[str, Tensor]) -> str:
        threshold, odds = saved["threshold"], saved["log_odds"]
        if not bool(((threshold >= 0) & (threshold <= 1)).all()):
            return "threshold holds numbers outside [0, 1]"
        return "" if bool(((odds.sigmoid() - threshold).abs() < SLACK).all()) else "log_odds is not that of threshold"

    def _write(self, name: str, value: Tensor) -> None:
        super()._write(name, value)
        if name == "class_axis":
            self.dimensions = math.ceil(value)  # which an average of states brings near to it

    def _check_use(self, scores: Tensor) -> None:
        if not is_traced(scores):  # a program may have copied a state into the tensors
            self.dimensions = math.ceil(self.class_axis)
        super()._check_use(scores)

    def _misfit(self, scores: Tensor) -> str:
        if self._hold_both(scores):
            return f"scores {SUMS}" if sum_to_one(scores) else ""
        return PROBABILITIES if like_probabilities(scores, self.threshold.dim() == 1 and scores.dim() > 1) else ""

    def _hold_both(self, scores: Tensor) -> bool:
        """Return whether scores are those of both classes, as the sweep took them."""
        several = self.dimensions > 0 and scores.dim() > 1 and scores.dim() != self.dimensions - 1
        return several and scores.shape[1] == 2

    def forward(self, scores: Tensor) -> Tensor:
        """Decide for 1 where scores are above the threshold, else for 0.

        Args:
            scores: ``[N, ...]`` probabilities or logits of class 1; ``[N, 2, ...]`` of both classes if the sweep was
                updated with these; ``[N, L, ...]`` for several labels.

        Returns:
            int64 0 and 1 in the same shape; ``[N, ...]`` for scores of both classes.

        Raises:
            ValueError: for another number of labels.
        """
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            self._check_use(scores)
        if self._hold_both(scores):
            scores = of_class_one(scores, scores.dim() - 1) if self.logits else scores[:, 1]
        limit = self.log_odds if self.logits else self.threshold
        if limit.dim() == 1:
            labels = limit.shape[0]
            if scores.dim() < 2 or scores.shape[1] != labels:
                raise ValueError(f"scores must be [N, {labels}, ...], a score for each threshold; got another shape")
            shape = [1] * scores.dim()
            shape[1] = labels
            limit = limit.view(shape)
        if not scores.is_floating_point():
            scores = scores.to(torch.float32)
        return (scores > limit.to(scores)).to(torch.int64)

    def predict(self, scores: Any) -> Any:
        """Return the classes, 0 and 1, as :meth:`forward` does: a tensor, or for arrays and columns a NumPy array.

        Args:
            scores: tensor as for :meth:`forward`, NumPy array, or column of a frame.
        """
        if isinstance(scores, Tensor):
            return self(scores)
        return self(torch.as_tensor(np.asarray(scores))).numpy()

    def take(self, source: Any) -> None:
        """Set the thresholds to the values in a sweep's result or in a point of its ``best``, in place.

        A state dict that is saved afterwards holds them. The rule of a sweep keeps them until the sweep's ``compute``
        is called with new samples.

        Args:
            source: result of a :class:`~imbtorch.ThresholdSweep`, or an operating point of its
                :meth:`~imbtorch.ThresholdSweep.best` (for several labels the dict of them).

        Raises:
            ValueError: for another number of thresholds, and for another kind of scores.
            TypeError: for anything else, also a sweep, which owns a rule already.
        """
        found: list[float] = []
        odds: list[float | None] = []
        points = list(source.values()) if isinstance(source, dict) else [source]
        if hasattr(source, "rows"):
            found = [float(value) for row, value in source.rows.items() if row.measure == "threshold"]
            odds = source.log_odds.reshape(-1).tolist() if found else []
        elif not isinstance(source, nn.Module) and all(hasattr(point, "threshold") for point in points):
            found = [float(point.threshold) for point in points]
            odds = [getattr(point, "log_odds", None) for point in points]
        if not found:
            raise TypeError(_not_taken("ThresholdSweep", source))
        own = self.__dict__["threshold"]
        if len(found) != own.numel():
            raise ValueError(
                f"source has {len(found)} thresholds, but this rule has {own.numel()}; build it with one "
                "for each label, as in Threshold([0.5] * num_labels)"
            )
        given = {"threshold": found} | ({} if None in odds else {"log_odds": odds})
        numbers = {
            name: torch.tensor(each, dtype=torch.float64, device="cpu").reshape(own.shape)
            for name, each in given.items()
        }
        self._take(points[0], **_with_odds(numbers))
        taken = getattr(source, "class_axis", 0)
        if taken:  # that of a point or of a result; without one the rule knows its own
            self._mark("class_axis", taken)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        threshold, odds = self.__dict__["threshold"], self.__dict__["log_odds"]
        rounded = ((threshold == 0) | (threshold == 1)) & odds.isfinite()
        name = "log_odds" if bool(rounded.any()) else "threshold"
        return f"{name}={self.__dict__[name].tolist()}, logits={self.logits}"


def _noted(name: str) -> Any:
    """Return a property that notes who reads a number, which the instance holds by the same name."""

    def read(rule: _Rule) -> Tensor:
        rule._note_use()
        return cast(Tensor, rule.__dict__[name])

    return property(read, lambda rule, value: rule.__dict__.update({name: value}))


for _class, _name in ((LogitAdjustment, "tau"), (Threshold, "threshold"), (Threshold, "log_odds")):
    setattr(_class, _name, _noted(_name))


def _with_odds(numbers: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a threshold with its log-odds, by default those of the probability."""
    threshold = numbers["threshold"]
    each = [logit_threshold(one) for one in threshold.reshape(-1).tolist()]  # as metrics and sweeps, to the last bit
    odds = torch.tensor(each, dtype=torch.float64, device="cpu").reshape(threshold.shape)
    return {"log_odds": odds.to(threshold)} | numbers


def _not_taken(sweep: str, source: Any) -> str:
    """Return the error message for something that a rule cannot take."""
    remedy = "; it owns a rule that holds its choice, sweep.rule" if isinstance(source, nn.Module) else ""
    return f"source must be the result of a {sweep} or a point of its best(), got a {type(source).__name__}{remedy}"


def _read(value: Any) -> Any:
    """Return a value of a state; Lightning's sharded strategies pass what reads a tensor when torch gets it."""
    lazy = not isinstance(value, Tensor) and hasattr(value, "__torch_function__")
    return torch.clone(value) if lazy else value


def _got(value: Any) -> str:
    """Return the kind of a value in place of a dense tensor of real numbers."""
    return (
        f"one of {value.dtype}, {value.layout} on {value.device}" if isinstance(value, Tensor) else type(value).__name__
    )


def _number(name: str, value: Any, several: bool = False, infinite: bool = False) -> Tensor:
    """Convert a finite number, or an infinite one or several, to a float64 tensor."""
    found = _converted(name, value, "a number such as 0.5" + ", or one for each label" * several)
    known = ~found.isnan() if infinite else found.isfinite()
    if found.ndim > int(several) or not bool(known.all()) or not found.numel():
        raise ValueError(f"{name} must be a finite number{' or a sequence of them' * several}, got {value!r}")
    return found


def _converted(name: str, value: Any, expected: str) -> Tensor:
    """Convert numbers to a float64 tensor, or float32 without float64, that shares no memory with them."""
    device = value.device if isinstance(value, Tensor) else torch.get_default_device()
    if isinstance(value, Tensor) and value.is_meta:
        raise ValueError(f"{name} is a tensor on the meta device, which holds no numbers; make it with device='cpu'")
    device = torch.device("cpu") if device.type == "meta" else device
    wide = torch.float64 if has_float64(device) else torch.float32
    try:
        if isinstance(value, (str, bool)):
            raise TypeError
        if isinstance(value, Tensor):
            return value.detach().to(wide, copy=True)
        return torch.tensor(value, dtype=wide, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be {expected}, got {value!r}") from error


def checked_shares(prior: Tensor | Sequence[float], class_names: Sequence[str] | None = None) -> Tensor:
    """Check class counts or shares of training ``[K]``, and return them as float64 shares; errors name the classes."""
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
            "give them a small number such as 0.5 samples, or leave them out of the network. If prior holds the label "
            "of each sample, pass torch.bincount(labels, minlength=K)"
        )
    return found / found.sum()
