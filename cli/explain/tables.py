"""One workload's explanation, for people."""

import datetime as dt
import time
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from cli import forecasts
from cli.printing.console import Json, ago, titled
from cli.printing.console import show as print_parts
from cli.printing.table import less, prose
from inventory.api.deviceplan import written
from inventory.api.names import GANG_SCHEDULED

_HOLDERS = 10
_STYLES = {"Admitted": "green", "Pending": "yellow", "HeldBack": "yellow", "Evicted": "red"}


def show(body: Json, *, wide: bool = False) -> None:
    print_parts(
        _headline(body),
        _place(body),
        *_sentence(body),
        *_preempted(body),
        *_checks(body),
        *_nodes_to_come(body),
        *_gang(body),
        *_too_large(body),
        *(
            Text(body[part]["sentence"])
            for part in ("growth", "evictionsHeld", "inRepair", "passedOver", "calendar")
            if body.get(part)
        ),
        *forecasts.parts(body.get("forecast")),
        *_numbers(body),
        *_holders(body),
        *_devices(body),
        *_story(body),
        wide=wide,
    )


def _headline(body: Json) -> Text:
    job = f" ({body['job']})" if body["job"] else ""
    reason = f", {body['reason']}" if body["reason"] else ""
    return Text(f"{body['workload']}{job}: {body['state']}{reason}", style=_STYLES.get(body["state"], ""))


def _place(body: Json) -> Text:
    through = f"LocalQueue {body['localQueue']}, priority {body['priority']}"
    position = f", position {body['position'] + 1} in the queue" if body["position"] is not None else ""
    return Text(f"ClusterQueue {body['clusterQueue'] or '(none)'} by {through}{position}")


def _sentence(body: Json) -> list[Text]:
    """Why the Workload waits; for one that holds quota the state of its pods; else its conditions."""
    pods = body.get("pods")
    if pods is not None and (pods["troubles"] or pods["running"] + pods["succeeded"] < pods["of"]):
        return [Text(f"Pods that run: {pods['running']} of {pods['of']}"), *_troubles(pods["troubles"])]
    told = _told(body)
    return [told] if told is not None else []


def _nodes_to_come(body: Json) -> Iterator[Text]:
    """The nodes that it waits for."""
    if (found := body.get("nodesToCome")) is not None:
        yield Text(f"Nodes to come: {found['sentence']}")


def _preempted(body: Json) -> Iterator[Text]:
    """What a workload that waits again was told when it was preempted: for whom, and what it lost. The forecast below
    says when it likely runs again.
    """
    told = body.get("preempted")
    if told is not None:
        since = f" {ago(max(0.0, time.time() - told['at']))} ago" if told["at"] is not None else ""
        yield Text(f"It ran until it was preempted{since}: {told['sentence']}")


def _checks(body: Json) -> Iterator[Text]:
    """The admission checks that it waits for."""
    for check in body.get("checks") or ():
        said = f": {check['message']}" if check["message"] else ""
        yield Text(f"Admission check {check['name']} is {check['state']}{said}")


def _gang(body: Json) -> Iterator[Text]:
    """What kube-scheduler says of the gang of an admitted workload, while it does not start it."""
    said = {condition["type"]: condition for condition in body["conditions"] or []}
    gang, admitted = said.get(GANG_SCHEDULED), said.get("Admitted")
    if gang is None or admitted is None or gang["status"] != "False" or body["state"] != "Admitted":
        return
    # Times of one writer, as the API server has them: their order is that of their text.
    if gang["lastTransitionTime"] >= admitted["lastTransitionTime"]:
        yield Text(gang["message"], style="red")


def _too_large(body: Json) -> Iterator[Text]:
    """Unless what its pods wait for says it."""
    said = body.get("tooLarge")
    troubles = (body.get("pods") or {}).get("troubles") or ()
    if said and not any(said in trouble["next"] for trouble in troubles):
        yield Text(said, style="red")


def _troubles(troubles: list[Json]) -> Iterator[Text]:
    for trouble in troubles:
        since = f" (since {ago(trouble['sinceSeconds'])})" if trouble["sinceSeconds"] is not None else ""
        yield Text(f"{trouble['sentence']}{since}", style="red")
        yield Text(f"  {trouble['next']}")


