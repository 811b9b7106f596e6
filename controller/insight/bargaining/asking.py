"""What a program could have, without an object: the answer that a CapacityRequest would get at this moment. Pure.

Nothing is kept for it, so no offer is held, and what would be granted may be gone a moment later.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from controller.insight.bargaining.arithmetic import Clock, first_before
from controller.insight.bargaining.desk import Had, Makes, answer_parts, elsewhere, flavor_of, most_had
from controller.insight.bargaining.life import Offer, Phase, Rules, Seen, State, answered, granted, refused, step
from controller.insight.bargaining.wishes import Composer, name_problem, order_problem, problems, wish_of
from controller.insight.forecast.parts import Parts
from controller.messages.spans import LATEST_S
from controller.objects.capacityrequests import API_VERSION, KIND, CapacityRequest, CapacityRequestSpec
from controller.objects.decode import DecodeError, decode
from controller.objects.workload import Workload
from controller.scheduler.engine import Engine

Json = dict[str, Any]
NAME: Final = "asked"
"""The name of a request that has none yet."""


class NotAskedError(ValueError):
    """The request is not right: a sentence for each problem."""

    def __init__(self, *told: str) -> None:
        super().__init__("; ".join(told))
        self.told = told


def is_request(manifest: Any) -> bool:
    return isinstance(manifest, Mapping) and (manifest.get("apiVersion"), manifest.get("kind")) == (API_VERSION, KIND)


def request_of(manifest: Json, namespace: str, composer: Composer, now_s: float) -> CapacityRequest:
    """The request of a manifest as if it were created now, in the namespace. Raises NotAskedError."""
    given = manifest.get("metadata")
    metadata = given if isinstance(given, dict) else {}
    if metadata.get("namespace", namespace) != namespace:
        raise NotAskedError(f"metadata.namespace: found another one, expected {namespace}")
    identity = {"name": str(metadata.get("name") or NAME), "namespace": namespace, "uid": NAME}
    try:
        request = decode({"kind": KIND, "metadata": identity, "spec": manifest.get("spec") or {}}, CapacityRequest)
    except DecodeError as wrong:
        raise NotAskedError(str(wrong)) from None
    if unknown := _unknown(manifest.get("spec")):
        raise NotAskedError(*unknown)
    named = name_problem(request.metadata.name)
    wrong_fields = [*([named] if named is not None else []), *problems(request.spec)]
    if not wrong_fields and (found := order_problem(request.spec, now_s)) is not None:
        wrong_fields.append(found)
    if wrong_fields:
        raise NotAskedError(*(each.sentence for each in wrong_fields))
    if composer.priority(request.spec) is None:
        raise NotAskedError(
            f"spec.priorityClassName: found {request.spec.priority_class_name}, expected one that exists"
        )
    return request


def _unknown(spec: Any) -> list[str]:
    """A sentence for each field of a spec that requests do not have."""
    known = {each.encode_name for each in msgspec.structs.fields(CapacityRequestSpec)}
    expected = f"found an unknown field, expected one of {', '.join(sorted(known))}"
    return [f"spec.{str(name)[:63]}: {expected}" for name in spec or () if name not in known]


def state_parts(engine: Engine, request: CapacityRequest, composer: Composer, clock: Clock) -> Parts[State]:
    """The state that the request would have at once. The engine may change in the pauses."""
    wish = wish_of(request, clock.now_s)
    rules = Rules(say=clock.say, longest_hold_s=0.0)
    created = datetime.fromtimestamp(clock.now_s, UTC).isoformat()
    runtime = "" if wish.duration_s is None else f"{wish.duration_s:.6f}s"
    metadata = {"name": NAME, "namespace": wish.namespace, "uid": NAME, "creationTimestamp": created}

    def whole(units: int) -> Workload:
        return composer.workload(request, units, metadata, runtime)

    def anywhere(units: int) -> Workload:
        made = whole(units)
        return elsewhere(made) or made

    yield
    makes = Makes(whole, anywhere if elsewhere(whole(1)) is not None else None)
    taken = step(wish, State(), None, clock.now_s, rules)
    if (want := taken.want) is not None:
        behind = first_before(engine, whole(want.least)) is not None
        had = Had() if behind else most_had(engine, whole, want.least, want.most, clock.now_s)
        if had.units:
            flavor = flavor_of(engine, whole(had.units), clock.now_s)
            return granted(wish, had.units, clock.now_s, rules, flavor, had.preempts)
        taken = step(wish, State(), Seen(phase=Phase.WAITS, units=want.least), clock.now_s, rules)
    if not taken.ask:
        return taken.state
    answer = yield from answer_parts(engine, wish, makes, clock, now_too=taken.now_too)
    if answer.refusal:
        return refused(answer.refusal).state
    return answered(wish, taken.state, answer.offers, clock.now_s, rules).state


def shown(state: State) -> Json:
    """The status of a CapacityRequest: every key is there, times are RFC 3339."""
    return {
        "state": state.state,
        "units": state.units,
        "from": _time(state.from_s),
        "until": _time(state.until_s),
        "flavor": state.flavor,
        "offers": [_offer(each) for each in state.offers],
        "message": state.message,
    }


def _offer(offer: Offer) -> Json:
    return {
        "id": offer.id,
        "units": offer.units,
        "from": _time(offer.from_s),
        "until": _time(offer.until_s),
        "flavor": offer.flavor,
        "held": offer.held,
        "why": offer.why,
    }


def _time(at_s: float | None) -> str | None:
    return None if at_s is None else time_of(at_s)


def time_of(at_s: float) -> str:
    """Seconds since 1970 in RFC 3339; the year 9999 is the last."""
    return f"{datetime.fromtimestamp(min(at_s, LATEST_S), UTC):%Y-%m-%dT%H:%M:%SZ}"
