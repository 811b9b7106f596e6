"""The words of Nodes about repairs: taint and condition where a reboot is wanted, conditions whose writer is away.

Pure: taints and conditions in, as JSON, and the lists that should stand there out; None where they stand. Others'
taints, a person's cordon, and a condition MaintenancePlanned that others have set are left as they are.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from controller.messages import repairs as words
from inventory.api.names import GPU_READY, GPUS_HEALTHY, MAINTENANCE_PLANNED, REPAIR_PLANNED, REPAIR_TAINT

Json = dict[str, Any]
PLANNED: Final = REPAIR_PLANNED
OVER: Final = "GpuRepairOver"
"""The reasons of our condition MaintenancePlanned, by which it is known as ours."""
AWAY: Final = "AgentAway"
"""The reason of the agent's conditions where their writer is away."""
_OF_THE_AGENT: Final = (GPU_READY, GPUS_HEALTHY)
_NO_SCHEDULE: Final = "NoSchedule"
_LONGEST_NAME: Final = 253


def taints_due(taints: Sequence[Json], *, wanted: bool) -> list[Json] | None:
    """The taints of the Node with ours, or without it."""
    ours = [taint for taint in taints if taint.get("key") == REPAIR_TAINT]
    if bool(ours) == wanted:
        return None
    others = [taint for taint in taints if taint.get("key") != REPAIR_TAINT]
    return [*others, {"key": REPAIR_TAINT, "effect": _NO_SCHEDULE}] if wanted else others


def conditions_due(conditions: Sequence[Json], *, planned: str, away: str, now: str) -> list[Json] | None:
    """The conditions of the Node. ``planned``: the message of MaintenancePlanned, empty where no reboot is wanted.
    ``away``: why the agent's conditions are not known, empty where it is there. ``now``: RFC 3339.
    """
    by_type = {str(condition.get("type")): condition for condition in conditions}
    changed: Json = {}
    ours = by_type.get(MAINTENANCE_PLANNED)
    if planned and not _is_true_by_others(ours):
        changed |= _changed(ours, MAINTENANCE_PLANNED, "True", PLANNED, planned, now)
    elif not planned and ours is not None and (ours.get("status"), ours.get("reason")) == ("True", PLANNED):
        changed |= _changed(ours, MAINTENANCE_PLANNED, "False", OVER, words.reboot_over(), now)
    for type_ in _OF_THE_AGENT if away else ():
        if type_ in by_type:
            changed |= _changed(by_type[type_], type_, "Unknown", AWAY, away, now)
    return list({**by_type, **changed}.values()) if changed else None


def _is_true_by_others(condition: Json | None) -> bool:
    return condition is not None and condition.get("status") == "True" and condition.get("reason") != PLANNED


def _changed(before: Json | None, type_: str, status: str, reason: str, message: str, now: str) -> Mapping[str, Json]:
    """The condition by its type; empty where it says that already."""
    wanted = {"status": status, "reason": reason, "message": message}
    if before is not None and all(before.get(field, "") == value for field, value in wanted.items()):
        return {}
    kept = before is not None and before.get("status") == status
    since = before.get("lastTransitionTime", now) if before is not None and kept else now
    return {type_: {"type": type_, **wanted, "lastHeartbeatTime": now, "lastTransitionTime": since}}


def reboot_name(node: str) -> str:
    """The name of our RebootNode of a node: the same each time, so that there is never a second one."""
    name = f"tessera-{node}"
    return name if len(name) <= _LONGEST_NAME else f"tessera-{hashlib.sha256(node.encode()).hexdigest()[:32]}"
