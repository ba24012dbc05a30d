"""Results of shards that are added (`reports/result.py`): what they sum to, and what is refused."""

import json

import numpy as np
import pytest
from rooms import command_line, digest_of

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


# --- samples that would count twice -----------------------------------------------------------------------------------


def saved(path, rows):
    """Write the result of some rows and return its path as text."""
    path.parent.mkdir(exist_ok=True)
    some = {key: each[rows] for key, each in COLUMNS.items()}
    imbtorch.report(some, target="label", preds="pred", class_names=NAMES).to_json(path)
    return str(path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*had no target")
def test_a_sum_beside_its_parts_is_refused(folder, capsys):
    a, b, c, d = (saved(folder / f"{name}.json", slice(at * 90, at * 90 + 90)) for at, name in enumerate("abcd"))
    assert command_line.main(["merge", a, b, "--json", "sum.json"]) == 0
    assert command_line.main(["merge", "sum.json", c, "--json", "more.json"]) == 0
    assert command_line.main(["merge", b, d, "--json", "other.json"]) == 0
    imbtorch.open_result("sum.json").to_json("copy.json")
    twice = [["a.json", "b.json", "sum.json"], ["sum.json", a], ["more.json", "b.json"], ["more.json", "sum.json"]]
    twice += [["sum.json", "other.json"], [c, "more.json"], ["copy.json", "sum.json"], ["copy.json", b]]
    capsys.readouterr()
    for paths in twice:
        assert command_line.main(["merge", *paths]) == 2, paths
        assert "both hold" in (said := capsys.readouterr()).err
        assert not said.out
        with pytest.raises(ValueError, match="whose samples would count twice"):
            imbtorch.merge_results(*paths[::-1])
    expected = imbtorch.report(
        {key: each[:360] for key, each in COLUMNS.items()}, target="label", preds="pred", class_names=NAMES
    )
    for paths in ([a, b, c, d], ["more.json", d], ["sum.json", c, d]):
        assert imbtorch.merge_results(*paths).counts.tolist() == expected.counts.tolist()


@pytest.mark.filterwarnings("ignore:.*had no target")
def test_one_file_and_an_output_among_the_inputs_are_refused(folder, capsys):
    a, b = saved(folder / "a.json", slice(0, 90)), saved(folder / "b.json", slice(90, 180))
    (folder / "soft.json").symlink_to(a)
    (folder / "hard.json").hardlink_to(b)
    for paths in ([a, a], [a, "soft.json"], ["hard.json", b], ["./a.json", a]):
        with pytest.raises(ValueError, match="are the same file, so samples would count twice"):
            imbtorch.merge_results(*paths)
    before = (folder / "a.json").read_bytes()
    for output in ("a.json", "soft.json", "./a.json"):
        assert command_line.main(["merge", a, b, "--json", output]) == 2
        assert f"--json names {output}, which is read" in capsys.readouterr().err
    assert (folder / "a.json").read_bytes() == before
    assert command_line.main(["merge", a, b, "--json", "sum.json"]) == 0
    assert command_line.main(["merge", a, b, "--json", "sum.json"]) == 0  # again, over the older sum
    with pytest.raises(ValueError, match="needs the paths of results"):
        imbtorch.merge_results()


@pytest.mark.filterwarnings("ignore:.*had no target")
def test_equal_results_are_right_shards_with_a_note(folder):
    """Of two shards of 20 samples often both have equal counts; files in different folders often have equal names."""
    rows = slice(0, 20)
    paths = [saved(folder / name / "r.json", rows) for name in ("monday", "tuesday", "wednesday", "thursday")]
    merged = imbtorch.merge_results(*paths[:2])
    single = imbtorch.open_result(paths[0]).counts
    assert merged.counts.tolist() == (2 * single).tolist()
    told = [note for note in merged.table().notes if "equal results" in note]
    assert told == [f"{paths[0]} and {paths[1]} hold equal results; if one is a copy, its samples count twice"]
    merged.to_json("sum.json")
    assert imbtorch.merge_results("sum.json", *paths[2:]).counts.tolist() == (4 * single).tolist()
    other = saved(folder / "friday" / "r.json", slice(20, 45))
    assert not [note for note in imbtorch.merge_results(paths[0], other).table().notes if "equal results" in note]


def test_sums_beyond_the_integers_are_an_error(folder):
    half = 2**62
    paths = []
    for name, number in (("a", half), ("b", half - 3), ("c", half - 4)):
        columns = {"y": [0, 1, 1], "q": [0, 1, 0], "n": [1, 1, 1]}
        imbtorch.report(columns, target="y", preds="q", frequency="n").to_json(path := folder / f"{name}.json")
        data = json.loads(path.read_text(encoding="utf-8"))
        data["counts"] = [[number, 0], [1, 1]]
        path.write_text(json.dumps(data | {"sha256": digest_of(data)}), encoding="utf-8")
        paths.append(path)
    assert imbtorch.merge_results(*paths[1:]).counts.tolist() == [[2 * half - 7, 0], [2, 2]]
    with pytest.raises(ValueError, match=r"below 2\*\*63 together"):
        imbtorch.merge_results(*paths[:2])
