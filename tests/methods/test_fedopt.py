from __future__ import annotations

import numpy as np
import pytest

from ownstep.engines import Bernoulli, describe, run
from ownstep.engines.local.answering import local_work
from ownstep.methods import (
    GD,
    Answer,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedYogi,
    HeavyBall,
    LocalWork,
    Scaffold,
)
from ownstep.plan import Devices
from ownstep.problems import optimum
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares, make_logistic
from ..contract.test_methods import drift_limit

ROUNDS = 12


def test_local_work_is_the_loop_it_describes(small_logistic):
    rng = np.random.default_rng(0)
    x, shift = rng.standard_normal(small_logistic.dim), rng.standard_normal((3, small_logistic.dim))
    for work in (LocalWork(1, 0.3), LocalWork(4, 0.3), LocalWork(5, 0.2, 0.7), LocalWork(3, 0.1, 0.5, shift)):
        y = np.tile(x, (3, 1))
        for _ in range(work.steps):
            extra = 0 if work.shift is None else work.shift
            y = y - work.step * (small_logistic.gradients(y) + work.prox * (y - x) + extra)
        np.testing.assert_allclose(local_work(small_logistic, x, work), (x - y) / work.step, atol=1e-12)


def test_one_local_step_is_gradient_descent(small_logistic):
    for step in ("mean", 0.2):
        plain = run(GD(step), small_logistic, 40)
        assert run(FedAvg(step), small_logistic, 40).x == pytest.approx(plain.x, abs=1e-14)
    beta = run(HeavyBall("mean", 0.6), small_logistic, 40)
    np.testing.assert_allclose(run(FedAvgM("mean", momentum=0.6), small_logistic, 40).x, beta.x, atol=1e-12)
    np.testing.assert_allclose(
        run(Scaffold("mean", local_steps=1), small_logistic, 40).x, run(GD("mean"), small_logistic, 40).x, atol=1e-12
    )


def test_averaging_with_own_steps_moves_every_device_by_its_own_and_reports_their_mean():
    problem, devices = make_least_squares(devices=3), describe(make_least_squares(devices=3)).devices
    history = run(FedAvg("own", 0.7, local_steps=3), problem, 4)
    x = problem.x0()
    for _ in range(4):
        y = np.tile(x, (3, 1))
        for _ in range(3):
            y = y - problem.gradients(y) / devices.L[:, None]
        x = x + 0.7 * (problem.weights @ y - x)
    np.testing.assert_allclose(history.x, x, atol=1e-12)
    mean = sum(w / L for w, L in zip(problem.weights, devices.L, strict=True))
    np.testing.assert_allclose(history.columns["step"][:-1], 0.7 * mean)


def test_scaffold_is_algorithm_1_of_its_paper():
    """Option II with cohorts, written out on one device after the other."""
    problem, rule = make_least_squares(devices=4), Bernoulli(0.7, seed=2)
    w, eta, eta_g, steps = problem.weights, 0.02, 0.8, 3
    x, c_i = np.zeros(problem.dim), np.zeros((4, problem.dim))
    for k in range(15):
        present, c = rule.present(k, 4), w @ c_i
        moves, fresh = np.zeros_like(c_i), c_i.copy()
        for i in np.flatnonzero(present):
            y = x.copy()
            for _ in range(steps):
                y -= eta * (problem.gradients(y)[i] - c_i[i] + c)
            fresh[i] = c_i[i] - c + (x - y) / (steps * eta)
            moves[i] = y - x
        x, c_i = x + eta_g * (w * present) @ moves / (w * present).sum(), fresh
    history = run(Scaffold(eta, eta_g, steps), problem, 15, participation=rule)
    np.testing.assert_allclose(history.x, x, atol=1e-12)
    vector, there = 8 * problem.dim, history.took_part.sum(axis=1)  # the model and c - c_i down; c_i^+ follows from y_i
    assert (history.columns["bytes_up"][:-1] == there * (vector + 8)).all()
    assert (history.columns["bytes_down"][:-1] == there * (2 * vector + 8)).all()


def test_scaffold_has_no_drift_where_averaging_has():
    problem = make_least_squares(devices=4)
    best = optimum(problem).x
    assert np.linalg.norm(run(FedAvg(local_steps=8), problem, 200).x - best) > 0.05
    np.testing.assert_allclose(run(Scaffold(local_steps=8), problem, 400).x, best, atol=1e-9)
    partial = run(Scaffold("largest", local_steps=2), problem, 600, participation=Bernoulli(0.5, seed=0))
    np.testing.assert_allclose(partial.x, best, atol=1e-8)


