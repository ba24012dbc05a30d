"""Reports of saved predictions (`report.py`), against scikit-learn and the metrics; what they read, and errors."""

import re

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch

import imbtorch

NAMES = ["a cat", "dog", "emu bird"]  # sorted


def draw(samples=600, shares=(0.7, 0.2, 0.1), seed=0):
    """Targets and probabilities of three classes."""
    rng = np.random.default_rng(seed)
    target = rng.choice(3, samples, p=shares)
    logits = rng.normal(size=(samples, 3)) + 1.5 * np.eye(3)[target] + np.log(shares)
    scores = np.exp(logits)
    return target, scores / scores.sum(1, keepdims=True)


TARGET, SCORES = draw()
PREDS = SCORES.argmax(1)
TEXTS = np.array(NAMES)


# --- classes ----------------------------------------------------------------------------------------------------------


def forms():
    pandas = pytest.importorskip("pandas")
    yield PREDS.tolist(), TARGET.tolist()
    yield PREDS, TARGET
    yield PREDS.astype(np.uint8), TARGET.astype(np.int16)
    yield torch.from_numpy(PREDS), torch.from_numpy(TARGET)
    yield pandas.Series(PREDS), pandas.Series(TARGET, dtype="Int64")
    yield PREDS, TARGET.astype(float)  # as pandas reads integers beside missing values
    yield TEXTS[PREDS], TEXTS[TARGET]
    yield TEXTS[PREDS].tolist(), TEXTS[TARGET].tolist()
    yield pandas.Series(TEXTS[PREDS]), pandas.Series(TEXTS[TARGET], dtype="category")
    yield TEXTS[PREDS].astype(object), pandas.Series(TEXTS[TARGET], dtype="string")


def test_every_form_of_classes_gives_the_values_of_scikit_learn():
    for preds, target in forms():
        result = imbtorch.report(preds=preds, target=target)
        assert result.counts.tolist() == sklearn.metrics.confusion_matrix(TARGET, PREDS).tolist()
        assert result["balanced_accuracy"].item() == pytest.approx(
            sklearn.metrics.balanced_accuracy_score(TARGET, PREDS), abs=1e-6
        )
        names = NAMES if isinstance(np.asarray(target)[0], str) else ["0", "1", "2"]
        assert list(result.table()["class"]) == names


@pytest.mark.filterwarnings("ignore:.*1 of 4 classes had no target")
def test_class_names_set_the_order_and_add_classes():
    order = ["emu bird", "fox", "dog", "a cat"]
    result = imbtorch.report(preds=TEXTS[PREDS], target=TEXTS[TARGET], class_names=order)
    labels = sklearn.metrics.confusion_matrix(TEXTS[TARGET], TEXTS[PREDS], labels=order)
    assert result.counts.tolist() == labels.tolist()
    named = imbtorch.report(preds=PREDS, target=TARGET, class_names=NAMES)
    assert list(named.table()["class"]) == NAMES
    assert named.counts.tolist() == sklearn.metrics.confusion_matrix(TARGET, PREDS).tolist()
    turned = imbtorch.report(preds=PREDS, target=TARGET, class_names=[2, 0, 1])
    assert turned.counts.tolist() == sklearn.metrics.confusion_matrix(TARGET, PREDS, labels=[2, 0, 1]).tolist()


def test_a_class_that_is_never_predicted_has_recall_zero():
    result = imbtorch.report(preds=["a b", "a b", "a b"], target=["a b", "c d", "a b"])
    assert result.counts.tolist() == [[2, 0], [1, 0]]
    assert result["recall/c d"] == 0


