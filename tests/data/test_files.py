"""Files of one's own: read as scikit-learn and pandas read them, and refused with the line that is wrong."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import ownstep
from ownstep.cli import main
from ownstep.data.files import describe, frames, stream
from ownstep.support.errors import InvalidInput, OwnstepError

from ..conftest import needs

PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 40
    return pd.DataFrame(
        {
            "age": rng.integers(20, 80, n),
            "colour": rng.choice(["red", "blue", "green"], n),
            "dose": rng.normal(size=n).round(6),
            "smoker": rng.choice([True, False], n),
            "ill": rng.choice(["yes", "no"], n),
            "hospital": rng.choice(["Basel", "Zurich, USZ", "Öhringen"], n),
        }
    )


def expected(frame: pd.DataFrame) -> np.ndarray:
    """The design matrix by pandas' own dummies."""
    dummies = pd.get_dummies(frame.colour, drop_first=True)
    return np.column_stack([frame.age, frame.dose, frame.smoker, dummies]).astype(float)


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("named", [True, False])
def test_libsvm_is_what_scikit_learn_reads(tmp_path, packed, named):
    rng = np.random.default_rng(1)
    rows = sp.random_array((60, 20), density=0.2, rng=rng, format="csr")
    labels = rng.choice([-1, 1], 60)
    plain = io.BytesIO()
    dump_svmlight_file(rows, labels, plain, zero_based=False)
    path = tmp_path / (f"mine.svm{packed}" if named else "mine")
    path.write_bytes(PACK[packed](plain.getvalue()))
    loaded = ownstep.load(path)
    theirs, their_labels = load_svmlight_file(io.BytesIO(plain.getvalue()))
    assert (abs(loaded.rows - theirs)).max() == 0
    assert (loaded.labels == their_labels).all()
    assert loaded.labels.dtype.kind == "i"


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", ","), (".tsv", "\t"), (".csv", ";"), (".txt", ",")])
@pytest.mark.parametrize("packed", PACK)
def test_csv_columns_become_numbers(tmp_path, frame, suffix, separator, packed):
    text = frame.to_csv(index=False, sep=separator).encode()
    path = tmp_path / f"mine{suffix}{packed}"
    path.write_bytes(PACK[packed](text))
    loaded = ownstep.load(path, label="ill", site="hospital")
    assert loaded.features == ("age", "dose", "smoker", "colour=green", "colour=red")
    np.testing.assert_array_equal(loaded.rows, expected(frame))
    assert (loaded.labels == frame.ill).all()
    assert (loaded.sites == frame.hospital).all()
    assert loaded.rows.flags.c_contiguous


def test_parquet_npz_and_standard_input_give_the_same(tmp_path, frame, monkeypatch):
    frame.to_parquet(tmp_path / "mine.parquet")
    from_parquet = ownstep.load(str(tmp_path / "mine.parquet"), label="ill", site="hospital")
    np.testing.assert_array_equal(from_parquet.rows, expected(frame))
    kept = {"rows": from_parquet.rows, "labels": from_parquet.labels, "sites": from_parquet.sites}
    np.savez(tmp_path / "mine.npz", **kept, features=np.array(from_parquet.features))
    from_npz = ownstep.load(tmp_path / "mine.npz")
    np.testing.assert_array_equal(from_npz.rows, expected(frame))
    assert from_npz.features == from_parquet.features
    assert (from_npz.sites == frame.hospital).all()
    given = io.TextIOWrapper(io.BytesIO(frame.to_csv(index=False).encode()))
    monkeypatch.setattr(sys, "stdin", given)
    np.testing.assert_array_equal(
        ownstep.load("-", format="csv", label="ill", ignore=["hospital"]).rows, expected(frame)
    )
    sparse = sp.csr_array(expected(frame))
    np.savez(
        tmp_path / "s.npz", data=sparse.data, indices=sparse.indices, indptr=sparse.indptr, shape=sparse.shape,
        y=np.arange(40),
    )  # fmt: skip
    assert (ownstep.load(tmp_path / "s.npz").rows != sparse).nnz == 0


