"""Intervals of weighted values, from the squares of weights that states and files keep."""

import json
import warnings

import duckdb
import numpy as np
import pandas
import polars
import pytest
import torch
from rooms import effective_counts, posterior_of_weights
from scipy import stats
from versions import traced

import imbtorch
from imbtorch import ImbalanceReport, Recall
from imbtorch.statistics import compare_groups

MEASURES = ["iam", "recall", "precision", "f1", "mcc"]


def samples(size=600, classes=2, seed=0):
    """Predictions, targets and amounts, whose logarithms are normal."""
    random = np.random.default_rng(seed)
    target = (random.random(size) < 0.3).astype(int) if classes == 2 else random.integers(classes, size=size)
    preds = np.where(random.random(size) < 0.8, target, random.integers(classes, size=size))
    return torch.tensor(preds), torch.tensor(target), torch.tensor(random.lognormal(0, 1, size))


def counted(preds, target, weight=None, **arguments):
    classes = {"task": "multiclass", "num_classes": int(target.max()) + 1} if target.max() > 1 else {"task": "binary"}
    options = {"measures": MEASURES, "intervals": True, "weighted": weight is not None, **classes, **arguments}
    report = ImbalanceReport(**options)
    report.update(preds, target, **({} if weight is None else {"weight": weight}))
    return report.result()


def squares_in(result, folder):
    result.to_json(folder / "result.json")
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))["squares"]


# --- squares ----------------------------------------------------------------------------------------------------------


def masked(metric):
    """The path of devices, on the CPU."""
    torch._dynamo.reset()
    return traced(metric.update)


@pytest.mark.parametrize("path", [lambda metric: metric.update, masked])
def test_a_state_keeps_the_squares_of_weights(path, tmp_path):
    preds, target, weight = samples()
    report = ImbalanceReport("binary", weighted=True, measures=["iam"])
    for part in (slice(0, 100), slice(100, 600)):
        path(report)(preds[part], target[part], weight=weight[part])
    cells = np.bincount(2 * target + preds, weight**2, 4).reshape(2, 2)
    np.testing.assert_allclose(squares_in(report.result(), tmp_path), cells, rtol=1e-12)


def test_squares_of_labels_of_groups_and_of_files_that_are_added(tmp_path):
    preds, target, weight = (each.reshape(200, 3) for each in samples())
    report = ImbalanceReport("multilabel", num_labels=3, weighted=True, groups=["a", "b"])
    group = torch.arange(200) % 2
    for name, part in (("one", slice(0, 90)), ("two", slice(90, 200))):
        report.reset()
        report.update(preds[part], target[part], weight=weight[part], group=group[part])
        report.result().to_json(tmp_path / name)
    cell, shape = 4 * (3 * group.unsqueeze(1) + torch.arange(3)) + 2 * target + preds, (2, 3, 2, 2)
    cells = np.bincount(cell.flatten(), weight.flatten() ** 2, 24).reshape(shape)
    np.testing.assert_allclose(
        squares_in(imbtorch.merge_results(tmp_path / "one", tmp_path / "two"), tmp_path), cells, rtol=1e-12
    )


def test_an_update_without_weights_keeps_its_state():
    sizes = {each: Recall("binary", weighted=each).metric_state for each in (False, True)}
    plain, weighted = (next(iter(each.values())) for each in sizes.values())
    assert len(plain) == 4 + 7 + 1
    assert len(weighted) == 2 * (4 + 7) + 2  # with a number of counts that came without squares


# --- equal weights ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weight", [1.0, 0.3, 1000.0])
def test_equal_weights_give_the_unweighted_bounds(classes, weight):
    preds, target, _ = samples(classes=classes)
    plain = counted(preds, target)
    found = counted(preds, target, torch.full((600,), weight, dtype=torch.float64))
    for name in plain:
        assert float(found[name]) == float(plain[name]), name


@pytest.mark.parametrize("classes", [2, 4])
def test_the_unit_of_weights_moves_no_bound(classes):
    preds, target, weight = samples(classes=classes)
    one, other = (counted(preds, target, weight * times) for times in (1, 1000))
    for name in one:
        assert float(one[name]) == pytest.approx(float(other[name]), abs=1e-6), name


def test_metrics_have_the_interval_of_reports():
    preds, target, weight = samples()
    metric = Recall("binary", weighted=True)
    metric.update(preds, target, weight=weight)
    own, of_report = metric.interval(), counted(preds, target, weight).interval("recall")
    assert (own.low, own.high) == (of_report.low, of_report.high)
    assert str(own).endswith("(95% posterior of weights)")


# --- widths and coverage ----------------------------------------------------------------------------------------------


