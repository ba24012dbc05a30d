"""Settings of all tests: one thread a process, random examples, and which cases run by default."""

import gc
import os
import sys
from collections import Counter

import pytest
import rooms
import torch
from hypothesis import HealthCheck, settings

gc.disable()  # until the tests are collected: of all objects that importing and collecting make, nearly none is garbage
torch.set_num_threads(1)  # so that parallel test processes do not fight over the cores

COVERAGE = pytest.StashKey()

for name, examples in (("default", 25), ("thorough", 100)):  # a busy machine is no failure
    busy = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile(f"imbtorch_{name}", derandomize=True, max_examples=examples, **busy)
settings.load_profile(f"imbtorch_{os.environ.get('IMBTORCH_EXAMPLES', 'default')}")


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config, items):
    """Mark as slow the cases that their test's ``default_cases`` does not name."""
    unknown = {}
    for item in items:
        if mark := item.get_closest_marker("default_cases"):
            unknown.setdefault((item.path, item.originalname), set(mark.args)).discard(item.callspec.id)
            if item.callspec.id not in mark.args:
                item.add_marker("slow")
    wrong = {name: sorted(left) for (_, name), left in unknown.items() if left}
    if wrong and not any("::" in given for given in config.args):
        raise pytest.UsageError(f"default_cases name cases that do not exist: {wrong}")


def pytest_collection_finish(session):
    """Collect garbage from now on; choose the cases in which lines are measured, three a test, since it takes time."""
    gc.freeze()
    gc.enable()
    plugin, cases = session.config.pluginmanager.getplugin("_cov"), Counter()
    coverage = getattr(getattr(plugin, "cov_controller", None), "cov", None)
    if coverage is None:
        return
    for item in session.items:
        test = item.nodeid.partition("[")[0]
        cases[test] += 1
        if cases[test] <= 3:
            item.stash[COVERAGE] = coverage
    while running := type(coverage).current():  # a worker has two, and stopping one resumes the other
        running.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Measure lines in the chosen cases."""
    coverage = item.stash.get(COVERAGE, None)
    if coverage is None:
        return (yield)
    coverage.start()
    try:
        return (yield)
    finally:
        coverage.stop()


@pytest.fixture(autouse=True)
def _figures_are_closed():
    """Whatever a test draws is gone after it; matplotlib warns of many open figures."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def accelerator(monkeypatch):
    """Make the CPU count as an accelerator does, where no value is read during an update."""
    for module in (rooms.batches, rooms.adjusted_margins, rooms.base):
        monkeypatch.setattr(module, "reading_is_free", lambda _: False)


@pytest.fixture
def _offline(tmp_path, monkeypatch):
    """Recipes of trainers and loggers reach no service, and leave no environment behind."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["trainers.py"])  # which LightningCLI reads
    monkeypatch.setenv("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # of what Lightning calls
    torch.manual_seed(0)
    before = dict(os.environ)
    yield
    os.environ.clear()  # of what Lightning and MLflow are told by it
    os.environ.update(before)
