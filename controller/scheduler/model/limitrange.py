"""LimitRanges of a namespace: their defaults, and whether a workload keeps to them and to its own limits.

Several LimitRanges count together: the lowest maximum, the highest minimum, the first default of each resource.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from controller.objects.core import LimitRange, LimitRangeItem, PodSpec
from controller.objects.meta import Resources
from controller.objects.quantity import Quantity

ABOVE_LIMIT = "requests must not exceed the limits"
ABOVE_MAXIMUM = "requests must not exceed the LimitRange's max"
BELOW_MINIMUM = "requests must reach the LimitRange's min"


class LimitRangeNoFit(msgspec.Struct, frozen=True):
    """``resources`` of the template at ``path`` break ``rule``."""

    path: str
    resources: tuple[str, ...]
    rule: str

    def __str__(self) -> str:
        return f"{self.path}: {', '.join(self.resources)}: {self.rule}"


class LimitSummary:
    """The combined limits of all LimitRanges of one namespace, by item type."""

    def __init__(self, ranges: Iterable[LimitRange] = ()) -> None:
        self._items: dict[str, LimitRangeItem] = {}
        for limit_range in ranges:
            for item in limit_range.spec.limits:
                self._items[item.type] = _joined(self.of(item.type), item)

    def of(self, type_: str) -> LimitRangeItem:
        """The limits of "Container" or "Pod"; without bounds and defaults where no LimitRange names any."""
        return self._items.get(type_) or LimitRangeItem(type=type_)

    @property
    def empty(self) -> bool:
        return not self._items


def _joined(first: LimitRangeItem, second: LimitRangeItem) -> LimitRangeItem:
    return LimitRangeItem(
        type=first.type,
        max=merged(min, first.max, second.max),
        min=merged(max, first.min, second.min),
        default={**second.default, **first.default},
        default_request={**second.default_request, **first.default_request},
        max_limit_request_ratio=merged(min, first.max_limit_request_ratio, second.max_limit_request_ratio),
    )


def merged(pick: Callable[[Quantity, Quantity], Quantity], first: Resources, second: Resources) -> Resources:
    """Every resource of either side; ``pick`` chooses where both name it."""
    both = {name: pick(first[name], second[name]) for name in first.keys() & second.keys()}
    return {**first, **second, **both}


def greater(values: Mapping[str, Quantity], bounds: Mapping[str, Quantity]) -> tuple[str, ...]:
    """The resources that both sides name and of which ``values`` has more, sorted."""
    return tuple(sorted(name for name, value in values.items() if name in bounds and value > bounds[name]))


def limit_problems(spec: PodSpec, path: str) -> Iterator[LimitRangeNoFit]:
    """Where requests exceed the limits beside them: in each container, and in the pod as a whole."""
    parts = [(f"{path}.initContainers[{i}]", container.resources) for i, container in enumerate(spec.init_containers)]
    parts += [(f"{path}.containers[{i}]", container.resources) for i, container in enumerate(spec.containers)]
    if spec.resources is not None:
        parts.append((f"{path}.resources", spec.resources))
    for part, resources in parts:
        if names := greater(resources.requests, resources.limits):
            yield LimitRangeNoFit(part, names, ABOVE_LIMIT)


def range_problems(
    spec: PodSpec, path: str, *, summary: LimitSummary, pod_total: Resources
) -> Iterator[LimitRangeNoFit]:
    """Where a pod leaves the namespace's bounds; ``pod_total`` is the request of the whole pod. A container's requests
    and limits must both be within the bounds; a resource that it does not name is not checked.
    """
    item = summary.of("Container")
    parts = [(f"{path}.initContainers[{i}]", container.resources) for i, container in enumerate(spec.init_containers)]
    parts += [(f"{path}.containers[{i}]", container.resources) for i, container in enumerate(spec.containers)]
    for part, resources in parts:
        highest = merged(max, resources.requests, resources.limits)
        lowest = merged(min, resources.requests, resources.limits)
        yield from _outside(part, item, highest=highest, lowest=lowest)
    yield from _outside(path, summary.of("Pod"), highest=pod_total, lowest=pod_total)


def _outside(path: str, item: LimitRangeItem, *, highest: Resources, lowest: Resources) -> Iterator[LimitRangeNoFit]:
    if names := greater(highest, item.max):
        yield LimitRangeNoFit(path, names, ABOVE_MAXIMUM)
    if names := greater(item.min, lowest):
        yield LimitRangeNoFit(path, names, BELOW_MINIMUM)
