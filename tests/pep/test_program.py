"""The numbers that the solver is given, against their definitions on random vectors.

Points come from the real method, which is told gradients v + mu x + s of random v and s; every condition, radius and
metric is then computed from these vectors as it is written down, and from the rows of the program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, DecentralisedGD, HeavyBall, OwnStep
from ownstep.methods.base import Answer
from ownstep.pep.conditions import assemble, cuts
from ownstep.pep.conditions.gram import build
from ownstep.pep.proof import certificate
from ownstep.pep.search import Search
from ownstep.pep.solve.polish import _most_broken, _Problem
from ownstep.pep.solve.quadratic import worst_quadratic
from ownstep.pep.solve.sdp import Solution, blocks, limits, objective, solve
from ownstep.pep.trace.scales import expected_sizes, scenarios, tilt_moves
from ownstep.pep.trace.symbolic import Trace, trace
from ownstep.pep.trace.units import AS_GIVEN, Setting
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError
from tests.pep import independent

THREE = Devices(np.array([0.2, 0.5, 0.3]), np.array([0.5, 1.7, 3.0]), np.array([0.0, 0.1, 0.2]))
ROUND = Devices(np.array([0.2, 0.5, 0.3]), np.array([0.5, 1.7, 3.0]), np.array([0.5, 0.1, 0.2]))
TWINS = pep.repeated([0.4, 2.0, 3.0], [0.1, 0.3, 3.0], [2, 1, 3], [1.0, 2.0, 0.7])
R0, RSTAR, DIM = 1.3, 0.6, 7


class Apart(DecentralisedGD):
    """Gossip whose answer is a point per device: the errors are averages over these."""

    def point(self, state: Any) -> Any:
        return state.x


CASES = {
    "own steps": (OwnStep(At(2)), THREE, 4, "value"),
    "own steps, gradient": (OwnStep(At(1)), THREE, 3, "gradient"),
    "a quadratic": (OwnStep(At(2)), ROUND, 3, "distance"),
    "twins": (OwnStep(At(1)), TWINS, 3, "value"),
    "momentum": (HeavyBall(), THREE, 3, "value"),
    "pooled": (GD(), THREE, 3, "gradient"),
    "nothing yet": (GD(), THREE, 0, "value"),
    "gossip": (DecentralisedGD(), THREE, 3, "value"),
    "points apart": (Apart(), THREE, 2, "value"),
    "points apart, distance": (Apart(), ROUND, 2, "distance"),
    "points apart, gradient": (Apart(), THREE, 2, "gradient"),
}


@dataclass
class World:
    """A program, vectors for all its unknowns, and what they make of every point."""

    search: Search
    gram: Any
    x: Any  # by group and point
    v: Any
    tilts: Any
    points: Any
    mean: Any  # a row per column of the program
    apart: list
    values: Any  # phi by group and point
    packed: Any

    @property
    def G(self) -> Any:
        return self.mean @ self.mean.T

    @property
    def D(self) -> list:
        return [rows @ rows.T for rows in self.apart]

    def solution(self) -> Solution:
        none = np.zeros(0)
        return Solution(none, none, self.G, self.D, self.packed, "", 0, 0.0)

    def condition(self, c: int, p: int, q: int) -> float:
        """phi_q - phi_p + <v_q, x_p - x_q> + ||v_p - v_q||^2 / (2 (L - mu)), the differences included."""
        x, v, g = self.x[c], self.v[c], self.gram.groups[c]
        out = self.values[c][q] - self.values[c][p] + v[q] @ (x[p] - x[q])
        out += np.sum((v[p] - v[q]) ** 2) / (2 * (g.L - g.mu))
        if g.twins:
            x, v = self.differences(c)
            out += v[q] @ (x[p] - x[q]) + np.sum((v[p] - v[q]) ** 2) / (2 * (g.L - g.mu))
        return float(out)

    def differences(self, c: int) -> tuple[Any, Any]:
        """Points and slopes of a group's differences: columns v^0, v^1, ..., s and z; those of a quadratic s alone."""
        g, rows = self.gram.groups[c], self.apart[blocks(self.gram).index(c)]
        real = rows * self.gram.difference_scale[c][:, None]
        x, v = np.zeros((2, len(self.gram.triples[c].names), real.shape[1]))
        if g.quadratic:
            x[-1] = -real[0] / g.mu
            return x, v
        v[1:-1], x[-1] = real[:-2], real[-1]
        v[-1] = -real[-2] - g.mu * real[-1]
        return x, v


