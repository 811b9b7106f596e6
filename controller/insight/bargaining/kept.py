"""CapacityRequests as the API server keeps them: the object with its template whole, and its status as a state. Pure.

Times in a status are RFC 3339 with what they have below a second; those of a state are seconds since 1970.
"""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from controller.insight.bargaining.life import Offer, State
from controller.insight.bargaining.wishes import template_of
from controller.messages.spans import LATEST_S
from controller.objects.capacityrequests import CapacityOffer, CapacityRequest, CapacityRequestStatus
from controller.objects.decode import decode
from controller.objects.meta import epoch_s, to_json

Json = dict[str, Any]
_AFFINITY: Final = ("nodeSelector", "affinity")


class KeptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request and the pod that is one unit of it, as JSON: the typed copy has only what is read here."""

    request: CapacityRequest
    template: Json

    @property
    def elsewhere(self) -> Json:
        """The pod without node selector and affinity; equal to ``template`` if it has none."""
        spec = {name: value for name, value in self.template.get("spec", {}).items() if name not in _AFFINITY}
        return {**self.template, "spec": spec}


def read_request(raw: bytes) -> KeptRequest:
    """The request of its JSON text. Raises DecodeError, and msgspec's errors for what is no JSON."""
    body = msgspec.json.decode(raw)
    request = decode(body, CapacityRequest)
    given = body.get("spec", {}).get("template") if isinstance(body.get("spec"), dict) else None
    template: Json = given if isinstance(given, dict) else to_json(template_of(request.spec))
    return KeptRequest(request=request, template=template)


def state_of(status: CapacityRequestStatus) -> State:
    """The state that a status tells."""
    return State(
        state=status.state,
        units=status.units,
        from_s=_seconds(status.from_),
        until_s=_seconds(status.until),
        flavor=status.flavor,
        offers=tuple(map(_read, status.offers)),
        accepted=status.accepted,
        message=status.message,
        used=status.used,
        used_s=_seconds(status.used_at),
        holds_until_s=_seconds(status.holds_until),
    )


def status_of(state: State, workload: str) -> Json:
    """The status of a state, as a merge patch: what is absent is null. ``workload``: the name of the Workload that
    holds the units or waits for them; empty for none.
    """
    return {
        "state": state.state,
        "units": state.units,
        "from": _time(state.from_s),
        "until": _time(state.until_s),
        "flavor": state.flavor or None,
        "offers": [_written(each) for each in state.offers] or None,
        "accepted": state.accepted or None,
        "message": state.message,
        "workload": workload or None,
        "used": state.used,
        "usedAt": _time(state.used_s),
        "holdsUntil": _time(state.holds_until_s),
    }


def _read(offer: CapacityOffer) -> Offer:
    return Offer(
        id=offer.id,
        units=offer.units,
        from_s=epoch_s(offer.from_),
        until_s=_seconds(offer.until),
        flavor=offer.flavor,
        stands_until_s=epoch_s(offer.stands_until),
        held=offer.held,
        now=offer.now,
        elsewhere=offer.elsewhere,
        why=offer.why,
    )


def _written(offer: Offer) -> Json:
    made: Json = {
        "id": offer.id,
        "units": offer.units,
        "from": _time(offer.from_s),
        "until": _time(offer.until_s),
        "flavor": offer.flavor,
        "standsUntil": _time(offer.stands_until_s),
        "held": offer.held,
        "now": offer.now,
        "elsewhere": offer.elsewhere,
        "why": offer.why,
    }
    return {key: value for key, value in made.items() if value not in (None, "", False)}


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else epoch_s(time)


def _time(at_s: float | None) -> str | None:
    if at_s is None:
        return None
    found = datetime.fromtimestamp(min(at_s, LATEST_S), UTC)
    return f"{found:%Y-%m-%dT%H:%M:%S.%f}".removesuffix(".000000") + "Z"
