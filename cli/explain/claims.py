"""The nodes where the devices of a pod's ResourceClaims could be: the devices that class and request select. Pure.

A device is free if no claim has it, or by its counters a part of it (KEP 4815). A device that several claims share is
free if enough of the requested capacity is left (KEP 5075). A tainted one is withheld (KEP 5055).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cli.explain.offers import Holding, NodeOffer, Withheld, withheld_by_agent
from cli.printing.console import Json
from controller.objects.core import Taint
from controller.objects.decode import GpuNode, decode
from controller.objects.deviceclaims import (
    AskedDevices,
    Device,
    DeviceClass,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceSlice,
    expressions,
)
from controller.scheduler.dra.claims.cel import CelSyntaxError, Selector, compiled
from controller.scheduler.dra.claims.published import as_seen
from controller.scheduler.model.taints import untolerated

DeviceName = tuple[str, str, str]
"""The driver, pool and name of a device."""
_ALL: Final = "All"


class World(Struct, frozen=True, kw_only=True):
    """The readable objects of Dynamic Resource Allocation. ``claims`` as the API server has them, of all namespaces as
    far as they may be read; ``templates`` of the pod's namespace. ``agents``: the GpuNodes.
    """

    classes: Mapping[str, DeviceClass] = {}
    slices: tuple[ResourceSlice, ...] = ()
    claims: tuple[Json, ...] = ()
    templates: Mapping[str, ResourceClaimTemplate] = {}
    agents: tuple[GpuNode, ...] = ()


class ClaimAsk(Struct, frozen=True, kw_only=True, rename="camel"):
    """One alternative of one request of a claim. ``selectors`` are its own, beside those of its class. ``problem``: why
    no node can be judged, else empty.
    """

    claim: str
    state: str
    request: str
    device_class: str
    count: str
    selectors: tuple[str, ...] = ()
    nodes: tuple[NodeOffer, ...] = ()
    problem: str = ""


def asked(pod: Json, world: World) -> tuple[ClaimAsk, ...]:
    space, asks = str(pod["metadata"].get("namespace")), list[ClaimAsk]()
    made = {
        str(each.get("name")): str(each.get("resourceClaimName") or "")
        for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    claims = {(each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in world.claims}
    for named in (pod.get("spec") or {}).get("resourceClaims") or ():
        name = str(named.get("resourceClaimName") or made.get(str(named.get("name"))) or "")
        template = str(named.get("resourceClaimTemplateName") or "")
        claim = claims.get((space, name))
        shown = f"claim {name}" if name else f"a claim of template {template}"
        if claim is not None:
            typed = decode(claim, ResourceClaim)
            asks += _of_spec(shown, _state(claim), typed.spec, world)
        elif template in world.templates:
            asks += _of_spec(shown, "not made yet", world.templates[template].spec.spec, world)
        else:
            what = f"there is no ResourceClaimTemplate {template}" if template else f"there is no ResourceClaim {name}"
            asks.append(ClaimAsk(claim=shown, state="missing", request="", device_class="", count="", problem=what))
    return tuple(asks)


def _state(claim: Json) -> str:
    return "allocated" if (claim.get("status") or {}).get("allocation") else "pending"


def _of_spec(claim: str, state: str, spec: ResourceClaimSpec, world: World) -> Iterator[ClaimAsk]:
    for request in spec.devices.requests:
        for one in (request.exactly, *request.first_available):
            if one is None:
                continue
            count = "all" if one.allocation_mode == _ALL else str(one.count or 1)
            name = f"{request.name}/{one.name}" if one.name else request.name
            nodes, problem = _nodes(one, world)
            yield ClaimAsk(
                claim=claim,
                state=state,
                request=name,
                device_class=one.device_class_name,
                count=count,
                selectors=one.expressions,
                nodes=nodes,
                problem=problem,
            )


def _nodes(one: AskedDevices, world: World) -> tuple[tuple[NodeOffer, ...], str]:
    known = world.classes.get(one.device_class_name)
    if known is None:
        return (), f"there is no DeviceClass {one.device_class_name}"
    try:
        selectors = [compiled(each) for each in (*expressions(known.spec.selectors), *one.expressions)]
    except CelSyntaxError as wrong:
        return (), f"a selector is no CEL: {wrong}"
    held = _held(world)
    by_agent = {uuid: why for each in world.agents for uuid, why in withheld_by_agent(each).items()}
    taken = _Taken(held, _spent(world, held), by_agent)
    by_place: dict[str, list[tuple[DeviceName, Device]]] = {}
    for published in _newest(world.slices):
        where = published.spec.node_name or f"pool {published.spec.pool.name}"
        for device in published.spec.devices:
            if _selected(published.spec.driver, device, selectors):
                key = (published.spec.driver, published.spec.pool.name, device.name)
                by_place.setdefault(where, []).append((key, device))
    return tuple(_offer(where, one, by_place[where], taken) for where in sorted(by_place)), ""


def _offer(
    where: str,
    one: AskedDevices,
    devices: list[tuple[DeviceName, Device]],
    taken: "_Taken",
) -> NodeOffer:
    withheld, holders, free = list[Withheld](), dict[str, int](), 0
    for key, device in devices:
        for pod, _ in taken.held.get(key, ()):
            holders[pod] = holders.get(pod, 0) + 1
        taint = untolerated(device.taints, one.tolerations)
        if taint is not None:
            withheld.append(_tainted(device, taint, taken.withheld))
        elif _is_free(key, device, one, taken.held, taken.spent):
            free += 1
    shown = tuple(Holding(pod=pod, amount=str(count)) for pod, count in sorted(holders.items()))
    return NodeOffer(node=where, offers=len(devices), free=free, holders=shown, withheld=tuple(withheld))


def _tainted(device: Device, taint: Taint, by_agent: Mapping[str, Withheld]) -> Withheld:
    """The entry of a tainted device, by what the node's agent tells of its GPU, where it does."""
    given = (device.attributes.get(name) for name in ("uuid", "parentUUID"))
    uuids = [each.string or "" for each in given if each is not None]
    known = next((by_agent[uuid] for uuid in uuids if uuid in by_agent), None)
    if known is not None:
        return replace(known, device=f"{device.name} ({known.device})")
    why = taint.key + (f"={taint.value}" if taint.value else "")
    return Withheld(device=device.name, why=f"taint {why}", until="until the taint is gone")


