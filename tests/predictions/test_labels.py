"""Pools of which some rows are labelled (`labels.py`): plans, files, exact intervals, and refusals."""

import csv
import itertools
import json
import os
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


def test_plans_nest_within_each_predicted_class():
    """Each class has one random order, so labels of a smaller plan are the first ones of a larger one."""
    data = Predictions({"pred": PREDS}, target="label")
    for aim in ("f1", "recall", "precision"):
        earlier = None
        for labels in (2, 30, 31, 300, 1000, 3000):
            plan = data.label_plan("pred", labels=labels, aim=aim, seed=5)
            orders = [[row for row in plan.rows if PREDS[row] == each] for each in (0, 1)]
            assert sum(plan.predicted) == label_bounds.plan_sizes(*plan.pool, labels, aim)[1]
            if earlier is not None:
                assert all(new[: len(old)] == old for old, new in zip(earlier, orders, strict=True))
            earlier = orders
    assert data.label_plan("pred", labels=30, seed=6).rows != data.label_plan("pred", labels=30, seed=5).rows


def test_the_order_of_classes_cannot_be_learned():
    """Alarms stand anywhere: over 300 seeds each place holds one about as often as the share of alarms."""
    data = Predictions({"pred": [0] * 900 + [1] * 100}, target="label")
    plans = np.array([data.label_plan("pred", labels=60, seed=seed).predicted for seed in range(300)])
    chance = scipy.stats.binom(300, 1 / 3)
    assert chance.ppf(1e-6) <= plans.sum(0).min() <= plans.sum(0).max() <= chance.ppf(1 - 1e-6)
    follows = (plans[:, 1:] & plans[:, :-1]).sum()  # pairs of alarms, 59 places of 20 * 19 / (60 * 59) each
    assert follows / 300 == pytest.approx(59 * 20 * 19 / (60 * 59), rel=0.1)


def test_a_labelled_prefix_covers_the_value_of_the_pool():
    """Stopping after 90 of 300 labels leaves random numbers of both classes; given these, intervals hold."""
    data, measure = Predictions({"pred": PREDS}, target="label"), resolved("f1", "f1", Counting.of("binary"))
    truth, held = imbtorch.report(preds=PREDS, target=TRUTH, measures=["f1"])["f1"], 0
    for seed in range(200):
        found = expected_pool(labelled(data.label_plan("pred", labels=300, seed=seed), 90)).pool_interval(measure)
        held += bool(float(found.low) - 1e-6 <= truth <= float(found.high) + 1e-6)
    assert held >= scipy.stats.binom(200, 0.95).ppf(1e-4)


def test_plans_say_how_wide_intervals_will_be():
    """Means over labellings, by simulation of NumPy; 1,500 of them have an error of less than .01."""
    plan = Predictions({"pred": [0] * 4900 + [1] * 100}, target="label").label_plan("pred", labels=120)
    rows = plan.expected(precision=0.6, recall=0.5)["labels"]
    assert list(rows) == ["120", "240"]
    random, truth = np.random.default_rng(0), {"f1": 120 / 220, "recall": 0.5}
    for labels, row in rows.items():
        negative, positive = label_bounds.plan_sizes(4900, 100, int(labels))
        found = [random.hypergeometric(60, 4840, negative, 1500), random.hypergeometric(60, 40, positive, 1500)]
        pool = label_bounds.LabelledPool(
            label_bounds.Labelled(4900, negative, found[0]), label_bounds.Labelled(100, positive, found[1])
        )
        for name, value in truth.items():
            interval = pool.pool_interval(resolved(name, name, Counting.of("binary")))
            assert float(row[name]) == pytest.approx(value)
            assert (row[name].low, row[name].high) == pytest.approx(
                (float(interval.low.mean()), float(interval.high.mean())), abs=0.02
            )
            assert row[f"width of {name}"] == pytest.approx(row[name].high - row[name].low)
        assert row["no miss found"] == pytest.approx(scipy.stats.hypergeom.pmf(0, 4900, 60, negative))
    for guess, text in (
        ((0, 0.5), "precision must be"),
        ((0.6, 1.1), "recall must be"),
        ((0.9, 0.001), "guess others"),
    ):
        with pytest.raises(ValueError, match=text):
            plan.expected(*guess)


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


