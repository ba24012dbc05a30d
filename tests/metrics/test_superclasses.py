"""Coarse classes in a report: equal to scikit-learn on mapped labels, from the state of the fine ones."""

import functools
import pickle

import pytest
import sklearn.metrics
import torch

import imbtorch
from imbtorch import ImbalanceReport
from imbtorch.lightning.validation_history import read_column

NAMES = ["cat", "car", "dog", "tree", "van"]
COARSE = {"animal": ["cat", "dog"], "vehicle": ["car", "van"]}
PLACE = torch.tensor([0, 1, 0, 2, 1])  # animal, vehicle, tree


def samples(size=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    target = torch.multinomial(torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1]), size, replacement=True, generator=generator)
    noise = torch.randint(5, (size,), generator=generator)
    return torch.where(torch.rand(size, generator=generator) < 0.5, target, noise), target


def report(**arguments):
    return ImbalanceReport("multiclass", class_names=NAMES, **{"superclasses": COARSE, **arguments})


def peers(preds, target):
    precision, recall, f1, _ = sklearn.metrics.precision_recall_fscore_support(target, preds)
    return {
        "accuracy": sklearn.metrics.accuracy_score(target, preds),
        "balanced_accuracy": sklearn.metrics.balanced_accuracy_score(target, preds),
        "mcc": sklearn.metrics.matthews_corrcoef(target, preds),
        "kappa": sklearn.metrics.cohen_kappa_score(target, preds),
        "iou": sklearn.metrics.jaccard_score(target, preds, average="macro"),
        "precision": precision.mean(),
        "recall": recall.mean(),
        "f1": f1.mean(),
    }


def test_fine_and_coarse_values_of_one_state():
    preds, target = samples()
    fine, coarse = peers(preds, target), peers(PLACE[preds], PLACE[target])
    found = report(measures=list(fine), per_class=("recall", "precision"))
    for part in range(0, 300, 100):
        batch = found(preds[part : part + 100], target[part : part + 100])
        here = peers(*(PLACE[each[part : part + 100]] for each in (preds, target)))
        assert {name: batch[f"{name}/superclasses"].item() for name in here} == pytest.approx(here, abs=1e-6)
    values = {name: value.item() for name, value in found.compute().items()}
    assert {name: values[name] for name in fine} == pytest.approx(fine, abs=1e-6)
    assert {name: values[f"{name}/superclasses"] for name in coarse} == pytest.approx(coarse, abs=1e-6)
    recalls = sklearn.metrics.recall_score(PLACE[target], PLACE[preds], average=None)
    assert [values["recall/animal"], values["recall/vehicle"], values["recall/tree"]] == pytest.approx(
        recalls, abs=1e-6
    )
    assert found["mcc/superclasses"].higher_is_better is True
    assert found.superclasses == {"animal": ("cat", "dog"), "vehicle": ("car", "van")}
    assert found.counts().shape == (5, 5)
    assert "superclasses={'animal': ('cat', 'dog')" in repr(found)
    copy = pickle.loads(pickle.dumps(found))
    assert copy.compute()["mcc/superclasses"].item() == values["mcc/superclasses"]


def test_coarse_values_at_a_prevalence():
    """Each sample weighs as much as makes the fine classes as frequent as wanted."""
    preds, target = samples()
    shares = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    weight = (shares / torch.bincount(target))[target]
    found = report(measures=["accuracy", "f1"], prevalence=shares.tolist())
    found.update(preds, target)
    values = found.compute()
    mapped = PLACE[target], PLACE[preds]
    accuracy = sklearn.metrics.accuracy_score(*mapped, sample_weight=weight)
    f1 = sklearn.metrics.f1_score(*mapped, sample_weight=weight, average="macro")
    assert [values["accuracy/superclasses"].item(), values["f1/superclasses"].item()] == pytest.approx(
        [accuracy, f1], abs=1e-6
    )


def test_an_ignored_class_stays_ignored():
    preds, target = samples()
    kept = target != 3
    found = report(measures=["recall", "f1"], ignore_index=3)
    found.update(preds, target)
    values = found.compute()
    recall = sklearn.metrics.recall_score(PLACE[target[kept]], PLACE[preds[kept]], labels=[0, 1], average="macro")
    f1 = sklearn.metrics.f1_score(PLACE[target[kept]], PLACE[preds[kept]], labels=[0, 1], average="macro")
    assert [values["recall/superclasses"].item(), values["f1/superclasses"].item()] == pytest.approx(
        [recall, f1], abs=1e-6
    )
    with pytest.raises(
        ValueError, match=r"superclasses\['other'\] holds 'tree', whose samples ignore_index leaves out"
    ):
        report(superclasses={"other": ["tree", "van"]}, ignore_index=3)


