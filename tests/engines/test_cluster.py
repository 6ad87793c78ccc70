"""The cluster engine on real processes of this machine, all on the loopback device."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from ownstep.cli import main
from ownstep.engines import checkpoint as ckpt
from ownstep.engines import cluster, compare
from ownstep.engines.cluster import torchrun
from ownstep.engines.local import engine as local
from ownstep.history import History
from ownstep.methods import EXTRA, At, OwnStep
from ownstep.support.errors import InvalidInput, OwnstepError

from ..test_cli import call
from . import cluster_worker as worker
from .test_local import assert_same_history

pytestmark = pytest.mark.xdist_group("processes")

ROOT = Path(__file__).parents[2]
SOON = 2 + 10 + 20
"""Seconds until a frozen rank is named: its deadline, the ten that are promised, and what a busy machine adds."""
LIMIT = 300
"""Seconds after which a start is ended; they take a tenth of it on an idle machine."""


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return torchrun.environment() | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | more


def run_ranks(ranks: int, *arguments: str, restarts: int = 0):
    """Start ranks by torchrun and wait; when it has to be ended it ends its ranks itself."""
    command = torchrun.command(ranks, worker.__name__, arguments, restarts)
    child = subprocess.Popen(
        command, env=environment(), cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = child.communicate(timeout=LIMIT)
    finally:
        end(child)
    return child.returncode, out, err


def end(child: subprocess.Popen) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate(timeout=10)


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([worker.__name__])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def ranks_of(size: int, task: str, folder: Path, **more: str) -> Iterator[list]:
    """Ranks without torchrun, forked from a process that has torch already; whoever is left is killed.

    Torchrun takes ten seconds to start ranks, and half a minute to give up on one that was stopped.
    """
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)} | more
    places = [environment(RANK=str(r), LOCAL_RANK=str(r), **place) for r in range(size)]
    children = [FORKS.Process(target=worker.rank, args=(task, folder, place)) for place in places]
    try:
        for child in children:
            child.start()
        yield children
    finally:
        for child in children:
            child.kill()
            child.join(10)


def wait(folder: Path, *children) -> None:
    """Until these ranks have ended; what they said is shown if one of them ended badly."""
    for child in children:
        child.join(LIMIT)
    said = "".join(path.read_text() for path in folder.glob("stderr-*"))
    assert [child.exitcode for child in children] == [0] * len(children), said


def call_ranks(size: int, folder: Path, *arguments: str) -> str:
    """What a command of ``ownstep`` prints when every rank is given it."""
    (folder / "arguments.json").write_text(json.dumps(arguments))
    with ranks_of(size, "command_line", folder) as children:
        wait(folder, *children)
    assert [path.stat().st_size > 0 for path in sorted(folder.glob("stdout-*"))] == [True] + [False] * (size - 1)
    return (folder / "stdout-0").read_text()


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request, tmp_path_factory):
    """(number of ranks, folder with what they found): one start for many tests."""
    folder = tmp_path_factory.mktemp(f"ranks{request.param}")
    local.run(EXTRA(), worker.logistic(), 6, checkpoint=folder / "kept-local.npz")
    with ranks_of(request.param, "check", folder) as children:
        wait(folder, *children)
    return request.param, folder


SEARCHED = 1e-6


def tolerance(name: str) -> float:
    """1e-12, but where steps are quotients of small differences, which blow rounding up round by round."""
    if name.startswith(("lbfgs", "newton", "own_curvature", "curvature")):
        return SEARCHED
    return 1e-7 if name.startswith(("adgd", "adaptive", "network_adaptive")) else 1e-12


def close(cluster_history: History, local_history: History, within: float = 1e-12) -> None:
    np.testing.assert_allclose(cluster_history.x, local_history.x, rtol=0, atol=within)
    # near its minimum f is flat to rounding, so the last bits decide which iterate is the lowest
    np.testing.assert_allclose(cluster_history.best_x, local_history.best_x, rtol=0, atol=max(within, 1e-9))
    if within == SEARCHED:  # once such a method has arrived, its steps are of rounding's size and making
        np.testing.assert_allclose(cluster_history.value, local_history.value, atol=within)
        return
    for column in ("value", "gradient_norm", "step"):
        mine, theirs = cluster_history.columns[column], local_history.columns[column]
        np.testing.assert_allclose(mine, theirs, rtol=within, atol=within, err_msg=column)
    assert (cluster_history.phase == local_history.phase).all()
    assert (cluster_history.columns["participants"] == local_history.columns["participants"]).all()
    assert (cluster_history.stopped, cluster_history.switched_at) == (local_history.stopped, local_history.switched_at)


def test_every_method_moves_as_on_one_machine(ranks):
    problem = worker.logistic()
    for name, method in worker.METHODS.items():
        expected = local.run(method, problem, worker.ROUNDS, measure_gradient=name == "own_step")
        close(History.load(ranks[1] / name), expected, tolerance(name))
    for name, (method, absence) in worker.ABSENCES.items():
        seen, expected = History.load(ranks[1] / name), local.run(method, problem, worker.ROUNDS, participation=absence)
        close(seen, expected, tolerance(name))
        assert (seen.took_part == expected.took_part).all()


def test_one_seed_gives_the_same_clients_and_the_same_bits(ranks):
    """One device per rank: the sum over ranks is the sum in the order of the devices (bytes differ: an all-reduce)."""
    if ranks[0] != 2:
        return
    for name, method in worker.ORDERED.items():
        seen = History.load(ranks[1] / f"ordered-{name}")
        rule = worker.who_comes(method)
        expected = local.run(method, worker.make_logistic(2), worker.ROUNDS, participation=rule)
        if rule is not None:
            assert (seen.took_part == expected.took_part).all()
            assert 0 < seen.took_part.mean() < 1
        np.testing.assert_array_equal(seen.x, expected.x, name)
    assert len(worker.ORDERED) == 14


def test_a_network_moves_as_on_one_machine(ranks):
    problem = worker.network()
    devices = worker.constants(problem)
    for name, method in worker.NETWORK_METHODS.items():
        close(History.load(ranks[1] / name), local.run(method, problem, 12, devices=devices), tolerance(name))
    batched = worker.network(worker.PerDevice(2))
    close(History.load(ranks[1] / "network_batch"), local.run(OwnStep(At(6)), batched, 12, devices=devices))
    drawn = local.run(worker.DRAWN, batched, 12, devices=devices, participation=worker.who_comes(worker.DRAWN))
    seen = History.load(ranks[1] / "network_drawn")
    close(seen, drawn)
    assert (seen.took_part == drawn.took_part).all()
    small = local.run(OwnStep(At(6)), worker.network(dtype=worker.torch.float32), 12, devices=devices)
    close(History.load(ranks[1] / "network_float32"), small, 2e-6)


def test_every_rank_keeps_its_own_rows_and_no_others(ranks):
    size, folder = ranks
    counts = worker.logistic().counts
    expected = [int(counts[part].sum()) for part in np.array_split(np.arange(worker.DEVICES), size)]
    seen = [(folder / f"rows-{r}.txt").read_text().split() for r in range(size)]
    assert [int(rows) for rows, _ in seen] == expected
    assert len({pid for _, pid in seen}) == size


def test_ranks_that_only_ever_had_their_own_data_find_the_same(ranks):
    """Smoothness measured by each rank for itself, weights by their samples, and the pooled L by all together."""
    close(History.load(ranks[1] / "own_data"), local.run(OwnStep(At(5)), worker.logistic(), 10))


def test_bytes_are_what_the_ranks_hand_over(ranks):
    size, folder = ranks
    vector = 4 * 8
    one_sum = size * (vector + 8 * worker.DEVICES + 2 * 8)  # the sum, the losses, two control words
    for name in ("own_step", "gd_true", "nesterov"):
        assert History.load(folder / name).columns["bytes_up"].tolist() == [one_sum] * worker.ROUNDS + [0]
    # A ring of eight devices in consecutive blocks: two rows cross at every border of two blocks.
    borders = size
    assert History.load(folder / "extra").columns["bytes_up"].tolist() == [2 * borders * vector] * worker.ROUNDS + [0]
    assert History.load(folder / "tracking").columns["bytes_up"].tolist() == [4 * borders * vector] * worker.ROUNDS + [
        0
    ]


def test_between_measurements_only_neighbours_talk(ranks):
    sparse, dense = History.load(ranks[1] / "sparse"), History.load(ranks[1] / "extra")
    assert (sparse.x == dense.x).all()
    measured = np.isin(np.arange(worker.ROUNDS + 1), [0, 10, worker.ROUNDS])
    assert (sparse.value[measured] == dense.value[measured]).all()
    assert np.isnan(sparse.value[~measured]).all()


def test_checkpoints_do_not_know_how_many_ranks_wrote_them(ranks):
    _, folder = ranks
    problem = worker.logistic()
    close(History.load(folder / "from_local"), local.run(EXTRA(), problem, worker.ROUNDS))
    for name, method in worker.RESUMED.items():
        close(History.load(folder / f"resumed-{name}"), local.run(method, problem, worker.ROUNDS), tolerance(name))
        # and back: what the ranks wrote, one process takes further
        further = local.run(method, problem, worker.ROUNDS + 3, checkpoint=folder / f"kept-{name}.npz")
        close(further, local.run(method, problem, worker.ROUNDS + 3), tolerance(name))
    method, absence = worker.ABSENCES["adaptive_absent"]
    expected = local.run(method, problem, worker.ROUNDS, participation=absence)
    close(History.load(folder / "resumed-absent"), expected, tolerance("adaptive"))


def test_the_comparison_of_the_demo_is_the_same(ranks):
    problem, _ = worker.TableOptions(partition="by_norm", devices=4).build("breast_cancer", 1e-2)
    for name, history in compare(problem, worker.RACE, rounds=20).histories.items():
        close(History.load(ranks[1] / f"race-{name.replace('/', '_')}"), history, 1e-10)


def test_ranks_that_were_told_different_things_say_who_differs(ranks):
    size, folder = ranks
    x0, method, weather, few, another = (folder / "refused.txt").read_text().split("\n")
    assert "rank 1" in x0
    assert "in its data" in x0
    assert "rank 1" in method
    assert "in its method" in method
    assert weather.startswith("the ranks do not agree on the weather: rank 1 (")
    assert few.startswith(f"{size} ranks for 1 devices")
    assert another.startswith(
        f"the checkpoint {str(folder / 'kept-extra.npz')!r} is of another run (its method differs)"
    )


def test_a_killed_rank_is_restarted_and_the_history_is_that_of_an_unbroken_run(tmp_path):
    code, _, err = run_ranks(2, "die", str(tmp_path), restarts=1)
    assert code == 0, err
    assert "-9" in err  # torchrun saw the kill
    assert int((tmp_path / "began.txt").read_text()) > 0  # from a checkpoint, not from the start
    broken, whole = History.load(tmp_path / "broken"), History.load(tmp_path / "whole")
    assert_same_history(broken, whole)
    close(whole, local.run(OwnStep(At(150)), worker.logistic(), 300))


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """By task what the others said, each with its seconds, and the frozen process; both wait at the same time."""
    folders = {task: tmp_path_factory.mktemp(task) for task in ("hang", "freeze_host")}
    with ranks_of(3, "hang", folders["hang"]) as hung, ranks_of(3, "freeze_host", folders["freeze_host"]) as hostless:
        wait(folders["hang"], hung[0], hung[2])
        wait(folders["freeze_host"], *hostless[1:])
        assert hung[1].is_alive()  # they are still frozen: nobody waited for them
        assert hostless[0].is_alive()
        pids = {"hang": hung[1].pid, "freeze_host": hostless[0].pid}
    said = {
        task: {path.name: path.read_text().rpartition("\n") for path in folder.glob("said-*")}
        for task, folder in folders.items()
    }
    return {task: (said[task], pids[task]) for task in folders}


def test_a_hung_rank_ends_in_an_error_that_names_it(frozen):
    said, pid = frozen["hang"]
    assert set(said) == {"said-0", "said-2"}
    for text, _, seconds in said.values():
        assert float(seconds) < SOON
        assert text.startswith("round ")
        assert f"no answer from rank 1 ({socket.gethostname()}, process {pid}) within 2 s" in text


def test_a_frozen_host_of_the_store_ends_the_others_too(frozen):
    said, pid = frozen["freeze_host"]
    assert set(said) == {"said-1", "said-2"}
    for text, _, seconds in said.values():
        assert float(seconds) < SOON
        assert text.startswith("round ")
        assert f"rank 0 ({socket.gethostname()}, process {pid})" in text


def test_ranks_that_split_their_data_differently_are_refused(tmp_path):
    with ranks_of(2, "other_data", tmp_path) as children:
        wait(tmp_path, *children)
    for rank in range(2):
        split, scaled = (tmp_path / f"said-{rank}").read_text().splitlines()
        for said in (split, scaled):
            assert "all ranks must load the same data and split it alike" in said
            assert "rank 1 (" in said


def test_the_rank_that_sent_a_bad_number_is_named_and_a_healthy_start_goes_on(tmp_path):
    with ranks_of(2, "one_nan", tmp_path) as children:
        wait(tmp_path, *children)
    for number in range(3):
        broken = History.load(tmp_path / f"try-{number}")
        assert broken.failed
        assert f"rank 1 ({socket.gethostname()}, process " in broken.stopped
        assert "for D5, D6, D7, D8, is not finite" in broken.stopped
        assert np.isfinite(broken.x).all()
    healed = History.load(tmp_path / "try-3")
    close(healed, local.run(OwnStep(At(20)), worker.logistic(), 40))


def test_a_rank_alone_moves_alike_takes_no_new_memory_and_overwrites_nothing_that_is_held(tmp_path):
    with ranks_of(1, "alone", tmp_path) as children:
        wait(tmp_path, *children)
    for name in ("own_step", "extra"):
        close(History.load(tmp_path / name), local.run(worker.METHODS[name], worker.logistic(), worker.ROUNDS))


def test_encryption_is_used_where_torch_has_it_and_never_silently_left_out(tmp_path):
    keys = throw_away_ca(tmp_path)
    prefix = "GLOO_DEVICE_TRANSPORT_TCP_TLS_"
    more = {"GLOO_DEVICE_TRANSPORT": "TCP_TLS"} | {prefix + name: str(path) for name, path in keys.items()}
    with ranks_of(2, "secret", tmp_path, **more) as children:
        for child in children:
            child.join(LIMIT)
    said = tmp_path / "said-0"
    if said.exists() and "built without gloo's TLS" in said.read_text():
        assert not list(tmp_path.glob("secret-*"))  # refused, not sent in the clear
        pytest.skip("the installed torch has no TLS transport in gloo; the run was refused with that reason")
    close(History.load(tmp_path / "secret-1"), local.run(OwnStep(), worker.logistic(), 5))


def throw_away_ca(folder: Path) -> dict[str, Path]:
    """A certificate authority for this test alone, and one key signed by it."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    try:
        new = ["-newkey", "rsa:2048", "-nodes"]
        openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "1", "-subj", "/CN=throw-away")
        openssl("req", *new, "-keyout", "rank.key", "-out", "rank.csr", "-subj", "/CN=localhost")
        sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1"]
        openssl("x509", "-req", "-in", "rank.csr", *sign, "-out", "rank.pem")
    except FileNotFoundError:
        pytest.skip("openssl is not installed here")
    return {"PKEY": folder / "rank.key", "CERT": folder / "rank.pem", "CA_FILE": folder / "ca.pem"}


