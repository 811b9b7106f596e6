"""A simulation's result for people: the timeline, then the state at its end."""

import itertools
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from cli.printing.console import show as print_parts
from cli.printing.console import titled
from cli.printing.table import less, prose
from controller.insight.simulation.pools.nodepools import NodeEvent
from controller.insight.simulation.timeline import SimulationResult, TimelineEntry, TimelineEvent, Waits
from controller.messages import forecasts as words
from controller.messages.spans import starts
from controller.scheduler.model.resources import CPU, ResourceName
from controller.scheduler.quota.queueusage import quantity_of
from inventory.api.deviceplan import written

_STYLES = {
    TimelineEvent.ADMITTED: "green",
    TimelineEvent.PREEMPTED: "red",
    TimelineEvent.EVICTED: "red",
    TimelineEvent.PENDING: "yellow",
    TimelineEvent.GRANTED: "green",
    TimelineEvent.OFFERED: "yellow",
    TimelineEvent.REFUSED: "red",
}


_UP_AND_DOWN: Final[Mapping[str, int]] = {NodeEvent.READY: 1, NodeEvent.REMOVED: -1}
_HOUR_S: Final = 3600.0


def show(result: SimulationResult, *, wide: bool = False) -> None:
    clock = Clock(result)
    parts = (timeline(result, clock), placements(result, clock), queues(result, clock), fragmentation(result))
    print_parts(
        *parts,
        pools(result),
        nodes(result, clock) if wide else None,
        requests(result, clock),
        waiting(result),
        _running(result),
        _lost(result),
        wide=wide,
    )


class Clock:
    """Shows seconds of a simulation: as spans since its start, or as times where that of the start is told."""

    def __init__(self, result: SimulationResult) -> None:
        self._start = None if result.start is None else datetime.fromisoformat(result.start)

    def __call__(self, t: float) -> str:
        if self._start is None:
            return clock(t)
        return f"{self._start + timedelta(seconds=t):%Y-%m-%d %H:%M:%SZ}"


def timeline(result: SimulationResult, shown: Clock) -> RenderableType:
    if not result.timeline:
        return Text("No job was read: nothing happens.")
    more = (less("queue"), less("reason", 2), less("flavors", 3), prose(""))
    made = titled("Timeline", "time", "event", "workload", *more)
    for entry in result.timeline:
        kind = Text(entry.event.value, style=_STYLES.get(entry.event, ""))
        made.add_row(
            shown(entry.t), kind, entry.workload, entry.cluster_queue, entry.reason, _flavors(entry), entry.message
        )
    return made


def clock(t: float) -> str:
    """Virtual time from the start, such as ``90s``, ``10m05s``, ``1h02m03s``."""
    if t < 600:  # noqa: PLR2004 - people count seconds for ten minutes
        return f"{t:g}s"
    minutes, seconds = divmod(t, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}h{minutes:02}m{seconds:02.0f}s" if hours else f"{minutes}m{seconds:02.0f}s"


def _flavors(entry: TimelineEntry) -> str:
    return ", ".join(sorted({flavor for on in entry.flavors.values() for flavor in on.values()}))


def queues(result: SimulationResult, shown: Clock) -> RenderableType | None:
    if not result.final.cluster_queues:
        return None
    columns = ("queue", prose("used"), prose("borrowed"), less("share"), less("weighted share", 2))
    made = titled(f"ClusterQueues at {shown(result.final.t)}", *columns)
    for name, end in result.final.cluster_queues.items():
        used, borrowed = ({k: v for k, v in amounts.items() if v} for amounts in (end.usage, end.borrowed))
        made.add_row(name, _amounts(used), _amounts(borrowed), f"{end.share:.0%}", str(end.weighted_share))
    return made


def _amounts(amounts: dict[str, int | float]) -> str:
    return ", ".join(f"{_amount(name, amount)} {name}" for name, amount in amounts.items()) or "-"