def test_rows_of_another_plan_are_refused(plan):
    truth = np.where(np.isin(np.arange(SIZE), plan.rows), TRUTH, None)
    columns = {"pred": PREDS, "label": truth}
    turned = np.random.default_rng(1).permutation(SIZE)
    shuffled = Predictions({"pred": PREDS[turned]}, target="label").label_plan("pred", labels=300)
    rows = np.array(plan.rows)
    drawn = {"pred": PREDS[rows], "label": TRUTH[rows], "label_order": np.arange(1, 301), "label_plan": [plan.id] * 300}
    alone = {"label": TRUTH[rows], "label_row": rows, "label_plan": drawn["label_plan"]}
    swapped = PREDS.copy()  # as many alarms, other rows, but for those that the plan drew
    free = np.setdiff1d(np.arange(SIZE), rows)
    swapped[free] = PREDS[free][::-1]

    def estimate(columns, plan=plan, preds="pred"):
        return Predictions(columns, target="label").estimate(preds, plan=plan, measures=["f1"])

    right = estimate(columns)["f1"]
    assert estimate(drawn)["f1"] == estimate(alone, preds=None)["f1"] == right
    for changed, other, text in (
        (columns, shuffled, "predicted otherwise than in the plan|not predicted as those that the plan was drawn from"),
        (columns | {"pred": swapped}, plan, "not predicted as those that the plan was drawn from, in their order"),
        (drawn, shuffled, f"rows come from another plan: label_plan is '{plan.id}' in row 0"),
        ({name: each for name, each in drawn.items() if "order" in name or len(name) < 6}, plan, "lacks the column"),
        (drawn | {"label_plan": [None] * 300}, plan, "label_plan is none"),
        ({name: drawn[name] for name in ("pred", "label")}, plan, "was drawn from 20,000 rows, but there are 300"),
    ):
        with pytest.raises(ValueError, match=text):
            estimate(changed, other)
    with pytest.raises(ValueError, match=r"holds a row that the plan has not drawn in row 3"):
        estimate(alone | {"label_row": np.where(np.arange(300) == 3, free[0], rows)}, preds=None)
    with pytest.raises(ValueError, match="lacks the column 'label_plan'"):
        estimate({name: alone[name] for name in ("label", "label_row")}, preds=None)


@pytest.mark.parametrize("door", ["report", "thresholds", "compare"])
@pytest.mark.parametrize("mark", ["label_order", "label_plan"])
def test_other_doors_refuse_rows_that_a_plan_drew(door, mark):
    columns = {"pred": [0, 1] * 20, "score": [0.2, 0.7] * 20, "label": [0, 1] * 20, mark: ["1", None] * 20}
    data = Predictions(columns, target="label", missing="drop")
    calls = {"report": ("pred",), "thresholds": ("score", "f1"), "compare": ("pred", "score", "f1")}
    with pytest.raises(ValueError, match=f"has a column '{mark}': a plan drew these labels.*estimate takes them"):
        getattr(data, door)(*calls[door])


