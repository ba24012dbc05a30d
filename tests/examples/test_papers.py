"""The scripts that draw the papers' tables again are run as a reader runs them, with ``--quick``."""

import importlib.util
import os
import re
import sys
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import image
from processes import run_script

FOLDER = Path(__file__).parents[2] / "examples" / "papers"
MODULES = ("common", "perceptron")
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in MODULES)
DATA = os.environ.get("IMBTORCH_DATA")
with_data = pytest.mark.skipif(
    not DATA, reason="IMBTORCH_DATA is not set; examples/papers/README.md says what it names"
)
pytestmark = pytest.mark.timeout(280)


def run(script, out, *arguments, data=None):
    """Run a script in quick mode in an empty folder, with the data of a folder or without."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("IMBTORCH_DATA", None)
    if data is not None:
        environment["IMBTORCH_DATA"] = str(data)
    return run_script(FOLDER / f"{script}.py", "--quick", *arguments, folder=out, environment=environment)


def results(script, folder):
    """The Markdown that a script wrote, after a look at its pictures."""
    text = (folder / f"{script}.md").read_text(encoding="utf-8")
    names = re.findall(r"!\[[^]]+\]\((.+?)\)", text)
    assert sorted(names) == sorted(path.name for path in folder.glob("*.png"))
    for name in names:
        pixels = image.imread(folder / name)
        assert min(pixels.shape[:2]) > 400
        assert pixels[..., :3].std() > 0.05  # not blank
    return text


def tables(text):
    """Every Markdown table as rows of a heading -> cell mapping, the first column under its own heading."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n?)+", text, re.M):
        heading, rule, *rows = ([cell.strip() for cell in line.strip("| ").split("|")] for line in block.splitlines())
        assert set("".join(rule)) == {"-"}
        width = len(rule)
        heading = [""] * (width - len(heading)) + heading  # an empty corner is stripped
        for row in rows:
            assert len(row) == width, row
        found.append([dict(zip(heading, row, strict=True)) for row in rows])
    return found


def both(cell):
    """Value of this run and of the paper, without the marks of the best and the lowest."""
    here, paper = re.sub(r"\*\*|</?u>", "", cell).split(" / ")
    return float(here), float(paper)


def ended_well(done, folder, script):
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"Warning|Traceback", done.stderr), done.stderr
    assert (folder / f"{script}.md").read_text(
        encoding="utf-8"
    ).split() == done.stdout.split()  # what is printed is what is written


def ended_without_data(done, folder, script, *files):
    assert done.returncode == 1, done.stdout + done.stderr
    assert not re.search(r"Warning|Traceback", done.stderr), done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "data are missing" in last
    assert "examples/papers/README.md" in last
    for file in files:
        assert file in last
    assert (folder / f"{script}.md").read_text(encoding="utf-8").split() == done.stdout.split()


def module(script):
    """A script as a module; importing it starts nothing."""
    spec = importlib.util.spec_from_file_location(f"papers_{script}", FOLDER / f"{script}.py")
    loaded = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(FOLDER))
    try:
        spec.loader.exec_module(loaded)
    finally:
        sys.path.remove(str(FOLDER))
        for shared in MODULES:
            sys.modules.pop(shared, None)
    return loaded


# --- skew ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_skew_maps(tmp_path):
    done = run("skew_maps", tmp_path, "--out", ".")
    ended_well(done, tmp_path, "skew_maps")
    text = results("skew_maps", tmp_path)
    first, second, shares = tables(text)
    assert [row["measure"] for row in first] == ["accuracy", "precision", "recall", "F1"]
    for row in first:
        for case in ("case 1: here / paper", "case 2: here / paper"):
            here, paper = both(row[case])
            assert here == paper
    assert len(second) == 12
    for row in second:
        assert row["by differentiation"] == row["by closed form"]
        assert float(row["largest difference"]) < 1e-12
    at = {row["measure"]: row["by differentiation"] for row in second}
    assert at["precision"] == "0.625"  # (200 - 150) / 80
    assert at["F1"] == "1.875"  # (300 - 150) / 80
    assert at["three-point AUC"] == at["macro recall"] == "2.000"
    assert at["recall"] == "inf"
    assert "0.625 here; its text has (n - tn) / tp, which differentiation confirms: 1.875" in text
    assert "0.00500 (by differentiation 0.00500) and 1 / (2 n-) = 0.00250 (0.00250), not 1 / n_j" in text
    assert "sizes of the paper's columns are unknown" in text
    sizes = [int(name.removeprefix("n- = ")) for name in list(shares[0])[1:]]
    assert [size >= 900 for size in sizes] == [False, False, True, True]  # a positive prior of .1, 100 positives
    for row, above in zip(shares, (precision_favours, macro_precision_favours), strict=True):
        assert list(row.values())[1:] == [f"{above(size):.2f}" for size in sizes]


