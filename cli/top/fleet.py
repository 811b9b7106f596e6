"""The fleet at one moment: nodes and GPUs from GpuNodes and agents' figures, queues from ClusterQueues. Pure."""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from cli.printing.console import Json
from controller.messages.queuestate import NO_NODES, OPEN, is_nodeless, queue_state
from controller.objects.decode import GpuNode
from controller.objects.quantity import NANO, QuantityError, parse_quantity
from controller.objects.queues import ResourceFlavor
from inventory.api.gpunode import HANDED_OUT, Device
from inventory.gpustates import IN_USE, GpuState, counted, state_of

BUSY: Final = "tessera_gpu_busy_ratio"
USED: Final = "DCGM_FI_DEV_FB_USED"
POWER: Final = "DCGM_FI_DEV_POWER_USAGE"
TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"
_NAMES: Final = (BUSY, USED, POWER, TEMPERATURE)
_LINE: Final = re.compile(r"([A-Za-z_:][\w:]*)\{([^\n]*)\} (\S+)(?: \S+)?", re.ASCII)
_UUID: Final = re.compile(r'(?:^|,)UUID="([^"]*)"')
_INSTANCE: Final = re.compile(r'(?:^|,)GPU_I_ID="([^"]*)"')
_COMMON: Final = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
"""The resources that are not devices."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's figures of one GPU; None for one that it does not tell. ``busy`` is from 0 to 1."""

    busy: float | None = None
    used_mib: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


NONE: Final = Figures()


class GpuRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One GPU. ``holders`` are pods, NAMESPACE/NAME; ``state`` is the state that it counts as; ``repair`` that of its
    repair, empty for none.
    """

    node: str
    index: int
    product: str
    mode: str
    state: GpuState
    health: str
    repair: str
    reasons: tuple[str, ...]
    memory_mib: int
    used_mib: float | None
    busy: float | None
    power_w: float | None
    temperature_c: float | None
    holders: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        return self.health in HANDED_OUT


class QueueRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One ClusterQueue. ``devices``: used amount and nominal quota of all flavors, by resource."""

    name: str
    cohort: str
    state: str
    pending: int
    admitted: int
    devices: dict[str, tuple[str, str]]


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet at one moment. ``notes`` are the objects that could not be read, one line each."""

    at: str
    gpus: tuple[GpuRow, ...]
    queues: tuple[QueueRow, ...]
    notes: tuple[str, ...]


def figures(exposition: str) -> dict[str, Figures]:
    """The figures in an agent's metrics, by UUID of the GPU. Parts of one GPU are added up; busy MIG instances are
    averaged.
    """
    series: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for line in exposition.split("\n"):
        if not line.startswith(_NAMES):
            continue
        matched = _LINE.fullmatch(line)
        uuid = _UUID.search(matched[2]) if matched is not None else None
        if matched is None or uuid is None or matched[1] not in _NAMES:
            continue
        value = _number(matched[3])
        if value is not None:
            instance = _INSTANCE.search(matched[2])
            parts = series.setdefault((uuid[1], matched[1]), {})
            # A shared GPU has a series for each pod: together they are the device's value.
            key = (instance[1] if instance is not None else "", "" if matched[1] == USED else matched[2])
            parts[key] = parts.get(key, 0.0) + value
    made = {}
    for uuid_ in {uuid for uuid, _ in series}:
        busy = series.get((uuid_, BUSY))
        used = series.get((uuid_, USED))
        made[uuid_] = Figures(
            busy=min(1.0, max(0.0, sum(busy.values()) / len(busy))) if busy else None,
            used_mib=sum(used.values()) if used else None,
            power_w=_first(series.get((uuid_, POWER))),
            temperature_c=_first(series.get((uuid_, TEMPERATURE))),
        )
    return made


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _first(parts: Mapping[tuple[str, str], float] | None) -> float | None:
    return next(iter(parts.values())) if parts else None


def gpus(nodes: Iterable[GpuNode], measured: Mapping[str, Figures], away: Collection[str] = ()) -> tuple[GpuRow, ...]:
    """The rows of all GPUs, node by node, in the order of their names; ``measured`` by UUID; ``away``: names of nodes
    that take no pods.
    """
    rows: list[GpuRow] = []
    for node in sorted(nodes, key=lambda each: each.metadata.name):
        held: dict[str, set[str]] = {}
        for holder in node.status.holders:
            held.setdefault(holder.physical, set()).add(holder.pod_key)
        devices = sorted(node.status.devices, key=lambda each: each.index)
        name = node.metadata.name
        rows += [_row(name, each, held, measured.get(each.uuid, NONE), name not in away) for each in devices]
    return tuple(rows)


def _row(node: str, device: Device, held: Mapping[str, set[str]], figures_: Figures, takes_pods: bool) -> GpuRow:
    return GpuRow(
        node=node,
        index=device.index,
        product=device.product,
        mode=device.mode,
        state=state_of(device, held, takes_pods=takes_pods, busy=figures_.busy),
        health=device.health_state,
        repair=device.repair_state,
        reasons=device.health.reasons if device.health is not None else (),
        memory_mib=device.memory_mib,
        used_mib=figures_.used_mib,
        busy=figures_.busy,
        power_w=figures_.power_w,
        temperature_c=figures_.temperature_c,
        holders=tuple(sorted(set().union(*(held.get(uuid, set()) for uuid in device.uuids)))),
    )


def without_nodes(flavors: Iterable[ResourceFlavor], nodes: Collection[Mapping[str, str]]) -> frozenset[str]:
    """The names of flavors that select no node; none where no node is known. ``nodes``: the labels of each."""
    chosen = (each for each in flavors if nodes and not any(map(each.spec.selects, nodes)))
    return frozenset(flavor.metadata.name for flavor in chosen)


def queues(objects: Iterable[Json], nodeless: Collection[str] = ()) -> tuple[QueueRow, ...]:
    """The rows of all ClusterQueues. ``nodeless``: names of flavors that select no node."""
    return tuple(sorted((_queue(each, nodeless) for each in objects), key=lambda each: each.name))


def _queue(queue: Json, nodeless: Collection[str]) -> QueueRow:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    flavors = [flavor for group in spec.get("resourceGroups") or [] for flavor in group.get("flavors") or []]
    quota: dict[str, int] = {}
    for flavor in flavors:
        for resource in flavor.get("resources") or []:
            _add(quota, resource.get("name"), resource.get("nominalQuota"))
    used: dict[str, int] = {}
    for flavor in status.get("flavorsReservation") or []:
        for resource in flavor.get("resources") or []:
            _add(used, resource.get("name"), resource.get("total"))
    names = sorted({*quota, *used} - _COMMON)
    return QueueRow(
        name=str(queue["metadata"]["name"]),
        cohort=str(spec.get("cohortName") or ""),
        state=_state(spec, status, nodeless=is_nodeless((flavor.get("name") for flavor in flavors), nodeless)),
        pending=int(status.get("pendingWorkloads") or 0),
        admitted=int(status.get("admittedWorkloads") or 0),
        devices={name: (_whole(used.get(name, 0)), _whole(quota.get(name, 0))) for name in names},
    )


def _state(spec: Json, status: Json, *, nodeless: bool) -> str:
    conditions = status.get("conditions") or []
    active = next((str(each.get("status")) for each in conditions if each.get("type") == "Active"), "Unknown")
    state = queue_state(spec.get("stopPolicy") or "None", active=active != "False", nodeless=nodeless)
    return "not seen yet" if active == "Unknown" and state in (OPEN, NO_NODES) else state


def _add(totals: dict[str, int], name: object, amount: object) -> None:
    try:
        nanos = parse_quantity(amount).nanos if amount is not None else 0
    except QuantityError:
        nanos = 0
    totals[str(name)] = totals.get(str(name), 0) + nanos


def _whole(nanos: int) -> str:
    return f"{nanos / NANO:g}"


class Totals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The sums over all GPUs. ``busy``: mean over the GPUs that are measured, None where none is. ``in_use`` has the
    idle ones, too; with ``free``, ``watched`` (on probation), ``fault`` (out of service) and ``off`` (free, on a node
    that takes no pods) it makes all GPUs.
    """

    nodes: int
    gpus: int
    in_use: int
    idle: int
    free: int
    watched: int
    fault: int
    off: int
    busy: float | None


def totals(rows: Iterable[GpuRow]) -> Totals:
    every = tuple(rows)
    busy = [row.busy for row in every if row.busy is not None]
    counts = counted(row.state for row in every)
    return Totals(
        nodes=len({row.node for row in every}),
        gpus=len(every),
        in_use=sum(counts[state] for state in IN_USE),
        idle=counts[GpuState.IDLE],
        free=counts[GpuState.FREE],
        watched=counts[GpuState.WATCHED],
        fault=counts[GpuState.FAULT],
        off=counts[GpuState.OFF],
        busy=sum(busy) / len(busy) if busy else None,
    )
