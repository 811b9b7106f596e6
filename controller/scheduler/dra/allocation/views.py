"""An ask applied to one node's offer: which devices each request may get, and what they take of the offer.

Nodes whose devices look the same to the ask, whatever else their attributes say, share one view and its answers.
"""

from collections.abc import Hashable, Mapping
from typing import Final, NamedTuple

from controller.objects.deviceclaims import Device
from controller.objects.quantity import Quantity
from controller.scheduler.dra.allocation.offers import Consumed, Offer, attribute_of
from controller.scheduler.dra.allocation.requests import ClaimDeviceRequest, ClaimRequest, Constraint, PodClaimsRequest
from controller.scheduler.dra.claims.amounts import consumed_capacity
from controller.scheduler.dra.claims.cel import compiled
from controller.scheduler.dra.claims.celvalues import CelError
from controller.scheduler.dra.claims.published import as_seen
from controller.scheduler.model.caches import Bounded, Numbers
from controller.scheduler.model.taints import untolerated

Part = tuple[int, str]
"""A capacity of a device: the device's index in the offer, and the capacity's name."""
Parts = tuple[tuple[Part, int], ...]
"""Capacities with nano-units of each."""

_MOST_VIEWS: Final = 4096
_MOST_ANSWERS: Final = 1024
_MOST_SIGNATURES: Final = 16_384


class State(NamedTuple):
    """What of an offer is given away: a bit for each device, and amounts of the capacities of shared devices."""

    devices: int = 0
    parts: Parts = ()


class Given(NamedTuple):
    """One device that a claim gets: ``claim`` is the claim's index in the ask, ``device`` the device's index in the
    offer.
    """

    claim: int
    label: str
    device: int
    admin: bool
    parts: Parts


Set = tuple[Given, ...]
"""The devices of one pod."""


class Choice(NamedTuple):
    """One request, or one alternative of it. ``number`` 0: all of ``devices``, of which none may be missing."""

    label: str
    device_class: str
    number: int
    admin: bool
    devices: tuple[int, ...]
    parts: Mapping[int, Parts]
    """What the request takes of each shared device."""


class NumberedConstraint(NamedTuple):
    """A constraint with a number for each device's value of the attribute; None for a device without it."""

    constraint: Constraint
    values: tuple[int | None, ...]


class MatchedClaim(NamedTuple):
    """One claim: for each request its alternatives, the best first."""

    requests: tuple[tuple[Choice, ...], ...]
    bounds: tuple[NumberedConstraint, ...]


class View:
    """An ask applied to an offer. ``sets`` caches answers by what is given away."""

    def __init__(self, ask: PodClaimsRequest, offer: Offer) -> None:
        self.limits = offer.layout.limits
        self.consumes: tuple[Consumed, ...] = offer.layout.consumes
        self.values: dict[Part, int] = {
            (at, name): capacity.value.nanos
            for at, device in enumerate(offer.devices)
            if device.allow_multiple_allocations
            for name, capacity in device.capacity.items()
        }
        self.failing = ""
        """The class of a request whose selectors fail for a device: no pod with such a request is scheduled to the
        node.
        """
        self.each = tuple(self._matched(claim, offer) for claim in ask.each)
        self.sets: Bounded[State, tuple[Set, ...]] = Bounded(_MOST_ANSWERS)

    def _matched(self, claim: ClaimRequest, offer: Offer) -> MatchedClaim:
        return MatchedClaim(
            tuple(tuple(self._choice(wanted, offer) for wanted in request) for request in claim.requests),
            tuple(
                NumberedConstraint(constraint, _values(constraint.attribute, offer)) for constraint in claim.constraints
            ),
        )

    def _choice(self, wanted: ClaimDeviceRequest, offer: Offer) -> Choice:
        devices: list[int] = []
        parts: dict[int, Parts] = {}
        lacking = wanted.number == 0 and offer.incomplete
        for at, (driver, device) in enumerate(zip(offer.drivers, offer.devices, strict=True)):
            try:
                if not selected(wanted, driver, device):
                    continue
            except CelError:
                self.failing = self.failing or wanted.device_class
                continue
            taken = _parts(wanted, at, driver, device)
            if taken is None or untolerated(device.taints, wanted.tolerations) is not None:
                lacking = lacking or wanted.number == 0
                continue
            devices.append(at)
            if device.allow_multiple_allocations:
                parts[at] = taken
        return Choice(
            wanted.label, wanted.device_class, wanted.number, wanted.admin, () if lacking else tuple(devices), parts
        )


def selected(wanted: ClaimDeviceRequest, driver: str, device: Device) -> bool:
    """Whether all selectors select the device, those of its class first. Raises CelError."""
    seen = as_seen(driver, device)
    return all(compiled(text).decides(seen) for text in wanted.selectors)


def _parts(wanted: ClaimDeviceRequest, at: int, driver: str, device: Device) -> Parts | None:
    """What the request takes of each capacity of a shared device, empty for a device that is not shared; None where the
    device has less than that.
    """
    capacities = device.capacity
    asked = {_plain(name, driver): nanos for name, nanos in wanted.capacity}
    if not asked.keys() <= {_plain(name, driver) for name in capacities}:
        return None
    taken: list[tuple[Part, int]] = []
    for name, capacity in sorted(capacities.items()):
        nanos = asked.get(_plain(name, driver))
        request = None if nanos is None else Quantity(nanos)
        amount = consumed_capacity(request, capacity.value, capacity.request_policy)
        if amount is None:
            return None
        taken.append(((at, name), amount))
    return tuple(taken) if device.allow_multiple_allocations else ()


def _plain(name: str, driver: str) -> str:
    return name.removeprefix(f"{driver}/")


def _values(attribute: str, offer: Offer) -> tuple[int | None, ...]:
    """A number for each device's value, numbered in order of appearance; None without a value. The numbers say where
    values differ, not what they are.
    """
    known: dict[Hashable, int] = {}
    numbers = []
    for driver, device in zip(offer.drivers, offer.devices, strict=True):
        value = attribute_of(driver, device, attribute)
        numbers.append(None if value is None else known.setdefault(value, len(known)))
    return tuple(numbers)


class Views:
    """Views by what the ask sees of an offer."""

    def __init__(self) -> None:
        self._views: Bounded[tuple[int, int], tuple[PodClaimsRequest, View]] = Bounded(_MOST_VIEWS)
        """The view with its ask; the ask is kept alive so that its ``id()`` is not reused."""
        self._signatures = Numbers(_MOST_SIGNATURES)

    def of(self, ask: PodClaimsRequest, offer: Offer) -> View:
        looked_at = ask.identifiers, ask.constrained
        signature = offer.signatures.get(looked_at)
        if signature is None:
            signature = offer.signatures.remember(looked_at, self._signatures.of(_signature(ask, offer)))
        known = self._views.get((id(ask), signature))
        if known is None:
            known = self._views.remember((id(ask), signature), (ask, View(ask, offer)))
        return known[1]


def _signature(ask: PodClaimsRequest, offer: Offer) -> Hashable:
    looked_at = ask.identifiers
    attributes = tuple(
        tuple(
            (name, given)
            for name, given in sorted(device.attributes.items(), key=_name)
            if looked_at is None or name.rpartition("/")[2] in looked_at
        )
        for device in offer.devices
    )
    constrained = tuple((name, _values(name, offer)) for name in sorted(ask.constrained))
    return offer.layout.contents, attributes, constrained, offer.layout.limits, offer.incomplete


def _name(attribute: tuple[str, object]) -> str:
    return attribute[0]
