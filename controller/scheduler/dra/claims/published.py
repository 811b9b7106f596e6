"""The devices that drivers publish, and which of them a request may get.

The slices of a pool's highest generation count, once all of them exist; a pool that names a device twice does not count
at all. The scheduler reads them by the same rules.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from controller.objects.deviceclaims import Device, DeviceAttribute, ResourceSlice
from controller.scheduler.dra.claims.cel import STEPS, STEPS_EACH, ByDomain, compiled
from controller.scheduler.dra.claims.celvalues import CelError, Semver
from controller.scheduler.model.caches import Bounded

_REMEMBERED: Final = 256


class PublishedDevice(NamedTuple):
    driver: str
    device: Device
    seen: Mapping[str, Any]
    """The device as selectors see it."""


class PublishedDevices:
    """The published devices. ``put`` and ``drop`` take slices; answers are cached until the next of these calls: 1,000
    devices are looked through in 5 ms.
    """

    def __init__(self) -> None:
        self._slices: dict[str, tuple[ResourceSlice, tuple[PublishedDevice, ...]]] = {}
        self._answers = Bounded[tuple[str, tuple[str, ...]], tuple[PublishedDevice, ...]](_REMEMBERED)

    def put(self, given: ResourceSlice) -> bool:
        """Store a slice. Returns whether its content is new."""
        known = self._slices.get(given.metadata.name)
        if known is not None and known[0].spec == given.spec:
            return False
        driver = given.spec.driver
        seen = tuple(PublishedDevice(driver, device, as_seen(driver, device)) for device in given.spec.devices)
        self._slices[given.metadata.name] = (given, seen)
        self._answers.clear()
        return True

    def drop(self, name: str) -> bool:
        self._answers.clear()
        return self._slices.pop(name, None) is not None

    def matching(self, driver: str, expressions: Iterable[str]) -> tuple[PublishedDevice, ...]:
        """Devices of ``driver`` (empty: of any driver) that all expressions select. Raises CelSyntaxError."""
        asked = (driver, tuple(expressions))
        known = self._answers.get(asked)
        if known is None:
            selectors = [compiled(expression) for expression in asked[1]]
            devices = [found for found in self._complete() if driver in ("", found.driver)]
            steps = [STEPS + STEPS_EACH * len(devices)]
            matching = (each for each in devices if all(selector.matches(each.seen, steps) for selector in selectors))
            known = self._answers.remember(asked, tuple(matching))
        return known

    def _complete(self) -> Iterator[PublishedDevice]:
        pools: dict[tuple[str, str], list[tuple[ResourceSlice, tuple[PublishedDevice, ...]]]] = {}
        for kept in self._slices.values():
            spec = kept[0].spec
            pools.setdefault((spec.driver, spec.pool.name), []).append(kept)
        for _, pool in sorted(pools.items()):
            newest = max(given.spec.pool.generation for given, _ in pool)
            slices = [kept for kept in pool if kept[0].spec.pool.generation == newest]
            names = [found.device.name for _, devices in slices for found in devices]
            whole = all(given.spec.pool.resource_slice_count == len(slices) for given, _ in slices)
            if whole and len(names) == len(set(names)):
                for _, devices in slices:
                    yield from devices


def as_seen(driver: str, device: Device) -> Mapping[str, Any]:
    """The device as selectors see it."""
    values = {name: _value(attribute) for name, attribute in device.attributes.items()}
    return {
        "driver": driver,
        "attributes": _by_domain(driver, {name: value for name, value in values.items() if value is not None}),
        "capacity": _by_domain(driver, {name: capacity.value for name, capacity in device.capacity.items()}),
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }


def _value(attribute: DeviceAttribute) -> Any:
    """The attribute's value; None for one that cannot be read, which does not exist for selectors."""
    if attribute.version is not None:
        try:
            return Semver(attribute.version)
        except CelError:
            return None
    given = (attribute.bool_, attribute.int_, attribute.string)
    return next((value for value in given if value is not None), None)


def _by_domain(driver: str, values: Mapping[str, Any]) -> ByDomain:
    """The values by domain; a name without a domain belongs to the driver's domain."""
    domains: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        domain, _, identifier = name.rpartition("/")
        domains.setdefault(domain or driver, {})[identifier] = value
    return ByDomain(domains)
