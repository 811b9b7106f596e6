"""Reads the GPUs on time and keeps their figures: the shell around the pure parts of this package.

    every interval: each GPU on its own NVML thread -> readings -> owners of processes -> usage -> text
    a scrape:       the text, made again only where holders or faults have changed since

A GPU that does not answer has no series until it does: old readings are never shown.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from agent.config.settings import MetricsSettings, XidErrors
from agent.hardware.query import NvmlError
from agent.health.states import FaultKind
from agent.kubelet.containers import ClaimUse, PodContainer, PodLookup
from agent.kubelet.holders import Holder
from agent.nodestate import NodeState
from agent.telemetry import collectors, healthwatch, usage
from agent.telemetry.activity import ActivityLog
from agent.telemetry.allocation import GpuPart, allocations, tenants
from agent.telemetry.collectors import USUAL, Collectors
from agent.telemetry.energy import EnergyLedger
from agent.telemetry.fields import CLOCK_EVENT_COUNT, CLOCK_EVENTS, CLOCK_REASONS, ENERGY, HEALTH_STATUS, POWER
from agent.telemetry.owners import owners_of
from agent.telemetry.podlabels import PodLabelChoice
from agent.telemetry.reading.reader import GpuReader
from agent.telemetry.reading.readings import GpuReading
from agent.telemetry.series import Recent, Scene, Style, User, write
from agent.telemetry.shares import Figure
from agent.telemetry.windows import SlidingCounts, XidMemory
from agent.words import node as words
from inventory.devices import DeviceId, Gpu, GpuUuid
from kube.clock import Clock, SystemClock, sleep
from yamlfile import ConfigError, UnreadableError

log = logging.getLogger(__name__)
T = TypeVar("T")

SECOND_LOOK_S = 1.0
"""The seconds from the first pass after a start, a reset or a new GPU to the next, which gives figures between two
samples; also the shortest time between two passes: the driver samples processes about as often, and would have nothing
new.
"""
CALL_TIMEOUT_S = 5.0
LONGEST_TEXT_S = 60.0
"""The longest age of a scrape's text in seconds: recent events expire by themselves, with a pass or without."""
ALWAYS = frozenset({POWER, CLOCK_REASONS})
"""The figures that are read whatever is exported: our own series need them."""


class Gpus(Protocol):
    """The part of ``agent.hardware.monitor.GpuMonitor`` that the sampler uses."""

    @property
    def session(self) -> int:
        """The number of the open NVML session, counted from 1; 0 while none is open."""

    async def read(self, uuid: GpuUuid, function: Callable[[Any], T], timeout_s: float) -> T:
        """Run ``function(handle)`` on the GPU's thread. Raises NvmlError."""


class Pass(Struct, frozen=True):
    """The result of one pass, kept for scrapes."""

    readings: Mapping[GpuUuid, GpuReading] = {}
    owners: Mapping[int, PodContainer] = {}


