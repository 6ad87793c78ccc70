"""Checkpoints: the method's state and the history so far, in one file that is always complete.

A state is a frozen dataclass of arrays, numbers, strings, tuples of numbers and further dataclasses. Arrays go into the
npz, the rest into a json string beside them; reading fills a freshly started state, so no class is ever named
in the file and nothing is unpickled. A path that ends in ``.safetensors`` is written in that format instead, the json
in its metadata and, to be read by people, in a file beside it.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError
from ownstep.support.files import what_ails, write_atomically
from ownstep.support.vectors import is_vector, like, to_numpy


def save(path: Path, state: Any, about: dict[str, Any], columns: dict[str, NDArray[Any]]) -> None:
    """Write a checkpoint; ``about`` is plain data, ``columns`` are arrays."""
    arrays, plain = flatten(state)
    if path.suffix == ".safetensors":
        _save_tensors(path, arrays, {"about": about, "state": plain}, columns)
        return
    header = json.dumps({"about": about, "state": plain})
    everything: dict[str, Any] = {"header": np.frombuffer(header.encode(), np.uint8)}
    everything |= {f"state/{k}": v for k, v in arrays.items()} | {f"column/{k}": v for k, v in columns.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as file:
            np.savez(file, allow_pickle=False, **everything)
    except OSError as error:
        raise OwnstepError(f"cannot write the checkpoint {str(path)!r}: {error}") from error


def load(path: Path, template: Any, shown: Path | None = None) -> tuple[Any, dict[str, Any], dict[str, NDArray[Any]]]:
    """Read a checkpoint into a copy of ``template``, a state of the same method; errors call the file ``shown``."""
    shown = shown or path
    if path.suffix == ".safetensors":
        return _load_tensors(path, template, shown)
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            header = json.loads(bytes(file["header"]).decode())
            arrays = {k[6:]: file[k] for k in file.files if k.startswith("state/")}
            columns = {k[7:]: file[k] for k in file.files if k.startswith("column/")}
        return restore(template, arrays, header["state"]), header["about"], columns
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise OwnstepError(f"{str(shown)!r} is not a readable checkpoint of this method: {what_ails(error)}") from error


def about(path: Path, shown: Path | None = None) -> dict[str, Any]:
    """What a checkpoint says of itself, without its arrays."""
    try:
        if path.suffix == ".safetensors":
            from safetensors import SafetensorError, safe_open

            try:
                with safe_open(path, "numpy") as file:
                    header = json.loads(file.metadata()["header"])
            except SafetensorError as error:
                raise ValueError(error) from error
        else:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                header = json.loads(bytes(file["header"]).decode())
        told: dict[str, Any] = header["about"]
        return told
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise OwnstepError(f"{str(shown or path)!r} is not a readable checkpoint: {what_ails(error)}") from error


def _save_tensors(
    path: Path, arrays: dict[str, NDArray[Any]], header: dict[str, Any], columns: dict[str, NDArray[Any]]
) -> None:
    from safetensors.numpy import save as to_bytes

    words = {k: v.tolist() for k, v in columns.items() if v.dtype.kind == "U"}  # tensors hold numbers alone
    numbers = {f"column/{k}": v for k, v in columns.items() if k not in words}
    tensors = {k: np.ascontiguousarray(v) for k, v in ({f"state/{k}": v for k, v in arrays.items()} | numbers).items()}
    text = json.dumps(header | {"words": words})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as file:
            file.write(to_bytes(tensors, {"header": text}))
        with write_atomically(path.with_suffix(".json")) as file:
            file.write(json.dumps(header, indent=1).encode())
    except OSError as error:
        raise OwnstepError(f"cannot write the checkpoint {str(path)!r}: {error}") from error


def _load_tensors(path: Path, template: Any, shown: Path) -> tuple[Any, dict[str, Any], dict[str, NDArray[Any]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            header = json.loads(file.metadata()["header"])
            tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
        columns = {k[7:]: v for k, v in tensors.items() if k.startswith("column/")}
        columns |= {k: np.asarray(v, dtype=str) for k, v in header["words"].items()}
        arrays = {k[6:]: v for k, v in tensors.items() if k.startswith("state/")}
        return restore(template, arrays, header["state"]), header["about"], columns
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise OwnstepError(f"{str(shown)!r} is not a readable checkpoint of this method: {what_ails(error)}") from error


def flatten(state: Any, prefix: str = "") -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and the plain values of a state, by dotted field name; the devices are left out."""
    arrays: dict[str, NDArray[Any]] = {}
    plain: dict[str, Any] = {}
    for f in dataclasses.fields(state):
        value, key = getattr(state, f.name), prefix + f.name
        if isinstance(value, Devices):
            continue
        if dataclasses.is_dataclass(value):
            inner_arrays, inner_plain = flatten(value, key + ".")
            arrays |= inner_arrays
            plain |= inner_plain
        elif is_vector(value):
            arrays[key] = to_numpy(value)
        else:
            plain[key] = value
    return arrays, plain


def restore(template: Any, arrays: dict[str, NDArray[Any]], plain: dict[str, Any], prefix: str = "") -> Any:
    """The inverse of :func:`flatten`, into the dataclasses of a template."""
    changes: dict[str, Any] = {}
    for f in dataclasses.fields(template):
        old, key = getattr(template, f.name), prefix + f.name
        if isinstance(old, Devices):
            continue
        if dataclasses.is_dataclass(old) and not isinstance(old, type):
            changes[f.name] = restore(old, arrays, plain, key + ".")
        elif key in arrays:
            changes[f.name] = like(arrays[key], old)
        else:
            value = plain[key]
            changes[f.name] = tuple(value) if isinstance(value, list) else value
    return dataclasses.replace(template, **changes)
