"""Claims on one node: the node state's GPUs in mode dra in; sockets, CDI specs, slices and the ledger's file out.

A prepare reads its claims from the API server, by name and without any lock; what it takes is then decided by the
ledger, in one step of the event loop. The ledger is on disk before a spec is written, and again before the answer.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from agent.config.settings import Settings
from agent.deviceaccess import DeviceAccess
from agent.dra.claim import RESOURCE_CLAIMS, Claim, ClaimError, Ref, Taken, taken
from agent.dra.configs import check
from agent.dra.devices import DRIVER, DraDevice, device_name, offered
from agent.dra.files_shell import ClaimFiles
from agent.dra.ledger import Ledger, Prepared
from agent.dra.slices_shell import SlicePublisher
from agent.dra.taints import taints
from agent.kubelet.podresources import Claimed, Holder
from agent.nodestate import NodeState
from agent.process.tasks import until_poll
from inventory.devices import DeviceId, Gpu, GpuUuid, ResourceName
from kube.client import Client
from kube.errors import KubeError, NotFoundError

if TYPE_CHECKING:
    # Loaded with the first GPU in mode dra: an agent without one does not pay for the messages.
    from agent.dra.server_shell import ClaimAnswer, DeviceState, DraServer

log = logging.getLogger(__name__)

SOCKETS: Final = "claims"
SLICES: Final = "slices"
"""The names under which the node state keeps what is wrong with either."""
POLL_S: Final = 1.0
ORPHANS_S: Final = 300.0
CALL_TIMEOUT_S: Final = 20.0
"""For one claim's GET: the kubelet waits 45 s for the whole call."""