class Sampler:
    """One node's figures.

    ``problem`` gets one line about a mistake in the collectors file; ``passed`` gets how many GPUs a pass read and
    failed to read, and how long it took in seconds.

    ``claims`` says by which claim a device is held. All other attributes are written on the event loop alone; a GPU's
    thread touches that GPU's ``GpuReader`` only. A pass sets ``_pass`` and updates ``_energy`` and ``_activity``
    without an await between them; ``forget`` clears ``_pass`` alone. ``_text`` is the exposition as last written, at
    ``_written_s``; None where the next scrape must write it.
    """

    def __init__(
        self,
        node_state: NodeState,
        holders: Callable[[], Mapping[DeviceId, Holder]],
        pods: PodLookup,
        process_root: Path,
        settings: MetricsSettings,
        *,
        problem: Callable[[str], None] = lambda _: None,
        passed: Callable[[int, int, float], None] = lambda _read, _failed, _seconds: None,
        clock: Clock | None = None,
    ) -> None:
        self._node_state = node_state
        self._holders = holders
        self.claims: Callable[[], Mapping[DeviceId, ClaimUse]] = dict
        """The claim that holds each device; ``Agent`` sets it once, since its DRA driver is made later."""
        self.sharers: Callable[[], Mapping[DeviceId, tuple[Holder, ...]]] = dict
        """The containers beside the first on each shared device; ``Agent`` sets it once."""
        self._pods = pods
        self._process_root = process_root
        self._clock = clock or SystemClock()
        self._readers: dict[GpuUuid, GpuReader] = {}
        self._pass = Pass()
        self._energy: EnergyLedger[GpuUuid, User] = EnergyLedger()
        self._activity: ActivityLog[GpuPart] = ActivityLog()
        self._last_xid = XidMemory(settings.xid_shown_s)
        self._xids: SlidingCounts[int] = SlidingCounts(settings.xid_window_ms / 1000)
        self._clock_events: SlidingCounts[str] = SlidingCounts(settings.clock_window_ms / 1000)
        self._nudged = asyncio.Event()
        self._text: bytes | None = None
        self._written_s = 0.0
        self._file_identity: tuple[str | int, ...] | None = None
        self._complained: set[GpuUuid] = set()
        self._settings = settings
        self.collectors: Collectors = USUAL
        self._problem = problem
        self._passed = passed

    # -- times of passes

    async def run(self, gpus: Gpus) -> None:
        """Read the GPUs every interval until cancelled. While no NVML session is open no GPU is shown."""
        due_s = self._clock.monotonic()
        while True:
            self._nudged.clear()
            self._read_collectors()
            again = False
            if gpus.session:
                again = await self.sample(gpus)
                await sleep(self._clock, SECOND_LOOK_S)
            else:
                self.forget()
            now_s = self._clock.monotonic()
            if again:
                due_s = now_s
            elif due_s <= now_s:
                due_s = max(due_s + self.settings.interval_s, now_s)
            await self._clock.wait(self._nudged, due_s - now_s)

    def nudge(self) -> None:
        """Start a pass now, since there is something new to read."""
        self._nudged.set()

    def changed(self) -> None:
        """Discard the kept text after a change of holders, faults or hardware: the next scrape must show it."""
        self._text = None

    def xid(self, gpu: GpuUuid, xid: int) -> None:
        """Count an XID that was seen."""
        now_s = self._clock.monotonic()
        self._last_xid.add(gpu, xid, now_s)
        self._xids.add(gpu, xid, now_s)
        self.changed()

    @property
    def settings(self) -> MetricsSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: MetricsSettings) -> None:
        """Take new settings; the events counted so far are kept for as long as the new settings say."""
        self._settings = settings
        self._last_xid.shown_s = settings.xid_shown_s
        self._xids.window_s = settings.xid_window_ms / 1000
        self._clock_events.window_s = settings.clock_window_ms / 1000

    @property
    def blank(self) -> bool:
        """Whether no GPU is shown."""
        return not self._pass.readings

    def forget(self) -> None:
        """Drop all readings and series: the GPUs cannot be read any more."""
        self._pass = Pass()
        self._text = None

    # -- a pass

    async def sample(self, gpus: Gpus) -> bool:
        """Read all GPUs once. True where some GPU has no earlier sample to compare with: another pass is due soon."""
        start_s, session = self._clock.monotonic(), gpus.session
        here = [gpu for gpu in self._node_state.node.gpus if gpu.readable]
        wanted = self._wanted()
        for uuid in self._readers.keys() - {gpu.uuid for gpu in self._node_state.node.gpus}:
            del self._readers[uuid]
        answers = await asyncio.gather(*(self._read(gpus, gpu, wanted) for gpu in here))
        if gpus.session != session:
            self.forget()  # the session was closed or opened again meanwhile: these readings are outdated
            return bool(gpus.session)
        readings = {answer.uuid: answer for answer in answers if answer is not None}
        pids = [process.pid for reading in readings.values() for process in reading.processes]
        owners = owners_of(pids, self._process_root, self._pods)
        await asyncio.sleep(0)  # the steps take some milliseconds each on a full node: the kubelet's calls go between
        self._pass = Pass(readings, owners)
        self._account()
        await asyncio.sleep(0)
        self._text = self._write()
        self._passed(len(readings), len(here) - len(readings), self._clock.monotonic() - start_s)
        return any(board.first for board in readings.values())

    async def _read(self, gpus: Gpus, gpu: Gpu, wanted: frozenset[str]) -> GpuReading | None:
        reader = self._readers.setdefault(gpu.uuid, GpuReader(wanted))
        reader.wanted = wanted
        session = gpus.session
        try:
            reading = await gpus.read(
                gpu.uuid, lambda handle: reader.read(handle, gpu, session, self._clock.monotonic()), CALL_TIMEOUT_S
            )
        except NvmlError as failed:
            if gpu.uuid not in self._complained:
                log.info("no figures", extra={"gpu": gpu.uuid, "error": str(failed)})
            self._complained.add(gpu.uuid)
            return None
        except Exception:  # an unexpected answer of the driver: the kubelet is still served, without these figures
            if gpu.uuid not in self._complained:
                log.exception("no figures", extra={"gpu": gpu.uuid})
            self._complained.add(gpu.uuid)
            return None
        self._complained.discard(gpu.uuid)
        return reading

    def _wanted(self) -> frozenset[str]:
        return ALWAYS | {field.shows for field in self.collectors.fields}

    def _account(self) -> None:
        """Update the sums over several passes: energy and idle times."""
        scene = self._scene()
        watts: dict[GpuUuid, dict[User, float]] = {}
        pairs: set[User] = set()
        for used in scene.usages:
            split = used.attribution.splits.get(Figure.POWER_W)
            for pod, part_w in (split.pods if split is not None else {}).items():
                watts.setdefault(used.gpu.uuid, {})[used.place, pod] = part_w
            memory = used.attribution.splits.get(Figure.MEMORY_MIB)
            for pod, active in used.attribution.active.items():
                held_mib = memory.pods.get(pod) if memory is not None else None
                if active is None or held_mib is None:
                    continue
                now_s = self._pass.readings[used.gpu.uuid].at_s
                self._activity.observe(
                    used.place,
                    pod,
                    active=active,
                    memory_mib=held_mib,
                    now_s=now_s,
                    occupied=used.attribution.occupied,
                )
                pairs.add((used.place, pod))
        # One GPU that misses a pass must not restart its pods' idle times.
        pairs |= {(a.place, a.holder) for a in scene.allocations if a.place.gpu not in self._pass.readings}
        self._activity.keep(pairs)
        for uuid, reading in self._pass.readings.items():
            # The next pass makes up for one that lacks a device.
            if reading.values.keys() >= {ENERGY, POWER}:
                self._energy.add(uuid, reading.values[ENERGY], watts.get(uuid, {}), reading.values[POWER])
        here = {gpu.uuid for gpu in self._node_state.node.gpus}
        self._energy.keep(here)
        for kept in (self._last_xid, self._xids, self._clock_events):
            kept.keep(here)
        if self._exported(CLOCK_EVENT_COUNT):
            self._count_clock_events()

    def _count_clock_events(self) -> None:
        now_s = self._clock.monotonic()
        for uuid, reading in self._pass.readings.items():
            mask = int(reading.values.get(CLOCK_REASONS, 0))
            for reason, bit in CLOCK_EVENTS.items():
                if mask & bit:
                    self._clock_events.add(uuid, reason, now_s)

    def _exported(self, name: str) -> bool:
        return any(field.name == name for field in self.collectors.fields)

    def validate(self) -> None:
        """Check the invariants of all kept state."""
        self._energy.validate()
        self._activity.validate()
        self._xids.validate()
        self._clock_events.validate()
        usage.validate(self._scene().usages, self._pass.readings)
        assert self._readers.keys() >= self._pass.readings.keys(), "a reading without a reader"

    # -- the text for scrapes

    def exposition(self) -> bytes:
        """The text for a scrape. NVML is never asked."""
        if self._text is None or self._clock.monotonic() - self._written_s > LONGEST_TEXT_S:
            self._text = self._write()
        return self._text

    def _write(self) -> bytes:
        self._written_s = self._clock.monotonic()
        return write(self._scene()).text()

    def _scene(self) -> Scene:
        node = self._node_state.node
        held = allocations(node, self._node_state.layout, self._holders(), self.claims(), self.sharers())
        usages = usage.usages(node, self._pass.readings, tenants(held), self._pass.owners)
        energy = {gpu.uuid: self._energy.account(gpu.uuid) for gpu in node.gpus}
        holders = [allocation.holder for allocation in held]
        users = [(used.place, pod) for used in usages for pod in used.attribution.pods]
        activities = {user: self._activity.of(*user) for user in users}
        return Scene(
            node=node,
            usages=usages,
            readings=self._pass.readings,
            allocations=held,
            recent={gpu.uuid: self._recent(gpu.uuid) for gpu in node.gpus},
            xid_window_ms=self.settings.xid_window_ms,
            clock_window_ms=self.settings.clock_window_ms,
            pod_pairs=self._pod_pairs(
                {(container.namespace, container.pod) for container in (*holders, *(pod for _, pod in users))}
            ),
            energy={uuid: account for uuid, account in energy.items() if account is not None},
            activities={user: seen for user, seen in activities.items() if seen is not None},
            collectors=self.collectors,
            host=self._node_state.node.name,
            host_label=self.settings.hostname_label.value,
            style=Style(
                no_hostname=self.settings.no_hostname,
                old_names=self.settings.old_names,
                dashed_model=self.settings.dashed_model,
            ),
        )

    def _recent(self, gpu: GpuUuid) -> Recent:
        now_s = self._clock.monotonic()
        faults = self._node_state.health.state(gpu).faults
        reading = self._pass.readings.get(gpu)
        reasons = 0 if reading is None else int(reading.values.get(CLOCK_REASONS, 0))
        last = self._last_xid.last(gpu, now_s) if self.settings.xid_errors is XidErrors.LAST else 0
        worst = next((fault.code for fault in faults if fault.kind is FaultKind.XID), 0)
        return Recent(
            xid=last or worst,
            open_xid=worst,
            xids=self._xids.counts(gpu, now_s),
            clock_events=self._clock_events.counts(gpu, now_s),
            watches=healthwatch.findings(faults, reasons) if self._exported(HEALTH_STATUS) else {},
        )

    def _pod_pairs(self, pods: Iterable[tuple[str, str]]) -> dict[tuple[str, str], tuple[tuple[str, str], ...]]:
        choice = PodLabelChoice.of(self.settings)
        if not choice.uid and not choice.labels:
            return {}
        known = {name: self._pods.identity(*name) for name in pods}
        return {name: choice.pairs(identity) for name, identity in known.items() if identity is not None}

    # -- the collectors file

    def _read_collectors(self) -> None:
        """Read the file where it has changed; a bad file changes nothing. A file that cannot be read is tried again at
        the next pass.
        """
        path = self.settings.collectors
        identity: tuple[str | int, ...] | None = None if path is None else (str(path), *_identity(path))
        if identity == self._file_identity:
            return
        self._file_identity = identity
        if path is None:
            self.collectors = USUAL
            return
        try:
            self.collectors = collectors.read(path)
        except UnreadableError as failed:
            self._file_identity = None
            log.warning("collectors file cannot be read, the fields stay as they are", extra={"problem": str(failed)})
            return
        except ConfigError as wrong:
            log.warning("collectors file rejected, the fields stay as they are", extra={"problem": str(wrong)})
            self._problem(words.collectors_rejected(str(wrong)))
            return
        for line in (*self.collectors.refused, *self.collectors.missing):
            log.warning("collectors", extra={"problem": line})
        if self.collectors.refused:
            first, *others = self.collectors.refused
            said = words.collectors_left_out(first, len(others)) if others else words.collector_left_out(first)
            self._problem(said)


def _identity(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return (-1,)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
