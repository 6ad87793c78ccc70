"""Rows that a fit does not see: which they are, and how well the model predicts them, site by site."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.glm.prediction import Model
from ownstep.problems import BinaryLogistic, optimum
from ownstep.support.checks import number, whole_number
from ownstep.support.errors import InvalidInput, OwnstepError

ALL_SITES = "all sites"
TOLD = "how well the model predicts its held-out rows"
TOGETHER = (
    f"{TOLD}; the line {ALL_SITES!r} is measured on the rows themselves, which are all in this process: over a "
    "federation it has no {}"
)
"""The same where all rows are in one process: what compares rows of two sites cannot follow from what each tells."""


def keys(family: str) -> tuple[str, ...]:
    """What :func:`measure` tells of a model of this family."""
    if family in ("linear", "poisson"):
        return ("rows", "observed", "predicted", "rmse", "r2")
    two = ("observed", "predicted", "calibration_slope") if family == "logistic" else ()
    return ("rows", "accuracy", "auc", *two)


def told(family: str, together: bool) -> str:
    """What a site tells of its held-out rows, and whether more than that was known."""
    lost = {"logistic": "AUC and no calibration slope", "softmax": "AUC"}.get(family, "R^2")
    return TOGETHER.format(lost) if together else TOLD


def chosen(name: str, rows: int, share: float, seed: int) -> NDArray[np.bool_]:
    """The rows of a site that are kept for measuring. They depend on its name and the seed, so it can choose alone."""
    if number("holdout", share, 0) >= 1:
        raise InvalidInput(f"holdout must be a share below 1, got {share:g}")
    rng = np.random.default_rng([whole_number("seed", seed, 0), zlib.crc32(name.encode())])
    out = np.zeros(rows, bool)
    out[rng.permutation(rows)[: round(share * rows)]] = True
    return out


def joined(by_site: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What can be said of all sites together from what each says of its own rows.

    Shares and means are weighted by rows. An AUC and a calibration slope compare rows of different sites with each
    other, which nobody can who does not have them: they are None.
    """
    rows = {name: int(told["rows"]) for name, told in by_site.items()}
    n = sum(rows.values())
    out: dict[str, Any] = {"rows": n}
    for key in next(iter(by_site.values())):
        if key in ("accuracy", "observed", "predicted"):
            out[key] = sum(rows[s] * told[key] for s, told in by_site.items()) / n
        elif key == "rmse":
            out[key] = float(np.sqrt(sum(rows[s] * told[key] ** 2 for s, told in by_site.items()) / n))
        elif key != "rows":
            out[key] = None
    return out


def measure(model: Model, rows: Any, labels: NDArray[Any]) -> dict[str, Any]:
    """AUC, accuracy and calibration for classes; R^2 and the root mean squared error for numbers.

    Calibration compares the share (or mean) observed with the one predicted. For two classes there is also the slope of
    a logistic regression of the label on the model's own score: 1 if it is calibrated, below 1 if it is too sure.
    """
    out: dict[str, Any] = {"rows": len(labels)}
    predicted = model.predict(rows)
    if not model.classes:
        y = labels.astype(float)
        residual, spread = y - predicted, y - y.mean()
        out |= {"observed": float(y.mean()), "predicted": float(predicted.mean())}
        out["rmse"] = float(np.sqrt(np.mean(residual**2)))
        out["r2"] = float(1 - residual @ residual / (spread @ spread)) if spread.any() else None
        return out
    codes = np.array([model.classes.index(str(v)) for v in labels.tolist()])
    out["accuracy"] = float((predicted.argmax(axis=1) == codes).mean())
    out["auc"] = _auc(codes, predicted)
    if predicted.shape[1] == 2:
        out |= {"observed": float(codes.mean()), "predicted": float(predicted[:, 1].mean())}
        out["calibration_slope"] = _slope(model.scores(rows)[:, 0], codes)
    return out


def _auc(codes: NDArray[np.intp], predicted: NDArray[np.float64]) -> float | None:
    """Area under the curve; for several classes the mean of each against the rest. None where a class is missing."""
    from sklearn.metrics import roc_auc_score

    if len(np.unique(codes)) < predicted.shape[1]:
        return None
    if predicted.shape[1] == 2:
        return float(roc_auc_score(codes, predicted[:, 1]))
    return float(np.mean([roc_auc_score(codes == c, predicted[:, c]) for c in range(predicted.shape[1])]))


def _slope(score: NDArray[np.float64], codes: NDArray[np.intp]) -> float | None:
    if len(np.unique(codes)) < 2 or not score.std() > 0:
        return None
    spread = float(score.std())
    problem = BinaryLogistic(score[:, None] / spread, codes, mu=0.0, intercept=True)
    try:
        return float(optimum(problem).x[0]) / spread
    except OwnstepError:  # the score separates these few rows
        return None
