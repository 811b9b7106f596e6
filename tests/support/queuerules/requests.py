"""Writes of Kueue's objects as the API server judges them with our CRDs and policies.

Policies are asked about what the schema lets in, and rules of a schema about what its bounds let in.
"""

from collections.abc import Mapping
from typing import Any

from controller.scheduler.model.gates import DEFAULTS, FeatureGates
from tests.conformance.crds import crdfiles
from tests.support.queuerules import policies, schemas
from tests.support.queuerules.policies import Request
from tests.support.queuerules.schemas import Json, Refusal, Whole


def created(given: Json, known: Mapping[str, Any] | None = None, gates: FeatureGates | None = None) -> list[Refusal]:
    """The object, and then its status: creating drops a status, so one is always a second write.

    ``known``: values of the policies' variables that need not be reckoned.
    """
    new = schemas.whole(given["kind"], given)
    first, told = _with_status_of(new, None), {**_on(gates), **(known or {})}
    return _unique([*_write(given["kind"], first, None, told), *_status_write(given["kind"], new, first, told)])


def updated(old: Json, given: Json, gates: FeatureGates | None = None) -> list[Refusal]:
    """The object with the status as it was, and then its status."""
    before, new = (schemas.whole(one["kind"], one) for one in (old, given))
    first, told = _with_status_of(new, before), _on(gates)
    return _unique([*_write(given["kind"], first, before, told), *_status_write(given["kind"], new, first, told)])


def _on(gates: FeatureGates | None) -> dict[str, Any]:
    """The policies' variable that says which feature gates are on."""
    known = gates or FeatureGates()
    return {"enabled": {name: known.on(name) for name in DEFAULTS}}


def _with_status_of(new: Whole, before: Whole | None) -> Whole:
    """What a write of the object leaves: its gaps are the new object's, but for those of the status."""
    kept = {key: value for key, value in new.value.items() if key != "status"}
    gaps = {gap for gap in new.gaps if gap[0] != "status"}
    if before is not None and "status" in before.value:
        kept["status"] = before.value["status"]
        gaps |= {gap for gap in before.gaps if gap[0] == "status"}
    return Whole(kept, frozenset(gaps))


def _write(kind: str, new: Whole, old: Whole | None, known: Mapping[str, Any], subresource: str = "") -> list[Refusal]:
    before = None if old is None else old.value
    asked = Request(crdfiles.PLURALS[kind] + subresource, new.value, before, known)
    found = schemas.refusals(kind, new, old)
    return found if any(not one.of_a_gap for one in found) else found + policies.refusals(asked)


def _status_write(kind: str, new: Whole, first: Whole, known: Mapping[str, Any]) -> list[Refusal]:
    if new.value.get("status") == first.value.get("status"):
        return []
    return _write(kind, new, first, known, "/status")


def _unique(found: list[Refusal]) -> list[Refusal]:
    return list(dict.fromkeys(found))
