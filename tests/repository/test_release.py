"""The script that checks a release refuses what does not fit, and what a release adds to archives is valid."""

import importlib.util
import json
import re
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
    for name in ("imbtorch/version.py", ".github/CHANGELOG.md", "pyproject.toml", ".zenodo.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
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
    assert release.open_points() == ["creators in .zenodo.json"]
    (tmp_path / ".zenodo.json").write_text('{"creators": [{"name": "Person, A"}]}', encoding="utf-8")
    assert release.open_points() == []


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
    assert "bytes of at most 550,000" in capsys.readouterr().out
    wheel.write_bytes(bytes(500_001))
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
