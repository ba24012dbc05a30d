"""Calibration against scikit-learn, SciPy, NumPy's means and simulations whose truth is known."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from imbtorch import ThresholdSweep
from imbtorch.statistics import Calibration

pytestmark = pytest.mark.filterwarnings("ignore:.*fall between two thresholds")  # equal scores do

SCORES = np.array([0.0002, 0.003, 0.01, 0.04, 0.1, 0.2, 0.35, 0.6, 0.85, 0.99])


def rng(seed):
    return np.random.default_rng(seed)


def tilted(scores):
    """Chances of scores that are too high above a fifth and too low below."""
    odds = 0.7 * np.log(scores / (1 - scores)) - 0.4
    return 1 / (1 + np.exp(-odds))


def counted(scores, target, **options):
    weight = {name: options.pop(name) for name in ("cluster", "weight") if name in options}
    sweep = ThresholdSweep("f1", clusters="cluster" in weight, weighted="weight" in weight, **options)
    sweep.update(torch.as_tensor(scores), torch.as_tensor(target), **weight)
    return sweep.result()


def rare(seed, size=20_000):
    random = rng(seed)
    scores = 1 / (1 + np.exp(5 - 2 * random.standard_normal(size)))
    return scores, (random.random(size) < tilted(scores)).astype(int)


def test_shares_of_single_scores_are_scikit_learns():
    random = rng(1)
    scores = SCORES[random.integers(0, 10, 3000)]
    target = (random.random(3000) < tilted(scores)).astype(int)
    shares, means = calibration_curve(target, scores, n_bins=100_000)
    found = counted(scores, target).calibration(bins=4000)
    assert found.share.tolist() == pytest.approx(shares, abs=1e-12)
    assert found.score.tolist() == pytest.approx(means, rel=0.01)  # within half a step of the grid
    assert found.number.tolist() == np.unique(scores, return_counts=True)[1].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_scores_and_shares_are_means_over_the_samples_of_each_bin(seed):
    scores, target = rare(seed)
    found = counted(scores, target).calibration()
    assert len(found.above) == 10
    place = np.searchsorted(found.above.numpy(), scores, "left") - 1
    assert found.number.tolist() == np.bincount(place).tolist()
    assert found.share.tolist() == pytest.approx([target[place == at].mean() for at in range(10)])
    assert found.score.tolist() == pytest.approx([scores[place == at].mean() for at in range(10)], rel=2e-3)
    assert found.brier == pytest.approx(brier_score_loss(target, scores), rel=1e-3)
    constant = brier_score_loss(target, np.full(len(target), target.mean()))
    assert found.skill == pytest.approx(1 - found.brier / constant)
    information = np.bincount(place, np.sqrt(scores * (1 - scores)))
    assert information / information.sum() == pytest.approx([0.1] * 10, abs=0.01)


def test_logits_are_read_as_log_odds():
    scores, target = rare(5)
    of_scores = counted(scores, target).calibration()
    of_logits = counted(np.log(scores / (1 - scores)), target, logits=True).calibration()
    for name in ("above", "score", "share", "number", "low", "high"):
        assert getattr(of_logits, name).tolist() == pytest.approx(getattr(of_scores, name).tolist(), rel=1e-6)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_bounds_are_exact(level):
    random = rng(2)
    scores = SCORES[random.integers(0, 10, 400)]
    target = (random.random(400) < tilted(scores)).astype(int)
    found = counted(scores, target).calibration(bins=4000, level=level)
    for at, score in enumerate(np.unique(scores)):
        exact = stats.binomtest(int(target[scores == score].sum()), int((scores == score).sum()))
        bounds = exact.proportion_ci(level, method="exact")
        assert (found.low[at].item(), found.high[at].item()) == pytest.approx((bounds.low, bounds.high), abs=1e-9)


@pytest.mark.default_cases("False")
@pytest.mark.parametrize("clusters", [False, True])
def test_the_squared_error_is_unbiased(clusters):
    """Six scores with known chances; clusters share a shift of the chance, so that plain debiasing would not do."""
    random = rng(3)
    scores, chances = SCORES[2:8], tilted(SCORES[2:8])
    # the grid reads the middle of its bin for a score, so the truth is taken at what it reads
    read = counted(np.repeat(scores, 2), np.tile([0, 1], 6)).calibration(bins=4000).score.numpy()
    truth, found, plain = ((read - chances) ** 2).mean(), [], []
    for _ in range(300):
        if clusters:
            factor = random.choice([0.2, 1.8], (40, 1, 1))  # mean 1
            drawn = random.random((40, 6, 5)) < np.minimum(factor * chances[None, :, None], 1)
            chances_of = np.minimum(np.array([0.2, 1.8])[:, None] * chances, 1).mean(0)
            truth = ((read - chances_of) ** 2).mean()
        else:
            drawn = random.random((40, 6, 5)) < chances[None, :, None]
        ids = torch.arange(40).repeat_interleave(30)
        extra = {"cluster": ids} if clusters else {}
        result = counted(np.tile(np.repeat(scores, 5), 40), drawn.reshape(-1).astype(int), **extra)
        made = result.calibration(bins=4000, generator=torch.Generator().manual_seed(0))
        found.append(made.squared_error)
        plain.append(((made.score - made.share) ** 2).mean().item())
    error = np.std(found) / len(found) ** 0.5
    assert np.mean(found) == pytest.approx(truth, abs=4 * error)
    assert np.mean(plain) > truth + 4 * error


def test_a_bin_of_one_sample_adds_no_error():
    found = counted([0.1, 0.1, 0.9], [0, 0, 1]).calibration(bins=4000)
    assert found.number.tolist() == [2, 1]
    assert found.squared_error == pytest.approx(2 / 3 * found.score[0].item() ** 2)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.1, 0.2, 0.4], "none of 3 intervals excludes its mean score"),
        ([0.1, 0.1, 0.2], "scores above 0.15 are too high by a factor of 2; 2 of 3 intervals say so"),
        ([0.2, 0.2, 0.4], "scores up to 0.15 are too low by a factor of 2; 1 of 3 intervals say so"),
        ([0.05, 0.1, 0.2], "scores of all samples are too high by a factor of 2; 3 of 3 intervals say so"),
        ([0.1, 0.2, 0.0], "scores above 0.35 are too high (400 positives expected, none found); 1 of 3"),
        ([0.1, 0.4, 0.4], "scores above 0.15 up to 0.35 are too low by a factor of 2; 1 of 3 intervals say so"),
        ([0.05, 0.1, 0.8], "scores above 0.35 are too low by a factor of 2; 1 of 3 intervals say so, 2 the opposite"),
        (
            [0.2, 0.4, 0.0],
            "scores above 0.35 are too high (400 positives expected, none found); 1 of 3 intervals say so, 2",
        ),
    ],
)
def test_the_verdict_says_which_scores_are_too_high(shares, expected):
    """Scores of 0.1, 0.2 and 0.4, each of 1,000 samples and each in the middle of its bin."""
    scores = np.repeat([0.1, 0.2, 0.4], 1000)
    target = np.concatenate([np.arange(1000) < 1000 * share for share in shares]).astype(int)
    grid = torch.tensor([0.05, 0.15, 0.25, 0.35, 0.45], dtype=torch.float64)
    found = counted(scores, target, thresholds=grid).calibration(bins=100)
    assert found.verdict.startswith(expected)
    assert found.verdict[1:] in " ".join(str(found).split())
    assert found.table().notes[2] == "share: 95% Clopper-Pearson interval"


def test_several_classes_are_each_compared_with_the_rest():
    random = rng(4)
    scores = torch.as_tensor(random.dirichlet([4, 1, 0.3], 2000))
    target = torch.as_tensor(random.integers(0, 3, 2000))
    sweep = ThresholdSweep("f1", task="multiclass", num_classes=3)
    sweep.update(scores, target)
    found = sweep.result().calibration()
    assert list(found) == ["0", "1", "2"]
    for index, each in enumerate(found.values()):
        alone = counted(scores[:, index], (target == index).long()).calibration()
        assert each.share.tolist() == alone.share.tolist()
        assert each.brier == alone.brier
    labels = ThresholdSweep("f1", task="multilabel", num_labels=3, class_names=["a", "b", "c"])
    labels.update(scores, torch.nn.functional.one_hot(target, 3))
    assert labels.result().calibration()["b"].share.tolist() == found["1"].share.tolist()


@pytest.mark.default_cases("0.2-10")
@pytest.mark.parametrize("number", [10, 30])
@pytest.mark.parametrize("spread", [0.2, 1.0])
def test_intervals_of_clusters_cover_the_share(spread, number):
    """Patients of unequal sizes whose chances differ; the share of a bin is known from 4 million samples."""
    random, covered, true = rng(6), [], None
    for at in range(61):
        patients = 100_000 if at == 0 else number
        sizes = random.integers(5, 60, patients)
        ids = np.repeat(np.arange(patients), sizes)
        scores = np.array([0.05, 0.3, 0.7])[random.integers(0, 3, len(ids))]
        odds = np.log(scores / (1 - scores)) + spread * random.standard_normal(patients)[ids]
        target = (random.random(len(ids)) < 1 / (1 + np.exp(-odds))).astype(int)
        if at == 0:
            true = torch.tensor([target[scores == each].mean() for each in (0.05, 0.3, 0.7)])
            continue
        found = counted(scores, target, cluster=torch.as_tensor(ids))
        made = found.calibration(bins=4000, generator=torch.Generator().manual_seed(at))
        covered.append(((made.low <= true) & (true <= made.high)).float())
    coverage = torch.stack(covered).mean(0)
    assert coverage.amin() >= 0.87  # 0.95 less three standard errors of 60 sets
    assert coverage.mean() >= 0.9


def test_many_clusters_without_positives_have_a_narrow_interval():
    """No positive among 6,000 samples of 2,000 patients: the upper bound is about that of 2,000 samples without one."""
    scores, target = np.full(6_200, 0.01), np.zeros(6_200, dtype=int)
    scores[6_000:], target[6_000:] = 0.9, 1
    made = counted(scores, target, cluster=torch.arange(6_200) // 3).calibration()
    assert float(made.share[0]) == 0
    assert float(made.high[0]) == pytest.approx(1 - 0.025 ** (1 / 2000), rel=0.5)


def test_weighted_counts_have_shares_and_no_intervals():
    scores, target = rare(7, 500)
    found = counted(scores, target, weight=torch.full((500,), 0.5)).calibration()
    plain = counted(scores, target).calibration()
    assert found.share.tolist() == plain.share.tolist()
    assert found.number.tolist() == (plain.number / 2).tolist()
    assert found.low.isnan().all()
    assert np.isnan(found.squared_error)
    assert found.brier == pytest.approx(plain.brier)
    assert "weighted counts have no intervals" in str(found).lower()


def test_scores_of_0_and_1_are_told_apart():
    found = counted([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]).calibration()
    assert found.share.tolist() == [0, 1]
    assert found.skill == pytest.approx(1)


@pytest.mark.filterwarnings("ignore:.*1 of 2 classes had no target")
def test_samples_of_one_class_have_no_skill():
    found = counted([0.2, 0.4], [0, 0]).calibration()
    assert found.share.tolist() == [0, 0]
    assert np.isnan(found.skill)


@pytest.mark.filterwarnings("ignore:.*too few for this prevalence")
def test_what_cannot_be_compared_raises():
    result = counted([0.1, 0.9], [0, 1])
    for bins in (0, 2.5, True):
        with pytest.raises(ValueError, match="bins must be a whole number"):
            result.calibration(bins=bins)
    with pytest.raises(ValueError, match="level"):
        result.calibration(level=1.5)
    with pytest.raises(ValueError, match="sweep without prevalence="):
        counted([0.1, 0.9], [0, 1], prevalence=[0.9, 0.1]).calibration()


def test_the_picture_shows_shares_intervals_and_samples():
    scores, target = rare(8)
    found = counted(scores, target).calibration()
    figure, ax = found.plot()
    points = next(line for line in ax.lines if line.get_marker() == "o")
    assert points.get_xdata() == pytest.approx(found.score.numpy())
    assert points.get_ydata() == pytest.approx(found.share.numpy())
    bars = ax.collections[0].get_segments()
    assert [tuple(each[:, 1]) for each in bars] == [
        pytest.approx(each) for each in zip(found.low.tolist(), found.high.tolist(), strict=True)
    ]
    assert [bar.get_height() for bar in figure.axes[1].patches] == found.number.tolist()
    assert found.plot(ax) == (None, ax)


def test_a_share_of_0_is_an_open_mark_at_the_edge():
    found = counted([0.1] * 30 + [0.6] * 30, [0] * 30 + [0, 1] * 15).calibration(bins=4000)
    _, ax = found.plot()
    marks = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() for line in marks][1] == "w"
    assert marks[1].get_ydata().tolist() == pytest.approx([ax.get_ylim()[0]])
    assert isinstance(found, Calibration)


def test_the_picture_can_be_linear():
    sweep = ThresholdSweep("f1")
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(500, generator=generator)
    sweep.update(scores, (torch.rand(500, generator=generator) < scores).long())
    found = sweep.result().calibration(bins=5)
    _, ax = found.plot(scale="linear")
    assert (ax.get_xscale(), ax.get_xlim(), ax.get_ylim()) == ("linear", (0, 1), (0, 1))
    drawn = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(drawn[0].get_xydata(), torch.stack((found.score, found.share), -1))
    assert found.plot()[1].get_xscale() == "logit"
    with pytest.raises(ValueError, match="scale must be one of 'logit', 'linear', got 'log'"):
        found.plot(scale="log")
