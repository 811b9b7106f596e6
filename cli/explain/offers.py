"""The nodes where a pod's GPUs could be: the devices offered, free, held by whom and withheld, by node. Pure.

By resource: a node offers its allocatable devices, as kube-scheduler counts (requests of the pods that are bound to
it). By claim: a node offers the devices of its ResourceSlices that the class and the request select.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from cli.printing.console import Json
from controller.objects.core import ENDED_PHASES, Node, Pod
from controller.objects.decode import GpuNode
from controller.objects.quantity import NANO
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.taints import untolerated
from inventory.api.gpunode import Health, Offer
from inventory.api.names import PREFIX

_OURS: Final = ("nvidia.com/", PREFIX)
_UNTIL: Final = {
    "Probation": "it has done well for health.probationSeconds",
    "Unhealthy": "its fault is over",
}
"""The end of a state of health where an agent does not say it: an older one."""
_NEXT: Final = "tessera node health, on the node, says what to do"


class Withheld(Struct, frozen=True, kw_only=True, rename="camel"):
    """A device that is given to no new pod. ``until`` begins with that word, or is empty where ``why`` says it."""

    device: str
    why: str
    until: str
    since: datetime | None = None


class Holding(Struct, frozen=True, kw_only=True):
    """A pod's part of a resource. ``pod`` is NAMESPACE/NAME."""

    pod: str
    amount: str


class NodeOffer(Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices of one node. ``closed``: why the pod cannot be on the node, devices aside; empty where it can."""

    node: str
    offers: int
    free: int
    holders: tuple[Holding, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    closed: str = ""


def asked(pod: Pod, gpu_nodes: Iterable[GpuNode]) -> dict[str, int]:
    """The devices that the pod asks for by resource: resources of nodes' agents, and those that are named like one."""
    known = {each.name for node in gpu_nodes for each in node.status.resources}
    found = {str(name): amount for name, amount in one_pod(pod.spec).items() if amount}
    return {name: amount for name, amount in found.items() if name in known or name.startswith(_OURS)}


def by_resource(
    resource: str, pod: Pod, nodes: Iterable[Node], gpu_nodes: Mapping[str, GpuNode], pods: Sequence[Pod] | None
) -> tuple[NodeOffer, ...]:
    """The offer of each node that has the resource. ``pods``: of all namespaces; None where they may not be read, and
    then holders are those that agents tell of.
    """
    node_offers = []
    for node in sorted(nodes, key=lambda each: each.metadata.name):
        capacity, offers = (_whole(each, resource) for each in (node.status.capacity, node.status.allocatable))
        if not max(capacity, offers):
            continue
        name = node.metadata.name
        told = gpu_nodes.get(name)
        held = _by_agent(resource, told) if pods is None else _by_requests(resource, name, pods)
        withheld = tuple(_withheld(resource, told, capacity - offers))
        free = max(0, offers - sum(held.values()))
        holders = tuple(Holding(pod=key, amount=str(amount)) for key, amount in sorted(held.items()))
        made = NodeOffer(
            node=name, offers=offers, free=free, holders=holders, withheld=withheld, closed=closed(pod, node)
        )
        node_offers.append(made)
    return tuple(node_offers)


def closed(pod: Pod, node: Node) -> str:
    """Why the pod cannot be on the node, as kube-scheduler's filters say it, affinities aside; empty where it can."""
    if node.spec.unschedulable:
        return "cordoned"
    if taint := untolerated(node.spec.taints, pod.spec.tolerations):
        return f"taint {taint.key}" + (f"={taint.value}" if taint.value else "") + " is not tolerated"
    labels = node.metadata.labels
    wrong = [f"{key}={value}" for key, value in pod.spec.node_selector.items() if labels.get(key) != value]
    return f"it has not {', '.join(wrong)}" if wrong else ""


def _whole(amounts: Mapping[str, object], resource: str) -> int:
    nanos = getattr(amounts.get(resource), "nanos", 0)
    return int(nanos) // NANO


def _by_requests(resource: str, node: str, pods: Sequence[Pod]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for pod in pods:
        if pod.spec.node_name != node or pod.status.phase in ENDED_PHASES:
            continue
        amount = next((each for name, each in one_pod(pod.spec).items() if name == resource), 0)
        if amount:
            amounts[f"{pod.metadata.namespace}/{pod.metadata.name}"] = amount
    return amounts


def _by_agent(resource: str, node: GpuNode | None) -> dict[str, int]:
    if node is None:
        return {}
    named = {uuid for uuid, offers in _units(node) if any(offer.resource == resource for offer in offers)}
    counts: dict[str, int] = {}
    for holder in node.status.holders:
        if holder.physical in named:
            counts[holder.pod_key] = counts.get(holder.pod_key, 0) + 1
    return counts


def _withheld(resource: str, node: GpuNode | None, fewer: int) -> Iterator[Withheld]:
    """The withheld devices. ``fewer``: the number of devices that the kubelet does not offer; those that no agent tells
    of are one entry.
    """
    if node is not None:
        known = withheld_by_agent(node)
        for uuid, offers in _units(node):
            advertised = sum(offer.replicas for offer in offers if offer.resource == resource)
            if advertised and uuid in known:
                fewer -= advertised
                yield known[uuid]
    if fewer > 0:
        until = "until they are: tessera doctor, on the node, says what keeps them"
        yield Withheld(device=f"{fewer} {resource}", why="the kubelet does not offer them", until=until)


def withheld_by_agent(node: GpuNode) -> dict[str, Withheld]:
    """The GPUs and instances that the node's agent gives to no new container, for their health or otherwise, by
    UUID.
    """
    why = {each.device: each.why for each in node.status.withheld}
    withheld: dict[str, Withheld] = {}
    for device in node.status.devices:
        whole = f"GPU {device.index}"
        instances = device.mig.instances if device.mig is not None else ()
        names = [(device.uuid, whole, device.health)]
        names += [(one.uuid, f"{one.profile} of {whole}", one.health or device.health) for one in instances]
        for uuid, name, health in names:
            if health is not None and not health.handed_out:
                withheld[uuid] = _ailing(name, health)
            elif reason := why.get(uuid) or why.get(device.uuid):
                withheld[uuid] = Withheld(device=name, why=reason, until="")
    return withheld


def _ailing(name: str, health: Health) -> Withheld:
    on_probation = health.state == "Probation"
    why = ", ".join(health.reasons) or ("it is on probation after a fault" if on_probation else health.state)
    until = health.until or _UNTIL.get(health.state, "its agent gives it out again")
    next_step = "" if on_probation else f": {health.unrepaired}" if health.unrepaired else f": {_NEXT}"
    return Withheld(device=name, why=why, until=f"until {until}{next_step}", since=health.since)


def _units(node: GpuNode) -> Iterator[tuple[str, tuple[Offer, ...]]]:
    """The UUID and offers of each GPU and instance."""
    for device in node.status.devices:
        yield device.uuid, device.offers
        for one in device.mig.instances if device.mig is not None else ():
            yield one.uuid, one.offers


def described(pod: Json) -> tuple[str, str, str | None]:
    """The phase, the scheduler's sentence about the pod (empty where it has none), and since when that holds."""
    status = pod.get("status") or {}
    conditions = status.get("conditions") or ()
    said: Json = next((each for each in conditions if each.get("type") == "PodScheduled"), {})
    message = str(said.get("message") or "") if said.get("status") == "False" else ""
    return str(status.get("phase") or "Pending"), message, said.get("lastTransitionTime") if message else None
