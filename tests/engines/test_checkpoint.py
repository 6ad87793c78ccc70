"""What checkpoints and histories survive: bad numbers, damage, full disks, two writers, SIGTERM, old versions."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from ownstep.engines import checkpoint as ckpt
from ownstep.engines import describe, run, saving
from ownstep.engines.local.loop import COLUMNS, Loop, _check_lengths
from ownstep.history import History
from ownstep.methods import EXTRA, GD, At, Nesterov, OwnCurvature, OwnStep
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.files import hold, sweep, write_atomically
from ownstep.support.progress import Bar

from ..conftest import make_least_squares, make_logistic
from . import written_by_0_1

ROOT = Path(__file__).parents[2]
BEFORE = Path(__file__).parent / "written_by_0_1"


def same(first: History, second: History) -> None:
    for column in ("value", "phase", "step", "participants"):
        np.testing.assert_array_equal(first.columns[column], second.columns[column])
    np.testing.assert_array_equal(first.x, second.x)


def once_wrong(problem, call: int, device: int, value: float):
    """A problem one of whose devices gives one wrong gradient, in the n-th pass over the data."""
    real, real_each, calls = problem.mix, problem.gradients, []

    def mix(x, c):
        calls.append(1)
        losses, total = real(x, c)
        return losses, total * value if len(calls) == call else total

    def gradients(x):
        rows = real_each(x)
        if len(calls) == call:
            rows[device] *= value
        return rows

    problem.mix, problem.gradients = mix, gradients
    return problem


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("method", [OwnStep(At(30)), Nesterov(), GD()])
def test_a_bad_gradient_is_named_and_never_reaches_the_checkpoint(tmp_path, method, value):
    path, healthy = tmp_path / "run.npz", make_logistic()
    calls = 12 if isinstance(method, Nesterov) else 9
    broken = run(method, once_wrong(make_logistic(), calls, 1, value), 40, checkpoint=path)
    assert broken.failed
    assert "D2" in broken.stopped or "evaluated again it is" in broken.stopped, broken.stopped
    assert np.isfinite(broken.x).all()
    same(run(method, healthy, 40, checkpoint=path), run(method, make_logistic(), 40))


def test_the_device_with_a_bad_gradient_is_named_where_there_is_no_server():
    """Each device has a point of its own there, so its gradient is not one of those at a common point."""
    problem = make_least_squares()
    real = problem.gradients

    def gradients(x):
        rows = real(x)
        if x.ndim == 2 and (x != x[0]).any():
            rows[1] = np.inf
        return rows

    problem.gradients = gradients
    history = run(EXTRA(), problem, 9)
    assert history.failed
    assert "the gradient of D2 is not finite" in history.stopped


def test_a_diverged_run_leaves_the_last_good_point(tmp_path):
    path, problem = tmp_path / "run.npz", make_least_squares()
    assert run(GD(), problem, 5, checkpoint=path).rounds == 5
    good = path.read_bytes()
    loop = Loop(GD(), problem, *_setting(problem))
    loop.resume(path)
    loop.state = type(loop.state)(**vars(loop.state) | {"x": 1e9 * np.ones(problem.dim)})
    assert loop.finished(100, None, None)
    assert loop.stopped.startswith("diverged")
    loop.save(path)
    assert path.read_bytes() == good


def _setting(problem):
    from ownstep.engines import describe

    return describe(problem).devices, problem.x0(), None, "run", {}, False


def test_the_one_before_is_used_when_the_newest_is_damaged(tmp_path, caplog):
    path, problem = tmp_path / "run.npz", make_logistic()
    run(OwnStep(), problem, 10, checkpoint=path)
    run(OwnStep(), problem, 20, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-200])
    again = run(OwnStep(), problem, 30, checkpoint=path)
    assert "going on from" in caplog.text
    same(again, run(OwnStep(), problem, 30))
    for file in (path, ckpt.previous(path)):
        file.write_bytes(b"garbage")
    with pytest.raises(OwnstepError, match="not a readable checkpoint"):
        run(OwnStep(), problem, 40, checkpoint=path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.1.npz", "run.npz"]


def test_a_checkpoint_is_in_the_format_of_its_suffix(tmp_path):
    tensors = pytest.importorskip("safetensors.numpy")
    problem = make_logistic()
    history = run(OwnStep(), problem, 12, checkpoint=tmp_path / "run.safetensors")
    found = tensors.load_file(tmp_path / "run.safetensors")
    assert any(np.array_equal(array, history.x) for array in found.values())
    assert json.loads((tmp_path / "run.json").read_text())["about"]
    run(OwnStep(), problem, 12, checkpoint=tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as archive:
        assert any(np.array_equal(archive[name], history.x) for name in archive.files)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_flipped_bit_is_an_error_or_changes_nothing(tmp_path, suffix):
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    path, problem, rng = tmp_path / f"run{suffix}", make_logistic(), np.random.default_rng(4)
    run(OwnStep(smoothness="adaptive"), problem, 12, checkpoint=path)
    ckpt.previous(path).unlink()
    whole, loops = path.read_bytes(), []
    for attempt in range(250):
        data = bytearray(whole)
        if attempt:
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        loop = Loop(OwnStep(smoothness="adaptive"), problem, *_adaptive(problem))
        try:
            loop.resume(path)
        except OwnstepError:
            assert attempt
            continue
        loops.append(loop)
    for loop in loops:
        assert loop.k == 12
        np.testing.assert_array_equal(loop.state.x, loops[0].state.x)
        assert str(loop.columns) == str(loops[0].columns)
    assert len(loops) < 200  # most bits matter, and are noticed


def _adaptive(problem):
    from ownstep.engines import describe

    return describe(problem, "adaptive").devices, problem.x0(), None, "run", {}, False


def test_a_flipped_bit_in_a_history_is_an_error_or_changes_nothing(tmp_path):
    rng, history = np.random.default_rng(5), run(OwnStep(), make_logistic(), 12)
    history.save(tmp_path / "h")
    whole, noticed = (tmp_path / "h.npz").read_bytes(), 0
    (tmp_path / "h.json").write_text("{")  # it is for people alone
    for _ in range(250):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        (tmp_path / "h.npz").write_bytes(data)
        try:
            same(History.load(tmp_path / "h"), history)
        except OwnstepError:
            noticed += 1
    assert noticed > 50


FULL = """
import resource, signal, sys
from ownstep.engines import run
from ownstep.methods import OwnStep
from ownstep.support.errors import OwnstepError
from tests.conftest import make_logistic
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
try:
    run(OwnStep(), make_logistic(), 400, checkpoint=sys.argv[1]).save(sys.argv[1] + "-history")
