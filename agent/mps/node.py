"""MPS on one node: takes the node state's plan, and gives the devices to withhold and the lost daemons."""

from collections.abc import Callable, Collection, Mapping, Sequence

from agent.config.settings import Settings
from agent.health.events import Event, ResetObserved
from agent.kubelet.holders import Holder, pod_names, shown
from agent.mps.core import DaemonState, Lost
from agent.mps.runner import MpsDaemons, programs
from agent.mps.specs import DaemonSpec, daemon_specs
from agent.nodestate import NodeState
from agent.words import node as words
from inventory.devices import DeviceId
from inventory.layout.layout import REPLICA_MARK, physical_id

WHO = "mps"
MIG = "mig"
"""The name under which MIG withholds devices that are to be cut again or reset."""
REPAIR = "repair"
"""The name under which repairs withhold GPUs."""


class MpsNode:
    """The daemons that the node state's layout needs. ``serve`` shows the kubelet the present node state.

    ``warn`` is the reporter's ``warning``; ``holders`` gives the holder of each device id, those that Allocate has just
    given among them. ``claims`` gives the daemons that claims ask for: their devices are a claim's already, and are
    withheld from nobody.
    """

    def __init__(
        self,
        node_state: NodeState,
        settings: Settings,
        *,
        now: Callable[[], float],
        serve: Callable[[], None],
        warn: Callable[[str, str, str], None],
        holders: Callable[[], Mapping[DeviceId, Holder]],
        claims: Callable[[], Sequence[DaemonSpec]],
    ) -> None:
        self._node_state = node_state
        self._claims = claims
        self._by_claim: frozenset[str] = frozenset()
        self._serve = serve
        self._warn = warn
        self._holders = holders
        self._planning = False
        self._daemons = MpsDaemons(
            settings.mps,
            settings.state_dir,
            settings.mps_dir,
            programs(settings.mps, simulated=settings.simulate is not None),
            now,
            self._changed,
            self._lost,
        )

    def planned(self) -> None:
        """Take the node state's layout, which may have changed. Called before a view of it is shown: devices that are
        not ready are withheld.
        """
        self._planning = True
        # A daemon's server is a process on its device: it keeps an instance from being removed, a GPU from its reset.
        leaving = self._node_state.withheld_by(MIG) | self._node_state.withheld_by(REPAIR)
        by_claim = self._claims()
        self._by_claim = frozenset(device for spec in by_claim for device in spec.devices)
        specs = (*daemon_specs(self._node_state.node, self._node_state.layout, self._node_state.modes), *by_claim)
        wanted = tuple(spec for spec in specs if leaving.isdisjoint((*spec.devices, *spec.gpus)))
        self._daemons.want(wanted, sweep=bool(self._node_state.node.gpus))
        self._planning = False
        self._withhold()

    def held(self) -> None:
        """Take the devices that are held now: the kubelet has listed others, or Allocate has given some."""
        self._daemons.hold({physical_id(device) for device in self._holders() if REPLICA_MARK in device})

    def health(self, event: Event) -> None:
        if isinstance(event, ResetObserved):
            self._daemons.reset(event.gpu)

    def states(self) -> tuple[DaemonState, ...]:
        return self._daemons.states()

    async def ended(self, devices: Collection[str]) -> None:
        """See ``MpsDaemons.ended``."""
        await self._daemons.ended(devices)

    async def ready(self, devices: Collection[str], within_s: float) -> str:
        """Want the daemons that claims ask for now, and wait for them as ``MpsDaemons.ready`` does."""
        self.planned()
        return await self._daemons.ready(devices, within_s)

    async def close(self) -> None:
        """See ``MpsDaemons.close``."""
        await self._daemons.close(self._by_claim)

    def _withhold(self) -> bool:
        unready = self._daemons.unready()
        theirs = {
            device: f"{reason}, until its MPS daemon is ready"
            for device, reason in unready.items()
            if device not in self._by_claim
        }
        return self._node_state.withhold(WHO, theirs)

    def _changed(self) -> None:
        if not self._planning and self._withhold():
            self._serve()

    def _lost(self, lost: Lost) -> None:
        pods = self._pods_of(lost.spec.devices)
        who = lost.spec.name, lost.spec.device, lost.reason
        text = words.daemon_lost(*who, shown(pods)) if pods else words.idle_daemon_lost(*who)
        self._warn("MpsDaemonLost", "Restart", text)

    def _pods_of(self, devices: Collection[str]) -> list[str]:
        holders = ((held, holder) for held, holder in self._holders().items() if physical_id(held) in devices)
        return pod_names(holder for _, holder in holders if holder.pod)
