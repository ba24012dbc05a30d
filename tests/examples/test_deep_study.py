"""The study of deep networks: its parts, its networks, its monitors, and tables that are those of its CSV files."""

import csv
import importlib.util
import math
import re
import sys
from pathlib import Path

import numpy as np
import oracles
import pytest
import torch
from matplotlib import image
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score, log_loss, matthews_corrcoef
from torch import nn

import imbtorch

FOLDER = Path(__file__).parents[2] / "examples" / "deep_study"


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # under which the scripts import one another
    spec.loader.exec_module(module)
    return module


before = {name: sys.modules.pop(name, None) for name in ("data", "run", "measure", "report")}
data, run, measure, report = (loaded(name) for name in before)
for name, module in before.items():
    sys.modules.pop(name)
    if module is not None:
        sys.modules[name] = module


# data -----------------------------------------------------------------------------------------------------------------


def test_parts_hold_whole_groups_and_no_group_twice():
    groups = np.repeat(np.arange(300), np.arange(300) % 5 + 1)
    parts = data.by_group(groups, np.random.default_rng(0), (200, 300))
    held = [set(groups[part].tolist()) for part in parts]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(groups)))
    assert sum(map(len, held)) == 300
    assert 200 <= len(parts[0]) < 205
    assert 300 <= len(parts[1]) < 305


def test_tokens_are_numbered_and_the_next_operator_is_told():
    ids, texts = data.token_ids("for name in (1, 'a'):\n    pass  # said\n")
    assert texts == ["for", "", "in", "(", "", ",", "", ")", ":", "", "", "pass", "", ""]
    assert ids[4] == 1 + data.TYPES.index(data.tokenize.NUMBER)
    assert ids[1] > len(data.TYPES)
    assert data.token_ids("(") is None


def test_digits_have_a_long_tail_and_the_others_are_tested_at_its_shares():
    drawn = data.TASKS["digits"](3, 250)
    train, pool, test = (torch.bincount(part.labels) for part in (drawn.train, drawn.pool, drawn.test))
    assert (train.sum(), pool.sum(), test.sum()) == (249, 298, 1250)
    assert drawn.shares.sum() == pytest.approx(1)
    assert drawn.shares[0] / drawn.shares[9] == pytest.approx(10)
    assert pool.tolist() == sorted(pool.tolist(), reverse=True)
    rare = data.TASKS["digit"](13, 300)
    assert torch.bincount(rare.train.labels).tolist() == [285, 15]
    assert not torch.equal(rare.pool.inputs, data.TASKS["digit"](3, 300).pool.inputs)


def test_glyphs_are_distinct_and_no_character_is_in_two_parts(monkeypatch):
    pytest.importorskip("matplotlib")
    some = [path for path in data.fonts() if path.stem in ("DejaVuSansMono", "DejaVuSansMono-Bold")]
    assert len(some) == 2
    monkeypatch.setattr(data, "fonts", lambda: some)
    data.glyphs.cache_clear()
    try:
        images, target, groups, classes, facts = data.glyphs()
        flat = [picture.tobytes() for picture in images]
        assert len(set(flat)) == len(flat) == facts["kept"] < facts["distinct"] < facts["drawn"]
        counts = np.bincount(target)
        assert counts.tolist() == sorted(counts.tolist(), reverse=True)
        assert all(len(set(groups[target == kind].tolist())) >= 20 for kind in range(len(classes)))
        assert ord("a") in groups
        assert 0x430 not in groups  # the Cyrillic letter looks the same: both are one group
    finally:
        data.glyphs.cache_clear()


# training -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy():
    return data.TASKS["digits"](1, 250)


