"""Results of shards that are added (`reports/result.py`): what they sum to, and what is refused."""

import numpy as np
import pytest
from rooms import command_line

import imbtorch

RNG = np.random.default_rng(5)
NAMES = np.array(["cat", "dog", "emu"])
T = RNG.choice(3, 400, p=[0.6, 0.3, 0.1])
Q = np.where(RNG.random(400) < 0.2, RNG.integers(3, size=400), T)
S = RNG.dirichlet([1, 1, 1], 400)
COLUMNS = {
    "label": NAMES[T],
    "pred": NAMES[Q],
    "site": np.array(["A", "B"])[np.arange(400) // 2 % 2],
    "patient": [f"p{at % 37}" for at in range(400)],
    "w": RNG.integers(1, 8, 400) / 8,
}


def shards(folder, **options):
    """Write the results of the whole, and of three shards of unequal sizes; return the paths."""
    paths = []
    for name, rows in (("all", slice(None)), ("a", slice(0, 50)), ("b", slice(50, 51)), ("c", slice(51, None))):
        some = {key: each[rows] for key, each in COLUMNS.items()}
        result = imbtorch.report(some, target="label", class_names=NAMES, **options)
        paths.append(str(folder / f"{name}.json"))
        result.to_json(paths[-1])
    return paths


@pytest.mark.filterwarnings("ignore:.*had no target", "ignore:.*too few", "ignore:.*bounds are nan", "ignore:.*cluster")
@pytest.mark.parametrize(
    "options",
    [{}, {"intervals": True}, {"cluster": "patient", "intervals": ["f1"]}, {"weight": "w"}, {"prevalence": [1, 1, 2]}],
    ids=["plain", "intervals", "clusters", "weights", "prevalence"],
)
def test_shards_sum_to_the_whole(options, tmp_path, capsys):
    whole, *parts = shards(tmp_path, preds="pred", **options)
    path = tmp_path / "sum.json"
    assert command_line.main(["merge", *parts, "--json", str(path)]) == 0
    expected = imbtorch.open_result(whole)
    assert capsys.readouterr().out == f"{expected.table()}\n\n{expected.signature}\n"
    assert imbtorch.open_result(path).signature == expected.signature == imbtorch.merge_results(*parts).signature


def test_groups_are_summed(tmp_path):
    parts = []
    for at in range(2):
        some = {key: each[at::2] for key, each in COLUMNS.items()}
        parts.append(tmp_path / f"{at}.json")
        imbtorch.report(some, target="label", preds="pred", group="site").to_json(parts[-1])
    whole = imbtorch.report(COLUMNS, target="label", preds="pred", group="site")
    merged = imbtorch.merge_results(*parts)
    assert str(merged.table()) == str(whole.table())
    assert merged["f1_worst"] == whole["f1_worst"]


def test_areas_are_left_out_and_the_table_says_so(tmp_path):
    parts = []
    for at in range(2):
        parts.append(tmp_path / f"{at}.json")
        imbtorch.report(scores=S[at::2], target=T[at::2]).to_json(parts[-1])
    merged = imbtorch.merge_results(*parts)
    assert merged.counts.tolist() == imbtorch.report(scores=S, target=T).counts.tolist()
    assert "auc" not in merged.values
    assert any("such as areas under curves, are left out" in note for note in merged.table().notes)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"measures": ["f1"]}, "differ in measures"),
        ({"class_names": ["dog", "cat", "emu"]}, "differ in class_names"),
        ({"cluster": "patient"}, "differ in clusters"),
        ({"weight": "w"}, "differ in weighted"),
        ({"group": "site"}, "differ in groups"),
    ],
)
def test_other_settings_are_refused_with_the_difference(options, text, tmp_path, capsys):
    paths = [str(tmp_path / f"{name}.json") for name in "ab"]
    for path, more in zip(paths, ({}, options), strict=True):
        imbtorch.report(COLUMNS, target="label", preds="pred", **more).to_json(path)
    assert command_line.main(["merge", *paths, "--json", str(tmp_path / "sum.json")]) == 2
    shown = capsys.readouterr()
    assert text in shown.err
    assert "--class-names" in shown.err
    assert not shown.out
    assert not (tmp_path / "sum.json").exists()
