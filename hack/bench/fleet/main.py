"""``python -m hack.bench fleet``: the controller on a real API server with 10,000 nodes and 120,000 Workloads, or a
part of them, and ``python -m hack.bench curves``: how what it costs grows with the fleet.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.bench.fleet import alone, live
from hack.bench.fleet.shape import fleet
from hack.bench.table import Row, show

DEFECT: Final = 1.1
"""What grows faster than this with the fleet is a defect."""


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench fleet",
        description=__doc__,
        epilog="example: .venv/bin/python -m hack.bench fleet --factor 0.1",
    )
    parser.add_argument("--factor", type=float, default=0.1, help="of 10,000 nodes and all else (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=100.0, help="objects that change a second (default: %(default)s)")
    parser.add_argument("--window", type=float, default=30.0, help="how long they do, in s (default: %(default)s)")
    parser.add_argument("--profile", type=Path, help="write the API server's CPU profile of the start to this file")
    options = parser.parse_args(words)
    if options.factor <= 0:
        parser.error(f"--factor: found {options.factor:g}, expected more than 0")
    measured = live.run(fleet(options.factor), options.rate, options.window, options.profile)
    of = measured.fleet
    title = (
        f"A fleet: {of.nodes:,} nodes and GpuNodes, {of.local_queues:,} LocalQueues in {of.queues} ClusterQueues, "
        f"{of.running:,} running and {of.pending:,} pending Workloads, {of.pods:,} pods"
    )
    show(title, rows(measured))


def rows(found: live.Figures) -> list[Row]:
    start, without, under = found.start, found.without, found.under
    return [
        Row("objects written, by etcd's transactions", f"{found.seeded_s:.0f} s", ""),
        Row("leader, from its start to deciding", f"{start.deciding_s:.1f} s", ""),
        Row("  to the first admission, seen by a watch", f"{start.admission_s:.1f} s", "25 s"),
        Row("  its CPU; that of API server and etcd", f"{start.cpu_s:.1f} s; {start.server_cpu_s:.1f} s", ""),
        Row("  received until then, over connections that are open still", f"{start.received / 2**20:.0f} MiB", ""),
        Row("second replica, from its start to ready", f"{found.follower_s:.1f} s", ""),
        Row("peak memory: leader (proportional share), second", _memory(found), "600 MiB"),
        Row(f"while {under.done.writes / under.done.seconds:.0f} objects change a second:", "", ""),
        Row("  a decision: median, p99", " and ".join(f"{1000 * each:.2f} ms" for each in under.decision_s), "50 ms"),
        Row("  a cycle: p99; decisions a second", f"{1000 * under.cycle_s:.1f} ms; {under.decisions:.0f}", ""),
        Row("  watch traffic to the leader, all of it decoded", f"{under.leader_bytes / 1024:.0f} KiB/s", ""),
        Row("  CPU of the leader, the second", f"{under.leader_cpu:.2f}, {under.follower_cpu:.2f} cores", ""),
        Row(
            "  CPU of API server and etcd with us, without",
            f"{under.server_cpu:.2f}, {without.server_cpu:.2f} cores",
            "",
        ),
        Row(
            "  the machine in all",
            f"{under.machine_cpu:.2f} cores; the last write late by {under.done.late_s:.1f} s",
            "",
        ),
        Row("leader killed: the other leads after (leases run 15 s)", _seen(found.lease_s), ""),
        Row("  from then to its first decision, seen by a watch", _seen(found.failover_s - found.lease_s), "10 s"),
        Row("memory of the API server", f"{found.server_mib:.0f} MiB", ""),
    ]


def _seen(seconds: float) -> str:
    return f"{seconds:.1f} s" if math.isfinite(seconds) else f"not within {live.OVER_S:.0f} s"


def _memory(found: live.Figures) -> str:
    return f"{found.peak_mib:.0f} ({found.pss_mib:.0f}), {found.follower_mib:.0f} MiB"


def curves(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench curves",
        description="How what the controller costs grows with the fleet: the fitted exponents.",
        epilog="example: .venv/bin/python -m hack.bench curves --only engine --factor 0.05",
    )
    parser.add_argument("--factor", type=float, default=0.1, help="the size in the middle (default: %(default)s)")
    parser.add_argument("--only", choices=("engine", "live"), help="one part")
    parser.add_argument(
        "--most", type=float, default=16.0, help="times the factor, of the engine (default: %(default)s)"
    )
    parser.add_argument(
        "--window", type=float, default=10.0, help="how long objects change, in s (default: %(default)s)"
    )
    options = parser.parse_args(words)
    if options.factor <= 0:
        parser.error(f"--factor: found {options.factor:g}, expected more than 0")
    if options.only in (None, "engine"):
        times = [each for each in (0.25, 1.0, 4.0, 16.0) if each <= options.most]
        show(f"The engine alone, {_listed(times)} times factor {options.factor:g}", engine_rows(options.factor, times))
    if options.only in (None, "live"):
        times = [0.25, 1.0, 4.0]
        found = [live.run(fleet(options.factor * each), 100.0, options.window) for each in times]
        show(f"On a real API server, {_listed(times)} times factor {options.factor:g}", live_rows(found))


def _listed(times: Sequence[float]) -> str:
    return ", ".join(f"{each:g}" for each in times)


def engine_rows(factor: float, times: Sequence[float]) -> list[Row]:
    costs = [alone.costs(factor * each) for each in times]
    sizes = [float(each.objects) for each in costs]
    aim = f"exponent {DEFECT:g}"
    return [
        Row("objects", ", ".join(f"{each.objects:,}" for each in costs), ""),
        Row("CPU: JSON read", grown(sizes, [each.read_s for each in costs], "s"), aim),
        Row("  taken in", grown(sizes, [each.taken_in_s for each in costs], "s"), aim),
        Row("  the first cycle", grown(sizes, [each.first_cycle_s for each in costs], "s"), aim),
        Row("  all that waits tried", grown(sizes, [each.all_tried_s for each in costs], "s"), aim),
        Row("  one more decision", grown(sizes, [each.decision_ms for each in costs], "ms"), aim),
        Row("  all sums validated", grown(sizes, [each.validated_s for each in costs], "s"), aim),
        Row("peak memory", grown(sizes, [each.peak_mib for each in costs], "MiB"), aim),
        Row("tried, admitted", "; ".join(f"{each.tried:,}, {each.admitted:,}" for each in costs), ""),
    ]


def live_rows(found: Sequence[live.Figures]) -> list[Row]:
    sizes = [float(each.fleet.objects) for each in found]
    aim = f"exponent {DEFECT:g}"
    return [
        Row("objects", ", ".join(f"{each.fleet.objects:,}" for each in found), ""),
        Row("CPU of the leader to its first admission", grown(sizes, [each.start.cpu_s for each in found], "s"), aim),
        Row("time to its first admission", grown(sizes, [each.start.admission_s for each in found], "s"), aim),
        Row("peak memory of the leader", grown(sizes, [each.peak_mib for each in found], "MiB"), aim),
        Row("a decision, median", grown(sizes, [1000 * each.under.decision_s[0] for each in found], "ms"), aim),
        Row(
            "CPU of the leader while objects change",
            grown(sizes, [each.under.leader_cpu for each in found], "cores"),
            aim,
        ),
    ]


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of the least squares line through (log size, log cost). Raises ValueError for fewer than two sizes, and
    for what is not positive: a cost of nothing has no exponent.
    """
    if len(set(sizes)) < 2 or len(sizes) != len(costs):  # noqa: PLR2004 - a line needs two points
        raise ValueError(f"sizes {sizes} and costs {costs}: expected a cost for each of two sizes or more")
    if min(*sizes, *costs) <= 0:
        raise ValueError(f"sizes {sizes} and costs {costs}: expected positive numbers")
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    covered = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covered / sum((x - mean_x) ** 2 for x in xs)


def grown(sizes: Sequence[float], costs: Sequence[float], unit: str) -> str:
    """Costs and the exponent of the power law by which they grow, in a cell of a table."""
    found = exponent(sizes, costs)
    listed = ", ".join(f"{cost:.3g}" for cost in costs)
    return f"{listed} {unit}: exponent {found:.2f}{'  DEFECT' if found > DEFECT else ''}"
