"""Pools of which some rows are labelled (`labels.py`): plans, files, exact intervals of reports, and refusals."""

import csv
import itertools
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from rooms import Counting, command_line, digest_of, label_bounds, resolved

import imbtorch
from imbtorch import Predictions

RNG = np.random.default_rng(8)
SIZE = 20_000
TRUTH = (RNG.random(SIZE) < 0.02).astype(int)
SCORES = np.clip(0.05 + 0.4 * TRUTH + 0.15 * RNG.normal(size=SIZE), 0, 1)
PREDS = (SCORES > 0.4).astype(int)
NAMES = np.array(["ok", "fraud"])
MEASURES = ["f1", "mcc", "iam", "precision", "recall", "balanced_accuracy"]


def labelled(plan, number=None, truth=TRUTH):
    """Return labels of the first rows of a plan, and None elsewhere."""
    labels = np.full(len(truth), None, dtype=object)
    rows = list(plan.rows)[:number]
    labels[rows] = truth[rows]
    return labels


@pytest.fixture(scope="module")
def plan():
    return Predictions({"pred": PREDS}, target="label").label_plan("pred", labels=300)


def data_of(plan, number=None, **more):
    return Predictions({"pred": PREDS, "score": SCORES, "label": labelled(plan, number)}, target="label", **more)


def expected_pool(labels):
    """Return the labels of each predicted class, counted by hand."""
    parts = []
    for each in (0, 1):
        known = labels[(each == PREDS) & np.not_equal(labels, None)].astype(int)
        parts.append(label_bounds.Labelled(int((each == PREDS).sum()), len(known), int(known.sum())))
    return label_bounds.LabelledPool(*parts)


# --- plans ------------------------------------------------------------------------------------------------------------


def test_a_plan_draws_within_each_predicted_class(plan):
    hits = np.array(plan.predicted)
    assert plan.pool == (int((PREDS == 0).sum()), int(PREDS.sum()))
    assert (len({*plan.rows}), hits.sum()) == (300, 100)
    assert (PREDS[list(plan.rows)] == hits).all()
    drawn = np.zeros(2000)
    data = Predictions({"pred": [0] * 1990 + [1] * 10}, target="label")
    for seed in range(200):
        drawn[list(data.label_plan("pred", labels=200, seed=seed).rows)] += 1
    assert (drawn[1990:] == 200).all()  # ten alarms, all of them
    chance = scipy.stats.binom(200, 190 / 1990)
    assert chance.ppf(1e-6) <= drawn[:1990].min() <= drawn[:1990].max() <= chance.ppf(1 - 1e-6)
    assert data.label_plan("pred", labels=200).rows == data.label_plan("pred", labels=200).rows


def test_scores_are_planned_at_their_threshold(plan):
    scored = Predictions(target=[None] * SIZE).label_plan(scores=SCORES, labels=300, threshold=0.4)
    assert (scored.rows, scored.predicted, scored.pool) == (plan.rows, plan.predicted, plan.pool)
    with pytest.raises(ValueError, match="scores of a pool need threshold="):
        Predictions(target=[None] * SIZE).label_plan(scores=SCORES, labels=300)


# --- reports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [None, 120])
@pytest.mark.parametrize("of", ["pool", "population"])
def test_values_and_intervals_are_those_of_the_counted_labels(plan, number, of, tmp_path):
    """A prefix of the order will do; scikit-learn has the plug-in values, with a weight for each labelled row."""
    labels = labelled(plan, number)
    result = data_of(plan, number).estimate("pred", plan=plan, of=of, measures=MEASURES)
    known = np.flatnonzero(np.not_equal(labels, None))
    share = [(each == PREDS).sum() / (PREDS[known] == each).sum() for each in (0, 1)]
    weight = np.where(PREDS[known] == 1, share[1], share[0])
    peers = {"f1": sklearn.metrics.f1_score, "mcc": sklearn.metrics.matthews_corrcoef}
    peers |= {"precision": sklearn.metrics.precision_score, "recall": sklearn.metrics.recall_score}
    peers |= {"balanced_accuracy": sklearn.metrics.balanced_accuracy_score}
    for name, peer in peers.items():
        target = labels[known].astype(int)
        value = peer(target, PREDS[known], sample_weight=weight)
        assert float(result[name]) == pytest.approx(value, abs=1e-6)
    pool = expected_pool(labels)
    for name in MEASURES:
        measure = resolved("measure", name, Counting.of("binary"))
        interval = pool.pool_interval(measure) if of == "pool" else pool.population_interval(measure)
        assert float(result.interval(name).low) == pytest.approx(float(interval.low))
        assert (float(result[f"{name}_low"]), float(result[f"{name}_high"])) == pytest.approx(
            (float(interval.low), float(interval.high)), abs=1e-6
        )
    wider, narrower = result.interval("f1", level=0.99), result.interval("f1", level=0.5)
    assert wider.low < narrower.low < narrower.high < wider.high
    result.to_json(tmp_path / "pool.json")
    opened = imbtorch.open_result(tmp_path / "pool.json")
    assert (str(opened.table()), opened.signature) == (str(result.table()), result.signature)
    assert opened.interval("mcc").low == result.interval("mcc").low


