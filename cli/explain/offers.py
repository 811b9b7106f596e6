"""Where a pod's GPUs could be: by node what is offered, what is free, who holds the rest and what is withheld. Pure.

By resource: a node offers what it can allocate, as kube-scheduler counts (requests of the pods that are bound to it).
By claim: a node offers the devices of its ResourceSlices that the class and the request select.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from cli.console import Json
from controller.engine.model.podrequests import one_pod
from controller.engine.model.taints import untolerated
from controller.objects.core import Node, Pod
from controller.objects.decode import GpuNode
from controller.objects.quantity import NANO
from inventory.api.gpunode import Device, Health, Offer
from inventory.api.names import PREFIX

_OURS: Final = ("nvidia.com/", PREFIX)
_OVER: Final = ("Succeeded", "Failed")
_UNTIL: Final = {
    "Probation": "until it has done well for health.probationSeconds",
    "Unhealthy": "until its fault is over: tessera node health, on the node, says what to do",
}


class Withheld(Struct, frozen=True, kw_only=True):
    """A device that is given to no new pod."""

    device: str
    why: str
    until: str


class Holding(Struct, frozen=True, kw_only=True):
    """``pod`` is NAMESPACE/NAME."""

    pod: str
    amount: str


class NodeOffer(Struct, frozen=True, kw_only=True, rename="camel"):
    """``closed``: why the pod cannot be on the node, devices aside; empty where it can."""

    node: str
    offers: int
    free: int
    holders: tuple[Holding, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    closed: str = ""


def asked(pod: Pod, gpu_nodes: Iterable[GpuNode]) -> dict[str, int]:
    """The devices that it asks for by resource: those of nodes' agents, and what is named like one."""
    known = {each.name for node in gpu_nodes for each in node.status.resources}
    found = {str(name): amount for name, amount in one_pod(pod.spec).items() if amount}
    return {name: amount for name, amount in found.items() if name in known or name.startswith(_OURS)}


def by_resource(
    resource: str, pod: Pod, nodes: Iterable[Node], gpu_nodes: Mapping[str, GpuNode], pods: Sequence[Pod] | None
) -> tuple[NodeOffer, ...]:
    """What each node that has the resource offers of it. ``pods``: of all namespaces; None where they may not be read,
    and then holders are those that agents tell of.
    """
    found = []
    for node in sorted(nodes, key=lambda each: each.metadata.name):
        capacity, offers = (_whole(each, resource) for each in (node.status.capacity, node.status.allocatable))
        if not max(capacity, offers):
            continue
        name = node.metadata.name
        told = gpu_nodes.get(name)
        held = _by_agent(resource, told) if pods is None else _by_requests(resource, name, pods)
        withheld = tuple(_withheld(resource, told)) if told is not None else ()
        if not withheld and capacity > offers:
            lacking = Withheld(device=f"{capacity - offers} of {capacity}", why="the kubelet offers fewer", until="")
            withheld = (lacking,)
        free = max(0, offers - sum(held.values()))
        holders = tuple(Holding(pod=key, amount=str(amount)) for key, amount in sorted(held.items()))
        made = NodeOffer(
            node=name, offers=offers, free=free, holders=holders, withheld=withheld, closed=closed(pod, node)
        )
        found.append(made)
    return tuple(found)


def closed(pod: Pod, node: Node) -> str:
    """As kube-scheduler's filters say it, affinities aside."""
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
    found: dict[str, int] = {}
    for pod in pods:
        if pod.spec.node_name != node or pod.status.phase in _OVER:
            continue
        amount = next((each for name, each in one_pod(pod.spec).items() if name == resource), 0)
        if amount:
            found[f"{pod.metadata.namespace}/{pod.metadata.name}"] = amount
    return found


def _by_agent(resource: str, node: GpuNode | None) -> dict[str, int]:
    if node is None:
        return {}
    named = {uuid for uuid, _, offers, _ in _units(node) if any(offer.resource == resource for offer in offers)}
    found: dict[str, int] = {}
    for holder in node.status.holders:
        if holder.physical in named:
            found[holder.pod_key] = found.get(holder.pod_key, 0) + 1
    return found


def _withheld(resource: str, node: GpuNode) -> Iterable[Withheld]:
    for _, name, offers, health in _units(node):
        if health is None or health.handed_out or not any(offer.resource == resource for offer in offers):
            continue
        why = ", ".join(health.reasons) or health.state
        yield Withheld(device=name, why=why, until=_UNTIL.get(health.state, ""))


def _units(node: GpuNode) -> Iterable[tuple[str, str, tuple[Offer, ...], Health | None]]:
    """GPUs and instances: UUID, name for people, offers, health."""
    for device in node.status.devices:
        yield device.uuid, f"GPU {device.index}", device.offers, device.health
        yield from _instances(device)


def _instances(device: Device) -> Iterable[tuple[str, str, tuple[Offer, ...], Health | None]]:
    for one in device.mig.instances if device.mig is not None else ():
        yield one.uuid, f"{one.profile} of GPU {device.index}", one.offers, one.health or device.health


def described(pod: Json) -> tuple[str, str, str | None]:
    """Phase, the scheduler's sentence about it (empty where it has none), and since when that holds."""
    status = pod.get("status") or {}
    conditions = status.get("conditions") or ()
    said: Json = next((each for each in conditions if each.get("type") == "PodScheduled"), {})
    message = str(said.get("message") or "") if said.get("status") == "False" else ""
    return str(status.get("phase") or "Pending"), message, said.get("lastTransitionTime") if message else None
