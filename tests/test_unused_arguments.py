"""An argument changes every number that it could change, or is refused: pairs of arguments, over all public calls.

Each call computes many numbers, and each first argument is added to it. A number that stays as it was, or is missing,
needs a reason in :data:`REASONS`; a number with a reason must stay as it was.
"""

import re
from functools import partial

import numpy as np
import pytest
import torch

import imbtorch
from imbtorch import ImbalanceReport, LogitAdjustmentSweep, ThresholdSweep
from imbtorch.statistics import bootstrap, compare, over_runs, paired_compare, posterior, samples_needed, select_epoch

SAMPLES = 240
CLUSTER = torch.arange(30).repeat_interleave(8)
GROUP = torch.arange(SAMPLES) % 3
SIZES = {"binary": {}, "multiclass": {"num_classes": 3}, "multilabel": {"num_labels": 2}}
SHARES = {"binary": [0.9, 0.1], "multiclass": [0.8, 0.19, 0.01], "multilabel": [0.05, 0.6]}


def drawn():
    """Targets and logits of three classes in clusters of samples that resemble each other."""
    rng = np.random.default_rng(3)
    target = np.clip(np.round(0.3 + rng.normal(size=30)[CLUSTER] + 0.8 * rng.normal(size=SAMPLES)), 0, 2).astype(int)
    of_cluster = rng.normal(size=(30, 3))[CLUSTER]
    logits = np.eye(3)[target] + 0.6 * of_cluster + rng.normal(size=(SAMPLES, 3))
    return torch.tensor(target), torch.tensor(logits)


TARGET, LOGITS = drawn()
PREDS = LOGITS.argmax(1)
OTHERS = [(LOGITS + torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(n))).argmax(1) for n in range(6)]
LIGHT = 1.0 + (PREDS == TARGET) * (TARGET + 1) + (torch.arange(SAMPLES) % 7 == 0)  # other shares, fewer errors
DATA = {
    "binary": (torch.sigmoid(LOGITS[:, 1] - 1), (TARGET == 1).long()),
    "multiclass": (LOGITS.softmax(1), TARGET),
    "multilabel": (torch.sigmoid(LOGITS[:, :2] - 1), torch.stack((TARGET == 0, TARGET == 1), 1).long()),
}


def seeded():
    return torch.Generator().manual_seed(0)


def of_interval(name, interval):
    """Return the parts of an interval by name."""
    parts = {part: getattr(interval, part).reshape(-1).tolist() for part in ("estimate", "low", "high")}
    return {f"{name} {part} {at}": value for part, some in parts.items() for at, value in enumerate(some)}


def of_table(table):
    """Return the cells of a table by name."""
    return {
        f"table {name} {column}": float(cell)
        for rows in table.blocks.values()
        for name, row in rows.items()
        for column, cell in row.items()
    }


# --- calls: each returns numbers by name, given the first arguments ---------------------------------------------------


def saved(task, output, **first):
    """Numbers of a report of saved predictions."""
    preds, target = (each.numpy() for each in DATA[task])
    result = imbtorch.report(preds=preds, target=target, **(output | first))
    return {name: float(value) for name, value in result.values.items()}


def prepared(task, first):
    """Return predictions and targets, what the constructor takes and what update takes."""
    made = dict(first)
    preds, target = DATA[task]
    if made.pop("ignored", False):
        target = torch.where((torch.arange(SAMPLES) % 5 == 3).view(-1, *[1] * (target.ndim - 1)), -1, target)
        made["ignore_index"] = -1
    updated = {name: made.pop(name) for name in ("cluster", "weight", "frequency") if name in made}
    return preds, target, made, updated


def trained(task, output, **first):
    """Numbers of a report of a training."""
    preds, target, made, updated = prepared(task, first)
    level = made.pop("level", 0.95)
    report = ImbalanceReport(task, **SIZES[task], **output, **({"clusters": False} | made))
    report.update(preds, target, **updated, **({"group": GROUP} if "groups" in output else {}))
    found = {name: value.item() for name, value in report.compute().items()}
    for name in ("f1", "recall/1") if output.get("intervals") else ():
        found |= of_interval(f"interval({name})", report.interval(name, level=level, generator=seeded()))
    return found


