"""Why a node's devices cannot serve a pod although its CPU, memory and device counts would do."""

from collections.abc import Mapping
from enum import StrEnum

from controller.scheduler.devices.board import Board, Pool
from controller.scheduler.model.devicerequest import Link, PodDeviceRequest, normal
from controller.scheduler.model.resources import Amount, ResourceName


class DeviceNoFit(StrEnum):
    """A clause that follows a number of nodes."""

    ABSENT = "whose GPUs no agent reports"
    LABELS = "whose labels name other GPUs"
    PRODUCT = "whose GPUs are of another product"
    MEMORY = "whose GPUs have too little memory"
    UNHEALTHY = "with too few healthy GPUs"
    TAKEN = "whose GPUs of the right kind are taken"
    NVLINK = "whose free GPUs are not joined by NVLink"
    PCIE = "whose free GPUs are not below one PCIe root"
    NUMA = "whose free GPUs are not on one NUMA node"
    APART = "whose free GPUs do not go together as the pods ask"


_BY_LINK = {Link.NVLINK: DeviceNoFit.NVLINK, Link.PCIE: DeviceNoFit.PCIE, Link.NUMA: DeviceNoFit.NUMA}


def device_no_fit(
    board: Board, taken: Mapping[str, int], single_pod: Mapping[ResourceName, Amount], ask: PodDeviceRequest
) -> DeviceNoFit:
    """The first missing property, in the order in which waiting helps less: the product comes before what is taken."""
    wanted = board.wanted(single_pod)
    if not wanted:
        return DeviceNoFit.ABSENT
    return next((found for pool, size in wanted if (found := _of_pool(pool, size, taken, ask))), DeviceNoFit.APART)


def _of_pool(pool: Pool, size: int, taken: Mapping[str, int], ask: PodDeviceRequest) -> DeviceNoFit | None:
    makes = pool.kind.makes
    named = [at for at, make in enumerate(makes) if not ask.product or normal(make.product) == ask.product]
    large = [at for at in named if makes[at].memory_mib >= ask.min_memory_mib]
    for most, why in (
        (sum(makes[at].replicas for at in named), DeviceNoFit.PRODUCT),
        (sum(makes[at].replicas for at in large), DeviceNoFit.MEMORY),
        (sum(pool.full[at] for at in large), DeviceNoFit.UNHEALTHY),
    ):
        if most < size:
            return why
    free = pool.kind.open(pool.free(taken), ask)
    if sum(free) < size:
        return DeviceNoFit.TAKEN
    link = None if ask.wished else ask.link
    return _BY_LINK[link] if link is not None and not pool.kind.fitting_pods(free, size, link, ask.split) else None
