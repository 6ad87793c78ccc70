from __future__ import annotations

import numpy as np
import pytest

from ownstep.engines import Cohort, TimeModel, price, run
from ownstep.methods import GD, DecentralisedGD, FedAvg, OwnStep
from ownstep.problems import optimum
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares, make_logistic

PROBLEM = make_least_squares(devices=3)
MESSAGE = 8 * PROBLEM.dim + 8


def test_a_server_s_round_by_hand():
    model = TimeModel(latency=0.5, up=(10.0, 100.0, 1000.0), down=1e3, compute=(1.0, 2.0, 3.0))
    each = 2 * 0.5 + MESSAGE / 1e3 + np.array([1.0, 2.0, 3.0]) + MESSAGE / np.array([10.0, 100.0, 1000.0])
    np.testing.assert_allclose(model.seconds(run(GD(), PROBLEM, 3)), each.max() * np.arange(4))
    local = each + 3 * np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(model.seconds(run(FedAvg(local_steps=4), PROBLEM, 2)), local.max() * np.arange(3))


def test_only_those_who_take_part_are_waited_for_unless_there_is_a_deadline():
    compute = np.array([1.0, 20.0, 300.0])
    history = run(GD(), PROBLEM, 20, participation=Cohort(1, seed=3))
    took = np.diff(TimeModel(0.0, np.inf, np.inf, tuple(compute)).seconds(history))
    np.testing.assert_allclose(took, history.took_part @ compute)
    waited = np.diff(TimeModel(0.0, np.inf, np.inf, tuple(compute), deadline=50.0).seconds(history))
    np.testing.assert_allclose(waited, np.maximum(history.took_part @ compute, 50))


def test_the_server_s_own_line_can_be_the_narrow_one():
    history = run(GD(), PROBLEM, 1)
    assert TimeModel(0.0, np.inf, np.inf, 0.0, server=2.0).seconds(history)[1] == pytest.approx(3 * 2 * MESSAGE / 2.0)


def test_the_hub_of_a_star_is_its_bottleneck():
    vector, model = 8 * PROBLEM.dim, TimeModel(latency=0.0, up=1.0, down=np.inf, compute=0.0)
    assert model.seconds(run(DecentralisedGD(graph="star"), PROBLEM, 1))[1] == pytest.approx(2 * vector)
    problem = make_least_squares(devices=6)
    ring = model.seconds(run(DecentralisedGD(graph="ring"), problem, 1))[1]
    star = model.seconds(run(DecentralisedGD(graph="star"), problem, 1))[1]
    assert (ring, star) == (pytest.approx(2 * vector), pytest.approx(5 * vector))


def test_a_round_without_a_server_has_one_latency():
    latency, up, compute = np.array([0.5, 0.1, 0.3]), np.array([10.0, 40.0, 1000.0]), np.array([1.0, 2.0, 4.0])
    model = TimeModel(tuple(latency), tuple(up), 30.0, tuple(compute))
    sent = 8 * PROBLEM.dim * np.array([2, 1, 1])  # the hub of a star sends to both others
    each = latency + compute + sent * (1 / up + 1 / 30)
    took = model.seconds(run(DecentralisedGD(graph="star"), PROBLEM, 2))
    np.testing.assert_allclose(took, each.max() * np.arange(3))
    slow = TimeModel((0.5, 7.0, 0.3), 1e9, 1e9, tuple(compute)).seconds(run(DecentralisedGD(graph="star"), PROBLEM, 1))
    assert slow[1] == pytest.approx(7.0 + 2.0, abs=1e-5)


def test_moving_the_data_waits_for_the_slowest_device_or_for_the_server():
    sizes, model = [100.0, 200.0, 900.0], {"latency": (0.5, 0.25, 8.0), "up": (10.0, 100.0, 1000.0)}
    assert TimeModel(**model).moving(sizes) == pytest.approx(0.5 + 100 / 10)
    assert TimeModel(**model, server=20.0).moving(sizes) == pytest.approx(1200 / 20)
    assert TimeModel(**model, server=1200 / 10.4).moving(sizes) == pytest.approx(0.5 + 100 / 10)