except OwnstepError as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
@pytest.mark.parametrize("limit", [0, 1000, -1])
def test_a_full_disk_is_named_and_leaves_the_old_files_and_no_rest(tmp_path, limit):
    path, problem = tmp_path / "run.npz", make_logistic()
    run(OwnStep(), problem, 10, checkpoint=path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    size = limit if limit >= 0 else len(before["run.npz"]) + limit  # a byte too little: found when buffers are flushed
    child = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(size)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert child.returncode == 7, child.stderr
    assert "cannot write the checkpoint" in child.stdout
    after = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert after == before
    same(run(OwnStep(), problem, 30, checkpoint=path), run(OwnStep(), problem, 30))


def test_a_disk_that_turns_out_to_be_full_at_the_end_leaves_the_newest_in_its_place(tmp_path, monkeypatch):
    """File systems over a network say so when they are asked to keep what was written."""
    path, problem = tmp_path / "run.npz", make_logistic()
    run(OwnStep(), problem, 10, checkpoint=path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OwnstepError, match="cannot write the checkpoint .* No space left"):
        run(OwnStep(), problem, 20, checkpoint=path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_only_points_of_a_state_have_to_be_small(tmp_path):
    """What else a method keeps may be infinite: the checkpoint is written, and gone on from."""
    path, problem = tmp_path / "run.npz", make_logistic()

    @dataclass(frozen=True, eq=False)
    class Noted(type(GD().start(problem.x0(), describe(problem).devices))):
        notes: np.ndarray = field(default_factory=lambda: np.full(problem.dim + 1, np.inf))
        table: np.ndarray = field(default_factory=lambda: np.full((2, 1), np.inf))

    @dataclass(frozen=True)
    class Noting(GD):
        def start(self, x0, devices):
            return Noted(**vars(super().start(x0, devices)))

    run(Noting(), problem, 3, checkpoint=path)
    assert ckpt.about(path)["k"] == 3
    same(run(Noting(), problem, 6, checkpoint=path), run(GD(), problem, 6))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_disk_that_is_full_when_the_buffer_is_written_out_leaves_the_newest_in_its_place(
    suffix, tmp_path, monkeypatch
):
    """A small file is in the buffer to its last byte when it is to take the other's place."""
    path, problem = tmp_path / f"run{suffix}", make_logistic()
    run(OwnStep(), problem, 10, checkpoint=path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    class Full(io.FileIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    @contextmanager
    def buffered(path):
        with write_atomically(path) as file, io.BufferedWriter(Full(file.name, "wb"), 2**20) as full:
            yield full

    monkeypatch.setattr(ckpt, "write_atomically", buffered)
    with pytest.raises(OwnstepError, match="cannot write the checkpoint .* No space left"):
        run(OwnStep(), problem, 20, checkpoint=path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_what_killed_writers_left_is_removed_and_what_living_ones_write_is_not(tmp_path):
    path = tmp_path / "run[1].npz"
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    with write_atomically(path) as file:
        (mine,) = tmp_path.iterdir()
        left = [tmp_path / mine.name.replace(str(os.getpid()), dead.stdout.strip())]
        left += [tmp_path / f".run[1].npz.{dead.stdout.strip()}.part", tmp_path / ".run[1].npz.elsewhere-1.part"]
        for part in left:
            part.write_bytes(b"half")
        sweep(path)
        assert mine.exists()
        assert [part.exists() for part in left] == [False, False, True]
        os.utime(left[2], (0, time.time() - 7200))
        file.write(b"whole")
    assert ckpt.there(path) == [path]  # who goes on from a checkpoint sweeps
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert ckpt.there(tmp_path / "not there" / "run.npz") == []


class Shout:
    """Unpickled, it makes a folder."""

    def __init__(self, where):
        self.where = where

    def __reduce__(self):
        return os.mkdir, (self.where,)


def test_nothing_is_unpickled_and_nothing_pickled(tmp_path):
    path, problem = tmp_path / "run.npz", make_logistic()
    run(OwnStep(), problem, 3, checkpoint=path)
    with np.load(path) as archive:
        arrays = dict(archive.items())
    for name in ("state/x", "column/value", "header"):
        np.savez(path, **arrays | {name: np.array([Shout(str(tmp_path / "made"))], object)})
        with pytest.raises(OwnstepError, match="is not a readable checkpoint"):
            ckpt.load(path, Loop(OwnStep(), problem, *_setting(problem)).state)
        assert not (tmp_path / "made").exists()
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        ckpt.save(tmp_path / "other.npz", GD().start(np.ones(2), describe(problem).devices), {}, {"a": np.array([{}])})
    assert not (tmp_path / "other.npz").exists()


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_what_is_read_is_what_was_written(tmp_path, suffix):
    """Every field of a state, the plain data and the columns, words among them; the second write keeps the first."""
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    path, problem, rng = tmp_path / "deep" / f"run{suffix}", make_logistic(), np.random.default_rng(8)
    method = OwnStep(At(2))
    fresh = method.start(rng.standard_normal(problem.dim), describe(problem).devices)
    columns = {"value": rng.standard_normal(3), "phase": np.array(["local", "global", "end"])}
    for k in (1, 2):
        state = replace(fresh, x=k * fresh.x)
        ckpt.save(path, state, {"k": k, "fingerprint": {"a": [1, 2]}}, columns)
    for file, k in ((path, 2), (ckpt.previous(path), 1)):
        read, about, arrays = ckpt.load(file, method.start(np.zeros(problem.dim), describe(problem).devices))
        assert about == ckpt.about(file) == {"k": k, "fingerprint": {"a": [1, 2]}}
        np.testing.assert_array_equal(read.x, k * fresh.x)
        mine, plain = ckpt.flatten(read)
        theirs, words = ckpt.flatten(replace(fresh, x=k * fresh.x))
        assert plain == words
        assert {key: v.tolist() for key, v in mine.items()} == {key: v.tolist() for key, v in theirs.items()}
        assert {key: v.tolist() for key, v in arrays.items()} == {key: v.tolist() for key, v in columns.items()}
    with pytest.raises(OwnstepError, match="'shown' was written by an earlier ownstep .*, where .* had no memory;"):
        ckpt.load(path, EXTRA().start(np.zeros(problem.dim), describe(problem).devices), Path("shown"))
    ckpt.save(path, fresh, {"k": 3}, columns)
    with pytest.raises(ckpt.Unreadable, match=r"run\.\w+' is not a readable checkpoint: "):
        ckpt.about(path)
    assert len(ckpt.there(path)) == 2
    ckpt.remove(path)
    ckpt.remove(path)
    assert ckpt.there(path) == []


def test_two_processes_do_not_write_one_checkpoint(tmp_path):
    path, problem = tmp_path / "run.npz", make_logistic()
    with (
        hold(path),
        pytest.raises(OwnstepError, match=f"in use by process {os.getpid()} on .*: wait until it ends"),
    ):
        run(OwnStep(), problem, 3, checkpoint=path)
    run(OwnStep(), problem, 3, checkpoint=path)
    assert not list(tmp_path.glob(".*"))


LONG = """
import sys
from ownstep.engines import run
from ownstep.methods import OwnStep
from tests.conftest import make_logistic
run(OwnStep(), make_logistic(samples=4000), 10**6, checkpoint=sys.argv[1])
print("not ended")
"""


def test_sigterm_saves_and_ends_the_process(tmp_path):
    path = tmp_path / "run.npz"
    child = subprocess.Popen([sys.executable, "-c", LONG, str(path)], cwd=ROOT, stdout=-1, stderr=-1, text=True)
    try:
        limit = time.monotonic() + 60
        while not path.exists() and time.monotonic() < limit:
            time.sleep(0.02)
        time.sleep(0.3)
        at_first = ckpt.about(path)["k"]
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 128 + signal.SIGTERM
    assert out == ""
    assert "ended by SIGTERM; the checkpoint is written" in err
    done = ckpt.about(path)["k"]
    assert done > at_first  # not only what was there before
    assert not list(tmp_path.glob(".*"))
    problem = make_logistic(samples=4000)
    same(run(OwnStep(), problem, done + 5, checkpoint=path), run(OwnStep(), problem, done + 5))


@pytest.mark.parametrize("when", ["before the first round", "in the last checkpoint", "after it"])
def test_sigterm_outside_of_the_rounds_loses_nothing(tmp_path, monkeypatch, capfd, when):
    """Where nobody catches an exception, the signal is remembered: the checkpoint is written, the exit code is 143."""
    path, problem, real = tmp_path / "run.npz", make_logistic(), Loop.save

    def told(*_):
        os.kill(os.getpid(), signal.SIGTERM)

    class Telling(Bar):
        def __enter__(self):
            if when.startswith("before"):
                told()
            return super().__enter__()

        def __exit__(self, *error):
            if when.startswith("after"):
                told()
            return super().__exit__(*error)

    def save(loop, file):
        if when.startswith("in") and loop.stopped:
            told()
        real(loop, file)

    monkeypatch.setattr("ownstep.engines.local.engine.Bar", Telling)
    monkeypatch.setattr(Loop, "save", save)
    with pytest.raises(SystemExit) as ended:
        run(OwnStep(), problem, 20, checkpoint=path)
    assert ended.value.code == 128 + signal.SIGTERM
    assert "the checkpoint is written" in capfd.readouterr().err
    assert ckpt.about(path)["k"] == (0 if when.startswith("before") else 20)
    assert not list(tmp_path.glob(".*"))
    monkeypatch.undo()
    same(run(OwnStep(), problem, 25, checkpoint=path), run(OwnStep(), problem, 25))


def test_somebody_elses_handler_is_called_after_the_checkpoint(tmp_path):
    seen, path, problem = [], tmp_path / "run.npz", make_logistic()
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(ckpt.about(path)["k"]))
    try:
        history = run(
            OwnStep(), problem, 50, checkpoint=path,
            observe=lambda k, x: os.kill(os.getpid(), signal.SIGTERM) if k == 7 else None,
        )  # fmt: skip
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [history.rounds]
    assert history.stopped == f"interrupted after {history.rounds} rounds"


def test_checkpoints_become_rarer_as_they_grow():
    assert saving.pause(0.001, 10_000) == saving.SECONDS
    assert saving.pause(0.001, 5_000_000) == 10
    assert saving.pause(1.0, 10_000) == 50
    assert saving.pause(100.0, 1 << 40) == saving.LONGEST


def test_the_first_checkpoint_is_written_in_the_first_round(tmp_path):
    path, seen = tmp_path / "run.npz", []
    run(OwnStep(), make_logistic(), 3, checkpoint=path, observe=lambda k, x: seen.append(path.exists()))
    assert seen == [False, True, True, True]


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(InvalidInput, match="is a folder; a checkpoint is a file"):
        run(OwnStep(), make_logistic(), 3, checkpoint=tmp_path)
    with pytest.raises(OwnstepError, match="no readable history"):
        History.load(tmp_path)


# --- other versions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("own_step.npz", OwnStep()),
        ("own_step.safetensors", OwnStep()),
        ("adaptive.npz", OwnStep(smoothness="adaptive")),
        ("extra.npz", EXTRA()),
    ],
)
def test_checkpoints_of_the_first_version_are_gone_on_from(tmp_path, name, method):
    if name.endswith("safetensors"):
        pytest.importorskip("safetensors")
    shutil.copy(BEFORE / name, tmp_path / name)
    problem = written_by_0_1.problem()
    resumed, unbroken = run(method, problem, 20, checkpoint=tmp_path / name), run(method, problem, 20)
    assert resumed.columns["seconds"][3] == ckpt._read(BEFORE / name)[2]["seconds"][3]  # it was gone on from
    np.testing.assert_array_equal(resumed.columns["phase"], unbroken.columns["phase"])
    for column in ("value", "step"):  # to rounding: another processor wrote the first rounds
        np.testing.assert_allclose(resumed.columns[column], unbroken.columns[column], rtol=1e-6)
    np.testing.assert_allclose(resumed.x, unbroken.x, rtol=1e-6)


def test_histories_of_the_first_version_are_read():
    history = History.load(BEFORE / "history")
    assert (history.rounds, history.switched_at) == (8, 5)
    assert history.took_part.shape == (8, 3)
    assert np.isfinite(history.value).all()


def test_files_of_later_versions_are_refused_by_name(tmp_path, monkeypatch):
    path, problem = tmp_path / "run.npz", make_logistic()
    monkeypatch.setattr(ckpt, "FORMAT", 9)
    monkeypatch.setattr("ownstep.__version__", "7.1")
    run(OwnStep(), problem, 3, checkpoint=path)
    monkeypatch.setattr(ckpt, "FORMAT", 2)
    with pytest.raises(OwnstepError, match="written by ownstep 7.1 in format 9; this version reads formats up to 2"):
        run(OwnStep(), problem, 5, checkpoint=path)
    monkeypatch.setattr("ownstep.history.FORMAT", 9)
    run(OwnStep(), problem, 3).save(tmp_path / "h")
    monkeypatch.setattr("ownstep.history.FORMAT", 2)
    with pytest.raises(OwnstepError, match="written by ownstep 7.1 in format 9"):
        History.load(tmp_path / "h")


def test_a_state_with_the_fields_of_another_version_is_refused_by_its_name(tmp_path):
    """Own curvature kept other numbers of a sketch before: such a file is whole, and neither used nor replaced."""
    path, problem = tmp_path / "run.npz", make_logistic()
    run(OwnCurvature(rank=2), problem, 3, checkpoint=path)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(bytes(arrays["header"]))
    header["written_by"], header["state"]["bank.lift"] = "ownstep 0.0.9", header["state"].pop("bank.values")
    np.savez(path, **arrays | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)})
    kept = path.read_bytes()
    refused = (
        r"run.npz' was written by ownstep 0.0.9, where this method's state had no bank.values; .* name another file"
    )
    with pytest.raises(OwnstepError, match=refused):
        run(OwnCurvature(rank=2), problem, 5, checkpoint=path)
    assert path.read_bytes() == kept


