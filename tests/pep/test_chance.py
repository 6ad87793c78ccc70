"""Mean errors over all schedules of who takes part: against a plain program over the tree of schedules."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ownstep import pep
from ownstep.engines import Bernoulli, Bursts, Cohort
from ownstep.methods import FedAdam, FedAvg, Never, OwnStep, Scaffold
from ownstep.support.errors import InvalidInput
from tests.pep.plain_network import Plain, add

DEVICES = pep.repeated([1.0, 2.0], [0.1, 0.3], [1, 1], [1.0, 2.0])
THREE = pep.repeated([1.0, 3.0], 0.1, [2, 1])


def tree(devices, rounds, chances, steps=None):
    """Own steps on every branch, written out: sets of devices with their probabilities, absent weight rescaled."""
    p = Plain(devices.L, devices.mu, devices.weights, 0.5, 0.0, 0.0)
    w, n = devices.weights, len(devices)
    start = p.space.new()
    level = [(1.0, start)]
    for _ in range(rounds):
        below = []
        for probability, x in level:
            g = p.gradients([x] * n)
            for here, chance in chances:
                share = sum(w[i] for i in here)
                moves = [(-w[i] / devices.L[i] / share, g[i]) for i in here]
                below.append((probability * chance, add((1, x), *moves)))
        level = below
    return p.solve([([(1.0, start)], 1.0)], level, [])


@pytest.mark.slow
def test_the_mean_over_coins_against_a_plain_program() -> None:
    chances = [
        (here, 0.6 ** len(here) * 0.4 ** (2 - len(here)))
        for r in range(3)
        for here in itertools.combinations((0, 1), r)
    ]
    mine = pep.worst_case(OwnStep(Never()), DEVICES, 2, 1.0, 0.5, "distance", schedule=Bernoulli(0.6))
    assert mine.upper == pytest.approx(tree(DEVICES, 2, chances), rel=2e-5)
    assert (1 - 1e-5) * mine.upper <= mine.lower <= mine.upper


def test_the_mean_over_cohorts_against_a_plain_program() -> None:
    """Three devices of two kinds: the schedule tells all of them apart."""
    chances = [(pair, 1 / 3) for pair in itertools.combinations(range(3), 2)]
    mine = pep.worst_case(OwnStep(Never()), THREE, 1, 1.0, 0.5, "distance", schedule=Cohort(2))
    assert mine.upper == pytest.approx(tree(THREE, 1, chances), rel=2e-5)


@pytest.mark.parametrize("metric", ["value", "gradient"])
def test_a_mean_is_below_the_mean_of_the_worst_cases(metric: str) -> None:
    """One function has to be bad on all schedules at once; the real method's mean on it is the lower end."""
    method, schedules = FedAvg(0.3, local_steps=2), [[True, False], [False, True]]
    mean = pep.worst_case(method, DEVICES, 1, 1.0, 0.5, metric, schedule=Cohort(1))
    each = [pep.worst_case(method, DEVICES, 1, 1.0, 0.5, metric, schedule=np.array([s])).upper for s in schedules]
    assert mean.lower <= mean.upper <= np.mean(each) * (1 + 1e-6)
    assert mean.gap < 1e-4
    assert "the mean over all schedules of Cohort" in mean.status


@pytest.mark.parametrize("method", [FedAvg("own", local_steps=2), Scaffold(0.2, local_steps=2)])
def test_without_absences_it_is_the_worst_case(method) -> None:
    sure = pep.worst_case(method, DEVICES, 2, 1.0, 0.5, schedule=Bernoulli(1.0))
    assert sure.upper == pytest.approx(pep.worst_case(method, DEVICES, 2, 1.0, 0.5).upper, rel=1e-6)


def test_what_is_refused() -> None:
    own = OwnStep(Never())
    with pytest.raises(InvalidInput, match="more than 300 schedules of 5 rounds"):
        pep.worst_case(own, DEVICES, 5, schedule=Bernoulli(0.5))
    with pytest.raises(InvalidInput, match="metrics value, distance, gradient"):
        pep.worst_case(own, DEVICES, 1, metric="consensus", schedule=Cohort(1))
    with pytest.raises(InvalidInput, match="remembered"):
        pep.worst_case(own, DEVICES, 1, schedule=Cohort(1, "last"))
    with pytest.raises(InvalidInput, match="more than the 2 devices"):
        pep.worst_case(own, DEVICES, 1, schedule=Cohort(3))
    with pytest.raises(InvalidInput, match="rows of 2 booleans"):
        pep.worst_case(own, DEVICES, 1, schedule=Bursts(0.1, 0.5))
    with pytest.raises(pep.NotLinear):
        pep.worst_case(FedAdam(), DEVICES, 1, schedule=Cohort(1))
