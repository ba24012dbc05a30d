"""The rule that the example chooses: its gain survives its own range and the test set."""

import os
import re
from pathlib import Path

from matplotlib import image
from processes import run_script
from test_examples import ENVIRONMENT, EXAMPLES


def test_the_gain_survives_its_interval_and_the_test_set(tmp_path):
    done = run_script(EXAMPLES / "decide.py", folder=tmp_path, environment=os.environ | ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    low, high = map(float, re.search(r"balanced_accuracy \S+\s+\[(\S+),\s+(\S+)\]", done.stdout).groups())
    values = [float(each) for each in re.findall(r"^\S.*?balanced_accuracy (\d\.\d+)  accuracy", done.stdout, re.M)]
    assert len(values) == 3
    assert 0 < low <= values[2] - values[0] <= high
    assert image.imread(Path(tmp_path) / "out" / "decide.png").std() > 0.05
