"""Sentences of CapacityRequests: what was granted, offered, refused, and what became of it.

Moments are written as ``controller.messages.spans`` writes them, or as the caller shows them.
"""

from inventory.words.catalog import Kind, Place, plural, said

_note = said(Place.CAPACITY_REQUESTS, Kind.NOTE)
_waiting = said(Place.CAPACITY_REQUESTS, Kind.WAITING)
_refusal = said(Place.CAPACITY_REQUESTS, Kind.REFUSAL)
_part = said(Place.CAPACITY_REQUESTS, Kind.PART)


@_note
def granted(units: object, what: str, begin: str, end: str) -> str:
    """``what``: the unit, its flavor and its queue. ``begin`` and ``end``: clauses, the latter with a space before it
    or empty.
    """
    return f"Granted {plural(units, 'unit')} of {what} {begin}{end}"


@_part
def once_preempted(workloads: object) -> str:
    return f", once it has preempted {plural(workloads, 'workload')}"


@_note
def offered(offers: str) -> str:
    return f"Offers {offers}"


@_note
def no_such_offer(offers: str, found: str, expected: str) -> str:
    """``offers``: the sentence that says what is offered. ``found``: what the request accepts."""
    return f"{offers}; spec.accept: found {found}, expected one of {expected}"


@_waiting
def accepted(offer: str, units: object, queue: str) -> str:
    wait = plural(units, "unit waits", "units wait")
    return f"Offer {offer} is accepted: {wait} in LocalQueue {queue} in the ordinary order"


@_waiting
def waits_for_victims() -> str:
    return "Waits for workloads to stop that were preempted for it, and is answered then"


@_waiting
def accepted_for_later(offer: str, begin: str) -> str:
    return f"Offer {offer} is accepted: its units are asked for {begin}, in the ordinary order"


@_part
def one_offer(offer: str, units: object, begin: str, more: str) -> str:
    """``more``: what follows in brackets behind the offer's name, empty or with a comma before it."""
    return f"{plural(units, 'unit')} {begin} ({offer}{more})"


@_part
def held_until(moment: str) -> str:
    return f", held until {moment}"


@_part
def begins_now() -> str:
    return "now"


@_part
def begins_at(moment: str) -> str:
    return f"from {moment}"


@_part
def ends_at(moment: str) -> str:
    return f"until {moment}"


@_refusal
def more_than_there_is(least: object, clause: str) -> str:
    """``clause`` begins with "unless"."""
    return f"No offer can be made of {plural(least, 'unit')} or more, {clause}. Submit another request"


@_refusal
def nothing_known(least: object, free: str) -> str:
    """``free``: the clause that says what is free."""
    return (
        f"No offer can be made: {free}, and nothing that is held has a known end that would let {plural(least, 'unit')}"
        " in. Submit it again later, or for less"
    )


@_refusal
def nothing_in_window(moment: str) -> str:
    return f"No offer can be made that begins by {moment}. Set a later notAfter, or a smaller min"


@_refusal
def window_is_over(moment: str) -> str:
    return f"The time of notAfter has passed, {moment}. Set a later one"


@_refusal
def no_queue(queue: str) -> str:
    return f"LocalQueue {queue} does not exist, or leads to no ClusterQueue. Create it, or name another one"


@_refusal
def queue_takes_nothing(opens: str) -> str:
    """``opens``: what has to happen first."""
    return f"No offer can be made before {opens}. Submit it again then"


@_refusal
def bargaining_is_off() -> str:
    return "Bargaining is off, tessera.bargaining.enabled: found false, expected true. Submit it again once it is on"


@_note
def not_answered(within: str) -> str:
    return f"No offer was accepted within {within}"


@_note
def accepted_in_vain(offer: str, moment: str) -> str:
    return f"Offer {offer} was accepted, and did not come to be by notAfter, {moment}"


@_note
def offers_gone() -> str:
    return "The units that were held were taken by a workload that may preempt them"


@_note
def over(moment: str) -> str:
    return f"Its time was over at {moment}"


@_note
def never_used(within: str) -> str:
    return f"Nothing used it within {within} of its start"


