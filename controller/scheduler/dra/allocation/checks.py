"""Checks of one node's plan. Claims that have devices already are taken as they are."""

from collections import Counter
from collections.abc import Iterator

from controller.scheduler.dra.allocation.nodeclaims import NodeClaims
from controller.scheduler.dra.allocation.offers import Offer
from controller.scheduler.dra.allocation.views import Given, Part, State


def check(node: NodeClaims, offer: Offer, state: State) -> None:
    """``state``: everything that is given away on the node. AssertionError for a device that is planned twice, and for
    more capacity or counters than there are.
    """
    users: Counter[int] = Counter()
    parts: set[Part] = set()
    for given in _planned(node):
        users[given.device] += 1
        parts |= {part for part, _ in given.parts}
    _check_devices(node, offer, users)
    given_away = dict(state.parts)
    for at, name in parts:
        if given_away[at, name] > offer.devices[at].capacity[name].value.nanos:
            raise AssertionError(f"{node.name}: {name} of {offer.devices[at].name} is overdrawn")
    _check_counters(node, offer, state, users)
    for grant in node.grants:
        if grant.assumed:
            raise AssertionError(f"{node.name}: devices were assumed for {grant.owner} and not taken back")
        if len(grant.sets) > grant.pods:
            raise AssertionError(f"{node.name}: {grant.owner} has {len(grant.sets)} sets for {grant.pods} pods")


def _planned(node: NodeClaims) -> Iterator[Given]:
    for grant in node.grants:
        for devices in (*grant.sets, *(found for _, found in grant.shared)):
            yield from (given for given in devices if not given.admin)


def _check_devices(node: NodeClaims, offer: Offer, users: Counter[int]) -> None:
    for at, times in users.items():
        if times > 1 and not offer.devices[at].allow_multiple_allocations:
            raise AssertionError(f"{node.name}: {offer.devices[at].name} is planned {times} times")


def _check_counters(node: NodeClaims, offer: Offer, state: State, users: Counter[int]) -> None:
    used: Counter[int] = Counter()
    touched: set[int] = set()
    for at, consumes in enumerate(offer.layout.consumes):
        for counter, nanos in consumes if state.devices >> at & 1 else ():
            used[counter] += nanos
            touched |= {counter} if users[at] else set()
    for counter in touched:
        if used[counter] > offer.layout.limits[counter]:
            raise AssertionError(f"{node.name}: counter {counter} is overdrawn: {used[counter]} are given away")
