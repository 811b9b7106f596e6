"""The conditions of a JobKind: Accepted by what it says, Active by what the cluster has and allows."""

from collections.abc import Sequence
from typing import Final

from controller.jobs.framework.raw import Json
from controller.jobs.kinds.declared.accepting import Verdict
from controller.objects.meta import Struct
from inventory.api.names import AGGREGATE_TO_CONTROLLER
from inventory.words.catalog import plural

ACCEPTED: Final = "Accepted"
ACTIVE: Final = "Active"


class Seen(Struct, frozen=True, kw_only=True):
    """What the watch tells of a JobKind's objects: whether they are watched, what the controller may not do with them
    (``patch sweeps``), and how many hold quota.
    """

    followed: bool = True
    missing: tuple[str, ...] = ()
    holders: int = 0


def conditions(given: Json, verdict: Verdict, seen: Seen, now: str) -> list[Json]:
    """Both conditions; the times of unchanged ones stay."""
    accepted = _condition(ACCEPTED, verdict.kind is not None, verdict.reason, verdict.message)
    wanted = [accepted, _active(verdict, seen)]
    generation = given.get("metadata", {}).get("generation", 0)
    had = given.get("status") or {}
    return [
        {
            **condition,
            "observedGeneration": generation,
            "lastTransitionTime": _since(had.get("conditions"), condition, now),
        }
        for condition in wanted
    ]


def _active(verdict: Verdict, seen: Seen) -> Json:
    if verdict.kind is None:
        return _condition(ACTIVE, False, "NotAccepted", "Its objects are not queued: see the condition Accepted")
    spec = verdict.kind.spec
    named = f"{spec.plural}.{spec.group}"
    if verdict.kind.leaving:
        held = "none of its objects holds quota"
        if seen.holders:
            held = f"{plural(seen.holders, 'of its objects holds', 'of its objects hold')} quota"
        return _condition(ACTIVE, False, "Terminating", f"It is being deleted: {held}, and none starts any more")
    if seen.missing:
        missing = ", ".join(seen.missing)
        why = (
            f"The controller may not {missing}: grant it in a ClusterRole with the label {AGGREGATE_TO_CONTROLLER}=true"
        )
        return _condition(ACTIVE, False, "Forbidden", why)
    if not seen.followed:
        why = f"The API server has no {named} of version {spec.version}: they are queued once their CRD is installed"
        return _condition(ACTIVE, False, "NotServed", why)
    return _condition(ACTIVE, True, "Active", f"Objects of {named} that name a queue are queued")


def _condition(type_: str, on: bool, reason: str, message: str) -> Json:
    return {"type": type_, "status": "True" if on else "False", "reason": reason, "message": message}


def _since(had: object, new: Json, now: str) -> str:
    for each in had if isinstance(had, Sequence) else ():
        if isinstance(each, dict) and (each.get("type"), each.get("status")) == (new["type"], new["status"]):
            since = each.get("lastTransitionTime")
            return since if isinstance(since, str) else now
    return now
