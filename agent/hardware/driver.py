"""The NVML session: opening it, finding GPUs, probing them, hearing their XIDs. NVML is never called on the event loop.

One worker speaks for the driver (open, count), one for each GPU index. A GPU that hangs or is lost keeps the place it
had in the last good inventory, marked unreadable; the others are read as if nothing had happened.
"""

import asyncio
import ctypes
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import pynvml
from msgspec import Struct, structs

from agent.hardware.gpus import common_ancestor, link_matrix, read_gpu
from agent.hardware.hearing import Hearing
from agent.hardware.probe import Probe, look, works
from agent.hardware.query import CallTimedOut, DriverUnavailable, GpuLost, NvmlError, ask, must, text
from agent.hardware.resets import Renewals
from agent.hardware.worker import GpuWorker, Slot, XidEvent, address
from inventory.devices import Gpu, GpuUuid, NodeInventory, NodeName

log = logging.getLogger(__name__)

T = TypeVar("T")

OPEN_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 2.0
LIBRARY = "libnvidia-ml.so.1"
"""The library's name, which pynvml asks the loader for."""


class Versions(Struct, frozen=True):
    driver: str
    cuda: tuple[int, int]


class Discovery(Struct, frozen=True):
    """The node as the discovery found it, and one line for each GPU that could not be read."""

    node: NodeInventory
    problems: tuple[str, ...] = ()


class Sighting(Struct, frozen=True):
    """A probe's findings; ``reset`` says that handles show a reset (see ``resets.Renewals``)."""

    probe: Probe
    reset: bool


