"""Model selection against the examples of the papers and rules written out in loops."""

import math
import random

import numpy as np
import oracles
import pytest
import torch
from cases import close, shown_in_notebook

import imbtorch
from imbtorch.statistics import Selection, select_model

NAN, INF = math.nan, math.inf


def random_counts(rng, size, least=1, most=60):
    return [[rng.randint(least, most) for _ in range(size)] for _ in range(size)]


# --- errors ---------------------------------------------------------------------------------------------------------

TWO, THREE = torch.tensor([[8, 2], [1, 4]]), torch.tensor([[8, 2, 1], [1, 4, 1], [3, 2, 9]])


# --- selection ------------------------------------------------------------------------------------------------------

ML1 = [[4900, 90, 10, 0], [255, 245, 0, 0], [45, 5, 45, 5], [11, 3, 1, 10]]
ML2 = [[4900, 90, 10, 0], [250, 250, 0, 0], [50, 10, 35, 5], [9, 4, 2, 10]]
ML3 = [[100, 102, 99], [105, 100, 10], [102, 10, 90]]
ML4 = [[114, 86, 101], [100, 100, 15], [110, 10, 82]]
FIVE = {
    "accuracy": "Accuracy",
    "cba": "ClassBalanceAccuracy",
    "recall": "Recall",
    "precision": "Precision",
    "f1": "FScore",
}


def models(**matrices):
    return {name: torch.tensor(matrix) for name, matrix in matrices.items()}


def test_values_of_a_selection_are_exact():
    matrices = {"ML1": ML1, "ML2": ML2}
    found = select_model(models(**matrices))
    assert (found.models, found.measures) == (("ML1", "ML2"), tuple(FIVE))
    assert found.values.dtype == found.iam.dtype == torch.float64
    close(
        found.values, [[float(oracles.exact(name, matrix)) for name in FIVE.values()] for matrix in matrices.values()]
    )
    close(found.iam, [float(oracles.imbalance_accuracy(matrix)) for matrix in matrices.values()])
    assert found.points is None
    assert found.by_area is None


def test_example_1_of_the_iam_paper():
    found = select_model(models(ML1=ML1, ML2=ML2))
    assert found.lowest == ("cba", "cba")
    assert found.by_measure == dict.fromkeys(FIVE, ("ML1",))
    assert found.by_max_min == found.by_majority == found.by_iam == ("ML1",)
    assert found.agree


def test_example_2_of_the_iam_paper():
    found = select_model(models(ML3=ML3, ML4=ML4))
    assert found.lowest == ("accuracy", "cba")
    assert {name for name, best in found.by_measure.items() if best == ("ML4",)} == {
        "accuracy",
        "recall",
        "precision",
        "f1",
    }
    assert found.by_measure["cba"] == ("ML3",)
    assert found.by_max_min == found.by_majority == ("ML4",)
    assert found.by_iam == ("ML3",)
    assert not found.agree


def test_example_3_of_the_iam_paper():
    printed = [[0.37, 0.34, 0.33, 0.33, 0.31], [0.36, 0.37, 0.33, 0.35, 0.31], [0.35, 0.35, 0.35, 0.35, 0.30]]
    names, iam = ("ACC", "MAP", "MAR", "F", "CBA", "IAM"), torch.tensor([-0.38, -0.37, -0.50], dtype=torch.float64)
    rows = [dict(zip(names, [*row, each], strict=True)) for row, each in zip(printed, iam.tolist(), strict=True)]
    higher = dict.fromkeys(("ACC", "MAP", "MAR", "F"), True)
    found = select_model(dict(zip(("ML5", "ML6", "ML7"), rows, strict=True)), higher_is_better=higher)
    assert found.most_often_lowest == ("CBA",)
    assert found.unbeaten == ("ML5", "ML6", "ML7")  # the highest accuracy, precision, recall
    assert found.iam.tolist() == iam.tolist()
    without = {model: {name: row[name] for name in names[:5]} for model, row in zip("abc", rows, strict=True)}
    close(select_model(without, higher_is_better=higher).iam, [2 * row[4] - 1 for row in printed])
    assert found.lowest == ("CBA",) * 3
    assert found.by_max_min == ("ML6", "ML5")  # the latest first
    named = dict(zip(("ML5", "ML6", "ML7"), rows, strict=True))
    earliest = select_model(named, ties="earliest", higher_is_better=higher)
    assert earliest.by_max_min == ("ML5", "ML6")
    with pytest.raises(ValueError, match="ties must be one of 'latest', 'earliest', got 'first'"):
        select_model({"a": ML1}, ties="first")
    assert found.by_majority == ("ML6",)  # three of five, two of them shared
    assert found.by_iam == ("ML6",)
    assert not found.agree
    off = iam - (2 * torch.tensor(printed)[:, 4] - 1)  # IAM is twice CBA less one: ML7's cannot be right
    assert (off.abs() > 2 * 0.01 + 0.01).tolist() == [False, False, True]