def updates(method, deltas, x0):
    """What a server makes of given mean moves."""
    devices = Devices.uniform([1.0, 1.0])
    state, points = method.start(x0, devices), []
    for delta in deltas:
        state = method.tell(state, Answer(sum=-delta / state.client_step))
        points.append(method.point(state))
    return np.array(points)


def test_adaptive_servers_follow_algorithm_2():
    """Written out coordinate by coordinate; v starts at tau^2 and nothing is corrected."""
    rng = np.random.default_rng(0)
    deltas, x0 = rng.standard_normal((ROUNDS, 3)) * [1, 0.01, 0], rng.standard_normal(3)
    for kind, beta_1 in ((FedAdagrad, 0.0), (FedAdam, 0.9), (FedYogi, 0.9)):
        got = updates(kind(0.3, 0.05), deltas, x0)
        for j in range(3):
            x, m, v = x0[j], 0.0, 1e-6
            for t, delta in enumerate(deltas[:, j]):
                m = beta_1 * m + (1 - beta_1) * delta
                if kind is FedAdagrad:
                    v = v + delta**2
                elif kind is FedAdam:
                    v = 0.99 * v + 0.01 * delta**2
                else:
                    v = v - 0.01 * delta**2 * np.sign(v - delta**2)
                x = x + 0.05 * m / (np.sqrt(v) + 1e-3)
                assert got[t, j] == pytest.approx(x, abs=1e-13)


def test_bias_correction_is_adam_s():
    """With constant Delta and tau -> 0 the corrected step is eta sign(Delta) from the first round on."""
    delta = np.array([3.0, -0.2])
    got = updates(FedAdam(1.0, 0.1, tau=1e-15, v0=0.0, bias_correction="adam"), [delta] * 5, np.zeros(2))
    np.testing.assert_allclose(got, 0.1 * np.arange(1, 6)[:, None] * np.sign(delta), rtol=1e-9)


@pytest.mark.parametrize("name", ["FedAvg", "FedAvgM", "FedAdagrad", "FedAdam", "FedYogi"])
@pytest.mark.parametrize("interface", ["server.strategy", "serverapp.strategy"])
def test_flower_s_own_strategies_give_the_same_iterates(name, interface):
    """Devices of different size send models; Flower averages them by size and steps."""
    pytest.importorskip("flwr")
    rng = np.random.default_rng(1)
    sizes, x0 = np.array([5, 20, 75]), rng.standard_normal(6)
    client_moves = rng.standard_normal((ROUNDS, 3, 6))
    options = dict(eta=0.07, eta_l=0.2, beta_1=0.8, beta_2=0.97, tau=0.01)
    ours = {
        "FedAvg": FedAvg(0.2),
        "FedAvgM": FedAvgM(0.2, 0.6, momentum=0.7),
        "FedAdagrad": FedAdagrad(0.2, 0.07, beta_1=0.0, tau=0.01, v0=0.0),
        "FedAdam": FedAdam(0.2, 0.07, beta_1=0.8, beta_2=0.97, tau=0.01, v0=0.0, bias_correction="flower"),
        "FedYogi": FedYogi(0.2, 0.07, beta_1=0.8, beta_2=0.97, tau=0.01, v0=0.0),
    }[name]
    if name == "FedAvgM":
        options = dict(server_learning_rate=0.6, server_momentum=0.7)
    elif name == "FedAdagrad":
        options = dict(eta=0.07, eta_l=0.2, tau=0.01)
    elif name == "FedAvg":
        options = {}
    theirs = (flower_old if interface == "server.strategy" else flower_new)(name, options, x0, sizes, client_moves)
    deltas = np.einsum("i,tij->tj", sizes / sizes.sum(), client_moves)
    np.testing.assert_allclose(updates(ours, deltas, x0), theirs, atol=1e-12)


def flower_old(name, options, x0, sizes, client_moves):
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import strategy

    if name != "FedAvg":
        options = options | {"initial_parameters": ndarrays_to_parameters([x0])}
    server, x, points = getattr(strategy, name)(**options), x0, []
    for t, moves in enumerate(client_moves):
        results = [
            (None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([x + move]), int(size), {}))
            for move, size in zip(moves, sizes, strict=True)
        ]
        x = parameters_to_ndarrays(server.aggregate_fit(t + 1, results, [])[0])[0]
        points.append(x)
    return np.array(points)


class Reply:
    """What a strategy reads of a message, which only a running Flower app can make."""

    def __init__(self, content):
        self.content = content

    def has_error(self):
        return False


