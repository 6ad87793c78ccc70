"""Threads: how many, work handed out to them, and BLAS kept from starting more of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeVar

from ownstep.support.checks import whole_number

Task = TypeVar("Task")

WORTH_THREADS = 5e7
"""Multiplications in one product above which several threads pay."""


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """One BLAS thread inside: for work that is already spread over threads."""
    try:
        limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    except ModuleNotFoundError:  # then SciPy and scikit-learn are not here either, and torch does the work
        return nullcontext()
    return limited


def calm_blas(work: float) -> AbstractContextManager[Any]:
    """One BLAS thread while products of ``work`` multiplications are small; the user's setting otherwise.

    Small products run slower on many threads, and far slower on a busy machine.
    """
    return nullcontext() if work >= WORTH_THREADS else one_blas_thread()


def thread_count(threads: int | None = None) -> int:
    """How many threads to use.

    ``threads`` where it is given, else ``OMP_NUM_THREADS``, else one for a process that torchrun started beside
    others, else one per core that this process may use.
    """
    if threads is not None:
        return whole_number("threads", threads, 1)
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdigit() and int(asked):
        return int(asked)
    if "LOCAL_WORLD_SIZE" in os.environ:
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The threads of a process; a forked one makes its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="ownstep")


def share_out(function: Callable[[Task], object], tasks: Sequence[Task], threads: int) -> None:
    """Call a function on every task, on several threads at once; it returns when all are done.

    The first error is raised here. What a task does must not depend on the others: which thread takes it does.
    """
    helpers = min(threads, len(tasks)) - 1
    if helpers < 1:
        for task in tasks:
            function(task)
        return
    left = iter(tasks)  # shared: whoever is free takes the next one

    def work() -> None:
        for task in left:
            function(task)

    others = [_pool(os.getpid(), threads).submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        # One that never started has nothing left to do; waiting for it could wait for ever inside another task.
        errors = [other.exception() for other in others if not other.cancel()]
    for error in errors:
        if error is not None:
            raise error