class Driver:
    """NVML in this process, one session at a time. ``on_xid`` is called on the event loop; ``find_library``, on a
    thread, says where NVML lies when the loader does not know it. ``lost``: GPUs that NVML called lost to the process
    before this one.

    Threads outlive sessions: one that hangs is asked again in the next session and found still hanging, instead of
    being joined by another hanging thread each time. ``_pool`` has a slot for each index that ever was and only grows;
    ``_slots``, a prefix of it, has those of this session, none between sessions. All state is written on the event
    loop.
    """

    def __init__(
        self,
        node_name: NodeName,
        sys_root: Path,
        on_xid: Callable[[GpuUuid, XidEvent], None],
        find_library: Callable[[], Path | None] | None = None,
        lost: Iterable[GpuUuid] = (),
    ) -> None:
        self._node_name = node_name
        self._sys_root = sys_root
        self._on_xid = on_xid
        self._find_library = find_library
        self._main = GpuWorker("driver")
        self._hearing = Hearing(self._heard)
        self._pool: list[Slot] = []
        self._slots: list[Slot] = []
        self._renewals = Renewals(lost)
        self._levels: dict[tuple[GpuUuid, GpuUuid], int] = {}
        """The PCIe level of each pair that was read last: a GPU that is set aside keeps its place."""
        self.aside: frozenset[GpuUuid] = frozenset()
        """The GPUs that no call may open in the sessions to come: somebody else needs them alone."""
        self._naming: set[asyncio.Task[None]] = set()
        """The tasks that ask NVML for the GPU of an event."""
        self._namer: GpuWorker | None = None
        self._indexed = asyncio.Event()
        """The event is not set while a discovery finds out which GPU is at which index."""
        self._indexed.set()
        self.versions = Versions("", (0, 0))
        self._opened = 0
        """The number of times that NVML was opened and not shut down, written on the driver's thread alone.

        NVML counts them too, and closes device files when its count is zero. More than one: a session before this one
        could not be shut down.
        """
        self.session = 0
        """The number of sessions so far: handles and samples of one mean nothing to the next."""

    async def open(self) -> Versions:
        """Start a session. Raises DriverUnavailable where there is no driver, CallTimedOut where it hangs."""
        self.versions = await self._main.call(self._open, OPEN_TIMEOUT_S)
        self.session += 1
        return self.versions

    def _open(self) -> Versions:
        if self._find_library is not None:
            _load(self._find_library)
        must(pynvml.nvmlInit)
        self._opened += 1
        return _read_versions()

    async def read_versions(self) -> Versions:
        """The versions as they are now. Raises DriverUnavailable, CallTimedOut, CallFailed."""
        return await self._main.call(_read_versions)

    @property
    def unread(self) -> bool:
        """Whether an index holds a GPU of which nothing is known at all."""
        return any(slot.gpu is None for slot in self._slots)

    async def count(self) -> int:
        """The number of GPUs that NVML lists now. Raises DriverUnavailable, CallTimedOut, CallFailed."""
        self._hearing.tend()
        return int(await self._main.call(lambda: must(pynvml.nvmlDeviceGetCount)))

    async def discover(self, known: Sequence[Gpu]) -> Discovery:
        """Read every GPU and all links anew. ``known`` stands in for those that cannot be read, by index.

        Raises DriverUnavailable, CallTimedOut or CallFailed when not even the count can be read.
        """
        count = await self.count()
        self._indexed.clear()
        try:
            return await self._discover(count, known)
        finally:
            self._indexed.set()

    async def _discover(self, count: int, known: Sequence[Gpu]) -> Discovery:
        self._fit(count)
        by_uuid = {gpu.uuid: gpu for gpu in known}
        failures = await asyncio.gather(*(self._read(slot, by_uuid) for slot in self._slots))
        outcomes = list(zip(self._slots, failures, strict=True))
        seen = {slot.gpu.uuid for slot, failed in outcomes if slot.gpu and not failed}
        for slot, failed in outcomes:
            if failed and slot.gpu is not None:
                # Indexes move when a GPU is removed: a GPU that was read at another index is not here.
                slot.gpu = None if slot.gpu.uuid in seen else structs.replace(slot.gpu, readable=False)
        by_index = {gpu.index: gpu for gpu in known if gpu.uuid not in seen}
        gpus = []
        for slot in self._slots:
            if slot.gpu is None and slot.index in by_index:
                slot.gpu = structs.replace(by_index[slot.index], readable=False)
            if slot.gpu is not None:
                gpus.append(slot.gpu)
        for slot, failed in outcomes:
            if slot.gpu is not None and isinstance(failed, GpuLost):
                self._renewals.lost(slot.gpu.uuid)
        self._renewals.keep(gpu.uuid for gpu in gpus)
        links = link_matrix(gpus, await self._ancestors([slot for slot in self._slots if slot.gpu is not None]))
        node = NodeInventory(
            name=self._node_name,
            driver_version=self.versions.driver,
            cuda_version=self.versions.cuda,
            gpus=tuple(gpus),
            links=links,
        )
        return Discovery(
            node, tuple(f"GPU {slot.index} cannot be read: {failed}" for slot, failed in outcomes if failed)
        )

    async def watch(self) -> None:
        """Hear the XIDs of every GPU that has a living handle."""
        await self._hearing.hear([slot for slot in self._slots if slot.handle is not None])

    async def probe(self, uuid: GpuUuid, timeout_s: float) -> Sighting:
        """Probe a GPU once. Raises GpuLost, CallTimedOut, CallFailed, DriverUnavailable."""
        slot = self._find(uuid)
        if slot is None:
            # Another GPU was removed, and this one may be about to get another index.
            await self._indexed.wait()
            slot = self._find(uuid)
        if slot is None or slot.gpu is None:
            raise GpuLost(f"NVML no longer lists {uuid}")
        gpu, handle = slot.gpu, slot.handle
        try:
            seen = await slot.worker.call(lambda: look(handle, gpu), timeout_s)
        except GpuLost:
            self._renewals.lost(uuid)
            raise
        self._renewals.answered(uuid, old_handle_works=None if handle is None else not seen.renewed)
        if self._find(uuid) is slot:
            slot.handle = seen.handle
            if seen.renewed or self._hearing.deaf(slot):
                # A new handle may have the old one's address: only a new event set is sure to be the new GPU's.
                await self._hearing.renew(slot)
        return Sighting(seen.probe, reset=self._renewals.take(uuid))

    async def read(self, uuid: GpuUuid, function: Callable[[Any], T], timeout_s: float) -> T:
        """Run ``function(handle)`` on the GPU's own thread, between probes. Raises what it raises, GpuLost,
        CallTimedOut.
        """
        slot, handle = self._listed(uuid)
        return await slot.worker.call(lambda: function(handle), timeout_s)

    async def on_gpu(self, uuid: GpuUuid, function: Callable[[Any], T], timeout_s: float) -> T:
        """Run ``function(handle)`` on the GPU's second thread, beside its probes. Raises what it raises, GpuLost,
        CallTimedOut.
        """
        slot, handle = self._listed(uuid)
        return await slot.changes.call(lambda: function(handle), timeout_s)

    def _listed(self, uuid: GpuUuid) -> tuple[Slot, Any]:
        """The slot of a GPU with its handle. Raises GpuLost."""
        slot = self._find(uuid)
        if slot is None or slot.handle is None:
            raise GpuLost(f"NVML does not list {uuid}")
        return slot, slot.handle

    def hurry(self, seconds: float) -> None:
        """Shorten for ``seconds`` how long calls wait for the thread, see ``GpuWorker.hurry``."""
        self._hearing.hurry(seconds)
        for slot in self._slots:
            slot.worker.hurry(seconds)

    async def alone(self, function: Callable[[], T], timeout_s: float) -> T:
        """Run ``function`` while no session is open: it opens its own. Raises what it raises, CallTimedOut."""
        return await self._main.call(function, timeout_s)

    async def close(self) -> None:
        """End the session: threads stop waiting in NVML, then it is shut down. Bounded, whatever hangs."""
        slots, self._slots = self._slots, []
        for task in tuple(self._naming):
            task.cancel()
        for slot in slots:
            slot.handle, slot.gpu = None, None
        quiet = await asyncio.gather(
            self._hearing.close(), *(slot.quiet(CLOSE_TIMEOUT_S) for slot in slots), return_exceptions=True
        )
        if any(isinstance(outcome, CallTimedOut) for outcome in quiet):
            # Shutting a library down under a thread that is inside it is how processes crash.
            log.warning("NVML stays open: a call has not returned")
            return
        try:
            await self._main.call(self._close, CLOSE_TIMEOUT_S)
        except NvmlError as failed:
            log.debug("NVML was not shut down: %s", failed)

    def _close(self) -> None:
        while self._opened:
            self._opened -= 1
            must(pynvml.nvmlShutdown)

    def _heard(self, slot: Slot | None, event: XidEvent) -> None:
        """Tell an event that came to the set of ``slot``, or to the set of all GPUs (None); the event itself names its
        GPU.
        """
        if event.device is not None:
            there = address(event.device)
            named = next(
                (other for other in self._slots if other.handle is not None and address(other.handle) == there), None
            )
            if named is None:
                # The library has another handle for each call. The name is asked for beside the probes: the GPU may be
                # one that hangs.
                task = asyncio.create_task(self._name(slot, event))
                self._naming.add(task)
                task.add_done_callback(self._naming.discard)
                return
            slot = named
        self._tell(slot, event)

    async def _name(self, slot: Slot | None, event: XidEvent) -> None:
        """Tell an event with an unknown handle by its UUID; without one it counts for the GPU whose set it came to."""
        if slot is None:
            self._namer = self._namer or GpuWorker("names")
        worker = slot.changes if slot is not None else self._namer
        assert worker is not None
        try:
            uuid = text(await worker.call(lambda: must(pynvml.nvmlDeviceGetUUID, event.device)))
        except NvmlError as failed:
            by = "all" if slot is None else slot.index
            log.warning("an XID's GPU has no UUID", extra={"heard_by": by, "error": str(failed)})
        else:
            owner = next((other for other in self._slots if other.gpu is not None and uuid in _uuids(other.gpu)), None)
            if owner is None:
                log.warning("an XID of a GPU that is not listed", extra={"gpu": uuid, "xid": event.xid})
                return
            slot = owner
        self._tell(slot, event)

    def _tell(self, slot: Slot | None, event: XidEvent) -> None:
        if slot is not None and slot.gpu is not None:
            self._on_xid(slot.gpu.uuid, structs.replace(event, device=None, place=None))

    def _find(self, uuid: GpuUuid) -> Slot | None:
        return next((slot for slot in self._slots if slot.gpu is not None and slot.gpu.uuid == uuid), None)

    def _fit(self, count: int) -> None:
        """Make one slot for each index, with the thread that index had before."""
        for index in range(len(self._pool), count):
            self._pool.append(Slot(index, self._hearing.told))
        for slot in self._pool[count:]:
            slot.handle, slot.gpu = None, None
        self._slots = self._pool[:count]

    async def _read(self, slot: Slot, known: Mapping[GpuUuid, Gpu]) -> NvmlError | None:
        """Fill the slot; return what kept it from being read. A GPU known from before stays, unreadable; one that is
        set aside stays as it was.
        """
        aside = next((gpu for gpu in known.values() if gpu.index == slot.index and gpu.uuid in self.aside), None)
        if aside is not None:
            slot.handle, slot.gpu = None, aside
            return None
        old, before = slot.handle, slot.gpu

        def read() -> tuple[Any, Gpu, bool | None]:
            old_works = None if old is None else works(old)
            handle = must(pynvml.nvmlDeviceGetHandleByIndex, slot.index)
            return handle, read_gpu(handle, slot.index, self._sys_root), old_works

        try:
            slot.handle, gpu, old_works = await slot.worker.call(read)
        except DriverUnavailable:
            raise
        except NvmlError as failed:
            return failed
        same = before is not None and before.uuid == gpu.uuid
        self._renewals.answered(gpu.uuid, old_handle_works=old_works if same else None)
        # The slot is filled in one step: a probe may look at it at any time, and must not take a link that is down for
        # none.
        slot.gpu = remember_links(gpu, known.get(gpu.uuid))
        return None

    async def _ancestors(self, slots: Sequence[Slot]) -> dict[tuple[int, int], int]:
        """PCIe levels by position in ``slots``, for i < j; pairs that cannot be asked are missing.

        A GPU that could not be read is not asked about either: it would hang the call on its neighbour's thread.
        """
        uuids = [slot.gpu.uuid for slot in slots if slot.gpu is not None]
        readable = {
            i for i, slot in enumerate(slots) if slot.gpu is not None and slot.gpu.readable and slot.handle is not None
        }

        async def row(i: int) -> dict[tuple[int, int], int]:
            handle = slots[i].handle
            others = [(j, slots[j].handle) for j in range(i + 1, len(slots)) if j in readable]
            if i not in readable or not others:
                return {}
            try:
                levels = await slots[i].worker.call(
                    lambda: [(j, common_ancestor(handle, other)) for j, other in others]
                )
            except CallTimedOut:
                return {}
            return {(i, j): level for j, level in levels if level is not None}

        rows = await asyncio.gather(*(row(i) for i in range(len(slots))))
        levels = {pair: level for found in rows for pair, level in found.items()}
        for i, j in combinations(range(len(slots)), 2):
            known = self._levels.get((uuids[i], uuids[j]))
            if known is not None and not {uuids[i], uuids[j]}.isdisjoint(self.aside):
                levels.setdefault((i, j), known)
        self._levels = {(uuids[i], uuids[j]): level for (i, j), level in levels.items()}
        return levels


