"""The command line: what it reads and prints, its exit codes, and that no error looks like a verdict."""

import csv
import gzip
import importlib.util
import json
import logging
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import torch
from rooms import NOT_WORSE, command_line, parser, waiting

import imbtorch
from imbtorch.statistics import paired_compare

NAMES = np.array(["emu, rare", "house cat", "wild dog"])  # sorted; one class is never predicted
RNG = np.random.default_rng(0)
TARGET = np.arange(600) % 20
TARGET = np.where(TARGET < 1, 0, np.where(TARGET < 4, 2, 1))  # 30, 480 and 90
SCORES = RNG.dirichlet([1, 1, 1], 600) + np.array([0, 0.4, 0.2]) + 0.8 * np.eye(3)[TARGET] * (TARGET > 0)[:, None]
SCORES /= SCORES.sum(1, keepdims=True)
PREDS = np.where(SCORES[:, 1] >= SCORES[:, 2], 1, 2)
RIGHT = np.flatnonzero((TARGET == 1) & (PREDS == 1))  # of the most common class


def write(path, preds=PREDS, target=TARGET, names=NAMES, order=None, **more):
    """Write predictions as a CSV file and return its path."""
    columns = {"image": [f"image {row}" for row in range(len(target))], "label": names[target], "pred": names[preds]}
    columns |= more
    order = range(len(target)) if order is None else order
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([column[row] for column in columns.values()] for row in order)
    return str(path)


