"""Says why a pod's claims find no devices on nodes on which it fits otherwise: how many devices of which class are
missing.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from controller.scheduler.dra.allocation.claimsupply import ClaimSupply
from controller.scheduler.dra.allocation.requests import PodClaimsRequest
from controller.scheduler.dra.allocation.views import State, View
from inventory.words.catalog import plural


class ClaimNoFit(NamedTuple):
    """The reason on one node: the pod asks for ``wanted`` devices of a class and fewer are free. ``wanted`` 0: the
    class's selectors fail there. An empty class: enough devices of each class are free, and they do not fit together.
    """

    device_class: str
    wanted: int


TOGETHER = ClaimNoFit("", 0)


def no_fit_sentence(
    supply: ClaimSupply, nodes: Iterable[tuple[str, PodClaimsRequest]], open_: int, *, empty: bool
) -> str:
    """The part of a sentence about the nodes where only claims find nothing; empty where there are no such nodes.
    ``nodes``: those on which a pod fits otherwise, with what the pod asks there through claims; ``open_``: how many
    nodes are open to the pods.
    """
    nodes_by_reason: Counter[ClaimNoFit] = Counter()
    most: dict[ClaimNoFit, int] = {}
    elsewhere: Counter[str] = Counter()
    for node, ask in nodes:
        if supply.fitting_pods(node, ask, empty=empty):
            continue
        away = next((shared for shared in ask.shared if shared.node not in ("", node)), None)
        if away is not None:
            elsewhere[f"{away.key} has its devices on {away.node}"] += 1
            continue
        no_fit, free = _no_fit(supply, ask, node, empty=empty)
        nodes_by_reason[no_fit] += 1
        most[no_fit] = max(most.get(no_fit, 0), free or 0)
    number = sum(nodes_by_reason.values()) + sum(elsewhere.values())
    if not number:
        return ""
    told = [_told(no_fit, most[no_fit], nodes_) for no_fit, nodes_ in nodes_by_reason.most_common()]
    told += [f"ResourceClaim {why}" for why in elsewhere]
    return f"; their claims find no devices on {number} of {plural(open_, 'open node')}: {', '.join(told)}"


def _no_fit(supply: ClaimSupply, ask: PodClaimsRequest, node: str, *, empty: bool) -> tuple[ClaimNoFit, int | None]:
    """The reason on one node, and how many devices of the class are free; None where their number does not matter."""
    state = supply.state(node, empty=empty)
    for asked in (ask, *(shared.asked for shared in ask.shared if not shared.node)):
        view = supply.view(asked, node)
        if view.failing:
            return ClaimNoFit(view.failing, 0), None
        for device_class, wanted in _wanted(view).items():
            free = _free(view, device_class, state)
            if free < wanted:
                return ClaimNoFit(device_class, wanted), free
    return TOGETHER, None


def _wanted(view: View) -> Counter[str]:
    """The number of devices wanted of each class, by the first alternative of each request; a request for all devices
    counts as one.
    """
    wanted: Counter[str] = Counter()
    for matched in view.each:
        for request in matched.requests:
            if request and not request[0].admin:
                wanted[request[0].device_class] += max(request[0].number, 1)
    return wanted


def _free(view: View, device_class: str, state: State) -> int:
    devices = {
        device
        for matched in view.each
        for request in matched.requests
        for choice in request
        if choice.device_class == device_class
        for device in choice.devices
        if device in choice.parts or not state.devices >> device & 1
    }
    return len(devices)


def _told(no_fit: ClaimNoFit, free: int, nodes: int) -> str:
    if no_fit == TOGETHER:
        return f"on {nodes} those that are free do not go together as they ask"
    if not no_fit.wanted:
        return f"on {nodes} the selectors of class {no_fit.device_class} fail for a device"
    return f"{nodes} with at most {free} of the {no_fit.wanted} of class {no_fit.device_class} that a pod needs"
