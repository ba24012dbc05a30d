"""Files of results: what opens is what was saved, and what cannot be opened says why."""

import json
import pickle
import re
from functools import partial

import numpy as np
import pytest
import torch
from matplotlib import pyplot

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
        ({"format": "other"}, "holds no result of a report"),
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
