"""Patience is kept wherever time goes: in tracing, in writing the program down, within a solve, in a design."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import EXTRA, At, DecentralisedGD, OwnStep
from ownstep.pep.conditions import gram
from ownstep.pep.search import Search
from ownstep.pep.trace.symbolic import trace
from ownstep.pep.trace.units import Setting, canonical
from ownstep.support.errors import OwnstepError

PAPER = pep.repeated([1 / 3, 3], 0.1)
ALIKE = pep.repeated([1.0], 0.1, [2])
NETWORK = pep.Spectral(-0.5, 0.5)


def seconds(call: Any) -> float:
    """Processor time until it says that time is up."""
    began = time.process_time()
    with pytest.raises(OwnstepError, match="time is up|out of patience") as said:
        call()
    assert len(str(said.value).splitlines()) == 1
    return time.process_time() - began


def test_many_rounds() -> None:
    """K = 300 was written down for 25 seconds before patience was looked at."""
    assert seconds(lambda: pep.worst_case(OwnStep(At(150)), PAPER, 300, 10, 1, patience=0.3)) < 2.5


def test_many_rounds_over_networks() -> None:
    assert seconds(lambda: pep.worst_case(EXTRA(0.3), ALIKE, 30, 1, 0.5, network=NETWORK, patience=0.3)) < 2.5


def test_a_design_for_networks() -> None:
    method = DecentralisedGD()
    assert seconds(lambda: pep.tune_network(method, PAPER, 12, network=NETWORK, patience=0.1)) < 2.5


def test_a_design_keeps_its_patience() -> None:
    """With 5 seconds it once took 11: the final enclosure knew of none. One bound is always waited for."""
    began = time.process_time()
    found = pep.tune(PAPER, 20, 10.0, 1.0, patience=1.0)
    assert time.process_time() - began < 3
    assert 0 < found.bound.lower <= found.bound.upper < 1


def test_the_program_is_given_up_between_its_blocks() -> None:
    """Asked about once a round and at every change of basis, and what is raised comes through."""
    path = canonical(Setting(trace(OwnStep(At(3)), PAPER, 6), PAPER, 10.0, 1.0, "value"))[0]
    search = Search(path)
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    options: Any = {"evaluate_final": True, "local_optima": True}
    whole = gram.build(path.path, search.groups, path.r0, path.rstar, **options, in_time=count)
    assert calls >= 7 + 4

    def stop() -> None:
        nonlocal calls
        calls -= 1
        if not calls:
            raise OwnstepError("time is up")

    with pytest.raises(OwnstepError, match="time is up"):
        gram.build(path.path, search.groups, path.r0, path.rstar, **options, in_time=stop)
    again = gram.build(path.path, search.groups, path.r0, path.rstar, **options)
    for one, two in zip(whole.triples, again.triples, strict=True):
        np.testing.assert_array_equal(one.x, two.x)


def test_the_basis_of_iterates_is_exact() -> None:
    """Rows over the new columns, times what these are, are the rows there were: x^k is one column of its own."""
    path = canonical(Setting(trace(OwnStep(At(20)), PAPER, 40), PAPER, 10.0, 1.0, "value"))[0]
    search = Search(path)
    options: Any = {"evaluate_final": True, "local_optima": True}
    sparse, dense = (
        gram.build(path.path, search.groups, path.r0, path.rstar, **options, sparse=sparse) for sparse in (True, False)
    )
    place = {column: j for j, column in enumerate(dense.columns)}
    basis = np.zeros((len(sparse.columns), len(dense.columns)))
    for j, (kind, c, k) in enumerate(sparse.columns):
        if (kind, c, k) in place:
            basis[j, place[kind, c, k]] = dense.scale[place[kind, c, k]] / sparse.scale[j]
        else:  # x^k, which is where the k-th gradients are taken, and at the end x^K
            basis[j] = dense.triples[0].x[k + 1] / sparse.scale[j]
    for one, two in zip(sparse.triples, dense.triples, strict=True):
        for mine, theirs in ((one.x, two.x), (one.v, two.v)):
            np.testing.assert_allclose(mine @ basis, theirs, atol=1e-13 * np.abs(theirs).max())
        assert (one.x != 0).sum() < (two.x != 0).sum() / 5


def test_what_was_proved_in_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over networks the upper end stands, and the lower one is withdrawn with the reason."""
    from ownstep.pep.networks import network_bound

    found = network_bound.upper

    def slow(asked: Any, factor: float | None = None, **options: Any) -> Any:
        if factor is not None:
            raise OwnstepError("time is up (patience), and nothing is proved yet")
        answer = found(asked, factor, **(options | {"deadline": math.inf}))
        while time.monotonic() < options["deadline"]:
            time.sleep(0.01)
        return answer

    monkeypatch.setattr(network_bound, "upper", slow)
    bound = pep.worst_case(EXTRA(0.3), ALIKE, 1, 1, 0.5, network=NETWORK, patience=0.2)
    assert bound.lower == 0 < bound.upper
    assert bound.status.startswith("the lower end is withdrawn: time is up (patience)")
