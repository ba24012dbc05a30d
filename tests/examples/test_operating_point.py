"""The example of an operating point, run as a reader would run it."""

import importlib
import os
import re
from pathlib import Path

import pytest
from matplotlib import image
from processes import run_script

# --- the example ----------------------------------------------------------------------------------------------------

EXAMPLE = Path(__file__).parents[2] / "examples" / "operating_point.py"


@pytest.mark.slow
@pytest.mark.parametrize("given", [False, True])
def test_operating_point(given, tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "Agg"}
    folder = environment.pop("IMBTORCH_DATA", None)
    if given:
        if not folder or not (Path(folder) / "ecoli.csv").exists():
            pytest.skip("IMBTORCH_DATA names no folder with ecoli.csv")
        environment["IMBTORCH_DATA"] = folder
    done = run_script(EXAMPLE, "--out", str(tmp_path), "--epochs", "60", folder=tmp_path, environment=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert ("ecoli" if given else "breast cancer") in done.stdout
    for words in ("too high", "few positives", "Newcombe"):
        assert words in " ".join(done.stdout.split())
    number = r"(-?\d\.\d{3})"
    rows = re.findall(rf"test at +([01]\.?\d*\S*)(?: \(floor\))? +{number} +\[{number}, {number}\]", done.stdout)
    assert float(rows[0][0]) == 0.5
    assert len(rows) == 3 - ("IBA on validation at 0.5 " in done.stdout)  # which chose .5 itself
    for _, value, low, high in rows:
        assert 0 <= float(low) <= float(value) <= float(high) <= 1.05
    (kept,) = re.findall(rf"IBA on validation at \S+ +{number}", done.stdout)
    (corrected,) = re.findall(rf"corrected for the choice +{number}", done.stdout)
    assert float(corrected) < float(kept)
    text = " ".join(done.stdout.split())  # printed lines break at 100 columns
    (chance,) = re.findall(r"limit of recall holds with probability ([\d.]+); promised at sure=0.8", text)
    assert float(chance) >= 0.79  # .8 by 2000 draws
    pixels = image.imread(tmp_path / "operating_point.png")
    assert min(pixels.shape[:2]) > 400
    assert pixels[..., :3].std() > 0.1


def test_importing_the_example_starts_nothing():
    spec = importlib.util.spec_from_file_location("operating_point", EXAMPLE)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
