"""Tables of queues and their pending workloads."""

from collections.abc import Iterable, Sequence

import click
from rich.text import Text

from cli.printing.console import Json, console, show, titled
from cli.printing.table import Column, Table, less, prose
from controller.messages.queuestate import local_queue_state, queue_state
from controller.messages.spans import starts
from inventory.words.catalog import plural

_PENDING = ("#", "workload", less("LocalQueue", 3), less("priority", 2), prose("starts"), "reason", prose(""))
_AMOUNTS = (less("flavor", 3), "resource", "used", "quota", less("borrowed", 5), "free")


def with_quotas(queues: Iterable[Json], objects: Iterable[Json]) -> list[Json]:
    """Queues as the controller shows them, with the quota of their objects."""
    found = {each["metadata"]["name"]: each for each in objects}
    return [{**queue, "quota": _quota(found.get(queue["name"], {}))} for queue in queues]


def _quota(cluster_queue: Json) -> list[Json]:
    return [
        {"flavor": flavor["name"], **resource}
        for group in cluster_queue.get("spec", {}).get("resourceGroups") or []
        for flavor in group.get("flavors") or []
        for resource in flavor.get("resources") or []
    ]


def local_queues(objects: Iterable[Json]) -> list[Json]:
    """The LocalQueues by their status."""
    rows = []
    for queue in objects:
        spec, status = queue.get("spec") or {}, queue.get("status") or {}
        rows.append(
            {
                "name": f"{queue['metadata']['namespace']}/{queue['metadata']['name']}",
                "clusterQueue": spec.get("clusterQueue", ""),
                "stopPolicy": spec.get("stopPolicy") or "None",
                "pending": status.get("pendingWorkloads", 0),
                "reserving": status.get("reservingWorkloads", 0),
                "admitted": status.get("admittedWorkloads", 0),
            }
        )
    return sorted(rows, key=lambda each: str(each["name"]))


def show_queues(body: Json, *, wide: bool = False) -> None:
    """Print the queues. ``wide`` adds how many hold quota, admitted or not, and the weighted share by which fair
    sharing orders.
    """
    more = (less("reserving", 6), less("share", 7)) if wide else ()
    made = _cluster_queues(body["clusterQueues"], more)
    locals_ = titled("LocalQueues", "queue", less("ClusterQueue", 2), less("state"), "waiting", "running", *more[:1])
    states = {queue["name"]: _state(queue) for queue in body["clusterQueues"]}
    for local in body["localQueues"]:
        state = local_queue_state(local["stopPolicy"], states.get(local["clusterQueue"]))
        counts = [str(local["pending"]), _running(local), *([str(local["reserving"])] if wide else [])]
        locals_.add_row(local["name"], local["clusterQueue"], state, *counts)
    problems = [
        Text(f"{queue['name']}: {problem['message']}", style="yellow")
        for queue in body["clusterQueues"]
        for problem in (*queue["problems"], *queue.get("withoutNodes", ()))
    ]
    problems += [
        Text(_without_pods(queue["name"], queue), style="yellow")
        for queue in body["clusterQueues"]
        if queue["admittedWithoutPods"]
    ]
    show(*(made if body["clusterQueues"] else [Text("There is no ClusterQueue.")]), *problems, wide=wide)
    show(locals_ if body["localQueues"] else None, wide=wide)


def _cluster_queues(queues: Sequence[Json], more: tuple[Column, ...]) -> list[Table]:
    """The ClusterQueues in one table; in two, of counts and of amounts, where a terminal has no room for all numbers
    side by side.
    """
    of_counts: tuple[str | Column, ...] = ("queue", less("cohort", 4), less("state"), "waiting", "running", *more)
    whole, counts = titled("ClusterQueues", *of_counts, *_AMOUNTS), titled("ClusterQueues", *of_counts)
    amounts = titled("Quota", "queue", *_AMOUNTS)
    for queue in queues:
        first: tuple[str, ...] = (queue["name"], queue["cohort"] or "-", _state(queue))
        first += (_waiting(queue), _running(queue))
        first += (str(queue["reserving"]), str(queue["weightedShare"])) if more else ()
        counts.add_row(*first)
        for number, row in enumerate(_rows(queue) or [("-",) * len(_AMOUNTS)]):
            whole.add_row(*(first if number == 0 else ("",) * len(first)), *row)
            amounts.add_row(queue["name"] if number == 0 else "", *row)
    return [whole] if whole.fits(console().width) else [counts, amounts]


def _running(queue: Json) -> str:
    """The number of workloads with pods that run; where pods may not be read that of admitted ones, as a note
    has said.
    """
    return str(queue["admitted"] if queue["running"] is None else queue["running"])


def _without_pods(name: str, queue: Json) -> str:
    more = plural(queue["admittedWithoutPods"], "admitted workload has", "admitted workloads have")
    return f"{name}: {more} no pod that runs: tessera explain WORKLOAD says why"


def _rows(one: Json) -> list[tuple[str, ...]]:
    quotas = {(quota["flavor"], quota["name"]): str(quota["nominalQuota"]) for quota in one["quota"]}
    free = {(each["flavor"], each["resource"]): each["amount"] for each in one["available"]}
    rows: list[tuple[str, ...]] = []
    for flavor in one["reservation"]:
        for resource in flavor.get("resources", []):
            key = (flavor["name"], resource["name"])
            rows.append(
                (
                    *key,
                    str(resource.get("total", "0")),
                    quotas.get(key, "-"),
                    str(resource.get("borrowed", "0")),
                    "no limit" if free.get(key) is None else str(free[key]),
                )
            )
    return rows


def _state(one: Json) -> str:
    return queue_state(one["stopPolicy"], active=one["active"], nodeless=bool(one.get("nodeless")))


def _waiting(one: Json) -> str:
    return str(one["pending"]["active"] + one["pending"]["parked"])


def show_pending(body: Json, *, wide: bool = False) -> None:
    """Print the pending workloads. ``wide`` adds whether the workload is parked: not tried again before something
    changes for it.
    """
    shown = False
    for queue in body["clusterQueues"]:
        if not queue["pending"]:
            continue
        shown = True
        made = titled(f"ClusterQueue {queue['clusterQueue']}", *_PENDING)
        if wide:
            made.add_column(less("parked", 4))
        for workload in queue["pending"]:
            made.add_row(
                str(workload["position"] + 1),
                workload["workload"],
                f"{workload['localQueue']} #{workload['positionInLocalQueue'] + 1}",
                str(workload["priority"]),
                starts(workload.get("forecast")),
                workload["reason"] or "-",
                workload["sentence"] or "Not tried since it came",
                *(["yes" if workload["parked"] else "no"] if wide else []),
            )
        show(made, *(Text(problem["message"], style="yellow") for problem in queue["problems"]), wide=wide)
    if not shown:
        click.echo("No workload is pending.")