def at_point(dominance, gmean):
    tnr = (-dominance + math.hypot(dominance, 2 * gmean)) / 2
    return torch.tensor([[tnr, 1 - tnr], [1 - tnr - dominance, tnr + dominance]], dtype=torch.float64)


def test_area_prefers_under_sampling_on_glass_as_in_garcia_2009():
    candidates = {"SMOTE": at_point(-0.32, 0.71), "under-sampling": at_point(0.12, 0.69)}
    found = select_model(candidates, {"gmean": imbtorch.geometric_mean})
    assert found.by_measure == {"gmean": ("SMOTE",)}
    assert found.by_area == ("under-sampling",)
    close(found.points, [[-0.32, 0.71, 0.71 * 2.68 / 2], [0.12, 0.69, 0.69 * 3.12 / 2]], 1e-12)
    assert [f"{area:.2f}" for area in found.points[:, 2].tolist()] == ["0.95", "1.08"]


@pytest.mark.parametrize("seed", range(5))
def test_every_choice_follows_its_rule(seed):
    rng = random.Random(seed)
    size = rng.choice((2, 2, 3, 6))
    matrices = {f"m{index}": random_counts(rng, size, 0, 20) for index in range(6)}
    found = select_model(models(**matrices))
    table = {
        model: {name: oracles.exact(of, matrix) for name, of in FIVE.items()} for model, matrix in matrices.items()
    }

    def best(values):
        return tuple(name for name, value in values.items() if value == max(values.values()))[::-1]  # latest first

    assert found.lowest == tuple(min(row, key=row.get) for row in table.values())
    assert found.by_max_min == best({model: min(row.values()) for model, row in table.items()})
    winners = {name: best({model: row[name] for model, row in table.items()}) for name in FIVE}
    assert found.by_measure == winners
    assert found.by_majority == best({model: sum(model in each for each in winners.values()) for model in table})
    assert found.by_iam == best({model: oracles.imbalance_accuracy(matrix) for model, matrix in matrices.items()})
    assert found.by_iam == winners["cba"]
    if size == 2:
        points = [oracles.dominance, oracles.geometric_mean, oracles.accuracy_dominance_area]
        close(found.points, [[float(point(matrix)) for point in points] for matrix in matrices.values()])
        assert found.by_area == best({name: oracles.accuracy_dominance_area(each) for name, each in matrices.items()})
    assert found.agree == (found.by_max_min == found.by_majority == found.by_iam)


def test_folds_are_averaged_and_spread():
    folds = {"a": [ML1, ML2, ML1], "b": [ML2, ML2, ML2]}
    found = select_model({name: torch.tensor(matrices) for name, matrices in folds.items()})
    each = {
        name: np.array([[float(oracles.exact(of, fold)) for of in FIVE.values()] for fold in matrices])
        for name, matrices in folds.items()
    }
    close(found.values, [values.mean(0).tolist() for values in each.values()])
    assert found.spread is not None
    close(found.spread, [values.std(0, ddof=1).tolist() for values in each.values()], 1e-12)
    close(found.iam, [np.mean([float(oracles.imbalance_accuracy(fold)) for fold in each]) for each in folds.values()])
    assert found.by_max_min == found.unbeaten == ("a",)
    lines = str(found).splitlines()
    assert f"*{each['a'].mean(0)[0]:.3f}±{each['a'].std(0, ddof=1)[0]:.3f}" in lines[1]
    assert lines[2].split()[1].endswith("±0.000")
    assert lines[3].endswith(", ± standard deviation over the folds")
    two = select_model({"a": TWO.expand(3, 2, 2)})
    close(two.points, select_model({"a": TWO}).points)


