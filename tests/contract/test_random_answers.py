"""Methods with a rule, against the same rule written apart, on answers drawn at random.

No function gives such answers: values rise and fall, gradients turn, devices come and go, a gradient vanishes. So every
branch is entered many times, also those that a run on a smooth function enters once in a while or never.
"""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from ownstep.methods import GIANT, LBFGS, AdGD, Answer, BarzilaiBorwein, NesterovRestart, Newton, OwnStep
from ownstep.methods.search.wolfe import Search
from ownstep.plan import Devices

W = np.array([0.2, 0.5, 0.3])
DEVICES = Devices(W, np.array([1.0, 2.0, 5.0]), np.array([0.9, 1.8, 4.0]), L_pooled=2.2)
norm = np.linalg.norm


def near(a, b, off=1e-9):
    """Equal up to rounding, which grows with the numbers; nan equals nan."""
    return bool(np.all((abs(a - b) <= off * (1 + abs(b))) | ((a != a) & (b != b))))


def secant(s, y):
    return y @ y / (s @ y) if s @ y > 0 else norm(y) / norm(s)


class Guarded:
    """Zhang and Hager's test around a step t along -g: C - f, Q and M, and what follows from passing and failing."""

    def __init__(self, x0):
        self.x, self.base, self.g, self.t, self.f = x0, x0, 0 * x0, None, None
        self.M, self.above, self.Q = 0.0, 0.0, 1.0

    def go(self, g, t):
        self.base, self.g, self.t, self.x = self.x, g, t, self.x - t * g

    def first(self, f, g):
        far = max(1, norm(self.x))
        t = 0.01 * min(max(abs(f) / norm(g), 2**-26 * far), far) / norm(g) if norm(g) > 0 else 0.0
        self.f = f
        self.go(g, t)

    def nothing_seen(self, f):
        return math.isnan(f) or self.t is None or norm(self.x - self.base) <= 2**-40 * norm(self.x)

    def again(self, f, g):
        """Nothing was measured: the same step once more, or a first one."""
        if math.isnan(f):
            return
        if self.t:
            self.f = f
            self.go(g, self.t)
        else:
            self.first(f, g)

    def passes(self, rise):
        return rise <= self.above - min(self.t, 1 / self.M if self.M else math.inf) * self.g @ self.g / 2

    def retreat(self):
        if self.t * self.M <= 1:
            self.M = 2 / self.t
        self.t = 1 / self.M
        self.x = self.base - self.t * self.g

    def keep(self, rise, g, L):
        """C is the mean of the values with weights 0.85^j, and f where that is lower."""
        C = (0.85 * self.Q * (self.f + self.above) + self.f + rise) / (0.85 * self.Q + 1)
        self.Q, self.f = 0.85 * self.Q + 1, self.f + rise
        self.above = max(0.0, C - self.f)
        self.go(g, 1 / L if L > 0 else 2 * self.t)


class BB(Guarded):
    """Barzilai and Borwein's step."""

    def __init__(self, method, x0):
        super().__init__(x0)
        self.secant = method.secant

    def tell(self, a):
        if self.nothing_seen(a.value):
            return self.again(a.value, a.sum)
        s, y = self.x - self.base, a.sum - self.g
        self.M = max(self.M, norm(y) / norm(s))
        if not self.passes(a.value - self.f):
            return self.retreat()
        L = {"short": secant(s, y), "long": max(0, s @ y) / (s @ s), "mean": norm(y) / norm(s)}[self.secant]
        return self.keep(a.value - self.f, a.sum, min(L, 2 * self.M))


class Malitsky(Guarded):
    """AdGD: f is not looked at."""

    def __init__(self, method, x0):
        super().__init__(x0)
        self.version, self.theta = method.version, math.inf

    def tell(self, a):
        if self.nothing_seen(a.value):
            return self.again(a.value, a.sum)
        L, t = norm(a.sum - self.g) / norm(self.x - self.base), self.t
        if self.version == 1:
            new = min(math.sqrt(1 + self.theta) * t, 1 / (2 * L))
        elif self.theta == math.inf:
            new = 1 / math.sqrt(2) / L
        else:
            new = math.sqrt(2 / 3 + self.theta) * t
            if 2 * (t * L) ** 2 > 1:
                new = min(new, t / math.sqrt(2 * (t * L) ** 2 - 1))
        self.theta = new / t
        return self.go(a.sum, new)