def world(name: str, sparse: bool = True) -> World:
    method, devices, rounds, metric = CASES[name]
    rng = np.random.default_rng([5, *map(ord, name)])
    search = Search(Setting(trace(method, devices, rounds), devices, R0, RSTAR, metric))
    gram = build(search.path, search.groups, R0, RSTAR, evaluate_final=metric != "distance",
                 local_optima=search.local_optima, sparse=sparse)  # fmt: skip
    groups, own = gram.groups, search.local_optima
    labels = rounds + (metric != "distance")
    of = {i: c for c, g in enumerate(groups) for i in g.members}
    tilts = rng.standard_normal((len(groups), DIM)) * own
    weights = np.array([g.weight for g in groups])
    tilts -= weights @ tilts / weights.sum()
    state = method.start(rng.standard_normal(DIM), devices)
    x, v = np.zeros((2, len(groups), labels + 1 + own, DIM))
    points = [np.atleast_2d(method.point(state))]
    known = {("x", -1, 0): points[0][0]}

    def seen(k: int, at: Any) -> list:
        """Gradients of all devices, group by group, at their points."""
        out = []
        for i in range(len(devices)):
            c = of[i]
            x[c, k + 1] = at if np.ndim(at) == 1 else at[i]
            if not groups[c].quadratic and ("v", c, k) not in known:
                known["v", c, k] = rng.standard_normal(DIM)
            v[c, k + 1] = known.get(("v", c, k), np.zeros(DIM))
            out.append(v[c, k + 1] + groups[c].mu * x[c, k + 1] + tilts[c])
        return out

    for k in range(rounds):
        ask = method.ask(state)
        told = np.array(seen(k, np.asarray(ask.x)))
        answer = Answer(gradients=told, value=0.0) if ask.mix is None else Answer(sum=ask.mix @ told, value=0.0)
        state = method.tell(state, answer)
        points.append(np.atleast_2d(method.point(state)))
        known["x", -1, k + 1] = points[-1][0]
    if metric != "distance":
        seen(rounds, points[-1][0] if len(points[-1]) == 1 else points[-1])
    for c, g in enumerate(groups):
        known["s", c, -1] = tilts[c]
        if own:
            known["z", c, -1] = -tilts[c] / g.mu if g.quadratic else rng.standard_normal(DIM)
            x[c, -1] = known["z", c, -1]
            v[c, -1] = 0 if g.quadratic else -tilts[c] - g.mu * x[c, -1]
    mean = np.stack([known[column] for column in gram.columns]) / gram.scale[:, None]
    apart = [rng.standard_normal((len(s), 3)) for s in gram.difference_scale if s is not None]
    packed = rng.standard_normal(len(gram.value_scale))
    values = [
        np.where(t.value >= 0, (packed * gram.value_scale)[t.value] if len(packed) else 0, 0) for t in gram.triples
    ]
    return World(search, gram, x, v, tilts, points, mean, apart, values, packed)


@pytest.fixture(scope="module", params=CASES)
def made(request: pytest.FixtureRequest) -> World:
    return world(request.param)


