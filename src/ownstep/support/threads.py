"""Keep BLAS from hurting: small products run slower on many threads, and far slower on a busy machine."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

WORTH_THREADS = 5e7
"""Multiplications in one product above which several threads pay."""


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController()


def calm_blas(work: float) -> AbstractContextManager[Any]:
    """One BLAS thread while products of ``work`` multiplications are small; the user's setting otherwise."""
    if work >= WORTH_THREADS:
        return nullcontext()
    limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited
