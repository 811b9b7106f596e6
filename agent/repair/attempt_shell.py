"""One attempt at a GPU: nobody has it, the agent lets go of it, it is reset, read again and compared.

    holders, processes, MIG, MPS -> set aside -> openers, holders again -> journal -> nvidia-smi -> journal
    read again -> facts as before, no fault left, MIG instances back, the administrator's program -> journal

Anything in the way ends the attempt before its reset, with one line that says who; the GPU is tried again later.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from agent.config.settings import Settings
from agent.hardware.facts_shell import read_facts
from agent.hardware.monitor import GpuMonitor
from agent.hardware.query import NvmlError
from agent.health.repairs import RepairCore
from agent.health.repairstate import RepairChange, ResetResult
from agent.health.verification import differences
from agent.kubelet.podresources import SOCKET
from agent.mig.node import MigNode
from agent.mps.node import MpsNode
from agent.repair.befores import Before
from agent.repair.openers import openers
from agent.repair.tool_shell import ResetTool, VerifierError, verify
from agent.repair.units import ResetUnit
from agent.words import repairs as words
from inventory.devices import Gpu, GpuUuid

MPS: Final = "nvidia-cuda-mps"
"""The names of MPS daemons and servers begin so: those of a GPU in repair end once no pod has it."""
PERSISTENCED: Final = "nvidia-persiste"
"""The kernel's short name of nvidia-persistenced, which lets go of a GPU when persistence mode is turned off."""
READ_WITHIN_S: Final = 15.0
ASIDE_WITHIN_S = 30.0
DAEMONS_WITHIN_S: Final = 12.0
VERDICT_WITHIN_S = 30.0
REBUILD_WITHIN_S = 60.0


class RepairServices(Protocol):
    """The parts of the agent that an attempt uses, and what it tells of its steps."""

    monitor: GpuMonitor
    mig: MigNode
    mps: MpsNode
    settings: Settings
    tool: ResetTool

    def waits(self, gpu: GpuUuid, who: str, *, by_pods: bool = False) -> bool:
        """Hear that the GPU cannot be reset now, because of pods that hold it where ``by_pods``; always False, as
        ``Attempt.run`` answers then.
        """

    def unable(self, gpu: GpuUuid, why: str) -> bool:
        """Hear that the GPU cannot be reset by itself at all; always True."""

    def unverified(self, gpu: GpuUuid, why: str) -> bool:
        """Hear that nobody could look whether the GPU is well after its reset; always False."""

    def rest(self, gpu: GpuUuid) -> None:
        """Leave the GPU alone for a while, longer each time: its reset was refused, for somebody who is not found."""

    def wants_reset(self, gpu: GpuUuid) -> bool:
        """Whether the faults still want a reset, and the repair is where it was."""

    def acting(self, unit: frozenset[GpuUuid]) -> None:
        """Withhold these GPUs as well; none: the unit is in action no more."""

    async def remember(self, before: dict[GpuUuid, Before]) -> None:
        """Keep what the unit is now, before anything of it is changed. It is in the journal when this returns; what an
        interrupted attempt kept stays. Raises OSError.
        """

    async def begin(self, gpu: GpuUuid) -> None:
        """The reset begins. It is in the journal when this returns. Raises OSError."""

    async def unwritten(self, gpu: GpuUuid, why: str) -> None:
        """Hear that the journal cannot be written: a reset that was begun in it alone is not."""

    async def end(self, change: Callable[[RepairCore, float], RepairChange], also: Iterable[GpuUuid] = ()) -> None:
        """Hear that a step of the reset has ended; ``also``: GPUs that go on probation where the repair does."""

    def before(self, gpu: GpuUuid) -> Before | None:
        """The GPU as it was before its reset; None where nobody has written that down."""

    async def as_before(self) -> None:
        """Give the unit its persistence mode back, and forget what it was."""

    async def verdict(self, gpu: GpuUuid, within_s: float) -> str:
        """Wait until no fault of the GPU wants a repair any more, and it is on probation; empty then, else what it
        still has.
        """