def test_rows_are_the_points_the_real_method_visits(made: World) -> None:
    gram = made.gram
    for c, (t, g) in enumerate(zip(gram.triples, gram.groups, strict=True)):
        np.testing.assert_allclose(t.x @ made.mean, made.x[c], atol=1e-11)
        np.testing.assert_allclose(t.v @ made.mean, made.v[c], atol=1e-10)
        assert t.names[:1] == ("*",)
        assert (t.names[-1] == "own") is gram.local_optima
        assert t.curvature == g.L - g.mu
        assert t.value[0] == -1
        assert g.quadratic or (t.value[1:] >= 0).all()
        if g.twins:
            x, v = made.differences(c)
            rows = made.apart[blocks(gram).index(c)]
            np.testing.assert_allclose(t.x_difference @ rows, x, atol=1e-12)
            np.testing.assert_allclose(t.v_difference @ rows, v, atol=1e-12)
    np.testing.assert_allclose(gram.tilts @ made.mean, made.tilts, atol=1e-12)
    np.testing.assert_allclose(gram.start @ made.mean, made.points[0][: len(gram.start)], atol=1e-12)
    np.testing.assert_allclose(gram.final @ made.mean, made.points[-1][: len(gram.final)], atol=1e-11)
    indices = np.concatenate([t.value[t.value >= 0] for t in gram.triples]) if len(gram.value_scale) else np.zeros(0)
    assert sorted(indices) == list(range(len(gram.value_scale)))
    assert gram.final_value == (None if made.search.asked.metric == "distance" else len(made.points))


def test_iterates_take_the_place_of_slopes_where_all_share_a_point(made: World) -> None:
    path = made.search.path
    iterates = [column for column in made.gram.columns if column[0] == "x"]
    assert iterates == [("x", -1, k) for k in range(path.rounds + 1 if path.shared else 1)]


@pytest.mark.parametrize("name", ["own steps", "twins"])
def test_columns_of_slopes_alone_say_the_same(name: str) -> None:
    made = world(name, sparse=False)
    assert sum(column[0] == "x" for column in made.gram.columns) == 1
    for c, t in enumerate(made.gram.triples):
        np.testing.assert_allclose(t.x @ made.mean, made.x[c], atol=1e-11)
        np.testing.assert_allclose(t.v @ made.mean, made.v[c], atol=1e-11)


def test_every_condition_is_the_interpolation_inequality(made: World) -> None:
    """Values, mean block and differences of all ordered pairs; the largest entry of a row is one."""
    gram, pairs = made.gram, cuts.all_pairs(made.gram)
    count = sum(
        len(t.names) * (len(t.names) - 1) for t, g in zip(gram.triples, gram.groups, strict=True) if not g.quadratic
    )
    assert len({*map(tuple, pairs.tolist())}) == len(pairs) == count
    rows = assemble.conditions(gram, pairs)
    literal = np.array([made.condition(*pair) for pair in pairs])
    np.testing.assert_allclose(rows.residuals(made.G, made.D, made.packed) * rows.size, literal, atol=1e-8)
    blocks_of = [rows.mean, rows.values, *rows.differences]
    largest = np.max([abs(b).max(axis=1).toarray().ravel() for b in blocks_of if b.shape[1]], axis=0)
    np.testing.assert_allclose(largest, 1.0, rtol=1e-14)
    excess = cuts.broken(gram, made.solution())
    for c, t in enumerate(gram.triples):
        assert excess[c].shape == (len(t.names),) * 2
        assert np.abs(excess[c].diagonal()).max() < 1e-12
        assert excess[c].any() != gram.groups[c].quadratic
    scale = np.append(gram.value_scale, 0.0)
    for (c, p, q), left in zip(pairs, literal, strict=True):
        unit = max(scale[gram.triples[c].value[[p, q]]])
        assert excess[c][p, q] == pytest.approx(max(left, 0.0) / unit, rel=1e-7, abs=1e-7)


