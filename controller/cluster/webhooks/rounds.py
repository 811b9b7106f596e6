"""Rounds that keep a port and its certificate up to date: after a failed round the next comes sooner."""

import logging
from collections.abc import Awaitable, Callable

from controller.cluster.webhooks.tls import CertificateError
from kube.clock import Backoff, Clock, sleep
from kube.errors import ConflictError, KubeError


class Rounds:
    """Runs rounds. ``log`` gets a failure once for as long as it stays the same, as ``what: trying again: ...``."""

    def __init__(self, what: str, log: logging.Logger, *, clock: Clock, backoff: Backoff) -> None:
        self._what = what
        self._log = log
        self._clock = clock
        self._backoff = backoff
        self._failure = ""

    async def run(self, one_round: Callable[[], Awaitable[float]]) -> None:
        """Runs rounds until cancelled. ``one_round`` returns the seconds until the next; its KubeError and
        CertificateError are logged, any other error ends this.
        """
        while True:
            await sleep(self._clock, await self._attempt(one_round))

    async def _attempt(self, one_round: Callable[[], Awaitable[float]]) -> float:
        try:
            pause_s = await one_round()
        except ConflictError:
            return self._backoff.next()
        except (KubeError, CertificateError) as error:
            if str(error) != self._failure:
                self._log.warning("%s: trying again: %s", self._what, error)
                self._failure = str(error)
            return self._backoff.next()
        self._failure = ""
        self._backoff.reset()
        return pause_s
