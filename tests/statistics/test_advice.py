"""The table by situation stands in evidence, in part in README, and its figures in the studies' tables."""

import re
from pathlib import Path

import pytest

from imbtorch.statistics.advice import SITUATIONS, situation_of

ROOT = Path(__file__).parents[2]


def results(study):
    return (ROOT / "examples" / study / "results.md").read_text(encoding="utf-8")


def anchor(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def table_of(path):
    text = (ROOT / path).read_text(encoding="utf-8").split("| You have |")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_the_evidence_gives_the_table_word_for_word_and_links_to_the_figures():
    """A dagger marks the single best threshold, a double dagger what some units served to develop."""
    assert len(SITUATIONS) <= 8
    for line, (name, row) in zip(table_of("examples/evidence.md"), SITUATIONS.items(), strict=True):
        link = f"[{row.sure}]({row.study}/results.md#{anchor(row.table)})" if row.study else row.sure
        dagger = MARKS.get(name, "")
        found = [f"{gain}{dagger}" for gain in gains(row)] if name in STUDIED else ["not studied"] * 2
        assert line == [row.have, row.last, row.choose, *found, link]
        if row.study:
            assert f"\n### {row.table}\n" in results(row.study)


def test_the_readme_gives_a_part_of_the_table():
    lines = table_of("README.md")
    rows = {row.have: row for row in SITUATIONS.values()}
    assert {"Two classes", "Three to nine classes", "Ten classes or more, long-tailed"} < {line[0] for line in lines}
    for line in lines:
        row = rows[line[0]]
        assert line == [row.have, row.last, row.choose, *gains(row), row.sure]


def test_the_figures_of_the_evidence_are_those_of_the_tables():
    text = (ROOT / "examples" / "evidence.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 180
    before, wrong = text.split("## 1. ")[1].split("## 4. Wrong labels")
    figures = re.findall(r"[+-][\d.]+ \[[^]]+\]", " ".join(before.split()))
    assert len(figures) > 60
    studies = " ".join((results("decision_study") + results("threshold_study")).split())
    assert set(figures) <= set(re.findall(r"[+-][\d.]+ \[[^]]+\]", studies))
    costs = {
        tuple(round(float(number), 1) for number in numbers)
        for numbers in re.findall(r"([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]", results("monitor_study"))
    }
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


MARKS = {
    "class weights": " \N{DAGGER}",
    "short training": " \N{DAGGER}",
    "three to nine classes": " \N{DOUBLE DAGGER}",
}
STUDIED = ["two classes", "three to nine classes", "many classes", "class weights", "short training"]
COLUMNS = {  # of the study's table, which has a row for each measure
    "Three to nine classes": "three to nine",
    "Ten classes or more, long-tailed": "ten and more",
    "Two classes, class-weighted loss": "weighted",
    "Short training (6 epochs)": "short",
}


def cell_of(situation, comparison, measure):
    """Cell of the study's table; the study of thresholds has a column for each measure."""
    text = results(situation.study).split(f"\n### {situation.table}\n")[1].split("\n### ")[0]
    head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line)
    column = COLUMNS.get(situation.have)
    first = [comparison, measure] if column else [comparison]
    (line,) = (line for line in lines if line[: len(first)] == first)
    return line[head.index(column or measure)]


def gains(situation):
    """Gains of balanced accuracy and IAM in the study's table, bold if they differ from 0."""
    rule = "last epoch, chosen rule - last epoch" if situation.have in COLUMNS else "resampled - 0.5"
    found = [cell_of(situation, rule, measure) for measure in ("balanced accuracy", "IAM")]
    return tuple(re.match(r"\**[^*=]*?\]\**", cell)[0] for cell in found)


@pytest.mark.parametrize("row", STUDIED)
def test_the_evidence_is_as_strong_as_the_number_of_units(row):
    situation = SITUATIONS[row]
    balanced_accuracy, iam = gains(situation)
    assert balanced_accuracy.startswith("**+")
    assert iam.startswith("**") == (not situation.sure.endswith("for IAM inconclusive"))
    units = int(re.search(r"\((\d+) (units|families)\)", situation.sure)[1])
    if situation.have in COLUMNS:
        assert cell_of(situation, "last epoch, chosen rule - last epoch", "IAM").endswith(f"({units})")
    else:
        assert f"({units} families)" in situation.table
    independent = units - 4 if row == "three to nine classes" else units  # of the pools it was found on
    strength = "strong" if independent >= 15 else "moderate" if independent >= 6 else "weak"
    assert situation.sure.startswith(strength)


@pytest.mark.parametrize("row", ["three to nine classes", "many classes", "class weights", "short training"])
def test_the_last_epoch_is_as_good_as_its_study_says(row):
    """The study marks a difference of less than a point by =, and one that differs from 0 by bold type."""
    cells = [cell_of(SITUATIONS[row], "own epoch - last epoch", measure) for measure in ("balanced accuracy", "IAM")]
    small, better = [" = " in cell for cell in cells], [cell.startswith("**-") for cell in cells]
    if small == [True, True]:
        expected = "as good"
    elif (small, better) == ([True, False], [False, True]):
        expected = "as good, for IAM better"
    else:
        most = max(float(re.search(r", ([+-][\d.]+)\]", cell)[1]) for cell in cells)  # that the best epoch gains
        expected = "inconclusive, but not worse by a point" if most < 1 else "inconclusive"
    assert SITUATIONS[row].last == expected


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