def grid(negatives):
    return np.meshgrid(np.arange(101), np.arange(negatives + 1), indexing="ij")


def precision_favours(negatives):
    """Share of the results where (n- - tn) / tp > 1."""
    tp, tn = grid(negatives)
    return (negatives - tn > tp).mean()


def macro_precision_favours(negatives):
    """Share of the results where the paper's long form, numerator over denominator, exceeds 1; in integers."""
    tp, tn = grid(negatives)
    n = negatives + 100
    above = negatives * (100 + tn - tp) ** 2 + tn * n * (negatives - 100 + 2 * (tp - tn))
    below = 100 * (negatives + tp - tn) ** 2 + tp * n * (100 - negatives + 2 * (tn - tp))
    return ((above > below) & (below >= 0) | (above < below) & (below < 0)).mean()


# --- the accuracy paradox --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_accuracy_paradox(tmp_path):
    done = run("accuracy_paradox", tmp_path, "--out", ".")
    ended_well(done, tmp_path, "accuracy_paradox")
    constant, models = tables(results("accuracy_paradox", tmp_path))
    assert [row["prediction"] for row in constant] == ["always positive", "always negative", "a coin"]
    for row in constant:
        accuracy, balanced = row["accuracy and balanced accuracy in the text"].split(" and ")
        assert float(row["accuracy"]) == float(Fraction(accuracy))
        assert float(row["balanced accuracy"]) == float(Fraction(balanced)) == 0.5
    assert [row["G-mean"] for row in constant] == ["0.000", "0.000", "0.500"]  # wrong, wrong, uninformative
    assert [row["MCC"] for row in constant] == ["0.000"] * 3
    assert [row["accuracy"] for row in models] == ["0.958 (-3.200)", "0.987 (-0.300)"]  # (.958 - .99) / .01
    assert models[0]["balanced accuracy"] == "0.880 (+0.760)"  # 8/10 + 950/990 - 1


# --- invariance and correlation --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_invariance_and_correlation(tmp_path):
    done = run("invariance_and_correlation", tmp_path)  # into "out", the default
    ended_well(done, tmp_path / "out", "invariance_and_correlation")
    assert "simulations" in done.stderr  # the bar
    text = results("invariance_and_correlation", tmp_path / "out")
    seven, seen, *correlations, remarks = tables(text)
    assert len(seven) == 8
    kept = seven[-1]
    assert kept[""] == "keeps"
    chosen = {"accuracy": "θ1", "AUC": "all", "G-mean": "θ4", "OP": "θ4", "IBA 0.05": "θ5", "IBA 0.2": "θ7"}
    assert {name: kept[name] for name in chosen} == chosen
    assert kept["IBA 0.1"] in ("θ5", "θ6")
    assert {row["AUC"] for row in seven[:-1]} == {"0.750"}
    marks = {row[""]: "".join(row[key] for key in ("p1 (I1)", "p2 (I2)", "p3 (I5)", "p4 (I7)")) for row in seen}
    for name in ("accuracy", "AUC", "G-mean", "OP"):
        assert marks[name] == "+---"
    assert marks["TPrate"] == "-++-"
    for name in ("TNrate", "dominance", "area", "IBA"):
        assert marks[name] == "----"
    assert "So do TNrate, dominance, area." in text
    assert [row[""] for row in seen if row["I3"] + row["I4"] != "--"] == ["TNrate"]  # it sees negatives alone

    small, large = correlations  # of n = 200 and n = 2000
    means = [{row["positives"]: float(row["accuracy"].split()[0]) for row in table} for table in (small, large)]
    assert list(means[0]) == list(means[1]) == ["5%", "10%", "15%", "20%", "25%"]
    assert all(mean < 0 for mean in means[1].values())
    assert means[0]["25%"] > 0 > means[1]["25%"]  # the sign depends on n
    for table in correlations:
        for row in table:
            assert float(row["AUC"].split()[0]) > 0.8
            assert float(row["G-mean"].split()[0]) > 0.8
    said = {row["remark"]: (row["n = 200"], row["n = 2000"]) for row in remarks}
    assert said["IBA is negatively correlated with accuracy"][1] == "5 of 5"
    assert said["IBA is negatively correlated with accuracy"][0] != "5 of 5"
    assert len(said) == 7