@pytest.fixture
def old(tmp_path):
    scores = {f"p_{name}": SCORES[:, place] for place, name in enumerate(NAMES)}
    return write(tmp_path / "old.csv", patient=[row // 3 for row in range(600)], score=SCORES[:, 1], **scores)


def compare(old, new, *more, measure="balanced_accuracy", margin=".01"):
    command = ["compare", old, new, "--target", "label", "--preds", "pred", "--measure", measure, "--margin", margin]
    return command_line.main([*command, *more])


# --- report -----------------------------------------------------------------------------------------------------------


def test_a_report_prints_table_and_signature_and_writes_the_result(old, tmp_path, capsys):
    path = tmp_path / "out.json"
    assert command_line.main(["report", old, "--target", "label", "--preds", "pred", "--json", str(path)]) == 0
    result = imbtorch.report(preds=NAMES[PREDS], target=NAMES[TARGET])
    assert capsys.readouterr().out == f"{result.table()}\n\n{result.signature}\n"
    opened = imbtorch.open_result(path)
    assert opened.counts.tolist() == sklearn.metrics.confusion_matrix(TARGET, PREDS, labels=[0, 1, 2]).tolist()
    assert opened["recall/emu, rare"] == 0


def test_scores_are_found_by_a_star(old, capsys):
    command = ["report", old, "--target", "label", "--scores", "p_*", "--cluster", "patient", "--intervals"]
    assert command_line.main([*command, "--markdown"]) == 0
    shown = capsys.readouterr().out
    auc = sklearn.metrics.roc_auc_score(TARGET == 2, SCORES[:, 2])
    row = next(line for line in shown.splitlines() if line.startswith("| wild dog"))
    assert float(row.split(" | ")[5]) == pytest.approx(auc, abs=0.002)
    assert shown.splitlines()[-1].startswith("`imbtorch ")


@pytest.mark.parametrize("names", [["0", "1"], ["False", "True"], ["false", "true"], ["ok", "a fraud"]])
def test_classes_are_read_as_their_types(names, tmp_path, capsys):
    path = write(tmp_path / "two.csv", PREDS // 2, TARGET // 2, np.array(names), score=SCORES[:, 2])
    positive = ["--positive", "a fraud"] if "ok" in names else []
    for column in (["--preds", "pred"], ["--scores", "score"]):
        command = ["report", path, "--target", "label", *column, *positive, "--measures", "recall,f1"]
        assert command_line.main([*command, "--json", str(tmp_path / "two.json")]) == 0
        result = imbtorch.open_result(tmp_path / "two.json")
        preds = PREDS // 2 if column[0] == "--preds" else SCORES[:, 2] > 0.5
        assert result["f1"].item() == pytest.approx(sklearn.metrics.f1_score(TARGET // 2, preds), abs=1e-6)
        assert "binary, 2 classes" in capsys.readouterr().out


def test_ten_integer_classes_are_in_the_order_of_numbers(tmp_path, capsys):
    rows = np.arange(220) % 11
    path = write(tmp_path / "eleven.csv", rows, rows, np.arange(11).astype(str))
    assert command_line.main(["report", path, "--target", "label", "--preds", "pred"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:12]]
    assert names == [str(each) for each in range(11)]


def test_labels_are_columns_of_the_same_name(tmp_path, capsys):
    labels = {f"y_{name}": (place == TARGET).astype(int) for place, name in enumerate(NAMES)}
    scores = {f"p_{name}": SCORES[:, place] for place, name in enumerate(NAMES)}
    path = write(tmp_path / "labels.csv", **labels, **scores)
    command = ["report", path, "--target", "y_*", "--scores", "p_*", "--measures", "f1"]
    assert command_line.main(command) == 2
    assert "--task multilabel" in capsys.readouterr().err
    command += ["--task", "multilabel"]
    assert command_line.main([*command, "--json", str(tmp_path / "labels.json")]) == 0
    expected = sklearn.metrics.f1_score(np.eye(3)[TARGET], SCORES > 0.5, average="macro")
    assert imbtorch.open_result(tmp_path / "labels.json")["f1"].item() == pytest.approx(expected, abs=1e-6)
    assert "multilabel, 3 labels" in capsys.readouterr().out


def test_files_name_the_extra_that_reads_them(old, capsys, monkeypatch):
    for name in ("duckdb", "pyarrow"):
        with monkeypatch.context() as context:
            context.setitem(sys.modules, name, None)
            assert command_line.main(["report", old, "--target", "label", "--preds", "pred"]) == 2
            assert f"files need {name}: pip install 'imbtorch[files]'" in capsys.readouterr().err


# --- compare ----------------------------------------------------------------------------------------------------------


def worse(rows, to=2):
    preds = PREDS.copy()
    preds[rows] = to
    return preds


@pytest.mark.parametrize(
    ("preds", "margin", "code", "text"),
    [
        (PREDS, ".01", 0, "No prediction differs."),
        (PREDS, "0", 0, "No prediction differs."),
        (worse(RIGHT[:1]), ".01", 3, "Undecided"),
        (worse(RIGHT[:1]), ".05", 0, "is not worse by more than 0.05"),
        (worse(RIGHT[:200]), ".01", 1, "is worse by more than 0.01"),
        (worse(RIGHT[:15]), ".01", 3, "Undecided"),
        (np.where(TARGET == 0, 0, PREDS), ".01", 0, "not worse"),
    ],
)
def test_the_exit_code_is_the_verdict(preds, margin, code, text, old, tmp_path, capsys):
    new = write(tmp_path / "new.csv", preds)
    assert compare(old, new, margin=margin) == code
    shown = capsys.readouterr().out
    assert text in shown
    before, after = (sklearn.metrics.balanced_accuracy_score(TARGET, each) for each in (PREDS, preds))
    assert f"new - old: {after - before:+.3f} [" in shown
    chances = [float(each) for each in re.findall(r"new is better with probability ([\d.]+)$", shown, re.MULTILINE)]
    assert [chance < 0.5 for chance in chances] == [after < before] * (text != "No prediction differs.")
    assert ("not worse" in shown) == ("not worse" in text)
    assert compare(old, new, "--undecided", "pass", margin=margin) == (0 if code == 3 else code)


@pytest.mark.default_cases("changed0")
@pytest.mark.parametrize("changed", [RIGHT[:1], np.r_[RIGHT[:15], np.flatnonzero(TARGET == 0)[:2]]])
def test_undecided_names_the_rare_samples_that_decide(changed, old, tmp_path, capsys):
    """Rows repeated until there are so many rare samples decide; two thirds of them do not."""
    new = worse(changed)
    assert compare(old, write(tmp_path / "new.csv", new)) == 3
    shown = capsys.readouterr().out
    number = int(re.search(r"some ([\d,]+) samples of 'emu, rare', the rarest class", shown)[1].replace(",", ""))
    assert "would decide; here are 30." in shown
    for times, codes in ((math.ceil(1.1 * number / 30), {0, 1}), (int(0.7 * number / 30), {3})):
        files = [
            write(tmp_path / f"{name}.csv", np.tile(each, times), np.tile(TARGET, times))
            for name, each in (("many old", PREDS), ("many new", new))
        ]
        assert compare(*files) in codes


def test_undecided_says_if_no_number_would_decide(old, tmp_path, capsys):
    new = worse(RIGHT[:1])
    won = np.flatnonzero((TARGET != PREDS) & (TARGET > 0))[0]
    new[won] = TARGET[won]  # one sample is lost and one is won
    assert compare(old, write(tmp_path / "new.csv", new), measure="accuracy", margin="0") == 3
    text = "At these class shares 1,024 times as many samples would not decide either."  # or clusters
    assert text in capsys.readouterr().out
    files = [
        write(tmp_path / f"{name}.csv", each, patient=[row // 3 for row in range(600)])
        for name, each in (("old", PREDS), ("new", new))
    ]
    assert compare(*files, "--cluster", "patient", measure="accuracy", margin="0") == 3
    assert text.replace("samples", "clusters") in capsys.readouterr().out


def test_a_model_that_is_better_is_said_to_be(old, tmp_path, capsys):
    gained, equal = np.where(TARGET == 0, 0, PREDS), worse(RIGHT[:1])
    for measure in ("balanced_accuracy", "confusion_entropy"):  # the last one is lower for better models
        for preds, better in ((gained, True), (equal, False)):
            assert compare(old, write(tmp_path / "new.csv", preds), measure=measure, margin=".05") == 0
            assert ("0.05, and better (tested once)." in capsys.readouterr().out) == better


def test_lower_values_of_a_loss_are_better(old, tmp_path, capsys):
    new = write(tmp_path / "new.csv", worse(RIGHT[:200]))
    assert compare(old, new, measure="confusion_entropy") == 1
    assert compare(new, old, measure="confusion_entropy") == 0
    assert "new - old: -" in capsys.readouterr().out.splitlines()[-5]


def test_rows_are_paired_by_id_or_in_equal_order(old, tmp_path, capsys):
    order = np.random.default_rng(1).permutation(600)
    new = write(tmp_path / "new.csv", order=order)
    assert compare(old, new) == 2
    said = capsys.readouterr().err
    assert "column 'image' of old and new differs in 600 rows" in said
    assert "pair the rows by --id image, or pass --by-row if" in said
    assert compare(old, new, "--by-row") == 2
    assert "the targets of both models differ in" in capsys.readouterr().err
    assert compare(old, new, "--id", "image") == 0
    assert "600 samples, of which none are predicted differently" in capsys.readouterr().out
    write(tmp_path / "new.csv", order=order[1:])
    assert compare(old, new, "--id", "image") == 2
    write(tmp_path / "new.csv", order=[*order[1:], order[5]])
    assert compare(old, new, "--id", "image") == 2
    assert "has several rows with image" in capsys.readouterr().err


def test_two_classes_without_a_positive_one_are_averaged(tmp_path, capsys):
    names = np.array(["ok", "a fraud"])
    old = write(tmp_path / "old.csv", PREDS // 2, TARGET // 2, names)
    new = write(tmp_path / "new.csv", TARGET // 2, TARGET // 2, names)
    for positive, average in (([], {"average": "macro"}), (["--positive", "a fraud"], {})):
        assert compare(old, new, *positive, measure="f1") == 0
        gain = 1 - sklearn.metrics.f1_score(TARGET // 2, PREDS // 2, **average)
        assert f"{gain:+.3f} [" in capsys.readouterr().out


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["report", "{old}", "--target", "lable", "--preds", "pred"], "no column 'lable'; did you mean 'label'"),
        (["report", "missing.csv", "--target", "label", "--preds", "pred"], "missing.csv"),
        (["report", "{old}", "--target", "label", "--scores", "q_*"], "no column like 'q_*'"),
        (["report", "{old}", "--target", "label", "--scores", "pred"], "one score for each sample"),
        (["report", "{old}", "--target", "label", "--scores", "score"], "--positive"),
        (["report", "{old}", "--target", "label", "--scores", "pred", "--positive", "emu, rare"], "but there are 3"),
        (["report", "{old}", "--target", "label", "--preds", "pred", "--measures", "f3"], "f3"),
        (["report", "{old}", "--target", "label"], "--preds --scores"),
        (["compare", "{old}", "{old}", "--measure", "f1", "--margin", ".01"], "--target"),
        (
            [
                "compare",
                "{old}",
                "{old}",
                "--measure",
                "dominance",
                "--margin",
                ".01",
                "--target",
                "label",
                "--preds",
                "pred",
            ],
            "has no direction",
        ),
        (
            ["compare", "{old}", "--measure", "f1", "--margin", "-1"],
            "--margin: must be a loss of 0 or more, such as .01, got '-1'",
        ),
        (
            ["report", "{old}", "--target", "label", "--scores", "p_*", "--prevalence", "a,b"],
            "such as 900,90,10, got 'a,b'",
        ),
        *(
            (
                ["thresholds", "{old}", "--alerts", share],
                f"--alerts: must be a share between 0 and 1, such as .01 for 1%, got {share!r}",
            )
            for share in ("1", "0", "1%", "nan")
        ),
        (
            ["label", "{old}", "--preds", "prde", "--labels", "9", "--out", "{old}.new"],
            "preds: there is no column 'prde'",
        ),
        (["nothing"], "invalid choice"),
        ([], "required"),
    ],
)
def test_bad_input_exits_with_2_and_a_remedy(command, text, old, capsys):
    assert command_line.main([each.format(old=old) for each in command]) == 2
    shown = capsys.readouterr()
    assert text in shown.err
    assert "Traceback" not in shown.err
    assert not shown.out


@pytest.mark.parametrize(("measure", "margin"), [("accuracy", "1"), ("balanced_accuracy", ".5"), ("mcc", "1")])
def test_a_margin_in_percent_is_an_error(measure, margin, old, capsys):
    """It would pass any model."""
    assert compare(old, old, measure=measure, margin=margin) == parser.ERROR
    assert f"--margin {float(margin):g} must be a difference of {measure} such as .01" in capsys.readouterr().err
    assert compare(old, old, measure=measure, margin=".4") == NOT_WORSE


def test_help_advises_against_several_looks(capsys):
    assert command_line.main(["compare", "--help"]) == 0
    assert "up to 17% pass one of 20 tests of a growing sample" in " ".join(capsys.readouterr().out.split())


def test_slips_of_a_command_are_read_or_told(old, tmp_path, capsys):
    assert command_line.main(["report", old, "--target", "label", "--preds", "pred", "--measures", "iam, mcc"]) == 0
    assert "mcc" in capsys.readouterr().out
    file = tmp_path / "semicolons.csv"
    file.write_text("label;pred\ncat;dog\n", encoding="utf-8")
    assert command_line.main(["report", str(file), "--target", "label", "--preds", "pred"]) == parser.ERROR
    assert "target holds one class only, 'cat'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "text"),
    [
        *[(each, "Traceback") for each in (RuntimeError, MemoryError, AssertionError, SystemExit)],
        (KeyboardInterrupt, "imbtorch compare: interrupted"),
    ],
)
def test_no_unexpected_error_looks_worse(error, text, old, capsys, monkeypatch):
    def fail(*_, **__):
        raise error(1)

    monkeypatch.setattr(command_line, "paired_models", fail)
    assert compare(old, old) == (130 if error is KeyboardInterrupt else 2)
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("", "must have a head and at least one row"),
        ("label,pred\n", "must have a head and at least one row"),
        ("label,pred,label\na,a,a\n", "several columns 'label'"),
        ("label,pred\na,b\na\n", "line 3: 1 cells, but there are 2 columns"),
        ("label,pred\na,b\nb,\n", "preds has no value in row 1"),
        ("label,pred\na,b\nb,b\nb,c\n", "preds holds 'c' in row 2"),
        ('label,pred,note\na,b,1\nb,b,"5 inch\nb,a,3\n', "line 3: a quote is not closed"),
        ('label,pred,note\na,b,1\nb,b,"5 inch\nb,a,"3\n', "line 3: a quote is not closed"),
    ],
)
def test_a_broken_file_is_named_with_its_row(lines, text, tmp_path, capsys):
    path = tmp_path / "broken.csv"
    path.write_text(lines, encoding="utf-8")
    assert command_line.main(["report", str(path), "--target", "label", "--preds", "pred"]) == 2
    assert text in capsys.readouterr().err


def test_long_cells_are_read_and_other_encodings_are_told(tmp_path, capsys):
    path = tmp_path / "file.csv"
    command = ["report", str(path), "--target", "label", "--preds", "pred"]
    path.write_text(f"label,pred,text\na,a,{'x' * 200_000}\nb,b,y\n", encoding="utf-8")
    assert command_line.main(command) == 0
    path.write_text("label,pred\ncafé,café\nb,b\n", encoding="latin-1")
    assert command_line.main(command) == parser.ERROR
    assert f"{path}, line 2: the file is not in UTF-8; --encoding latin-1" in capsys.readouterr().err
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["label", "pred"], ["1" + "0" * 20, "1"], ["1", "1"]])
    assert command_line.main(command) == parser.ERROR
    assert "target holds a number in row 0 (1 of 2 rows) that is too large" in capsys.readouterr().err


def test_prevalence_is_given_by_name_if_positive_changes_the_order(tmp_path, capsys):
    """Of 10 frauds 8 are found, of 90 others 9 are false alarms; the precision at 1 in 100 is by hand."""
    target, preds = ["fraud"] * 10 + ["ok"] * 90, ["fraud"] * 8 + ["ok"] * 2 + ["fraud"] * 9 + ["ok"] * 81
    path = tmp_path / "file.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["label", "pred"], *zip(target, preds, strict=True)])
    command = ["report", str(path), "--target", "label", "--preds", "pred", "--positive", "fraud"]
    assert command_line.main([*command, "--prevalence", "1,99"]) == parser.ERROR
    assert "positive puts 'fraud' last, so the order of prevalence is unclear" in capsys.readouterr().err
    assert command_line.main([*command, "--prevalence", "ok=99, fraud=1", "--json", str(tmp_path / "x.json")]) == 0
    expected = 0.01 * 0.8 / (0.01 * 0.8 + 0.99 * 0.1)
    assert imbtorch.open_result(tmp_path / "x.json")["precision"].item() == pytest.approx(expected, abs=1e-6)


def test_columns_of_single_values_take_no_star(old, capsys):
    assert compare(old, old, "--id", "im*") == parser.ERROR
    assert "id must name one column, got 'im*'" in capsys.readouterr().err
    command = ["report", old, "--target", "label", "--preds", "pred", "--cluster", "pat*"]
    assert command_line.main(command) == parser.ERROR
    assert "cluster must name one column, got 'pat*'" in capsys.readouterr().err


def test_problems_are_notes_below_the_table(old, capsys):
    assert (
        command_line.main(["report", old, "--target", "label", "--preds", "pred", "--class-names", *NAMES, "fox"]) == 0
    )
    printed = capsys.readouterr()
    assert "- 1 of 4 classes had no target: fox" in printed.out
    assert printed.err == ""


# --- outputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "jsonl"])
def test_an_output_among_the_inputs_is_refused_and_nothing_is_lost(ending, tmp_path, monkeypatch, capsys):
    """Also through links, folders and patterns; the bytes before are the oracle."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    path = Path("in") / f"a.{ending}"
    arrow = pytest.importorskip("pyarrow", reason="needs imbtorch[files]")
    if ending == "parquet":
        importlib.import_module("pyarrow.parquet").write_table(
            arrow.table({"label": ["a", "b"], "pred": ["a", "b"]}), path
        )
    else:
        text = (
            '{"label": "a", "pred": "a"}\n{"label": "b", "pred": "b"}\n'
            if ending == "jsonl"
            else "label,pred\na,a\nb,b\n"
        )
        with arrow.CompressedOutputStream(str(path), "gzip") if ending.endswith("gz") else path.open("wb") as file:
            file.write(text.encode())
    before = path.read_bytes()
    Path("soft.json").symlink_to(path)
    Path("hard.json").hardlink_to(path)
    names = ["--target", "label", "--preds", "pred"]
    for source in (path, "in", "in/*", f"{tmp_path}/*/a.*"):
        for output in (path, tmp_path / path, "soft.json", "hard.json"):
            assert command_line.main(["report", str(source), *names, "--json", str(output)]) == 2
            said = capsys.readouterr()
            assert f"--json names {output}, which is read" in said.err
            assert not said.out
            assert path.read_bytes() == before
    plan = ["--looks", "2", "--look", "1", "--looks-file", str(path)]
    assert compare(str(path), str(path), *plan, measure="accuracy") == 2
    assert "--looks-file names" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert command_line.main(["report", str(path), *names, "--json", "out.json"]) == 0
    assert command_line.main(["report", str(path), *names, "--json", "out.json"]) == 0  # over the older result
    assert command_line.main(["report", "in", *names, "--json", "in/result.json"]) == 0
    assert command_line.main(["report", "in", *names, "--json", "in/result.json"]) == 2  # is an input of this run


def test_a_file_that_is_no_plan_of_looks_is_left_as_it_is(old, tmp_path, capsys):
    for text in ("label,pred\na,a\n", "[]", '{"plan": {}}', "\udcff"):
        path = tmp_path / "plan.json"
        path.write_bytes(text.encode(errors="surrogateescape"))
        assert compare(old, old, "--looks", "2", "--look", "1", "--looks-file", str(path)) == 2
        assert "is no file that records looks" in capsys.readouterr().err
        assert path.read_bytes() == text.encode(errors="surrogateescape")


def command(*words, **more):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-m", "imbtorch", *words], env=environment, timeout=120, **more)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_what_cannot_be_printed_is_an_error(old):
    names = ["--target", "label", "--preds", "pred"]
    gate_options = [*names, "--measure", "accuracy", "--margin", ".1"]
    for words in (["compare", old, old, *gate_options], ["report", old, *names], ["--help"], ["report", "--help"]):
        with open("/dev/full", "wb") as full:
            done = command(*words, stdout=full, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 2
            assert "No space left" in done.stderr
            assert len(done.stderr.splitlines()) == 1
            assert command(*words[:1], "--nothing", stdout=full, stderr=full).returncode == 2
    done = command("--help", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_an_interrupt_is_one_line_and_130(tmp_path):
    """While DuckDB groups, PyArrow verifies, and modules are imported."""
    rows = "".join(f"{row},{row % 7}\n" for row in range(2_000_000))
    path = tmp_path / "big.csv.gz"
    with gzip.open(path, "wt", compresslevel=1, encoding="utf-8") as file:
        file.write("label,pred\n" + rows)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    start = (
        "import sys; from imbtorch.predictions.command_line import main; print('ready', flush=True); sys.exit(main())"
    )
    words = [sys.executable, "-c", start, "report", str(path), str(path), "--target", "label", "--preds", "pred"]
    for seconds in (0.1, 0.6, 1.5):
        process = subprocess.Popen(
            [*words[:5], *words[6:]], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        threading.Event().wait(seconds)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out, err) == (130, "", "imbtorch report: interrupted\n")


def test_names_in_errors_and_warnings_do_not_act_on_a_terminal(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text('label,pred\na,a\n"b\x1b[31m","b\x1b[31m"\nb,"c\x1b[2J\u202e"\n', encoding="utf-8")
    words = ["report", str(path), "--target", "label", "--preds", "pred"]
    assert command_line.main(words) == 2
    assert command_line.main([*words, "--class-names", "a", "b", "b\x1b[31m", "c\x1b[2J\u202e", "d\x1b[1m"]) == 0
    assert not {"\x1b", "\u202e"} & set("".join(capsys.readouterr()))


# --- what the guide shows ---------------------------------------------------------------------------------------------


def test_the_commands_of_the_guide_print_what_it_shows(tmp_path, monkeypatch, capsys):
    section = (Path(__file__).parents[2] / "examples" / "predictions.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    program = re.search(r"```python\n(import csv.*?)```", section, re.DOTALL)[1]
    exec(compile(program, "guide", "exec"), {"__name__": "guide"})
    capsys.readouterr()
    commands = re.findall(r"```console\n\$ imbtorch (.*?)\n(.*?)```", section, re.DOTALL)
    codes = [command_line.main(shlex.split(command)) for command, _ in commands]
    assert codes == [0, 0, 3]
    printed = re.sub(r"imbtorch \d+\.\d+\.\d+", "imbtorch", capsys.readouterr().out)
    for _, shown in commands:
        assert re.sub(r"imbtorch \d+\.\d+\.\d+", "imbtorch", shown) in printed
    assert commands[0][1]
    assert commands[2][1]


# --- programs ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_loads_nothing_but_the_base_dependencies(old):
    program = (
        "import sys; from imbtorch.__main__ import main; code = main()\n"
        "print([name for name in ('pandas', 'lightning', 'pytorch_lightning', 'sklearn') if name in sys.modules], code)"
    )
    command = [sys.executable, "-c", program, "report", old, "--target", "label", "--preds", "pred"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"
    assert "balanced_accuracy" in done.stdout


@pytest.mark.slow
def test_import_imbtorch_loads_no_command_line():
    program = (
        "import sys, imbtorch; print('argparse' in sys.modules and 'imbtorch.predictions.command_line' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


def test_the_entry_point_exits_with_2_if_the_package_cannot_be_imported(monkeypatch, capsys):
    path = Path(imbtorch.__file__).parent / "lightning" / "entry_point.py"
    spec = importlib.util.spec_from_file_location("entry_point_of_a_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["imbtorch", "--version"])
    assert module.command_line() == 0
    assert capsys.readouterr().out == f"imbtorch {imbtorch.__version__}\n"
    monkeypatch.setattr(sys, "argv", ["imbtorch", "report", "x.csv", "--target", "label", "--preds", "pred"])
    monkeypatch.setitem(sys.modules, "imbtorch.predictions.command_line", None)
    assert module.command_line() == 2
    assert "imbtorch report: error: " in capsys.readouterr().err


# --- looks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def growing(tmp_path):
    """Return a function that writes the first rows of two models, of which the new one has fewer false positives."""
    generator = np.random.default_rng(0)
    target = (generator.random(900) < 0.2).astype(int)
    old, new = (np.where(generator.random(900) < wrong, 1 - target, target) for wrong in (0.2, 0.1))

    def write(rows):
        lines = [f"{t},{a},{b}" for t, a, b in zip(target[:rows], old, new, strict=False)]
        path = tmp_path / f"{rows}.csv"
        path.write_text("\n".join(["label,old,new", *lines, ""]), encoding="utf-8")
        return path, target[:rows], old[:rows], new[:rows]

    return write


def gate(path, *more):
    """Run the gate on a file of two models."""
    options = ["--target", "label", "--preds", "old,new", "--measure", "balanced_accuracy", "--margin", "0.01"]
    return command_line.main(["compare", str(path), *options, *map(str, more)])


@pytest.mark.slow
def test_a_plan_of_looks_is_kept_in_a_file(growing, tmp_path, capsys):
    file = tmp_path / "looks.json"
    for look in (1, 2, 3):
        path, target, old, new = growing(300 * look)
        code = gate(path, "--looks", 3, "--look", look, "--looks-file", file)
        said = capsys.readouterr().out
        assert f"look {look} of 3" in said
        held = json.loads(file.read_text(encoding="utf-8"))["looks"]
        assert [each["samples"] for each in held] == [300, 600, 900][:look]
        assert held[-1]["verdict"] == {0: "not worse", 1: "worse", 3: "undecided"}[code]
        tensors = (torch.from_numpy(each) for each in (new, old, target))
        plan = {"looks": 3, "look": look, "generator": torch.Generator().manual_seed(0)}
        expected = paired_compare("balanced_accuracy", *tensors, 2, level=0.9, **plan).difference
        assert held[-1]["bound"] == pytest.approx(expected.low.item(), abs=0.02)  # the information is measured here
    assert gate(path, "--looks", 3, "--look", 3, "--looks-file", file) == 2
    assert "holds 3 looks, so the next is look 4, got 3" in capsys.readouterr().err
    assert gate(path, "--looks", 3, "--look", 3) in (0, 3)
    assert "nothing checked the earlier ones" in capsys.readouterr().out


def test_a_verdict_without_a_plan_holds_for_one_look(growing, capsys):
    gate(growing(900)[0])
    assert "(tested once)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--look", 1), "looks and look belong together"),
        (("--looks-file", "a.json"), "a file records planned looks; pass --looks and --look too"),
        (("--looks", 2, "--look", 3), "look must be 1 to --looks 2, got 3"),
    ],
)
def test_plans_that_cannot_be(growing, capsys, more, text):
    assert gate(growing(300)[0], *more) == 2
    assert text in capsys.readouterr().err


def test_no_remedy_of_python_is_printed(tmp_path, capsys, monkeypatch):
    path = tmp_path / "p.csv"
    path.write_text("y,a,b\n" + "0,0,1\n1,1,1\n" * 20, encoding="utf-8")
    assert command_line.main(["report", str(path), "--target", "y", "--preds", "a", "--measures", "expected_cost"]) == 2
    error = capsys.readouterr().err
    assert "expected_cost needs costs; the command has no option for it" in error
    assert "partial" not in error
    notices = []
    monkeypatch.setattr(waiting, "SECONDS", 0.0)
    monkeypatch.setattr(waiting, "EVIDENCE", 0.0)
    monkeypatch.setattr(waiting, "_announced", {})
    handler = logging.Handler()
    handler.emit = lambda record: notices.append(record.getMessage())
    monkeypatch.setattr(waiting.LOG, "handlers", [handler])
    words = ["compare", str(path), "--target", "y", "--preds", "a", "b", "--measure", "f1", "--margin", ".1"]
    assert command_line.main(words) in (0, 1, 3)
    assert any(re.fullmatch(r"imbtorch: a paired comparison will take about \d+ seconds", text) for text in notices)
    capsys.readouterr()
    notices.clear()
    monkeypatch.setattr(waiting, "_announced", {})
    target = torch.arange(2).repeat(100)
    paired_compare("f1", target, 1 - target, target)
    assert any("fewer draws= shorten it" in text for text in notices)
