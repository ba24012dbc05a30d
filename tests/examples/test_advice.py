"""The figures of README, guide and evidence are those of the studies, or quoted from studies that were removed."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scripts import scripts_of

ROOT = Path(__file__).parents[2]


def results(study):
    return (ROOT / "examples" / study / "results.md").read_text(encoding="utf-8")


STUDIES = "decision_study", "monitor_study", "threshold_study", "wrong_labels"


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
    first, keel, *rows, everything, earlier = table_of("| gain of a chosen rule over argmax |")
    for row, number, table in ((first, "52 families", FAMILIES), (keel, "19 KEEL families", KEEL)):
        families = [cell_of(*table, ["resampled - 0.5"], measure).partition(", worst")[0] for measure in MEASURES]
        assert row == [f"two classes, {number} (study of thresholds)", *families]
    text = " ".join((ROOT / "examples" / "evidence.md").read_text(encoding="utf-8").split())
    f1 = [cell_of(*table, ["resampled - 0.5"], "F1") for table in (FAMILIES, KEEL)]
    said = [(f"{mean} [{low}, {high}]") for mean, low, high in figures_of(" ".join(f1))]
    least = re.search(r"worst (-[0-9.]+)", f1[1])[1]
    assert f"F1 gains {said[0]}, in KEEL families {said[1]} (least {least})." in text
    assert everything[1:] == [in_words(cell_of(*TODAY, ["all", measure], "falling"), 24) for measure in MEASURES]
    by_classes = "The same comparisons by the number of classes, falling rate"
    assert earlier[1:] == all_units(by_classes, "last epoch, chosen rule - last epoch")
    for (name, *cells), classes in zip(rows, ("two", "three to nine", "ten and more"), strict=True):
        units = re.search(r"(\d+) units", name)[1]
        assert cells == [in_words(cell_of(*TODAY, [classes, measure], "falling"), units) for measure in MEASURES]


def all_units(table, comparison):
    """Row of the evidence for a comparison of the study of decisions."""
    return [in_words(cell_of("decision_study", table, [comparison, measure], "all"), 24) for measure in MEASURES]


def test_the_gains_of_the_best_epoch_are_those_of_the_study():
    by_classes = "The same comparisons by the number of classes, falling rate"
    expected = [all_units(by_classes, f"own epoch - {other}") for other in ("lowest loss", "last epoch")]
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


def figures_of(text):
    """Means with their intervals, as numbers."""
    number = r"([+-]?\d+\.\d+)"
    found = re.findall(rf"{number} \[{number}, {number}\]", " ".join(text.split()))
    return [tuple(round(float(each), 1) for each in figure) for figure in found]


def test_the_figures_of_the_evidence_are_those_of_the_tables():
    """As they are, or as a cost that is turned into a gain."""
    text = (ROOT / "examples" / "evidence.md").read_text(encoding="utf-8")
    studies = {figure for study in STUDIES for figure in figures_of(results(study))}
    turned = {(-mean, -high, -low) for mean, low, high in studies}
    figures = figures_of(text)
    assert len(figures) > 45
    assert set(figures) <= studies | turned


def test_what_the_evidence_says_of_single_units_is_so():
    """By the files of the study: class weights, and the rule after a class-weighted loss."""
    with scripts_of(ROOT / "examples" / "decision_study") as script:
        report = script("report")
    _, values = report.runs_of(report.HERE)
    for pair, regimes, stratum, median, positive in (
        ((report.TODAY, report.LAST), ("falling", "weighted"), None, 0, 11),
        ((report.TODAY, report.LAST), "weighted", "two", 0.8, 13),
    ):
        gain = values.difference(pair, "balanced_accuracy", regimes)
        gains = report.array(values.by_unit(gain, values.among(stratum)))
        assert round(abs(float(np.median(gains))), 1) == median
        assert (gains > 0).sum() == positive
        text = " ".join((ROOT / "examples" / "evidence.md").read_text(encoding="utf-8").split())
        assert f"{positive} of {len(gains)} units gain" in text


def test_the_page_on_monitoring_says_of_wrong_labels_what_the_study_says():
    text = (ROOT / "examples" / "monitoring.md").read_text(encoding="utf-8").split("## Wrong labels")[1]
    found, study = figures_of(text), figures_of(results("wrong_labels"))
    gains = {name: figures_of(lowest) for name, lowest, _ in table_of("| gain of the best epoch | over the epoch")}
    assert [found[:1], found[1:2]] == [gains["validation labels wrong"], gains["training labels wrong"]]
    assert found[2:4] == [(9.6, 3.6, 21.7), (9.3, 3.8, 18.7)]
    assert len(found) == 7
    assert set(found) <= set(study)


COMMIT = "e609836"  # the last one with two studies that were removed
QUOTED = [  # what stands in a file today, and its source in the results of a removed study
    ("examples/checkpoints.md", "3.0 points of balanced accuracy [1.3, 4.3]", "monitor_study", "-2.99 [-4.30, -1.33]"),
    ("examples/checkpoints.md", "5.6 of IAM [2.6, 7.6]", "monitor_study", "-5.56 [-7.68, -2.57]"),
    ("imbtorch/lightning/checkpoint.py", "3.0 percentage points of", "monitor_study", "-2.99 [-4.30, -1.33]"),
    ("imbtorch/lightning/checkpoint.py", "5.6 of IAM (2.6 to 7.6)", "monitor_study", "-5.56 [-7.68, -2.57]"),
    ("examples/checkpoints.md", "1.0 to 1.5 of 20 epochs", "deep_study", "1.0 to 1.5 epochs of 20"),
    ("examples/monitoring.md", "by 0.2 points at most", "deep_study", "differs by at most 0.2 points"),
]


@pytest.mark.parametrize(("file", "figure", "study", "source"), QUOTED)
def test_quoted_figures_stand_in_the_file_and_in_the_commit_that_the_evidence_names(file, figure, study, source):
    evidence = (ROOT / "examples" / "evidence.md").read_text(encoding="utf-8")
    command = f"git show {COMMIT}:examples/{study}/results.md"
    assert command in evidence
    assert figure in " ".join((ROOT / file).read_text(encoding="utf-8").split())
    if (ROOT / ".git").exists():  # an sdist has no history, and a shallow clone not all of it
        done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)
        if done.returncode == 0:
            assert source in " ".join(done.stdout.split())


FAMILIES = "threshold_study", "New families, both models (52 families)"
KEEL = "threshold_study", "KEEL families with new splits, secondary (19 families)"
TODAY = "decision_study", "The rule of today (two classes: the resampled threshold), added when the results were known"
PLACES = {  # classes and regime of README's rows in the table of the rule of today
    "Two classes": ("two", "falling"),
    "Three to nine classes": ("three to nine", "falling"),
    "Ten classes or more": ("ten and more", "falling"),
}


STRENGTH = {"Three to nine classes": "weak"}  # on data that had not served to develop the rule no gain is shown


def advice():
    """Rows of README's table by their first cell."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("| You have |")[1].split("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    return {have: rest for have, *rest in lines}


