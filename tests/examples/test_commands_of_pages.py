"""Commands that pages name: each program runs with its options, here or in the test that a table names."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "examples").rglob("*.md")), *sorted((ROOT / ".github").glob("*.md"))]
COMMAND = re.compile(
    r"(?:python3?|torchrun(?: --\S+ \S+)*) ((?:examples|tests|\.github)/[\w/.]+\.py)"
    r"((?: [\w./=:-]+)*)(?=[`\s#&|;\"$]|$)"
)
SECTIONS = (ROOT / "examples" / "benchmark.py").read_text(encoding="utf-8").split("SECTIONS = {")[1]
SECTIONS = re.findall(r'^    "(\w+)": \w+,$', SECTIONS, re.M)  # of --all
HERE = {  # command -> arguments of a quick form, which a copy of the repository runs
    "tests/helpers/processor_time.py python -m pytest -q -n auto": [sys.executable, "-c", "pass"],
    ".github/release.py": ["version"],
    ".github/reference.py": [],
    "examples/threshold_study/run.py --report": ["--report"],
    "examples/monitor_study/monitors.py --report": ["--report"],
    "examples/costs_study/run.py --report": ["--report"],
    "examples/labels/report.py": [],
    "examples/labels/report_2.py": [],
    "examples/labels/run.py": ["--sets", "2", "--pools", "1", "--only", "binormal", "--out", "results.csv"],
}
ELSEWHERE = {  # test that runs the program, or what its main function calls, on less data -> commands
    "examples/test_examples.py::test_train_digits_runs_in_two_processes": ["examples/train_digits.py"],
    "examples/test_examples.py::test_segmentation": ["examples/segmentation.py"],
    "examples/test_operating_point.py::test_": ["examples/operating_point.py"],
    "examples/test_trainers.py::test_plain_torch_prints_the_same_on_two_machines": ["examples/plain_torch_ddp.py"],
    "examples/test_coverage.py::test_each_table_is_simulated": ["examples/coverage.py NAME"],
    "examples/test_papers.py::test_iam_tables": ["examples/papers/iam_tables.py --out out"],
    "examples/test_decision_study.py::test_keel_tasks_and_their_hashes": ["examples/decision_study/tasks.py"],
    "examples/test_decision_study.py::test_the_subset_runs_from_training_to_pictures": [
        "examples/decision_study/train.py --out kept",
        "examples/decision_study/measure.py kept",
        "examples/decision_study/report.py",
    ],
    "examples/test_monitor_study.py::test_a_small_run": ["examples/monitor_study/monitors.py"],
    "examples/test_costs_study.py::test_a_table_gives": ["examples/costs_study/run.py --tables /tmp/costs"],
    "examples/test_costs_study.py::test_frequent_values": ["examples/costs_study/tables.py /tmp/costs"],
    "examples/test_threshold_study.py::test_a_small_run": ["examples/threshold_study/run.py"],
    "examples/test_labels_study_2.py::test_": ["examples/labels/run_2.py"],
    "examples/test_labels_study_2.py::test_fresh_pools_are_scored_again": ["examples/labels/pools_2.py"],
    "repository/test_release.py::test_": [".github/release.py check"],
}
APART = ("--logits", "--ignore", "--launches")  # sections that tests/examples/test_examples.py reads


def commands():
    """Programs and options that pages name."""
    found = (COMMAND.findall(page.read_text(encoding="utf-8")) for page in PAGES)
    return sorted({f"{script} {options.strip()}".strip() for page in found for script, options in page})


def ran(*command, folder):
    environment = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "Agg"}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_test_runs_every_command_of_a_page():
    sections = {f"examples/benchmark.py --{name}" for name in ("all", *SECTIONS)}
    assert set(commands()) - sections == HERE.keys() | {each for some in ELSEWHERE.values() for each in some}
    for test in ELSEWHERE:
        file, name = test.split("::")
        assert f"def {name}" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", HERE)
def test_a_command_runs_and_changes_no_page(command, tmp_path):
    for folder in ("examples", "tests/helpers", ".github"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copytree(ROOT / "imbtorch", tmp_path / "imbtorch", ignore=shutil.ignore_patterns("__pycache__"))
    ran(command.split()[0], *HERE[command], folder=tmp_path)
    for page in sorted((tmp_path / "examples").rglob("*.md")):
        assert page.read_bytes() == (ROOT / page.relative_to(tmp_path)).read_bytes(), page


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("section", [each for each in SECTIONS if f"--{each}" not in APART])
def test_each_section_of_the_benchmark_runs(section, tmp_path):
    done = ran(str(ROOT / "examples" / "benchmark.py"), "--quick", f"--{section}", folder=tmp_path)
    assert "\n### " in done.stdout


# --- programs of the README -------------------------------------------------------------------------------------------

MODULES = {"scikit-learn": "sklearn"}  # distribution -> module, where the names differ


def installed_by_the_readme():
    """Modules of the packages that the installation of the README brings."""
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (line,) = re.findall(r'^pip install "\.\[([\w,]+)\]"([^#\n]*)$', README.read_text(encoding="utf-8"), re.M)
    wanted = [*project["dependencies"], *line[1].split()]
    for extra in line[0].split(","):
        wanted += project["optional-dependencies"][extra]
    names = [re.match(r"[\w-]+", each)[0] for each in wanted]
    return {"imbtorch", *(MODULES.get(name, name.replace("-", "_")) for name in names)}


def test_programs_of_the_readme_need_only_what_it_installs():
    linked = re.findall(r"\]\((examples/[\w/]+\.py)\)", README.read_text(encoding="utf-8"))
    assert len(set(linked)) >= 4
    for program in linked:
        tree = ast.parse((ROOT / program).read_text(encoding="utf-8"))
        names = {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
        names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        modules = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
        assert modules <= installed_by_the_readme(), program