def test_measures_of_ones_own_and_of_two_classes():
    preds, target = samples()
    measures = {"errors": (lambda counts: counts.sum() - counts.diag().sum(), False), "dominance": "dominance"}
    found = report(measures=measures, per_class={"hits": lambda counts: counts.diag()})
    found.update(preds, target)
    values = found.compute()
    assert values["errors/superclasses"] == (PLACE[preds] != PLACE[target]).sum()
    assert found["errors/superclasses"].higher_is_better is False
    assert values["hits/animal"] == ((PLACE[preds] == 0) & (PLACE[target] == 0)).sum()
    recalls = [sklearn.metrics.recall_score(PLACE[target] == k, PLACE[preds] == k) for k in range(3)]
    others = [sklearn.metrics.recall_score(PLACE[target] != k, PLACE[preds] != k) for k in range(3)]
    wanted = sum(recall - other for recall, other in zip(recalls, others, strict=True)) / 3
    assert values["dominance/superclasses"].item() == pytest.approx(wanted, abs=1e-6)


def test_a_coarse_value_can_be_read_off_any_counts():
    preds, target = samples()
    found = report(measures=["iam"], prefix="val_")
    found.update(preds, target)
    short, column = read_column(found, "val_recall/animal")
    assert short == "recall/animal"
    wanted = sklearn.metrics.recall_score(PLACE[target] == 0, PLACE[preds] == 0)
    assert column.function(found.counts()).item() == pytest.approx(wanted)
    stacked = torch.stack((found.counts(), torch.eye(5, dtype=torch.int64)))
    matrix = sklearn.metrics.confusion_matrix(PLACE[target], PLACE[preds])
    largest = [max(matrix[k].sum(), matrix[:, k].sum()) for k in range(3)]
    iam = sum(2 * matrix[k, k] / largest[k] - 1 for k in range(3)) / 3
    assert found.measure("val_iam/superclasses")(stacked).tolist() == pytest.approx([iam, 1])


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (
            {"superclasses": [["cat", "dog"]]},
            TypeError,
            r"superclasses must map names .*got \[\['cat', 'dog'\]\]",
        ),
        ({"superclasses": {}}, TypeError, "superclasses must map names to classes"),
        (
            {"superclasses": {"animal": "cat"}},
            TypeError,
            r"superclasses\['animal'\] must be a sequence of class names, got 'cat'",
        ),
        (
            {"superclasses": {"animal": ["cat", "cow"]}},
            ValueError,
            r"superclasses\['animal'\] holds \['cow'\], which are not among",
        ),
        (
            {"superclasses": {"a": ["cat"], "b": ["cat", "dog"]}},
            ValueError,
            "superclasses must be non-empty",
        ),
        ({"superclasses": {"a": []}}, ValueError, "superclasses must be non-empty"),
        (
            {"superclasses": {"car": ["cat", "dog"]}},
            ValueError,
            r"must not be named like classes .* got \['car'\]",
        ),
        ({"superclasses": {"all": NAMES}}, ValueError, "at least two classes"),
        ({"superclasses": {"a:b": ["cat", "dog"]}}, ValueError, "file name cannot hold :"),
        (
            {"superclasses": {"cat": ["cat", "dog"]}},
            ValueError,
            "'recall/cat' is already reported, and superclasses adds it",
        ),
        (
            {"class_groups": {"animal": ["cat", "dog"]}},
            ValueError,
            "'recall/animal' is already reported, and superclasses",
        ),
        ({"measures": {"iam": "iam", "iam/superclasses": "mcc"}}, ValueError, "'iam/superclasses' is already reported"),
        (
            {"groups": ["superclasses", "b"]},
            ValueError,
            "'iam/superclasses' is already reported, and groups adds it again",
        ),
        ({"state": "margins"}, ValueError, "need task='multiclass' and state='matrix', got state='margins'"),
        (
            {"measures": {"cost": functools.partial(imbtorch.ExpectedCost, costs=torch.ones(5, 5))}},
            ValueError,
            r"'cost/superclasses' cannot be computed for 3 merged classes \(costs .* \[3, 3\].*, without superclasses=",
        ),
    ],
)
def test_refused_superclasses(arguments, error, match):
    with pytest.raises(error, match=match):
        report(**{"measures": ["iam"], **arguments})


def test_superclasses_need_several_classes():
    for task in ("binary", "multilabel"):
        with pytest.raises(ValueError, match=f"superclasses need .*got task='{task}'"):
            ImbalanceReport(task, class_names=["a", "b"], superclasses={"both": ["a", "b"]})
