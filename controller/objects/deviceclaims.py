"""Dynamic Resource Allocation's objects (``resource.k8s.io/v1``), with the fields by which quota and placement count.

Configurations change no amount and are not read. Source: KEP 4381; KEP 4815 (counters), KEP 5075 (consumable capacity),
KEP 4816 (``firstAvailable``), KEP 5004 (``extendedResourceName``), KEP 5055 (taints).
"""

from typing import Final

import msgspec

from controller.objects.core import Taint, Toleration
from controller.objects.meta import Int64, KubernetesObject, Struct
from controller.objects.quantity import Quantity

RESOURCE: Final = "resource.k8s.io/v1"
Quantities = dict[str, Quantity]


class CelSelector(Struct, frozen=True, kw_only=True):
    expression: str = ""


class DeviceSelector(Struct, frozen=True, kw_only=True):
    cel: CelSelector | None = None


class CapacityRequirements(Struct, frozen=True, kw_only=True):
    requests: Quantities = msgspec.field(default_factory=dict)


class AskedDevices(Struct, frozen=True, kw_only=True):
    """The devices of one request, or of one alternative of it. ``allocation_mode`` is ExactCount (also empty) or
    All.
    """

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    """The number of devices. 0 means that it is not set: 1 under ExactCount."""
    admin_access: bool = False
    capacity: CapacityRequirements | None = None
    tolerations: tuple[Toleration, ...] = ()

    @property
    def expressions(self) -> tuple[str, ...]:
        return expressions(self.selectors)


class DeviceRequest(Struct, frozen=True, kw_only=True):
    """A request: either ``exactly``, or the best available of ``first_available``."""

    name: str = ""
    exactly: AskedDevices | None = None
    first_available: tuple[AskedDevices, ...] = ()


class DeviceConstraint(Struct, frozen=True, kw_only=True):
    """An attribute that the devices of these requests (of all if none is named) share, or in which they all differ."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class DeviceClaim(Struct, frozen=True, kw_only=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()


class ResourceClaimSpec(Struct, frozen=True, kw_only=True):
    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Struct, frozen=True, kw_only=True):
    """A device of a claim. ``request`` is ``main`` or ``main/alternative``."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    consumed_capacity: Quantities = msgspec.field(default_factory=dict)
    """Amounts by capacity, of a device that several claims share."""


class AllocatedDevices(Struct, frozen=True, kw_only=True):
    results: tuple[AllocatedDevice, ...] = ()


class Allocation(Struct, frozen=True, kw_only=True):
    devices: AllocatedDevices = AllocatedDevices()


class ResourceClaimStatus(Struct, frozen=True, kw_only=True):
    allocation: Allocation | None = None


class ResourceClaim(KubernetesObject, frozen=True, kw_only=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ClaimTemplate(Struct, frozen=True, kw_only=True):
    """The content of a template: the spec of the claims that are made of it."""

    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(KubernetesObject, frozen=True, kw_only=True):
    spec: ClaimTemplate = ClaimTemplate()


class DeviceClassSpec(Struct, frozen=True, kw_only=True):
    selectors: tuple[DeviceSelector, ...] = ()
    extended_resource_name: str = ""


class DeviceClass(KubernetesObject, frozen=True, kw_only=True):
    spec: DeviceClassSpec = DeviceClassSpec()


class ResourcePool(Struct, frozen=True, kw_only=True):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class DeviceAttribute(Struct, frozen=True, kw_only=True):
    """The value of an attribute: one of the fields is set; lists are not read."""

    int_: Int64 | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class CapacityRange(Struct, frozen=True, kw_only=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityPolicy(Struct, frozen=True, kw_only=True):
    """How a request for a part of the capacity is rounded, and how much a device without a request gets."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Struct, frozen=True, kw_only=True):
    value: Quantity = Quantity(0)
    request_policy: CapacityPolicy | None = None


class Counter(Struct, frozen=True, kw_only=True):
    value: Quantity = Quantity(0)


class CounterSet(Struct, frozen=True, kw_only=True):
    """Counters that the devices of a pool share."""

    name: str = ""
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class CounterConsumption(Struct, frozen=True, kw_only=True):
    counter_set: str = ""
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class Device(Struct, frozen=True, kw_only=True):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = msgspec.field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = msgspec.field(default_factory=dict)
    consumes_counters: tuple[CounterConsumption, ...] = ()
    allow_multiple_allocations: bool = False
    taints: tuple[Taint, ...] = ()


class ResourceSliceSpec(Struct, frozen=True, kw_only=True):
    """``node_name`` is empty if the devices are not those of one node."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(KubernetesObject, frozen=True, kw_only=True):
    spec: ResourceSliceSpec = ResourceSliceSpec()


def expressions(selectors: tuple[DeviceSelector, ...]) -> tuple[str, ...]:
    return tuple(each.cel.expression for each in selectors if each.cel is not None)


CLAIM_TYPES: Final[tuple[type[KubernetesObject], ...]] = (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
