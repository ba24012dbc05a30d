"""Tables: text of at most 100 columns, HTML, CSV, dicts and pandas."""

import csv
import html
import io
import math
import pickle
import re
import sys
import unicodedata

import pytest
import torch
from cases import shown_in_notebook
from report_cases import COLUMNS, SHOWN, data, filled, table_peers
from rooms import Cell, Table, aligned, printable

from imbtorch import ImbalanceReport, open_result


def test_columns_that_do_not_fit_stand_below_next_to_their_names():
    names = ["a", "b " + 10 * "many words "]
    rows = [["", *(f"measure {number}" for number in range(12))]]
    rows += [[name, *(f"{name[0]}{number}.5" for number in range(12))] for name in names]
    lines = aligned(rows, names_left=True)
    assert max(map(len, lines)) <= 100
    for row in rows[1:]:
        cells = [cell for line in lines if line.startswith(row[0][:10]) for cell in line.split() if cell.endswith(".5")]
        assert cells == row[1:]
    assert aligned([row[:2] for row in rows[:2]], names_left=True) == ["   measure 0", "a       a0.5"]


@pytest.mark.parametrize("names", [["a", "b", "c"], [f"class with a rather long name {index}" for index in range(3)]])
def test_tables_of_reports_with_many_columns(names):
    shown = ["recall", "precision", "specificity", "f1", "fowlkes_mallows", "npv", "cba"]
    intervals = [f"{measure}/{name}" for measure in shown for name in names]
    report = ImbalanceReport("multiclass", class_names=names, per_class=shown, intervals=intervals)
    report.update(torch.arange(60) % 7 % 3, torch.arange(60) % 3)
    report.compute()
    text = str(report.table())
    assert max(map(len, [*text.splitlines(), *repr(report.result()).splitlines()])) <= 100
    values = report.table().to_dict()["class"]
    assert all(f"{values[name][measure]:.3f} [" in text for name in names for measure in shown)


# --- other forms -----------------------------------------------------------------------------------------------------


def test_table_in_pandas():
    pandas = pytest.importorskip("pandas")
    names = ["cat", "dog", "owl"]
    frame = filled("multiclass", class_names=names, per_class=SHOWN).table().to_pandas()
    wanted = pandas.DataFrame(table_peers(*data("multiclass")), index=names)
    pandas.testing.assert_frame_equal(frame.loc["class"][COLUMNS], wanted, check_dtype=False, check_names=False)
    assert frame.loc[("measure", "recall"), "all"] == pytest.approx(wanted["recall"].mean())


def test_pandas_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)  # import pandas then fails
    with pytest.raises(ModuleNotFoundError, match=r"to_pandas needs pandas: pip install pandas$"):
        filled("binary").table().to_pandas()


def test_all_numbers_as_csv(tmp_path):
    report = ImbalanceReport("binary", class_names=["ok", "fraud, card"], measures=["accuracy"], groups=["a", "b"])
    target, preds = torch.tensor([0, 0, 0, 1, 1, 0]), torch.tensor([0, 0, 1, 1, 0, 0])
    report.update(preds, target, group=torch.tensor([0, 0, 0, 0, 1, 1]))
    table, text = report.table(), io.StringIO()
    table.to_csv(text)
    table.to_csv(tmp_path / "table.csv")
    with pytest.raises(TypeError, match=r"to must be a path or an open text file.* got None"):
        table.to_csv(None)
    assert (tmp_path / "table.csv").read_bytes().decode() == text.getvalue()
    rows = list(csv.DictReader(text.getvalue().splitlines()))
    found = {(row["kind"], row["name"]): row for row in rows}
    assert [*found] == [
        ("class", "ok"),
        ("class", "fraud, card"),
        ("group", "b"),
        ("group", "a"),
        ("measure", "accuracy"),
    ]
    wanted = {
        ("measure", "accuracy", "all"): 4 / 6,
        ("class", "ok", "support"): 4,
        ("class", "fraud, card", "recall"): 1 / 2,
        ("class", "fraud, card", "precision"): 1 / 2,
        ("group", "a", "support"): 4,
        ("group", "a", "accuracy"): 3 / 4,
        ("group", "b", "accuracy"): 1 / 2,
    }
    values = {(kind, name, column): float(found[kind, name][column]) for kind, name, column in wanted}
    assert values == pytest.approx(wanted)
    assert found["measure", "accuracy"]["recall"] == ""
    sure = ImbalanceReport("binary", measures=["accuracy"], intervals=True, per_class=())
    sure.update(torch.tensor([0, 0]), torch.tensor([0, 1]))
    sure.table().to_csv(text := io.StringIO())
    first, *_, last = csv.DictReader(text.getvalue().splitlines())
    assert float(last["all_low"]) == pytest.approx(sure.compute()["accuracy_low"].item())
    assert (first["name"], first["support"], first["all_low"]) == ("0", "1.0", "")


