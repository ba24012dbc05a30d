"""Packages that may be missing, and what the oldest versions that imbtorch runs with do not do."""

import inspect
import warnings

import pytest
import torch
from packaging.version import Version

TORCH = Version(torch.__version__)
ONE_GRAPH = Version("2.5") <= TORCH  # torch 2.4 breaks a traced update into several graphs
needs_simulated_device = pytest.mark.skipif(Version("2.10") > TORCH, reason="no backends in Python before torch 2.10")
needs_fsdp2_on_cpus = pytest.mark.skipif(Version("2.6") > TORCH, reason="FSDP2 is elsewhere before torch 2.6")


def traced(function, backend="eager"):
    """Compile as one graph where torch can, else as several, which must count the same."""
    return torch.compile(function, fullgraph=ONE_GRAPH, backend=backend)


def _is_new(package):
    return "weights_only" in inspect.signature(package.Trainer.fit).parameters  # since Lightning 2.6


def loading(package, checkpoint, weights_only):
    """Arguments of a Trainer that loads a checkpoint; older Lightning loads everything without being asked."""
    return {"ckpt_path": checkpoint} | ({"weights_only": weights_only} if _is_new(package) else {})


def needs_callbacks_for(package):
    """Skip where a Trainer of pytorch_lightning refuses our callbacks, made for ``lightning`` if both are there."""
    if package.__name__ != "lightning" and not _is_new(package):
        pytest.skip("with both packages imported, older Lightning takes none but its own callbacks")


def needs_resumed_epochs(package):
    """Skip where Lightning itself takes a step too many in an epoch that it resumes."""
    if not _is_new(package):
        pytest.skip("older Lightning takes 13 steps of 12 when it resumes an epoch")


def import_or_skip(package):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what packages do as they are imported
        return pytest.importorskip(package, reason=f"{package} is missing: pip install 'imbtorch[recipes]'")
