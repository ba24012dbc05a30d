"""Run Lightning's own tests of its checkpoint callback against ``TiesCheckpoint``.

Get the tests of the installed version, for example by ``git clone --depth 1 --branch 2.6.5
https://github.com/Lightning-AI/pytorch-lightning``, and run from the root of this repository::

    python tests/helpers/lightnings_checkpoint_tests.py pytorch-lightning

The tests run twice, with Lightning's class and with ours in its place. The script prints the tests that only ours
fails, and fails itself if :data:`OF_ITS_NAME` does not name one of them.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

FILES = ("test_model_checkpoint", "test_trainer_checkpoint", "test_checkpoint_callback_frequency")
# tests that look the state up by the key of Lightning's class, "ModelCheckpoint{...}"; all others pass
OF_ITS_NAME = {
    "test_current_score",
    "test_model_checkpoint_save_last_checkpoint_contents",
    "test_model_checkpoint_score_and_ckpt",
    "test_model_checkpoint_score_and_ckpt_val_check_interval",
    "test_model_checkpoint_state_key",
}


def replace_lightnings() -> None:
    """Put our class wherever Lightning has its own."""
    import lightning.pytorch.callbacks as callbacks

    theirs = callbacks.ModelCheckpoint

    from imbtorch.lightning import TiesCheckpoint

    for name, module in list(sys.modules.items()):
        if name.startswith("lightning.") and vars(module).get("ModelCheckpoint") is theirs:
            vars(module)["ModelCheckpoint"] = TiesCheckpoint


if os.environ.get("CHECKPOINT_OF") == "imbtorch":  # imported as a plugin of pytest
    replace_lightnings()


def outcomes(clone: Path, whose: str) -> dict[str, str]:
    """Run the tests in a process of their own; return those not skipped -> first line of the error, empty if none."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        tests = clone.resolve() / "tests"
        paths = os.pathsep.join(map(str, (tests, Path(__file__).parent, os.environ.get("PYTHONPATH", ""))))
        environment = {**os.environ, "CHECKPOINT_OF": whose, "PYTHONPATH": paths, "IMBTORCH_MONITOR_GUARD": "0"}
        files = [str(tests / "tests_pytorch" / "checkpointing" / f"{name}.py") for name in FILES]
        options = [
            "-q",
            "-c",
            os.devnull,
            "--rootdir",
            str(tests),
            "-p",
            Path(__file__).stem,
            "--junit-xml",
            str(report),
        ]
        subprocess.run([sys.executable, "-m", "pytest", *options, *files], cwd=folder, env=environment, check=False)
        cases = ElementTree.parse(report).iter("testcase")
        return {
            f"{case.get('classname')}.{case.get('name')}": " ".join(
                each.get("message", "").split("\n")[0] for each in case if each.tag in ("failure", "error")
            )
            for case in cases
            if case.find("skipped") is None
        }


def write(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main(clone: str) -> int:
    """Print the tests that only our class fails; return whether any is not known."""
    theirs, ours = (outcomes(Path(clone), whose) for whose in ("lightning", "imbtorch"))
    failed = {test: error for test, error in ours.items() if error and not theirs[test]}
    names = {test: test.rpartition("test_model_checkpoint.")[2].partition("[")[0] for test in failed}
    known = {test for test, error in failed.items() if names[test] in OF_ITS_NAME and "ModelCheckpo" in error}
    for test, error in failed.items():
        write(f"{'asserts the key' if test in known else 'FAILS'}: {test}: {error}")
    passed = sum(not error for error in ours.values())
    write(f"{len(ours)} tests: {passed} pass with ours, {sum(not error for error in theirs.values())} with Lightning's")
    return int(failed.keys() != known)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
