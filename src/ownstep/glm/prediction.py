"""A fitted model that predicts: what a file keeps, as json or safetensors; nothing in it is ever executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ownstep.glm.families import FAMILIES
from ownstep.support.errors import InvalidInput, OwnstepError, require_extra
from ownstep.support.files import write_atomically

FORMAT = "ownstep model 1"
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Model:
    """A generalised linear model: z = rows @ coefficients + intercepts, one column per class but the reference.

    Parameters
    ----------
    family : ``logistic``, ``softmax``, ``linear`` or ``poisson``.
    label : the name of what is predicted.
    features : one name per row of ``coefficients``.
    classes : in order, the first is the reference; empty where a number is predicted.
    levels : of every category that became 0/1 columns, its values, the reference first.
    about : where it comes from, as plain data.
    """

    family: str
    features: tuple[str, ...]
    coefficients: Array
    intercepts: Array
    classes: tuple[str, ...] = ()
    label: str = ""
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def scores(self, rows: Any) -> Array:
        """Z, one column per class but the reference."""
        if rows.ndim != 2 or rows.shape[1] != len(self.features):
            raise InvalidInput(f"the model has {len(self.features)} columns, the rows have shape {rows.shape}")
        return np.asarray(rows @ self.coefficients + self.intercepts)

    def predict(self, rows: Any) -> Array:
        """Probabilities with one column per class, or the mean of the number that is predicted."""
        z = self.scores(rows)
        if self.family == "logistic":
            return np.column_stack([expit(-z[:, 0]), expit(z[:, 0])])
        if self.family == "softmax":
            z = np.column_stack([np.zeros(len(z)), z])
            p = np.exp(z - z.max(axis=1, keepdims=True))
            return np.asarray(p / p.sum(axis=1, keepdims=True))
        return np.asarray(np.exp(z[:, 0]) if self.family == "poisson" else z[:, 0])

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "format": FORMAT, "family": self.family, "label": self.label, "features": list(self.features),
            "classes": list(self.classes), "levels": {k: list(v) for k, v in self.levels.items()},
            "coefficients": self.coefficients.tolist(), "intercepts": self.intercepts.tolist(),
            "about": dict(self.about),
        }  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write the model: json, or safetensors for a name that ends so."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as file:
                file.write(self._bytes(path.suffix))
        except OSError as error:
            raise OwnstepError(f"cannot write {str(path)!r}: {error}") from error
        return path

    def _bytes(self, suffix: str) -> bytes:
        if suffix == ".json":
            return json.dumps(self.to_dict(), indent=1).encode()
        if suffix != ".safetensors":
            raise InvalidInput(
                f"a model is written to a .json or .safetensors file, got a name that ends in {suffix!r}"
            )
        try:
            from safetensors.numpy import save
        except ModuleNotFoundError as error:
            raise require_extra("safetensors", "torch") from error
        about = {k: v for k, v in self.to_dict().items() if k not in ("coefficients", "intercepts")}
        tensors = {"coefficients": np.ascontiguousarray(self.coefficients), "intercepts": self.intercepts}
        return bytes(save(tensors, {"model": json.dumps(about)}))


def load_model(path: str | Path) -> Model:
    """Read a model from the file that :meth:`Model.save` wrote."""
    path = Path(path)
    try:
        raw = path.read_bytes()
        data = _from_safetensors(raw) if path.suffix == ".safetensors" else json.loads(raw)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"it does not say {FORMAT!r}")
        coefficients, intercepts = np.array(data["coefficients"], float), np.array(data["intercepts"], float)
        if coefficients.shape != (len(data["features"]), len(intercepts)) or not np.isfinite(coefficients).all():
            raise ValueError("its coefficients do not fit its features")
        if not np.isfinite(intercepts).all():
            raise ValueError("its intercepts must be finite")
        if data["family"] not in FAMILIES or len(intercepts) != max(1, len(data["classes"]) - 1):
            raise ValueError(f"its family {data['family']!r} and its {len(data['classes'])} classes do not fit")
        return Model(
            str(data["family"]), tuple(data["features"]), coefficients, intercepts, tuple(data["classes"]),
            str(data["label"]), {k: tuple(v) for k, v in data["levels"].items()}, data["about"],
        )  # fmt: skip
    except OSError as error:
        raise InvalidInput(f"the model {str(path)!r} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{str(path)!r} is no model of ownstep: {error}") from error


def _from_safetensors(raw: bytes) -> dict[str, Any]:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load
    except ModuleNotFoundError as error:
        raise require_extra("safetensors", "torch") from error
    try:
        tensors = load(raw)
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    told: dict[str, Any] = json.loads(header["__metadata__"]["model"])
    return told | {name: tensor.tolist() for name, tensor in tensors.items()}
