"""The agent's present picture of the node: hardware, layout, health; and the views from which the kubelet is served.

It is synchronous and without I/O: the daemon hands in news, with the time, and takes out the consequences.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec import Struct, structs

from agent.health.culprits import CulpritCore, FaultCount
from agent.health.events import Event, XidSeen
from agent.health.grants import Ask
from agent.health.machine import HealthCore
from agent.health.repairstate import ACTING, Answered, Repair, RepairState
from agent.health.settings import HealthSettings
from agent.health.states import HealthState, Transition
from agent.health.xids import FaultClass
from agent.kubelet.grants import Grants
from agent.kubelet.holders import Holder, pod_names, shown
from agent.words import node as words
from deviceplugin.strategy import AllocationSpec, NodeAccess
from deviceplugin.view import ClientLookup, ResourceView, no_client
from inventory.devices import DeviceId, Gpu, GpuUuid, MigInstance, MigUuid, NodeInventory, NodeName, ResourceName
from inventory.layout import fractions
from inventory.layout.change import Advance, Blocked, advance
from inventory.layout.entries import (
    PERCENT_RESOURCE,
    Dra,
    GpuLayoutSpec,
    GpuMode,
    Mig,
    Resolved,
    WhenBusy,
    mode_word,
    resolve,
)
from inventory.layout.layout import REPLICA_MARK, Layout, LogicalDevice, Resource, physical_id, plan
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


def pod_name(namespace: str, pod: str) -> str:
    """The pod's own name, where nothing is known of its job."""
    return f"{namespace}/{pod}"


class ShownRepair(NamedTuple):
    """The repair of a GPU, with what is asked for. ``takes_along`` are the other GPUs of its reset unit."""

    repair: Repair
    ask: Ask | None
    takes_along: tuple[GpuUuid, ...] = ()

    @property
    def resets(self) -> bool:
        """Whether a reset may take the GPU's MIG instances now, or may have since the agent before this one died."""
        return self.repair.state in ACTING or self.repair.interrupted


