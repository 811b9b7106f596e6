"""Changes one GPU's MIG from the state that NVML shows to the wish: journaled, read back, undone where it cannot be
finished.

    read -> plan -> withhold what goes -> ask again who holds it -> journal -> steps -> read back -> journal

Every call ends in one of the four outcomes. Whatever stops it in between (a crash, a lost GPU, a hang) leaves a journal
entry: the next call plans from the state that it finds, and a change that cannot be finished goes back to the state
before.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import structs

from agent.hardware.migchange import GpuMig, InUseError, ModeChange
from agent.hardware.query import NvmlError
from agent.kubelet.holders import UNLISTED
from agent.mig.journal import Journal, JournalEntry
from agent.mig.outcomes import MigState, Outcome, Wish
from agent.words import mig as words
from inventory.devices import GpuUuid
from inventory.layout.entries import WhenBusy
from inventory.mig.exact import exact
from inventory.mig.plan import (
    DestroyCompute,
    DestroyInstance,
    DoesNotFit,
    Existing,
    InTheWay,
    MigPlan,
    Slot,
    Step,
    endangered,
    plan,
    steps_between,
)

log = logging.getLogger(__name__)

CHANGE_DEADLINE_S = 120.0
MAX_ROUNDS = 3
"""The most plans of one try; a plan is made anew because a pod came in between."""


class MigHardware(Protocol):
    """NVML for one GPU. All methods raise NvmlError."""

    async def read(self) -> GpuMig: ...

    async def take(self, step: Step) -> None: ...

    async def set_mode(self, *, enabled: bool) -> ModeChange:
        """Set the mode; the agent's own NVML session is closed first where it is in the way."""

    def clients(self) -> Sequence[str]:
        """The other processes that have the GPU open, one text each."""


class NodeServices(Protocol):
    """The parts of the agent that a change uses."""

    boot_id: str

    async def holders(self) -> Mapping[str, Sequence[str]] | None:
        """Pods (``namespace/name``) by GPU or MIG UUID, asked now; None where the kubelet does not answer."""

    async def withhold(self, gpu: GpuUuid, keep: frozenset[str]) -> None:
        """Give no new container the GPU, or any present or future MIG device of it, but ``keep`` (UUIDs).

        This holds from the time of the return until the caller of the change says otherwise.
        """

    async def quiet(self, gpu: GpuUuid, keep: frozenset[str]) -> bool:
        """Whether no MPS daemon of ours serves the GPU, or a MIG device of it but ``keep`` (UUIDs); waits a while.

        It is called after ``withhold``: daemons whose devices no pod holds are ending by then, and restore the GPU's
        compute mode.
        """

    def tell(self, note: str) -> None:
        """Tell the node's users, by log and Event."""


