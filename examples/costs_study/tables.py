"""Write the cost tables of the package empulse as arrays, in an environment of its own.

    pip install empulse==0.13.1 pandas pyarrow
    python examples/costs_study/tables.py FOLDER    # writes pakdd.npz and vub.npz

Each file holds ``features`` (text as indicators), ``target``, and the costs ``miss`` and ``false_alarm`` of each row.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

LOSS_GIVEN_DEFAULT = 0.75  # share of a credit line that is lost, the default of the package
RARE = 0.01  # share of rows from which a value of a text column has an indicator


def indicators(column: Any) -> list[Any]:
    """Return a column of numbers, or an indicator of each frequent value of a text column."""
    if column.dtype.kind in "fiub":
        return [column.to_numpy(dtype=float)]
    shares = column.astype(str).value_counts(normalize=True)
    return [(column.astype(str) == value).to_numpy(dtype=float) for value in sorted(shares[shares >= RARE].index)]


def main() -> None:
    """Write both tables into the folder that the command line names."""
    import pandas as pd
    from empulse.datasets import load_credit_scoring_pakdd, load_vub_credit_scoring

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, load in {"pakdd": load_credit_scoring_pakdd, "vub": load_vub_credit_scoring}.items():
        found = load(backend=pd)
        columns = [each for column in found.data for each in indicators(found.data[column])]
        np.savez_compressed(
            folder / f"{name}.npz",
            features=np.stack(columns, 1).astype(np.float32),
            target=found.target.to_numpy(dtype=np.int64),
            miss=LOSS_GIVEN_DEFAULT * found.instance_costs["cl"],
            false_alarm=found.instance_costs["fp_cost"],
        )


if __name__ == "__main__":
    main()
