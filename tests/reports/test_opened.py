"""Files of results: what opens is what was saved, and what cannot be opened says why."""

import json
import os
import pickle
import re
import time
from functools import partial

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from rooms import digest_of
from sklearn.metrics import confusion_matrix

import imbtorch

NAMES = ["a cat", "dog", "emu bird"]
TEXTS = np.array(NAMES)
RNG = np.random.default_rng(0)
TARGET = RNG.choice(3, 600, p=(0.7, 0.2, 0.1))
LOGITS = RNG.normal(size=(600, 3)) + 1.5 * np.eye(3)[TARGET] + np.log((0.7, 0.2, 0.1))
SCORES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
PREDS = SCORES.argmax(1)


def least_recall(counts):
    return imbtorch.recall(counts, average="none").amin(-1)


least_recall.higher_is_better = True


def results():
    yield imbtorch.report(preds=TEXTS[PREDS], target=TEXTS[TARGET], intervals=True)
    yield imbtorch.report(preds=SCORES, target=TARGET, intervals=True)
    yield imbtorch.report(preds=SCORES[:, 2], target=TARGET == 2, intervals=["f1", "auc"])
    yield imbtorch.report(preds=PREDS, target=TARGET, cluster=np.arange(600) // 6, intervals=True)
    yield imbtorch.report(preds=PREDS, target=TARGET, weight=TARGET + 0.25)
    yield imbtorch.report(preds=PREDS, target=TARGET, prevalence=[0.2, 0.3, 0.5], measures={"mine": least_recall})
    yield imbtorch.report(preds=SCORES, target=np.eye(3)[TARGET], task="multilabel", prevalence=[0.2, 0.3, 0.5])
    yield imbtorch.report(preds=PREDS, target=TARGET, class_names=[*range(4)])  # nan: class 3 has no targets
    arguments = {
        "class_names": NAMES,
        "measures": {
            "f2": partial(imbtorch.f_score, beta=2.0),
            "weighted": partial(imbtorch.recall, average="weighted"),
            "cost": partial(imbtorch.expected_cost, costs=torch.ones(3, 3)),
            "iba": partial(imbtorch.index_balanced_accuracy, measure="accuracy"),
            "mine": least_recall,
        },
        "per_class": {"recall": "recall", "f": partial(imbtorch.f_score, beta=0.5)},
        "class_groups": {"rare": [1, 2]},
        "groups": ["site | A", "site B"],
        "per_group": ["f2"],
        "intervals": ["f2", "recall/dog"],
        "ignore_index": -1,
    }
    report = imbtorch.ImbalanceReport("multiclass", **arguments)
    report.update(torch.from_numpy(PREDS), torch.from_numpy(TARGET), group=torch.arange(600) % 2)
    yield report.result()
    report = imbtorch.ImbalanceReport("multiclass", 30, state="margins", class_groups={"few": range(20, 30)})
    report.update(torch.arange(600) % 30, torch.arange(600) % 7)
    yield report.result()
    report = imbtorch.ImbalanceReport("binary", measures=["net_benefit", "likelihood_ratio"], threshold=0.2)
    report.update(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 1, 0]))  # infinite
    yield report.result()


def opened(result, tmp_path):
    path = tmp_path / "result.json"
    result.to_json(path)
    refuse = {"parse_constant": lambda token: pytest.fail(f"{token} is no JSON")}
    return imbtorch.open_result(path), json.loads(path.read_text(encoding="utf-8"), **refuse)


QUIET = pytest.mark.filterwarnings("ignore:.*(had no target|bounds are nan|would change)")


@QUIET
def test_an_opened_result_is_the_first_one(tmp_path):
    for result in results():
        found, data = opened(result, tmp_path)
        mine = any(row.measure == "mine" for row in result.rows)
        if not mine:  # whose values come last in the file
            assert str(found.table()) == str(result.table())
        for kind, rows in result.table().blocks.items():
            for name, row in rows.items():
                wanted = {key: cell for key, cell in row.items() if key != "mine" or kind == "measure"}
                assert repr(sorted(found.table()[kind][name].items())) == repr(sorted(wanted.items()))
        assert {each["measure"] for each in data["values"]} <= {"mine", "auc", "average_precision"}
        assert found.rows.keys() == result.rows.keys()
        for row, value in result.rows.items():
            assert torch.equal(found.rows[row].nan_to_num(nan=7), value.nan_to_num(nan=7))
            assert found.rows[row].dtype == value.dtype
        assert found.signature == result.signature == data["signature"]
        assert all(map(torch.equal, parts(found.counts), parts(result.counts)))
        assert found.table(sort="recall").to_rows()[1][1] == result.table(sort="recall").to_rows()[1][1]
        assert str(pickle.loads(pickle.dumps(found)).table()) == str(found.table())
        again, same = opened(found, tmp_path)
        assert same == data
        assert str(again.table()) == str(found.table())