class Attempt:
    """One attempt at ``gpu``, with the unit that is reset together with it."""

    def __init__(self, node: RepairServices, gpu: GpuUuid, unit: ResetUnit) -> None:
        self._node = node
        self._gpu = gpu
        self._unit = unit
        self.by_pods = False
        """Whether the kubelet said at the last look that pods hold the unit."""

    async def in_the_way(self) -> str:
        """Look who is in the way of a reset, as far as is known while the agent has the unit open; empty for nobody."""
        who = await self._holders() or await self._open_elsewhere(but=(MPS, PERSISTENCED))
        if who:
            return who
        # Daemons of the others of a unit run on: these are well, and withheld only when the reset begins.
        if len(self._unit.gpus) == 1 and not await self._daemons_ended():
            return words.daemon_runs()
        return await self._processes()

    async def run(self) -> bool:
        """Reset and verify the GPU. False where somebody is in the way: nothing was done then."""
        command = self._node.settings.remediation.verify_command
        if command and await asyncio.to_thread(shutil.which, command[0]) is None:
            return self._node.waits(self._gpu, words.no_verifier(command[0]))
        who = await self._holders() or await self._open_elsewhere(but=(MPS, PERSISTENCED))
        if who:
            return self._node.waits(self._gpu, who, by_pods=self.by_pods)
        try:
            before = {gpu.uuid: await self._read(gpu) for gpu in self._unit.gpus}
        except NvmlError as failed:
            return self._node.waits(self._gpu, words.not_read(str(failed)))
        if any(each.facts.virtual for each in before.values()):
            return self._node.unable(self._gpu, words.virtual())
        if len(before) > 1 and (who := _running(before.values())):
            # The others of the unit are well: they are withheld only when nothing is in the way.
            return self._node.waits(self._gpu, who)
        self._node.acting(self._unit.uuids)
        try:
            return await self._prepared(before)
        finally:
            self._node.acting(frozenset())

    async def _prepared(self, before: dict[GpuUuid, Before]) -> bool:
        """Go on with GPUs that no new container gets."""
        if not await self._daemons_ended():
            return self._node.waits(self._gpu, words.daemon_runs())
        if who := await self._open_elsewhere(but=(PERSISTENCED,)) or await self._processes():
            return self._node.waits(self._gpu, who)
        result, who = await self._reset(before)
        await self._take_back()
        if result is None:
            return self._node.waits(self._gpu, who, by_pods=self.by_pods)
        if result is ResetResult.BUSY:
            self._node.rest(self._gpu)
        if result is ResetResult.DONE:
            return await verified(self._node, self._gpu, self._unit)
        return True

    async def _reset(self, before: dict[GpuUuid, Before]) -> tuple[ResetResult | None, str]:
        """Let go of the unit, look once more, reset it. None: nothing was done, and the text says who is in the way."""
        node, uuids = self._node, sorted(self._unit.uuids)
        try:
            await node.monitor.set_aside(self._unit.uuids, ASIDE_WITHIN_S)
        except NvmlError as failed:
            return None, words.not_let_go(str(failed))
        who = await self._open_elsewhere(but=(PERSISTENCED,)) or await self._holders()
        if not who and (who := await self._begun(before)):
            node.rest(self._gpu)
        if who:
            await node.as_before()
            return None, who
        result, detail = await node.tool.reset(uuids)
        await node.end(lambda core, now_s: core.reset_ended(self._gpu, result, detail, now_s))
        if result is ResetResult.DONE:
            for uuid in uuids:
                node.monitor.reset_done(uuid)
        else:
            await node.as_before()
        return result, detail

    async def _begun(self, before: dict[GpuUuid, Before]) -> str:
        """Write down what the unit is, turn persistence mode off, and write down that the reset begins. Empty where
        that is on disk, else why it does not begin.
        """
        node = self._node
        try:
            await node.remember(before)
            if any(each.facts.persistence for each in before.values()):
                await node.tool.persistence(sorted(before), on=False)
            if who := await self._open_elsewhere():
                return who
            if not node.wants_reset(self._gpu):
                return words.not_any_more()
            await node.begin(self._gpu)
        except OSError as failed:
            why = words.no_journal(str(failed))
            await node.unwritten(self._gpu, why)
            return why
        return ""

    async def _take_back(self) -> None:
        try:
            await self._node.monitor.set_aside(frozenset(), ASIDE_WITHIN_S)
        except NvmlError:
            return  # the driver is away: the monitor goes on trying, and the verification says so

    # -- who is in the way

    async def _holders(self) -> str:
        """The pods that have the unit, by the kubelet's answer now; empty for none."""
        self.by_pods = False
        if any(self._node.mig.reconciler.is_running(uuid) for uuid in self._unit.uuids):
            return words.mig_changes()
        holders = await self._node.mig.holders()
        if holders is None:
            settings = self._node.settings
            alone = settings.simulate is not None and not (settings.kubelet_dir / "pod-resources" / SOCKET).exists()
            # Simulated GPUs are held by nobody where there is no kubelet; real ones may have pods that run on.
            return "" if alone else words.holders_unknown()
        where: dict[str, str] = {}
        for gpu in sorted(self._unit.gpus, key=lambda each: (each.uuid != self._gpu, each.index)):
            for device in (gpu.uuid, *(mig.uuid for mig in gpu.mig_instances)):
                for pod in holders.get(device, ()):
                    where.setdefault(pod, pod if gpu.uuid == self._gpu else words.held_with(pod, gpu.index))
        self.by_pods = bool(where)
        return words.held(", ".join(where[pod] for pod in sorted(where))) if where else ""

    async def _open_elsewhere(self, but: tuple[str, ...] = ()) -> str:
        """The processes that have a device file of the unit open beside this agent; empty for none.

        Programs whose names begin with one of ``but`` are left out. Once NVML has let go of the unit, this agent counts
        as well.
        """
        settings = self._node.settings
        if settings.simulate is not None and settings.pid_root is None:
            return ""  # this machine's /proc knows nothing of simulated GPUs
        minors = [gpu.minor for gpu in self._unit.gpus]
        opened = await asyncio.to_thread(openers, settings.process_root, minors)
        aside = self._unit.uuids <= self._node.monitor.aside
        others = [each for each in opened.found if aside or each.pid != os.getpid()]
        others = [each for each in others if not each.name.startswith(but)]
        if others:
            stewards = settings.remediation.stewards
            watch = all(each.is_one_of(stewards) for each in others)
            say = words.open_by_stewards if watch else words.open_by
            return say(", ".join(map(str, others)))
        return words.not_looked_at() if opened.blind else ""

    async def _processes(self) -> str:
        """The processes that NVML has on the unit; empty for none. The daemons' servers are gone by now."""
        try:
            return _running([await self._read(gpu) for gpu in self._unit.gpus])
        except NvmlError as failed:
            return words.not_read(str(failed))

    async def _daemons_ended(self) -> bool:
        devices: Collection[str] = self._unit.devices
        try:
            async with asyncio.timeout(DAEMONS_WITHIN_S):
                await self._node.mps.ended(devices)
        except TimeoutError:
            return False
        return True

    async def _read(self, gpu: Gpu) -> Before:
        return await read_before(self._node, gpu)


