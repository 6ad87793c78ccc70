from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownstep.methods import GRAPHS, DecentralisedGD, GradientTracking, Mixing, mixing_matrix
from ownstep.methods.gossip.graphs import erdos_renyi, grid
from ownstep.methods.gossip.mixing import among
from ownstep.support.errors import InvalidInput


@given(graph=st.sampled_from(sorted(GRAPHS)), devices=st.integers(1, 14), rule=st.sampled_from(["metropolis", "lazy"]))
def test_every_graph_gives_a_doubly_stochastic_matrix_that_mixes(graph, devices, rule):
    mixer = mixing_matrix(graph, devices, rule)
    W = mixer.matrix
    assert (W >= 0).all()
    np.testing.assert_allclose(W @ np.ones(devices), 1, atol=1e-12)
    np.testing.assert_allclose(W, W.T, atol=1e-15)
    assert mixer.second_eigenvalue < 1
    assert rule == "metropolis" or mixer.eigenvalues[0] > -1e-12
    agreed = np.linalg.matrix_power(W, 4000) if devices > 1 else W
    np.testing.assert_allclose(agreed, 1 / devices, atol=1e-6)
    assert (mixer.links.sum(axis=1) > 0).all() or devices == 1


def test_second_eigenvalues_that_are_known():
    assert mixing_matrix("complete", 7).second_eigenvalue == pytest.approx(0, abs=1e-12)
    for n in (4, 5, 9):  # a circulant matrix with 1/3 on three diagonals
        known = max(abs(1 / 3 + 2 / 3 * np.cos(2 * np.pi * k / n)) for k in range(1, n))
        assert mixing_matrix("ring", n).second_eigenvalue == pytest.approx(known)
        assert mixing_matrix("ring", n, "lazy").second_eigenvalue == pytest.approx(
            max((4 / 3 + 2 / 3 * np.cos(2 * np.pi * k / n)) / 2 for k in range(1, n))
        )
    assert mixing_matrix("star", 5).second_eigenvalue == pytest.approx(1 - 1 / 5)  # a leaf listens to the hub by 1/N
    np.testing.assert_allclose(mixing_matrix("complete", 4).matrix, 0.25)


def test_the_grid_and_the_random_graph_are_what_they_say():
    assert grid(6).sum(axis=1).tolist() == [2, 3, 2, 2, 3, 2]  # two rows of three
    assert grid(7).sum() == 2 * 8  # three by three without the last two: 4 across, 4 down
    first, same, other = erdos_renyi(12, 0.3, 5), erdos_renyi(12, 0.3, 5), erdos_renyi(12, 0.3, 6)
    assert (first == same).all()
    assert (first != other).any()
    sizes = [erdos_renyi(40, 0.4, seed).sum() / (40 * 39) for seed in range(20)]
    assert np.mean(sizes) == pytest.approx(0.4, abs=0.02)
    sizes = [erdos_renyi(60, seed=seed).sum() / (60 * 59) for seed in range(20)]
    assert np.mean(sizes) == pytest.approx(2 * np.log(60) / 60, abs=0.01)


def test_without_some_devices_the_matrix_is_still_doubly_stochastic():
    W, here = mixing_matrix("grid", 9).matrix, np.array([1, 0, 1, 1, 1, 0, 1, 1, 1], bool)
    left = among(W, here)
    np.testing.assert_allclose(left.sum(axis=0), 1)
    np.testing.assert_allclose(left, left.T)
    np.testing.assert_allclose(left[1], np.eye(9)[1])
    assert left[0, 3] == W[0, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mixing_matrix("circle", 4), "unknown graph 'circle'"),
        (lambda: mixing_matrix("ring", 4, "uniform"), "unknown mixing rule 'uniform'"),
        (lambda: mixing_matrix("ring", 0), "at least 1, got 0"),
        (lambda: Mixing(np.array([[0.5, 0.4], [0.4, 0.5]])), "off by 0.1"),
        (lambda: Mixing(np.array([[1.2, -0.2], [-0.2, 1.2]])), "at least 0, got -0.2"),
        (lambda: Mixing(np.eye(3)), r"never agree: \|lambda_2\| of the mixing matrix is 1"),
        (lambda: Mixing(np.array([[0.0, 1.0], [1.0, 0.0]])), "rule='lazy'"),
        (lambda: Mixing(np.array([[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])[[1, 2, 0]]), "symmetric"),
        (lambda: Mixing(np.ones((2, 3))), r"shape \(2, 3\)"),
        (lambda: mixing_matrix("erdos_renyi", 30, p=0.001), "no connected graph of 30 devices"),
        (lambda: mixing_matrix("erdos_renyi", 5, p=1.5), r"in \(0, 1\], got 1.5"),
        (lambda: mixing_matrix(mixing_matrix("ring", 4), 5), "for 4 devices, there are 5"),
    ],
)
def test_bad_matrices_are_quoted(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_a_grid_links_neighbours_in_rows_and_columns():
    """Seven devices in rows of three: 0 1 2 / 3 4 5 / 6."""
    links = {(i, j) for i, j in np.argwhere(np.triu(grid(7))).tolist()}
    assert links == {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5), (3, 6)}


@pytest.mark.parametrize("kind", [DecentralisedGD, GradientTracking])
def test_an_order_that_is_none_is_refused(kind):
    with pytest.raises(InvalidInput, match="unknown order 'act'"):
        kind(order="act")
