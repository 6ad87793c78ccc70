"""One row per device, each on the rank that holds the device: what methods without a server keep their points in.

Methods only add and scale vectors, and mix rows by a matrix W. So they run unchanged on this kind of stack: a sum stays
on its rank, and ``W @ rows`` fetches from other ranks the rows of neighbours, nothing else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ownstep.engines.cluster.ranks import Ranks
from ownstep.methods import alike
from ownstep.methods.base import ordered_sum
from ownstep.support.vectors import is_vector, like, to_numpy


@dataclass(frozen=True, eq=False)
class Placement:
    """Which rank holds which device.

    Parameters
    ----------
    owner : the rank of every device, 0 to N-1.
    """

    ranks: Ranks
    owner: NDArray[np.intp]

    @property
    def mine(self) -> NDArray[np.intp]:
        """The devices of this rank."""
        return self.of(self.ranks.rank)

    def of(self, rank: int) -> NDArray[np.intp]:
        """The devices of a rank."""
        return np.flatnonzero(self.owner == rank)

    def crossings(self, links: NDArray[np.int64]) -> int:
        """Vectors that change ranks in a round: a row goes once to every other rank with a neighbour of its device."""
        per_rank = np.stack([links[:, self.of(r)].max(axis=1, initial=0) for r in range(self.ranks.size)], axis=1)
        per_rank[np.arange(len(links)), self.owner] = 0
        return int(per_rank.sum())


class Rows:
    """A stack with one row per device, of which this rank holds its own.

    Parameters
    ----------
    block : this rank's rows, a NumPy array or a tensor.
    """

    __array_ufunc__ = None  # so that NumPy numbers and matrices on the left defer to the methods here

    def __init__(self, block: Any, home: Placement) -> None:
        self.block, self.home = block, home

    def __len__(self) -> int:
        return len(self.home.owner)

    @property
    def nbytes(self) -> int:
        """Of all rows, on all ranks."""
        return len(self) * int(self.block[0].nbytes)

    def _own(self, other: Any) -> Any:
        """What belongs to this rank's rows: of a stack or column its part, of anything common everything."""
        if isinstance(other, Rows):
            return other.block
        if np.ndim(other) == 2:  # one factor a device
            return alike(to_numpy(other)[self.home.mine], self.block)
        return other

    def _made(self, block: Any) -> Rows:
        return Rows(block, self.home)

    def __add__(self, other: Any) -> Rows:
        return self._made(self.block + self._own(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Rows:
        return self._made(self.block - self._own(other))

    def __rsub__(self, other: Any) -> Rows:
        return self._made(self._own(other) - self.block)

    def __mul__(self, other: Any) -> Rows:
        return self._made(self.block * self._own(other))

    __rmul__ = __mul__

    def __getitem__(self, chosen: NDArray[np.bool_]) -> Any:
        return self.block[self._at(chosen)]

    def __setitem__(self, chosen: NDArray[np.bool_], value: Any) -> None:
        self.block[self._at(chosen)] = value

    def _at(self, chosen: NDArray[np.bool_]) -> Any:
        own = chosen[self.home.mine]
        return torch.as_tensor(own, device=self.block.device) if torch.is_tensor(self.block) else own

    def __rmatmul__(self, left: Any) -> Any:
        """A vector everybody gets, c @ rows; or every rank its own rows of W @ rows."""
        left, mine = to_numpy(left), self.home.mine
        if left.ndim == 1:
            return self.home.ranks.add(ordered_sum(left[mine], self.block), np.zeros(0))[0]
        near, rows = self._neighbours(left)
        order = np.argsort(near)  # summed in the order of the devices, as on one machine
        rows = rows[torch.as_tensor(order, device=rows.device)] if torch.is_tensor(rows) else rows[order]
        return self._made(alike(left[np.ix_(mine, near[order])], self.block) @ rows)

    def _neighbours(self, W: NDArray[Any]) -> tuple[NDArray[np.intp], Any]:
        """The devices whose rows this rank's rows of W touch, and those rows."""
        home, block = self.home, torch.as_tensor(self.block)
        mine, send, receive, wanted = home.mine, {}, {}, [home.mine]
        for rank in range(home.ranks.size):
            theirs = home.of(rank)
            if rank == home.ranks.rank or not len(theirs):
                continue
            out = np.flatnonzero(W[np.ix_(theirs, mine)].any(axis=0))
            into = theirs[W[np.ix_(mine, theirs)].any(axis=0)]
            if len(out):
                send[rank] = block[torch.as_tensor(out, device=block.device)].contiguous()
            if len(into):
                receive[rank] = block.new_empty((len(into), block.shape[1]))
                wanted.append(into)
        home.ranks.exchange(send, receive)
        rows = torch.cat([block, *[receive[rank] for rank in sorted(receive)]])
        return np.concatenate(wanted), rows.numpy() if isinstance(self.block, np.ndarray) else rows

    def gathered(self) -> NDArray[Any] | None:
        """All rows, on rank 0; None elsewhere."""
        home, block = self.home, torch.as_tensor(self.block).contiguous()
        ranks = home.ranks
        if ranks.rank:
            ranks.exchange({0: block}, {})
            return None
        parts = {r: block.new_empty((len(home.of(r)), block.shape[1])) for r in range(1, ranks.size)}
        ranks.exchange({}, parts)
        whole = np.empty((len(self), block.shape[1]), to_numpy(block).dtype)
        for rank, part in ({0: block} | parts).items():
            whole[home.of(rank)] = to_numpy(part)
        return whole


def scatter(state: Any, home: Placement, x0: Any) -> Any:
    """A state whose stacks, one row per device, have become :class:`Rows`."""
    changes = {}
    for f in dataclasses.fields(state):
        value = getattr(state, f.name)
        if is_vector(value) and value.ndim == 2 and len(value) == len(home.owner):
            changes[f.name] = Rows(like(to_numpy(value)[home.mine], x0), home)
    return replace(state, **changes)


def gather(state: Any) -> Any:
    """The inverse of :func:`scatter`, on rank 0; elsewhere its stacks are None."""
    stacks = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    return replace(state, **{n: v.gathered() for n, v in stacks.items() if isinstance(v, Rows)})
