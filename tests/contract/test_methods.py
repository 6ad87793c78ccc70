"""One suite that every registered method passes. A new method is listed in METHODS and, here, in CASES."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest
import scipy.optimize

from ownstep import partition
from ownstep.engines import Bernoulli, checkpoint, describe, run
from ownstep.engines.local.answering import Answering
from ownstep.methods import (
    DANE,
    EXTRA,
    GD,
    GIANT,
    ITEM,
    LBFGS,
    METHODS,
    NIDS,
    OGM,
    SHED,
    AdGD,
    At,
    BarzilaiBorwein,
    DecentralisedGD,
    DeltaSGD,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedDyn,
    FedExP,
    FedLin,
    FedNova,
    FedProx,
    FedSPS,
    FedYogi,
    GradientTracking,
    HeavyBall,
    Method,
    Mixing,
    Nesterov,
    NesterovRestart,
    Never,
    Newton,
    NormBelow,
    OwnCurvature,
    OwnStep,
    Plateau,
    Scaffnew,
    Scaffold,
    Schedule,
    Shrunk,
    TripleMomentum,
    mixing_matrix,
)
from ownstep.methods.federated.fedadam import Adaptive
from ownstep.methods.federated.fedopt import FedOpt
from ownstep.methods.gossip.peers import Peers
from ownstep.pep.trace.symbolic import NotLinear, trace
from ownstep.plan import Devices
from ownstep.problems import BinaryLogistic, LeastSquares
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares, make_logistic
from .literal_rivals import delta_sgd, fedsps
from .world import World

CASES = {
    "own_step": [
        OwnStep(),
        OwnStep(At(5)),
        OwnStep(NormBelow(1e-2)),
        OwnStep(Never()),
        OwnStep(smoothness="adaptive"),
        OwnStep(momentum="nesterov"),
        OwnStep(At(5), momentum="item"),
        OwnStep(momentum="item"),
        OwnStep(Shrunk(0.3)),
    ],
    "own_curvature": [OwnCurvature(), OwnCurvature(2, 3), OwnCurvature(2, sketch="sum"), OwnCurvature(0)],
    "gd": [GD("mean"), GD("true"), GD(0.1), GD("largest")],
    "heavy_ball": [HeavyBall(), HeavyBall("mean", 0.3)],
    "nesterov": [Nesterov(), Nesterov("mean"), Nesterov("mean", 0.5)],
    "nesterov_restart": [NesterovRestart(), NesterovRestart("mean")],
    "adgd": [AdGD(), AdGD(1)],
    "barzilai_borwein": [BarzilaiBorwein(), BarzilaiBorwein("long"), BarzilaiBorwein("mean")],
    "ogm": [OGM(), OGM("mean", 7)],
    "item": [ITEM(), ITEM("mean")],
    "triple_momentum": [TripleMomentum(), TripleMomentum("mean")],
    "lbfgs": [LBFGS(), LBFGS(2)],
    "newton": [Newton()],
    "giant": [GIANT(), GIANT(0.3)],
    "dane": [DANE(), DANE(0.5)],
    "shed": [SHED(), SHED(1)],
    "schedule": [
        Schedule(),
        Schedule(((1.2,), (0.9,), (1.4,))),
        Schedule(((1.1,),) * 3 + ((0.6,),) * 2, ((0.3, 0.1), (0.4, 0.2), (0.0, 0.5), (0.1, 0.0), (0.0, 0.0)), 1.5),
    ],
    "decentralised_gd": [
        DecentralisedGD(),
        DecentralisedGD(0.1, "path", order="atc"),
        DecentralisedGD("own", "complete", order="atc"),
        DecentralisedGD("mean", "complete", "lazy", order="atc"),
        DecentralisedGD("largest", "star", weights="uniform"),
    ],
    "gradient_tracking": [GradientTracking(), GradientTracking(graph="path", order="atc")],
    "extra": [EXTRA(), EXTRA(0.08, "star")],
    "nids": [NIDS(), NIDS("own", "path")],
    "fedavg": [FedAvg(), FedAvg("mean", 0.5), FedAvg(local_steps=4)],
    "fedavgm": [FedAvgM(), FedAvgM(0.02, local_steps=3, momentum=0.5)],
    "fedadagrad": [FedAdagrad(), FedAdagrad(0.1, 0.5, local_steps=2)],
    "fedadam": [FedAdam(), FedAdam(0.1, 0.02, bias_correction="adam"), FedAdam(bias_correction="flower", v0=0.0)],
    "fedyogi": [FedYogi(), FedYogi(0.05, 0.05, local_steps=2)],
    "fedprox": [FedProx(), FedProx(local_steps=3, prox=2.0), FedProx(local_steps=1)],
    "scaffold": [Scaffold(), Scaffold("largest", local_steps=3), Scaffold(local_steps=1)],
    "fednova": [FedNova(), FedNova(0.08, 0.5, 3), FedNova(local_steps=1)],
    "fedexp": [FedExP(epsilon=30.0), FedExP(local_steps=1, epsilon=30.0)],  # with less it does not settle: below
    "feddyn": [FedDyn(), FedDyn(local_steps=1), FedDyn(local_steps=20, alpha=0.5)],
    "fedsps": [FedSPS(0.1), FedSPS(0.05, local_steps=2, c=1.0)],
    "delta_sgd": [DeltaSGD(), DeltaSGD(0.05, local_steps=3)],
    "fedlin": [FedLin(), FedLin(0.08, 3), FedLin(local_steps=1)],
    "scaffnew": [Scaffnew(p=0.4), Scaffnew(0.08, 0.3, seed=5), Scaffnew(p=1.0)],
}
EVERY = [pytest.param(method, id=f"{name}-{i}") for name, methods in CASES.items() for i, method in enumerate(methods)]


@pytest.mark.parametrize("kind", [kind for kind in METHODS.values() if kind.__module__ != GD.__module__])
def test_a_method_file_is_short(kind):
    assert len(inspect.getsource(inspect.getmodule(kind)).splitlines()) < 100


def closed_form(problem: LeastSquares) -> np.ndarray:
    """Solve (sum_i w_i H_i) x = sum_i w_i b_i with the matrices written out."""
    return solve(problem, problem.weights)


def solve(problem: LeastSquares, c: np.ndarray) -> np.ndarray:
    n = problem.features
    hessians = [problem.rows(i).T @ problem.rows(i) / problem.counts[i] + problem.mu * np.eye(n) for i in range(len(c))]
    zero = problem.gradients(np.zeros(n))
    return np.linalg.solve(np.einsum("i,ijk->jk", c, hessians), -c @ zero)


def test_every_registered_method_is_in_this_suite():
    assert set(CASES) == set(METHODS)
    for name, methods in CASES.items():
        for method in methods:
            assert isinstance(method, METHODS[name])
            assert isinstance(method, Method)


def quadratics(problem: LeastSquares) -> tuple[list[np.ndarray], np.ndarray]:
    """The Hessians H_i and minimisers x_i* of the devices, written out."""
    n = problem.features
    hessians = [
        problem.rows(i).T @ problem.rows(i) / problem.counts[i] + problem.mu * np.eye(n)
        for i in range(len(problem.counts))
    ]
    zero = problem.gradients(np.zeros(n))
    return hessians, np.array([np.linalg.solve(h, -g) for h, g in zip(hessians, zero, strict=True)])


def limit(method, problem: LeastSquares) -> np.ndarray:
    """Where the method is known to end: the minimiser, or the other point that its bias leads to."""
    L, w = describe(problem).devices.L, problem.weights
    if isinstance(getattr(method, "switch", None), Never):
        return solve(problem, w / L)
    if isinstance(method, DecentralisedGD):
        return gossip_limit(method, problem)
    if isinstance(method, DeltaSGD | FedSPS):
        return stationary(method, problem)
    if isinstance(method, FedOpt) and method.local_steps > 1:
        return drift_limit(problem, describe(problem).devices, method)
    return closed_form(problem)


def gossip_limit(method: DecentralisedGD, problem: LeastSquares) -> np.ndarray:
    """The mean of the rows of the X with X = W X - A G(X), or X = W (X - A G(X)), as one linear system."""
    hessians, own = quadratics(problem)
    n, d = len(hessians), problem.dim
    state = method.start(problem.x0(), describe(problem).devices)
    W, step = np.kron(state.mixing.matrix, np.eye(d)), np.repeat(state.steps * n * state.devices.weights, d)[:, None]
    H = np.zeros((n * d, n * d))
    for i, h in enumerate(hessians):
        H[i * d : (i + 1) * d, i * d : (i + 1) * d] = h
    pull, b = step * H, (step * H) @ own.ravel()
    if method.order == "atc":
        X = np.linalg.solve(np.eye(n * d) - W @ (np.eye(n * d) - pull), W @ b)
    else:
        X = np.linalg.solve(np.eye(n * d) - W + pull, b)
    return X.reshape(n, d).mean(axis=0)


def stationary(method: FedOpt, problem: LeastSquares) -> np.ndarray:
    """The x that a round of the literal loop leaves where it is, found by scipy from the minimiser."""
    world = World.of(problem)
    literal = {DeltaSGD: delta_sgd, FedSPS: fedsps}[type(method)]
    moved = scipy.optimize.root(
        lambda x: next(literal(method, dataclasses.replace(world, x0=x))) - x, closed_form(problem), tol=1e-14
    )
    assert moved.success, moved.message
    return moved.x


def drift_limit(problem: LeastSquares, devices: Devices, method: FedOpt) -> np.ndarray:
    """The x at which the moves of E local steps cancel, those of FedNova per step.

    One step maps e = y - x_i* to (I - eta H) e - eta prox (y - x), so y - x is linear in x - x_i*: its matrix is M_E
    with M_0 = 0 and M_{e+1} = (I - eta (H + prox I)) M_e - eta H.
    """
    hessians, own = quadratics(problem)
    eta, prox = method.start(problem.x0(), devices).client_step, getattr(method, "prox", 0.0)
    identity, total, right = np.eye(problem.dim), 0.0, 0.0
    counts, weights = [method.local_steps] * len(own), problem.weights
    if isinstance(method, FedNova):
        counts = [max(1, int(method.local_steps * len(own) * w + 0.5 + 1e-9)) for w in problem.weights]
        weights = weights / counts
    for h, x_i, w, count in zip(hessians, own, weights, counts, strict=True):
        move = 0 * identity
        for _ in range(count):
            move = (identity - eta * (h + prox * identity)) @ move - eta * h
        total, right = total + w * move, right + w * move @ x_i
    return np.linalg.solve(total, right)


@pytest.mark.slow
@pytest.mark.parametrize("method", EVERY)
def test_it_ends_where_it_is_known_to_end(method):
    problem = make_least_squares()
    slow = isinstance(method, Peers | Adaptive | FedAvgM | FedLin)  # the others are there after 210 rounds
    history = run(method, problem, 2000 if isinstance(method, DANE) else 1000 if slow else 260)
    np.testing.assert_allclose(history.x, limit(method, problem), atol=1e-9)


def test_a_bias_is_a_bias():
    """The limits used above are not the minimiser in disguise."""
    problem = make_least_squares()
    for method in (OwnStep(Never()), DecentralisedGD(), FedAvg(local_steps=4), FedYogi(0.05, local_steps=2)):
        assert np.linalg.norm(limit(method, problem) - closed_form(problem)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("method", EVERY)
def test_where_it_ends_is_a_fixed_point(method):
    """Started there it stays; methods that remember more than a point may leave first and must find back."""
    problem = make_least_squares()
    end = limit(method, problem)
    switch = getattr(method, "switch", None)
    memory = (
        isinstance(method, Peers | Scaffold | Scaffnew | FedDyn | Schedule)
        or getattr(method, "constant_free", False)
        or isinstance(switch, Plateau | At | NormBelow | Shrunk)
    )
    history = run(method, problem, 300 if memory else 3, x0=end)
    np.testing.assert_allclose(history.x, end, atol=1e-5 if memory else 1e-12)


@pytest.mark.parametrize("method", EVERY)
def test_it_is_deterministic(method):
    first, second = (run(method, make_logistic(), 40) for _ in range(2))
    assert (first.x == second.x).all()
    assert (first.value == second.value).all()


@pytest.mark.parametrize("method", EVERY)
def test_permuting_the_devices_changes_nothing(method):
    """Where the devices stand on a graph, it is permuted with them."""
    rng = np.random.default_rng(1)
    rows, targets, owner = rng.standard_normal((30, 3)), rng.standard_normal(30), np.arange(30) % 4
    rows *= (1 + owner)[:, None] / 2
    other = np.array([2, 0, 3, 1])
    methods = [method, method]
    if isinstance(method, Peers):
        W = mixing_matrix(method.graph, 4, method.rule)
        moved = np.empty((4, 4))
        moved[np.ix_(other, other)] = W.matrix
        methods = [dataclasses.replace(method, graph=W), dataclasses.replace(method, graph=Mixing(moved))]
    owners = (owner, other[owner])
    runs = [run(m, LeastSquares(rows, targets, partition.given(o)), 30) for m, o in zip(methods, owners, strict=True)]
    assert runs[0].rounds == 30
    np.testing.assert_allclose(runs[0].x, runs[1].x, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("method", EVERY)
def test_equal_devices_give_the_pooled_iterates(method):
    """Copies of one device, so all L_i are equal: splitting must change nothing, at the same step."""
    rng = np.random.default_rng(2)
    rows, targets = rng.standard_normal((12, 3)), rng.standard_normal(12)
    split = LeastSquares(np.tile(rows, (3, 1)), np.tile(targets, 3), partition.given(np.repeat([0, 1, 2], 12)))
    history = run(method, split, 25)
    if isinstance(method, Peers):  # a named step knows the graph, and the pooled problem has none
        method = GD(float(history.columns["step"][0]))
    np.testing.assert_allclose(history.x, run(method, LeastSquares(rows, targets), 25).x, atol=1e-12)


@pytest.mark.parametrize("method", EVERY)
def test_its_state_survives_a_file(method, tmp_path):
    problem = make_logistic()
    devices = describe(problem).devices
    state = method.start(problem.x0(), devices)
    for _ in range(12):
        state = advance(method, problem, state)
    checkpoint.save(tmp_path / "state.npz", state, {}, {})
    again, _, _ = checkpoint.load(tmp_path / "state.npz", method.start(problem.x0(), devices))
    assert_same(state, again)
    for _ in range(12):
        state, again = advance(method, problem, state), advance(method, problem, again)
    assert_same(state, again)


@pytest.mark.slow
@pytest.mark.parametrize("method", EVERY)
def test_a_resumed_run_is_an_unbroken_one(method, tmp_path):
    problem = make_logistic()
    for missing in (None, "rescale", "last"):
        rule = None if missing is None else Bernoulli(0.7, missing, seed=3)
        if rule is not None and (getattr(method, "needs_everyone", False) or isinstance(method, Peers)):
            rule = None if getattr(method, "needs_everyone", False) else Bernoulli(0.7, "drop", seed=3)
        path = tmp_path / f"{missing}.npz"
        run(method, problem, 9, participation=rule, checkpoint=path)
        resumed = run(method, problem, 20, participation=rule, checkpoint=path)
        whole = run(method, problem, 20, participation=rule)
        assert (resumed.x == whole.x).all()
        assert (resumed.value == whole.value).all()
        assert (resumed.columns["bytes_up"] == whole.columns["bytes_up"]).all()


@pytest.mark.parametrize("method", EVERY)
def test_it_keeps_single_precision(method):
    double = make_logistic()
    rows, labels = np.concatenate([double.rows(i) for i in range(3)]), np.tile([1, -1], 30)
    problem = BinaryLogistic(rows, labels, partition.by_norm(rows, 3), mu=0.05, dtype=np.float32)
    state = method.start(problem.x0(), describe(problem).devices)
    for _ in range(3):
        ask = method.ask(state)
        assert ask.x.dtype == np.float32
        state = advance(method, problem, state)
    assert method.point(state).dtype == np.float32
    for name, value in vars(state).items():
        if isinstance(value, np.ndarray) and name != "steps":
            assert value.dtype == np.float32, name


@pytest.mark.parametrize("method", EVERY)
def test_who_is_absent_does_not_matter_to_the_round(method):
    """Nothing of an absent device's data enters: the iterates do not change when its targets do."""
    if getattr(method, "needs_everyone", False):
        with pytest.raises(InvalidInput, match=r"needs every device in every round"):
            run(method, make_least_squares(), 5, participation=Bernoulli(0.5))
        return

    class Without:
        missing = "rescale"

        def present(self, k, devices):
            return np.arange(devices) != 1

    rng = np.random.default_rng(3)
    rows, owner = rng.standard_normal((30, 3)), np.arange(30) % 3
    targets = [rng.standard_normal(30), None]
    targets[1] = np.where(owner == 1, 5.0, targets[0])
    problems = [LeastSquares(rows, t, partition.given(owner)) for t in targets]
    runs = [steps_with(method, problem, Without(), 10) for problem in problems]
    np.testing.assert_array_equal(runs[0], runs[1])


