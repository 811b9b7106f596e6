"""Asks Prometheus at an interval for the past use of KAI's Queues."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from controller.cluster.config.settings import UsageSource
from controller.foreign.usage.queueusage import UsageAnswerError, queries, usage
from controller.scheduler.engine import Engine
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.config import QueueUsage
from kube.clock import Clock, sleep
from kube.prometheus import Prometheus, PrometheusError, authorities_in, token_in

log = logging.getLogger(__name__)

Tell = Callable[[str, str, str], None]
"""Records an Event about the controller: type, reason, note."""


class QueueUsageQueries:
    """Gives the engine an answer, or its absence, every ``interval_s``. ``run`` until cancelled."""

    system: Final = System.KAI
    """The system whose Queues are asked for."""

    def __init__(
        self,
        source: UsageSource,
        rules: QueueUsage,
        engine: Engine,
        *,
        wake: Callable[[], None],
        clock: Clock,
        tell: Tell,
    ) -> None:
        """``wake``: called when the engine may decide otherwise."""
        self._source = source
        self._rules = rules
        self._engine = engine
        self._wake = wake
        self._clock = clock
        self._tell = tell
        self._url = Prometheus(source.url, timeout_s=source.timeout_s).url

    async def run(self) -> None:
        while True:
            await self.ask()
            await sleep(self._clock, self._rules.interval_s)

    async def ask(self) -> None:
        asked_s = self._clock.wall()
        try:
            measured = usage(await self._prometheus().ask(queries(self._source, self._rules, asked_s)))
        except PrometheusError as failed:
            self._failed(str(failed), asked_s)
        except UsageAnswerError as failed:
            self._failed(f"{self._url}: {failed}", asked_s)
        else:
            back = self._engine.measured_use(measured, asked_s)
            self._wake()
            if back:
                note = f"{self._url} answers again what KAI's Queues had before"
                log.info("%s", note)
                self._tell("Normal", "PastUseMeasured", note)

    def _prometheus(self) -> Prometheus:
        """A client with the address and credentials that the files hold now. Raises FileError."""
        source = self._source
        return Prometheus(
            source.url,
            None if source.token_file is None else token_in(source.token_file),
            None if source.ca_file is None else authorities_in(source.ca_file),
            timeout_s=source.timeout_s,
        )

    def _failed(self, why: str, now_s: float) -> None:
        measured = self._engine.state.measured_usage
        if measured is None or not measured.lost(now_s):
            return
        counts, until_s = "the controller's own books count", measured.counts_until_s
        if until_s is not None and until_s > now_s:
            counts = f"its last answer counts until {datetime.fromtimestamp(until_s, UTC):%H:%M:%SZ}, then {counts}"
        note = (
            f"What KAI's Queues had before is not measured since {datetime.fromtimestamp(now_s, UTC):%H:%M:%SZ}: {why}"
        )
        log.warning("%s; %s", note, counts)
        self._tell("Warning", "PastUseNotMeasured", f"{note}; {counts}")
