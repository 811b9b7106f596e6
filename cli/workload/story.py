"""The story of one Workload as a time line: from its conditions, admission and checks, its job, its pods, its Events.

Pure. Objects come as the API server's JSON: the schema of a job's kind is not known here, so that every value is
checked before it is used, and entries without a time are left out.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from cli.printing.console import Json


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the story. ``about``: the kind and name of the object; ``what``: a word for what happened; ``text``:
    its sentence.
    """

    at: datetime
    about: str
    what: str
    text: str = ""


def story(workload: Json, job: Json | None, pods: Iterable[Json], events: Iterable[Json]) -> list[Moment]:
    """The entries, oldest first. An Event that repeats a condition in its words is told once, as is an Event that is
    told twice.
    """
    moments = [*_of_workload(workload), *(_of_job(job) if job is not None else ())]
    moments += [moment for pod in pods for moment in _of_pod(pod)]
    known = {(moment.about, moment.text) for moment in moments if moment.text}
    for moment in filter(None, map(moment_of, events)):
        if (moment.about, moment.text) not in known:
            known.add((moment.about, moment.text))
            moments.append(moment)
    return sorted(moments, key=lambda moment: moment.at)


def time_of(value: Any) -> datetime | None:
    """The time that the API writes as ``value``; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _map(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _maps(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def name_of(given: Json, kind: str) -> str:
    return f"{given.get('kind') or kind} {_map(given.get('metadata')).get('name')}"


def _moment(at: Any, about: str, what: Any, text: Any = "") -> Iterator[Moment]:
    """The entry, none where there is no time."""
    when = time_of(at)
    if when is not None:
        yield Moment(at=when, about=about, what=str(what or ""), text=str(text or ""))


def _created(given: Json, about: str, text: str = "") -> Iterator[Moment]:
    meta = _map(given.get("metadata"))
    yield from _moment(meta.get("creationTimestamp"), about, "created", text)
    yield from _moment(meta.get("deletionTimestamp"), about, "being deleted")


def _conditions(status: Json, about: str) -> Iterator[Moment]:
    for condition in _maps(status.get("conditions")):
        type_, reason = str(condition.get("type")), str(condition.get("reason") or "")
        what = type_ if condition.get("status") == "True" else f"not {type_}"
        shown = what if reason in ("", type_) else f"{what} ({reason})"
        yield from _moment(condition.get("lastTransitionTime"), about, shown, condition.get("message"))


def _of_workload(workload: Json) -> Iterator[Moment]:
    about, status = name_of(workload, "Workload"), _map(workload.get("status"))
    queue = _map(workload.get("spec")).get("queueName")
    yield from _created(workload, about, f"in LocalQueue {queue}" if queue else "")
    yield from _conditions(status, about)
    for check in _maps(status.get("admissionChecks")):
        what = f"check {check.get('name')}: {check.get('state')}"
        yield from _moment(check.get("lastTransitionTime"), about, what, check.get("message"))


def _of_job(job: Json) -> Iterator[Moment]:
    about, status = name_of(job, "job"), _map(job.get("status"))
    yield from _created(job, about)
    yield from _moment(status.get("startTime"), about, "started")
    yield from _conditions(status, about)
    yield from _moment(status.get("completionTime"), about, "completed")


def _of_pod(pod: Json) -> Iterator[Moment]:
    about, status = name_of(pod, "Pod"), _map(pod.get("status"))
    yield from _created(pod, about)
    node = _map(pod.get("spec")).get("nodeName")
    for condition in _maps(status.get("conditions")):
        at, good = condition.get("lastTransitionTime"), condition.get("status") == "True"
        if condition.get("type") == "PodScheduled":
            what = f"scheduled to {node}" if good else f"not scheduled ({condition.get('reason')})"
            yield from _moment(at, about, what, condition.get("message"))
        elif condition.get("type") == "Ready":
            yield from _moment(at, about, "ready" if good else "not ready", condition.get("message"))
    for container in _maps(status.get("containerStatuses")):
        state = _map(container.get("state"))
        ended = _map(state.get("terminated"))
        began = _map(state.get("running")).get("startedAt") or ended.get("startedAt")
        yield from _moment(began, about, f"container {container.get('name')} started")
        if ended:
            what = f"container {container.get('name')} ended with exit code {ended.get('exitCode')}"
            yield from _moment(ended.get("finishedAt"), about, what, ended.get("message") or ended.get("reason"))


def moment_of(event: Json) -> Moment | None:
    """The entry of an Event; None for one without a time."""
    series, about = _map(event.get("series")), _map(event.get("regarding"))
    times = (
        series.get("lastObservedTime"),
        event.get("eventTime"),
        event.get("deprecatedLastTimestamp"),
        _map(event.get("metadata")).get("creationTimestamp"),
    )
    at = next(filter(None, map(time_of, times)), None)
    if at is None:
        return None
    count = series.get("count") or event.get("deprecatedCount") or 1
    more = f" ({count} times)" if isinstance(count, int) and count > 1 else ""
    named = f"{about.get('kind')} {about.get('name')}"
    return Moment(at=at, about=named, what=f"{event.get('reason')}{more}", text=str(event.get("note") or ""))


def concerns(event: Json, uids: frozenset[str], names: frozenset[tuple[str, str]]) -> bool:
    """Whether the Event is about one of these objects: by uid where it tells one, else by kind and name."""
    about = _map(event.get("regarding"))
    uid = about.get("uid")
    if isinstance(uid, str) and uid:
        return uid in uids
    return (str(about.get("kind")), str(about.get("name"))) in names