@pytest.mark.parametrize(
    ("values", "positive", "task"),
    [
        ([0, 1], None, "binary"),
        ([False, True], None, "binary"),
        ([0, 1], 0, "binary"),
        ([False, True], False, "binary"),
        (["ok", "fraud"], None, "multiclass"),  # "fraud" is rarer, and comes first by its letters
        (["ok", "fraud"], "fraud", "binary"),
        (["ok", "fraud"], "ok", "binary"),
        ([1, 2], None, "multiclass"),
        ([1, 2], 2, "binary"),
        ([1, 2], "1", "binary"),
        ([5_000_000, 7], 7, "binary"),
    ],
)
def test_the_positive_class_is_named_and_never_guessed(values, positive, task):
    target, preds = (TARGET == 2).astype(int), (PREDS == 2).astype(int)
    given = [np.array(values)[each] for each in (preds, target)]
    result = imbtorch.report(preds=given[0], target=given[1], positive=positive, measures=["recall", "f1"])
    assert result.signature.split(" | ")[1].startswith(task)
    if task == "multiclass":
        expected = sklearn.metrics.recall_score(given[1], given[0], average="macro")
    else:
        label = values[1] if positive is None else next(each for each in values if str(each) == str(positive))
        expected = sklearn.metrics.recall_score(given[1], given[0], pos_label=label)
        f1 = sklearn.metrics.f1_score(given[1], given[0], pos_label=label)
        assert result["f1"].item() == pytest.approx(f1, abs=1e-6)
    assert result["recall"].item() == pytest.approx(expected, abs=1e-6)


def test_booleans_and_0_and_1_are_the_same_classes():
    result = imbtorch.report(preds=np.array([0, 1, 1]), target=[True, False, True], measures=["accuracy"])
    assert result.counts.tolist() == [[0, 1], [1, 1]]


# --- what a report takes ----------------------------------------------------------------------------------------------


def test_it_is_what_a_report_computes():
    measures, shares = ["iam", "mcc"], [1, 1, 2]
    ids = [f"patient {at % 50}" for at in range(len(TARGET))]
    for options in (
        {"intervals": True},
        {"intervals": ["recall/dog"], "cluster": ids},
        {"weight": np.arange(len(TARGET)) % 3},
        {"prevalence": shares},
        {"prevalence": dict(zip(NAMES, shares, strict=True))},
    ):
        result = imbtorch.report(preds=TEXTS[PREDS], target=TEXTS[TARGET], measures=measures, **options)
        report = imbtorch.ImbalanceReport(
            "multiclass",
            class_names=NAMES,
            measures=measures,
            intervals=options.get("intervals", False),
            clusters="cluster" in options,
            weighted="weight" in options,
            prevalence=options.get("prevalence"),
        )
        extra = {}
        if "cluster" in options:
            extra = {"cluster": imbtorch.cluster_ids(ids)}
        if "weight" in options:
            extra = {"weight": torch.arange(len(TARGET)) % 3 * 1.0}
        report.update(torch.from_numpy(PREDS), torch.from_numpy(TARGET), **extra)
        assert {name: value.item() for name, value in result.values.items()} == {
            name: value.item() for name, value in report.compute().items()
        }


# --- scores -----------------------------------------------------------------------------------------------------------


def test_scores_of_several_classes_have_areas_of_each_and_their_mean():
    pandas = pytest.importorskip("pandas")
    given = [SCORES, torch.from_numpy(SCORES), SCORES.tolist(), pandas.DataFrame(SCORES, columns=NAMES)]
    given.append({name: SCORES[:, NAMES.index(name)].tolist() for name in NAMES[::-1]})
    auc = sklearn.metrics.roc_auc_score(np.eye(3)[TARGET], SCORES, average=None)
    ap = sklearn.metrics.average_precision_score(np.eye(3)[TARGET], SCORES, average=None)
    for scores in given:
        result = imbtorch.report(preds=scores, target=TEXTS[TARGET])
        table = result.table()
        for place, name in enumerate(NAMES):
            assert table["class"][name]["auc"] == pytest.approx(auc[place], abs=1e-6)
            assert table["class"][name]["average_precision"] == pytest.approx(ap[place], abs=1e-6)
        assert table["measure"]["auc"]["all"] == pytest.approx(auc.mean(), abs=1e-6)
        assert table["measure"]["average_precision"]["all"] == pytest.approx(ap.mean(), abs=1e-6)
        assert result.counts.tolist() == sklearn.metrics.confusion_matrix(TARGET, PREDS).tolist()


def test_logits_are_those_of_the_probabilities():
    logits = imbtorch.report(preds=np.log(SCORES), target=TARGET, logits=True)
    plain = imbtorch.report(preds=SCORES, target=TARGET)
    assert logits.counts.equal(plain.counts)
    assert logits["auc"].item() == pytest.approx(plain["auc"].item(), abs=1e-6)