def test_the_intervals_hold_the_value_of_the_pool():
    """Of 300 plans of one pool at least 95% hold it; fewer than 275 would happen once in 10,000 times at 95%."""
    held = dict.fromkeys(MEASURES, 0)
    data = Predictions({"pred": PREDS}, target="label")
    whole = imbtorch.report(preds=PREDS, target=TRUTH, measures=MEASURES)
    for seed in range(300):
        drawn = data.label_plan("pred", labels=200, seed=seed)
        pool = expected_pool(labelled(drawn))
        for name in MEASURES:
            found = pool.pool_interval(resolved("measure", name, Counting.of("binary")))
            held[name] += bool(float(found.low) - 1e-6 <= float(whole[name]) <= float(found.high) + 1e-6)
    assert min(held.values()) >= scipy.stats.binom(300, 0.95).ppf(1e-4)


def test_the_table_says_what_was_labelled_and_what_may_be_missed(plan):
    result = data_of(plan).estimate("pred", plan=plan)
    pool = expected_pool(labelled(plan))
    rows = result.table()["predicted"]
    assert rows["1"] == {"pool": int(PREDS.sum()), "labelled": 100, "1 among labels": int(pool.positive.positives)}
    assert rows["0"]["labelled"] == 200
    assert result.table().notes[0].startswith("of the pool (exact: holds in 95% or more of all labellings")
    none = Predictions({"pred": [0] * 5000 + [1] * 50, "label": [0] * 100 + [None] * 4900 + [1] * 50}, target="label")
    noted = none.estimate("pred", plan={0: 5000, 1: 50}).table().notes
    most = next(k for k in range(5000, 0, -1) if scipy.stats.hypergeom.cdf(0, 5000, k, 100) > 0.0125)
    assert f"no missed positive among 100 labels; up to {most} of 5,000 may be" in noted
    assert any(note.startswith("on trust: drawn at random within the classes") for note in noted)


def test_unclear_labels_are_taken_as_either_class(plan):
    labels = labelled(plan)
    rows = [list(plan.rows)[at] for at in (0, 1, 2, 7)]
    labels = labels.astype(object)
    labels[rows] = "?"
    data = Predictions({"pred": PREDS, "label": labels}, target="label")
    found = data.estimate("pred", plan=plan, unclear="?", measures=["f1", "recall"])
    ends = []
    for choice in itertools.product((0, 1), repeat=4):
        decided = labels.copy()
        decided[rows] = choice
        ends.append(Predictions({"pred": PREDS, "label": decided}, target="label").estimate(
            "pred", plan=plan, measures=["f1", "recall"]
        ))  # fmt: skip
    for name in ("f1", "recall"):
        lows, highs = ([float(each[f"{name}_{end}"]) for each in ends] for end in ("low", "high"))
        assert float(found[f"{name}_low"]) == pytest.approx(min(lows), abs=1e-6)
        assert float(found[f"{name}_high"]) == pytest.approx(max(highs), abs=1e-6)
    assert any("nobody could decide" in note for note in found.table().notes)


