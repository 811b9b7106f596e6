"""Pools of flavors' node templates: where no pool of the fleet stands for a flavor whose annotation says what nodes can
come, the annotation stands for a pool.

Such a pool has the flavor's name, ``max`` nodes with those that are there, and ``after`` as its delay. Its nodes are as
the live controller counts them before they are there.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from controller.insight.simulation.pools.specs import Pool, PoolFleet
from controller.objects.core import Node, is_spot
from controller.objects.meta import KubernetesObject, ObjectMeta
from controller.objects.queues import ResourceFlavor, Topology
from controller.scheduler.model.nodetemplate import NodeTemplate, NodeTemplateError, template_of, timeout_problem
from controller.scheduler.quota.prices import hourly_price, price_problem
from controller.scheduler.topology.coming import gpu_node_to_come, node_to_come, slice_to_come
from inventory.api.names import NODE_TEMPLATE


class Templated(NamedTuple):
    """The objects of a scenario with the nodes that can come, and its fleet with their pools."""

    objects: list[KubernetesObject]
    fleet: PoolFleet


def wrong_template(annotations: Mapping[str, str]) -> str:
    """The problem of a flavor's template, its price or its time; empty if it has none."""
    found = {key: value for key, value in annotations.items() if key == NODE_TEMPLATE}
    try:
        template_of(ResourceFlavor(metadata=ObjectMeta(annotations=found)))
    except NodeTemplateError as wrong:
        return f"metadata.annotations[{NODE_TEMPLATE}]{str(wrong).removeprefix(NODE_TEMPLATE)}. Correct it"
    return price_problem(annotations) or timeout_problem(annotations)


def with_templates(objects: Sequence[KubernetesObject], fleet: PoolFleet) -> Templated:
    """``objects``: those of all manifests and nodes. Templates are right here: wrong ones were refused before."""
    flavors = {each.metadata.name: each for each in objects if isinstance(each, ResourceFlavor)}
    nodes = {each.metadata.name: each for each in objects if isinstance(each, Node)}
    levels = {
        each.metadata.name: tuple(level.node_label for level in each.spec.levels)
        for each in objects
        if isinstance(each, Topology)
    }
    pools, more = list(fleet.pools), list[KubernetesObject]()
    for name, flavor in flavors.items():
        template = template_of(flavor)
        if template is None or _stood_for(flavor, fleet, nodes):
            continue
        there = sum(flavor.spec.selects(node.metadata.labels) for node in nodes.values())
        made = tuple(_made(flavor, template, levels, {*nodes}, max(0, template.most - there)))
        if not made:
            continue
        more += made
        coming = tuple(each.metadata.name for each in made if isinstance(each, Node))
        taken = {pool.name for pool in pools}
        pools.append(
            Pool(
                name=name if name not in taken else f"{name}-template",
                nodes=coming,
                delay_s=template.after_s,
                price_per_hour=price if (price := hourly_price(flavor)) < math.inf else 0.0,
                spot=is_spot({**template.labels, **flavor.spec.node_labels}),
            )
        )
    return Templated([*map(_without, objects), *more], msgspec.structs.replace(fleet, pools=tuple(pools)))


def _stood_for(flavor: ResourceFlavor, fleet: PoolFleet, nodes: dict[str, Node]) -> bool:
    """Whether nodes of some pool are of the flavor."""
    of_pools = (nodes[name] for pool in fleet.pools for name in pool.nodes[:1] if name in nodes)
    return any(flavor.spec.selects(node.metadata.labels) for node in of_pools)


def _made(
    flavor: ResourceFlavor, template: NodeTemplate, levels: dict[str, tuple[str, ...]], taken: set[str], count: int
) -> Iterator[KubernetesObject]:
    numbers: Iterable[int] = range(1, count + len(taken) + 1)
    names = [name for number in numbers if (name := f"{flavor.metadata.name}-{number}") not in taken]
    for name in names[:count]:
        yield node_to_come(flavor, template, name, levels.get(flavor.spec.topology_name or "", ()))
        if (gpu_node := gpu_node_to_come(name, template)) is not None:
            yield gpu_node
        yield from (slice_to_come(name, given) for given in template.devices)


def _without(given: KubernetesObject) -> KubernetesObject:
    """A flavor without its annotation: the engine would wait for nodes of it beside the pool."""
    if not isinstance(given, ResourceFlavor) or NODE_TEMPLATE not in given.metadata.annotations:
        return given
    left = {key: value for key, value in given.metadata.annotations.items() if key != NODE_TEMPLATE}
    return msgspec.structs.replace(given, metadata=msgspec.structs.replace(given.metadata, annotations=left))
