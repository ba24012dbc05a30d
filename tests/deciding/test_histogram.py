"""Scores between thresholds: rounding, bad input, and logits that crowd."""

import math
import warnings

import numpy as np
import pytest
import torch
from rooms import state_of
from sklearn import metrics as sk
from sweeps import DTYPES, best_of_all_thresholds, data, even, expected_matrices, item

import imbtorch
from imbtorch import ThresholdSweep

# --- the oracle at each threshold -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "target_dtype"), list(zip(DTYPES, (torch.int64, torch.uint8, torch.int32, torch.bool), strict=True))
)
def test_scores_on_a_threshold_predict_zero_in_every_dtype(dtype, target_dtype):
    scores, target = data(dtype)
    wide = torch.promote_types(dtype, torch.float32)  # half precision is read as float32
    for thresholds, grid in ((101, even(101, wide)), (torch.tensor([0.1, 0.25, 0.3, 0.7], dtype=torch.float64), None)):
        sweep = ThresholdSweep(imbtorch.f_score, thresholds)
        sweep.update(scores, target.to(target_dtype))
        grid = thresholds.to(wide).double().numpy() if grid is None else grid
        sweep.compute()
        assert sweep.result().matrices().tolist() == expected_matrices(scores, target, grid)


def test_float32_thresholds_are_fractions_rounded_once_rather_than_a_linspace():
    fractions = torch.tensor([index / 100 for index in range(101)], dtype=torch.float64).float()
    assert int((torch.linspace(0, 1, 101) != fractions).sum()) == 20  # so the difference can be seen at all
    sweep = ThresholdSweep(imbtorch.f_score, 101)
    sweep.update(fractions, torch.ones(101, dtype=torch.long))
    with pytest.warns(UserWarning, match="no target"):
        sweep.compute()
    assert sweep.result().matrices()[:, 1, 1].tolist() == list(range(100, -1, -1))


# --- the life of a metric -------------------------------------------------------------------------------------------


def test_chunks_equal_one_update():
    scores, target = data(shape=(97,))
    whole, parts = ThresholdSweep(imbtorch.f_score, 101), ThresholdSweep(imbtorch.f_score, 101)
    whole.update(scores, target)
    for chunk in (slice(0, 1), slice(1, 1), slice(1, 60), slice(60, 97)):
        parts.update(scores[chunk], target[chunk])
    assert item(parts.compute()) == item(whole.compute())
    assert torch.equal(parts.result().matrices(), whole.result().matrices())


# --- what is refused ------------------------------------------------------------------------------------------------

