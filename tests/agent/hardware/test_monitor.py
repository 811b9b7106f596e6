"""What the monitor makes of the driver's answers, with a driver that answers as told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from agent.hardware import monitor
from agent.hardware.driver import Discovery, Driver, Sighting, Versions
from agent.hardware.monitor import GpuMonitor, events_of
from agent.hardware.probe import Probe
from agent.hardware.query import CallFailed, CallTimedOut, DriverUnavailable, GpuLost
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
from inventory.devices import Gpu, GpuUuid, MigUuid, NodeInventory
from kube.testing import eventually
from tests.support.inventory.builders import gpu, node, uuid

MIG = MigUuid("MIG-0")


class ScriptedDriver:
    """Does as a Driver; every answer can be set, or be an exception to raise."""

    def __init__(self) -> None:
        self.gpus: list[Gpu] = [gpu(0), gpu(1)]
        self.problems: tuple[str, ...] = ()
        self.versions = Versions("570", (12, 8))
        self.down: Exception | None = None
        self.probes: dict[GpuUuid, Probe | Exception] = {}
        self.unread = False
        self.hurried = 0.0
        self.opened = self.closed = self.discovered = self.watched = 0
        self.on_xid: Callable[[GpuUuid, XidEvent], None] = lambda _gpu, _event: None

    def _check(self) -> None:
        if self.down is not None:
            raise self.down

    async def open(self) -> Versions:
        self._check()
        self.opened += 1
        return self.versions

    async def read_versions(self) -> Versions:
        self._check()
        return self.versions

    async def count(self) -> int:
        self._check()
        return len(self.gpus)

    async def discover(self, known: Sequence[Gpu]) -> Discovery:  # noqa: ARG002 - Driver's
        self._check()
        self.discovered += 1
        return Discovery(node(self.gpus), self.problems)

    async def watch(self) -> None:
        self.watched += 1

    async def probe(self, gpu: GpuUuid, timeout_s: float) -> Sighting:  # noqa: ARG002 - Driver's
        self._check()
        answer = self.probes.get(gpu, Probe())
        if isinstance(answer, Exception):
            raise answer
        return Sighting(answer, reset=False)

    def hurry(self, seconds: float) -> None:
        self.hurried = seconds

    async def close(self) -> None:
        self.closed += 1


class Told:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.nodes: list[NodeInventory] = []
        self.other: list[str] = []
        self.uneasy: set[GpuUuid] = set()

    async def discovered(self, discovery: Discovery) -> None:
        self.nodes.append(discovery.node)

    def health(self, event: Event) -> None:
        self.events.append(event)

    def at_ease(self, gpu: GpuUuid) -> bool:
        return gpu not in self.uneasy

    def driver_gone(self, reason: str) -> None:
        self.other.append(f"gone: {reason}")

    def released(self, seconds: float) -> None:
        self.other.append(f"released {seconds:.0f}")

    def driver_swapped(self, old: Versions, new: Versions) -> None:
        self.other.append(f"swapped {old.driver} {new.driver}")


class Bench:
    def __init__(self, settings: HealthSettings) -> None:
        self.driver = ScriptedDriver()
        self.told = Told()

        def opened(on_xid: Callable[[GpuUuid, XidEvent], None]) -> Driver:
            self.driver.on_xid = on_xid
            return cast("Driver", self.driver)

        self._opened, self._settings = opened, settings
        self.monitor = self.knowing(node([]))
        self.task: asyncio.Task[None] | None = None

    def knowing(self, known: NodeInventory) -> GpuMonitor:
        """A monitor whose checkpoint says that."""
        return GpuMonitor(self._opened, self.told, ResetDetector(), self._settings, known)

    async def start(self) -> None:
        self.task = asyncio.create_task(self.monitor.run())
        if self.driver.down is None:
            await self.until(lambda: bool(self.told.nodes))

    async def until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            if self.task is not None and self.task.done():
                self.task.result()
            return condition()

        await eventually(holds)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.told.events if isinstance(event, kind)]


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(monitor, "RESCAN_S", 0.02)
    monkeypatch.setattr(monitor, "ANXIOUS_PROBE_S", 0.005)
    bench = Bench(HealthSettings(probe_interval_s=0.01))
    yield bench
    if bench.task is not None:
        bench.task.cancel()
        await asyncio.gather(bench.task, return_exceptions=True)


async def test_every_gpu_is_probed_and_watched_after_a_discovery(bench: Bench) -> None:
    await bench.start()
    await bench.until(lambda: {event.gpu for event in bench.of(ProbeOk)} == {uuid(0), uuid(1)})
    assert bench.driver.discovered == bench.driver.watched == 1
    assert bench.monitor.session_open


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (GpuLost("lost"), ProbeReason.LOST),
        (CallTimedOut("late"), ProbeReason.TIMEOUT),
        (CallFailed("Unknown Error"), ProbeReason.ERROR),
    ],
)
async def test_a_failed_probe_is_its_own_gpus_event(bench: Bench, failure: Exception, reason: ProbeReason) -> None:
    bench.driver.probes[uuid(1)] = failure
    await bench.start()
    await bench.until(lambda: len(bench.of(ProbeFailed)) > 1 and len(bench.of(ProbeOk)) > 1)
    assert bench.of(ProbeFailed)[0] == ProbeFailed(uuid(1), reason=reason, detail=str(failure))
    assert {event.gpu for event in bench.of(ProbeOk)} == {uuid(0)}
    assert bench.driver.closed == 0


async def test_an_xid_is_told_and_has_the_gpu_probed_at_once(bench: Bench) -> None:
    bench.monitor.settings = HealthSettings(probe_interval_s=3600)
    await bench.start()
    await bench.until(lambda: len(bench.of(ProbeOk)) == 2)
    bench.driver.on_xid(uuid(1), XidEvent(48, gi=2, ci=0))
    await bench.until(lambda: len(bench.of(ProbeOk)) == 3)
    assert bench.of(XidSeen) == [XidSeen(uuid(1), 48, gi=2, ci=0)]
    assert bench.told.events[-1] == ProbeOk(uuid(1))


async def test_an_xid_of_a_gpu_nobody_probes_is_told_all_the_same(bench: Bench) -> None:
    await bench.start()
    bench.driver.on_xid(uuid(9), XidEvent(79))
    assert bench.of(XidSeen) == [XidSeen(uuid(9), 79)]


async def test_who_is_not_healthy_is_asked_more_often(bench: Bench) -> None:
    bench.monitor.settings = HealthSettings(probe_interval_s=3600)
    bench.told.uneasy.add(uuid(1))
    await bench.start()
    await bench.until(lambda: len(bench.of(ProbeOk)) > 6)
    assert [event.gpu for event in bench.of(ProbeOk)].count(uuid(0)) == 1


async def test_another_number_of_gpus_is_looked_at_anew(bench: Bench) -> None:
    await bench.start()
    bench.driver.gpus.append(gpu(2))
    await bench.until(lambda: len(bench.told.nodes) == 2)
    assert len(bench.told.nodes[1].gpus) == 3
    await bench.until(lambda: uuid(2) in {event.gpu for event in bench.of(ProbeOk)})


async def test_nothing_new_is_not_discovered_again(bench: Bench) -> None:
    await bench.start()
    await bench.until(lambda: len(bench.of(ProbeOk)) > 20)
    assert bench.driver.discovered == 1


async def test_instances_that_differ_from_the_discovery_are_looked_at_anew(bench: Bench) -> None:
    bench.driver.gpus = [gpu(0, mig=["3g.20gb"]), gpu(1)]
    bench.driver.probes[uuid(0)] = Probe(mig_uuids=("MIG-00-0",))
    await bench.start()
    await bench.until(lambda: len(bench.of(ProbeOk)) > 6)
    assert bench.driver.discovered == 1
    bench.driver.probes[uuid(0)] = Probe(mig_uuids=("MIG-00-0", "MIG-00-1"))
    await bench.until(lambda: bench.driver.discovered > 1)


async def test_half_of_our_own_change_is_looked_at_only_when_that_is_asked_for(bench: Bench) -> None:
    bench.driver.gpus = [gpu(0, mig=["3g.20gb"]), gpu(1)]
    bench.driver.probes[uuid(0)] = Probe(mig_uuids=("MIG-00-0",))
    await bench.start()
    bench.monitor.hurry(1000)
    assert bench.driver.hurried == 1000
    bench.driver.probes[uuid(0)] = Probe(mig_uuids=())
    seen = len(bench.of(ProbeOk))
    await bench.until(lambda: len(bench.of(ProbeOk)) > seen + 6)
    assert bench.driver.discovered == 1
    bench.monitor.rescan()
    await bench.until(lambda: bench.driver.discovered == 2)
    bench.monitor.hurry(0)
    await bench.until(lambda: bench.driver.discovered > 2)


async def test_a_gpu_of_which_nothing_is_known_is_looked_for_again(bench: Bench) -> None:
    bench.driver.unread = True
    await bench.start()
    await bench.until(lambda: bench.driver.discovered > 2)
    bench.driver.unread = False
    await bench.until(lambda: len(bench.of(ProbeOk)) > 2)


async def test_a_driver_that_goes_is_told_once_and_found_again(bench: Bench) -> None:
    await bench.start()
    for _ in range(2):
        gone = len(bench.told.other)
        bench.driver.down = DriverUnavailable("Driver Not Loaded")
        await bench.until(lambda seen=gone: len(bench.told.other) > seen)  # type: ignore[misc] # bound now
        assert not bench.monitor.session_open
        closed = bench.driver.closed
        await bench.until(lambda seen=closed: bench.driver.closed > seen + 2)  # type: ignore[misc] # it tried again
        bench.driver.down = None
        await bench.until(lambda: bench.monitor.session_open)
    assert bench.told.other == ["gone: Driver Not Loaded"] * 2


async def test_a_driver_that_hangs_from_the_start_is_told_of_every_gpu_that_was_known(bench: Bench) -> None:
    bench.monitor = bench.knowing(node([gpu(0), gpu(1)]))
    bench.driver.down = CallTimedOut("NVML did not answer within 5 s")
    await bench.start()
    await bench.until(lambda: len(bench.told.events) >= 2)
    assert bench.told.other == ["gone: NVML did not answer within 5 s"]
    told = "the driver hangs: NVML did not answer within 5 s"
    assert bench.told.events[:2] == [Unreadable(uuid(0), told), Unreadable(uuid(1), told)]


async def test_a_driver_that_hangs_later_leaves_the_probes_to_tell_it_of_each_gpu(bench: Bench) -> None:
    await bench.start()
    bench.driver.down = CallTimedOut("NVML did not answer within 5 s")
    await bench.until(lambda: bool(bench.told.other) and len(bench.of(ProbeFailed)) > 20)
    assert {event.gpu for event in bench.of(ProbeFailed)} == {uuid(0), uuid(1)}
    assert bench.told.other == ["gone: NVML did not answer within 5 s"]
    assert (bench.driver.closed, bench.monitor.session) == (0, 0)
    bench.driver.down = None
    await bench.until(lambda: bench.monitor.session_open)
    assert bench.driver.discovered == 2


@pytest.mark.parametrize("down_between", [True, False])
async def test_another_version_is_told(bench: Bench, down_between: bool) -> None:
    await bench.start()
    if down_between:
        bench.driver.down = DriverUnavailable("no driver")
        await bench.until(lambda: bool(bench.told.other))
        bench.driver.down = None
    bench.driver.versions = Versions("575", (12, 9))
    bench.monitor.rescan()
    await bench.until(lambda: "swapped 570 575" in bench.told.other)


async def test_a_mistake_in_the_listener_ends_the_monitor_instead_of_blinding_it(bench: Bench) -> None:
    def broken(_: Event) -> None:
        raise ZeroDivisionError

    bench.told.health = broken  # type: ignore[assignment,method-assign] # as a bug would
    bench.task = asyncio.create_task(bench.monitor.run())
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(bench.task, 60)


# A probe as events


def test_a_reset_comes_first_and_the_verdict_last() -> None:
    probe = Probe(
        recovery_action=0,
        ecc_uncorrected=3,
        remap_pending=True,
        remap_failure=False,
        nvlinks_down=(2,),
        mig_errors={MIG: "Unknown Error"},
        mig_answered=(MigUuid("MIG-1"),),
    )
    assert list(events_of(uuid(0), probe, reset=True)) == [
        ResetObserved(uuid(0)),
        RecoveryAction(uuid(0), 0),
        EccSample(uuid(0), 3),
        RemapSample(uuid(0), pending=True, failure=False),
        NvLinkSample(uuid(0), (2,)),
        ProbeFailed(uuid(0), MIG, ProbeReason.ERROR, "Unknown Error"),
        ProbeOk(uuid(0), MigUuid("MIG-1")),
        ProbeOk(uuid(0)),
    ]


def test_what_a_gpu_does_not_tell_is_no_event() -> None:
    assert list(events_of(uuid(0), Probe(), reset=False)) == [NvLinkSample(uuid(0), ()), ProbeOk(uuid(0))]