def cell_of(study, table, row, column):
    """Cell of a table of a study, given the first cells of its row."""
    text = results(study).split(f"\n### {table}\n")[1].split("\n### ")[0]
    head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line)
    (line,) = (line for line in lines if line[: len(row)] == list(row))
    return line[head.index(column)]


def gain_cells(name):
    """Gains of balanced accuracy and of IAM in the studies' tables; of two classes in both studies."""
    classes, regime = PLACES[name]
    places = [(*TODAY, [classes, each], regime) for each in ("balanced accuracy", "IAM")]
    if name != "Two classes":
        return [[cell_of(*place)] for place in places]
    return [
        [cell_of(*FAMILIES, ["resampled - 0.5"], each), cell_of(*place)]
        for each, place in zip(("balanced accuracy", "IAM"), places, strict=True)
    ]


def test_the_readme_has_all_rows():
    assert list(advice()) == list(PLACES)


@pytest.mark.parametrize("name", PLACES)
def test_the_gains_of_the_readme_are_those_of_the_studies_and_as_sure_as_their_number_of_units(name):
    _, choose, *gains, sure = advice()[name]
    assert choose == ("a threshold" if PLACES[name][0] == "two" else "a logit adjustment")
    studies = [[re.match(r"\**[^*=]*?\]\**", cell)[0] for cell in cells] for cells in gain_cells(name)]
    assert gains == [", ".join(cells) for cells in studies]  # bold if they differ from 0
    balanced_accuracy, iam = gains
    assert balanced_accuracy.startswith("**+")
    assert iam.startswith("**") == sure.startswith("strong")
    units = int(re.search(r", (\d+) (units|families)", sure)[1])
    if name != "Two classes":  # whose table names them in its heading
        assert all(cell.endswith(f"({units})") for (cell,) in gain_cells(name))
    independent = units - 4 if name == "Three to nine classes" else units  # of the pools it was found on
    strength = "strong" if independent >= 15 else "moderate" if independent >= 6 else "weak"
    strength = STRENGTH.get(name, strength)
    assert sure.startswith(strength)


@pytest.mark.parametrize("name", PLACES)
def test_the_last_epoch_is_as_good_as_its_study_says(name):
    """The study marks a difference of less than a point by =, and one that differs from 0 by bold type."""
    classes, _ = PLACES[name]
    table, row = "The same comparisons by the number of classes, falling rate", "own epoch - last epoch"
    cells = [cell_of("decision_study", table, [row, measure], classes) for measure in ("balanced accuracy", "IAM")]
    small, better = [" = " in cell for cell in cells], [cell.startswith("**-") for cell in cells]
    if small == [True, True]:
        found = "equal"
    elif (small, better) == ([True, False], [False, True]):
        found = "better for IAM"
    else:
        most = max(float(re.search(r", ([+-][\d.]+)\]", cell)[1]) for cell in cells)  # that the best epoch gains
        found = "under a point" if most < 1 else "open"
    assert advice()[name][0] == LAST_EPOCH[found]


LAST_EPOCH = {  # how README says what the last epoch loses, compared with the best one
    "equal": "none, if labels are right",
    "better for IAM": "none, if labels are right; gains IAM",
    "under a point": "unclear, under a point",
    "open": "unclear",
}