class NodeState:
    """One node's state. The device plugin servers answer from ``views()``.

    ``modes`` are the GPU modes in force: those that a layout named, as far as running containers allow. ``advance``
    says which containers block the rest.

    Used on the event loop alone. ``layout``, ``wanted``, ``advance``, ``modes`` and the choosers are written by
    ``_replan`` alone and always together: they belong to the present ``node``, ``choices`` and holders. ``node`` and
    ``links`` change together. ``access`` are the device files of ``node`` as they were written last: ``discovered``,
    ``Agent.reconfigure`` and ``DeviceAccess.follow`` replace it, the last two while they hold ``adopting``.
    ``_withheld`` and ``_reports`` have one writer for each name, and each call replaces that writer's last value.

    A change of modes, or of ``_spec`` (the choices' layout in force), is decided in ``held`` alone, from an answer of
    the kubelet that was asked for after the change was wanted, and from ``grants``, the devices that Allocate gave
    since. Until then ``_pending`` are the GPUs whose modes it would change, which stay in their modes, and
    ``_pending_s`` is when it was wanted. Pending GPUs of which no device was offered before are in ``_unsettled`` as
    well, and in no resource: new ones, and all of them while no holder was ever known. ``_other_shapes`` is
    ``_in_another_shape`` as it was when ``held`` returned last.
    """

    def __init__(
        self,
        name: NodeName,
        choices: Choices,
        modes: Mapping[GpuUuid, GpuMode] | None = None,
        client: ClientLookup = no_client,
        grants: Grants | None = None,
    ) -> None:
        self.node = NodeInventory(name=name)
        self.layout = Layout()
        self.access = NodeAccess()
        self.choices = choices
        self.grants = grants or Grants()
        self._client = client
        self.health = HealthCore(choices.health)
        self.culprits = CulpritCore()
        self.program_of: Callable[[str, str], str] = pod_name
        """A function from namespace and pod to a name of what runs there that the pods of one job share; written by
        ``Agent`` before it runs.
        """
        self.links = LinkTable.of(self.node)
        self.modes: dict[GpuUuid, GpuMode] = dict(modes or {})
        self.wanted = Resolved()
        self.advance = Advance({})
        self._held: Mapping[DeviceId, Holder] | None = None
        self._claimed: frozenset[DeviceId] = frozenset()
        self._unsettled: frozenset[GpuUuid] = frozenset()
        self._spec = choices.layout
        self._pending: frozenset[GpuUuid] = frozenset()
        self._pending_s = float("-inf")
        self._answered_s = float("-inf")
        """The time at which the kubelet was asked for the known holders."""
        self._other_shapes: dict[str, str] = {}
        self._offered_as: frozenset[tuple[str, bool, ResourceName]] = frozenset()
        """Each device that is offered: its UUID, whether it is a replica, and its resource."""
        self._offered_units: frozenset[str] = frozenset()
        self._withheld: dict[str, dict[str, str]] = {}
        self._reports: dict[str, tuple[str, ...]] = {}
        self.answers: dict[str, str] = {}
        """Labels of the Node that answer other labels; ``MigNode`` replaces them whole."""
        self.unready = ""
        """Why not all wanted devices are registered and probed, empty for all; the daemon writes it."""
        self.repairs: tuple[ShownRepair, ...] = ()
        """The repairs of GPUs; ``RepairNode`` replaces them whole."""
        self.unrepaired: Mapping[GpuUuid, str] = {}
        """Why GPUs that are taken out are not repaired, though resets are on; ``RepairNode`` replaces it whole."""
        self.order_answers: tuple[Answered, ...] = ()
        """The answer to the last order of each GPU; ``RepairNode`` replaces them whole."""
        self._taken: dict[GpuUuid, tuple[MigInstance, ...]] = {}
        """The MIG instances that a reset took, of GPUs in repair; ``_keep_taken`` alone writes it. They stay in the
        plan until others are at their places or the repair is over, and are Unhealthy, since health knows no such
        device."""
        self.reset_mode = ""
        """``remediation.reset`` as it holds; ``RepairNode`` writes it, with its repairs."""
        self._choosers: dict[ResourceName, Chooser] = {}

    def discovered(self, node: NodeInventory, access: NodeAccess, now_s: float) -> tuple[Transition, ...]:
        """Replace the node by NVML's (or the checkpoint's). A GPU that is gone becomes Unhealthy and unlisted."""
        new = {gpu.uuid for gpu in node.gpus} - {gpu.uuid for gpu in self.node.gpus}
        same_links = node.links == self.node.links and [g.uuid for g in node.gpus] == [g.uuid for g in self.node.gpus]
        self._keep_taken(node)
        self.node, self.access = node, access
        if not same_links:
            self.links = LinkTable.of(node)
        transitions = self.health.discovered(node.gpus, now_s)
        self._replan(now_s, new)
        return transitions

    def _keep_taken(self, found: NodeInventory) -> None:
        """Keep the instances that a reset has taken from GPUs that ``found`` has, where their repair goes on."""
        taken: dict[GpuUuid, tuple[MigInstance, ...]] = {}
        for shown_repair in self.repairs:
            uuid = shown_repair.repair.gpu
            before, after = self.node.gpu(uuid), found.gpu(uuid)
            if after is None or shown_repair.repair.state is RepairState.PROBATION:
                continue
            known = self._taken.get(uuid, ())
            if before is not None and shown_repair.resets:
                known = (*before.mig_instances, *(mig for mig in known if _is_away(mig, before.mig_instances)))
            if away := tuple(mig for mig in known if _is_away(mig, after.mig_instances)):
                taken[uuid] = away
        self._taken = taken

    def state_of_whole(self, gpu: GpuUuid) -> HealthState:
        """The state of the GPU; Probation while it is well, and some of its MIG instances are not, or not there yet."""
        state, found = self.health.state(gpu).state, self.node.gpu(gpu)
        instances = () if found is None else found.mig_instances
        well = all(self.health.state(gpu, mig.uuid).advertised_healthy for mig in instances)
        lacks = gpu in self._taken or not well
        return HealthState.PROBATION if lacks and state.advertised_healthy else state

    def _planned(self, gpu: Gpu) -> Gpu:
        """The GPU as it is planned: with the instances that a reset took, unless its layout wants others by now."""
        taken, mode = self._taken.get(gpu.uuid, ()), self.modes.get(gpu.uuid)
        others = isinstance(mode, Mig) and not Counter(mig.profile for mig in taken) <= Counter(mode.profiles)
        if not taken or others or (mode is not None and not isinstance(mode, Mig)):
            return gpu
        instances = sorted((*gpu.mig_instances, *taken), key=lambda mig: mig.index)
        return structs.replace(gpu, mig_enabled=True, mig_instances=tuple(instances))

    def reconfigured(self, choices: Choices, now_s: float) -> tuple[Transition, ...]:
        """Take new choices; parts that they do not touch keep their identity, so that no server or stream is
        disturbed.
        """
        old, self.choices = self.choices, choices
        if (choices.layout, choices.gpu_layout) != (old.layout, old.gpu_layout):
            self._pending_s = max(self._pending_s, now_s)
            self._replan(now_s)
        return self.health.reconfigure(choices.health, now_s) if choices.health != old.health else ()

    @property
    def awaits_holders(self) -> bool:
        """Whether a change waits for the kubelet's answer: only ``held`` carries it out."""
        return bool(self._pending) or self._spec != self.choices.layout

    @property
    def waits(self) -> bool:
        """Whether the node waits for an answer of the kubelet, or for a container to end."""
        return self.awaits_holders or bool(self.advance.blocked or self._in_another_shape())

    def held(
        self,
        holders: Mapping[DeviceId, Holder],
        claimed: frozenset[DeviceId] = frozenset(),
        began_s: float | None = None,
    ) -> bool:
        """Take the holder of each device, by plugin or (``claimed``) by claim. True where that lets a change happen, or
        blocks it in another way than before.

        ``began_s`` is when the kubelet was asked, on the clock of the grants; None where claims alone are others.
        """
        known = self._held is not None
        # An answer that was asked for before any GPU was known says nothing of them.
        if not self.node.gpus:
            return False
        self._held, self._claimed = dict(holders), claimed
        if began_s is not None:
            self._answered_s = max(self._answered_s, began_s)
        before = (self.layout, self.advance, self._unsettled, self._other_shapes)
        if not known or self.advance.blocked or (self.awaits_holders and self._sure):
            self._replan(None)
        self._other_shapes = self._in_another_shape()
        return (self.layout, self.advance, self._unsettled, self._other_shapes) != before

    @property
    def holders_unknown(self) -> bool:
        """Whether ``held`` was never called: no holder is known yet."""
        return self._held is None

    def in_hand(self, listed: Mapping[DeviceId, Holder]) -> dict[DeviceId, Holder]:
        """The devices that containers have: those that the kubelet listed, and those that Allocate gave since then."""
        given = {device: Holder("", "", "", resource) for device, resource in self.grants.open.items()}
        return given | dict(listed)

    def withhold(self, who: str, reasons: Mapping[str, str]) -> bool:
        """Give no new container these GPUs or MIG instances (by UUID, with one line why) until ``who`` replaces them.

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
        """Why no new container gets a device, health aside, by the UUID of the GPU or MIG instance."""
        why = {
            str(gpu): "its layout is about to change, until the containers on it have ended"
            for gpu in self.advance.withheld
        }
        why.update(self._in_another_shape())
        for reasons in self._withheld.values():
            why.update(reasons)
        return why

    @property
    def problems(self) -> tuple[str, ...]:
        """The settings that could not be carried out, one line each."""
        refused = tuple(words.layout_not_applied(problem) for problem in self.wanted.problems)
        reported = (line for lines in self._reports.values() for line in lines)
        in_the_way = (self._in_the_way(blocking) for blocking in self.advance.blocked)
        return (*refused, *in_the_way, *reported, *self.layout.problems)

    def report(self, who: str, lines: tuple[str, ...]) -> bool:
        """Take the lines that ``who`` reports about what it could not carry out, in place of its last ones. True where
        they differ.
        """
        if lines == self._reports.get(who, ()):
            return False
        self._reports[who] = lines
        return True

    @property
    def drained(self) -> frozenset[str]:
        """The pods (``namespace/name``) that hold devices which a layout that says drain needs for its modes."""
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
        """The GPUs in ``by_claim`` that are given out by shares alone, with the percent that a share is a
        multiple of.
        """
        modes = ((gpu, self.modes[gpu]) for gpu in self.by_claim)
        return {gpu: mode.shares for gpu, mode in modes if isinstance(mode, Dra) and mode.shares is not None}

    def percent_largest(self) -> int | None:
        """The largest request for percents that fits one GPU now; None where no GPU is fractional."""
        resource = self.layout.resource(PERCENT_RESOURCE)
        if resource is None:
            return None
        return fractions.largest(resource, (*self.in_hand(self._held or {}), *self.unhealthy(resource)))

    def apply(self, event: Event, now_s: float) -> tuple[Transition, ...]:
        """Apply a health event; return the transitions it caused."""
        return self.health.apply(event, now_s)

    def count_fault(self, event: XidSeen, now_s: float) -> FaultCount | None:
        """Count an XID that is an application's. Returns the count where it is news whose fault that is."""
        gpu = self.node.gpu(event.gpu)
        if gpu is None or self.choices.health.rule(event.xid).fault_class is not FaultClass.APPLICATION:
            return None
        instances = [mig for mig in gpu.mig_instances if mig.gi_id == event.gi] or gpu.mig_instances
        parts = {str(gpu.uuid), *(str(mig.uuid) for mig in instances)}
        holders = (holder for device, holder in (self._held or {}).items() if physical_id(device) in parts)
        programs = {self.program_of(holder.namespace, holder.pod) for holder in holders if holder.pod}
        # A program cannot be told from others that share the GPU with it.
        program = programs.pop() if len(programs) == 1 else ""
        return self.culprits.seen(gpu.uuid, gpu.serial or "", event.xid, program, now_s)

    def views(self) -> tuple[ResourceView, ...]:
        """One view for each advertised resource, with the present health."""
        return tuple(self._view(resource) for resource in self.layout.resources)

    def unhealthy(self, resource: Resource) -> dict[DeviceId, str]:
        """The resource's devices that are not to be given, with the reason."""
        return {device.id: reason for device, reason in self._unhealthy(resource)}

    def ailment(self, gpu: GpuUuid, mig: MigUuid | None = None) -> str:
        """Why health keeps the device from being given out, in a few words; empty where it does not."""
        health = self.health.state(gpu, mig)
        return "" if health.advertised_healthy else health.reason or health.state.value

    def units(self) -> set[str]:
        """The UUIDs of all GPUs and MIG instances: what a container holds is one of them, or a replica of one."""
        return {uuid for gpu in self.node.gpus for uuid in (gpu.uuid, *(mig.uuid for mig in gpu.mig_instances))}

    def validate(self) -> None:
        """Check the invariants of every part, and that all devices stand on GPUs of this node."""
        self.node.validate()
        self.layout.validate()
        self.health.validate()
        self.culprits.validate()
        uuids = {gpu.uuid for gpu in self.node.gpus}
        assert all(d.gpu in uuids for r in self.layout.resources for d in r.devices), "a device without a GPU"
        assert self.node.gpus == () or self.modes.keys() <= uuids, "a mode without a GPU"
        assert self._unsettled <= self._pending, "a GPU is not listed, and nothing is waited for"
        assert not (self.awaits_holders and self._sure), "a change waits for an answer that is there"

    def _replan(self, wanted_s: float | None, new: AbstractSet[GpuUuid] = frozenset()) -> None:
        """Plan the layout anew. ``wanted_s``: when choices or hardware changed, None after an answer of the kubelet.
        ``new`` GPUs have been in no resource yet.
        """
        if self.node.gpus:
            # Before the first discovery there are no GPUs that a layout could name.
            self.wanted = resolve(self.node, self.choices.gpu_layout, self.modes)
            self.advance = advance(
                self.node, self.choices.layout, self.modes, self.wanted, self.in_hand(self._held or {}), self._claimed
            )
            self._decide(wanted_s, new)
        else:
            self._spec = self.choices.layout
        # A GPU whose holders are unknown is not in the plan at all: unlisted for a moment, never shared.
        gpus = tuple(self._planned(gpu) for gpu in self.node.gpus if gpu.uuid not in self._unsettled)
        sure = structs.replace(self.node, gpus=gpus)
        self.layout = plan(sure, self._spec, self.modes)
        self._offered_as = frozenset(
            (device.physical_id, REPLICA_MARK in device.id, resource.name)
            for resource in self.layout.resources
            for device in resource.devices
        )
        self._offered_units = frozenset(unit for unit, _, _ in self._offered_as)
        self._choosers = {r.name: Chooser(r.devices, self.links) for r in self.layout.resources}

    def _decide(self, wanted_s: float | None, new: AbstractSet[GpuUuid]) -> None:
        """Put ``advance`` into force now, or let it wait for an answer of the kubelet."""
        changing = self._changing()
        if wanted_s is not None and not changing <= self._pending:
            self._pending_s = max(self._pending_s, wanted_s)
        if (changing or self._spec != self.choices.layout) and not self._sure:
            self._unsettled = changing if self._held is None else changing & (self._unsettled | new)
            self._pending, modes = changing, self.modes
        else:
            self._pending = self._unsettled = frozenset()
            self._spec, modes = self.choices.layout, dict(self.advance.modes)
        self.modes = {uuid: mode for uuid, mode in modes.items() if self.node.gpu(uuid) is not None}

    @property
    def _sure(self) -> bool:
        """Whether the kubelet was asked after the last change was wanted, and has answered."""
        return self._held is not None and self._answered_s > self._pending_s

    def _changing(self) -> frozenset[GpuUuid]:
        after = self.advance.modes
        return frozenset(uuid for uuid in {*after, *self.modes} if after.get(uuid) != self.modes.get(uuid))

    def _in_another_shape(self) -> dict[str, str]:
        """The resource, by UUID, of each device that a container got in another shape than the one in which it is
        offered now, whatever changed it: the kubelet would take it for free, and give it a second time.
        """
        hands = {device: holder.resource for device, holder in (self._held or {}).items()}
        if not hands and not self.grants.open:
            return {}
        host = {str(mig.uuid): gpu.uuid for gpu in self.node.gpus for mig in gpu.mig_instances}
        why: dict[str, str] = {}
        for device, resource in (*hands.items(), *self.grants.open.items()):
            unit = physical_id(device)
            offered = unit in self._offered_units
            same = (
                not offered if device in self._claimed else (unit, REPLICA_MARK in device, resource) in self._offered_as
            )
            if not same:
                reason = (
                    f"a container holds it as {resource} and it is to be another resource, until that one has ended"
                )
                why.update(dict.fromkeys({unit} if offered else {unit, str(host.get(unit, unit))}, reason))
        return why

    def _in_the_way(self, blocked: Blocked) -> str:
        """The line that names the pods that must end before the GPU's mode can change."""
        gpu = self.node.gpu(blocked.gpu)
        held = self.in_hand(self._held or {})
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


def _is_away(mig: MigInstance, there: tuple[MigInstance, ...]) -> bool:
    """Whether neither the instance nor another at its place is there."""
    return all(mig.uuid != each.uuid and _apart(mig, each) for each in there)


def _apart(one: MigInstance, other: MigInstance) -> bool:
    if one.start is None or other.start is None or one.size is None or other.size is None:
        return False
    return one.start + one.size <= other.start or other.start + other.size <= one.start