@_note
def used_no_more(within: str) -> str:
    return f"Nothing has used it for {within}, and it has no end"


@_note
def taken(why: str) -> str:
    return f"Its units were taken: {why}"


@_part
def free_now(free: str, most: str, queue: str) -> str:
    return f"{free} of at most {most} free in ClusterQueue {queue}"


@_part
def no_more_fits() -> str:
    return "the nodes have no more places for it now"


@_part
def would_fit(units: object) -> str:
    return f"{plural(units, 'unit')} would fit now"


@_part
def begins_no_earlier(moment: str) -> str:
    return f"notBefore is {moment}"


@_part
def comes_first(whose: str, queue: str) -> str:
    """``whose``: the workload that is tried before it."""
    return f"{whose} is the first in ClusterQueue {queue}, which is StrictFIFO, and waits"


@_part
def would_preempt(workloads: object) -> str:
    return f"it would preempt {plural(workloads, 'workload')}"


@_part
def without_selector() -> str:
    return "free now without the template's node selector and affinity"


@_part
def ends_then(amount: str, whose: str, moment: str) -> str:
    return f"{amount} of {whose} end by {moment}"


@_part
def usually_ends(amount: str, whose: str, moment: str) -> str:
    """Like ``ends_then``, for a workload that says nothing of its run time."""
    return f"{amount} of {whose} usually end by {moment}"


@_part
def more_end(amount: str, workloads: object, moment: str) -> str:
    """``workloads``: the number of those that are not named."""
    return f"{amount} of {plural(workloads, 'other workload')} end by {moment}"


@_part
def runs_before(amount: str, whose: str, begin: str, end: str) -> str:
    """``whose``: a workload that waits."""
    return f"{amount} of {whose}, which waits, run from {begin} to {end}"


@_part
def starts_before(amount: str, whose: str, begin: str) -> str:
    """Like ``runs_before``, for a workload that has not ended by the start."""
    return f"{amount} of {whose}, which waits, run from {begin}"


@_part
def more_start(workloads: object, amount: str) -> str:
    """``workloads``: the number of those that are not named. ``amount``: what those of them have that run still."""
    others = plural(workloads, "other workload that waits starts", "other workloads that wait start")
    return f"{others} before it: {amount} of that run then"


@_part
def would_delay(units: object, first: str) -> str:
    """``first``: the waiting workload, and when it is to start."""
    return f"{plural(units, 'unit')} would delay {first}"


@_part
def workload_of(queue: str) -> str:
    return f"a workload of ClusterQueue {queue}"


@_waiting
def waits_for_grant(request: str) -> str:
    return f"Runs inside of CapacityRequest {request}, which is not granted yet"


@_waiting
def waits_for_units(request: str, needed: object, free: object) -> str:
    return f"Runs inside of CapacityRequest {request}: needs {plural(needed, 'unit')}, {free} free"


@_refusal
def grant_is_over(request: str, state: str) -> str:
    return f"CapacityRequest {request} is {state}. Correct the label to one that is granted, or remove it"


@_refusal
def no_such_request(request: str) -> str:
    return f"There is no CapacityRequest {request}. Create it, or remove the label"


@_refusal
def outside_of_unit(request: str, resources: str) -> str:
    return f"CapacityRequest {request} holds no {resources}. Submit one whose unit has it, or remove it from the pods"


@_refusal
def larger_than_grant(request: str, needed: object, units: object) -> str:
    needs = f"Needs {plural(needed, 'unit')}, and CapacityRequest {request} has {units} in all"
    return f"{needs}. Submit a smaller job, or a larger request"


@_note
def admitted_inside(resources: str, request: str) -> str:
    return f"Gets {resources} inside of CapacityRequest {request}"


@_note
def grant_ended(request: str, why: str) -> str:
    return f"CapacityRequest {request} has given its units back: {why}"


@_note
def grant_is_another(request: str) -> str:
    return f"CapacityRequest {request} is another one by now than the one that it ran inside of"


@_note
def request_is_gone() -> str:
    return "Its CapacityRequest has been deleted"


@_note
def granted_is_ready() -> str:
    return "The units of a grant are ready for the pods that come"
