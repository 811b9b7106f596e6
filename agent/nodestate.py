"""What the agent holds to be true right now: hardware, layout, health; and the views that kubelet is served from it.

Synchronous and without I/O: the daemon hands in what it learned, with the time, and takes out what follows.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct, structs

from agent.health.events import Event
from agent.health.machine import HealthCore
from agent.health.settings import HealthSettings
from agent.health.states import Transition
from agent.kubelet.podresources import Holder, pod_names, shown
from agent.words import node as words
from deviceplugin.strategy import AllocationSpec, NodeAccess
from deviceplugin.view import ClientLookup, ResourceView, no_client
from inventory.devices import DeviceId, GpuUuid, MigUuid, NodeInventory, NodeName, ResourceName
from inventory.layout import fractions
from inventory.layout.change import Advance, Blocked, advance
from inventory.layout.entries import (
    PERCENT_RESOURCE,
    Dra,
    GpuLayoutSpec,
    GpuMode,
    Resolved,
    WhenBusy,
    mode_word,
    resolve,
)
from inventory.layout.layout import Layout, LogicalDevice, Resource, plan
from inventory.layout.sharing import LayoutSpec, ReplicaPolicy
from inventory.preference.linktable import LinkTable
from inventory.preference.preference import Chooser


class Choices(Struct, frozen=True):
    """The administrator's choices that shape what is advertised and how it is handed out."""

    layout: LayoutSpec = LayoutSpec()
    gpu_layout: GpuLayoutSpec = GpuLayoutSpec()
    allocation: AllocationSpec = AllocationSpec()
    replica_policy: ReplicaPolicy = ReplicaPolicy.DISTRIBUTED
    health: HealthSettings = HealthSettings()