def test_scores_of_the_positive_class_in_every_form():
    target, scores = TARGET == 2, SCORES[:, 2]
    texts = np.where(target, "a fraud", "ok")
    both = np.stack([1 - scores, scores], 1)
    auc = sklearn.metrics.roc_auc_score(target, scores)
    counts = sklearn.metrics.confusion_matrix(target, scores > 0.5).tolist()
    for options in (
        {"preds": scores, "target": target},
        {"preds": scores, "target": target.astype(int)},
        {"preds": both, "target": target},
        {"preds": scores, "target": texts, "positive": "a fraud"},
        {"preds": both[:, ::-1], "target": texts, "positive": "a fraud"},  # columns are in sorted order
        {"preds": {"ok": 1 - scores, "a fraud": scores}, "target": texts, "positive": "a fraud"},
        {"preds": {"a fraud": scores}, "target": texts, "positive": "a fraud"},
        {"preds": both, "target": texts, "positive": "a fraud", "class_names": ["ok", "a fraud"]},
        {"preds": scores.astype(object), "target": target},
    ):
        result = imbtorch.report(**options, intervals=True)
        assert result["auc"].item() == pytest.approx(auc, abs=1e-6)
        assert result["auc_low"] < auc < result["auc_high"]
        assert result.counts.tolist() == counts


def test_labels_are_matched_by_name():
    target = np.stack([TARGET > 0, TARGET > 1], 1).astype(int)
    scores = np.stack([1 - SCORES[:, 0], SCORES[:, 2]], 1)
    expected = sklearn.metrics.f1_score(target, scores > 0.5, average=None)
    named = {"target": {"any": target[:, 0], "emu": target[:, 1]}, "preds": {"emu": scores[:, 1], "any": scores[:, 0]}}
    for options in ({"preds": scores, "target": target, "class_names": ["any", "emu"]}, named):
        result = imbtorch.report(**options, measures=["f1"])
        assert result.of_classes("f1").tolist() == pytest.approx(expected.tolist(), abs=1e-6)
        assert result["auc/emu"].item() == pytest.approx(
            sklearn.metrics.roc_auc_score(target[:, 1], scores[:, 1]), abs=1e-6
        )
    classes = imbtorch.report(preds=scores > 0.5, target=target, measures=["f1"])
    assert classes["f1"].item() == pytest.approx(expected.mean(), abs=1e-6)


def test_areas_are_exact_for_few_scores_and_for_equal_ones():
    """Scores within one bin of a sweep, few scores, many ties, weights, and logits of softmax and sigmoid."""
    rng = np.random.default_rng(0)
    for samples, digits in ((30, 9), (200, 9), (200, 1), (99, 5)):
        target = (np.arange(samples) < samples / 5).astype(int)
        scores = 0.6 + 0.001 * (rng.random(samples) + 0.3 * target).round(digits)
        weight = rng.random(samples)
        logits = np.log(scores) - np.log1p(-scores)
        both = np.stack([np.zeros(samples), logits], 1)
        for options, weights in (
            ({"preds": scores}, None),
            ({"preds": logits, "logits": True}, None),
            ({"preds": both + 5, "logits": True}, None),
            ({"preds": scores, "weight": weight}, weight),
        ):
            result = imbtorch.report(target=target, **options)
            auc = sklearn.metrics.roc_auc_score(target, scores.round(12), sample_weight=weights)
            ap = sklearn.metrics.average_precision_score(target, scores.round(12), sample_weight=weights)
            if digits > 1 or "logits" not in options:  # log and exp may part equal scores
                assert result["auc"].item() == pytest.approx(auc, abs=1e-6)
                assert result["average_precision"].item() == pytest.approx(ap, abs=1e-6)


def test_average_precision_at_a_prevalence_is_that_of_weighted_samples():
    target, scores = TARGET == 2, SCORES[:, 2]
    weight = np.where(target, 0.01 / target.sum(), 0.99 / (~target).sum())
    expected = sklearn.metrics.average_precision_score(target, scores, sample_weight=weight)
    result = imbtorch.report(preds=scores, target=target, prevalence=[0.99, 0.01], intervals=True)
    assert result["average_precision"].item() == pytest.approx(expected, abs=1e-6)
    assert "auc_low" in result.values
    assert "average_precision_low" not in result.values