@pytest.mark.parametrize("regime", run.FOUR)
def test_a_run_is_that_of_a_loop_in_plain_torch(toy, regime):
    task = run.STUDY["digits"]
    (model,) = list(run.trained(toy, task, regime, 5, 1))
    torch.manual_seed(5)
    alone = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    target = toy.train.target
    if regime == "noise":
        target = run.noisy(target, 10, torch.Generator().manual_seed(1_005))
        assert 0.05 < (target != toy.train.target).double().mean() < 0.3
    counts = torch.bincount(target, minlength=10).float()
    weights = len(target) / (10 * counts) if regime == "weighted" else None
    added = (counts / len(target)).log() if regime == "adjusted" else 0
    loss, optimizer = nn.CrossEntropyLoss(weights), torch.optim.Adam(alone.parameters(), 2e-3)
    for batch in torch.randperm(len(target), generator=torch.Generator().manual_seed(5)).split(25):
        optimizer.zero_grad()
        loss(alone(toy.train.inputs[batch]) + added, target[batch]).backward()
        optimizer.step()
    found = run.log_probabilities(model, toy.pool)
    torch.testing.assert_close(found.float(), alone(toy.pool.inputs).log_softmax(-1), atol=5e-3, rtol=2e-3)


def test_the_transformer_sees_nothing_that_comes_later():
    torch.manual_seed(0)
    model = run.Transformer(50, 7).eval()
    ids = torch.randint(0, 50, (2, data.LENGTH))
    changed = ids.clone()
    changed[:, 40:] = (changed[:, 40:] + 1) % 50
    same = (model(ids) - model(changed)).abs().amax((0, 2))
    assert same[:40].max() < 1e-5
    assert same[40:].min() > 1e-5


def test_plain_runs_come_first_and_no_run_is_made_twice(tmp_path):
    order = run.in_order(run.STUDY, range(10, 13))
    assert len(order) == len(set(order)) == 3 * sum(len(task.regimes) for task in run.STUDY.values())
    late = [name for name, regime, _ in order if regime != "plain" and not name.startswith("digit")]
    assert [name for name, _, _ in order[-len(late) :]] == late
    assert run.claimed(tmp_path / "a_plain_1.npz")
    assert not run.claimed(tmp_path / "a_plain_1.npz")  # another process has begun it


# values and epochs ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 90, 5, generator=generator)
    target = torch.randint(0, 4, (90,), generator=generator)  # class 4 is absent
    logits[..., 4] -= 9
    logs = logits.log_softmax(-1)
    counts, shares = torch.tensor([50, 30, 10, 5, 5]), torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1]).double()
    return measure.Kept("digits", "plain", 0, logs, target, logs, target, counts, shares, False, 1.0)


def test_values_of_parts_are_those_of_scikit_learn_and_of_exact_soft_counts(kept):
    parts = torch.zeros(2, 90)
    parts[0, :40] = parts[1, 30:] = 1
    values = measure.validation_values(kept, parts, kept.pool_target)
    for index, some in enumerate((slice(0, 40), slice(30, 90))):
        target = kept.pool_target[some]
        for epoch, logs in enumerate(kept.pool):
            predicted = logs[some].argmax(1)
            found = {name: values[name][epoch, index].item() for name in measure.MONITORED}
            assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(target, predicted))
            assert found["macro_f1"] == pytest.approx(f1_score(target, predicted, average="macro"))
            assert found["mcc"] == pytest.approx(matthews_corrcoef(target, predicted))
            table = confusion_matrix(target, predicted, labels=range(4))
            assert found["worst_recall"] == pytest.approx((table.diagonal() / table.sum(1)).min())
            at_shares = table / table.sum(1, keepdims=True) * kept.shares.numpy()[:4, None]
            larger = np.maximum(at_shares.sum(0), at_shares.sum(1))
            assert found["iam_true"] == pytest.approx(2 * (at_shares.diagonal() / larger).mean() - 1)
            reported = imbtorch.ImbalanceReport(
                "multiclass",
                num_classes=5,
                measures={name: name for name in ("accuracy", "balanced_accuracy", "mcc", "iam", "gmean")},
                per_class=(),
                on_invalid="warn",
            )
            reported.quiet = True
            for name, value in reported(logs[some], target).items():
                assert values[name][epoch, index].item() == pytest.approx(value.item(), abs=1e-5)
            hard = confusion_matrix(target, predicted, labels=range(5)).tolist()
            soft = oracles.soft_counts(logs[some].double().softmax(-1).tolist(), target.tolist())
            for name, formula in oracles.STUDIED.items():
                of_hard, of_soft = (float(oracles.exact(formula, counts)) for counts in (hard, soft))
                mixed = (1 - measure.SOFT) * of_hard + measure.SOFT * of_soft
                assert values[f"{name}_soft"][epoch, index].item() == pytest.approx(mixed, abs=1e-5)


