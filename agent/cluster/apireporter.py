"""The daemon's state, told to the API server: labels, GpuNode, Events. Glue between ``NodeState`` and ``publisher``."""

import logging
import math
import random
from collections.abc import Mapping
from pathlib import Path

from agent.cluster import gpunode, labels
from agent.cluster.conditions import told
from agent.cluster.gpunode import HealthView
from agent.cluster.publisher import EventType, KubePublisher
from agent.cluster.repairentries import fault_entries, order_answers, repair_entries
from agent.cluster.reporter import Follower, NoCluster
from agent.config.settings import LabelSettings, Settings
from agent.hardware.vgpu import VgpuHost, read_vgpu
from agent.health.endings import ends_when
from agent.health.settings import HealthSettings
from agent.health.states import DeviceHealth, FaultKind, Transition
from agent.kubelet.holders import Holder
from agent.nodestate import NodeState
from agent.process.spread import spread_of
from agent.words import health as words
from inventory.devices import DeviceId, NodeInventory
from kube import access
from kube.clock import Clock, SystemClock
from kube.errors import ConfigError

log = logging.getLogger(__name__)


class ApiReporter:
    """A ``Reporter`` to the cluster that ``settings.kubeconfig`` (or the service account) names. Raises NoCluster."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        try:
            cluster = access.load(None if settings.kubeconfig is None else str(settings.kubeconfig))
        except ConfigError as wrong:
            raise NoCluster(f"{wrong} (an agent without an API server: --kubeconfig none)") from None
        self._publisher = KubePublisher(
            cluster,
            node_name=settings.node_name,
            clock=self._clock,
            random=random.random,
            spread=spread_of(settings),
        )
        self._stamp = _Stamp(settings.labels)
        self._vgpu_hosts: dict[tuple[str, ...], VgpuHost | None] = {}

    async def run(self) -> None:
        await self._publisher.run()

    def follow(self, follower: Follower) -> None:
        self._publisher.beside(lambda client: follower.follow(client, self._settings.node_name, random.random))

    def restarted(self) -> None:
        self._publisher.restarted()

    def heard(self, uid: str, labels: Mapping[str, str], conditions: Mapping[str, str]) -> None:
        self._publisher.heard(uid, labels)
        self._publisher.conditions.heard(conditions)

    def gpunode_gone(self) -> None:
        self._publisher.gpunode_gone()

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        self._stamp.settings = settings.labels

    def publish(self, node_state: NodeState, holders: Mapping[DeviceId, Holder]) -> None:
        ready, healthy = told(node_state, node_state.unready)
        gpus = bool(node_state.node.gpus)
        self._publisher.conditions.want((ready, healthy) if gpus else (ready,), only_there=not gpus)
        if not gpus and not node_state.node.driver_version:
            # No GPU has been read yet: what an earlier agent published still holds.
            return
        settings = self._settings.labels
        node_labels = (
            labels.labels(
                node_state.node,
                node_state.layout,
                node_state.choices.layout,
                machine_type=read_machine_type(settings.machine_type_file),
                timestamp_s=self._stamp.at(self._clock.wall()),
                vgpu=self._vgpu(node_state.node),
                percent_largest=node_state.percent_largest(),
            )
            if settings.enabled
            else {}
        )
        self._publisher.publish_labels({**node_labels, **node_state.answers})
        self._publisher.publish_gpunode(
            gpunode.build(
                node=node_state.node,
                layout=node_state.layout,
                health=health_views(node_state),
                holders=holders,
                problems=node_state.problems,
                by_claim=node_state.by_claim,
                withheld=node_state.withheld,
                reset_mode=node_state.reset_mode,
                repairs=repair_entries(node_state.repairs),
                order_answers=order_answers(node_state.order_answers),
                application_faults=fault_entries(node_state.culprits.counts()),
            )
        )

    def _vgpu(self, node: NodeInventory) -> VgpuHost | None:
        """The host of the node's virtual GPUs; read once for each set of GPUs, since it cannot change under them."""
        buses = tuple(gpu.pci_bus_id for gpu in node.gpus)
        if buses not in self._vgpu_hosts:
            found = (read_vgpu(self._settings.sys_root, bus_id) for bus_id in buses)
            self._vgpu_hosts = {buses: next((host for host in found if host is not None), None)}
        return self._vgpu_hosts[buses]

    def transition(self, change: Transition) -> None:
        device = f"GPU {change.gpu}" + (f" MIG {change.mig}" if change.mig else "")
        said = device, change.old.value, change.new.value, f"{change.age_s:.0f}", change.cause
        note = words.worsened(*said, change.action) if change.action else words.changed(*said)
        kind: EventType = "Normal" if change.new.advertised_healthy else "Warning"
        self._event(reason=change.reason, action=f"Gpu{change.new.value}", note=note, kind=kind)

    def problem(self, text: str) -> None:
        self._event(reason="NotAsConfigured", action="Advertise", note=text, kind="Warning")

    def warning(self, reason: str, action: str, text: str) -> None:
        self._event(reason=reason, action=action, note=text, kind="Warning")

    def note(self, reason: str, action: str, text: str) -> None:
        self._event(reason=reason, action=action, note=text, kind="Normal")

    def _event(self, *, reason: str, action: str, note: str, kind: EventType) -> None:
        if self._settings.events.enabled:
            self._publisher.event(reason=reason, action=action, note=note, type_=kind)


class _Stamp:
    """The timestamp of the labels, which moves once in ``sleepInterval``, not with each write."""

    def __init__(self, settings: LabelSettings) -> None:
        self.settings = settings
        self._last_s: float | None = None

    def at(self, now_s: float) -> int | None:
        """Seconds since the epoch for the gfd.timestamp label; None where none is wanted."""
        if self.settings.no_timestamp:
            return None
        interval_s = self.settings.sleep_interval_s
        if self._last_s is None or (math.isfinite(interval_s) and now_s - self._last_s >= interval_s):
            self._last_s = now_s
        return int(self._last_s)


def read_machine_type(path: Path) -> str:
    """The machine's name as its firmware gives it; ``unknown`` where there is none."""
    try:
        return path.read_text(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"


def health_views(node_state: NodeState) -> dict[str, HealthView]:
    """The health of each GPU and MIG instance, by UUID."""
    views: dict[str, HealthView] = {}
    health, settings = node_state.health, node_state.choices.health
    for gpu in node_state.node.gpus:
        why = node_state.unrepaired.get(gpu.uuid, "")
        views[gpu.uuid] = view(health.state(gpu.uuid), settings, why)
        views.update((mig.uuid, view(health.state(gpu.uuid, mig.uuid), settings, why)) for mig in gpu.mig_instances)
    return views


def view(health: DeviceHealth, settings: HealthSettings, unrepaired: str = "") -> HealthView:
    reasons = tuple(fault.cause for fault in health.faults)
    until = ends_when(health, settings)
    return HealthView(
        state=health.state.value,
        reasons=reasons,
        since_s=health.since_s,
        until=until,
        unrepaired=unrepaired,
        reset_due=any(fault.kind is FaultKind.REMAP_PENDING for fault in health.faults),
    )