def test_moving_the_data_against_moving_gradients():
    problem = make_logistic()
    histories = {"Algorithm 1": run(OwnStep(), problem, 300), "GD": run(GD("true"), problem, 300)}
    best, model = optimum(problem).value, TimeModel(latency=0.1, up=100.0, down=1e9, compute=0.0)
    sizes = [8 * problem.rows(i).size for i in range(3)]
    rows = {row["name"]: row for row in price(histories, best, 1e-3, model, sizes, "GD", 0.01)}
    k = histories["GD"].rounds_to(1e-3, best)
    moved = rows["data moved, GD"]
    assert moved["seconds"] == pytest.approx(0.1 + max(sizes) / 100 + 0.01 * k)
    assert moved["bytes"] == sum(sizes)
    assert rows["GD"]["bytes"] == 2 * 3 * k * (8 * problem.dim + 8)
    assert rows["GD"]["seconds"] == pytest.approx(k * (0.2 + (8 * problem.dim + 8) * (1 / 100 + 1 / 1e9)))
    never = price({"GD": run(GD(), problem, 1)}, best, 1e-12, model, sizes, "GD", 0.01)
    assert never[0]["seconds"] is never[1]["seconds"] is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TimeModel(up=0.0), "up must be positive bytes per second, got 0.0"),
        (lambda: TimeModel(latency=-1.0), "latency must be at least 0 seconds, got -1.0"),
        (lambda: TimeModel(up=(1.0, 2.0)).seconds(run(GD(), PROBLEM, 1)), "up has 2 entries for 3 devices"),
        (lambda: TimeModel().moving([-1.0]), "at least 0 for each device"),
    ],
)
def test_bad_input_is_quoted(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gossip", [False, True])
def test_every_round_device_by_device(seed, gossip):
    """Latencies, lines, work and traffic of four unequal devices over six rounds, in plain loops."""
    rng = np.random.default_rng(seed)
    latency, compute, up, down = rng.uniform(0.01, 0.2, (4, 4))
    up, down = 1e4 * up, 1e4 * down
    model = TimeModel(latency, up, down, compute, server=rng.uniform(200, 900), deadline=rng.uniform(0.3, 1.0))
    here = rng.random((6, 4)) < 0.7
    here[0], here[1] = True, False
    sent, received = rng.integers(100, 900, (2, 6))
    steps, vectors = rng.integers(1, 5, (6, 4)), rng.integers(1, 4, 4)
    for local in (1, 3, steps[0], steps, steps[:, :1]):
        found = model.rounds(sent, received, here, local, vectors if gossip else None)
        many, expected = np.broadcast_to(local, (6, 4)), []
        for k in range(6):
            parts = [(vectors[i] if gossip else 1) * here[k, i] for i in range(4)]
            longest = 0.0
            for i in np.flatnonzero(here[k]):
                share = parts[i] / sum(parts)
                took = (1 if gossip else 2) * latency[i] + many[k, i] * compute[i]
                longest = max(longest, took + share * sent[k] / up[i] + share * received[k] / down[i])
            if not gossip:
                busy = (sent[k] + received[k]) * here[k].any() / model.server
                longest = max(longest, busy, 0.0 if here[k].all() else model.deadline)
            expected.append(longest)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["up", "down", "server", "latency", "compute", "deadline"])
def test_every_entry_of_a_time_model_has_its_range(name):
    """Speeds above zero, times from zero on, of every device; no number is none."""
    speed = name in ("up", "down", "server")
    many = name not in ("server", "deadline")
    for wrong in (-1.0, np.nan, *([0.0] if speed else []), *([(1.0, -1.0), (1.0, np.nan)] if many else [])):
        with pytest.raises(InvalidInput, match=f"{name} must be"):
            TimeModel(**{name: wrong})
    TimeModel(**{name: 1e-300 if speed else 0.0})
    if many:
        with pytest.raises(InvalidInput, match=f"{name} has 2 entries for 3 devices"):
            TimeModel(**{name: (1.0, 2.0)}).rounds([8], [8], np.ones((1, 3), bool))