def test_no_cell_of_text_is_a_formula():
    """Numbers stay numbers, also those that are names, as of the classes -1 and +1."""
    names = ["=HYPERLINK(1)", "+cat", "-dog", "@emu", "\tfox", "=gnu, 1", "-1", "+1e3", "a=b", "'owl"]
    report = ImbalanceReport("multiclass", class_names=names, measures={"-mine": "mcc"}, per_class=["recall"])
    report.update(torch.arange(10).flip(0), torch.arange(10))
    report.table().to_csv(text := io.StringIO(newline=""))
    head, *rows = csv.reader(io.StringIO(text.getvalue(), newline=""))
    assert head == ["kind", "name", "support", "predicted", "recall", "all"]
    *classes, mine = rows
    assert [row[1] for row in classes] == [f"'{name}" for name in names[:6]] + names[6:]
    assert mine[:2] == ["measure", "'-mine"]
    assert mine[-1].startswith("-")
    assert float(mine[-1]) == pytest.approx(report.compute()["-mine"].item())


def test_every_form_holds_the_same_values():
    """Two blocks with other columns, an interval, an undefined value, an empty column and a row that is not printed."""
    rows = {"cat": {"support": 3.0, "step": None, "recall": Cell(0.5, 0.25, 0.75)}, "<dog>": {"recall": math.nan}}
    table = Table(
        {"class": rows, "measure": {"iam": {"all": Cell(-0.125, mark="*")}, "epoch": {"all": 7}}},
        ("one note", "another"),
        "A title",
        printed={"class": 1},
    )
    lines = [
        "A title",
        "class  support                recall",
        "cat          3  0.500 [0.250, 0.750]",
        "... 1 more",
    ]
    lines += ["", "measure      all", "iam      *-0.125", "epoch          7", "", "- one note", "- another"]
    assert str(table).splitlines() == lines
    cells, notes = shown_in_notebook(table)
    assert cells[:2] == [["class", "support", "recall"], ["cat", "3", "0.500 [0.250, 0.750]"]]
    assert cells[2:] == [["measure", "all"], ["iam", "*-0.125"], ["epoch", "7"]]
    assert notes == ["... 1 more", "one note", "another"]
    head, cat, dog, *measures = table.to_rows()
    assert head == ["kind", "name", "support", "recall", "recall_low", "recall_high", "all"]
    assert cat == ["class", "cat", 3.0, 0.5, 0.25, 0.75, None]
    assert dog == ["class", "<dog>", None, pytest.approx(math.nan, nan_ok=True), None, None, None]
    assert measures == [["measure", "iam", *4 * [None], -0.125], ["measure", "epoch", *4 * [None], 7]]
    assert table.to_dict()["class"]["cat"] == dict(zip(head[2:6], cat[2:6], strict=True)) | {"step": None}
    assert (table["class"]["cat"]["recall"], table["class"]["cat"]["recall"].high) == (0.5, 0.75)
    again = pickle.loads(pickle.dumps(table))
    assert (str(again), again.to_dict()["measure"]) == (str(table), table.to_dict()["measure"])


def test_an_unknown_block_names_those_there_are():
    with pytest.raises(KeyError, match="no block 'classes'; blocks are 'class', 'measure'"):
        filled("binary").table()["classes"]


