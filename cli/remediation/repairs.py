"""The repairs of GPUs as their GpuNodes tell of them: a row for each, and what would be done about each now. Pure.

GpuNode -> rows() -> RepairRow (in repair)
GpuNode -> plans() -> PlanRow (failed, suspect, or in repair)
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from agent.health.nextsteps import next_step
from agent.health.repairstate import RepairState
from cli.remediation.budgets import NO_GUARDS, BudgetRow, Guards
from cli.words import remediation as say
from controller.objects.decode import GpuNode
from inventory.api.gpunode import RESETS_NEVER, Device, GrantEntry, OrderAnswer, RepairEntry, Step, is_granted
from inventory.api.names import NVSENTINEL_MANAGED

ORDERS: Final = ("start", "stop", "retire", "return")
DRAINING, REBOOT_WANTED, RETIRED, PROBATION = "Draining", "RebootWanted", "Retired", "Probation"
_DRAIN: Final = "drain"
_NAMED: Final = 8
"""The pods that a sentence names."""


class RepairRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One GPU in repair. ``index`` is None for a GPU that its node does not have any more. ``granted`` is the time of
    the grant that holds now. ``refused_by``: the disruption budgets that keep pods on it now.
    """

    node: str
    index: int | None
    uuid: str
    state: str
    since: datetime | None
    fault_since: datetime | None
    attempt: int
    reason: str
    cause: str
    asks: str
    granted: datetime | None
    note: str
    next: str
    refused_by: tuple[BudgetRow, ...] = ()


class PlanRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would be done now about one GPU. ``action`` is reset, drain or nothing; ``is_due`` says whether it is done
    without waiting for anything; ``says`` is the sentence with what is waited for; ``refused_by`` are the disruption
    budgets that keep some of ``holders`` there now.
    """

    node: str
    index: int | None
    uuid: str
    health: str
    reasons: tuple[str, ...]
    state: str
    action: str
    is_due: bool
    says: str
    holders: tuple[str, ...]
    refused_by: tuple[BudgetRow, ...] = ()


class BreakerRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A breaker that has tripped: repairs of the flavor's GPUs wait. ``flavor`` is NO_FLAVOR for the nodes that none
    selects.
    """

    flavor: str
    since: str | None


class FlavorBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """A ResourceFlavor. ``since``: when its breaker tripped, None while it has not."""

    name: str
    node_labels: Mapping[str, str]
    since: str | None


def find(node: GpuNode, gpu: str) -> Device | None:
    """The GPU of that index or UUID; a UUID in any case."""
    wanted = gpu.lower()
    return next((each for each in node.status.devices if wanted in (str(each.index), each.uuid.lower())), None)


def answer(node: GpuNode, uuid: str) -> OrderAnswer | None:
    """The agent's answer to the last order about the GPU."""
    return next((each for each in node.status.order_answers if each.gpu == uuid), None)


def holders(node: GpuNode, device: Device) -> tuple[str, ...]:
    """The pods that hold the GPU, one of its MIG instances, or a GPU that its reset takes along, NAMESPACE/NAME."""
    along = {gpu for repair in node.status.repairs if repair.gpu == device.uuid for gpu in repair.takes_along}
    unit = [device, *(each for each in node.status.devices if each.uuid in along)]
    mine = {uuid for each in unit for uuid in each.uuids}
    return tuple(sorted({each.pod_key for each in node.status.holders if each.physical in mine}))


def grant(node: GpuNode, repair: RepairEntry, now: datetime) -> GrantEntry | None:
    """The grant for what the repair asks now, if it has not lapsed."""
    asked = Step(repair.gpu, repair.generation, repair.asks)
    for each in node.status.remediation_grants:
        granted = Step(each.gpu, each.generation, each.action)
        if is_granted(asked, granted, each.granted.timestamp(), now.timestamp()):
            return each
    return None


def waiting_holders(node: GpuNode) -> frozenset[str]:
    """The pods, NAMESPACE/NAME, that hold GPUs which wait for their reset."""
    waiting = {each.gpu for each in node.status.repairs if each.state == DRAINING}
    return frozenset(pod for each in node.status.devices if each.uuid in waiting for pod in holders(node, each))


def _refused(node: GpuNode, device: Device | None, repair: RepairEntry | None, guards: Guards) -> tuple[BudgetRow, ...]:
    if device is None or repair is None or repair.state != DRAINING:
        return ()
    return guards.refusals(holders(node, device), drained=repair.asks == _DRAIN)