# --- IAM -------------------------------------------------------------------------------------------------------------

EXAMPLES = {  # as printed in the paper
    "1a": ("0.92", "0.57", "0.58", "0.78", "0.65", "0.14"),
    "1b": ("0.92", "0.55", "0.56", "0.76", "0.63", "0.10"),
    "2a": ("0.40", "0.41", "0.41", "0.42", "0.41", "-0.175"),
    "2b": ("0.41", "0.40", "0.42", "0.42", "0.42", "-0.185"),
}
MEASURES = ("ACC", "CBA", "MAR", "MAP", "F", "IAM")


def check_examples(text):
    """Examples 1 and 2 equal the paper's numbers, and its tables contradict the identity where they do."""
    rows = tables(text)[0]
    assert [row["example"] for row in rows] == list(EXAMPLES)
    for row in rows:
        cells = [row[f"{key}: here / paper"] for key in MEASURES]
        assert tuple(cell.split(" / ")[1] for cell in cells) == EXAMPLES[row["example"]]
        for here, paper in map(both, cells):
            assert here == pytest.approx(paper, abs=0.0101)  # some are cut off rather than rounded
        assert both(cells[5])[0] == pytest.approx(2 * both(cells[1])[0] - 1, abs=2e-4)
    assert "cut off in the paper: 2a F, 2a IAM, 2b CBA, 2b MAP." in text
    assert "Example 1: lowest measures cba, cba; the largest lowest keeps 1a, IAM keeps 1a." in text
    assert "Example 2: lowest measures accuracy, cba; the largest lowest keeps 2b, IAM keeps 2a." in text
    assert "ML7 (-0.5 beside -0.40)" in text
    # by hand: the lowest are .31, .31, .30; MAP, F (with ML7) and CBA (with ML5) are highest for ML6
    assert "Example 3: lowest measures CBA, CBA, CBA; the largest lowest keeps ML6, ML5, the majority" in text
    assert "five measures ML6, IAM keeps ML6, as the paper says" in text
    assert f"IAM {3 / 7:.4f} and ACC {5 / 12:.4f}" in text
    assert f"here {1 - 4 / 7 * (1 - 5 / 12):.4f}" in text
    assert text.count("Bounds that its rows violate") == 2
    # (.861 + .900) / 2, and (.902 + .907) / 2, which no rounding brings to .9055
    assert (
        "violate: LR-RUS (F 0.889 above (MAP + MAR) / 2 = 0.8805); GBM-RUS (F 0.906 above (MAP + MAR) / 2 = 0.9045)."
    ) in text
    assert "Table 16 (glass): 10 of 18 rows contradict" in text
    assert "Table 18 (satimage): 12 of 18 rows contradict" in text


@pytest.mark.slow
def test_iam_tables_without_data(tmp_path):
    done = run("iam_tables", tmp_path, "--out", ".")
    ended_without_data(done, tmp_path, "iam_tables", "IMBTORCH_DATA is not set", "glass.csv, sat.trn, sat.tst")
    text = results("iam_tables", tmp_path)
    check_examples(text)
    assert [path.name for path in tmp_path.glob("*.png")] == ["iam_sensitivity.png"]


