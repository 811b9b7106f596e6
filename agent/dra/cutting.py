"""The MIG instances that claims want of each GPU: the wish that the MIG planner carries out, and the wait until it has.

    claims that hold, or are being prepared -> wish(gpu) -> agent.mig.node -> NVML;  make(claim), gone(claim) wait

Nothing is remembered here that a crash could lose: the wish follows from the ledger, so that what a kill left behind is
an instance that no claim wants, and is removed. MIG mode stays on after the last instance, since on some GPUs a change
of mode is a reset: it goes off when a claim takes the whole GPU.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from agent.dra.claim import ClaimError
from agent.dra.ledger import GivenDevice, Ledger, Prepared, Stage
from agent.dra.publishing.partitions import divisible, instance
from agent.mig.outcomes import Wish
from agent.nodestate import NodeState
from agent.words import claims as words
from inventory.devices import DeviceId, Gpu, GpuUuid
from inventory.layout.entries import WhenBusy
from inventory.layout.layout import REPLICA_MARK
from inventory.mig.plan import Slot

log = logging.getLogger(__name__)

MADE_WITHIN_S: Final = 30.0
"""The longest wait in seconds for instances to be made. The kubelet waits 45 s for a whole prepare, and asks again."""
GONE_WITHIN_S: Final = 10.0


class Bring(Protocol):
    """The type of ``MigNode.bring``."""

    async def __call__(self, gpu: GpuUuid, ready: Callable[[], bool], within_s: float) -> str: ...


class Cuts:
    """The MIG instances that claims cut on one node. ``_turns`` let one claim at a time be cut from a GPU, so that a
    claim that cannot be cut fails no other; ``_cut`` are the claims whose turn has come, by UID and GPU: of the started
    ones, those alone are wished for. ``_touched`` are the GPUs whose MIG this process may have changed: the others are
    not in MIG mode, nor is any change of it running.
    """

    def __init__(self, node_state: NodeState, ledger: Ledger, bring: Bring) -> None:
        self._node_state = node_state
        self._ledger = ledger
        self._bring = bring
        self._turns: dict[GpuUuid, asyncio.Lock] = {}
        self._cut: set[tuple[str, GpuUuid]] = set()
        self._touched: set[GpuUuid] = set()

    def wish(self, gpu: Gpu) -> Wish | None:
        """The instances that claims want of a GPU in mode dra; None where they want nothing and nothing is to go."""
        wanted = list(self._wanted(gpu.uuid))
        slots = tuple(sorted((slot for slot in wanted if slot is not None), key=lambda slot: slot.start))
        if slots or gpu.mig_enabled:
            self._touched.add(gpu.uuid)
        if slots:
            return Wish(tuple(slot.profile for slot in slots), WhenBusy.WAIT, slots)
        if wanted:
            return Wish(None, WhenBusy.WAIT) if gpu.uuid in self._touched else None
        if not gpu.mig_enabled:
            return None
        cut = divisible(gpu) and gpu.uuid not in self._node_state.shares
        return Wish((), WhenBusy.WAIT, ()) if cut else Wish(None, WhenBusy.WAIT)

    def unit(self, device: GivenDevice) -> DeviceId | None:
        """The UUID of the device as it is now: its GPU's, or that of the MIG instance at its place; None while that
        does not exist.
        """
        if device.slot is None:
            return DeviceId(device.gpu)
        found = instance(self._node_state.node.gpu(device.gpu), device.slot)
        return None if found is None else DeviceId(found.uuid)

    def held_as(self, device: GivenDevice) -> DeviceId | None:
        """Like ``unit``, but different for each share: several claims hold the same GPU."""
        unit = self.unit(device)
        return unit if unit is None or device.share is None else DeviceId(f"{unit}{REPLICA_MARK}{device.share_id}")

    def made(self, claim: Prepared) -> bool:
        """Whether everything that the claim holds exists."""
        return all(device.admin or self.unit(device) is not None for device in claim.devices)

    async def make(self, claim: Prepared) -> None:
        """Cut what the claim holds, GPU by GPU. Raises ClaimError; what was made then goes with ``drop``."""
        for uuid in sorted({device.gpu for device in claim.devices if not device.admin}):
            slots = {device.slot for device in claim.devices if device.gpu == uuid and not device.admin}
            if slots == {None} and uuid not in self._touched:
                continue
            async with self._turns.setdefault(uuid, asyncio.Lock()):
                if not self._ledger.there(claim):
                    raise ClaimError(words.given_back())
                self._cut.add((claim.uid, uuid))
                why = await self._bring(uuid, partial(self._is_so, claim, uuid), MADE_WITHIN_S)
            if why:
                raise ClaimError(why)

    async def gone(self, claim: Prepared) -> None:
        """Wait up to ``GONE_WITHIN_S`` until the instances that the claim held are removed. One that is in use then is
        removed as soon as it is free.
        """
        for uuid in sorted({device.gpu for device in claim.devices if device.slot is not None and not device.admin}):
            if uuid in self._node_state.by_claim:
                why = await self._bring(uuid, partial(self._is_gone, claim, uuid), GONE_WITHIN_S)
                if why:
                    log.warning("instance not removed yet", extra={"claim": claim.key, "why": why})

    def drop(self, uid: str) -> None:
        """Record that the claim is not being cut any more."""
        self._cut = {cut for cut in self._cut if cut[0] != uid}

    def _wanted(self, gpu: GpuUuid) -> Iterable[Slot | None]:
        for claim in self._ledger.entries:
            if claim.stage is Stage.COMPLETED or (claim.uid, gpu) in self._cut:
                yield from {device.slot for device in claim.devices if device.gpu == gpu and not device.admin}

    def _is_so(self, claim: Prepared, uuid: GpuUuid) -> bool:
        gpu = self._node_state.node.gpu(uuid)
        slots = {device.slot for device in claim.devices if device.gpu == uuid and not device.admin}
        return gpu is not None and all(
            not gpu.mig_enabled if slot is None else instance(gpu, slot) is not None for slot in slots
        )

    def _is_gone(self, claim: Prepared, uuid: GpuUuid) -> bool:
        gpu, wanted = self._node_state.node.gpu(uuid), set(self._wanted(uuid))
        slots = {device.slot for device in claim.devices if device.gpu == uuid and device.slot is not None}
        return all(slot in wanted or instance(gpu, slot) is None for slot in slots)
