"""How well a model predicts rows it has not seen, site by site."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.glm.prediction import Model
from ownstep.problems import BinaryLogistic, optimum
from ownstep.support.errors import OwnstepError


def measure(model: Model, rows: Any, labels: NDArray[Any]) -> dict[str, Any]:
    """AUC, accuracy and calibration for classes; R^2 and the root mean squared error for numbers.

    Calibration: the share (or mean) observed, the one predicted, and for two classes the slope of a logistic regression
    of the label on the model's own score, 1 for a calibrated model, below 1 for one that is too sure.
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
