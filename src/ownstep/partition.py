"""Who holds which sample: pure functions of (labels or rows, devices, seed).

Every rule returns a :class:`Partition`: disjoint, covering, and without an empty device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.support.checks import generator, number, whole_number
from ownstep.support.errors import InvalidInput, plain_text, unknown_name

NEEDED = "partition needs one device index per sample"


@dataclass(frozen=True, eq=False)
class Partition:
    """Which device holds each sample.

    Parameters
    ----------
    device_of : for every sample the index of its device, 0 to N-1, each used at least once.
    rule : how it was made, for tables and files.
    names : one label per device.
    note : what the rule had to do beyond its definition, such as filling an empty device.
    """

    device_of: NDArray[np.intp]
    rule: str = "given"
    names: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        device_of = np.asarray(self.device_of)
        if device_of.ndim != 1 or not len(device_of):
            raise InvalidInput(f"{NEEDED}, got shape {device_of.shape}")
        if not np.issubdtype(device_of.dtype, np.integer):
            raise InvalidInput(f"device indices must be whole numbers, got dtype {device_of.dtype}")
        if device_of.min() < 0:
            raise InvalidInput(f"device indices start at 0, got {device_of.min()}")
        counts = np.bincount(device_of)
        if not counts.all():
            raise InvalidInput(
                f"device {int(np.argmin(counts))} of {len(counts)} holds no sample ({self.rule}); "
                "use fewer devices or another partition"
            )
        names = tuple(self.names) or tuple(f"D{i + 1}" for i in range(len(counts)))
        if len(names) != len(counts):
            raise InvalidInput(f"{len(names)} names for {len(counts)} devices")
        object.__setattr__(self, "device_of", device_of.astype(np.intp))
        object.__setattr__(self, "names", names)

    def __len__(self) -> int:
        return int(self.device_of.max()) + 1

    @property
    def counts(self) -> NDArray[np.intp]:
        """Samples held by each device."""
        return np.bincount(self.device_of)

    def indices(self, device: int) -> NDArray[np.intp]:
        """The samples of one device, in their original order."""
        return np.flatnonzero(self.device_of == device)


def given(device_of: Any, names: Sequence[str] = ()) -> Partition:
    """A partition that is given.

    Parameters
    ----------
    device_of : one entry per sample: the index of its device (whole numbers from 0 to N-1, every one used), or who
        holds it, such as the words of a pandas column or numbers from 1 on: every different value is then a device and
        its name, in sorted order. Or the lists of every device's samples, also as a dictionary by name.
    names : one label per device, in place of the values.

    Examples
    --------
    >>> given(["Basel", "Zurich", "Basel"]).names
    ('Basel', 'Zurich')
    >>> given([[0, 2], [1]], names=["Basel", "Zurich"]).device_of.tolist()
    [0, 1, 0]
    """
    if hasattr(device_of, "ngroups"):  # of a pandas groupby: the rows of each group
        device_of = device_of.indices
    values = device_of.to_numpy() if hasattr(device_of, "to_numpy") else device_of
    if isinstance(values, Mapping):
        return given(list(values.values()), names or [str(k) for k in values])
    if _is_lists(values):
        return Partition(_from_lists(values), "given", tuple(names))
    column = np.asarray(values)
    if column.ndim != 1 or not len(column):
        raise InvalidInput(f"{NEEDED}, got shape {column.shape}")
    missing = gaps(column)
    if missing.any():
        gap = int(np.argmax(missing))
        raise InvalidInput(f"sample {gap} has no device: {column[gap]}; leave it out or say who holds it")
    if column.dtype.kind == "f" and (column == np.round(column)).all():
        column = column.astype(np.intp)
    if column.dtype.kind == "f" or (column.dtype.kind in "iu" and (names or column.min() <= 0)):
        return Partition(column, "given", tuple(names))
    if column.dtype.kind == "O":
        column = np.array([str(value) for value in column])
    sites, codes = np.unique(column, return_inverse=True)
    return Partition(codes, "given", tuple(names) or tuple(str(site) for site in sites.tolist()))


def _is_lists(values: Any) -> bool:
    """Are these lists of samples? Those of pandas' ``groupby(...).groups`` are of a type of its own."""
    kinds = (list, tuple, np.ndarray, range)
    return isinstance(values, list | tuple) and any(isinstance(v, kinds) or hasattr(v, "to_numpy") for v in values)