def parts(counts):
    return counts if isinstance(counts, imbtorch.Margins) else (counts,)


@QUIET
def test_an_opened_result_computes_what_the_first_one_does(tmp_path):
    for result in results():
        found, _ = opened(result, tmp_path)
        for row in result.rows:
            texts = [interval_text(each, row.name) for each in (result, found)]
            missing = row.measure == "mine" and "by a function that this result does not hold" in texts[1]
            assert missing or texts[0] == texts[1]
        for each in (result, found):
            pyplot.close(each.plot()[0])


def interval_text(result, name):
    try:
        return str(result.interval(name, generator=torch.Generator().manual_seed(0), draws=100))
    except ValueError as error:
        return str(error)


def test_signatures_differ_exactly_where_counts_or_settings_do():
    first = imbtorch.report(preds=PREDS, target=TARGET)
    version = re.escape(imbtorch.__version__)
    pattern = rf"imbtorch {version} \| multiclass, 3 classes \| 600 samples \| counts [0-9a-f]{{8}}"
    assert re.fullmatch(pattern, first.signature)
    order = np.random.default_rng(0).permutation(600)
    assert imbtorch.report(preds=PREDS[order], target=TARGET[order]).signature == first.signature
    assert imbtorch.report(preds=TARGET, target=TARGET).signature != first.signature
    for options, text in (({"weight": TARGET + 0.5}, "weighted"), ({"prevalence": [2, 1, 1]}, "prevalence 2, 1, 1")):
        assert text in imbtorch.report(preds=PREDS, target=TARGET, **options).signature
    scores, positives = torch.rand(600, generator=torch.Generator().manual_seed(0)), TARGET > 0
    signatures = [imbtorch.report(scores=scores, target=positives, threshold=each).signature for each in (0.5, 0.3)]
    assert ["threshold" in each for each in signatures] == [False, True]
    assert "| threshold 0.3 |" in signatures[1]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"schema": 1, "imbtorch": "0.5.0"},
            "written by imbtorch 0.5.0 with schema 1, .*reads schema 2; open it with the version that wrote it",
        ),
        ({"format": "other"}, "holds no result of imbtorch"),
        ({"counts": None}, "is not complete or was changed"),
        ({"counts": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}, "is not complete or was changed"),
        (None, "is no JSON file"),
    ],
)
def test_a_file_that_cannot_be_opened_says_why(change, text, tmp_path):
    path = tmp_path / "result.json"
    imbtorch.report(preds=PREDS, target=TARGET).to_json(path)
    data = json.loads(path.read_text(encoding="utf-8"))
    changed = "<html>" if change is None else json.dumps(data | change)
    path.write_text(changed, encoding="utf-8")
    with pytest.raises(ValueError, match=text):
        imbtorch.open_result(path)