def test_losses_are_those_of_scikit_learn_and_never_worse_when_scaled(kept):
    parts = torch.zeros(1, 90)
    parts[0, :60] = 1
    lost = measure.losses(kept, parts, kept.pool_target)
    for epoch, logs in enumerate(kept.pool):
        labels, probabilities = kept.pool_target[:60].numpy(), logs[:60].exp().double().numpy()
        plain = log_loss(labels, probabilities / probabilities.sum(1, keepdims=True), labels=range(5))
        assert lost["loss"][epoch, 0].item() == pytest.approx(plain, rel=1e-4)
        scaled = [(scale * logs[:60]).log_softmax(-1).double() for scale in np.geomspace(0.15, 1.7, 200)]
        least = min(-some.gather(1, kept.pool_target[:60, None]).mean().item() for some in scaled)
        assert lost["loss_scaled"][epoch, 0].item() == pytest.approx(least, abs=0.01)
        assert lost["loss_scaled"][epoch, 0] <= lost["loss"][epoch, 0] + 1e-6


def test_kept_and_stopped_epochs_by_hand():
    hard = torch.tensor([[0.5, 0.9, 0.7, 0.9, 0.8]]).T
    lost = {"loss": torch.tensor([[0.9, 0.8, 0.2, 0.4, 0.5]]).T}
    kept = measure.kept_epochs({"iam": hard, "iam_soft": hard + torch.arange(5)[:, None] / 1_000}, lost)
    epochs = {"iam": 1, "iam_latest": 3, "iam_soft": 3, "loss": 2, "last": 4}
    assert {name: epoch.item() for name, epoch in kept.items()} == epochs
    scores = torch.tensor([[0.1, 0.3, 0.2, 0.3, 0.2, 0.9]]).T
    assert [measure.stopped_epochs(scores, patience).item() for patience in (1, 3, 4)] == [1, 1, 5]


@pytest.fixture(scope="module")
def subset(tmp_path_factory):
    """Subset of the study: two small tasks, two seeds, from training to pictures."""
    out = tmp_path_factory.mktemp("deep")
    patch = pytest.MonkeyPatch()
    threads = torch.get_num_threads()
    for _ in range(2):  # the second time nothing is left to do
        patch.setattr("sys.argv", ["run.py", "--subset", "--out", str(out / "kept")])
        run.main()
        patch.setattr("sys.argv", ["measure.py", str(out / "kept"), "--out", str(out)])
        measure.main()
    (out / "results.md").write_text(f"What I read.\n\n{report.MARK}\nold", encoding="utf-8")
    patch.setattr("sys.argv", ["report.py", "--out", str(out)])
    report.main()
    patch.undo()
    torch.set_num_threads(threads)
    return out


def test_the_subset_runs_from_training_to_pictures(subset):
    runs = report.rows_of(subset / "runs.csv")
    assert len(runs) == len({(row["task"], row["regime"], row["seed"]) for row in runs}) == 16
    rows = report.rows_of(subset / "results.csv")
    assert {row["measure"] for row in rows} == set(measure.MEASURES)
    assert all(-1 <= float(row[name]) <= float(row["best"]) + 1e-4 for row in rows for name in measure.MONITORS)
    accuracy = [float(row["last"]) for row in rows if row["measure"] == "accuracy" and row["regime"] == "plain"]
    assert min(accuracy) > 0.5  # the networks learn
    text = (subset / "results.md").read_text(encoding="utf-8")
    assert text.startswith(f"What I read.\n\n{report.MARK}\n\n### Runs")
    assert text.split(report.MARK)[1].strip() == report.tables(subset).strip()
    assert {path.name for path in subset.glob("*.png")} == {"deep_run.png"}  # sizes differ in no small task


# verdicts and files ---------------------------------------------------------------------------------------------------


