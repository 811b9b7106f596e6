"""The state of a fleet as docs/page-protocol.md says it: rows of nodes, queues and workloads, by size and seed.

``EVIL`` stands in every name, label and message where a test wants to see that none of it becomes HTML.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

NOW = 1_790_000_000.0
LEVELS = ("cloud.example.com/block", "cloud.example.com/rack", "kubernetes.io/hostname")
EVIL = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'
PRODUCT = "NVIDIA H100 80GB HBM3"
TEAMS = ("research", "production", "vision", "speech", "rlhf", "robotics", "genomics", "batch")


@dataclass
class State:
    """Rows by topic and key."""

    fleet: dict[str, Row] = field(default_factory=dict)
    queues: dict[str, Row] = field(default_factory=dict)
    pending: dict[str, Row] = field(default_factory=dict)
    workloads: dict[str, Row] = field(default_factory=dict)

    def topic(self, name: str) -> dict[str, Row]:
        rows: dict[str, Row] = getattr(self, name)
        return rows


def made(*, nodes: int, workloads: int, seed: int = 7, mark: str = "") -> State:
    """A fleet of 8 GPUs a node, 64 nodes a block, 8 a rack; a third of the workloads run. ``mark`` is part of names."""
    draw = random.Random(seed)
    state = State()
    running = _running(draw, nodes, workloads // 3, mark)
    for at in range(nodes):
        state.fleet[f"node-{at}{mark}"] = _node(draw, at, running, mark)
    for row, places in running.jobs:
        state.workloads[f"r{len(state.workloads)}"] = row | {
            "nodes": [f"node-{place}{mark}" for place in places[:32]],
            "nodeCount": len(places),
        }
    for at in range(workloads - len(running.jobs)):
        state.pending[f"w{at}"] = _pending(draw, at, mark)
    _queues(state, mark)
    return state


@dataclass
class _Running:
    jobs: list[tuple[Row, list[int]]]
    of_gpu: dict[tuple[int, int], list[Row]]


def _running(draw: random.Random, nodes: int, most: int, mark: str) -> _Running:
    jobs: list[tuple[Row, list[int]]] = []
    of_gpu: dict[tuple[int, int], list[Row]] = {}
    free = _places(nodes)
    while len(jobs) < most:
        size = draw.choice((1, 1, 1, 2, 2, 4, 8, 8, 16, 32, 64))
        taken = [place for _, place in zip(range(size), free, strict=False)]
        if len(taken) < size:
            break
        team = TEAMS[draw.randrange(len(TEAMS)) if draw.random() < 0.6 else 0]
        hidden = draw.random() < 0.15
        name = f"a workload of queue {team}" if hidden else f"team-{team}/job-train-{len(jobs):04d}{mark}"
        row = {
            "workload": name,
            "hidden": hidden,
            "queue": team,
            "localQueue": None if hidden else f"team-{team}/jobs",
            "priority": draw.choice((0, 0, 100, 1000)),
            "state": "Admitted",
            "since": NOW - draw.randrange(60, 400_000),
            "holds": [{"flavor": "h100", "resource": "nvidia.com/gpu", "amount": size}],
        }
        jobs.append((row, sorted({node for node, _ in taken})))
        for place in taken:
            pod = None if hidden else f"{name}-{place[0]}"
            of_gpu[place] = [{"pod": pod or name, "workload": name, "hidden": hidden, "takes": 1}]
    return _Running(jobs, of_gpu)


def _places(nodes: int) -> Iterator[tuple[int, int]]:
    return ((node, gpu) for node in range(nodes) for gpu in range(8) if node % 9 != 4)


def _node(draw: random.Random, at: int, running: _Running, mark: str) -> Row:
    name = f"node-{at}{mark}"
    ready = at % 97 != 60
    return {
        "name": name,
        "ready": ready,
        "cordoned": at % 131 == 50,
        "taints": [f"maintenance=true{mark}:NoSchedule"] if at % 131 == 50 else [],
        "levels": [f"block-{at // 64 + 1}{mark}", f"rack-{at // 8 % 8 + 1}{mark}", name],
        "agent": "0.1.0",
        "observed": NOW - draw.randrange(1, 9000),
        "driver": "580.95.05",
        "problems": [f"layout: GPU 3 cannot be cut{mark}"] if mark else [],
        "gpus": [_gpu(draw, at, index, running, mark) for index in range(8)],
        "linkGroups": [{"kind": "NV18", "gpus": list(range(8))}],
    }


def _gpu(draw: random.Random, node: int, index: int, running: _Running, mark: str) -> Row:
    holders = running.of_gpu.get((node, index), [])
    mig = node % 9 == 4
    health = draw.choices(("Healthy", "Unhealthy", "Probation"), (0.992, 0.006, 0.002))[0]
    busy = None if mig else (round(min(1.0, max(0.0, draw.gauss(0.82, 0.18))), 3) if holders else 0.0)
    if holders and draw.random() < 0.05:
        busy = 0.0
    parts = [{"name": "whole", "uuid": "", "size": 1, "health": "Healthy", "holders": holders}]
    if mig:
        parts = [
            _instance(draw, profile, at, mark)
            for at, profile in enumerate(("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"))
        ]
    return {
        "uuid": f"GPU-{node:08x}-0000-0000-0000-{index:012d}",
        "index": index,
        "product": PRODUCT + mark,
        "memoryMiB": 81559,
        "mode": "mig" if mig else "whole",
        "health": health,
        "reasons": [] if health == "Healthy" else [f"XID 79: GPU has fallen off the bus{mark}"],
        "since": None if health == "Healthy" else NOW - 700,
        "clique": "",
        "busy": busy,
        "usedMiB": None if busy is None else round(busy * 70_000),
        "parts": parts,
    }


def _instance(draw: random.Random, profile: str, at: int, mark: str) -> Row:
    held = draw.random() < 0.7
    name = f"team-vision/notebook-{draw.randrange(999)}{mark}"
    holders = [{"pod": f"{name}-0", "workload": name, "hidden": False, "takes": 1}] if held else []
    return {"name": profile, "uuid": f"MIG-{at}", "size": 1, "health": "Healthy", "holders": holders}


def _pending(draw: random.Random, at: int, mark: str) -> Row:
    team = TEAMS[at % len(TEAMS)]
    gpus = draw.choice((1, 2, 4, 8, 16, 64, 128))
    hidden = draw.random() < 0.2
    position = at // len(TEAMS)
    start = draw.randrange(60, 90_000)
    known = draw.random() < 0.85
    return {
        "workload": f"a workload of queue {team}" if hidden else f"team-{team}/job-wait-{at:05d}{mark}",
        "hidden": hidden,
        "queue": team,
        "localQueue": None if hidden else f"team-{team}/jobs",
        "priority": draw.choice((0, 0, 0, 100)),
        "position": position if position < 100 else None,
        "parked": draw.random() < 0.5,
        "since": NOW - draw.randrange(5, 200_000),
        "pods": max(1, gpus // 8),
        "asks": {"nvidia.com/gpu": gpus, "cpu": gpus * 8},
        "reason": "WaitingForQuota",
        "sentence": f"Needs {gpus} nvidia.com/gpu of flavor h100: {gpus // 2} free{mark}",
        "forecast": {
            "from": start,
            "likely": start * 2,
            "to": start * 4,
            "ahead": position,
            "assumes": ["runtimes as told"],
        }
        if known
        else None,
    }


def _queues(state: State, mark: str) -> None:
    for at, team in enumerate(TEAMS):
        used = sum(part["amount"] for row in state.workloads.values() if row["queue"] == team for part in row["holds"])
        nominal = len(state.fleet)
        waiting = sum(row["queue"] == team for row in state.pending.values())
        state.queues[f"queue/{team}"] = {
            "kind": "queue",
            "name": team,
            "parent": "online" if team == "production" else "science",
            "weight": 2.0 if team == "production" else 1.0,
            "share": max(0, used - nominal) * 10,
            "state": "open" if at != 6 else "stopped",
            "problems": [],
            "strategy": "BestEffortFIFO",
            "pending": waiting,
            "parked": waiting // 2,
            "reserving": 5,
            "admitted": sum(row["queue"] == team for row in state.workloads.values()),
            "resources": [_quota("nvidia.com/gpu", nominal, used), _quota("cpu", nominal * 8, used * 8)],
        }
    for name, parent in (("all", ""), ("science", "all"), ("online", "all")):
        below = [row for row in state.queues.values() if row["kind"] == "queue" and name in ("all", row["parent"])]
        state.queues[f"cohort/{name}"] = {
            "kind": "cohort",
            "name": name,
            "parent": parent,
            "weight": 1.0,
            "share": 0,
            "state": "open",
            "problems": [f"none{mark}"] if mark else [],
            "strategy": "",
            "pending": sum(row["pending"] for row in below),
            "parked": 0,
            "reserving": 0,
            "admitted": sum(row["admitted"] for row in below),
            "resources": [
                _quota("nvidia.com/gpu", 0, sum(row["resources"][0]["used"] for row in below))
                | {"subtree": sum(row["resources"][0]["nominal"] for row in below), "borrowed": 0, "guaranteed": 0}
            ],
        }


def _quota(resource: str, nominal: float, used: float) -> Row:
    return {
        "flavor": "h100",
        "resource": resource,
        "nominal": nominal,
        "subtree": nominal,
        "used": used,
        "borrowed": max(0.0, used - nominal),
        "guaranteed": nominal // 4,
        "borrowingLimit": None,
        "lendingLimit": nominal - nominal // 4,
        "available": max(0.0, nominal - used),
    }