class Adaptive(Guarded):
    """Own steps with measured curvature."""

    def __init__(self, method, x0):
        super().__init__(x0)
        self.L, self.c, self.share, self.own, self.alpha = np.full(3, np.nan), None, None, None, 0.0
        self.failed, self.over, self.rise = 0, False, 0.0

    @property
    def phase(self):
        return "local" if self.alpha else "common" if self.over else "probe"

    @property
    def mean_step(self):
        return math.nan if self.t is None else self.alpha * self.c.sum() if self.alpha else self.t

    def tell(self, a):
        if self.nothing_seen(a.value):
            if not math.isnan(a.value):
                self.rise = self.alpha = 0.0
            return self.again(a.value, a.sum)
        s, y = self.x - self.base, a.sum - self.g
        L = np.where(np.isnan(a.curvature), self.L, np.fmax(a.curvature, self.L / 2))
        known = ~np.isnan(L)
        mean = W[known] @ L[known] / W[known].sum() if known.any() else math.inf
        trusted = a.present is None and (self.rise != 0 or secant(s, y) <= mean * (1 + 1e-9))
        if not trusted and mean == math.inf:
            self.rise = 0.0
            return self.again(a.value, a.sum)
        self.L, self.M = L, max(self.M, norm(y) / norm(s) if trusted else mean)
        rise = self.rise + a.value - a.previous  # f against f(x^k), over the points tried in between
        if not math.isnan(a.previous) and not self.passes(rise):
            self.rise = rise
            if not self.alpha:
                return self.retreat()
            self.failed, self.alpha, self.c = self.failed + 1, 0.0, None
            self.over = self.over or self.failed >= 3
            self.x = self.base - self.t * self.g
            return None
        self.rise = self.alpha = 0.0
        self.keep(0.0 if math.isnan(rise) else rise, a.sum, min(secant(s, y), 2 * self.M) if trusted else mean)
        if self.over or np.isnan(L).any():
            return None
        if self.c is None:
            self.over = (W @ L) * (W @ (1 / L)) < 1.05
            self.c, self.share = None if self.over else W / L, None
            return None
        share = norm(a.also) / norm(a.sum) if norm(a.sum) else norm(a.also)
        if self.share is not None and share < self.share / 4:
            self.over, self.c = True, None
            return None
        known_before = self.share is not None and a.present is None
        self.alpha = max(1, 1 / secant(s, a.also - self.own)) if known_before else 1.0
        self.share, self.own = share if self.share is None else self.share, a.also
        self.x = self.base - self.alpha * a.also
        return None


def drawn(rng, k, ask, previous):
    """An answer: as a rule a gradient that has grown by a random matrix times the move, and a value up or down.

    At first few devices come, and hardly any has a curvature to tell.
    """
    kinds = ["all", "some", "nobody", "flat", "wild", "agreed"]
    kind = rng.choice(kinds, p=[0.4, 0.5, 0.02, 0.04, 0.04, 0.0] if k < 6 else [0.63, 0.1, 0.04, 0.05, 0.06, 0.12])
    here = rng.random(3) < 0.6 if kind == "some" else np.full(3, kind != "nobody")
    present = None if here.all() else here
    if not here.any():
        return Answer(0 * ask.x, math.nan, present=present, curvature=np.full(3, math.nan), also=0 * ask.x)
    x, g, f = previous
    A = rng.standard_normal((3, 3))
    new = g + (A @ A.T + 0.2 * np.eye(3)) @ (ask.x - x) if kind != "wild" and g.any() else rng.standard_normal(3)
    new = 0.0 * new if kind == "flat" else new
    value = f + rng.choice([-0.3, -0.05, 0.02, 1.0]) * rng.random()
    told = here & (rng.random(3) < 0.9) & (k >= 6 or rng.random() < 0.1)
    measured = np.where(told, rng.uniform(0.5, 8, 3), math.nan)
    if kind == "agreed":  # every device measures what the pooled gradients show, but for rounding
        measured = np.full(3, secant(ask.x - x, new - g)) if (ask.x != x).any() else measured
    before = f if rng.random() < 0.85 else math.nan
    also = rng.choice([0.0, 0.05, 1.0], p=[0.1, 0.45, 0.45]) * (new if new.any() else A[0]) * rng.uniform(0.2, 2, 3)
    return Answer(new, float(value), present=present, curvature=measured, previous=before, also=also)


