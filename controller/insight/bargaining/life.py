"""The life of a CapacityRequest: what it is now and what is seen of its Workload, in; its next state, out. Pure.

``step`` is level-triggered: it needs no memory but the state itself, so a controller that begins anew goes on where the
one before stopped. Whether units are there is never decided here: a ``Want`` says which Workload there has to be, the
engine decides on it in the ordinary order, and ``step`` sees what became of it. Times are seconds since 1970.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import msgspec

from controller.insight.bargaining.wishes import Wish
from controller.messages import bargains as words
from controller.messages.spans import exact
from controller.objects.capacityrequests import EXPIRED, GRANTED, OFFERED, REFUSED, RELEASED
from controller.scheduler.model.resources import CPU

_OFFER: Final = "offer-"
_MILLI: Final = 1000
LONGEST_HOLD_S: Final = 60.0
FINAL: Final = (REFUSED, EXPIRED, RELEASED)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """See ``controller.objects.capacityrequests.CapacityOffer``. ``now``: its units are free when it is made."""

    id: str = ""
    units: int
    from_s: float
    until_s: float | None = None
    flavor: str = ""
    stands_until_s: float = 0.0
    held: bool = False
    now: bool = False
    elsewhere: bool = False
    """Whether it leaves the template's node selector and affinity out."""
    why: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A request's state; ``state`` is empty until it has its first answer. ``rounds``: the offers it has had in all,
    so that no two have one name. ``holds_until_s``: when the last of its offers may be held; None before the first was.
    """

    state: str = ""
    units: int = 0
    from_s: float | None = None
    until_s: float | None = None
    flavor: str = ""
    offers: tuple[Offer, ...] = ()
    accepted: str = ""
    message: str = ""
    used: int = 0
    used_s: float | None = None
    holds_until_s: float | None = None

    def offer(self, name: str) -> Offer | None:
        return next((each for each in self.offers if each.id == name), None)


class Phase(Enum):
    """What became of a request's Workload."""

    QUEUED = "queued"
    """The engine has not decided, or others are on their way out for it."""
    WAITS = "waits"
    """The Workload does not start now, and stays in its queue."""
    HOLDS = "holds"
    LOST = "lost"
    """The Workload held its units and was evicted, or is gone."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A request's Workload as it is seen. ``offer``: the offer that it is for, empty for the request itself.
    ``begins_s``: when units that it holds can be used, if that is later. ``used``: units that jobs run on.
    ``preempts``: others are on their way out for it.
    """

    phase: Phase
    units: int
    offer: str = ""
    flavor: str = ""
    begins_s: float = 0.0
    used: int = 0
    preempts: bool = False
    why: str = ""


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """The Workload that has to be there: as many units from ``least`` to ``most`` as are free, for this offer.
    ``lasts_s``: how long it holds them, if that is known. ``elsewhere``: see Offer.
    ``free_only``: nothing may be evicted for it.
    """

    least: int
    most: int
    offer: str = ""
    lasts_s: float | None = None
    elsewhere: bool = False
    free_only: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """``want`` None: there has to be no Workload. ``ask``: offers have to be looked for, see ``answered``;
    without ``now_too`` those that begin later. ``told``: the state can be told; without it more is decided at once.
    ``hints``: its message says what is waited for, and can be told though nothing is decided.
    ``due_s``: when the clock alone changes something.
    """

    state: State
    want: Want | None = None
    ask: bool = False
    now_too: bool = True
    told: bool = True
    hints: bool = False
    due_s: float | None = None


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """``longest_hold_s``: offers are held no longer than this; 0: not at all. ``say``: how a moment is written.
    ``answers``: requests are answered; without it what was granted lasts as it was told, and nothing else comes of one.
    """

    say: Callable[[float], str]
    longest_hold_s: float = LONGEST_HOLD_S
    answers: bool = True


def step(wish: Wish, state: State, seen: Seen | None, now_s: float, rules: Rules) -> Step:
    """The next state of a request."""
    if state.state == GRANTED:
        return _granted(wish, state, seen, now_s, rules)
    if state.state in FINAL:
        return Step(state=state)
    if not rules.answers:
        why = words.bargaining_is_off()
        return _expired(state, why) if state.state == OFFERED else refused(why)
    if state.state == OFFERED:
        return _offered(wish, state, seen, now_s, rules)
    return _opening(wish, state, seen, now_s, rules)


