"""Claims on one node: the node state's GPUs in mode dra in; sockets, CDI specs, slices and the ledger's file out.

A prepare reads its claims from the API server, by name and without any lock; what it takes is then decided by the
ledger, in one step of the event loop. The ledger is on disk before a spec is written, and again before the answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from agent.config.settings import Settings
from agent.deviceaccess import DeviceAccess
from agent.dra.answer import FILE_PREFIX, claim_of, claim_spec, file_name
from agent.dra.claim import RESOURCE_CLAIMS, Claim, ClaimError, Ref, Taken, taken
from agent.dra.configs import check
from agent.dra.devices import DRIVER, DraDevice, device_name, offered
from agent.dra.ledger import Ledger, Prepared
from agent.dra.slices_shell import SlicePublisher
from agent.dra.taints import taints
from agent.keeping.files import write_atomically
from agent.keeping.statefiles import read_state
from agent.kubelet.podresources import Holder
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
LEDGER: Final = "claims.json"
VERSION: Final = 1
POLL_S: Final = 1.0
CALL_TIMEOUT_S: Final = 20.0
"""For one claim's GET: the kubelet waits 45 s for the whole call."""


class Kept(Struct, frozen=True):
    """The ledger's file."""

    version: int = VERSION
    claims: tuple[Prepared, ...] = ()


class DraNode:
    """The driver of one node. ``changed`` is called when other devices are held than before, ``serve`` when the node
    state says something else.

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
    ) -> None:
        self._node_state = node_state
        self._settings = settings
        self._access = access
        self._changed = changed
        self._serve = serve
        self.publisher = SlicePublisher(DRIVER, partial(self._say, SLICES))
        kept = read_state(settings.state_dir / LEDGER, Kept, lambda found: Ledger(found.claims).validate())
        self._ledger = Ledger(kept.claims if kept is not None and kept.version == VERSION else ())
        self._writing = asyncio.Lock()
        self._server: DraServer | None = None
        self._client: Client | None = None
        self._wake = asyncio.Event()
        self._specs_of: object = None
        self._refused = ""

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
    def claimed(self) -> dict[tuple[str, str], DeviceId]:
        """Every GPU by the driver's name and the one that a claim would call it by."""
        return {(DRIVER, device_name(gpu)): DeviceId(gpu.uuid) for gpu in self._node_state.node.gpus}

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

    async def _begin(self) -> None:
        from agent.dra.server_shell import REGISTRATION_SOCKET, DraServer
        from deviceplugin.manager import sweep

        registry = self._settings.kubelet_dir / "plugins_registry"
        sweep(registry, REGISTRATION_SOCKET.format(DRIVER, "{}"))
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
            health = self._node_state.health.state(gpu.uuid)
            reason = "" if health.advertised_healthy else health.reason or health.state.value
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
            try:
                await self._save()
                await self._write_specs([started])
                self._ledger.complete(uid)
                await self._save()
            except BaseException:
                self._ledger.end(uid)
                raise
        log.info("prepared", extra={"claim": started.key, "devices": ",".join(d.device for d in started.devices)})
        self._changed()

    async def _unprepare(self, uid: str) -> None:
        async with self._writing:
            path = self._settings.cdi_dir / file_name(uid)
            await asyncio.to_thread(path.unlink, missing_ok=True)
            ended = self._ledger.end(uid)
            if ended is None:
                return
            try:
                await self._save()
            except OSError:
                self._ledger.restore(ended)
                raise
        log.info("given back", extra={"claim": ended.key})
        self._changed()

    def _unfit(self) -> dict[GpuUuid, str]:
        """The GPUs that a claim is not to get, with why: scheduled before the taint was seen."""
        withheld = self._node_state.withheld
        found = {}
        for gpu in self._gpus():
            health = self._node_state.health.state(gpu.uuid)
            if not health.advertised_healthy:
                found[gpu.uuid] = health.reason or health.state.value
            elif gpu.uuid in withheld:
                found[gpu.uuid] = withheld[gpu.uuid]
        return found

    # The disk

    async def _save(self) -> None:
        content = msgspec.json.encode(Kept(claims=self._ledger.entries))
        await asyncio.to_thread(write_atomically, self._settings.state_dir / LEDGER, content)

    async def _write_specs(self, claims: Sequence[Prepared]) -> None:
        """Raises OSError, ClaimError where a device has no files."""
        node = await self._access.files.gpu_spec(self._node_state.access)
        for claim in claims:
            try:
                document = claim_spec(claim, node)
            except KeyError as unknown:
                raise ClaimError(f"GPU {unknown} has no device files") from None
            content = msgspec.json.format(msgspec.json.encode(document))
            path = self._settings.cdi_dir / file_name(claim.uid)
            await asyncio.to_thread(write_atomically, path, content, mode=0o644)

    async def _renew_specs(self) -> None:
        """Driver or device files are others, or this agent is new: containers that start again need them as they are.

        What a kill has left of claims that are not held goes.
        """
        access = self._node_state.access
        async with self._writing:
            known = {claim.uid for claim in self._ledger.entries}
            for path in await asyncio.to_thread(self._spec_files):
                if claim_of(path.name) not in known:
                    await asyncio.to_thread(path.unlink, missing_ok=True)
            try:
                await self._write_specs([c for c in self._ledger.entries if self._there(c)])
            except (OSError, ClaimError) as failed:
                if str(failed) != self._refused:
                    log.warning("specs of claims not written", extra={"error": str(failed)})
                self._refused = str(failed)
                return
        self._specs_of = access

    def _there(self, claim: Prepared) -> bool:
        return all(device.gpu in self._node_state.access.devices for device in claim.devices)

    def _spec_files(self) -> list[Path]:
        return sorted(self._settings.cdi_dir.glob(f"{FILE_PREFIX}*.json"))