def swept(task, output, methods=(), **first):
    """Numbers of a sweep of thresholds."""
    preds, target, made, updated = prepared(task, first)
    level = made.pop("level", 0.95)
    sweep = ThresholdSweep("f1", 201, task, **SIZES[task], **output, **made)
    sweep.update(preds, target, **updated)
    found = {name: value.item() for name, value in sweep.compute().items()}
    for name in methods:
        found |= of_interval(f"interval({name})", sweep.interval(name, level=level, generator=seeded()))
    if methods:
        found |= of_interval("gain", sweep.gain(level, seeded()))
        curves = (*sweep.result().roc(), *sweep.result().precision_recall(), sweep.result().curve()[1])
        found |= dict(zip(("fpr", "tpr", "hits", "precisions", "values"), (_sum(each) for each in curves), strict=True))
        found |= of_table(sweep.table())
    return found


def _sum(values):
    return values.double().nan_to_num().sum().item()


def best(task, constraints, **first):
    """Numbers of an operating point."""
    preds, target, made, updated = prepared(task, first)
    made.pop("level", None)
    sweep = ThresholdSweep("f1", 201, task, **SIZES[task], **made)
    sweep.update(preds, target, **updated)
    points = sweep.best(**constraints, generator=seeded())
    found = {}
    for name, point in points.items() if isinstance(points, dict) else [("", points)]:
        names = ("threshold", "value", "recall", "precision", "alerts")
        found |= {f"point {name} {each}": getattr(point, each) for each in names}
        found |= {f"point {name} holds {each}": chance for each, chance in point.holds.items()}
    return found


def adjusted(output, **first):
    """Numbers of a sweep of logit adjustments."""
    preds, target, made, updated = prepared("multiclass", first)
    level = made.pop("level", 0.95)
    sweep = LogitAdjustmentSweep("balanced_accuracy", **({"prior": [9, 3, 1]} | output | made))
    sweep.update(preds, target, **updated)
    found = {name: value.item() for name, value in sweep.compute().items()}
    found |= of_interval("gain", sweep.gain(level, seeded()))
    point, (_, curve) = sweep.best(measure="f1"), sweep.result().curve("recall/1")
    found |= {"point value": point.value, "point plain": point.plain, "curve": _sum(curve)}
    return found


def counted(preds, clusters=False):
    cells = torch.nn.functional.one_hot(3 * TARGET + preds, 9)
    return cells.reshape(30, 8, 3, 3).sum(1) if clusters else cells.sum(0).reshape(3, 3)


def drawn_by(function, measure, **first):
    """Numbers of posterior and bootstrap."""
    clusters = {"clusters": True} if first.get("clusters") else {}
    return of_interval("", function(measure, counted(PREDS, bool(clusters)), generator=seeded(), draws=500, **first))


def compared(function, measure, **first):
    """Numbers of a comparison of two models."""
    if function is compare:
        given = (counted(PREDS), counted(OTHERS[0]))
    elif measure in ("auc", "average_precision"):
        given = (LOGITS[:, 1], LOGITS[:, 1] - 0.7 * LOGITS[:, 0], (TARGET == 1).long())
    else:
        given = (PREDS, OTHERS[0], TARGET, 3)
    found = function(measure, *given, generator=seeded(), draws=500, **first)
    return of_interval("", found.difference) | {"probability": found.probability.item()}


def over_seeds(measure, **first):
    """Numbers of models over seeds."""
    runs = {"a": OTHERS[:3], "b": OTHERS[3:]}
    found = over_runs(runs, TARGET, measure, generator=seeded(), draws=300, **first)
    return {
        name: value
        for key, each in (found.models | found.differences).items()
        for name, value in of_interval(str(key), each).items()
    }


def epoch(measure, **first):
    """Numbers of the choice of an epoch."""
    found = select_epoch(torch.stack(OTHERS), TARGET, measure, generator=seeded(), draws=500, **first)
    numbers = {"value": found.value, "corrected": found.corrected, "shortfall": found.shortfall}
    return numbers | of_interval("interval", found.interval)


