"""Expected values come from loops over NumPy and scikit-learn, closed forms, and simulations with known truth."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from cases import shown_in_notebook
from distributions import LEARNING, drawn, facts, half_sampled, seeded
from rooms import epochs, posterior_of
from sklearn import metrics

import imbtorch
from imbtorch import balanced_accuracy
from imbtorch.statistics import select_epoch


def one_line(found):
    """Return the text of a choice as if no line of it were broken."""
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 100
    return " ".join(map(str.strip, lines))


# --- against a reference --------------------------------------------------------------------------------------------


MACRO_F1 = partial(imbtorch.f_score, average="macro")  # by name, that of the positive class of two
SCORES = {
    "balanced_accuracy": metrics.balanced_accuracy_score,
    "f_score": partial(metrics.f1_score, average="macro", zero_division=0),
    "matthews_corrcoef": metrics.matthews_corrcoef,
}


@pytest.mark.default_cases("recalls0-totals0-balanced_accuracy", "recalls1-totals1-f_score")
@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(
    ("recalls", "totals"), [(LEARNING, [60, 20]), ([[*row, 0.7] for row in LEARNING], [60, 30, 20])]
)
def test_halves_and_the_set_agree_with_loops(name, recalls, totals):
    predictions, target = drawn(recalls, totals)
    measure, repeats, size = MACRO_F1 if name == "f_score" else getattr(imbtorch, name), 25, len(totals)
    found = select_epoch(predictions, target, measure, repeats=repeats, generator=seeded(1), draws=300)
    again = seeded(1)
    coins = torch.randint(2, (len(target), repeats), dtype=torch.int32, generator=again)
    kept, corrected, stability, alike, below = half_sampled(predictions, target, SCORES[name], coins, size)
    assert found.epoch == kept
    assert found.value == pytest.approx(SCORES[name](target, predictions[kept]))
    assert found.stability == pytest.approx(stability)
    assert found.indistinguishable == alike
    assert found.shortfall == pytest.approx(below)
    assert (found.tied, found.identical, found.sparse) == ((), (), ())
    counts = torch.from_numpy(corrected)
    assert counts.sum(-1).tolist() == pytest.approx(totals)  # rows keep their sums
    assert found.corrected == pytest.approx(measure(counts).item())
    interval = posterior_of({"": measure}, counts, 300, 0.95, again)[""]
    assert (found.interval.low.item(), found.interval.high.item()) == pytest.approx(
        (min(interval.low.item(), found.value), max(interval.high.item(), found.value))
    )
    assert (found.compared, found.repeats) == (tuple(range(len(recalls))), repeats)


def test_several_measures_share_the_coins():
    predictions, target = drawn(LEARNING, [60, 20])
    both = {"f1": imbtorch.f_score, "ba": balanced_accuracy}
    found = select_epoch(predictions, target, both, generator=seeded(1), draws=100)
    assert list(found) == ["f1", "ba"]
    for name, measure in both.items():
        alone = select_epoch(predictions, target, measure, generator=seeded(1), draws=100)
        for of in ("epoch", "value", "corrected", "stability", "indistinguishable"):
            assert getattr(found[name], of) == getattr(alone, of)


def test_lower_is_better():
    def error(counts):
        return 1 - imbtorch.accuracy(counts)

    predictions, target = drawn(LEARNING, [60, 20])
    up = select_epoch(predictions, target, imbtorch.accuracy, generator=seeded(1))
    down = select_epoch(predictions, target, {"error": error}, higher_is_better={"error": False}, generator=seeded(1))
    assert down["error"].epoch == up.epoch
    assert down["error"].value == pytest.approx(1 - up.value)
    assert down["error"].corrected == pytest.approx(1 - up.corrected)
    assert down["error"].indistinguishable == up.indistinguishable


def test_the_direction_of_a_measure_of_the_package_is_known():
    target = torch.arange(60) % 2
    right, wrong = target.clone(), 1 - target
    right[:2] = 1 - right[:2]
    predictions = torch.stack([wrong, right, wrong])
    entropy = imbtorch.ConfusionEntropy("binary").evaluate
    cost = partial(imbtorch.expected_cost, costs=torch.tensor([[0.0, 1], [2, 0]]))
    for costs in (imbtorch.confusion_entropy, entropy, partial(entropy), cost):
        assert select_epoch(predictions, target, costs, draws=50, generator=seeded()).epoch == 1
        both = {"cost": costs, "accuracy": imbtorch.accuracy}
        found = select_epoch(predictions, target, both, draws=50, generator=seeded(), higher_is_better={})
        assert [each.epoch for each in found.values()] == [1, 1]
        assert select_epoch(predictions, target, costs, higher_is_better=True, draws=50).epoch != 1
    with pytest.raises(ValueError, match="measure dominance has no direction; pass higher_is_better=True or False"):
        select_epoch(predictions, target, imbtorch.dominance)


# --- ties, undefined values -----------------------------------------------------------------------------------------


def test_of_equal_epochs_the_latest_is_kept_unless_the_earliest_is_asked_for():
    target = torch.tensor([0] * 20 + [1] * 10)
    good = target.clone()
    good[:2] = 1
    predictions = torch.stack([good, 1 - target, good, good])
    choose = partial(select_epoch, predictions, target, balanced_accuracy, draws=50, generator=seeded())
    assert choose().epoch == 3
    assert choose(ties="earliest").epoch == 0
    cost = choose(higher_is_better=False)
    assert (cost.epoch, cost.stability) == (1, 1.0)
    ties = choose()
    assert ties.indistinguishable == (0, 2, 3)  # equal predictions are indistinguishable, the wrong ones differ
    assert (ties.tied, ties.identical, ties.stability) == ((0, 2), (0, 2), None)  # every half keeps what the rule says
    assert ties.shortfall == 0.0  # they are the same
    assert ties.corrected == ties.value == pytest.approx(0.95)
    assert str(ties).startswith("epoch 3: balanced_accuracy 0.950, corrected for having been chosen 0.950 [")
    assert one_line(ties).endswith(
        "stability - (tied with epochs 0, 2, which predict the same: an arbitrary choice); "
        "indistinguishable from 2 others (0, 2), which may lie up to 0.000 below the best"
    )


def test_of_tied_epochs_only_equal_predictions_make_the_choice_arbitrary():
    target = torch.tensor([0] * 20 + [1] * 10)
    first, second = target.clone(), target.clone()
    first[:2], second[2:4] = 1, 1
    found = select_epoch(torch.stack([first, first, second]), target, balanced_accuracy, draws=50, generator=seeded())
    assert (found.epoch, found.tied, found.identical) == (2, (0, 1), ())
    assert "stability - (tied with epochs 0 to 1); indistinguishable" in one_line(found)
    found = select_epoch(torch.stack([first, second, first]), target, balanced_accuracy, draws=50, generator=seeded())
    assert (found.epoch, found.tied, found.identical) == (2, (0, 1), (0,))
    assert "(tied with epochs 0 to 1, epoch 0 predicts the same: an arbitrary choice)" in one_line(found)


def test_an_epoch_without_a_value_is_never_kept():
    def picky(counts):  # nan where class 1 is predicted more often than it comes
        return torch.where(counts.sum(-2)[..., 1] > 1.5 * counts.sum(-1)[..., 1], math.nan, balanced_accuracy(counts))

    target = torch.tensor([0] * 30 + [1] * 10)
    modest = target.clone()
    modest[35:] = 0
    eager = target.clone()
    eager[:10] = 1
    found = select_epoch(torch.stack([modest, eager]), target, picky, draws=50, generator=seeded())
    assert (found.epoch, found.compared, found.indistinguishable) == (0, (0,), (0,))
    with pytest.raises(ValueError, match="measure has no value in any epoch"):
        select_epoch(torch.stack([eager, eager]), target, picky)


def test_named_candidates_are_chosen_like_epochs_and_called_by_their_names():
    predictions, target = drawn(LEARNING, [60, 20])
    trials = {f"lr={2.0**-i}": each for i, each in enumerate(predictions)}
    choose = partial(select_epoch, target=target, measure=balanced_accuracy, draws=50)
    of_names, of_epochs = (choose(given, generator=seeded()) for given in (trials, predictions))
    assert facts(of_names) == facts(of_epochs)
    assert of_epochs.name == f"epoch {of_epochs.epoch}"
    assert of_names.name == list(trials)[of_epochs.epoch]
    assert str(of_names).startswith(f"{of_names.name}: ")
    assert "epoch" not in str(of_names)

    first, second = target.clone(), target.clone()
    first[:2], second[2:4] = 1, 1
    found = choose(dict.fromkeys("abcdef", first) | {"g": second, "h": first})
    assert "(tied with a, b, c, d, e, 2 more, a, b, c, d, e, 1 more predict the same: an arbitrary" in one_line(found)
    assert "indistinguishable from 7 others (a, b, c, d, e, 2 more), which" in one_line(found)
    found = choose({"a": first, "b": second, "c": first})
    assert "(tied with a, b, a predicts the same: an arbitrary choice)" in one_line(found)
    assert one_line(choose({"a": target, "b": 1 - target})).endswith("; distinguishable from all other candidates")
    assert one_line(choose({"only": first})).endswith(" (95% posterior), stability 1.00")

    with pytest.raises(ValueError, match=r"predictions\['b'\] must hold .* each target, \[80\], got \[3\]"):
        choose({"a": target, "b": target[:3]})
    with pytest.raises(TypeError, match=r"predictions\['a'\] must be a torch.Tensor, got list"):
        choose({"a": target.tolist()})
    with pytest.raises(ValueError, match="predictions hold no candidates"):
        choose({})


def test_bools_are_classes():
    predictions, target = drawn(LEARNING, [60, 20])
    choose = partial(select_epoch, measure=balanced_accuracy, draws=50)
    expected = facts(choose(predictions, target, generator=seeded()))
    assert facts(choose(predictions.bool(), target.bool(), generator=seeded())) == expected
    mixed = {"first": predictions[0].bool()} | {f"epoch {i}": each for i, each in enumerate(predictions[1:])}
    assert facts(choose(mixed, target, generator=seeded())) == expected


def test_epochs_whose_difference_never_varies_are_told_apart():
    target = torch.tensor([0] * 12 + [1] * 4)
    found = select_epoch(torch.stack((target, 1 - target, target)), target, imbtorch.accuracy, generator=seeded())
    assert (found.epoch, found.tied, found.indistinguishable, found.shortfall) == (2, (0,), (0, 2), 0.0)


def test_a_single_epoch_is_kept_as_it_is():
    predictions, target = drawn(LEARNING[:1], [60, 20])
    found = select_epoch(predictions, target, balanced_accuracy, generator=seeded())
    assert found.corrected == pytest.approx(found.value)
    assert (found.stability, found.indistinguishable) == (1.0, (0,))
    assert one_line(found).endswith(" (95% posterior), stability 1.00")  # there is no other epoch


def test_a_notebook_shows_a_choice_as_a_table():
    predictions, target = drawn(LEARNING, [60, 20])
    found = select_epoch(predictions, target, balanced_accuracy, draws=50, generator=seeded())
    others = [epoch for epoch in found.indistinguishable if epoch != found.epoch]
    assert found.corrected < found.value
    rows, notes = shown_in_notebook(found)
    heads = ["balanced_accuracy", "corrected", "stability", "indistinguishable from"]
    assert [row[0] for row in rows] == [f"epoch {found.epoch}", *heads]
    assert rows[1][1] == f"{found.value:.3f}"
    assert rows[2][1] == f"{found.corrected:.3f} [{found.interval.low:.3f}, {found.interval.high:.3f}] (95% posterior)"
    assert rows[3][1] == f"{found.stability:.2f}"
    assert rows[4][1].startswith(f"{len(others)} others (")
    assert rows[4][1].endswith(f"which may lie up to {found.shortfall:.3f} below the best")
    assert notes == []

    first = target.clone()
    first[:2] = 1
    found = select_epoch({"<a>": first, "<b> & c": first}, target, balanced_accuracy, draws=50, generator=seeded())
    rows, _ = shown_in_notebook(found)
    assert rows[0][0] == "<b> & c"
    assert rows[3:] == [
        ["stability", "-"],
        ["tied with", "<a>, which predicts the same: an arbitrary choice"],
        ["indistinguishable from", "1 other (<a>), which may lie up to 0.000 below the best"],
    ]
    found = select_epoch(predictions[:1, :65], target[:65], imbtorch.geometric_mean, generator=seeded())
    rows, _ = shown_in_notebook(found)
    assert rows[2:] == [["corrected", "not corrected, too few hits of class 1"], ["stability", "1.00"]]
    found = select_epoch(torch.stack((1 - target, target)), target, balanced_accuracy, generator=seeded())
    rows, _ = shown_in_notebook(found)
    assert rows[4:] == [["indistinguishable from", "none"]]


# --- many classes ---------------------------------------------------------------------------------------------------


def many(classes=12, number=30):
    recalls = [[0.3 + 0.02 * epoch] * classes for epoch in range(number)]
    return drawn(recalls, [8] * classes)


def test_of_matrices_the_best_epochs_are_resampled_and_the_result_says_so(monkeypatch):
    predictions, target = many()
    monkeypatch.setattr(epochs, "CELLS_IN_ALL", 2 * 144 * 7 * 20)
    measures = {"rci": imbtorch.relative_classifier_information, "ba": balanced_accuracy}
    found = select_epoch(predictions, target, measures, generator=seeded(), draws=50)
    assert list(found) == ["rci", "ba"]
    assert (found["ba"].compared, found["ba"].repeats) == (tuple(range(30)), 100)  # by margins
    assert (len(found["rci"].compared), found["rci"].repeats) == (7, 20)
    values = torch.stack(
        [
            imbtorch.relative_classifier_information(
                imbtorch.confusion_matrix(each, target, "multiclass", num_classes=12)
            )
            for each in predictions
        ]
    )
    assert set(found["rci"].compared) == set(values.topk(7).indices.tolist())
    assert found["rci"].epoch == values.argmax()


# --- with known truth -----------------------------------------------------------------------------------------------


def test_the_correction_takes_the_optimism_away_and_the_set_holds_the_best():
    recalls, totals = [[0.9, 0.6]] * 30, [150, 10]  # all equally good: .75
    raw, left, held, covered = [], [], [], []
    for run in range(60):
        predictions, target = drawn(recalls, totals, seed=run)
        found = select_epoch(predictions, target, balanced_accuracy, draws=500, generator=seeded(run))
        raw.append(found.value - 0.75)
        left.append(found.corrected - 0.75)
        held.append(run % 30 in found.indistinguishable)
        covered.append(found.interval.low.item() <= 0.75 <= found.interval.high.item())
    assert np.mean(raw) > 0.08
    assert abs(np.mean(left)) < 0.035
    assert np.mean(held) > 0.9
    assert np.mean(covered) > 0.9


def test_many_samples_leave_the_value_and_tell_epochs_apart():
    predictions, target = drawn([[0.5, 0.5], [0.9, 0.9], [0.7, 0.7]], [3000, 3000])
    found = select_epoch(predictions, target, balanced_accuracy, generator=seeded())
    assert (found.epoch, found.indistinguishable, found.stability) == (1, (1,), 1.0)
    assert found.corrected == pytest.approx(found.value, abs=1e-12)  # every half chooses it: X is its counts
    assert found.interval.high - found.interval.low < 0.02


@pytest.mark.parametrize("gap", [0.0, 0.15])
def test_the_worst_indistinguishable_epoch_lies_no_further_below_than_is_said(gap):
    recalls, totals = [[0.9, 0.6 - gap * (epoch % 3)] for epoch in range(15)], [150, 15]
    true, held, said = torch.tensor(recalls).mean(-1), [], []
    for run in range(40):
        predictions, target = drawn(recalls, totals, seed=100 + run)
        found = select_epoch(predictions, target, balanced_accuracy, draws=20, generator=seeded(run))
        held.append(true.max() - true[list(found.indistinguishable)].min() <= found.shortfall)
        said.append(found.shortfall)
    assert np.mean(held) >= 0.95
    assert 0.1 < np.mean(said) < 0.5  # and is no platitude


def test_measures_that_one_recall_of_0_makes_0_are_not_corrected_where_hits_are_few():
    few, target = drawn(LEARNING, [60, 9])
    for measure in (imbtorch.geometric_mean, lambda counts: imbtorch.recall(counts, "none").amin(-1)):
        found = select_epoch(few, target, measure, draws=50, generator=seeded())
        assert (found.sparse, found.corrected, found.interval) == ((1,), None, None)
        assert "not corrected, too few hits of class 1, stability" in one_line(found)
        assert found.shortfall > 0
    for measure in (balanced_accuracy, imbtorch.f_score, imbtorch.imbalance_accuracy, imbtorch.matthews_corrcoef):
        assert select_epoch(few, target, measure, draws=50, generator=seeded()).sparse == ()
    f1 = select_epoch(few, target, lambda c: imbtorch.f_score(c, average="binary"), draws=50, generator=seeded())
    assert f1.sparse == ()  # of the positive class: one class alone is no reason
    enough, target = drawn(LEARNING, [60, 10])
    assert select_epoch(enough, target, imbtorch.geometric_mean, draws=50, generator=seeded()).sparse == ()
    never = torch.where(enough == 1, 0, enough)
    assert select_epoch(never, target, imbtorch.geometric_mean, draws=50, generator=seeded()).sparse == (1,)
    absent = select_epoch(enough[:, target == 0], target[target == 0], imbtorch.geometric_mean, num_classes=2, draws=9)
    assert absent.sparse == ()  # a class that never comes takes no part


# --- errors ---------------------------------------------------------------------------------------------------------

TARGET = torch.tensor([0, 0, 1])


@pytest.mark.parametrize(
    ("predictions", "target", "arguments", "error", "message"),
    [
        (torch.zeros(2, 4).long(), TARGET, {}, ValueError, r"target \[N\], got \[2, 4\] and \[3\]"),
        (torch.zeros(3).long(), TARGET, {}, ValueError, r"a row for each epoch, and target \[N\], got \[3\]"),
        (torch.zeros(2, 3), TARGET, {}, TypeError, r"^predictions must hold .* pass classes: scores.argmax\(-1\), or"),
        (
            {"a": torch.zeros(3, 2)},
            TARGET,
            {},
            TypeError,
            r"^predictions\['a'\] must hold .*; pass classes: scores.argmax\(-1\), or \(scores > 0.5\).long\(\)$",
        ),
        (torch.zeros(2, 3).long(), TARGET.float(), {}, TypeError, r"target must hold .*; use target.long\(\)$"),
        ({"a": TARGET, "b": None}, TARGET, {}, TypeError, r"^predictions\['b'\] is None; leave out candidates without"),
        (torch.zeros(2, 3).long(), {"a": TARGET}, {}, TypeError, "target must be a torch.Tensor, got dict$"),
        (torch.zeros(2, 3).long(), balanced_accuracy, {}, TypeError, "got function; check the order of the arguments$"),
        ({"a": TARGET}, balanced_accuracy, {}, TypeError, "got function; check the order of the arguments$"),
        (torch.zeros(2, 3).long(), None, {}, TypeError, "target must be a torch.Tensor, got None$"),
        (torch.zeros(2, 3).long(), TARGET, {"level": 95}, ValueError, r"\(0, 1\), got 95; write 0.95"),
        (torch.zeros(0, 3).long(), TARGET, {}, ValueError, "predictions has no epochs"),
        (torch.zeros(2, 0).long(), TARGET[:0], {}, ValueError, "target has no samples"),
        (torch.full((2, 3), 5), TARGET, {"num_classes": 2}, ValueError, r"must lie in 0\.\.1, got 0\.\.5"),
        (torch.zeros(2, 3).long(), TARGET - 1, {}, ValueError, r"got -1\.\.0; leave ignored samples out"),
        (torch.zeros(2, 3).long(), TARGET, {"repeats": 1}, ValueError, "repeats must be at least 2, got 1"),
        (torch.zeros(2, 3).long(), TARGET, {"level": 1.0}, ValueError, "level must lie in"),
        (torch.zeros(2, 3).long(), TARGET, {"repeats": "3"}, TypeError, "repeats must be an int, got '3'"),
        (torch.zeros(2, 3).long(), TARGET, {"repeats": 2.5}, TypeError, "repeats must be an int, got 2.5"),
        (torch.zeros(2, 3).long(), TARGET, {"draws": 0}, ValueError, "draws must be at least 2, got 0"),
        (torch.zeros(2, 3).long(), TARGET, {"num_classes": "2"}, TypeError, "num_classes must be an int, got '2'"),
        (torch.zeros(2, 3).long(), TARGET, {"higher_is_better": {"ba": True}}, TypeError, "better must be one value"),
    ],
)
def test_errors_name_what_does_not_fit(predictions, target, arguments, error, message):
    with pytest.raises(error, match=message):
        select_epoch(predictions, target, balanced_accuracy, **arguments)


@pytest.mark.parametrize(
    ("measure", "error", "message"),
    [
        ({}, ValueError, "measure is an empty dict; give at least one measure"),
        (
            partial(imbtorch.FScore, beta=2.0),
            TypeError,
            r"measure must be the name of a measure .*FScore.*pass functools.partial\(imbtorch.f_score, beta=...\)",
        ),
    ],
)
def test_what_is_no_function_of_counts_is_refused(measure, error, message):
    with pytest.raises(error, match=message):
        select_epoch(torch.zeros(2, 3).long(), TARGET, measure, num_classes=2)


def test_directions_of_unknown_measures_are_refused():
    with pytest.raises(ValueError, match="name in higher_is_better must be one of 'ba', got 'f1'"):
        select_epoch(torch.zeros(2, 3).long(), TARGET, {"ba": balanced_accuracy}, higher_is_better={"f1": True})


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int16])
def test_predictions_of_every_dtype_count_alike(dtype):
    predictions, target = drawn(LEARNING, [60, 20])
    expected = select_epoch(predictions, target, balanced_accuracy, generator=seeded(1), draws=100)
    named = {str(epoch): each.to(dtype) for epoch, each in enumerate(predictions)}
    for given in (predictions.to(dtype), named):
        found = select_epoch(given, target.to(dtype), balanced_accuracy, generator=seeded(1), draws=100)
        assert (found.epoch, found.value, found.corrected) == (expected.epoch, expected.value, expected.corrected)


def test_a_measure_must_return_one_value_for_each_matrix():
    with pytest.raises(ValueError, match="one value for each matrix"):
        select_epoch(torch.zeros(2, 3).long(), TARGET, partial(imbtorch.recall, average="none"), num_classes=2)


# --- planning -------------------------------------------------------------------------------------------------------


def test_epochs_of_infinite_value_are_not_told_apart():
    target = torch.tensor([0] * 30 + [1] * 10)
    one, other = target.clone(), target.clone()
    one[30:33], other[30:36], other[:3] = 0, 0, 1
    found = select_epoch(
        torch.stack((one, one, other)), target, imbtorch.likelihood_ratio, generator=seeded(), draws=50, repeats=50
    )
    assert {0, 1} <= set(found.indistinguishable)


@pytest.mark.slow
def test_the_interval_covers_one_candidate_that_is_truly_better():
    """Halves often keep one of the 99 others, so the corrected value is too low; .73 without the extension."""
    generator = torch.Generator().manual_seed(1)
    target = torch.tensor([1] * 20 + [0] * 180)
    recalls = torch.tensor([0.85] + [0.6] * 99).unsqueeze(-1)
    held = 0
    for _ in range(60):
        right = torch.rand(100, 200, generator=generator) < torch.where(target == 1, recalls, 0.9)
        preds = torch.where(right, target, 1 - target)
        found = select_epoch(preds, target, balanced_accuracy, repeats=50, draws=500, generator=generator)
        truth = (float(recalls[found.epoch]) + 0.9) / 2
        held += float(found.interval.low) <= truth <= float(found.interval.high)
    assert held >= 53
