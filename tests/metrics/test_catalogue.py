"""The catalogue of the measures is held against the package: a row for each, with its range and direction."""

import re
from pathlib import Path

import pytest
from cases import NEED_MATRIX, build, of_kind
from oracles import FACTS, OF_EACH, OF_POSITIVE

import imbtorch
from imbtorch import measures
from imbtorch.metrics import catalogue as metrics

CATALOGUE = Path(measures.__file__).parent / "README.md"  # an installed package has none: it holds code alone


def catalogue() -> list[dict[str, str]]:
    """Rows of the tables of measures, each with the file of the formulas that its table is of."""
    rows = []
    text = CATALOGUE.read_text(encoding="utf-8") if CATALOGUE.is_file() else ""
    for file, part in re.findall(r"^## [^\n]*\(`(\w+\.py)`\)\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE):
        lines = [line for line in part.splitlines() if line.startswith("|")]
        head, _, *cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        rows += [dict(zip(head, row, strict=True), file=file) for row in cells]
    return rows


def test_catalogue_has_one_row_for_each_metric_and_measure():
    rows = catalogue()
    assert sorted(row["Class"].strip("`") for row in rows) == sorted(metrics.__all__)
    assert sorted(row["Function"].strip("`") for row in rows) == sorted(measures.__all__)
    assert all(row[column] for row in rows for column in row)
    for module in (measures.overall, measures.per_class, measures.two_classes):
        there = [row["Function"].strip("`") for row in rows if row["file"] == Path(module.__file__).name]
        assert sorted(there) == sorted(module.__all__)


@pytest.mark.parametrize("row", catalogue(), ids=lambda row: row["Class"].strip("`"))
def test_catalogue_agrees_with_the_class(row):
    name = row["Class"].strip("`")
    cls = getattr(imbtorch, name)
    assert cls.measure is getattr(imbtorch, row["Function"].strip("`"))
    assert cls.higher_is_better is {"higher": True, "lower": False, "neither": None}[row["Better"]]
    assert cls.binary_only is (row["file"] == "two_classes.py")
    assert bool(cls.averages) is (row["file"] == "per_class.py")
    bounds = {"any": (None, None), "0 or more": (0.0, None)}.get(row["Range"])
    if "K" in row["Range"]:
        return  # a picture has the bounds of any K
    if bounds is None:
        bounds = tuple(float(end) for end in row["Range"].strip("[]").split(","))
    assert (cls.plot_lower_bound, cls.plot_upper_bound) == bounds


def test_facts_know_which_have_a_positive_class():
    of_each = {row["Class"].strip("`") for row in catalogue() if row["file"] == "per_class.py"}
    assert of_each - set(of_kind(OF_POSITIVE)) == set(of_kind(OF_EACH))
    assert {name for name in metrics.__all__ if "binary" in getattr(imbtorch, name).averages} == set(
        of_kind(OF_POSITIVE)
    )


@pytest.mark.parametrize("name", FACTS)
def test_margins_serve_those_that_the_facts_name(name):
    if name in NEED_MATRIX:
        with pytest.raises(ValueError, match="state='matrix'"):
            build(name, "multiclass", 2, state="margins")
    else:
        build(name, "multiclass", 2, state="margins")
