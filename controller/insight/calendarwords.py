"""What the calendars of a ClusterQueue and of the Cohorts above it say now, for people."""

from collections.abc import Iterator
from typing import Any

from controller.messages.pending import calendar_change, calendar_window, calendar_wrong
from controller.messages.spans import moment
from controller.objects.queues import ClusterQueue, Cohort
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName
from controller.scheduler.quota.calendar import Calendar, CalendarEntry, in_force, next_change_s
from controller.scheduler.quota.quotanode import QuotaNode

Json = dict[str, Any]


def calendar_shown(engine: Engine, name: ClusterQueueName, now_s: float) -> Json | None:
    """The calendars by which the queue's quotas change: ``owners`` with ``windows`` (entries whose window is open, with
    the end of each), ``nextChange`` and ``problems``; and a ``sentence`` of all. None without a calendar.
    """
    state = engine.state.cluster.queues.get(name)
    return None if state is None else calendar_of(engine, state.node, now_s)


def calendar_of(engine: Engine, node: QuotaNode, now_s: float) -> Json | None:
    """``calendar_shown`` of a ClusterQueue or a Cohort by its node."""
    if not engine.state.calendars:
        return None
    found = [_shown(owner, calendar, now_s) for owner, calendar in _above(engine, node)]
    return {"owners": found, "sentence": ". ".join(each["sentence"] for each in found)} if found else None


def _above(engine: Engine, node: QuotaNode | None) -> Iterator[tuple[str, Calendar]]:
    """The objects with a calendar from the node up, as kind and name."""
    while node is not None:
        kind: type[ClusterQueue | Cohort] = ClusterQueue if node.is_queue else Cohort
        calendar = engine.state.calendars.of(kind, node.name)
        if calendar != Calendar():
            yield f"{kind.__name__} {node.name}", calendar
        node = node.parent


def _shown(owner: str, calendar: Calendar, now_s: float) -> Json:
    open_now, next_s = in_force(calendar.entries, now_s), next_change_s(calendar.entries, now_s)
    sentences = [calendar_window(owner, _line(entry), moment(end_s)) for entry, end_s in open_now]
    if not sentences and next_s is not None:
        begins = min(calendar.entries, key=lambda entry: entry.times.changes_s(now_s))
        sentences = [calendar_change(owner, _line(begins), moment(next_s))]
    sentences += [calendar_wrong(owner, problem) for problem in calendar.problems]
    return {
        "owner": owner,
        "windows": [
            {"entry": entry.number, "from": entry.times.begins.text, "until": moment(end_s)}
            for entry, end_s in open_now
        ],
        "nextChange": None if next_s is None else moment(next_s),
        "problems": list(calendar.problems),
        "sentence": ". ".join(sentences),
    }


def _line(entry: CalendarEntry) -> str:
    return f'"{entry.times.begins.text}" {entry.times.zone}'