_Spent = Mapping[tuple[str, str, str, str], int]
"""The rest of each counter, in nanos, by driver, pool, counter set and counter."""


class _Taken(NamedTuple):
    """The devices that claims hold, the rest of each counter, and the devices that agents withhold, by UUID."""

    held: Mapping[DeviceName, list[tuple[str, Mapping[str, int]]]]
    spent: _Spent
    withheld: Mapping[str, Withheld]


def _is_free(
    key: DeviceName,
    device: Device,
    one: AskedDevices,
    held: Mapping[DeviceName, list[tuple[str, Mapping[str, int]]]],
    left: _Spent,
) -> bool:
    if device.allow_multiple_allocations:
        wanted = one.capacity.requests if one.capacity is not None else {}
        taken = [amounts for _, amounts in held.get(key, ())]
        return all(
            name in device.capacity
            and device.capacity[name].value.nanos - sum(each.get(name, 0) for each in taken) >= amount.nanos
            for name, amount in wanted.items()
        )
    if key in held:
        return False
    return all(
        left.get((key[0], key[1], use.counter_set, name), 0) >= counter.value.nanos
        for use in device.consumes_counters
        for name, counter in use.counters.items()
    )


def _selected(driver: str, device: Device, selectors: Iterable[Selector]) -> bool:
    seen = as_seen(driver, device)
    return all(selector.matches(seen) for selector in selectors)


def _held(world: World) -> dict[DeviceName, list[tuple[str, Mapping[str, int]]]]:
    """The pods that have each device (the claim where no pod does), and their part of its capacity."""
    holders: dict[DeviceName, list[tuple[str, Mapping[str, int]]]] = {}
    for claim in world.claims:
        meta, status = claim["metadata"], claim.get("status") or {}
        pods = [str(each.get("name")) for each in status.get("reservedFor") or () if each.get("resource") == "pods"]
        who = f"{meta.get('namespace')}/{pods[0] if pods else 'claim ' + str(meta['name'])}"
        allocation = decode(claim, ResourceClaim).status.allocation
        for given in allocation.devices.results if allocation is not None else ():
            if not given.admin_access:
                taken = {name: amount.nanos for name, amount in given.consumed_capacity.items()}
                holders.setdefault((given.driver, given.pool, given.device), []).append((who, taken))
    return holders


def _spent(world: World, held: Mapping[DeviceName, object]) -> _Spent:
    left: dict[tuple[str, str, str, str], int] = {}
    newest = list(_newest(world.slices))
    for each in newest:
        for pool_set in each.spec.shared_counters:
            for name, counter in pool_set.counters.items():
                left[each.spec.driver, each.spec.pool.name, pool_set.name, name] = counter.value.nanos
    for each in newest:
        driver, pool = each.spec.driver, each.spec.pool.name
        for device in each.spec.devices:
            if (driver, pool, device.name) not in held:
                continue
            for use in device.consumes_counters:
                for name, counter in use.counters.items():
                    left[driver, pool, use.counter_set, name] = (
                        left.get((driver, pool, use.counter_set, name), 0) - counter.value.nanos
                    )
    return left


def _newest(slices: Iterable[ResourceSlice]) -> Iterator[ResourceSlice]:
    """The slices of each pool's newest generation."""
    every = tuple(slices)
    newest: dict[tuple[str, str], int] = {}
    for each in every:
        pool = (each.spec.driver, each.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), each.spec.pool.generation)
    for each in every:
        if each.spec.pool.generation == newest[each.spec.driver, each.spec.pool.name]:
            yield each
