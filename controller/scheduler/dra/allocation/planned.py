"""The devices planned for pods whose claims are made after admission, named so that a selector can choose them.

A selector sees attributes, and not a device's name: a device that has no attribute of its own is left to the scheduler.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from controller.scheduler.dra.allocation.offers import Offer, attribute_of
from controller.scheduler.dra.allocation.requests import PodClaimsRequest
from controller.scheduler.dra.allocation.views import Set
from inventory.api import claimplan
from inventory.api.claimplan import ClaimPlan
from inventory.api.names import PART

_UUID: Final = "uuid"


class Planned(NamedTuple):
    """The planned devices of one pod. ``claims``: the pod's names for the claims of ``ask.each``, in their order."""

    ask: PodClaimsRequest
    offer: Offer
    devices: Set
    claims: tuple[str, ...]


def claim_plan(pods: Iterable[Planned]) -> ClaimPlan:
    """The plan of all pods together. A request is left out if it is for all devices or with admin access, or if one of
    its devices has no attribute of its own.
    """
    every = [each for pod in pods for each in _named(pod)]
    unnamed = {(claim, request) for claim, request, named in every if named is None}
    return claimplan.merged(
        (claim, request, *named)
        for claim, request, named in every
        if named is not None and (claim, request) not in unnamed
    )


def _named(pod: Planned) -> Iterator[tuple[str, str, tuple[str, str] | None]]:
    """The claim and the request of each device, and an attribute that no other device of the node has, with its value
    (None if there is none). The claim for extended resources is left out: the scheduler makes it.
    """
    for given in (given for given in pod.devices if given.claim < len(pod.claims)):
        wanted = next(each for each in _wanted(pod.ask, given.claim) if each[0] == given.label)
        named = None if given.admin or not wanted[1] else _identity(pod.offer, given.device)
        yield pod.claims[given.claim], given.label, named


def _wanted(ask: PodClaimsRequest, claim: int) -> Iterator[tuple[str, int]]:
    return ((wanted.label, wanted.number) for request in ask.each[claim].requests for wanted in request)


def _identity(offer: Offer, at: int) -> tuple[str, str] | None:
    driver = offer.drivers[at]
    for attribute in (f"{driver}/{_UUID}", PART):
        found = attribute_of(driver, offer.devices[at], attribute)
        value = found.string if found is not None else None
        if value and claimplan.sayable(attribute, value) and _is_alone(offer, at, attribute):
            return attribute, value
    return None


def _is_alone(offer: Offer, at: int, attribute: str) -> bool:
    own = attribute_of(offer.drivers[at], offer.devices[at], attribute)
    return all(
        attribute_of(driver, device, attribute) != own
        for place, (driver, device) in enumerate(zip(offer.drivers, offer.devices, strict=True))
        if place != at
    )
