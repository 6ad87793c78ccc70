"""A network problem with the data of some devices alone, as one rank of a cluster holds it."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch

from ownstep.partition import Partition
from ownstep.problems.network.batches import Pooled
from ownstep.problems.network.problem import Network
from ownstep.support.errors import InvalidInput


def keep(problem: Network, devices: Sequence[int]) -> Network:
    """The samples of these devices, copied; batches are those the whole problem would draw of them."""
    if problem.augment is not None or isinstance(problem.batch, Pooled):
        drawn = problem.batch if problem.augment is None else problem.augment
        raise InvalidInput(f"{drawn!r} is drawn for all devices' data together; use PerDevice or Stratified batches")
    some, chosen = copy.copy(problem), np.asarray(devices, int)
    owners = problem.partition.device_of
    held = np.flatnonzero(np.isin(owners, chosen))
    place = np.zeros(len(problem.counts), np.intp)
    place[chosen] = np.arange(len(chosen))
    names = tuple(problem.names[i] for i in chosen)
    some.partition = Partition(place[owners[held]], problem.partition.rule, names)
    some.parts, start = [], 0
    for part in problem.parts:
        stop = start + len(part[0])
        mine = held[(held >= start) & (held < stop)] - start
        if len(mine):
            some.parts.append(tuple(t[torch.as_tensor(mine, device=t.device)] for t in part))
        start = stop
    some.targets = problem.targets[torch.as_tensor(held, device=problem.device)]
    some.names, some.counts, some.divisor = names, problem.counts[chosen], problem.divisor[chosen]
    some.weights = problem.weights[chosen] / problem.weights[chosen].sum()
    some.dealer = None if problem.dealer is None else problem.dealer.keep(chosen, held)
    some._arrange()
    return some
