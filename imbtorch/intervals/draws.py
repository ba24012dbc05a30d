"""Random confusion matrices, given counts: draws from a posterior, and resamples; quantiles by SciPy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from scipy import special
from torch import Tensor

from imbtorch.counts import Counts, Margins, check_choice, check_square, double, ratio
from imbtorch.waiting import announced


def normal_quantile(level: float) -> float:
    """Compute half the width of the central interval of a standard normal distribution that has probability ``level``.

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    return float(special.ndtri((1 + level) / 2))


def student_quantile(level: float, freedom: Tensor) -> Tensor:
    """Compute half the width of the central interval of Student's t distribution that has probability ``level``.

    Args:
        level: in (0, 1).
        freedom: degrees of freedom ``[...]``, >= 1, not necessarily whole.

    Returns:
        Float64 ``[...]``.

    >>> student_quantile(0.95, torch.tensor([2.0, 19.0]))
    tensor([4.3027, 2.0930], dtype=torch.float64)
    """
    degrees = freedom.numpy(force=True).astype(float)
    return torch.as_tensor(special.stdtrit(degrees, (1 + level) / 2), device=freedom.device)


# --- draws -----------------------------------------------------------------------------------------------------------
DRAWS = 2000  # of intervals of reports and metrics: another seed moves a bound by 1.4% of the width, with 10,000 .7%


def seeded(counts: Tensor, level: float, given: torch.Generator | None) -> torch.Generator:
    """Return the given generator, by default one whose seed is a hash of whole counts and a level.

    Whoever asks for an interval then gets the same one. Names of values are no part of the seed, since values that
    share their draws take a half to a seventh of the time.
    """
    if given is not None:
        return given
    whole = counts.cpu().long().contiguous().numpy()
    digest = hashlib.blake2b(f"{level!r} {whole.shape}".encode() + whole.tobytes(), digest_size=8)
    return torch.Generator("cpu").manual_seed(int.from_bytes(digest.digest(), "big"))


PriorName: TypeAlias = Literal["auto", "jeffreys", "pooled", "uniform"]
Prior: TypeAlias = PriorName | Tensor
Totals: TypeAlias = Literal["drawn", "fixed"]
CELLS_AT_ONCE = 4_000_000  # cells drawn at once, 32 MB of float64
SERIAL = 32_767  # numbers up to which PyTorch works in the calling thread
LEAST_DRAWS = 16  # draws that are worth an operation of their own
SPARSE_FROM = 16  # classes from which margins are summed over the cells with counts
LUCKY = 0.1  # share of samples whose clusters differ so little by chance that their spread is taken as too small
AGREE, DIFFER = 0.25, 0.5  # prior, in samples, of outcomes with both models right or both wrong, and with one right
EXPONENTIALS = 3  # Gamma concentrations up to which draws are sums of exponentials, which is 4 times as fast


def checked_whole(counts: Tensor, event_dims: int = 2) -> Tensor:
    """Convert counts ``[..., K, K]`` to float64, and check that they are whole numbers of samples.

    Raises:
        ValueError: for counts that are NaN, infinite, negative or not whole, or that lack the event dimensions.
    """
    if not 2 <= event_dims <= max(2, check_square(counts).ndim):
        raise ValueError(
            f"event_dims must lie in 2..{counts.ndim} for counts {list(counts.shape)}, got {event_dims!r}; 2 is one "
            "matrix for each value"
        )
    wide = double(counts)
    wrong = ~(wide.isfinite() & (wide >= 0))
    if bool(wrong.any()):
        raise ValueError(f"counts must be finite and not negative, got {wide[wrong][0].item():g}")
    broken = wide != wide.round()
    if bool(broken.any()):
        raise ValueError(
            f"counts must be whole numbers of samples, got {wide[broken][0].item():g}; sums of weights are no such "
            "numbers (weighted reports have their intervals); round expected counts and means of counts"
        )
    return wide