def flower_new(name, options, x0, sizes, client_moves):
    from flwr.common import ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp import strategy

    server, x, points = getattr(strategy, name)(**options), ArrayRecord([x0]), []
    for t, moves in enumerate(client_moves):
        # configure_train would keep the model it sends out, and the messages, which need a running app
        server.current_arrays = x if name == "FedAvgM" else {k: v.numpy() for k, v in x.items()}
        point = x.to_numpy_ndarrays()[0]
        replies = [
            Reply(
                RecordDict({"arrays": ArrayRecord([point + move]), "metrics": MetricRecord({"num-examples": int(n)})})
            )
            for move, n in zip(moves, sizes, strict=True)
        ]
        x = server.aggregate_train(t + 1, replies)[0]
        points.append(x.to_numpy_ndarrays()[0])
    return np.array(points)


@pytest.mark.slow
def test_fedavgm_with_one_local_step_is_torch_s_sgd_with_momentum():
    torch = pytest.importorskip("torch")
    problem, step = make_logistic(), 0.3
    x = torch.zeros(problem.dim, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([x], lr=0.5 * step, momentum=0.8)
    for _ in range(40):
        x.grad = torch.from_numpy(problem.mix(x.detach().numpy(), problem.weights)[1])
        optimiser.step()
    ours = run(FedAvgM(step, 0.5, momentum=0.8), problem, 40)
    np.testing.assert_allclose(ours.x, x.detach().numpy(), atol=1e-12)


def test_the_adaptive_servers_run_on_tensors():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    deltas, x0 = rng.standard_normal((ROUNDS, 3)), rng.standard_normal(3)
    for method in (FedAvgM(0.1), FedAdagrad(), FedAdam(), FedYogi()):
        state = method.start(torch.from_numpy(x0), Devices.uniform([1.0, 1.0]))
        for delta in deltas:
            state = method.tell(state, Answer(sum=torch.from_numpy(-delta / state.client_step)))
        np.testing.assert_allclose(state.x.numpy(), updates(method, deltas, x0)[-1], atol=1e-13)


def test_bytes_do_not_grow_with_local_steps(small_logistic):
    vector = 8 * small_logistic.dim
    for steps in (1, 4):
        history = run(FedAvg(local_steps=steps), small_logistic, 3)
        assert history.columns["bytes_up"].tolist() == [3 * (vector + 8)] * 3 + [0]
    assert history.settings["local_steps"] == 4
    assert describe(small_logistic).devices.L.max() == pytest.approx(1 / history.columns["step"][0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedAvg("long"), "unknown step 'long'"),
        (lambda: FedAvg(0.0), "positive and finite, got 0.0"),
        (lambda: FedAvg(server_step=-1.0), "server_step must be positive and finite, got -1.0"),
        (lambda: FedAvg(local_steps=0), "local_steps must be a whole number of at least 1, got 0"),
        (lambda: FedAvgM(momentum=1.0), r"momentum must be in \[0, 1\), got 1.0"),
        (lambda: HeavyBall(momentum=1.0), r"momentum must be in \[0, 1\), got 1.0"),
        (lambda: HeavyBall(momentum=-0.1), r"momentum must be in \[0, 1\), got -0.1"),
        (lambda: FedAdam(beta_2=1.2), r"beta_2 must be in \[0, 1\), got 1.2"),
        (lambda: FedYogi(tau=0.0), "tau must be positive and finite, got 0.0"),
        (lambda: FedAdam(v0=-1.0), "v0 must be a finite number >= 0, got -1.0"),
        (lambda: FedAdam(bias_correction="yes"), "unknown bias correction 'yes'"),
        (lambda: Scaffold(local_steps=1.5), "at least 1, got 1.5"),
    ],
)
def test_bad_input_is_quoted(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_the_pull_of_fedprox_interpolates_between_drift_and_gradient_descent():
    """Without it FedProx is FedAvg; the stronger it is, the closer to the minimiser the limit lies."""
    problem = make_least_squares(devices=4)
    best = optimum(problem).x
    plain = run(FedAvg(0.02, local_steps=6), problem, 300).x
    np.testing.assert_allclose(run(FedProx(0.02, local_steps=6, prox=0.0), problem, 300).x, plain, atol=1e-13)
    devices = describe(problem).devices
    limits = [drift_limit(problem, devices, FedProx(0.02, local_steps=6, prox=mu)) for mu in (0.0, 5.0, 20.0)]
    errors = [np.linalg.norm(x - best) for x in limits]
    assert errors[0] > errors[1] > errors[2]
    with pytest.raises(InvalidInput, match="prox must be a finite number >= 0, got -1.0"):
        FedProx(prox=-1.0)


def test_yogi_s_moment_stays_where_it_equals_the_square():
    """sign(0) = 0, as in the paper's formula."""
    v, square = np.array([0.5, 0.5, 0.5, 0.0]), np.array([0.25, 0.5, 1.0, 0.0])
    found = FedYogi(beta_2=0.9)._moment(v, square)
    np.testing.assert_allclose(found, v - 0.1 * square * np.sign(v - square), rtol=1e-15)
