"""The request of one pod: a pod template after the cluster's defaults, and the sum of its containers.

``PodSpec`` -> ``defaulted`` (RuntimeClass overhead, LimitRange defaults, limits as requests) -> ``pod_requests``
(nano-units, exact) -> ``RequestRules.apply`` (excluded and transformed resources) -> whole amounts for quota.

Exact sums are rounded up once, at the end.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Literal

import msgspec

from controller.objects.alike import one_dict
from controller.objects.core import Container, LimitRangeItem, PodSpec, ResourceRequirements
from controller.objects.meta import Resources
from controller.objects.quantity import MILLI_IN_NANO, NANO, Quantity
from controller.scheduler.model.honestunits import HonestUnits
from controller.scheduler.model.limitrange import LimitRangeNoFit, LimitSummary, greater
from controller.scheduler.model.resources import CPU, UNLIMITED, Amount, ResourceName

Nanos = dict[ResourceName, int]
"""Resource -> exact amount in nano-units."""

_POD_LEVEL = ("cpu", "memory")
_POD_LEVEL_PREFIX = "hugepages-"
_NO_RANGE = LimitRangeItem()


def is_pod_level(resource: str) -> bool:
    """Whether a pod as a whole may request the resource."""
    return resource in _POD_LEVEL or resource.startswith(_POD_LEVEL_PREFIX)


def whole_amount(resource: str, nanos: int) -> Amount:
    """Nano-units in the engine's units: milli-units of cpu, whole units otherwise, rounded up, at most UNLIMITED. A
    negative amount counts as 0.
    """
    if nanos <= 0:
        return 0
    unit = MILLI_IN_NANO if resource == CPU else NANO
    return min(-(-nanos // unit), UNLIMITED)


def amount_of(resource: str, quantity: Quantity) -> Amount:
    return whole_amount(resource, quantity.nanos)


def amounts(resources: Mapping[str, Quantity]) -> dict[ResourceName, Amount]:
    return {ResourceName(name): amount_of(name, quantity) for name, quantity in resources.items()}


def pod_requests(spec: PodSpec) -> Nanos:
    """What the scheduler counts for one pod of this spec, in nano-units.

    Init containers run one after another beside the sidecars (restart policy Always) started before them, so the pod
    needs the larger of that peak and of the sum of everything that keeps running. Resources of the pod as a whole
    replace the containers' sums; overhead comes on top.
    """
    running = container_requests(spec)
    if spec.resources is not None:
        for key, quantity in spec.resources.requests.items():
            if is_pod_level(key):
                running[ResourceName(key)] = quantity.nanos
    _add(running, spec.overhead)
    return running


def container_requests(spec: PodSpec) -> Nanos:
    """The request of the containers together, whatever the pod as a whole says."""
    running: Nanos = {}
    sidecars: Nanos = {}
    peak: Nanos = {}
    for container in spec.containers:
        _add(running, container.resources.requests)
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            _add(running, container.resources.requests)
            _add(sidecars, container.resources.requests)
            needed = sidecars
        else:
            needed = dict(sidecars)
            _add(needed, container.resources.requests)
        for name, nanos in needed.items():
            peak[name] = max(peak.get(name, nanos), nanos)
    for name, nanos in peak.items():
        running[name] = max(running.get(name, nanos), nanos)
    return running


def _add(total: Nanos, resources: Mapping[str, Quantity]) -> None:
    for key, quantity in resources.items():
        name = ResourceName(key)
        total[name] = total.get(name, 0) + quantity.nanos


def defaulted(
    spec: PodSpec, *, overheads: Mapping[str, Resources], limits: LimitSummary, limits_first: bool = False
) -> PodSpec:
    """The spec of a pod made from ``spec``. ``overheads`` by RuntimeClass name, ``limits`` of its namespace.

    ``limits_first``: a limit replaces a missing request before the LimitRange's default request does, as the API server
    reads pods; otherwise after it, as Kueue does.
    """
    container_limits, pod_limits = limits.of("Container"), limits.of("Pod")

    def filled(given: ResourceRequirements, ranged: LimitRangeItem) -> ResourceRequirements:
        limited = {**ranged.default, **given.limits}
        said = given.limits if limits_first else {}
        requests = {**limited, **ranged.default_request, **said, **given.requests}
        return msgspec.structs.replace(given, limits=limited, requests=requests)

    def container(given: Container, ranged: LimitRangeItem) -> Container:
        resources = filled(given.resources, ranged)
        return given if resources == given.resources else msgspec.structs.replace(given, resources=resources)

    def with_containers(ranged: LimitRangeItem) -> PodSpec:
        return msgspec.structs.replace(
            spec,
            init_containers=tuple(container(each, ranged) for each in spec.init_containers),
            containers=tuple(container(each, ranged) for each in spec.containers),
        )

    overhead = spec.overhead
    if not overhead and spec.runtime_class_name is not None:
        overhead = overheads.get(spec.runtime_class_name, {})
    spec_of_pod, resources = with_containers(container_limits), spec.resources
    if resources is not None:
        summed = with_containers(_NO_RANGE) if limits_first else spec_of_pod
        resources = filled(_summed(resources, container_requests(summed)), pod_limits)
    return msgspec.structs.replace(spec_of_pod, resources=resources, overhead=overhead)


def _summed(given: ResourceRequirements, containers: Nanos) -> ResourceRequirements:
    """The resources of a pod as a whole. Where they have a limit and no request, the sum over the containers becomes
    the request. A limit of huge pages becomes their request, whatever the containers request. Source: KEP 2837,
    ``defaultPodRequests``.
    """
    summed = {
        name: Quantity(containers[ResourceName(name)])
        for name in given.limits
        if name in _POD_LEVEL and ResourceName(name) in containers
    }
    return msgspec.structs.replace(given, requests={**summed, **given.requests}) if summed else given


BELOW_CONTAINERS = "requests must reach what the containers request together"
NOT_POD_LEVEL = "a pod as a whole may ask for cpu, memory and hugepages alone"
ABOVE_POD_LIMIT = "limits must not exceed the pod's"


def pod_problems(spec: PodSpec, path: str) -> Iterator[LimitRangeNoFit]:
    """Where the resources of a pod as a whole contradict those of its containers: the API server refuses such a pod.
    Source: KEP 2837, ``validatePodResources``.
    """
    if spec.resources is None:
        return
    others = {*spec.resources.requests, *spec.resources.limits}
    if names := tuple(sorted(name for name in others if not is_pod_level(name))):
        yield LimitRangeNoFit(f"{path}.resources", names, NOT_POD_LEVEL)
    together = {str(name): Quantity(nanos) for name, nanos in container_requests(spec).items() if is_pod_level(name)}
    if names := greater(together, spec.resources.requests):
        yield LimitRangeNoFit(f"{path}.resources", names, BELOW_CONTAINERS)
    highest = {name: limit for name, limit in spec.resources.limits.items() if is_pod_level(name)}
    for index, container in enumerate(spec.containers):
        if names := greater(container.resources.limits, highest):
            yield LimitRangeNoFit(f"{path}.containers[{index}]", names, ABOVE_POD_LIMIT)


def one_pod(spec: PodSpec) -> Mapping[ResourceName, Amount]:
    """What one pod takes on its node, whatever quota counts of it. A limit replaces a missing request: the API server
    does that to pods, and a workload that holds quota comes as its owner wrote it.
    """
    every = (*spec.containers, *spec.init_containers)
    if any(name not in part.resources.requests for part in every for name in part.resources.limits) or spec.resources:
        spec = defaulted(spec, overheads={}, limits=LimitSummary())
    return one_dict({name: whole_amount(name, nanos) for name, nanos in pod_requests(spec).items()})


class Transformation(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the configuration's ``resources.transformations``. Each unit of ``input`` (times the amount of
    ``multiply_by`` where the pod requests that too) counts as ``outputs``; Replace drops the input itself.
    """

    input: str
    strategy: Literal["Retain", "Replace"] = "Retain"
    multiply_by: str = ""
    outputs: Mapping[str, Quantity]