@pytest.mark.parametrize("late", [False, True])
def test_spaces_after_commas_are_no_part_of_a_field(tmp_path, late):
    plain = "\n".join(f"{i},{'red' if i % 3 else 'blue'},{i % 2}" for i in range(30))
    spaced = '30, "red", 1\n31, NA, 0\n 32 , blue, ?\n33,red,0\n'
    path = tmp_path / "mine.csv"
    path.write_text("age,colour,label\n" + (f"{plain}\n{spaced}" if late else f"{spaced}{plain}\n"))
    found = ownstep.load(path, missing="drop")
    assert found.features == ("age", "colour=red")
    assert found.rows.shape == (32, 2)
    assert sorted(found.rows[:, 0]) == [*range(31), 33]
    assert found.labels.tolist().count(1) == 16


def test_bytes_in_an_archive_are_numbers_unless_they_are_pictures(tmp_path):
    ages = np.arange(20, 60, dtype=np.uint8).reshape(20, 2)
    np.savez(tmp_path / "ages.npz", rows=ages, labels=np.arange(20) % 2)
    np.savez(tmp_path / "pictures.npz", rows=ages.reshape(10, 2, 2), labels=np.arange(10) % 2)
    np.testing.assert_array_equal(ownstep.load(tmp_path / "ages.npz").table()[0], ages)
    np.testing.assert_allclose(ownstep.load(tmp_path / "pictures.npz").table()[0], ages.reshape(10, 4) / 255)


def test_standard_input_is_described_whatever_its_format(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 1:2\n-1 2:3\n1 1:4\n")))
    assert describe("-", ownstep.data.Reading(format="libsvm"))["rows"] == 3


def test_reading_in_pieces_changes_nothing(tmp_path, frame, monkeypatch):
    frame.loc[33, "dose"] = np.nan
    mixed = frame.assign(code=["1"] * 30 + ["x"] * 10, label=[1] * 20 + [2.5] * 20)  # numbers first, words later
    mixed.to_csv(tmp_path / "mine.csv", index=False)
    whole = ownstep.load(tmp_path / "mine.csv", missing="mean", ignore=["ill"])
    monkeypatch.setattr(frames, "WHOLE", 0)
    monkeypatch.setattr(frames, "PIECE", 1)
    monkeypatch.setattr(frames, "FEWEST_ROWS", 7)
    real, sizes = frames._Matrix.room, []
    monkeypatch.setattr(frames._Matrix, "room", lambda self, *a: (sizes.append(a[0]), real(self, *a))[1])
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress((tmp_path / "mine.csv").read_bytes()))
    packed = ownstep.load(tmp_path / "packed.csv.gz", missing="mean", ignore=["ill"])
    np.testing.assert_array_equal(whole.rows, packed.rows)
    sizes.clear()
    pieces = ownstep.load(tmp_path / "mine.csv", missing="mean", ignore=["ill"])
    assert sizes[-6:] == [7] * 5 + [5]
    np.testing.assert_array_equal(whole.rows, pieces.rows)
    assert whole.features == pieces.features
    assert "code=x" in whole.features
    assert (whole.labels == pieces.labels).all()


def test_a_folder_is_one_device_per_file(tmp_path, frame):
    for name, part in frame.groupby("hospital"):
        part.drop(columns="hospital")[list(frame.columns[-2::-1])].to_csv(tmp_path / f"{name}.csv", index=False)
    loaded = ownstep.load(tmp_path, label="ill")
    assert set(loaded.sites) == set(frame.hospital)
    together = frame.sort_values("hospital", kind="stable")
    by_name = dict(zip(loaded.features, loaded.rows.T, strict=True))
    np.testing.assert_array_equal(by_name["age"], together.age)
    np.testing.assert_array_equal(by_name["colour=red"], together.colour == "red")
    split = ownstep.partition.given(loaded.sites)
    assert split.names == tuple(sorted(set(frame.hospital)))
    assert split.counts.tolist() == frame.hospital.value_counts().sort_index().tolist()