async def verified(node: RepairServices, gpu: GpuUuid, unit: ResetUnit) -> bool:
    """Verify a GPU that was reset. False where the administrator's program could not be run: another reset would not
    help, and the GPU stays where it is.
    """
    try:
        wrong = await Verification(node, gpu, unit).run()
    except VerifierError as failed:
        return node.unverified(gpu, str(failed))
    await node.end(lambda core, now_s: core.verified(gpu, wrong, now_s), unit.uuids)
    return True


class Verification:
    """Compares a unit with what it was before its reset, and makes its MIG instances again."""

    def __init__(self, node: RepairServices, gpu: GpuUuid, unit: ResetUnit) -> None:
        self._node = node
        self._gpu = gpu
        self._unit = unit

    async def run(self) -> str:
        """Empty where all is as before, else what is wrong, in one line. Raises VerifierError."""
        wrong = ""
        try:
            for gpu in self._unit.gpus:
                wrong = wrong or await self._one(gpu)
        finally:
            await self._node.as_before()
        return wrong

    async def _one(self, gpu: Gpu) -> str:
        before = self._node.before(gpu.uuid)
        try:
            after = await read_before(self._node, gpu)
        except NvmlError as failed:
            return words.not_read(str(failed))
        if after.facts.recovery_action:
            return words.action_left(after.facts.recovery_action)
        # The verdict comes first: a reset that is observed later would be taken for a person's.
        if wrong := await self._node.verdict(gpu.uuid, VERDICT_WITHIN_S):
            return wrong
        if before is not None:
            if wrong := next(differences(before.facts, after.facts), ""):
                return wrong
            slots = before.slots or ()  # after a reboot the layout alone says what there is to be
            if why := await self._node.mig.rebuild(gpu.uuid, slots, REBUILD_WITHIN_S):
                return words.layout_not_back(why)
        settings = self._node.settings
        if settings.remediation.verify_command and (wrong := await verify(settings, gpu.uuid)):
            return wrong
        return await self._node.verdict(gpu.uuid, VERDICT_WITHIN_S)


def _running(unit: Iterable[Before]) -> str:
    """The processes on the unit, in words; empty for none."""
    pids = sorted({pid for each in unit for pid in each.facts.pids})
    return words.held(", ".join(f"process {pid}" for pid in pids)) if pids else ""


async def read_before(node: RepairServices, gpu: Gpu) -> Before:
    """What NVML says of the GPU now. Raises NvmlError."""
    facts, mig = await node.monitor.on_gpu(gpu.uuid, lambda handle: read_facts(handle, gpu), READ_WITHIN_S)
    return Before(facts=facts, slots=tuple(instance.slot for instance in mig.instances))