GOOD = torch.tensor([0.2, 0.8]), torch.tensor([0, 1])
CLASSES = {"task": "multiclass", "num_classes": 3}
THIRDS = torch.full((2, 3), 1 / 3)
BAD_INPUT = {
    "nan": ({}, torch.tensor([0.5, torch.nan]), GOOD[1], ValueError, "preds hold NaN scores"),
    "above": ({}, torch.tensor([0.5, 1.5]), GOOD[1], ValueError, "preds must be .* got 1.5.*logits=True"),
    "below": ({}, torch.tensor([-0.25, 0.5]), GOOD[1], ValueError, "preds must be .* got -0.25.*logits=True"),
    "target": ({}, GOOD[0], torch.tensor([0, 2]), ValueError, "target holds class 2 .*ignore_index=2"),
    "int preds": ({}, torch.tensor([0, 1]), GOOD[1], TypeError, "preds must be floating.*pass probabilities"),
    "no tensor": ({}, [0.5, 0.5], GOOD[1], TypeError, "preds must be floating.*list"),
    "float target": ({}, GOOD[0], torch.tensor([0.0, 1.0]), TypeError, r"target must hold integers.*target\.long"),
    "shapes": ({}, torch.full((2, 1), 0.5), GOOD[1], ValueError, "preds and target do not fit.*reshape"),
    "all infinite": (
        {**CLASSES, "logits": True},
        torch.full((2, 3), torch.inf),
        GOOD[1],
        ValueError,
        "preds hold NaN scores, or infinite logits whose probability is undefined",
    ),
    "class nan": (CLASSES, torch.full((2, 3), torch.nan), GOOD[1], ValueError, "preds hold NaN scores"),
    "class above": (CLASSES, 3 * torch.eye(3)[:2], GOOD[1], ValueError, "preds must be .* got 3.*logits=True"),
    "class target": (CLASSES, THIRDS, torch.tensor([0, 3]), ValueError, "target holds class 3 .*ignore_index=3"),
    "class negative": (CLASSES, THIRDS, torch.tensor([-1, 0]), ValueError, "target holds class -1"),
    "class shape": (CLASSES, torch.full((2, 4), 0.25), GOOD[1], ValueError, "preds hold scores of 4 classes"),
    "class floats": (CLASSES, THIRDS, torch.tensor([0.0, 1.0]), TypeError, "target must hold integers"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
@pytest.mark.parametrize("call", ["update", "forward"])
def test_bad_input_names_the_argument_and_leaves_the_state(case, call):
    arguments, preds, target, error, message = BAD_INPUT[case]
    sweep = ThresholdSweep(imbtorch.f_score, 11, **arguments)
    sweep.update(*(GOOD if not arguments else (THIRDS, torch.tensor([0, 2]))))
    before = state_of(sweep).clone()
    with pytest.raises(error, match=message):
        getattr(sweep, call)(preds, target)
    assert torch.equal(state_of(sweep), before)
    assert sweep.update_count == 1


def test_bad_samples_can_be_left_out_with_a_warning():
    sweep = ThresholdSweep(imbtorch.f_score, 11, on_invalid="warn")
    sweep.update(torch.tensor([0.2, 0.8, torch.nan, 2.0, 0.5]), torch.tensor([0, 1, 1, 1, 5]))
    with pytest.warns(UserWarning, match="did not count 3"):
        sweep.compute()
    assert sweep.result().matrices().tolist() == expected_matrices(*GOOD, even(11, torch.float32))


@pytest.mark.parametrize("shape", ["sigmoid", "two columns", "classes"])
def test_saturated_logits_are_told_apart(shape):
    """Logits of 20 to 35, whose sigmoids and softmaxes are 1 in float32."""
    generator = torch.Generator().manual_seed(0)
    odds = 20 + 15 * torch.rand(500, generator=generator)
    target = (torch.rand(500, generator=generator) * 15 < odds - 20).long()
    settings, preds = {}, odds
    if shape == "two columns":
        preds = torch.stack((-odds / 2, odds / 2), 1)
    if shape == "classes":
        settings, preds = {"task": "multiclass", "num_classes": 2}, torch.stack((0 * odds, odds), 1)
    assert (odds.sigmoid() == 1).all()
    sweep = ThresholdSweep("f1", logits=True, **settings)
    sweep.update(preds, target)
    sweep.compute()
    assert torch.as_tensor(sweep.result().auc()).flatten()[-1] == pytest.approx(
        sk.roc_auc_score(target, odds), abs=0.003
    )
    f1, _ = best_of_all_thresholds(odds, target)
    assert sweep.result().curve()[1].reshape(-1, len(sweep.thresholds))[-1].max().item() == pytest.approx(f1, abs=0.003)


def test_scores_that_crowd_in_one_bin_are_warned_of_once():
    target = torch.arange(400) % 4 == 0
    saturated = (torch.where(target, 22.0, 20.0)).sigmoid()
    for also, harm in (((), "no threshold separates them"), (["auc"], r"average precision may be off by 0\.\d+")):
        sweep = ThresholdSweep("f1", also=also)
        sweep.update(saturated, target)
        with pytest.warns(
            UserWarning, match=rf"400 scores above 0\.99.*; unless they are equal, .*{harm}; pass logits"
        ):
            sweep.compute()
    sweep.update(saturated, target)
    sweep.compute()  # once
    sweep.reset()
    sweep.update(saturated[:200], target[:200])
    sweep.compute()  # and not in each epoch, although the numbers differ
    few = ThresholdSweep("f1")
    few.update(saturated[:80], target[:80])
    few.compute()
    own = ThresholdSweep("f1", 11)  # as asked for
    own.update(saturated, target)
    own.compute()


NEAR = torch.linspace(0.98001, 0.98013, 15, dtype=torch.float64)  # between two thresholds, as after a saturated layer
POSITIVE = torch.tensor([0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1])
MIXED = {
    "probabilities": ({}, NEAR, POSITIVE),
    "half of them in two steps": ({}, torch.cat((NEAR, NEAR - 0.0003)).float(), POSITIVE.repeat(2)),
    "logits": ({"logits": True}, NEAR.logit().float(), POSITIVE),
    "another class is ignored": ({"ignore_index": 7}, torch.cat((NEAR, NEAR)), torch.cat((POSITIVE, POSITIVE * 0 + 7))),
    "scores of both classes": ({}, torch.stack((1 - NEAR, NEAR), 1), POSITIVE),
    "positions": ({}, NEAR.view(3, 5), POSITIVE.view(3, 5)),
    "labels": (
        {"task": "multilabel", "num_labels": 2},
        torch.stack((torch.linspace(0, 1, 15), NEAR.float()), 1),
        torch.stack((POSITIVE, POSITIVE), 1),
    ),
    "classes": (
        {"task": "multiclass", "num_classes": 3},
        torch.stack((1 - NEAR, NEAR, NEAR * 0), 1),
        torch.where(torch.arange(15) == 0, 2, POSITIVE),
    ),
    "logits of classes": (
        {"task": "multiclass", "num_classes": 2, "logits": True},
        torch.stack((-NEAR.logit(), 0 * NEAR), 1),
        POSITIVE,
    ),
    "weights": ({"weighted": True}, NEAR, POSITIVE),
}


@pytest.mark.parametrize("kind", MIXED)
def test_few_scores_that_differ_within_a_bin_are_told(kind):
    """Of 15 scores, whose area scikit-learn finds to be 0.982 and a sweep 0.5, as in issue 2819 of torchmetrics."""
    arguments, scores, target = MIXED[kind]
    assert sk.roc_auc_score(POSITIVE, NEAR) == pytest.approx(55 / 56)
    sweep = ThresholdSweep("f1", also=["auc"], **arguments)
    sweep.update(scores, target)
    with pytest.warns(UserWarning, match=r"differ but fall between the same two thresholds, such as \d+ scores above"):
        found = {name: value.item() for name, value in sweep.compute().items()}
    assert min(value for name, value in found.items() if name.startswith("auc")) < 0.9
    sweep.compute()  # once
    sweep.reset()
    sweep.update(scores, target)
    sweep.compute()  # nor in the next epoch
    plain = ThresholdSweep("f1", **arguments)
    plain.update(scores, target)
    with pytest.warns(UserWarning, match=r"same two thresholds, .*, so that no threshold separates them; imbtorch"):
        plain.compute()


def votes(noise, trees):
    """Scores of a forest."""
    return (noise.sigmoid() * trees).round() / trees


@pytest.mark.parametrize("samples", [15, 60, 300])
def test_true_ties_and_ordinary_scores_are_not_told(samples):
    """Of 300 right programs each; where a warning comes, the area is in fact off."""
    generator, told = torch.Generator().manual_seed(samples), {"ordinary": 0, "ties": 0}
    for number in range(300):
        target = (torch.rand(samples, generator=generator) < (0.5, 0.2)[number % 2]).long()
        target[:2] = torch.tensor([0, 1])
        noise = torch.randn(samples, generator=generator) + 1.5 * target
        scores = (noise.sigmoid(), votes(noise, 10), votes(noise, 100), torch.round(noise.sigmoid(), decimals=2))[
            number % 4
        ]
        sweep = ThresholdSweep("f1", also=["auc"])
        sweep.update(scores, target)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            error = abs(sweep.compute()["auc"].item() - sk.roc_auc_score(target, scores))
        told["ties" if number % 4 else "ordinary"] += len(caught)
        assert error < (1e-6 if number % 4 else 0.011 if not caught else 0.2)
    assert told["ties"] == 0
    assert told["ordinary"] <= 4  # of 75


def test_a_batch_without_scores_to_compare_is_counted():
    sweep = ThresholdSweep("f1", ignore_index=7)
    for scores, target in ((torch.zeros(0), torch.zeros(0)), (NEAR, POSITIVE * 0 + 7), (NEAR, POSITIVE)):
        sweep.update(scores, target.long())
    sweep.compute()  # without a warning: the first batch shows no scores that differ
    single = ThresholdSweep("f1")
    for score, label in ((0.3, 1), (0.2, 0)):
        single.update(torch.tensor(score), torch.tensor(label))
    assert single.compute()["value"] == 1


def test_scores_of_zero_are_equal_and_lie_between_no_two_thresholds():
    """A forest gives many of them; logits below all thresholds may differ."""
    target = torch.arange(3000) % 4 == 0
    zero = torch.arange(3000) % 3 == 0
    sweep = ThresholdSweep("f1", also=("auc",))
    sweep.update(scores := torch.where(zero, 0.0, torch.linspace(0.1, 0.9, 3000)), target)
    assert sweep.compute()["auc"].item() == pytest.approx(sk.roc_auc_score(target, scores), abs=1e-4)  # and no warning
    sweep = ThresholdSweep("f1", logits=True)
    sweep.update(torch.where(zero, -torch.inf, torch.linspace(-3, 3, 3000)), target)
    with pytest.warns(
        UserWarning, match=r"1000 scores of both classes lie beyond a logit of \+-100 and count as equal"
    ):
        sweep.compute()


@pytest.mark.parametrize("highest", [38.0, 150.0, math.inf])
def test_logits_beyond_every_threshold_crowd_too(highest):
    target = torch.arange(300) % 3 == 0
    sweep = ThresholdSweep("f1", logits=True, also=("auc",))
    sweep.update(torch.tensor([highest, -1.0]).repeat(150), target)
    text = (
        r"above a logit of \d+\.?\d* fall between" if highest < 100 else r"of both classes lie beyond a logit of \+-100"
    )
    with pytest.warns(UserWarning, match=f"150 scores {text}"):
        values = sweep.compute()
    found = [sk.f1_score(target, np.tile([True, False], 150)), sk.f1_score(target, np.ones(300))]
    assert values["value"].item() == pytest.approx(max(found))
    assert values["auc"].item() == pytest.approx(sk.roc_auc_score(target, np.tile([1, 0], 150)))