def test_the_metric_and_the_radii_are_what_they_are_called(made: World) -> None:
    gram, metric = made.gram, made.search.asked.metric
    shared = made.search.path.shared
    w = np.array([g.weight for g in gram.groups])
    target, radii = objective(gram, metric, shared), limits(gram, R0, RSTAR)
    final = np.broadcast_to(made.points[-1], (len(w), DIM))
    last = gram.final_value
    if metric == "distance":
        literal = sum(a * x @ x for a, x in zip(w, final, strict=True))
    elif metric == "gradient":
        slope = sum(
            a * (made.v[c, last] + g.mu * final[c] + made.tilts[c])
            for c, (a, g) in enumerate(zip(w, gram.groups, strict=True))
        )
        literal = slope @ slope
    else:
        literal = sum(
            a * (g.mu / 2 * final[c] @ final[c] + made.values[c][last] + made.tilts[c] @ final[c])
            for c, (a, g) in enumerate(zip(w, gram.groups, strict=True))
        )
    found = target.size * (np.sum(target.matrix * made.G) + target.values @ made.packed)
    assert found == pytest.approx(literal, rel=1e-9)
    assert max(np.abs(target.matrix).max(), np.abs(target.values).max(initial=0)) == pytest.approx(1)
    assert len(radii.mean) == len(radii.names) == len(radii.differences) == 1 + len(w) * gram.local_optima
    assert np.sum(radii.mean[0] * made.G) == pytest.approx(made.points[0][0] @ made.points[0][0] / R0**2)
    for c in range(len(w) * gram.local_optima):
        total = np.sum(radii.mean[c + 1] * made.G)
        total += sum(
            np.sum(radii.differences[c + 1][j] * made.D[blocks(gram).index(j)])
            for j in blocks(gram)
            if radii.differences[c + 1][j] is not None
        )
        apart = made.differences(c)[0][-1] if gram.groups[c].twins else np.zeros(1)
        assert total == pytest.approx((made.x[c, -1] @ made.x[c, -1] + apart @ apart) / RSTAR**2)
    problem = _Problem(gram, target, R0, RSTAR)
    literal_heads = [made.points[0][0] / R0, *(made.x[c, -1] / RSTAR for c in range(len(w) * gram.local_optima))]
    np.testing.assert_allclose(problem.heads @ made.mean, literal_heads, atol=1e-11)
    np.testing.assert_allclose(problem.outside(made.mean), [h @ h - 1 for h in literal_heads], atol=1e-9)


@pytest.mark.parametrize("name", ["own steps", "a quadratic", "pooled", "momentum"])
def test_polishing_reads_the_same_conditions(name: str) -> None:
    made = world(name)
    gram, asked = made.gram, made.search.asked
    left = _Problem(gram, objective(gram, asked.metric, True), R0, RSTAR).left(made.mean, made.packed)
    scale, seen = np.append(gram.value_scale, 0.0), np.zeros(left.shape, bool)
    for c, p, q in cuts.all_pairs(gram):
        unit = max(scale[gram.triples[c].value[[p, q]]])
        assert left[c, p, q] == pytest.approx(made.condition(c, p, q) / unit, rel=1e-8, abs=1e-8)
        seen[c, p, q] = True
    assert (left[~seen] == -1e9).all()
    worst = _most_broken(left)
    for c in range(len(left)):
        for p in range(left.shape[1]):
            row, column = left[c, p], left[c, :, p]
            assert worst[c, p, row.argmax()] == (row.max() > 1e-10)
            assert worst[c, column.argmax(), p] == (column.max() > 1e-10)
    assert worst.sum() <= 2 * left.shape[0] * left.shape[1]


