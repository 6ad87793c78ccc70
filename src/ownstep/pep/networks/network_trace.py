"""Run a method's own ``ask`` and ``tell`` on symbolic vectors of devices that come in kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.engines.participation import MISSING, effective_mix
from ownstep.methods.base import Answer, Ask, Method
from ownstep.methods.gossip.peers import Peers
from ownstep.methods.local_work import LocalWork
from ownstep.pep.networks.kind_vectors import Agents, AnyMixing, Averaging, Frame, Kinds, Shared
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.trace.symbolic import LossValue, NotLinear, explain
from ownstep.pep.trace.units import measured
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, OwnstepError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Every device's gradient at its own point: v = grad h - mu x with h the tilted loss, see ``conditions/gram``."""

    name: str
    x: Agents
    v: Agents


@dataclass(eq=False)
class Follower:
    """Answers a method's asks with new symbolic vectors, and keeps what it did.

    Parameters
    ----------
    tilt : grad f_i(x*), or None where all devices are at rest at x*.
    slope : the size gradients are expected to have.
    """

    frame: Frame
    tilt: Agents | None
    slope: float
    evaluations: list[Evaluation] = field(default_factory=list)

    def gradient(self, x: Agents | Shared, name: str) -> Agents:
        """Grad f_i at device i's point, in the method's units: a new stack v + mu x + tilt, times these."""
        kinds = self.frame.kinds
        points = x.spread() if isinstance(x, Shared) else x
        v = self.frame.stack(self.slope * kinds.bend, kinds.mu < kinds.L)
        self.evaluations.append(Evaluation(name, points, v))
        slope: Agents = v + by_kind(kinds.mu, points)
        return kinds.unit * (slope if self.tilt is None else slope + self.tilt)


def answer(
    ask: Ask,
    gradient: Callable[[Any, str], Any],
    weights: Array,
    present: NDArray[np.bool_] | None = None,
    missing: str | None = None,
    name: str = "",
) -> Answer:
    """What the devices send back, on symbolic vectors or on numbers.

    Parameters
    ----------
    gradient : every device's gradient, at one point or at one point per device; it also takes a name.
    weights : w_i, one per device.
    """
    nobody: Any = LossValue()
    wanted = {"measuring curvature": ask.curvature, "a Hessian": ask.hessian, "a sketch of the curvature": ask.sketch}
    for what, used in wanted.items():
        if used:
            raise NotLinear(f"{what} is not linear")
    if ask.base is not None:
        raise NotLinear("asking at a second point is not followed here, where it")
    rows = gradient(ask.x, name) if ask.local is None else _work(ask.x, ask.local, gradient, name)
    if present is not None:
        rows = present.astype(float)[:, None] * rows
    if ask.mix is None:
        return Answer(value=nobody, gradients=rows, present=present)
    sums = []
    for asked in (ask.mix, ask.also):
        mix = None if asked is None else np.asarray(asked, float)
        if mix is not None and present is not None and missing is not None:
            mix = effective_mix(mix, weights, present, missing)  # type: ignore[arg-type]
        sums.append(None if mix is None else mix @ rows)
    moves = rows if ask.local is not None and ask.local.shift is not None else None
    return Answer(sums[0], nobody, moves, present, sums[1])


def _work(x: Any, work: LocalWork, gradient: Callable[[Any, str], Any], name: str) -> Any:
    """d_i = (x - y_i) / eta after the local steps of :class:`~ownstep.methods.base.LocalWork`."""
    if work.rule is not None or work.norms:
        raise NotLinear("choosing local steps by norms is not linear")
    length: Any = work.step if np.ndim(work.step) == 0 else np.asarray(work.step)[:, None]
    total: Any = None
    for e in range(work.longest):
        move = gradient(x if total is None else x - length * total, f"{name}.{e}")
        if work.shift is not None:
            move = move + work.shift
        if total is not None and work.prox:  # prox (y - x), as y - x = -eta (sum so far)
            move = move - work.prox * (length * total)
        if np.ndim(work.steps):
            move = (e < np.asarray(work.steps)).astype(float)[:, None] * move
        total = move if total is None else total + move
    return total


def by_kind(numbers: Array, x: Agents) -> Agents:
    """One factor per kind."""
    column = np.asarray(numbers, float)[:, None]
    return Agents(column * x.mean_rows, column * x.difference, x.frame)


def own_minimisers(frame: Frame, length: float, tilt: Agents) -> Agents:
    """The points x_i* where f_i is least, and its gradient v + mu x_i* + grad f_i(x*) is zero.

    Of losses that are nearly quadratics v is the new vector: it is too small to be seen in a sum with the others.
    """
    kinds = frame.kinds
    stiff, mu = kinds.stiff, np.where(kinds.stiff, kinds.mu, 1.0)
    size = np.where(stiff, length * float(kinds.L.max()) * kinds.bend, length)
    found = frame.stack(size, kinds.mu < kinds.L)
    points: Agents = by_kind(np.where(stiff, -1 / mu, 1.0), found) + by_kind(np.where(stiff, -1 / mu, 0.0), tilt)
    return points


