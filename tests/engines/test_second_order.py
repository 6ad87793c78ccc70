"""Second points, Hessians and sketches over Flower's messages: the local engine's iterates, whatever the sites do."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

pytest.importorskip("flwr", reason="a federation needs the extra [flower]")

from ownstep.engines import Outages, run
from ownstep.engines.federation import coordinator as fed
from ownstep.engines.federation import hessians, wire
from ownstep.engines.federation.secure import SecurePlus
from ownstep.methods import DANE, GIANT, LBFGS, SHED, Newton, OwnCurvature
from ownstep.methods.base import Ask, SketchWork
from ownstep.smoothness.sketch import Sketch
from ownstep.support.errors import InvalidInput, OwnstepError

from ..conftest import make_logistic
from .federation_grid import DirectGrid, apps_of

logging.getLogger("flwr").setLevel(logging.ERROR)
METHODS = {
    "lbfgs": LBFGS(),
    "newton": Newton(),
    "own": OwnCurvature(rank=2),
    "sum": OwnCurvature(rank=3, sketch="sum"),
    "giant": GIANT(0.01),
    "dane": DANE(0.1),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("missing", ["rescale", "drop", "last"])
def test_sites_that_come_and_go_are_as_absent_as_anywhere(name, missing):
    problem = make_logistic()
    apps = apps_of(problem, smoothness="adaptive")
    grid = DirectGrid(apps, lambda node, sent: node == 102 and (sent == 1 or 4 <= sent < 7))
    ours = fed.run(METHODS[name], grid, 12, fed.Terms(3, deadline=0.2, missing=missing))
    gone = Outages(((1, 0, 1), (1, 3, 6)), missing=missing)
    local = run(METHODS[name], problem, 12, smoothness="adaptive", participation=gone)
    np.testing.assert_array_equal(ours.took_part, local.took_part)
    np.testing.assert_allclose(ours.x, local.x, atol=1e-6)


@pytest.mark.parametrize("method", [GIANT(0.01), DANE(0.1), SHED(2)])
def test_what_sites_solve_and_send_on_is_what_devices_do(method):
    """Unequal sites, each message a fresh memory but for the node's own state."""
    problem = make_logistic(devices=4, features=6)
    ours = fed.run(method, DirectGrid(apps_of(problem, smoothness="adaptive")), 9, fed.Terms(4))
    local = run(method, problem, 9, smoothness="adaptive")
    np.testing.assert_allclose(ours.x, local.x, atol=1e-10)
    np.testing.assert_allclose(ours.value, local.value, atol=1e-10)
    if not isinstance(method, SHED):  # the first exchange is a gradient, the second a solution and its vector
        vector = 4 * 8 * problem.dim
        assert ours.columns["bytes_up"][1] - ours.columns["bytes_up"][0] == vector
        assert ours.columns["bytes_down"][1] - ours.columns["bytes_down"][0] == vector


def test_eigenpairs_that_continue_need_every_site():
    problem = make_logistic()
    grid = DirectGrid(apps_of(problem, smoothness="adaptive"), lambda node, sent: node == 102 and sent == 3)
    with pytest.raises(OwnstepError, match=f"needs every site in every round, missing were {problem.names[1]}"):
        fed.run(SHED(1), grid, 8, fed.Terms(3, deadline=0.2))


@pytest.mark.parametrize(("spoilt", "why"), [(np.nan, "finite"), (1e5, "by its own mu at most"), (None, "shape")])
def test_a_spoilt_solution_is_refused_the_site_named_and_the_run_goes_on(monkeypatch, spoilt, why):
    problem, calls, honest = make_logistic(), [], hessians.solved

    def solution(*arguments):
        calls.append(1)
        p = honest(*arguments)
        return p if len(calls) % 3 != 2 else p[:-1] if spoilt is None else spoilt * p  # the second of three sites

    monkeypatch.setattr(hessians, "solved", solution)
    ours = fed.run(GIANT(0.1), DirectGrid(apps_of(problem)), 8, fed.Terms(3, deadline=2.0))
    assert ours.value[-1] < ours.value[0] - 0.02
    away = ours.settings["absences"]
    assert {entry["site"] for entry in away} == {problem.names[1]}
    assert why in away[0]["why"]


@pytest.mark.parametrize("name", ["lbfgs", "newton", "sum", "giant"])
def test_sums_of_second_order_stay_sums_under_secure_aggregation(name):
    problem = make_logistic(devices=3)
    method, terms = METHODS[name], fed.Terms(3, secure=SecurePlus(clip=16.0, bits=28))
    ours = fed.run(method, DirectGrid(apps_of(problem, smoothness="adaptive")), 6, terms)
    local = run(method, problem, 6, smoothness="adaptive")
    np.testing.assert_allclose(ours.x, local.x, atol=1e-3)  # entries are rounded to multiples of 2^-23


def test_own_eigenpairs_are_refused_under_secure_aggregation():
    problem = make_logistic(devices=3)
    grid = DirectGrid(apps_of(problem, smoothness="adaptive"))
    with pytest.raises(InvalidInput, match="secure aggregation never shows"):
        fed.run(OwnCurvature(rank=2), grid, 3, fed.Terms(3, secure=SecurePlus()))