def test_labelled_rows_alone_need_the_numbers_of_the_pool(plan):
    known = np.flatnonzero(np.not_equal(labelled(plan), None))
    columns = {"pred": NAMES[PREDS[known]], "label": NAMES[TRUTH[known]]}
    data = Predictions(columns, target="label", positive="fraud")
    found = data.estimate("pred", plan={"fraud": plan.pool[1], "ok": plan.pool[0]})
    whole = data_of(plan).estimate("pred", plan=plan)
    for name in ("f1", "f1_low", "mcc_high"):
        assert found[name] == whole[name]
    with pytest.raises(ValueError, match="plan must hold the number of rows predicted as 'ok' and 'fraud'"):
        data.estimate("pred", plan={"fraud": 10})


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "arguments", "text"),
    [
        ({"group": "score"}, {}, "labels of a pool take no group=: report the pool of each group alone"),
        ({"cluster": "score"}, {}, "not if whole patients, days or files were labelled"),
        ({"weight": "score"}, {}, "no weight="),
        ({"frequency": "score"}, {}, "no frequency="),
        ({"ignore": "?"}, {}, "pass unclear="),
        ({"missing": "drop"}, {}, "rows without a label are the pool"),
        ({"no_answer": None}, {}, "no no_answer="),
        ({"task": "multilabel"}, {}, "are of two classes"),
        ({}, {"level": 1.0}, "level must lie in"),
        ({}, {"measures": ["optimized_precision"]}, "has no exact interval from labels drawn within"),
        ({}, {"of": "sample"}, "of must be"),
        ({}, {"plan": "nowhere.json"}, "nowhere.json"),
    ],
)
def test_what_does_not_fit_is_refused(plan, more, arguments, text):
    with pytest.raises((ValueError, OSError), match=text):
        data_of(plan, **more).estimate("pred", **{"plan": plan, **arguments})


def test_labels_that_are_not_those_of_the_plan_are_errors(plan):
    columns = {"pred": PREDS, "label": labelled(plan)}
    order = np.full(SIZE, None, dtype=object)
    order[list(plan.rows)] = range(1, 301)
    columns["label_plan"] = np.where(np.equal(order, None), None, plan.id)

    def report(**changed):
        return Predictions({**columns, "label_order": order, **changed}, target="label").estimate("pred", plan=plan)

    assert float(report()["f1"]) > 0
    turn = np.random.default_rng(0).permutation(SIZE)
    turned = {name: each[turn] for name, each in {**columns, "label_order": order}.items()}
    assert report(**turned)["f1"] == report()["f1"]  # spreadsheets may sort
    hole, extra, other, twice = (np.copy(each) for each in (columns["label"], columns["label"], PREDS, order))
    hole[plan.rows[4]] = None
    extra[int(np.flatnonzero(np.equal(order, None))[0])] = 1
    other[plan.rows[6]] = 1 - other[plan.rows[6]]
    twice[plan.rows[3]] = 3
    for changed, text in (
        ({"label": hole}, "the row with label_order 5 has no label, but a later row predicted as"),
        ({"label": extra}, "a row without label_order has a label"),
        ({"pred": other}, "the row with label_order 7 is predicted otherwise than in the plan"),
        ({"label_order": twice}, "a row of the plan stands twice"),
        (
            {"label_order": np.where(np.equal(order, 4), None, order)},
            "must hold all rows of the plan, .* got 299 of them",
        ),
        ({"label": np.full(SIZE, None)}, "no clear label is of a row predicted as '0'"),
    ):
        with pytest.raises(ValueError, match=text):
            report(**changed)
    grown = {name: np.r_[each, each[:50]] for name, each in {**columns, "label_order": order}.items()}
    for name in ("label", "label_order", "label_plan"):
        grown[name][SIZE:] = None
    with pytest.raises(ValueError, match=r"predicted are .* rows, but in the plan"):
        report(**grown)


@pytest.mark.parametrize("preds", [["a", "b", "c", "a"], ["a", "a", "a", "a"], [0, 1, 2, 0]])
def test_other_numbers_of_classes_are_errors(preds):
    columns = {"pred": preds, "label": [preds[0], None, None, None]}
    with pytest.raises(ValueError, match=r"of two classes|holds one class only|name it by positive="):
        Predictions(columns, target="label").estimate("pred", plan={preds[0]: 9, preds[1]: 9})


def test_pools_are_neither_added_nor_swept_nor_drawn(plan, tmp_path):
    data = data_of(plan)
    result = data.estimate("pred", plan=plan)
    for name in ("a", "b"):
        result.to_json(tmp_path / f"{name}.json")
    with pytest.raises(ValueError, match="an estimate has no counts, since only some rows are labelled: merge"):
        imbtorch.merge_results(tmp_path / "a.json", tmp_path / "b.json")
    with pytest.raises(ValueError, match="target has no value"):
        data.thresholds("score", "f1")
    with pytest.raises(ValueError, match="target has no value"):
        data.compare("pred", "score", "f1", threshold=0.5)
    with pytest.raises(TypeError, match="an exact interval takes no generator="):
        result.interval("f1", generator=torch.Generator())
    with pytest.raises(ValueError, match="'kappa' is not a measure of this estimate"):
        result.interval("kappa")


