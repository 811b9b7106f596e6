"""The order in which a queue's flavors are tried: by what an hour of their nodes costs, and by whether their nodes are
taken away too often (our own rules).

Where a ClusterQueue says ``tessera.dev/flavor-order: hourly-price``, its flavors are tried by the annotation
``tessera.dev/hourly-price`` of each, the cheapest first. One without a price comes last; of equals the order of the
queue's spec counts. In any queue flavors that are marked as interrupted too often come after those that are not, each
part in that order. What goes into the engine is the queue with its flavors in that order: all that looks at flavors
follows from it. None is left out, so a job that nothing else takes goes there all the same.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from controller.messages.queues import wrong_annotation
from controller.objects.queues import ClusterQueue, ResourceFlavor
from controller.scheduler.model.resources import FlavorName
from inventory.api.names import FLAVOR_ORDER, HOURLY_PRICE, INTERRUPTED_OFTEN, INTERRUPTION_RATE

BY_PRICE: Final = "hourly-price"
_PRICE: Final = re.compile(r"\d{1,7}(\.\d{1,6})?", re.ASCII)


def hourly_price(flavor: ResourceFlavor | None) -> float:
    """The price of an hour of one of its nodes; infinite where the flavor says none that can be read."""
    text = flavor.metadata.annotations.get(HOURLY_PRICE, "") if flavor is not None else ""
    return float(text) if _PRICE.fullmatch(text) else math.inf


def price_problem(annotations: Mapping[str, str]) -> str:
    """The problem of a flavor's price; empty if it has none."""
    text = annotations.get(HOURLY_PRICE)
    if text is None or _PRICE.fullmatch(text):
        return ""
    return wrong_annotation(HOURLY_PRICE, text, 'a number such as "12.5"')


def order_problem(annotations: Mapping[str, str]) -> str:
    """The problem of a ClusterQueue's order of flavors; empty if it has none."""
    text = annotations.get(FLAVOR_ORDER)
    if text is None or text == BY_PRICE:
        return ""
    return wrong_annotation(FLAVOR_ORDER, text, BY_PRICE)


def is_by_price(queue: ClusterQueue) -> bool:
    return queue.metadata.annotations.get(FLAVOR_ORDER) == BY_PRICE


def by_price(queue: ClusterQueue, flavors: Mapping[FlavorName, ResourceFlavor]) -> ClusterQueue:
    """The queue with the flavors of each group by their price, if it says so."""
    if not is_by_price(queue):
        return queue
    return _sorted(queue, lambda name: hourly_price(flavors.get(name)))


def is_interrupted_often(flavor: ResourceFlavor | None) -> bool:
    return flavor is not None and INTERRUPTED_OFTEN in flavor.metadata.annotations


def interruption_rate(flavor: ResourceFlavor | None) -> float:
    """How often a node of the flavor is taken away in a day, as its annotation says; 0 where it says nothing."""
    text = flavor.metadata.annotations.get(INTERRUPTION_RATE, "") if flavor is not None else ""
    return float(text) if _PRICE.fullmatch(text) else 0.0


def calm_first(queue: ClusterQueue, flavors: Mapping[FlavorName, ResourceFlavor]) -> ClusterQueue:
    """The queue with the flavors of each group that are interrupted too often after the others."""
    return _sorted(queue, lambda name: float(is_interrupted_often(flavors.get(name))))


def _sorted(queue: ClusterQueue, key: Callable[[FlavorName], float]) -> ClusterQueue:
    groups = tuple(
        msgspec.structs.replace(
            group, flavors=tuple(sorted(group.flavors, key=lambda each: key(FlavorName(each.name))))
        )
        for group in queue.spec.resource_groups
    )
    return msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, resource_groups=groups))