def refused(sentence: str) -> Step:
    """The request without an offer: one sentence says why."""
    return Step(state=State(state=REFUSED, message=sentence))


def granted(wish: Wish, units: int, now_s: float, rules: Rules, flavor: str = "", preempts: int = 0) -> State:
    """The state of a request that gets so many units at once. ``preempts``: workloads that have to leave before."""
    state = _grant(wish, Seen(phase=Phase.HOLDS, units=units, flavor=flavor), now_s, rules).state
    more = words.once_preempted(preempts) if preempts else ""
    return msgspec.structs.replace(state, message=f"{state.message}{more}")


def answered(wish: Wish, state: State, offers: Sequence[Offer], now_s: float, rules: Rules) -> Step:
    """The request with the offers that were found for it, which are one at least."""
    before = max((_number(each.id) for each in state.offers), default=0)
    stands_s = now_s + wish.answer_within_s
    named = tuple(
        msgspec.structs.replace(
            offer,
            id=f"{_OFFER}{before + number}",
            stands_until_s=stands_s,
            until_s=None if wish.duration_s is None else offer.from_s + wish.duration_s,
        )
        for number, offer in enumerate(offers, 1)
    )
    made = _with_offers(State(state=OFFERED, holds_until_s=state.holds_until_s), named, now_s, rules)
    if made.offer(wish.accepts) is not None:
        return Step(state=made)  # the offers are told, then the answer to them counts
    return step(wish, made, None, now_s, rules)


def _ask(state: State, *, now_too: bool = True) -> Step:
    return Step(state=state, ask=True, now_too=now_too, told=False)


# -- before the first answer -------------------------------------------------------------------------------------------


def _opening(wish: Wish, state: State, seen: Seen | None, now_s: float, rules: Rules) -> Step:
    if wish.not_after_s is not None and now_s > wish.not_after_s:
        return refused(words.window_is_over(rules.say(wish.not_after_s)))
    if now_s < wish.not_before_s or (seen is not None and seen.phase in (Phase.WAITS, Phase.LOST)):
        return _ask(state)
    if seen is not None and seen.phase is Phase.HOLDS:
        return _grant(wish, seen, now_s, rules)
    want = Want(least=wish.least, most=wish.most, lasts_s=wish.duration_s)
    if seen is not None and seen.preempts:
        state = msgspec.structs.replace(state, message=words.waits_for_victims())
    return Step(state=state, want=want, told=False, hints=bool(state.message))


# -- offered -----------------------------------------------------------------------------------------------------------


def _offered(wish: Wish, state: State, seen: Seen | None, now_s: float, rules: Rules) -> Step:
    taken = state.offer(state.accepted or wish.accepts)
    if taken is not None and (state.accepted or now_s < taken.stands_until_s):
        return _taken(wish, state, taken, seen, now_s, rules)
    immediate = next((each for each in state.offers if each.now and now_s < each.stands_until_s), None)
    most_s = now_s + rules.longest_hold_s if state.holds_until_s is None else state.holds_until_s
    hold_s = min(wish.answer_within_s, most_s - now_s)
    if immediate is not None and (immediate.held or hold_s > 0.0):
        mine = seen if seen is not None and seen.offer == immediate.id else None
        if not immediate.held and (mine is None or mine.phase is Phase.QUEUED):
            least = wish.least if immediate.elsewhere else 1
            want = Want(
                least=least,
                most=immediate.units,
                offer=immediate.id,
                lasts_s=hold_s,
                elsewhere=immediate.elsewhere,
                free_only=True,
            )
            return Step(state=state, want=want, told=False)
        if not immediate.held and mine is not None and mine.phase is Phase.HOLDS:
            from_s = max(immediate.from_s, mine.begins_s)
            changes = {
                "units": mine.units,
                "held": True,
                "stands_until_s": now_s + hold_s,
                "flavor": mine.flavor,
                "from_s": from_s,
                "until_s": None if wish.duration_s is None else from_s + wish.duration_s,
            }
            state = _with_offers(state, _replaced(state, immediate.id, **changes), now_s, rules)
            state = msgspec.structs.replace(state, holds_until_s=most_s)
        elif mine is None or mine.phase is not Phase.HOLDS:
            left = tuple(each for each in state.offers if each.id != immediate.id)
            if not left:
                return _expired(state, words.offers_gone()) if immediate.held else _ask(state, now_too=False)
            state = _with_offers(state, left, now_s, rules)
    standing = [each for each in state.offers if now_s < each.stands_until_s]
    if not standing:
        return _expired(state, words.not_answered(exact(wish.answer_within_s)))
    if any(each.held and each not in standing for each in state.offers):
        offers = tuple(each if each in standing else msgspec.structs.replace(each, held=False) for each in state.offers)
        state = msgspec.structs.replace(state, offers=offers)
    held = next((each for each in standing if each.held), None)
    state = _with_offers(state, state.offers, now_s, rules)
    if wish.accepts and state.offer(wish.accepts) is None:
        said = words.no_such_offer(state.message, wish.accepts, ", ".join(each.id for each in standing))
        state = msgspec.structs.replace(state, message=said)
    keeps: Want | None = None
    if held is not None:
        keeps = Want(least=held.units, most=held.units, offer=held.id, elsewhere=held.elsewhere)
    return Step(state=state, want=keeps, due_s=min(each.stands_until_s for each in standing))