class NodeState:
    """One node's state. ``views()`` is what the device plugin servers answer from.

    ``modes`` are the GPU modes in force: those that a layout named, as far as running containers allow. ``advance``
    says which containers block the rest.

    Used on the event loop alone. ``layout``, ``wanted``, ``advance``, ``modes`` and the choosers are written by
    ``_replan`` alone and always together: they belong to the present ``node``, ``choices`` and holders. ``node`` and
    ``links`` change together. ``_withheld`` and ``_reports`` have one writer for each name, and each call replaces what
    that writer said before. GPUs in ``_unsettled``, none once holders are known, are in no resource.
    """

    def __init__(
        self,
        name: NodeName,
        choices: Choices,
        modes: Mapping[GpuUuid, GpuMode] | None = None,
        client: ClientLookup = no_client,
    ) -> None:
        self.node = NodeInventory(name=name)
        self.layout = Layout()
        self.access = NodeAccess()
        self.choices = choices
        self._client = client
        self.health = HealthCore(choices.health)
        self.links = LinkTable.of(self.node)
        self.modes: dict[GpuUuid, GpuMode] = dict(modes or {})
        self.wanted = Resolved()
        self.advance = Advance({})
        self._held: Mapping[DeviceId, Holder] | None = None
        self._claimed: frozenset[DeviceId] = frozenset()
        self._unsettled: frozenset[GpuUuid] = frozenset()
        self._withheld: dict[str, dict[str, str]] = {}
        self._reports: dict[str, tuple[str, ...]] = {}
        self.answers: dict[str, str] = {}
        """Labels of the Node that answer what another label asked for."""
        self._choosers: dict[ResourceName, Chooser] = {}

    def discovered(self, node: NodeInventory, access: NodeAccess, now_s: float) -> tuple[Transition, ...]:
        """NVML's (or the checkpoint's) node replaces the old one. A GPU that is gone becomes Unhealthy and unlisted."""
        same_links = node.links == self.node.links and [g.uuid for g in node.gpus] == [g.uuid for g in self.node.gpus]
        self.node, self.access = node, access
        if not same_links:
            self.links = LinkTable.of(node)
        transitions = self.health.discovered(node.gpus, now_s)
        self._replan()
        return transitions

    def reconfigured(self, choices: Choices, now_s: float) -> tuple[Transition, ...]:
        """New choices; what they do not touch keeps its identity, so that no server or stream is disturbed."""
        old, self.choices = self.choices, choices
        if (choices.layout, choices.gpu_layout) != (old.layout, old.gpu_layout):
            self._replan()
        return self.health.reconfigure(choices.health, now_s) if choices.health != old.health else ()

    @property
    def awaits_holders(self) -> bool:
        """Whether a change of modes waits for the holders of devices: ``held`` was never called."""
        return bool(self._unsettled)

    def held(self, holders: Mapping[DeviceId, Holder], claimed: frozenset[DeviceId] = frozenset()) -> bool:
        """The holder of each device, by plugin or (``claimed``) by claim. True where that lets a change come, or
        blocks it in another way than before.
        """
        known = self._held is not None
        # An answer that was asked for before any GPU was known says nothing of them.
        if (known and holders == self._held) or not self.node.gpus:
            return False
        self._held, self._claimed = dict(holders), claimed
        if known and not self.advance.blocked:
            return False
        before = (self.layout, self.advance, self._unsettled)
        self._replan()
        return (self.layout, self.advance, self._unsettled) != before

    def withhold(self, who: str, reasons: Mapping[str, str]) -> bool:
        """No new container gets these GPUs or MIG instances (by UUID, with one line why) until ``who`` replaces them.

        True where that changes anything.
        """
        if reasons == self._withheld.get(who, {}):
            return False
        self._withheld[who] = dict(reasons)
        return True

    def withheld_by(self, who: str) -> frozenset[str]:
        """The UUIDs that ``who`` withholds."""
        return frozenset(self._withheld.get(who, {}))

    @property
    def withheld(self) -> dict[str, str]:
        """By UUID: why no new container gets it, health aside."""
        found = {
            str(gpu): "its layout is about to change; it waits for the containers on it to end"
            for gpu in self.advance.withheld
        }
        for reasons in self._withheld.values():
            found.update(reasons)
        return found

    @property
    def problems(self) -> tuple[str, ...]:
        """What was asked for and is not so, one line each."""
        refused = tuple(words.layout_not_applied(problem) for problem in self.wanted.problems)
        reported = (line for lines in self._reports.values() for line in lines)
        in_the_way = (self._in_the_way(blocking) for blocking in self.advance.blocked)
        return (*refused, *in_the_way, *reported, *self.layout.problems)

    def report(self, who: str, lines: tuple[str, ...]) -> bool:
        """What ``who`` could not bring about as it was asked for, until it says otherwise. True where that is new."""
        if lines == self._reports.get(who, ()):
            return False
        self._reports[who] = lines
        return True

    @property
    def drained(self) -> frozenset[str]:
        """The pods (``namespace/name``) that hold what a layout that says drain needs for its modes."""
        if self.advance.refused:
            return frozenset()
        devices = [
            device
            for blocking in self.advance.blocked
            if blocking.when_busy is WhenBusy.DRAIN
            for device in blocking.devices
        ]
        held = self._held or {}
        return frozenset(pod_names(held[device] for device in devices if device in held))

    @property
    def by_claim(self) -> frozenset[GpuUuid]:
        """The GPUs that are given out by ResourceClaim."""
        return frozenset(
            gpu for gpu, mode in self.modes.items() if isinstance(mode, Dra) and gpu not in self._unsettled
        )

    @property
    def shares(self) -> Mapping[GpuUuid, int]:
        """Of those in ``by_claim`` the GPUs that are given out by shares alone, in multiples of so many percent."""
        modes = ((gpu, self.modes[gpu]) for gpu in self.by_claim)
        return {gpu: mode.shares for gpu, mode in modes if isinstance(mode, Dra) and mode.shares is not None}

    def percent_largest(self) -> int | None:
        """The largest request for percents that fits one GPU now; None where no GPU is fractional."""
        resource = self.layout.resource(PERCENT_RESOURCE)
        if resource is None:
            return None
        return fractions.largest(resource, (*(self._held or ()), *self.unhealthy(resource)))

    def apply(self, event: Event, now_s: float) -> tuple[Transition, ...]:
        """A health event; the transitions it caused."""
        return self.health.apply(event, now_s)

    def views(self) -> tuple[ResourceView, ...]:
        """One view for each advertised resource, with the health of this moment."""
        return tuple(self._view(resource) for resource in self.layout.resources)

    def unhealthy(self, resource: Resource) -> dict[DeviceId, str]:
        """The resource's devices that are not to be given, with why."""
        return {device.id: reason for device, reason in self._unhealthy(resource)}

    def ailment(self, gpu: GpuUuid, mig: MigUuid | None = None) -> str:
        """Why health keeps the device from being given out, in a few words; empty where it does not."""
        health = self.health.state(gpu, mig)
        return "" if health.advertised_healthy else health.reason or health.state.value

    def device_ids(self) -> set[DeviceId]:
        """What containers may hold: what is advertised, and what was before a layout shared or cut it otherwise."""
        in_force = plan(self.node, self.choices.layout, self.modes) if self._unsettled else self.layout
        advertised = {device.id for resource in in_force.resources for device in resource.devices}
        units = {DeviceId(uuid) for gpu in self.node.gpus for uuid in (gpu.uuid, *(m.uuid for m in gpu.mig_instances))}
        return advertised | units

    def validate(self) -> None:
        """Recompute the invariants of every part, and that all devices stand on GPUs of this node."""
        self.node.validate()
        self.layout.validate()
        self.health.validate()
        uuids = {gpu.uuid for gpu in self.node.gpus}
        assert all(d.gpu in uuids for r in self.layout.resources for d in r.devices), "a device without a GPU"
        assert self.node.gpus == () or self.modes.keys() <= uuids, "a mode without a GPU"

    def _replan(self) -> None:
        if self.node.gpus:
            # Before anything was discovered there is nothing that a layout could be about.
            self.wanted = resolve(self.node, self.choices.gpu_layout, self.modes)
            self.advance = advance(
                self.node, self.choices.layout, self.modes, self.wanted, self._held or (), self._claimed
            )
            self._unsettled = self._changing() if self._held is None else frozenset()
            self.modes = {
                uuid: mode
                for uuid, mode in (self.modes if self._unsettled else self.advance.modes).items()
                if self.node.gpu(uuid) is not None
            }
        # A GPU whose holders are unknown is not in the plan at all: unlisted for a moment, never shared.
        sure = structs.replace(self.node, gpus=tuple(g for g in self.node.gpus if g.uuid not in self._unsettled))
        self.layout = plan(sure, self.choices.layout, self.modes)
        self._choosers = {r.name: Chooser(r.devices, self.links) for r in self.layout.resources}

    def _changing(self) -> frozenset[GpuUuid]:
        after = self.advance.modes
        return frozenset(uuid for uuid in {*after, *self.modes} if after.get(uuid) != self.modes.get(uuid))

    def _in_the_way(self, blocked: Blocked) -> str:
        """The pods that must end before the GPU's mode can change."""
        gpu = self.node.gpu(blocked.gpu)
        held = self._held or {}
        wanted = "as without a layout" if blocked.wanted is None else mode_word(blocked.wanted).value
        pods = shown(pod_names(held[device] for device in blocked.devices if device in held))
        name = blocked.gpu if gpu is None else f"GPU {gpu.index} ({gpu.uuid})"
        say = {
            WhenBusy.REFUSE: words.mode_refused,
            WhenBusy.WAIT: words.mode_waits,
            WhenBusy.DRAIN: words.mode_drains,
        }[blocked.when_busy]
        return say(str(self.choices.gpu_layout.source), name, wanted, pods)

    def _view(self, resource: Resource) -> ResourceView:
        return ResourceView(
            resource,
            unhealthy=self.unhealthy(resource),
            spec=self.choices.allocation,
            access=self.access,
            chooser=self._choosers[resource.name],
            policy=self.choices.replica_policy,
            client=self._client,
        )

    def _unhealthy(self, resource: Resource) -> Iterator[tuple[LogicalDevice, str]]:
        withheld = self.withheld
        for device in resource.devices:
            reason = self.ailment(device.gpu, device.mig)
            if not reason and withheld:
                reason = withheld.get(device.physical_id) or withheld.get(device.gpu) or ""
            if reason:
                yield device, reason