class DraNode:
    """The driver of one node. ``changed`` is called when other devices are held than before, ``serve`` when the node
    state says something else. ``used`` gives the devices that the kubelet says containers have.

    ``_ledger`` is written under ``_writing`` alone, so that the file and the specs follow it in order. ``_server`` is
    there while a GPU is given out by claim, or a claim holds one; it is written by ``run`` alone.
    """

    def __init__(
        self,
        node_state: NodeState,
        settings: Settings,
        access: DeviceAccess,
        changed: Callable[[], None],
        serve: Callable[[], None],
        used: Callable[[], Collection[DeviceId]],
    ) -> None:
        self._node_state = node_state
        self._settings = settings
        self._changed = changed
        self._serve = serve
        self.publisher = SlicePublisher(DRIVER, partial(self._say, SLICES))
        self._used = used
        self._files = ClaimFiles(settings.state_dir, settings.cdi_dir, access.files)
        self._ledger = Ledger(self._files.load())
        self._writing = asyncio.Lock()
        self._server: DraServer | None = None
        self._client: Client | None = None
        self._wake = asyncio.Event()
        self._specs_of: object = None
        self._refused = ""
        self._looked_at_s = float("-inf")
        self._orphans: set[str] = set()

    # The daemon's side

    def planned(self) -> None:
        """The node state has changed: publish what is offered, and tell its health."""
        gpus = self._gpus()
        self.publisher.publish(self._devices(gpus) if gpus else None)
        if self._server is not None:
            self._server.tell()
        if bool(gpus or len(self._ledger)) != (self._server is not None):
            self._wake.set()

    @property
    def claimed(self) -> Claimed:
        """What claims hold, as the kubelet names it; what is watched with admin access is held by nobody."""
        return {
            (DRIVER, claim.namespace, claim.name, device.device): DeviceId(device.gpu)
            for claim in self._ledger.entries
            for device in claim.devices
            if not device.admin
        }

    def holders(self) -> dict[DeviceId, Holder]:
        """The claim that has each GPU, shown as the first pod that it was prepared for: the kubelet's answer, which
        names containers, comes later.
        """
        return {
            DeviceId(gpu): Holder(claim.namespace, (*claim.pods, claim.name)[0], claim.name, ResourceName(DRIVER))
            for gpu, claim in self._ledger.held().items()
        }

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
        if not self._gpus() and not len(self._ledger):
            await self._end()
            return
        if self._specs_of is not self._node_state.access:
            await self._renew_specs()
        if self._server is not None and not self._server.intact:
            await self._end()
        if self._server is None:
            await self._begin()
        await self._look_for_orphans()

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

    # What is offered

    def _gpus(self) -> tuple[Gpu, ...]:
        """Those in mode dra that can be given out: MIG mode is off."""
        claimed = self._node_state.by_claim
        return tuple(gpu for gpu in self._node_state.node.gpus if gpu.uuid in claimed and not gpu.mig_enabled)

    def _devices(self, gpus: Sequence[Gpu]) -> tuple[DraDevice, ...]:
        withheld = self._node_state.withheld
        state = {gpu.uuid: taints(self._node_state.health.state(gpu.uuid), withheld.get(gpu.uuid)) for gpu in gpus}
        return offered(self._node_state.node, state, state)

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
        errors = await asyncio.gather(*(self._attempt(ref, self._unprepare(ref.uid)) for ref in refs))
        return {ref.uid: error for ref, error in zip(refs, errors, strict=True)}

    def health(self) -> "tuple[DeviceState, ...]":
        from agent.dra.server_shell import DeviceState

        found = []
        for gpu in self._gpus():
            reason = self._node_state.ailment(gpu.uuid)
            found.append(DeviceState(self._node_state.node.name, device_name(gpu), not reason, reason))
        return tuple(found)

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
        if self._ledger.answered(ref.uid) is not None:
            return
        part = await self._read(ref)
        # A kubelet that gives up waiting cancels this call: what was begun for the claim is brought to its end.
        await asyncio.shield(asyncio.ensure_future(self._take(part)))

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
        for configs in part.configs:
            for config in configs:
                check(config)
        return part

    async def _take(self, part: Taken) -> None:
        uid = part.ref.uid
        async with self._writing:
            if self._ledger.answered(uid) is not None:
                return
            gpus = {device_name(gpu): gpu.uuid for gpu in self._gpus()}
            started = self._ledger.begin(part, gpus, self._node_state.node.name, self._unfit())
            # Held from here on: no layout may give it to the device plugin while the files are written.
            self._changed()
            try:
                await self._files.save(self._ledger.entries)
                await self._files.write([started], self._node_state.access)
                self._ledger.complete(uid)
                await self._files.save(self._ledger.entries)
            except BaseException:
                self._ledger.end(uid)
                self._changed()
                raise
        log.info("prepared", extra={"claim": started.key, "devices": ",".join(d.device for d in started.devices)})

    async def _unprepare(self, uid: str) -> None:
        await asyncio.shield(asyncio.ensure_future(self._give_back(uid)))

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
        log.info("given back", extra={"claim": ended.key})
        self._changed()

    def _unfit(self) -> dict[GpuUuid, str]:
        """The GPUs that a claim is not to get, with why: scheduled before the taint was seen."""
        withheld = self._node_state.withheld
        reasons = {gpu.uuid: self._node_state.ailment(gpu.uuid) or withheld.get(gpu.uuid) for gpu in self._gpus()}
        return {gpu: reason for gpu, reason in reasons.items() if reason}

    # Files, and claims that nobody will give back

    async def _renew_specs(self) -> None:
        """Driver or device files are others, or this agent is new: what starts again needs the specs as they are."""
        access = self._node_state.access
        async with self._writing:
            claims = self._ledger.entries
            try:
                await self._files.sweep({claim.uid for claim in claims})
                await self._files.write((claim for claim in claims if self._there(claim)), access)
            except (OSError, ClaimError) as failed:
                if str(failed) != self._refused:
                    log.warning("specs of claims not written", extra={"error": str(failed)})
                self._refused = str(failed)
                return
        self._specs_of = access

    def _there(self, claim: Prepared) -> bool:
        return all(device.gpu in self._node_state.access.devices for device in claim.devices)

    async def _look_for_orphans(self) -> None:
        """Give back what no pod uses and no claim of that UID is there for, in two looks: the kubelet forgot it."""
        now_s = time.monotonic()
        if self._client is None or now_s < self._looked_at_s + ORPHANS_S:
            return
        self._looked_at_s = now_s
        used = self._used()
        unused = [claim for claim in self._ledger.entries if not any(DeviceId(d.gpu) in used for d in claim.devices)]
        gone = [claim for claim in unused if await self._is_gone(claim)]
        for claim in gone:
            if claim.uid in self._orphans:
                await self._attempt(Ref(claim.namespace, claim.name, claim.uid), self._give_back(claim.uid))
        self._orphans = {claim.uid for claim in gone} - self._orphans

    async def _is_gone(self, claim: Prepared) -> bool:
        assert self._client is not None
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                found = await self._client.get(RESOURCE_CLAIMS, claim.name, Claim, namespace=claim.namespace)
        except NotFoundError:
            return True
        except (KubeError, TimeoutError):
            return False
        return found.metadata.uid != claim.uid
