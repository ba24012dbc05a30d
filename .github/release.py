"""Check a release: tag, version and changelog agree, the files build, and the wheel runs in a fresh environment.

    python .github/release.py version
    python .github/release.py check v0.8.0

Needs Python 3.11 with build, hatchling and twine, in the versions of the extra ``dev``. The README of what is built
installs from PyPI (INSTALL.md). With ``--publish`` it also requires what a rehearsal only lists: the date in the
changelog, the entries that RELEASING.md says to fill in, and absolute links, for which CI sets ``GITHUB_REPOSITORY``.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
LARGEST = {".whl": 650_000, ".gz": 2_700_000}  # bytes; a file above grew by more than code
FOREIGN = re.compile(r"(^|/)(tests?|examples|[a-z]*_study|conftest|test_[^/]*)(/|\.|$)")
ADDRESSES = ("Repository", "Documentation", "Changelog", "Issues")

PROGRAM = """
import sys

import torch

import imbtorch

assert imbtorch.__file__.startswith(sys.prefix), imbtorch.__file__
target, preds = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 2]), torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 0, 2])
report = imbtorch.ImbalanceReport("multiclass", class_names=["cat", "dog", "emu"])
report.update(preds, target)
result = report.result()
assert abs(result["iam"].item() - 2 / 3) < 1e-6, result["iam"]
result.to_json("a result.json")
opened = imbtorch.open_result("a result.json")
assert opened.signature == result.signature, opened.signature
assert str(opened.table()) == str(result.table())
print(imbtorch.__version__)
"""
ROWS = "label,pred\n" + 5 * "cat,cat\n" + "cat,dog\n" + 2 * "dog,dog\n" + "dog,cat\n" + "a rare emu,a rare emu\n"


def main(arguments: list[str] | None = None) -> None:
    """Run the command; a failed check ends the process with its reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version", help="print the version of the source")
    check = commands.add_parser("check", help="check everything that a release needs")
    check.add_argument("tag", help="tag of the release, such as v0.8.0")
    check.add_argument("--publish", action="store_true", help="also require what a rehearsal only lists")
    check.add_argument("--dist", type=Path, help="empty or new folder that keeps the built files")
    options = parser.parse_args(arguments)
    if options.command == "version":
        print(version())
        return
    check_names(options.tag)
    left = open_points()
    if left and options.publish:
        raise SystemExit("fill in before the release: " + "; ".join(left))
    with tempfile.TemporaryDirectory(prefix="release of imbtorch ") as folder:  # spaces, as in many a home folder
        dist = options.dist or Path(folder) / "dist"
        wheel, built = build(dist)
        check_readme(wheel, links=options.publish)
        try_out(wheel, Path(folder))
        check_unchanged(dist, built)
    for each in left:
        print(f"left before the release: {each}")
    print(f"{options.tag} can be released" if not left else f"{options.tag} is rehearsed")


# --- names ------------------------------------------------------------------------------------------------------------


