"""GPUReset objects of NVSentinel's janitor API, obeyed. Pure: the object and its node's GpuNode in, orders and a status
out.

A GPUReset becomes the order ``start`` for each of its GPUs, and its status follows what the agent makes of that: the
answer, then the repair. Which repairs have begun stands in the condition ResetJobCreated, so that a new leader knows.
Conditions are True or False as the janitor's; those of services that are stopped around a reset are True at once: none
has to be.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from controller.messages import repairs as words
from controller.messages.spans import exact
from inventory.api.gpunode import RESETS_NEVER, GpuNodeStatus, OrderAnswer, RepairEntry

Json = dict[str, Any]
START: Final = "start"
STOP: Final = "stop"
TIMEOUT_S: Final = 1500.0
"""The janitor's own: 25 minutes."""
PENDING: Final = ""
IN_PROGRESS: Final = "InProgress"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
TESSERA: Final = "Tessera"
"""The reason of our conditions: an object whose status others have begun is theirs."""
_BEGUN: Final = "ResetJobCreated"
ORDERED: Final = "Ordered"
"""The reason of a repair that began by an order, of a GPU without a fault."""
_STUCK: Final = ("RebootWanted", "Retired")
_WELL: Final = ("Healthy", "Suspect")
_MOST_GPUS: Final = 64
_LONG_BUS: Final = re.compile(r"0000([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])")


class ResetOrder(Struct, frozen=True, kw_only=True):
    """A GPUReset. ``phase`` is empty before anybody took it. ``started_s``: by its status. ``begun``: GPUs whose repair
    was seen. ``is_ours``: its status was written here, or by nobody yet.
    """

    name: str
    uid: str
    version: str
    node: str
    uuids: tuple[str, ...] = ()
    pci_bus_ids: tuple[str, ...] = ()
    phase: str = PENDING
    started_s: float = 0.0
    begun: frozenset[str] = frozenset()
    is_ours: bool = True
    is_leaving: bool = False

    @property
    def is_over(self) -> bool:
        return self.is_leaving or not self.is_ours or self.phase not in (PENDING, IN_PROGRESS)


class ResetStep(Struct, frozen=True, kw_only=True):
    """The next step of one GPUReset: GPUs to be ordered, then a status. ``note``: why it failed."""

    orders: tuple[str, ...] = ()
    phase: str = IN_PROGRESS
    begun: frozenset[str] = frozenset()
    note: str = ""

    @property
    def is_over(self) -> bool:
        return self.phase in (SUCCEEDED, FAILED)


def reset_order(given: Mapping[str, Any], started_s: float) -> ResetOrder | None:
    """The object, whose text is hostile until it is read here; None where it names no node or has no identity."""
    meta, spec, status = (_section(given, name) for name in ("metadata", "spec", "status"))
    name, uid, version = (_text(meta.get(key)) for key in ("name", "uid", "resourceVersion"))
    node, selector = _text(spec.get("nodeName")), _section(spec, "selector")
    if not (name and uid and version and node):
        return None
    conditions = [each for each in _list(status.get("conditions")) if isinstance(each, dict)]
    begun = next((_text(each.get("message"), 4096) for each in conditions if each.get("type") == _BEGUN), "")
    phase = _text(status.get("phase"))
    return ResetOrder(
        name=name,
        uid=uid,
        version=version,
        node=node,
        uuids=_texts(selector.get("uuids")),
        pci_bus_ids=_texts(selector.get("pciBusIDs")),
        phase=PENDING if phase == "Pending" and not conditions else phase,
        started_s=started_s,
        begun=frozenset(filter(None, begun.split(", "))),
        is_ours=not conditions or any(each.get("reason") == TESSERA for each in conditions),
        is_leaving=meta.get("deletionTimestamp") is not None,
    )


def step(order: ResetOrder, gpus: GpuNodeStatus | None, annotated: Sequence[str], now_s: float) -> ResetStep:
    """The next step. ``gpus``: None where there is no GpuNode of that name. ``annotated``: GPUs whose order waits."""
    wanted = meant(order, gpus) if gpus is not None else words.reset_without_agent(order.node)
    if gpus is not None and gpus.reset_mode == RESETS_NEVER:
        wanted = words.reset_never(order.node)
    if isinstance(wanted, str):
        return ResetStep(phase=FAILED, begun=order.begun, note=wanted)
    assert gpus is not None
    if order.phase == PENDING:
        return ResetStep(orders=tuple(gpu for gpu in wanted if gpu not in annotated))
    repairs = {repair.gpu: repair for repair in gpus.repairs}
    begun = order.begun | {gpu for gpu in wanted if gpu in repairs or _obeyed(order, gpu, gpus)}
    for gpu in wanted:
        note = _failure(order, gpu, gpus, repairs.get(gpu), begun, annotated)
        if note:
            return ResetStep(phase=FAILED, begun=begun, note=note)
    if all(_is_back(gpu, repairs.get(gpu), begun) for gpu in wanted):
        return ResetStep(phase=SUCCEEDED, begun=begun)
    if now_s >= order.started_s + TIMEOUT_S:
        return ResetStep(phase=FAILED, begun=begun, note=words.reset_too_long(exact(TIMEOUT_S)))
    return ResetStep(begun=begun)


