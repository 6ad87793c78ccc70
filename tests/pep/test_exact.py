"""Lower ends: an error that some function of the class has, whatever floating point did; never above the upper end."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ownstep import pep
from ownstep.cli import main
from ownstep.methods import GD, At, DecentralisedGD, HeavyBall, Nesterov, Never, OwnStep
from ownstep.pep import few_kinds
from ownstep.pep.networks.instances.lower_search import not_above
from ownstep.pep.search import NARROW, Search
from ownstep.pep.solve.candidate import Candidate, Part, recover, run
from ownstep.pep.solve.exact import reached
from ownstep.pep.solve.quadratic import worst_quadratic
from ownstep.pep.trace.kinds import line
from ownstep.pep.trace.scales import scenarios
from ownstep.pep.trace.symbolic import trace
from ownstep.pep.trace.units import Setting, canonical
from ownstep.plan import Devices
from ownstep.support.errors import InternalError, OwnstepError

DEVICES = Devices(np.array([0.3, 0.7]), np.array([0.4, 3.0]), np.array([0.1, 0.2]))
METRICS = ("value", "distance", "gradient")


def quadratics(asked: Setting, curvatures: np.ndarray, tilt: float) -> tuple[Candidate, list[Fraction]]:
    """f_i = q_i/2 x^2 + s_i x in one dimension as a candidate, and the metric's exact values along the run."""
    d = asked.devices
    weights = [Fraction(float(w)) for w in d.weights]
    s = [Fraction(tilt), -Fraction(tilt) * weights[0] / weights[1]]
    parts = []
    for i in range(2):
        M, bend = float(d.L[i] - d.mu[i]), float(curvatures[i] - d.mu[i])
        shape = pep.Interpolant(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1), bend, bend)
        own = np.array([-float(s[i]) / float(curvatures[i])])
        parts.append(Part((i,), M, shape, np.array([float(s[i])]), own if tilt else None))
    return run(asked, np.array([asked.r0]), tuple(parts)), s


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("method", [OwnStep(At(2)), Nesterov("mean"), HeavyBall()], ids=lambda m: type(m).__name__)
def test_quadratics_in_rational_numbers(method, metric: str) -> None:
    """The same run with Python's fractions, written out: the lower end is what it gives, to sixteen digits."""
    rounds, q = 6, np.array([0.3, 1.7])
    asked = Setting(trace(method, DEVICES, rounds), DEVICES, 0.875, 0.5, metric)
    found, s = quadratics(asked, q, 0.01)
    told = [Fraction(asked.r0)]
    for ask, mix in zip(asked.path.asks, asked.path.mixes, strict=True):
        x = sum(Fraction(float(a)) * t for a, t in zip(ask[0], told, strict=False))
        told.append(sum(Fraction(float(c)) * (Fraction(float(b)) * x + t) for c, b, t in zip(mix, q, s, strict=True)))
    x = sum(Fraction(float(a)) * t for a, t in zip(asked.path.points[-1][0], told, strict=True))
    bend = sum(Fraction(float(w)) * Fraction(float(b)) for w, b in zip(DEVICES.weights, q, strict=True))
    exact = {"value": bend * x**2 / 2, "distance": x**2, "gradient": (bend * x) ** 2}[metric]
    if metric == "value":  # the largest value that a function with these points and slopes may have
        assert (
            float(exact) * (1 - 1e-15)
            <= reached(asked, found)
            <= pep.worst_case(method, DEVICES, rounds, 0.875, 0.5).upper
        )
    else:
        assert reached(asked, found) == pytest.approx(float(exact), rel=1e-14)
    assert found.error == pytest.approx(float(exact), rel=1e-12)