def broken(kind: str):
    """A site's sketch spoilt in one way."""

    def spoilt(sketch: Sketch):
        numbers = pack_sketch(sketch)
        if kind == "nan":
            numbers[0, 0] = np.nan
        elif kind == "not orthonormal":
            numbers[0] = 2 * numbers[0]
        elif kind == "negative":
            numbers[0, -1] = -1.0
        elif kind == "too many":
            numbers = np.vstack([numbers[:1]] * 9)
        elif kind == "wrong width":
            numbers = numbers[:, :-1]
        elif kind == "huge":
            numbers = np.zeros((3000, 4000))
        elif kind == "free":
            numbers[-1, 2] = 99.0
        elif kind == "span":
            numbers[-1, 3] = 99.0
        elif kind == "infinite trace":
            numbers[-1, 0] = np.inf
        elif kind == "overflow":
            numbers[0, -1] = 1e308
        return numbers

    return spoilt


pack_sketch = hessians.pack_sketch


@pytest.mark.parametrize(
    "kind",
    [
        "nan",
        "not orthonormal",
        "negative",
        "too many",
        "wrong width",
        "huge",
        "free",
        "span",
        "infinite trace",
        "overflow",
    ],
)
def test_a_spoilt_sketch_is_refused_the_site_named_and_the_run_goes_on(monkeypatch, kind):
    problem = make_logistic()
    apps = apps_of(problem, smoothness="adaptive")
    calls = []

    def pack(sketch):
        calls.append(1)
        return broken(kind)(sketch) if len(calls) % 3 == 2 else pack_sketch(sketch)  # the second of three sites

    monkeypatch.setattr(hessians, "pack_sketch", pack)
    ours = fed.run(OwnCurvature(rank=2), DirectGrid(apps), 8, fed.Terms(3, deadline=2.0))
    assert ours.value[-1] < ours.value[0] - 0.05
    away = ours.settings["absences"]
    assert {entry["site"] for entry in away} == {problem.names[1]}
    said = {"free": "penalty", "span": "directions", "overflow": "overflow"}.get(kind, "sketch|finite")
    assert re.search(said, away[0]["why"])


@pytest.mark.parametrize("absurd", ["eigenvalue", "trace"])
def test_more_curvature_than_the_site_s_own_constant_allows_is_not_believed(monkeypatch, absurd):
    """Finite, orthonormal and of the right shape: only L_i, which the site told when it joined, speaks against it."""
    problem, calls = make_logistic(), []

    def pack(sketch):
        calls.append(1)
        numbers = pack_sketch(sketch)
        if len(calls) % 3 == 2:  # the second of three sites
            at = (0, -1) if absurd == "eigenvalue" else (-1, 0)
            numbers[at] = 1e140
        return numbers

    monkeypatch.setattr(hessians, "pack_sketch", pack)
    ours = fed.run(OwnCurvature(rank=2), DirectGrid(apps_of(problem)), 8, fed.Terms(3, deadline=2.0))
    assert ours.value[-1] < ours.value[0] - 0.05
    away = ours.settings["absences"]
    assert {entry["site"] for entry in away} == {problem.names[1]}
    assert re.search(r"1e\+140.*by its own L at most .*: not believed", away[0]["why"])


def test_sketches_and_sums_survive_the_wire():
    rng = np.random.default_rng(0)
    x, base = rng.standard_normal(5), rng.standard_normal(5)
    vectors = np.linalg.qr(rng.standard_normal((5, 2)))[0].T
    sketch = Sketch(vectors, np.array([3.0, 1.0]), np.nan, 0.2, 1, 4)
    ask = Ask(x, np.ones(2), base=base, hessian=True, sketch=SketchWork(3))
    back = hessians.unpack_sketch(hessians.pack_sketch(sketch), ask, "a site")
    np.testing.assert_array_equal(back.vectors, vectors)
    np.testing.assert_array_equal(back.values, sketch.values)
    assert np.isnan(back.trace)
    assert (back.penalty, back.free, back.span) == (0.2, 1, 4)
    said = hessians.from_words(hessians.words(ask))
    assert (said.hessian, said.sketch) == (True, ask.sketch)
    shared = Ask(x, np.ones(2), base=base, hessian=True, sketch=SketchWork(2, shared=True))
    extra = np.arange(hessians.extra_length(shared), dtype=float)
    assert len(extra) == 5 + 15 + 2 * 5 + 4
    found = hessians.split(shared, extra, 2.0)
    np.testing.assert_array_equal(found.base, extra[:5])
    np.testing.assert_array_equal(found.hessian, extra[5:20])
    np.testing.assert_array_equal(found.shared.vectors, extra[20:30].reshape(2, 5))
    assert (found.shared.trace, found.shared.penalty, found.shared.free, found.shared.span) == (30.0, 31.0, 16, 165)
    assert wire.Reply(x, 0.0, 0.0).extra is None
