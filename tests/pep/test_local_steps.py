"""Worst cases with local steps and absent devices: against a plain program, and where they meet what is known."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import FedAvg, FedNova, FedProx, Never, OwnStep, Scaffold
from ownstep.support.errors import InvalidInput
from tests.pep.plain_network import Plain, add

DEVICES = pep.repeated([1.0, 2.0], [0.1, 0.3], [1, 1], [1.0, 2.0])
THREE = pep.repeated([1.0, 3.0], 0.1, [2, 1])


def local(devices, rounds, steps, eta, prox=0.0, controls=False, present=None):
    """FedAvg, FedProx and SCAFFOLD in the letters of their papers, every device apart."""
    p = Plain(devices.L, devices.mu, devices.weights, 0.5, 0.0, 0.0)
    w, n = devices.weights, len(devices)
    x = start = p.space.new()
    c = [{} for _ in range(n)]
    eta = np.broadcast_to(eta, n)
    for k in range(rounds):
        here = np.ones(n, bool) if present is None else present[k]
        total = add(*((w[i], c[i]) for i in range(n)))
        y = [x] * n
        for _ in range(steps):
            g = p.gradients(y)
            y = [
                add((1, y[i]), (-eta[i], add((1, g[i]), (prox, y[i]), (-prox, x), (-1, c[i]), (1, total))))
                for i in range(n)
            ]
        if controls:
            back = 1 / (steps * eta)
            c = [add((1, c[i]), (-1, total), (back[i], x), (-back[i], y[i])) for i in range(n)]
        share = w[here].sum()
        x = add((1, x), *((w[i] / share, add((1, y[i]), (-1, x))) for i in range(n) if here[i]))
    final = p.gradients([x] * n)
    assert len(final) == n
    values = [(w[i], p.triples[i][-1][2]) for i in range(n)] + [(-w[i], p.triples[i][0][2]) for i in range(n)]
    return p.solve([([(1.0, start)], 1.0)], [], values)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (FedAvg(0.3, local_steps=2), {}),
        (FedAvg("own", local_steps=2), {"eta": 1 / DEVICES.L}),
        (FedProx(0.3, local_steps=2, prox=0.5), {"prox": 0.5}),
        (Scaffold(0.3, local_steps=2), {"controls": True}),
    ],
)
def test_local_steps_against_a_plain_program(method, options) -> None:
    mine = pep.worst_case(method, DEVICES, 2, 1.0, 0.5)
    options = {"eta": 0.3} | options
    assert mine.upper == pytest.approx(local(DEVICES, 2, 2, **options), rel=2e-5)
    assert (1 - 1e-3) * mine.upper <= mine.lower <= mine.upper


def test_first_gradients_are_those_of_the_first_local_step() -> None:
    """They differ by at most what is said, and the proof says so too."""
    method = FedAvg(0.3, local_steps=2)
    free = pep.worst_case(method, DEVICES, 1, 1.0, 0.5, "distance")
    alike = pep.worst_case(method, DEVICES, 1, 1.0, 0.5, "distance", start=pep.Start(trackers=0.05))
    assert alike.upper < 0.999 * free.upper
    assert alike.lower > 0.999 * alike.upper
    assert "N w_i grad f_i(x_i^0) - mean" in alike.certify().statement


def test_one_own_local_step_is_algorithm_1() -> None:
    one = pep.worst_case(FedAvg("own"), DEVICES, 2, 1.0, 0.5)
    assert one.upper == pytest.approx(pep.worst_case(OwnStep(Never()), DEVICES, 2, 1.0, 0.5).upper, rel=1e-9)


@pytest.mark.slow
def test_absent_devices_against_a_plain_program() -> None:
    """The others' moves are rescaled by the weight that took part."""
    present = np.array([[True, False], [True, True], [False, True]])
    mine = pep.worst_case(FedAvg(0.3, local_steps=2), DEVICES, 3, 1.0, 0.5, schedule=present)
    assert mine.upper == pytest.approx(local(DEVICES, 3, 2, 0.3, present=present), rel=2e-5)


def test_one_route_agrees_with_the_other() -> None:
    """Algorithm 1 with everyone present, followed device by device, is Algorithm 1."""
    everyone = np.ones((3, 3), bool)
    mine = pep.worst_case(OwnStep(Never()), THREE, 3, 1.0, 0.5, schedule=everyone)
    assert mine.upper == pytest.approx(pep.worst_case(OwnStep(Never()), THREE, 3, 1.0, 0.5).upper, rel=1e-6)


def test_devices_of_a_kind_are_kept_apart_by_their_schedule() -> None:
    """Dropping one of two equal devices is another problem than dropping neither, whichever of them it is."""
    first = np.array([[True, False, True]] * 2)
    second = np.array([[False, True, True]] * 2)
    one, other = (pep.worst_case(OwnStep(Never()), THREE, 2, 1.0, 0.5, schedule=s).upper for s in (first, second))
    all_there = pep.worst_case(OwnStep(Never()), THREE, 2, 1.0, 0.5).upper
    assert one == pytest.approx(other, rel=1e-6)
    assert abs(one - all_there) > 1e-3 * all_there


def test_uneven_local_steps() -> None:
    """FedNova's devices take numbers of local steps of their own; with the same number for all it is FedAvg."""
    uneven = pep.worst_case(FedNova(0.2, local_steps=(1, 1, 3)), THREE, 2, 1.0, 0.5)
    assert (1 - 1e-3) * uneven.upper <= uneven.lower <= uneven.upper
    even = pep.worst_case(FedNova(0.2, local_steps=(2, 2, 2)), THREE, 2, 1.0, 0.5)
    assert even.upper == pytest.approx(pep.worst_case(FedAvg(0.2, local_steps=2), THREE, 2, 1.0, 0.5).upper, rel=1e-6)


def test_a_schedule_is_checked() -> None:
    with pytest.raises(InvalidInput, match="2 rows of 3 booleans"):
        pep.worst_case(OwnStep(Never()), THREE, 2, schedule=np.ones((3, 3), bool))
    with pytest.raises(InvalidInput, match="remembered"):
        pep.worst_case(OwnStep(Never()), THREE, 2, schedule=np.ones((2, 3), bool), missing="last")
