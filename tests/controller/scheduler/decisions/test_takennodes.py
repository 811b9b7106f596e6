"""What a refusal says of the nodes without room: who has them, and which would take no such pod even when empty."""

from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from controller.objects.decode import decode_object
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.scheduler.cluster.incoming import PreemptionReason, Target
from controller.scheduler.decisions.records import Rule
from controller.scheduler.decisions.sentences import sentence, told_to
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from tests.controller.scheduler.test_engine_work import executed
from tests.controller.scheduler.topology.test_topology_in_cycles import gang, world_of
from tests.support.engine import boards
from tests.support.engine.topologylab import RACK, node, pod
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

NAMESPACE = decode_object({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs", "labels": {}}})


def moved(one: KubernetesObject, namespace: str) -> Any:
    """The same in another namespace."""
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, namespace=namespace))


def told(world: World, name: str, *, every_name: bool = False) -> str:
    key = WorkloadKey(f"ns/{name}")
    pending = world.engine.explain(key, world.now_s)
    assert pending is not None
    return sentence(world.engine.with_taken_nodes(pending.record, world.now_s, every_name=every_name))


def two_teams() -> World:
    """Three nodes of a rack are full: two by ``theirs/big``, of another queue and namespace, one by ``ns/own``."""
    world = world_of({"b/r/a": 1, "b/r/b": 1, "b/r/c": 1, "b/r/d": 1})
    world.put(NAMESPACE, cluster_queue("theirs"), moved(local_queue("l", "theirs"), "theirs"))
    big = moved(gang("big", 2, level=RACK), "theirs")
    world.put(msgspec.structs.replace(big, spec=msgspec.structs.replace(big.spec, queue_name="l")), gang("own", 1))
    world.settle()
    world.put(gang("new", 3, level=RACK))
    world.settle()
    return world


def gang_of_hosts(world: World, *made: Workload) -> World:
    world.put(*made)
    world.settle()
    return world


def test_workloads_of_the_own_namespace_are_named_and_others_by_their_queue() -> None:
    said = told(two_teams(), "new")
    assert "full nodes are taken by workloads of queue theirs on 2, ns/own on 1" in said
    assert "theirs/big" not in said


def test_for_a_view_that_hides_names_itself_all_are_named() -> None:
    assert "full nodes are taken by theirs/big on 2, ns/own on 1" in told(two_teams(), "new", every_name=True)


def test_three_holders_are_named_and_the_rest_is_counted() -> None:
    world = gang_of_hosts(world_of({f"b/r/n{at}": 1 for at in range(6)}), *(gang(f"w{at}", 1) for at in range(5)))
    world.put(gang("new", 2, level=RACK))
    world.settle()
    assert "taken by ns/w0 on 1, ns/w1 on 1, ns/w2 on 1, 2 more" in told(world, "new")


def test_pods_of_no_queue_and_nodes_that_are_too_small_are_told_apart() -> None:
    world = world_of({"b/r/a": 4, "b/r/b": 4, "b/r/small": 1})
    world.put(pod("p", "a", 3), gang("new", 3, 2, level=RACK))
    world.settle()
    said = told(world, "new")
    assert "full nodes are taken by pods of no queue on 1" in said
    assert "nodes that do not fit: 1 with too little gpu even when empty" in said


def test_each_reason_for_which_gpus_do_not_fit_is_counted() -> None:
    world = boards.world_of(
        [
            boards.gpu_node("sick", 4, sick=[0, 1]),
            boards.gpu_node("old", 4, product="NVIDIA T4"),
            boards.gpu_node("apart", 4, boards.none),
        ]
    )
    world.put(boards.job("new", 4, 2, product=boards.PRODUCT, link="nvlink"))
    world.settle()
    said = told(world, "new")
    assert "1 with too few healthy GPUs" in said
    assert "1 whose GPUs are of another product" in said
    assert "1 whose free GPUs are not joined by NVLink" in said


def test_gpus_with_too_little_memory_are_told_and_so_are_those_that_no_agent_reports() -> None:
    world = boards.world_of([boards.gpu_node("small", 2, memory_mib=15360), boards.gpu_node("bare", 0)])
    world.put(node("b/r/bare", 2))
    world.put(boards.job("new", 1, 1, memory="40"))
    world.settle()
    said = told(world, "new")
    assert "1 whose GPUs have too little memory" in said
    assert "1 whose GPUs no agent reports" in said


def test_gpus_of_the_right_kind_that_others_have_are_told_with_who_has_them() -> None:
    world = boards.world_of([boards.gpu_node("a", 2)])
    gang_of_hosts(world, boards.job("first", 2, product=boards.PRODUCT))
    world.put(boards.job("new", 1, product=boards.PRODUCT))
    world.settle()
    assert "full nodes are taken by ns/first on 1" in told(world, "new")


