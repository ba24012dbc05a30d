"""Expected values are exact fractions, computed here from the class totals alone."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from rooms import baselines
from sklearn import dummy, metrics

import imbtorch
from imbtorch import Margins, margins
from imbtorch.statistics import beats_baseline, skill, trivial

COUNTS = torch.tensor([[80, 6, 4], [3, 5, 1], [0, 1, 0]])  # 90, 9 and 1 targets
TOTALS = [90, 9, 1]


def fractions(matrix):
    """Accuracy, balanced accuracy and IAM of a matrix of fractions, by their definitions."""
    size = len(matrix)
    rows, columns = [sum(row) for row in matrix], [sum(column) for column in zip(*matrix, strict=True)]
    accuracy = sum(matrix[i][i] for i in range(size)) / sum(rows)
    balanced = sum(Fraction(matrix[i][i]) / rows[i] for i in range(size)) / size
    parts = [
        (matrix[i][i] - max(rows[i] - matrix[i][i], columns[i] - matrix[i][i])) / max(rows[i], columns[i])
        for i in range(size)
    ]
    return {"accuracy": accuracy, "balanced_accuracy": balanced, "imbalance_accuracy": sum(parts) / size}


def guessed(shares):
    return [[Fraction(total) * share for share in shares] for total in TOTALS]


GUESSES = {f"always {k}": guessed([Fraction(int(j == k)) for j in range(3)]) for k in range(3)} | {
    "class shares": guessed([Fraction(total, 100) for total in TOTALS]),
    "uniform": guessed([Fraction(1, 3)] * 3),
}


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "imbalance_accuracy"])
@pytest.mark.parametrize("given", [COUNTS, COUNTS.double(), COUNTS.double() / 100, margins(COUNTS)])
def test_trivial_predictions_have_their_exact_values(name, given):
    found = trivial(getattr(imbtorch, name), given)
    assert list(found) == ["always 0", "always 1", "always 2", "class shares", "uniform"]
    for key, value in found.items():
        assert value.dtype == torch.float64
        assert value.item() == pytest.approx(float(fractions(GUESSES[key])[name]), abs=1e-15), key


def test_the_accuracy_paradox():
    counts = torch.tensor([[900, 90], [5, 5]])
    of = [imbtorch.accuracy, imbtorch.balanced_accuracy, imbtorch.imbalance_accuracy]
    assert [trivial(measure, counts)["always 0"].item() for measure in of] == pytest.approx([0.99, 0.5, -0.01])


@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
def test_constant_predictions_agree_with_scikit_learn(strategy):
    target = torch.repeat_interleave(torch.arange(3), torch.tensor(TOTALS)).numpy()
    model = dummy.DummyClassifier(strategy=strategy, constant=2 if strategy == "constant" else None)
    predicted = model.fit(target[:, None], target).predict(target[:, None])
    key = f"always {predicted[0]}"
    for ours, theirs in {
        imbtorch.f_score: partial(metrics.f1_score, average="macro", zero_division=0),
        imbtorch.matthews_corrcoef: metrics.matthews_corrcoef,
        imbtorch.balanced_accuracy: metrics.balanced_accuracy_score,
    }.items():
        assert trivial(ours, COUNTS)[key].item() == pytest.approx(theirs(target, predicted), abs=1e-12)


def test_batches_are_looped():
    stack = torch.stack([COUNTS, COUNTS.T, COUNTS + 1]).unsqueeze(0)  # [1, 3, K, K]
    found = trivial(imbtorch.geometric_mean, stack)
    skills = skill(imbtorch.geometric_mean, stack)
    for at in range(3):
        alone = trivial(imbtorch.geometric_mean, stack[0, at])
        for key, value in found.items():
            assert value.shape == (1, 3)
            assert value[0, at] == alone[key]
        assert skills[0, at] == skill(imbtorch.geometric_mean, stack[0, at])


def test_skill_of_balanced_accuracy_is_youdens_j():
    for cells in ([[80, 10], [3, 7]], [[10, 80], [7, 3]], [[90, 0], [0, 10]]):
        (tn, fp), (fn, tp) = cells
        youden = Fraction(tp, tp + fn) + Fraction(tn, tn + fp) - 1
        assert skill(imbtorch.balanced_accuracy, torch.tensor(cells)).item() == pytest.approx(float(youden), abs=1e-14)


@pytest.mark.parametrize("given", [COUNTS, margins(COUNTS)])
def test_skill_starts_from_the_best_trivial_value_and_ends_at_the_perfect_one(given):
    # always 0 is right in 90 of 100, the classifier in 85
    assert skill(imbtorch.accuracy, given).item() == pytest.approx((0.85 - 0.9) / (1 - 0.9))
    perfect = torch.diag(COUNTS.sum(-1))
    assert skill(imbtorch.accuracy, perfect).item() == 1
    always = torch.stack([COUNTS.sum(-1), *torch.zeros(2, 3).long()], 1)
    assert skill(imbtorch.accuracy, always).item() == 0


def test_skill_of_a_measure_of_which_lower_is_better():
    def error(counts):
        return 1 - imbtorch.accuracy(counts)

    expected = skill(imbtorch.accuracy, COUNTS)
    assert skill(error, COUNTS, higher_is_better=False).item() == pytest.approx(expected.item())
    costs = partial(imbtorch.expected_cost, costs=1 - torch.eye(3))  # the error
    assert skill(costs, COUNTS).item() == pytest.approx(expected.item())
    assert beats_baseline(costs, COUNTS).item() == pytest.approx(
        beats_baseline(imbtorch.accuracy, COUNTS).item(), abs=0.02
    )
    with pytest.raises(ValueError, match="measure dominance has no direction"):
        skill(imbtorch.dominance, COUNTS[:2, :2])


def test_skill_of_costs_ends_at_the_cheapest_class_of_each_row():
    costs = torch.tensor([[0.0, 1.0], [5.0, -1.0]])  # a hit of class 1 earns
    measure = partial(imbtorch.expected_cost, costs=costs)
    counts = torch.tensor([[80, 10], [4, 6]])
    # here 10 + 20 - 6 = 24 of 100; always 0: 50, always 1: 90 - 10 = 80; perfect: -10
    got = skill(measure, counts, higher_is_better=False, costs=costs)
    assert got.item() == pytest.approx((24 - 50) / (-10 - 50))
    swapped = torch.tensor([[3.0, 1.0], [5.0, 1.0]])  # class 1 is cheapest for all: always 1 is perfect
    measure = partial(imbtorch.expected_cost, costs=swapped)
    assert skill(measure, counts, higher_is_better=False, costs=swapped).item() == 0


def test_skill_of_an_infinite_measure_is_refused():
    counts, perfect = torch.tensor([[90, 10], [1, 9]]), torch.tensor([[100, 0], [0, 10]])
    for given in (counts, perfect, torch.stack((counts, perfect))):
        with pytest.raises(ValueError, match=r"finite for the perfect.*lambda counts: 1 / likelihood_ratio\(counts\)"):
            skill(imbtorch.likelihood_ratio, given)
        got = skill(lambda counts: 1 / imbtorch.likelihood_ratio(counts), given, higher_is_better=False)
        torch.testing.assert_close(got, torch.where(given[..., 0, 1] == 0, 1.0, 1 - 1 / 9).double())
    got = skill(partial(imbtorch.likelihood_ratio, positive=False), counts, higher_is_better=False)
    assert got.item() == pytest.approx(1 - (1 / 10) / (90 / 100))


def test_skill_is_0_where_one_class_has_all_targets_and_nan_where_nothing_is_defined():
    assert skill(imbtorch.accuracy, torch.tensor([[5, 2], [0, 0]])).item() == 0
    assert math.isnan(skill(imbtorch.accuracy, torch.zeros(2, 2)).item())
    assert all(math.isnan(value) for value in trivial(imbtorch.accuracy, torch.zeros(2, 2)).values())


def test_a_trivial_prediction_without_a_value_is_not_the_best():
    def only_mixed(counts):  # nan for a constant prediction
        return torch.where((counts.sum(-2) > 0).all(-1), imbtorch.accuracy(counts), torch.nan)

    shares = sum(Fraction(total, 100) ** 2 for total in TOTALS)  # guessing by class shares is right so often
    got = skill(only_mixed, COUNTS).item()
    assert got == pytest.approx(float((Fraction(85, 100) - shares) / (1 - shares)))


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"counts must be a confusion matrix \[\.\.\., K, K\], got shape \[2, 3\]"):
        trivial(imbtorch.accuracy, torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"measure must return one value for each matrix, \[\], got \[3\]"):
        trivial(partial(imbtorch.recall, average="none"), COUNTS)
    with pytest.raises(ValueError, match=r"costs must be \[3, 3\] like the matrix, got \[2, 2\]"):
        skill(imbtorch.accuracy, COUNTS, costs=torch.eye(2))
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match="costs must be finite"):
            skill(imbtorch.accuracy, COUNTS, costs=torch.eye(3).fill_diagonal_(wrong))
    with pytest.raises(ValueError, match="costs need the whole matrix"):
        skill(imbtorch.accuracy, margins(COUNTS), costs=torch.eye(3))
    with pytest.raises(TypeError, match="counts must be the whole matrix here"):
        trivial(imbtorch.relative_classifier_information, Margins(*margins(COUNTS)))


def test_the_probability_of_beating_the_trivial_ones_is_that_of_drawn_populations():
    counts, generator = torch.tensor([[960, 10], [12, 18]]), np.random.default_rng(0)
    share = generator.beta(30.5, 970.5, 100_000)  # of the rare class
    right = [generator.beta(hit + 0.5, miss + 0.5, 100_000) for hit, miss in ((960, 10), (18, 12))]
    accuracy = (1 - share) * right[0] + share * right[1]
    wanted = (accuracy > np.maximum(share, 1 - share)).mean()
    found = beats_baseline(imbtorch.accuracy, counts, generator=torch.Generator().manual_seed(0))
    assert found.item() == pytest.approx(wanted, abs=0.02)
    errors = beats_baseline(lambda c: 1 - imbtorch.accuracy(c), counts, higher_is_better=False)
    assert errors.item() == pytest.approx(wanted, abs=0.02)
    assert beats_baseline(imbtorch.balanced_accuracy, torch.tensor([[50, 50], [50, 50]])).item() == pytest.approx(
        0.5, abs=0.05
    )
    both = beats_baseline(imbtorch.accuracy, torch.stack((counts, counts.flip(1))), draws=200)
    assert both.shape == (2,)
    assert both[1] == 0


def test_without_a_trivial_value_nothing_is_beaten():
    def of_informed(counts):
        told = counts[..., 0, 0] * counts[..., 1, 1] - counts[..., 0, 1] * counts[..., 1, 0]
        return torch.where(told.abs() < 1e-6 * counts.sum((-2, -1)) ** 2, torch.nan, imbtorch.accuracy(counts))

    counts = torch.tensor([[960, 10], [12, 18]])
    assert of_informed(counts).item() == pytest.approx(0.978)
    assert beats_baseline(of_informed, counts, draws=50).isnan()
    assert skill(of_informed, counts).isnan()


def test_costs_that_are_all_alike_leave_nothing_to_win():
    costs = torch.full((3, 3), 0.1)
    for seed in range(6):
        counts = torch.randint(1, 99, (3, 3), generator=torch.Generator().manual_seed(seed))
        found = skill(partial(imbtorch.expected_cost, costs=costs), counts, higher_is_better=False, costs=costs)
        assert found == 0


def test_equal_shares_name_the_first_class():
    for seed in range(50):
        counts = torch.randint(1, 999, (3, 3), generator=torch.Generator().manual_seed(seed))
        rates = imbtorch.at_prevalence(counts, [1, 1, 1])
        assert baselines.always_commonest(rates, "abc")[0] == "always predicting 'a'"
