"""Names that a user may have meant."""

import re

import pytest
import torch
import torchmetrics.classification
from rooms import OF_SCORES, SYNONYMS, by_key, did_you_mean, short_name
from sklearn import metrics as sklearn_metrics

import imbtorch
from imbtorch import FScore, HandTill, ImbalanceReport, Recall, ThresholdSweep, confusion_matrix

# names that others have, and those of reports that have the same value
ELSEWHERE = {
    "sensitivity": "recall",
    "Sensitivity": "recall",
    "sensitivty": "recall",  # a slip
    "recall_macro": "recall",
    "macro_recall": "recall",
    "weighted_f1": "f1",
    "true_positive_rate": "recall",
    "TNR": "specificity",
    "positive_predictive_value": "precision",
    "F1Score": "f1",
    "JaccardIndex": "iou",
    "mIoU": "iou",
    "bal_acc": "balanced_accuracy",
    "bal_accuracy": "balanced_accuracy",
    "Youden": "adjusted_balanced_accuracy",
    "cohen_kappa_score": "kappa",
    "weighted_acuracy": "weighted_accuracy",
    "DiceScore": "dice",
}


def error_of(call, *given, **arguments):
    """Return the text of the error that a call raises, empty if it raises none."""
    try:
        call(*given, **arguments)
    except (AttributeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_names_of_measures():
    wrong = []
    for given, meant in ELSEWHERE.items():
        text = error_of(ImbalanceReport, "multiclass", num_classes=3, measures=[given])
        taken = text == "" and short_name(given) == meant
        if not (taken or re.match(rf"ValueError: .*got '{given}'; did you mean '{meant}'\?; nearest: ", text)):
            wrong.append(f"{given}, not {meant}: {text or 'no error'}")
    assert not wrong, "\n".join(wrong)


def test_synonyms_have_one_value():
    """Of the names that scikit-learn has, the one that is suggested is the same measure."""
    preds, target = torch.randint(3, (2, 200), generator=torch.Generator().manual_seed(0))
    counts = confusion_matrix(preds, target, "multiclass", num_classes=3)
    compared = set()
    for group in SYNONYMS:
        functions = [getattr(imbtorch, name) for name in imbtorch.__all__ if name.replace("_", "") in group]
        for name in dir(sklearn_metrics):
            if name.endswith("_score") and name != "fbeta_score" and name.replace("_", "") in group and functions:
                theirs = {} if name.startswith(("acc", "balanced", "cohen")) else {"average": "macro"}
                expected = getattr(sklearn_metrics, name)(target, preds, **theirs)
                ours = {"beta": 1.0} if name == "f1_score" else {}
                assert float(functions[0](counts, **ours)) == pytest.approx(expected), name
                compared.add(name)
    assert compared >= {"accuracy_score", "balanced_accuracy_score", "f1_score", "jaccard_score", "cohen_kappa_score"}


def test_areas_are_of_scores():
    wrong = []
    for given in ("roc_auc", "AUROC", "average_precision"):
        text = error_of(ImbalanceReport, "binary", measures=[given])
        remedy = rf"got '{given}'; .* ThresholdSweep\(\.\.\., also=\('auc', 'average_precision'"
        if not re.match(f"ValueError: .*{remedy}", text):
            wrong.append(f"{given}: {text or 'no error'}")
    assert not wrong, "\n".join(wrong)
    assert set(OF_SCORES) >= {"auc", "averageprecision"}
    ThresholdSweep("f1", also=("auc", "average_precision"))  # as it says


def test_what_is_suggested_is_there():
    texts = {name: did_you_mean(name, imbtorch.__all__) for name in torchmetrics.classification.__all__}
    meant = {name: text.partition("did you mean ")[2].strip("'?") for name, text in texts.items()}
    assert meant["F1Score"] == "FScore"
    wrong = [f"{name}: {text}" for name, text in texts.items() if meant[name] and not hasattr(imbtorch, meant[name])]
    assert not wrong, "\n".join(wrong)


def test_names_of_the_package():
    wrong = []
    meant = {"F1Score": "FScore", "Sensitivity": "Recall", "sensitivity": "recall", "Jacard": "Jaccard"}
    for given, name in meant.items():
        text = error_of(getattr, imbtorch, given)
        if f"AttributeError: module 'imbtorch' has no attribute '{given}'; did you mean '{name}'" not in text:
            wrong.append(f"{given}, not {name}: {text or 'no error'}")
    assert not wrong, "\n".join(wrong)
    assert not any(hasattr(imbtorch, given) for given in meant)


@pytest.mark.parametrize(
    ("call", "given", "meant"),
    [
        (lambda: ImbalanceReport("multiclass", 3, class_group={"tail": [2]}), "class_group", "class_groups"),
        (lambda: FScore("binary", betas=2.0), "betas", "beta"),
        (lambda: Recall("binary", num_clases=2), "num_clases", "num_classes"),
        (lambda: ThresholdSweep("f1", labels=3), "labels", "num_labels"),
        (lambda: HandTill(3, ignored_index=0), "ignored_index", "ignore_index"),
        (
            lambda: confusion_matrix(torch.tensor([0]), torch.tensor([0]), "multiclass", num_class=3),
            "num_class",
            "num_classes",
        ),
    ],
    ids=["report", "metric", "base class", "sweep", "HandTill", "function"],
)
def test_names_of_arguments(call, given, meant):
    with pytest.raises(TypeError, match=f"has no argument '{given}'; did you mean '{meant}'"):
        call()


def test_names_of_a_report():
    report = ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"])
    for call, error in (
        (report.__getitem__, KeyError),
        (report.measure, ValueError),
        (report.interval, ValueError),
        (lambda name: ImbalanceReport("binary", measures=["recall"], groups=2, per_group=[name]), ValueError),
    ):
        with pytest.raises(error, match="did you mean 'recall'"):
            call("sensitivity")
    with pytest.raises(KeyError, match="did you mean 'recall/dog'"):
        report["recall/dogs"]


def test_another_name_is_no_misspelled_one():
    names = ["iam", "accuracy", "recall", "recall/1", "recall/9", "recall/dog"]
    others = (
        *("balanced_accuracy", "weighted_accuracy", "mcc", "specificity", "kappa"),  # measures that are not reported
        *("fpr", "fnr", "recall/few", "recall/12", "recall/19", "recall/dog/9"),
    )
    wrong = [f"{name}: {text}" for name in others if (text := did_you_mean(name, names))]
    assert not wrong, "\n".join(wrong)


def test_an_interval_of_another_measure_suggests_nothing():
    report = ImbalanceReport("binary", measures=["iam"], per_class=())
    with pytest.raises(ValueError, match=r"'balanced_accuracy'.* not reported; names are iam$"):
        report.interval("balanced_accuracy")


def test_nothing_is_suggested_of_what_is_like_nothing():
    assert did_you_mean("?", by_key()) == did_you_mean(None, by_key()) == did_you_mean(3, [1, 2]) == ""
    with pytest.raises(ValueError, match=r"got '__wrapped__'$"):
        Recall("binary", average="__wrapped__")


def test_a_reversed_name_and_a_report_in_place_of_counts_are_told():
    report = ImbalanceReport("multiclass", class_names=["cat", "dog"])
    with pytest.raises(KeyError, match="'dog/recall' is not reported; did you mean 'recall/dog'"):
        report["dog/recall"]
    with pytest.raises(TypeError, match=r"got ImbalanceReport; use its counts\(\)"):
        imbtorch.statistics.compare("iam", report, report)
    with pytest.raises(TypeError, match=r"got 'iam'; .* report\['iam'\]\.plot\(values\)"):
        report.plot("iam")
    with pytest.raises(ValueError, match=r"pass torch\.bincount\(labels, minlength=K\)"):
        imbtorch.LogitAdjustmentSweep("iam", torch.tensor([0, 1, 1, 0]))


def test_numbers_are_no_misspelled_numbers():
    for value in ("-1", "10", "+1", "0"):
        assert did_you_mean(value, ["0", "1", "-1", "100"]) == ""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("imm", "iam"),
        ("val_imm", "iam"),
        ("test/imm", "iam"),
        ("val_acc", "accuracy"),
        ("valid_f2", "f1"),
        ("val_recal", "recall"),
        ("mcd", "mcc"),
        ("nll", None),
        ("val_loss", None),
        ("xam", None),
        ("i2m", None),
    ],
)
def test_stages_and_single_letters_are_no_obstacle(given, meant):
    report = ImbalanceReport("binary", prefix="val_")
    expected = f"; did you mean {meant!r}?; names are" if meant else "is not reported; names are"
    with pytest.raises(KeyError) as told:
        report[given]
    assert expected in str(told.value)
