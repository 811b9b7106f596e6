"""What the calendars of a ClusterQueue and of the Cohorts above it say now, for people."""

from collections.abc import Iterator
from typing import Any

from controller.messages.pending import calendar_change, calendar_window, calendar_wrong
from controller.messages.spans import moment
from controller.objects.queues import ClusterQueue, Cohort
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName
from controller.scheduler.quota.calendar import Calendar, CalendarEntry, in_force, next_change_s

Json = dict[str, Any]


def calendar_shown(engine: Engine, name: ClusterQueueName, now_s: float) -> Json | None:
    """The calendars by which the queue's quotas change: ``owners`` with ``windows`` (entries whose window is open, with
    the end of each), ``nextChange`` and ``problems``; and a ``sentence`` of all. None without a calendar.
    """
    found = [_shown(owner, calendar, now_s) for owner, calendar in _above(engine, name)]
    return {"owners": found, "sentence": ". ".join(each["sentence"] for each in found)} if found else None


def _above(engine: Engine, name: ClusterQueueName) -> Iterator[tuple[str, Calendar]]:
    """The objects with a calendar from the queue up, as kind and name."""
    calendars, state = engine.state.calendars, engine.state.cluster.queues.get(name)
    if state is None:
        return
    own = calendars.of(ClusterQueue, name)
    if own != Calendar():
        yield f"ClusterQueue {name}", own
    node = state.node.parent
    while node is not None:
        of_cohort = calendars.of(Cohort, node.name)
        if of_cohort != Calendar():
            yield f"Cohort {node.name}", of_cohort
        node = node.parent


def _shown(owner: str, calendar: Calendar, now_s: float) -> Json:
    open_now, next_s = in_force(calendar.entries, now_s), next_change_s(calendar.entries, now_s)
    said = [calendar_window(owner, _line(entry), moment(end_s)) for entry, end_s in open_now]
    if not said and next_s is not None:
        begins = min(calendar.entries, key=lambda entry: entry.changes_s(now_s))
        said = [calendar_change(owner, _line(begins), moment(next_s))]
    said += [calendar_wrong(owner, problem) for problem in calendar.problems]
    return {
        "owner": owner,
        "windows": [
            {"entry": entry.number, "from": entry.begins.text, "until": moment(end_s)} for entry, end_s in open_now
        ],
        "nextChange": None if next_s is None else moment(next_s),
        "problems": list(calendar.problems),
        "sentence": ". ".join(said),
    }


def _line(entry: CalendarEntry) -> str:
    return f'"{entry.begins.text}" {entry.zone.key}'