@pytest.mark.parametrize(
    ("method", "rule"),
    [
        (BarzilaiBorwein(), BB), (BarzilaiBorwein("long"), BB), (BarzilaiBorwein("mean"), BB), (AdGD(), Malitsky),
        (AdGD(1), Malitsky), (OwnStep(smoothness="adaptive"), Adaptive),
    ],
    ids=["short", "long", "mean", "adgd-2", "adgd-1", "adaptive"],
)  # fmt: skip
def test_measured_steps_follow_their_rule(method, rule):
    entered = dict.fromkeys(["local", "probe", "common"], 0)
    for seed in range(28):
        rng = np.random.default_rng(seed)
        x0 = rng.standard_normal(3) if seed % 4 else np.zeros(3)
        state, spec, last = method.start(x0, DEVICES), rule(method, x0), (x0, np.zeros(3), 1.0)
        for k in range(40):
            ask, said = method.ask(state), method.progress(state)
            assert state.k == k
            assert (ask.mix == W).all()
            assert near(ask.x, spec.x), f"seed {seed}, round {k}"
            assert method.point(state) is ask.x
            if rule is not Malitsky:
                assert near(state.largest, spec.M)
                assert near(state.slack, spec.above)
                assert near(state.count, spec.Q)
            if rule is Adaptive:
                assert ask.curvature
                assert near(state.rise, spec.rise)
                assert state.failed == spec.failed
                assert (ask.also is None) == (spec.c is None)
                if spec.c is not None:
                    assert near(ask.also, spec.c)
                assert said.phase == spec.phase
                assert near(said.step, spec.mean_step)
                entered[said.phase] += 1
            else:
                assert said.phase == "common"
                assert near(said.step, math.nan if spec.t is None else spec.t)
            answer = drawn(rng, k, ask, last)
            if not math.isnan(answer.value):
                last = ask.x, answer.sum, answer.value
            state = method.tell(state, answer)
            spec.tell(answer)
            if norm(spec.x) > 1e6 or norm(answer.sum) > 1e6:
                break
    assert rule is not Adaptive or min(entered.values()) > 50


def test_a_failed_try_is_forgotten_where_nothing_can_be_seen():
    """x is x^k itself: the last step again, and neither an own step nor a rise is left to account for."""
    method, x0 = OwnStep(smoothness="adaptive"), np.array([1.0, 2.0, 3.0])
    state = dataclasses.replace(method.start(x0, DEVICES), step=0.5, value=1.0, rise=0.7, alpha=0.4, k=9)
    told = method.tell(state, Answer(np.array([2.0, 0.0, 4.0]), 5.0, curvature=np.ones(3)))
    assert (told.rise, told.alpha, told.k, told.value) == (0.0, 0.0, 10, 5.0)
    assert told.x.tolist() == [0.0, 2.0, 1.0]


@pytest.mark.parametrize(("measured", "largest"), [(2.0, math.sqrt(2)), (2 - 1e-12, math.sqrt(2)), (1.9, 1.9)])
def test_the_pooled_secant_is_believed_up_to_rounding(measured, largest):
    """||y||^2 / <s, y> = 2 is at most the devices' mean for convex f_i; where it is not, M is their mean, too."""
    method, x0, s = OwnStep(smoothness="adaptive"), np.zeros(3), np.array([1.0, 0.0, 0.0])
    state = dataclasses.replace(method.start(x0, DEVICES), x=s, step=0.1, value=1.0)
    told = method.tell(state, Answer(np.array([1.0, 1.0, 0.0]), 0.0, curvature=np.full(3, measured), previous=1.0))
    assert told.largest == pytest.approx(largest, rel=1e-6)
    assert told.step == pytest.approx(1 / measured)


