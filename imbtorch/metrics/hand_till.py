"""Metric of Hand and Till, which ranks scores rather than counting predictions."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast, overload

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors
from typing_extensions import Unpack

from imbtorch.compat import rank_zero
from imbtorch.counting.batches import FAULTS, extreme
from imbtorch.counting.kernels import integers, reading_is_free
from imbtorch.counting.logits import against_the_rest, wide
from imbtorch.counting.tasks import Counting
from imbtorch.counts import has_float64, ratio, shown_dtype
from imbtorch.metrics.base import TorchmetricsArguments, uncounted_text
from imbtorch.metrics.seen_samples import digest
from imbtorch.metrics.state import Setting, SyncedMetric

OUT_OF_RANGE, NAN = FAULTS.index("targets out of range"), FAULTS.index("NaN scores")
IMPOSSIBLE = FAULTS.index("probabilities outside [0, 1]")
LEFT_OUT = -1  # target of a sample that is kept but ignored


class Batches:
    """List state that several metrics may share; each metric sees only the batches that it received or appended.

    torchmetrics passes the lists of the first metric of a compute group to the others, but each of them appends in
    ``forward``. A new list for every batch would make epochs of many batches slow.
    """

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        """Remember the attribute that keeps the list and its length."""
        self._place = f"_held_{name}"

    @overload
    def __get__(self, metric: None, owner: type) -> Batches: ...
    @overload
    def __get__(self, metric: object, owner: type) -> list[Tensor] | Tensor: ...
    def __get__(self, metric: object | None, owner: type) -> Batches | list[Tensor] | Tensor:
        """Return the batches of a metric without those that other metrics appended."""
        if metric is None:
            return self
        held, length = vars(metric)[self._place]
        if len(held) != length:
            held = held[:length]
            vars(metric)[self._place] = held, length
        return cast(list[Tensor], held)

    def __set__(self, metric: object, held: list[Tensor] | Tensor) -> None:
        """Set a list of batches, or all batches as one tensor."""
        vars(metric)[self._place] = held, len(held)

    def append(self, metric: Metric, batch: Tensor) -> None:
        """Append to the list of a metric in place."""
        held = cast(list[Tensor], self.__get__(metric, type(metric)))
        held.append(batch)
        self.__set__(metric, held)


class HandTill(SyncedMetric):
    r"""M measure of Hand and Till: the AUC of every pair of classes, averaged; it does not depend on class shares.

    .. math:: M = \frac{2}{K(K-1)} \sum_{i<j} \frac{A(i \mid j) + A(j \mid i)}{2}

    A(i | j) is the probability that a sample of class i has a higher score for class i than one of class j; ties count
    one half. For two classes M is the AUC.

    The metric keeps all scores, 4 K + 8 bytes a sample (8 K + 8 for float64 scores), and ``compute`` gathers them.

    Args:
        num_classes: number of classes.
        logits: True if scores are logits, which rank like their softmax but without its rounding; never guessed.
        ignore_index: target of the samples that are ignored.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    ``compute`` returns a value in [0, 1], 0.5 for uninformative scores; higher is better. A class without targets takes
    no part; fewer than two classes with targets give nan and a warning. The value equals
    ``sklearn.metrics.roc_auc_score(multi_class="ovo", average="macro")``.

    Raises:
        ValueError: for fewer than two classes.

    Source: Hand and Till (2001), A simple generalisation of the area under the ROC curve for multiple class
    classification problems.

    >>> metric = HandTill(num_classes=3)
    >>> metric.update(torch.eye(3)[[0, 1, 2, 2]], torch.tensor([0, 1, 2, 1]))
    >>> metric.compute()
    tensor(0.8750)
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = True
    plot_lower_bound, plot_upper_bound = 0.0, 1.0

    num_classes = Setting[int]("_counting.size", "Number of classes.")
    logits = Setting[bool]("_counting.logits", "True if scores are logits.")
    ignore_index = Setting[int | None]("_counting.ignore_index", "Target of the samples that are ignored.")

    scores = Batches("Scores, ``[n, K]`` of each batch; all in one tensor while synced.")
    targets = Batches("Targets, ``[n]`` of each batch.")
    if TYPE_CHECKING:  # TorchScript would read annotations
        not_counted: Tensor  # tally of samples with each fault
        settings: Tensor  # digest of the settings; torchmetrics' collections merge metrics with equal states

    def __init__(
        self,
        num_classes: int,
        *,
        logits: bool = False,
        ignore_index: int | None = None,
        **kwargs: Unpack[TorchmetricsArguments],
    ) -> None:
        super().__init__(**kwargs)
        self._counting = Counting.of("multiclass", num_classes, logits=logits, ignore_index=ignore_index)
        self._digest = digest(f"HandTill {num_classes} {logits} {ignore_index}")
        self.add_state("settings", torch.tensor([self._digest]), dist_reduce_fx=_agreed)
        self.add_state("not_counted", torch.zeros(len(FAULTS), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("targets", [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Keep a batch.

        Args:
            preds: probabilities or logits ``[N, C, ...]``.
            target: class indices ``[N, ...]``.

        Raises:
            ValueError: for mismatched shapes, and on the CPU of a single process for targets out of range, NaN scores,
                and probabilities outside [0, 1] (raw scores need ``logits=True``); on other devices and with several
                processes ``compute`` raises instead, on all processes.
            TypeError: for predictions that are not floating scores.
        """
        self._check(preds, target)
        self._note_samples(preds, target)
        scores = wide(preds.detach().movedim(1, -1).reshape(-1, self.num_classes))
        # probabilities near 1 may be equal in float32 although their log-odds differ
        scores = against_the_rest(scores) if self.logits else scores.clone()
        truth = integers(target.reshape(-1))
        ignored = torch.zeros_like(truth, dtype=torch.bool) if self.ignore_index is None else truth == self.ignore_index
        outside = ((truth < 0) | (truth >= self.num_classes)) & ~ignored
        nan = scores.isnan().any(-1) & ~ignored & ~outside
        kept = ~(ignored | outside | nan)
        worst = extreme(scores)
        strange = ((worst < 0) | (worst > 1)) & kept & (not self.logits)
        self._note_faults({OUT_OF_RANGE: (outside, truth), NAN: (nan, truth), IMPOSSIBLE: (strange, worst)})
        # all samples are kept, since selecting the valid ones would wait for the device
        type(self).scores.append(self, scores)
        type(self).targets.append(self, truth.masked_fill(~kept | strange, LEFT_OUT))

    def _check(self, preds: Tensor, target: Tensor) -> None:
        """Check types, shapes and devices of a batch, and that the metric is not synced."""
        self._refuse_synced()
        if not isinstance(preds, Tensor) or not preds.is_floating_point():
            got = preds.dtype if isinstance(preds, Tensor) else type(preds).__name__
            raise TypeError(f"preds must be floating scores [N, C, ...], got {got}; class indices cannot be ranked")
        self._counting.check(preds, target)
        if preds.device != self.device:
            raise ValueError(f"preds are on {preds.device} but the metric is on {self.device}; move the metric")

    def _note_faults(self, faults: dict[int, tuple[Tensor, Tensor]]) -> None:
        """Raise for samples that cannot be ranked, or tally them for ``compute`` on a device or several processes.

        Args:
            faults: fault -> mask of the samples that have it, and the values that show it, ``[N]`` each.
        """
        if not reading_is_free(self.not_counted) or self.distributed_available_fn():
            tally = torch.zeros_like(self.not_counted)
            for fault, (applies, _) in faults.items():
                tally[fault] = applies.sum()
            self.not_counted = self.not_counted + tally
            return
        for fault, (applies, shown) in faults.items():
            if bool(applies.any()):
                raise ValueError(self._counting.error_message(fault, shown[applies], len(shown), shown))

    @torch.jit.unused
    def forward(self, preds: Tensor, target: Tensor) -> Tensor:
        """Keep a batch and return the value of this batch; arguments as for :meth:`update`.

        With ``dist_sync_on_step=True`` the value covers the current batches of all processes. Samples that cannot be
        ranked are ignored if :meth:`update` leaves their error to ``compute``.
        """
        self.update(preds, target)
        samples = self.scores[-1], self.targets[-1]
        if self.dist_sync_on_step:
            samples = self._of_all_processes(*samples)
        scores, starts = self._by_class(*samples)
        value = self._mean_area(scores, starts, starts.tolist())
        self._forward_cache: Any = value
        return value

    def compute(self) -> Tensor:
        """Return the value of all samples of all processes.

        Raises:
            ValueError: if samples could not be ranked, or were kept by a metric with other settings.
        """
        scores, starts = self._by_class(*self._samples())
        known = torch.cat((self.settings, self.not_counted, starts)).tolist()  # one wait for all of them
        settings, tally, places = known[:1], known[1 : 1 + len(FAULTS)], known[1 + len(FAULTS) :]
        if settings != [self._digest]:
            raise ValueError(
                f"this HandTill has num_classes={self.num_classes}, logits={self.logits}, "
                f"ignore_index={self.ignore_index}, but some of its samples were kept with other settings; use the "
                "same settings for saving and loading a checkpoint"
            )
        if any(tally):
            raise ValueError(f"{uncounted_text('HandTill', tally)}; correct the input and call reset()")
        value = self._mean_area(scores, starts, places)
        if sum(before < after for before, after in pairwise(places)) < 2 and rank_zero():
            warnings.warn("HandTill needs targets of at least two classes; its value is nan", stacklevel=4)
        return value

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the samples of another HandTill with the same settings, or of its ``metric_state``.

        Raises:
            ValueError: for anything else; then nothing is added.
        """
        updates = incoming_state._update_count if isinstance(incoming_state, HandTill) else 1
        state: Any = incoming_state.metric_state if isinstance(incoming_state, HandTill) else incoming_state
        if not isinstance(state, dict) or set(state) != set(self._defaults):
            got = f"the states {sorted(state)}" if isinstance(state, dict) else type(state).__name__
            raise ValueError(f"incoming_state must be a HandTill or its metric_state, got {got}")
        if not torch.equal(state["settings"].to(self.device), self.settings):
            raise ValueError("cannot merge a HandTill with another num_classes, logits or ignore_index")
        self._refuse_synced()
        self.scores = [*self.scores, *(kept.to(self.device) for kept in state["scores"])]
        self.targets = [*self.targets, *(kept.to(self.device) for kept in state["targets"])]
        self.not_counted = self.not_counted + state["not_counted"].to(self.device)
        self._update_count += updates

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load saved samples."""
        if any(f"{prefix}{name}" in state_dict for name in self._defaults):
            self._refuse_synced()
        super()._load_from_state_dict(state_dict, prefix, *others)

    # --- the value --------------------------------------------------------------------------------------------------

    def _samples(self) -> tuple[Tensor, Tensor]:
        """Return scores ``[N, K]`` and targets ``[N]`` of all samples, including ignored ones."""
        if isinstance(self.scores, Tensor) and isinstance(self.targets, Tensor):
            return self.scores.reshape(-1, self.num_classes), self.targets
        none = torch.zeros(0, self.num_classes, device=self.scores[0].device if self.scores else self.device)
        return torch.cat([none, *self.scores]), torch.cat([none[:, 0].long(), *self.targets])

    def _of_all_processes(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Gather the samples of one batch from all processes."""
        batch = HandTill(
            self.num_classes,
            logits=self.logits,
            ignore_index=self.ignore_index,
            process_group=self.process_group,
            distributed_available_fn=self.distributed_available_fn,
        ).to(self.device)
        batch._alike_in, batch._seen = self._alike_in, self._seen
        batch.scores, batch.targets = [scores], [target]
        with batch.sync_context(dist_sync_fn=self.dist_sync_fn):
            return batch._samples()

    def _by_class(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores sorted by target, ignored samples first, and the places where each class starts and ends."""
        order = target.argsort()
        classes = torch.arange(self.num_classes + 1, device=target.device)
        return scores[order], torch.searchsorted(target[order], classes)

    def _mean_area(self, scores: Tensor, starts: Tensor, places: list[int]) -> Tensor:
        """Return the mean area over all ordered pairs of classes with targets; nan without a pair.

        Args:
            scores: scores ``[N, K]`` sorted by target.
            starts: first sample of each class, and the number of samples, on the device of the scores.
            places: the same numbers.
        """
        twice_won = []  # wins [i, j] of class i over class j by the score for i, ties one half
        for label, (start, end) in enumerate(pairwise(places)):
            column = scores[:, label].contiguous()
            own = column[start:end].sort().values
            twice_lost = torch.searchsorted(own, column) + torch.searchsorted(own, column, right=True)
            so_far = torch.nn.functional.pad((2 * (end - start) - twice_lost).cumsum(0), (1, 0))
            twice_won.append(so_far[starts].diff())
        members = torch.tensor(places, device="cpu").diff().double()
        areas = ratio(torch.stack(twice_won).cpu().double() / 2, members.unsqueeze(-1) * members)
        present = members > 0
        pairs = present.unsqueeze(-1) & present & ~torch.eye(self.num_classes, dtype=torch.bool, device="cpu")
        return areas[pairs].mean().to(shown_dtype()).to(self.device, non_blocking=True)

    # --- the life of a metric ---------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Remove all samples and start anew."""
        self.scores, self.targets = [], []  # torchmetrics would empty the lists, which other metrics may share
        self._seen.clear()
        super().reset()

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        """Count an update only if it succeeds."""
        noted = super()._wrap_update(update)

        @functools.wraps(update)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            updates = self._update_count
            try:
                noted(*args, **kwargs)
            except BaseException:
                self._update_count = updates
                raise

        return wrapped

    def _sync_dist(
        self, dist_sync_fn: Callable[..., list[Tensor]] = gather_all_tensors, process_group: Any | None = None
    ) -> None:
        """Gather the samples of all processes; change nothing if that fails."""
        before = {name: getattr(self, name) for name in self._defaults}
        scores, targets = self._samples()
        try:
            own_fn = None if dist_sync_fn is gather_all_tensors else dist_sync_fn
            text, _ = self._check_first_sync(self.device, own_fn, process_group or self.process_group)
            # one flat tensor of the widest dtype works for any dtype and number of classes, and for no samples at all
            kind = torch.float64 if has_float64(self.device) else torch.float32
            self.scores, self.targets = [scores.flatten().to(self.device, kind)], [targets.to(self.device)]
            super()._sync_dist(dist_sync_fn, process_group)
            self._warn_of_samples(text)
        except BaseException:
            for name, state in before.items():
                setattr(self, name, state)
            self._cache = None
            raise

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> torch.nn.Module:
        """Move samples to another device; all states keep their dtype."""
        super()._apply(fn, exclude_state=tuple(self._defaults))
        for name, first in (("settings", [self._digest]), ("not_counted", [0] * len(FAULTS))):
            default, held = torch.tensor(first, device=self.device), getattr(self, name)
            self._defaults[name] = default
            setattr(self, name, default.clone() if held.is_meta else held.to(self.device))  # of meta after to_empty
        self.scores = [kept.to(self.device) for kept in self.scores]
        self.targets = [kept.to(self.device) for kept in self.targets]
        return self

    def _settings_text(self) -> str:
        return f"{super()._settings_text()} {self!r}"

    def __repr__(self) -> str:
        """Return the call that builds the metric, in one line."""
        ignored = "" if self.ignore_index is None else f", ignore_index={self.ignore_index}"
        return f"HandTill(num_classes={self.num_classes}{', logits=True' * self.logits}{ignored})"


def _agreed(settings: Tensor) -> Tensor:
    """Return the digest that several metrics ``[M, 1]`` share; -1 if a checkpoint brought other ones to some."""
    return torch.where((settings == settings[0]).all(), settings[0], -1)
