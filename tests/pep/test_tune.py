"""Designed steps: derivatives against differences, known optima, and what the command says."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from ownstep import pep
from ownstep.cli import main
from ownstep.engines import run
from ownstep.methods import GD, ITEM, OGM, At, Nesterov, OwnStep, Schedule
from ownstep.pep.design.composed import composed_steps
from ownstep.pep.design.family import Design, kinds
from ownstep.pep.design.tune import as_schedule
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares

PAPER = Devices.uniform([1 / 3, 3], 0.1)
TWINS = pep.repeated([0.5, 2.0], 0.1, [2, 1])
ROUNDS = 3


def with_momentum(devices: Devices):
    """Three rounds: one number a round and kind, then two of momentum a round."""
    place = {i: c for c, members in enumerate(kinds(devices)) for i in members}

    def family(theta: np.ndarray) -> Schedule:
        count = len(kinds(devices))
        rows = theta[: ROUNDS * count].reshape(ROUNDS, count)
        scales = tuple(tuple(row[place[i]] for i in range(len(devices))) for row in rows)
        return Schedule(scales, tuple(map(tuple, theta[ROUNDS * count :].reshape(ROUNDS, 2))))

    return family


@pytest.mark.parametrize("devices", [PAPER, TWINS], ids=["two", "twins"])
@pytest.mark.parametrize("rstar", [0.0, 0.3])
@pytest.mark.parametrize("metric", ["value", "distance", "gradient"])
def test_derivatives_are_those_of_the_worst_case(metric: str, rstar: float, devices: Devices) -> None:
    """From the dual of one solve, against central differences of worst cases proved one by one."""
    rng = np.random.default_rng(1)
    theta = np.concatenate([rng.uniform(0.7, 1.2, 2 * ROUNDS), rng.uniform(0.05, 0.3, 2 * ROUNDS)])
    family = with_momentum(devices)
    design = Design(family, devices, ROUNDS, 1.0, rstar, metric)
    point = design.evaluate(theta)
    found = design.gradient(point)

    def worst(moved: np.ndarray) -> float:
        return pep.worst_case(family(moved), devices, ROUNDS, 1.0, rstar, metric).upper

    assert point.value == pytest.approx(worst(theta), rel=1e-5)
    for j in (0, 3, 5, 7, 10):
        step = 1e-3 * np.eye(len(theta))[j]
        difference = (worst(theta + step) - worst(theta - step)) / 2e-3
        assert found[j] == pytest.approx(difference, abs=2e-3 * np.abs(found).max())


def test_the_best_single_step() -> None:
    """One round, one device, distance: 2/(L + mu), which leaves ((L - mu)/(L + mu))^2."""
    found = pep.tune(Devices.uniform([2.0], 0.5), 1, metric="distance", what="scales")
    assert found.bound.upper == pytest.approx((1.5 / 2.5) ** 2, rel=1e-4)
    assert found.method.scales[0][0] == pytest.approx(2.0 * 2 / 2.5, rel=1e-3)


@pytest.mark.parametrize(
    ("mu", "metric", "optimal"), [(0.2, "distance", ITEM("mean")), (0.0, "value", OGM("mean", horizon=2))]
)
def test_nothing_beats_the_optimal_methods_where_they_are_optimal(mu: float, metric: str, optimal) -> None:
    """One device: ITEM (distance) and OGM (convex, value) are proved optimal; the design ends there and not below."""
    devices = Devices.uniform([1.0], mu)
    best = pep.worst_case(optimal, devices, 2, metric=metric)
    found = pep.tune(devices, 2, metric=metric, what="momentum", steps=12)
    assert best.lower * (1 - 1e-6) <= found.bound.upper <= best.upper * (1 + 1e-3)


@pytest.mark.parametrize("rounds", [1, 3, 6])
def test_composed_steps_have_the_worst_case_of_their_rule(rounds: int) -> None:
    """1 / (2 (1 + 2 sum h)), proved by the engine; and the product that lets them be joined."""
    steps = composed_steps(rounds)
    assert len(steps) == rounds
    known = 1 / (2 * (1 + 2 * steps.sum()))
    convex = Devices.uniform([2.0], 0.0)
    bound = pep.worst_case(Schedule(tuple((h,) for h in steps)), convex, rounds, 0.7)
    assert bound.upper / (2.0 * 0.7**2) == pytest.approx(known, rel=1e-5)
    assert composed_steps(rounds + 1).sum() > steps.sum() + 1
    assert np.prod(steps - 1) ** 2 == pytest.approx(2 * known, rel=1e-12)


def test_a_design_without_momentum_is_no_worse_than_composed_steps() -> None:
    """At K = 3, where descents from gradient descent end above."""
    found = pep.tune(Devices.uniform([1.0], 0.0), 3, what="schedule", steps=2)
    assert found.bound.upper <= (1 + 1e-5) / (2 * (1 + 2 * composed_steps(3).sum()))
    assert "composed steps" in found.starts


def test_a_design_does_not_depend_on_units() -> None:
    """The scales are of 1/L_i: the same steps, and a worst case a b^2 times as large."""
    base = pep.tune(Devices.uniform([1.0, 3.0], 0.2), 2, 1.0, 0.1, what="scales", steps=6)
    a, b = 1e11, 1e-5
    moved = pep.tune(Devices.uniform([a, 3 * a], 0.2 * a), 2, b, 0.1 * b, what="scales", steps=6)
    np.testing.assert_allclose(moved.method.scales, base.method.scales, rtol=1e-3)
    assert moved.bound.upper == pytest.approx(a * b**2 * base.bound.upper, rel=1e-5)
    assert moved.history[-1] == pytest.approx(moved.bound.upper, rel=1e-4)


def test_common_steps_are_those_of_one_function() -> None:
    """With one step for all, devices act as their mean function: the best step is 2/(L + mu) of that."""
    devices = Devices(np.array([0.25, 0.75]), np.array([0.5, 2.5]), np.array([0.1, 0.5]))
    found = pep.tune(devices, 1, 1.0, 0.3, metric="distance", what="scales", common=True)
    L, mu = devices.L_bar, 0.4
    assert found.bound.upper == pytest.approx(((L - mu) / (L + mu)) ** 2, rel=1e-4)
    steps = np.array(found.method.scales[0]) / devices.L
    np.testing.assert_allclose(steps, 2 / (L + mu), rtol=1e-3)
    apart = pep.tune(devices, 1, 1.0, 0.3, metric="distance", what="schedule")
    assert apart.bound.upper <= found.bound.upper * (1 + 1e-6)


@pytest.fixture(scope="module")
def designs() -> dict[str, pep.Tuned]:
    return {what: pep.tune(PAPER, 3, 10, 1, what=what, steps=15) for what in ("scales", "schedule", "momentum")}


def test_each_family_does_better_than_the_one_before(designs: dict[str, pep.Tuned]) -> None:
    published = min(pep.worst_case(OwnStep(At(k)), PAPER, 3, 10, 1).upper for k in range(4))
    values = [published, *(designs[what].bound.upper for what in ("scales", "schedule", "momentum"))]
    assert all(b <= a * (1 + 1e-6) for a, b in pairwise(values))
    assert values[1] < 0.7 * published


def test_the_bound_belongs_to_the_method(designs: dict[str, pep.Tuned]) -> None:
    for found in designs.values():
        assert found.bound.upper == pytest.approx(pep.worst_case(found.method, PAPER, 3, 10, 1).upper, rel=1e-6)
        assert found.bound.upper == pytest.approx(found.history[-1], rel=1e-4)
        assert found.history == sorted(found.history, reverse=True)
        assert found.starts[found.start][1] == min(end for _, end in found.starts.values())
        assert found.bound.certify().width <= 1e-5


def test_rivals_are_what_they_are_called(designs: dict[str, pep.Tuned]) -> None:
    found = pep.rivals(PAPER, 3, 10, 1)
    assert found["GD 1/L-bar"].upper == pytest.approx(pep.worst_case(GD(), PAPER, 3, 10, 1).upper, rel=1e-9)
    tuned = next(bound for name, bound in found.items() if "tuned" in name)
    for scale in (1.4, 1.5, 1.6, 1.7, 1.8):
        assert tuned.upper <= pep.worst_case(GD(scale / PAPER.L_bar), PAPER, 3, 10, 1).upper * (1 + 1e-5)
    assert {"OGM", "ITEM", "Nesterov 1/L-bar"} < set(found)
    for name, momentum in (("Algorithm 1", None), ("own steps, item", "item")):
        best = next(bound for key, bound in found.items() if key.startswith(f"{name}, best switch"))
        every = [pep.worst_case(OwnStep(At(k), momentum=momentum), PAPER, 3, 10, 1).upper for k in range(4)]
        assert best.upper == pytest.approx(min(every), rel=1e-4)


@pytest.mark.parametrize("method", [Nesterov("mean"), OGM("mean", horizon=5), ITEM("mean")])
def test_known_methods_are_schedules(method) -> None:
    """Written as a schedule they take the same path on real data."""
    problem = make_least_squares()
    mu = np.full(3, 0.05)
    devices = Devices(problem.weights, np.array([1.0, 2.0, 4.0]), mu)
    written = as_schedule(method, devices, 5)
    ends = [run(m, problem, 5, devices=devices).x for m in (method, written)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9)


def test_a_schedule_is_not_every_method() -> None:
    with pytest.raises(InvalidInput, match="not a method that steps along grad f"):
        as_schedule(OwnStep(At(1)), PAPER, 2)


def test_steps_by_device_belong_to_their_device() -> None:
    """The designed steps on a split problem, against the update written out; and permuted with the devices."""
    problem = make_least_squares()
    L = np.array([1.0, 2.0, 3.0])
    devices = Devices(problem.weights, L)
    scales, momentum = ((0.5, 0.2, 0.4), (0.1, 0.6, 0.3)), ((0.2, 0.1), (0.3, 0.0))
    x = y = problem.x0()
    for k in range(2):
        new = x - sum(
            w * s / l * g for w, s, l, g in zip(problem.weights, scales[k], L, problem.gradients(x), strict=True)
        )
        x, y = new + momentum[k][0] * (new - y) + momentum[k][1] * (new - x), new
    np.testing.assert_allclose(run(Schedule(scales, momentum), problem, 2, devices=devices).x, x, rtol=1e-12)
    with pytest.raises(InvalidInput, match="for 3 devices, not for 2"):
        Schedule(scales).start(np.zeros(2), PAPER)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scales": ((1.0,), (1.0, math.nan))}, "finite"),
        ({"scales": ((1.0, 2.0), (1.0, 2.0, 3.0))}, "rows of scales"),
        ({"scales": ((1.0,),), "momentum": ((0.1, 0.2), (0.1, 0.2))}, "2 rows of momentum for 1"),
        ({"scales": ((1.0,),), "after": 0.0}, "after positive"),
    ],
)
def test_schedules_are_checked_when_made(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Schedule(**arguments)


def test_an_interrupt_keeps_the_best() -> None:
    told = []

    def stop(best: float, doing: str) -> None:
        told.append(best)
        if len(told) == 4:
            raise KeyboardInterrupt

    found = pep.tune(PAPER, 2, 10, 1, progress=stop)
    assert found.stopped == "interrupted"
    assert found.bound.upper == pytest.approx(min(told), rel=1e-4)
    early = pep.tune(PAPER, 2, 10, 1, patience=0.0)
    published = pep.tune(PAPER, 2, 10, 1, what="switch")
    best = min(pep.worst_case(OwnStep(At(k)), PAPER, 2, 10, 1).upper for k in range(3))
    assert early.stopped == published.stopped == "as published"
    assert early.bound.upper >= published.bound.upper == pytest.approx(best, rel=1e-6)
    again = [pep.tune(PAPER, 2, 10, 1, effort=0.0).method for _ in range(2)]
    assert again[0] == again[1] == published.method  # effort counts work: the same whatever else the machine does


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 0}, "at least one round"),
        ({"rstar": math.inf}, "finite rstar"),
        ({"what": "all"}, "what"),
        ({"patience": math.nan}, "patience must be"),
    ],
)
def test_what_cannot_be_designed_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pep.tune(PAPER, **({"rounds": 2} | arguments))


def test_what_was_found_is_kept(capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the rivals are computed leaves them out; a folder that is not there is missed before the search."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pep, "rivals", interrupted)
    setting = ["tune", "--L", "1,3", "--mu", "0.1", "--rounds", "1", "--what", "switch", "--json"]
    with pytest.raises(SystemExit) as stopped:
        main([*setting, "--out", str(tmp_path / "t.json")])
    out, err = capsys.readouterr()
    assert stopped.value.code == 0
    assert "the design is kept" in err
    assert json.loads(out) == json.loads((tmp_path / "t.json").read_text())
    monkeypatch.setattr(pep, "tune", interrupted)
    for option in ("--out", "--certify"):
        with pytest.raises(SystemExit) as stopped:
            main([*setting, option, str(tmp_path / "none" / "t.json")])
        assert stopped.value.code == 2
        assert "there is no folder" in capsys.readouterr().err


def test_command(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    setting = ["tune", "--L", "0.3333333333333333,3", "--mu", "0.1", "--rounds", "2", "--r0", "10", "--rstar", "1"]
    outputs = []
    for more in (
        ["--json", "--certify", str(tmp_path / "c.json")],
        ["--no-compare", "--out", str(tmp_path / "t.json")],
    ):
        with pytest.raises(SystemExit) as stopped:
            main([*setting, "--what", "scales", *more])
        assert stopped.value.code == 0
        outputs.append(capsys.readouterr().out)
    report = json.loads(outputs[0])
    assert report["bound"]["upper"] < min(rival["upper"] for rival in report["rivals"].values())
    assert report["certified"]["width"] <= 1e-5
    assert "designed (scales)" in outputs[1]
    saved = json.loads((tmp_path / "t.json").read_text())
    assert pep.worst_case(Schedule(**saved["method"]), PAPER, 2, 10, 1).upper == pytest.approx(report["bound"]["upper"])