@pytest.mark.slow
@with_data
def test_iam_tables(tmp_path):
    done = run("iam_tables", tmp_path, "--out", ".", data=DATA)
    ended_well(done, tmp_path, "iam_tables")
    text = results("iam_tables", tmp_path)
    check_examples(text)
    assert {path.name for path in tmp_path.glob("*.png")} == {"iam_sensitivity.png", "iam_identity.png"}
    printed = module("iam_tables").PRINTED
    _, glass, glass_gamma, satimage, satimage_gamma = tables(text)
    for table, paper in ((glass_gamma, "0.340 0.295 0.258"), (satimage_gamma, "0.830 0.816 0.834")):
        assert [row["classifier"] for row in table] == ["SVM", "SVM-RUS", "SVM-ROS"]
        assert [row["CBA: paper"] for row in table] == paper.split()
    assert float(glass_gamma[0]['CBA: gamma="auto"']) > 0.4 > 0.1 > float(glass_gamma[0]['CBA: gamma="scale"'])
    for name, table in (("Glass", glass), ("Satimage", satimage)):
        assert len(table) == 18
        for row in table:
            pairs = {key: both(row[f"{key}: here / paper"]) for key in MEASURES}
            assert tuple(paper for _, paper in pairs.values()) == printed[name][row["classifier"]]
            here = {key: value for key, (value, _) in pairs.items()}
            assert here["IAM"] == pytest.approx(2 * here["CBA"] - 1, abs=0.00151)
            assert here["CBA"] <= min(here["MAR"], here["MAP"], here["F"]) + 1e-9
            assert all(0 <= here[key] <= 1 for key in MEASURES[:5])
        for key in MEASURES:  # the bold numbers of a column are the largest, and each row has an underlined one
            column = [row[f"{key}: here / paper"] for row in table]
            for side in (0, 1):
                bold = {both(cell)[side] for cell in column if "**" in cell.split(" / ")[side]}
                assert bold == {max(both(cell)[side] for cell in column)}
        for row in table:
            cells = [row[f"{key}: here / paper"] for key in MEASURES[:5]]
            for side in (0, 1):
                low = [both(cell)[side] for cell in cells if "<u>" in cell.split(" / ")[side]]
                assert set(low) == {min(both(cell)[side] for cell in cells)}
    forest = next(row for row in glass if row["classifier"] == "RF")
    assert both(forest["ACC: here / paper"])[0] == pytest.approx(0.78, abs=0.08)  # five folds of 214 samples
    assert text.count("Here IAM = 2 CBA - 1 in all 18 rows") == 2
    assert text.count("Chosen in the paper: RF by IAM") == text.count("Chosen in the paper: GBM by IAM") == 1
    assert "147/147" in done.stderr


# --- accuracy-dominance space ----------------------------------------------------------------------------------------


def check_printed(text):
    assert "explains 90 of the 90 areas" in text
    assert "SVM original on Pima (G-mean 0.94 at dominance -0.36, at most 0.80)." in text
    assert "it does not for SVM SMOTE on Pima, SVM RUS on Pima," in text


@pytest.mark.slow
def test_dominance_table_without_data(tmp_path):
    done = run("dominance_table", tmp_path, "--out", ".")
    ended_without_data(
        done, tmp_path, "dominance_table", "is not set", "glass.csv, pima-indians-diabetes.csv, vehicle.arff"
    )
    check_printed(results("dominance_table", tmp_path))
    assert {path.name for path in tmp_path.glob("*.png")} == {"dominance_space.png", "dominance_points.png"}


@pytest.mark.slow
@with_data
def test_dominance_table(tmp_path):
    done = run("dominance_table", tmp_path, "--out", ".", data=DATA)
    ended_well(done, tmp_path, "dominance_table")
    text = results("dominance_table", tmp_path)
    check_printed(text)
    printed = module("dominance_table").PRINTED
    found = tables(text)
    assert len(found) == 3
    values = {}
    for classifier, table in zip(("1-NN", "SVM", "MLP"), found, strict=True):
        assert [row[""] for row in table] == ["Glass", "Pima", "Vehicle"]
        for row in table:
            name, *cells = row.values()
            pairs = [both(cell) for cell in cells]
            assert tuple(paper for _, paper in pairs) == printed[classifier][name]
            for start, way in zip((0, 3, 6), ("original", "SMOTE", "RUS"), strict=True):
                gmean, dominance, area = (here for here, _ in pairs[start : start + 3])
                assert area == pytest.approx(gmean * (dominance + 3) / 2, abs=0.02)
                assert gmean <= max(0.0, 1.005 - abs(dominance)) ** 0.5 + 0.005
                values[classifier, way, name] = gmean, dominance, area
    for name in ("Glass", "Vehicle"):  # the linear machine never takes a sample for positive, as in the paper
        assert values["SVM", "original", name] == (0.0, -1.0, 0.0)
    assert values["SVM", "original", "Pima"][:2] == pytest.approx((0.69, -0.36), abs=0.05)
    assert values["1-NN", "RUS", "Pima"][2] == pytest.approx(1.0, abs=0.1)
    gmean, dominance, _ = values["SVM", "original", "Pima"]
    assert f"SVM on Pima as it is, comes out as G-mean {gmean:.2f} at dominance {dominance:.2f}" in text
    assert "135/135" in done.stderr