def test_labels_that_two_files_write_differently_are_refused(tmp_path):
    """0/1 in one file and no/yes in another were four classes."""
    for name, first, second in (("a", "no", "yes"), ("b", "0", "1"), ("c", "", "yes"), ("d", "", "")):
        (tmp_path / f"{name}.csv").write_text(f"age,ill\n50,{first}\n60,{second}\n70,{second}\n")
    with pytest.raises(InvalidInput, match="column 'ill' is 0, 1 in .*b.csv' and no, yes in .*a.csv': write it alike"):
        ownstep.load(tmp_path, label="ill", missing="drop")
    (tmp_path / "b.csv").unlink()
    assert set(ownstep.load(tmp_path, label="ill", missing="drop").labels) == {"no", "yes"}
    (tmp_path / "a.csv").write_text("age,ill\n50,1\n60,x\n")
    (tmp_path / "c.csv").write_text("age,ill\n50,1\n60,2\n")
    assert set(ownstep.load(tmp_path, label="ill", missing="drop").labels) == {"1", "2", "x"}


def test_a_column_that_is_the_same_word_everywhere_is_left_out_and_named(tmp_path):
    (tmp_path / "mine.csv").write_text("age,unit,ill\n1,kg,0\n2,kg,1\n,kg,1\n4,kg,0\n")
    loaded = ownstep.load(tmp_path / "mine.csv", label="ill", missing="drop")
    assert loaded.features == ("age",)
    said = "1 of 4 rows left out: they have missing values; column 'unit' is 'kg' in every row: left out"
    assert loaded.note == said


def test_files_of_a_folder_may_have_their_columns_in_another_order_and_unequal_widths(tmp_path, frame):
    frame = frame.drop(columns="hospital")
    for name, rows, columns in (("a", frame[:15], list(frame)), ("b", frame[15:], list(reversed(list(frame))))):
        (tmp_path / "named").mkdir(exist_ok=True)
        rows[columns].to_csv(tmp_path / "named" / f"{name}.csv", index=False)
    (tmp_path / "named" / ".hidden.csv").write_text("left by an editor\n")
    loaded = ownstep.load(tmp_path / "named", label="ill")
    np.testing.assert_array_equal(loaded.rows, expected(frame))
    assert loaded.labels.tolist() == frame.ill.tolist()
    assert loaded.sites.tolist() == ["a"] * 15 + ["b"] * 25
    (tmp_path / "numbered").mkdir()
    for name, text in (("a", "1 2:0.5\n"), ("b", "-1 7:2.5\n1 1:3\n"), ("c", "1 3:1.5\n")):  # the widest in the middle
        (tmp_path / "numbered" / f"{name}.txt").write_text(text)
    whole = np.zeros((4, 7))
    whole[[0, 1, 2, 3], [1, 6, 0, 2]] = 0.5, 2.5, 3, 1.5
    np.testing.assert_array_equal(ownstep.load(tmp_path / "numbered").rows.toarray(), whole)


