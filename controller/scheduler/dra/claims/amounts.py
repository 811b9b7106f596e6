"""What the devices of one claim count as: its requests, the classes that they name, and the mappings of these.

A mapping without sources counts devices. One with sources counts the most that any device takes that a request may get,
because it is not known yet which one it gets. Sources: KEP 2941 of Kueue, KEPs 4815 and 5075 of Kubernetes.
"""

from collections.abc import Iterable, Mapping

from controller.objects.deviceclaims import (
    Allocation,
    AskedDevices,
    CapacityPolicy,
    CapacityRange,
    DeviceClass,
    DeviceRequest,
    ResourceClaimSpec,
    expressions,
)
from controller.objects.quantity import NANO, Quantity
from controller.scheduler.dra.claims.cel import CelSyntaxError
from controller.scheduler.dra.claims.published import PublishedDevice, PublishedDevices
from controller.scheduler.model.deviceclaims import ClaimRules, DeviceClassMapping, DeviceSource, Measure
from controller.scheduler.model.resources import UNLIMITED, Amount, ResourceName
from inventory.words.catalog import plural

Amounts = dict[ResourceName, Amount]
_ALL = "All"


class ClaimProblemError(ValueError):
    """The reason why a claim cannot be counted, as the end of a sentence."""


class DeviceAmounts:
    """Computes amounts. ``classes`` by name and ``devices`` are read at each call; others write them."""

    def __init__(self, rules: ClaimRules, classes: Mapping[str, DeviceClass], devices: PublishedDevices) -> None:
        self._rules = rules
        self._classes = classes
        self._devices = devices
        self._mappings: dict[str, list[DeviceClassMapping]] = {}
        for mapping in rules.mappings:
            for name in mapping.classes:
                self._mappings.setdefault(name, []).append(mapping)

    def mappings_of(self, device_class: str) -> Iterable[DeviceClassMapping]:
        return self._mappings.get(device_class, ())

    def of_claim(self, spec: ResourceClaimSpec, allocation: Allocation | None = None) -> Amounts:
        """The sum over all requests. ``allocation``: the claim's devices, once it has some. Raises
        ClaimProblemError.
        """
        total: Amounts = {}
        for request in spec.devices.requests:
            for name, amount in self._of_request(request, allocation).items():
                total[name] = min(total.get(name, 0) + amount, UNLIMITED)
        return total

    def _of_request(self, request: DeviceRequest, allocation: Allocation | None) -> Amounts:
        allocated = _given(request, allocation) if self._rules.every_kind else {}
        if not request.first_available:
            asked = request.exactly
            if asked is None:
                raise ClaimProblemError(f"request {request.name}: expected exactly or firstAvailable, found neither")
            return self._asked(asked, request.name, allocated.get(""))
        if not self._rules.every_kind:
            raise ClaimProblemError(f"request {request.name}: firstAvailable is not supported")
        worst: Amounts = {}
        had = [asked for asked in request.first_available if asked.name in allocated]
        for asked in had or request.first_available:
            named = f"{request.name}/{asked.name}"
            for name, amount in self._asked(asked, named, allocated.get(asked.name)).items():
                worst[name] = max(worst.get(name, 0), amount)
        return worst

    def _asked(self, asked: AskedDevices, named: str, given: int | None) -> Amounts:
        """The amounts of one request or alternative. ``given``: how many devices it has, once it has some."""
        if asked.admin_access:
            return {}
        try:
            return self.of_devices(asked, _count(asked) if given is None else given)
        except ClaimProblemError as problem:
            raise ClaimProblemError(f"request {named}: {problem}") from None

    def of_devices(self, asked: AskedDevices, count: int) -> Amounts:
        """The amounts of ``count`` devices requested by ``asked``. Raises ClaimProblemError."""
        mappings = self._mappings.get(asked.device_class_name)
        if not mappings:
            name = asked.device_class_name
            raise ClaimProblemError(f"DeviceClass {name} is not mapped: resources.deviceClassMappings does not name it")
        if asked.expressions and not self._rules.every_kind:
            self._check_enough(asked, count)
        total: Amounts = {}
        for mapping in mappings:
            amount = self._most(mapping, asked) * count if mapping.sources else count
            total[mapping.resource] = min(total.get(mapping.resource, 0) + amount, UNLIMITED)
        return total

    def _check_enough(self, asked: AskedDevices, count: int) -> None:
        known = self._classes.get(asked.device_class_name)
        of_class = expressions(known.spec.selectors) if known is not None else ()
        found = len(self._matching("", (*of_class, *asked.expressions)))
        if found < count:
            matches = plural(found, "device matches", "devices match")
            raise ClaimProblemError(f"{matches} its selectors, {plural(count, 'is', 'are')} asked for")

    def _matching(self, driver: str, selectors: Iterable[str]) -> tuple[PublishedDevice, ...]:
        try:
            return self._devices.matching(driver, selectors)
        except CelSyntaxError as error:
            raise ClaimProblemError(f"a selector is no CEL: {error}") from None

    def _most(self, mapping: DeviceClassMapping, asked: AskedDevices) -> Amount:
        """The most that any of the devices takes that the request may get."""
        name = asked.device_class_name
        known = self._classes.get(name)
        if known is None:
            raise ClaimProblemError(f"there is no DeviceClass {name}")
        wanted = (*expressions(known.spec.selectors), *asked.expressions)
        taken: dict[int, int] = {}
        for source in mapping.sources:
            own = (source.selector,) if source.selector else ()
            for found in self._matching(source.driver, (*own, *wanted)):
                nanos = self._taken(found, source, asked)
                if nanos is not None:
                    taken[id(found)] = taken.get(id(found), 0) + nanos
        if not taken:
            sources = " and ".join(sorted(f"{source.measure} {source.name}" for source in mapping.sources))
            raise ClaimProblemError(f"no device of DeviceClass {name} that it may get is published with {sources}")
        return min(-(-max(*taken.values(), 0) // NANO), UNLIMITED)

    def _taken(self, found: PublishedDevice, source: DeviceSource, asked: AskedDevices) -> int | None:
        """Nano-units that the device takes of a source; None where it has none of it. A device that is not shared is
        taken whole, whatever part of it was requested; Kueue counts the part.
        """
        if source.measure is Measure.COUNTER:
            nanos = [
                consumed.counters[source.name].value.nanos
                for consumed in found.device.consumes_counters
                if source.name in consumed.counters
            ]
            return sum(nanos) if nanos else None
        names = (source.name, f"{found.driver}/{source.name}")
        capacity = next((found.device.capacity[name] for name in names if name in found.device.capacity), None)
        if capacity is None:
            return None
        requests = asked.capacity.requests if asked.capacity is not None else {}
        request = next((requests[name] for name in names if name in requests), None)
        taken = consumed_capacity(request, capacity.value, capacity.request_policy)
        whole = self._rules.every_kind and not found.device.allow_multiple_allocations
        return capacity.value.nanos if whole and taken is not None else taken


def _count(asked: AskedDevices) -> int:
    if asked.allocation_mode == _ALL:
        raise ClaimProblemError("allocationMode All is not supported, because its number of devices is not known")
    return max(asked.count, 1)


def _given(request: DeviceRequest, allocation: Allocation | None) -> dict[str, int]:
    """How many devices the request was given, by alternative; under the empty name where it has no alternatives."""
    devices_given: dict[str, int] = {}
    for result in allocation.devices.results if allocation is not None else ():
        main, _, alternative = result.request.partition("/")
        if main == request.name:
            devices_given[alternative] = devices_given.get(alternative, 0) + 1
    return devices_given


def consumed_capacity(request: Quantity | None, value: Quantity, policy: CapacityPolicy | None) -> int | None:
    """Nano-units of a device's capacity that a request takes; None where the device cannot give them. Without a request
    the policy's default is taken, else the whole capacity. A request is rounded up to the next amount that the policy
    allows.
    """
    if request is None:
        default = policy.default if policy is not None else None
        return (value if default is None else default).nanos
    nanos: int | None = request.nanos
    if policy is not None and policy.valid_values:
        nanos = min((valid.nanos for valid in policy.valid_values if valid >= request), default=None)
    elif policy is not None and policy.valid_range is not None:
        nanos = _in_range(request.nanos, policy.valid_range)
    return nanos if nanos is not None and nanos <= value.nanos else None


def _in_range(nanos: int, valid: CapacityRange) -> int | None:
    """The amount raised to the range's minimum, and from there by whole steps; None above its maximum."""
    least = valid.min.nanos if valid.min is not None else 0
    raised = max(nanos, least)
    step = valid.step.nanos if valid.step is not None else 0
    if step > 0:
        raised = least + -(-(raised - least) // step) * step
    return raised if valid.max is None or raised <= valid.max.nanos else None
