"""Plain pods as they would queue: a group comes with its last pod, and its pods are placed together."""

from pathlib import Path
from typing import Any

import pytest

from controller.insight.simulation.documents import InputError, documents
from controller.insight.simulation.manifests import scenario
from controller.insight.simulation.run import simulate
from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import GPU, cluster_queue, config, given, kueue, local_queue, run, told

EXAMPLES = Path(__file__).parents[4] / "examples" / "gangs"
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PLACED = kueue("ResourceFlavor", "a100", spec={"topologyName": "dc"})
TOPOLOGY = kueue("Topology", "dc", spec={"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]})


def node(name: str, rack: str, gpus: int) -> dict[str, Any]:
    status = {"allocatable": {GPU: str(gpus), "pods": "9"}, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {RACK: rack, HOST: name}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def pod(name: str, gpus: int = 1, *, group: str = "", total: int = 0, **annotations: str) -> dict[str, Any]:
    """``annotations``: of Tessera, the dash written as an underscore."""
    labels = {"kueue.x-k8s.io/queue-name": "main", **({"kueue.x-k8s.io/pod-group-name": group} if group else {})}
    said = {f"tessera.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    if total:
        said["kueue.x-k8s.io/pod-group-total-count"] = str(total)
    metadata = {"name": name, "namespace": "ns", "labels": labels, "annotations": said}
    spec = {"containers": [{"name": "c", "resources": {"limits": {GPU: str(gpus)}}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def in_one_rack(one: dict[str, Any]) -> dict[str, Any]:
    one["metadata"]["annotations"][REQUIRED] = RACK
    return one


def places(result: SimulationResult, name: str) -> list[tuple[str, str, int]]:
    (entry,) = (one for one in result.timeline if one.event == "Admitted" and one.workload == f"ns/{name}")
    return [(one.domains[RACK], one.node, one.pods) for one in entry.placement]


QUEUE = (PLACED, TOPOLOGY, cluster_queue(), local_queue())
RACKS = (node("a", "r1", 2), node("b", "r2", 2), node("c", "r2", 2))


def test_a_group_comes_with_its_last_pod_lies_in_one_rack_and_ends_with_its_longest() -> None:
    last = {2: "4s"}
    group = [
        in_one_rack(pod(f"w{at}", group="g", total=3, arrival=last.get(at, "0"), runtime=f"{5 + at}s"))
        for at in range(3)
    ]
    result = run(*QUEUE, *RACKS, *group, pod("alone", runtime="1s"))
    assert told(result) == ["0 Admitted alone", "1 Finished alone", "4 Admitted g", "11 Finished g"]
    assert places(result, "g") == [("r2", "b", 2), ("r2", "c", 1)]


def test_a_single_pod_is_placed_as_it_asks() -> None:
    large = in_one_rack(pod("large", 2))
    assert places(run(*QUEUE, node("a", "r1", 1), node("b", "r2", 3), large), "large") == [("r2", "b", 1)]


def test_a_group_of_several_shapes_is_placed_shape_by_shape() -> None:
    group = [pod("driver", 2, group="g", total=2), pod("worker", 1, group="g", total=2)]
    result = run(*QUEUE, node("a", "r1", 2), node("b", "r2", 1), *map(in_one_rack, group))
    assert sorted(places(result, "g")) == [("r1", "a", 1), ("r2", "b", 1)]


def test_a_group_that_lacks_a_pod_is_an_error_that_says_so() -> None:
    with pytest.raises(InputError, match="group g has 2 of 3 pods"):
        scenario(given(*QUEUE, *(pod(f"w{at}", group="g", total=3) for at in range(2))), config())


@pytest.mark.parametrize(
    ("file", "name", "pods"),
    [
        ("pod-group-pytorch.yaml", "resnet50-classify", 8),
        ("pod-group-volcano.yaml", "pytorch-distributed", 4),
        ("native-gang.yaml", "native-train", 4),
        ("native-composite.yaml", "native-pipeline", 3),
    ],
)
def test_the_examples_are_admitted_whole_or_wait_whole(file: str, name: str, pods: int) -> None:
    queue = local_queue("ml-research-queue", "main")
    queue["metadata"]["namespace"] = "ml-research"
    asked = documents((EXAMPLES / file).read_text(), file)
    for gpus, expected in ((pods, "Admitted"), (pods - 1, "Pending")):
        settings = config()
        found = scenario(
            [*given(kueue("ResourceFlavor", "a100"), cluster_queue("main", gpus), queue), *asked], settings
        )
        assert [one.workload.metadata.name for one in found.submissions] == [name]
        assert sum(one.count for one in found.submissions[0].workload.spec.pod_sets) == pods
        (entry,) = simulate(found, settings.engine, check=True).timeline
        assert (entry.event.value, entry.workload) == (expected, f"ml-research/{name}")


def of_volcano(name: str, **annotations: Any) -> dict[str, Any]:
    """A pod of the PodGroup ``v``."""
    found = pod(name, **annotations)
    found["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "v"
    return found


def test_a_pod_groups_minimum_is_the_pods_that_arrive_first_and_the_others_follow_it() -> None:
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "spec": {"minMember": 2}}
    group["metadata"] = {"name": "v", "namespace": "ns"}
    flat = (kueue("ResourceFlavor", "a100"), cluster_queue(gpus=3), local_queue())
    pods = [
        of_volcano("late", arrival="9s"),
        of_volcano("a"),
        of_volcano("b", arrival="2s"),
        of_volcano("c", arrival="3s"),
    ]
    assert told(run(*flat, group, *pods)) == ["2 Admitted v", "3 Admitted c", "9 Pending late"]


def test_pods_above_a_minimum_wait_for_it() -> None:
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "spec": {"minMember": 4}}
    group["metadata"] = {"name": "v", "namespace": "ns"}
    flat = (kueue("ResourceFlavor", "a100"), cluster_queue(gpus=3), local_queue())
    result = run(*flat, group, *(of_volcano(name) for name in "abcde"))
    assert told(result) == ["0 Pending v", "0 Pending e"]
    assert result.timeline[1].message == "Waits for ns/v, the minimum of its gang, to hold quota"