def test_logits_without_end_are_ranked():
    logits = np.array([[np.inf, 0, 0], [0, -np.inf, 1], [0, 2, 0], [1, 0, -np.inf]])
    result = imbtorch.report(preds=logits, target=[0, 2, 1, 0], logits=True)
    assert [result[f"auc/{name}"].item() for name in "012"] == [1, 1, 1]


def test_a_class_without_targets_counts_as_0_if_it_is_predicted():
    """Recalls of 0.8 and 0.9, and a class that is predicted 15 times and never true."""
    target, preds = ["a"] * 50 + ["b"] * 50, ["a"] * 40 + ["c"] * 10 + ["b"] * 45 + ["c"] * 5
    result = imbtorch.report(preds=preds, target=target, class_names=["a", "b", "c"])
    assert list(result.problems) == ["unseen"]
    assert re.match(
        r"1 of 3 classes had no target: c; means .* count them as 0 if they were", result.problems["unseen"]
    )
    assert result.table().notes[-1] == result.problems["unseen"]
    assert result["recall"].item() == pytest.approx((0.8 + 0.9 + 0) / 3)
    assert result["balanced_accuracy"].item() == pytest.approx((0.8 + 0.9) / 2)
    result = imbtorch.report(preds=target, target=target, class_names=["a", "b", "c"])
    assert "leave them out if they were not predicted" in result.problems["unseen"]
    assert result["recall"].item() == 1


def test_a_file_that_cannot_be_written_leaves_the_older_one(tmp_path):
    path = tmp_path / "x.json"
    imbtorch.report(preds=PREDS, target=TARGET).to_json(path)
    before = path.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        imbtorch.report(preds=["a\ud800", "b"], target=["a\ud800", "b"]).to_json(path)
    assert path.read_bytes() == before


def test_areas_say_where_their_intervals_are():
    result = imbtorch.report(preds=SCORES[:, 2], target=TARGET == 2)
    with pytest.raises(ValueError, match=r"'auc' is a value of scores.*intervals=True"):
        result.interval("auc")
    assert (
        "auc_low"
        not in imbtorch.report(
            preds=SCORES[:, 2], target=TARGET == 2, intervals=True, cluster=np.arange(600) // 6
        ).values
    )


@pytest.mark.slow
def test_the_gain_of_a_rule_holds_for_clusters():
    """The true gain follows from the normal scores; without ids a quarter of these intervals hold it."""
    rng, ids, held = np.random.default_rng(1), np.arange(20).repeat(20), 0

    def true(threshold):  # scores are 1.2 z + 2 y - 2.2 on the log-odds scale
        place = np.log(threshold / (1 - threshold)) + 2.2
        return (scipy.stats.norm.cdf(place / 1.2) + scipy.stats.norm.sf((place - 2) / 1.2)) / 2

    for _ in range(40):
        target = rng.permutation(np.repeat([0, 1], [12, 8]))
        scores = 1 / (1 + np.exp(2.2 - 2 * target - 1.2 * rng.normal(size=20)))
        data = imbtorch.Predictions(target=target[ids], cluster=ids)
        found = data.thresholds(scores[ids], "balanced_accuracy")
        gain, true_gain = found.gain(), true(found["threshold"].item()) - true(0.5)
        held += bool(gain.low <= true_gain <= gain.high)
    assert held >= 36


# --- errors -----------------------------------------------------------------------------------------------------------