def _taken(wish: Wish, state: State, taken: Offer, seen: Seen | None, now_s: float, rules: Rules) -> Step:
    """An accepted offer: what is held is granted, all else is decided anew in the ordinary order."""
    replace = msgspec.structs.replace
    mine = seen if seen is not None and seen.offer == taken.id else None
    if mine is not None and mine.phase is Phase.HOLDS:
        return _grant(wish, mine, now_s, rules)
    state = replace(state, offers=tuple(replace(each, held=False) for each in state.offers))
    if wish.not_after_s is not None and now_s >= wish.not_after_s:
        return _expired(state, words.accepted_in_vain(taken.id, rules.say(wish.not_after_s)))
    if now_s < wish.not_before_s:
        message = words.accepted_for_later(taken.id, words.begins_at(rules.say(wish.not_before_s)))
        return Step(state=replace(state, accepted=taken.id, message=message), due_s=wish.not_before_s)
    if mine is not None and mine.phase is not Phase.QUEUED and (taken.now or mine.phase is Phase.LOST):
        return _ask(replace(state, accepted=""))
    want = Want(least=taken.units, most=taken.units, offer=taken.id, lasts_s=wish.duration_s, elsewhere=taken.elsewhere)
    message = words.accepted(taken.id, taken.units, wish.queue)
    waits = mine is not None and mine.phase is Phase.WAITS
    preempts = mine is not None and mine.preempts
    if preempts:
        message = f"{message}. {words.waits_for_victims()}"
    state = replace(state, accepted=taken.id, message=message)
    return Step(state=state, want=want, told=waits, hints=preempts, due_s=wish.not_after_s)


def _expired(state: State, why: str) -> Step:
    return Step(state=msgspec.structs.replace(state, state=EXPIRED, message=why, units=0, accepted=""))


# -- granted -----------------------------------------------------------------------------------------------------------


def _grant(wish: Wish, seen: Seen, now_s: float, rules: Rules) -> Step:
    from_s = max(now_s, seen.begins_s)
    until_s = None if wish.duration_s is None else from_s + wish.duration_s
    made = State(state=GRANTED, units=seen.units, from_s=from_s, until_s=until_s, flavor=seen.flavor)
    return _granted(wish, _said(wish, made, now_s, rules), seen, now_s, rules)


def _said(wish: Wish, state: State, now_s: float, rules: Rules) -> State:
    """The grant with the sentence that says what it is."""
    from_s = now_s if state.from_s is None else state.from_s
    begin = words.begins_now() if from_s == now_s else words.begins_at(rules.say(from_s))
    end = "" if state.until_s is None else f" {words.ends_at(rules.say(state.until_s))}"
    what = f"{unit_words(wish)}{f' of flavor {state.flavor}' if state.flavor else ''}"
    return msgspec.structs.replace(state, message=words.granted(state.units, what, begin, end))


