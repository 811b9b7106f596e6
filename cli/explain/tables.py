"""One workload's explanation, for people."""

import datetime as dt

from rich.console import RenderableType
from rich.text import Text

from cli.cluster import Json
from cli.console import show as print_parts
from cli.queue.tables import table
from inventory.api.deviceplan import written

_HOLDERS = 10
_STYLES = {"Admitted": "green", "Pending": "yellow", "HeldBack": "yellow", "Evicted": "red"}


def show(body: Json) -> None:
    print_parts(
        _headline(body), _place(body), _sentence(body), *_numbers(body), *_holders(body), *_devices(body), *_story(body)
    )


def _headline(body: Json) -> Text:
    job = f" ({body['job']})" if body["job"] else ""
    reason = f", {body['reason']}" if body["reason"] else ""
    return Text(f"{body['workload']}{job}: {body['state']}{reason}", style=_STYLES.get(body["state"], ""))


def _place(body: Json) -> Text:
    through = f"LocalQueue {body['localQueue']}, priority {body['priority']}"
    position = f", number {body['position'] + 1} in line" if body["position"] is not None else ""
    return Text(f"ClusterQueue {body['clusterQueue'] or '(none)'} by {through}{position}")


def _sentence(body: Json) -> Text | None:
    if body["sentence"]:
        return Text(body["sentence"])
    said = {one["type"]: one.get("message") for one in body["conditions"] or [] if one["status"] == "True"}
    message = next(
        (said[type_] for type_ in ("Finished", "Evicted", "Admitted", "QuotaReserved") if said.get(type_)), None
    )
    return Text(message) if message is not None else None


def _numbers(body: Json) -> list[RenderableType]:
    if body["decision"] is None:
        return []
    parts: list[RenderableType] = [Text(""), Text("What was tried", style="bold")]
    parts += [Text(f"  {line}") for line in body["decision"]["details"]]
    wanted = body["wouldAdmit"]
    if wanted is None:
        return parts
    columns = ("resource", "needed", "free", "lacking", "quota", "used", "quota left", "borrowable", "at most")
    keys = ("resource", "needed", "available", "lacking", "nominal", "used", "quotaLeft", "borrowable", "atMost")
    made = table(f"What would admit it, by flavor {wanted['flavor']}", *columns)
    for one in wanted["resources"]:
        made.add_row(*("no limit" if one[key] is None else str(one[key]) for key in keys))
    return [*parts, Text(""), made]


def _holders(body: Json) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for one in (body["wouldAdmit"] or {}).get("resources", []):
        if not one["heldBy"]:
            continue
        flavor = body["wouldAdmit"]["flavor"]
        title = f"Who holds {one['resource']} of flavor {flavor}"
        made = table(title, "workload", "queue", "amount", "priority", "since")
        for holder in one["heldBy"][:_HOLDERS]:
            going = ", evicted, still there" if holder["evicted"] else ""
            made.add_row(
                holder["workload"],
                holder["clusterQueue"],
                holder["amount"],
                str(holder["priority"]),
                f"{dt.timedelta(seconds=holder['sinceSeconds'])}{going}",
            )
        left = len(one["heldBy"]) - _HOLDERS
        parts += [Text(""), made, *([Text(f"and {left} more")] if left > 0 else [])]
    return parts


def _devices(body: Json) -> list[RenderableType]:
    """What its pods are to get or hold on each node, and who got something else."""
    parts: list[RenderableType] = []
    if body.get("devices"):
        made = table("Devices", "pod set", "node", "for each pod")
        for one in body["devices"]:
            made.add_row(one["podSet"], one["node"], "\n".join(map(_shown, one["pods"])))
        parts += [Text(""), made]
    for one in body.get("couldBeMade") or ():
        starts = ", ".join(map(str, one["starts"]))
        mode = "" if one["migMode"] else " once its MIG mode is on"
        said = (
            f"a layout could make {one['resource']} on GPU {one['gpu']} of {one['node']}{mode} (memory slice {starts})"
        )
        parts.append(Text(said))
    for one in body.get("deviceDrift") or ():
        said = f"{one['pod']} on {one['node']} holds {_shown(one['held'])}, planned was {_shown(one['planned'])}"
        parts.append(Text(said, style="yellow"))
    return parts


def _shown(devices: list[str]) -> str:
    return written(devices).replace(",", " ")


def _story(body: Json) -> list[RenderableType]:
    if not body["story"]:
        return []
    made = table("Story", "when", "queue", "what")
    for one in body["story"]:
        when = dt.datetime.fromtimestamp(one["at"], tz=dt.UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        made.add_row(when, one["clusterQueue"], one["sentence"])
    return [Text(""), made]