def steps_with(method, problem, rule, rounds):
    """The loop of an engine without what it records, since the switch may see f."""
    answering = Answering(problem, rule.missing)
    state = method.start(problem.x0(), describe(problem).devices)
    for k in range(rounds):
        state = method.tell(state, answering(method.ask(state), rule.present(k, len(problem.weights))).answer)
    return method.point(state)


@pytest.mark.parametrize("method", EVERY)
def test_it_runs_on_symbols_or_says_why_not(method):
    """The traced coefficients reproduce the run; nonlinear rules and local steps are refused by name."""
    problem = make_least_squares(devices=2, features=3)
    devices = describe(problem).devices
    switch = getattr(method, "switch", None)
    adaptive, local = (
        isinstance(method, Adaptive),
        getattr(method, "local_steps", 1) > 1 or isinstance(method, Scaffold),
    )
    measured = getattr(method, "constant_free", False) or isinstance(method, NesterovRestart)
    if isinstance(method, FedExP | FedDyn | FedLin | FedSPS | DeltaSGD | Scaffnew):
        with pytest.raises(NotLinear, match=r"local steps between two rounds"):
            trace(method, devices, 3)
        return
    if measured:
        with pytest.raises(NotLinear, match=r"the inner product|the loss value"):
            trace(method, devices, 3)
        return
    if adaptive or local or isinstance(switch, Plateau | NormBelow | Shrunk):
        with pytest.raises(NotLinear, match="power" if adaptive else "local steps" if local else "Use At"):
            trace(method, devices, 3)
        return
    traced = trace(method, devices, 4)
    atoms = [problem.x0() + 1.0]
    for x, mix in zip(traced.asks, traced.mixes, strict=True):
        points = x[:, : len(atoms)] @ np.array(atoms)
        if mix is None:
            atoms += list(problem.gradients(points))
        else:
            atoms.append(mix @ problem.gradients(points[0]))
    history = run(method, problem, 4, x0=problem.x0() + 1.0)
    np.testing.assert_allclose((traced.points[-1] @ np.array(atoms))[0], history.x, atol=1e-12)


@pytest.mark.parametrize("method", EVERY)
def test_states_are_frozen_and_print_briefly(method):
    state = method.start(np.zeros(2), Devices.uniform([1.0, 2.0], 0.1) if not needs_true(method) else pooled_devices())
    assert len(repr(state)) < 250
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.k = 3


def needs_true(method) -> bool:
    return getattr(method, "step", None) == "true"


def pooled_devices() -> Devices:
    return Devices(np.array([0.5, 0.5]), np.array([1.0, 2.0]), np.array([0.1, 0.1]), L_pooled=1.2)


def advance(method, problem, state):
    everyone = np.ones(len(problem.weights), bool)
    return method.tell(state, Answering(problem, None)(method.ask(state), everyone).answer)


def assert_same(first, second):
    assert type(first) is type(second)
    for field in dataclasses.fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if isinstance(a, Devices):
            continue
        if dataclasses.is_dataclass(a):
            assert_same(a, b)
        elif isinstance(a, np.ndarray):
            assert (a == b).all()
        else:
            np.testing.assert_equal(a, b)
