"""Quotas that hold in windows of time: the annotation ``tessera.dev/quota-calendar`` of a ClusterQueue or Cohort.

A JSON or YAML list of entries ``{from: "0 20 * * *", for: 10h, zone: Europe/Berlin, nominal: {FLAVOR: {RESOURCE:
quantity}}}``. ``from`` is a cron line at which a window begins, ``for`` its length, ``zone`` the time zone of the cron
line (UTC without one). ``nominal``, ``borrowing`` and ``lending`` stand in place of the object's own
``nominalQuota``, ``borrowingLimit`` and ``lendingLimit`` while the window is open. Of two open windows with the same
quota the entry later in the list counts.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from controller.objects.quantity import Quantity, QuantityError, parse_quantity
from controller.objects.queues import ClusterQueue, Cohort, ResourceQuota
from controller.scheduler.model.cron import Cron, CronError, Window, cron, zone_named
from controller.scheduler.model.resources import CPU, FlavorName, FlavorResource, ResourceName
from controller.scheduler.quota.quotaspec import QuotaOwner, requoted
from inventory.api.names import QUOTA_CALENDAR, QUOTA_SHARES
from yamlfile.levels import UnreadError, repeated_keys, strangers_value
from yamlfile.parsers import Unfit, go_duration

_LONGEST: Final = 16_384
_MOST_ENTRIES: Final = 100
_MOST_LEVELS: Final = 16
"""An entry that is right has four with the list."""
_SHOWN: Final = 120
_WHOLE: Final = 10**9
_LEAST_S: Final = 60.0
_MOST_S: Final = 366 * 86_400.0
_CRON: Final = 'a cron line of five fields that fires, such as "0 20 * * *"'
_FOR: Final = "a duration from 1m to 8784h, such as 10h"
_ZONE: Final = "a time zone such as Europe/Berlin"
_KEYS: Final = ("from", "for", "zone", "nominal", "borrowing", "lending")

Limits = Mapping[FlavorResource, Quantity]


class CalendarEntry(NamedTuple):
    """One entry and the times at which it holds. ``number`` counts from 1 in the annotation."""

    number: int
    times: Window
    nominal: Limits
    borrowing: Limits
    lending: Limits


class Calendar(NamedTuple):
    """The entries that are right, in their order, and a line for each that is not."""

    entries: tuple[CalendarEntry, ...] = ()
    problems: tuple[str, ...] = ()


class _EntryError(ValueError):
    """One entry is wrong; the message names the field, what was found and what was expected."""


def calendar_of(owner: ClusterQueue | Cohort) -> Calendar:
    """The calendar of an object's annotation; empty without one. Wrong entries are told and left out."""
    text = owner.metadata.annotations.get(QUOTA_CALENDAR)
    return Calendar() if text is None else _read(text, owner)


def _read(text: str, owner: ClusterQueue | Cohort) -> Calendar:
    listed = _list(text)
    if isinstance(listed, str):
        return Calendar(problems=(f"{QUOTA_CALENDAR}: {listed}",))
    entries, problems = list[CalendarEntry](), list[str]()
    again = repeated_keys(text)
    for number, entry in enumerate(listed, 1):
        try:
            entries.append(_entry(number, entry, owner, again.get(number - 1)))
        except _EntryError as wrong:
            problems.append(f"{QUOTA_CALENDAR}: entry {number}, {_quoted(entry)}: {wrong}")
    return Calendar(tuple(entries), tuple(problems))


def _list(text: str) -> Sequence[Any] | str:
    """The items of the annotation, or what is wrong with the whole."""
    expected = "a list of {from, for, nominal} in JSON or YAML"
    try:
        found = strangers_value(text, list, expected, longest=_LONGEST, most_levels=_MOST_LEVELS)
    except UnreadError as wrong:
        return str(wrong)
    return found if len(found) <= _MOST_ENTRIES else f"expected at most {_MOST_ENTRIES} entries, found {len(found)}"


def _entry(number: int, given: Any, owner: ClusterQueue | Cohort, again: str | None) -> CalendarEntry:
    """The entry. ``again``: a key that stands twice in it; None where none does."""
    if again is not None:
        raise _EntryError(f"found the field {_quoted(again)} a second time, expected it once")
    if not isinstance(given, dict):
        raise _EntryError("expected {from, for, nominal}")
    for key in given:
        if key not in _KEYS:
            raise _EntryError(f"found the field {_quoted(key)}, expected {', '.join(_KEYS)}")
    limits = [_limits(given, key, owner) for key in _KEYS[3:]]
    if not any(limits):
        raise _EntryError("expected nominal, borrowing or lending, found none of them")
    parent = owner.spec.cohort_name if isinstance(owner, ClusterQueue) else owner.spec.parent_name
    if not parent and any(limits[1:]):
        raise _EntryError("found borrowing or lending, expected neither without a cohort")
    if isinstance(owner, ClusterQueue):
        _lends_its_own(owner, limits[0], limits[2])
    times = Window(_cron(given.get("from")), zone=_zone(given.get("zone")), for_s=_for_s(given.get("for")))
    return CalendarEntry(number, times, *limits)