def meant(order: ResetOrder, gpus: GpuNodeStatus) -> tuple[str, ...] | str:
    """The GPUs that are meant, all without a selector; or what is wrong with it."""
    by_uuid = {device.uuid for device in gpus.devices}
    by_bus = {_bus(device.pci_bus_id): device.uuid for device in gpus.devices}
    if not order.uuids and not order.pci_bus_ids:
        return tuple(device.uuid for device in gpus.devices) or words.reset_without_gpus(order.node)
    chosen: dict[str, None] = {}
    for uuid in order.uuids:
        if uuid not in by_uuid:
            return words.reset_selector("uuids", uuid[:63], order.node)
        chosen[uuid] = None
    for bus in order.pci_bus_ids:
        if _bus(bus) not in by_bus:
            return words.reset_selector("pciBusIDs", bus[:63], order.node)
        chosen[by_bus[_bus(bus)]] = None
    return tuple(chosen)


def _bus(text: str) -> str:
    """A PCI bus id in one form: NVML and nvidia-smi write its domain with eight digits, the kernel with four."""
    long = _LONG_BUS.fullmatch(text)
    return (long[1] if long is not None else text).lower()


def _failure(
    order: ResetOrder,
    gpu: str,
    gpus: GpuNodeStatus,
    repair: RepairEntry | None,
    begun: frozenset[str],
    annotated: Sequence[str],
) -> str:
    """Why the GPU is not reset; empty where it may still be."""
    if repair is not None:
        return words.reset_stuck(gpu, repair.state, repair.note) if repair.state in _STUCK else ""
    if gpu in begun or gpu in annotated:
        return ""
    answer = _answer(order, gpu, gpus)
    return words.reset_answered(gpu, answer.answer) if answer is not None else ""


def _answer(order: ResetOrder, gpu: str, gpus: GpuNodeStatus) -> OrderAnswer | None:
    """The agent's answer to the order of this object."""
    answer = next((each for each in gpus.order_answers if (each.gpu, each.order) == (gpu, START)), None)
    return None if answer is None or answer.at.timestamp() < order.started_s - 1.0 else answer


def _obeyed(order: ResetOrder, gpu: str, gpus: GpuNodeStatus) -> bool:
    """Whether the agent has begun: a repair may be over before anybody has seen it."""
    answer = _answer(order, gpu, gpus)
    return answer is not None and not answer.refused


def withdrawn(order: ResetOrder, gpus: GpuNodeStatus) -> tuple[str, ...]:
    """The GPUs whose repair this object alone has begun, and whose reset has not: nobody wants it any more once the
    object has gone. What a fault has to do with stays.
    """
    wanted = meant(order, gpus)
    well = {device.uuid for device in gpus.devices if device.health_state in _WELL}
    unbegun = {
        repair.gpu
        for repair in gpus.repairs
        if (repair.state, repair.reason, repair.attempt) == ("Draining", ORDERED, 0) and repair.gpu in well
    }
    return () if isinstance(wanted, str) else tuple(g for g in wanted if g in unbegun and _obeyed(order, g, gpus))


def _is_back(gpu: str, repair: RepairEntry | None, begun: frozenset[str]) -> bool:
    """Whether the reset is done: the GPU may still be watched in its probation."""
    return gpu in begun and (repair is None or repair.state == "Probation")


def status_of(due: ResetStep, now: str, started: str) -> Json:
    """The status as the janitor's API has it. ``now``, ``started``: RFC 3339."""
    done = due.phase == SUCCEEDED
    begun = ", ".join(sorted(due.begun)[:_MOST_GPUS])
    conditions = [
        _condition("Ready", True, "", now),
        _condition("ServicesTornDown", True, "", now),
        _condition(_BEGUN, bool(begun), begun, now),
        _condition("ResetJobCompleted", done, "", now),
        _condition("ServicesRestored", True, "", now),
        _condition("Complete", due.is_over, due.note, now),
    ]
    status: Json = {"phase": due.phase, "startTime": started, "conditions": conditions}
    return status | ({"completionTime": now} if due.is_over else {})


def _condition(type_: str, holds: bool, message: str, now: str) -> Json:
    status = "True" if holds else "False"
    return {"type": type_, "status": status, "reason": TESSERA, "message": message, "lastTransitionTime": now}


def _section(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = given.get(name)
    return found if isinstance(found, dict) else {}


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def _text(found: object, longest: int = 253) -> str:
    return found if isinstance(found, str) and len(found) <= longest else ""


def _texts(found: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for each in _list(found)[:_MOST_GPUS] if (text := _text(each))))
