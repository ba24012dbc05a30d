"""Frames of real engines (`sources.py`), eager and lazy: the same counts, table and signature as columns in memory."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import torch
from rooms import files as saved_files
from rooms import sources as saved_sources

import imbtorch
from imbtorch.statistics import paired_compare

RNG = np.random.default_rng(7)
SIZE = 400
NAMES = np.array(["a cat", "dog", "emu"])
T = RNG.choice(3, SIZE, p=[0.6, 0.3, 0.1])
Q, R = (np.where(RNG.random(SIZE) < share, RNG.integers(3, size=SIZE), T) for share in (0.2, 0.3))
UNKNOWN = np.arange(SIZE) % 50 == 3
COLUMNS = {
    "text": NAMES[T].tolist(),
    "text_pred": NAMES[Q].tolist(),
    "other_pred": NAMES[R].tolist(),
    "whole": T.tolist(),
    "whole_pred": Q.tolist(),
    "yes": (T == 2).tolist(),
    "yes_pred": (Q == 2).tolist(),
    "gap": [None if unknown else str(name) for unknown, name in zip(UNKNOWN, NAMES[T], strict=True)],
    "site": np.array(["A", "B"])[RNG.integers(2, size=SIZE)].tolist(),
    "patient": [f"p{at}" for at in RNG.integers(37, size=SIZE)],
    "n": RNG.integers(4, size=SIZE).tolist(),
    "w": (RNG.integers(1, 8, SIZE) / 8).tolist(),
    "score": RNG.random(SIZE).tolist(),
}
# of Ibis and Spark beside newer versions of DuckDB and pandas
pytestmark = [
    pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*pandas"),
    pytest.mark.timeout(300),
]
ENGINES = ("pandas", "polars", "polars lazy", "pyarrow", "duckdb", "ibis", "spark")


def spark_frame():
    """Return the columns as a frame of Spark in local mode."""
    sql = pytest.importorskip("pyspark.sql", reason="needs pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java")
    builder = sql.SparkSession.builder.master("local[1]").config("spark.sql.shuffle.partitions", "2")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    return session.createDataFrame(list(zip(*COLUMNS.values(), strict=True)), list(COLUMNS))


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    """Return a function that makes the frame of an engine, once."""
    made = {}

    def make(engine):
        if engine == "spark":
            return spark_frame()
        package, _, lazy = engine.partition(" ")
        library = pytest.importorskip(package, reason=f"needs {package}")
        if package == "polars":
            return library.LazyFrame(COLUMNS) if lazy else library.DataFrame(COLUMNS)
        if package == "pandas":
            return library.DataFrame(COLUMNS)
        table = pytest.importorskip("pyarrow", reason="needs pyarrow").table(COLUMNS)
        if package == "pyarrow":
            return table
        if package == "duckdb":
            return library.connect().from_arrow(table)
        path = tmp_path_factory.mktemp("ibis") / "a.parquet"
        importlib.import_module("pyarrow.parquet").write_table(table, path)
        return library.duckdb.connect().read_parquet(path)

    def kept(engine):
        if engine not in made:
            made[engine] = make(engine)
        return made[engine]

    return kept


OPTIONS = {
    "text": {"target": "text", "preds": "text_pred"},
    "integers": {"target": "whole", "preds": "whole_pred"},
    "booleans": {"target": "yes", "preds": "yes_pred"},
    "missing dropped": {"target": "gap", "preds": "text_pred", "missing": "drop"},
    "missing as class": {"target": "gap", "preds": "text_pred", "missing": "class"},
    "weights": {"target": "text", "preds": "text_pred", "weight": "w"},
    "frequencies": {"target": "whole", "preds": "whole_pred", "frequency": "n"},
    "groups": {"target": "text", "preds": "text_pred", "group": "site"},
    "clusters": {"target": "text", "preds": "text_pred", "cluster": "patient", "intervals": ["f1"]},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_same_report(engine, options, frames):
    given = OPTIONS[options]
    target, preds = np.array(COLUMNS[given["target"]], dtype=object), np.array(COLUMNS[given["preds"]], dtype=object)
    if options == "missing as class":
        target = np.where(UNKNOWN, "missing", target)
    kept = ~UNKNOWN | (options != "missing dropped")
    weight = np.array(COLUMNS[given.get("weight", given.get("frequency", "n"))])
    weight = weight[kept] if {"weight", "frequency"} & given.keys() else None
    result, plain = imbtorch.report(frames(engine), **given), imbtorch.report(COLUMNS, **given)
    expected = sklearn.metrics.confusion_matrix(target[kept].tolist(), preds[kept].tolist(), sample_weight=weight)
    assert result.counts.tolist() == expected.tolist()
    assert str(result.table()) == str(plain.table())
    assert result.signature == plain.signature


@pytest.mark.filterwarnings("ignore:the AUC is")
@pytest.mark.parametrize("engine", ENGINES)
def test_scores_come_in_batches_or_the_error_names_the_recipe(engine, frames):
    given = {"target": "yes", "scores": "score"}
    if engine in ("ibis", "spark"):
        with pytest.raises(ValueError, match=r"hands out no batches of rows.*recipe 'Scores on Spark'"):
            imbtorch.report(frames(engine), **given)
        return
    auc = sklearn.metrics.roc_auc_score(COLUMNS["yes"], COLUMNS["score"])
    assert imbtorch.report(frames(engine), **given)["auc"].item() == pytest.approx(auc, abs=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_two_models_of_one_frame_are_compared_by_joint_counts(engine, frames):
    data, generator = imbtorch.Predictions(frames(engine), target="text"), torch.Generator().manual_seed(0)
    found = data.compare("text_pred", "other_pred", "balanced_accuracy", generator=generator)
    tensors = [torch.from_numpy(each) for each in (R, Q, T)]
    expected = paired_compare("balanced_accuracy", *tensors, 3, generator=torch.Generator().manual_seed(0))
    for name in ("estimate", "low", "high"):
        assert getattr(found.difference, name).item() == pytest.approx(getattr(expected.difference, name).item())
    gain = sklearn.metrics.balanced_accuracy_score(T, R) - sklearn.metrics.balanced_accuracy_score(T, Q)
    assert found.difference.estimate.item() == pytest.approx(gain)


@pytest.mark.parametrize("engine", ["polars lazy", "duckdb", "ibis"])
def test_too_many_groups_stop_with_the_name_of_the_column(engine, frames, monkeypatch):
    for module in (saved_sources, saved_files):
        monkeypatch.setattr(module, "MOST_GROUPS", 20)
    with pytest.raises(ValueError, match=r"target \(score\) has more than 20 different values.*like an id"):
        imbtorch.report(frames(engine), target="score", preds="text_pred")
    with pytest.raises(ValueError, match=r"cluster \(patient\) has more than 20 .* add them by imbtorch merge"):
        imbtorch.report(frames(engine), target="text", preds="text_pred", cluster="patient")


@pytest.mark.parametrize("engine", ["polars lazy", "duckdb", "ibis"])
def test_sums_beyond_the_integers_of_floats_are_refused(engine, tmp_path):
    """Frequencies that an engine sums as floating numbers would lose samples from 2**53 on."""
    columns = {"y": [0, 1, 1], "q": [0, 1, 0], "n": [2**52, 2**52, 3]}
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    if engine == "polars lazy":
        frame = pytest.importorskip("polars", reason="needs polars").LazyFrame(columns)
    elif engine == "duckdb":
        frame = pytest.importorskip("duckdb", reason="needs duckdb").connect().from_arrow(pyarrow.table(columns))
    else:
        path = tmp_path / "a.parquet"
        importlib.import_module("pyarrow.parquet").write_table(pyarrow.table(columns), path)
        frame = pytest.importorskip("ibis", reason="needs ibis").duckdb.connect().read_parquet(path)
    with pytest.raises(ValueError, match=r"frequency sums to 2\*\*53 or more"):
        imbtorch.report(frame, target="y", preds="q", frequency="n")
    small = columns | {"n": [2**40, 2**40, 3]}
    assert imbtorch.report(small, target="y", preds="q", frequency="n").counts.tolist() == [[2**40, 0], [3, 2**40]]


# --- recipes ----------------------------------------------------------------------------------------------------------

RECIPES = (Path(__file__).parents[2] / "examples" / "trainers.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_recipe_for_ray_data_prints_what_it_says(tmp_path):
    pytest.importorskip("ray", reason="needs ray")
    text = re.search(r"^## Ray Data\n(.*?)(?=^## )", RECIPES, flags=re.DOTALL | re.MULTILINE)[1]
    program = re.search(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)[1]
    (tmp_path / "recipe.py").write_text(program, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "recipe.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr[-2000:]
    label = [at % 4 // 3 for at in range(400)]
    score = np.array([(at * 37 % 100) / 200 + 0.25 * (at % 4 // 3) for at in range(400)])
    area = f"{sklearn.metrics.roc_auc_score(label, score):.3f}"
    assert done.stdout.split() == re.findall(r"^print\(.*\)  # (.*)$", program, flags=re.MULTILINE) == [area]
