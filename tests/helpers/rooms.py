"""Internals of the package that tests read: the one place that a change of the layout edits.

``from rooms import held_out`` imports a name, ``from rooms import steady`` its module; either is imported when it is
asked for. The functions below read private attributes.
"""

import importlib

ROOMS = {
    "choosing.comparisons": "compare_outcomes",
    "choosing.epochs": "",
    "choosing.gate": "NOT_WORSE",
    "choosing.halves": "",
    "choosing.looks": "LooksFile quantile_of_look",
    "choosing.outcomes": "JointOutcomes checked_outcomes",
    "counting.arguments": "computed_on_cpu",
    "counting.batches": "Batch FAULTS",
    "counting.clusters": "BUCKETS bucket_of_each",
    "counting.kernels": "below",
    "counting.tasks": "Counting",
    "counts": "normalized",
    "deciding.adjusted_margins": "AdjustedMargins",
    "deciding.adjustments": "Adjustments",
    "deciding.costs": "checked_costs",
    "deciding.curves": (
        "area area_interval average_precision average_precision_interval matrices_of partial_area_at "
        "precision_influence unresolved"
    ),
    "deciding.histogram": "Grid bins_of",
    "deciding.money": "",
    "deciding.steady": "counts_at gain_interval held_out single_threshold steady_threshold",
    "deciding.sweep_settings": "",
    "deciding.thresholds": "InfeasibleError Limit PROPORTIONS promised",
    "intervals.baselines": "",
    "intervals.class_means": "bounds_of_mean bounds_of_recalls class_variances recall_weights shared_worth",
    "intervals.draws": "",
    "intervals.weighted": "effective_counts posterior_of_weights",
    "intervals.intervals": "HEAVY jackknife largest_cluster posterior_of quantiles",
    "lightning.checkpoint": "TieRule",
    "lightning.drawings": "drawings",
    "lightning.monitor_guard": "",
    "measures.named": "measure_of_counts resolved",
    "measures.traits": "CATALOGUE by_key direction_of needs_matrix short_name traits_of",
    "metrics.base": "MetricArguments TorchmetricsArguments",
    "metrics.catalogue": "",
    "metrics.flat_monitors": "is_harmed never_predicted",
    "metrics.single": "METRICS",
    "metrics.seen_samples": "SeenSamples same_samples",
    "metrics.state": "check_cell",
    "papers.dominance": "equal_area_gmean feasible greatest_gmean greatest_value largest_trapezium space_points",
    "plots.curves": ("least_precision precision_recall_isometrics precision_recall_points roc_isometrics roc_points"),
    "plots.style": "probability",
    "predictions.command_line": "",
    "predictions.compare": "",
    "reports.files": "digest_of",
    "predictions.files": "",
    "predictions.label_bounds": "",
    "predictions.parser": "",
    "predictions.report": "",
    "predictions.scores": "",
    "predictions.sources": "",
    "reports.readings": "Readings",
    "suggestions": "OF_SCORES PUBLIC_MODULES SYNONYMS did_you_mean",
    "tables": "Cell Table aligned printable replace_file",
    "deciding.ties": "as_good_as_best best_first index_to_keep",
    "waiting": "announced",
}
PLACES = {name: module for module, names in ROOMS.items() for name in names.split()}
MODULES = {module.rpartition(".")[2]: module for module in ROOMS}


def __getattr__(name):
    """Return an internal name or module."""
    if name in PLACES:
        return getattr(importlib.import_module(f"imbtorch.{PLACES[name]}"), name)
    if name in MODULES:
        return importlib.import_module(f"imbtorch.{MODULES[name]}")
    raise AttributeError(f"tests/helpers/rooms.py has no {name!r}; add it to the module in which it lives")


def state_of(metric):
    """Return the tensor in which a metric counts, not a copy."""
    return metric._state


def state_name(metric):
    """Return the name of the state, which differs between metrics that count differently."""
    return metric._state_name


def settings_text(metric):
    """Return the text that processes compare before they sum."""
    return metric._settings_text()


def counter_of(metric):
    """Return the object that counts the batches of a metric."""
    return metric._counter


def measure_of(metric):
    """Return the measure of a metric or a sweep, with its average and arguments."""
    return metric._measure


def buckets_of(result):
    """Return the counts of each bucket of clusters of a sweep's result."""
    return result._buckets


def times_of(adjustments):
    """Return how often each resample holds each bucket."""
    return adjustments._times


def classes_at_each_tau(counter, logits):
    """Return the class that an adjustment sweep's counter chooses at each tau, as it does on another device."""
    return counter._chosen(logits)


def objective_of(sweep):
    """Return what a sweep maximises for its first label."""
    return sweep._settings.objective(0)