def test_missing_values_are_refused_dropped_or_filled_in(tmp_path, frame):
    frame["dose"] = frame.dose.astype(object)
    frame.loc[[3, 7], "dose"] = ["?", ""]
    frame.loc[5, "colour"] = None
    frame.to_csv(tmp_path / "mine.csv", index=False)
    options = {"label": "ill", "ignore": ["hospital"]}
    with pytest.raises(InvalidInput, match=r"mine.csv', line 5: column 'dose' has no value; 3 of 40 .*missing='drop'"):
        ownstep.load(tmp_path / "mine.csv", **options)
    dropped = ownstep.load(tmp_path / "mine.csv", **options, missing="drop")
    complete = frame.drop(index=[3, 5, 7])
    np.testing.assert_array_equal(dropped.rows, expected(complete.assign(dose=complete.dose.astype(float))))
    assert dropped.labels.tolist() == complete.ill.tolist()
    assert dropped.note == "3 of 40 rows left out: they have missing values"
    held = ownstep.load(tmp_path / "mine.csv", label="ill", site="hospital", missing="drop")
    assert held.sites.tolist() == complete.hospital.tolist()
    filled = ownstep.load(tmp_path / "mine.csv", **options, missing="mean")
    known = complete.dose.astype(float)
    mean = np.append(known, frame.dose[5]).astype(float).mean()
    np.testing.assert_allclose(filled.rows[[3, 7], 1], mean)
    shares = pd.get_dummies(frame.colour.drop(index=5), drop_first=True).mean()
    np.testing.assert_allclose(filled.rows[5, 3:], shares)


def test_numbers_can_be_categories_and_headers_can_be_absent(tmp_path):
    (tmp_path / "a.data").write_text("1,3.0,0\n2,1.0,1\n3,2.0,0\n4,3.0,1\n")
    (tmp_path / "b.data").write_text("1,3,0\n2,1,1\n")
    loaded = ownstep.load(tmp_path, label="3", categories=["2"])
    assert loaded.features == ("1", "2=2", "2=3")  # "3.0" and "3" are one level
    np.testing.assert_array_equal(loaded.rows[:, 2], [1, 0, 0, 1, 1, 0])
    assert loaded.sites.tolist() == ["a"] * 4 + ["b"] * 2


def test_a_name_wins_over_a_file_and_dot_slash_is_the_file(tmp_path, monkeypatch):
    (tmp_path / "digits").write_text("1 1:2\n-1 2:3\n")
    monkeypatch.chdir(tmp_path)
    assert ownstep.load("digits").rows.shape == (1797, 64)
    assert ownstep.load("./digits").rows.shape == (2, 2)
    with pytest.raises(InvalidInput, match="label='y' is for files; digits is a dataset by name"):
        ownstep.load("digits", label="y")


HEAD = "age,dose,label,site\n"


def _npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


