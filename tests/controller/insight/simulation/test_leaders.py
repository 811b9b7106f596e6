"""Groups of a leader and its workers, and pods that ask for no quota: each is placed by what it asks for itself."""

from typing import Any

import pytest

from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import GPU, Json, kueue, local_queue, run, told

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
KUEUE = "tessera: {policy: kueue}\n"
SSD: Json = {"nodeSelector": {"disk": "ssd"}}


def topology() -> list[Json]:
    levels = [{"nodeLabel": label} for label in (RACK, HOST)]
    return [
        kueue("Topology", "t", spec={"levels": levels}),
        kueue("ResourceFlavor", "f", spec={"nodeLabels": {"pool": "a"}, "topologyName": "t"}),
        kueue("ResourceFlavor", "plain"),
    ]


def queue(**flavors: str) -> tuple[Json, Json]:
    """By resource its flavor."""
    groups = [
        {
            "coveredResources": [name],
            "flavors": [{"name": flavor, "resources": [{"name": name, "nominalQuota": 100}]}],
        }
        for name, flavor in flavors.items()
    ]
    return kueue("ClusterQueue", "main", spec={"namespaceSelector": {}, "resourceGroups": groups}), local_queue()


def node(name: str, rack: str, cpu: int = 8, *, taints: list[Json] | None = None, **labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, "pool": "a", RACK: rack, **labels}},
        "spec": {"taints": taints or []},
        "status": {
            "allocatable": {"cpu": str(cpu), "memory": "100Gi", "pods": "110", GPU: "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pods(requests: Json, **spec: Any) -> Json:
    marks = {"kueue.x-k8s.io/podset-group-name": "g", "kueue.x-k8s.io/podset-required-topology": RACK}
    limits = {name: amount for name, amount in requests.items() if "/" in name}
    container = {"name": "main", "image": "i", "resources": {"requests": requests, "limits": limits}}
    return {"metadata": {"annotations": marks}, "spec": {"containers": [container], **spec}}


def group(leader: Json, workers: Json, size: int = 3) -> Json:
    template = {"size": size, "leaderTemplate": leader, "workerTemplate": workers}
    metadata = {"name": "grp", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata,
        "spec": {"replicas": 1, "leaderWorkerTemplate": template},
    }


def nodes_of(result: SimulationResult) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in result.timeline:
        for place in entry.placement or ():
            found.setdefault(place.pod_set, set()).add(place.node or "")
    return found


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
        }
    }
}


@pytest.mark.parametrize("rules", [SSD, {"affinity": AFFINITY}], ids=["selector", "affinity"])
def test_the_leader_runs_where_its_own_rules_let_it_and_the_workers_beside_it(rules: Json) -> None:
    nodes = node("n1", "r1"), node("n2", "r2"), node("n3", "r2", cpu=2, disk="ssd")
    given = group(pods({"cpu": "1"}, **rules), pods({"cpu": "2"}))
    placed = nodes_of(run(*topology(), *queue(cpu="f"), *nodes, given))
    assert placed["leader"] == {"n3"}
    assert placed["worker"] <= {"n2", "n3"}


def test_the_workers_run_where_their_own_rules_let_them_and_the_leader_beside_them() -> None:
    nodes = node("n1", "r1"), node("n2", "r2"), node("n3", "r2", disk="ssd")
    given = group(pods({"cpu": "7"}), pods({"cpu": "2"}, **SSD))
    assert nodes_of(run(*topology(), *queue(cpu="f"), *nodes, given)) == {"leader": {"n2"}, "worker": {"n3"}}


def test_a_leader_that_tolerates_a_taint_runs_on_the_node_that_is_closed_to_its_workers() -> None:
    tolerates = {"tolerations": [{"key": "gpu", "operator": "Exists"}], **SSD}
    nodes = node("n1", "r1", taints=[TAINT], disk="ssd"), node("n2", "r1")
    given = group(pods({"cpu": "1"}, **tolerates), pods({"cpu": "2"}))
    assert nodes_of(run(*topology(), *queue(cpu="f"), *nodes, given)) == {"leader": {"n1"}, "worker": {"n2"}}


def test_a_leader_that_selects_a_node_that_is_not_there_keeps_its_group_waiting() -> None:
    given = group(pods({"cpu": "1"}, **SSD), pods({"cpu": "2"}))
    world = (*topology(), *queue(cpu="f"), node("n1", "r1"), node("n2", "r2"), given)
    waits = run(*world)
    assert waits.final.running == ()
    assert "their leader fits nowhere beside them" in waits.final.pending[0].message
    assert told(run(*world, using=KUEUE)) == ["0 Admitted grp-0"], "Kueue looks at the workers alone"


def test_a_leader_whose_flavor_names_no_topology_is_placed_with_its_group() -> None:
    """It asks for cpu alone, which has a flavor without one."""
    given = group(pods({"cpu": "1"}), pods({GPU: "2"}))
    world = (*topology(), *queue(**{"cpu": "plain", GPU: "f"}), node("n1", "r1"), node("n2", "r1"), given)
    placed = nodes_of(run(*world))
    assert placed.keys() == {"leader", "worker"}
    assert run(*world, using=KUEUE).final.running == ()


def ray(head: Json) -> Json:
    def template(requests: Json) -> Json:
        limits = {name: amount for name, amount in requests.items() if "/" in name}
        container = {"name": "main", "image": "i", "resources": {"requests": requests, "limits": limits}}
        return {"spec": {"containers": [container]}}

    workers = {"groupName": "w", "replicas": 2, "minReplicas": 0, "maxReplicas": 2, "rayStartParams": {}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "rc", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "headGroupSpec": {"rayStartParams": {}, "template": template(head)},
            "workerGroupSpecs": [{**workers, "template": template({GPU: "4"})}],
        },
    }


@pytest.mark.parametrize("head", [{"cpu": "2"}, {}], ids=["what is left out of quotas", "nothing"])
def test_a_head_that_asks_for_no_quota_needs_no_place(head: Json) -> None:
    left_out = "resources: {excludeResourcePrefixes: [cpu, memory]}\n"
    world = (*topology(), *queue(**{GPU: "f"}), node("n1", "r1"), node("n2", "r1"), ray(head))
    result = run(*world, using=left_out + "tessera: {policy: tessera}\n")
    assert told(result) == ["0 Admitted rc"]
    assert nodes_of(result) == {"w": {"n1", "n2"}}
    assert run(*world, using=left_out + KUEUE).final.running == ()
