"""The recipes for trainers and loggers are run against the packages they name, offline."""

import re
from pathlib import Path

import pytest
import torch
import torchmetrics.segmentation
from versions import import_or_skip

import imbtorch
from imbtorch import ImbalanceReport, functional

GUIDE = (Path(__file__).parents[2] / "examples" / "trainers.md").read_text(encoding="utf-8")
SNIPPETS = [
    (section.splitlines()[0], snippet)
    for section in GUIDE.split("\n## ")[1:]
    for snippet in re.findall(r"^```python\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
]
TABLE = re.findall(r"^\| `(.*)` \| `(.*)` \|$", GUIDE, flags=re.MULTILINE)
PACKAGES = {
    "transformers": "transformers",
    "accelerate": "accelerate",
    "Ignite": "ignite",
    "Fabric": "lightning",
    "LightningCLI": "typeshed_client",  # of jsonargparse[signatures]
    "Weights & Biases": "wandb",
    "MLflow": "mlflow",
}


# --- the guide ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(
    "ignore:'pin_memory' argument is set",
    "ignore:.*LeafSpec",  # Lightning and torch
    "ignore:.*does not have many workers",
    "ignore:.*smaller than the logging interval",
    "ignore:.*GPU available but not used",
    "ignore:.*'str' dtypes are included by select_dtypes",  # MLflow and pandas
)
@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    ("section", "snippet"), SNIPPETS, ids=[f"{section}-{i}" for i, (section, _) in enumerate(SNIPPETS)]
)
def test_snippets_run_and_print_what_they_say(section, snippet):
    if section in PACKAGES:
        import_or_skip(PACKAGES[section])
    printed = []
    names = {"__name__": "trainers", "print": lambda *values: printed.append(" ".join(map(str, values)))}
    exec(compile(snippet, "trainers.md", "exec"), names)
    said = re.findall(r"^print\(.*\)  # (.*)$", snippet, flags=re.MULTILINE)
    assert len(said) == snippet.count("print(") > 0
    assert printed == said


def test_every_tool_of_the_guide_has_its_snippet():
    assert set(PACKAGES) | {"Plain torch and DDP", "CSV", "Coming from torchmetrics"} == {each for each, _ in SNIPPETS}


def test_links_lead_somewhere():
    anchors = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in re.findall(r"^## (.*)$", GUIDE, re.M)}
    for link in re.findall(r"\]\(([^)]+)\)", GUIDE):
        file = Path(__file__).parents[2] / "examples" / link.partition("#")[0]
        assert link[1:] in anchors if link.startswith("#") else file.exists(), link


# --- coming from torchmetrics ---------------------------------------------------------------------------------------


def samples_of(task):
    """Scores that tell something, and targets, among them all classes."""
    generator = torch.Generator().manual_seed(0)
    shape = {"Multiclass": (300, 5), "Binary": (300,), "Multilabel": (300, 3)}[task]
    scores = torch.rand(shape, generator=generator)
    if task == "Multiclass":
        return scores, (scores + torch.rand(shape, generator=generator)).argmax(1)
    return scores, (torch.rand(shape, generator=generator) < scores).long()


def evaluated(code, package):
    return eval(code, dict(vars(package)))


@pytest.mark.parametrize(("theirs", "ours"), TABLE, ids=[theirs for theirs, _ in TABLE])
def test_each_row_of_the_table_names_two_of_one_value(theirs, ours):
    scores, target = samples_of(re.match(r"Multiclass|Binary|Multilabel", theirs)[0])
    expected = evaluated(theirs, torchmetrics.classification)(scores, target)
    torch.testing.assert_close(evaluated(ours, imbtorch)(scores, target), expected)
    assert expected.double().std() > 0 if expected.ndim else 0 < expected < 1