@pytest.mark.slow
@with_data
def test_dominance_table_with_the_perceptron_of_weka(tmp_path):
    done = run("dominance_table", tmp_path, "--out", ".", "--weka-mlp", "--sets", "Glass", data=DATA)
    ended_well(done, tmp_path, "dominance_table")
    text = results("dominance_table", tmp_path)
    assert "1 x 5-fold cross-validation, Weka's MLP" in text
    (row,) = tables(text)[2]
    for way in ("SMOTE", "RUS"):
        here, paper = both(row[f"area {way}"])
        assert here == pytest.approx(paper, abs=0.25)  # five folds of 17 positives
        assert here > both(row["area original"])[0]
    assert "45/45" in done.stderr


def trained_by_autograd(network, inputs, target, epochs):
    """Weights of one network after stochastic gradient descent, sample by sample, on half the squared error."""
    layers = [torch.tensor(layer, dtype=torch.float64, requires_grad=True) for layer in (network.first, network.second)]
    optimizer = torch.optim.SGD(layers, lr=0.3, momentum=0.2)
    values = torch.from_numpy((inputs - network.middle) / network.half_range)
    for _ in range(epochs):
        for sample, label in zip(values, target, strict=True):
            output = sample
            for layer in layers:
                output = torch.sigmoid(output @ layer[:-1] + layer[-1])
            optimizer.zero_grad()
            (0.5 * (output - torch.eye(2)[label]).square().sum()).backward()
            optimizer.step()
    return [layer.detach().numpy() for layer in layers]


def test_perceptrons_trained_in_lockstep_are_those_trained_alone():
    perceptron = module("perceptron")
    random = np.random.default_rng(5)
    inputs = [random.normal(size=(length, 5)) for length in (3, 4, 2, 4)]
    targets = [random.integers(0, 2, len(each)) for each in inputs]
    first, last = (perceptron.train_networks(inputs, targets, 1, epochs, np.float64) for epochs in (0, 4))
    shuffled = []
    for before, after, sample, target in zip(first, last, inputs, targets, strict=True):
        orders = []
        for order in permutations(range(len(sample))):
            alone = trained_by_autograd(before, sample[list(order)], target[list(order)], 4)
            if all(np.allclose(*pair, atol=1e-12) for pair in zip(alone, after[-2:], strict=True)):
                orders.append(order)
        (order,) = orders  # one for all epochs
        shuffled.append(list(order) != sorted(order))
    assert any(shuffled)


def test_a_perceptron_is_made_as_weka_makes_it():
    perceptron = module("perceptron")
    random = np.random.default_rng(0)
    inputs = random.uniform(3, 9, (40, 4))
    inputs[:, 2] = 7
    target = (inputs[:, 0] > inputs[:, 1]).astype(int)
    (start,) = perceptron.train_networks([inputs], [target], 0, epochs=0)
    assert start.first.shape == (5, 3)  # (4 + 2) // 2 hidden units, and a row of biases
    assert start.second.shape == (4, 2)
    weights = np.concatenate([start.first.ravel(), start.second.ravel()])
    assert 0.03 < np.abs(weights).max() <= 0.05
    scaled = (inputs - start.middle) / start.half_range
    assert scaled[:, [0, 1, 3]].min(0) == pytest.approx([-1, -1, -1])
    assert scaled[:, [0, 1, 3]].max(0) == pytest.approx([1, 1, 1])
    assert (scaled[:, 2] == 0).all()
    (network,) = perceptron.train_networks([inputs], [target], 0)
    assert (network.predict(inputs) == target).mean() > 0.95


def test_two_nominal_values_are_one_input():
    inputs = np.array([[0.0, 1.0, 0.0, 1.0, 0.5], [1.0, 0.0, 0.0, 0.0, 0.5], [0.0, 1.0, 1.0, 0.0, 0.5]])
    # only the second is one minus the column before it in every row
    assert module("perceptron").without_complements(inputs).tolist() == inputs[:, [0, 2, 3, 4]].tolist()


