"""Quota follows what is healthy: through the engine, with what waits and what runs."""

from typing import Any

from controller.objects.core import Namespace, Node
from controller.objects.decode import decode
from controller.objects.meta import KubernetesObject
from controller.objects.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Admitted
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig, Extensions

NOW_S = 1_000_000.0


def group(nominal: str) -> list[dict[str, Any]]:
    quota = {"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": nominal}]}
    return [{"coveredResources": ["nvidia.com/gpu"], "flavors": [quota]}]


def metadata(name: str, share: str | None = None, **more: Any) -> dict[str, Any]:
    text = f'{{"a100": {{"nvidia.com/gpu": "{share}"}}}}'
    return {"name": name, "annotations": {} if share is None else {"tessera.dev/quota-shares": text}, **more}


def queue(share: str | None, nominal: str = "1", cohort: str = "") -> ClusterQueue:
    spec = {"namespaceSelector": {}, "resourceGroups": group(nominal), "cohortName": cohort}
    return decode({"metadata": metadata("cq", share), "spec": spec}, ClusterQueue)


def node(gpus: int) -> Node:
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": "True"}]}
    return decode({"metadata": metadata("n1", labels={"gpu": "a100"}), "status": status}, Node)


def job(name: str, gpus: int) -> Workload:
    containers = [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}]
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}
    spec = {"queueName": "lq", "podSets": [pod_set]}
    return decode({"metadata": metadata(name, namespace="ns", uid=name), "spec": spec}, Workload)


FLAVOR = decode({"metadata": {"name": "a100"}, "spec": {"nodeLabels": {"gpu": "a100"}}}, ResourceFlavor)
AROUND: tuple[KubernetesObject, ...] = (
    decode({"metadata": {"name": "ns"}}, Namespace),
    decode({"metadata": metadata("lq", namespace="ns"), "spec": {"clusterQueue": "cq"}}, LocalQueue),
)


def engine_with(*objects: KubernetesObject, on: bool = True) -> Engine:
    engine = Engine(EngineConfig(extensions=Extensions(quota_from_capacity=on)))
    for one in (*AROUND, *objects):
        engine.put(one, NOW_S)
    return engine


def admitted(engine: Engine) -> list[str]:
    names: list[str] = []
    while not engine.settled(NOW_S):
        names += [one.key for one in engine.cycle(NOW_S).made if isinstance(one, Admitted)]
        engine.validate()
    return names


def test_a_waiting_job_runs_once_enough_gpus_are_healthy_in_any_order_of_events() -> None:
    for order in ((FLAVOR, queue("50%"), node(4)), (node(4), queue("50%"), FLAVOR)):
        engine = engine_with(*order, job("j", 3))
        assert admitted(engine) == []
        engine.put(node(6), NOW_S)
        assert admitted(engine) == ["ns/j"]


def test_lost_gpus_admit_less_and_what_runs_stays() -> None:
    engine = engine_with(FLAVOR, node(4), queue("100%"), job("first", 2))
    assert admitted(engine) == ["ns/first"]
    engine.put(node(2), NOW_S)
    engine.put(job("second", 2), NOW_S)
    assert admitted(engine) == []
    assert "ns/first" in engine.state.cluster.holders


def test_a_cohorts_pool_may_be_a_share_as_well() -> None:
    data = {"metadata": metadata("pool", "100%"), "spec": {"resourceGroups": group("0")}}
    pool = decode(data, Cohort)
    engine = engine_with(FLAVOR, node(4), queue(None, "0", cohort="pool"), pool, job("j", 4))
    assert admitted(engine) == ["ns/j"]


def test_a_share_that_cannot_be_used_leaves_the_nominal_quota_and_is_named() -> None:
    engine = engine_with(FLAVOR, node(8), queue("lots"), job("one", 1), job("two", 2))
    assert admitted(engine) == ["ns/one"]
    assert engine.shares is not None
    assert [text.split(":")[0] for text in engine.shares.problems.values()] == ["tessera.dev/quota-shares"]
    engine.put(queue("100%"), NOW_S)
    assert engine.shares.problems == {}
    assert admitted(engine) == ["ns/two"]


def test_removing_the_annotation_or_the_node_or_the_flavor_takes_effect() -> None:
    engine = engine_with(FLAVOR, node(8), queue("100%"))
    engine.put(queue(None), NOW_S)
    engine.put(node(6), NOW_S)
    engine.put(job("j", 2), NOW_S)
    assert admitted(engine) == []
    engine.put(queue("100%"), NOW_S)
    engine.drop(Node, "", "n1", NOW_S)
    assert admitted(engine) == []
    engine.put(node(6), NOW_S)
    assert admitted(engine) == ["ns/j"]


def test_with_the_feature_off_the_annotation_means_nothing_and_nodes_are_not_read() -> None:
    engine = engine_with(FLAVOR, queue("100%"), job("j", 2), on=False)
    engine.put(node(8), NOW_S)
    assert admitted(engine) == []
