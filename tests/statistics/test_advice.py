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


def test_the_evidence_gives_the_table_word_for_word_and_links_to_the_figures():
    text = (ROOT / "examples" / "evidence.md").read_text(encoding="utf-8").split("| You have |")[1]
    lines = text.splitlines()[2:]
    assert len(SITUATIONS) <= 8
    for line, row in zip(lines, SITUATIONS.values(), strict=False):
        link = f"[{row.sure}]({row.study}/results.md#{anchor(row.table)})" if row.study else row.sure
        assert line == f"| {row.have} | {row.monitor} | {row.choose} | {link} |"
        if row.study:
            assert f"\n### {row.table}\n" in results(row.study)
    assert not lines[len(SITUATIONS)].startswith("|")


def test_the_readme_gives_a_part_of_the_table():
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("| You have |")[1].split("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    rows = {row.have: row for row in SITUATIONS.values()}
    assert {"Two classes", "Three to nine classes", "Ten classes or more, long-tailed"} < {line[0] for line in lines}
    for have, monitor, choose, sure in lines:
        row = rows[have]
        assert monitor == "the same" or row.monitor.startswith(monitor)
        assert row.choose.startswith(choose)
        assert row.sure == sure


def test_the_figures_of_the_evidence_are_those_of_the_tables():
    text = (ROOT / "examples" / "evidence.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 170
    before, wrong = text.split("## 1. ")[1].split("## 5. Wrong labels")
    figures = re.findall(r"[+-][\d.]+ \[[^]]+\]", " ".join(before.split()))
    assert len(figures) > 60
    studies = " ".join((results("decision_study") + results("threshold_study")).split())
    assert set(figures) <= set(re.findall(r"[+-][\d.]+ \[[^]]+\]", studies))
    shown = {
        f"{-float(mean):+.1f} [{-float(high):+.1f}, {-float(low):+.1f}]"
        for mean, low, high in re.findall(r"([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]", results("monitor_study"))
    }
    gains = re.findall(r"[+-][\d.]+ \[[^]]+\]", wrong.split("best epoch of MCC, for IAM")[0])
    assert len(gains) == 6
    assert set(gains) <= shown  # costs there, gains here


RULE, LOSS = "last epoch, chosen rule - last epoch", "own epoch - lowest loss"


@pytest.mark.parametrize(
    ("row", "column", "comparison", "measures"),
    [
        ("rare", "fewer than 10", RULE, ("balanced accuracy", "accuracy")),
        ("rare", "fewer than 10", LOSS, ("balanced accuracy", "IAM")),
        ("three to nine classes", "three to nine", RULE, ("balanced accuracy",)),
        ("three to nine classes", "three to nine", "own epoch - last epoch", ("IAM",)),
        ("many classes", "ten and more", RULE, ("balanced accuracy", "macro F1")),
        ("class weights", "weighted", LOSS, ("IAM", "accuracy")),
        ("class weights", "weighted", "last epoch, tau = 1 - last epoch", ("IAM",)),
        ("short training", "short", RULE, ("balanced accuracy", "IAM")),
    ],
)
def test_the_figures_are_those_of_the_tables(row, column, comparison, measures):
    situation = SITUATIONS[row]
    text = results(situation.study).split(f"\n### {situation.table}\n")[1].split("\n### ")[0]
    head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line)
    for measure in measures:
        (line,) = (line for line in lines if line[:2] == [comparison, measure])
        figure, units = re.fullmatch(r"\**([^*=]*?\])\**[ =]*\((\d+)\)", line[head.index(column)]).groups()
        assert figure in f"{situation.monitor} {situation.choose}"
        assert f"({units} units)" in situation.sure
        independent = int(units) - 4 if row == "three to nine classes" else int(units)  # of the pools it was found on
        strength = "strong" if independent >= 15 else "moderate" if independent >= 6 else "weak"
        assert situation.sure.startswith(strength)


def test_the_threshold_of_two_classes_is_that_of_its_study():
    situation = SITUATIONS["two classes"]
    text = results(situation.study).split(f"\n### {situation.table}\n")[1].split("\n### ")[0]
    head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line)
    (line,) = (line for line in lines if line[0] == "resampled - 0.5")
    for measure in ("balanced accuracy", "macro F1", "IAM", "MCC", "G-mean"):
        figure = re.match(r"\**([^*=]*?\])", line[head.index(measure)])[1]
        assert f"{measure} {figure}" in situation.choose
    assert line[head.index("accuracy")].split(",")[1].endswith("=")


def test_class_weights_are_told_by_classes():
    text = results("decision_study").split("\n### By regime: two classes\n")[1].split("\n### ")[0]
    head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line)
    for measure in ("balanced accuracy", "macro F1", "MCC", "IAM"):
        (line,) = (line for line in lines if line[:2] == [RULE, measure])
        figure = re.match(r"\**([^*=]*?\])", line[head.index("weighted")])[1]
        assert figure in SITUATIONS["class weights"].choose


@pytest.mark.parametrize(
    ("classes", "rarest", "row"),
    [
        (0, 3, "labels"),
        (2, 9, "rare"),
        (2, 10, "two classes"),
        (2, None, "two classes"),
        (3, 1, "three to nine classes"),
        (9, None, "three to nine classes"),
        (10, 1, "many classes"),
    ],
)
def test_the_row_that_fits_a_task(classes, rarest, row):
    assert situation_of(classes, rarest) == SITUATIONS[row]