def _lends_its_own(owner: ClusterQueue, nominal: Limits, lending: Limits) -> None:
    """A lending limit is at most the nominal quota beside it, as in a spec. Where the spec's own is a share of the
    fleet that is not known.
    """
    own = {} if QUOTA_SHARES in owner.metadata.annotations else _nominal(owner)
    for fr, lent in lending.items():
        most = nominal.get(fr, own.get(fr))
        if most is not None and lent.nanos > most.nanos:
            where = f"lending: {fr.flavor}/{fr.resource}"
            raise _EntryError(f"{where}: found {_quoted(str(lent))}, expected at most its nominal quota, {most}")


def _cron(given: Any) -> Cron:
    try:
        return cron(given if isinstance(given, str) else "")
    except CronError:
        raise _EntryError(f"from: found {_quoted(given)}, expected {_CRON}") from None


def _zone(given: Any) -> str:
    try:
        return zone_named("UTC" if given is None else given)
    except ValueError:
        raise _EntryError(f"zone: found {_quoted(given)}, expected {_ZONE}") from None


def _for_s(given: Any) -> float:
    try:
        for_s = go_duration(given if isinstance(given, str) else "")
    except Unfit:
        for_s = 0.0
    if not _LEAST_S <= for_s <= _MOST_S:
        raise _EntryError(f"for: found {_quoted(given)}, expected {_FOR}")
    return for_s


def _limits(given: Mapping[str, Any], key: str, owner: ClusterQueue | Cohort) -> Limits:
    flavors = given.get(key, {})
    if not isinstance(flavors, dict) or not all(isinstance(each, dict) for each in flavors.values()):
        raise _EntryError(f"{key}: found {_quoted(flavors)}, expected {{FLAVOR: {{RESOURCE: quantity}}}}")
    known = set(_nominal(owner))
    quotas: dict[FlavorResource, Quantity] = {}
    for flavor, resources in flavors.items():
        for resource, amount in resources.items():
            fr = FlavorResource(FlavorName(str(flavor)), ResourceName(str(resource)))
            if fr not in known:
                raise _EntryError(f"{key}: found {_quoted(f'{flavor}/{resource}')}, expected {_one_of(known)}")
            quotas[fr] = _quantity(amount, fr.resource, f"{key}: {flavor}/{resource}")
    return quotas


def _quantity(given: Any, resource: ResourceName, where: str) -> Quantity:
    try:
        amount = parse_quantity(given)
    except QuantityError:
        amount = None
    if amount is None or isinstance(given, bool) or amount.nanos < 0:
        raise _EntryError(f"{where}: found {_quoted(given)}, expected a quantity from 0")
    if resource != CPU and amount.nanos % _WHOLE:
        raise _EntryError(f"{where}: found {_quoted(given)}, expected a whole number")
    return amount


def _nominal(owner: ClusterQueue | Cohort) -> dict[FlavorResource, Quantity]:
    return {
        FlavorResource(FlavorName(flavor.name), ResourceName(resource.name)): resource.nominal_quota
        for group in owner.spec.resource_groups
        for flavor in group.flavors
        for resource in flavor.resources
    }


def _one_of(known: set[FlavorResource]) -> str:
    named = [f"{flavor}/{resource}" for flavor, resource in sorted(known)]
    return ", ".join(named[:5]) if named else "none: the object has no quotas"


def _quoted(given: Any) -> str:
    """A value as JSON, cut off where it is long."""
    try:
        text = msgspec.json.encode(given).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        text = str(type(given).__name__)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def in_force(entries: Sequence[CalendarEntry], now_s: float) -> list[tuple[CalendarEntry, float]]:
    """The entries whose window is open, and when it ends."""
    return [(entry, window[1]) for entry in entries if (window := entry.times.open_at(now_s)) is not None]


def next_change_s(entries: Sequence[CalendarEntry], now_s: float) -> float | None:
    """The next time at which a window may begin or end; None where nothing does any more."""
    found_s = min((entry.times.changes_s(now_s) for entry in entries), default=inf)
    return None if found_s == inf else found_s


def overlaid(owner: QuotaOwner, entries: Sequence[CalendarEntry], now_s: float) -> QuotaOwner:
    """A ClusterQueue or Cohort with the quotas that hold now; the object itself where no window is open."""
    open_now = [entry for entry, _ in in_force(entries, now_s)]
    if not open_now:
        return owner

    def changed(fr: FlavorResource, quota: ResourceQuota) -> ResourceQuota:
        for entry in open_now:
            quota = msgspec.structs.replace(
                quota,
                nominal_quota=entry.nominal.get(fr, quota.nominal_quota),
                borrowing_limit=entry.borrowing.get(fr, quota.borrowing_limit),
                lending_limit=entry.lending.get(fr, quota.lending_limit),
            )
        return quota

    return requoted(owner, changed)
