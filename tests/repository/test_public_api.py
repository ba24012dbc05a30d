"""What users may import, name by name: whatever is added, renamed or lost shows here."""

import ast
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import surface

import imbtorch

METRICS = """
Accuracy AccuracyDominanceArea AdjustedBalancedAccuracy BalancedAccuracy BottomLine ClassBalanceAccuracy CohenKappa
ConfusionEntropy Dominance ExpectedCost FScore FowlkesMallows GeometricMean ImbalanceAccuracy IndexBalancedAccuracy
Jaccard LikelihoodRatio MacroAveragedAbsoluteError Markedness MatthewsCorrCoef NegativePredictiveValue NetBenefit
OptimizedPrecision P4 Precision Recall RelativeClassifierInformation Specificity WeightedAccuracy ConfusionMatrix
ConfusionMatrixMetric HandTill ImbalanceReport LogitAdjustmentSweep ThresholdSweep
"""
MEASURES = """
accuracy accuracy_dominance_area adjusted_balanced_accuracy balanced_accuracy bottom_line class_balance_accuracy
cohen_kappa confusion_entropy dominance expected_cost f_score fowlkes_mallows geometric_mean imbalance_accuracy
index_balanced_accuracy jaccard likelihood_ratio macro_averaged_absolute_error markedness matthews_corrcoef
negative_predictive_value net_benefit optimized_precision p4 precision recall relative_classifier_information
specificity weighted_accuracy
"""
NAMES = {
    "imbtorch": METRICS
    + MEASURES
    + """
        Cell Counts ExactBatchSampler InfeasibleError LogitAdjustment LogitAdjustmentResult Margins Predictions
        ReportResult ReportedValue Row SweepResult Table Threshold at_prevalence cluster_ids confusion_matrix margins
        merge_classes one_vs_rest merge_results open_result report shot_groups
    """,
    "imbtorch.measures": MEASURES,
    "imbtorch.statistics": """
        AdjustmentPoint Calibration ChosenEpoch Comparison CostPoint Estimate Interval LabelPlan OperatingPoint Runs
        RunsByMeasure Selection Verdict beats_baseline bootstrap compare compare_groups mean_auc over_images over_runs
        paired_compare
        partial_auc posterior samples_needed select_epoch select_model skill trivial undominated
    """,
    "imbtorch.papers": """
        Correlations InvarianceTable PrevalenceCurves SOKOLOVA SensitivityCurves effective_skew_ratio
        implied_cost invariance_table invariances measure_correlations perturbed_scores
        plot_accuracy_dominance plot_correlations plot_dominance_curve plot_prevalence plot_sensitivity
        plot_skew_map prevalence_curves sensitivity_curves skew skew_delta skew_map skew_ratio
    """,
    "imbtorch.plots": """
        plot_confusion_matrix plot_precision_recall plot_roc plot_selection plot_sweep plot_values
    """,
    "imbtorch.huggingface": "compute_metrics",
    "imbtorch.lightning": """
        ConfusionFigures ExactBatchSampler ModelCheckpoint MonitorGuard SelectionSummary TiesCheckpoint
        ValidationHistory unguarded
    """,
}


@pytest.mark.parametrize("module", NAMES)
def test_these_names_are_public(module):
    found = importlib.import_module(module)
    assert sorted(found.__all__) == sorted(NAMES[module].split())
    assert all(getattr(found, name) is not None for name in found.__all__)