def test_damaged_files_are_told(plan, tmp_path):
    path = tmp_path / "plan.json"
    plan.save(path)
    again = data_of(plan).estimate("pred", plan=path)
    assert again["f1"] == data_of(plan).estimate("pred", plan=plan)["f1"]
    again.to_json(tmp_path / "pool.json")
    rows, sizes = list(plan.rows), [*plan.pool]
    changes = [(path, {"pool": [1]}), (path, {"rows": "1"}), (tmp_path / "pool.json", {"pool": {"of": "x"}})]
    changes += [(path, {"rows": [row, *rows[1:]]}) for row in (10**18, sum(sizes), -1, rows[1])]
    changes += [(path, {"predicted": each}) for each in ([], [1], [7] * 300, [2**70] * 300)]
    changes += [(path, {"pool": each}) for each in ([9, sizes[1]], [sizes[0], -1])]
    for file, change in changes:
        plan.save(path)
        data = json.loads(file.read_text(encoding="utf-8")) | change
        file.write_text(json.dumps(data | {"sha256": digest_of(data)}), encoding="utf-8")
        with pytest.raises(ValueError, match="is not complete or was changed"):
            imbtorch.open_result(file) if file != path else data_of(plan).estimate("pred", plan=path)


# --- command line -----------------------------------------------------------------------------------------------------


def run(*words):
    return command_line.main(list(map(str, words)))


def rows_plan(out):
    """Return the id of the plan beside a file."""
    return json.loads(out.with_suffix(".plan.json").read_text(encoding="utf-8"))["id"]


@pytest.mark.parametrize("scored", [False, True])
def test_the_command_writes_all_rows_and_reports_what_was_filled_in(scored, tmp_path, capsys):
    pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    pool, out = tmp_path / "pool.csv", tmp_path / "to_label.csv"
    with open(pool, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [["text", "pred", "score"], *zip(['a, "b"'] * SIZE, NAMES[PREDS], SCORES, strict=True)]
        )
    named = ["--scores", "score", "--threshold", ".4"] if scored else ["--preds", "pred"]
    words = ["label", pool, *named, "--positive", "fraud", "--labels", "300", "--out", out]
    assert run(*words) == 0
    said = capsys.readouterr().out
    assert f"100 of {PREDS.sum():,} rows predicted as 'fraud' and 200 of" in said
    command = said.splitlines()[3].partition("then: ")[2].split()
    with open(out, newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert (head, len(rows)) == (["text", "pred", "score", "label", "label_order", "label_plan"], SIZE)
    assert {(bool(row[4]), row[5]) for row in rows} == {(True, rows_plan(out)), (False, "")}
    assert sorted(int(row[4]) for row in rows if row[4]) == list(range(1, 301))
    assert {row[0] for row in rows} == {'a, "b"'}
    filled = [[*row[:3], NAMES[TRUTH[at]] if row[4] else "", *row[4:]] for at, row in enumerate(rows)]
    with open(out, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *filled[::-1]])
    held = out.read_bytes()
    assert run(*words) == 2  # drawn again, the labels would be lost
    assert "to_label.csv exists and may hold labels; name another file by --out" in capsys.readouterr().err
    assert out.read_bytes() == held
    assert run(*command[1:]) == 0
    shown = capsys.readouterr().out
    known = Predictions({"pred": PREDS}, target="label").label_plan("pred", labels=300)
    by_hand = data_of(known).estimate("pred", plan=known)
    assert "f1" in shown
    assert str(by_hand.table()["measure"]["f1"]["all"])[:3] in shown
    assert run("report", out, "--target", "label", *named, "--missing", "drop") == 2
    assert "a plan drew these labels, and without it they are biased; estimate takes" in capsys.readouterr().err
    assert run(*words[:1], out, *words[2:]) == 2
    assert "which is read" in capsys.readouterr().err
    other = tmp_path / "other.csv"
    assert run(*words[:1], out, *words[2:-1], other) == 2
    assert "has a column 'label' already" in capsys.readouterr().err


