"""What engines need of a vector beyond adding and scaling: to be seen as NumPy, and to be made again from it.

Torch is never imported here: a tensor is known by what it can do.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_vector(value: Any) -> bool:
    """Is this a NumPy array or a torch tensor?"""
    return isinstance(value, np.ndarray) or hasattr(value, "detach")


def to_numpy(vector: Any) -> NDArray[Any]:
    """The vector's numbers in host memory, wherever it lives."""
    return np.asarray(vector.detach().cpu().numpy() if hasattr(vector, "detach") else vector)


def like(array: NDArray[Any], template: Any) -> Any:
    """The numbers of an array as a vector of the template's kind, precision and place."""
    return template.new_tensor(array) if hasattr(template, "new_tensor") else array


@lru_cache(maxsize=4)
def upper(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the upper triangle of a (d, d) matrix stands, row by row: ``numpy.triu_indices``, kept."""
    return np.triu_indices(d)


def small_enough(*vectors: Any) -> bool:
    """Are all these finite, and their squared lengths too? A vector beyond that is the trace of an error."""
    with np.errstate(all="ignore"):
        return all(math.isfinite(float((flat := v.reshape(-1)) @ flat)) for v in vectors)
