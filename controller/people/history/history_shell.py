"""History and figures for all readers: Prometheus is asked beside the event loop, and answers are kept for 30 s."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from controller.cluster.config.pagesettings import PagePrometheus
from controller.people.history.asked import Asked
from controller.people.history.figures import Figures, FiguresOf
from controller.people.history.queries import NOW, STEP_S, figures, series, span
from controller.people.visibility.limits import Recent
from controller.people.visibility.server_shell import RefusedError
from kube.clock import Clock
from kube.prometheus import Prometheus, PrometheusError, authorities_in, token_in

log = logging.getLogger(__name__)

Json = dict[str, Any]
KEPT_S: Final = 30.0
_KEPT: Final = 512
_AT_ONCE: Final = 2
_WAITING: Final = 32
_MOST_BYTES: Final = 16 * 1024 * 1024
_GONE_S: Final = 300.0
"""The age at which the last figures are no longer shown as figures of now."""
_GPU: Final = "nvidia.com/gpu"


class History:
    """Answers of Prometheus: one question at a time for each key, and at most two under way."""

    def __init__(self, settings: PagePrometheus, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._recent: Recent[tuple[str, int], Json | None] = Recent(most=_KEPT, life_s=KEPT_S)
        """Answers by key and hours; None where Prometheus did not answer."""
        self._under_way: dict[tuple[str, int], asyncio.Task[Json | None]] = {}
        self._figures: FiguresOf = {}
        self._figures_s = float("-inf")
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def of(self, asked: Asked, pods: Sequence[str]) -> Json:
        """Series by hour, the same for all who ask. ``pods``: names of the workload's pods. Raises RefusedError."""
        at = (asked.key(pods), asked.back)
        kept = self._recent.get(at, self._clock.monotonic())
        if kept is not None:
            return _answered(kept[0])
        task = self._under_way.get(at)
        if task is None:
            if len(self._under_way) >= _WAITING:
                raise RefusedError(429, "too many histories are asked for: try again", after_s=2.0)
            task = self._under_way[at] = asyncio.create_task(self._ask(at, asked, pods))
            task.add_done_callback(lambda _: self._under_way.pop(at, None))
        return _answered(await asyncio.shield(task))

    async def _ask(self, at: tuple[str, int], asked: Asked, pods: Sequence[str]) -> Json | None:
        hours = span(self._clock.wall(), at[1])
        history: Json | None = None
        try:
            async with self._turns:
                answers = await (await self._prometheus()).over(asked.queries(pods), hours)
            lines = series(answers, hours, resource=_GPU if asked.in_gpus else None)
            history = {"configured": True, "step": STEP_S, "start": hours.start_s, "series": lines}
        except PrometheusError as failed:
            log.warning("the page has no history: %s", failed)
        self._recent.put(at, history, self._clock.monotonic())
        return history

    async def _prometheus(self) -> Prometheus:
        """A client with the address and credentials that the files hold now. Raises FileError."""
        return await asyncio.to_thread(self._connected)

    def _connected(self) -> Prometheus:
        settings = self._settings
        return Prometheus(
            settings.url,
            None if settings.token_file is None else token_in(settings.token_file),
            None if settings.ca_file is None else authorities_in(settings.ca_file),
            timeout_s=settings.timeout_s,
            most_bytes=_MOST_BYTES,
        )

    # -- figures of now ----------------------------------------------------------------------------------------------

    def figures(self) -> FiguresOf:
        """The last known figures of GPUs by UUID. Prometheus is asked only while this is called. The object is replaced
        only if a figure differs.
        """
        now_s = self._clock.monotonic()
        if now_s - self._asked_s >= KEPT_S and (self._asking is None or self._asking.done()):
            self._asked_s = now_s
            self._asking = asyncio.create_task(self._look())
        if self._figures and now_s - self._figures_s >= _GONE_S:
            self._figures = {}
        return self._figures

    async def _look(self) -> None:
        try:
            async with self._turns:
                answers = await (await self._prometheus()).ask(NOW)
        except PrometheusError as failed:
            log.warning("what GPUs do is not known: %s", failed)
            return
        found: dict[str, Figures] = await asyncio.to_thread(figures, answers)
        self._figures_s = self._clock.monotonic()
        if found != self._figures:
            self._figures = found

    async def close(self) -> None:
        tasks = [*self._under_way.values(), *([self._asking] if self._asking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _answered(found: Json | None) -> Json:
    """Returns the answer. Raises RefusedError if there was none."""
    if found is None:
        raise RefusedError(503, "Prometheus does not answer. The controller's log says why.", after_s=KEPT_S)
    return found
