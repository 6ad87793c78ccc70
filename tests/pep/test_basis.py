"""Sparse coordinates of worst cases over networks, known instances in them, and proofs from few conditions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import EXTRA, NIDS, DecentralisedGD, GradientTracking
from ownstep.pep.conditions.assemble import pack
from ownstep.pep.networks import dual, network_enclosure
from ownstep.pep.networks.basis import on_class, rebased
from ownstep.pep.networks.network_bound import question
from ownstep.pep.networks.network_enclosure import INSIDE, pose, upper
from ownstep.pep.networks.program import Blocks

UNLIKE = pep.repeated([1.0, 2.5, 1.5], [0.1, 0.4, 0.2], [2, 1, 3], [1.0, 2.0, 0.5])
ALIKE = pep.repeated([1.0], 0.1, [3])
METHODS = [DecentralisedGD(0.2), EXTRA(0.2), NIDS(0.2), GradientTracking(0.1), GradientTracking(0.1, order="atc")]


def asked(method, devices, rounds, network, metric="value", points="same"):
    return question(method, devices, rounds, 1.0, 0.5, metric, network, pep.Start(points), None, "rescale")


def rows_of(program):
    """All packed rows of a program, one under the other."""
    mixed = [part for mix in program.mixings for part in (mix.bounded, mix.symmetric)]
    return np.vstack([program.interpolation.rows.blocks.toarray(), program.heads, program.target[None], *mixed])


@pytest.mark.parametrize("spectrum", [(-0.3, 0.6), (0.19, 0.2)], ids=["wide", "narrow"])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_other_columns_state_the_same_conditions(method, spectrum, monkeypatch) -> None:
    """With P = B Q the forms of the trace's columns on B G B' are those of the new columns on G, for every G."""
    setting = asked(method, UNLIKE, 4, pep.Spectral(*spectrum), points="ball")
    sparse = pose(setting)[0]
    monkeypatch.setattr(network_enclosure, "rebased", lambda path, lo, hi: Blocks(path.frame))
    plain = pose(setting)[0]
    assert sparse.blocks.basis is not None
    rng = np.random.default_rng(4)
    factors = [rng.standard_normal((n, n)) for n in sparse.blocks.sizes]
    grams = [f @ f.T for f in factors]
    old = [basis @ gram @ basis.T for basis, gram in zip(sparse.blocks.basis, grams, strict=True)]
    here = rows_of(sparse) @ np.concatenate([pack(g) for g in grams])
    there = rows_of(plain) @ np.concatenate([pack(g) for g in old])
    assert here == pytest.approx(there, rel=1e-9, abs=1e-9 * np.abs(there).max())
    if spectrum == (-0.3, 0.6):  # a narrow spectrum has what is unknown of W as columns, and they are not sparse
        assert np.count_nonzero(rows_of(sparse)) <= np.count_nonzero(rows_of(plain))


def test_what_is_unknown_of_a_narrow_class_is_as_large_as_what_is_averaged() -> None:
    """With Y = mean + c (X - mean) + h E the condition on Y is h^2 (E'E - X'X): the same row with E in place of Y."""
    lo, hi = 0.19, 0.2
    program, path = pose(asked(DecentralisedGD(0.2), ALIKE, 3, pep.Spectral(lo, hi), points="mean"))
    square = ((hi - lo) / 2) ** 2
    gram = np.zeros((program.blocks.apart,) * 2)
    row = program.blocks.rows(path.steps[0][1])[1][0]  # the first average is of the start
    at = int(np.argmax(np.abs(program.blocks.rows(path.steps[0][2])[1][0] - lo * row) * (row == 0)))
    gram[at, at] = 1.0
    means = np.zeros((program.blocks.width,) * 2)
    assert program.mixings[0].bounded[0] @ np.concatenate([pack(means), pack(gram)]) == pytest.approx(square, rel=1e-9)
    gram[at, at], gram[np.argmax(row), np.argmax(row)] = 0.0, 1.0
    assert program.mixings[0].bounded[0] @ np.concatenate([pack(means), pack(gram)]) == pytest.approx(-square, rel=1e-9)


def test_points_are_columns_of_their_own() -> None:
    """Gradient tracking sums everything it has seen; over the new columns a point that is averaged is one column."""
    path = pose(asked(GradientTracking(0.1), ALIKE, 6, pep.Spectral(-0.5, 0.5)))[1]
    blocks = rebased(path, -0.5, 0.5)
    for _, x, _ in path.steps[2:]:  # the first two were made without an average
        assert np.count_nonzero(blocks.rows(x)[1]) == 1
    assert np.count_nonzero(Blocks(path.frame).rows(path.steps[-1][1])[1]) > 6


@pytest.mark.parametrize("devices", [ALIKE, UNLIKE], ids=["alike", "unlike"])
def test_a_worst_case_of_one_matrix_is_a_point_of_the_class(devices) -> None:
    """Carried over, it has the same metric, meets every condition, and the spectral ones with equality: Y = hi X."""
    setting = asked(EXTRA(0.2), devices, 3, pep.Spectral(-0.3, 0.6))
    program, path = pose(setting)
    given = upper(setting, 0.6, inside=INSIDE[0])
    grams = on_class(path, program.blocks, 0.6, given.proof.grams)
    packed = np.concatenate([pack(g) for g in grams])
    small = np.concatenate([pack(g) for g in given.proof.grams])
    reached = given.program.target @ small + given.program.target_values @ given.proof.values
    assert program.target @ packed + program.target_values @ given.proof.values == pytest.approx(reached, rel=1e-9)
    inter = program.interpolation.rows
    assert (inter.blocks @ packed + inter.values @ given.proof.values).max() <= 1e-7
    for mix in program.mixings:
        assert np.abs(mix.bounded @ packed).max() <= 1e-9
        assert np.abs(mix.symmetric @ packed).max() <= 1e-9
        assert np.abs(mix.bounded).max() > 1e-2


def test_conditions_between_neighbouring_averages_prove_the_same_bound() -> None:
    """Beyond FEW conditions a proof begins with few; it has the bound of the whole program, and no multiplier apart."""
    setting = asked(EXTRA(0.3), ALIKE, 9, pep.Spectral(-0.5, 0.5))
    found = upper(setting)
    assert set(found.given) == {-0.5, 0.5}
    whole = dual.prove(found.program)
    assert found.proof.bound == pytest.approx(whole.bound, rel=2e-6)
    Z = found.proof.multipliers.matrices[0]
    far = np.abs(np.subtract.outer(range(len(Z)), range(len(Z)))) > dual.REACH
    assert not Z[far].any()
    assert np.linalg.eigvalsh(Z)[0] > 0
    assert np.count_nonzero(found.proof.multipliers.conditions) < len(found.program.interpolation.pairs)
    alone = replace(found.program, mixings=tuple(replace(mix, reach=0) for mix in found.program.mixings))
    assert dual.prove(alone).bound > 1.001 * whole.bound  # conditions between different averages do matter


def test_gradient_tracking_for_many_rounds() -> None:
    """Both averages of every round, 10 rounds: enclosed, and from one solve over the class."""
    bound = pep.worst_case(GradientTracking(0.1), ALIKE, 10, 1.0, 0.5, network=pep.Spectral(-0.5, 0.5))
    assert bound.gap < 1e-6
    assert bound.solves <= 4
