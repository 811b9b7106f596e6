"""The screen of ``tessera top``: totals, GPUs or nodes with bars, and the queues, cut to the screen's height."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from cli.printing.console import titled
from cli.printing.output import visible
from cli.printing.table import Table, folded, less, prose
from cli.top.fleet import Fleet, GpuRow, QueueRow, Totals, totals
from inventory.words.catalog import plural

BY: Final = ("auto", "gpu", "node")
_HEALTH: Final = {"Healthy": "green", "Suspect": "yellow", "Unhealthy": "red", "Probation": "magenta"}
_BAR: Final = 10
_HOLDERS: Final = 3
_WARM, _HOT = 0.5, 0.85
_LEAST: Final = 4
"""The fewest rows of GPUs that are shown, however low the screen."""


def screen(fleet: Fleet, *, height: int | None, by: str, width: int) -> RenderableType:
    """The screen's content. ``height``: lines of the screen; None: all rows are shown. ``width``: its columns."""
    found = totals(fleet.gpus)
    shown_queues = _queues(fleet.queues) if fleet.queues else None
    headline = [*folded(_headline(fleet, found), width)]
    others = 3 + len(headline) + len(fleet.notes) + (len(fleet.queues) + 3 if fleet.queues else 0)
    room = None if height is None else max(_LEAST, height - others)
    by_node = by == "node" or (by == "auto" and room is not None and len(fleet.gpus) > room)
    rows = _with_bars(_nodes if by_node else _gpus, fleet.gpus, room, width)
    notes = [Text(f"note: {visible(note)}", style="yellow", no_wrap=True, overflow="ellipsis") for note in fleet.notes]
    if shown_queues is not None:
        shown_queues.cut = height is not None
    parts = [*headline, rows if fleet.gpus else Text("No GpuNode has GPUs."), shown_queues, *notes]
    return Group(*(part for part in parts if part is not None))


def _with_bars(make: "_MakesRows", rows: Sequence[GpuRow], room: int | None, width: int) -> Table:
    """Bars go before any column does: what they show stands beside them as a number.

    On a screen (``room``) a row that were folded would push others off it: each is given one line.
    """
    drawn = make(rows, room, bar)
    drawn.cut = room is not None
    if not drawn.leaves_out(width):
        return drawn
    plain = make(rows, room, partial(bar, width=0))
    plain.cut = drawn.cut
    return plain


def _headline(fleet: Fleet, found: Totals) -> Text:
    busy = "" if found.busy is None else f", {found.busy:.0%} busy"
    counts = f"{plural(found.nodes, 'node')}, {plural(found.gpus, 'GPU')}"
    text = Text(f"{fleet.at}  {counts}: {found.in_use} in use{busy}", style="bold")
    if found.idle:
        text.append(f", {found.idle} held and idle", style="yellow")
    if found.fault:
        text.append(f", {found.fault} out of service", style="red")
    if found.watched:
        text.append(f", {found.watched} on probation", style="magenta")
    if found.off:
        text.append(f", {found.off} on nodes that take no pods", style="yellow")
    return text


def bar(share: float | None, *, width: int = _BAR) -> Text:
    """A bar such as ``#####-----  50%``; without a width the number alone; a dash for an unknown share."""
    if share is None:
        return Text("-")
    share = min(1.0, max(0.0, share))
    full = round(share * width)
    style = "green" if share < _WARM else "yellow" if share < _HOT else "red"
    if not width:
        return Text(f"{share:.0%}", style=style)
    return Text.assemble(("#" * full, style), ("-" * (width - full), "dim"), f" {share:4.0%}")


_Bar = Callable[[float | None], Text]
_MakesRows = Callable[[Sequence[GpuRow], int | None, _Bar], Table]


def _share(row: GpuRow) -> float | None:
    return None if row.used_mib is None or not row.memory_mib else row.used_mib / row.memory_mib


def _gpus(rows: Sequence[GpuRow], room: int | None, drawn: _Bar) -> Table:
    table = titled(
        "GPUs",
        "node",
        "GPU",
        less("product", 2),
        less("mode", 3),
        prose("health"),
        "busy",
        less("memory"),
        less("W", 4),
        less("C", 5),
        prose("holders"),
    )
    shown = rows if room is None else rows[:room]
    before = ""
    for row in shown:
        health = Text(row.health, style=_HEALTH.get(row.health, ""))
        if row.repair:
            health.append(f", {row.repair}", style="red")
        if row.reasons and not row.is_well:
            health.append(f": {visible(row.reasons[0])}")
        figures = ("-" if value is None else f"{value:.0f}" for value in (row.power_w, row.temperature_c))
        name = row.node if row.node != before else ""
        table.add_row(
            name,
            str(row.index),
            row.product,
            row.mode or "-",
            health,
            drawn(row.busy),
            drawn(_share(row)),
            *figures,
            _held(row.holders),
        )
        before = row.node
    _cut(table, len(rows) - len(shown), "GPUs")
    return table


def _held(holders: Sequence[str]) -> str:
    more = f" and {len(holders) - _HOLDERS} more" if len(holders) > _HOLDERS else ""
    return ", ".join(holders[:_HOLDERS]) + more if holders else "-"


def _nodes(rows: Iterable[GpuRow], room: int | None, drawn: _Bar) -> Table:
    table = titled(
        "Nodes", "node", "GPUs", "in use", "out of service", less("idle", 2), "busy", less("memory"), less("pods", 3)
    )
    nodes = [(name, tuple(of)) for name, of in groupby(rows, key=lambda row: row.node)]
    shown = nodes if room is None else nodes[:room]
    for name, of in shown:
        total = totals(of)
        shares = [share for share in map(_share, of) if share is not None]
        memory = sum(shares) / len(shares) if shares else None
        pods = {pod for row in of for pod in row.holders}
        out = Text(str(total.fault + total.watched), style="red" if total.fault + total.watched else "")
        idle = Text(str(total.idle), style="yellow" if total.idle else "")
        cells = (name, str(total.gpus), str(total.in_use), out, idle, drawn(total.busy), drawn(memory), str(len(pods)))
        table.add_row(*cells)
    _cut(table, len(nodes) - len(shown), "nodes")
    return table


def _cut(table: Table, left: int, what: str) -> None:
    if left > 0:
        table.add_row(Text(f"... {left} more {what}", style="dim"))


def _queues(rows: Sequence[QueueRow]) -> Table:
    columns = ("queue", less("cohort"), "state", "waiting", "admitted", prose("devices: used of quota"))
    table = titled("ClusterQueues", *columns)
    for row in rows:
        devices = ", ".join(f"{name} {used} of {quota}" for name, (used, quota) in row.devices.items())
        state = Text(row.state, style="" if row.state == "open" else "yellow")
        table.add_row(row.name, row.cohort or "-", state, str(row.pending), str(row.admitted), devices or "-")
    return table
