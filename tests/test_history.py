from __future__ import annotations

import json

import numpy as np
import pytest

from ownstep.engines import Bernoulli, run
from ownstep.history import COLUMNS, History
from ownstep.methods import GD, OwnStep
from ownstep.support.errors import InvalidInput, OwnstepError


@pytest.mark.parametrize("participation", [None, Bernoulli(0.5)])
def test_saved_and_loaded_is_the_same(small_logistic, tmp_path, participation):
    history = run(OwnStep(), small_logistic, 30, participation=participation)
    npz, text = history.save(tmp_path / "deep" / "v1.2")
    assert (npz.name, text.name) == ("v1.2.npz", "v1.2.json")
    again = History.load(tmp_path / "deep" / "v1.2")
    for column in COLUMNS:
        np.testing.assert_array_equal(history.columns[column], again.columns[column])
    np.testing.assert_array_equal(history.took_part, again.took_part)
    assert (history.x == again.x).all()
    assert dict(history.settings) == dict(again.settings)
    assert (history.name, history.stopped, history.switched_at) == (again.name, again.stopped, again.switched_at)
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["v1.2.json", "v1.2.npz"]


def test_as_json_and_as_a_table(small_logistic):
    history = run(GD(), small_logistic, 3)
    data = json.loads(json.dumps(history.to_dict(), allow_nan=False))
    assert data["columns"]["step"][-1] is None
    assert data["rounds"] == 3
    frame = history.to_frame()
    assert list(frame.columns) == list(COLUMNS)
    assert frame.index.name == "k"
    assert len(frame) == 4
    assert "GD" in repr(history)


def test_gap_and_rounds_by_hand():
    columns = {c: np.zeros(4) for c in COLUMNS} | {"value": np.array([11.0, 6.0, 2.0, 1.5])}
    history = History("h", columns, np.zeros(1), np.zeros(1), "done")
    np.testing.assert_allclose(history.gap(1.0), [1, 0.5, 0.1, 0.05])
    assert history.rounds_to(0.1, 1.0) == 2
    assert history.rounds_to(0.01, 1.0) is None
    assert (history.best_round, history.best_value) == (3, 1.5)
    with pytest.raises(InvalidInput, match=r"f\* = 11.0 is not below"):
        history.gap(11.0)


@pytest.mark.parametrize(
    ("stopped", "failed"),
    [
        ("diverged at round 3: f rose", True), ("f(x) is nan at round 2", True), ("reached the target", False),
        ("rounds", False), ("interrupted before it diverged", False),
    ],
)  # fmt: skip
def test_a_run_has_failed_if_it_diverged_or_met_no_number(stopped, failed):
    columns = {c: np.zeros(2) for c in COLUMNS}
    assert History("h", columns, np.zeros(1), np.zeros(1), stopped).failed is failed


def test_bytes_and_seconds_up_to_an_iterate_by_hand():
    """Rounds stand with the iterate they leave; the loss that shows an iterate takes seconds of its own."""
    columns = {c: np.zeros(4) for c in COLUMNS} | {"value": np.array([11.0, 6.0, 2.0, 1.5])}
    columns |= {"bytes_up": np.array([10, 20, 40, 0]), "bytes_down": np.array([1, 2, 4, 0])}
    columns |= {"seconds": np.array([1.0, 2.0, 4.0, 8.0]), "participants": np.array([1, 2, 2, 0])}
    history = History("h", columns, np.zeros(1), np.zeros(1), "done", settings={"devices": 3})
    assert [history.bytes_per_device(k) for k in range(4)] == [0.0, 11 / 3, 33 / 3, 77 / 3]
    assert history.seconds_to(0.5, 1.0) == 1 + 2
    assert history.seconds_to(0.05, 1.0) == 15
    assert history.seconds_to(0.01, 1.0) is None
    unsaid = History("h", columns, np.zeros(1), np.zeros(1), "done")  # as many as ever came
    assert unsaid.bytes_per_device(2) == 33 / 2


def test_bad_files_and_columns(tmp_path, small_logistic):
    with pytest.raises(OwnstepError, match="no readable history"):
        History.load(tmp_path / "nothing")
    history = run(GD(), small_logistic, 2)
    history.save(tmp_path / "h")
    for damaged in (b"damaged", b""):
        (tmp_path / "h.npz").write_bytes(damaged)
        with pytest.raises(OwnstepError, match="no readable history") as refused:
            History.load(tmp_path / "h")
        assert "pickle" not in str(refused.value)  # NumPy's advice to load it unsafely is not ours
    (tmp_path / "file").write_text("")
    with pytest.raises(OwnstepError, match="cannot write the history"):
        history.save(tmp_path / "file" / "h")
    with pytest.raises(InvalidInput, match="a history has the columns"):
        History("h", {}, np.zeros(1), np.zeros(1), "")
    for nameless in ("", ".", "a\0b", None, 3, b"h"):
        for call in (history.save, History.load):
            with pytest.raises(InvalidInput, match="the path of a history must name a file, got"):
                call(nameless)
