"""The simulation of choices among epochs, run as a reader would run it."""

import re
from pathlib import Path

import pytest
from processes import run_script

# --- with known truth -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_simulation_prints_a_row_for_each_case_and_measure(tmp_path):
    script = Path(__file__).parents[2] / "examples" / "choosing.py"
    done = run_script(script, "--quick", "--runs", "2", "--classes", "2", "5", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in re.findall("^\\|.*", done.stdout, re.M)]
    heading, _, *rows = lines[: 2 + 2 * 4]
    assert [row[:3] for row in rows] == [[k, "10", name] for k in "25" for name in ("BA", "IAM", "G-mean", "macro F1")]
    for row in rows:
        seen = dict(zip(heading, row, strict=True))
        assert -0.1 < float(seen["corrected"]) < float(seen["raw bias"]) < 0.3
        assert 1 <= float(seen["set size"]) <= 40
        assert 0 < float(seen["shortfall"]) < float(seen["limit"])
    _, _, *few = lines[2 + 2 * 4 :]
    assert [tuple(row[:3]) for row in few] == [(k, rare, "0.3") for k in "25" for rare in ("5", "20")]
    assert {row[3] for row in few if row[1] == "5"} == {"0.00"}  # of five samples none is corrected