NAN = SCORES.copy()
NAN[7, 1] = np.nan
LOW = SCORES[:, 2].copy()
LOW[3] = -0.5


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"preds": PREDS[:-1]}, ValueError, "preds has 599 rows and target 600"),
        ({"preds": TEXTS[PREDS]}, TypeError, "target holds integers and preds strings"),
        ({"preds": [*TEXTS[PREDS[:-1]], "emu brid"], "target": TEXTS[TARGET]}, ValueError,
         "'emu brid' in row 599 .*, which no target has.*class_names.*did you mean 'emu bird'"),
        ({"preds": [*PREDS[:-1], 9]}, ValueError, "preds holds 9 in row 599 .*, which no target has"),
        ({"preds": NAN}, ValueError, "NaN in row 7, column '1'"),
        ({"preds": LOW, "target": TARGET == 2}, ValueError, r"-0.5 in row 3 .*logits=True"),
        ({"preds": np.log(SCORES)}, ValueError, "in row 0, column '0'.*logits=True"),
        ({"preds": SCORES / 2}, ValueError, "got 0.5 in row 0 .*logits=True"),
        ({"preds": SCORES[:, :2]}, ValueError, r"\[600, 2\], but there are 3 classes"),
        ({"preds": SCORES[:, 2]}, ValueError, "one score for each sample.*positive="),
        ({"preds": {"0": SCORES[:, 0], "1": SCORES[:, 1], "z": SCORES[:, 2]}}, ValueError, "'z' of preds matches no"),
        ({"preds": {"0": SCORES[:, 0], "1": SCORES[:, 1]}}, ValueError, "no column for '2'"),
        ({"target": [*TEXTS[TARGET[:-1]], None], "preds": TEXTS[PREDS]}, ValueError, "target has no value in row 599"),
        ({"target": [*TEXTS[TARGET[:-1]], ""], "preds": TEXTS[PREDS]}, ValueError, "target has no value in row 599"),
        ({"target": [*TARGET[:-1], np.nan]}, ValueError, "target has no value in row 599"),
        ({"target": [*TARGET[:-1], 0.5]}, ValueError, "target holds 0.5 in row 599"),
        ({"target": ["a", 1], "preds": ["a", "a"]}, TypeError, "got 1 in row 1"),
        ({"target": [], "preds": []}, ValueError, "target is empty"),
        ({"target": "abc", "preds": "abc"}, TypeError, "got 'abc'; pass the column itself"),
        ({"target": ["a", "a"], "preds": ["a", "a"]}, ValueError, "one class only, 'a'.*class_names"),
        ({"class_names": ["0", "1"]}, ValueError, "target holds 2 in row .*none of class_names"),
        ({"positive": 1}, ValueError, "positive is for two classes, but there are 3"),
        ({"preds": ["a"], "target": ["b"], "class_names": "ab"}, TypeError, "class_names must be a sequence"),
        ({"preds": ["a", "b"], "target": ["b", "a"], "positive": "c"}, ValueError, "positive is 'c', which is none"),
        ({"cluster": [1, 2]}, ValueError, "cluster has 2 rows"),
        ({"weight": [*[1.0] * 599, -1]}, ValueError, "got -1 in row 599"),
        ({"target": np.eye(3)[TARGET] * 2, "preds": SCORES}, ValueError, "column '0' of target holds 2.0 in row 0"),
        ({"target": {"label": TEXTS[TARGET]}, "preds": TEXTS[PREDS]}, ValueError, r"target\['label'\]"),
        ({"target": TARGET[:, None]}, ValueError, r"pass target\[:, 0\]"),
        ({"measures": {"auc": "f1"}, "preds": SCORES}, ValueError, "rename it in measures"),
        ({"preds": ["x"] * 3, "target": [[1], [2, 3]]}, ValueError, "rows of equal length"),
        ({"target": np.ma.masked_equal(TARGET, 2)}, ValueError, r"target has no value in row \d+ "),
        ({"weight": np.ma.masked_equal(TARGET * 1.0, 2)}, ValueError, r"weight has no value in row \d+ "),
        ({"preds": SCORES[TARGET > 0], "target": TARGET[TARGET > 0]}, ValueError, "the classes 0 to 2 or 1 to 3"),
        ({"target": [0, 1, 1e19], "preds": [0, 1, 1]}, ValueError, "target holds a number in row 2 .* too large"),
        ({"target": [0, 10**20], "preds": [0, 1]}, ValueError, "target holds a number in row 1 .* too large"),
        ({"target": np.array([0, 2**63], np.uint64), "preds": [0, 1]}, ValueError, "in row 1 .* too large"),
        ({"target": [0, np.inf], "preds": [0, 1]}, ValueError, "in row 1 .* too large"),
        ({"preds": SCORES, "intervals": ["auc"]}, ValueError, "'auc', but areas have intervals for auc/0, auc/1"),
        ({"preds": SCORES[:, 2], "target": TARGET == 2, "prevalence": [0.9, 0.1], "intervals": ["average_precision"]},
         ValueError, "no interval at another prevalence"),
    ],
)  # fmt: skip
def test_errors_name_row_column_and_remedy(options, error, text):
    with pytest.raises(error, match=text):
        imbtorch.report(**({"preds": PREDS, "target": TARGET} | options))


# --- files ------------------------------------------------------------------------------------------------------------


# --- what a result says -----------------------------------------------------------------------------------------------