# --- data ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_folder_that_lacks_a_file_is_named(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "glass.csv").touch()
    done = run("iam_tables", tmp_path, data=tmp_path / "data")
    ended_without_data(done, tmp_path / "out", "iam_tables", f"{tmp_path / 'data'} has no sat.trn, sat.tst.")


def test_files_are_read_as_they_lie(tmp_path, monkeypatch):
    common = module("common")
    monkeypatch.setenv("IMBTORCH_DATA", str(tmp_path))
    (tmp_path / "vehicle.arff").write_text(
        "% a comment\n@relation vehicle\n@attribute a INTEGER\n@DATA\n95,48, van\n% another\n91,41,opel\n\n",
        encoding="utf-8",
    )
    inputs, classes = common.load("Vehicle")
    assert inputs.tolist() == [[95, 48], [91, 41]]
    assert classes.tolist() == ["van", "opel"]
    (tmp_path / "breast-cancer.csv").write_text(
        "'40-49','3','no','recurrence-events'\n'50-59','2','no','none'\n'40-49',nan,'yes','none'\n'50-59','?','yes','x'\n",
        encoding="utf-8",
    )
    inputs, classes = common.load("Breast")  # incomplete rows are dropped, numbers stay numbers
    assert inputs.tolist() == [[1, 0, 3, 1], [0, 1, 2, 1]]
    assert classes.tolist() == ["recurrence-events", "none"]
    (tmp_path / "sat.trn").write_text("1\t2\t37\n92\t115\t3\n84\t102\t4\n", encoding="utf-8")
    (tmp_path / "sat.tst").write_text("80 102 3\n", encoding="utf-8")  # without a heading, as UCI has it
    inputs, classes = common.load("Satimage")
    assert inputs.tolist() == [[92, 115], [84, 102], [80, 102]]
    assert classes.tolist() == ["3", "4", "3"]
    with pytest.raises(SystemExit, match=r"Satimage: \(1, 2\) positives and negatives, Table 2 has \(626, 5809\)"):
        common.load_binary("Satimage")


@with_data
def test_sizes_are_those_of_the_paper(monkeypatch):
    common = module("common")
    monkeypatch.setenv("IMBTORCH_DATA", DATA)
    for name, source in common.SOURCES.items():
        inputs, target = common.load_binary(name)
        assert (int(target.sum()), int((1 - target).sum())) == source.sizes
        assert inputs.shape[0] == len(target)
        assert (inputs == inputs).all()


def test_the_readme_names_every_script_and_file():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for script in SCRIPTS:
        assert f"`{script}.py`" in text
    for name, source in module("common").SOURCES.items():
        for file in source.files:
            (line,) = [each for each in text.splitlines() if each.startswith("|") and f"`{file}`" in each]
            assert re.findall(r"\((\d+)\)", line) == [str(size) for size in source.sizes], name
    assert "IMBTORCH_DATA" in text


@pytest.mark.parametrize(
    ("paper", "tables", "figures", "more"),
    [
        ("Mortaz (2020)", 18, 4, ["Example 1", "Example 2", "Example 3", *(f"Theorem {n}" for n in range(1, 5))]),
        ("Garcia, Mollineda and Sanchez (2009)", 3, 2, []),
        ("Liu, Ghosh and Martin (2007)", 2, 2, ["Theorem 0.1"]),
        ("Garcia, Mollineda and Sanchez (2010)", 4, 1, []),
    ],
)
def test_the_readme_has_a_row_for_all_that_a_paper_shows(paper, tables, figures, more):
    section = (FOLDER / "README.md").read_text(encoding="utf-8").partition(f"### {paper}")[2].partition("\n### ")[0]
    named = {"Table": set(), "Figure": set()}
    for cell in (line.split("|")[1] for line in section.splitlines() if line.startswith("|")):
        for kind, first, joint, last in re.findall(r"(Table|Figure)s? (\d+)(?: (to|and) (\d+))?", cell):
            named[kind] |= set(range(int(first), int(last if joint else first) + 1))
        more = [each for each in more if each not in cell]
    assert named == {"Table": set(range(1, tables + 1)), "Figure": set(range(1, figures + 1))}
    assert not more


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_says_what_it_does(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit, match="0"):
        module(script).main()
    said = capsys.readouterr().out
    for word in ("--quick", "--out", "(20"):
        assert word in said
    assert not list(tmp_path.iterdir())