def _told(body: Json) -> Text | None:
    if body["sentence"]:
        return Text(body["sentence"])
    messages = {
        condition["type"]: condition.get("message")
        for condition in body["conditions"] or []
        if condition["status"] == "True"
    }
    message = next(
        (messages[type_] for type_ in ("Finished", "Evicted", "Admitted", "QuotaReserved") if messages.get(type_)), None
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
    own = (less("quota", 2), less("used"), less("quota left", 3), less("borrowable", 3), less("at most", 2))
    columns = ("resource", "needed", "free", "lacking", *own)
    keys = ("resource", "needed", "available", "lacking", "nominal", "used", "quotaLeft", "borrowable", "atMost")
    made = titled(f"What would admit it, by flavor {wanted['flavor']}", *columns)
    for resource in wanted["resources"]:
        made.add_row(*("no limit" if resource[key] is None else str(resource[key]) for key in keys))
    return [*parts, Text(""), made]


def _holders(body: Json) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for resource in (body["wouldAdmit"] or {}).get("resources", []):
        if not resource["heldBy"]:
            continue
        flavor = body["wouldAdmit"]["flavor"]
        title = f"Holders of {resource['resource']} of flavor {flavor}"
        made = titled(title, "workload", less("queue", 2), "amount", less("priority"), "since")
        for holder in resource["heldBy"][:_HOLDERS]:
            going = ", evicted, still there" if holder["evicted"] else ""
            made.add_row(
                holder["workload"],
                holder["clusterQueue"],
                holder["amount"],
                str(holder["priority"]),
                f"{dt.timedelta(seconds=holder['sinceSeconds'])}{going}",
            )
        left = len(resource["heldBy"]) - _HOLDERS
        parts += [Text(""), made, *([Text(f"and {left} more")] if left > 0 else [])]
    return parts


def _devices(body: Json) -> list[RenderableType]:
    """The devices planned for or held by its pods on each node, and the pods that got others."""
    parts: list[RenderableType] = []
    if body.get("devices"):
        made = titled("Devices", less("pod set"), "node", prose("for each pod"))
        for placed in body["devices"]:
            made.add_row(placed["podSet"], placed["node"], "\n".join(map(_shown, placed["pods"])))
        parts += [Text(""), made]
    for claim in body.get("claims") or ():
        parts.append(Text(_claim(claim)))
    for slot in body.get("couldBeMade") or ():
        starts = ", ".join(map(str, slot["starts"]))
        mode = "" if slot["migMode"] else " once its MIG mode is on"
        where = f"GPU {slot['gpu']} of {slot['node']}{mode} (memory slice {starts})"
        sentence = f"a layout could make {slot['resource']} on {where}"
        parts.append(Text(sentence))
    for drift in body.get("deviceDrift") or ():
        sentence = (
            f"{drift['pod']} on {drift['node']} holds {_shown(drift['held'])}, planned was {_shown(drift['planned'])}"
        )
        parts.append(Text(sentence, style="yellow"))
    return parts


def _claim(claim: Json) -> str:
    """The text ``each claim of template t counts as 2 nvidia.com/gpu``, or the problem."""
    named = f"each claim of template {claim['claim']}" if claim["template"] else f"claim {claim['claim']}"
    if claim["problem"]:
        return f"{named} cannot be counted: {claim['problem']}"
    counts = ", ".join(f"{amount} {name}" for name, amount in claim["counts"].items()) or "nothing"
    charged = f", charged to {', '.join(claim['chargedTo'])}" if claim["chargedTo"] else ""
    if claim.get("notPlaced"):
        charged += f"; nodes are chosen without it: {claim['notPlaced']}"
    return f"{named} counts as {counts}{charged}"


def _shown(devices: list[str]) -> str:
    return written(devices).replace(",", " ")


def _story(body: Json) -> list[RenderableType]:
    if not body["story"]:
        return []
    made = titled("Story", "when", less("queue"), prose("what"))
    for event in body["story"]:
        when = dt.datetime.fromtimestamp(event["at"], tz=dt.UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        made.add_row(when, event["clusterQueue"], event["sentence"])
    return [Text(""), made]