def test_data_that_no_function_has_prove_nothing() -> None:
    asked = Setting(trace(OwnStep(At(2)), DEVICES, 4), DEVICES, 1.0, 0.5, "value")
    found, _ = quadratics(asked, np.array([0.3, 1.7]), 0.01)
    assert reached(asked, found) > 0
    steep, _ = quadratics(asked, np.array([0.41, 1.7]), 0.01)  # steeper than L_1 = 0.4
    flat, _ = quadratics(asked, np.array([0.3, 0.19]), 0.01)  # flatter than mu_2 = 0.2
    far, _ = quadratics(asked, np.array([0.3, 1.7]), 0.16)  # minimiser 0.53 away
    for wrong in (steep, flat, far, replace(found, x0=found.x0 * 1.0001)):
        assert reached(asked, wrong) == 0
    bent = [rows.copy() for rows in found.slopes]
    bent[1][2] += 0.3
    assert reached(asked, replace(found, slopes=tuple(bent))) == 0


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("twins", [1, 2, 3])
@pytest.mark.parametrize("gossip", [False, True])
def test_the_lower_end_is_the_error_of_the_real_run(metric: str, twins: int, gossip: bool) -> None:
    devices = pep.repeated([0.4, 3.0], [0.1, 0.0], [1, 1 if gossip else twins])
    bound = pep.worst_case(DecentralisedGD() if gossip else OwnStep(At(2)), devices, 3, 2.0, 0.5, metric)
    assert 0 < bound.lower <= bound.upper
    assert bound.gap <= 2e-5
    assert bound.instance().error == pytest.approx(bound.lower, rel=1e-5 if metric == "value" else 1e-9)
    assert bound.instance().error <= bound.lower * (1 + 1e-9)
    assert bound.instance().residual <= 1e-4


SMALL_ERRORS = {
    "1": (OwnStep(At(3)), pep.repeated([1, 1.5], 0.5), 25, 10, 1, "value", 1.993208e-10),
    "2": (GD(), pep.repeated([1, 1.2], 0.8), 25, 10, 0, "distance", 6.11545e-27),
    "3": (Nesterov("mean"), pep.repeated([1, 1.5], 0.5), 12, 1, 0, "gradient", None),
    "4": (OwnStep(At(20)), pep.repeated([0.8, 1.5], 0.6), 40, 10, 1, "value", None),
}


@pytest.mark.parametrize("name", SMALL_ERRORS)
def test_small_errors(name: str) -> None:
    """Noise of floating point was once larger than the error itself, and the lower end above the upper one.

    The last stands for mu = 0.1, L = (1/3, 3), K = 400, At(200), which takes minutes and whose error of 8e-13 came out
    with a lower end of 1.3e-12: its own error, 6e-15, is smaller still.
    """
    *asked, known = SMALL_ERRORS[name]
    bound = pep.worst_case(*asked)
    assert 0 < bound.lower <= bound.upper
    assert bound.gap <= 1e-5
    assert known is None or bound.upper == pytest.approx(known, rel=1e-5)


