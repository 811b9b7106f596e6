"""Rows of the fleet: a node with its GPUs, their parts, and who holds them. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from controller.objects.core import Node
from controller.objects.decode import GpuNode
from controller.objects.meta import epoch_s, is_true
from controller.people.history.figures import NONE, FiguresOf
from inventory.api.gpunode import Device, HolderEntry, LinkEntry, Offer
from inventory.gpustates import state_of
from inventory.links import UNKNOWN_LINK, Link, PcieLevel

Json = dict[str, Any]
WorkloadOf = Callable[[str], str | None]
"""The Workload of a pod, both as ``namespace/name``."""
_LEVELS: Final = {level.name: level for level in PcieLevel}
_PERCENT: Final = 100


def node_row(
    name: str,
    node: Node | None,
    found: GpuNode | None,
    levels: Sequence[str],
    workload_of: WorkloadOf,
    figures: FiguresOf,
) -> Json:
    """The row of one node. ``node`` and ``found``: the Node and the GpuNode of this name, None where there is none.
    ``levels``: labels of a topology, the outermost first.
    """
    labels = node.metadata.labels if node is not None else {}
    status = found.status if found is not None else None
    seen = status is not None and status.observed_at is not None
    row: Json = {
        "name": name,
        "ready": node is not None and is_true(node.status.conditions, "Ready"),
        "cordoned": node is not None and node.spec.unschedulable,
        "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in node.spec.taints] if node else [],
        "levels": [labels.get(level, "") for level in levels],
        "agent": status.agent_version if status is not None and seen else None,
        "observed": epoch_s(status.observed_at) if status is not None and status.observed_at is not None else None,
        "driver": (status.driver.version or None) if status is not None else None,
        "problems": list(status.problems) if status is not None else [],
        "gpus": [],
        "linkGroups": [],
    }
    if status is not None:
        holders = _by_device(status.holders)
        devices = sorted(status.devices, key=lambda device: device.index)
        takes_pods = node is not None and node.takes_pods
        row["gpus"] = [_gpu(device, holders, workload_of, figures, takes_pods=takes_pods) for device in devices]
        # The links of a GPU that is out of service are down with it.
        up = (device.index for device in devices if device.healthy)
        row["linkGroups"] = list(link_groups(tuple(up), status.links))
    return row


def _by_device(entries: Sequence[HolderEntry]) -> dict[str, dict[str, int]]:
    """The holders of each GPU or MIG instance, by its UUID: pods, and how many shares of it each has."""
    by_device: dict[str, dict[str, int]] = defaultdict(dict)
    for entry in entries:
        pods = by_device[entry.physical]
        pods[entry.pod_key] = pods.get(entry.pod_key, 0) + 1
    return by_device


def _gpu(
    device: Device,
    holders: Mapping[str, Mapping[str, int]],
    workload_of: WorkloadOf,
    figures: FiguresOf,
    *,
    takes_pods: bool,
) -> Json:
    measured, health = figures.get(device.uuid, NONE), device.health
    return {
        "uuid": device.uuid,
        "index": device.index,
        "product": device.product,
        "memoryMiB": device.memory_mib,
        "mode": device.mode,
        "state": state_of(device, holders, takes_pods=takes_pods, busy=measured.busy),
        "health": health.state if health is not None else "Healthy",
        "reasons": list(health.reasons) if health is not None else [],
        "since": epoch_s(health.since) if health is not None and health.since is not None else None,
        "clique": device.clique,
        "busy": measured.busy,
        "usedMiB": measured.used_mib,
        "temperatureC": measured.temperature_c,
        "parts": list(_parts(device, holders, workload_of)),
    }


def _parts(device: Device, holders: Mapping[str, Mapping[str, int]], workload_of: WorkloadOf) -> Iterator[Json]:
    health = device.health_state
    instances = device.mig.instances if device.mig is not None and device.mig.enabled else ()
    for instance in instances:
        own = instance.health.state if instance.health is not None else health
        size = _size(instance.offers)
        yield _part(instance.profile, instance.uuid, size, own, holders.get(instance.uuid, {}), workload_of)
    if not instances or device.uuid in holders:
        size = _PERCENT if device.mode == "fractional" else _size(device.offers)
        name = "percent" if device.mode == "fractional" else "share" if size > 1 else "whole"
        yield _part(name, device.uuid, size, health, holders.get(device.uuid, {}), workload_of)


def _size(offers: Sequence[Offer]) -> int:
    return max((offer.replicas for offer in offers), default=1)


def _part(name: str, uuid: str, size: int, health: str, pods: Mapping[str, int], workload_of: WorkloadOf) -> Json:
    held = [
        {"pod": pod, "workload": workload_of(pod), "hidden": False, "takes": min(takes, size)}
        for pod, takes in sorted(pods.items())
    ]
    return {"name": name, "uuid": uuid, "size": size, "health": health, "holders": held}


# -- links -----------------------------------------------------------------------------------------------------------


def links(entries: Sequence[LinkEntry]) -> list[Json]:
    return [{"a": entry.a, "b": entry.b, "kind": _link(entry).label} for entry in entries]


@lru_cache(maxsize=256)
def link_groups(indexes: tuple[int, ...], entries: tuple[LinkEntry, ...]) -> tuple[Json, ...]:
    """``_link_groups``, cached: nodes of one model have the same links. They are found in 1.3 us and made in 45 us, for
    each of 10,000 nodes. The caller must not change the result.
    """
    return tuple(_link_groups(indexes, entries))


def _link_groups(indexes: Sequence[int], entries: Sequence[LinkEntry]) -> Iterator[Json]:
    """Sets of GPUs that all have one link to each other, the best link first; each GPU is in at most one.

    Greedy: a GPU joins the first group that it belongs to. In an irregular mesh groups are smaller than they could be.
    """
    pairs = {frozenset((entry.a, entry.b)): _link(entry) for entry in entries if entry.a != entry.b}
    left = list(indexes)
    for kind in sorted({pair.label for pair in pairs.values() if pair.score}, key=lambda label: -_score(pairs, label)):
        groups: list[list[int]] = []
        for index in left:
            fitting = (
                group
                for group in groups
                if all(pairs.get(frozenset((index, other)), UNKNOWN_LINK).label == kind for other in group)
            )
            group = next(fitting, None)
            if group is None:
                groups.append([index])
            else:
                group.append(index)
        found = [group for group in groups if len(group) > 1]
        yield from ({"kind": kind, "gpus": group} for group in found)
        left = [index for index in left if not any(index in group for group in found)]


def _score(pairs: Mapping[frozenset[int], Link], label: str) -> int:
    return max(pair.score for pair in pairs.values() if pair.label == label)


def _link(entry: LinkEntry) -> Link:
    return Link(pcie=_LEVELS.get(entry.pcie), nvlinks=entry.nvlinks, nvswitch=entry.nvswitch)
