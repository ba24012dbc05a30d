"""The script that checks a release refuses what does not fit, and what a release adds to archives is valid."""

import hashlib
import importlib.util
import json
import re
import runpy
import zipfile
from pathlib import Path

import pytest

import imbtorch

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".github" / "release.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="needs the release script, which an sdist leaves out")

# fields of a deposit in Zenodo's REST API that .zenodo.json may hold, and the values of those with a vocabulary
FIELDS = {
    "access_right",
    "communities",
    "contributors",
    "creators",
    "description",
    "grants",
    "keywords",
    "language",
    "license",
    "notes",
    "publication_date",
    "references",
    "related_identifiers",
    "title",
    "upload_type",
    "version",
}
PERSON = {"name", "affiliation", "orcid", "gnd"}


@pytest.fixture
def release():
    pytest.importorskip("tomllib", reason="needs Python 3.11")
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copied(release, tmp_path, monkeypatch):
    """Files that the script reads, in a folder where a test changes them."""
    pages = [f".github/{name}" for name in ("CHANGELOG.md", "CITING.md", "SUPPORT.md", "docs/conf.py")]
    for name in ("imbtorch/version.py", *pages, ".github/workflows/versions.yml", "pyproject.toml", ".zenodo.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(release, "ROOT", tmp_path)

    def change(name, before, after):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert re.search(before, text, re.MULTILINE)
        text = re.sub(before, after, text, count=1, flags=re.MULTILINE)
        (tmp_path / name).write_text(text, encoding="utf-8")

    return change


def test_the_version_is_read_without_an_import(release, capsys):
    release.main(["version"])
    assert capsys.readouterr().out == f"{imbtorch.__version__}\n"
    release.check_names(f"v{imbtorch.__version__}")


@pytest.mark.parametrize(
    "tag", ["v9.9.9", imbtorch.__version__, f"v{imbtorch.__version__}.1", f"V{imbtorch.__version__}"]
)
def test_another_tag_is_refused(tag, release):
    with pytest.raises(SystemExit, match=rf"the tag is {re.escape(tag)}, but .*: expected v{imbtorch.__version__}"):
        release.main(["check", tag])


def test_another_version_or_heading_is_refused(release, copied):
    copied("imbtorch/version.py", r'"[\d.]+"', '"9.9.9"')
    with pytest.raises(SystemExit, match=r"version.py has 9.9.9, but the first heading of CHANGELOG.md is"):
        release.main(["check", "v9.9.9"])
    with pytest.raises(SystemExit, match=r"expected v9.9.9"):
        release.main(["check", f"v{imbtorch.__version__}"])
    copied(".github/CHANGELOG.md", r"^## \d[^\s,]*", "## 9.9.9")
    release.check_names("v9.9.9")


def test_only_a_rehearsal_leaves_points_open(release, copied, tmp_path):
    copied(".github/CHANGELOG.md", r"^(## \d[^\s,]*).*$", r"\1, not yet released")
    with pytest.raises(SystemExit, match=r"fill in before the release: the date of .* in CHANGELOG.md"):
        release.main(["check", f"v{imbtorch.__version__}", "--publish"])
    copied(".github/CHANGELOG.md", r"not yet released$", "2026-12-31")
    lines = [f'{name} = "https://example.org"' for name in release.ADDRESSES]
    copied("pyproject.toml", r"^\[project.scripts\]$", "\n".join(["[project.urls]", *lines, "", "[project.scripts]"]))
    copied("pyproject.toml", r"^name = .*$", 'name = "imbtorch"\nauthors = [{name = "A Person"}]')
    left = {
        "'on PyPI yet' in CHANGELOG.md": (
            ".github/CHANGELOG.md",
            "^No version is on PyPI yet.*$",
            "Older sections left.",
        ),
        "the classifier of Python 3.14 in pyproject.toml, or its job in versions.yml": (
            "pyproject.toml",
            '^    "Programming Language :: Python :: 3.13",$',
            '    "Programming Language :: Python :: 3.13",\n    "Programming Language :: Python :: 3.14",',
        ),
        "creators in .zenodo.json": (".zenodo.json", r"^\{", '{"creators": [{"name": "Person, A"}],'),
        "the authors in CITING.md": (".github/CITING.md", "^imbtorch itself", "imbtorch is by A Person. It"),
        "html_baseurl in .github/docs/conf.py": (
            ".github/docs/conf.py",
            "^html_theme",
            'html_baseurl = "https://example.org/"\nhtml_theme',
        ),
        "an address under 'Privately' in SUPPORT.md": (
            ".github/SUPPORT.md",
            "^Security problems",
            "a@example.org. Security",
        ),
    }
    for point, change in left.items():
        assert point in release.open_points()
        copied(*change)
        assert point not in release.open_points()
    assert release.open_points() == []
    copied(".github/CHANGELOG.md", r"^## 0.6.0, not released$", "## 0.6.0, 2026-01-31")
    assert release.open_points() == ["the DOI in CITING.md, which Zenodo gave the version before"]
    copied(".github/CITING.md", "has no DOI yet", "is 10.5281/zenodo.1")
    assert release.open_points() == []


def test_the_places_to_fill_in_are_those_of_the_page(release):
    """Of a copy that fills in nothing, the script names each place of the list, and the page no other one."""
    page = (ROOT / ".github" / "RELEASING.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- (.*)$", page.partition("### Fill in before")[2].partition("\nThe README")[0], re.MULTILINE)
    points = release.open_points()
    for place in listed:
        file = Path(re.search(r"`([\w./]+\.\w+)`", place)[1]).name
        assert any(file in point for point in points), place
    assert {Path(word).name for point in points for word in re.findall(r"[\w./]+\.(?:md|toml|json|py)\b", point)} == {
        Path(word).name for place in listed for word in re.findall(r"`([\w./]+\.(?:md|toml|json|py))`", place)
    }


def test_what_is_published_installs_from_the_index():
    """And the README of the repository from a clone; a person changes it after the release."""
    switch = runpy.run_path(str(ROOT / ".github" / "readme.py"))["installing_from_the_index"]
    readme, variant = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", ".github/INSTALL.md"))
    assert "not on PyPI yet" in readme
    switched = switch(readme, variant)
    assert "on PyPI yet" not in switched
    assert 'pip install "imbtorch[lightning,plot,files]" scikit-learn' in switched
    head, section = readme.split("## Install\n")
    assert switched.startswith(head)
    assert switched.endswith(section.partition("```sh\n")[2].partition("```\n")[2])
    assert switch(switched, variant) == switched
    for other in (readme.replace("## Install\n", "## Setup\n"), readme + "\n## Install\n\n```sh\n```\n"):
        with pytest.raises(ValueError, match=r"README\.md needs one section '## Install'"):
            switch(other, variant)


@pytest.mark.parametrize(
    ("readme", "links", "refused"),
    [
        ('pip install "imbtorch[files]"', True, ""),
        ('not on PyPI yet; pip install "imbtorch"', False, "must install imbtorch from PyPI"),
        ('pip install ".[files]"', False, "must install imbtorch from PyPI"),
        ('pip install "imbtorch" [page](examples/a.md)', False, ""),
        ('pip install "imbtorch" [page](examples/a.md)', True, "examples/a.md in the README leads nowhere on PyPI"),
        ('pip install "imbtorch" [page](https://example.org/a.md) [below](#b)', True, ""),
    ],
)
def test_a_readme_that_misleads_on_the_index_is_refused(readme, links, refused, release, tmp_path):
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as archive:
        archive.writestr(f"imbtorch-{imbtorch.__version__}.dist-info/METADATA", readme)
    if not refused:
        release.check_readme(tmp_path / "some.whl", links)
        return
    with pytest.raises(SystemExit, match=refused):
        release.check_readme(tmp_path / "some.whl", links)


def test_files_that_change_beside_packages_of_others_are_refused(release, tmp_path, monkeypatch, capsys):
    """The script takes digests of what it built before it checks and tries it."""
    names = [f"imbtorch-{imbtorch.__version__}-py3-none-any.whl", f"imbtorch-{imbtorch.__version__}.tar.gz"]

    def run(*command, **_):
        if "build" in command:
            dist.mkdir()
            for name in names:
                (dist / name).write_bytes(b"built")
        elif "twine" in command:  # the first package of others that could change them
            (dist / changed).write_bytes(b"changed")
        return ""

    monkeypatch.setattr(release, "call", run)
    for check in ("check_size", "check_contents"):
        monkeypatch.setattr(release, check, lambda _: None)
    for name in (names[0], "another.whl"):
        dist, changed = tmp_path / name, name
        _, built = release.build(dist)
        with pytest.raises(SystemExit, match=f"^{re.escape(name)} in .* changed after the build"):
            release.check_unchanged(dist, built)
    (dist / "another.whl").unlink()
    release.check_unchanged(dist, built)
    assert f"{names[0]}: sha256 {hashlib.sha256(b'built').hexdigest()}" in capsys.readouterr().out


def wheel_with(folder, *names):
    path = folder / "some.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("imbtorch/__init__.py", f"imbtorch-{imbtorch.__version__}.dist-info/METADATA", *names):
            archive.writestr(name, "")
    return path


@pytest.mark.parametrize(
    "name",
    [
        "tests/test_counts.py",
        "imbtorch/tests/oracles.py",
        "imbtorch/metrics/test_report.py",
        "imbtorch/conftest.py",
        "examples/quickstart.py",
        "imbtorch/decision_study/run.py",
        "other.py",
    ],
)
def test_a_wheel_with_tests_or_studies_is_refused(name, release, tmp_path):
    release.check_contents(wheel_with(tmp_path, "imbtorch_entry_point.py", "imbtorch/papers/latest.py"))
    with pytest.raises(SystemExit, match=f"it holds {name}$"):
        release.check_contents(wheel_with(tmp_path, name))


def test_a_large_file_and_a_folder_with_old_files_are_refused(release, tmp_path, capsys):
    wheel = wheel_with(tmp_path)
    release.check_size(wheel)
    assert "bytes of at most 650,000" in capsys.readouterr().out
    wheel.write_bytes(bytes(650_001))
    with pytest.raises(SystemExit, match="too large"):
        release.check_size(wheel)
    with pytest.raises(SystemExit, match="must be empty"):
        release.build(tmp_path)


def test_a_failed_command_shows_what_it_printed(release):
    assert release.call(release.sys.executable, "-c", "print('said')") == "said\n"
    with pytest.raises(SystemExit, match=r"ended with 3 in place of 0:\nsaid"):
        release.call(release.sys.executable, "-c", "print('said'); raise SystemExit(3)")


def test_the_archive_takes_the_metadata():
    data = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    assert {"title", "upload_type", "license", "description", "access_right"} <= set(data) <= FIELDS
    assert (data["upload_type"], data["license"], data["access_right"]) == ("software", "apache-2.0", "open")
    assert all(isinstance(word, str) and word for word in data["keywords"])
    assert not re.search(r"[<>&]", data["title"] + data["description"])  # Zenodo reads the description as HTML
    for person in data.get("creators", ()):
        assert {"name"} <= set(person) <= PERSON
        assert ", " in person["name"]  # family name first
        assert re.fullmatch(r"\d{4}-\d{4}-\d{4}-\d{3}[\dX]", person.get("orcid", "0000-0000-0000-0000"))
