"""A report as compute_metrics of a transformers Trainer, with real Trainers."""

import os
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.metrics
import torch
from processes import launch
from versions import import_or_skip

import imbtorch
from imbtorch import ImbalanceReport, confusion_matrix
from imbtorch.huggingface import compute_metrics
from imbtorch.statistics import posterior

# --- compute_metrics of a transformers Trainer ----------------------------------------------------------------------


def handed(predictions, labels):
    """What a Trainer hands to ``compute_metrics``."""
    return SimpleNamespace(predictions=predictions, label_ids=labels)


def report_of(task="multiclass", measures=("balanced_accuracy",), **kwargs):
    number = {"multiclass": {"num_classes": 3}, "multilabel": {"num_labels": 3}}.get(task, {})
    return ImbalanceReport(task, **number, measures=list(measures), per_class=(), **kwargs)


def tokens():
    """Logits [B, T, C] and labels [B, T], -100 where padded."""
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(8, 3, 3)).astype(np.float32), random.integers(0, 3, (8, 3))
    labels[:, 2] = -100
    return logits, labels


LAYOUTS = {
    "arrays": lambda logits, labels: (logits, labels),
    "tensors": lambda logits, labels: (torch.from_numpy(logits), torch.from_numpy(labels)),
    "tuple": lambda logits, labels: ((logits, np.zeros((8, 99))), labels),
    "batches": lambda logits, labels: ([logits[:5], (logits[5:], None)], [labels[:5], labels[5:]]),
    "flat": lambda logits, labels: (logits.reshape(-1, 3), labels.reshape(-1)),
    "second": lambda logits, labels: (logits[:, :2].transpose(0, 2, 1), labels[:, :2]),
    "image": lambda logits, labels: (logits.transpose(0, 2, 1)[:, :, None], labels[:, None]),
    "classes": lambda logits, labels: (logits.argmax(-1), labels),
    "floats": lambda logits, labels: (logits, labels.astype(np.float32)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_predictions_of_any_layout_are_counted(layout):
    logits, labels = tokens()
    report = report_of(ignore_index=-100, prefix="val_", postfix="_x")
    found = compute_metrics(report)(handed(*LAYOUTS[layout](logits, labels)))
    kept = labels != -100
    expected = sklearn.metrics.balanced_accuracy_score(labels[kept], logits.argmax(-1)[kept])
    assert found == {"balanced_accuracy_x": pytest.approx(expected)}
    assert isinstance(found["balanced_accuracy_x"], float)
    assert (
        report.result().counts.tolist()
        == sklearn.metrics.confusion_matrix(labels[kept], logits.argmax(-1)[kept]).tolist()
    )


def test_one_logit_two_logits_and_labels_are_counted():
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(40, 1)).astype(np.float32), random.integers(0, 2, 40)
    expected = sklearn.metrics.confusion_matrix(labels, logits[:, 0] > 0).tolist()
    both = np.concatenate([-logits, logits], 1)
    for given in (logits, both, both.reshape(20, 2, 2)):
        report = report_of("binary", logits=True)
        compute_metrics(report)(handed(given, labels.reshape(given.shape[:-1])))
        assert report.result().counts.tolist() == expected
    scores, truth = random.normal(size=(5, 4, 3)).astype(np.float32), random.integers(0, 2, (5, 4, 3))
    expected = sklearn.metrics.multilabel_confusion_matrix(truth.reshape(-1, 3), scores.reshape(-1, 3) > 0).tolist()
    for given in ((scores, truth.astype(np.float32)), (scores.reshape(-1, 3), truth.reshape(-1, 3))):
        report = report_of("multilabel", logits=True)
        compute_metrics(report)(handed(*given))
        assert report.result().counts.tolist() == expected


def test_batches_are_counted_until_the_last_and_each_evaluation_begins_anew():
    logits, labels = (array[:, :2] for array in tokens())
    report = report_of(ignore_index=-100)
    computed = compute_metrics(report)
    for _ in range(2):
        assert computed(handed(logits[:5], labels[:5]), compute_result=False) == {}
        computed(handed(logits[5:], labels[5:]), compute_result=True)
        assert report.counts().sum() == report.result().counts.sum() == labels.size
    computed(handed(logits[:5], labels[:5]), compute_result=False)
    with pytest.raises(ValueError, match="class 7"):
        computed(handed(logits[:1], labels[:1] * 0 + 7), compute_result=False)
    computed(handed(logits, labels))
    assert report.counts().sum() == labels.size


def test_what_cannot_be_counted_says_what_to_do():
    logits, labels = tokens()
    for report, given, message in (
        (report_of(), (logits, labels), "ignore_index=-100"),
        (report_of(), (logits, (labels, labels)), "labels must be one array, got 2; choose one.*label_names"),
        (report_of(), (logits, labels + 0.5), "labels must be whole numbers"),
        (report_of(), (logits[:, :1, 0], labels[:, 0]), r"task='binary' and preds\.squeeze\(1\)"),
        (report_of("binary"), (logits[:, 0, :1] + 9, labels[:, 0] > 0), "logits=True"),
    ):
        with pytest.raises(ValueError, match=message):
            compute_metrics(report)(handed(*given))
    with pytest.raises(
        TypeError, match=r"must be an ImbalanceReport or ThresholdSweep, got FScore.*compute_metrics\(ImbalanceReport\("
    ):
        compute_metrics(imbtorch.FScore("multiclass", 3))
    with pytest.raises(ValueError, match="must have no groups"):
        compute_metrics(report_of(groups=2))


@pytest.fixture
def arguments(tmp_path):
    """Make real TrainingArguments."""
    transformers = import_or_skip("transformers")

    def make(metric=None, **kwargs):
        return transformers.TrainingArguments(
            str(tmp_path), use_cpu=True, report_to="none", metric_for_best_model=metric, **kwargs
        )

    return make


def test_a_wrong_direction_is_refused_with_the_argument_to_change(arguments):
    measures = {"iam": "iam", "cen": "confusion_entropy", "dominance": "dominance"}
    report = ImbalanceReport("binary", measures=measures, prefix="val_", intervals=["iam"])
    plateau = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"}
    for args in (
        arguments(),
        arguments("iam"),
        arguments("eval_recall/1"),
        arguments("eval_night_iam", greater_is_better=True),
        arguments("cen", greater_is_better=False),
        arguments("loss"),
        arguments("night_loss", **plateau),
        arguments("iam", lr_scheduler_kwargs={"mode": "max"}, **plateau),
        arguments("cen", greater_is_better=False, **plateau),
    ):
        compute_metrics(report, args)
    for args, message in (
        (
            arguments("cen"),
            r"lower values of 'cen' are better, but greater_is_better=True.*'cen', greater_is_better=False\)",
        ),
        (arguments("eval_night_iam", greater_is_better=False), "'eval_night_iam', greater_is_better=True"),
        (arguments("iam_low", greater_is_better=False), "'iam_low', greater_is_better=True"),
        (arguments("iam", **plateau), r"reduce_lr_on_plateau is 'min'.*lr_scheduler_kwargs=\{'mode': 'max'\}"),
        (arguments("iam", prediction_loss_only=True), "prediction_loss_only must be False.*leave it out"),
    ):
        with pytest.raises(ValueError, match=message):
            compute_metrics(report, args)
    with pytest.warns(UserWarning, match="metric_for_best_model='dominance' has no direction"):
        compute_metrics(report, arguments("dominance"))
    with pytest.warns(UserWarning, match="'mcc' is no value of the report.* has iam, cen, dominance, iam_low"):
        compute_metrics(report, arguments("mcc"))
    with pytest.warns(UserWarning, match="'val_iam' begins with the prefix.*use metric_for_best_model='iam'") as told:
        compute_metrics(report, arguments("val_iam"))
    assert told[0].filename == __file__  # the line that called, not one of ours
    with pytest.raises(TypeError, match=r"args must be TrainingArguments, got 'out'; use .*\(report, trainer.args\)"):
        compute_metrics(report, "out")


def test_a_misspelt_metric_ends_before_the_first_epoch(arguments):
    report = ImbalanceReport("binary", measures=["iam", "balanced_accuracy"], per_class=())
    for name in ("balanced_acuracy", "eval_balanced_acuracy"):
        with pytest.raises(ValueError, match=f"'{name}' is no value of the report; did you mean 'balanced_accuracy'"):
            compute_metrics(report, arguments(name))


@pytest.mark.parametrize("batch_eval_metrics", [False, True])
def test_patients_reach_the_report(arguments, batch_eval_metrics):
    """As a column that ``include_for_metrics`` passes on: all columns of a batch, or else the model's main input."""
    transformers = import_or_skip("transformers")

    class Model(torch.nn.Module):
        main_input_name = "patient"

        def forward(self, score, patient=None, labels=None):
            return {"loss": (0 * score).sum().requires_grad_(), "logits": torch.stack((-score, score), 1)}

    patient, labels = torch.arange(60) // 6, torch.arange(60) % 2
    score = torch.where(patient % 3 == 0, -1.0, 1.0) * (2 * labels - 1)
    rows = [{"score": s, "patient": p, "labels": y} for s, p, y in zip(score, patient, labels, strict=True)]
    args = arguments("accuracy", include_for_metrics=["inputs"], batch_eval_metrics=batch_eval_metrics)
    report = ImbalanceReport("binary", measures=["accuracy"], per_class=(), clusters=True, logits=True)

    def patients(evaluated):
        return evaluated.inputs["patient"] if batch_eval_metrics else evaluated.inputs

    computed = compute_metrics(report, args, patients)
    trainer = transformers.Trainer(Model(), args, eval_dataset=rows, compute_metrics=computed)
    assert trainer.evaluate()["eval_accuracy"] == pytest.approx(0.6)
    direct = ImbalanceReport("binary", measures=["accuracy"], per_class=(), clusters=True)
    direct.update((score > 0).long(), labels, cluster=patient)
    assert report.interval("accuracy").low == direct.interval("accuracy").low
    assert report.interval("accuracy").method.startswith("cluster bootstrap")


def test_keeping_the_lowest_loss_by_default_is_told(arguments):
    epochs = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    report = ImbalanceReport("binary", measures=["dominance", "iam"], per_class=(), prefix="val_")
    remedy = "keep the epoch with the lowest loss; write metric_for_best_model="
    for default in (None, "loss"):
        with pytest.warns(UserWarning, match=f"{remedy}'iam', or 'eval_loss'"):
            compute_metrics(report, arguments(default, **epochs))
    lower = ImbalanceReport("binary", measures={"cen": "confusion_entropy"}, per_class=())
    with pytest.warns(UserWarning, match=f"{remedy}'cen', greater_is_better=False"):
        compute_metrics(lower, arguments(**epochs))
    for meant in ("eval_loss", "iam"):
        compute_metrics(report, arguments(meant, **epochs))


@pytest.mark.usefixtures("_offline")
def test_a_report_that_is_given_itself_says_what_to_give():
    transformers = import_or_skip("transformers")
    report = report_of()
    args = transformers.TrainingArguments("unused", disable_tqdm=True, report_to="none", use_cpu=True)
    data = [{"input_ids": [i, 1], "labels": i} for i in range(3)]
    config = transformers.BertConfig(
        vocab_size=5, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config)
    with pytest.raises(
        TypeError, match=r"use Trainer\(compute_metrics=imbtorch.huggingface.compute_metrics\(report, a"
    ):
        transformers.Trainer(model, args, compute_metrics=report).evaluate(data)
    assert report(torch.eye(3), torch.arange(3))["balanced_accuracy"] == 1
    with pytest.raises(TypeError, match="target"):
        report(torch.eye(3))


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()], ids=["exception", "Ctrl-C"])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_evaluation_that_was_interrupted_is_no_part_of_the_next(wrapped, batched, error):
    """Between batches, where ``compute_metrics`` sees neither an error nor a last batch."""
    transformers = import_or_skip("transformers")
    report = ImbalanceReport("multiclass", num_classes=2, measures=["accuracy"], per_class=())
    computed, failing = compute_metrics(report), True

    class Model(torch.nn.Module):
        """Predicts what the input says, once the third batch does not fail."""

        batches = 0

        def forward(self, inputs, labels):
            self.batches += 1
            if failing and self.batches == 3:
                raise error
            return {"loss": torch.zeros(()), "logits": torch.nn.functional.one_hot(inputs, 2).float()}

    data = [{"inputs": i % 3 // 2, "labels": i % 2} for i in range(50)]
    args = transformers.TrainingArguments(
        "unused",
        batch_eval_metrics=batched,
        per_device_eval_batch_size=12,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
    )
    function = (lambda evaluated, compute_result=True: {**computed(evaluated, compute_result)}) if wrapped else computed
    trainer = transformers.Trainer(Model(), args, compute_metrics=function)
    with pytest.raises(type(error)) as kept:  # as a notebook does, which keeps the traceback
        trainer.evaluate(data)
    assert int(report.local_confmat.sum()) == 24 * batched
    failing = False
    for _ in range(2):
        values = trainer.evaluate(data)
        assert int(report.local_confmat.sum()) == 50
        oracle = sklearn.metrics.accuracy_score([i % 2 for i in range(50)], [i % 3 // 2 for i in range(50)])
        assert values["eval_accuracy"] == pytest.approx(oracle)
    assert kept.value is error


def evaluated_by_trainers(rank, world):
    """Counts and intervals of what Trainers evaluated on several processes, of all predictions and batch by batch."""
    os.environ.update(HF_HUB_OFFLINE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="1", LOCAL_WORLD_SIZE=str(world))
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    torch.manual_seed(0)
    data = [{"input_ids": torch.randint(20, (6,)), "labels": i % 2} for i in range(43)]  # the last batches are smaller
    config = BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, num_labels=2, initializer_range=2.0
    )
    model, found = BertForSequenceClassification(config).eval(), []
    with torch.no_grad():
        scores = model(torch.stack([sample["input_ids"] for sample in data])).logits
    expected = confusion_matrix(scores, torch.arange(43) % 2, "multiclass", num_classes=2)
    for batched in (False, True):
        report = ImbalanceReport("multiclass", num_classes=2, measures=["iam"], intervals=["iam"])
        options = {"per_device_eval_batch_size": 4, "disable_tqdm": True, "report_to": "none", "use_cpu": True}
        args = TrainingArguments("unused", batch_eval_metrics=batched, **options)
        trainer = Trainer(model, args, compute_metrics=compute_metrics(report, args))
        assert trainer.accelerator.num_processes == world
        values = trainer.evaluate(data)
        again = report.interval("iam", generator=torch.Generator().manual_seed(0))
        limits = (values["eval_iam_low"], values["eval_iam_high"], float(again.low), float(again.high))
        found.append((report.result().counts.tolist(), limits))
    return expected.tolist(), found


def test_a_trainer_on_two_processes_counts_each_sample_once():
    import_or_skip("transformers")
    for expected, found in launch(2, evaluated_by_trainers):
        assert sum(map(sum, expected)) == 43
        once, twice = (
            posterior(
                imbtorch.imbalance_accuracy, n * torch.tensor(expected), generator=torch.Generator().manual_seed(1)
            )
            for n in (1, 2)
        )
        for counts, limits in found:
            assert counts == expected
            assert limits == pytest.approx([float(once.low), float(once.high)] * 2, abs=0.03)
            assert limits[0] < twice.low - 0.05


# --- a monitored value that cannot choose -----------------------------------------------------------------------------


def evaluated(predictions, ends=True, key="iam", task="binary"):
    """Evaluate predictions of each epoch within a frame of a Trainer; return what is said."""
    args = SimpleNamespace(
        metric_for_best_model=key, greater_is_better=True, prediction_loss_only=False, lr_scheduler_kwargs=None,
        lr_scheduler_type="linear", load_best_model_at_end=False,
    )  # fmt: skip
    computed = compute_metrics(imbtorch.ImbalanceReport(task, logits=True), args)
    space = {"__name__": "transformers.trainer", "computed": computed}
    exec("def evaluation_loop(self, given):\n    return computed(given)\n", space)
    texts = []
    for epoch, given in enumerate(predictions):
        step = len(predictions) if ends and epoch == len(predictions) - 1 else 0
        trainer = SimpleNamespace(state=SimpleNamespace(global_step=step, max_steps=len(predictions)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            space["evaluation_loop"](trainer, handed(given, np.arange(40) % 4 // 3))
        texts += [str(each.message) for each in caught]
    return [text for text in texts if "choose" in text]


def test_a_value_that_could_not_choose_is_told_at_the_end_and_after_ten_evaluations():
    negative, both = np.full(40, -2.0), np.where(np.arange(40) % 8 == 3, 1.0, -2.0)
    (text,) = evaluated([negative] * 3)
    assert "metric_for_best_model='iam' could not choose in 3 evaluations: no sample was predicted as '1'" in text
    (made,) = re.findall(r"and test with its rule: compute_metrics\((imbtorch\..*\)), args\) and metric_for_best", text)
    assert "value" in eval(made, {"imbtorch": imbtorch})
    assert evaluated([negative] * 3, ends=False) == []
    assert evaluated([negative] * 2) == []
    assert evaluated([negative, negative, both]) == []
    assert evaluated([both, *[negative] * 10], ends=False) == []  # the first is kept
    assert len(evaluated([negative] * 12, ends=False)) == 1
    assert evaluated([negative] * 12, key="loss") == []
    assert len(evaluated([negative] * 3, key="eval_night_recall")) == 1


def test_the_remedy_fits_the_cause():
    rare = 1 / (1 + np.exp(np.linspace(-1, 6, 40)))
    (text,) = evaluated([rare] * 3)
    assert "no sample was predicted as '0'. But the scores lie in [0, 1] and crowd near 0" in text
    assert "Sweep" not in text