BASE = {  # of a report with groups, clusters and class groups
    "class_names": NAMES,
    "measures": ["f1", "iam"],
    "class_groups": {"rare": [1, 2]},
    "groups": ["A", "B"],
    "clusters": True,
    "intervals": ["f1"],
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the contents of a file with every field, and of one whose counts are weighted margins."""
    report = imbtorch.ImbalanceReport("multiclass", **BASE)
    ids = torch.arange(600)
    report.update(torch.from_numpy(PREDS), torch.from_numpy(TARGET), group=ids % 2, cluster=ids // 3)
    margins = imbtorch.ImbalanceReport("multiclass", 3, state="margins", weighted=True)
    margins.update(torch.from_numpy(PREDS), torch.from_numpy(TARGET), weight=torch.rand(600))
    paths = [tmp_path_factory.mktemp("saved") / f"{at}.json" for at in range(2)]
    for each, path in zip((report, margins), paths, strict=True):
        each.compute()
        each.result().to_json(path)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def changed(data, field, value):
    """Return contents with another value of a field, such as "settings.groups", and the hash of these contents."""
    copy = json.loads(json.dumps(data))
    *outer, last = field.split(".")
    place = copy
    for name in outer:
        place = place[int(name) if isinstance(place, list) else name]
    place[int(last) if isinstance(place, list) else last] = value
    return copy | {"sha256": digest_of(copy)}


HOSTILE = [
    ("settings.groups", 10**9),
    ("settings.groups", ["A"]),
    ("settings.groups", None),
    ("settings.clusters", False),
    ("settings.clusters", 1),
    ("class_names", 10**9),
    ("class_names", NAMES[:2]),
    ("class_names", [*NAMES, "x"]),
    ("class_names", [*NAMES[:2], "x" * 100_001]),
    ("class_names", [*NAMES[:2], 7]),
    ("counts", [[-5, 0, 0], [0, 1, 0], [0, 0, 1]]),
    ("counts", [[1.7, 0, 0], [0, 1, 0], [0, 0, 1]]),
    ("counts", [[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]),
    ("counts", [[True, 0, 0], [0, 1, 0], [0, 0, 1]]),
    ("counts", [[2**63 - 1, 1, 0], [0, 1, 0], [0, 0, 1]]),
    ("counts", [[10**30, 1, 0], [0, 1, 0], [0, 0, 1]]),
    ("counts", [["1", 1, 0], [0, 1, 0], [0, 0, 1]]),
    ("counts", [[1, 1], [0, 1, 0], [0, 0, 1]]),
    ("counts", [[1, 1], [0, 1]]),
    ("counts", {"correct": [1, 1, 1], "actual": [1, 1, 1], "predicted": [1, 1, 1]}),
    ("counts", None),
    ("groups.0.0.0", -1),
    ("groups.0", [[1]]),
    ("groups", None),
    ("buckets.0.0.0.0", 0.5),
    ("buckets.0", []),
    ("buckets", 10**9),
    ("dependent", 1),
    ("notes", [1]),
    ("notes", "a note"),
    ("notes", ["x" * 100_001]),
    ("imbtorch", "0.6.0\n\\input{/etc/passwd}\n%"),
    ("imbtorch", "0.6.0\u202e"),
    ("imbtorch", "0" * 1000),
    ("imbtorch", None),
    ("signature", 7),
    ("parts", [["a.json", 7]]),
    ("values", {}),
    ("values", [7]),
    ("settings.task", "regression"),
    ("settings.task", "multilabel"),
    ("settings.state", "margins"),
    ("settings.weighted", "no"),
    ("settings.measures.f1.name", "os.system"),
    ("settings.measures.f1.arguments", {"beta": {"a": 1}}),
    ("settings.measures.f1", "f1"),
    ("settings.measures", ["f1"]),
    ("settings.class_groups", {"rare": 10**9}),
    ("settings.class_groups", {"rare": [10**9]}),
    ("settings.per_group", 10**9),
    ("settings.intervals", True),
    ("settings.intervals", ["f1"] * 3),
    ("settings.prevalence", [1e400, 1, 1]),
    ("settings.prevalence", 10**9),
    ("settings.threshold", "0.5"),
    ("settings.threshold", [0.5] * 7),
    ("settings.ignore_index", 0.5),
    ("settings.logits", None),
    ("settings.on_invalid", "warn"),
]


@QUIET
@pytest.mark.parametrize(
    ("field", "value"), HOSTILE, ids=[f"{field}-{number}" for number, (field, _) in enumerate(HOSTILE)]
)
def test_no_field_of_another_type_range_or_length_opens(field, value, saved, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(changed(saved[0], "dependent", True)), encoding="utf-8")
    assert imbtorch.open_result(path).signature == saved[0]["signature"]
    path.write_text(json.dumps(changed(saved[0], field, value)), encoding="utf-8")
    before = time.process_time()
    with pytest.raises(ValueError, match=r"x\.json (is not complete or was changed|is no JSON file)"):
        imbtorch.open_result(path)
    assert time.process_time() - before < 2


SHARES = ["recall", "precision", "alerts", "sure", "holds.recall"]
POINT = [(name, each) for name in SHARES for each in (-0.1, 2, "inf")]
POINT += [("log_odds", 1e9), ("log_odds", "-inf"), ("log_odds", 0), ("threshold", 1.5), ("counts", [[1, 2], [-3, 4]])]
POINT += [("imbtorch", "0.7.0\x1b[31m"), ("imbtorch", "0.7\n"), ("limits", {"recall": "x"}), ("logits", 1)]


@pytest.mark.parametrize(("field", "value"), POINT)
def test_no_field_of_a_point_has_another_range(field, value, tmp_path):
    path, scores = tmp_path / "x.json", SCORES[:, 2]
    sweep = imbtorch.Predictions(target=TARGET == 2).thresholds(scores, "f1")
    sweep.best(at_least={"recall": 0.6}).to_json(path)
    assert 0 < imbtorch.open_result(path).holds["recall"] <= 1
    path.write_text(json.dumps(changed(json.loads(path.read_text(encoding="utf-8")), field, value)), encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.json is not complete or was changed"):
        imbtorch.open_result(path)


@pytest.mark.parametrize(
    ("field", "value"), [("counts.correct", [1, -0.5, 1]), ("counts.actual", [0.5]), ("counts.x", [1])]
)
def test_weighted_margins_have_a_range_and_a_length(field, value, saved, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(saved[1]), encoding="utf-8")
    assert imbtorch.open_result(tmp_path / "x.json").signature == saved[1]["signature"]
    (tmp_path / "x.json").write_text(json.dumps(changed(saved[1], field, value)), encoding="utf-8")
    with pytest.raises(ValueError, match="counts must be numbers of samples"):
        imbtorch.open_result(tmp_path / "x.json")


def test_names_of_classes_have_a_limit_that_is_named(tmp_path):
    """Digits with a letter took the square of their number."""
    for name in ("1" * 100_000, "9" * 99_999 + "x", "x" * 50_000 + "\n"):
        if name[-1] != "1":
            result = imbtorch.report(preds=["a", name, name], target=["a", name, "a"])
            result.to_json(tmp_path / "x.json")
            expected = confusion_matrix(["a", name, "a"], ["a", name, name]).tolist()
            assert imbtorch.open_result(tmp_path / "x.json").counts.tolist() == expected
        else:
            with pytest.raises(ValueError, match="too large for a class"):
                imbtorch.report(preds=["1", name], target=["1", name])
    long = "x" * 100_001
    with pytest.raises(ValueError, match=r"class_names holds a name of 100,001 characters; .* at most 100,000"):
        imbtorch.report(preds=["a", "a"], target=["a", long])
    with pytest.raises(ValueError, match="no target has") as unknown:
        imbtorch.report(preds=["a", long], target=["a", "b"])
    assert len(str(unknown.value)) < 500
    with pytest.raises(ValueError, match=r"class_names holds a name of 100,001 characters; .* at most 100,000"):
        imbtorch.ImbalanceReport("multiclass", class_names=["a", long])
    with pytest.raises(ValueError, match=r"groups holds a name of 100,001 characters"):
        imbtorch.report(preds=[0, 1], target=[0, 1], group=["x", long])
    prompts = {"label": ["a", "b"], "pred": ["a", "b"], "prompt": [long * 3, long]}
    assert imbtorch.report(prompts, target="label", preds="pred")["accuracy"] == 1


def test_a_full_disk_leaves_the_older_file(tmp_path):
    resource, signal = pytest.importorskip("resource"), pytest.importorskip("signal")
    result = imbtorch.report(preds=PREDS, target=TARGET)
    path, link, table = tmp_path / "r.json", tmp_path / "link.json", tmp_path / "t.csv"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)
    link.symlink_to(path)
    result.table().to_csv(table)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    old = table.read_bytes()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60, limits[1]))
        for write in (lambda: result.to_json(link), lambda: result.table().to_csv(table)):
            with pytest.raises(OSError, match="too large"):
                write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_text(encoding="utf-8") == "old"
    assert table.read_bytes() == old
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.json", "r.json", "t.csv"]
    result.to_json(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert imbtorch.open_result(path).signature == result.signature


def test_devices_and_new_files_are_written_as_by_open(tmp_path, monkeypatch):
    result = imbtorch.report(preds=PREDS, target=TARGET)
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            result.to_json(tmp_path / f"{mask}.json")
        finally:
            os.umask(before)
        assert (tmp_path / f"{mask}.json").stat().st_mode & 0o777 == 0o666 & ~mask
    result.to_json("/dev/null")
    read, write = os.pipe()
    result.to_json(f"/dev/fd/{write}")
    os.close(write)
    with open(read, encoding="utf-8") as file:
        assert json.load(file)["signature"] == result.signature
    monkeypatch.chdir(tmp_path)
    result.to_json("here.json")
    assert imbtorch.open_result("here.json").signature == result.signature
    with pytest.raises(FileNotFoundError):
        result.to_json(tmp_path / "nowhere" / "r.json")
    with pytest.raises(IsADirectoryError):
        result.to_json(tmp_path)