def _granted(wish: Wish, state: State, seen: Seen | None, now_s: float, rules: Rules) -> Step:
    replace, before = msgspec.structs.replace, (state.units, state.until_s)
    if seen is None or seen.phase is not Phase.HOLDS:
        why = words.taken(seen.why) if seen is not None and seen.why else words.taken("its Workload is gone")
        return _released(state, why)
    if seen.used != state.used:
        state = replace(state, used=seen.used, used_s=now_s)
    from_s = state.from_s if state.from_s is not None else now_s
    if wish.duration_s is not None and rules.answers:
        state = replace(state, until_s=max(from_s, wish.renewed_s or from_s) + wish.duration_s)
    if state.until_s is not None and now_s >= state.until_s:
        return _released(state, words.over(rules.say(state.until_s)))
    idle_s = _idle_until_s(wish, state, from_s)
    if idle_s is not None and now_s >= idle_s:
        within = exact(wish.use_within_s)
        return _released(state, words.never_used(within) if state.used_s is None else words.used_no_more(within))
    units = max(state.used, min(state.units, wish.most))
    due_s = min((each for each in (state.until_s, idle_s) if each is not None), default=None)
    want = Want(least=units, most=units, offer=seen.offer, lasts_s=wish.duration_s)
    state = replace(state, units=units)
    if (state.units, state.until_s) != before:
        state = _said(wish, state, now_s, rules)
    return Step(state=state, want=want, due_s=due_s)


def _idle_until_s(wish: Wish, state: State, from_s: float) -> float | None:
    """When the units are given back because nothing uses them; None while something does. A grant with an end that
    was used once is kept until then.
    """
    if state.used:
        return None
    if state.used_s is None:
        return from_s + wish.use_within_s
    return None if state.until_s is not None else state.used_s + wish.use_within_s


def _released(state: State, why: str) -> Step:
    return Step(state=msgspec.structs.replace(state, state=RELEASED, message=why, used=0))


# -- words -------------------------------------------------------------------------------------------------------------


def unit_words(wish: Wish) -> str:
    """What one unit requests: ``1 nvidia.com/gpu, 4 cpu``."""
    return ", ".join(f"{_amount(name, amount)} {name}" for name, amount in sorted(wish.unit.items()))


def _amount(name: str, amount: int) -> str:
    return f"{amount / _MILLI:g}" if name == CPU else str(amount)


def _with_offers(state: State, offers: tuple[Offer, ...], now_s: float, rules: Rules) -> State:
    clauses = [
        words.one_offer(
            offer.id,
            offer.units,
            words.begins_now() if offer.from_s <= now_s else words.begins_at(rules.say(offer.from_s)),
            words.held_until(rules.say(offer.stands_until_s)) if offer.held else "",
        )
        for offer in offers
    ]
    return msgspec.structs.replace(state, offers=offers, message=words.offered(", ".join(clauses)))


def _replaced(state: State, name: str, **changes: object) -> tuple[Offer, ...]:
    return tuple(msgspec.structs.replace(each, **changes) if each.id == name else each for each in state.offers)


def _number(name: str) -> int:
    text = name.removeprefix(_OFFER)
    return int(text) if text.isdecimal() else 0


# -- what always holds -------------------------------------------------------------------------------------------------


def validate(wish: Wish, state: State, seen: Seen | None) -> None:
    """What holds of every request between two steps. AssertionError for what does not."""
    holds = seen is not None and seen.phase is Phase.HOLDS
    if state.state == GRANTED:
        assert seen is not None, "a grant without a Workload"
        assert holds, "a grant whose Workload holds nothing"
        assert state.used <= state.units <= seen.units, "more units granted than held, or in use than granted"
        assert state.from_s is not None
        assert (state.until_s is None) == (wish.duration_s is None)
    else:
        assert not state.used, "units in use without a grant"
    for each in state.offers if state.state == OFFERED else ():
        assert each.units >= 1, "an offer of nothing"
        kept = holds and seen is not None and seen.offer == each.id and seen.units == each.units
        assert kept or not each.held, "an offer that is not held"
    names = [each.id for each in state.offers]
    assert len(set(names)) == len(names), "two offers of one name"
    assert state.state not in FINAL or seen is None, "a Workload after the end"