def test_bounds_of_many_rows_are_those_of_the_linearised_variance():
    preds, target, weight = samples(40_000)
    weight = weight.clamp(max=20) * torch.where(preds == 1, 1.0, 5.0)
    interval = counted(preds, target, weight).interval("recall", draws=20_000)
    w, hit = weight[target == 1].numpy(), (preds == 1)[target == 1].numpy()
    recall = np.average(hit, weights=w)
    error = np.sqrt((w**2 * (hit - recall) ** 2).sum()) / w.sum()
    bounds = [recall + side * stats.norm.ppf(0.975) * error for side in (-1, 1)]
    np.testing.assert_allclose([interval.low, interval.high], bounds, atol=0.06 * (bounds[1] - bounds[0]))


def test_precision_of_flagged_rows_of_one_weight_is_that_of_rows():
    """Other rows, of which one in five is known, tell nothing of precision."""
    preds, target, _ = samples()
    metric = imbtorch.Precision("binary", weighted=True)
    metric.update(preds, target, weight=torch.where(preds == 1, 1.0, 5.0))
    found = metric.interval(draws=20_000)
    alarms = target[preds == 1]
    right, wrong = int(alarms.sum()) + 0.5, int((1 - alarms).sum()) + 0.5
    np.testing.assert_allclose([found.low, found.high], stats.beta.ppf([0.025, 0.975], right, wrong), atol=0.015)


@pytest.mark.parametrize("weight", [5, 20])
def test_recall_of_rows_drawn_by_their_prediction_is_covered(weight):
    """Kish's number of the positives is several times too large here."""
    random = np.random.default_rng(3)
    hits, misses = random.poisson(280, 400), random.poisson(120 / weight, 400)
    alarms, others = random.poisson(180, 400), random.poisson(3400 / weight, 400)
    sums = torch.tensor(np.stack([others * weight, alarms, misses * weight, hits], 1)).double().reshape(-1, 2, 2)
    each = torch.tensor([[weight, 1], [weight, 1]]).double()
    found = posterior_of_weights(
        {"": lambda c: c[..., 1, 1] / c[..., 1, :].sum(-1)}, sums, sums * each, 400, 0.95, None
    )
    low, high = found[""].low, found[""].high
    assert 0.91 < float(((low <= 0.7) & (high >= 0.7)).double().mean()) < 0.995
    total = sums[:, 1].sum(-1)
    number = total**2 / (sums * each)[:, 1].sum(-1)
    kish = 2 * 1.96 * (0.21 / number).sqrt()
    assert float((high - low).mean() / kish.mean()) > 1.2


def test_a_miss_that_was_not_seen_weighs_as_much_as_rows_predicted_negative():
    sums = torch.tensor([[200.0, 4.0], [0.0, 30.0]]).double()
    counts, each = effective_counts(sums, sums * torch.tensor([[10.0, 1.0], [0.0, 1.0]]))
    assert counts[1, 0] == 0
    assert each[1, 0] == 10
    recall = {"recall": lambda c: c[..., 1, 1] / c[..., 1, :].sum(-1)}
    (wide,), (narrow,) = (
        posterior_of_weights(recall, sums, sums * torch.tensor([[often, 1.0], [0.0, 1.0]]), 2000, 0.95, None).values()
        for often in (10.0, 1.0)
    )
    unseen = stats.gamma.ppf(0.975, 0.5) * 10  # weight of the misses at the upper bound of their number
    assert float(wide.low) == pytest.approx(30 / (30 + unseen), abs=0.04)
    assert wide.low < narrow.low < narrow.high == wide.high == 1


def test_groups_have_the_interval_of_their_rows_and_can_be_compared():
    preds, target, weight = samples()
    group = torch.arange(600) % 2
    report = ImbalanceReport("binary", measures=["recall"], weighted=True, intervals=True, groups=["a", "b"])
    report.update(preds, target, weight=weight, group=group)
    result = report.result()
    for index, name in enumerate("ab"):
        rows = group == index
        alone = counted(preds[rows], target[rows], weight[rows], measures=["recall"])
        for end in ("low", "high"):
            assert float(result[f"recall/{name}_{end}"]) == pytest.approx(float(alone[f"recall_{end}"]), abs=1e-6)
    difference = compare_groups(result, "recall", "a", "b").difference
    assert float(difference.estimate) == pytest.approx(float(result["recall/a"] - result["recall/b"]), abs=1e-6)
    assert difference.low < difference.estimate < difference.high


