"""Pages of the reference: those that are written from the package are current, the others name what it has."""

import argparse
import importlib.util
import inspect
import re

import pytest
import torch
from pages import ROOT, read
from rooms import CATALOGUE, parser

import imbtorch

SCRIPT = ROOT / ".github" / "reference.py"


@pytest.fixture(scope="module")
def reference():
    if not SCRIPT.exists():
        pytest.skip("needs the script that writes the pages, which an sdist leaves out")
    spec = importlib.util.spec_from_file_location("reference", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["command", "metrics", "api"])
def test_pages_are_those_of_the_package(reference, name):
    assert read(f"examples/{name}.md") == reference.GENERATED[name](), "run python .github/reference.py"


def test_the_page_of_the_command_has_every_option():
    page = read("examples/command.md")
    (commands,) = (each for each in parser._parser()._actions if isinstance(each, argparse._SubParsersAction))
    for name, one in commands.choices.items():
        section = page.partition(f"## imbtorch {name}\n")[2].partition("\n## ")[0]
        options = {each.option_strings[-1] for each in one._actions if each.option_strings}
        hidden = {each.option_strings[-1] for each in one._actions if each.help == argparse.SUPPRESS}
        assert set(re.findall(r"^\| `(--[\w-]+)", section, re.MULTILINE)) == options - hidden - {"--help"}
        assert all(option in section for option in re.findall(r"--[\w-]+", one.format_usage()) if option not in hidden)


def rows_of(page, head):
    """Cells of a table, given the begin of its head."""
    lines = page.partition(head)[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_table_of_metrics_says_what_they_take():
    rows = rows_of(read("examples/metrics.md"), "| measure | class |")
    assert {key.strip("*`") for *_, key, _, _, _ in rows} == {traits.key for traits in CATALOGUE.values()}
    report = imbtorch.ImbalanceReport("binary", per_class=())
    report.update(torch.tensor([0, 1]), torch.tensor([0, 1]))
    assert {key.strip("*`") for *_, key, _, _, _ in rows if key.startswith("**")} == report.compute().keys()
    arguments = {
        "ExpectedCost": {"costs": [[0, 1], [1, 0]]},
        "WeightedAccuracy": {"alpha": 0.5},
        "NetBenefit": {"threshold": 0.5},
    }
    for _, name, function, key, _, tasks, averages in rows:
        metric, takes = getattr(imbtorch, name.strip("`")), arguments.get(name.strip("`"), {})
        assert metric.measure is getattr(imbtorch, function.strip("`"))
        for task, sizes in {"binary": {}, "multiclass": {"num_classes": 2}, "multilabel": {"num_labels": 2}}.items():
            metric(task, **sizes, **takes)
        assert ("average" in inspect.signature(metric.measure).parameters) == (averages != "-")
        for average in averages.split(", ") if averages != "-" else ():
            metric(
                "multiclass" if average != "binary" else "binary",
                average=average,
                **({"num_classes": 2} if average != "binary" else {}),
            )
        if not takes:
            named = imbtorch.report(preds=[0, 1, 1], target=[0, 1, 0], measures=[key.strip("*`")])
            assert key.strip("*`") in named.values
        matrix = torch.tensor([[8, 2, 1], [1, 3, 0], [0, 0, 4]])
        if tasks == "two classes":
            with pytest.raises(ValueError, match="two classes"):
                metric.measure(matrix, **({} if "costs" in takes else takes))
        elif not takes:
            assert metric.measure(matrix).isfinite().all()


def test_the_page_on_versions_is_that_of_the_project():
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["lightning"], *extras["plot"], *extras["files"]]
    rows = {
        name: (oldest, newest) for name, oldest, newest in rows_of(read("examples/install.md"), "| package | oldest |")
    }
    assert rows.pop("Python") == (
        project["requires-python"].removeprefix(">="),
        project["classifiers"][-3].rpartition(" ")[2],
    )
    assert {name: oldest for name, (oldest, _) in rows.items()} == dict(each.split(">=") for each in needed)
    pinned = dict(
        each.split("==") for name in ("examples", "dev") for each in extras[name] if re.fullmatch(r"[\w-]+==\S+", each)
    )
    newest = {name: version for name, (_, version) in rows.items() if version and name != "torch"}
    assert newest == {name: pinned[name] for name in newest}
    assert f"and torch {rows['torch'][1]}" in " ".join(read(".github/CONTRIBUTING.md").split())
    assert project["classifiers"][-1] == "Typing :: Typed"
    assert (ROOT / "imbtorch" / "py.typed").exists()
    named = {row[0].strip("`"): row[1] for row in rows_of(read("examples/install.md"), "| extra | brings |")}
    for extra, brought in named.items():
        wanted = extras.get(extra, project["dependencies"])
        assert set(brought.split(", ")) == {each.partition(">=")[0] for each in wanted}


def test_the_page_on_inputs_names_arguments_and_options():
    page, takes = read("examples/inputs.md"), inspect.signature(imbtorch.report).parameters
    options = read("examples/command.md")
    for _, arguments, ours in rows_of(page, "| to describe |"):
        assert all(each in takes for each in re.findall(r"`(\w+)=`", arguments))
        assert all(f"`{each}" in options for each in re.findall(r"`(--[\w-]+)`", ours))
