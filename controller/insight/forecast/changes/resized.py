"""Copies of workloads with other requests: other pod sets, fewer devices in each pod."""

from typing import Final

import msgspec

from controller.objects.core import Container, ResourceRequirements
from controller.objects.meta import Resources
from controller.objects.quantity import NANO, Quantity
from controller.objects.workload import PodSet, Workload

_DIVIDED: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources that are no devices."""
_MILLI: Final = NANO // 1000


def with_pod_set(workload: Workload, number: int, pod_set: PodSet) -> Workload:
    replace = msgspec.structs.replace
    sets = workload.spec.pod_sets
    return replace(workload, spec=replace(workload.spec, pod_sets=(*sets[:number], pod_set, *sets[number + 1 :])))


def with_devices(pod_set: PodSet, name: str, most: int, count: int) -> PodSet:
    """The pod set with at most ``count`` of a device in each container: those that ask for ``most`` are cut."""
    replace, template = msgspec.structs.replace, pod_set.template

    def cut(given: Resources) -> Resources:
        known = given.get(name)
        return {**given, name: Quantity(count * NANO)} if known is not None and known.nanos == most * NANO else given

    def fewer(container: Container) -> Container:
        resources: ResourceRequirements = container.resources
        cuts = replace(resources, requests=cut(resources.requests), limits=cut(resources.limits))
        return replace(container, resources=cuts)

    spec = replace(template.spec, containers=tuple(map(fewer, template.spec.containers)))
    return replace(pod_set, template=replace(template, spec=spec))


def devices_of(pod_set: PodSet) -> dict[str, int]:
    """The most of each device resource that one container asks for, where that is a whole number."""
    asked: dict[str, int] = {}
    for container in pod_set.template.spec.containers:
        for name, amount in {**container.resources.limits, **container.resources.requests}.items():
            if name not in _DIVIDED and amount.nanos % NANO == 0:
                asked[name] = max(asked.get(name, 0), amount.nanos // NANO)
    return asked


def least(pod_set: PodSet) -> PodSet:
    """The pod set with one pod that asks for as little of each resource as possible."""
    replace, template = msgspec.structs.replace, pod_set.template

    def cut(given: Resources) -> Resources:
        return {name: Quantity(_MILLI if name == "cpu" else NANO) for name in given}

    def smaller(container: Container) -> Container:
        resources: ResourceRequirements = container.resources
        cuts = replace(resources, requests=cut(resources.requests), limits=cut(resources.limits))
        return replace(container, resources=cuts)

    spec = replace(template.spec, containers=tuple(map(smaller, template.spec.containers)))
    return replace(pod_set, count=1, min_count=None, template=replace(template, spec=spec))


def with_count(workload: Workload, number: int, count: int) -> Workload:
    """The workload with ``count`` pods in the pod set at this index, all of them or none."""
    pod_set = workload.spec.pod_sets[number]
    return with_pod_set(workload, number, msgspec.structs.replace(pod_set, count=count, min_count=None))


def with_fewer(workload: Workload, number: int, name: str, count: int) -> Workload:
    """The workload with ``count`` of a device in those containers of the pod set at this index that ask for most
    of it.
    """
    pod_set = workload.spec.pod_sets[number]
    return with_pod_set(workload, number, with_devices(pod_set, name, devices_of(pod_set)[name], count))
