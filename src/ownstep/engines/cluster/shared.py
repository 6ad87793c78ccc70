"""Everybody's problem as one rank sees it: its own devices' data, and one all-reduce per round for all the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.engines.cluster.ranks import Ranks
from ownstep.engines.cluster.rows import Placement, Rows
from ownstep.plan import Plan, plan
from ownstep.problems.base import Problem
from ownstep.smoothness import Smoothness, measure
from ownstep.smoothness.base import STRENGTH
from ownstep.support.checks import device_weights
from ownstep.support.errors import InvalidInput, OwnstepError


class Shared:
    """f(x) = sum_i w_i f_i(x) over the devices of all ranks, in the order of the ranks.

    It keeps the contract of every :class:`~ownstep.problems.base.Problem`, so whatever runs on a problem runs on this
    one, on all ranks at once; each sees the same numbers.

    Parameters
    ----------
    problem : this rank's own devices. Its weights matter only in proportion to each other.
    ranks : the processes of the run.
    weights : w_i of all devices, in the order of the ranks; the share of samples by default.
    """

    def __init__(self, problem: Problem, ranks: Ranks, weights: ArrayLike | None = None) -> None:
        self.problem, self.ranks = problem, ranks
        self.sent: tuple[Any, ...] = ()  # this rank's last share of a sum, to say whose was not finite
        self.kind, self.dim, self.work = type(problem).__name__, problem.dim, problem.work
        counts = [np.frombuffer(c, np.int64) for c in ranks.gather(_counts(problem).tobytes())]
        self.counts = np.concatenate(counts)
        self.home = Placement(ranks, np.repeat(np.arange(ranks.size), [len(c) for c in counts]))
        self.names = self._named()
        self.mine = self.home.mine
        if weights is None:
            share = _counts(problem) / _counts(problem).sum()
            fair = b"" if np.allclose(problem.weights, share, rtol=1e-9) else b"own weights"
            if any(ranks.gather(fair)):
                raise InvalidInput("some rank's problem has weights of its own: give the weights of all devices too")
            weights = self.counts / self.counts.sum()
        self.weights = device_weights(weights, len(self.counts))
        self.strong_convexity = min(
            float(np.frombuffer(mu)[0]) for mu in ranks.gather(_number(problem.strong_convexity))
        )
        if hasattr(problem, "settings"):
            self.settings = problem.settings | {"samples": int(self.counts.sum())}
        if hasattr(problem, "begin_round"):
            self.begin_round = problem.begin_round
        if hasattr(problem, "hessian"):
            self.hessian = self._hessian
        ranks.agree("the number of features", _number(self.dim))

    def x0(self) -> Any:
        """The default start of this rank; the engine checks that all have the same."""
        return self.problem.x0()

    def value(self, x: Any) -> float:
        """f(x)."""
        return float(self.weights @ self.mix(x, self.weights)[0])

    def mix(self, x: Any, c: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        """(f_i(x) for every device, sum_i c_i grad f_i(x)): this rank's share, then one all-reduce of one vector."""
        mine, total = self.problem.mix(x, c[self.mine])
        self.sent = (total,)
        losses = np.zeros(len(self.weights))
        losses[self.mine] = mine
        total, losses = self.ranks.add(total, losses)
        if c.ndim == 2:  # a second sum is a measurement, of ||grad f||; no method asks for one
            self.ranks.bytes -= total[:, 1:].nbytes
        return losses, total

    def gradients(self, x: Any) -> Rows:
        """One row per device, each on its rank; nothing is sent."""
        return Rows(self.problem.gradients(x.block if isinstance(x, Rows) else x), self.home)

    def hessian_product(self, x: Any, v: Any) -> Any:
        """(the Hessian of f at x) times v."""
        own = self.weights[self.mine]
        part = self.problem.reweighted(own).hessian_product(x, v)  # type: ignore[attr-defined]
        return self.ranks.add(float(own.sum()) * part, np.zeros(0))[0]

    def _hessian(self, x: Any, c: NDArray[np.float64]) -> NDArray[np.float64]:
        """sum_i c_i (the Hessian of f_i at x), its upper triangle added up over ranks; the lower one is left zero."""
        part = self.problem.hessian(x, c[self.mine])  # type: ignore[attr-defined]
        upper, out = np.triu_indices(self.dim), np.zeros((self.dim, self.dim))
        out[upper] = self.ranks.add(np.ascontiguousarray(part[upper], float), np.zeros(0))[0]
        return out

    def describe(self, smoothness: Smoothness | str = "auto") -> Plan:
        """Every rank measures its own devices once; the constants are exchanged, never the data."""
        if not isinstance(smoothness, str):
            return plan(self.weights, smoothness, self.strong_convexity, self.names)
        mine = measure(smoothness, self.problem)
        values = np.concatenate([np.frombuffer(v) for v in self.ranks.gather(mine.values.tobytes())])
        pooled = float(self.weights @ values) if smoothness == "trace" else None
        if smoothness in ("auto", "exact"):
            pooled = self._pooled()
        weakest = min(STRENGTH.index(kind.decode()) for kind in self.ranks.gather(mine.kind.encode()))
        how = f"{mine.how}; each on its own rank"
        found = Smoothness(values, STRENGTH[weakest], how, pooled)
        return plan(self.weights, found, self.strong_convexity, self.names)

    def _pooled(self) -> float:
        """lambda_max of kappa sum_i w_i A_i^T A_i / n_i + diag(penalty), each rank adding its own devices' part."""
        from ownstep.smoothness.every_device import DENSE_LIMIT
        from ownstep.smoothness.spectrum import lanczos

        model: Any = self.problem
        scales = model.curvature * self.weights[self.mine] / model.counts
        blocks = [model.rows(i) for i in range(len(self.mine))]
        part = self.weights[self.mine].sum() * model.penalty

        def product(v: NDArray[Any]) -> NDArray[Any]:
            v = v.reshape(model.features, -1)
            mine = sum(s * (b.T @ (b @ v)) for s, b in zip(scales, blocks, strict=True)) + part[:, None] * v
            return np.asarray(self.ranks.add(np.asarray(mine, float), np.zeros(0))[0])

        if model.features <= DENSE_LIMIT:
            return float(np.linalg.eigvalsh(product(np.eye(model.features)))[-1])
        return lanczos(lambda v: product(v).ravel(), model.features)

    def _named(self) -> tuple[str, ...]:
        """The devices' names, numbered where two ranks chose the same."""
        texts = [t.decode().split("\n") for t in self.ranks.gather("\n".join(self.problem.names).encode())]
        names = tuple(name for text in texts for name in text)
        return names if len(set(names)) == len(names) else tuple(f"D{i + 1}" for i in range(len(names)))


def _counts(problem: Any) -> NDArray[np.int64]:
    counts = getattr(problem, "counts", None)
    if counts is None:
        raise OwnstepError(f"{type(problem).__name__} has no counts, so its share of the samples is unknown")
    return np.asarray(counts, np.int64)


def _number(value: float) -> bytes:
    return np.float64(value).tobytes()
