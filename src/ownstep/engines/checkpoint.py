"""Checkpoints: the method's state and the history so far, in one file that is always complete.

A state is a frozen dataclass of arrays, numbers, strings, tuples of numbers and further dataclasses. Arrays go into the
npz, the rest into a json string beside them; reading fills a freshly started state, so no class is ever named
in the file and nothing is unpickled. A path that ends in ``.safetensors`` is written in that format instead, the json
in its metadata and, to be read by people, in a file beside it.

Two are kept: ``run.npz``, and as ``run.1.npz`` the one before it, which is used when the first cannot be read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.files import sweep, what_ails, write_atomically
from ownstep.support.vectors import is_vector, like, to_numpy
from ownstep.support.versions import check_format, stamp

Columns = dict[str, NDArray[Any]]

FORMAT = 2
"""Of the files written here. 1, by ownstep 0.1, had no number and no digest."""


class Unreadable(OwnstepError):
    """A file that is damaged, or no checkpoint of this method."""


class OtherState(ValueError):
    """A state of a version in which the method had other fields; its text is the first that is missing."""


def save(path: Path, state: Any, about: dict[str, Any], columns: Columns) -> None:
    """Write a checkpoint and keep the one before it; ``about`` is plain data, ``columns`` are arrays."""
    arrays, plain = flatten(state)
    header = stamp(FORMAT) | {"about": about, "state": plain}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as file:
            if path.suffix == ".safetensors":
                file.write(_as_tensors(arrays, header, columns))
            else:
                everything: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
                everything |= {f"state/{k}": v for k, v in arrays.items()}
                np.savez(file, allow_pickle=False, **everything, **{f"column/{k}": v for k, v in columns.items()})
            file.flush()  # a full disk is found here, while the file before is still in its place
            os.fsync(file.fileno())  # and two renames follow each other at once
            if path.exists():
                path.replace(previous(path))
        if path.suffix == ".safetensors":
            with write_atomically(path.with_suffix(".json")) as file:
                file.write(json.dumps(header, indent=1).encode())
    except OSError as error:
        raise OwnstepError(f"cannot write the checkpoint {str(path)!r}: {error}") from error


def previous(path: Path) -> Path:
    """Where the checkpoint before the last is kept."""
    return path.with_name(f"{path.stem}.1{path.suffix}")


def refuse_folder(path: Path) -> None:
    """A checkpoint is a file."""
    if path.is_dir():
        raise InvalidInput(f"{str(path)!r} is a folder; a checkpoint is a file: name one in it")


def there(path: Path) -> list[Path]:
    """The checkpoints to go on from, the newest first; what killed writers left is removed."""
    refuse_folder(path)
    if path.parent.is_dir():
        sweep(path)
    return [file for file in (path, previous(path)) if file.exists()]


def remove(path: Path) -> None:
    """Remove a checkpoint, with the one before it."""
    for file in (path, previous(path)):
        file.unlink(missing_ok=True)


def load(path: Path, template: Any, shown: Path | None = None) -> tuple[Any, dict[str, Any], Columns]:
    """Read a checkpoint into a copy of ``template``, a state of the same method; errors call the file ``shown``."""
    try:
        header, arrays, columns = _read(path)
        state = restore(template, arrays, header["state"])
        return state, header["about"], columns
    except OtherState as other:  # the file is whole: its check sums were right
        raise OwnstepError(
            f"the checkpoint {str(shown or path)!r} was written by {_writer(header)}, where this method's state had no "
            f"{other}; it was left alone: go on with the version that wrote it, or name another file"
        ) from other
    except Exception as error:  # a damaged file can make zip, npy, json and whatever reads them fail in any way
        raise _unreadable(shown or path, error, "checkpoint of this method") from error


def _writer(header: dict[str, Any]) -> str:
    """Which version wrote a file, where it is not this one as it is."""
    who = str(header.get("written_by", "ownstep 0.1"))
    return f"an earlier {who}" if who == stamp(FORMAT)["written_by"] else who


def about(path: Path, shown: Path | None = None) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    try:
        told: dict[str, Any] = _read(path)[0]["about"]
        _ = told["k"], told["fingerprint"]
        return told
    except Exception as error:
        raise _unreadable(shown or path, error, "checkpoint") from error


def _unreadable(path: Path, error: Exception, what: str) -> OwnstepError:
    if isinstance(error, OwnstepError):
        return error
    return Unreadable(f"{str(path)!r} is not a readable {what}: {what_ails(error)}")


def _read(path: Path) -> tuple[dict[str, Any], Columns, Columns]:
    """(header, arrays of the state, columns)."""
    if path.suffix == ".safetensors":
        return _from_tensors(path)
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        header = json.loads(bytes(file["header"]).decode())
        check_format(header, FORMAT, f"the checkpoint {str(path)!r}")
        arrays = {k[6:]: file[k] for k in file.files if k.startswith("state/")}
        return header, arrays, {k[7:]: file[k] for k in file.files if k.startswith("column/")}


def _as_tensors(arrays: Columns, header: dict[str, Any], columns: Columns) -> bytes:
    from safetensors.numpy import save as to_bytes

    words = {k: v.tolist() for k, v in columns.items() if v.dtype.kind == "U"}  # tensors hold numbers alone
    numbers = {f"column/{k}": v for k, v in columns.items() if k not in words}
    tensors = {k: np.asarray(v, order="C") for k, v in ({f"state/{k}": v for k, v in arrays.items()} | numbers).items()}
    text = json.dumps(header | {"words": words})
    return bytes(to_bytes(tensors, {"header": text, "digest": _digest(text, tensors)}))


def _from_tensors(path: Path) -> tuple[dict[str, Any], Columns, Columns]:
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        told = file.metadata()
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    header = json.loads(told["header"])
    check_format(header, FORMAT, f"the checkpoint {str(path)!r}")
    if header.get("format", 1) > 1 and told.get("digest") != _digest(told["header"], tensors):
        raise ValueError("its numbers are not those that were written")  # the format itself has no check
    columns = {k[7:]: v for k, v in tensors.items() if k.startswith("column/")}
    columns |= {k: np.asarray(v, dtype=str) for k, v in header["words"].items()}
    return header, {k[6:]: v for k, v in tensors.items() if k.startswith("state/")}, columns


def _digest(text: str, tensors: Columns) -> str:
    sha = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        sha.update(f"{name}{tensors[name].dtype}{tensors[name].shape}".encode() + tensors[name].tobytes())
    return sha.hexdigest()


def flatten(state: Any, prefix: str = "") -> tuple[Columns, dict[str, Any]]:
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


def restore(template: Any, arrays: Columns, plain: dict[str, Any], prefix: str = "") -> Any:
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
        elif key in plain:
            value = plain[key]
            changes[f.name] = tuple(value) if isinstance(value, list) else value
        else:
            raise OtherState(key)
    return dataclasses.replace(template, **changes)
