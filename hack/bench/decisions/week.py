"""A week of mixed work on nodes that come and go, simulated with and without what saves GPUs and money:
``python -m hack.bench week [--days 1] [--write]``. The table stands in docs/week.md; ``--write`` renews it.

Trainings on one to four nodes save their work now and then, evaluations and notebooks are small, and services of the
highest priority run by day. All of it is drawn from one seed; each row is the same work under another configuration.
"""

import argparse
import contextlib
import io
import json
import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from cli.simulate.reading import inputs
from controller.insight.simulation.run import simulate
from controller.insight.simulation.timeline import SimulationResult, TimelineEvent

PAGE: Final = Path(__file__).parents[3] / "docs" / "week.md"
BEGIN, END = "<!-- table: week -->", "<!-- end -->"
SEED: Final = 49
DAY_S: Final = 86_400
MONDAY_S: Final = 1_767_571_200.0
"""2026-01-05T00:00:00Z, a Monday."""
_WORKDAYS: Final = 5
_HOUR_S: Final = 3600
_PRODUCT: Final = "NVIDIA A100-SXM4-80GB"

Json = dict[str, Any]


class Variant(NamedTuple):
    """The features that are turned on in one row of the table."""

    name: str
    packing: bool = False
    spot: bool = False
    calendars: bool = False
    prices: bool = False


VARIANTS: Final = (
    Variant("none of them"),
    Variant("packing", packing=True),
    Variant("spot", spot=True),
    Variant("calendars", calendars=True),
    Variant("prices", prices=True),
    Variant("all", packing=True, spot=True, calendars=True, prices=True),
)


class Figures(NamedTuple):
    """What one run came to. Hours are those of GPUs and nodes, waits are in minutes: those of services, of all others
    in the middle, and of all others at the 95th percentile.
    """

    gpu_hours: float
    node_hours: float
    cost: float
    lost_gpu_hours: float
    services: float
    median: float
    longest: float


# -- the work ----------------------------------------------------------------------------------------------------------


def job(name: str, queue: str, gpus: int, *, pods: int = 1, at_s: float, runs_s: float, **more: str) -> Json:
    annotations = {"tessera.dev/arrival": f"{at_s:.0f}s", "tessera.dev/runtime": f"{runs_s:.0f}s"}
    annotations |= {f"tessera.dev/{key.replace('_', '-')}": value for key, value in more.items()}
    labels = {"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": queue}
    container = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": labels, "annotations": annotations},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def work(days: int) -> Iterator[Json]:
    """The jobs of so many days, whatever the configuration is."""
    draw = random.Random(SEED)
    for day in range(days):
        begins_s, by_day = day * DAY_S, day % 7 < _WORKDAYS
        for number in range(48):
            runs_s = min(draw.lognormvariate(9.3, 0.7), 16 * _HOUR_S)
            save = f"{draw.choice((15, 30, 60))}m"
            pods = draw.choice((1, 1, 1, 2, 2, 4))
            at_s = begins_s + draw.uniform(0, DAY_S)
            keeps = {"checkpoint_interval": save, "restart_cost": "3m"}
            yield job(f"train-{day}-{number}", "training", 8, pods=pods, at_s=at_s, runs_s=runs_s, **keeps)
        for number in range(60 if by_day else 20):
            at_s = begins_s + draw.triangular(6, 22, 14) * _HOUR_S
            gpus, runs_s = draw.choice((1, 1, 2, 4)), draw.lognormvariate(7.6, 0.8)
            yield job(f"eval-{day}-{number}", "evaluation", gpus, at_s=at_s, runs_s=runs_s)
        for number in range(14 if by_day else 5):
            at_s = begins_s + draw.uniform(7, 18) * _HOUR_S
            gpus, hours = draw.choice((2, 4, 4, 8)), draw.uniform(2, 8)
            yield job(f"serve-{day}-{number}", "service", gpus, at_s=at_s, runs_s=hours * _HOUR_S)


def objects(variant: Variant) -> Iterator[Json]:
    """Queues, flavors and classes. By night and at the weekend a calendar gives trainings what services leave."""
    kueue = "kueue.x-k8s.io/v1beta2"
    yield {
        "apiVersion": kueue,
        "kind": "ResourceFlavor",
        "metadata": {"name": "a100"},
        "spec": {"nodeLabels": {"nvidia.com/gpu.product": _PRODUCT.replace(" ", "-")}},
    }
    night = [
        {"from": "0 20 * * mon-fri", "for": "10h", "nominal": {"a100": {"nvidia.com/gpu": 96}}},
        {"from": "0 6 * * sat", "for": "48h", "nominal": {"a100": {"nvidia.com/gpu": 96}}},
    ]
    for name, gpus, priority in (("training", 64, 0), ("evaluation", 32, 10), ("service", 48, 100)):
        annotations = {"tessera.dev/spot": "never" if name == "service" else "preferred"} if variant.spot else {}
        if variant.calendars and name == "training":
            annotations["tessera.dev/quota-calendar"] = json.dumps(night)
        if variant.prices:
            annotations["tessera.dev/checkpoint-wait"] = "5m"
        quota = {"name": "nvidia.com/gpu", "nominalQuota": gpus}
        yield {
            "apiVersion": kueue,
            "kind": "ClusterQueue",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "cohortName": "all",
                "namespaceSelector": {},
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
                "resourceGroups": [
                    {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "a100", "resources": [quota]}]}
                ],
            },
        }
        local = {"name": name, "namespace": "team"}
        yield {"apiVersion": kueue, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": name}}
        yield {
            "apiVersion": kueue,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name},
            "value": priority,
        }


