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