def _from_lists(lists: Sequence[Any]) -> NDArray[np.intp]:
    """Who holds each sample, from the samples of each device."""
    parts = [np.asarray(part) for part in lists]
    for i, part in enumerate(parts):
        if part.ndim != 1 or not len(part) or part.dtype.kind not in "iu":
            told = plain_text(repr(lists[i]), 60)
            raise InvalidInput(f"device {i} of {len(parts)} needs a list of sample indices, got {told}")
    every = np.concatenate(parts)
    samples = len(every)
    if every.min() < 0 or every.max() >= samples or len(np.unique(every)) != samples:
        found, counts = np.unique(every, return_counts=True)
        wrong = (
            f"sample {found[np.argmax(counts)]} is on two devices"
            if counts.max() > 1
            else f"sample {np.setdiff1d(np.arange(samples), every)[0]} is on none"
        )
        raise InvalidInput(f"lists of samples must hold each of 0 to {samples - 1} once; {wrong}")
    device_of = np.empty(samples, np.intp)
    for i, part in enumerate(parts):
        device_of[part] = i
    return device_of


def as_partition(value: Partition | None, samples: int) -> Partition:
    """The partition of so many samples: everything on one device by default; anything else is refused."""
    if value is None:
        return Partition(np.zeros(samples, np.intp), "one device")
    if not isinstance(value, Partition):
        raise InvalidInput(
            f"partition must be a Partition, got {type(value).__name__}: ownstep.partition.given(device_of) makes one "
            "from the device index of every sample, by_norm, by_label and others from the data"
        )
    if len(value.device_of) != samples:
        raise InvalidInput(f"the partition covers {len(value.device_of)} samples, the data has {samples}")
    return value


def iid(samples: int, devices: int, seed: int = 0) -> Partition:
    """A seeded shuffle cut into equal parts: the control, in which own steps gain nothing."""
    _check_devices(devices, samples)
    order = generator(seed).permutation(samples)
    return _cut(order, devices, "iid")


def by_label(labels: ArrayLike, devices: int | None = None, order: Sequence[Any] | None = None) -> Partition:
    """Whole classes to devices: one class each, or neighbouring classes together when there are fewer devices.

    Parameters
    ----------
    labels : one per sample.
    devices : at most the number of classes, which is the default.
    order : the classes in the order in which they are grouped; sorted by default.
    """
    labels, classes, codes = _classes(labels)
    devices = len(classes) if devices is None else devices
    _check_devices(devices, len(labels))
    if devices > len(classes):
        raise InvalidInput(
            f"by_label can fill at most {len(classes)} devices, one per class, got devices={devices}; "
            "use shards or dirichlet for more"
        )
    ranks = np.arange(len(classes))
    if order is not None:
        if sorted(map(str, order)) != sorted(map(str, classes)):
            raise InvalidInput(f"order must list every class once, got {list(order)!r}")
        place = {str(c): r for r, c in enumerate(order)}
        ranks = np.array([place[str(c)] for c in classes])
    group = np.empty(len(classes), int)
    for device, part in enumerate(np.array_split(np.argsort(ranks), devices)):
        group[part] = device
    names = tuple("+".join(str(c) for c, g in zip(classes, group, strict=True) if g == i) for i in range(devices))
    return Partition(group[codes], "by_label", names)