def needed(measure, **first):
    """Number of samples."""
    rates = counted(PREDS).double()
    given = {"prevalence": torch.tensor([0.6, 0.3, 0.1]), "test_sets": 40, "draws": 100}
    return {"samples": float(samples_needed(measure, rates, width=0.2, **(given | first)))}


# --- pairs ------------------------------------------------------------------------------------------------------------

MEASURES = ["iam", "accuracy", "f1", "mcc", "balanced_accuracy"]
LIMITS = {"at_least": {"recall": 0.6}}
COSTS = {"costs": [[0, 1], [3, 0]]}
COUNTED = {
    "cluster": {"cluster": CLUSTER, "clusters": True},
    "weight": {"weight": LIGHT, "weighted": True},
    "frequency": {"frequency": LIGHT.long()},
    "ignored": {"ignored": True},
}


def calls():
    """Yield the name of a call, the call, and its first arguments by name."""
    for task in SIZES:
        auc, of = ("auc", "average_precision"), "" if task == "binary" else "/1"
        shares, several = {"prevalence": {"prevalence": SHARES[task]}}, task == "multiclass"
        given = {"cluster": {"cluster": CLUSTER.numpy()}, "weight": {"weight": LIGHT.numpy()}} | shares
        for name, output in {
            "values": {"measures": MEASURES},
            "intervals": {"measures": MEASURES, "intervals": True},
            "areas": {"intervals": [f"{each}{of}" for each in auc]},
            "area": {"intervals": [f"auc{of}"]},
        }.items():
            yield f"report {task}: {name}", partial(saved, task, output), given
        for name, output in {
            "values": {"per_class": ["f1", "precision", "npv"], "class_groups": {"a": [0, 1]}},
            "intervals": {"per_class": ["recall", "iou"], "intervals": ["f1", "recall/1", "accuracy"]},
            "groups": {"groups": ["p", "q", "r"]},
            "groups and intervals": {"groups": ["p", "q", "r"], "intervals": True},
        }.items():
            given = COUNTED | shares | ({"level": {"level": 0.8}} if name == "intervals" else {})
            given |= {} if several else {"threshold": {"threshold": 0.4}}
            yield f"ImbalanceReport {task}: {name}", partial(trained, task, output), given
        level = {"level": {"level": 0.8}}
        given = COUNTED | shares
        for name, output in {"values": {"also": (*auc, "partial_auc")}, "limits": LIMITS, "costs": COSTS}.items():
            yield f"ThresholdSweep {task}: {name}", partial(swept, task, output), given
        methods = ("value", "threshold", "auc", "partial_auc")
        yield f"ThresholdSweep {task}: methods", partial(swept, task, {}, methods), given | level
        for name, constraints in {"best": {}, "limits": LIMITS, "sure": LIMITS | {"sure": 0.8}, "costs": COSTS}.items():
            yield f"ThresholdSweep {task}: point, {name}", partial(best, task, constraints), given
    given = {name: each for name, each in COUNTED.items() if name != "cluster"}
    given |= {"cluster": {"cluster": CLUSTER}, "prior": {"prior": [90, 5, 1]}, "level": {"level": 0.8}}
    given["frequency"] = {"frequency": LIGHT.long(), "cluster": torch.arange(SAMPLES)}
    for name, output in {"values": {}, "limits": {"at_least": {"recall/2": 0.3}}}.items():
        yield f"LogitAdjustmentSweep: {name}", partial(adjusted, output), given
    level, totals = {"level": {"level": 0.8}}, {"totals": {"totals": "fixed"}}
    prior, lower = {"prior": {"prior": "uniform"}}, {"lower is better": {"higher_is_better": False}}
    ids = {"cluster": {"cluster": CLUSTER}}
    for measure in ("iam", "f1"):
        for function, given in {
            posterior: level | totals | prior,
            bootstrap: level | {"cluster": {"clusters": True}, "stratified": {"stratified": True}},
        }.items():
            yield f"{function.__name__}: {measure}", partial(drawn_by, function, measure), given
        given = level | totals | prior | lower
        yield f"compare: {measure}", partial(compared, compare, measure), given
        yield f"over_runs: {measure}", partial(over_seeds, measure), level | ids
        yield f"select_epoch: {measure}", partial(epoch, measure), level | ids | {"repeats": {"repeats": 20}}
    for measure in ("iam", "f1", "auc", "average_precision"):
        given = level | totals | lower | ids
        yield f"paired_compare: {measure}", partial(compared, paired_compare, measure), given
    shares = {"prevalence": {"prevalence": torch.tensor([0.9, 0.09, 0.01])}, "assurance": {"assurance": 0.2}}
    yield "samples_needed: iam", partial(needed, imbtorch.imbalance_accuracy), level | shares


