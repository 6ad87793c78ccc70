"""Files as people send them: each is refused in one line that names the line or the column, or read as it is meant."""

from __future__ import annotations

import decimal
import io
import json

import numpy as np
import pandas as pd
import pytest

import ownstep
import ownstep.glm
from ownstep.cli import main
from ownstep.data.files.dates import are_day_numbers
from ownstep.data.files.describe import describe
from ownstep.data.files.read import read_features
from ownstep.support.errors import InvalidInput

DAYS = pd.date_range("2020-01-01", periods=40)


def _with(name: str, column, separator: str = ",") -> bytes:
    """A table of 40 rows with one odd column."""
    frame = pd.DataFrame({"age": range(40), name: column} | ({} if name == "label" else {"label": [0, 1] * 20}))
    return frame.to_csv(index=False, sep=separator).encode()


def _npz(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **{"rows": np.eye(4), "labels": np.arange(4) % 2} | arrays)
    return file.getvalue()


BAD = {
    "comma.csv": (_with("dose", [f"{i},5" for i in range(40)], ";"), "line 2: column 'dose' holds numbers with a"),
    "few_commas.csv": (_with("dose", ["0,5", "1,5"] * 20, ";"), "say --categories dose"),
    "percent.csv": (_with("share", [f"{i} %" for i in range(40)]), "('0 %'): write them with a point and digits"),
    "thousands.csv": (_with("pay", [f"{i + 1},000" for i in range(40)]), "('1,000')"),
    "huge.csv": (_with("id", [10**25 + i for i in range(40)]), "line 2: column 'id' holds whole numbers too long"),
    "dashes.csv": (_with("day", DAYS.strftime("%d-%m-%Y")), "holds dates ('01-01-2020')"),
    "months.csv": (_with("day", DAYS.strftime("%d %b %Y")), "holds dates ('01 Jan 2020')"),
    "american.csv": (_with("day", DAYS.strftime("%b %d, %Y")), "holds dates ('Jan 01, 2020')"),
    "slashes.csv": (_with("day", DAYS.strftime("%Y/%m/%d")), "holds dates ('2020/01/01')"),
    "digits.csv": (_with("day", DAYS.strftime("%Y%m%d")), "line 2: column 'day' holds dates (20200101): turn it into"),
    "digits_label.csv": (_with("label", DAYS.strftime("%Y%m%d")), "the label 'label' holds dates (20200101)"),
    "label.csv": (_with("label", DAYS.strftime("%Y-%m-%d")), "the label 'label' holds dates"),
    "mac.csv": (_with("dose", range(40)).replace(b"\n", b"\r"), "lines end with a carriage return alone"),
    "level.csv": (b"sex,sex=m,label\n" + b"m,1,0\nf,2,1\n" * 9, "called 'sex=m'"),
    "comments": (b"# nothing\n# else\n", "say which with --format"),
    "index.svm": (b"1 4000000000:3\n0 2:1\n", "line 1: the index 4000000000 is above the largest, 2147483647"),
    "short.npz": (_npz(features=["a", "b"]), "features must be 4 different names, one per column, got shape (2,)"),
    "twice.npz": (_npz(features=["a", "b", "c", "c"]), "got 3 different ones"),
    "scalar.npz": (_npz(features=3), "got shape ()"),
    "none.npz": (_npz(rows=np.zeros((0, 4)), labels=np.zeros(0)), "has no row of data"),
    "outside.npz": (_npz(data=[1.0], indices=[7], indptr=[0, 1], shape=[1, 2], labels=[1]), "no sparse matrix"),
    "pointer.npz": (_npz(data=[1.0], indices=[1], indptr=[1, 0], shape=[1, 2], labels=[1]), "no sparse matrix"),
    "shape.npz": (_npz(data=[1.0], indices=[1], indptr=[0, 1], shape=[1], labels=[1]), "no sparse matrix"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_odd_files_are_one_line_and_nothing_is_written(tmp_path, name, capsys):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(tmp_path / name), "--out", str(tmp_path / "model.json")])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_eight_digits_that_are_no_days_stay_numbers(tmp_path):
    days = [int(day) for day in DAYS.strftime("%Y%m%d")]
    for wrong in (20201301, 20200132, 20200131.5, 18991231, 21010101, np.inf):
        for at in (0, 20):
            values = np.array([*days[:at], wrong, *days[at + 1 :]])
            assert not are_day_numbers(values), wrong
    assert are_day_numbers(np.array([np.nan, *days]))
    assert not are_day_numbers(np.array([np.nan, np.nan]))
    (tmp_path / "a.csv").write_bytes(_with("day", [*days[:-1], 20201301]))
    assert ownstep.load(tmp_path / "a.csv").features == ("age", "day")