def test_results_are_read_like_mappings():
    result = imbtorch.report(preds=SCORES, target=TARGET, measures=["iam"])
    assert "iam" in result
    assert "f1" not in result
    assert 0 not in result
    assert list(result) == list(result.values)
    assert len(result) == len(result.values)
    assert {name: result[name] for name in result} == result.values


def test_the_interval_of_an_area_is_in_the_result_that_has_it():
    result = imbtorch.report(preds=SCORES[:, 1], target=TARGET == 1, intervals=True)
    with pytest.raises(ValueError, match=r"result\['auc_low'\] and result\['auc_high'\] are its 95% bounds"):
        result.interval("auc")
    assert result["auc_low"] < result["auc"] < result["auc_high"]


@pytest.mark.slow
def test_margins_are_counted_for_so_many_classes_that_a_matrix_would_be_large():
    names = [f"c{index}" for index in range(6_000)]
    preds = [*names[1:100], *names[99:]]
    result = imbtorch.report(preds=preds, target=names, measures=["accuracy", "balanced_accuracy", "cba"])
    assert isinstance(result.counts, imbtorch.Margins)
    truth, found = np.arange(6_000), np.array([*range(1, 100), *range(99, 6_000)])
    assert result["accuracy"].item() == pytest.approx(sklearn.metrics.accuracy_score(truth, found))
    assert result["balanced_accuracy"].item() == pytest.approx(
        sklearn.metrics.recall_score(truth, found, average="macro")
    )
    few = imbtorch.report(preds=names[:300], target=names[:300])
    assert isinstance(few.counts, torch.Tensor)


@pytest.mark.parametrize("reversed_scores", [True, False])
def test_areas_that_chance_hardly_makes_so_low_are_told(reversed_scores):
    scores = 1 - SCORES if reversed_scores else SCORES
    assert (sklearn.metrics.roc_auc_score(TARGET == 2, scores[:, 2]) < 0.3) is reversed_scores
    few = np.flatnonzero(TARGET == 2)[9:]  # nine positives are too few to tell
    results = [
        imbtorch.report(preds=scores[:, 2], target=TARGET == 2),
        imbtorch.report(preds=np.delete(scores[:, 2], few), target=np.delete(TARGET == 2, few)),
    ]
    pattern = r"auc 0\.\d+, so the scores may be those of the other class; pass the scores of the positive"
    noted = [note for result in results for note in result.table().notes if re.match(pattern, note)]
    assert len(noted) == reversed_scores
    labels = {"a": SCORES[:, 1], "b": scores[:, 2]}
    result = imbtorch.report(preds=labels, target={"a": TARGET == 1, "b": TARGET == 2})
    assert any(re.match(r"auc/b 0\.\d+, so", note) for note in result.table().notes) == reversed_scores


# --- models one below the other ---------------------------------------------------------------------------------------

IDS = np.arange(200)
TRUTH = np.random.default_rng(2).integers(2, size=200)
ANSWERS = np.where(np.random.default_rng(3).random((3, 200)) < 0.2, 1 - TRUTH, TRUTH)


def stacked(names, ids=IDS, target=TRUTH, order=None):
    """Return predictions of several models, one below the other or in another order."""
    times = len(names)
    columns = {
        "image": np.tile(ids, times),
        "model": np.repeat(names, len(ids)),
        "label": np.tile(target, times),
        "pred": ANSWERS[:times].ravel(),
        "score": np.random.default_rng(5).random(times * len(ids)),
    }
    order = slice(None) if order is None else order
    return {name: each[order] for name, each in columns.items()}


def told(source, **more):
    result = imbtorch.report(source, target="label", preds="pred", **more)
    assert result.counts.sum() == len(source["label"])
    return [note for note in result.table().notes if "if 'model' names models" in note or "pass cluster=" in note]


