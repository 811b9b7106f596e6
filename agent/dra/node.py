"""Claims on one node: the node state's GPUs in mode dra come in; sockets, slices and health go out.

Claims are prepared and given back in ``preparing``.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from agent.config.settings import Settings
from agent.deviceaccess import DeviceAccess
from agent.dra.claim import Ref
from agent.dra.cutting import Bring
from agent.dra.daemons import daemon_specs
from agent.dra.forgotten import Forgotten
from agent.dra.ledger import Prepared
from agent.dra.preparing import Called, Daemons, Preparer
from agent.dra.publishing.slices_shell import SlicePublisher
from agent.dra.statuses import statuses_of
from agent.dra.statuses_shell import StatusWriter
from agent.kubelet.containers import ClaimUse
from agent.kubelet.holders import Claimed, Holder
from agent.mig.outcomes import Wish
from agent.mps.specs import DaemonSpec
from agent.nodestate import NodeState
from agent.process.spread import spread_of
from agent.process.tasks import until_poll
from agent.words import node as words
from inventory.devices import DeviceId, Gpu
from kube.client import Client

if TYPE_CHECKING:
    # These are loaded with the first GPU in mode dra: an agent without one does not pay for the messages.
    from agent.dra.server_shell import ClaimAnswer, DeviceState, DraServer
    from kubeletapi import podresources_v1_pb2 as podresources

log = logging.getLogger(__name__)

NOTE: Final = "slices"
"""The file in the state folder that says that slices may be there."""
SOCKETS: Final = "claims"
SLICES: Final = "slices"
STATUSES: Final = "claim statuses"
"""The names under which the node state keeps the problems of each."""
POLL_S: Final = 1.0


class DraNode:
    """The driver of one node. ``changed`` is called when other devices are held than before, ``serve`` when the node
    state has changed. ``used`` gives the devices that the kubelet says containers have, None where it does not say so
    now.

    ``_ledger`` is written by ``_preparer`` alone. ``_server`` exists while a GPU is given out by claim, or a claim
    holds one; it is written by ``run`` alone.
    """

    def __init__(
        self,
        node_state: NodeState,
        settings: Settings,
        access: DeviceAccess,
        changed: Callable[[], None],
        serve: Callable[[], None],
        used: Callable[[], Collection[DeviceId] | None],
        bring: Bring,
        mps: Daemons,
    ) -> None:
        self._node_state = node_state
        self._settings = settings
        self._driver = settings.dra_driver
        self._serve = serve
        self._claims_changed = changed
        self.publisher = SlicePublisher(
            self._driver, partial(self._say, SLICES), spread=spread_of(settings), note=settings.state_dir / NOTE
        )
        self._used = used
        self.statuses = StatusWriter(self._driver, partial(self._say, STATUSES))
        self._preparer = Preparer(
            node_state, settings, access.files, bring, mps, self._changed, self.planned, self.statuses.seen
        )
        self._ledger, self._cuts = self._preparer.ledger, self._preparer.cuts
        self._claim_holders, self._offering = self._preparer.claim_holders, self._preparer.offering
        self._server: DraServer | None = None
        self._wake = asyncio.Event()
        self._forgotten = Forgotten(self._ledger, self._in_use, self._give_up)

    # The daemon's side

    def planned(self) -> None:
        """Publish the offer of the changed node state, and tell the health of its devices."""
        offer = self._offering.offer()
        if offer is not None or self._node_is_known:
            self.publisher.publish(offer)
        if self._server is not None:
            self._server.tell()
        self._show()
        if bool(offer or len(self._ledger)) != (self._server is not None):
            self._wake.set()

    def _changed(self) -> None:
        self._claims_changed()
        self._show()

    def _show(self) -> None:
        """Let claims show the health of their devices; nothing is shown before the node was read."""
        if not self._node_is_known:
            return
        wrong = {device.name: reason for device, reason in self._offering.ailments()} if len(self._ledger) else {}
        self.statuses.show(
            statuses_of(
                self._ledger.entries, self._driver, self._node_state.node, lambda device: wrong.get(device.device, "")
            )
        )

    @property
    def _node_is_known(self) -> bool:
        node = self._node_state.node
        return bool(node.gpus or node.driver_version)

    @property
    def claimed(self) -> Claimed:
        return self._claim_holders.claimed(self._node_state.node.gpus, self._offering.units())

    def holders(self) -> dict[DeviceId, Holder]:
        return self._claim_holders.holders()

    def uses(self) -> dict[DeviceId, ClaimUse]:
        return self._claim_holders.uses()

    def daemons(self) -> tuple[DaemonSpec, ...]:
        """The MPS daemons that claims ask for."""
        return daemon_specs(self._ledger.entries, self._node_state.node, self._cuts.unit)

    def observe(self, called: Called) -> None:
        """Report each try to prepare a claim, or to give one back, to ``called``."""
        self._preparer.called = called

    def counts(self) -> dict[tuple[str, str], int]:
        """The number of devices by type and view: published, tainted among them, held by claims. Empty without
        devices.
        """
        offer = self._offering.offer()
        counts: Counter[tuple[str, str]] = Counter()
        for device in offer.devices if offer is not None else ():
            kind = str(device.attributes["type"])
            counts[kind, "published"] += 1
            counts[kind, "tainted"] += bool(device.taints)
            counts[kind, "held"] += 0
        for given in (device for claim in self._ledger.entries for device in claim.devices if not device.admin):
            kind = "share" if given.share is not None else "gpu" if given.slot is None else "mig"
            counts[kind, "held"] += 1
        return counts

    # The MIG planner's side (see agent.mig.node.ByClaim)

    def wish(self, gpu: Gpu) -> Wish | None:
        return self._cuts.wish(gpu)

    def holding(self, answer: "podresources.ListPodResourcesResponse") -> Iterator[tuple[str, str]]:
        return self._claim_holders.holding(answer, self._offering.units())

    async def follow(self, client: Client, node_name: str, random: Callable[[], float]) -> None:
        """Publish slices, and give the preparer the API server, until cancelled."""
        self._preparer.client = client
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.publisher.follow(client, node_name, random))
                tasks.create_task(self.statuses.follow(client, random))
        finally:
            self._preparer.client = None

    async def run(self) -> None:
        """Serve while there is something to serve, until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self._mend()
                await self._until_due()
        finally:
            await self._end()

    async def _until_due(self) -> None:
        """Wait until there is something to do. Where nothing is served, and nothing is to be, only ``planned`` ends the
        wait.
        """
        if self._server is None and self._offering.offer() is None and not len(self._ledger):
            await self._wake.wait()
            return
        timer = asyncio.get_running_loop().call_later(until_poll(POLL_S), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _mend(self) -> None:
        if self._offering.offer() is None and not len(self._ledger):
            await self._end()
            return
        await self._preparer.renew_specs()
        if self._server is not None and not self._server.intact:
            await self._end()
        if self._server is None:
            await self._begin()
        await self._forgotten.look(self._preparer.client)

    async def _begin(self) -> None:
        from agent.dra.server_shell import PLUGIN_SOCKET, REGISTRATION_SOCKET, DraServer
        from deviceplugin.manager import sweep

        registry = self._settings.kubelet_dir / "plugins_registry"
        sweep(registry, REGISTRATION_SOCKET.format(self._driver, "{}"))
        sweep(self._settings.claims_dir / self._driver, PLUGIN_SOCKET)
        server = DraServer(self._driver, self, self._registered)
        try:
            await server.start(self._settings.claims_dir, registry)
        except OSError as refused:
            await server.stop()
            self._say(SOCKETS, (words.no_claims_served(str(refused)),))
            return
        self._server = server

    async def _end(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await asyncio.wait([asyncio.create_task(server.stop())])

    def _registered(self, error: str) -> None:
        self._say(SOCKETS, (words.refused_by_kubelet(self._driver, error),) if error else ())

    def _say(self, who: str, lines: tuple[str, ...]) -> None:
        if self._node_state.report(who, lines):
            for line in lines:
                log.warning("claims", extra={"problem": line})
            self._serve()

    # The kubelet's side (see server_shell.Claims)

    async def prepare(self, refs: Sequence[Ref]) -> "Mapping[str, ClaimAnswer]":
        return await self._preparer.prepare(refs)

    async def unprepare(self, refs: Sequence[Ref]) -> Mapping[str, str]:
        return await self._preparer.unprepare(refs)

    def health(self) -> "tuple[DeviceState, ...]":
        """The health of all GPUs, and of the parts that claims have: the kubelet asks for no others."""
        from agent.dra.server_shell import DeviceState

        pool = self._node_state.node.name
        prepared = {device.device for claim in self._ledger.entries for device in claim.devices}
        return tuple(
            DeviceState(pool, device.name, not reason, reason)
            for device, reason in self._offering.ailments()
            if device.slot is None or device.name in prepared
        )

    def _in_use(self, claim: Prepared) -> bool:
        used = self._used()
        return used is None or any(self._cuts.held_as(device) in used for device in claim.devices)

    async def _give_up(self, claim: Prepared) -> None:
        await self._preparer.give_up(Ref(claim.namespace, claim.name, claim.uid))