def test_verdicts_are_those_of_the_protocol():
    gain, loss, open_ = np.array([1.0, 1.1, 0.9, 1.0]), -np.array([1.0, 1.1, 0.9, 1.0]), np.array([1.0, -1, 2, -2])
    assert report.verdict([gain] * 3 + [open_]) == "gains in 3, loses in 0 of 4: holds"
    assert report.verdict([gain] * 3 + [loss]) == "gains in 3, loses in 1 of 4: open"
    assert report.verdict([loss] * 3) == "gains in 0, loses in 3 of 3: refuted"
    assert report.verdict([gain, gain, gain[:3]]) == "gains in 2, loses in 0 of 2: open"
    assert report.told(gain[:3]) == "+1.0 (3 seeds)"
    assert report.interval(np.array([1.0, 2.0, 3.0, 4.0]))[0] == pytest.approx(
        2.5 - 3.1824 * math.sqrt(5 / 3) / 2, abs=1e-3
    )


def test_the_tables_of_the_repository_are_those_of_its_files():
    text = (FOLDER / "results.md").read_text(encoding="utf-8")
    assert text.split(report.MARK)[1].strip() == report.tables(FOLDER).strip()


def test_the_primary_table_is_that_of_the_file_by_other_code():
    quantiles = {4: 3.1824, 5: 2.7764, 6: 2.5706, 7: 2.4469, 8: 2.3646, 9: 2.3060, 10: 2.2622}
    with (FOLDER / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["regime"], row["labels"]) == ("plain", "right")]
    text = (FOLDER / "results.md").read_text(encoding="utf-8").split("### Primary comparisons")[1].split("###")[0]
    head, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]
    assert len(lines) == 6
    others = iter(("loss", "loss", "accuracy_latest", "accuracy_latest", "last", "last"))
    for line, other in zip(lines, others, strict=True):
        measure_ = {"balanced accuracy": "balanced_accuracy", "IAM": "iam"}[line[1]]
        signs = []
        for task, cell in zip(head[2:-1], line[2:-1], strict=True):
            size = "300" if task in ("digits", "digit") else "1000"
            some = [row for row in rows if (row["task"], row["size"], row["measure"]) == (task, size, measure_)]
            values = [100 * (float(row[f"{measure_}_latest"]) - float(row[other])) for row in some]
            mean = math.fsum(values) / len(values)
            spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
            reach = quantiles[len(values)] * spread / math.sqrt(len(values))
            found = [float(number) for number in re.findall(r"[+-]\d+\.\d", cell)]
            assert found == pytest.approx([mean, mean - reach, mean + reach], abs=0.051)
            signs.append((mean > reach) - (mean < -reach))
            assert cell.startswith("**") == bool(signs[-1])
        assert line[-1].startswith(f"gains in {signs.count(1)}, loses in {signs.count(-1)} of {len(signs)}:")


def test_the_guide_says_of_early_stopping_what_the_table_says():
    text = (FOLDER / "results.md").read_text(encoding="utf-8").split("### Early stopping against")[1]
    losses = {}
    for patience in (3, 10):
        lines = [line for line in text.splitlines() if f"| the measure itself, earliest, patience {patience} |" in line]
        cells = [line.split("|")[3:9] for line in lines]  # six tasks, by balanced accuracy and by IAM
        losses[patience] = [[float(re.search(r"[+-]\d+\.\d", cell)[0]) for cell in row] for row in cells]
    assert np.shape(losses[3]) == np.shape(losses[10]) == (2, 6)
    assert np.abs(losses[10]).max() == 0.2
    assert round(losses[3][1][-1]) == np.round(np.min(losses[3])) == -49  # IAM of the task with two classes
    guide = " ".join((FOLDER.parent / "README.md").read_text(encoding="utf-8").split())
    assert "changed by 0.2 points at most" in guide
    assert "which lost 49 points of IAM" in guide
    assert {row["epochs"] for row in report.rows_of(FOLDER / "runs.csv")} == {"20"}


def test_the_pictures_are_drawn_from_the_files(tmp_path):
    report.draw_run(FOLDER, tmp_path / "deep_run.png")
    report.draw_sizes(FOLDER, tmp_path / "deep_sizes.png")
    for path in tmp_path.glob("*.png"):
        height, width, _ = image.imread(path).shape
        committed = report.FIGURES / path.name
        assert image.imread(committed).shape[:2] == (height, width)
        assert 700 <= width <= 1100
        assert committed.stat().st_size <= 70_000