@pytest.mark.parametrize("order", ["below", "interleaved", "shuffled"])
@pytest.mark.parametrize("kind", ["mapping", "pandas", "polars", "pyarrow"])
def test_models_one_below_the_other_get_a_note(kind, order):
    at = {"below": None, "interleaved": np.arange(600).reshape(3, 200).T.ravel()}.get(
        order, np.random.default_rng(0).permutation(600)
    )
    for names in (["a", "b", "c"], [5, 6, 7]):
        columns = stacked(names, order=at, ids=np.array([f"{each}.png" for each in IDS]) if names[0] == 5 else IDS)
        source = columns
        if kind != "mapping":
            package = pytest.importorskip(kind, reason=f"needs {kind}")
            lists = {name: each.tolist() for name, each in columns.items()}
            source = package.table(lists) if kind == "pyarrow" else package.DataFrame(lists)
        note = (
            "each value of 'image' stands 3 times, once beside each of 'model'; if 'model' names models, report each "
        )
        assert told(source) == [f"{note}alone or pass group='model'; else pass cluster='image'"]
        for more in ({"group": "model"}, {"cluster": "image"}):
            assert told(source, **more) == []
    single = {name: each[:200] for name, each in stacked(["a", "b", "c"]).items()}
    assert told(single) == []


