"""Claims on one node: the node state's GPUs in mode dra in; sockets, CDI specs, slices and the ledger's file out.

A prepare reads its claims from the API server, by name and without any lock; what it takes is then decided by the
ledger, in one step of the event loop. The ledger is on disk before an instance is cut or a spec written, and again
before the answer; a claim that is given back leaves it before its instances are removed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import structs

from agent.config.settings import Settings
from agent.deviceaccess import DeviceAccess
from agent.dra.claim import RESOURCE_CLAIMS, Claim, ClaimError, Ref, Taken, taken
from agent.dra.configs import clients_of
from agent.dra.cutting import MEANWHILE, Bring, Cuts
from agent.dra.daemons import ENDED_WITHIN_S, READY_WITHIN_S, daemon_specs, devices_of
from agent.dra.files_shell import ClaimFiles
from agent.dra.forgotten import CALL_TIMEOUT_S, Forgotten
from agent.dra.hands import Hands
from agent.dra.ledger import Ledger, Prepared
from agent.dra.publishing.devices import DRIVER
from agent.dra.publishing.offering import Offering
from agent.dra.publishing.slices_shell import SlicePublisher
from agent.kubelet.podresources import Claimed, Holder
from agent.mig.outcomes import Wish
from agent.mps.specs import DaemonSpec
from agent.nodestate import NodeState
from agent.process.tasks import until_poll
from inventory.devices import DeviceId, Gpu
from kube.client import Client
from kube.errors import KubeError, NotFoundError

if TYPE_CHECKING:
    # Loaded with the first GPU in mode dra: an agent without one does not pay for the messages.
    from agent.dra.server_shell import ClaimAnswer, DeviceState, DraServer
    from kubeletapi import podresources_v1_pb2 as podresources

log = logging.getLogger(__name__)

SOCKETS: Final = "claims"
SLICES: Final = "slices"
"""The names under which the node state keeps what is wrong with either."""
POLL_S: Final = 1.0


class Daemons(Protocol):
    """``agent.mps.node.MpsNode``."""

    async def ready(self, devices: Collection[str], within_s: float) -> str: ...

    async def ended(self, devices: Collection[str]) -> None: ...


class DraNode:
    """The driver of one node. ``changed`` is called when other devices are held than before, ``serve`` when the node
    state says something else. ``used`` gives the devices that the kubelet says containers have.

    ``_ledger`` is written under ``_writing`` alone, so that the file and the specs follow it in order. ``_server`` is
    there while a GPU is given out by claim, or a claim holds one; it is written by ``run`` alone. ``_taking`` are the
    prepares that run, by the claim's UID: a call that is repeated meanwhile waits for the same one.
    """

    def __init__(
        self,
        node_state: NodeState,
        settings: Settings,
        access: DeviceAccess,
        changed: Callable[[], None],
        serve: Callable[[], None],
        used: Callable[[], Collection[DeviceId]],
        bring: Bring,
        mps: Daemons,
    ) -> None:
        self._node_state = node_state
        self._settings = settings
        self._changed = changed
        self._mps = mps
        self._serve = serve
        self.publisher = SlicePublisher(DRIVER, partial(self._say, SLICES))
        self._used = used
        self._files = ClaimFiles(settings.state_dir, settings.cdi_dir, access.files, settings.mps_dir)
        self._ledger = Ledger(self._files.load())
        self._cuts = Cuts(node_state, self._ledger, bring)
        self._offering = Offering(node_state, self._ledger.gpus)
        self._taking: dict[str, asyncio.Task[None]] = {}
        self._hands = Hands(self._ledger, self._cuts)
        self._writing = asyncio.Lock()
        self._server: DraServer | None = None
        self._client: Client | None = None
        self._wake = asyncio.Event()
        self._specs_of: object = None
        self._refused = ""
        self._forgotten = Forgotten(self._ledger, self._in_use, self._give_up)

    # The daemon's side

    def planned(self) -> None:
        """The node state has changed: publish what is offered, and tell its health."""
        offer = self._offering.offer()
        self.publisher.publish(offer)
        if self._server is not None:
            self._server.tell()
        if bool(offer or len(self._ledger)) != (self._server is not None):
            self._wake.set()

    @property
    def claimed(self) -> Claimed:
        return self._hands.claimed()

    def holders(self) -> dict[DeviceId, Holder]:
        return self._hands.holders()

    def daemons(self) -> tuple[DaemonSpec, ...]:
        """The MPS daemons that claims ask for."""
        return daemon_specs(self._ledger.entries, self._node_state.node, self._cuts.unit)

    # The MIG planner's side (see agent.mig.node.ByClaim)

    def wish(self, gpu: Gpu) -> Wish | None:
        return self._cuts.wish(gpu)

    def holding(self, answer: "podresources.ListPodResourcesResponse") -> Iterator[tuple[str, str]]:
        return self._hands.holding(answer, self._offering.units())

    async def follow(self, client: Client, node_name: str, random: Callable[[], float]) -> None:
        """Publish slices, and have claims to read, until cancelled."""
        self._client = client
        try:
            await self.publisher.follow(client, node_name, random)
        finally:
            self._client = None

    async def run(self) -> None:
        """Serve while there is something to serve, until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self._mend()
                timer = asyncio.get_running_loop().call_later(until_poll(POLL_S), self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    timer.cancel()
        finally:
            await self._end()

    async def _mend(self) -> None:
        if self._offering.offer() is None and not len(self._ledger):
            await self._end()
            return
        if self._specs_of is not self._node_state.access:
            await self._renew_specs()
        if self._server is not None and not self._server.intact:
            await self._end()
        if self._server is None:
            await self._begin()
        await self._forgotten.look(self._client)

    async def _begin(self) -> None:
        from agent.dra.server_shell import PLUGIN_SOCKET, REGISTRATION_SOCKET, DraServer
        from deviceplugin.manager import sweep

        registry = self._settings.kubelet_dir / "plugins_registry"
        sweep(registry, REGISTRATION_SOCKET.format(DRIVER, "{}"))
        sweep(self._settings.claims_dir / DRIVER, PLUGIN_SOCKET)
        server = DraServer(DRIVER, self, self._registered)
        try:
            await server.start(self._settings.claims_dir, registry)
        except OSError as refused:
            await server.stop()
            self._say(SOCKETS, (f"mode dra: cannot serve claims: {refused}",))
            return
        self._server = server

    async def _end(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await asyncio.wait([asyncio.create_task(server.stop())])

    def _registered(self, error: str) -> None:
        self._say(SOCKETS, (f"mode dra: the kubelet refuses {DRIVER}: {error}",) if error else ())

    def _say(self, who: str, lines: tuple[str, ...]) -> None:
        if self._node_state.report(who, lines):
            for line in lines:
                log.warning("claims", extra={"problem": line})
            self._serve()

    # The kubelet's side (see server_shell.Claims)

    async def prepare(self, refs: Sequence[Ref]) -> "Mapping[str, ClaimAnswer]":
        from agent.dra.server_shell import ClaimAnswer

        async def answer(ref: Ref) -> ClaimAnswer:
            error = await self._attempt(ref, self._prepare(ref))
            done = self._ledger.answered(ref.uid)
            if error or done is None:
                return ClaimAnswer(error=error or "the claim was given back meanwhile")
            return ClaimAnswer(done.devices)

        answers = await asyncio.gather(*map(answer, refs))
        return {ref.uid: found for ref, found in zip(refs, answers, strict=True)}

    async def unprepare(self, refs: Sequence[Ref]) -> Mapping[str, str]:
        errors = await asyncio.gather(*(self._attempt(ref, self._unprepare(ref)) for ref in refs))
        return {ref.uid: error for ref, error in zip(refs, errors, strict=True)}

    def health(self) -> "tuple[DeviceState, ...]":
        """Of all GPUs, and of the parts that claims have: nothing is to be told of the others."""
        from agent.dra.server_shell import DeviceState

        pool = self._node_state.node.name
        given = {device.device for claim in self._ledger.entries for device in claim.devices}
        return tuple(
            DeviceState(pool, device.name, not reason, reason)
            for device, reason in self._offering.ailments()
            if device.slot is None or device.name in given
        )

    @staticmethod
    async def _attempt(ref: Ref, work: Awaitable[None]) -> str:
        """One line of what is wrong, empty where it was done."""
        try:
            await work
        except (ClaimError, KubeError, OSError, TimeoutError) as wrong:
            error = str(wrong) or "the API server did not answer in time"
            log.warning("claim", extra={"claim": str(ref), "error": error})
            return error
        return ""

    async def _prepare(self, ref: Ref) -> None:
        task = self._taking.get(ref.uid)
        if task is None:
            done = self._ledger.answered(ref.uid)
            if done is not None and self._cuts.made(done):
                return
            part = None if done is not None else await self._read(ref)
            task = self._taking.get(ref.uid)
        if task is None:
            task = asyncio.create_task(self._remake(ref.uid) if part is None else self._take(part))
            self._taking[ref.uid] = task
            task.add_done_callback(partial(self._taken, ref.uid))
        # A kubelet that gives up waiting cancels this call: what was begun for the claim is brought to its end.
        await asyncio.shield(task)

    def _taken(self, uid: str, task: "asyncio.Task[None]") -> None:
        del self._taking[uid]
        if not task.cancelled():
            task.exception()  # its callers may all have gone

    async def _read(self, ref: Ref) -> Taken:
        """The driver's part of the claim as the API server has it now. Raises ClaimError, KubeError, TimeoutError."""
        if self._client is None:
            raise ClaimError("the API server was not reached yet")
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                claim = await self._client.get(RESOURCE_CLAIMS, ref.name, Claim, namespace=ref.namespace)
        except NotFoundError:
            raise ClaimError(f"{ref}: found none of this name") from None
        part = taken(ref, claim, DRIVER)
        devices = self._offering.by_name()
        return structs.replace(part, mps=clients_of(part, devices))

    async def _take(self, part: Taken) -> None:
        uid = part.ref.uid
        async with self._writing:
            if self._ledger.answered(uid) is not None:
                return
            started = self._ledger.begin(
                part, self._offering.by_name(), self._node_state.node.name, dict(self._offering.refused())
            )
            self._hands.taken(started.namespace, started.name)
            # Held from here on: no layout may give it to the device plugin while instances and files are made.
            self._changed()
            await self._or_end(started, self._files.save(self._ledger.entries))
        await self._or_end(started, self._finish(started))
        self._changed()
        log.info("prepared", extra={"claim": started.key, "devices": ",".join(d.device for d in started.devices)})

    async def _finish(self, started: Prepared) -> None:
        """From the ledger's entry to the answer. Raises ClaimError, OSError."""
        await self._cuts.make(started)
        await self._served(started)
        async with self._writing:
            if not self._ledger.there(started):
                raise ClaimError(MEANWHILE)
            await self._files.write([started], self._node_state.access, self._cuts.unit)
            done = self._ledger.complete(started.uid)
            try:
                await self._files.save(self._ledger.entries)
            except BaseException:
                self._ledger.restore(started)
                raise
        self._cuts.drop(done.uid)

    async def _served(self, claim: Prepared) -> None:
        """Wait for the MPS daemons that the claim asks for. Raises ClaimError."""
        devices = devices_of(claim, self._cuts.unit)
        if devices and (why := await self._mps.ready(devices, READY_WITHIN_S)):
            raise ClaimError(why)

    async def _or_end(self, started: Prepared, work: Awaitable[None]) -> None:
        """Where ``work`` fails the claim holds nothing, and what was cut for it goes."""
        try:
            await work
        except BaseException:
            if self._ledger.there(started):
                self._ledger.end(started.uid)
            self._cuts.drop(started.uid)
            self._changed()
            raise

    async def _remake(self, uid: str) -> None:
        """What an answered claim holds is not there: the GPU was reset, or the node has started anew."""
        claim = self._ledger.answered(uid)
        if claim is not None:
            await self._cuts.make(claim)
            self._cuts.drop(uid)
            await self._served(claim)
            async with self._writing:
                if self._ledger.there(claim):
                    await self._files.write([claim], self._node_state.access, self._cuts.unit)

    async def _unprepare(self, ref: Ref) -> None:
        self._hands.returned(ref.namespace, ref.name)
        await asyncio.shield(asyncio.ensure_future(self._give_back(ref.uid)))

    async def _give_back(self, uid: str) -> None:
        """Brought to its end once begun, or an older ledger could reach the disk after a newer one. A spec that is left
        is removed at the next start.
        """
        async with self._writing:
            ended = self._ledger.end(uid)
            if ended is None:
                await self._files.remove(uid)
                return
            try:
                await self._files.save(self._ledger.entries)
            except BaseException:
                self._ledger.restore(ended)
                raise
            await self._files.remove(uid)
        self._cuts.drop(uid)
        self._changed()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._mps.ended(devices_of(ended, self._cuts.unit)), ENDED_WITHIN_S)
        self.planned()  # a GPU that is gone was offered for its claim alone
        await self._cuts.gone(ended)
        log.info("given back", extra={"claim": ended.key})

    def _in_use(self, claim: Prepared) -> bool:
        used = self._used()
        return any(self._cuts.held_as(device) in used for device in claim.devices)

    async def _give_up(self, claim: Prepared) -> None:
        await self._attempt(Ref(claim.namespace, claim.name, claim.uid), self._give_back(claim.uid))

    # Files

    async def _renew_specs(self) -> None:
        """Driver or device files are others, or this agent is new: what starts again needs the specs as they are."""
        access = self._node_state.access
        async with self._writing:
            claims = self._ledger.entries
            try:
                await self._files.sweep({claim.uid for claim in claims})
                there = (claim for claim in claims if self._there(claim))
                await self._files.write(there, access, self._cuts.unit)
            except (OSError, ClaimError) as failed:
                if str(failed) != self._refused:
                    log.warning("specs of claims not written", extra={"error": str(failed)})
                self._refused = str(failed)
                return
        self._specs_of = access

    def _there(self, claim: Prepared) -> bool:
        return all(self._cuts.unit(device) in self._node_state.access.devices for device in claim.devices)
