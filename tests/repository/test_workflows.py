"""Workflows and scripts of CI: they parse, everything that they name exists, and their expressions run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
yaml = pytest.importorskip("yaml", reason="needs PyYAML, which Lightning installs")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="needs the workflows, which an sdist leaves out")

READ = {"contents": "read"}
MADE = (".venv/", "bin/", "dist", "out/")  # what scripts make
WORKFLOWS = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.yml"))}
JOBS = [(file, name, job) for file, workflow in WORKFLOWS.items() for name, job in workflow["jobs"].items()]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {name: list(map(Requirement, needed)) for name, needed in PROJECT["optional-dependencies"].items()}


def scripts():
    """Yield the name and text of every script: steps of workflows, .ci/run, and commands of RELEASING."""
    for file, name, job in JOBS:
        for number, step in enumerate(job.get("steps", ())):
            if "run" in step:
                yield f"{file}-{name}-{number}", step["run"]
    ci = ROOT / ".ci" / "run"
    yield "ci", ci.read_text(encoding="utf-8")
    pages = (ROOT / ".github" / name for name in ("RELEASING.md", "CONTRIBUTING.md"))
    for page in pages:
        blocks = re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        yield from ((f"{page.stem}-{number}", block) for number, block in enumerate(blocks))


SCRIPTS = dict(scripts()) if FOLDER.exists() else {}


def steps(job, key):
    return [step for step in job.get("steps", ()) if key in step]


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_shell_and_name_what_exists(name):
    script = SCRIPTS[name]
    subprocess.run(["bash", "-n"], input=script, text=True, encoding="utf-8", timeout=60, check=True)
    code = re.sub(r"(^|\s)#.*|printf .*|-c \"[^\"]*\"|https://\S+", "", script)
    words = re.findall(r"(?:^|(?<=[\s\"'(]))(\.?[\w-][\w.-]*(?:/[\w.-]+)+|[\w-]+\.(?:py|md|toml|yml))\b", code)
    missing = [word for word in words if not word.startswith(MADE) and not (ROOT / word).exists()]
    assert not missing


@pytest.mark.parametrize("name", [name for name in SCRIPTS if "$(" in SCRIPTS[name]])
def test_expressions_of_scripts_run(name):
    expressions = re.findall(r"\$\(([^()$]*)\)", SCRIPTS[name])
    for expression in [each for each in expressions if not each.startswith(("mktemp", "cd .."))]:
        command = re.sub(r"^(\.venv/bin/)?python\b", f'"{Path(sys.executable).as_posix()}"', expression)
        done = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{expression}: {done.stderr}"
        assert done.stdout.strip(), expression


@pytest.mark.parametrize(("file", "name", "job"), JOBS, ids=[f"{file}-{name}" for file, name, _ in JOBS])
def test_jobs_need_run_and_upload_what_exists(file, name, job):
    jobs = WORKFLOWS[file]["jobs"]
    needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
    assert set(needed) <= set(jobs) - {name}
    if "uses" in job:  # another workflow of this repository
        called = WORKFLOWS[Path(job["uses"]).name]
        assert job["uses"] == f"./.github/workflows/{Path(job['uses']).name}"
        assert "workflow_call" in called[True]  # YAML 1.1 reads the key "on" as true
        return
    assert job["timeout-minutes"] <= 60
    for step in steps(job, "uses"):
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@((release/)?v\d+|[0-9a-f]{40})", step["uses"]), step["uses"]
        action, options = step["uses"].partition("@")[0], step.get("with", {})
        if "upload" in action:
            assert any(options["path"].strip("/") in run["run"] for run in steps(job, "run"))
        if "download" in action:
            uploads = [each for other in needed for each in steps(jobs[other], "uses") if "upload" in each["uses"]]
            assert options["name"] in [each["with"]["name"] for each in uploads]


@pytest.mark.parametrize("file", WORKFLOWS)
def test_permissions_are_minimal_and_no_secret_exists(file):
    workflow = WORKFLOWS[file]
    assert workflow["permissions"] == READ
    assert "secrets" not in (FOLDER / file).read_text(encoding="utf-8")
    for name, job in workflow["jobs"].items():
        own = job.get("permissions", READ)
        expected = {"release.yml": {"id-token": "write"}, "docs.yml": {"id-token": "write", "pages": "write"}}
        assert own == (expected[file] if name == "publish" else READ)
        assert ("environment" in job) == (name == "publish")


@pytest.mark.parametrize(("file", "name", "job"), JOBS, ids=[f"{file}-{name}" for file, name, _ in JOBS])
def test_expressions_of_workflows_name_what_the_job_has(file, name, job):
    matrix = job.get("strategy", {}).get("matrix", {})
    known = {f"matrix.{key}" for key in matrix if key != "include"}
    known |= {f"steps.{step['id']}.outputs" for step in job.get("steps", ()) if "id" in step}
    for row in matrix.get("include", ()):
        assert {f"matrix.{key}" for key in row} == known
    text = yaml.safe_dump(job, width=10_000)
    for expression in re.findall(r"\$\{\{(.*?)\}\}", text):  # no "github.", whose values others choose
        names = re.findall(r"\b[a-z]+\.\w+(?:\.outputs)?", re.sub(r"'[^']*'", "", expression))
        assert names, expression
        assert set(names) <= known
    variables = {*WORKFLOWS[file].get("env", {}), *job.get("env", {}), "GITHUB_REF_NAME"}
    for step in steps(job, "run"):
        assert set(re.findall(r"\$(\w+)", step["run"])) <= variables


@pytest.mark.parametrize(("file", "name", "job"), JOBS, ids=[f"{file}-{name}" for file, name, _ in JOBS])
def test_jobs_install_what_they_run_in_the_pinned_versions(file, name, job):
    environment = {**WORKFLOWS[file].get("env", {}), **job.get("env", {})}
    installed, pins = set(), {(each.name, str(each.specifier)) for needed in EXTRAS.values() for each in needed}
    for step in steps(job, "run"):
        line = re.sub(r"\$(\w+)", lambda found: str(environment.get(found[1])), step["run"])
        if module := re.search(r"python -m (\w+)", line):
            assert module[1] in installed
        if not line.startswith("pip install"):
            continue
        for extra in re.findall(r"\[([\w,]+)\]", line):
            installed |= {each.name for key in extra.split(",") for each in EXTRAS[key]}
        words = [word for word in line.split()[2:] if not word.startswith(("-", "http", ".", '"', "$"))]
        for requirement in [Requirement(word) for word in words if re.match(r"\w+[\w=.-]*$", word)]:
            installed.add(requirement.name)
            if requirement.specifier and name != "oldest":
                assert (requirement.name, str(requirement.specifier)) in pins


def test_the_oldest_versions_are_all_lower_bounds():
    """A new dependency needs its pin in the job that tests the oldest versions."""
    needed = [*map(Requirement, PROJECT["dependencies"]), *EXTRAS["lightning"], *EXTRAS["plot"], *EXTRAS["files"]]
    bounds = {f"{each.name}=={str(each.specifier).removeprefix('>=')}" for each in needed}
    oldest = WORKFLOWS["versions.yml"]["jobs"]["oldest"]
    pinned = set(WORKFLOWS["versions.yml"]["env"]["OLDEST"].split())
    pinned |= {pin for step in steps(oldest, "run") for pin in re.findall(r"\btorch==[\d.]+", step["run"])}

    def padded(pin):
        return re.sub(r"==(\d+\.\d+)$", r"==\1.0", pin)

    assert set(map(padded, pinned)) == set(map(padded, bounds))


def test_the_classifiers_are_those_of_the_matrix():
    matrix = WORKFLOWS["versions.yml"]["jobs"]["python"]["strategy"]["matrix"]
    systems = {*matrix["os"], *(row["os"] for row in matrix["include"])}
    assert systems == {"ubuntu-latest", "macos-latest", "windows-latest"}
    assert "Operating System :: OS Independent" in PROJECT["classifiers"]
    stated = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert stated == matrix["python"][: len(stated)]
    assert {row["python"] for row in matrix["include"]} == {stated[0], stated[-1]}


def test_a_release_needs_the_tests_and_checks_the_tag():
    assert WORKFLOWS["release.yml"][True] == {"push": {"tags": ["v*"]}}
    jobs = WORKFLOWS["release.yml"]["jobs"]
    assert (jobs["publish"]["needs"], jobs["build"]["needs"]) == ("build", "test")
    assert jobs["test"] == {"uses": "./.github/workflows/ci.yml"}
    assert any("release.py check" in step["run"] for step in steps(jobs["build"], "run"))
    assert "run" not in str(jobs["publish"]["steps"])  # the job that may publish runs no code of this repository


def test_dependabot_watches_the_pins_and_the_actions():
    settings = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))
    assert settings["version"] == 2
    watched = {each["package-ecosystem"]: each for each in settings["updates"]}
    assert set(watched) == {"pip", "github-actions"}
    for each in settings["updates"]:
        assert (each["directory"], each["schedule"]) == ("/", {"interval": "monthly"})
        assert all(group == {"patterns": ["*"]} for group in each["groups"].values())


def test_the_recipe_for_conda_requires_what_the_package_does():
    page = (ROOT / ".github" / "RELEASING.md").read_text(encoding="utf-8")
    recipe = yaml.safe_load(re.search(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1])
    names = {"torch": "pytorch", "typing-extensions": "typing_extensions"}
    needed = [Requirement(each) for each in PROJECT["dependencies"]]
    expected = [f"{names.get(each.name, each.name)} {each.specifier}" for each in needed]
    assert recipe["requirements"]["run"] == ["python >=${{ python_min }}", *expected]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert [each.replace(" ", "") for each in recipe["requirements"]["host"][2:]] == build
    scripts = [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    assert recipe["about"]["license"] == PROJECT["license"]


def test_the_page_on_releases_names_all_that_the_script_requires():
    page = (ROOT / ".github" / "RELEASING.md").read_text(encoding="utf-8")
    for name in ("authors", "Repository", "Documentation", "Changelog", "Issues", "creators", "pypi", "release.yml"):
        assert f"`{name}`" in page