class RequestRules:
    """How requests are counted against quota: which resources are left out, and which count as something else. A
    transformation of a GPU resource replaces its honest units.
    """

    def __init__(
        self,
        *,
        exclude_prefixes: Iterable[str] = (),
        transformations: Iterable[Transformation] = (),
        units: HonestUnits | None = None,
    ) -> None:
        self._excluded = tuple(exclude_prefixes)
        self._transformations = {rule.input: rule for rule in transformations}
        self._units = units

    @property
    def rewritten(self) -> tuple[str, ...]:
        """The resources that are not charged as pods request them: prefixes of names that are left out, and the inputs
        and outputs of transformations.
        """
        put_out = {name for rule in self._transformations.values() for name in rule.outputs}
        return (*self._excluded, *sorted({*self._transformations, *put_out}))

    def apply(self, requests: Nanos) -> dict[ResourceName, Amount]:
        """The amounts that one pod is charged.

        Outputs are summed over all inputs, negative outputs being an allowance. A sum below 0 counts as 0 and is then
        added to what the pod requests under that name itself: an allowance lowers no direct request.
        """
        counted = {name: nanos for name, nanos in requests.items() if not name.startswith(self._excluded)}
        if self._units is None and not any(name in self._transformations for name in counted):
            return {name: whole_amount(name, nanos) for name, nanos in counted.items()}
        direct: Nanos = {}
        put_out: dict[ResourceName, Fraction] = {}
        for name, nanos in counted.items():
            rule = self._transformations.get(name)
            if rule is None or rule.strategy == "Retain":
                direct[name] = max(nanos, 0)
            if rule is None:
                for unit, worth in self._units.of(name).items() if self._units is not None else ():
                    put_out[unit] = put_out.get(unit, Fraction(0)) + Fraction(nanos, NANO) * worth
                continue
            inputs = Fraction(nanos, NANO)
            multiplier = counted.get(ResourceName(rule.multiply_by))
            if multiplier is not None:
                inputs *= Fraction(multiplier, NANO)
            for key, factor in rule.outputs.items():
                output = ResourceName(key)
                put_out[output] = put_out.get(output, Fraction(0)) + inputs * factor.fraction
        for name, amount in put_out.items():
            direct[name] = direct.get(name, 0) + max(-(-(amount.numerator * NANO) // amount.denominator), 0)
        return {name: whole_amount(name, nanos) for name, nanos in direct.items()}


def scaled(requests: Mapping[ResourceName, Amount], count: int) -> dict[ResourceName, Amount]:
    """The amounts of ``count`` pods."""
    return {name: min(amount * count, UNLIMITED) for name, amount in requests.items()}


def added(requests: Mapping[ResourceName, Amount], more: Mapping[ResourceName, Amount]) -> dict[ResourceName, Amount]:
    """The amounts of both together, by resource."""
    total = dict(requests)
    for name, amount in more.items():
        total[name] = min(total.get(name, 0) + amount, UNLIMITED)
    return total
