"""What a pod template asks of the GPUs that its pods get: how they are linked, which product, how much memory.

The annotations are Tessera's own. A template without them asks for a number of devices and nothing else.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from controller.objects.core import PodTemplateSpec
from controller.objects.workload import Workload
from controller.scheduler.model.gpuparts import Part, asks, parts_of
from controller.scheduler.model.limitrange import LimitRangeNoFit
from controller.scheduler.model.resources import ResourceName
from inventory.api.names import (
    GPU_PERCENT_DEVICES,
    GPU_PRODUCT,
    MIN_GPU_MEMORY_GIB,
    PREFERRED_GPU_LINK,
    REQUIRED_GPU_LINK,
)
from inventory.layout.entries import PERCENT_RESOURCE
from inventory.layout.fractions import MOST_GPUS, gpus_asked
from inventory.layout.layout import PERCENTS

ANNOTATIONS: Final = (REQUIRED_GPU_LINK, PREFERRED_GPU_LINK, GPU_PRODUCT, MIN_GPU_MEMORY_GIB)

_PERCENT: Final = ResourceName(PERCENT_RESOURCE)
_MOST_GIB: Final = 65_536
_SHOWN: Final = 80
_MIB_IN_GIB: Final = 1024


class Link(StrEnum):
    """What must hold for every two of a pod's GPUs."""

    NVLINK = "nvlink"
    """The GPUs are joined by NVLink, directly or through a switch."""
    PCIE = "pcie"
    """The GPUs are below one PCIe root (host bridge)."""
    NUMA = "numa"
    """The GPUs are on one NUMA node."""


class PodDeviceRequest(NamedTuple):
    """The request of a pod beyond the number of GPUs. ``wished``: the link is preferred only. ``product`` is empty and
    ``min_memory_mib`` 0 where any will do. ``split``: for percents, the parts that must each lie on one GPU, where that
    is not the whole request; or the equal parts on several GPUs.
    """

    link: Link | None = None
    wished: bool = False
    product: str = ""
    min_memory_mib: int = 0
    split: tuple[Part, ...] = ()

    @property
    def binding(self) -> bool:
        """Whether some GPUs are not good enough: the pod must be placed by its devices."""
        return bool(self.product or self.min_memory_mib or (self.link is not None and not self.wished))

    def strict(self) -> "PodDeviceRequest":
        """The request with a preferred link as a required one."""
        return self._replace(wished=False)


ANY: Final = PodDeviceRequest()


def pod_device_request(annotations: Mapping[str, str]) -> PodDeviceRequest | None:
    """The request of these annotations; None where they ask for nothing. Invalid values are ignored here:
    ``device_problems`` refuses them.
    """
    if not annotations:
        return None
    found = [annotations.get(name) for name in ANNOTATIONS]
    if not any(found):
        return None
    required, preferred, product, memory = found
    return PodDeviceRequest(
        link=_link(required) or _link(preferred),
        wished=_link(required) is None and _link(preferred) is not None,
        product=normal(product or ""),
        min_memory_mib=_gib(memory) * _MIB_IN_GIB,
    )


def devices_of(template: PodTemplateSpec, single_pod: Mapping[ResourceName, int]) -> PodDeviceRequest | None:
    """What a pod asks of its GPUs. Percents are always placed by device, since those of a container lie on one GPU."""
    asked = pod_device_request(template.metadata.annotations)
    percents = single_pod.get(_PERCENT)
    if not percents:
        return asked
    gpus = gpus_asked(template.metadata.annotations.get(GPU_PERCENT_DEVICES)) or 1
    if gpus > 1:
        # A number that is no multiple fits nowhere: ``device_problems`` refuses it.
        each = -(-percents // gpus)
        return (asked or ANY)._replace(split=(Part(each, each, gpus),))
    parts = parts_of(template.spec, _PERCENT)
    plain = len(parts) <= 1 and all(part.size == part.step for part in parts)
    return asked or ANY if plain else (asked or ANY)._replace(split=parts)


def normal(product: str) -> str:
    """The product as in the label ``nvidia.com/gpu.product``, where NVML's spaces are dashes."""
    return "-".join(product.split())


def device_problems(workload: Workload) -> list[LimitRangeNoFit]:
    """Each annotation with a value that is not allowed, with what was found and what is expected."""
    return [
        LimitRangeNoFit(f"spec.podSets[{index}].template.metadata.annotations", (name,), said)
        for index, pod_set in enumerate(workload.spec.pod_sets)
        if pod_set.template.metadata.annotations
        for name, said in (*_problems(pod_set.template.metadata.annotations), *_split_problems(pod_set.template))
    ]


def _problems(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in (REQUIRED_GPU_LINK, PREFERRED_GPU_LINK):
        value = annotations.get(name)
        if value is not None and _link(value) is None:
            yield name, f"found {_shown(value)}, expected one of {', '.join(Link)}"
    if REQUIRED_GPU_LINK in annotations and PREFERRED_GPU_LINK in annotations:
        yield PREFERRED_GPU_LINK, f"found beside {REQUIRED_GPU_LINK}, expected one of the two"
    product = annotations.get(GPU_PRODUCT)
    if product is not None and not normal(product):
        yield GPU_PRODUCT, f"found {_shown(product)}, expected a product as in the label nvidia.com/gpu.product"
    memory = annotations.get(MIN_GPU_MEMORY_GIB)
    if memory is not None and not _gib(memory):
        yield MIN_GPU_MEMORY_GIB, f"found {_shown(memory)}, expected a whole number of GiB from 1 to {_MOST_GIB}"


def _split_problems(template: PodTemplateSpec) -> Iterator[tuple[str, str]]:
    """Problems of percents on several GPUs. One container must have all percents: what the kubelet passes on from one
    container to the next is parts of any GPU.
    """
    value = template.metadata.annotations.get(GPU_PERCENT_DEVICES)
    gpus = gpus_asked(value)
    if value is None or gpus == 1:
        return
    if gpus is None:
        yield GPU_PERCENT_DEVICES, f"found {_shown(value)}, expected a whole number from 1 to {MOST_GPUS}"
        return
    asked = [
        size
        for container in (*template.spec.init_containers, *template.spec.containers)
        if (size := asks(container, _PERCENT))
    ]
    if len(asked) != 1:
        yield GPU_PERCENT_DEVICES, f"found {len(asked)} containers with {PERCENT_RESOURCE}, expected one"
    elif asked[0] % gpus or asked[0] > PERCENTS * gpus:
        yield (
            PERCENT_RESOURCE,
            f"found {asked[0]}, expected a multiple of {gpus} up to {PERCENTS * gpus}: equal parts of {gpus} GPUs",
        )


def _link(value: str | None) -> Link | None:
    return next((link for link in Link if link == value), None)


def _gib(value: str | None) -> int:
    """GiB as a number; 0 for a value that is no number within the bounds."""
    if value is None or not value.isascii() or not value.isdigit() or len(value) > len(str(_MOST_GIB)):
        return 0
    return int(value) if int(value) <= _MOST_GIB else 0


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "...")
