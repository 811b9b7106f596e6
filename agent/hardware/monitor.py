"""Follows the hardware: opens NVML, finds the GPUs, probes them, hears their XIDs, and tells a listener.

Each failure becomes a device's health, never an exception: a driver that is absent, goes away, hangs or comes back as
another version; a GPU that is lost, reset, removed or added; MIG instances that appear and vanish.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Protocol, TypeVar

from agent.hardware.driver import Discovery, Driver, Sighting, Versions
from agent.hardware.probe import Probe
from agent.hardware.query import CallTimedOut, DriverUnavailable, GpuLost, NvmlError
from agent.hardware.resets import ResetDetector
from agent.hardware.worker import XidEvent
from agent.health.events import (
    EccSample,
    Event,
    NvLinkSample,
    ProbeFailed,
    ProbeOk,
    ProbeReason,
    RecoveryAction,
    RemapSample,
    ResetObserved,
    Unreadable,
    XidSeen,
)
from agent.health.settings import HealthSettings
from agent.process.tasks import TaskSet, until_poll
from inventory.devices import Gpu, GpuUuid, NodeInventory

log = logging.getLogger(__name__)

T = TypeVar("T")

RESCAN_S = 5.0
ANXIOUS_PROBE_S = 1.0


class MonitorListener(Protocol):
    """A listener to the monitor. All methods are called on the event loop."""

    async def discovered(self, discovery: Discovery) -> None:
        """Hear the result of a full discovery of the node."""

    def health(self, event: Event) -> None: ...

    def at_ease(self, gpu: GpuUuid) -> bool:
        """Whether this GPU is Healthy: GPUs that are not are probed each second."""

    def driver_gone(self, reason: str) -> None:
        """Hear that there is no driver, or no longer; called once each time it goes."""

    def released(self, seconds: float) -> None:
        """Hear that the NVML session is closed for ``seconds``, as was asked."""

    def driver_swapped(self, old: Versions, new: Versions) -> None:
        """Hear that the driver was upgraded while it was in use. A loaded library cannot be swapped: the process must
        restart.
        """


class GpuMonitor:
    """The monitor of one node's hardware. ``known`` is the last good inventory, for GPUs that cannot be read
    any more.
    """

    def __init__(
        self,
        open_driver: Callable[[Callable[[GpuUuid, XidEvent], None]], Driver],
        listener: MonitorListener,
        resets: ResetDetector,
        settings: HealthSettings,
        known: NodeInventory,
    ) -> None:
        self._open_driver = open_driver
        self._listener = listener
        self._resets = resets
        self.settings = settings
        """The choices about health; ``Agent.reconfigure`` replaces them, and the next probe and scan follow them."""
        self._known: tuple[Gpu, ...] = known.gpus
        self._versions: Versions | None = None
        self._rescan = asyncio.Event()
        self._unread = False
        self._said_empty = False
        self._said_gone = False
        self._free_until_s = 0.0
        self._changing_until_s = 0.0
        self._kicks: dict[GpuUuid, asyncio.Event] = {}
        self._alone: list[Callable[[Driver], Coroutine[Any, Any, None]]] = []
        self._aside: frozenset[GpuUuid] = frozenset()
        self._anew = False
        """Whether the session is to end, for another one to begin at once."""
        self._driver: Driver | None = None
        self._up = asyncio.Event()
        """The event is set while the GPUs of a session are known."""
        self.session_open = False
        self.discoveries = 0
        """The number of discoveries that have begun. Only one that began after a change is sure to show it."""

    async def run(self) -> None:
        """Follow until cancelled."""
        driver = self._driver = self._open_driver(self._xid)
        while True:
            self._anew, driver.aside = False, self._aside
            try:
                self._compare(await driver.open())
                self._said_gone = False
                await self._session(driver)
                if not self._alone and not self._anew:
                    self._listener.released(self._release_s())
            except NvmlError as failed:
                self._gone(failed)
                if isinstance(failed, CallTimedOut):
                    # Without a session no probe runs that could tell it of each GPU.
                    for gpu in self._known:
                        self._listener.health(Unreadable(gpu.uuid, f"the driver hangs: {failed}"))
            self.session_open = False
            self._up.clear()
            await driver.close()
            while self._alone:
                await self._alone.pop(0)(driver)
            if self._said_gone:
                await asyncio.sleep(RESCAN_S)
            while (pause_s := self._release_s()) > 0:  # noqa: ASYNC110 - no poll: a second request moves the end
                await asyncio.sleep(pause_s)

    def release(self, seconds: float) -> None:
        """Close the NVML session for ``seconds``: while it is open, a GPU reset or a MIG mode change is refused.

        The kubelet is served from memory meanwhile. The time runs from now; an earlier request may make it longer.
        """
        self._free_until_s = max(self._free_until_s, asyncio.get_running_loop().time() + seconds)
        self._rescan.set()

    @property
    def session(self) -> int:
        """The number of the open NVML session, counted from 1; 0 while none is open."""
        return self._driver.session if self._driver is not None and self.session_open else 0

    async def read(self, uuid: GpuUuid, function: Callable[[Any], T], timeout_s: float) -> T:
        """Call NVML with the GPU's handle, on its own thread. Raises NvmlError."""
        if self._driver is None:
            raise DriverUnavailable("NVML was not opened yet")
        return await self._driver.read(uuid, function, timeout_s)

    async def on_gpu(self, uuid: GpuUuid, function: Callable[[Any], T], timeout_s: float) -> T:
        """Call NVML with the GPU's handle, beside its probes. Raises NvmlError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
        except TimeoutError:
            raise DriverUnavailable("NVML is not open") from None
        assert self._driver is not None, "up without a driver"
        return await self._driver.on_gpu(uuid, function, timeout_s)

    def hurry(self, seconds: float) -> None:
        """The agent is changing MIG, step by step: the next discoveries are quick, and come when they are asked for.

        A half-made change starts no discovery by itself: what a probe sees of it is ignored for ``seconds``.
        """
        self._changing_until_s = asyncio.get_running_loop().time() + seconds
        if self._driver is not None:
            self._driver.hurry(seconds)

    async def alone(self, function: Callable[[], T], timeout_s: float) -> T:
        """Call NVML while the agent has no session open, for calls that its own session would block. Raises NvmlError.

        The kubelet is served from memory meanwhile; afterwards the session is opened again.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def work(driver: Driver) -> None:
            try:
                result = await driver.alone(function, timeout_s)
            except NvmlError as failed:
                if not answer.done():
                    answer.set_exception(failed)
            else:
                if not answer.done():
                    answer.set_result(result)

        self._alone.append(work)
        self._rescan.set()
        return await answer

    @property
    def aside(self) -> frozenset[GpuUuid]:
        """The GPUs that are set aside, or about to be."""
        return self._aside

    async def set_aside(self, gpus: frozenset[GpuUuid], within_s: float) -> None:
        """Let go of these GPUs and of no others: NVML is opened anew, and does not open them until another call.

        NVML closes a GPU's device file at the end of a session alone, so that the others are not read for a moment.
        GPUs that are set aside are not probed, and stay in the inventory as they were. None: all are read again. Raises
        DriverUnavailable where NVML does not come back in time.
        """
        self._aside = gpus
        self._anew = True
        self.hurry(within_s)
        self._rescan.set()
        before = 0 if self._driver is None else self._driver.session
        try:
            async with asyncio.timeout(within_s):
                while self._driver is None or self._driver.session <= before:
                    # A discovery of the session that ends may set it once more.
                    self._up.clear()
                    await self._up.wait()
        except TimeoutError:
            raise DriverUnavailable(f"NVML was not opened anew within {within_s:g} s") from None

    def reset_done(self, gpu: GpuUuid) -> None:
        """Take in that the agent has reset this GPU: its next probe shows it."""
        self._resets.done(gpu)

    def rescan(self) -> None:
        """Look at the whole node again, soon."""
        self._rescan.set()

    def _compare(self, versions: Versions) -> None:
        if self._versions is not None and self._versions != versions:
            self._listener.driver_swapped(self._versions, versions)
        self._versions = versions

    def _release_s(self) -> float:
        """The seconds for which NVML is still released."""
        return max(0.0, self._free_until_s - asyncio.get_running_loop().time())

    def _gone(self, failed: NvmlError) -> None:
        if not self._said_gone:
            self._listener.driver_gone(str(failed))
        self._said_gone = True

    async def _session(self, driver: Driver) -> None:
        """Run one NVML session, until it is released or the driver is gone.

        Raises DriverUnavailable; CallTimedOut where the driver hangs before the first discovery is over. A driver that
        hangs later ends no session: only probes can tell that each GPU hangs, and a session's end would end them.
        """
        count = -1
        async with TaskSet() as probes:
            while not self._release_s() and not self._alone and not self._anew:
                try:
                    now = await driver.count()
                    if now != count or self._rescan.is_set() or self._unread:
                        self._rescan.clear()
                        # Probes go on meanwhile: a GPU that hangs holds a discovery up, not the probes of the others.
                        await self._discover(driver)
                        await probes.replace(
                            {
                                gpu.uuid: partial(self._probe_for_ever, driver, gpu.uuid)
                                for gpu in self._known
                                if gpu.uuid not in driver.aside
                            }
                        )
                        # A board that was taken out since the count was asked for may be put back before the next one.
                        count = now if len(self._known) == now else -1
                except CallTimedOut as hangs:
                    if not probes:
                        raise
                    self._gone(hangs)
                    self.session_open = False
                    self._up.clear()
                    self._rescan.clear()
                    count = -1  # the GPUs are discovered anew once the driver answers
                await probes.wait(self._rescan, until_poll(RESCAN_S))

    async def _discover(self, driver: Driver) -> None:
        self._compare(await driver.read_versions())
        self.discoveries += 1
        discovery = await driver.discover(self._known)
        empty = not discovery.node.gpus and not discovery.problems
        if empty and not self._said_empty:
            log.info("the driver lists no GPU: waiting for one", extra={"driver": driver.versions.driver})
        self._said_empty = empty
        self._known = discovery.node.gpus
        # A GPU that was never read is not probed either: only another discovery can find it well again.
        self._unread = driver.unread
        self._said_gone = False
        self.session_open = True
        self._up.set()
        await self._listener.discovered(discovery)
        await driver.watch()

    def _xid(self, gpu: GpuUuid, event: XidEvent) -> None:
        self._listener.health(XidSeen(gpu=gpu, xid=event.xid, gi=event.gi, ci=event.ci))
        kick = self._kicks.get(gpu)
        if kick is not None:
            kick.set()

    async def _probe_for_ever(self, driver: Driver, gpu: GpuUuid) -> None:
        kick = self._kicks[gpu] = asyncio.Event()
        while True:
            kick.clear()
            await self._probe(driver, gpu)
            pause_s = self.settings.probe_interval_s
            if not self._listener.at_ease(gpu):
                pause_s = min(pause_s, ANXIOUS_PROBE_S)
            timer = asyncio.get_running_loop().call_later(pause_s, kick.set)
            try:
                await kick.wait()
            finally:
                timer.cancel()

    async def _probe(self, driver: Driver, gpu: GpuUuid) -> None:
        """Probe one GPU and tell the result as health events. Raises DriverUnavailable, which concerns more than one
        GPU.
        """
        try:
            sighting = await driver.probe(gpu, self.settings.probe_timeout_s)
        except DriverUnavailable:
            raise
        except NvmlError as failed:
            self._listener.health(ProbeFailed(gpu=gpu, reason=_reason(failed), detail=str(failed)))
            return
        reset = self._resets.observe(gpu, sighting.probe, renewed=sighting.reset)
        for event in events_of(gpu, sighting.probe, reset=reset):
            self._listener.health(event)
        if reset or self._instances_differ(gpu, sighting):
            self.rescan()

    def _instances_differ(self, uuid: GpuUuid, sighting: Sighting) -> bool:
        """Whether the GPU's MIG mode or instances are others than in the last discovery, or it is readable again."""
        gpu = next((gpu for gpu in self._known if gpu.uuid == uuid), None)
        if gpu is None or not gpu.readable:
            return True
        if asyncio.get_running_loop().time() < self._changing_until_s:
            return False
        known = tuple(str(mig.uuid) for mig in gpu.mig_instances) if gpu.mig_enabled else None
        return known != sighting.probe.mig_uuids


def events_of(gpu: GpuUuid, probe: Probe, *, reset: bool) -> Iterator[Event]:
    """A probe as health events: a reset first, since the rest is measured after it; the verdict last."""
    if reset:
        yield ResetObserved(gpu)
    if probe.recovery_action is not None:
        yield RecoveryAction(gpu, probe.recovery_action)
    if probe.ecc_uncorrected is not None:
        yield EccSample(gpu, probe.ecc_uncorrected)
    if probe.remap_pending is not None and probe.remap_failure is not None:
        yield RemapSample(gpu, pending=probe.remap_pending, failure=probe.remap_failure)
    yield NvLinkSample(gpu, probe.nvlinks_down)
    for mig, error in probe.mig_errors.items():
        yield ProbeFailed(gpu=gpu, mig=mig, reason=ProbeReason.ERROR, detail=error)
    for mig in probe.mig_answered:
        yield ProbeOk(gpu, mig)
    yield ProbeOk(gpu)


def _reason(failed: NvmlError) -> ProbeReason:
    if isinstance(failed, GpuLost):
        return ProbeReason.LOST
    return ProbeReason.TIMEOUT if isinstance(failed, CallTimedOut) else ProbeReason.ERROR