def test_an_answer_serves_for_seconds_and_is_made_anew_then() -> None:
    world = two_teams()
    assert "ns/own" in told(world, "new")
    world.finish("own")
    assert "ns/own" in told(world, "new")
    world.now_s += 6
    assert "ns/own" not in told(world, "new")


def test_a_record_of_a_flavor_that_is_gone_stays_as_it_is() -> None:
    world = two_teams()
    pending = world.engine.explain(WorkloadKey("ns/new"), world.now_s)
    assert pending is not None
    placement = world.engine.state.cluster.placement
    placement.remove_flavor(pending.record.assignment.pod_sets[0].unplaced.flavor)  # type: ignore[union-attr]
    assert world.engine.with_taken_nodes(pending.record, world.now_s) == pending.record


def test_victims_of_another_namespace_are_told_by_their_queue_alone() -> None:
    world = two_teams()
    last = world.engine.stories.last(WorkloadKey("theirs/big"))
    assert last is not None
    holders = [world.engine.state.cluster.holders[WorkloadKey(key)] for key in ("theirs/big", "ns/own")]
    targets = tuple(Target(holder, PreemptionReason.IN_CLUSTER_QUEUE) for holder in holders)
    record = msgspec.structs.replace(last, workload=WorkloadKey("ns/new"), rule=Rule.PREEMPTS, targets=targets)
    assert sentence(record) == "Waits for 2 workloads to be preempted: ns/own, a workload of queue theirs"


def test_a_victim_reads_the_queue_of_a_preemptor_of_another_namespace_and_it_reads_that_of_the_victim() -> None:
    world = World()
    queues = (cluster_queue("theirs", 4, cohort="all", preemption={"reclaimWithinCohort": "Any"}),)
    world.put(flavor(), cluster_queue("q", 0, cohort="all"), local_queue("q"), *queues)
    world.put(NAMESPACE, moved(local_queue("l", "theirs"), "theirs"), workload("old", "q", 4))
    world.settle()
    world.put(moved(workload("new", "l", 4), "theirs"))
    events = [event for one in world.cycle().made for event in one.events()]
    said = {
        str(event.workload): event.message for event in events if event.reason in ("Preempted", "PreemptedWorkload")
    }
    assert said["ns/old"].startswith("Preempted to accommodate a workload of queue theirs (UID uid-new) ")
    assert said["theirs/new"] == "Preempted a workload of ClusterQueue q"


def test_what_would_be_delayed_in_another_namespace_is_told_by_its_queue() -> None:
    assert told_to(WorkloadKey("ns/a"), WorkloadKey("ns/b"), ClusterQueueName("q")) == "workload ns/b"
    assert told_to(WorkloadKey("ns/a"), WorkloadKey("other/b"), ClusterQueueName("q")) == "a workload of queue q"


def test_the_words_about_full_nodes_are_little_work_for_each_node() -> None:
    """Instructions of Python for each node. Only what came or went since is put on its nodes anew."""
    count = 60
    world = world_of({f"b/r/n{at:02}": 1 for at in range(count)})
    gang_of_hosts(world, *(gang(f"w{at}", 1) for at in range(count)))
    world.put(gang("new", 2, level=RACK))
    world.settle()
    assert "on 1, 57 more" in told(world, "new")
    work = []
    for _ in range(2):
        world.now_s += 10.0
        world.delete("w0")
        world.put(gang("w0", 1))
        world.settle()
        pending = world.engine.explain(WorkloadKey("ns/new"), world.now_s)
        assert pending is not None
        look = partial(world.engine.with_taken_nodes, pending.record, world.now_s, every_name=False)
        work.append(executed(look) / count)
    assert work[1] < 180, work


@pytest.mark.parametrize("seed", range(6))
def test_who_has_the_nodes_is_the_same_for_an_engine_that_begins_anew(seed: int) -> None:
    """However often it was looked up before, and whoever came and went since."""
    chance = Random(seed)
    world = world_of({f"b/r/n{at}": 2 for at in range(6)})
    gang_of_hosts(world, gang("always", 1, 2, priority=5))
    world.put(gang("new", 12, level=RACK))
    for step in range(12):
        world.now_s += 10.0
        for name in chance.sample([f"w{at}" for at in range(8)], 3):
            key = WorkloadKey(f"ns/{name}")
            if key in world.workloads:
                world.delete(name)
            else:
                world.put(gang(name, chance.randint(1, 3), chance.randint(1, 2), priority=5))
        world.settle()
        said = told(world, "new")
        assert "full nodes are taken by" in said, step
    world.rebuild()
    world.settle()
    assert told(world, "new") == said
