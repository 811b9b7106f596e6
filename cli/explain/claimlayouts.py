"""The layout that would give out by claim what one request asks for, by the devices that each node's agent would
publish under ``mode: dra``. Pure.

Facts of a GPU that the GpuNode does not tell (its architecture, an instance's memory) cannot be selected by here: where
a selector asks for one, the layout is named with that condition.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from agent.dra.publishing.devices import DraDevice, offered
from cli.explain.claims import ClaimAsk
from cli.explain.layouts import FOLDER, Remedy, no_agent
from cli.layout.plan import seen_of
from controller.objects.decode import GpuNode, decode
from controller.objects.deviceclaims import Device, DeviceAttribute
from controller.scheduler.dra.claims.cel import CelSyntaxError, Selector, compiled
from controller.scheduler.dra.claims.published import as_seen
from inventory.api.names import CLIQUE, LINK_GROUP
from inventory.devices import GpuUuid, NodeInventory

DRIVER: Final = "gpu.nvidia.com"
"""The agents' default driver."""
_UNTOLD: Final = frozenset({"architecture", "brand", "pcieRoot", "capacity"}) | {
    name.rpartition("/")[2] for name in (LINK_GROUP, CLIQUE)
}
"""Attributes that an agent knows of its GPUs and the GpuNode does not tell."""
_IN_EXAMPLE: Final = 2
"""The number of GPUs of each node that examples/layouts/claims.yaml gives out."""
_PART: Final = Device(attributes={"type": DeviceAttribute(string="mig")})


class _Offer(NamedTuple):
    """The devices that a node would offer for the request. ``shares``: by a layout with shares."""

    node: str
    gpus: int
    devices: int
    shares: bool


def for_claim(
    ask: ClaimAsk, class_selectors: Sequence[str], nodes: Iterable[GpuNode], drivers: Iterable[str]
) -> Remedy:
    """The remedy where no node offers the devices. ``drivers``: those whose devices are published now; an agent's may
    have another name.
    """
    known = [seen_of(node.metadata.name, node.status).node for node in nodes]
    if not any(node.gpus for node in known):
        return no_agent()
    try:
        of_class = [compiled(each) for each in class_selectors]
        own = [compiled(each) for each in ask.selectors]
    except CelSyntaxError as wrong:
        return Remedy(sentence=f"A selector is no CEL: {wrong}")
    names = dict.fromkeys((DRIVER, ask.device_class, *drivers))
    fitting = _offers(known, names, [*of_class, *own])
    if fitting:
        return _enough(ask, fitting)
    roughly = _offers(known, names, of_class)
    if not roughly:
        return _no_class(ask, of_class, names)
    if all(each.attributes is not None and not each.attributes & _UNTOLD for each in own):
        return Remedy(sentence=f"No GPU here fits the selectors of request {ask.request}: {' && '.join(ask.selectors)}")
    found = _enough(ask, roughly)
    return Remedy(sentence=f"{found.sentence} where a GPU fits the request's selectors", file=found.file)


def _enough(ask: ClaimAsk, offers: list[_Offer]) -> Remedy:
    """The layout, where one node has as many devices as are asked for."""
    count = int(ask.count) if ask.count.isdigit() else 1
    best = max(offers, key=lambda each: each.devices)
    if best.shares:
        return Remedy(
            sentence=f"A layout with mode: dra and shares (on {best.node}, for one) offers it", file=_file("shares")
        )
    if best.devices < count:
        most = f"{best.node} has the most, {best.devices}"
        return Remedy(sentence=f"No node has {count} devices that DeviceClass {ask.device_class} selects: {most}")
    needed = count if best.devices == best.gpus else 1
    entry = f" and gpus: {{any: {needed}}}" if needed > _IN_EXAMPLE or best.gpus < _IN_EXAMPLE else ""
    return Remedy(sentence=f"A layout with mode: dra{entry} (on {best.node}, for one) offers it", file=_file("claims"))


def _no_class(ask: ClaimAsk, of_class: Sequence[Selector], drivers: Iterable[str]) -> Remedy:
    if any(_fits(driver, _PART, of_class) for driver in drivers):
        return Remedy(sentence=f"No GPU here can do MIG, and DeviceClass {ask.device_class} selects MIG instances")
    return Remedy(sentence=f"No GPU here fits DeviceClass {ask.device_class}, whatever the layout")


def _file(name: str) -> str:
    return f"{FOLDER}/{name}.yaml"


def _offers(nodes: Iterable[NodeInventory], drivers: Iterable[str], selectors: Sequence[Selector]) -> list[_Offer]:
    every = tuple(drivers)
    offers = []
    for node in nodes:
        for shares in (False, True):
            fitting = [each.gpu for each in _published(node, shares=shares) if _selected(each, every, selectors)]
            if fitting:
                offers.append(_Offer(str(node.name), len({*fitting}), len(fitting), shares))
                break
    return offers


def _published(node: NodeInventory, *, shares: bool) -> Iterator[DraDevice]:
    """All devices that the node would give out by claim."""
    gpus: list[GpuUuid] = [gpu.uuid for gpu in node.gpus]
    yield from offered(node, gpus, dict.fromkeys(gpus, 1) if shares else None).devices


def _selected(made: DraDevice, drivers: Iterable[str], selectors: Sequence[Selector]) -> bool:
    device = decode(made.content(), Device)
    return any(_fits(driver, device, selectors) for driver in drivers)


def _fits(driver: str, device: Device, selectors: Sequence[Selector]) -> bool:
    seen = as_seen(driver, device)
    return all(selector.matches(seen) for selector in selectors)