def _uuids(gpu: Gpu) -> set[str]:
    """The UUIDs of the GPU and of its MIG devices."""
    return {gpu.uuid, *(mig.uuid for mig in gpu.mig_instances)}


def remember_links(gpu: Gpu, before: Gpu | None) -> Gpu:
    """The GPU with the remote end of each link that is down now taken from ``before``: otherwise a discovery while it
    is down would make that the normal.
    """
    old = {link.link: link for link in before.nvlinks} if before is not None else {}
    return structs.replace(
        gpu,
        nvlinks=tuple(
            link if link.active or link.link not in old else structs.replace(old[link.link], active=False)
            for link in gpu.nvlinks
        ),
    )


def _load(find_library: Callable[[], Path | None]) -> None:
    """Make the loader know NVML: it finds a library that is loaded by its name. Raises DriverUnavailable."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        if (path := find_library()) is None:
            return  # pynvml reports it
        try:
            ctypes.CDLL(str(path))
        except OSError as unfit:
            raise DriverUnavailable(str(unfit)) from None


def _read_versions() -> Versions:
    # The numbers, such as 12080 for 12.8, come from the driver's own library, not from any toolkit.
    cuda = ask(pynvml.nvmlSystemGetCudaDriverVersion_v2) or 0
    return Versions(driver=text(must(pynvml.nvmlSystemGetDriverVersion)), cuda=(cuda // 1000, cuda % 1000 // 10))
