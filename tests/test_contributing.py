"""A measure is added in the four steps that the README describes: function, class, export, oracle; in a copy."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FUNCTION = '''

def jaccard_index(counts: Counts, average: ClassAverage = "macro") -> Tensor:
    r"""Jaccard index: for each class the share of right samples among those that have it as target or prediction.

    .. math:: J = \\frac1K \\sum_i \\frac{c_{ii}}{r_i + p_i - c_{ii}}

    >>> jaccard_index(torch.tensor([[8, 2], [1, 1]]), "none")
    tensor([0.7273, 0.2500], dtype=torch.float64)
    """
    tp, actual, predicted = margins(counts)
    return restore(class_mean(ratio(tp, actual + predicted - tp), actual, predicted, average), counts)
'''

CLASS = '''

class JaccardIndex(ConfusionMatrixMetric):
    """Jaccard index; formula: :func:`imbtorch.measures.jaccard_index`.

    >>> metric = JaccardIndex("multiclass", num_classes=3)
    >>> metric(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2]))
    tensor(0.6667)
    """

    higher_is_better = True
    averages = PER_CLASS
    plot_lower_bound, plot_upper_bound = 0.0, 1.0
    needs_matrix = False
    measure = staticmethod(measures.jaccard_index)
'''

REFERENCE = """def jaccard_index(matrix: Matrix, average: str = "macro") -> Value:
    return averaged(lambda tp, fn, fp, tn: Fraction(tp, tp + fn + fp), matrix, average)


"""

PEER = """
    for average in ("macro", "weighted"):
        value = of_samples(sklearn.metrics.jaccard_score, average=average, zero_division=0.0)
        yield Peer(f"jaccard_score {average}", "JaccardIndex", {"average": average}, value)
"""

FORMULA = "`c_ii / (r_i + p_i - c_ii)`, averaged"
ROW = f"| Jaccard index | `jaccard_index` | `JaccardIndex` | {FORMULA} | [0, 1] | higher | any | Jaccard 1901 |\n"

# of each step (the last two are one in the README): file, place behind or before which something is added, what
STEPS = {
    "function": [
        ("imbtorch/measures/per_class.py", "__all__ = [\n", '    "jaccard_index",\n'),
        ("imbtorch/measures/per_class.py", None, FUNCTION),
    ],
    "class": [
        ("imbtorch/metrics.py", "__all__ = [\n", '    "JaccardIndex",\n'),
        ("imbtorch/metrics.py", None, CLASS),
    ],
    "export": [
        ("imbtorch/__init__.py", "from imbtorch.measures import (\n", "    jaccard_index,\n"),
        ("imbtorch/__init__.py", "from imbtorch.metrics.catalogue import (\n", "    JaccardIndex,\n"),
        ("imbtorch/__init__.py", "__all__ = [\n", '    "JaccardIndex",\n    "jaccard_index",\n'),
    ],
    "oracle": [
        ("tests/oracles.py", "# --- of all classes -", REFERENCE),
        ("tests/oracles.py", "ORACLES: dict[str, Callable[..., Value]] = {\n", '    "JaccardIndex": jaccard_index,\n'),
        ("tests/oracles.py", "def _sklearn_peers() -> Iterator[Peer]:\n", PEER),
    ],
    "what holds of it": [
        (
            "tests/test_measures.py",
            "TRAITS = {\n",
            '    "JaccardIndex": Traits({MARGINS, SYMMETRIC, RENAMED, SCALED}, 0, 1, 1),\n',
        ),
        ("tests/test_measures.py", "\nBINARY = (", '\nAVERAGES["JaccardIndex"] = PER_CLASS'),
        ("tests/test_metric.py", "\nPER_CLASS = {", '"JaccardIndex", '),
        (
            "tests/test_metric.py",
            '        "FScore": f2,\n',
            '        "JaccardIndex": 1 / (1 / precision + 1 / recall - 1),\n',
        ),
        ("tests/test_analysis.py", "TABLE = [\n", '    (Case("JaccardIndex", {}), "+--- +++-"),\n'),
        ("README.md", "|---|---|---|---|---|---|---|---|\n", ROW),
        (
            "imbtorch/measures/README.md",
            "| `class_balance_accuracy` |",
            f"| `jaccard_index` | {FORMULA} | [0, 1] | higher | - | scikit-learn as here |\n",
        ),
    ],
}
BEFORE = (
    "# --- of all classes -",
    "\nBINARY = (",
    "| `class_balance_accuracy` |",
)  # the others stand before what is added

GENERIC = {  # tests that must have met the new measure
    "test_equals_its_reference",
    "test_equals_its_peer",
    "test_only_empty_counts_are_undefined",
    "test_value_is_the_measure_of_sklearns_matrix",
    "test_margins_serve_all_but_four",
    "test_an_ignored_class_takes_no_part_in_means",
    "test_catalogue_agrees_with_the_class",
    "imbtorch.measures.per_class.jaccard_index",
    "imbtorch.metrics.JaccardIndex",
}


def add(root, steps):
    for step in steps:
        for name, place, text in STEPS[step]:
            path = root / name
            old = path.read_text(encoding="utf-8")
            if place is None:
                new = old + text
            else:
                assert old.count(place) == 1, f"{name} has not one {place!r}: say here where a measure is added now"
                new = old.replace(place, text + place if place in BEFORE else place + text)
            path.write_text(new, encoding="utf-8")


def run(root, *tests):
    """Run the tests that speak of the new measure or of the whole catalogue in the copy."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", "-p", "no:xdist", *tests),
            *("-k", "JaccardIndex or jaccard_index or catalogue or ignored_class"),
        ],
        cwd=root,
        env={key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHONPATH"))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def copy(tmp_path):
    for folder in ("imbtorch", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_measure_in_four_steps(copy):
    add(copy, STEPS)
    code = (
        "imbtorch/measures/per_class.py",
        "imbtorch/metrics.py",
    )  # doctests; an error where imbtorch is not that of the copy
    done = run(copy, *code, *(f"tests/test_{name}.py" for name in ("measures", "metric", "analysis", "readme")))
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"::(\S+?)(\[.*\])? PASSED", done.stdout)
    assert {name for name, _ in passed} >= GENERIC
    assert sum("JaccardIndex" in which for _, which in passed) > 50


def test_without_its_oracle_the_tests_refuse_it(copy):
    add(copy, [step for step in STEPS if step != "oracle"])
    done = run(copy, "tests/test_measures.py")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = set(re.findall(r"^FAILED \S+::(\w+)", done.stdout, flags=re.MULTILINE))
    assert {"test_references_peers_traits_and_cases_cover_the_catalogue", "test_equals_its_reference"} <= failed
    assert "KeyError: 'JaccardIndex'" in done.stdout


def test_the_readme_names_every_file_of_the_steps():
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("### Add a measure")[2]
    files = {name for step in STEPS.values() for name, *_ in step} - {"README.md"}
    assert not [name for name in files if f"`{name}`" not in section]