def fleet(variant: Variant, days: int) -> Json:
    """Nodes on demand, and spot nodes for two fifths of the price that are taken away now and then."""
    template = {"gpus": 8, "product": _PRODUCT}
    rules = {"template": template, "delay": 300, "removeAfter": 600}
    pools: list[Json] = [{"name": "demand", "max": 18, "capacity": "on-demand", "pricePerHour": 20, **rules}]
    events: list[Json] = []
    if variant.spot:
        pools.append({"name": "spot", "max": 10, "capacity": "spot", "pricePerHour": 8, **rules})
        draw = random.Random(SEED + 1)
        times = sorted(draw.uniform(0, days * DAY_S) for _ in range(3 * days))
        events = [{"at": round(at_s), "node": f"spot-{draw.randint(1, 10)}", "interrupt": 120} for at_s in times]
    return {"nodes": [], "nodePools": pools, **({"events": events} if events else {})}


def config(variant: Variant) -> Json:
    block: Json = {"policy": "tessera", "victimOrder": "leastLost" if variant.prices else "newest"}
    if variant.packing:
        block["packing"] = {"emptyNodes": 1}
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "tessera": block}


# -- runs --------------------------------------------------------------------------------------------------------------


def result(variant: Variant, days: int) -> SimulationResult:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        documents = [*objects(variant), *work(days)]
        (folder / "work.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
        (folder / "fleet.yaml").write_text(json.dumps(fleet(variant, days)))
        (folder / "config.yaml").write_text(json.dumps(config(variant)))
        with contextlib.redirect_stderr(io.StringIO()):
            given = inputs([folder / "work.yaml"], folder / "fleet.yaml", folder / "config.yaml", start_s=MONDAY_S)
    return simulate(given.scenario, given.settings.engine)


def figures(found: SimulationResult, days: int) -> Figures:
    sizes = {f"team/{each['metadata']['name']}": _gpus(each) for each in work(days)}
    since: dict[str, float] = {}
    first: dict[str, float] = {}
    used = 0.0
    for entry in found.timeline:
        if entry.event is TimelineEvent.ADMITTED:
            since[entry.workload] = entry.t
            first.setdefault(entry.workload, entry.t)
        elif entry.event is not TimelineEvent.PENDING and entry.workload in since:
            used += sizes[entry.workload] * (entry.t - since.pop(entry.workload))
    arrived = {f"team/{each['metadata']['name']}": _arrival_s(each) for each in work(days)}
    waits = {key: (first[key] - arrived[key]) / 60 for key in first}
    others = sorted(wait for key, wait in waits.items() if not key.startswith("team/serve"))
    return Figures(
        gpu_hours=used / _HOUR_S,
        node_hours=sum(found.final.node_hours.values()),
        cost=found.final.cost,
        lost_gpu_hours=found.final.lost_gpu_seconds / _HOUR_S,
        services=statistics.fmean(wait for key, wait in waits.items() if key.startswith("team/serve")),
        median=statistics.median(others),
        longest=others[int(0.95 * len(others))],
    )


def _gpus(each: Json) -> int:
    spec = each["spec"]
    limits: dict[str, int] = spec["template"]["spec"]["containers"][0]["resources"]["limits"]
    return int(spec["parallelism"]) * limits["nvidia.com/gpu"]


def _arrival_s(each: Json) -> float:
    text: str = each["metadata"]["annotations"]["tessera.dev/arrival"]
    return float(text.removesuffix("s"))


def table(days: int, variants: Sequence[Variant] = VARIANTS) -> list[str]:
    """The lines of the table, in Markdown."""
    heads = ("with", "GPU-hours used", "node-hours paid", "cost", "lost GPU-hours", "services wait", "others wait")
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for variant in variants:
        got = figures(result(variant, days), days)
        hours = (got.gpu_hours, got.node_hours, got.cost)
        cells = [variant.name, *(f"{each:,.0f}" for each in hours), f"{got.lost_gpu_hours:.1f}"]
        cells += [f"{got.services:.1f} min", f"{got.median:.0f} and {got.longest:.0f} min"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m hack.bench week", description=__doc__.split("\n\n")[0])
    parser.add_argument("--days", type=int, default=7, help="how many days, from a Monday on")
    parser.add_argument("--write", action="store_true", help="renew the table of docs/week.md")
    options = parser.parse_args(words)
    lines = table(options.days)
    print("\n".join(lines))
    if options.write:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text("\n".join([before + BEGIN, *lines, END + after]))
