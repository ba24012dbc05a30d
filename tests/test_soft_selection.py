"""The script that compares monitors on real sets reads KEEL's files, and its regrets are those of the definition."""

import importlib.util
from pathlib import Path

import pytest
import torch

PATH = Path(__file__).parent.parent / "examples" / "soft_selection.py"
HEAD = "@relation toy\n@attribute a real [0, 9]\n@attribute b {x, y, z}\n@attribute Class {positive, negative}\n@data\n"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("soft_selection", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(folder, rows):
    path = folder / "toy.dat"
    path.write_text(HEAD + "\n".join(rows), encoding="utf-8")
    return path


ROWS = [f"{index % 10}, {'xyz'[index % 3]}, negative" for index in range(80)]
RARE = [f"{index % 3}.5, x, positive" for index in range(20)]


def test_files_are_read_with_nominal_features_and_the_rare_class_as_1(script, tmp_path):
    features, target = script.read_keel(written(tmp_path, ROWS + RARE))
    assert features.shape == (100, 4)  # a number and three indicators
    torch.testing.assert_close(features.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    assert target.tolist() == [0] * 80 + [1] * 20


@pytest.mark.parametrize("rows", [ROWS + RARE[:9], ROWS[:40] + RARE, [*ROWS, *RARE, "?, x, negative"], ROWS])
def test_sets_that_do_not_fit_are_left_out(script, tmp_path, rows):
    assert script.read_keel(written(tmp_path, rows)) is None


def test_parts_hold_the_same_share_of_each_class(script):
    target = torch.tensor([0] * 80 + [1] * 20)
    parts = script.split(target, torch.Generator().manual_seed(0))
    assert [len(part) for part in parts] == [40, 20, 40]
    assert [target[part].sum().item() for part in parts] == [8, 4, 8]
    assert sorted(torch.cat(parts).tolist()) == list(range(100))


def test_regret_is_what_the_kept_epoch_lacks_on_test_data(script):
    hard = torch.tensor([0.5, 0.9, 0.7, 0.9, 0.9])
    soft = torch.tensor([0.5, 0.88, 0.7, 0.93, 0.90])
    reached = torch.tensor([0.4, 0.6, 0.8, 0.7, 0.5])
    on_validation = dict.fromkeys(script.MEASURES, hard) | {f"{name}_soft": soft for name in script.MEASURES}
    found = script.regrets(on_validation, dict.fromkeys(script.MEASURES, reached))
    assert found["iam", "earliest"] == pytest.approx(0.2)
    assert found["iam", "latest"] == pytest.approx(0.3)
    assert found["iam", "soft"] == pytest.approx(0.1)
    assert found["iam", "ties"] == 3


def test_the_tables_are_printed(script, tmp_path, monkeypatch, capsys):
    written(tmp_path, ROWS + RARE)
    options = ["--data", str(tmp_path), "--seeds", "1", "--epochs", "2", "--generated", "0"]
    monkeypatch.setattr("sys.argv", ["soft_selection.py", *options])
    script.main()
    printed = capsys.readouterr().out
    assert printed.count("\n### ") == len(script.REGIMES)
    assert printed.count("| iam |") == len(script.REGIMES)


def test_a_folder_without_sets_is_said(script, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["soft_selection.py", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match="no data set fits"):
        script.main()
