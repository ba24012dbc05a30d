"""The entry point that puts the guard into every trainer, and imports on demand."""

import importlib.metadata
import textwrap

import pytest
from both_packages import CALLBACKS, EVERY_PACKAGE, FACTORIES, fit, watch
from rooms import monitor_guard
from trainings import THIRD_PARTY, iam, python, scripted

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in THIRD_PARTY]


# --- what is monitored ----------------------------------------------------------------------------------------------


@EVERY_PACKAGE
def test_the_guard_is_registered(package):
    group, _ = FACTORIES[package]
    found = importlib.metadata.entry_points(group=f"{group}.callbacks_factory")
    (entry,) = [each for each in found if each.name == "imbtorch"]
    assert entry.module == "imbtorch_entry_point", "installed before the entry points moved; install imbtorch again"
    (guard,) = entry.load()()
    assert isinstance(guard, CALLBACKS[package].Callback)
    assert type(guard).__name__ == "MonitorGuard"


@pytest.mark.parametrize(
    ("value", "number"), [*((off, 0) for off in ("0", "false", "OFF", "No", " 0 ")), ("1", 1), ("", 1)]
)
def test_what_switches_the_guard_off(value, number, monkeypatch):
    monkeypatch.setenv("IMBTORCH_MONITOR_GUARD", value)
    for package in ("lightning.pytorch", "pytorch_lightning"):
        assert len(monitor_guard.guards(package)) == number


def test_the_guard_can_be_switched_off(monkeypatch, tmp_path):
    monkeypatch.setenv("IMBTORCH_MONITOR_GUARD", "0")
    for package in CALLBACKS:
        _, callbacks = watch("ModelCheckpoint", "val_iam", "min", tmp_path / package.__name__, package)
        trainer = fit(scripted(package)(), callbacks, package)
        assert not any("MonitorGuard" in type(each).__name__ for each in trainer.callbacks)
        assert trainer.checkpoint_callback.best_model_score.item() == pytest.approx(iam(4))  # the worst epoch


# --- what is imported -----------------------------------------------------------------------------------------------

BLOCKER = """
class Blocker:
    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
"""


@pytest.mark.slow
def test_lightning_and_matplotlib_are_imported_on_demand_and_there_is_a_remedy():
    run = python(f"""
        import sys, torch, torchmetrics
        before = set(sys.modules)
        from imbtorch import ExactBatchSampler, ImbalanceReport
        ImbalanceReport("binary")
        print(sorted({{name.split(".")[0] for name in set(sys.modules) - before}} - {{"torch"}}))
        {textwrap.indent(BLOCKER, " " * 8)}
        sys.meta_path.insert(0, Blocker("lightning", "pytorch_lightning"))
        import imbtorch.lightning
    """)
    assert run.stdout == "['imbtorch']\n"
    assert run.returncode == 1
    assert run.stderr.endswith(
        "ModuleNotFoundError: imbtorch.lightning needs Lightning: pip install 'imbtorch[lightning]'\n"
    )


@pytest.mark.slow
def test_pytorch_lightning_alone_will_do():
    run = python(f"""
        import sys, warnings
        {textwrap.indent(BLOCKER, " " * 8)}
        sys.meta_path.insert(0, Blocker("lightning"))
        warnings.simplefilter("ignore")
        import pytorch_lightning
        from imbtorch.lightning import ConfusionFigures, ExactBatchSampler, MonitorGuard
        for kind in (ConfusionFigures, MonitorGuard):
            assert issubclass(kind, pytorch_lightning.Callback)
        print([type(each) is MonitorGuard for each in pytorch_lightning.Trainer(logger=False).callbacks].count(True))
    """)
    assert run.stdout == "1\n", run.stderr
