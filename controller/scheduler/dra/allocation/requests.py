"""What the claims of a pod ask of a node, with the selectors of their DeviceClasses included. Hashable: equal asks are
one object.

A claim with selectors that cannot be evaluated is not counted: ``NotCountedError`` says why. Source: KEP 4381.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from controller.objects.core import Toleration
from controller.objects.deviceclaims import (
    AskedDevices,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ResourceClaimSpec,
    expressions,
)
from controller.scheduler.dra.claims.cel import CelSyntaxError, compiled
from controller.scheduler.model.deviceclaims import ClaimKey

MOST_DEVICES: Final = 32
"""The largest number of devices of one claim."""
_ALL: Final = "All"
_NOTHING: Final = ("false",)
"""The selectors of a class that does not exist: the scheduler allocates nothing of it."""


class NotCountedError(ValueError):
    """The reason why a claim is not counted in placement, as the end of a sentence."""


class ClaimDeviceRequest(NamedTuple):
    """One request, or one alternative of a request. ``label`` is ``main`` or ``main/alternative``; ``number`` 0 means
    all devices.
    """

    label: str
    device_class: str
    selectors: tuple[str, ...]
    tolerations: tuple[Toleration, ...]
    number: int
    admin: bool
    capacity: tuple[tuple[str, int], ...]
    """Requested capacity in nano-units, by name."""


class Constraint(NamedTuple):
    """One constraint of a claim. ``requests``: names of requests (``main``) or of alternatives; empty for every
    request.
    """

    attribute: str
    distinct: bool
    requests: tuple[str, ...]

    def concerns(self, label: str) -> bool:
        return not self.requests or label in self.requests or label.partition("/")[0] in self.requests


class ClaimRequest(NamedTuple):
    """What one claim asks: for each request its alternatives, the best first."""

    requests: tuple[tuple[ClaimDeviceRequest, ...], ...]
    constraints: tuple[Constraint, ...]


class SharedClaim(NamedTuple):
    """A ResourceClaim that pods name and share. ``node``: where its devices are; empty while it has none."""

    key: ClaimKey
    asked: "PodClaimsRequest"
    node: str


class PodClaimsRequest:
    """What a pod asks through claims. ``each``: the claims that are made for every pod. ``shared``: the claims that
    pods share.

    ``ClaimRequests`` makes one object for each content, so asks are compared by identity.
    """

    def __init__(self, each: tuple[ClaimRequest, ...], shared: tuple[SharedClaim, ...] = ()) -> None:
        self.each = each
        self.shared = shared
        selectors = {text for wanted in self.wanted() for text in wanted.selectors}
        self.identifiers = _identifiers(selectors)
        """The names of attributes, without domains, that selectors may look at; None for any."""
        self.constrained = frozenset(constraint.attribute for claim in each for constraint in claim.constraints)

    def wanted(self) -> Iterator[ClaimDeviceRequest]:
        for claim in self.each:
            for request in claim.requests:
                yield from request

    def is_together(self, pods: int, leader: "PodClaimsRequest | None") -> bool:
        """Whether this many pods, with their leader if it has claims, must all be on one node, whichever it is."""
        still_open = {shared.key for shared in self.shared if not shared.node}
        led = {shared.key for shared in leader.shared} if leader is not None else set[ClaimKey]()
        return bool(still_open) and (pods > 1 or not still_open.isdisjoint(led))


def claim_request(spec: ResourceClaimSpec, classes: Mapping[str, DeviceClass]) -> ClaimRequest:
    """What a claim's spec asks. Raises NotCountedError."""
    return ClaimRequest(
        requests=tuple(_alternatives(request, classes) for request in spec.devices.requests),
        constraints=tuple(
            Constraint(
                attribute=constraint.match_attribute or constraint.distinct_attribute,
                distinct=not constraint.match_attribute,
                requests=constraint.requests,
            )
            for constraint in spec.devices.constraints
        ),
    )


def extended_claim(wanted: Iterable[tuple[str, str, int]], classes: Mapping[str, DeviceClass]) -> ClaimRequest:
    """The claim that the scheduler makes for a pod's extended resources. ``wanted``: name, class and number of devices
    of each. Raises NotCountedError.
    """
    requests = tuple(
        DeviceRequest(name=name, exactly=AskedDevices(device_class_name=device_class, count=number))
        for name, device_class, number in wanted
    )
    return claim_request(ResourceClaimSpec(devices=DeviceClaim(requests=requests)), classes)


def _alternatives(request: DeviceRequest, classes: Mapping[str, DeviceClass]) -> tuple[ClaimDeviceRequest, ...]:
    """The alternatives of a request; empty where none can be served, since no claim has more devices than
    MOST_DEVICES.
    """
    asked = [(f"{request.name}/{each.name}", each) for each in request.first_available]
    if request.exactly is not None:
        asked = [(request.name, request.exactly)]
    found = (_wanted(label, each, classes) for label, each in asked)
    return tuple(wanted for wanted in found if wanted.number <= MOST_DEVICES)


def _wanted(label: str, asked: AskedDevices, classes: Mapping[str, DeviceClass]) -> ClaimDeviceRequest:
    known = classes.get(asked.device_class_name)
    selectors = _NOTHING if known is None else (*expressions(known.spec.selectors), *asked.expressions)
    for text in selectors:
        _check(label, text)
    if asked.allocation_mode not in ("", "ExactCount", _ALL):
        raise NotCountedError(f"request {label}: allocationMode {asked.allocation_mode[:40]} is not known here")
    return ClaimDeviceRequest(
        label=label,
        device_class=asked.device_class_name,
        selectors=selectors,
        tolerations=asked.tolerations,
        number=0 if asked.allocation_mode == _ALL else max(asked.count, 1),
        admin=asked.admin_access,
        capacity=tuple(sorted((name, amount.nanos) for name, amount in asked.capacity.requests.items()))
        if asked.capacity is not None
        else (),
    )


def _check(label: str, text: str) -> None:
    try:
        unknown = compiled(text).unknown
    except CelSyntaxError as error:
        raise NotCountedError(f"request {label}: a selector is no CEL: {error}") from None
    if unknown:
        raise NotCountedError(f"request {label}: {unknown[0]} in a selector: not known here")


def _identifiers(selectors: set[str]) -> frozenset[str] | None:
    identifiers: set[str] = set()
    for text in selectors:
        named = compiled(text).attributes
        if named is None:
            return None
        identifiers |= named
    return frozenset(identifiers)