class GpuChange:
    """A change of the GPU ``gpu``, which messages call ``name``."""

    def __init__(self, gpu: GpuUuid, name: str, *, nvml: MigHardware, services: NodeServices, journal: Journal) -> None:
        self._gpu = gpu
        self._name = name
        self._nvml = nvml
        self._services = services
        self._journal = journal
        self._changed = False

    async def bring(self, wish: Wish) -> Outcome:
        """Try once to bring the GPU to the wish. Returns within the deadline, whatever happens."""
        return await self._within(self._bring(wish))

    async def undo(self) -> Outcome:
        """Undo a change that was interrupted and is no longer wanted."""
        entry = self._journal.read(self._gpu)
        if entry is None or entry.done or entry.boot_id != self._services.boot_id:
            return self._end(MigState.APPLIED)
        return await self._within(self._back(entry, words.unwanted(), state=MigState.APPLIED))

    async def _within(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        self._changed = False
        try:
            async with asyncio.timeout(CHANGE_DEADLINE_S):
                return await work
        except TimeoutError:
            return self._end(MigState.FAILED, words.not_in_time(self._name, f"{CHANGE_DEADLINE_S:g}"))
        except (NvmlError, OSError) as failed:
            return self._end(MigState.FAILED, words.taken_up_again(self._name, str(failed)))

    async def _bring(self, wish: Wish) -> Outcome:
        for _ in range(MAX_ROUNDS):
            outcome = await self._round(wish)
            if outcome is not None:
                return outcome
        return self._end(MigState.WAITING, words.pods_keep_coming(self._name))

    async def _round(self, wish: Wish) -> Outcome | None:
        """Make and execute one plan; None where a pod came in between."""
        mig = await self._nvml.read()
        if not mig.capable:
            if wish.profiles is None:
                return self._end(MigState.APPLIED)
            return self._end(MigState.REFUSED, words.no_mig(self._name))
        if not mig.enabled and (wish.slots == () or (wish.profiles is None and not mig.pending)):
            return self._end(MigState.APPLIED)
        if wish.profiles is not None and not mig.enabled:
            refused = await self._switch(mig, wish, on=True)
            if refused is not None:
                return refused
            mig = await self._nvml.read()
        holders = await self._services.holders()
        existing = mig.held(frozenset(holders or ()))
        plan = self._planned(mig, existing, wish)
        if isinstance(plan, DoesNotFit):
            return self._end(MigState.REFUSED, words.does_not_fit(self._name, plan.why))
        if isinstance(plan, InTheWay):
            return await self._in_the_way(mig, plan, wish, holders or {})
        return await self._execute(mig, plan, wish, known=holders is not None)

    def _planned(self, mig: GpuMig, existing: Sequence[Existing], wish: Wish) -> MigPlan | InTheWay | DoesNotFit:
        if wish.slots is not None:
            return exact(mig.profiles, existing, wish.slots)
        return self._restored(mig, wish) or plan(mig.profiles, existing, wish.profiles or ())

    def _restored(self, mig: GpuMig, wish: Wish) -> MigPlan | None:
        """The plan, after a reboot or a reset, of the same instances as before it, so that their UUIDs are the same;
        None for no such plan.
        """
        entry = self._journal.read(self._gpu)
        if mig.instances or entry is None or not entry.done or not wish.profiles:
            return None
        if sorted(entry.profiles or ()) != sorted(wish.profiles):
            return None
        known = {profile.name: profile for profile in mig.profiles}
        if any(slot.profile not in known or slot.size != known[slot.profile].size for slot in entry.target):
            return None  # another board, or another driver: the table has changed
        return MigPlan(steps=steps_between((), entry.target), target=entry.target)

    async def _in_the_way(
        self, mig: GpuMig, found: InTheWay, wish: Wish, holders: Mapping[str, Sequence[str]]
    ) -> Outcome | None:
        pods, text = self._blockers(mig, found.blocking, holders)
        if pods and refuses(wish, pods):
            return self._end(MigState.REFUSED, words.busy(self._name, text), pods)
        say = words.being_evicted if pods and wish.when_busy is WhenBusy.DRAIN else words.waits_for_ends
        going = self._not_of(mig, found.kept)
        if found.beside is not None and found.beside.steps:
            done = await self._execute(mig, found.beside, wish, known=True)
            if done is None or done.state is not MigState.APPLIED:
                return done
            going = frozenset(uuid for instance in found.blocking for uuid in mig.devices(instance))
            text = words.layout_beside(text) if wish.slots is None else words.claims_beside(text)
        return structs.replace(self._end(MigState.WAITING, say(self._name, text), pods), going=going)

    def _not_of(self, mig: GpuMig, kept: Iterable[Existing]) -> frozenset[str]:
        """The present UUIDs without those of the instances ``kept``."""
        return frozenset(mig.uuids.values()) - {uuid for instance in kept for uuid in mig.devices(instance)}

    def _blockers(
        self, mig: GpuMig, blocking: Iterable[Existing], holders: Mapping[str, Sequence[str]]
    ) -> tuple[tuple[str, ...], str]:
        """The pods in the way, and, in words, everything that is in the way."""
        pods: list[str] = []
        reasons: list[str] = []
        for instance in blocking:
            mine = sorted({pod for device in mig.devices(instance) for pod in holders.get(device, ())})
            pods += mine
            strangers = [f"process {p.pid}" for p in mig.processes if p.gi == instance.gi_id] if not mine else []
            reasons.append(words.instance_in_use(instance.profile, instance.start, ", ".join(mine or strangers)))
        return tuple(dict.fromkeys(pods)), "; ".join(reasons)

    async def _execute(self, mig: GpuMig, found: MigPlan, wish: Wish, *, known: bool) -> Outcome | None:
        """Withhold, ask for holders again, journal, take the steps, read back. None where a pod took an instance that
        was to be removed.
        """
        if not found.steps:
            return await self._finish(mig, found.target, wish)
        going = self._going(mig, found.steps)
        if going and not known:
            return self._end(MigState.WAITING, words.holders_unknown(self._name))
        entry = self._opened(mig, found.target, wish)
        # Instances that an interrupted change has made are withheld until all of them exist: they may have to be
        # undone.
        keep = frozenset(mig.uuids.values()) - going - _made_since(mig, entry.before)
        await self._services.withhold(self._gpu, keep)
        if going:
            if not await self._services.quiet(self._gpu, keep):
                return self._end(MigState.WAITING, words.daemon_not_ended(self._name))
            holders = await self._services.holders()
            again = await self._nvml.read()
            if holders is None:
                return self._end(MigState.WAITING, words.holders_unknown(self._name))
            if endangered(again.held(frozenset(holders)), found.steps):
                return None
        await asyncio.to_thread(self._journal.write, entry)
        try:
            await self._steps(found.steps)
        except InUseError as busy:
            state = MigState.REFUSED if wish.when_busy is WhenBusy.REFUSE else MigState.WAITING
            return await self._back(entry, words.process_in_the_way(str(busy)), state=state)
        except NvmlError as failed:
            return await self._back(entry, str(failed))
        now = await self._nvml.read()
        if not alike(now.instances, found.target):
            return await self._back(entry, words.others_made())
        return await self._finish(now, tuple(instance.slot for instance in now.instances), wish)

    def _going(self, mig: GpuMig, steps: Sequence[Step]) -> frozenset[str]:
        """The UUIDs of the MIG devices that the steps remove."""
        going: set[str] = set()
        for step in steps:
            if isinstance(step, DestroyCompute | DestroyInstance):
                for affected in (instance for instance in mig.instances if instance.start == step.start):
                    part = step.part if isinstance(step, DestroyCompute) else None
                    parts = [each for each in affected.computes if part in (None, each.part)]
                    found = (mig.uuids.get((affected.gi_id, each.ci_id)) for each in parts)
                    going.update(uuid for uuid in found if uuid is not None)
        return frozenset(going)

    def _opened(self, mig: GpuMig, target: tuple[Slot, ...], wish: Wish) -> JournalEntry:
        """The journal entry of a change that begins or goes on. ``before`` is, for an interrupted change, that of its
        own entry.
        """
        last = self._journal.read(self._gpu)
        interrupted = last is not None and not last.done and last.boot_id == self._services.boot_id
        return JournalEntry(
            gpu=self._gpu,
            boot_id=self._services.boot_id,
            profiles=wish.profiles,
            mode_before=last.mode_before if last is not None and interrupted else mig.enabled,
            before=last.before
            if last is not None and interrupted
            else tuple(instance.slot for instance in mig.instances),
            target=target,
        )

    async def _finish(self, mig: GpuMig, target: tuple[Slot, ...], wish: Wish) -> Outcome:
        """Finish a change whose instances are as wished: set the mode, where it is to be off, and write the journal."""
        entry = structs.replace(self._opened(mig, target, wish), done=True)
        if wish.profiles is None:
            refused = await self._switch(mig, wish, on=False)
            if refused is not None:
                return refused
            await asyncio.to_thread(self._journal.forget, self._gpu, self._services.boot_id)
            return self._end(MigState.APPLIED)
        last = self._journal.read(self._gpu)
        if last is None or structs.replace(last, id=entry.id) != entry:
            await asyncio.to_thread(self._journal.write, entry)
        return self._end(MigState.APPLIED)

    async def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            await self._nvml.take(step)
            self._changed = True

    async def _back(self, entry: JournalEntry, why: str, *, state: MigState = MigState.FAILED) -> Outcome:
        """Undo the change: go back to the instances before it. Instances in use by now stay."""
        log.warning("MIG change is undone", extra={"gpu": self._name, "why": why})
        mig = await self._nvml.read()
        holders = await self._services.holders()
        existing = mig.held(frozenset(holders or ()))
        steps = steps_between(existing, entry.before)
        going = self._going(mig, steps)
        if endangered(existing, steps):
            return self._end(MigState.FAILED, words.not_restored_in_use(self._name, why))
        if going and holders is None:
            return self._end(MigState.FAILED, words.not_restored_unknown(self._name, why))
        await self._services.withhold(self._gpu, frozenset(mig.uuids.values()) - going)
        try:
            await self._steps(steps)
            if not entry.mode_before and (mig.enabled or mig.pending):
                await self._nvml.set_mode(enabled=False)
            now = await self._nvml.read()
        except NvmlError as failed:
            return self._end(MigState.FAILED, words.not_restored_failed(self._name, why, str(failed)))
        if not alike(now.instances, entry.before):
            return self._end(MigState.FAILED, words.not_restored(self._name, why))
        if entry.before:
            profiles = tuple(text for slot in entry.before for text in _texts(slot, mig))
            done = structs.replace(entry, profiles=profiles, target=entry.before, done=True)
            await asyncio.to_thread(self._journal.write, done)
        else:
            await asyncio.to_thread(self._journal.forget, self._gpu, self._services.boot_id)
        return self._end(state, words.restored(self._name, why))

    async def _switch(self, mig: GpuMig, wish: Wish, *, on: bool) -> Outcome | None:
        """Set MIG mode on or off; None once that is done."""
        entry = self._journal.read(self._gpu)
        restored = on and entry is not None and entry.done and entry.boot_id != self._services.boot_id
        if not restored:
            # After a reboot no process is on a GPU that had instances, whatever the kubelet still remembers.
            refused = await self._free(wish)
            if refused is not None:
                return refused
        word = "on" if on else "off"
        opened = self._opened(mig, tuple(instance.slot for instance in mig.instances), wish)
        await asyncio.to_thread(self._journal.write, opened)
        await self._services.withhold(self._gpu, frozenset())
        change = await self._nvml.set_mode(enabled=on)
        if change is ModeChange.DONE:
            self._changed = True
            return None
        clients = ", ".join(self._nvml.clients()) or "a process or another NVML client"
        if change is ModeChange.IN_USE:
            sentence = words.reset_needed(self._name, word, clients)
        else:
            sentence = words.not_reset(self._name, word)
        self._services.tell(sentence)
        return self._end(MigState.WAITING, sentence)

    async def _free(self, wish: Wish) -> Outcome | None:
        """Free the whole GPU: no new container gets it from then on. None where no pod and no process has it."""
        await self._services.withhold(self._gpu, frozenset())
        holders = await self._services.holders()
        if holders is None:
            return self._end(MigState.WAITING, words.holder_unknown(self._name))
        pods = tuple(sorted(holders.get(self._gpu, ())))
        if pods:
            who = ", ".join(pods)
            if refuses(wish, pods):
                return self._end(MigState.REFUSED, words.busy(self._name, words.in_use(who)), pods)
            return structs.replace(
                self._end(MigState.WAITING, words.waits_for_holders(self._name, who), pods),
                going=frozenset({self._gpu}),
            )
        # A daemon gives the compute mode back as it ends; a GPU in MIG mode has none.
        if not await self._services.quiet(self._gpu, frozenset()):
            return self._end(MigState.WAITING, words.daemon_not_ended(self._name))
        running = [f"process {process.pid}" for process in (await self._nvml.read()).processes]
        if running:
            # The process is no pod's: a person's, or that of a server that is ending. It is waited for, not refused.
            return self._end(MigState.WAITING, words.waits_for_holders(self._name, ", ".join(running)))
        return None

    def _end(self, state: MigState, sentence: str = "", pods: tuple[str, ...] = ()) -> Outcome:
        return Outcome(state, sentence, pods, self._changed)


def refuses(wish: Wish, pods: Sequence[str]) -> bool:
    """Whether these pods end the try. A pod that the kubelet has not listed yet is waited for: it may have failed, and
    nobody could ask again when it is gone.
    """
    return wish.when_busy is WhenBusy.REFUSE and UNLISTED not in pods


def _made_since(mig: GpuMig, before: Sequence[Slot]) -> frozenset[str]:
    """The UUIDs of MIG devices that did not exist before the change."""
    parts = {(slot.start, slot.profile, part) for slot in before for part in slot.parts}
    made = [
        mig.uuids.get((instance.gi_id, each.ci_id))
        for instance in mig.instances
        for each in instance.computes
        if (instance.start, instance.profile, each.part) not in parts
    ]
    return frozenset(uuid for uuid in made if uuid is not None)


def alike(existing: Sequence[Existing], target: Sequence[Slot]) -> bool:
    """Whether the instances are those wanted, wherever the driver has put compute instances in their GPU instance."""

    def shape(slots: Iterable[Slot]) -> list[tuple[int, str, list[int]]]:
        return sorted((slot.start, slot.profile, sorted(part.slices for part in slot.parts)) for slot in slots)

    return shape(instance.slot for instance in existing) == shape(target)


def _texts(slot: Slot, mig: GpuMig) -> list[str]:
    whole = next((profile.slices for profile in mig.profiles if profile.name == slot.profile), 0)
    return [slot.profile if part.slices == whole else f"{part.slices}c.{slot.profile}" for part in slot.parts]
