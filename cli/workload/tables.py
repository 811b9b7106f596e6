"""Workloads as tables."""

from collections.abc import Sequence
from datetime import datetime

import click
from rich.console import RenderableType
from rich.text import Text

from cli.printing.console import Json, ago, show, titled
from cli.printing.table import less, prose
from cli.workload.rows import Row, owner, requests, state_of
from cli.workload.story import Moment
from controller.objects.placeencoding import hosts
from controller.objects.workload import Workload

_STYLES = {
    "Admitted": "green",
    "QuotaReserved": "cyan",
    "Pending": "yellow",
    "Evicting": "red",
    "Stopped": "magenta",
    "Finished": "dim",
}
_COLUMNS = (
    "name",
    less("job type", 5),
    "job",
    less("LocalQueue", 2),
    less("ClusterQueue", 3),
    "state",
    less("place"),
    less("ran"),
    less("age"),
)
_MORE = (less("priority", 6), less("class", 8), less("pods", 7), prose("requests", 7), less("reason", 6), prose("", 6))


def show_list(rows: Sequence[Row], *, everywhere: bool, wide: bool) -> None:
    if not rows:
        click.echo("No workload is found.")
        return
    made = titled("Workloads", *(["namespace"] if everywhere else []), *_COLUMNS, *(_MORE if wide else ()))
    for row in rows:
        ran = "-" if row.exec_s is None else ago(row.exec_s)
        place = "-" if row.position is None else str(row.position)
        state = Text(row.state, style=_STYLES.get(row.state, ""))
        job, queue = (row.job_kind or "-", row.job_name or "-"), (row.local_queue or "-", row.cluster_queue or "-")
        cells: list[str | Text] = [*([row.namespace] if everywhere else []), row.name, *job, *queue, state]
        cells += [place, ran, ago(row.age_s)]
        if wide:
            of = (str(row.priority), row.priority_class or "-", str(row.pods), row.requests or "-", row.reason or "-")
            cells += [*of, row.message]
        made.add_row(*cells)
    show(made, wide=wide)


def show_one(workload: Workload, pods: Sequence[Json], *, wide: bool = False) -> None:
    state = state_of(workload)
    job = " ".join(filter(None, owner(workload)))
    headline = Text(f"{workload.key}{f' ({job})' if job else ''}: {state}", style=_STYLES.get(state, ""))
    spec, admission = workload.spec, workload.status.admission
    by = f" by {spec.priority_class_ref.name}" if spec.priority_class_ref is not None else ""
    through = f"LocalQueue {spec.queue_name or '(none)'}, priority {spec.priority or 0}{by}"
    given = f", ClusterQueue {admission.cluster_queue}" if admission is not None else ""
    asks = Text(f"{through}{given}\nRequests {requests(workload) or 'nothing'}")
    sets = titled("Pod sets", "pod set", "pods", prose("flavors"), prose("nodes"))
    for pod_set in spec.pod_sets:
        assigned = admission.pod_set_assignments if admission is not None else ()
        found = next((each for each in assigned if each.name == pod_set.name), None)
        flavors = ", ".join(f"{name} {flavor}" for name, flavor in sorted(found.flavors.items())) if found else ""
        nodes = ", ".join(hosts(found.topology_assignment)) if found is not None else ""
        sets.add_row(pod_set.name, str(pod_set.count), flavors or "-", nodes or "-")
    made = titled("Conditions", "condition", "status", less("reason", 2), less("since"), prose("message"))
    for condition in workload.status.conditions:
        since = _clock(condition.last_transition_time) if condition.last_transition_time is not None else "-"
        made.add_row(condition.type, condition.status, condition.reason, since, condition.message)
    show(headline, asks, sets, made if workload.status.conditions else None, _pods(pods), wide=wide)


def _pods(pods: Sequence[Json]) -> RenderableType | None:
    if not pods:
        return None
    made = titled("Pods", "pod", "phase", "node")
    for pod in pods:
        status, spec = pod.get("status") or {}, pod.get("spec") or {}
        made.add_row(str(pod["metadata"]["name"]), str(status.get("phase", "-")), str(spec.get("nodeName") or "-"))
    return made


def show_story(key: str, moments: Sequence[Moment], *, wide: bool = False) -> None:
    if not moments:
        click.echo(f"{key}: nothing is known of what became of it.")
        return
    made = titled(f"Story of {key}", "when", less("after", 2), less("object"), "what", prose(""))
    for moment in moments:
        after = ago((moment.at - moments[0].at).total_seconds())
        made.add_row(_clock(moment.at), after, moment.about, moment.what, moment.text)
    show(made, wide=wide)


def _clock(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
