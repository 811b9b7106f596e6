"""A work queue of keys: each key is reconciled by one worker at a time, and again after a back-off if that failed.

A key that is put while it is reconciled is reconciled once more afterwards; one that is put twice before is reconciled
once, as with client-go's work queues.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from kube.clock import Backoff
from kube.errors import KubeError

log = logging.getLogger(__name__)
K = TypeVar("K", bound=tuple[str, ...])

_WORKERS: Final = 4
_LONGEST_S: Final = 30.0
LOOK_S: Final = 2.0


class ActionFailedError(Exception):
    """An action did not go through: the key is reconciled again."""


class NotYetError(ActionFailedError):
    """No failure: the awaited object does not exist, and no event tells when it does. The key is reconciled
    again at a steady pace, since a back-off would notice it the later, the longer it took.
    """


class WorkQueue(Generic[K]):
    """The queue. ``reconcile`` may raise ActionFailedError and KubeError; anything else that it raises is logged as a
    bug, and tried again. ``what`` names the keys in the log. ``run`` until cancelled.

    A key is in ``_waiting`` from ``put`` until a worker takes it, and in ``_busy`` while it is reconciled; it may be in
    both, and workers take none that is busy. A key has a back-off from its first failure to its next success, and in
    ``_later`` the one timer that puts it again. Those that ``put_soon`` has a timer for are in ``_soon``.
    """

    def __init__(self, what: str, reconcile: Callable[[K], Awaitable[None]]) -> None:
        self._what = what
        self._reconcile = reconcile
        self._waiting: dict[K, None] = {}
        self._busy: set[K] = set()
        self._ready = asyncio.Event()
        self._backoffs: dict[K, Backoff] = {}
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._soon: set[K] = set()

    def put(self, key: K) -> None:
        self._waiting[key] = None
        self._ready.set()

    def put_soon(self, key: K, wait_s: float) -> None:
        """Puts the key after ``wait_s``, or when an earlier call for it is due: what changes much is reconciled
        at a pace.
        """
        if key not in self._soon:
            self._soon.add(key)
            asyncio.get_running_loop().call_later(wait_s, self._due, key)

    def _due(self, key: K) -> None:
        self._soon.discard(key)
        self.put(key)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(_WORKERS):
                group.create_task(self._work(), name=f"{self._what}-{number}")

    async def _work(self) -> None:
        while True:
            key = self._next()
            if key is None:
                self._ready.clear()
                await self._ready.wait()
                continue
            self._busy.add(key)
            try:
                await self._reconcile(key)
            except NotYetError as error:
                self._retry_later(key, str(error), LOOK_S, logging.DEBUG)
            except (ActionFailedError, KubeError) as error:
                self._retry_later(key, str(error))
            except Exception:
                log.exception("%s %s could not be reconciled", self._what, "/".join(key))
                self._retry_later(key, "a bug")
            else:
                self._backoffs.pop(key, None)
                self._cancel(key)
            finally:
                self._busy.discard(key)
                self._ready.set()

    def _next(self) -> K | None:
        found = next((key for key in self._waiting if key not in self._busy), None)
        if found is not None:
            del self._waiting[found]
        return found

    def _retry_later(self, key: K, why: str, maximum_s: float = _LONGEST_S, level: int = logging.INFO) -> None:
        backoff = self._backoffs.get(key)
        if backoff is None:
            backoff = self._backoffs[key] = Backoff(random=random.random, initial_s=0.1, maximum_s=maximum_s)
        log.log(level, "%s %s: again later: %s", self._what, "/".join(key), why)
        self._cancel(key)
        self._later[key] = asyncio.get_running_loop().call_later(min(backoff.next(), maximum_s), self._again, key)

    def _again(self, key: K) -> None:
        self._later.pop(key, None)
        self.put(key)

    def _cancel(self, key: K) -> None:
        timer = self._later.pop(key, None)
        if timer is not None:
            timer.cancel()
