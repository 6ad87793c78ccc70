from __future__ import annotations

import numpy as np
import pytest

from ownstep import partition, pep
from ownstep.engines import Bernoulli, describe, run
from ownstep.engines.local.answering import Answering
from ownstep.methods import EXTRA, NIDS, DecentralisedGD, GradientTracking, Never, OwnStep, mixing_matrix
from ownstep.plan import Devices
from ownstep.problems import LeastSquares, optimum
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares, make_logistic
from ..contract.test_methods import advance, gossip_limit


def shares(problem, x):
    """Gradients of N w_i f_i at x_i, what the published recursions call grad f(x)."""
    return (len(problem.weights) * problem.weights)[:, None] * problem.gradients(x)


def equal_quadratics(devices: int, L: float = 2.0) -> LeastSquares:
    """f_i = L/2 (x - i)^2 in one dimension."""
    rows = np.full((devices, 1), np.sqrt(L))
    return LeastSquares(rows, rows[:, 0] * np.arange(devices), partition.given(np.arange(devices)), mu=0.0)


@pytest.mark.parametrize("make", [make_least_squares, make_logistic])
def test_on_the_complete_graph_own_steps_are_algorithm_1_before_its_switch(make):
    problem = make(devices=4)
    ours = run(OwnStep(Never()), problem, 40)
    theirs = run(DecentralisedGD("own", "complete", order="atc"), problem, 40)
    np.testing.assert_allclose(theirs.x, ours.x, atol=1e-12)
    np.testing.assert_allclose(theirs.value, ours.value, rtol=1e-12)
    np.testing.assert_allclose(theirs.columns["step"], ours.columns["step"])
    uniform = run(OwnStep(Never(), weights="uniform"), problem, 40)
    theirs = run(DecentralisedGD("own", "complete", weights="uniform", order="atc"), problem, 40)
    np.testing.assert_allclose(theirs.x, uniform.x, atol=1e-12)


def test_and_so_is_their_worst_case():
    devices = Devices.uniform([1 / 3, 3.0], 0.1)
    ours, theirs = (
        pep.worst_case(method, devices, 3, 10.0, 1.0)
        for method in (OwnStep(Never()), DecentralisedGD("own", "complete", order="atc"))
    )
    assert theirs.upper == pytest.approx(ours.upper, rel=1e-5)


@pytest.mark.parametrize("method", [EXTRA(0.05), EXTRA(0.05, "star"), NIDS(0.05, "path"), NIDS("own", "path")])
def test_the_iterates_are_those_of_the_published_recursion(method):
    """EXTRA (2.13) of Shi et al., and (9) of Li, Shi and Yan with exact diffusion's start, two terms back."""
    problem = make_least_squares(devices=5)
    state = method.start(problem.x0(), describe(problem).devices)
    W, A = state.mixing.matrix, state.steps[:, None]
    identity = np.eye(5)
    X = [np.zeros((5, problem.dim))]
    if isinstance(method, EXTRA):
        X.append(W @ X[0] - A * shares(problem, X[0]))
        for _ in range(30):
            change = shares(problem, X[-1]) - shares(problem, X[-2])
            X.append((identity + W) @ X[-1] - (identity + W) / 2 @ X[-2] - A * change)
    else:
        tilde = identity - A / (2 * A.max()) * (identity - W)
        X.append(tilde @ (X[0] - A * shares(problem, X[0])))
        for _ in range(30):
            change = shares(problem, X[-1]) - shares(problem, X[-2])
            X.append(tilde @ (2 * X[-1] - X[-2] - A * change))
    np.testing.assert_allclose(run(method, problem, 31).x, X[31].mean(axis=0), atol=1e-11)


