"""Other systems: encodings, paths and processes as Windows and macOS have them, tried on the system of the tests."""

import ast
import csv
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [path for folder in ("imbtorch", "tests", "examples", ".github") for path in (ROOT / folder).rglob("*.py")]
OTHERS = {"Image.open", "tarfile.open", "os.open"}  # which open no text
NAMES = ["naïve", "котёнок", "猫 rare"]  # of which cp1252 has the first


# --- texts ------------------------------------------------------------------------------------------------------------


def calls_without_encoding(source):
    """Yield calls that open a file as text without naming the encoding, which is cp1252 on most of Windows."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        name, given = ast.unparse(call.func), {each.arg for each in call.keywords}
        modes = [*call.args, *(key.value for key in call.keywords if key.arg == "mode")]
        texts = [str(each.value) for each in modes if isinstance(each, ast.Constant)]
        binary = name in OTHERS or any(re.fullmatch("[rwxa+]*b[rwxa+]*", text) for text in texts)
        opens = name.rpartition(".")[2] in {"open", "read_text", "write_text", "fdopen"}
        if opens and not binary and "encoding" not in given:
            yield f"{call.lineno}: {ast.unparse(call)}"


def test_files_are_opened_with_an_encoding():
    assert len(FILES) > 100
    for path in FILES:
        assert not list(calls_without_encoding(path.read_text(encoding="utf-8"))), path


def test_calls_without_an_encoding_are_found():
    code = 'open(a)\nopen(a, "w")\nb.open(newline="")\nb.read_text()\nb.write_text(c)\n'
    assert len(list(calls_without_encoding(code))) == 5
    code = 'open(a, "rb")\nopen(a, encoding="utf-8")\nb.open("wb")\nImage.open(a)\nopen_result(a)\nb.open(mode="ab")\n'
    assert not list(calls_without_encoding(code))


def test_snippets_of_pages_open_files_with_an_encoding():
    pages = [*ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    block = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
    snippets = [snippet for page in pages for snippet in block.findall(page.read_text(encoding="utf-8"))]
    assert len(snippets) > 50
    assert not [call for snippet in snippets for call in calls_without_encoding(snippet)]


# --- paths ------------------------------------------------------------------------------------------------------------


def test_file_names_exist_on_every_system():
    if not (ROOT / ".git").exists():
        pytest.skip("needs the git repository")
    command = ["git", "-c", "core.quotePath=false", "ls-files"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", timeout=60, check=True)
    names = done.stdout.splitlines()
    assert len(names) > 100
    assert len({name.casefold() for name in names}) == len(names)  # Windows and macOS ignore case
    reserved = re.compile(
        r'[<>:"|?*\\]|[ .](/|$)|(^|/)(con|aux|nul|prn|com\d|lpt\d)(\.|/|$)|[^\x20-\x7e]', re.IGNORECASE
    )
    assert not [name for name in names if reserved.search(name)]
    assert max(map(len, names)) < 120  # of 260 on Windows


def test_imports_have_the_case_of_their_files():
    """A module that is imported in another case is found on Windows and macOS alone."""
    modules = {path.stem for path in (ROOT / "tests").rglob("*.py")}
    folded = {name.casefold(): name for name in modules}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert all(folded.get(name.casefold(), name) == name for name in names), path


# --- a console of Windows ---------------------------------------------------------------------------------------------


@pytest.fixture
def predictions(tmp_path):
    """Predictions of classes with names in several scripts, in a folder whose name has spaces."""
    folder = tmp_path / "my Größe predictions"
    folder.mkdir()
    with (folder / "test set.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [[NAMES[row % 3], NAMES[row % 3 if row % 7 else (row + 1) % 3]] for row in range(60)]
        csv.writer(file).writerows([["label", "pred"], *rows])
    return folder


def child(folder, *arguments):
    """Run the command as a console of Windows does, in whose encoding most letters are missing."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "imbtorch", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252", "PYTHONPATH": path},
        capture_output=True,
        encoding="cp1252",
        timeout=120,
        check=False,
    )


def command(monkeypatch, encoding, *arguments):
    """Run the command in this process; return its exit code, and what a console of an encoding shows."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding, errors) for errors in ("strict", "backslashreplace")]
    for name, value in (("stdout", streams[0]), ("stderr", streams[1]), ("argv", ["imbtorch", *arguments])):
        monkeypatch.setattr(sys, name, value)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("imbtorch", run_name="__main__")
    for stream in streams:
        stream.flush()
    return ended.value.code, *(stream.buffer.getvalue().decode(encoding) for stream in streams)


COLUMNS = ("test set.csv", "--target", "label", "--preds", "pred")


@pytest.mark.slow
def test_a_child_process_prints_a_report_on_a_console_of_windows(predictions):
    done = child(predictions, "report", *COLUMNS)
    assert done.returncode == 0, done.stderr
    assert all(name.encode("cp1252", "backslashreplace").decode("cp1252") in done.stdout for name in NAMES)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii"])
def test_commands_print_on_every_console(encoding, predictions, monkeypatch):
    monkeypatch.chdir(predictions)
    code, shown, told = command(monkeypatch, encoding, "report", *COLUMNS, "--json", "a result.json")
    assert code == 0, told
    assert all(name.encode(encoding, "backslashreplace").decode(encoding) in shown for name in NAMES)
    margin = ("--measure", "iam", "--margin", "0.3", "--undecided", "pass")
    code, shown, told = command(monkeypatch, encoding, "compare", COLUMNS[0], *COLUMNS, *margin)
    assert code == 0, told
    assert "60 samples, of which none are predicted differently" in shown


def test_errors_are_printed_on_every_console(predictions, monkeypatch):
    monkeypatch.chdir(predictions)
    code, _, told = command(monkeypatch, "cp1252", "report", *COLUMNS, "--cluster", "котёнок")
    assert code == 2
    assert r"no column '\u043a\u043e" in told
    assert "columns are label, pred" in told


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_start_by_spawn():
    """Windows cannot fork: what processes get is pickled, and modules are imported again."""
    test = "tests/metrics/test_distributed.py::test_invalid_input_can_be_left_out_with_a_warning_of_rank_zero"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        cwd=ROOT,
        env={**os.environ, "IMBTORCH_TESTS_START": "spawn"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE)