def test_markdown_holds_the_printed_cells_with_marks_escaped():
    blocks = {
        "class": {"a | b": {"support": 20, "recall": Cell(0.9, 0.7, 1.0, "*")}, "_x_ y_z": {"recall": math.nan}},
        "measure": {"iam": {"all": Cell(0.25)}},
    }
    table = Table(blocks, ("first", "<second>"), title="A *title*", printed={"class": 1})
    assert table.to_markdown() == "\n".join(
        [
            r"A \*title\*",
            "",
            "| class | support | recall |",
            "|---|--:|--:|",
            r"| a \| b | 20 | \*0.900 [0.700, 1.000] |",
            "",
            "... 1 more",
            "",
            "| measure | all |",
            "|---|--:|",
            "| iam | 0.250 |",
            "",
            "- first",
            r"- \<second>",
        ]
    )
    assert r"| \_x\_ y_z |  | - |" in Table(blocks).to_markdown()


# --- names that would act ---------------------------------------------------------------------------------------------

SIGNS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)]
TURNING = {
    "LRE",
    "RLE",
    "LRO",
    "RLO",
    "PDF",
    "LRI",
    "RLI",
    "FSI",
    "PDI",
}  # classes of Unicode's bidirectional algorithm
SIGNS += [sign for sign in map(chr, range(0x110000)) if unicodedata.bidirectional(sign) in TURNING]
KEPT = [
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\U0001f469\u200d\U0001f52c",
    "\u05e9\u05dc\u05d5\u05dd",
    "é猫",
    "a\u00a0b",
    "x\u0301",
    "\U0001f1e9\U0001f1ea",
]


def tables(names):
    """Return a table and a report with names of classes, groups and models."""
    rows = {name: {"recall": Cell(0.5, 0.2, 0.8)} for name in names}
    return Table({"class": rows, "measure": {"iam": {"all": 0.25}}}, tuple(f"always {name}" for name in names), "T")


def test_no_name_acts_on_a_terminal_or_turns_the_direction_of_text():
    names = [f"a{sign}b" for sign in SIGNS]
    table = tables(names)
    aligned_lines = aligned([["class", "recall"], *([name, "0.5"] for name in names)], names_left=True)
    for text in (str(table), table.to_markdown(), table.to_latex(), "\n".join(aligned_lines), table._repr_html_()):
        assert not set(SIGNS) - {"\n"} & set(text)
        lines = text.splitlines()
        assert sum("x1b" in line for line in lines) >= 1
    assert len(str(tables(names[:3])).splitlines()) == len(str(tables(list("abc"))).splitlines())
    assert len(str(tables(["\n", "\r", "\x85"])).splitlines()) == len(str(tables(list("abc"))).splitlines())
    assert [printable(name) for name in ("a\x1b[31m", "a\nb", "\u202e")] == [r"a\x1b[31m", r"a\nb", r"\u202e"]
    for name in KEPT:  # joiners, marks, letters from right to left, emoji
        assert printable(name) == name
        assert name in str(tables([name]))
        assert name in tables([name]).to_markdown()


def test_json_returns_names_as_they_were_and_csv_escapes_what_acts(tmp_path):
    """In CSV, which terminals and spreadsheets show too, only tabs and line feeds stay as they are."""
    names = [f"a{sign}b" for sign in SIGNS if sign != "\0"] + ["a\r\nb", "a\n\nb", 'a"b', "a,b", *KEPT]
    tables(names).to_csv(tmp_path / "t.csv")
    tables(names).to_csv(text := io.StringIO(newline=""))
    assert (tmp_path / "t.csv").read_bytes().decode() == text.getvalue()
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        found = [row[1] for row in csv.reader(file) if row[0] == "class"]
    signs = {ord(sign): sign.encode("unicode_escape").decode() for sign in SIGNS if sign not in "\t\n"}
    assert found == [name.translate(signs | {ord("\r"): r"\r"}) for name in names]
    tables(["\r=1+1", "\n=1+1"]).to_csv(text := io.StringIO(newline=""))
    rows = list(csv.reader(io.StringIO(text.getvalue(), newline="")))
    assert [row[1] for row in rows[1:3]] == [r"\r=1+1", "'\n=1+1"]
    report = ImbalanceReport("multiclass", class_names=names)
    report.update(torch.arange(len(names)), torch.arange(len(names)))
    report.compute()
    report.result().to_json(tmp_path / "r.json")
    assert list(open_result(tmp_path / "r.json").table()["class"]) == names


