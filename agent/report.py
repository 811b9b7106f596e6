"""The agent's report for a person on its node: the answer of its local socket, read by ``tessera node``.

The structs are the interface: the CLI decodes with them, ``-o json`` prints them as they are. ``Answers`` stands here
because both modules of ``agent.serving`` need it, and one loads the other.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping

from msgspec import Struct, structs

from agent.health.culprits import FaultCount
from agent.health.repairstate import Repair
from agent.health.states import DeviceHealth, Fault, Transition
from agent.kubelet.containers import ClaimUse
from agent.kubelet.holders import Holder
from agent.mig.outcomes import MigStatus
from agent.mps.core import DaemonState
from agent.nodestate import NodeState
from deviceplugin.manager import ServerStatus
from inventory.devices import DeviceId, GpuUuid, NodeInventory, ResourceName
from inventory.layout.layout import Resource


class DeviceReport(Struct, frozen=True):
    """The health of one GPU or MIG instance. ``repair`` is the state of its GPU's repair, empty for none: in each but
    Probation no new container gets it, whatever its health. ``unrepaired``: of a GPU that is taken out, why nothing
    repairs it.
    """

    uuid: str
    gpu_index: int
    mig: str | None
    state: str
    since_s: float
    reason: str
    repair: str = ""
    unrepaired: str = ""


class GpuFaults(Struct, frozen=True):
    """Every open fault of one GPU, oldest first, whichever of its parts it touches."""

    uuid: GpuUuid
    faults: tuple[Fault, ...]


class HeldDevice(Struct, frozen=True):
    """A device and its holder. ``claim`` is ``namespace/name`` of the ResourceClaim by which it is held; empty for a
    device of the plugin.
    """

    device: DeviceId
    holder: Holder
    claim: str = ""


class NodeReport(Struct, frozen=True):
    """Everything ``tessera node`` shows. Times are seconds since the epoch; ``now_s`` is the agent's own."""

    version: str
    now_s: float
    simulated: bool
    driver_up: bool
    node: NodeInventory
    resources: tuple[Resource, ...] = ()
    problems: tuple[str, ...] = ()
    servers: tuple[ServerStatus, ...] = ()
    health: tuple[DeviceReport, ...] = ()
    faults: tuple[GpuFaults, ...] = ()
    history: tuple[Transition, ...] = ()
    holders: tuple[HeldDevice, ...] = ()
    mps: tuple[DaemonState, ...] = ()
    mig: tuple[MigStatus, ...] = ()
    by_claim: tuple[GpuUuid, ...] = ()
    """The GPUs that are given out by ResourceClaim."""
    repairs: tuple[Repair, ...] = ()
    asks: dict[GpuUuid, str] = {}
    """What the controller is asked for, by the GPU in repair: values of ``AskFor``."""
    application_faults: tuple[FaultCount, ...] = ()


def held_devices(
    holders: Mapping[DeviceId, Holder],
    sharers: Mapping[DeviceId, tuple[Holder, ...]],
    claims: Mapping[DeviceId, ClaimUse],
) -> tuple[HeldDevice, ...]:
    """The held devices, sorted by device. ``sharers``: all containers that have a device by one claim together;
    ``claims``: the claim by which a device is held.
    """
    return tuple(
        HeldDevice(device, each, f"{claims[device].namespace}/{claims[device].name}" if device in claims else "")
        for device, holder in sorted(holders.items())
        for each in sharers.get(device, (holder,))
    )


def device_reports(node_state: NodeState) -> tuple[DeviceReport, ...]:
    """Every GPU, each followed by its MIG instances."""
    repairs = {shown.repair.gpu: shown.repair.state.value for shown in node_state.repairs}
    reports = []
    for gpu in node_state.node.gpus:
        repair = repairs.get(gpu.uuid, "")
        whole = _device(gpu.uuid, gpu.index, None, node_state.health.state(gpu.uuid), repair)
        reports.append(structs.replace(whole, unrepaired=node_state.unrepaired.get(gpu.uuid, "")))
        reports += [
            _device(mig.uuid, gpu.index, mig.profile, node_state.health.state(gpu.uuid, mig.uuid), repair)
            for mig in gpu.mig_instances
        ]
    return tuple(reports)


def device_counts(
    node_state: NodeState, allocatable: Mapping[ResourceName, Collection[DeviceId]]
) -> Iterator[tuple[ResourceName, dict[str, int]]]:
    """The devices of each resource by stage: planned, advertised as Healthy, allocatable as the kubelet says."""
    for resource in node_state.layout.resources:
        yield (
            resource.name,
            {
                "inventory": len(resource.devices),
                "advertised": len(resource.devices) - len(node_state.unhealthy(resource)),
                "allocatable": len(allocatable.get(resource.name, ())),
            },
        )


def open_faults(node_state: NodeState) -> tuple[GpuFaults, ...]:
    """The open faults of each GPU that has any."""
    gpus = node_state.node.gpus
    return tuple(GpuFaults(gpu.uuid, faults) for gpu in gpus if (faults := node_state.health.faults(gpu.uuid)))


def transitions(node_state: NodeState) -> tuple[Transition, ...]:
    """The changes of health that are remembered, GPU by GPU."""
    return tuple(change for gpu in node_state.node.gpus for change in node_state.health.history(gpu.uuid))


def _device(uuid: str, index: int, mig: str | None, health: DeviceHealth, repair: str) -> DeviceReport:
    return DeviceReport(uuid, index, mig, health.state.value, health.since_s, health.reason, repair)


class Answers(Struct, frozen=True):
    """The functions that answer requests. ``healthy`` and ``ready`` answer with None, or with why not.

    ``release_gpu`` gets index, seconds and whether it is to be forced, ``give_back`` the index of a retired GPU; each
    raises ValueError with why not.
    """

    exposition: Callable[[], bytes]
    report: Callable[[], NodeReport]
    healthy: Callable[[], str | None]
    ready: Callable[[], str | None]
    release: Callable[[float], None]
    release_gpu: Callable[[int, float, bool], Awaitable[str]] | None = None
    give_back: Callable[[int], str] | None = None