@pytest.mark.parametrize(("present", "alpha"), [(None, 4.0), (np.array([True, True, False]), 1.0)])
def test_an_own_step_is_lengthened_only_where_the_own_sum_is_of_all(present, alpha):
    """Barzilai and Borwein's step of the own sum compares two sums, which have to be of the same devices."""
    method, x0, s = OwnStep(smoothness="adaptive"), np.array([1.0, 2.0, 3.0]), np.array([0.0, 4.0, 0.0])
    mix, own = (0.1, 0.2, 0.3), np.array([0.0, 1.0, 0.0])
    state = dataclasses.replace(
        method.start(x0, DEVICES), x=x0 + s, gradient=np.array([1.0, -2.0, 0.0]), step=0.1, value=1.0, mix=mix, own=own,
        size=0.5, curvature=(1.0, 2.0, 3.0), largest=1.0,
    )  # fmt: skip
    also = own + s / 4
    answer = Answer(
        np.array([1.0, 2.0, 0.0]), -9.0, present=present, curvature=np.full(3, 2.0), previous=1.0, also=also
    )
    told = method.tell(state, answer)
    assert told.alpha == pytest.approx(alpha)
    assert near(told.x, x0 + s - alpha * also)
    assert told.size == 0.5


class Line:
    """A search along directions, as :mod:`ownstep.methods.search.searched` describes it, around ``Search``."""

    def __init__(self, method, x0):
        self.method, self.x, self.base, self.g, self.f = method, x0, x0, None, None
        self.kept, self.length, self.pairs = 0, 1.0, []
        self.plain = self.stalled = self.partial = self.solving = self.at_base = False
        self.p, self.H, self.search = 0 * x0, None, SimpleNamespace(step=0.0, tries=0)

    def tell(self, a):
        nobody, absent = a.present is not None and not any(a.present), a.present is not None and not all(a.present)
        if nobody:
            return None
        if self.solving:
            self.solving = False
            return self.along(-a.solved, 1.0)
        self.partial |= absent
        if not self.kept:
            return self.keep(a) if math.isfinite(a.value) else None
        if a.base is not None:
            return self.compared(a)
        if absent or self.stalled:
            return None
        seen = self.search.seen(a.value, float(a.sum @ self.p))
        if seen.done == "found":
            self.learn(a)
            return self.keep(a)
        if seen.done == "failed":
            return self.fail()
        self.search = seen
        return self.move()

    def compared(self, a):
        self.f, self.g, self.stalled = a.base_value, a.base, False
        slope, t = self.g @ self.p, self.search.step
        if slope >= 0 or self.at_base:
            return self.onward()
        rise, tries = a.value - self.f, self.search.tries + 1
        if rise <= 1e-3 * t * slope + 2**-50 * abs(self.f):
            self.learn(a)
            return self.keep(a)
        if tries == 20:
            self.search = SimpleNamespace(step=t, tries=0)
            return self.fail()
        best = t**2 * -slope / 2 / (rise - t * slope) if math.isfinite(rise) else 0
        self.search = SimpleNamespace(step=np.clip(best, t / 10, t / 2), tries=tries)
        return self.move()

    def learn(self, a):
        s, y = self.x - self.base, a.sum - self.g
        if s @ y > np.finfo(float).eps * norm(s) * norm(y):
            self.pairs = [*self.pairs, (s, y)][-getattr(self.method, "memory", 1) :]

    def keep(self, a):
        if self.kept:
            self.length = norm(self.x - self.base)
        self.base, self.g, self.f, self.H = self.x, a.sum, a.value, a.hessian
        self.kept, self.plain = self.kept + 1, False
        self.onward()

    def onward(self):
        if self.plain:
            return self.along(-self.g, 0)
        if isinstance(self.method, GIANT):
            if not self.g.any():
                self.plain = True
                return self.along(-self.g, 0)
            self.x, self.solving, self.at_base = self.base, True, True
            return None
        if isinstance(self.method, Newton):
            H = np.zeros((3, 3))
            H[np.triu_indices(3)] = self.H
            values, V = np.linalg.eigh(H, UPLO="U")
            return self.along(-V @ (V.T @ self.g / abs(values)), 1)
        if not self.pairs:
            return self.along(-self.g, 0)
        s, y = self.pairs[-1]
        B = np.eye(3) * (s @ y) / (y @ y)
        for s, y in self.pairs:
            turn = np.eye(3) - np.outer(s, y) / (s @ y)
            B = turn @ B @ turn.T + np.outer(s, s) / (s @ y)
        return self.along(-B @ self.g, 1)

    def along(self, p, t):
        if not p @ self.g < 0:
            p, t = -self.g, 0
        if not self.g.any():
            self.x, self.stalled, self.at_base = self.base, True, True
            return None
        self.p = p
        self.search = Search.begin(self.f, p @ self.g, t or self.length / norm(p), 2**-50 * abs(self.f))
        return self.move()

    def move(self):
        if self.search.step * norm(self.p) <= 2**-52 * norm(self.base) and not self.partial:
            return self.fail()
        self.x, self.at_base = self.base + self.search.step * self.p, False
        return None

    def fail(self):
        if self.plain:
            self.x, self.at_base, self.stalled = self.base, True, not self.partial
            return None
        self.plain, self.pairs = True, []
        return self.onward()