@pytest.mark.parametrize("kind", ["duckdb", "polars"])
def test_rows_without_an_order_are_known_by_an_id(kind, tmp_path):
    package = pytest.importorskip(kind, reason="needs imbtorch[files]")
    pandas = pytest.importorskip("pandas")
    names = np.array([f"k{number}" for number in range(SIZE)])
    frame = pandas.DataFrame({"pred": PREDS, "key": names, "label": None})

    def lazy(frame):
        if kind == "duckdb":
            return package.connect().from_df(frame)
        return package.DataFrame(frame.to_dict("list")).lazy()

    with pytest.raises(
        ValueError, match="rows of this source have no order; name a column that tells them apart by id="
    ):
        Predictions(lazy(frame), target="label").label_plan("pred", labels=300)
    plan = Predictions(lazy(frame), target="label").label_plan("pred", labels=300, id="key")
    turned = frame.sample(frac=1, random_state=2)
    assert vars(Predictions(lazy(turned), target="label").label_plan("pred", labels=300, id="key")) == vars(plan)
    plan.save(tmp_path / "plan.json")
    rows = [int(key[1:]) for key in plan.rows]
    assert PREDS[rows].tolist() == list(plan.predicted)
    frame["label"] = pandas.Series(np.where(np.isin(names, plan.rows), TRUTH, np.nan)).astype("Int64")
    whole = lazy(frame.sample(frac=1, random_state=3))
    found = Predictions(whole, target="label").estimate("pred", plan=tmp_path / "plan.json", id="key")
    assert found.expected_cells.tolist() == expected_pool(np.where(np.isin(names, plan.rows), TRUTH, None)
    ).expected_cells().tolist()  # fmt: skip
    alone = frame[frame["label"].notna()][["key", "label"]]
    assert Predictions(alone, target="label").estimate(plan=plan, id="key")["f1"] == found["f1"]
    with pytest.raises(ValueError, match="the plan has ids; name their column by id="):
        Predictions(frame, target="label").estimate("pred", plan=plan)
    with pytest.raises(TypeError, match="preds or scores must be given"):
        Predictions(alone, target="label").estimate(plan=plan)
    with pytest.raises(ValueError, match="holds an id twice"):
        Predictions(frame.assign(key="k1"), target="label").label_plan("pred", labels=300, id="key")


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


def small_pool(folder):
    """Write a pool of 400 rows; return what labels them in a file of the command."""
    preds = np.arange(400) % 10 == 3
    truth = NAMES[(preds & (np.arange(400) % 3 > 0) | (np.arange(400) % 50 == 7)).astype(int)]
    with open(folder / "pool.csv", "w", newline="", encoding="utf-8") as file:
        pairs = [[f"row {at}", NAMES[int(each)]] for at, each in enumerate(preds)]
        csv.writer(file).writerows([["text", "pred"], *pairs])

    def fill(path):
        with open(path, newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        for at, row in enumerate(rows):
            number = int(row[0]) if head[0] == "label_row" else at
            row[head.index("label")] = truth[number] if row[head.index("label_plan")] else ""
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *rows])

    return fill


