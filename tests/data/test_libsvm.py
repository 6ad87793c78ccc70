"""LIBSVM text: blocks of plain lines are read by NumPy, and give what scikit-learn's reader gives."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

import ownstep
from ownstep.data.files import libsvm, read_features
from ownstep.data.files.stream import Place
from ownstep.support.errors import InvalidInput

NUMBERS = ("1", "-1", "+2", ".5", "5.", "1e-3", "3.25E+2", "123456789012345678", "1e400", "nan")
SLIPS = (":", " ", "-", "e", ".", "x", "\0", "1:", ",", "\n", " # note", " qid:3 ", "\t")


def some_file(seed: int) -> bytes:
    """Lines as they may be, now and then with a slip in one."""
    rng = random.Random(seed)
    lines = []
    for _ in range(rng.randint(1, 12)):
        first = rng.choice([0, 1, 1])
        indices = sorted(rng.sample(range(first, rng.choice([8, 40, 10**6])), rng.randint(0, 6)))
        numbers = [rng.choice([*NUMBERS[: rng.choice([8, 8, 8, 10])], repr(rng.gauss(0, 1))]) for _ in range(7)]
        pairs = zip(indices, numbers[1:], strict=False)
        line = numbers[0] + "".join(f" {i:0{rng.choice([1, 1, 3])}d}:{v}" for i, v in pairs)
        if rng.random() < 0.05:
            at = rng.randrange(len(line) + 1)
            line = line[:at] + rng.choice(SLIPS) + line[at + rng.randint(0, 1) :]
        lines.append(line + " " * (rng.random() < 0.2))
    return rng.choice(["\n", "\r\n"]).join(lines).encode() + b"\n" * rng.randint(0, 1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_files_are_read_as_scikit_learn_reads_them(monkeypatch):
    monkeypatch.setattr(libsvm, "CHUNK", 64)  # most lines span two blocks
    plain = refused = 0
    for seed in range(300):
        text = some_file(seed)
        if not text.strip():
            continue
        place = Place("file", None, text)
        try:
            theirs, labels = load_svmlight_file(io.BytesIO(text))
            fine = np.isfinite(theirs.data).all() and np.isfinite(labels).all() and theirs.shape[0] > 0
        except Exception:
            fine = False
        if not fine:
            refused += 1
            with pytest.raises(InvalidInput):
                libsvm.read_libsvm([place])
            continue
        plain += libsvm._plain(place, False) is not None
        (rows,), ours, _ = libsvm.read_libsvm([place])
        theirs = sp.csr_array(theirs)
        assert rows.shape == theirs.shape, seed
        for part in ("data", "indices", "indptr"):
            mine, other = getattr(rows, part), getattr(theirs, part)
            assert mine.dtype == other.dtype, (seed, part)
            assert np.array_equal(mine, other), (seed, part)
        assert np.array_equal(ours.astype(float), labels), seed
    assert plain > 80
    assert refused > 20


def test_a_folder_counts_from_one_index_for_all_its_files(tmp_path):
    """The second file has no sample with feature 0: alone it would be taken for one that counts from 1."""
    (tmp_path / "a.svm").write_text("1 0:5 2:7\n0 1:1\n")
    (tmp_path / "b.svm").write_text("1 1:3\n0 2:4\n")
    found = ownstep.load(tmp_path)
    assert found.rows.toarray().tolist() == [[5, 0, 7], [0, 1, 0], [0, 3, 0], [0, 0, 4]]
    assert found.features == ("x0", "x1", "x2")


def test_new_rows_are_counted_as_the_model_s(tmp_path):
    path = tmp_path / "new.svm"
    path.write_text("1 1:3\n0 2:4\n")
    assert read_features(str(path), ("x0", "x1", "x2"), {}).toarray().tolist() == [[0, 3, 0], [0, 0, 4]]
    assert read_features(str(path), ("x1", "x2", "x3"), {}).toarray().tolist() == [[3, 0, 0], [0, 4, 0]]
    path.write_text("1 0:3\n")
    with pytest.raises(InvalidInput, match="has the index 0, and the model's columns count from 1"):
        read_features(str(path), ("x1", "x2"), {})


def test_archives_of_a_folder_are_put_into_one_order(tmp_path):
    for name, columns in (("a", ["age", "dose"]), ("b", ["dose", "age"])):
        np.savez(tmp_path / f"{name}.npz", rows=np.array([[1.0, 2.0]]), labels=[1], features=columns)
    found = ownstep.load(tmp_path)
    assert found.features == ("age", "dose")
    assert found.rows.tolist() == [[1, 2], [2, 1]]
    np.savez(tmp_path / "c.npz", rows=np.array([[1.0, 2.0]]), labels=[1], features=["age", "weight"])
    with pytest.raises(InvalidInput, match="different columns: age, weight and age, dose"):
        ownstep.load(tmp_path)


def test_sparse_archives_of_a_folder_are_as_wide_as_the_widest_one(tmp_path):
    for name, width in (("a", 2), ("b", 5), ("c", 3)):
        rows = sp.csr_array(np.eye(1, width, width - 1))
        np.savez(
            tmp_path / f"{name}.npz", data=rows.data, indices=rows.indices, indptr=rows.indptr, shape=rows.shape,
            labels=[1],
        )  # fmt: skip
    found = ownstep.load(tmp_path).rows.toarray()
    np.testing.assert_array_equal(found, np.eye(5)[[1, 4, 2]])
