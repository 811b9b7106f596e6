"""The explanation of one pod, for people."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from cli.console import Json, ago, titled
from cli.explain.layouts import Remedy, how
from cli.table import less, prose
from inventory.words.plural import plural

_HOLDERS = 10


def parts(body: Json) -> Iterator[RenderableType]:
    where = f" on {body['node']}" if body["node"] else ""
    style = {"Pending": "yellow", "Running": "green", "Failed": "red"}.get(body["phase"], "")
    yield Text(f"pod {body['pod']}: {body['phase']}{where}", style=style)
    if body["sentence"]:
        since = f" (since {ago(body['sinceSeconds'])})" if body["sinceSeconds"] is not None else ""
        yield Text(f"{body['sentence']}{since}")
    if body["gates"]:
        yield Text(f"It is held by {', '.join(body['gates'])}: it is scheduled once its gates are lifted")
    if not body["resources"] and not body["claims"]:
        yield Text("It asks for no GPU, neither by resource nor by claim.")
    for each in body["resources"]:
        yield Text("")
        yield from _offers(f"{each['amount']} {each['resource']}", each)
    for each in body["claims"]:
        yield Text("")
        yield from _claim(each)


def _claim(ask: Json) -> Iterator[RenderableType]:
    if ask["problem"]:
        yield Text(f"{ask['claim']} ({ask['state']}): {ask['problem']}", style="yellow")
        return
    what = f"{ask['count']} of DeviceClass {ask['deviceClass']} by {ask['claim']} ({ask['state']})"
    yield from _offers(what, ask)


def _offers(what: str, ask: Json) -> Iterator[RenderableType]:
    nodes, remedy = ask["nodes"], ask["layout"]
    if not nodes:
        yield Text(f"It asks for {what}: no node offers it." if remedy is not None else f"It asks for {what}.")
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
    for each in nodes:
        for one in each["withheld"]:
            until = f", {one['until']}" if one["until"] else ""
            yield Text(f"{one['device']} of {each['node']} is withheld: {one['why']}{until}", style="yellow")


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
