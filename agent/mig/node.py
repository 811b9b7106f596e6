"""MIG on this node: connects the reconciler with the agent's other parts. The daemon tells it of discoveries and
settings.

    node_state.modes (layouts), mig-parted's configuration -> wishes -> reconciler -> NVML
    changes under way -> node_state.withhold;  wishes that are not met -> node_state.report
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import grpc
import grpc.aio

from agent.config.settings import MigSettings, Settings
from agent.hardware.monitor import GpuMonitor
from agent.kubelet.holders import UNLISTED
from agent.kubelet.podresources import PodResources
from agent.mig.change import MigHardware
from agent.mig.choice import ANSWER, LABEL, MANAGER, PartedChoice
from agent.mig.evictor import Evictor
from agent.mig.journal import Journal, JournalEntry
from agent.mig.nvmlmig import NvmlMig, open_by
from agent.mig.outcomes import MigState, MigStatus, Wish
from agent.mig.reconciler import MigReconciler
from agent.nodestate import NodeState
from agent.process.tasks import until_poll
from agent.words import mig as words
from inventory.devices import DeviceId, Gpu, GpuUuid, MigInstance
from inventory.layout.entries import Dra, Mig, WhenBusy
from inventory.layout.layout import physical_id
from inventory.mig.parts import split
from inventory.mig.plan import Slot
from kubeletapi import podresources_v1_pb2 as pb

log = logging.getLogger(__name__)

WHO = "mig"
GOING = "its MIG layout is being changed, until that is done"
NEWER = "its MIG layout was changed after the checkpoint was written, until NVML has been asked"
HOLDERS_WITHIN_S = 5.0
REDISCOVER_WITHIN_S = 20.0
QUIET_WITHIN_S = 12.0
"""The longest wait in seconds for a daemon's end: it is asked to quit, and killed after some seconds."""
FILE_POLL_S = 5.0


class ByClaim(Protocol):
    """The claims on this node."""

    def wish(self, gpu: Gpu) -> Wish | None:
        """The wish of the claims for a GPU in mode dra; None where they want nothing and no instance is to go."""

    def holding(self, answer: pb.ListPodResourcesResponse) -> Iterable[tuple[str, str]]:
        """UUIDs of GPUs and MIG instances, each with a pod (``namespace/name``) that has it by claim."""