def test_the_command_line_under_torchrun_and_ctrl_c(tmp_path, capsys):
    arguments = ["run", "breast_cancer", "--devices", "3", "--rounds"]
    checkpoint = tmp_path / "c.npz"
    command = torchrun.command(2, "ownstep", [*arguments, "1000000", "--checkpoint", str(checkpoint)])
    child = subprocess.Popen(command, env=environment(), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        limit = time.monotonic() + LIMIT
        while not checkpoint.exists() and time.monotonic() < limit and child.poll() is None:
            time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    finally:
        end(child)
    assert child.returncode != 0
    assert checkpoint.exists(), err
    done = int(ckpt.about(checkpoint)["k"])
    more = [*arguments, str(done + 20), "--json"]
    code, out, err = call(capsys, *more, "--checkpoint", str(checkpoint))
    assert code == 0, err
    resumed = json.loads(out)
    assert resumed["rounds"] == done + 20
    seen = json.loads(call_ranks(2, tmp_path, *arguments, "200", "--json"))
    code, out, _ = call(capsys, *arguments, "200", "--json")
    expected = json.loads(out)
    assert seen["final_value"] == pytest.approx(expected["final_value"], rel=1e-12)
    assert seen["optimum"] == pytest.approx(expected["optimum"], rel=1e-12)
    assert (seen["settings"]["engine"], seen["settings"]["ranks"]) == ("cluster", 2)


def test_a_tuned_comparison_on_ranks_is_that_of_one_process(tmp_path, capsys):
    """Searches and reruns too: they run where the comparison runs, and only the first rank speaks and writes."""
    asked = ["compare", "breast_cancer", "--devices", "3", "--methods", "own_step,gd:tuned,scaffold,delta_sgd"]
    asked += ["--tune", "2", "--reruns", "1", "--rounds", "12", "--participation", "0.7", "--json"]
    seen = json.loads(call_ranks(2, tmp_path, *asked, "--out", str(tmp_path / "out")))
    code, out, _ = call(capsys, *asked)
    assert code == 0
    expected = json.loads(out)
    assert seen["optimum"] == pytest.approx(expected["optimum"], rel=1e-12)
    assert seen["verdicts"] == expected["verdicts"]
    for ours, theirs in zip(seen["rows"], expected["rows"], strict=True):
        for name in ("method", "rounds", "rounds_of_reruns", "search_rounds"):
            assert ours[name] == theirs[name], name
        assert ours["search_rounds"] > 0
        assert ours["final_gap"] == pytest.approx(theirs["final_gap"], rel=1e-7)
    assert (tmp_path / "out" / "comparison.png").exists()
    assert History.load(tmp_path / "out" / "scaffold").settings["engine"] == "cluster"


def test_a_stop_is_not_undone_by_restarts_and_ends_every_machine(tmp_path):
    """Two torchruns, as on two machines: SIGTERM to one rank of the second ends all, and nobody is started again."""
    checkpoint, port = tmp_path / "c.npz", free_port()
    place = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job"]
    options = ["--nproc-per-node", "1", *place, "--local-addr", "127.0.0.1", "--max-restarts", "2"]
    work = ["-m", "ownstep", "run", "breast_cancer", "--devices", "4", "--rounds", "10000000"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, *work, "--checkpoint", str(checkpoint)]
    children = [
        subprocess.Popen(command, env=environment(), cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        limit = time.monotonic() + LIMIT
        while not checkpoint.exists() and time.monotonic() < limit:
            time.sleep(0.1)
        (rank,) = Path(f"/proc/{children[1].pid}/task/{children[1].pid}/children").read_text().split()
        os.kill(int(rank), signal.SIGTERM)
        said = [child.communicate(timeout=LIMIT)[1] for child in children]
    finally:
        for child in children:
            end(child)
    assert [child.returncode for child in children] == [0, 0], said
    assert "".join(said).count("ownstep: interrupted") == 1
    assert ckpt.about(checkpoint)["k"] > 0


def test_without_torchrun_it_explains_itself(capsys, monkeypatch):
    for command in ("run", "compare"):
        code, _, err = call(capsys, command, "breast_cancer", "--engine", "cluster")
        assert code == 2
        assert f"torchrun --nproc-per-node 2 -m ownstep {command}" in err
        code, _, err = call(capsys, command, "breast_cancer", "--deadline", "5")
        assert code == 2
        assert "--deadline 5 is for --engine cluster" in err
    with pytest.raises(OwnstepError, match="torchrun --nproc-per-node"):
        cluster.share(worker.logistic())
    with pytest.raises(InvalidInput, match="deadline must be a positive number of seconds, got 0"):
        cluster.Ranks(0)
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    code, _, err = call(capsys, "run", "breast_cancer", "--engine", "local")
    assert code == 2
    assert "(rank 1): --engine local under torchrun: all 4 ranks would do the same" in err


def test_the_demo_becomes_two_ranks(capsys, monkeypatch, tmp_path):
    class Replaced(Exception):
        pass

    def execve(program, command, environ):
        assert program == sys.executable
        assert environ["GLOO_SOCKET_IFNAME"].startswith("lo")
        raise Replaced(" ".join(command))

    monkeypatch.setattr(os, "execve", execve)
    with pytest.raises(Replaced, match=f"--nproc-per-node 2 .* -m ownstep demo --engine cluster --out {tmp_path}"):
        main(["demo", "--engine", "cluster", "--out", str(tmp_path)])