BAD = {
    "ragged.csv": (HEAD + "1,2,0,a\n1,2,0\n", [], "line 3: 3 fields where the first line has 4; complete"),
    "long.csv": (HEAD + "1,2,0,a\n1,2,0,b,9\n", [], "line 3: 5 fields where the first line has 4; shorten the"),
    "longest.csv": (HEAD + "1,2,0,b,9\n", [], "line 2: 5 fields where the first line has 4"),
    "quoted.csv": (HEAD + '1,2,0,"a\nb"\n1,,0,a\n', ["--site", "site"], "line 4: column 'dose' has no value"),
    "unlabelled.csv": (HEAD + "1,2,0,a\n1,2,,a\n", ["--missing", "mean"], "line 3: column 'label' has no label"),
    "nosite.csv": (HEAD + "1,2,0,a\n1,2,1,\n", ["--site", "site"], "line 3: column 'site' has no site"),
    "latin.csv": ((HEAD + "1,2,0,Z\xfcrich\n").encode("latin1"), [], "line 2: byte 0xfc is not UTF-8"),
    "latin_head.csv": ("\xe4ge,label\n1,2\n".encode("latin1"), [], "line 1: byte 0xe4 is not UTF-8"),
    "empty.csv": ("", [], "is empty"),
    "empty.csv.gz": (b"", [], "is empty (0 bytes)"),
    "blank.csv": ("\n\n", [], "is empty"),
    "packed_nothing.csv.gz": (gzip.compress(b""), [], "is empty"),
    "cut.csv.gz": (gzip.compress((HEAD + "1,2,0,a\n" * 5000).encode())[:-40], [], "cannot be unpacked"),
    "header.csv": (HEAD, [], "no row of data"),
    "dates.csv": ("visit,label\n2021-03-04,0\n2021-03-05,1\n", [], "line 2: column 'visit' holds dates ('2021-03-04')"),
    "dates_later.csv": ("age,visit,label\n,2021-03-04,0\n1,2021-03-05,1\n", ["--missing", "drop"], "line 3: column"),
    "german.csv": ("visit,label\n4.3.2021,0\n5.3.2021,1\n", [], "column 'visit' holds dates"),
    "word.csv": ("age,label\n1,0\n2,1\n3,1\nabc,0\n", [], "line 5: column 'age' must be a number"),
    "infinite.csv": ("age,label\n1,0\ninf,1\n", [], "line 3: column 'age' must be finite"),
    "infinite_label.csv": ("age,label\n1,0\n2,inf\n", [], "line 3: column 'label' must be finite"),
    "twice.csv": ("age,age,label\n1,2,0\n", [], "two columns are named 'age'"),
    "unnamed.csv": (",age,label\n0,1,0\n1,2,1\n", [], "column 1 has no name"),
    "label.csv": (HEAD + "1,2,0,a\n", ["--label", "ill"], "--label ill: "),
    "which.csv": ("age,ill\n1,0\n2,1\n", [], "say which column is to be predicted with --label; it has age, ill"),
    "ids.csv": ("id,label\n" + "".join(f"p{i},{i % 2}\n" for i in range(50)), [], "too many for a category"),
    "one.csv": ("age,label\n1,3\n2,3\n", [], "every row has the label 3: there is nothing to tell apart"),
    "constant.csv": ("age,label\nold,3\nold,4\n", [], "no column is left"),
    "ragged.svm": ("1 1:2\n-1 2:3 4\n", [], "line 2: '4' must be index:value"),
    "nolabel.svm": ("1 1:2\n2:3\n", [], "line 2: the label is missing"),
    "order.svm": ("1 1:2\n1 3:1 2:1\n", [], "line 2: indices must ascend, 2 comes after 3"),
    "nan.svm": ("1 1:2\n1 3:nan\n", [], "line 2: '3:nan' must be index:value with a finite value"),
    "named.svm": ("1 1:2\n-1 2:2\n", ["--label", "x"], "--label x is for files whose columns have names"),
    "not.parquet": ("hello", [], "is no Parquet file"),
    "not.npz": ("hello", [], "cannot be read: it is no npz file"),
    "objects.npz": (_npz(rows=np.eye(2), labels=np.array(["a", "b"], object)), [], "holds Python objects"),
    "ignored_label.csv": (HEAD + "1,2,0,a\n", ["--label", "label", "--ignore", "label"], "that column is the label"),
    "site_kinds.csv": (HEAD + "1,2,0,a\n", ["--site", "site", "--categories", "site"], "that column is the site"),
    "mystery": ("hello world\n", [], "say which with --format: libsvm, csv"),
    "ignored.csv": (HEAD + "1,2,0,a\n1,2,0\n", ["--ignore", "site"], "line 3: 3 fields where the first line has 4"),
    "cut.csv": (HEAD + "1,2,0,a\n1\n", ["--ignore", "site"], "line 3: 1 field where the first line has 4"),
    "wide.csv": ((HEAD + "1,2,0,a\n").encode("utf-16"), [], "is UTF-16 text, and UTF-8 is read"),
    "wide_le.csv": ((HEAD + "1,2,0,Ä\n").encode("utf-16-le"), [], "iconv -f utf-16 -t utf-8"),
    "wide": ((HEAD + "1,2,0,a\n").encode("utf-16-be"), ["--format", "csv"], "is UTF-16 text"),
    "wide.svm": ("1 1:2\n".encode("utf-16"), [], "is UTF-16 text"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_line_that_names_the_place(tmp_path, name, capsys):
    content, options, message = BAD[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SystemExit) as ended:
        main(["plan", str(path), *options])
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert name in err or "column" in err or name == "one.csv"


@pytest.mark.parametrize("kind", ["csv.gz", "csv.bz2", "csv.xz", "svm.gz", "npz", "npz.gz", "parquet"])
def test_damaged_bytes_are_refused_in_one_line(tmp_path, kind):
    fresh = np.random.default_rng(sum(map(ord, kind)))
    frame = pd.DataFrame(fresh.normal(size=(30, 3)).round(2), columns=["age", "dose", "weight"])
    frame["label"] = fresh.integers(2, size=30)
    rows = zip(frame["label"], frame[["age", "dose"]].to_numpy(), strict=True)
    content = {
        "csv": frame.to_csv(index=False).encode(),
        "svm": "".join(f"{y} 1:{a} 2:{b}\n" for y, (a, b) in rows).encode(),
        "npz": _npz(rows=frame[["age", "dose"]].to_numpy(), labels=frame["label"].to_numpy()),
        "parquet": frame.to_parquet(index=False),
    }[kind.split(".")[0]]
    for name, pack in {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}.items():
        content = pack(content) if kind.endswith(name) else content
    path, refused = tmp_path / f"mine.{kind}", []
    for at in fresh.integers(len(content), size=60):
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(fresh.integers(8))
        path.write_bytes(damaged)
        try:
            ownstep.load(path)
        except InvalidInput as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert not [said for said in refused if "\n" in said or said.count("mine.") != 1]


def test_packed_parquet_is_what_plain_parquet_is(tmp_path, frame):
    (tmp_path / "plain.parquet").write_bytes(frame.to_parquet(index=False))
    plain = ownstep.load(tmp_path / "plain.parquet", label="ill", missing="drop")
    for suffix, pack in ((".parquet.gz", gzip.compress), (".xz", lzma.compress)):
        (tmp_path / f"mine{suffix}").write_bytes(pack(frame.to_parquet(index=False)))
        packed = ownstep.load(tmp_path / f"mine{suffix}", label="ill", missing="drop")
        np.testing.assert_array_equal(packed.rows, plain.rows)
        assert packed.features == plain.features


def test_bad_folders_and_paths(tmp_path):
    with pytest.raises(InvalidInput, match=r"there is no file '.*mine.csv'"):
        ownstep.load(tmp_path / "mine.csv")
    with pytest.raises(InvalidInput, match="holds no file"):
        ownstep.load(tmp_path)
    (tmp_path / "a.csv").write_text("age,dose,label\n1,2,0\n")
    (tmp_path / "b.csv").write_text("age,doses,label\n1,2,0\n")
    with pytest.raises(InvalidInput, match=r"different columns: it lacks 'dose' and it has 'doses' more"):
        ownstep.load(tmp_path)
    (tmp_path / "b.csv").rename(tmp_path / "b.svm")
    with pytest.raises(InvalidInput, match="'a.csv' is csv and 'b.svm' is libsvm"):
        ownstep.load(tmp_path)
    with pytest.raises(InvalidInput, match="every file is a site"):
        ownstep.load(tmp_path, site="age")
    with pytest.raises(InvalidInput, match="unknown rule for missing values 'zero'"):
        ownstep.load(tmp_path, missing="zero")


def test_python_is_advised_in_python_s_words(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("age,ill,id\n" + "".join(f"{i},{i % 2},p{i}\n" for i in range(40)))
    for options, message in (
        ({}, r"say which column is to be predicted with label=; it has age, ill, id"),
        ({"label": "sick"}, r"^label='sick': .*has no such column"),
        ({"label": "ill"}, r"leave it out with ignore=\['id'\]"),
        ({"label": "ill", "site": "ill"}, r"^site='ill': that column is the label"),
    ):
        with pytest.raises(InvalidInput, match=message) as caught:
            ownstep.load(path, **options)
        assert "--" not in str(caught.value)
    with pytest.raises(SystemExit):
        main(["plan", str(path)])
    with pytest.raises(InvalidInput, match="with label=;"):
        ownstep.load(path)  # the command line leaves nothing behind


def test_a_dataset_is_shown_in_one_line(tmp_path, frame):
    frame.to_csv(tmp_path / "mine.csv", index=False)
    loaded = ownstep.load(tmp_path / "mine.csv", label="ill", site="hospital")
    assert repr(loaded) == "Dataset('mine.csv': 40 samples, 5 features, label 'ill' of 2 classes, 3 sites)"
    assert repr(ownstep.load("digits")) == "Dataset('digits': 1,797 samples, 64 features, label 'label' of 10 classes)"
    assert "label 'dose' of 40 different values" in repr(ownstep.load(tmp_path / "mine.csv", label="dose"))
    assert repr(ownstep.data.Dataset("mine", ["one", "two"], np.arange(2))).startswith("Dataset('mine': 2 samples, ")


def test_without_pandas_the_extra_is_named(tmp_path, frame, monkeypatch):
    frame.to_csv(tmp_path / "mine.csv", index=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OwnstepError, match=r"pip install 'ownstep\[files\]'"):
        ownstep.load(tmp_path / "mine.csv", label="ill")


def test_describe_counts_what_is_there(tmp_path, frame):
    frame.loc[[1, 4], "dose"] = np.nan
    frame.loc[4, "colour"] = None
    frame.to_csv(tmp_path / "mine.csv", index=False)
    told = describe(str(tmp_path / "mine.csv"))
    assert (told["rows"], told["rows_with_missing_values"]) == (40, 2)
    columns = {c["name"]: c for c in told["columns"]}
    assert columns["dose"]["missing"] == 2
    assert columns["dose"]["mean"] == pytest.approx(frame.dose.mean())
    assert columns["colour"]["levels"] == frame.colour.value_counts().to_dict()
    assert columns["smoker"]["type"] == "0/1"
    assert [len(f["columns"]) for f in describe(str(tmp_path))["files"]] == [6]


def test_describe_names_no_person_and_fits_the_terminal(tmp_path, capsys):
    n, folder = 60, tmp_path / "sites"
    folder.mkdir()
    words = ["flu", "cold", "a very long name of a disease of the upper airways", "another very long name of a disease"]
    frame = pd.DataFrame({"patient": [f"P{i:04d}" for i in range(n)], "age": np.arange(n) % 37})
    frame["visit"] = pd.date_range("2021-01-01", periods=n).strftime("%Y-%m-%d")
    frame["diagnosis"] = np.array(words)[np.arange(n) % 4]
    frame.loc[[3, 9], "diagnosis"] = "leprosy"
    frame["label"] = np.r_[np.zeros(n - 1), 7.5]
    frame.to_csv(folder / "a.csv", index=False)
    frame.rename(columns={"age": "years"}).assign(label="yes").to_csv(folder / "b.csv", index=False)
    frame.to_csv(folder / "c.csv", index=False)
    told = describe(str(folder))
    columns = {c["name"]: c for c in told["files"][0]["columns"]}
    assert columns["patient"]["levels"] == {}
    assert columns["patient"]["rarer"] == 60
    assert columns["visit"]["type"] == "dates"
    assert columns["visit"]["levels"] == {}
    assert "leprosy" not in columns["diagnosis"]["levels"]
    assert columns["diagnosis"]["rarer"] == 1
    assert told["differences"] == [
        "b.csv differs from a.csv: it lacks 'age', has 'years' more, has words in 'label', not numbers"
    ]
    with pytest.raises(SystemExit):
        main(["data", "describe", str(folder)])
    out = capsys.readouterr().out
    assert "P00" not in out
    assert "leprosy" not in out
    assert told["differences"][0] in out
    assert max(len(line) for line in out.splitlines() if not line.startswith(str(tmp_path))) <= 120
    np.savez(tmp_path / "mine.npz", rows=np.eye(20), labels=np.array(["well"] * 19 + ["leprosy"]))
    with pytest.raises(SystemExit):
        main(["data", "describe", str(tmp_path / "mine.npz")])
    assert "labels: well (19), 1 of fewer than 5 rows\n" in capsys.readouterr().out


def test_every_command_takes_a_file(tmp_path, frame, capsys):
    path = tmp_path / "mine.csv"
    frame.to_csv(path, index=False)
    common = [str(path), "--label", "ill", "--site", "hospital", "--json"]
    for command in (["plan"], ["run", "--rounds", "5"], ["compare", "--rounds", "5", "--mu", "0.1"]):
        with pytest.raises(SystemExit) as ended:
            main([*command, *common])
        out, err = capsys.readouterr()
        assert ended.value.code == 0, err
        assert "Basel" in out or "own_step" in out
    with pytest.raises(SystemExit) as ended:
        main(["data", "describe", str(path)])
    assert ended.value.code == 0
    assert "hospital" in capsys.readouterr().out


def test_a_bar_follows_the_bytes_of_a_packed_file(tmp_path, monkeypatch):
    path = tmp_path / "big.svm.gz"
    path.write_bytes(gzip.compress(b"".join(b"1 %d:1\n" % (i % 50 + 1) for i in range(20000)), 0))
    seen = []
    monkeypatch.setattr(stream.Bar, "update", lambda self, done, note="": seen.append((done, self.total)))
    monkeypatch.setattr(stream, "CHUNK", 1 << 12)
    ownstep.load(path)
    assert len(seen) > 10
    assert seen[-1] == (path.stat().st_size,) * 2


@pytest.mark.real_data
@needs("heart_disease")
def test_heart_disease_is_what_flamby_describes():
    loaded = ownstep.load("heart_disease")
    split = ownstep.partition.given(loaded.sites)
    assert split.names == ("cleveland", "hungarian", "switzerland", "va")
    assert split.counts.tolist() == [303, 261, 46, 130]
    assert loaded.rows.shape == (740, 13)
    assert [int(loaded.labels[split.indices(i)].sum()) for i in range(4)] == [139, 98, 45, 101]
    assert "CC BY 4.0" in loaded.citation
    assert "Pfisterer" in loaded.citation


@pytest.mark.real_data
@needs("heart_disease")
def test_the_hospitals_files_read_as_a_folder_give_the_dataset():
    """Two routes: the loader, and the reader of own files on the folder that it reads."""
    from ownstep.data import fetch
    from ownstep.data.sources import SOURCES

    folder = fetch.locate(SOURCES["heart_disease"].files[0]).parent
    mine = ownstep.load(folder, label="14", ignore=["11", "12", "13"], categories=["3", "7"], missing="drop")
    loaded = ownstep.load("heart_disease")
    assert mine.note == loaded.note.replace("patients", "rows")
    assert ((mine.labels > 0) == loaded.labels).all()
    order = [mine.features.index(name) for name in ("1", "2", "3=2", "3=3", "3=4", "4", "5", "6", "7=1", "7=2")]
    np.testing.assert_array_equal(mine.rows[:, order], loaded.rows[:, :10])


@pytest.mark.slow
@pytest.mark.real_data
@needs("sst2")
def test_sst2_as_word_weights():
    loaded = ownstep.load("sst2_words")
    assert loaded.rows.shape == (67349, 13774)
    assert loaded.test_rows.shape == (872, 13774)
    lengths = np.sqrt(loaded.rows.multiply(loaded.rows).sum(axis=1))
    assert ((abs(lengths - 1) < 1e-12) | (lengths == 0)).all()
    assert loaded.features[100:] == tuple(sorted(loaded.features))[100:]