def test_who_is_refused_a_checkpoint_leaves_its_writers_half_written_file_alone(tmp_path):
    """A writer in another container may have a number that no process here has."""
    path, problem = tmp_path / "run.npz", make_logistic()
    mine = write_atomically(path).part
    half = mine.with_name(mine.name.replace(f"-{os.getpid()}.", "-999999999."))
    with hold(path):
        half.touch()
        with pytest.raises(OwnstepError, match="in use by"):
            run(OwnStep(), problem, 3, checkpoint=path)
        assert half.exists()
    run(OwnStep(), problem, 3, checkpoint=path)
    assert not list(tmp_path.glob(".*"))


def test_a_lock_is_let_go_although_the_disk_is_full(tmp_path, monkeypatch):
    path, problem = tmp_path / "run.npz", make_logistic()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with hold(path), pytest.raises(OwnstepError, match="in use by another process"), hold(path):
            pass
    assert run(OwnStep(), problem, 3, checkpoint=path).rounds == 3
    assert not list(tmp_path.glob(".*"))


def test_a_lock_that_is_removed_while_it_is_looked_at_is_made_anew(tmp_path, monkeypatch):
    path, real, looks = tmp_path / "run.npz", os.stat, []

    def vanishing(file, *arguments, **options):
        if Path(file) == hold(path).file:
            looks.append(file)
            if len(looks) == 1:  # its holder has just ended
                os.unlink(file)
        return real(file, *arguments, **options)

    monkeypatch.setattr(os, "stat", vanishing)
    with hold(path):
        assert len(looks) == 2
        with pytest.raises(OwnstepError, match="in use by"), hold(path):
            pass