def version() -> str:
    """Return the version of the source, without importing it."""
    text = (ROOT / "imbtorch" / "version.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


def newest_heading() -> tuple[str, str]:
    """Return the version and the rest of the changelog's first heading of a version."""
    text = (ROOT / ".github" / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## v?(\d[^\s,]*),? *(.*)$", text, re.MULTILINE)
    if found is None:
        raise SystemExit("CHANGELOG.md has no heading of a version, such as '## 0.7.0, 2026-12-01'")
    return found[1], found[2]


def check_names(tag: str) -> None:
    """Refuse a tag that is not of the version and of the changelog's first heading."""
    source, (heading, _) = version(), newest_heading()
    if tag != f"v{source}":
        raise SystemExit(f"the tag is {tag}, but imbtorch/version.py has {source}: expected v{source}")
    if heading != source:
        raise SystemExit(f"imbtorch/version.py has {source}, but the first heading of CHANGELOG.md is {heading}")
    print(f"tag, version and changelog: {source}")


def open_points() -> list[str]:
    """Return what a person has yet to fill in."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    archive = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    addresses = [name for name in ADDRESSES if name not in project.get("urls", {})]
    changes, citing, support, site, matrix = (
        (ROOT / ".github" / name).read_text(encoding="utf-8")
        for name in ("CHANGELOG.md", "CITING.md", "SUPPORT.md", "docs/conf.py", "workflows/versions.yml")
    )
    heading, rest = newest_heading()
    authors = [each.get("name", "") for each in project.get("authors", ())]
    newest = max(re.findall(r'"3\.(\d+)"', matrix), key=int)
    earlier = len(re.findall(r"^## v?\d[^\s,]*, *\d{4}-\d\d-\d\d", changes, re.MULTILINE)) > 1
    points = {
        f"the date of {heading} in CHANGELOG.md": not re.search(r"\d{4}-\d\d-\d\d", rest),
        "'on PyPI yet' in CHANGELOG.md": "on PyPI yet" in changes,
        "authors in pyproject.toml": not authors,
        f"project.urls in pyproject.toml: {', '.join(addresses)}": addresses,
        f"the classifier of Python 3.{newest} in pyproject.toml, or its job in versions.yml": (
            f"Programming Language :: Python :: 3.{newest}" not in project["classifiers"]
        ),
        "creators in .zenodo.json": not archive.get("creators"),
        "the authors in CITING.md": not authors or not all(name in citing for name in authors),
        "the DOI in CITING.md, which Zenodo gave the version before": earlier and "no DOI yet" in citing,
        "html_baseurl in .github/docs/conf.py": not re.search(r'^html_baseurl = "https://', site, re.MULTILINE),
        "an address under 'Privately' in SUPPORT.md": not re.search(
            r"[\w.+-]+@[\w-]+\.\w+|https://", support.partition("## Privately")[2]
        ),
    }
    return [point for point, is_open in points.items() if is_open]


# --- files ------------------------------------------------------------------------------------------------------------


def build(dist: Path) -> tuple[Path, dict[str, str]]:
    """Build sdist and wheel into a folder, check both, and return the wheel, and the digest of each file once built."""
    if dist.exists() and any(dist.iterdir()):
        raise SystemExit(f"{dist} must be empty, since everything in it would be published")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, ROOT, IMBTORCH_INDEX="1")
    files, built = sorted(dist.iterdir()), digests(dist)
    expected = [f"imbtorch-{version()}-py3-none-any.whl", f"imbtorch-{version()}.tar.gz"]
    if [file.name for file in files] != expected:
        raise SystemExit(f"built {', '.join(file.name for file in files)}; expected {' and '.join(expected)}")
    call(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files)
    for file in files:
        check_size(file)
    check_contents(files[0])
    return files[0], built


def digests(dist: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder, by its name."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(dist.iterdir())}


def check_unchanged(dist: Path, built: dict[str, str]) -> None:
    """Refuse files that are not those that were built, since packages of others have run beside them."""
    if (found := digests(dist)) != built:
        differ = sorted(name for name in {*found, *built} if found.get(name) != built.get(name))
        raise SystemExit(f"{', '.join(differ)} in {dist} changed after the build, while packages of others ran")
    for name, digest in built.items():
        print(f"{name}: sha256 {digest}")


def check_readme(wheel: Path, links: bool) -> None:
    """Refuse a README that installs from a clone, or, if asked for, has links that lead nowhere on PyPI."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"imbtorch-{version()}.dist-info/METADATA").decode("utf-8")
    if "on PyPI yet" in text or 'pip install "imbtorch' not in text:
        raise SystemExit("the README of the wheel must install imbtorch from PyPI; see .github/INSTALL.md")
    relative = re.findall(r"\]\((?!https?:|#)([^)\s]+)\)", text)
    if links and relative:
        raise SystemExit(f"{relative[0]} in the README leads nowhere on PyPI; set GITHUB_REPOSITORY=owner/name")


def check_size(file: Path) -> None:
    """Print the size of a file, and refuse a large one."""
    size, most = file.stat().st_size, LARGEST[file.suffix]
    print(f"{file.name}: {size:,} bytes of at most {most:,}")
    if size > most:
        raise SystemExit(f"{file.name} is too large; look at what it holds, or raise LARGEST in .github/release.py")


def check_contents(wheel: Path) -> None:
    """Refuse a wheel with tests, studies, or anything else beside the package."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    own = ("imbtorch/", "imbtorch_entry_point.py", f"imbtorch-{version()}.dist-info/")
    foreign = [name for name in names if not name.startswith(own) or FOREIGN.search(name)]
    if foreign:
        raise SystemExit(f"{wheel.name} must hold the package alone, but it holds {', '.join(foreign[:5])}")
    print(f"{wheel.name}: {len(names)} files, of which none is a test or a study")


# --- a fresh environment ----------------------------------------------------------------------------------------------


def try_out(wheel: Path, folder: Path) -> None:
    """Install a wheel with the pinned packages of its extras in a new environment, and use it there."""
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    scripts = environment / ("Scripts" if sys.platform == "win32" else "bin")
    python = scripts / "python"
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.message_from_bytes(archive.read(f"imbtorch-{version()}.dist-info/METADATA"))
    (torch,) = re.findall(r"torch==\S+(?=; extra == 'examples')", "\n".join(metadata.get_all("Requires-Dist")))
    # pip finds torch for the CPU; uv, where it is there, installs the others in a tenth of pip's time
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
    call(*pip, torch)
    uv = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python)
    call(*(uv if find_spec("uv") else pip), f"{wheel}[examples,files]")

    (folder / "some predictions.csv").write_text(ROWS, encoding="utf-8")
    said = call(python, "-I", "-c", PROGRAM, cwd=folder)
    expect(said, version(), "a report, a saved result that opens")
    quickstart = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    said = call(python, "-I", "-W", "ignore", "-c", quickstart, cwd=folder)
    expect(said, "Gain over the plain rule", "the quickstart")
    table = ("some predictions.csv", "--target", "label", "--preds", "pred")
    said = call(scripts / "imbtorch", "report", *table, "--json", "from the command.json", cwd=folder)
    expect(said, f"imbtorch {version()} | multiclass, 3 classes | 10 samples", "imbtorch report")
    said = call(scripts / "imbtorch", "compare", table[0], *table, "--measure", "iam", "--margin", "0.1", cwd=folder)
    expect(said, "No prediction differs", "imbtorch compare")


def expect(said: str, text: str, what: str) -> None:
    """Refuse output without a text."""
    if text not in said:
        raise SystemExit(f"{what} must print {text!r}, got:\n{said}")
    print(f"in a fresh environment: {what}")


def call(*command: str | Path, cwd: Path = ROOT, code: int = 0, **variables: str) -> str:
    """Run a command with environment variables and return what it prints; refuse another exit code."""
    words = [str(word) for word in command]
    environment = {**os.environ, "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=900, check=False
    )
    if done.returncode != code:
        shown = " ".join(word if len(word) < 200 else "..." for word in words)
        raise SystemExit(f"{shown} ended with {done.returncode} in place of {code}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


if __name__ == "__main__":
    main()
