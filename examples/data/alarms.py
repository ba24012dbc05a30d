"""Write ``alarms.csv``: 300 simulated payments, what a model says of them, and whether they were fraud.

python examples/data/alarms.py
"""

import csv
from pathlib import Path

import numpy

rng = numpy.random.default_rng(7)
fraud = rng.permutation(numpy.repeat([0, 1], [276, 24]))
score = 1 / (1 + numpy.exp(2.2 - 2.4 * fraud - rng.normal(size=300)))
with open(Path(__file__).with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["payment", "fraud", "score", "flag"])
    rows = enumerate(zip(fraud, score, strict=True), 1)
    writer.writerows((number, truth, f"{each:.4f}", int(each > 0.5)) for number, (truth, each) in rows)