def by_norm(rows: Any, devices: int = 2) -> Partition:
    """Samples sorted by feature norm ||a_j|| and cut into equal parts; ties keep their order in the data."""
    size = squared_norms(rows)
    return _cut(np.argsort(size, kind="stable"), _check_devices(devices, len(size)), "by_norm")


def by_eigenvalue(rows: Any, devices: int = 2) -> Partition:
    """Samples sorted by the largest eigenvalue of a_j a_j^T, with ties kept together.

    That eigenvalue *is* ||a_j||^2, so the order is :func:`by_norm`'s. They differ only in ties. Here all
    samples equal to a threshold go to the device above it, so parts can differ in size. A tie that
    would leave a device empty is an error.
    """
    size = squared_norms(rows)
    _check_devices(devices, len(size))
    ranked = np.sort(size)
    cuts = [part[0] for part in np.array_split(ranked, devices)[1:]]
    return Partition(_all_used(np.searchsorted(cuts, size, side="right"), devices, "by_eigenvalue"), "by_eigenvalue")


def shards(labels: ArrayLike, devices: int, per_device: int = 2, seed: int = 0) -> Partition:
    """Sorted by label, cut into ``devices * per_device`` shards, dealt at random (McMahan et al. 2017).

    With ``per_device=2`` most devices see two classes, the usual "two classes per device" setting.
    """
    labels, _, codes = _classes(labels)
    whole_number("per_device", per_device, 1)
    whole_number("devices", devices, 1)
    _check_devices(devices * per_device, len(labels), "shards (devices * per_device)")
    rng = generator(seed)
    order = np.lexsort((rng.random(len(codes)), codes))
    owner = rng.permutation(np.repeat(np.arange(devices), per_device))
    device_of = np.empty(len(codes), int)
    for shard, part in enumerate(np.array_split(order, devices * per_device)):
        device_of[part] = owner[shard]
    return Partition(device_of, f"shards({per_device})")


def dirichlet(labels: ArrayLike, devices: int, alpha: float = 0.1, seed: int = 0, min_samples: int = 1) -> Partition:
    """Each class spread over the devices in proportions drawn from Dirichlet(alpha, ..., alpha).

    Small alpha is very uneven, and may leave devices without data. They are then filled up to
    ``min_samples`` with samples taken from the largest devices, one at a time. The partition's ``note``
    says how many were moved. There is one draw and one repair, never a loop until a draw happens to fit.
    """
    labels, classes, codes = _classes(labels)
    number("alpha", alpha, above=0)
    whole_number("min_samples", min_samples, 1)
    _check_devices(devices, len(labels))
    if devices * min_samples > len(labels):
        raise InvalidInput(f"{devices} devices with {min_samples} samples each need more than {len(labels)} samples")
    rng = generator(seed)
    device_of = np.empty(len(codes), int)
    for c in range(len(classes)):
        members = rng.permutation(np.flatnonzero(codes == c))
        ends = np.round(np.cumsum(rng.dirichlet(np.full(devices, alpha))) * len(members)).astype(int)
        device_of[members] = np.searchsorted(ends[:-1], np.arange(len(members)), side="right")
    moved = _fill(device_of, devices, min_samples, rng)
    note = f"{moved} samples moved so that every device holds at least {min_samples}" if moved else ""
    return Partition(device_of, f"dirichlet({alpha:g})", note=note)


RULES: dict[str, Callable[..., Partition]] = {
    "by_label": by_label,
    "by_norm": by_norm,
    "by_eigenvalue": by_eigenvalue,
    "dirichlet": dirichlet,
    "shards": shards,
    "iid": iid,
}
"""Rules that can be named on the command line; ``given`` needs its own argument."""

_NEEDS_ROWS = {"by_norm", "by_eigenvalue"}