def rows(
    node: GpuNode, now: datetime, guards: Guards = NO_GUARDS, hindrances: "Hindrances | None" = None
) -> Iterator[RepairRow]:
    """The repairs of one node, by index. What the agent says of the next step does not know of ``hindrances``."""
    unmanaged = hindrances is not None and node.metadata.name in hindrances.unmanaged
    devices = {each.uuid: each for each in node.status.devices}
    indexes = {each.uuid: each.index for each in node.status.devices}
    for repair in sorted(node.status.repairs, key=lambda each: (indexes.get(each.gpu, len(indexes)), each.gpu)):
        held = grant(node, repair, now)
        yield RepairRow(
            node=node.metadata.name,
            index=indexes.get(repair.gpu),
            uuid=repair.gpu,
            state=repair.state,
            since=repair.since,
            fault_since=repair.fault_since,
            attempt=repair.attempt,
            reason=repair.reason,
            cause=repair.cause,
            asks=repair.asks,
            granted=held.granted if held is not None else None,
            note=repair.note,
            next=say.nobody_repairs(NVSENTINEL_MANAGED) if unmanaged and repair.asks and held is None else repair.next,
            refused_by=_refused(node, devices.get(repair.gpu), repair, guards),
        )


class Hindrances(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps the controller from granting anything: ``unmanaged`` nodes, by their label; ``tripped``: the flavor of
    a node whose breaker has tripped, NO_FLAVOR for the one of nodes that none selects.
    """

    unmanaged: frozenset[str] = frozenset()
    tripped: Mapping[str, str] = {}


NO_HINDRANCES: Final = Hindrances()


def plans(
    node: GpuNode, now: datetime, hindrances: Hindrances = NO_HINDRANCES, guards: Guards = NO_GUARDS
) -> Iterator[PlanRow]:
    """The GPUs of one node that are not Healthy or are in repair, by index."""
    repairs = {each.gpu: each for each in node.status.repairs}
    for device in sorted(node.status.devices, key=lambda each: each.index):
        repair = repairs.get(device.uuid)
        if repair is None and device.health_state == "Healthy":
            continue
        action, is_due, says = _planned(node, device, repair, now, hindrances)
        refused = _refused(node, device, repair, guards)
        yield PlanRow(
            node=node.metadata.name,
            index=device.index,
            uuid=device.uuid,
            health=device.health_state,
            reasons=device.health.reasons if device.health is not None else (),
            state=repair.state if repair is not None else "",
            action=action,
            is_due=is_due,
            says=". ".join((says, *map(refusal, refused))),
            holders=holders(node, device),
            refused_by=refused,
        )


def refusal(row: BudgetRow) -> str:
    """The sentence about a budget that refuses evictions now."""
    pods = _listed(row.pods)
    if not row.is_alone:
        return say.budgets_more_than_one(row.budget, pods)
    if not row.is_counted:
        return say.budget_not_counted(row.budget, pods)
    return say.budget_refuses(
        row.budget, pods, row.disruptions_allowed, len(row.pods), row.current_healthy, row.desired_healthy
    )


def _listed(pods: Sequence[str]) -> str:
    return ", ".join(pods[:_NAMED]) + (f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else "")


def _planned(
    node: GpuNode, device: Device, repair: RepairEntry | None, now: datetime, hindrances: Hindrances
) -> tuple[str, bool, str]:
    if repair is None:
        if device.health_state == PROBATION:
            return "nothing", False, say.verdict()
        if device.health is not None and not device.healthy and device.health.unrepaired:
            return "nothing", False, say.unrepaired(device.health.unrepaired)
        if device.healthy and device.health is not None and device.health.reset_due:
            return "nothing", False, say.waits_for_window(node.metadata.name, device.index)
        if device.healthy:
            return "nothing", False, say.serves()
        return "nothing", False, say.resets_never() if node.status.reset_mode == RESETS_NEVER else say.no_repair()
    if repair.state == REBOOT_WANTED:
        return "nothing", False, say.wants_reboot(repair.next or next_step(RepairState.REBOOT_WANTED))
    if repair.state == RETIRED:
        return "nothing", False, say.is_retired(node.metadata.name, device.index)
    if repair.state != DRAINING:
        return "nothing", True, say.goes_on(repair.state)
    if repair.asks and grant(node, repair, now) is None:
        if node.metadata.name in hindrances.unmanaged:
            return "nothing", False, say.nobody_repairs(NVSENTINEL_MANAGED)
        if (flavor := hindrances.tripped.get(node.metadata.name)) is not None:
            return repair.asks, False, say.breaker_tripped(flavor)
    return _drained(node, device, repair, now)


def _drained(node: GpuNode, device: Device, repair: RepairEntry, now: datetime) -> tuple[str, bool, str]:
    """The plan for a GPU that waits for its reset."""
    pods = holders(node, device)
    named = _listed(pods)
    is_granted = grant(node, repair, now) is not None
    if pods and repair.asks == _DRAIN:
        return "drain", is_granted, say.evicted(named) if is_granted else say.drain_waits_for_grant(named)
    if pods:
        return "reset", False, say.waits_for_holders(named)
    if repair.asks == "reset" and not is_granted:
        return "reset", False, say.comes_next(repair.next or next_step(RepairState.DRAINING, repair.asks))
    # The GpuNode knows of nobody; the agent also asks the kubelet and the processes, and says whom it found.
    if repair.note and not is_granted:
        return "reset", False, say.waits_as_told(repair.note)
    return "reset", True, say.reset_now()