def _amount(name: str, amount: float) -> str:
    """An amount: cores with their fraction, memory as manifests write it, all others whole."""
    return str(quantity_of(ResourceName(name), amount)) if isinstance(amount, int) and name != CPU else f"{amount:g}"


def placements(result: SimulationResult, shown: Clock) -> RenderableType | None:
    """The nodes and GPUs that admitted workloads were placed on; None where nothing was placed."""
    rows = [
        (entry, place)
        for entry in result.timeline
        if entry.event is TimelineEvent.ADMITTED
        for place in entry.placement
    ]
    if not rows:
        return None
    where = (less("pod set", 3), less("domains", 4), "node", less("pods"), prose("GPUs"))
    made = titled("Placement", less("time", 2), "workload", *where)
    for entry, place in rows:
        domains = "/".join(place.domains.values())
        gpus = written(place.devices).replace(",", ", ") or "-"
        made.add_row(shown(entry.t), entry.workload, place.pod_set, domains, place.node or "-", str(place.pods), gpus)
    return made


def fragmentation(result: SimulationResult) -> RenderableType | None:
    """The free GPUs of each flavor that requests like this run's could not use."""
    if not result.fragmentation:
        return None
    made = titled("Free GPUs", "flavor", "", "free", "of no use", less("part"), prose("largest block"))
    for sample in result.fragmentation:
        for when, spread in (("before", sample.before), ("after", sample.after)):
            largest = ", ".join(f"{most} in a {level}" for level, most in spread.largest.items())
            made.add_row(
                sample.flavor, when, f"{spread.free:g}", f"{spread.unusable:.1f}", f"{spread.ratio:.0%}", largest
            )
    return made


def pools(result: SimulationResult) -> RenderableType | None:
    """The nodes of each pool: how many came, how many there were at once, and for how long."""
    if not result.final.node_hours:
        return None
    made = titled("Node pools", "pool", "nodes came", "at once", prose("node-hours"))
    for name, hours in result.final.node_hours.items():
        came = [each.event for each in result.nodes if each.pool == name and each.event in _UP_AND_DOWN]
        most = max(itertools.accumulate((_UP_AND_DOWN[event] for event in came), initial=0))
        made.add_row(name, str(came.count(NodeEvent.READY)), str(most), f"{hours:.2f}")
    if result.final.cost:
        made.add_row("", "", "", f"cost {result.final.cost:.2f}")
    return made


def nodes(result: SimulationResult, shown: Clock) -> RenderableType | None:
    """What happened to nodes that come and go."""
    if not result.nodes:
        return None
    made = titled("Nodes", "time", "event", "node", prose("pool"))
    for change in result.nodes:
        made.add_row(shown(change.t), change.event, change.node, change.pool)
    return made


def requests(result: SimulationResult, shown: Clock) -> RenderableType | None:
    """The CapacityRequests at the end."""
    if not result.final.capacity_requests:
        return None
    columns = ("request", "state", "units", less("in use"), "from", "until", prose(""))
    made = titled("Capacity requests", *columns)
    for name, each in result.final.capacity_requests.items():
        span = ("-" if at is None else shown(at) for at in (each.from_, each.until))
        made.add_row(name, each.state, str(each.units), str(each.used), *span, each.message)
    return made


def _lost(result: SimulationResult) -> RenderableType | None:
    lost = result.final.lost_gpu_seconds
    return Text(f"Work lost by stops: {lost / _HOUR_S:.2f} GPU-hours") if lost else None


def waiting(result: SimulationResult) -> RenderableType | None:
    if not result.final.pending:
        return None
    made = titled("Still waiting", "workload", prose("starts"), "reason", prose(""))
    for workload in result.final.pending:
        made.add_row(workload.workload, starts(workload.forecast), workload.reason, _why(workload))
    return made


def _why(pending: Waits) -> str:
    clause = (pending.forecast or {}).get("never")
    return words.never_starts(pending.message, clause) if isinstance(clause, str) else pending.message


def _running(result: SimulationResult) -> RenderableType | None:
    running = result.final.running
    return Text(f"Still running: {', '.join(running)}") if running else None