@dataclass(frozen=True, eq=False)
class Path:
    """A method's rounds on symbolic vectors.

    Parameters
    ----------
    start : x^0, one vector per device.
    own : the devices' own minimisers, or None.
    points : ``point(state)`` after 0, 1, ..., K rounds.
    stacks : what every device holds then, where each holds something of its own, else None.
    steps : products with the mixing matrix.
    """

    frame: Frame
    evaluations: tuple[Evaluation, ...]
    tilt: Agents | None
    start: Agents
    own: Agents | None
    points: tuple[Shared, ...]
    stacks: tuple[Agents | None, ...]
    steps: tuple[tuple[int, Agents, Agents], ...]
    follower: Follower


def follow(
    method: Method,
    devices: Devices,
    kinds: Kinds,
    rounds: int,
    *,
    network: Spectral | None,
    factor: float | None = None,
    apart: bool = False,
    tilted: bool = False,
    own: bool = False,
    length: float = 1.0,
    schedule: NDArray[np.bool_] | None = None,
    missing: str | None = None,
    raw: bool = False,
) -> Path:
    """Trace ``rounds`` rounds.

    Parameters
    ----------
    devices, kinds : in one unit of curvature, and the method counts in that of ``kinds``.
    factor : lambda of the one matrix lambda I + (1 - lambda) 11'/N in place of the class.
    apart : every device starts at a point of its own.
    tilted, own : the devices' gradients at x* may differ; their own minimisers matter.
    length : unit of lengths.
    raw : gradients and averages are atoms of their own, of which nothing is known: the method alone is written down.
    """
    if apart and not isinstance(method, Peers):
        raise InvalidInput(f"{type(method).__name__} has one point for all devices: they cannot start apart")
    frame = Frame(kinds, raw=raw)
    slope = length * float(kinds.L.max())
    start: Any = frame.stack(length) if apart else frame.shared(length)
    tilt = frame.balanced(slope, kinds.weights, np.zeros(0)) if tilted else None
    minimisers = own_minimisers(frame, length, tilt) if own and tilt is not None else None
    follower = Follower(frame, tilt, slope)
    averaging = Averaging(frame, factor, network is not None and network.each_round)
    try:
        if network is not None:
            method = on_any_network(method, network, averaging, len(devices))
        state = method.start(start, measured(devices, kinds.unit))
        points, stacks = [_point(method, state)], [_stack(method, state)]
        for k in range(rounds):
            averaging.round = k
            here = None if schedule is None else schedule[k]
            told = answer(method.ask(state), follower.gradient, devices.weights, here, missing, str(k))
            state = method.tell(state, told)
            points.append(_point(method, state))
            stacks.append(_stack(method, state))
    except NotLinear as error:
        raise NotLinear(explain(method, str(error))) from None
    except TypeError as error:
        raise NotLinear(explain(method, f"what it does to vectors ({error}) is not linear")) from error
    except OwnstepError:
        raise
    except Exception as error:
        raise InvalidInput(f"{method!r} fails within {rounds} rounds: {type(error).__name__}: {error}") from error
    first = start if apart else start.spread()
    found = tuple(follower.evaluations), tilt, first, minimisers
    return Path(frame, *found, tuple(points), tuple(stacks), tuple(averaging.steps), follower)


def on_any_network(method: Method, network: Spectral, matrix: Averaging | Array, devices: int) -> Method:
    """The method with an abstract mixing matrix, or one of the class, in place of its graph."""
    if not isinstance(method, Peers):
        raise InvalidInput(f"{type(method).__name__} works without a network: leave the network out")
    usual = type(method).__dataclass_fields__["graph"].default
    if method.graph is not usual and method.graph != usual:
        raise InvalidInput(f"a network and graph={method.graph!r} are both given: leave one of them out")
    step = method.step
    if isinstance(step, tuple) and devices % len(step) == 0:
        step = devices // len(step) * step  # an instance for any number of devices has every device several times
    return replace(method, graph=AnyMixing(network, matrix, devices), step=step)


def in_network(state: Any, matrix: Averaging | Array) -> Any:
    """The state of a method without a server, with another matrix from here on."""
    mixing = state.mixing
    return replace(state, mixing=AnyMixing(mixing.network, matrix, mixing.devices))


def check_schedule(schedule: Any, rounds: int, devices: int, missing: str) -> NDArray[np.bool_]:
    """Who is there in which round, as an array of one row per round."""
    if missing not in MISSING:
        raise InvalidInput(f"missing must be one of {', '.join(MISSING)}, got {missing!r}")
    if missing == "last":
        raise InvalidInput("gradients that are remembered (missing='last') are not followed in a worst case")
    table = np.asarray(schedule)
    if table.shape != (rounds, devices) or table.dtype != np.bool_:
        raise InvalidInput(
            f"a schedule has {rounds} rows of {devices} booleans, one row per round, got {table.dtype} {table.shape}"
        )
    return table


def _point(method: Method, state: Any) -> Shared:
    point = method.point(state)
    if isinstance(point, Shared):
        return point
    if isinstance(point, Agents):
        return point.mean()
    raise NotLinear(f"handing back {type(point).__name__} where a vector is expected is not linear")


def _stack(method: Method, state: Any) -> Agents | None:
    x = held(method, state)
    return x if isinstance(x, Agents) else None


def held(method: Method, state: Any) -> Any:
    """Where the devices stand: each at its own point, or all at the method's; a method on a server asks no more."""
    return method.ask(state).x if isinstance(method, Peers) else method.point(state)
