"""Manifests in a few words, and what a simulation makes of them."""

from typing import Any

import msgspec

from controller.cluster.config.load import default, parse
from controller.cluster.config.settings import ControllerConfig
from controller.insight.simulation.documents import Document
from controller.insight.simulation.manifests import scenario
from controller.insight.simulation.pools.specs import FIXED, PoolFleet
from controller.insight.simulation.run import simulate
from controller.insight.simulation.timeline import SimulationResult

GPU = "nvidia.com/gpu"
KUEUE = "kueue.x-k8s.io/v1beta2"
Json = dict[str, Any]


def kueue(kind: str, name: str, namespace: str = "", *, spec: Json | None = None, **other: Any) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec or {}, **other}


def flavor(name: str = "a100") -> Json:
    return kueue("ResourceFlavor", name)


def cluster_queue(
    name: str = "main",
    gpus: int = 8,
    *,
    cohort: str = "",
    borrow: int | None = None,
    flavors: tuple[str, ...] = ("a100",),
    **spec: Any,
) -> Json:
    quota: Json = {"name": GPU, "nominalQuota": gpus, **({} if borrow is None else {"borrowingLimit": borrow})}
    groups = [{"coveredResources": [GPU], "flavors": [{"name": one, "resources": [quota]} for one in flavors]}]
    wanted = {"namespaceSelector": {}, "resourceGroups": groups, **({"cohortName": cohort} if cohort else {}), **spec}
    return kueue("ClusterQueue", name, spec=wanted)


def local_queue(name: str = "main", to: str = "", **other: Any) -> Json:
    return kueue("LocalQueue", name, "ns", spec={"clusterQueue": to or name}, **other)


def priority_class(name: str, value: int) -> Json:
    return {**kueue("WorkloadPriorityClass", name), "value": value}


def job(
    name: str,
    gpus: int = 1,
    *,
    queue: str = "main",
    pods: int = 1,
    arrival: str = "",
    runtime: str = "",
    priority: str = "",
    labels: Json | None = None,
    **spec: Any,
) -> Json:
    times = {f"tessera.dev/{key}": said for key, said in (("arrival", arrival), ("runtime", runtime)) if said}
    named = {"kueue.x-k8s.io/queue-name": queue, **({"kueue.x-k8s.io/priority-class": priority} if priority else {})}
    container = {"name": "main", "image": "i", "resources": {"limits": {GPU: gpus}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ns", "labels": {**named, **(labels or {})}, "annotations": times},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            **spec,
        },
    }


def capacity_request(
    name: str, least: int = 1, most: int | None = None, *, queue: str = "main", arrival: str = "", **spec: Any
) -> Json:
    wanted = {"queueName": queue, "unit": {GPU: 1}, "min": least, **({} if most is None else {"max": most}), **spec}
    times = {"tessera.dev/arrival": arrival} if arrival else {}
    metadata = {"name": name, "namespace": "ns", "annotations": times}
    return {"apiVersion": "tessera.dev/v1alpha1", "kind": "CapacityRequest", "metadata": metadata, "spec": wanted}


def inside(name: str, request: str, gpus: int = 1, **other: Any) -> Json:
    """A job that runs inside of what a request was granted."""
    return job(name, gpus, labels={"tessera.dev/capacity-request": request}, **other)


def config(text: str = "") -> ControllerConfig:
    """A configuration file with these sections; without any, that of nobody who gave one."""
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    return parse(head + text) if text else default()


def given(*objects: Json) -> list[Document]:
    return [Document("f.yaml", number, data) for number, data in enumerate(objects, 1)]


def run(
    *objects: Json,
    using: str = "",
    until_s: float | None = None,
    pools: PoolFleet = FIXED,
    start_s: float | None = None,
) -> SimulationResult:
    """Every sum of the engine, and of the pools of nodes, is checked on the way."""
    settings = config(using)
    found = scenario(given(*objects), settings, pools=pools, start_s=start_s)
    return simulate(found, settings.engine, until_s=until_s, check=True)


def told(result: SimulationResult) -> list[str]:
    """``10 Admitted x`` for each entry, the namespace left out."""
    return [f"{one.t:g} {one.event.value} {one.workload.removeprefix('ns/')}" for one in result.timeline]


def plain(result: SimulationResult) -> Json:
    """As ``-o json`` prints it."""
    found: Json = msgspec.json.decode(msgspec.json.encode(result))
    return found