def test_days_in_digits_can_be_names_or_left_out(tmp_path):
    days = list(DAYS.strftime("%Y%m%d")[:2]) * 20
    (tmp_path / "a.csv").write_bytes(_with("day", ["", *days[1:]]))
    with pytest.raises(InvalidInput, match=r"line 3: column 'day' holds dates \(20200102\)"):
        ownstep.load(tmp_path / "a.csv", missing="mean")
    assert ownstep.load(tmp_path / "a.csv", ignore=["day"]).features == ("age",)
    assert ownstep.load(tmp_path / "a.csv", missing="drop", categories=["day"]).features == ("age", "day=20200102")
    assert describe(str(tmp_path / "a.csv"))["columns"][1]["type"] == "dates"


def test_long_codes_are_levels_of_their_own(tmp_path):
    codes = np.array([1234561, 1234562, 0.1 + 0.2, 0.3])
    rng = np.random.default_rng(0)
    at = rng.integers(0, 4, 400)
    frame = pd.DataFrame({"code": codes[at], "label": (rng.random(400) < 0.2 + 0.2 * at).astype(int)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    data = ownstep.load(tmp_path / "a.csv", categories=["code"])
    assert data.features == ("code=0.30000000000000004", "code=1234561", "code=1234562")
    new = read_features(str(tmp_path / "a.csv"), data.features, data.levels)
    np.testing.assert_array_equal(new, data.rows)


def test_numbers_in_clothes_can_be_names(tmp_path):
    (tmp_path / "a.csv").write_bytes(_with("dose", ["0,5", "1,5"] * 20, ";"))
    assert ownstep.load(tmp_path / "a.csv", categories=["dose"]).features == ("age", "dose=1,5")


def _parquet(path, frame) -> str:
    frame.to_parquet(path)
    return str(path)


def test_parquet_from_databases_and_data_frames(tmp_path):
    frame = pd.DataFrame({"label": [0, 1] * 20, "age": np.arange(40.0)})
    decimals = frame.assign(pay=[decimal.Decimal(i) / 4 for i in range(40)])
    found = ownstep.load(_parquet(tmp_path / "decimal.parquet", decimals))
    assert found.features == ("age", "pay")
    assert found.rows[3].tolist() == [3, 0.75]
    assert ownstep.load(_parquet(tmp_path / "named.parquet", frame.set_index("age"))).features == ("age",)
    shuffled = frame.sample(frac=1, random_state=0)
    assert ownstep.load(_parquet(tmp_path / "rows.parquet", shuffled)).features == ("age",)
    gaps = frame.assign(smoker=pd.array([True, None] * 20, dtype="boolean"))
    with pytest.raises(InvalidInput, match="row 2: column 'smoker' has no value; 20 of 40 rows"):
        ownstep.load(_parquet(tmp_path / "gaps.parquet", gaps))
    for value, kind in (([1, 2], "list"), ({"a": 1}, "struct")):
        nested = frame.assign(much=[value] * 40)
        with pytest.raises(InvalidInput, match=f"column 'much' holds {kind}<.*> in every row"):
            ownstep.load(_parquet(tmp_path / "nested.parquet", nested))


def test_a_mark_at_the_start_is_no_part_of_the_first_label(tmp_path):
    (tmp_path / "a.svm").write_bytes(b"\xef\xbb\xbf1 1:2\n-1 2:3\n")
    assert ownstep.load(tmp_path / "a.svm").labels.tolist() == [1, -1]


def test_two_files_of_one_name_are_not_one_device(tmp_path):
    for name in ("Basel.csv", "Basel.data.csv"):
        (tmp_path / name).write_text("age,label\n1,0\n")
    with pytest.raises(InvalidInput, match=r"'Basel.csv' and 'Basel.data.csv' are both the device 'Basel'; rename one"):
        ownstep.load(tmp_path)


def test_predictions_are_of_finite_rows_and_whole_models(tmp_path, capsys):
    """An infinite value gave a probability of 1, and a model with a word for its family a traceback."""

    def refused(*arguments) -> str:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
        return err

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 2))
    fitted = ownstep.glm.fit(rows, rng.integers(0, 2, 60), features=["age", "dose"])
    model, new = fitted.model.save(tmp_path / "model.json"), tmp_path / "new.csv"
    new.write_text("age,dose\n1,2\n1,-inf\n")
    assert "line 3: column 'dose' must be finite, got -inf" in refused("predict", new, "--model", model)
    np.savez(tmp_path / "new.npz", rows=[[1, np.nan]], labels=[0], features=["age", "dose"])
    assert "rows must be finite" in refused("predict", tmp_path / "new.npz", "--model", model)
    new.write_text("age,dose\n1,2\n")
    good = json.loads(model.read_text())
    for change in ({"family": "probit"}, {"intercepts": [np.nan]}, {"classes": ["a", "b", "c"]}):
        (tmp_path / "bad.json").write_text(json.dumps(good | change))
        assert "is no model of ownstep: its" in refused("predict", new, "--model", tmp_path / "bad.json")
    below = tmp_path / "a" / "b.csv"
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(new), "--model", str(model), "--out", str(below)])
    assert ended.value.code in (0, None)
    assert below.read_text().startswith("predicted,p(0),p(1)\n")


