"""The explanation of one pod, for people."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from cli.explain.layouts import Remedy, how
from cli.printing.console import Json, ago, titled
from cli.printing.table import less, prose
from cli.workload.story import time_of
from inventory.words.catalog import plural

_HOLDERS = 10


def parts(body: Json) -> Iterator[RenderableType]:
    where = f" on {body['node']}" if body["node"] else ""
    style = {"Pending": "yellow", "Running": "green", "Failed": "red"}.get(body["phase"], "")
    yield Text(f"pod {body['pod']}: {body['phase']}{where}", style=style)
    if body["sentence"]:
        since = f" (since {ago(body['sinceSeconds'])})" if body["sinceSeconds"] is not None else ""
        yield Text(f"{body['sentence']}{since}")
    if body["refusal"]:
        yield Text(f"It is not queued: {body['refusal']['sentence']}", style="yellow")
    if body["gates"]:
        yield Text(f"It is held by {', '.join(body['gates'])}: it is scheduled once its gates are lifted")
    if not body["resources"] and not body["claims"]:
        yield Text("It asks for no GPU, neither by resource nor by claim.")
    shown: set[str] = set()
    asks = [(f"{each['amount']} {each['resource']}", each) for each in body["resources"]]
    asks += [(_of_claim(each), each) for each in body["claims"]]
    for whats, ask in _alike(asks):
        yield Text("")
        if ask.get("problem"):
            yield from (Text(what, style="yellow") for what in whats)
        else:
            yield from _once(_offers(" and for ".join(whats), ask), shown)


def _of_claim(ask: Json) -> str:
    if ask["problem"]:
        return f"{ask['claim']} ({ask['state']}): {ask['problem']}"
    return f"{ask['count']} of DeviceClass {ask['deviceClass']} by {ask['claim']} ({ask['state']})"


def _alike(asks: list[tuple[str, Json]]) -> Iterator[tuple[list[str], Json]]:
    """The asks with equal answers together: requests of one class have the same nodes and the same layout."""
    groups: list[tuple[list[str], Json]] = []
    for what, ask in asks:
        alike = next((whats for whats, first in groups if _answer(first) == _answer(ask)), None)
        if alike is None:
            groups.append(([what], ask))
        else:
            alike.append(what)
    for whats, ask in groups:
        counted = Counter(whats)
        problem = bool(ask.get("problem"))
        yield [what if count == 1 or problem else f"{count} times {what}" for what, count in counted.items()], ask


def _answer(ask: Json) -> list[Any]:
    return [bool(ask.get("problem")), *(ask[key] for key in ("nodes", "layout", "coming"))]


def _once(parts: Iterator[RenderableType], shown: set[str]) -> Iterator[RenderableType]:
    """The parts without sentences that stand above already; tables are whole."""
    for part in parts:
        if isinstance(part, Text):
            if part.plain in shown:
                continue
            shown.add(part.plain)
        yield part


def _offers(what: str, ask: Json) -> Iterator[RenderableType]:
    nodes, remedy, coming = ask["nodes"], ask["layout"], ask["coming"]
    if not nodes:
        unoffered = remedy is not None or coming
        yield Text(f"It asks for {what}: no node offers it." if unoffered else f"It asks for {what}.")
    yield from (Text(each["sentence"], style="yellow") for each in coming)
    if remedy is not None:
        yield from _layout(Remedy(**remedy))
    if not nodes:
        return
    closed = any(each["closed"] for each in nodes)
    columns = (
        "node",
        "offers",
        "free",
        less("withheld"),
        prose("held by"),
        *((prose("closed to it"),) if closed else ()),
    )
    made = titled(f"It asks for {what}; offered by {plural(len(nodes), 'node')}", *columns)
    for each in nodes:
        cells = (each["node"], str(each["offers"]), str(each["free"]), str(len(each["withheld"])), _held(each))
        made.add_row(*cells, *((each["closed"] or "-",) if closed else ()))
    yield made
    for node in nodes:
        for one in node["withheld"]:
            since = time_of(one["since"])
            for_s = f" (for {ago((datetime.now(UTC) - since).total_seconds())})" if since is not None else ""
            until = f", {one['until']}" if one["until"] else ""
            yield Text(f"{one['device']} of {node['node']} is withheld: {one['why']}{for_s}{until}", style="yellow")


def _layout(remedy: Remedy) -> Iterator[Text]:
    yield Text(f"{remedy.sentence}{': ' + remedy.file if remedy.file else ''}")
    if remedy.file:
        yield Text(f"  {how(remedy)}")


def _held(node: Json) -> str:
    holders = [
        f"{each['pod']} ({each['amount']})" if each["amount"] != "1" else each["pod"] for each in node["holders"]
    ]
    more = f" and {len(holders) - _HOLDERS} more" if len(holders) > _HOLDERS else ""
    return ", ".join(holders[:_HOLDERS]) + more if holders else "-"