def test_core_conditions_and_hubs(made: World) -> None:
    """Neighbours and optima; a hub with everything; in both directions, and nothing of a quadratic."""
    gram, core, own = made.gram, set(), made.gram.local_optima
    hub = min(2, len(gram.triples[0].names) - 1)
    around = set()
    for c, g in enumerate(gram.groups):
        if g.quadratic:
            continue
        last = len(gram.triples[c].names) - 1
        wanted = {(a, b) for a in range(last + 1) for b in range(last + 1) if a != b and 0 in (a, b)}
        rounds = range(1, last + 1 - own)
        wanted |= {(a, b) for a in rounds for b in rounds if abs(a - b) == 1}
        wanted |= {(a, b) for a in range(1, last + 1) for b in range(1, last + 1) if own and a != b and last in (a, b)}
        core |= {(c, *pair) for pair in wanted}
        around |= {(c, *pair) for k in range(last + 1) if k != hub for pair in ((k, hub), (hub, k))}
    found = [*map(tuple, cuts.core_pairs(gram).tolist())]
    assert (len(found), {*found}) == (len(core), core)
    found = [*map(tuple, cuts.hub_pairs(gram, hub).tolist())]
    assert (len(found), {*found}) == (len(around), around)
    pairs = cuts.Pairs(cuts.core_pairs(gram))
    assert pairs.add(cuts.hub_pairs(gram, hub)) == len(around - core)
    assert pairs.add(cuts.all_pairs(gram)) == len(cuts.all_pairs(gram)) - len(core | around)
    assert len(pairs) == len(pairs.array()) == len(cuts.all_pairs(gram))
    assert pairs.array()[: len(core)].tolist() == cuts.core_pairs(gram).tolist()


def test_points_to_look_at_next() -> None:
    """The one in most of what is broken, none of those known, and none where nothing is; mixes that change."""
    made = world("own steps")
    score = sum(e.sum(axis=0) + e.sum(axis=1) for e in cuts.broken(made.gram, made.solution()))
    order = [int(i) for i in np.argsort(-score)]
    assert cuts.worst_point(made.gram, made.solution(), []) == order[0]
    assert cuts.worst_point(made.gram, made.solution(), order[:2]) == order[2]
    assert cuts.worst_point(made.gram, made.solution(), order) is None
    assert cuts.turning_points(made.search.path) == [3]
    assert cuts.turning_points(trace(GD(), THREE, 4)) == []
    assert cuts.turning_points(trace(OwnStep(At(1)), THREE, 4)) == [2]
    assert cuts.turning_points(trace(DecentralisedGD(), THREE, 4)) == []


@pytest.mark.parametrize("size", [1, 2, 5])
def test_triangles(size: int) -> None:
    """Inner products of the stored vectors are those of the matrices."""
    rng = np.random.default_rng(size)
    a, b = (m + m.T for m in rng.standard_normal((2, size, size)))
    assert len(assemble.pack(a)) == assemble.triangle(size) == sum(range(size + 1))
    assert assemble.pack(a) @ assemble.pack(b) == pytest.approx(np.sum(a * b))
    np.testing.assert_allclose(assemble.unpack(assemble.pack(a), size), a, atol=1e-15)
    u, v, d = rng.standard_normal((3, 4, size)) * (rng.random((3, 4, size)) < 0.5)
    factor = rng.standard_normal(4)
    rows = assemble.quadratics(u, v, d, factor).toarray()
    for row, x, y, z, f in zip(rows, u, v, d, factor, strict=True):
        np.testing.assert_allclose(row, assemble.pack((np.outer(x, y) + np.outer(y, x)) / 2 + f * np.outer(z, z)))