def chunks(samples: int, cells: int, device: torch.device, joint: int | None = None) -> list[int]:
    """Split draws into chunks that bound the memory and keep operations in the calling thread.

    A larger operation is spread over threads, which wait for one another at its end. Draws take thousands of operations
    of some microseconds; if another process uses one of the cores, each operation waits for a time slice of it.

    Args:
        samples: number of draws.
        cells: numbers that a draw takes in memory.
        device: device of the draws; chunks are large on all but the CPU.
        joint: numbers of a draw that one operation reads; by default all.

    Returns:
        Sizes of the chunks.
    """
    most = CELLS_AT_ONCE // max(cells, 1)
    serial = SERIAL // max(cells if joint is None else joint, 1)
    if serial >= LEAST_DRAWS and device.type == "cpu":
        most = min(most, serial)
    most = max(most, 1)
    return [min(most, samples - start) for start in range(0, samples, most)]


def blocks(rows: Tensor, samples: int) -> tuple[Tensor, ...]:
    """Split rows of ``samples`` numbers, or their indices, so that work on them stays in the calling thread.

    :func:`chunks` says why. PyTorch spreads ``x[index]``, ``x[index] = y`` and ``log`` over threads from some 2,000
    numbers on. Therefore draws use ``index_select``, ``index_copy_`` and ``xlogy``.
    """
    return torch.split(rows, max(1, SERIAL // max(samples, 1))) if rows.device.type == "cpu" else (rows,)


def gammas(alpha: Tensor, samples: int, generator: torch.Generator | np.random.Generator | None) -> Tensor:
    """Draw Gamma distributed numbers ``[N, samples]`` of concentrations ``[N]``; 0 for a concentration of 0.

    A generator of NumPy draws them in half the time.
    """
    drawn = alpha.new_empty(len(alpha), samples)
    times = torch.where((alpha == alpha.round()) & (alpha <= EXPONENTIALS), alpha, -1).long()
    for count in torch.unique(times).tolist():
        for chosen in blocks((times == count).nonzero().flatten(), samples):
            if isinstance(generator, np.random.Generator):
                shape = len(chosen), samples
                if count > 0:
                    each = generator.standard_exponential((count, *shape)).sum(0)
                else:
                    each = generator.standard_gamma(alpha[chosen].numpy()[:, None], shape)
                drawn.index_copy_(0, chosen, torch.from_numpy(each))
                continue
            if count < 0:
                some = alpha.index_select(0, chosen).unsqueeze(-1).repeat(1, samples)
                drawn.index_copy_(0, chosen, torch._standard_gamma(some, generator))
                continue
            product = alpha.new_ones(len(chosen), samples)
            for _ in range(count):
                uniform = torch.rand(product.shape, dtype=alpha.dtype, device=alpha.device, generator=generator)
                product.mul_(uniform.neg_().add_(1))  # in (0, 1]
            drawn.index_copy_(0, chosen, torch.xlogy(-1.0, product))
    return drawn


def taken(values: Tensor, index: Tensor) -> Tensor:
    """Take values ``[N]`` at indices of any shape."""
    return values.index_select(0, index.flatten()).view(index.shape)


def scaled(values: Tensor, factors: Tensor, groups: Tensor) -> Tensor:
    """Scale rows ``[C, S]``, each by the row of ``factors`` (``[R, S]`` or ``[R, 1]``) with the index in ``groups``."""
    result = torch.empty_like(values)
    samples = values.shape[-1]
    for part, some, into in zip(*(blocks(each, samples) for each in (values, groups, result)), strict=True):
        torch.mul(part, factors.index_select(0, some), out=into)
    return result


def sums_by_group(values: Tensor, groups: Tensor, number: int) -> Tensor:
    """Sum the rows of ``values`` by sorted groups, in a fixed order, so that sums are reproducible on GPUs as well."""
    lengths = torch.bincount(groups, minlength=number)
    return torch.segment_reduce(values, "sum", lengths=lengths, axis=0, unsafe=True)


# --- posterior ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lumps:
    """Prior mass of each row with targets: ``right`` for its right cell, ``wrong`` for one of its wrong cells."""

    right: Tensor
    wrong: Tensor


class CountsPosterior:
    """Posterior of a batch of matrices, from which draws are made.

    Rows with targets, of all matrices, form one sequence. Columns are numbered likewise, so that a matrix is a block.
    Cells with errors are drawn one by one. The wrong part of the prior of a row (its lump) falls into one empty cell,
    another in each draw; spread evenly, the prior would imply that no empty cell can have a large rate.

    Args:
        counts: float64 ``[..., K, K]``.
        prior: name of a prior, or pseudo-counts ``[K, K]``.
        totals: ``"drawn"`` or ``"fixed"`` class totals.
        worth: ``[..., K]`` effective numbers of independent targets of each class; by default their counts. The prior
            of a class without errors, or without hits, is then one sample of the other kind, as in an exact bound.
        sizes: ``[..., K, K]`` factors of the wrong part of the prior of classes without errors, by the cell into which
            it falls, for measures that read columns; by default 1.
    """

    def __init__(
        self, counts: Tensor, prior: Prior, totals: Totals, worth: Tensor | None = None, sizes: Tensor | None = None
    ) -> None:
        self.shape, self.size = counts.shape, counts.shape[-1]
        flat = counts.reshape(-1, self.size, self.size)
        hits, actual, predicted = flat.diagonal(dim1=-2, dim2=-1), flat.sum(-1), flat.sum(-2)
        self.rows = (actual > 0).flatten().nonzero().flatten()  # rows with targets among all rows
        self.actual, self.hits = (part.flatten()[self.rows] for part in (actual, hits))
        self.number = flat.shape[0] * self.size
        self.totals = totals
        wrong = _wrong_cells(actual, predicted)
        extra = prior.to(flat) * (actual > 0).unsqueeze(-1) if isinstance(prior, Tensor) else None
        errors = flat - torch.diag_embed(hits)
        alpha = errors if extra is None else torch.where(wrong, errors + extra, 0.0)
        self.places = place = alpha.flatten().nonzero().flatten()  # of errors among the cells of all matrices
        self.alpha = alpha.flatten()[place]
        of_row = torch.zeros_like(actual.flatten(), dtype=torch.long)
        of_row[self.rows] = torch.arange(len(self.rows), device=flat.device)
        self.cell_rows = of_row[place // self.size]  # among rows with targets
        self.cell_columns = place // self.size**2 * self.size + place % self.size
        self.by_column = self.cell_columns.argsort(stable=True)
        self.pooled = isinstance(prior, str) and prior in ("auto", "pooled")
        self.lumps = self._lumps(prior, hits, actual, extra)
        self._choose_from(wrong, errors)
        # variants of the draws leave out the prior of errors or hits in rows and columns that have none
        self.erring = (self.actual - self.hits) > 0
        self.receiving = (predicted - hits).flatten() > 0
        self.hit = self.hits > 0
        if worth is not None:
            share = ratio(worth.to(self.actual).flatten()[self.rows], self.actual)
            self.hits, self.alpha = self.hits * share, self.alpha * share[self.cell_rows]
            one = self.hit.double() - self.erring.double()  # 1 without errors, -1 without hits
            for kind, (right, wrong) in [(name, (each.right, each.wrong)) for name, each in self.lumps.items()]:
                even = right == wrong  # not pooled over classes
                pairs = (right, (1 - one) / 2), (wrong, (1 + one) / 2)
                self.lumps[kind] = Lumps(*(torch.where(even, exact, each) for each, exact in pairs))
        self.sizes = None
        if sizes is not None and not bool(self.erring.all()):
            self.sizes = torch.where(self.erring.unsqueeze(-1), 1.0, sizes.flatten(0, -2)[self.rows])
        self.clean_cells = (errors.flatten()[place] > 0) | (
            self.erring[self.cell_rows] & self.receiving[self.cell_columns]
        )

    def _lumps(self, prior: Prior, hits: Tensor, actual: Tensor, extra: Tensor | None) -> dict[str, Lumps]:
        """Return the prior mass for values of single classes and for averages."""
        if extra is not None:
            right = extra.diagonal(dim1=-2, dim2=-1).flatten()[self.rows]
            given = Lumps(right, torch.zeros_like(right))
            return {"class": given, "average": given}
        half = torch.full_like(self.actual, 0.5)
        known = {"jeffreys": Lumps(half, half), "uniform": Lumps(2 * half, 2 * half)}
        mean = pooled_recall(hits, actual).expand_as(actual).flatten()[self.rows]
        known["pooled"] = Lumps(mean, 1 - mean)
        names = ("jeffreys", "pooled") if prior == "auto" else (prior, prior)
        return {"class": known[names[0]], "average": known[names[1]]}  # type: ignore[index]

    def _choose_from(self, wrong: Tensor, errors: Tensor) -> None:
        """Find the cells into which the lump of each row can fall: the empty wrong cells, or else all wrong ones."""
        empty = wrong & (errors == 0)
        among = torch.where(empty.any(-1, keepdim=True), empty, wrong).flatten(0, 1)[self.rows]
        self._options = among.sum(-1)
        self._first = self._options.cumsum(0) - self._options
        place = among.flatten().nonzero().flatten()
        matrix = self.rows[place // self.size] // self.size
        self._columns = matrix * self.size + place % self.size

    def draw(self, samples: int, generator: torch.Generator | None, kinds: list[str]) -> Draws:
        """Draw the random numbers that all measures share, with the lumps of these kinds of measures."""
        uniform = torch.rand(len(self.rows), samples, dtype=torch.float64, device=self.rows.device, generator=generator)
        most = (self._options - 1).clamp(min=0).unsqueeze(-1)
        option = torch.minimum((uniform * self._options.unsqueeze(-1)).long(), most) + self._first.unsqueeze(-1)
        column = taken(self._columns, option) if len(self._columns) else torch.zeros_like(option)
        cells = gammas(self.alpha, samples, generator)
        masses = {}
        for kind in kinds:
            lumps = self.lumps[kind]
            spare = torch.where(self._options > 0, lumps.wrong, 0.0)
            masses[kind] = Lumps(gammas(self.hits + lumps.right, samples, generator), gammas(spare, samples, generator))
        totals = self.actual.unsqueeze(-1).expand(-1, samples)
        if self.totals == "drawn":
            totals = self._drawn_totals(samples, generator)
        return Draws(self, cells, column, masses, totals)

    def _drawn_totals(self, samples: int, generator: torch.Generator | None) -> Tensor:
        """Draw class totals from Dirichlet distributions; their sums are as counted."""
        drawn = gammas(self.actual + 0.5, samples, generator)
        matrix = self.rows // self.size
        count = self.number // max(self.size, 1)
        sums = sums_by_group(drawn, matrix, count)
        number = sums_by_group(self.actual, matrix, count)
        return drawn * (number.unsqueeze(-1) / sums).index_select(0, matrix)

    def mean(self, rates: Tensor, totals: Tensor) -> Tensor:
        """Compute mean counts ``[..., K, K]`` from mean rates and mean totals of the rows ``[R]``."""
        whole = totals.new_zeros(self.number)
        whole[self.rows] = totals
        return rates * whole.reshape(*self.shape[:-1], 1)

    @property
    def variants(self) -> list[str]:
        """Variants of the draws: plain; without errors, and without hits, in classes that counted none."""
        clean = not bool(self.erring.all()) or not bool(self.receiving.all())
        return ["plain", *(["clean"] if clean else []), *([] if bool(self.hit.all()) else ["hopeless"])]

    def chunks(self, samples: int, matrices: bool) -> list[int]:
        """Split draws into chunks; errors, which may be many, are worked on in blocks."""
        joint = self.number * self.size if matrices or not self.sparse else self.number
        return chunks(samples, max(joint, len(self.alpha), 4 * len(self.rows)), self.rows.device, joint)

    @property
    def sparse(self) -> bool:
        """True if margins are summed over cells with counts; not on a GPU, where the order of such sums varies."""
        return self.size >= SPARSE_FROM and self.rows.device.type == "cpu"


@dataclass(frozen=True)
class Draws:
    """Draws of a posterior as Gamma variables, which are normalised to rates and counts.

    Attributes:
        of: the posterior.
        cells: ``[C, S]`` variables of the cells with errors.
        column: ``[R, S]`` column of the lump of each row.
        masses: kind of measure -> ``[R, S]`` variables of the right cells, and of the lumps.
        totals: ``[R, S]`` totals of the rows.
    """

    of: CountsPosterior
    cells: Tensor
    column: Tensor
    masses: dict[str, Lumps]
    totals: Tensor

    def parts(self, kind: str, variant: str, sized: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Compute counts of the cells with errors ``[C, S]``, the right cells ``[R, S]`` and the lumps ``[R, S]``."""
        posterior, mass = self.of, self.masses[kind]
        right, lump, cells = mass.right, mass.wrong, self.cells
        if sized and posterior.sizes is not None:
            lump = lump * posterior.sizes.gather(-1, self.column % posterior.size)
        if variant == "clean":
            lump = lump * (posterior.erring.unsqueeze(-1) & taken(posterior.receiving, self.column))
            if not bool(posterior.clean_cells.all()):
                each = torch.arange(len(cells), device=cells.device)
                cells = scaled(cells, posterior.clean_cells.unsqueeze(-1), each)
        elif variant == "hopeless":
            right = right * posterior.hit.unsqueeze(-1)
        scale = ratio(self.totals, right + lump + sums_by_group(cells, posterior.cell_rows, len(right)))
        return scaled(cells, scale, posterior.cell_rows), right * scale, lump * scale

    def matrices(self, kind: str, variant: str, sized: bool) -> Tensor:
        """Build matrices of counts, ``[S, ..., K, K]``."""
        whole = self._placed(*self.parts(kind, variant, sized))
        return whole.t().reshape(self.cells.shape[-1], *self.of.shape)

    def _placed(self, cells: Tensor, right: Tensor, lump: Tensor) -> Tensor:
        """Put the parts in their places among all cells, ``[cells, S]``."""
        posterior = self.of
        size, rows = posterior.size, posterior.rows
        whole = cells.new_zeros(posterior.number * size, cells.shape[-1])
        whole.index_copy_(0, posterior.places, cells)
        whole.index_copy_(0, rows * size + rows % size, right)
        return whole.scatter_add_(0, rows.unsqueeze(-1) * size + self.column % size, lump)

    def margins(self, kind: str, variant: str, sized: bool) -> Margins:
        """Compute diagonal, row sums and column sums, each ``[S, ..., K]``."""
        posterior = self.of
        cells, right, lump = self.parts(kind, variant, sized)
        empty = cells.new_zeros(posterior.number, cells.shape[-1])
        correct, actual = empty.clone(), empty.clone()
        correct.index_copy_(0, posterior.rows, right)
        actual.index_copy_(0, posterior.rows, self.totals)
        errors = torch.empty_like(cells)  # by column
        for some, into in zip(*(blocks(each, cells.shape[-1]) for each in (posterior.by_column, errors)), strict=True):
            torch.index_select(cells, 0, some, out=into)
        columns = posterior.cell_columns.index_select(0, posterior.by_column)
        predicted = (correct + sums_by_group(errors, columns, posterior.number)).scatter_add_(0, self.column, lump)
        shape = (cells.shape[-1], *posterior.shape[:-1])
        return Margins(*(part.t().reshape(shape) for part in (correct, actual, predicted)))

    def sum_of_rates(self, kind: str, sized: bool) -> Tensor:
        """Sum the rates of all cells over the draws, ``[..., K, K]``; rows without targets are 0."""
        posterior = self.of
        size, rows = posterior.size, posterior.rows
        cells, right, lump = replace(self, totals=torch.ones_like(self.totals)).parts(kind, "plain", sized)
        if not posterior.sparse:
            return self._placed(cells, right, lump).sum(-1).reshape(posterior.shape)
        whole = cells.new_zeros(posterior.number * size)
        whole[posterior.places] = torch.cat([part.sum(-1) for part in blocks(cells, cells.shape[-1])])
        whole[rows * size + rows % size] = right.sum(-1)
        whole.scatter_add_(0, (rows.unsqueeze(-1) * size + self.column % size).flatten(), lump.flatten())
        return whole.reshape(posterior.shape)

    def counts(self, kind: str, variant: str, margins: bool, sized: bool) -> Counts:
        """Return margins if they are asked for and faster, else matrices."""
        return (self.margins if margins and self.of.sparse else self.matrices)(kind, variant, sized)


def pooled_recall(hits: Tensor, actual: Tensor) -> Tensor:
    """Compute the right part of the pooled prior, ``[..., 1]``: the mean recall, for two classes a half."""
    classes = (actual > 0).sum(-1, keepdim=True)
    pooled = (ratio(hits, actual).sum(-1, keepdim=True) + 0.5) / (classes + 1)
    return torch.where(classes > 2, pooled, 0.5)


def _wrong_cells(actual: Tensor, predicted: Tensor) -> Tensor:
    """Find the wrong cells ``[B, K, K]`` that can hold samples, in rows with targets and columns of classes that occur.

    A class without targets and predictions does not occur, as in the measures, unless there is only one other class.
    """
    seen = (actual > 0) | (predicted > 0)
    seen = torch.where(seen.sum(-1, keepdim=True) > 1, seen, True)
    off = ~torch.eye(actual.shape[-1], dtype=torch.bool, device=actual.device)
    return off & (actual > 0).unsqueeze(-1) & seen.unsqueeze(-2)


def check_prior(prior: Prior, size: int) -> None:
    """Raise for an invalid prior of K classes."""
    if isinstance(prior, Tensor):
        if prior.shape != (size, size) or not bool(((prior > 0) & prior.isfinite()).all()):
            raise ValueError(f"prior must be positive pseudo-counts {[size, size]}, got shape {list(prior.shape)}")
    else:
        check_choice("prior", prior, get_args(PriorName))


# --- resamples ------------------------------------------------------------------------------------------------------


def multinomial(shares: Tensor, totals: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw counts of cells from multinomial distributions, by chained binomials.

    Each cell takes its share of what the cells before it left; empty cells cost nothing.

    Args:
        shares: float64 ``[..., C]``, counts or shares of the cells, >= 0.
        totals: float64 ``[N, ...]``, whole numbers to divide among the cells.
        generator: source of randomness, on the device of the shares.

    Returns:
        float64 ``[N, ..., C]``.

    >>> multinomial(torch.tensor([[0.0, 1.0, 0.0]]), torch.tensor([[5.0]]), None)
    tensor([[[0., 5., 0.]]])
    """
    counts = totals.new_zeros(*totals.shape, shares.shape[-1])
    left = totals.clone()
    behind = shares.flip(-1).cumsum(-1).flip(-1)  # of a cell and all after it; exactly its own at the last one
    filled = (shares > 0).reshape(-1, shares.shape[-1]).any(0).nonzero().flatten().tolist()
    for index in filled:
        chance = ratio(shares[..., index], behind[..., index]).expand_as(left)
        taken = torch.binomial(left, chance, generator=generator)
        counts[..., index] = taken
        left -= taken
    return counts


def resampled_cells(counts: Tensor, samples: int) -> Tensor:
    """Draw all samples of whole counts ``[..., C]`` with replacement, with a fixed seed, float64 ``[samples, ..., C]``.

    NumPy's multinomial distribution takes many draws at the same shares at once, which chained binomials do not.
    """
    cells = counts.flatten()
    held = cells.nonzero().flatten()
    shares = (cells[held] / cells.sum()).numpy()
    times = np.random.default_rng(0).multinomial(int(cells.sum()), shares, samples)
    drawn = torch.zeros(samples, len(cells), dtype=torch.float64)
    drawn[:, held] = torch.from_numpy(times).double()
    return drawn.view(samples, *counts.shape)


def effective_clusters(sizes: Tensor, place: int, hashed: int = 0) -> Tensor:
    """Compute the effective number of clusters, n^2 / sum_j n_j^2 for n samples in clusters of sizes n_j.

    A hash puts clusters into buckets at random. Therefore sums of buckets spread as the sizes of their clusters do, and
    B / (B - 1) sum_b (n_b - n / B)^2 is an unbiased estimate of the sum of squares of those sizes. It has a standard
    error of 18% in 64 buckets. The buckets themselves are the least number that is possible.

    Args:
        sizes: samples of each cluster, or of each bucket that holds some.
        place: dimension of the clusters.
        hashed: number of buckets B, also of empty ones; 0 for clusters.
    """
    total, squares = sizes.sum(place), (sizes**2).sum(place)
    if hashed:
        spread = (squares - total**2 / hashed) * (hashed / (hashed - 1))
        squares = torch.minimum(squares, torch.maximum(spread, total))
    return ratio(total**2, squares)


def effective_samples(clusters: Tensor, event_dims: int, hashed: int = 0) -> Tensor:
    """Compute the effective number of independent targets of each class in clusters, ``[..., K]``.

    For a beta-binomial distribution, n targets in clusters of sizes n_j are worth n^2 / sum_j n_j (1 + (n_j - 1) rho)
    independent ones. The correlation rho within clusters follows from the mean squares among and within clusters
    (analysis of variance). Few clusters with a recall near one tend to lack the bad ones, so the mean square among them
    is replaced by its upper bound of probability 0.9. A class without errors or without hits has no mean squares; its
    rho is 1, so that it is worth the effective number of clusters.

    Args:
        clusters: ``[..., M, K, K]`` counts of M clusters, with ``event_dims`` dimensions after M.
        event_dims: number of event dimensions, as in :func:`imbtorch.statistics.posterior`.
        hashed: number of buckets of clusters, as in :func:`effective_clusters`.

    Source: Donner (1986), A review of inference procedures for the intraclass correlation coefficient, for rho.
    """
    hits, actual = clusters.diagonal(dim1=-2, dim2=-1), clusters.sum(-1)
    return worth_of_hits(hits, actual, clusters.ndim - event_dims - 1, hashed)


def worth_of_hits(hits: Tensor, actual: Tensor, place: int, hashed: int = 0) -> Tensor:
    """Compute :func:`effective_samples` from the hits and targets of clusters, which are the dimension ``place``."""
    total, squares = actual.sum(place), (actual**2).sum(place)
    freedom = (actual > 0).sum(place).to(total) - 1
    recall, own = ratio(hits.sum(place), total), ratio(hits, actual)
    apart = (actual * (own - recall.unsqueeze(place)) ** 2).sum(place)
    degrees = freedom.clamp(min=1)
    lucky = torch.as_tensor(2 * special.gammaincinv(degrees.numpy(force=True) / 2, LUCKY), device=degrees.device)
    among = ratio(apart, lucky)  # by that quantile of the chi-squared distribution
    within = ratio((hits * (1 - own)).sum(place), total - freedom - 1)
    size = ratio(total - ratio(squares, total), freedom)
    rho = ratio(among - within, among + (size - 1) * within).clamp(0, 1)
    unknown = (recall == 0) | (recall == 1) | (freedom < 1)
    worth = ratio(total**2, total + (squares - total) * rho)
    return torch.where(unknown, effective_clusters(actual, place, hashed), worth)


def sizes_of_errors(clusters: Tensor, event_dims: int, hashed: int = 0) -> Tensor:
    """Compute how many times as large as clusters of its true class those of a cell are, ``[..., K, K]``.

    The size is the mean over samples. Alarms show in what numbers false alarms come, which the many samples of a common
    class do not. Therefore the clusters of a cell are those of its row or of its column, whichever holds fewer samples.
    """
    place, counts = clusters.ndim - event_dims - 1, clusters.sum(-event_dims - 1)
    actual, predicted = counts.sum(-1, keepdim=True), counts.sum(-2, keepdim=True)
    of_row, of_column = (
        ratio(total, effective_clusters(clusters.sum(dim, keepdim=True), place, hashed))
        for total, dim in ((actual, -1), (predicted, -2))
    )
    return torch.where((predicted > 0) & (predicted < actual), ratio(of_column, of_row), 1.0)


def times_drawn(
    shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device | None = None
) -> Tensor:
    """Draw clusters with replacement; return how often each of M was drawn, float64 of the shape ``[..., M]``."""
    chosen = torch.randint(shape[-1], shape, device=device, generator=generator)
    times = torch.zeros(shape, dtype=torch.float64, device=device)
    return times.scatter_add_(-1, chosen, torch.ones_like(times))


def clusters_drawn(
    counts: Tensor, samples: int, generator: torch.Generator | None, event_dims: int
) -> Iterator[Tensor]:
    """Draw clusters ``[..., M, K, K]`` with replacement, and yield their sums ``[S, ..., K, K]`` in chunks.

    Counts with more event dimensions, such as ``[..., M, L, 2, 2]``, are drawn with all that belongs to a cluster.
    """
    event = counts.shape[-event_dims:]
    number = counts.shape[-event_dims - 1]
    flat = counts.reshape(-1, number, event.numel())
    sizes = chunks(samples, len(flat) * max(event.numel(), number), counts.device)
    for some in announced(sizes, samples, "a cluster bootstrap", "fewer draws= shorten it"):
        times = times_drawn((some, len(flat), number), generator, counts.device)
        drawn = torch.einsum("sbm,bmc->sbc", times, flat)
        yield drawn.reshape(some, *counts.shape[: -event_dims - 1], *event)
