"""Which samples a round uses: mini-batches in shuffled epochs, a pure function of (seed, round).

Every rule deals out a shuffled copy of the data until it is used up, as data loaders do, and then shuffles again. The
shuffle of epoch e comes from (seed, e), so a run that is stopped and resumed sees the batches it would have seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ownstep.partition import Partition
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput

Indices = NDArray[np.intp]


class Batch(Protocol):
    """A rule for drawing a batch of the same size in every round."""

    def deal(self, partition: Partition, seed: int) -> Dealer:
        """Begin dealing the samples of a partition."""
        ...


class Dealer:
    """Batches of one partition.

    Parameters
    ----------
    decks : groups of samples, each shuffled on its own.
    quota : how many samples of each deck go into a batch.
    per_device : samples a batch holds of each device; None when that differs from batch to batch.
    seeds : a whole number for every deck, so that each has a shuffle of its own; 0, 1, ... by default.
    """

    def __init__(
        self,
        decks: list[Indices],
        quota: NDArray[np.intp],
        seed: int,
        per_device: Any = None,
        seeds: Sequence[int] | None = None,
    ) -> None:
        self.decks, self.quota, self.seed, self.per_device = decks, quota, seed, per_device
        self.seeds = range(len(decks)) if seeds is None else seeds
        self.size = int(quota.sum())
        self._shuffled: dict[int, tuple[int, Indices]] = {}

    def keep(self, devices: NDArray[np.intp], held: Indices) -> Dealer:
        """The same draws for some devices alone, where each is a deck: ``held`` are the samples they hold in all."""
        decks = [np.searchsorted(held, self.decks[i]) for i in devices]
        quota = self.quota[devices]
        return Dealer(decks, quota, self.seed, quota, [self.seeds[i] for i in devices])

    def indices(self, k: int) -> Indices:
        """The samples of round k, those of the first deck first."""
        return np.concatenate([self._cards(d, k) for d in range(len(self.decks))])

    def _cards(self, d: int, k: int) -> Indices:
        rounds = len(self.decks[d]) // int(self.quota[d])
        epoch, at = divmod(k, rounds)
        known = self._shuffled.get(d)
        if known is None or known[0] != epoch:
            order = np.random.default_rng([self.seed, epoch, self.seeds[d]]).permutation(self.decks[d])
            known = self._shuffled[d] = (epoch, order)
        return known[1][at * self.quota[d] : (at + 1) * self.quota[d]]


@dataclass(frozen=True)
class PerDevice:
    """b samples of every device: the paper's Algorithm 1 on CIFAR-10 has b = 1.

    f_i is estimated by the mean over device i's b samples.
    """

    b: int

    def __post_init__(self) -> None:
        whole_number("PerDevice(b)", self.b, 1)

    def deal(self, partition: Partition, seed: int) -> Dealer:
        """Each device is a deck of its own."""
        return _by_device(partition, np.full(len(partition), self.b), seed, f"PerDevice({self.b})")


@dataclass(frozen=True)
class Pooled:
    """b samples of all the data, whoever holds them: ordinary mini-batch gradient descent.

    f_i is estimated without bias by (n / (b n_i)) times the sum over the batch's samples of device i, so a device that
    is missing from a batch counts as zero in it.
    """

    b: int

    def __post_init__(self) -> None:
        whole_number("Pooled(b)", self.b, 1)

    def deal(self, partition: Partition, seed: int) -> Dealer:
        """One deck for all devices."""
        n = len(partition.device_of)
        if self.b > n:
            raise InvalidInput(f"Pooled({self.b}) asks for more than the {n} samples there are")
        return Dealer([np.arange(n)], np.array([self.b]), seed)


@dataclass(frozen=True)
class Stratified:
    """b samples in all, shared out to the devices in proportion to their size: pooled steps, less sampling noise.

    The ablation between :class:`Pooled` and :class:`PerDevice`: with a common step it shows what sampling does alone.
    """

    b: int

    def __post_init__(self) -> None:
        whole_number("Stratified(b)", self.b, 1)

    def deal(self, partition: Partition, seed: int) -> Dealer:
        """Largest remainders decide who gets the odd samples."""
        exact = self.b * partition.counts / partition.counts.sum()
        quota = np.floor(exact).astype(np.intp)
        spare = self.b - int(quota.sum())
        quota[np.argsort(quota - exact, kind="stable")[:spare]] += 1
        if not quota.all():
            left_out = partition.names[int(np.argmin(quota))]
            raise InvalidInput(
                f"Stratified({self.b}) leaves device {left_out!r} without a sample in every batch; "
                f"use a larger batch, or PerDevice for {len(partition)} devices of unequal size"
            )
        return _by_device(partition, quota, seed, f"Stratified({self.b})")


def _by_device(partition: Partition, quota: NDArray[np.intp], seed: int, rule: str) -> Dealer:
    short = np.flatnonzero(partition.counts < quota)
    if len(short):
        i = int(short[0])
        raise InvalidInput(
            f"{rule} takes {quota[i]} samples of device {partition.names[i]!r} per round, which holds "
            f"{partition.counts[i]}"
        )
    decks = np.split(np.argsort(partition.device_of, kind="stable"), np.cumsum(partition.counts)[:-1])
    return Dealer(decks, quota, seed, quota)