@pytest.mark.parametrize("name", CASES)
def test_the_worst_of_some_quadratics(name: str) -> None:
    """Its error is the largest of real runs on these quadratics, it meets all conditions, and its z are minimisers."""
    made = world(name)
    method, devices, rounds, metric = CASES[name]
    gram, asked = made.gram, made.search.asked
    target, radii = objective(gram, metric, made.search.path.shared), limits(gram, R0, RSTAR)
    found = worst_quadratic(asked.path, gram, target, R0, RSTAR)
    q, s = scenarios(list(gram.groups), RSTAR if gram.local_optima else 0.0)
    w = np.array([g.weight for g in gram.groups])
    np.testing.assert_allclose(w @ s, 0, atol=1e-15)
    of = {i: c for c, g in enumerate(gram.groups) for i in g.members}
    errors = []
    for bend, tilt in zip(q.T, s.T, strict=True):
        each, lean = (np.array([row[of[i]] for i in range(len(devices))]) for row in (bend, tilt))
        assert all(abs(t) <= RSTAR * b * (1 + 1e-12) for t, b in zip(tilt, bend, strict=True))
        state = method.start(np.array([R0]), devices)
        for _ in range(rounds):
            ask = method.ask(state)
            slopes = each[:, None] * np.broadcast_to(ask.x, (len(devices), 1)) + lean[:, None]
            told = Answer(gradients=slopes, value=0.0) if ask.mix is None else Answer(sum=ask.mix @ slopes, value=0.0)
            state = method.tell(state, told)
        x = np.broadcast_to(method.point(state), (len(devices), 1))[:, 0]
        slope = devices.weights @ (each * x + lean)
        value = devices.weights @ (each / 2 * x**2 + lean * x)
        errors.append({"value": value, "distance": devices.weights @ x**2, "gradient": slope**2}[metric])
    error = target.size * (np.sum(target.matrix * found.gram) + target.values @ found.values)
    assert error == pytest.approx(max(errors), rel=1e-9)
    rows = assemble.conditions(gram, cuts.all_pairs(gram))
    assert rows.residuals(found.gram, found.differences, found.values).max(initial=0) <= 1e-9
    assert all(np.sum(m * found.gram) <= 1 + 1e-9 for m in radii.mean)
    best = int(np.argmax(errors))
    size, directions = np.linalg.eigh(found.gram)
    thin = directions[:, -1] * math.sqrt(size[-1])
    thin *= np.sign(gram.start[0] @ thin)
    assert gram.start[0] @ thin == pytest.approx(R0)
    for c, t in enumerate(gram.triples):
        if gram.local_optima and q[c, best] > 0:
            assert t.x[-1] @ thin == pytest.approx(-s[c, best] / q[c, best], abs=1e-12)


def test_expected_sizes_are_the_largest_of_these_runs(made: World) -> None:
    """Points, slopes (q - mu) x and values (q - mu) x^2, at least 0.3 of what smoothness allows at the point."""
    path, gram = made.search.path, made.gram
    rstar, final = RSTAR if gram.local_optima else 0.0, made.search.asked.metric != "distance"
    sizes = expected_sizes(path, list(gram.groups), R0, rstar, evaluate_final=final)
    q, s = scenarios(list(gram.groups), rstar)
    runs = []
    for bend, tilt in zip(q.T, s.T, strict=True):
        told, asks = [R0], []
        for ask, mix in zip(path.asks, path.mixes, strict=True):
            asks.append(np.broadcast_to([row[: len(told)] @ told for row in ask], bend.shape))
            slopes = bend * asks[-1] + tilt
            if mix is None:
                told += list(slopes)
            else:
                weights = [mix[list(g.members)].sum() for g in gram.groups]
                told.append(np.dot(weights, slopes))
        ends = [np.array([row[: len(told)] @ told[: len(row)] for row in p]) for p in path.points]
        runs.append((asks + [np.broadcast_to(ends[-1], bend.shape)] * final, ends))
    np.testing.assert_allclose(
        sizes.points, [max(np.abs(r[1][k]).max() for r in runs) for k in range(path.rounds + 1)], rtol=1e-9
    )
    for k in range(path.rounds + final):
        visited = max(np.abs(r[0][k]).max() for r in runs)
        for c, g in enumerate(gram.groups):
            slope = max(abs((q[c, j] - g.mu) * r[0][k][c]) for j, r in enumerate(runs))
            value = max((q[c, j] - g.mu) * r[0][k][c] ** 2 for j, r in enumerate(runs))
            least = 0.3 * (g.L - g.mu) * visited
            assert sizes.slopes[c, k] == pytest.approx(max(slope, least), rel=1e-9, abs=1e-14)
            assert sizes.values[c, k] == pytest.approx(max(value, least * visited), rel=1e-9, abs=1e-14)
    assert tilt_moves(path, list(gram.groups)) == (made.search.asked.path.rounds > 0 and gram.local_optima)


