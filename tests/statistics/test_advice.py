"""The table by situation is that of README, and the figures of README and evidence are those of the studies."""

import re
from pathlib import Path

import pytest

from imbtorch.statistics.advice import SITUATIONS, situation_of

ROOT = Path(__file__).parents[2]


def results(study):
    return (ROOT / "examples" / study / "results.md").read_text(encoding="utf-8")


def table_of(begin):
    """Rows of a table of the evidence, given the begin of its head."""
    text = (ROOT / "examples" / "evidence.md").read_text(encoding="utf-8").split(begin)[1]
    lines = text.split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_gains_of_the_evidence_are_those_of_the_study():
    """Cells of fewer than three units, which have no interval, are empty."""
    found = {}
    for measure, _, *cells in table_of("| gain over argmax, 20 epochs |"):
        found |= {(classes, measure, "falling"): cell for classes, cell in zip(CLASSES, cells, strict=True)}
    for classes, measure, *cells in table_of("| classes, units |"):
        key = (classes.partition(",")[0], measure)
        assert cells[0] == found[(*key, "falling")]
        regimes = ("falling", "short", "pretrained", "weighted", "constant")
        found |= {(*key, regime): cell for regime, cell in zip(regimes, cells, strict=True)}
    assert len(found) == 6 * 4 + 6 * 4
    for (classes, measure, regime), cell in found.items():
        if measure == "G-mean" and classes != "two":
            assert not cell
            continue
        shown, _, units = cell_of(*TODAY, [classes, measure], regime).rpartition(" (")
        assert cell.removesuffix(" (4 units)") == (shown if int(units.rstrip(")")) >= 3 else "")


CLASSES = ("two", "three to nine", "ten and more", "all")


def test_the_readme_gives_a_part_of_the_table():
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("| You have |")[1].split("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    names = {row.have: name for name, row in SITUATIONS.items()}
    assert {"Two classes", "Three to nine classes", "Ten classes or more, long-tailed"} < {line[0] for line in lines}
    for line in lines:
        row = SITUATIONS[names[line[0]]]
        assert line == [row.have, row.last, row.choose, *gains(names[line[0]]), row.sure]


def test_the_figures_of_the_evidence_are_those_of_the_tables():
    text = (ROOT / "examples" / "evidence.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    before, wrong = text.split("## 4. Wrong labels")
    figures = re.findall(r"[+-][\d.]+ \[[^]]+\]", " ".join(before.split()))
    assert len(figures) > 60
    studies = " ".join((results("decision_study") + results("threshold_study")).split())
    found = set(re.findall(r"[+-][\d.]+ \[[^]]+\]", studies))
    costs = {
        tuple(round(float(number), 1) for number in numbers)
        for numbers in re.findall(r"([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]", results("monitor_study"))
    }
    turned = set()  # gains whose tables have costs
    for mean, low, high in (re.findall(r"[+-][\d.]+", figure) for figure in set(figures) - found):
        mean, low, high = -float(mean), -float(high), -float(low)
        turned.add((mean, low, high))
        assert f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" in found or (mean, low, high) in costs
    assert len(turned) == 3
    rows = [
        [[float(part) for part in parts] for parts in re.findall(r"(\S+) \[(\S+), (\S+)\]", line.replace("*", ""))]
        for line in wrong.splitlines()
        if line.startswith(("| best epoch", "| monitoring MCC instead of IAM"))
    ]
    assert [len(row) for row in rows] == [4, 4, 4]
    for mean, low, high in rows[0] + rows[1]:  # costs there, gains here
        assert (-mean, -high, -low) in costs
    for numbers in rows[2]:  # MCC minus the measure itself, which is the measure itself minus MCC in costs
        assert tuple(numbers) in costs


TODAY = "decision_study", "The rule of today (two classes: the resampled threshold), added when the results were known"
PLACES = {  # classes and regime in the table of the rule of today
    "three to nine classes": ("three to nine", "falling"),
    "many classes": ("ten and more", "falling"),
    "class weights": ("two", "weighted"),
}


def cell_of(study, table, row, column):
    """Cell of a table of a study, given the first cells of its row."""
    text = results(study).split(f"\n### {table}\n")[1].split("\n### ")[0]
    head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line)
    (line,) = (line for line in lines if line[: len(row)] == list(row))
    return line[head.index(column)]


def gain_cells(name):
    """Gains of balanced accuracy and IAM in the study's table."""
    if name == "two classes":
        table = "New families, both models (52 families)"
        return [cell_of("threshold_study", table, ["resampled - 0.5"], each) for each in ("balanced accuracy", "IAM")]
    classes, regime = PLACES[name]
    return [cell_of(*TODAY, [classes, each], regime) for each in ("balanced accuracy", "IAM")]


def gains(name):
    """Gains of balanced accuracy and IAM, bold if they differ from 0."""
    return [re.match(r"\**[^*=]*?\]\**", cell)[0] for cell in gain_cells(name)]


@pytest.mark.parametrize("name", ["two classes", *PLACES])
def test_the_evidence_is_as_strong_as_the_number_of_units(name):
    row = SITUATIONS[name]
    balanced_accuracy, iam = gains(name)
    assert balanced_accuracy.startswith("**+")
    assert iam.startswith("**") == (not row.sure.endswith("for IAM inconclusive"))
    units = int(re.search(r"\((\d+) (units|families)\)", row.sure)[1])
    if name != "two classes":  # whose table names them in its heading
        assert all(cell.endswith(f"({units})") for cell in gain_cells(name))
    independent = units - 4 if name == "three to nine classes" else units  # of the pools it was found on
    strength = "strong" if independent >= 15 else "moderate" if independent >= 6 else "weak"
    assert row.sure.startswith(strength)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("two classes", "two"),
        ("three to nine classes", "three to nine"),
        ("many classes", "ten and more"),
        ("class weights", "weighted"),
    ],
)
def test_the_last_epoch_is_as_good_as_its_study_says(name, column):
    """The study marks a difference of less than a point by =, and one that differs from 0 by bold type."""
    table = "The same comparisons by the number of classes, falling rate"
    table = "By regime: two classes" if column == "weighted" else table
    cells = [
        cell_of("decision_study", table, ["own epoch - last epoch", measure], column)
        for measure in ("balanced accuracy", "IAM")
    ]
    small, better = [" = " in cell for cell in cells], [cell.startswith("**-") for cell in cells]
    if small == [True, True]:
        expected = "as good"
    elif (small, better) == ([True, False], [False, True]):
        expected = "as good, for IAM better"
    elif small == [False, True]:
        expected = "as good for IAM, inconclusive for balanced accuracy"
    else:
        most = max(float(re.search(r", ([+-][\d.]+)\]", cell)[1]) for cell in cells)  # that the best epoch gains
        expected = "inconclusive, but not worse by a point" if most < 1 else "inconclusive"
    assert SITUATIONS[name].last == expected


@pytest.mark.parametrize(
    ("classes", "row"),
    [
        (0, "labels"),
        (2, "two classes"),
        (3, "three to nine classes"),
        (9, "three to nine classes"),
        (10, "many classes"),
    ],
)
def test_the_row_that_fits_a_task(classes, row):
    assert situation_of(classes) == SITUATIONS[row]
