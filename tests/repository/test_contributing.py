"""A measure is added in five edits, as CONTRIBUTING.md describes: formula, class, names, oracle and row; in a copy."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORMULAS, CLASSES, EXPORTS, ORACLES, CATALOGUE = (
    "imbtorch/measures/per_class.py",
    "imbtorch/metrics/catalogue.py",
    "imbtorch/__init__.py",
    "tests/helpers/oracles.py",
    "imbtorch/measures/README.md",
)

FORMULA = '''

@catalogued("kulczynski", higher_is_better=True, value_range=(0, 1), averages=PER_CLASS)
def kulczynski_similarity(counts: Counts, average: ClassAverage = "macro") -> Tensor:
    r"""Kulczynski similarity: for each class the mean of precision and recall.

    .. math:: S = \\frac1{2K} \\sum_i \\left( \\frac{c_{ii}}{r_i} + \\frac{c_{ii}}{p_i} \\right)

    Args:
        counts: ``[..., K, K]`` counts or rates, or :class:`~imbtorch.counts.Margins`.
        average: see :func:`precision`.

    Returns:
        ``[...]`` in [0, 1], higher is better; 0 for a class without right predictions.

    Source: Kulczynski (1927).

    >>> kulczynski_similarity(torch.tensor([[8, 2], [1, 1]]), "none")
    tensor([0.8444, 0.4167], dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    values = (ratio(tp, actual) + ratio(tp, predicted)) / 2
    return restore(class_mean(values, actual, predicted, average), counts)
'''

CLASS = '''

class KulczynskiSimilarity(ConfusionMatrixMetric):
    """Kulczynski similarity; formula: :func:`imbtorch.measures.kulczynski_similarity`.

    >>> metric = KulczynskiSimilarity("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.8333)
    """

    measure = staticmethod(measures.kulczynski_similarity)
'''

ORACLE = """

def kulczynski_similarity(matrix: Matrix, average: str = "macro") -> Value:
    return averaged(lambda tp, fn, fp, tn: (quotient(tp, tp + fn) + quotient(tp, tp + fp)) / 2, matrix, average)


def mean_of_both(target, preds):
    both = sklearn.metrics.precision_recall_fscore_support(target, preds, zero_division=0.0)[:2]
    return np.mean(both, axis=0).tolist()


FACTS["KulczynskiSimilarity"] = Facts(kulczynski_similarity, OF_EACH, "+--- -- +++-", 0, 1, 1)
value = of_samples(mean_of_both)
PEERS.append(Peer("KulczynskiSimilarity", "KulczynskiSimilarity", {"average": "none"}, value, all_classes_present))
"""

ROW = (
    "| Kulczynski similarity | `kulczynski_similarity` | `KulczynskiSimilarity` | `(P_i + R_i) / 2` | [0, 1] | higher "
    "| 0 | the mean of scikit-learn's two | Kulczynski 1927 |"
)

GENERIC = {  # tests that must have met the new measure
    "test_facts_peers_and_cases_cover_the_catalogue",
    "test_metric_classes_know_their_measure",
    "test_equals_its_reference",
    "test_equals_its_peer",
    "test_only_empty_counts_and_absent_classes_are_undefined",
    "test_value_is_the_measure_of_sklearns_matrix",
    "test_margins_serve_those_that_the_facts_name",
    "test_an_ignored_class_takes_no_part_in_means",
    "test_invariances_in_exact_arithmetic",
    "test_catalogue_agrees_with_the_class",
    "imbtorch.measures.per_class.kulczynski_similarity",
    "imbtorch.metrics.catalogue.KulczynskiSimilarity",
}


def insert(path, line, text):
    """Insert text behind a line, counted from 1."""
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:line], *text.splitlines(), *lines[line:]]) + "\n", encoding="utf-8")


def define(path, kind, name, code):
    """Insert a definition behind the last of its kind, and export it."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    insert(path, max(node.end_lineno for node in body if isinstance(node, kind)), code)
    (exported,) = [node.value for node in body if ast.unparse(node).startswith("__all__ = ")]
    insert(path, exported.elts[-1].end_lineno, f'    "{name}",')


def replace_in(path, *pairs):
    """Replace texts of a file."""
    text = path.read_text(encoding="utf-8")
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def last_row(path, heading):
    """Line of the last row of the table below a heading, counted from 1."""
    lines = path.read_text(encoding="utf-8").splitlines()
    end = lines.index(heading)
    while not lines[end].startswith("|"):
        end += 1
    while lines[end].startswith("|"):
        end += 1
    return end


# each of the five edits, by the file that it changes
EDITS = {
    FORMULAS: lambda path: define(path, ast.FunctionDef, "kulczynski_similarity", FORMULA),
    CLASSES: lambda path: define(path, ast.ClassDef, "KulczynskiSimilarity", CLASS),
    EXPORTS: lambda path: replace_in(
        path,
        ("likelihood_ratio ", "kulczynski_similarity likelihood_ratio "),
        ("LikelihoodRatio ", "KulczynskiSimilarity LikelihoodRatio "),
    ),
    ORACLES: lambda path: path.write_text(path.read_text(encoding="utf-8") + ORACLE, encoding="utf-8"),
    CATALOGUE: lambda path: insert(
        path, last_row(path, "## Per-class measures and their averages (`per_class.py`)"), ROW
    ),
}


def run(root, *tests):
    """Run the tests that speak of the new measure or of the whole catalogue in the copy."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", "-p", "no:xdist", *tests),
            *("-k", "KulczynskiSimilarity or kulczynski_similarity or catalogue or ignored_class"),
        ],
        cwd=root,
        env={key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHONPATH"))},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def copy(tmp_path):
    for folder in ("imbtorch", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    return tmp_path


@pytest.mark.slow
def test_a_measure_in_five_edits(copy):
    for name, edit in EDITS.items():
        edit(copy / name)
    metrics = (f"tests/metrics/test_{name}.py" for name in ("base", "catalogue", "single"))
    done = run(copy, FORMULAS, CLASSES, "tests/measures", "tests/papers", *metrics)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"::(\S+?)(\[.*\])? PASSED", done.stdout)
    assert {name for name, _ in passed} >= GENERIC
    assert sum("KulczynskiSimilarity" in which for _, which in passed) > 40


@pytest.mark.slow
def test_without_oracle_and_row_the_tests_refuse_it(copy):
    for name in (FORMULAS, CLASSES, EXPORTS):
        EDITS[name](copy / name)
    done = run(copy, "tests/measures/test_measures.py", "tests/metrics/test_catalogue.py")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = set(re.findall(r"^FAILED \S+::(\w+)", done.stdout, flags=re.MULTILINE))
    assert failed == {
        "test_facts_peers_and_cases_cover_the_catalogue",
        "test_catalogue_has_one_row_for_each_metric_and_measure",
        "test_iba_takes_a_function_or_a_name",  # of which it asks the oracle
    }


def test_the_page_names_every_file_of_the_edits():
    page = ROOT / ".github" / "CONTRIBUTING.md"
    section = page.read_text(encoding="utf-8").partition("## Add a measure")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\d\. ", section, flags=re.MULTILINE)) == len(EDITS) == 5
    assert not [name for name in EDITS if f"`{name}`" not in section]
