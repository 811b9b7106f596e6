"""Prepares claims and gives them back: from the kubelet's call to the files and back.

A prepare reads its claim from the API server, by name and without any lock; the ledger then decides, in one step of the
event loop, what the claim takes. The ledger is on disk before an instance is cut or a spec written, and again before
the answer; a claim that is given back leaves it before its instances are removed.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import structs

from agent.config.settings import Settings
from agent.dra.claim import RESOURCE_CLAIMS, Claim, ClaimError, DeviceStatus, Ref, Taken, taken
from agent.dra.claimholders import ClaimHolders
from agent.dra.configs import clients_of
from agent.dra.cutting import Bring, Cuts
from agent.dra.daemons import ENDED_WITHIN_S, READY_WITHIN_S, devices_of
from agent.dra.files_shell import ClaimFiles
from agent.dra.forgotten import CALL_TIMEOUT_S
from agent.dra.ledger import Ledger, Prepared
from agent.dra.publishing.offering import Offering
from agent.kubelet.devicefiles import DeviceFiles
from agent.nodestate import NodeState
from agent.words import claims as words
from kube.client import Client
from kube.errors import KubeError, NotFoundError

if TYPE_CHECKING:
    # This is loaded with the first GPU in mode dra: an agent without one does not pay for the messages.
    from agent.dra.server_shell import ClaimAnswer

log = logging.getLogger(__name__)

PREPARE: Final = "Prepare"
UNPREPARE: Final = "Unprepare"
Called = Callable[[str, float, str], None]
"""A listener to each try: the method, how long it took in seconds, and ``ok`` or the kind of error."""


class Daemons(Protocol):
    """The part of ``agent.mps.node.MpsNode`` that claims use."""

    async def ready(self, devices: Collection[str], within_s: float) -> str: ...

    async def ended(self, devices: Collection[str]) -> None: ...


class Preparer:
    """Prepares the claims of one node and gives them back. ``changed`` is called when other devices are held than
    before, ``offered`` when other devices may be on offer; ``seen`` gets the statuses that a claim had before it was
    prepared.

    The ledger is written under ``_writing`` alone, so that the file and the specs follow it in order. ``_taking`` are
    the prepares that run, by the claim's UID: a call that is repeated meanwhile waits for the same one. ``client`` is
    None while no API server can be asked; ``DraNode.follow`` sets it.
    """

    def __init__(
        self,
        node_state: NodeState,
        settings: Settings,
        files: DeviceFiles,
        bring: Bring,
        mps: Daemons,
        changed: Callable[[], None],
        offered: Callable[[], None],
        seen: Callable[[Ref, tuple[DeviceStatus, ...]], None],
    ) -> None:
        self.called: Called = lambda _method, _duration_s, _result: None
        """The listener to each try; ``DraNode.observe`` sets it once, before the first claim."""
        self.client: Client | None = None
        self._node_state = node_state
        self._driver = settings.dra_driver
        self._files = ClaimFiles(settings, files)
        self.ledger = Ledger(self._files.load())
        self.cuts = Cuts(node_state, self.ledger, bring)
        self.offering = Offering(node_state, self.ledger.gpus)
        self.claim_holders = ClaimHolders(self._driver, self.ledger, self.cuts)
        self._mps = mps
        self._changed = changed
        self._offered = offered
        self._seen = seen
        self._taking: dict[str, asyncio.Task[None]] = {}
        self._writing = asyncio.Lock()
        self._specs_of: object = None
        self._refused = ""

    async def prepare(self, refs: Sequence[Ref]) -> "Mapping[str, ClaimAnswer]":
        from agent.dra.server_shell import ClaimAnswer

        async def answer(ref: Ref) -> ClaimAnswer:
            error = await self._attempt(PREPARE, ref, self._prepare(ref))
            done = self.ledger.answered(ref.uid)
            if error or done is None:
                return ClaimAnswer(error=error or "the claim was given back meanwhile")
            return ClaimAnswer(done.devices)

        answers = await asyncio.gather(*map(answer, refs))
        return {ref.uid: found for ref, found in zip(refs, answers, strict=True)}

    async def unprepare(self, refs: Sequence[Ref]) -> Mapping[str, str]:
        errors = await asyncio.gather(*(self._attempt(UNPREPARE, ref, self._unprepare(ref)) for ref in refs))
        return {ref.uid: error for ref, error in zip(refs, errors, strict=True)}

    async def _attempt(self, method: str, ref: Ref, work: Awaitable[None]) -> str:
        """Await ``work``, log and count its outcome; one line of what failed, empty where nothing did."""
        begun_s = time.monotonic()
        result, error = "ok", ""
        try:
            await work
        except (ClaimError, KubeError, OSError, TimeoutError) as wrong:
            result, error = _kind(wrong), str(wrong) or "the API server did not answer in time"
            log.warning("claim", extra={"claim": str(ref), "error": error})
        self.called(method, time.monotonic() - begun_s, result)
        return error

    async def give_up(self, ref: Ref) -> None:
        """Give back a claim that the kubelet will not give back; a failure is logged."""
        await self._attempt(UNPREPARE, ref, self.give_back(ref.uid))

    async def _prepare(self, ref: Ref) -> None:
        task = self._taking.get(ref.uid)
        if task is None:
            done = self.ledger.answered(ref.uid)
            if done is not None and self._stands(done):
                return
            part = None if done is not None else await self._read(ref)
            task = self._taking.get(ref.uid)
        if task is None:
            task = asyncio.create_task(self._remake(ref.uid) if part is None else self.take(part))
            self._taking[ref.uid] = task
            task.add_done_callback(partial(self._taken, ref.uid))
        # A kubelet that gives up waiting cancels this call: the preparation that has begun is brought to its end.
        await asyncio.shield(task)

    def _stands(self, claim: Prepared) -> bool:
        """Whether all that the claim's answer names exists: after a reset a GPU may have other device files."""
        return self.cuts.made(claim) and self._files.current(claim.uid, self._node_state.access)

    async def _write(self, claim: Prepared) -> None:
        """Write the claim's spec from the node's files as they are then. Raises ClaimError, OSError."""
        access = None
        while access is not self._node_state.access:
            access = self._node_state.access
            await self._files.write([claim], access, self.cuts.unit)

    def _taken(self, uid: str, task: "asyncio.Task[None]") -> None:
        del self._taking[uid]
        if not task.cancelled():
            task.exception()  # all callers of the task may have gone

    async def _read(self, ref: Ref) -> Taken:
        """The driver's part of the claim as the API server has it now. Raises ClaimError, KubeError, TimeoutError."""
        if self.client is None:
            raise ClaimError(words.no_api_server())
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                claim = await self.client.get(RESOURCE_CLAIMS, ref.name, Claim, namespace=ref.namespace)
        except NotFoundError:
            raise ClaimError(words.gone(ref)) from None
        part = taken(ref, claim, self._driver)
        devices = self.offering.by_name()
        return structs.replace(part, mps=clients_of(part, devices))

    async def take(self, part: Taken) -> None:
        """Prepare the claim ``part``. Raises ClaimError, OSError."""
        uid = part.ref.uid
        async with self._writing:
            if self.ledger.answered(uid) is not None:
                return
            started = self.ledger.begin(
                part, self.offering.by_name(), self._node_state.node.name, dict(self.offering.refused())
            )
            self.claim_holders.taken(started.namespace, started.name)
            # The devices are held from here on: no layout may give them to the device plugin while instances and files
            # are made.
            self._changed()
            await self._or_end(started, self._files.save(self.ledger.entries))
        await self._or_end(started, self._finish(started))
        self._seen(part.ref, part.said)
        self._changed()
        log.info("prepared", extra={"claim": started.key, "devices": ",".join(d.device for d in started.devices)})

    async def _finish(self, started: Prepared) -> None:
        """Bring a started claim to its answer: instances, daemons, spec, ledger. Raises ClaimError, OSError."""
        await self.cuts.make(started)
        await self._served(started)
        async with self._writing:
            if not self.ledger.there(started):
                raise ClaimError(words.given_back())
            await self._write(started)
            done = self.ledger.complete(started.uid)
            try:
                await self._files.save(self.ledger.entries)
            except BaseException:
                self.ledger.restore(started)
                raise
        self.cuts.drop(done.uid)

    async def _served(self, claim: Prepared) -> None:
        """Wait for the MPS daemons that the claim asks for. Raises ClaimError."""
        devices = devices_of(claim, self.cuts.unit)
        if devices and (why := await self._mps.ready(devices, READY_WITHIN_S)):
            raise ClaimError(why)

    async def _or_end(self, started: Prepared, work: Awaitable[None]) -> None:
        """Await ``work``; where it fails, the claim is ended and the instances cut for it go."""
        try:
            await work
        except BaseException:
            if self.ledger.there(started):
                self.ledger.end(started.uid)
            self.cuts.drop(started.uid)
            self._changed()
            raise

    async def _remake(self, uid: str) -> None:
        """Make an answered claim's instances or spec again where they are missing or outdated: the GPU was reset, or
        the node has started anew.
        """
        claim = self.ledger.answered(uid)
        if claim is not None:
            await self.cuts.make(claim)
            self.cuts.drop(uid)
            await self._served(claim)
            async with self._writing:
                if self.ledger.there(claim):
                    await self._write(claim)

    async def _unprepare(self, ref: Ref) -> None:
        self.claim_holders.returned(ref.namespace, ref.name)
        await asyncio.shield(asyncio.ensure_future(self.give_back(ref.uid)))

    async def give_back(self, uid: str) -> None:
        """End the claim, in the file too, and remove its instances and spec. Once begun it is brought to its end, or an
        older ledger could reach the disk after a newer one. A spec that is left behind is removed at the next start.
        """
        async with self._writing:
            ended = self.ledger.end(uid)
            if ended is None:
                await self._files.remove(uid)
                return
            try:
                await self._files.save(self.ledger.entries)
            except BaseException:
                self.ledger.restore(ended)
                raise
            await self._files.remove(uid)
        self.cuts.drop(uid)
        self._changed()
        # Not wait_for: before Python 3.12 it loses a cancellation that meets its end, and the agent would not stop.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDED_WITHIN_S):
                await self._mps.ended(devices_of(ended, self.cuts.unit))
        self._offered()  # a GPU that is gone was offered for its claim alone
        await self.cuts.gone(ended)
        log.info("given back", extra={"claim": ended.key})

    async def renew_specs(self) -> None:
        """Write the specs of all claims again where driver or device files have changed since this was last done, or
        the agent is new: containers that start again need the specs as the files are.
        """
        access = self._node_state.access
        if self._specs_of is access:
            return
        async with self._writing:
            claims = self.ledger.entries
            try:
                await self._files.sweep({claim.uid for claim in claims})
                there = (claim for claim in claims if self._there(claim))
                await self._files.write(there, access, self.cuts.unit)
            except (OSError, ClaimError) as failed:
                if str(failed) != self._refused:
                    log.warning("specs of claims not written", extra={"error": str(failed)})
                self._refused = str(failed)
                return
        self._specs_of = access

    def _there(self, claim: Prepared) -> bool:
        return all(self.cuts.unit(device) in self._node_state.access.devices for device in claim.devices)


def _kind(wrong: Exception) -> str:
    """The kind of an error, for figures: ``claim``, ``api`` or ``files``."""
    if isinstance(wrong, ClaimError):
        return "claim"
    # The API server is checked before OSError, which a TimeoutError is.
    return "api" if isinstance(wrong, KubeError | TimeoutError) else "files"