def test_missing_values_between_blanks_are_missing(tmp_path):
    """Tables of fixed width, and blanks that are no spaces: before, the column had to be a number as in the others."""
    lines = ["age , dose\t, label", *[f"{40 + i} , {i}.5\t, {i % 2}" for i in range(30)]]
    lines[3], lines[4], lines[5] = "NA , 1.5, 1", "41 , ?\t, 0", "\u00a0,2.5, 1"
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    with pytest.raises(InvalidInput, match=r"line 4: column 'age' has no value; 3 of 30 rows .* in columns age, dose"):
        ownstep.load(str(tmp_path / "wide.csv"))
    found = ownstep.load(str(tmp_path / "wide.csv"), missing="drop")
    assert (found.features, found.rows.shape, found.levels) == (("age", "dose"), (27, 2), {})


def test_columns_with_an_equals_sign_keep_their_own_levels(tmp_path, capsys):
    """Columns ``a`` and ``a=b`` were taken for one another, and the second was 0 in every prediction."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice(["b", "c"], 200), "a=b": rng.choice(["u", "v"], 200)})
    frame["y"] = (rng.random(200) < np.where(frame["a=b"] == "v", 0.8, 0.3)).astype(int)
    frame.to_csv(tmp_path / "mine.csv", index=False)
    data = ownstep.load(str(tmp_path / "mine.csv"))
    fitted = ownstep.glm.fit(*data.table(), features=data.features, levels=data.levels)
    rows = read_features(str(tmp_path / "mine.csv"), data.features, data.levels)
    np.testing.assert_array_equal(rows, data.rows)
    assert np.ptp(fitted.model.predict(rows)[frame.a == "b", 1]) > 0.3


def test_columns_with_a_comma_can_be_named(tmp_path, capsys):
    frame = pd.DataFrame({"age": range(40), "born, day": DAYS.strftime("%Y-%m-%d"), "label": [0, 1] * 20})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    with pytest.raises(SystemExit):
        main(["fit", str(tmp_path / "mine.csv")])
    assert """--ignore '"born, day"'""" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["fit", str(tmp_path / "mine.csv"), "--ignore", '"born, day",', "--json"])
    assert len(json.loads(capsys.readouterr().out)["coefficients"]) == 2