def test_wrappers_and_dice_are_the_metrics_that_the_guide_names():
    scores, target = samples_of("Multiclass")
    macro = torchmetrics.Accuracy(task="multiclass", num_classes=5, average="macro")(scores, target)
    micro = torchmetrics.Accuracy(task="multiclass", num_classes=5)(scores, target)
    assert imbtorch.BalancedAccuracy("multiclass", 5)(scores, target) == pytest.approx(float(macro))
    assert imbtorch.Accuracy("multiclass", 5)(scores, target) == pytest.approx(float(micro))
    assert macro != micro
    dice = torchmetrics.segmentation.DiceScore(5, average="macro", input_format="index")(
        scores.argmax(1)[None], target[None]
    )
    assert imbtorch.FScore("multiclass", 5)(scores, target) == pytest.approx(float(dice))


def test_where_the_guide_says_so_torchmetrics_differs():
    preds, target = torch.tensor([0, 2, 1, 1]), torch.tensor([0, 0, 1, 1])
    assert torchmetrics.classification.MulticlassAccuracy(3)(preds, target) == 0.5
    assert imbtorch.BalancedAccuracy("multiclass", 3)(preds, target) == 0.75
    assert imbtorch.Recall("multiclass", 3)(preds, target) == 0.5
    theirs = torchmetrics.classification.MulticlassRecall(4, average="none")(preds, target)
    ours = imbtorch.Recall("multiclass", 4, average="none")(preds, target)
    assert theirs.tolist() == [0.5, 1, 0, 0]
    assert ours[:3].tolist() == [0.5, 1, 0]
    assert ours[3].isnan()
    scores, target = samples_of("Multilabel")
    theirs = torchmetrics.classification.MultilabelMatthewsCorrCoef(3)(scores, target)
    each = [torchmetrics.classification.BinaryMatthewsCorrCoef()(scores[:, i], target[:, i]) for i in range(3)]
    ours = imbtorch.MatthewsCorrCoef("multilabel", num_labels=3)(scores, target)
    assert ours == pytest.approx(float(sum(each)) / 3)
    assert abs(ours - theirs) > 1e-4
    scores, ones = torch.tensor([0.3, 1.4]), torch.tensor([1, 1])
    assert torchmetrics.classification.BinaryRecall()(scores, ones) == 1  # 0.3 is a logit beside 1.4
    with pytest.raises(ValueError, match="logits=True"):
        imbtorch.Recall("binary")(scores, ones)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"top_k": 2}, r"preds=torch\.where\(\(scores\.topk\(k, 1\)"),
        ({"multidim_average": "samplewise"}, r"a stack of matrices, \[N, K, K\]"),
        ({"validate_args": False}, "every input is checked.* leave it out"),
        ({"zero_division": 1}, "one rule for 0/0"),
        ({"top_k": 1, "validate_args": True}, "top_k, validate_args.*leave out 1.*every input"),
    ],
    ids=str,
)
def test_arguments_of_torchmetrics_are_answered(given, remedy):
    for make in (imbtorch.FScore, imbtorch.CohenKappa, ImbalanceReport, imbtorch.ConfusionMatrix):
        with pytest.raises(TypeError, match=f"^{make.__name__} takes no .*?{remedy}"):
            make("multiclass", num_classes=3, **given)
    with pytest.raises(TypeError, match=remedy):
        imbtorch.HandTill(3, **given)
    for function in (functional.confusion_matrix, functional.soft_confusion_matrix):
        with pytest.raises(TypeError, match=f"^{function.__name__} takes no .*{remedy}"):
            function(torch.tensor([0]), torch.tensor([0]), "multiclass", num_classes=3, **given)


def test_a_report_says_where_an_average_belongs():
    with pytest.raises(TypeError, match=r"takes no average.*functools\.partial\(FScore, average='weighted'\)"):
        ImbalanceReport("multiclass", num_classes=3, average="weighted")
    with pytest.raises(
        ValueError, match=r"average of FScore.*'macro', 'weighted', 'none', 'min', 'micro', got 'samples'"
    ):
        imbtorch.FScore("multiclass", num_classes=3, average="samples")