@pytest.mark.parametrize("rounds", [50, 200, 400])
def test_a_replay_of_many_rounds_is_not_above_the_truth(rounds: int) -> None:
    """The replay behind that lower end, for K = 400 itself: the worst of some quadratics, which needs no solver.

    A quadratic's error follows from x <- x - sum_c w_c t_c (q_c x + s_c), here with 100 digits. Where rounding refutes
    the data the replay has to say 0.
    """
    devices = pep.repeated([1 / 3, 3], 0.1)
    setting, _ = canonical(Setting(trace(OwnStep(At(rounds // 2)), devices, rounds), devices, 10.0, 1.0, "value"))
    search = Search(setting)
    search.prepare()
    search.narrow = len(NARROW) - 1 if rounds > 200 else search.narrow  # one try takes seconds
    search._replay(worst_quadratic(search.path, search.gram, search.target, setting.r0, setting.rstar))
    q, s = scenarios(search.groups, setting.rstar)
    L, errors = [Decimal(a) for a in setting.devices.L.tolist()], []
    with localcontext(prec=100):
        for column in range(q.shape[1]):
            bend, tilt = ([Decimal(a) for a in rows[:, column].tolist()] for rows in (q, s))
            x, mean = Decimal(setting.r0), sum(L) / 2
            for k in range(rounds):
                steps = [1 / a for a in L] if k < rounds // 2 else [1 / mean] * 2
                x -= sum(t * (b * x + d) for t, b, d in zip(steps, bend, tilt, strict=True)) / 2
            errors.append(sum(bend) / 4 * x**2)
    assert search.lower <= max(errors)
    assert search.lower >= (0 if rounds > 200 else Decimal("0.9999") * max(errors))


@pytest.mark.parametrize(
    ("L", "weights", "rstar", "known"),
    [("2.5,2.5,2.5,1.2", "30,33,34,100", "1", 1.116592), ("6.46,0.11,0.4,9.96", "2,2,1,4", "0.3", 1.0219633)],
)
def test_convex_losses(L: str, weights: str, rstar: str, known: float, capsys: pytest.CaptureFixture[str]) -> None:
    """The first claimed an instance of 1.116820, whose own minimiser had a gradient; the second proved nothing."""
    asked = ["--L", L, "--mu", "0", "--weights", weights, "--rounds", "3", "--switch", "1", "--rstar", rstar]
    with pytest.raises(SystemExit):
        main(["pep", *asked, "--metric", "distance", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["lower"] <= known * (1 + 1e-6)
    assert found["upper"] >= known * (1 - 1e-6)
    assert 0 <= found["gap"] <= 1e-5


def test_a_contradiction_is_an_error_that_asks_to_be_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ownstep.pep.search.reached", lambda asked, found: 1e6)
    with pytest.raises(InternalError, match=r"mistake in ownstep.*report it"):
        pep.worst_case(OwnStep(At(1)), DEVICES, 2, 1.0, 0.3)
    with pytest.raises(SystemExit) as ended:
        main(["pep", "--L", "1,2", "--rounds", "1", "--rstar", "0.1"])
    assert ended.value.code == 1
    assert "Please report it" in capsys.readouterr().err


def test_a_contradiction_is_not_taken_for_a_failure_of_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more kinds of devices a failure leaves what fewer proved; a contradiction must not."""
    first, raised = few_kinds._rung, [OwnstepError("the solver failed"), InternalError("an instance above a proof")]

    def rung(asked: Any, on: Any, kinds: int, *rest: Any) -> few_kinds.Few:
        if kinds > few_kinds.LADDER[0]:
            raise raised[0]
        return first(asked, on, kinds, *rest)

    monkeypatch.setattr(few_kinds, "_rung", rung)
    devices = Devices.uniform([1.0, 1.5, 2.0, 3.0, 5.0], 0.1)
    asked = canonical(Setting(trace(OwnStep(At(1)), devices, 1), devices, 1.0, 0.3, "value"))[0]
    on = line(asked.path, asked.devices)
    assert on is not None
    assert few_kinds.enclose(Search(asked), on, 1e-6).kinds == few_kinds.LADDER[0]
    raised.pop(0)
    with pytest.raises(InternalError, match="above a proof"):
        few_kinds.enclose(Search(asked), on, 1e-6)


@pytest.mark.parametrize(("error", "exact", "refused"), [
    (1 + 1e-12, True, True), (1 + 1e-12, False, False), (1 + 2e-6, False, True), (1.0, True, False)
])  # fmt: skip
def test_over_networks_an_instance_above_its_proof(error: float, exact: bool, refused: bool) -> None:
    """In exact arithmetic any excess is a contradiction, in doubles one beyond rounding."""
    worst: Any = SimpleNamespace(error=error, exact=exact)
    if refused:
        with pytest.raises(InternalError, match=r"mistake in ownstep.*report it"):
            not_above(1.0, worst)
    else:
        assert not_above(1.0, worst) == 1.0
    worst.error = 0.5
    assert not_above(1.0, worst) == 0.5


def test_a_lower_end_that_does_not_survive_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ownstep.pep.search.reached", lambda asked, found: 0.0)
    bound = pep.worst_case(OwnStep(At(1)), DEVICES, 2, 1.0, 0.3)
    assert bound.lower == 0 < bound.upper
    assert bound.gap == 1
    assert "withdrawn" in bound.status
    with pytest.raises(Exception, match="no single worst instance"):
        bound.instance()


def test_what_does_not_fit_is_refused_before_it_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred different devices died inside the solver, without a word."""
    for solver in ("solve", "interior.solve"):
        monkeypatch.setattr(f"ownstep.pep.search.{solver}", lambda *_, **__: pytest.fail("it was solved"))
    monkeypatch.setattr("ownstep.pep.search.free_memory", lambda: 1e8)
    devices = pep.repeated(np.linspace(1, 9, 100), 0.1)
    with pytest.raises(
        OwnstepError, match=r"100 kinds of devices at K=2 would need about .* GB of memory, 0.1 GB are free"
    ):
        pep.worst_case(OwnStep(At(1)), devices, 2, 1.0, 0.3, symmetry=False)


def test_less_room_gives_a_worse_instance() -> None:
    """Functions further inside their class err a little less, and all of them lie below the proof."""
    setting, _ = canonical(Setting(trace(OwnStep(Never()), DEVICES, 3), DEVICES, 1.0, 0.4, "value"))
    search = Search(setting)
    search.prepare()
    search.run(1e-5)
    found = search._solve(search.best.rows)
    errors = [reached(setting, recover(setting, search.gram, found, narrow)) for narrow in (1e-7, 1e-6, 1e-4)]
    assert all(a > b > 0 for a, b in pairwise(errors))
    assert errors[0] <= search.best.proof.bound