def test_lower_may_be_better_and_is_then_no_part_of_max_min():
    measures = {"right": lambda c: c[..., 0, 0], "wrong": lambda c: c[..., 0, 1], "other": lambda c: c[..., 1, 0]}
    candidates = models(a=[[5, 1], [7, 0]], b=[[4, 2], [9, 0]], c=[[5, 1], [6, 0]])
    found = select_model(candidates, measures, higher_is_better={"wrong": False})
    assert found.by_measure == {"right": ("c", "a"), "wrong": ("c", "a"), "other": ("b",)}
    assert found.lowest == ("right",) * 3
    assert found.most_often_lowest == ("right",)
    assert found.by_max_min == ("c", "a")
    assert found.by_majority == ("c", "a")
    assert found.unbeaten == ("a", "b")  # c is as good as a but for the last
    assert "wrong: lower is better, so no part of max-min" in str(found).splitlines()
    clear = models(good=[[9, 1], [1, 9]], poor=[[6, 4], [4, 6]])
    for entropy in (imbtorch.confusion_entropy, torch.no_grad()(imbtorch.confusion_entropy)):
        assert select_model(clear, {"cen": entropy}).by_measure == {"cen": ("good",)}
    with pytest.raises(ValueError, match="name in higher_is_better must be one of 'right', 'wrong', 'other', got"):
        select_model(candidates, measures, higher_is_better={"oops": False})


def test_printed_values_have_the_direction_of_the_measure_of_their_name():
    """Of 20 samples the good model has 18 right; by an entropy or a cost the lowest value is best."""
    values = {"good": ([[9, 1], [1, 9]], 0.1), "poor": ([[6, 4], [4, 6]], 0.4)}
    printed = {
        model: {
            "ACC": 1 - cost,
            "Confusion_Entropy": float(oracles.exact("ConfusionEntropy", matrix)),
            "expected_cost": cost,
        }
        for model, (matrix, cost) in values.items()
    }
    assert printed["good"]["Confusion_Entropy"] < printed["poor"]["Confusion_Entropy"]
    found = select_model(printed, higher_is_better={"ACC": True})
    assert found.by_measure == dict.fromkeys(found.measures, ("good",))
    assert found.lowest == ("ACC", "ACC")
    turned = select_model(printed, higher_is_better={"ACC": True, "expected_cost": True})
    assert turned.by_measure["expected_cost"] == ("poor",)
    with pytest.raises(ValueError, match=r"values of ACC have no known direction; .*\{'ACC': True\}.* mean 'accuracy'"):
        select_model(printed)
    with pytest.raises(ValueError, match="measure dominance has no direction"):
        select_model({"a": {"dominance": 0.1, "gmean": 0.5}})


def test_values_that_differ_by_rounding_alone_tie_wherever_models_are_compared():
    printed = {"a": {"one": 0.1 + 0.2, "two": 0.5}, "b": {"one": 0.3, "two": 0.5}, "c": {"one": 0.3, "two": 0.6}}
    higher = {"one": True, "two": True}
    two = select_model({name: printed[name] for name in "ab"}, higher_is_better=higher)
    assert two.by_measure == {"one": ("b", "a"), "two": ("b", "a")}
    assert two.unbeaten == ("a", "b")
    assert select_model(printed, higher_is_better=higher).unbeaten == ("c",)
    endless = {"a": {"one": math.inf, "two": 1.0}, "b": {"one": math.inf, "two": 0.5}, "c": {"one": 9.0, "two": 0.5}}
    assert select_model(endless, higher_is_better=higher).unbeaten == ("a",)


def test_max_min_of_the_five_is_the_bottom_line():
    rng = random.Random(7)
    candidates = models(**{f"m{index}": random_counts(rng, 4, 0, 9) for index in range(20)})
    lines = {name: float(oracles.bottom_line(matrix.tolist())) for name, matrix in candidates.items()}
    assert select_model(candidates).by_max_min == tuple(
        name for name in lines if math.isclose(lines[name], max(lines.values()), rel_tol=1e-12)
    )


