"""Parquet files have types where CSV files have text; what is read is the same."""

from __future__ import annotations

import numpy as np
import pytest

import ownstep
from ownstep.data.files import frames
from ownstep.data.files.read import read_features

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    kinds = {"smokes": rng.random(60) < 0.5, "kind": rng.integers(1, 4, 60), "age": rng.integers(20, 80, 60)}
    return pd.DataFrame(kinds | {"y": np.arange(60) % 2})


def with_gap(frame, row):
    frame = frame.astype({"smokes": object})
    frame.loc[row, "smokes"] = None
    return frame


@pytest.mark.parametrize("row", [3, 50])
def test_truths_with_a_gap_in_one_part_alone_are_words_and_reading_ends(tmp_path, frame, row, monkeypatch):
    """Where the gap was not in the first part, the file was read again and again."""
    monkeypatch.setattr(frames, "PIECE", 1)
    monkeypatch.setattr(frames, "FEWEST_ROWS", 20)
    with_gap(frame, row).to_parquet(tmp_path / "mine.parquet")
    found = ownstep.load(str(tmp_path / "mine.parquet"), missing="drop")
    assert found.levels == {"smokes": ("False", "True")}
    np.testing.assert_array_equal(found.rows[:, 2], frame.drop(index=row).smokes)


def test_a_folder_whose_files_differ_in_types_is_read_as_csv_files_are(tmp_path, frame):
    """Words in one file are words in all, however they are kept; whole numbers are names without a point."""
    other = frame.assign(kind=frame.kind.map({1: "mild", 2: "strong", 3: "weak"}))
    for kind in ("parquet", "csv"):
        folder = tmp_path / kind
        folder.mkdir()
        for name, part in (("A", with_gap(other, 3)), ("B", frame.assign(kind=frame.kind % 2))):
            getattr(part, f"to_{kind}")(folder / f"{name}.{kind}", index=False)
    binary, text = (ownstep.load(str(tmp_path / kind), missing="drop") for kind in ("parquet", "csv"))
    assert binary.levels == text.levels == {"smokes": ("False", "True"), "kind": ("0", "1", "mild", "strong", "weak")}
    assert binary.features == text.features
    np.testing.assert_array_equal(binary.rows, text.rows)


def test_sites_that_are_numbers_have_no_point_in_their_names(tmp_path, frame):
    frame.to_parquet(tmp_path / "mine.parquet")
    found = ownstep.load(str(tmp_path / "mine.parquet"), site="kind")
    assert sorted(set(found.sites)) == ["1", "2", "3"]


def test_bytes_are_text_where_they_can_be(tmp_path, frame):
    frame.assign(kind=[b"caf\xc3\xa9", b"bar"] * 30).to_parquet(tmp_path / "mine.parquet")
    assert ownstep.load(str(tmp_path / "mine.parquet")).levels == {"kind": ("bar", "café")}
    frame.assign(kind=[b"\xff", b"bar"] * 30).to_parquet(tmp_path / "mine.parquet")
    assert ownstep.load(str(tmp_path / "mine.parquet")).levels == {"kind": (r"b'\xff'", "b'bar'")}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_new_rows_know_the_levels_of_the_model_whatever_their_types(tmp_path, frame, kind):
    """True without a gap is a truth, and 01 alone a number: as levels both are words."""
    levels = {"smokes": ("False", "True"), "code": ("01", "A"), "kind": ("1", "2", "3")}
    new = tmp_path / f"new.{kind}"
    getattr(frame.assign(code="01"), f"to_{kind}")(new, index=False)
    rows = read_features(str(new), ("smokes=True", "code=A", "kind=2", "age"), levels)
    expected = np.column_stack([frame.smokes, np.zeros(60), frame.kind == 2, frame.age])
    np.testing.assert_array_equal(rows, expected)
