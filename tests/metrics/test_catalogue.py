"""The catalogue of the measures is held against the package: a row for each, with its range and direction."""

import ast
import inspect
import itertools
import re
from fractions import Fraction
from functools import partial
from pathlib import Path

import oracles
import pytest
import sklearn.metrics
import torch
import torchmetrics
from cases import NEED_MATRIX, build, of_kind
from oracles import FACTS, OF_EACH, OF_POSITIVE
from processes import launch
from rooms import METRICS, by_key, measure_of
from rooms import catalogue as metrics
from versions import needs_simulated_device

import imbtorch
from imbtorch import ConfusionMatrixMetric, ImbalanceReport, measures

CATALOGUE = Path(measures.__file__).parent / "README.md"  # an installed package has none: it holds code alone


def catalogue() -> list[dict[str, str]]:
    """Rows of the tables of measures, each with the file of the formulas that its table is of."""
    rows = []
    text = CATALOGUE.read_text(encoding="utf-8") if CATALOGUE.is_file() else ""
    for file, part in re.findall(r"^## [^\n]*\(`(\w+\.py)`\)\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE):
        lines = [line for line in part.splitlines() if line.startswith("|")]
        head, _, *cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        rows += [dict(zip(head, row, strict=True), file=file) for row in cells]
    return rows


def test_catalogue_has_one_row_for_each_metric_and_measure():
    rows = catalogue()
    assert sorted(row["Class"].strip("`") for row in rows) == sorted(metrics.__all__)
    assert sorted(row["Function"].strip("`") for row in rows) == sorted(measures.__all__)
    assert all(row[column] for row in rows for column in row)
    for module in (measures.overall, measures.per_class, measures.two_classes):
        there = [row["Function"].strip("`") for row in rows if row["file"] == Path(module.__file__).name]
        assert sorted(there) == sorted(module.__all__)


@pytest.mark.parametrize("row", catalogue(), ids=lambda row: row["Class"].strip("`"))
def test_catalogue_agrees_with_the_class(row):
    name = row["Class"].strip("`")
    cls = getattr(imbtorch, name)
    assert cls.measure is getattr(imbtorch, row["Function"].strip("`"))
    assert cls.higher_is_better is {"higher": True, "lower": False, "neither": None}[row["Better"]]
    assert cls.traits.binary_only is (row["file"] == "two_classes.py")
    assert bool(cls.traits.averages) is (row["file"] == "per_class.py")
    bounds = {"any": (None, None), "0 or more": (0.0, None)}.get(row["Range"])
    if "K" in row["Range"]:
        return  # a picture has the bounds of any K
    if bounds is None:
        bounds = tuple(float(end) for end in row["Range"].strip("[]").split(","))
    assert (cls.plot_lower_bound, cls.plot_upper_bound) == bounds


def test_facts_know_which_have_a_positive_class():
    of_each = {row["Class"].strip("`") for row in catalogue() if row["file"] == "per_class.py"}
    assert of_each - set(of_kind(OF_POSITIVE)) == set(of_kind(OF_EACH))
    assert {name for name in metrics.__all__ if "binary" in getattr(imbtorch, name).traits.averages} == set(
        of_kind(OF_POSITIVE)
    )


@pytest.mark.parametrize("name", FACTS)
def test_margins_serve_those_that_the_facts_name(name):
    if name in NEED_MATRIX:
        with pytest.raises(ValueError, match="state='matrix'"):
            build(name, "multiclass", 2, state="margins")
    else:
        build(name, "multiclass", 2, state="margins")


MATRIX = [[70, 10], [4, 16]]
PREDS = torch.tensor([0] * 70 + [1] * 10 + [0] * 4 + [1] * 16)
TARGET = torch.tensor([0] * 80 + [1] * 20)
REFUSED = (
    "ConfusionEntropy",
    "ExpectedCost",
    "MacroAveragedAbsoluteError",
    "NetBenefit",
)  # costs, and one needs a price
BY_KEY = {key: METRICS[function] for key, function in by_key().items()}
OF_TWO = {name: metric for name, metric in BY_KEY.items() if metric.__name__ not in REFUSED}


@pytest.mark.parametrize("name", OF_TWO)
def test_iba_takes_a_function_or_a_name(name):
    metric = OF_TWO[name]
    expected = float(oracles.index_balanced_accuracy(MATRIX, measure=metric.__name__, alpha=Fraction(1, 4)))
    for given in (metric.measure, partial(metric.measure), metric.measure.__name__, name):
        value = imbtorch.index_balanced_accuracy(torch.tensor(MATRIX), given, alpha=0.25)
        assert value.item() == pytest.approx(expected, rel=1e-12)
    for given in (metric.measure, partial(metric.measure), metric.measure.__name__, name):
        weighted = imbtorch.IndexBalancedAccuracy("binary", measure=given, alpha=0.25)
        assert weighted(PREDS, TARGET).item() == pytest.approx(expected, rel=1e-6)
        assert measure_of(weighted).needs_matrix == metric.needs_matrix


@pytest.mark.parametrize(
    ("measure", "recall"),
    [("recall", 0.8), (partial(imbtorch.recall, average="macro"), (0.8 + 0.875) / 2)],
    ids=["binary", "macro"],
)
def test_iba_of_the_positive_class_alone_unless_another_average_is_named(measure, recall):
    """By hand: TPR .8, TNR .875."""
    expected = (1 + 0.5 * (0.8 - 0.875)) * recall
    value = imbtorch.index_balanced_accuracy(torch.tensor(MATRIX), measure, alpha=0.5)
    assert value.item() == pytest.approx(expected)
    metric = imbtorch.IndexBalancedAccuracy("binary", measure=measure, alpha=0.5)
    assert metric(PREDS, TARGET).item() == pytest.approx(expected)


class Specific(imbtorch.ConfusionMatrixMetric):
    """A user's own metric."""

    measure = staticmethod(lambda counts: counts[..., 0, 0] / counts[..., 0, :].sum(-1))


def test_iba_of_a_function_of_ones_own():
    metric = imbtorch.IndexBalancedAccuracy("binary", measure=Specific.measure, alpha=0.0)
    assert metric(PREDS, TARGET).item() == pytest.approx(0.875)
    measures = {"a": partial(imbtorch.index_balanced_accuracy, measure="mcc", alpha=0)}
    report = ImbalanceReport("binary", measures=measures)
    report.update(PREDS, TARGET)
    assert report.compute()["a"].item() == pytest.approx(sklearn.metrics.matthews_corrcoef(TARGET, PREDS))


@pytest.mark.parametrize(
    ("measure", "error", "match"),
    [
        ("gmeen", ValueError, "measure must be one of .*, got 'gmeen'; did you mean 'gmean'"),
        (3, TypeError, "measure must be the name of a measure .* a function of counts .*got 3"),
        (None, TypeError, "measure must be the name of a measure .*got None"),
        (torchmetrics.Accuracy, TypeError, "measure must be .*Accuracy"),
        (imbtorch.Recall("binary"), TypeError, r"got Recall\(task='binary'.*; pass imbtorch.recall or 'recall'"),
        (Specific, TypeError, "pass the function of its attribute measure"),
        (
            "expected_cost",
            TypeError,
            r"expected_cost needs costs; pass functools.partial\(imbtorch.expected_cost, costs=",
        ),
        (
            "net_benefit",
            TypeError,
            r"net_benefit needs threshold; pass functools.partial\(imbtorch.net_benefit, thresh",
        ),
    ],
)
def test_iba_says_what_it_got(measure, error, match):
    with pytest.raises(error, match=match):
        imbtorch.IndexBalancedAccuracy("binary", measure=measure)
    with pytest.raises(error, match=match):
        imbtorch.index_balanced_accuracy(torch.tensor(MATRIX), measure)


@pytest.mark.parametrize("metric", BY_KEY.values(), ids=BY_KEY)
def test_help_on_a_metric_says_what_its_measure_says_and_what_it_takes(metric):
    text, measure = inspect.getdoc(metric), inspect.getdoc(metric.measure)
    assert text.startswith(measure.partition("\n\nArgs:")[0])  # what it is, with the formula
    value = re.search(r"Returns:\n(.*?)\n\n", measure, re.DOTALL)[1]
    assert f"Value: {' '.join(value.split())}" in " ".join(text.split())  # range, direction and undefined cases
    assert re.search(r"^Source: .*(\n\S.*)*", measure, re.MULTILINE)[0] in text
    assert "\n    preds: class indices ``[N, ...]`` or scores ``[N, C, ...]``" in text
    entries = re.findall(r"^    (\w+): ", text, re.MULTILINE)
    everything = {*inspect.signature(ConfusionMatrixMetric).parameters, *inspect.signature(metric).parameters}
    assert sorted(entries) == sorted({"preds", "target", *everything})  # each of them once
    assert text.count(">>> metric = ") == 1


def test_a_metric_keeps_its_short_docstring_in_the_source_and_one_of_yours_everywhere():
    tree = ast.parse(inspect.getsource(metrics.MatthewsCorrCoef))
    assert len(ast.get_docstring(tree.body[0]).splitlines()) == 5

    class Mine(ConfusionMatrixMetric):
        """Mine."""

        measure = staticmethod(measures.accuracy)

    assert Mine.__doc__ == "Mine."


KINDS = {
    "binary": ("binary", {}),
    "multiclass": ("multiclass", {"num_classes": 4}),
    "weighted": ("multiclass", {"num_classes": 4, "weighted": True}),
    "multilabel": ("multilabel", {"num_labels": 4, "threshold": [0.1, 0.2, 0.3, 0.4]}),
}


def forward_on_a_device(rank, world):
    """Values of forward on the CPU and on the simulated accelerator, deterministic; for a process of its own."""
    from simulated_device import waits

    torch.distributed.destroy_process_group()  # which does not know the device
    torch.use_deterministic_algorithms(True)
    found = {}
    for (kind, (task, arguments)), name in itertools.product(KINDS.items(), metrics.__all__):
        size = 4 if task == "multiclass" else 2
        costs = {"costs": torch.rand(size, size)} if name == "ExpectedCost" else {}
        here, there = (getattr(imbtorch, name)(task, **arguments, **costs) for _ in range(2))
        preds = torch.rand(40) if task == "binary" else torch.rand(40, 4)
        target = torch.randint(size, (40, 4) if task == "multilabel" else (40,))
        weight = torch.rand(40) if kind == "weighted" else None
        there, given = there.to("sim"), [each.to("sim") for each in (preds, target)]
        more = {} if weight is None else {"weight": weight.to("sim")}
        with waits("refused"):
            value = there(*given, **more)
        values = here(preds, target, weight=weight), value.cpu(), there.to("cpu")(preds, target, weight=weight)
        found[kind, name] = str(value.device), [each.tolist() for each in values]
    return found


@needs_simulated_device
def test_forward_on_a_device_neither_waits_nor_copies_and_is_deterministic():
    [found] = launch(1, forward_on_a_device)
    assert len(found) == len(KINDS) * len(metrics.__all__)
    for device, (here, there, back) in found.values():
        assert device == "sim:0"
        assert there == pytest.approx(here, rel=1e-6)
        assert back == here
