"""A table is the same, read whole on all cores, in order, or in pieces of a few rows."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import ownstep
from ownstep.data.files import frames
from ownstep.support.errors import InvalidInput

pd = pytest.importorskip("pandas")

WAYS = {"whole": (1 << 28, 10**9), "in order": (0, 10**9), "in pieces": (0, 1)}
"""What is set: bytes up to which a file is read whole, and values of a piece."""


@pytest.fixture(autouse=True)
def small_files_are_split(monkeypatch):
    """Pandas splits a file over its threads from 5 MB on; here from 200 bytes on."""
    readers = sys.modules["pandas.io.parsers.readers"]
    monkeypatch.setattr(readers, "_PARALLEL_READ_MIN_BYTES", 200, raising=False)
    monkeypatch.setattr(frames, "FEWEST_ROWS", 7)


def every_way(monkeypatch, path, **options):
    found = {}
    for name, (whole, piece) in WAYS.items():
        monkeypatch.setattr(frames, "WHOLE", whole)
        monkeypatch.setattr(frames, "PIECE", piece)
        try:
            found[name] = ownstep.load(str(path), label="y", **options)
        except InvalidInput as error:
            found[name] = str(error)
    return found


def assert_same(found):
    first = found.pop("in order")
    for name, other in found.items():
        if isinstance(first, str) or isinstance(other, str):
            assert other == first, name
            continue
        assert other.features == first.features, name
        np.testing.assert_array_equal(other.rows, first.rows, err_msg=name)
        np.testing.assert_array_equal(other.labels, first.labels, err_msg=name)
    return first


def written(rng, kinds, rows):
    """Text of a table; words and odd values may stand in one half only."""
    half = rows // 2
    columns = []
    for kind in kinds:
        column = [repr(float(v)) for v in rng.standard_normal(rows) * 10.0 ** rng.integers(-8, 9)]
        if kind == "whole numbers first":
            column[:half] = [str(v) for v in rng.integers(0, 9, half)]
        if kind == "late level":
            column = [str(w) for w in rng.choice(["red", "green"], rows)]
            column[half:] = rng.choice(["red", "blue"], rows - half).tolist()
        if kind == "truth then number":
            column = ["True"] * half + ["1"] * (rows - half)
        if kind == "numbers that are names":
            column = [f"0{v}" for v in rng.integers(0, 3, rows)]
            column[-1] = "none"
        if kind == "quoted":
            column = [f'"a, {"b" if v else "c"}"' for v in rng.integers(0, 2, rows)]
        if kind == "quoted line end":
            column = [f'"a{chr(10)}{"b" if v else "c"}"' for v in rng.integers(0, 2, rows)]
        if kind == "gap":
            column[int(rng.integers(rows))] = str(rng.choice(["", "?", "NA"]))
        columns.append(column)
    return columns


KINDS = ["plain", "whole numbers first", "late level", "truth then number", "numbers that are names", "quoted",
         "quoted line end", "gap"]  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_random_tables(tmp_path, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(30, 120))
    kinds = list(rng.choice(KINDS, 4)) if seed % 3 else ["plain", "whole numbers first", "plain", "gap"]
    columns = [*written(rng, kinds, rows), [str(v) for v in rng.integers(0, 2, rows)]]
    end = "\r\n" if seed % 2 else "\n"
    lines = ["a,b,c,d,y", *(",".join(row) for row in zip(*columns, strict=True))]
    if seed % 5 == 0:
        lines.insert(rows // 2, "")  # a blank line, skipped
    if seed % 7 == 6:
        lines[rows // 2] += ",1"  # one field too many
    path = tmp_path / "t.csv"
    path.write_bytes((end.join(lines) + end * bool(seed % 4)).encode())
    assert_same(every_way(monkeypatch, path, missing="mean"))


def test_a_large_table_is_what_was_written(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((4000, 5))
    path = tmp_path / "t.csv"
    pd.DataFrame(numbers, columns=list("abcde")).assign(y=numbers[:, 0] > 0).to_csv(path, index=False)
    first = assert_same(every_way(monkeypatch, path))
    np.testing.assert_allclose(first.rows, numbers, rtol=1e-15)
    np.testing.assert_array_equal(first.labels, numbers[:, 0] > 0)


def test_what_is_not_utf8_is_named_with_its_line(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,y\n" + b"1.5,0\n" * 300 + b"caf\xe9,1\n" + b"1.5,0\n" * 300)
    told = assert_same(every_way(monkeypatch, path))
    assert "line 302: byte 0xe9" in told