LIVE = [
    "[x](http://evil)",
    "![p](http://evil/a.png)",
    "<http://evil>",
    "http://evil.com",
    "https://evil/a",
    "www.evil.com",
]
LIVE += [
    "[0.7, 0.9](http://e)",
    "[x]: http://evil",
    "[0.7, 1.0]: http://evil",
    "&lt;b&gt;",
    "~~s~~",
    "**b**",
    "`c`",
    "a|b",
]
LIVE += ["\\", "\\|", "[[a]]", "$x$", "<b>x</b>", "[ ] todo", "[^1]", "_x_", "a_b_c", "&amp;", "# x", "- x", "1. x"]


def test_markdown_shows_names_and_follows_none():
    """A reader of Markdown shows the names themselves: no link, picture, mark or entity; intervals stay as they are."""
    package = pytest.importorskip("markdown_it", reason="needs markdown-it-py")
    reader = package.MarkdownIt("gfm-like", {"linkify": False})
    shown = reader.render(tables(LIVE).to_markdown())
    tags = {tag.strip("/") for tag in re.findall(r"<(/?\w+)[^>]*>", shown)}
    assert tags <= {"table", "thead", "tbody", "tr", "th", "td", "ul", "li", "p"}
    cells = [html.unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", shown)]
    assert cells == [*LIVE, "iam"]
    assert [html.unescape(note) for note in re.findall(r"<li>(.*?)</li>", shown)] == [f"always {name}" for name in LIVE]
    assert shown.count("0.500 [0.200, 0.800]") == len(LIVE)


def test_digits_are_those_of_text_markdown_and_latex_and_not_of_data():
    table = Table({"class": {"ok": {"support": 7, "npv": Cell(0.99912345, 0.9981, 0.99997)}}}, digits=5)
    for text in (str(table), table.to_markdown(), table.to_latex(), Table(table.blocks).to_latex(5)):
        assert "0.99912 [0.99810, 0.99997]" in text
    assert "0.9991 [0.9981, 1.0000]" in table.to_markdown(digits=4)
    assert "0.999 [0.998, 1.000]" in str(Table(table.blocks))
    assert table.to_dict()["class"]["ok"]["npv"] == 0.99912345
    with pytest.raises(ValueError, match="digits must be the number of decimals, 0 to 15, got 16"):
        table.to_latex(16)
    report = filled("binary")
    assert f"{report.compute()['accuracy'].item():.5f}" in str(report.table(digits=5))
    with pytest.raises(ValueError, match="digits must be the number of decimals, 0 to 15, got True"):
        report.table(digits=True)


def test_latex_spells_measures_out_and_can_put_classes_into_columns():
    """By hand; the names of classes stay as they are."""
    blocks = {"class": {"old_cat": {"support": 2, "npv": 0.5}, "dog": {"support": 3, "npv": 0.25}},
        "measure": {"balanced_accuracy": {"all": 0.75}, "iou": {"all": 0.5}}}  # fmt: skip
    first, second = Table(blocks).to_latex(transpose=True).split("\n\n")
    assert first.splitlines()[2:-2] == [
        r"class & old\_cat & dog \\",
        r"\midrule",
        r"Support & 2 & 3 \\",
        r"NPV & 0.500 & 0.250 \\",
    ]
    assert second.splitlines()[2:-2] == [
        r"measure & Balanced accuracy & IoU \\",
        r"\midrule",
        r"All & 0.750 & 0.500 \\",
    ]
    assert first.startswith(r"\begin{tabular}{lrr}")
