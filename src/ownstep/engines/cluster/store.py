"""The launcher's store, through which ranks find each other and say who still lives; no call to it waits for ever.

Torch's own calls have deadlines that the *server* of the store keeps. When the process that hosts it is frozen, or its
machine has gone without a word, nobody keeps them, and the caller waits without end. So every call runs in a thread of
its own, and whoever called it stops waiting for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ownstep.support.errors import OwnstepError

ANSWER = 5.0
"""Seconds that the store may take for one answer."""


class StoreSilent(OwnstepError):
    """The store did not answer: the process that hosts it is frozen, gone or cut off."""


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """What a call returns, or :class:`StoreSilent` if it takes longer; its thread is then left behind."""
    done: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise StoreSilent(
            f"the launcher's store does not answer within {seconds:g} s: is the process that hosts it frozen?"
        )
    if failed:
        raise failed[0]
    return done[0]


class Store:
    """A store of torch whose every call ends.

    Parameters
    ----------
    store : torch's, used by all ranks of this start.
    """

    def __init__(self, store: dist.Store) -> None:
        self.torch = store

    def set(self, key: str, text: str) -> None:
        """Let all ranks know something."""
        within(ANSWER, lambda: self.torch.set(key, text))

    def get(self, key: str) -> str:
        """What was set under a key that is there."""
        return str(within(ANSWER, lambda: self.torch.get(key)).decode())

    def has(self, key: str) -> bool:
        """Has anybody set it?"""
        return bool(within(ANSWER, lambda: self.torch.check([key])))

    def forget(self, key: str) -> None:
        """Remove a key."""
        within(ANSWER, lambda: self.torch.delete_key(key))

    def absent(self, keys: Sequence[str], seconds: float) -> list[str]:
        """Those of the keys that nobody has set in time."""
        try:
            within(seconds + ANSWER, lambda: self.torch.wait(list(keys), timedelta(seconds=seconds)))
        except StoreSilent:
            raise
        except RuntimeError:
            return [key for key in keys if not self.has(key)]
        return []