def test_the_page_shows_what_the_command_prints(tmp_path, monkeypatch, capsys):
    pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    page = Path(__file__).parents[2] / "examples" / "labels" / "README.md"
    ((command, text),) = re.findall(r"```console\n\$ imbtorch (.*)\n((?:.*\n)*?)```", page.read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    Path("pool.csv").write_text("pred\n" + "ok\n" * 99_000 + "fraud\n" * 1000, encoding="utf-8")
    assert run(*shlex.split(command)) == 0
    assert capsys.readouterr().out == text


def test_a_plan_takes_the_threshold_of_an_operating_point(tmp_path):
    point = Predictions(target=TRUTH).thresholds(SCORES, "f1").best()
    point.to_json(tmp_path / "point.json")
    pool = Predictions(target=[None] * SIZE)
    expected = pool.label_plan(scores=SCORES, labels=300, threshold=point.threshold)
    assert vars(pool.label_plan(scores=SCORES, labels=300, threshold=point)) == vars(expected)
    pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    with open(tmp_path / "pool.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["score"], *([each] for each in SCORES)])
    named = ["--scores", "score", "--threshold", tmp_path / "point.json"]
    assert run("label", tmp_path / "pool.csv", *named, "--labels", "300", "--out", tmp_path / "out.csv") == 0
    assert json.loads((tmp_path / "out.plan.json").read_text(encoding="utf-8"))["rows"] == list(expected.rows)


# --- read as all doors read -------------------------------------------------------------------------------------------


def test_a_threshold_is_placed_on_scores_of_a_pool_as_reports_place_it():
    logits = np.log(SCORES + 1e-3) - np.log1p(1e-3 - SCORES + 1e-9)
    data = Predictions({"score": logits, "label": TRUTH}, target="label")
    flagged = int((1 / (1 + np.exp(-logits)) > 0.4).sum())
    assert data.label_plan(scores="score", threshold=0.4, logits=True, labels=300).pool == (SIZE - flagged, flagged)
    assert data.report(scores="score", threshold=0.4, logits=True).counts.sum(0).tolist() == [SIZE - flagged, flagged]


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        (np.where(np.arange(SIZE) == 7, np.nan, SCORES), "scores hold NaN in row 7"),
        (100 * SCORES, "percentages must be divided by 100"),
        (SCORES - 0.5, "logits=True only for logits"),
    ],
)
def test_scores_of_a_pool_are_checked_like_those_of_a_report(scores, text):
    data = Predictions({"score": scores, "label": labelled(SMALL)}, target="label")
    with pytest.raises(ValueError, match=text):
        data.label_plan(scores="score", threshold=0.5, labels=300)
    with pytest.raises(ValueError, match=text):
        data.estimate(scores="score", threshold=0.5, plan={0: SIZE, 1: SIZE})


SMALL = Predictions({"pred": PREDS}, target="label").label_plan("pred", labels=60)


def test_classes_of_a_pool_are_typed_like_those_of_a_report():
    labels = np.where(np.not_equal(labelled(SMALL), None), NAMES[TRUTH], None)
    first = SMALL.rows[0]
    labels[first] = "fraud "
    data = Predictions({"pred": NAMES[PREDS], "label": labels}, target="label", positive="fraud")
    with pytest.raises(ValueError, match=r"holds 'fraud '.*unclear='fraud '"):
        data.estimate("pred", plan={"ok": SIZE, "fraud": SIZE})
    named = Predictions(
        {"pred": PREDS, "label": labelled(SMALL)}, target="label", class_names={0: "ok", 1: "fraud"}
    ).estimate("pred", plan={"ok": SMALL.pool[0], "fraud": SMALL.pool[1]})
    assert named["f1"] == data_of(SMALL).estimate("pred", plan=SMALL)["f1"]


def test_numbers_of_a_pool_are_whole_and_hold_the_rows():
    for sizes, text in (({0: 90.9, 1: 9}, "plan must be"), ({0: 1, 1: SIZE}, "but the source has")):
        with pytest.raises((TypeError, ValueError), match=text):
            data_of(SMALL).estimate("pred", plan=sizes)
    with pytest.raises(ValueError, match="threshold needs scores"):
        data_of(SMALL).label_plan("pred", labels=9, threshold=0.5)


@pytest.mark.parametrize(("level", "share"), [(0.8, "80"), (0.99, "99")])
def test_the_level_of_an_estimate_is_that_of_its_intervals(level, share):
    result = data_of(SMALL).estimate("pred", plan=SMALL, level=level, measures=["f1"])
    interval = result.interval("f1", level=level)
    assert float(result["f1_low"]) == pytest.approx(float(interval.low))
    assert f"holds in {share}% or more" in result.table().notes[0]