def test_a_history_has_one_name(tmp_path):
    history = run(OwnStep(), make_logistic(), 3)
    npz, text = history.save(tmp_path / "a.npz")
    assert (npz.name, text.name) == ("a.npz", "a.json")
    same(History.load(tmp_path / "a.npz"), History.load(tmp_path / "a"))
    assert json.loads(text.read_text())["written_by"].startswith("ownstep ")


def test_a_lock_is_waited_for_as_long_as_one_is_patient(tmp_path):
    file = tmp_path / "sites.json"
    code = "import sys, time; from pathlib import Path; from ownstep.support.files import hold\n"
    code += f"with hold(Path({str(file)!r})): print('held', flush=True); time.sleep(1.5)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(OwnstepError, match="in use by"), hold(file):
            pass
        with hold(file, patience=30):
            assert holder.wait(30) == 0


@pytest.mark.parametrize("k", [2.0, "2", None, -1, 3])
def test_a_number_of_rounds_that_is_none_or_another_one_is_refused(k):
    arrays = {name: np.zeros(2) for name in COLUMNS} | {"took_part": np.zeros((2, 3))}
    _check_lengths(2, arrays)
    with pytest.raises(ValueError, match=r"it is of round|has shape"):
        _check_lengths(k, arrays)


def test_other_constants_are_another_run_but_other_last_bits_are_not(tmp_path):
    """Another processor measures L_i with other last bits: a checkpoint that moves there is gone on from."""
    path, problem = tmp_path / "run.npz", make_logistic()
    devices = describe(problem).devices
    run(OwnStep(), problem, 3, checkpoint=path, devices=devices)
    moved = replace(devices, L=devices.L * (1 + 1e-12))
    assert run(OwnStep(), problem, 6, checkpoint=path, devices=moved).rounds == 6
    for other in (devices.L * 1.001, devices.L[::-1].copy()):
        with pytest.raises(OwnstepError, match="its smoothness differs"):
            run(OwnStep(), problem, 9, checkpoint=path, devices=replace(devices, L=other))