def test_equal_models_share_every_choice():
    renamed = [[ML3[i][j] for j in (2, 0, 1)] for i in (2, 0, 1)]
    found = select_model(models(a=ML3, b=renamed, c=[[100, 103, 98], [105, 99, 11], [103, 10, 89]]))
    assert found.by_measure == dict.fromkeys(FIVE, ("b", "a"))
    assert found.by_max_min == found.by_majority == found.by_iam == ("b", "a")
    assert found.agree
    tie = select_model(models(a=[[9, 1], [4, 6]], b=[[6, 4], [1, 9]]))  # classes changed places
    assert tie.by_majority == ("b", "a")
    assert tie.by_area == ("b",)


def test_votes_of_a_tie_count_for_each():
    values = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 0.0, 0.9]])
    found = Selection(("a", "b", "c"), ("x", "y", "z"), values, torch.tensor([0.0, 0.0, 0.1]))
    assert found.by_measure == {"x": ("b", "a"), "y": ("b",), "z": ("c",)}
    assert found.by_majority == ("b",)
    assert found.lowest == ("y", "z", "x")  # the first of equals
    assert found.by_iam == ("c",)


def test_one_candidate_wins():
    found = select_model(models(only=ML4))
    assert found.by_max_min == found.by_majority == found.by_iam == ("only",)
    assert found.agree


def test_nan_never_wins_and_is_nobodys_lowest():
    values = torch.tensor([[NAN, NAN], [0.2, NAN], [0.3, 0.1]])
    found = Selection(("a", "b", "c"), ("x", "y"), values, torch.tensor([NAN, -0.5, -0.6]))
    assert found.lowest == (None, "x", "y")
    assert found.by_measure == {"x": ("c",), "y": ("c",)}
    assert found.by_max_min == ("b",)
    assert found.by_majority == ("c",)
    assert found.by_iam == ("b",)
    assert "nan" in str(found)
    empty = select_model(
        {"a": torch.zeros(2, 2), "b": torch.tensor([[0, 9], [9, 0]])}
    )  # as bad as can be, but something
    assert empty.by_max_min == empty.by_majority == empty.by_iam == empty.by_area == ("b",)
    none = select_model({"a": torch.zeros(2, 2)})
    assert none.by_max_min == none.by_majority == none.by_iam == none.by_area == ()
    assert none.by_measure == dict.fromkeys(FIVE, ())
    assert none.lowest == (None,)
    assert "IAM: none" in str(none)


@pytest.mark.parametrize("least", [-INF, -1e30])
def test_unbounded_values(least):
    values = torch.tensor([[least, 5.0], [least, 7.0]], dtype=torch.float64)
    found = Selection(("a", "b"), ("x", "y"), values, torch.tensor([0.0, 1.0]))
    assert found.lowest == ("x", "x")
    assert found.by_measure == {"x": ("b", "a"), "y": ("b",)}
    assert found.by_max_min == ("b", "a")
    highest = Selection(("a", "b"), ("x",), -values[:, :1], torch.tensor([0.0, 1.0]))
    assert highest.by_measure == {"x": ("b", "a")}
    assert highest.lowest == ("x", "x")


def test_measures_of_ones_own_and_any_dtype():
    candidates = {"a": TWO.float(), "b": TWO.flip(0, 1).double(), "c": TWO.short(), "d": TWO.double().requires_grad_()}
    found = select_model(candidates, {"tp": lambda c: c[..., 1, 1], "mcc": imbtorch.matthews_corrcoef})
    assert found.by_measure["tp"] == ("b",)
    close(found.values[:, 0], [4, 8, 4, 4])
    assert not found.values.requires_grad
    assert not found.iam.requires_grad
    close(select_model({"a": TWO.half()}).values, select_model({"a": TWO}).values, 1e-15)