def searched_answer(rng, ask, spec, kinds):
    """An answer to a search: lower or higher, steeper or flatter, of all or some; at the base too, where asked for."""
    kind = rng.choice(list(kinds))
    here = rng.random(3) < 0.6 if kind == "s" else np.full(3, kind != "n")
    present = None if here.all() and rng.random() < 0.5 else here
    nobody = not here.any()
    f = spec.f if spec.f is not None else 1.0
    value = f + rng.choice([-1.0, -1e-2, 1e-2, 3.0]) * rng.random()
    value = {"i": math.inf}.get(kind, value)
    g = np.zeros(3) if kind == "z" else rng.standard_normal(3)
    A, more = rng.standard_normal((3, 3)), {}
    if ask.base is not None:
        more = {"base": rng.standard_normal(3), "base_value": f + 0.1 * rng.standard_normal()}
    if ask.hessian:
        more["hessian"] = (A + A.T + rng.choice([0, 4]) * np.eye(3))[np.triu_indices(3)]
    if ask.solve is not None:
        assert near(ask.solve.vector, spec.g)
        more["solved"] = A @ A.T @ spec.g if rng.random() < 0.8 else rng.standard_normal(3)
    return Answer(0 * g if nobody else g, math.nan if nobody else float(value), present=present, **more)


@pytest.mark.parametrize("method", [LBFGS(2), LBFGS(), Newton(), GIANT()], ids=["two pairs", "ten", "newton", "giant"])
@pytest.mark.parametrize("kinds", ["aaaaaaaaz", "aaaaasnz", "aaaiaaaa"], ids=["all", "some", "infinite"])
def test_searches_follow_their_rule(method, kinds):
    seen = {"stalled": 0, "plain": 0, "kept": 0}
    for seed in range(24):
        rng = np.random.default_rng(seed)
        x0 = rng.standard_normal(3) * (1e17 if seed % 6 == 5 else 1.0)
        state, spec = method.start(x0, DEVICES), Line(method, x0)
        for k in range(40):
            ask, where = method.ask(state), f"seed {seed}, round {k}"
            assert state.k == k
            assert near(ask.x, spec.x, 1e-7), where
            assert method.point(state) is ask.x
            assert (state.kept, state.stalled, state.plain) == (spec.kept, spec.stalled, spec.plain), where
            assert (ask.base is None) == (spec.solving or not (spec.partial and spec.kept)), where
            if ask.base is not None:
                assert near(ask.base, spec.base, 1e-7)
            assert (ask.solve is None) != spec.solving
            assert (ask.mix == W).all()
            assert near(method.progress(state).step, spec.search.step if spec.kept else math.nan, 1e-7)
            answer = searched_answer(rng, ask, spec, kinds)
            state = method.tell(state, answer)
            spec.tell(answer)
            seen = {"stalled": seen["stalled"] + spec.stalled, "plain": seen["plain"] + spec.plain, "kept": spec.kept}
            if spec.kept and (spec.length < 1e-5 or spec.length > 1e5):
                break
    assert seen["plain"] > 5
    assert seen["stalled"] > 5 or kinds == "aaaiaaaa"


def test_a_restart_forgets_the_momentum():
    """x^{k+1} = y - g / L; uphill, and nothing else, begins anew: not where the gradient is 0."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        method, x0 = NesterovRestart(0.3), rng.standard_normal(3)
        state, x, before, j = method.start(x0, DEVICES), x0, x0, 0
        for k in range(20):
            y = x + j / (j + 3) * (x - before)
            assert near(method.ask(state).x, y, 1e-12)
            g = rng.standard_normal(3) * (rng.random() < 0.8)
            state = method.tell(state, Answer(g, 1.0))
            before, x = x, y - 0.3 * g
            j = 0 if g @ (x - before) > 0 else j + 1
            assert (state.k, state.since) == (k + 1, j)
            assert near(method.point(state), x, 1e-12)