def right_frames():
    """Yield frames in which ids repeat rightly, or two columns cross, and the samples are different ones."""
    draw = np.random.default_rng(6)
    rows = 600

    def frame(**columns):
        return {"label": draw.integers(2, size=rows), "pred": draw.integers(2, size=rows), **columns}

    slices = np.sort(draw.integers(40, size=rows))
    yield frame(patient=slices, slice=np.concatenate([np.arange(n) for n in np.bincount(slices)]))  # unequal numbers
    yield frame(patient=np.repeat(np.arange(60), 10), slice=np.tile(np.arange(10), 60))  # labels of slices
    yield frame(item=np.repeat(np.arange(200), 3), annotator=np.tile(["x", "y", "z"], 200))  # labels of annotators
    yield frame(prompt=np.repeat(np.arange(150), 4), generation=np.tile(np.arange(4), 150))  # each right or wrong
    yield frame(day=np.tile(np.arange(100), 6), site=np.repeat(list("abcdef"), 100))
    yield frame(x=np.repeat(np.arange(30), 20), y=np.tile(np.arange(20), 30))  # pixels
    yield frame(image=np.arange(rows), fold=np.arange(rows) % 5)
    yield frame(image=np.arange(rows), split=["test"] * rows, year=draw.integers(2000, 2010, size=rows))
    yield frame(text=[f"text {at}" for at in range(rows)], length=draw.integers(5, size=rows), odd=[object()] * rows)
    yield frame(site=np.repeat(["a", "b"], rows // 2), hospital=np.tile(["c", "d"], rows // 2))
    yield frame(other=np.arange(20), another=np.repeat([1, 2], 10))  # columns of another length


def test_ids_that_repeat_rightly_get_no_note():
    for source in right_frames():
        assert told(source) == []


AT_HALF = "classes at a threshold of 0.5; Predictions.thresholds chooses one"


@pytest.mark.parametrize(
    ("target", "scores", "more", "told"),
    [
        ([0, 0, 1], [0.1, 0.2, 0.4], {}, True),
        ([0, 1, 0, 1], [0.1, 0.2, 0.4, 0.6], {"group": ["x", "x", "y", "y"]}, True),
        ([0, 0, 1], [-2.0, -1.0, 0.4], {"logits": True}, True),
        ([0, 0, 1], [0.1, 0.2, 0.4], {"threshold": 0.3}, False),
        ([0, 0, 1], [0.1, 0.2, 0.4], {"threshold": 0.5}, False),
        ([[0, 1], [1, 1], [1, 0]], [[0.1, 0.9], [0.4, 0.2], [0.7, 0.3]], {}, True),
        ([0, 1, 2], [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]], {}, False),
    ],
)
def test_scores_say_their_threshold_unless_it_was_named(target, scores, more, told, tmp_path):
    result = imbtorch.report(target=np.array(target), scores=np.array(scores), **more)
    result.to_json(tmp_path / "result.json")
    opened = imbtorch.open_result(tmp_path / "result.json")
    for each in (result, opened):
        assert (AT_HALF in each.table().notes) == told
    assert (AT_HALF in (tmp_path / "result.json").read_text(encoding="utf-8")) == told
    assert AT_HALF not in imbtorch.report(target=np.array([0, 1]), preds=np.array([0, 1])).table().notes


def test_arrays_without_names_are_told_their_names():
    with pytest.raises(TypeError, match=r"^report takes 1 argument without a name, got 2; name .* target= and preds=$"):
        imbtorch.report([0, 1], [0, 1])
    with pytest.raises(TypeError, match="preds="):
        imbtorch.report([0, 1], [0, 1], target=[0, 1])
    with pytest.raises(TypeError, match=r"report has no argument 'scoers'; did you mean 'scores'\?"):
        imbtorch.report(target=[0, 1], scoers=[0.1, 0.9])


def test_a_column_of_scores_is_called_one():
    scores = np.linspace(0, 1, 200_000)
    for column in (scores, list(map(str, scores))):
        columns = {"y": [0, 1] * 100_000, "p": column}
        with pytest.raises(
            ValueError, match=r"preds holds .* in row 1 \(all 200,000 rows hold scores\), .* as scores="
        ):
            imbtorch.report(columns, target="y", preds="p")
    with pytest.raises(ValueError, match=r"preds holds 2.5 in row 1 \(1 of 2 rows\), which is no class"):
        imbtorch.report({"y": [0, 1], "p": [7, 2.5]}, target="y", preds="p")


def test_labels_of_both_signs_name_a_remedy_that_keeps_the_negatives():
    target, scores = np.array([-1, 1] * 20), np.linspace(0, 1, 40)
    with pytest.raises(ValueError, match=r"pass class_names=\[-1, 1\] and positive=1") as told:
        imbtorch.report(target=target, scores=scores)
    assert "ignore" not in str(told.value)
    found = imbtorch.report(target=target, scores=scores, class_names=[-1, 1], positive=1, threshold=0.5)
    assert found["recall"].item() == pytest.approx(sklearn.metrics.recall_score(target, np.where(scores > 0.5, 1, -1)))


def test_a_label_can_be_unknown_in_single_rows():
    """The row counts for its other labels; areas and thresholds leave out the label as well."""
    rng = np.random.default_rng(0)
    truth = (rng.random((200, 3)) < 0.3).astype(int)
    scores = 0.3 * truth + 0.7 * rng.random(truth.shape)
    unknown = rng.random(truth.shape) < 0.1
    data = imbtorch.Predictions(target=np.where(unknown, -1, truth), ignore=-1)
    kept = [(truth[~unknown[:, at], at], scores[~unknown[:, at], at]) for at in range(3)]
    report = data.report(scores=scores)
    assert report["f1"].item() == pytest.approx(np.mean([sklearn.metrics.f1_score(t, s > 0.5) for t, s in kept]))
    assert report["auc"].item() == pytest.approx(np.mean([sklearn.metrics.roc_auc_score(t, s) for t, s in kept]))
    assert f"labels left out of single rows because ignore names them: {unknown.sum()}" in str(report.table())
    swept = data.thresholds(scores, "f1")
    for at, (target, some) in enumerate(kept):
        row = swept.table()["label"][str(at)]
        assert row["positives"] == target.sum()
        assert row["value"] == pytest.approx(sklearn.metrics.f1_score(target, some > row["threshold"]))
    frame = {f"t_{at}": np.where(unknown, "U", truth.astype(str))[:, at] for at in range(3)}
    frame |= {f"p_{at}": (scores[:, at] > 0.5).astype(int) for at in range(3)}
    of_texts = imbtorch.report(frame, preds=["p_0", "p_1", "p_2"], target=["t_0", "t_1", "t_2"], ignore="U")
    assert of_texts["f1"] == report["f1"]


def test_class_groups_and_patterns_of_intervals_of_saved_predictions():
    groups = {"rare": [NAMES[1], 2]}
    found = imbtorch.report(preds=TEXTS[PREDS], target=TEXTS[TARGET], class_groups=groups, intervals=["recall/*"])
    recalls = sklearn.metrics.recall_score(TARGET, PREDS, average=None)
    assert found["recall/rare"].item() == pytest.approx(recalls[1:].mean())
    assert {f"recall/{name}_low" for name in (*NAMES, "rare")} <= set(found)
    assert "iam_low" not in found
    scored = imbtorch.report(scores=SCORES, target=TARGET, intervals=["auc/*", "iam"])
    assert {"auc/0_low", "auc/1_low", "auc/2_low", "iam_low"} <= set(scored)
    assert "average_precision/0_low" not in scored
    everything = imbtorch.report(scores=SCORES, target=TARGET, intervals="*")
    assert {"auc/0_low", "average_precision/2_high", "precision/1_low", "mcc_low"} <= set(everything)