INTERVAL = r"(_| )(low|high)\b"
REASONS = [  # first argument, call, number, why it stays as it was or is missing
    ("cluster", "report|ImbalanceReport", rf"^(?!gain|threshold|interval|.*{INTERVAL})|estimate", "only intervals do"),
    ("cluster", "report .*: intervals", rf"^(auc|average_precision)(/\w+)?{INTERVAL}", "documented to have none"),
    ("weight", "report .*: intervals", rf"^(auc|average_precision)(/\w+)?{INTERVAL}", "documented to have none"),
    ("cluster", "report .*: rule|ThresholdSweep",
     "^(gain(?!.*(low|high))|value|interval.value. estimate|table .* (value|corrected)|point (?!.*holds))",
     "follows from the threshold, which can stay the same"),
    ("cluster", "ThresholdSweep", "^(auc|average_precision|interval.auc. estimate|fpr|tpr|hits|precisions|values$)",
     "values of all samples do not depend on clusters"),
    ("cluster", "ThresholdSweep", "(positives|alerts)$", "values of all samples do not depend on clusters"),
    ("cluster", "LogitAdjustmentSweep", "^(value|gain estimate|point|curve)", "follows from tau, which can stay"),
    ("prevalence", "", r"^(interval\()?(recall|balanced_accuracy|gmean|iba|auc)", "depends on no class shares"),
    ("prevalence", "ThresholdSweep", "^(fpr|tpr)|positives$|^point .* (holds )?recall$", "depends on no class shares"),
    ("prevalence", "report .*: intervals", rf"^average_precision(/\w+)?{INTERVAL}", "documented to have none"),
    ("level", "", rf"^(?!.*{INTERVAL})|^(f1|accuracy|recall/1)_", "only bounds depend on it; those of reports are 95%"),
    ("lower is better", "", "", "the difference has no direction, only the probability has"),
    ("prior", "LogitAdjustmentSweep", "point plain", "the plain rule has no prior"),
    ("", ".*compare|posterior|bootstrap|over_runs", "estimate", "only the interval depends on it"),
    ("", "select_epoch", "^value$", "the best value of all samples"),
    ("", "", "tau|threshold|partial_auc", "a choice among candidates, and what depends on it alone, can stay the same"),
    ("", "ThresholdSweep.*point", "holds", "near 1 the probability is the same"),
]  # fmt: skip
REFUSED = [
    "intervals of scores need numbers of independent samples",
    "at_least and alerts need probabilities",
    "limits need probabilities",
    "areas have no intervals with cluster=",
    "average precision has no interval at another prevalence",
    "sure= needs independent samples",
    "has no argument 'weighted'",
    "must be left out for '(auc|average_precision)'",
]


def reason(name, first, number):
    """Return the reason why a number stays as it was; None without one."""
    fits = (each for each in REASONS if each[0] in ("", first))
    return next((each for each in fits if re.match(each[1], name) and re.search(each[2], number)), None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_argument_changes_each_number_or_is_refused():
    unused, needed, refused = [], set(), set()
    for name, call, firsts in calls():
        plain = call()
        for first, argument in firsts.items():
            try:
                changed = call(**argument)
            except (TypeError, ValueError) as error:
                texts = {text for text in REFUSED if re.search(text, str(error))}
                refused |= texts or {f"{name}, {first}: {error}"}
                continue
            for number in plain:
                if number not in changed or changed[number] == plain[number]:
                    why = reason(name, first, number)
                    unused += [(name, first, number)] * (why is None)
                    needed.add(why)
    assert unused == []
    assert needed == set(REASONS)
    assert refused == set(REFUSED)