def test_the_drawn_rows_alone_show_no_predictions(tmp_path, monkeypatch, capsys):
    pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    monkeypatch.chdir(tmp_path)
    fill = small_pool(tmp_path)
    words = ["label", "pool.csv", "--preds", "pred", "--positive", "fraud", "--labels", 60]
    assert run(*words, "--out", "all.csv", "--drawn-out", "blind.csv", "--show", "text") == 0
    capsys.readouterr()
    plan = json.loads(Path("blind.plan.json").read_text(encoding="utf-8"))
    with open("blind.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["label_row", "text", "label", "label_plan"]
    assert [int(row["label_row"]) for row in rows] == plan["rows"]
    assert all(row["text"] == f"row {row['label_row']}" and row["label_plan"] == plan["id"] for row in rows)
    for path in ("all.csv", "blind.csv"):
        fill(path)
    assert run("estimate", "blind.csv", "--target", "label", "--plan", "blind.plan.json") == 0
    of_drawn = capsys.readouterr().out
    assert run("estimate", "all.csv", "--target", "label", "--preds", "pred", "--plan", "all.plan.json") == 0
    assert capsys.readouterr().out == of_drawn
    assert run(*words, "--drawn-out", "other.csv", "--show", "txt") == 2
    assert "show names 'txt', which is no column; columns are text, pred" in capsys.readouterr().err


@pytest.mark.parametrize("labelled", ["all.csv", "blind.csv"])
def test_a_longer_plan_keeps_the_labels_of_a_shorter_one(labelled, tmp_path, monkeypatch, capsys):
    pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    monkeypatch.chdir(tmp_path)
    fill = small_pool(tmp_path)
    words = ["label", "pool.csv", "--preds", "pred", "--positive", "fraud"]
    assert run(*words, "--labels", 60, "--out", "all.csv", "--drawn-out", "blind.csv", "--aim", "recall") == 0
    fill(labelled)
    more = [*words, "--labels", 90, "--labelled", labelled, "--out", "more.csv"]
    assert run(*more, "--aim", "recall") == 0
    assert "60 are filled in" in capsys.readouterr().out
    with open("more.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    first = json.loads(Path("all.plan.json").read_text(encoding="utf-8"))["rows"]
    assert {at for at, row in enumerate(rows) if row["label"]} == {*first}
    assert sum(bool(row["label_order"]) for row in rows) == 90
    command = ["estimate", "more.csv", "--target", "label", "--preds", "pred", "--plan", "more.plan.json"]
    assert run(*command) == 0  # the labels kept are a prefix of the longer plan
    assert "60 labels of 400 rows" in capsys.readouterr().out
    Path("more.csv").unlink()
    Path("more.plan.json").unlink()
    for changed, text in (
        ([*more, "--aim", "f1"], "the labelled rows were drawn with aim recall, not f1"),
        ([*more, "--aim", "recall", "--seed", 1], "the labelled rows were drawn with seed 0, not 1"),
        ([*more[:7], 30, *more[8:], "--aim", "recall"], "labels must be 60 or more to hold those given, got 30"),
    ):
        assert run(*changed) == 2
        assert text in capsys.readouterr().err
    assert not Path("more.csv").exists()


def test_a_guess_says_how_wide_intervals_will_be_and_writes_nothing(tmp_path, monkeypatch, capsys):
    pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    monkeypatch.chdir(tmp_path)
    small_pool(tmp_path)
    words = ["label", "pool.csv", "--preds", "pred", "--positive", "fraud", "--labels", 60]
    assert run(*words, "--expect", "precision=.6,recall=.5") == 0
    plan = Predictions("pool.csv", target="label", positive="fraud").label_plan("pred", labels=60)
    assert capsys.readouterr().out == f"{plan.expected(0.6, 0.5)}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["pool.csv"]
    for more, text in (
        (["--expect", ".6,.5"], "--expect needs a guess of both"),
        ([], "name a file to write by --out"),
    ):
        assert run(*words, *more) == 2
        assert text in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_links_pipes_and_devices_are_no_files_to_label(tmp_path, monkeypatch, capsys):
    pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    monkeypatch.chdir(tmp_path)
    small_pool(tmp_path)
    for name in ("thesis.txt", "b.csv.part"):
        Path(name).write_text("mine", encoding="utf-8")
    os.symlink("thesis.txt", "a.csv.part")
    os.symlink("thesis.txt", "link.csv")
    os.symlink("nowhere.txt", "dangling.csv")
    os.mkfifo("pipe.csv")
    os.mkdir("folder.plan.json")
    before = {path.name for path in tmp_path.iterdir()}
    words = ["label", "pool.csv", "--preds", "pred", "--positive", "fraud", "--labels", 60, "--out"]
    for name in ("link.csv", "dangling.csv", "pipe.csv", "folder.csv", "/dev/null"):
        assert run(*words, name) == 2
        assert "is no regular file" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == before
    monkeypatch.setattr(
        imbtorch.statistics.LabelPlan, "save", lambda *_: (_ for _ in ()).throw(OSError("disk is full"))
    )
    assert run(*words, "full.csv") == 2
    assert {path.name for path in tmp_path.iterdir()} == before
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv"):
        assert run(*words, name) == 0
        assert not Path(name).is_symlink()
    assert Path("thesis.txt").read_text(encoding="utf-8") == Path("b.csv.part").read_text(encoding="utf-8") == "mine"
    assert {path.name for path in tmp_path.iterdir()} == before | {"a.csv", "a.plan.json", "b.csv", "b.plan.json"}


def test_the_command_says_why_labels_of_a_pool_take_no_groups(tmp_path, monkeypatch, capsys):
    pytest.importorskip("duckdb", reason="needs imbtorch[files]")
    monkeypatch.chdir(tmp_path)
    small_pool(tmp_path)
    words = ["estimate", "pool.csv", "--target", "text", "--preds", "pred", "--plan", "ok=360,fraud=40"]
    assert run(*words, "--group", "text") == 2
    assert "labels of a pool take no --group: report the pool of each group alone" in capsys.readouterr().err


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
    for sizes, text in (({0: 90.9, 1: 9}, r"plan\[0\] must be"), ({0: 1, 1: SIZE}, "but the source has")):
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