class MigNode:
    """The ``agent.mig.reconciler.ReconcilerServices`` of a real agent. ``serve`` shows the node state to the kubelet.

    The devices that the node state withholds under ``WHO`` follow from ``_changing``, ``_going``,
    ``_newer_than_checkpoint`` and ``_released`` alone. A GPU is in ``_changing`` from a change's ``withhold``, or a
    start that finds an interrupted change in the journal, to the ``settle`` after which nothing of it is half cut; in
    ``_newer_than_checkpoint`` from a start whose checkpoint is older than its journal to the first discovery. Its UUIDs
    in ``_going`` are those that the last settled change still waits for, none where it is over.
    """

    def __init__(  # noqa: PLR0913
        self,
        node_state: NodeState,
        monitor: GpuMonitor,
        settings: Settings,
        *,
        boot_id: str,
        now: Callable[[], float],
        serve: Callable[[], None],
        say: Callable[[str], None],
        daemons_ended: Callable[[frozenset[str]], Awaitable[None]],
        kept: Callable[[], Awaitable[None]],
        by_claim: ByClaim,
        checkpoint_changes: Mapping[GpuUuid, str] | None,
    ) -> None:
        """``kept`` returns when the modes are on disk, or cannot be; ``checkpoint_changes`` are the journal's entries
        that the checkpoint in the node state has seen, None without one.
        """
        self.boot_id = boot_id
        self.evictor = Evictor(say)
        self.parted = PartedChoice(settings.mig)
        self._evicted: frozenset[str] = frozenset()
        self._node_state = node_state
        self._monitor = monitor
        self._kubelet = PodResources(settings.kubelet_dir / "pod-resources")
        self._process_root = settings.process_root
        self._serve = serve
        self._say = say
        self._daemons_ended = daemons_ended
        self._kept = kept
        self._by_claim = by_claim
        self._turned = asyncio.Event()
        self._journal = Journal(settings.state_dir)
        self._changing: dict[GpuUuid, frozenset[str]] = {}
        self._going: dict[GpuUuid, frozenset[str]] = {}
        self._restoring: dict[GpuUuid, Wish] = {}
        """The instances of each GPU that a reset took, and that nobody else wishes for."""
        self._released: dict[GpuUuid, float] = {}
        """The seconds for which each GPU is released."""
        self._newer_than_checkpoint: frozenset[GpuUuid] = frozenset()
        self.changes: dict[GpuUuid, str] = dict(checkpoint_changes or {})
        """The id, by GPU, of the journal's last entry before the node state's hardware was read."""
        self._said: dict[str, None] = {}
        self._taken = asyncio.Condition()
        self._discovery = 0
        self._settled = asyncio.Event()
        self.parted.reread()
        self.reconciler = MigReconciler(self, self._journal, now)
        self._withhold_interrupted(checkpoint_changes)

    # -- events of the daemon

    async def discovered(self) -> bool:
        """Take in that the node state is of a new discovery. True where it is out of date already: layouts were
        restored.

        Layouts are restored at the first discovery: then nothing is to be advertised yet, and another discovery
        follows.
        """
        async with self._taken:
            self._discovery = self._monitor.discoveries
            self._taken.notify_all()
        self._read_after_changes()
        self.wishes_changed()
        self._turn()
        if self._settled.is_set():
            return False
        changed = await self.reconciler.settle()
        self._settled.set()
        if changed:
            self._monitor.rescan()
        return changed

    def _read_after_changes(self) -> None:
        """Record that the node state was read after every change that has ended: a change ends when it was
        discovered.
        """
        gpus = [gpu.uuid for gpu in self._node_state.node.gpus if not self.reconciler.is_running(gpu.uuid)]
        self.changes |= {gpu: self._journal.id(gpu) for gpu in gpus}
        self._newer_than_checkpoint = frozenset()

    @property
    def waits(self) -> bool:
        """Whether a change waits for containers to end."""
        return any(status.state is MigState.WAITING for status in self.reconciler.statuses.values())

    @property
    def statuses(self) -> tuple[MigStatus, ...]:
        """The status of every GPU for which there is a wish, by index."""
        return tuple(sorted(self.reconciler.statuses.values(), key=lambda status: status.index))

    def wishes_changed(self, *, again: bool = False) -> None:
        """Give the reconciler the present wishes: modes or instances may have changed. ``again``: refused wishes are
        retried.
        """
        self.reconciler.want(self._wishes(), again=again)
        self._show()

    async def bring(self, gpu: GpuUuid, ready: Callable[[], bool], within_s: float) -> str:
        """Bring the GPU to the claims' present wish. Returns empty once ``ready``, else one line of why it is not so in
        time.

        ``ready`` is asked once a change has ended that was begun for this wish: its answer before that may be about to
        change.
        """
        self.wishes_changed()
        try:
            async with asyncio.timeout(within_s):
                while True:
                    turned, status = self._turned, self.reconciler.statuses.get(gpu)
                    if status is not None:
                        if status.state in (MigState.APPLIED, MigState.WAITING) and ready():
                            return ""
                        if status.state in (MigState.REFUSED, MigState.FAILED):
                            return status.sentence
                    await turned.wait()
        except TimeoutError:
            status = self.reconciler.statuses.get(gpu)
            return (status.sentence if status else "") or f"{gpu}: its MIG instances were not changed in {within_s:g} s"

    async def rebuild(self, gpu: GpuUuid, slots: tuple[Slot, ...], within_s: float) -> str:
        """Make the instances again that the GPU had before its reset, or those of its layout; empty once they are
        there, else one line why not. A GPU that is given out by claim has its instances cut on demand.
        """
        if not slots or isinstance(self._node_state.modes.get(gpu), Dra):
            return ""
        profiles = tuple(slot.profile for slot in slots)
        self._restoring[gpu] = Wish(profiles, WhenBusy.WAIT, slots)

        def there() -> bool:
            found = self._node_state.node.gpu(gpu)
            return found is not None and len({mig.gi_id for mig in found.mig_instances}) == len(slots)

        try:
            return await self.bring(gpu, there, within_s)
        finally:
            del self._restoring[gpu]
            self.wishes_changed()

    def _turn(self) -> None:
        """Wake ``bring``: a change that it may wait for has ended."""
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def labelled(self, labels: Mapping[str, str]) -> None:
        """Take the Node's present labels."""
        label, other = labels.get(LABEL), labels.get(MANAGER) == "true"
        if (label, other) != (self.parted.label, self.parted.other_manager):
            self.parted.label, self.parted.other_manager = label, other
            followed = "no: NVIDIA's MIG manager" if self.parted.is_left else "yes"
            log.info("mig.config", extra={"label": label or "", "followed": followed})
            self.wishes_changed(again=True)

    def reconfigured(self, settings: MigSettings) -> None:
        """Take new settings, and retry every refused wish."""
        self.parted.settings = settings
        self.parted.reread()
        self.wishes_changed(again=True)

    async def release(self, index: int, seconds: float, *, forced: bool) -> str:
        """Release NVML and the GPU for a reset: no new pod gets it meanwhile. Returns the sentence to tell.

        Raises ValueError where there is no such GPU, or (unless ``forced``) pods are on it.
        """
        gpu = next((gpu for gpu in self._node_state.node.gpus if gpu.index == index), None)
        if gpu is None:
            raise ValueError(f"gpu: there is no GPU {index} on this node")
        self._released[gpu.uuid] = seconds
        self._show()
        try:
            refused = None if forced else await self._refusal(gpu)
            if refused is None and not await self.quiet(gpu.uuid, frozenset()) and not forced:
                refused = f"the MPS daemon of GPU {index} has not ended yet"
        except BaseException:
            self._take_back(gpu.uuid)
            raise
        if refused is not None:
            self._take_back(gpu.uuid)
            raise ValueError(f"{refused} (--force releases it all the same)")
        clients = open_by(self._process_root, f"/dev/nvidia{gpu.minor}", but=os.getpid())
        released = index, f"{seconds:g}"
        note = words.released_open(*released, ", ".join(clients)) if clients else words.released(*released)
        log.warning("GPU released", extra={"gpu": index, "for_s": seconds, "clients": ",".join(clients)})
        self._say(note)
        asyncio.get_running_loop().call_later(seconds, self._take_back, gpu.uuid)
        self._monitor.release(seconds)
        return note

    async def _refusal(self, gpu: Gpu) -> str | None:
        holders = await self.holders()
        if holders is None:
            return "the kubelet does not report who holds its devices"
        devices = (gpu.uuid, *(mig.uuid for mig in gpu.mig_instances))
        pods = sorted({pod for device in devices for pod in holders.get(device, ())})
        return f"GPU {gpu.index} is in use by {', '.join(pods)}" if pods else None

    def _take_back(self, gpu: GpuUuid) -> None:
        self._released.pop(gpu, None)
        self._show()

    async def run(self) -> None:
        """Keep every GPU as wished, from the first discovery on, until cancelled."""
        await self._settled.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.reconciler.run())
            tasks.create_task(self._follow_file())

    async def _follow_file(self) -> None:
        """Poll mig-parted's file: a ConfigMap's files are swapped without a signal."""
        while True:
            await asyncio.sleep(until_poll(FILE_POLL_S))
            if self.parted.reread():
                self.wishes_changed(again=True)

    def _wishes(self) -> dict[GpuUuid, Wish]:
        gpus = self._node_state.node.gpus
        wishes = self.parted.wishes(gpus, self._node_state.wanted.modes)
        for gpu in gpus:
            mode = self._node_state.modes.get(gpu.uuid)
            if isinstance(mode, Dra):
                wish = self._by_claim.wish(gpu)
                if wish is None and gpu.uuid in self.reconciler.statuses:
                    wish = Wish(None, WhenBusy.WAIT)  # a mode that is still pending is taken back
                wishes.pop(gpu.uuid, None)  # the label has no say in it, though the layout may have a problem now
                if wish is not None:
                    wishes[gpu.uuid] = wish
            elif isinstance(mode, Mig):
                wishes[gpu.uuid] = Wish(mode.profiles, self._when_busy(gpu.uuid))
            elif (
                mode is not None
                and gpu.uuid not in wishes
                and (gpu.mig_enabled or gpu.uuid in self.reconciler.statuses)
            ):
                wishes[gpu.uuid] = Wish(None, self._when_busy(gpu.uuid))
        for uuid, wish in self._restoring.items():
            wishes.setdefault(uuid, wish)
        return wishes

    def _when_busy(self, gpu: GpuUuid) -> WhenBusy:
        return self._node_state.wanted.when_busy.get(gpu, WhenBusy.REFUSE)

    # ReconcilerServices

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self._node_state.node.gpus if gpu.uuid not in self._monitor.aside)

    def nvml(self, gpu: Gpu, *, may_close: bool) -> MigHardware:
        return NvmlMig(self._monitor, gpu, self._process_root, may_close=may_close)

    async def holders(self) -> Mapping[str, Sequence[str]] | None:
        """All pods that hold a device named by a UUID, of any device plugin or by claim: those that the kubelet lists
        now, and those that got a device which it does not list yet.
        """
        granted = self._node_state.grants.open
        try:
            async with asyncio.timeout(HOLDERS_WITHIN_S):
                answer = await self._kubelet.list()
        except (TimeoutError, grpc.aio.AioRpcError) as silent:
            log.info("kubelet does not report who holds devices", extra={"error": type(silent).__name__})
            return None
        holders: dict[str, dict[str, None]] = {}
        for pod in answer.pod_resources:
            name = f"{pod.namespace}/{pod.name}"
            for device in (device_id for c in pod.containers for group in c.devices for device_id in group.device_ids):
                holders.setdefault(physical_id(DeviceId(device)), {})[name] = None
        for device, name in self._by_claim.holding(answer):
            holders.setdefault(device, {})[name] = None
        # A grant may have been listed meanwhile to another call, after this one was answered by the kubelet.
        for device_id in (*granted, *self._node_state.grants.open):
            holders.setdefault(physical_id(device_id), {UNLISTED: None})
        return {device: tuple(pods) for device, pods in holders.items()}

    async def withhold(self, gpu: GpuUuid, keep: frozenset[str]) -> None:
        self._changing[gpu] = keep
        self._show()
        # The mode that the change is for is on disk before the first step: a restarted agent knows which mode the
        # instances are of.
        await self._kept()

    async def quiet(self, gpu: GpuUuid, keep: frozenset[str]) -> bool:
        found = self._node_state.node.gpu(gpu)
        devices = {str(gpu), *(str(mig.uuid) for mig in found.mig_instances)} if found is not None else {str(gpu)}
        try:
            async with asyncio.timeout(QUIET_WITHIN_S):
                await self._daemons_ended(frozenset(devices - keep))
        except TimeoutError:
            return False
        return True

    async def settle(self, gpu: GpuUuid, going: frozenset[str]) -> None:
        entry, found = self._journal.read(gpu), self._node_state.node.gpu(gpu)
        if entry is not None and found is not None and entry.half_cut(self.boot_id):
            # The try has ended, and the change has not: a call of NVML that hangs may still destroy what goes.
            self._changing[gpu] = _kept(found, entry)
        else:
            self._changing.pop(gpu, None)
        self._going[gpu] = going
        self._show()
        self._turn()

    async def rediscover(self) -> None:
        wanted = self._monitor.discoveries + 1
        self._monitor.rescan()
        try:
            async with asyncio.timeout(REDISCOVER_WITHIN_S), self._taken:
                await self._taken.wait_for(lambda: self._discovery >= wanted)
        except TimeoutError:
            log.warning("the changed MIG instances are not discovered yet", extra={"after_s": REDISCOVER_WITHIN_S})

    def evict(self, pods: frozenset[str], why: str) -> None:  # noqa: ARG002 - the evictor says why itself
        self._evicted = pods - {UNLISTED}

    def told(self, status: MigStatus) -> None:
        level = logging.INFO if status.state is MigState.APPLIED else logging.WARNING
        extra = {"gpu": status.index, "wish": status.wish, "state": status.state.value, "why": status.sentence}
        log.log(level, "MIG layout", extra=extra)

    def tell(self, note: str) -> None:
        """Tell each note once: a wait is tried again and again."""
        if note not in self._said:
            self._said = {**dict(list(self._said.items())[-64:]), note: None}
            self._say(note)

    # The node state

    def _show(self) -> None:
        """Update the withheld devices and the reports; the kubelet is served where that changes anything."""
        withheld = self._node_state.withhold(WHO, self._reasons())
        self.evictor.want(self._evicted | self._node_state.drained)
        if self._report() or withheld:
            self._serve()

    def _report(self) -> bool:
        statuses = self.reconciler.statuses.values()
        lines = tuple(
            status.sentence for status in statuses if status.state is not MigState.APPLIED and status.sentence
        )
        answer = self.parted.answer(self.reconciler.statuses)
        answers = {} if answer is None else {ANSWER: answer}
        answered, self._node_state.answers = answers != self._node_state.answers, answers
        return self._node_state.report(WHO, (*self.parted.problems, *lines)) or answered

    def _reasons(self) -> dict[str, str]:
        reasons: dict[str, str] = {}
        by_claim = self._node_state.by_claim
        for gpu in self._node_state.node.gpus:
            devices = [str(mig.uuid) for mig in gpu.mig_instances]
            going = set(self._going.get(gpu.uuid, frozenset()))
            if gpu.uuid in by_claim:
                # Claims name a place, and instances are cut one after another: a taint for each change would be a write
                # for each.
                going.clear()
            elif gpu.uuid in self._changing:
                keep = self._changing[gpu.uuid]
                going |= {device for device in devices if device not in keep}
                if not keep:
                    going.add(gpu.uuid)
            reasons.update(dict.fromkeys(sorted(going & {*devices, gpu.uuid}), GOING))
            if gpu.uuid in self._newer_than_checkpoint:
                reasons[gpu.uuid] = NEWER
            if gpu.uuid in self._released:
                reasons[gpu.uuid] = f"it is released for a reset, until {self._released[gpu.uuid]:g} s are over"
        return reasons

    def _withhold_interrupted(self, checkpoint_changes: Mapping[GpuUuid, str] | None) -> None:
        """Withhold the instances that an interrupted change was about to remove, or had just made; and each GPU whose
        journal is newer than the checkpoint: it was changed, and the agent killed before it could write that down.
        """
        seen = checkpoint_changes or {}
        gpus = self._node_state.node.gpus
        self._newer_than_checkpoint = frozenset(
            gpu.uuid for gpu in gpus if self._journal.id(gpu.uuid) != seen.get(gpu.uuid, "")
        )
        for gpu in gpus:
            entry = self._journal.read(gpu.uuid)
            if entry is not None and not entry.done and entry.boot_id == self.boot_id:
                self._changing[gpu.uuid] = _kept(gpu, entry)
        self._node_state.withhold(WHO, self._reasons())


def _kept(gpu: Gpu, entry: JournalEntry) -> frozenset[str]:
    return frozenset(str(mig.uuid) for mig in gpu.mig_instances if _stays(mig, entry))


def _stays(mig: MigInstance, entry: JournalEntry) -> bool:
    """Whether the instance is the same before and after the change."""
    place = (split(mig.profile)[0], mig.start)
    return all(place in [(slot.profile, slot.start) for slot in slots] for slots in (entry.before, entry.target))