def test_no_unit_is_smaller_than_what_rounding_leaves() -> None:
    """Points that are zero on all quadratics have 1e-15 of the largest point for their size."""
    rows = tuple(np.array([row]) for row in ([1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]))
    path, groups = Trace(rows[:2], (THREE.weights,) * 2, rows), list(world("own steps").gram.groups)
    span = np.array([g.L - g.mu for g in groups])
    sizes = expected_sizes(path, groups, 8.0, 0.0, evaluate_final=False)
    np.testing.assert_allclose(sizes.points, [8.0, 8e-15, 8e-15])
    np.testing.assert_allclose(sizes.slopes[:, 1], 8e-15 * span)
    np.testing.assert_allclose(sizes.values[:, 1], 64e-30 * span)
    none = expected_sizes(Trace((), (), rows[:1]), groups, 8.0, 0.0, evaluate_final=False)
    np.testing.assert_allclose(none.points, [8.0])
    assert none.slopes.shape == none.values.shape == (len(groups), 0)


def test_units_of_the_columns(made: World) -> None:
    """The expected size of what a column holds; tilts as long as the radius lets the flattest device be tilted."""
    gram, path = made.gram, made.search.path
    rstar, final = RSTAR if gram.local_optima else 0.0, made.search.asked.metric != "distance"
    sizes = expected_sizes(path, list(gram.groups), R0, rstar, evaluate_final=final)
    flattest = min(g.weight * g.L for g in gram.groups)
    for (kind, c, k), unit in zip(gram.columns, gram.scale, strict=True):
        wanted = {
            "x": lambda k=k: R0 if k == 0 else sizes.points[k],
            "v": lambda c=c, k=k: sizes.slopes[c, k],
            "s": lambda c=c: max(flattest / gram.groups[c].weight, gram.groups[c].mu) * RSTAR,
            "z": lambda: RSTAR,
        }[kind]()
        assert unit == pytest.approx(wanted)
    heaviest = int(np.argmax([g.weight for g in gram.groups]))
    tilted = [c for kind, c, _ in gram.columns if kind == "s"]
    assert tilted == [c for c in range(len(gram.groups)) if c != heaviest and gram.local_optima]
    for c, t in enumerate(gram.triples):
        g = gram.groups[c]
        if g.quadratic:
            continue
        own = [(g.L - g.mu) * RSTAR**2] if gram.local_optima else []
        np.testing.assert_allclose(gram.value_scale[t.value[1:]], [*sizes.values[c], *own])
        if g.twins:
            apart = [*sizes.slopes[c], math.sqrt(g.L * (g.L - g.mu)) * RSTAR, RSTAR]
            np.testing.assert_allclose(gram.difference_scale[c], apart)


@pytest.mark.parametrize("name", ["own steps", "twins", "a quadratic", "gossip", "pooled"])
def test_solutions_are_feasible_and_meet(name: str) -> None:
    """Both objectives of the solver agree, its Gram matrix breaks nothing, and the repaired multipliers prove it."""
    made = world(name)
    gram, metric = made.gram, made.search.asked.metric
    target, radii = objective(gram, metric, made.search.path.shared), limits(gram, R0, RSTAR)
    rows = assemble.conditions(gram, cuts.all_pairs(gram))
    found = solve(gram, rows, target, radii, margin=1e-9)
    assert found.status == "Solved"
    assert found.iterations > 0
    reached = np.sum(target.matrix * found.gram) + target.values @ found.values
    assert reached == pytest.approx(found.limits.sum(), rel=1e-5)
    assert rows.residuals(found.gram, found.differences, found.values).max() <= 1e-7
    for number, m in enumerate(radii.mean):
        apart = [radii.differences[number][c] for c in blocks(gram)]
        total = np.sum(m * found.gram)
        total += sum(np.sum(a * d) for a, d in zip(apart, found.differences, strict=True) if a is not None)
        assert total <= 1 + 1e-6
    assert all(np.linalg.eigvalsh(m)[0] >= -1e-8 for m in (found.gram, *found.differences))
    proof = certificate.repair(gram, rows, target, radii, found)
    left = target.values - rows.values.T @ np.maximum(found.multipliers, 0.0)
    assert proof.repaired == np.abs(left).max(initial=0) < 1e-6
    np.testing.assert_allclose(rows.values.T @ proof.multipliers, target.values, atol=1e-13)
    made_of = certificate.slacks(gram, rows, target, radii, proof.limits, proof.multipliers)
    assert 0 < proof.slack <= min(np.linalg.eigvalsh(m)[0] for m in made_of)
    assert proof.bound == pytest.approx(target.size * reached, rel=1e-4)
    assert proof.bound > target.size * proof.limits.sum()  # rounded up, never down
    said = certificate.certificate(gram, rows, radii, proof, metric, target.size, AS_GIVEN)
    assert sum(said.radii.values()) == pytest.approx(said.bound)
    assert said.multipliers == pytest.approx({
        f"{certificate._who(gram, c)}: f({gram.triples[c].names[p]}) >= f({gram.triples[c].names[q]}) + ...":
            factor * target.size / size
        for (c, p, q), factor, size in zip(rows.pairs, proof.multipliers, rows.size, strict=True) if factor > 0
    })  # fmt: skip