def test_diging_is_its_published_recursion():
    problem = make_least_squares(devices=4)
    W, X, alpha = mixing_matrix("ring", 4).matrix, np.zeros((4, problem.dim)), 0.05
    Y = G = shares(problem, X)
    for _ in range(30):
        X = W @ X - alpha * Y
        Y, G = W @ Y + shares(problem, X) - G, shares(problem, X)
    np.testing.assert_allclose(run(GradientTracking(alpha), problem, 30).x, X.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize(("devices", "rule"), [(3, "metropolis"), (6, "metropolis"), (5, "lazy")])
def test_diging_is_stable_exactly_up_to_its_known_step(devices, rule):
    """With f_i of one curvature L each eigenvector of W evolves alone: z^2 - (2 l - a L) z + l^2 - a L = 0."""
    problem, mixer = equal_quadratics(devices), mixing_matrix("ring", devices, rule)
    largest = (1 + mixer.eigenvalues[0]) ** 2 / 2 / 2.0
    known = (devices - 1) / 2
    assert run(GradientTracking(0.97 * largest, rule=rule), problem, 500).x == pytest.approx(known, abs=1e-8)
    spread = disagreement(GradientTracking(1.03 * largest, rule=rule), problem, 500)
    assert spread > 1e3 * disagreement(GradientTracking(0.97 * largest, rule=rule), problem, 500)


def disagreement(method, problem, rounds):
    state = method.start(problem.x0(), describe(problem).devices)
    for _ in range(rounds):
        state = advance(method, problem, state)
    return np.abs(state.x - state.x.mean(axis=0)).max()


def linear_rate(method, problem, rounds=220, after=60):
    """(error at ``rounds`` / error at ``after``)^(1/difference)."""
    best = optimum(problem).x
    errors = [np.linalg.norm(run(method, problem, k).x - best) for k in (after, rounds)]
    return (errors[1] / errors[0]) ** (1 / (rounds - after))


@pytest.mark.parametrize("graph", ["ring", "path"])
def test_extra_converges_at_the_rate_of_its_iteration_matrix(graph):
    """On quadratics (x, S) evolves linearly; what its consensus part leaves is the published linear rate."""
    problem = make_least_squares(devices=3, features=2, mu=0.3)
    hessians = [problem.rows(i).T @ problem.rows(i) / problem.counts[i] + 0.3 * np.eye(2) for i in range(3)]
    W, alpha, n = np.kron(mixing_matrix(graph, 3).matrix, np.eye(2)), 0.08, 6
    H = np.zeros((n, n))
    for i, h in enumerate(hessians):
        H[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = 3 * problem.weights[i] * h
    identity = np.eye(n)
    two_term = np.block([[identity + W - alpha * H, alpha * H - (identity + W) / 2], [identity, np.zeros((n, n))]])
    moduli = np.sort(abs(np.linalg.eigvals(two_term)))
    # two eigenvalues 1 (constant X with no mean gradient, one a coordinate) are never excited; the next is the rate
    rate = moduli[moduli < 1 - 1e-9][-1]
    assert linear_rate(EXTRA(alpha, graph), problem) == pytest.approx(rate, abs=0.01)
    assert rate < 1


def test_nids_needs_no_network_in_its_step_and_allows_one_a_device():
    """Steps up to 2/L_i converge on any graph; decentralised GD with own steps ends elsewhere."""
    problem = make_least_squares(devices=4)
    best = optimum(problem).x
    for graph in ("path", "star", "complete"):
        np.testing.assert_allclose(run(NIDS("own", graph), problem, 1600).x, best, atol=1e-8)
    assert np.linalg.norm(run(DecentralisedGD("own", "complete", order="atc"), problem, 500).x - best) > 1e-2


def test_the_bias_of_decentralised_gd_shrinks_with_its_step():
    """Yuan, Ling and Yin (2016): proportional to alpha for small alpha."""
    problem = make_least_squares(devices=5)
    best = optimum(problem).x
    steps = (0.004, 0.002, 0.001)
    errors = [np.linalg.norm(gossip_limit(DecentralisedGD(a), problem) - best) for a in steps]
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.1)
    assert errors[1] / errors[2] == pytest.approx(2, abs=0.05)


def test_tracking_follows_the_mean_gradient_even_when_devices_are_away():
    problem, rule = make_least_squares(devices=5), Bernoulli(0.6, "drop", seed=1)
    history = run(GradientTracking(0.03), problem, 1800, participation=rule)
    np.testing.assert_allclose(history.x, optimum(problem).x, atol=1e-8)
    assert 0.5 < history.took_part.mean() < 0.7


def away(method, problem, present, rounds):
    """The stack after some rounds with everyone there and then some without a few devices."""
    state, answering = method.start(problem.x0(), describe(problem).devices), Answering(problem, "drop")
    seen = [state.x]
    for k in range(2 * rounds):
        state = method.tell(state, answering(method.ask(state), present if k >= rounds else np.ones(5, bool)).answer)
        seen.append(state.x)
    return np.array(seen)


@pytest.mark.parametrize(
    "method",
    [
        DecentralisedGD(0.04), DecentralisedGD("own", "star", order="atc"), GradientTracking(0.02, "path"),
        GradientTracking(0.02, order="atc"),
    ],
)  # fmt: skip
def test_a_device_that_is_away_stays_where_it_is(method):
    present = np.array([True, False, True, True, False])
    seen = away(method, make_least_squares(devices=5), present, 3)
    assert (np.abs(np.diff(seen[:4], axis=0)).max(axis=2) > 1e-6).all()
    np.testing.assert_array_equal(seen[4:, ~present], np.broadcast_to(seen[3, ~present], (3, 2, seen.shape[2])))
    assert (np.abs(np.diff(seen[3:, present], axis=0)).max(axis=2) > 1e-6).all()


def test_without_some_devices_the_others_mix_among_themselves():
    """X^{k+1} = W' X^k - A G^k: a link to who is away becomes a link to oneself."""
    problem, present = make_least_squares(devices=5), np.array([True, True, False, True, True])
    W, steps = mixing_matrix("ring", 5).matrix, 1 / (5 * problem.weights * describe(problem).devices.L)
    for i in range(5):
        for j in range(5):
            if i != j and not (present[i] and present[j]):
                W[i, i], W[i, j] = W[i, i] + W[i, j], 0.0
    seen = away(DecentralisedGD(tuple(0.3 * steps)), problem, present, 2)
    X = seen[2]
    for k in range(2, 4):
        X = W @ X - (0.3 * steps * present)[:, None] * shares(problem, X)
        np.testing.assert_allclose(seen[k + 1], X, atol=1e-13)


def test_bytes_are_those_of_the_links():
    problem = make_least_squares(devices=6)
    vector = 8 * problem.dim
    for method, vectors in ((DecentralisedGD(), 1), (GradientTracking(), 2), (EXTRA(), 1), (NIDS(), 1)):
        history = run(method, problem, 3)
        assert history.columns["bytes_up"].tolist() == [12 * vectors * vector] * 3 + [0]  # six devices, two neighbours
        assert history.columns["bytes_down"].tolist() == history.columns["bytes_up"].tolist()
        assert history.settings["vectors_sent"] == [2 * vectors] * 6
    star = run(DecentralisedGD(graph="star"), problem, 1)
    assert star.settings["vectors_sent"] == [5, 1, 1, 1, 1, 1]

    class WithoutTheFirst:
        missing = "drop"

        def present(self, k, devices):
            return np.arange(devices) > 0

    away = run(DecentralisedGD(), problem, 1, participation=WithoutTheFirst())
    assert away.columns["bytes_up"][0] == 8 * vector  # a path of five


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DecentralisedGD(-1.0), "positive and finite, got -1"),
        (lambda: DecentralisedGD("tuned"), "unknown step of DecentralisedGD 'tuned'"),
        (lambda: EXTRA("own"), "unknown step of EXTRA 'own'"),
        (lambda: DecentralisedGD(order="both"), "unknown order 'both'"),
        (lambda: NIDS(graph="rings"), "Did you mean 'ring'"),
        (lambda: NIDS(rule="laazy"), "Did you mean 'lazy'"),
        (lambda: NIDS(graph=mixing_matrix("ring", 4)).start(np.zeros(2), Devices.uniform([1.0, 2.0])), "for 4 devices"),
        (lambda: NIDS(weights="none").start(np.zeros(2), Devices.uniform([1.0, 2.0])), "got 'none'"),
    ],
)
def test_bad_input_is_quoted(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
