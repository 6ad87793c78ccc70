"""The search for networks and functions on which the real method errs as much as a bound allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ownstep.pep.networks.instances.mirrored import can_mirror, mirror
from ownstep.pep.networks.instances.replay import NetworkInstance, replay
from ownstep.pep.networks.network_enclosure import INSIDE, Upper, upper
from ownstep.pep.networks.question import Question
from ownstep.support.errors import InternalError, OwnstepError

ROUNDING = 1e-6
"""What rounding may make of the error of an instance that was run in doubles, relative to it."""

MATRICES, PARTS = 5, 8
"""Matrices to try, and parts of the spectrum of two devices to prove, for an effort of one."""


class Search:
    """Looks for an instance as bad as the bound, and for two devices brings the bound down to it.

    Parameters
    ----------
    found : the upper end.
    best : the worst instance so far; None before there is one.
    where : its network, in words.
    factor : lambda of its matrix lambda I + (1 - lambda) 11'/N, if it is of this form.
    """

    def __init__(self, asked: Question, found: Upper, tolerance: float, deadline: float) -> None:
        self.asked, self.found, self.tolerance, self.deadline = asked, found, tolerance, deadline
        self.best: NetworkInstance | None = None
        self.factor: float | None = None
        self.where, self.solves = "", found.proof.solves

    def run(self, effort: float) -> None:
        """Matrices with one eigenvalue at the ends, networks for devices that are alike, and what lies between."""
        tried = factors(self.asked, self.found.given)
        allowed = max(1, round(MATRICES * effort))
        for factor in tried[: min(2, allowed)]:
            self._one(factor)
        if divisible(self.asked):
            self._divide(round(PARTS * effort))
        elif allowed > 2 and not self.done and can_mirror(self.asked):
            self._mirrored()
        for factor in tried[2:allowed]:
            self._one(factor)

    @property
    def done(self) -> bool:
        """Is the instance as bad as the bound, up to the tolerance?"""
        return self.best is not None and self.best.error >= (1 - self.tolerance) * self.found.proof.bound

    def _one(self, factor: float | None) -> None:
        """The worst of one matrix; the next margin is tried where exact numbers refute an instance."""
        if self.done:
            return
        known = self.found.given.get(factor) if factor is not None else None
        if known is not None and self.best is not None and known.proof.bound <= self.best.error:
            return
        tried, first = 0, None
        for margin in INSIDE:
            try:
                inside = known or upper(self.asked, factor, inside=margin, deadline=self.deadline)
            except OwnstepError:
                continue
            known = None
            tried, self.solves = tried + 1, self.solves + inside.proof.solves
            instance = replay(self.asked, inside, factor)
            first = first or instance
            if instance.error > 0 or not instance.exact:
                self._keep(instance, factor)
                return
        if not tried and factor is None:
            first = replay(self.asked, self.found, factor)
        self._keep(first, factor)

    def _mirrored(self) -> None:
        """A network that does what the bound asks of W, for devices that are alike."""
        for margin in INSIDE:
            try:
                inside = upper(self.asked, inside=margin, deadline=self.deadline)
            except OwnstepError:
                continue
            self.solves += inside.proof.solves
            network = mirror(self.asked, inside)
            if network is None:
                return
            instance = replay(self.asked, inside, None, network)
            if instance.error > 0:
                kind = "networks" if network.W.ndim == 3 else "a network"
                self._keep(instance, None, f"{kind} of {len(instance.of)} devices")
                return

    def _divide(self, parts: int) -> None:
        """Two devices have one eigenvalue, so the worst over parts of the spectrum is the worst over the whole."""
        network = self.asked.network
        assert network is not None
        pieces, given = [(network.lo, network.hi, self.found)], dict(self.found.given)
        while len(pieces) < parts and not self.done:
            lo, hi, _ = max(pieces, key=lambda piece: piece[2].proof.bound)
            middle = (lo + hi) / 2
            halves: list[tuple[float, float, Upper]] = []
            for a, b in ((lo, middle), (middle, hi)):
                half = replace(self.asked, network=replace(network, lo=a, hi=b))
                try:
                    found = upper(half, deadline=self.deadline, given=given)
                except OwnstepError:
                    return
                halves.append((a, b, found))
                given |= found.given
                self.solves += found.proof.solves
            pieces = [*(piece for piece in pieces if piece[:2] != (lo, hi)), *halves]
            worst = max((one for _, _, one in pieces), key=lambda one: one.proof.bound)
            self.found = replace(worst, given=given, pieces=tuple(pieces))
            self._one(middle)

    def _keep(self, instance: NetworkInstance | None, factor: float | None, network: str = "") -> None:
        if instance is None or (self.best is not None and instance.error <= self.best.error):
            return
        self.best, self.factor = instance, factor
        self.where = f"the lower end is reached on {network}, see example().W"
        if factor is not None:
            self.where = f"the lower end is reached with W = a I + (1 - a) 11'/N, a = {factor:g}"


def divisible(asked: Question) -> bool:
    """Is W one number, the same in all rounds?"""
    network = asked.network
    if network is None or network.lo == network.hi or network.each_round or network.any_number:
        return False
    return len(asked.devices) == 2


def not_above(bound: float, worst: NetworkInstance) -> float:
    """The error of an instance; one run in doubles is known up to rounding, and may be that much above a proof."""
    if worst.error > bound * (1.0 if worst.exact else 1 + ROUNDING):
        raise InternalError(f"an instance errs by {worst.error!r} and a proof says at most {bound!r}")
    return min(worst.error, bound)


def factors(asked: Question, given: Mapping[float, Upper] = MappingProxyType({})) -> list[float | None]:
    """Matrices to look for a worst instance with: the ends of the spectrum first, then between.

    ``given`` has worst cases of single matrices, and of the ends the worse one comes first.
    """
    network = asked.network
    if network is None:
        return [None]
    if network.lo == network.hi:
        return [network.hi]
    bounds = [given[end].proof.bound if end in given else 0.0 for end in (network.lo, network.hi)]
    first = [network.lo, network.hi] if bounds[0] > bounds[1] else [network.hi, network.lo]
    return [*first, *np.linspace(network.lo, network.hi, 5)[1:-1].tolist()]
