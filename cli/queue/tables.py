"""Queues and who waits in them, for people."""

from collections.abc import Iterable

import click
from rich.table import Table
from rich.text import Text

from cli.cluster import Json
from cli.console import show

_AMOUNTS = ("flavor", "resource", "used", "quota", "borrowed", "free")


def table(title: str, *columns: str) -> Table:
    heading = Text(title, no_wrap=True, overflow="ignore")
    made = Table(title=heading, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def with_quotas(queues: Iterable[Json], objects: Iterable[Json]) -> list[Json]:
    """Queues as the controller tells them, with the quota their objects give."""
    found = {one["metadata"]["name"]: one for one in objects}
    return [{**one, "quota": _quota(found.get(one["name"], {}))} for one in queues]


def _quota(cluster_queue: Json) -> list[Json]:
    return [
        {"flavor": flavor["name"], **resource}
        for group in cluster_queue.get("spec", {}).get("resourceGroups") or []
        for flavor in group.get("flavors") or []
        for resource in flavor.get("resources") or []
    ]


def local_queues(objects: Iterable[Json]) -> list[Json]:
    """By what their status says."""
    found = []
    for one in objects:
        spec, status = one.get("spec") or {}, one.get("status") or {}
        found.append(
            {
                "name": f"{one['metadata']['namespace']}/{one['metadata']['name']}",
                "clusterQueue": spec.get("clusterQueue", ""),
                "stopPolicy": spec.get("stopPolicy") or "None",
                "pending": status.get("pendingWorkloads", 0),
                "reserving": status.get("reservingWorkloads", 0),
                "admitted": status.get("admittedWorkloads", 0),
            }
        )
    return sorted(found, key=lambda one: str(one["name"]))


def show_queues(body: Json) -> None:
    made = table("ClusterQueues", "queue", "cohort", "state", "waiting", "running", *_AMOUNTS)
    for one in body["clusterQueues"]:
        first = (one["name"], one["cohort"] or "-", _state(one), _waiting(one), str(one["admitted"]))
        rows = _rows(one)
        for number, row in enumerate(rows or [("-",) * 6]):
            made.add_row(*(first if number == 0 else ("",) * len(first)), *row)
    locals_ = table("LocalQueues", "queue", "ClusterQueue", "state", "waiting", "running")
    for one in body["localQueues"]:
        state = "stopped" if one["stopPolicy"] != "None" else "open"
        locals_.add_row(one["name"], one["clusterQueue"], state, str(one["pending"]), str(one["admitted"]))
    problems = [
        Text(f"{one['name']}: {problem['message']}", style="yellow")
        for one in body["clusterQueues"]
        for problem in one["problems"]
    ]
    show(made if body["clusterQueues"] else Text("There is no ClusterQueue."), *problems)
    show(locals_ if body["localQueues"] else None)


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
    if one["stopPolicy"] != "None":
        return "draining" if one["stopPolicy"] == "HoldAndDrain" else "stopped"
    return "open" if one["active"] else "inactive"


def _waiting(one: Json) -> str:
    return str(one["pending"]["active"] + one["pending"]["parked"])


def show_pending(body: Json) -> None:
    shown = False
    for queue in body["clusterQueues"]:
        if not queue["pending"]:
            continue
        shown = True
        made = table(f"ClusterQueue {queue['clusterQueue']}", "#", "workload", "LocalQueue", "priority", "reason", "")
        for one in queue["pending"]:
            made.add_row(
                str(one["position"] + 1),
                one["workload"],
                f"{one['localQueue']} #{one['positionInLocalQueue'] + 1}",
                str(one["priority"]),
                one["reason"] or "-",
                one["sentence"] or "Not tried since it came",
            )
        show(made, *(Text(problem["message"], style="yellow") for problem in queue["problems"]))
    if not shown:
        click.echo("Nobody waits.")
