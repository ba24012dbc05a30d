"""The pictures of the gallery are drawn by its script as a reader runs it, and the README shows no other."""

import os
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import image
from processes import run_script

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "gallery.py"
PICTURES = {path.name: path for path in (ROOT / "examples" / "figures").glob("*.png")}
STUDY = ("decision_rule.png", "decision_epochs.png", "labels.png")  # drawn by the scripts of their studies
COMMITTED = {name: path for name, path in PICTURES.items() if name not in STUDY}
WITHOUT_DATA = ("sensitivity.png", "prevalence.png")  # no rounding of another machine shows in them


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_the_script_draws_every_committed_picture(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "Agg"}
    done = run_script(SCRIPT, "--out", str(tmp_path / "new"), folder=tmp_path, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line for line in done.stderr.splitlines() if not line.startswith("imbtorch: ")]  # of a busy machine
    assert told == []
    assert [path.name for path in tmp_path.iterdir()] == ["new"]  # nothing is left beside the pictures
    drawn = {path.name: path for path in (tmp_path / "new").iterdir()}
    assert "front.png" in COMMITTED
    assert drawn.keys() == COMMITTED.keys()
    for name, path in COMMITTED.items():
        assert path.stat().st_size <= 70_000, name
        pixels, again = (image.imread(each) for each in (path, drawn[name]))
        assert pixels.shape == again.shape, name
        for found in (pixels, again):
            height, width, channels = found.shape
            assert 700 <= width <= 1100, name
            assert 300 <= height <= 800, name
            assert channels == 3 or (found[..., 3] == 1).all(), name  # a dark page does not shine through
            assert (found[0, 0, :3] == 1).all(), name  # white
            assert found[..., :3].std() > 0.1, name  # not blank
        if name in WITHOUT_DATA and mpl.__version__ == "3.11.2":  # the version that drew what is committed
            apart = (abs(pixels - again) > 0.1).any(-1).mean()
            assert apart < 0.01, f"{name} is out of date; run python examples/gallery.py"
