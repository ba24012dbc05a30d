"""The table by situation is that of README, and the figures of README and evidence are those of the studies."""

import re
from pathlib import Path

import pytest
from rooms import SITUATIONS, situation_of

ROOT = Path(__file__).parents[2]


def results(study):
    return (ROOT / "examples" / study / "results.md").read_text(encoding="utf-8")


STUDIES = "decision_study", "deep_study", "monitor_study", "threshold_study"


def table_of(begin):
    """Rows of a table of the evidence, given the begin of its head."""
    text = (ROOT / "examples" / "evidence.md").read_text(encoding="utf-8").split(begin)[1]
    lines = text.split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def in_words(cell, units):
    """Cell of a study without its mark of small differences and its number of units, which is known."""
    assert cell.endswith(f" ({units})")
    return cell.removesuffix(f" ({units})").removesuffix(" =")


def test_the_gains_of_rules_in_the_evidence_are_those_of_the_studies():
    first, *rows, everything, earlier, value = table_of("| gain of a chosen rule over argmax |")
    families = [cell_of(*FAMILIES, ["resampled - 0.5"], measure).partition(", worst")[0] for measure in MEASURES]
    assert first == ["two classes, 52 families (study of thresholds)", *families]
    assert everything[1:] == [in_words(cell_of(*TODAY, ["all", measure], "falling"), 24) for measure in MEASURES]
    by_classes = "The same comparisons by the number of classes, falling rate"
    assert earlier[1:] == all_units(by_classes, "last epoch, chosen rule - last epoch")
    assert value[1:] == all_units(TODAYS_EPOCHS, "mean value of the last epoch")
    for (name, *cells), classes in zip(rows, ("two", "three to nine", "ten and more"), strict=True):
        units = re.search(r"(\d+) units", name)[1]
        assert cells == [in_words(cell_of(*TODAY, [classes, measure], "falling"), units) for measure in MEASURES]


def all_units(table, comparison):
    """Row of the evidence for a comparison of the study of decisions."""
    return [in_words(cell_of("decision_study", table, [comparison, measure], "all"), 24) for measure in MEASURES]


def test_the_gains_of_the_best_epoch_are_those_of_the_study():
    by_classes = "The same comparisons by the number of classes, falling rate"
    expected = [all_units(by_classes, f"own epoch - {other}") for other in ("lowest loss", "last epoch")]
    expected.append(all_units("Other monitors, without a rule, falling rate", "own epoch - best accuracy"))
    own = "own epoch, rule of today"
    expected += [all_units(TODAYS_EPOCHS, f"{own} - {other}, rule of today") for other in ("lowest loss", "last epoch")]
    assert [cells for _, *cells in table_of("| gain of the best epoch, 24 units |")] == expected


def test_the_gains_of_the_whole_advice_are_those_of_the_study():
    text = (ROOT / "examples" / "evidence.md").read_text(encoding="utf-8")
    text = text.split("- **Everything together**")[1].split("\n- ")[0]
    gains = all_units(TODAYS_EPOCHS, "own epoch, rule of today - lowest loss")
    assert figures_of(text) == [figure for cell in gains for figure in figures_of(cell)]
    assert re.findall(r"\d+\.\d(?=,| and| points)", text)[-3:] == all_units(
        TODAYS_EPOCHS, "mean value of the lowest loss"
    )


TODAYS_EPOCHS = "The own epoch with the rule of today, added when the results were known"
MEASURES = "balanced accuracy", "macro F1", "IAM"


def test_the_readme_gives_a_part_of_the_table():
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("| You have |")[1].split("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    names = {row.have: name for name, row in SITUATIONS.items()}
    assert {"Two classes", "Three to nine classes", "Ten classes or more, long-tailed"} < {line[0] for line in lines}
    for line in lines:
        row = SITUATIONS[names[line[0]]]
        assert line == [row.have, row.last, row.choose, *gains(names[line[0]]), row.sure]


def figures_of(text):
    """Means with their intervals, as numbers."""
    number = r"([+-]?\d+\.\d+)"
    found = re.findall(rf"{number} \[{number}, {number}\]", " ".join(text.split()))
    return [tuple(round(float(each), 1) for each in figure) for figure in found]


def test_the_figures_of_the_evidence_are_those_of_the_tables():
    """As they are, or as a cost that is turned into a gain."""
    text = (ROOT / "examples" / "evidence.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 165
    studies = {figure for study in STUDIES for figure in figures_of(results(study))}
    turned = {(-mean, -high, -low) for mean, low, high in studies}
    figures = figures_of(text)
    assert len(figures) > 55
    assert set(figures) <= studies | turned
    for cell in (cell for row in table_of("| gain of the best epoch | over") for cell in row[1:]):
        ((mean, low, high),) = figures_of(cell)
        assert (-mean, -high, -low) in figures_of(results("monitor_study"))
        assert cell.startswith("**") == (low * high > 0)


FAMILIES = "threshold_study", "New families, both models (52 families)"
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
        return [cell_of(*FAMILIES, ["resampled - 0.5"], each) for each in ("balanced accuracy", "IAM")]
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