def make(
    rule: str, rows: Any, labels: ArrayLike, devices: int | None = None, seed: int = 0, **options: Any
) -> Partition:
    """Call the rule of that name with the arguments it takes, out of all that are known."""
    if rule not in RULES:
        raise unknown_name("partition", rule, RULES)
    if rule == "by_label":
        return by_label(labels, devices, **options)
    count = 2 if devices is None else devices
    if rule in _NEEDS_ROWS:
        return RULES[rule](rows, count, **options)
    if rule == "iid":
        return iid(rows.shape[0], count, seed)
    return RULES[rule](labels, count, seed=seed, **options)


def squared_norms(rows: Any) -> NDArray[np.float64]:
    """||a_j||^2 for every row of a dense or sparse matrix."""
    if hasattr(rows, "tocsr"):
        return np.asarray(rows.multiply(rows).sum(axis=1), float).ravel()
    try:
        table = np.asarray(rows)
        if np.iscomplexobj(table):
            raise InvalidInput("features must be real numbers, got complex ones")
        table = table.astype(float, copy=False)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"features must be a table of numbers, got {type(rows).__name__}: {error}") from None
    if table.ndim < 2 or 0 in table.shape:
        raise InvalidInput(f"features must be a non-empty table of samples by features, got shape {table.shape}")
    table = table.reshape(len(table), -1)
    return np.asarray(np.einsum("ij,ij->i", table, table))


def _cut(order: NDArray[np.intp], devices: int, rule: str) -> Partition:
    device_of = np.empty(len(order), int)
    for device, part in enumerate(np.array_split(order, devices)):
        device_of[part] = device
    return Partition(device_of, rule)


def _classes(labels: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.intp]]:
    labels = as_labels(labels)
    if labels.ndim != 1 or not len(labels):
        raise InvalidInput(f"labels must be one per sample, got shape {labels.shape}")
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        raise mixed_labels(labels) from None
    return labels, classes, codes


def as_labels(values: Any) -> NDArray[Any]:
    """Labels as an array; a list of words and numbers is refused, of which NumPy would make words."""
    if isinstance(values, list | tuple) and len({isinstance(v, str | bytes) for v in values}) > 1:
        raise mixed_labels(np.array(values, object))
    return np.asarray(values)


def gaps(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a value is missing: nan, None, or what pandas has in its place, which is equal to nothing."""
    if values.dtype.kind in "fcM":
        return np.asarray(values != values)
    if values.dtype.kind != "O":
        return np.zeros(len(values), bool)
    return np.array([value is None or (value == value) is not True for value in values])


def mixed_labels(labels: NDArray[Any]) -> InvalidInput:
    """Error for labels that cannot be put in order, because they are of several kinds."""
    kinds = sorted({type(label).__name__ for label in labels.ravel().tolist()})
    return InvalidInput(f"labels must be all numbers or all strings, got {', '.join(kinds)}")


def _check_devices(devices: int, samples: int, what: str = "devices") -> int:
    whole_number(what, devices, 1)
    if devices > samples:
        raise InvalidInput(f"{what}={devices} is more than the {samples} samples there are")
    return int(devices)


def _all_used(device_of: NDArray[np.intp], devices: int, rule: str) -> NDArray[np.intp]:
    counts = np.bincount(device_of, minlength=devices)
    if not counts.all():
        raise InvalidInput(
            f"{rule} would leave device {int(np.argmin(counts))} of {devices} empty, because too many samples tie; "
            "use by_norm, which splits ties, or fewer devices"
        )
    return device_of


def _fill(device_of: NDArray[np.intp], devices: int, least: int, rng: np.random.Generator) -> int:
    """Move samples from the largest devices to those below ``least``; returns how many were moved."""
    counts = np.bincount(device_of, minlength=devices)
    moved = 0
    for device in np.flatnonzero(counts < least):
        while counts[device] < least:
            donor = int(np.argmax(counts))
            sample = rng.choice(np.flatnonzero(device_of == donor))
            device_of[sample] = device
            counts[donor] -= 1
            counts[device] += 1
            moved += 1
    return moved