def test_a_population_has_intervals_of_weights():
    preds, target, weight = samples()
    weight = weight * torch.where(target == 1, 3.0, 1.0)
    found = counted(preds, target, weight, prevalence=[0.9, 0.1]).interval("precision")
    counts = torch.zeros(4).double().index_add(0, 2 * target + preds, weight).reshape(2, 2)
    value = imbtorch.precision(imbtorch.at_prevalence(counts, [0.9, 0.1]), average="none")[1]
    assert found.low < value < found.high


@pytest.mark.parametrize("kind", ["mapping", "pandas", "lazy", "DuckDB", "CSV"])
def test_every_source_has_the_interval_of_its_rows(kind, tmp_path):
    """Engines sum the weights of equal samples, and their squares."""
    preds, target, weight = samples()
    columns = {"label": target.numpy(), "pred": preds.numpy(), "w": weight.numpy(), "site": np.arange(600) % 2}
    source = columns
    if kind in ("pandas", "CSV", "DuckDB"):
        source = frame = pandas.DataFrame(columns)
    if kind == "lazy":
        source = polars.DataFrame(columns).lazy()
    elif kind == "DuckDB":
        source = duckdb.sql("SELECT * FROM frame")
        assert len(frame) == 600
    elif kind == "CSV":
        source = tmp_path / "rows.csv"
        frame.to_csv(source, index=False)
    data = imbtorch.Predictions(source, target="label", weight="w", group="site")
    result, expected = data.report("pred", measures=["recall"]), counted(preds, target, weight).interval("recall")
    found = result.interval("recall")
    np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], atol=1e-6)


# --- what is unknown or misleads --------------------------------------------------------------------------------------


def test_counts_without_squares_open_without_intervals(tmp_path):
    older = torch.tensor([5.5, 1, 2, 8, *[0] * 8]).double()  # of 0.7: cells, seven spare ones, dependent samples
    report = ImbalanceReport("binary", measures=["recall"], weighted=True, intervals=True)
    (name,) = report.metric_state
    report.load_state_dict({name: older})
    with pytest.warns(UserWarning, match="bounds are nan, since the squares of some weights, which intervals need"):
        values = report.compute()
    assert float(values["recall"]) == pytest.approx(0.8)
    assert np.isnan(float(values["recall_low"]))
    preds, target, weight = samples()
    report.update(preds, target, weight=weight)  # some squares are still unknown
    with pytest.raises(ValueError, match="'recall' has no interval, because the squares of some weights"):
        report.interval("recall")
    metric = Recall("binary", weighted=True)
    metric.merge_state({name: older})
    with pytest.raises(ValueError, match="the squares of some weights, which intervals need, are unknown"):
        metric.interval()
    report.reset()
    report.update(preds, target, weight=weight)
    assert not np.isnan(float(report.compute()["recall_low"]))
    report.add(torch.tensor([[1.5, 0], [0, 2]]))
    with pytest.warns(UserWarning, match="bounds are nan"):
        assert np.isnan(float(report.compute()["recall_low"]))


@pytest.mark.parametrize(
    ("of", "weight", "text"),
    [
        ("target", [1.0, 5.0], r"true class alone \(0 1, 1 5\), .*pass prevalence= with the class shares"),
        ("preds", [5.0, 1.0], r"predicted class alone \(0 5, 1 1\), .*Predictions.estimate of the drawn labels"),
    ],
)
def test_weights_by_class_are_named(of, weight, text):
    preds, target, _ = samples()
    weights = torch.tensor(weight)[{"target": target, "preds": preds}[of]]
    with pytest.warns(UserWarning, match=f"weights depend on the {text}"):
        result = counted(preds, target, weights)
    assert "weights depend on" in str(result.table()).replace("\n  ", " ")


def test_other_weights_are_not_named():
    preds, target, weight = samples()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in (weight, torch.ones(600)):
            assert "weights by class" not in counted(preds, target, each).problems


def test_weights_exclude_clusters():
    with pytest.raises(ValueError, match="clusters=True and weighted=True exclude each other"):
        ImbalanceReport("binary", weighted=True, clusters=True)
    columns = {"label": [0, 1, 1, 0], "pred": [0, 1, 0, 0], "w": [1.0, 2.0, 1.0, 3.0], "id": [1, 1, 2, 2]}
    with pytest.raises(ValueError, match="clusters=True and weighted=True exclude each other"):
        imbtorch.Predictions(columns, target="label", weight="w", cluster="id").report("pred")
    metric = ImbalanceReport("binary", weighted=True)
    pixels = torch.tensor([[0, 1, 1, 1]] * 5)
    metric.update(pixels, pixels, weight=torch.rand(5))
    with pytest.warns(UserWarning, match="is too narrow; weights exclude clusters=True"):
        metric.interval("recall")