@pytest.mark.parametrize(
    ("candidates", "measures", "error", "named"),
    [
        ({}, None, ValueError, "candidates"),
        ({"a": TWO, "b": THREE}, None, ValueError, r"same classes.*'b': \[3, 3\]"),
        ({"a": TWO.expand(4, 4, 2, 2)}, None, ValueError, "candidates must be matrices"),
        ({"a": TWO.expand(4, 2, 2), "b": TWO}, None, ValueError, r"of the same classes.*'b': \[2, 2\]"),
        ({"a": TWO, "b": {"cba": 0.5}}, None, ValueError, "must all be printed values"),
        ({"a": {"cba": 0.5}}, FIVE, ValueError, "printed values, which take no measures"),
        ({"a": {"cba": 0.5}, "b": {"f1": 0.5}}, None, ValueError, r"the same measures, \['cba'\]; 'b': \['f1'\]"),
        ({"a": {"IAM": 0.5}}, None, ValueError, "at least one measure beside IAM"),
        ({"a": torch.ones(2, 3)}, None, ValueError, "confusion matrix"),
        ({"a": [[1, 2], [3, 4]]}, None, TypeError, "counts must be a tensor"),
        ({"a": TWO}, {}, ValueError, "measures"),
        ({"a": TWO}, {"each": lambda c: imbtorch.recall(c, "none")}, ValueError, "choose an average"),
        ({"a": TWO, "b": torch.tensor([[1.0, math.nan], [2.0, 3.0]])}, None, ValueError, r"nan.*\['b'\]"),
        ({"a": torch.tensor([[5, -1], [2, 3]]), "b": TWO}, None, ValueError, r">= 0.*\['a'\]"),
    ],
)
def test_select_model_names_what_is_wrong(candidates, measures, error, named):
    with pytest.raises(error, match=named):
        select_model(candidates, measures)


def test_directions_are_given_by_name():
    with pytest.raises(TypeError, match="higher_is_better must map names of measures to True or False, got True"):
        select_model({"a": TWO}, higher_is_better=True)


def test_a_selection_prints_its_marks():
    found = select_model(models(first=[[8, 2], [1, 1]], second=[[5, 5], [0, 2]]))
    assert str(found).splitlines() == [
        "        accuracy      cba  recall  precision      f1     IAM  dominance  gmean    area",
        " first    *0.750  *_0.567   0.650      0.611  *0.621  *0.133     -0.300  0.632   0.854",
        "second     0.583   _0.393  *0.750     *0.643   0.556  -0.214      0.500  0.707  *1.237",
        "* best of its column, _ lowest measure of its row",
        "chosen by max-min: first; majority: first; IAM: first; area: second",
        "max-min, majority and IAM agree",
        "beaten by no other on all measures: first, second; most often the lowest: cba",
        "none lies northeast of second",
    ]


def test_a_notebook_shows_a_selection_as_it_is_printed():
    found = select_model({"<first>": torch.tensor([[8, 2], [1, 1]]), "R&D": torch.tensor([[5, 5], [0, 2]])})
    rows, notes = shown_in_notebook(found)
    lines = str(found).splitlines()
    assert [row[0] for row in rows] == ["", "<first>", "R&D"]
    assert [" ".join(row).split() for row in rows] == [line.split() for line in lines[:3]]
    assert notes == lines[3:]


def test_a_measure_called_like_a_column_keeps_its_own():
    measures = {"area": lambda c: c[..., 0, 0], "IAM": lambda c: c[..., 1, 1]}
    head, row, *_ = str(select_model({"a": TWO}, measures)).splitlines()
    assert head.split() == ["area", "IAM", "IAM", "dominance", "gmean", "area"]
    assert row.split() == ["a", "*8.000", "*_4.000", "*0.467", "0.000", "0.800", "*1.200"]
    assert "do not agree" in str(select_model(models(ML3=ML3, ML4=ML4)))


def test_a_selection_knows_what_no_other_dominates():
    models = {  # TPR, TNR: .2, .9; .8, .8; .7, .7; 1, .5
        "cautious": torch.tensor([[90, 10], [8, 2]]),
        "balanced": torch.tensor([[80, 20], [2, 8]]),
        "worse": torch.tensor([[70, 30], [3, 7]]),
        "eager": torch.tensor([[50, 50], [0, 10]]),
    }
    found = select_model(models)
    assert found.undominated == ("balanced", "eager")  # G-mean .8 at 0 beats .7 at 0 and .42 at -.7
    assert str(found).endswith("none lies northeast of balanced, eager")
    assert select_model({"a": torch.eye(3)}).undominated is None