@pytest.mark.parametrize("metric", ["value", "distance", "gradient"])
def test_points_apart_from_beginning_to_end(metric: str) -> None:
    """Against a program of all devices on another solver, and the real method on the worst functions."""
    method, devices = (
        Apart("own", order="atc"),
        Devices(np.array([0.3, 0.7]), np.array([0.5, 2.0]), np.array([0.1, 0.0])),
    )
    bound = pep.worst_case(method, devices, 2, R0, RSTAR, metric)
    assert bound.upper == pytest.approx(independent.worst_case(method, devices, 2, R0, RSTAR, metric).value, rel=1e-5)
    assert bound.gap <= 1e-5
    found = bound.instance()
    assert found.error == pytest.approx(bound.lower, rel=1e-5)
    end = found.points[-1]
    slopes = [found.loss(i).gradient(end[i]) for i in range(2)]
    values = [found.loss(i)(end[i]) - found.loss(i)(0 * end[i]) for i in range(2)]
    literal = {
        "value": devices.weights @ values,
        "distance": devices.weights @ np.sum(end**2, axis=1),
        "gradient": np.sum((devices.weights @ slopes) ** 2),
    }[metric]
    assert found.error == pytest.approx(literal, rel=1e-9)


def test_parameters_that_move_the_slack_are_chosen_within_their_reach() -> None:
    """Slack that grows with the metric's own matrix, up to a quarter one way and an eighth the other: 5/8 are left."""
    made = world("a quadratic")
    gram = made.gram
    target, radii = objective(gram, "distance", True), limits(gram, R0, RSTAR)
    rows = assemble.conditions(gram, cuts.all_pairs(gram))
    still = solve(gram, rows, target, radii, margin=1e-9)
    assert still.moves.size == 0
    slopes, reach = np.outer([1.0, -1.0], assemble.pack(target.matrix)), np.array([0.25, 0.125])
    moved = solve(gram, rows, target, radii, margin=1e-9, slopes=slopes, reach=reach)
    np.testing.assert_allclose(moved.moves, [0.25, -0.125], atol=1e-6)
    assert moved.limits.sum() == pytest.approx(still.limits.sum() * 5 / 8, rel=1e-5)
    assert np.sum(target.matrix * moved.gram) * 5 / 8 == pytest.approx(moved.limits.sum(), rel=1e-5)
    assert rows.residuals(moved.gram, moved.differences, moved.values).max() <= 1e-7
    assert 0 < moved.seconds < 600
    with pytest.raises(OwnstepError, match="without an answer"):
        solve(gram, rows, target, radii, margin=1e-9, seconds=1e-9)
    for options in ({"chordal": False}, {"scaling": False}):
        other = solve(gram, rows, target, radii, margin=1e-9, **options)
        assert other.limits.sum() == pytest.approx(still.limits.sum(), rel=1e-5)
