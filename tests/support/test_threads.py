from __future__ import annotations

import threading

import pytest

from ownstep.support.errors import InvalidInput
from ownstep.support.threads import share_out, thread_count


def test_how_many_threads(monkeypatch):
    for name in ("OMP_NUM_THREADS", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert thread_count() >= 1
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert thread_count() == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # as torchrun sets it
    assert thread_count() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    assert thread_count() == 4
    assert thread_count(2) == 2
    with pytest.raises(InvalidInput, match="threads must be a whole number of at least 1, got 0"):
        thread_count(0)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_every_task_is_done_once(threads):
    done, lock = [], threading.Lock()

    def task(i):
        with lock:
            done.append(i)

    share_out(task, range(20), threads)
    assert sorted(done) == list(range(20))


def test_several_threads_work_at_once():
    met = threading.Barrier(2, timeout=10)
    share_out(lambda _: met.wait(), range(2), 2)  # would break if one thread took both in turn


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_task_is_raised(threads):
    def task(i):
        if i == 3:
            raise ValueError("task 3")

    with pytest.raises(ValueError, match="task 3"):
        share_out(task, range(5), threads)


def test_an_error_in_a_helper_alone_is_raised_too():
    met = threading.Barrier(2, timeout=10)

    def task(_):
        met.wait()
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("the helper's")

    with pytest.raises(ValueError, match="the helper's"):
        share_out(task, range(2), 2)


def test_tasks_that_share_out_themselves_do_not_wait_for_ever():
    done, lock = [], threading.Lock()

    def inner(i):
        with lock:
            done.append(i)

    share_out(lambda _: share_out(inner, range(4), 2), range(6), 2)
    assert len(done) == 24