def test_names_are_imported_from_where_type_checkers_see_them():
    """Names that are imported when they are first read stand twice: in a table, and in imports for type checkers."""
    tree = ast.parse(Path(imbtorch.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if ast.unparse(node).startswith("if TYPE_CHECKING:\n"))
    found = {}
    for node in checked.body:
        for alias in node.names if node.module != "imbtorch" else ():
            names = importlib.import_module(node.module).__all__ if alias.name == "*" else [alias.name]
            found |= dict.fromkeys(names, node.module)
    assert found == {name: f"imbtorch.{module}" for name, module in imbtorch._PLACES.items()}
    assert list(imbtorch.__all__) == sorted(found)


def test_the_whole_surface_is_that_of_the_file():
    """Signatures and methods too, so that each addition shows in a diff."""
    remedy = "run `python tests/helpers/surface.py` and look at the diff of tests/helpers/public_surface.txt"
    assert surface.FILE.read_text(encoding="utf-8") == surface.text(), remedy


def test_hints_of_all_that_is_public_can_be_read_but_of_pictures():
    """Tools that build forms, commands or documentation from annotations need the types behind them."""
    read = 0
    for module in NAMES.keys() - {"imbtorch.plots", "imbtorch.papers"}:  # which name Axes of matplotlib
        for owner in (getattr(importlib.import_module(module), name) for name in NAMES[module].split()):
            methods = inspect.getmembers(owner, inspect.isfunction) if inspect.isclass(owner) else [("", owner)]
            for name, each in methods:
                if str(each.__module__).startswith("imbtorch.") and (name == "__init__" or name[:1] != "_"):
                    read += bool(typing.get_type_hints(each))
    assert read > 500


def test_a_name_means_the_same_wherever_it_is_imported_from():
    everything = importlib.import_module("imbtorch")
    part = importlib.import_module("imbtorch.measures")
    assert not [name for name in part.__all__ if getattr(everything, name) is not getattr(part, name)]


def is_public(path):
    """Return whether a dotted name is exported by its module, or a method of a class that is."""
    home, _, name = path.rpartition(".")
    if home in NAMES:
        return name in importlib.import_module(home).__all__
    home, _, owner = home.rpartition(".")
    return is_public(f"{home}.{owner}") and hasattr(getattr(importlib.import_module(home), owner), name)


def test_the_first_page_of_the_reference_names_some_thirty():
    page = Path(__file__).parents[2] / ".github" / "docs" / "api" / "first.md"
    if not page.exists():
        pytest.skip("needs the sources of the site, which an sdist leaves out")
    text = page.read_text(encoding="utf-8")
    names = re.findall(r"{\w+}`([\w.]+)`", text)
    assert 25 <= len(names) == len(set(names)) <= 35
    assert [name for name in names if not is_public(name)] == []
    arguments = list(inspect.signature(importlib.import_module("imbtorch").ImbalanceReport).parameters)[:8]
    assert all(f"`{argument}`" in text for argument in arguments)  # those that its signature and docstring show first


def test_public_modules_are_read_without_an_import_of_their_own():
    """All questions about imports, in one fresh process; a module that is not read is not imported."""
    lines = (
        "import sys, imbtorch",
        "unwanted = 'duckdb narwhals pandas pyarrow lightning sklearn imbtorch.predictions.command_line'",
        "assert not [name for name in unwanted.split() if name in sys.modules]",
        "from imbtorch.suggestions import PUBLIC_MODULES",
        "lazy = ['imbtorch.papers', 'imbtorch.plots', 'imbtorch.lightning', 'imbtorch.huggingface']",
        "assert not [name for name in lazy if name in sys.modules]",
        "assert imbtorch.plots.plot_roc and imbtorch.papers.skew and imbtorch.statistics.compare",
        "assert 'imbtorch.lightning' not in sys.modules",
        "assert all(getattr(imbtorch, name[9:]).__all__ for name in PUBLIC_MODULES[1:])",
    )
    done = subprocess.run((sys.executable, "-c", "\n".join(lines)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match=r"no attribute 'statistic'; did you mean 'statistics'\?"):
        _ = imbtorch.statistic


def test_the_help_of_the_package_begins_with_the_page_of_all_names():
    head = pydoc.plain(pydoc.render_doc(imbtorch)).splitlines()[:12]
    assert any("All names" in line for line in head)
