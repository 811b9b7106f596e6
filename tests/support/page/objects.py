"""The objects of a fleet with its queues and workloads, by size and seed, as the API server would have sent them.

``mark`` stands in names, labels and messages that the page shows.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from controller.objects.core import Namespace, Node
from controller.objects.decode import KUEUE, GpuNode, decode, decode_object, read_gpu_node
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from inventory.api.names import RUNTIME

Json = dict[str, Any]
NOW: Final = 1_790_000_000.0
LEVELS: Final = ("cloud.example.com/block", "cloud.example.com/rack", "kubernetes.io/hostname")
PRODUCT: Final = "NVIDIA H100 80GB HBM3"
TEAMS: Final = ("research", "production", "vision", "speech", "rlhf", "robotics", "genomics", "batch")
STOPPED: Final = "genomics"
GPU: Final = "nvidia.com/gpu"
GPUS: Final = 8
_SIZES: Final = (1, 1, 1, 2, 2, 4, 8, 8, 16, 32, 64)
_INSTANCES: Final = ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")


def is_cut(at: int) -> bool:
    """Whether the GPUs of this node are in MIG mode."""
    return at % 9 == 4


def queues(nodes: int, mark: str) -> Iterator[KubernetesObject]:
    """Cohorts, a ClusterQueue for each team, and what they name."""
    for team in TEAMS:
        yield decode({"metadata": {"name": f"team-{team}"}}, Namespace)
    yield _kueue("Topology", "dc", {"levels": [{"nodeLabel": level} for level in LEVELS]})
    flavor = f"h100{mark}"
    yield _kueue("ResourceFlavor", flavor, {"nodeLabels": {"gpu": "yes"}, "topologyName": "dc"})
    for name, parent in (("all", ""), ("science", "all"), ("online", "all")):
        yield _kueue("Cohort", name, {"parentName": parent} if parent else {})
    for team in TEAMS:
        own = team == "production"
        amounts = {GPU: nodes * 3 // 4, "cpu": GPUS * nodes}
        quotas = [
            {"name": name, "nominalQuota": str(amount), **({"lendingLimit": str(amount // 4)} if own else {})}
            for name, amount in amounts.items()
        ]
        spec: Json = {
            "cohortName": "online" if own else "science",
            "namespaceSelector": {},
            "fairSharing": {"weight": "2" if own else "1"},
            "stopPolicy": "Hold" if team == STOPPED else "None",
            "resourceGroups": [{"coveredResources": [*amounts], "flavors": [{"name": flavor, "resources": quotas}]}],
        }
        yield _kueue("ClusterQueue", team, spec)
        yield _kueue("LocalQueue", "jobs", {"clusterQueue": team}, namespace=f"team-{team}")


def workloads(count: int, seed: int, mark: str) -> Iterator[Workload]:
    """In the order in which they came; each says how long it runs."""
    draw = random.Random(seed)
    for at in range(count):
        team = TEAMS[draw.randrange(len(TEAMS)) if draw.random() < 0.8 else 0]
        runs_s = round(draw.lognormvariate(8.0, 1.3)) + 60
        size, priority = draw.choice(_SIZES), draw.choice((0, 0, 0, 100))
        yield workload(f"job-train-{at:05d}{mark}", team, size, priority=priority, at=at, runs_s=runs_s)


def workload(
    name: str,
    team: str,
    gpus: int,
    *,
    priority: int = 0,
    at: int = 0,
    runs_s: int = 3600,
    owners: list[Json] | None = None,
) -> Workload:
    """Pods of at most eight GPUs; ``at``: its place among all that came."""
    pods, each = max(1, gpus // GPUS), min(gpus, GPUS)
    container = {"name": "main", "resources": {"requests": {GPU: str(each), "cpu": str(each * GPUS)}}}
    pod_set = {"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}
    made = _kueue(
        "Workload",
        name,
        {"queueName": "jobs", "priority": priority, "podSets": [pod_set]},
        namespace=f"team-{team}",
        uid=f"uid-{name}",
        creationTimestamp=_time(NOW - 400_000 + at),
        annotations={RUNTIME: f"{runs_s}s"},
        ownerReferences=owners or [],
    )
    assert isinstance(made, Workload)
    return made


def node(at: int, mark: str) -> Node:
    """64 nodes a block, 8 a rack. Some are not ready, or are kept free."""
    name = f"node-{at}{mark}"
    kept = at % 131 == 50
    places = (f"block-{at // 64 + 1}{mark}", f"rack-{at // 8 % 8 + 1}{mark}", name)
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", GPU: "0" if is_cut(at) else str(GPUS)}
    taints = [{"key": "maintenance", "value": f"true{mark}", "effect": "NoSchedule"}]
    return decode(
        {
            "metadata": {"name": name, "labels": {**dict(zip(LEVELS, places, strict=True)), "gpu": "yes"}},
            "spec": {"unschedulable": kept, "taints": taints if kept else []},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "False" if at % 97 == 60 else "True"}],
            },
        },
        Node,
    )


def gpu_node(at: int, held: dict[int, str], seed: int, mark: str) -> GpuNode:
    """``held``: pods by the index of their GPU, as ``namespace/name``. Some GPUs are out of service."""
    draw = random.Random(f"{seed} {at}")
    devices, holders = [], [_holder(_uuid(at, index), pod) for index, pod in held.items()]
    for index in range(GPUS):
        device: Json = {"uuid": _uuid(at, index), "index": index, "product": PRODUCT + mark, "memoryMiB": 81559}
        device |= {"pciBusId": "", "mode": "whole", "offers": [{"resource": GPU}]}
        state = draw.choices(("Healthy", "Unhealthy", "Probation"), (0.992, 0.006, 0.002))[0]
        if state != "Healthy":
            reasons = [f"XID 79: GPU has fallen off the bus{mark}"]
            device["health"] = {"state": state, "reasons": reasons, "since": _time(NOW - 700)}
        if is_cut(at):
            instances = [_instance(at, index, number) for number in range(len(_INSTANCES))]
            device |= {"mode": "mig", "offers": [], "mig": {"enabled": True, "instances": instances}}
            holders += [
                _holder(each["uuid"], f"team-vision/notebook-{draw.randrange(999)}{mark}-0")
                for each in instances
                if draw.random() < 0.7
            ]
        devices.append(device)
    links = [{"a": a, "b": b, "nvswitch": 18} for a in range(GPUS) for b in range(a + 1, GPUS)]
    status = {
        "summary": {"gpus": GPUS, "healthy": GPUS, "product": PRODUCT},
        "agentVersion": "0.1.0",
        "observedAt": _time(NOW - draw.randrange(1, 9000)),
        "driver": {"version": "580.95.05"},
        "problems": [f"layout: GPU 3 cannot be cut{mark}"] if mark else [],
        "resources": [{"name": GPU, "devices": GPUS}],
        "devices": devices,
        "links": links,
        "holders": holders,
    }
    return read_gpu_node({"metadata": {"name": f"node-{at}{mark}"}, "status": status})


def _instance(at: int, index: int, number: int) -> Json:
    uuid = f"MIG-{at:08x}-{index}-{number}"
    return {"profile": _INSTANCES[number], "uuid": uuid, "gi": number + 1, "ci": 0, "memoryMiB": 10240}


def _holder(device: str, pod: str) -> Json:
    namespace, _, name = pod.partition("/")
    return {"device": device, "namespace": namespace, "pod": name, "container": "main"}


def _uuid(node: int, index: int) -> str:
    return f"GPU-{node:08x}-0000-0000-0000-{index:012d}"


def _kueue(kind: str, name: str, spec: Json, **meta: Any) -> KubernetesObject:
    return decode_object({"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec})


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
