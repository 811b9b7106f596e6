"""Pods of one PodGroup that get quota all at once: none of them holds any while another has to wait."""

import random
from typing import Any

import msgspec
import pytest

from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.decisions.decisions import Admitted
from controller.scheduler.model.config import EngineConfig, WaitForPodsReady
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import STARTS_WITH
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload
from tests.support.seeds import histories

HINT = "Raise the quota, make fewer pods, or annotate it with tessera.dev/pods-above: delete"


def sister(name: str, group: str = "g", queue: str = "q", gpus: int = 1, **more: Any) -> Workload:
    return workload(name, queue, gpus, annotations={STARTS_WITH: group}, **more)


def queues(nominal: int, **spec: Any) -> World:
    lab = World()
    lab.put(flavor(), cluster_queue("q", nominal, **spec), local_queue("q"))
    return lab


def why(lab: World, name: str) -> str:
    told = lab.engine.explain(WorkloadKey(f"ns/{name}"), lab.now_s)
    assert told is not None
    (said,) = [each.message for each in told.status().status.conditions if each.type == "QuotaReserved"]
    return said


def test_pods_that_do_not_all_fit_hold_nothing_and_say_why() -> None:
    lab = queues(3)
    lab.put(*(sister(f"p{at}", created_s=at) for at in range(4)))
    lab.settle()
    assert lab.running() == set()
    assert why(lab, "p0") == (
        f"4 pods of PodGroup g wait, and there is room for 3: kube-scheduler starts all or none. {HINT}"
    )


def test_all_get_quota_in_one_cycle_when_all_fit() -> None:
    lab = queues(3)
    lab.put(*(sister(f"p{at}", created_s=at) for at in range(4)))
    lab.settle()
    lab.put(cluster_queue("q", 4))
    made = lab.cycle().made
    assert sorted(each.key for each in made if isinstance(each, Admitted)) == [f"ns/p{at}" for at in range(4)]


def test_what_comes_behind_them_passes_while_they_wait() -> None:
    lab = queues(3)
    lab.put(*(sister(f"p{at}", created_s=at) for at in range(4)), workload("other", "q", created_s=9))
    lab.settle()
    assert lab.running() == {"other"}


def test_one_that_comes_when_the_others_hold_quota_waits_for_none_of_them() -> None:
    lab = queues(3)
    lab.put(sister("p0"), sister("p1"))
    lab.settle()
    lab.put(sister("p2"))
    lab.settle()
    assert lab.running() == {"p0", "p1", "p2"}


def test_the_others_start_when_the_one_that_did_not_fit_is_deleted() -> None:
    lab = queues(3)
    lab.put(sister("p0"), sister("p1"), sister("large", gpus=9))
    lab.settle()
    assert lab.running() == set()
    lab.delete("large")
    lab.settle()
    assert lab.running() == {"p0", "p1"}


def test_one_that_is_queued_by_itself_again_starts_by_itself() -> None:
    lab = queues(1)
    lab.put(sister("p0"), sister("p1"))
    lab.settle()
    lab.put(workload("p0", "q"), workload("p1", "q"))
    lab.settle()
    assert len(lab.running()) == 1


def test_they_preempt_nobody_while_they_wait_together() -> None:
    lab = queues(3, preemption={"withinClusterQueue": "LowerPriority"})
    lab.put(workload("low", "q", 2))
    lab.settle()
    lab.put(sister("p0", priority=9), sister("p1", priority=9))
    lab.settle()
    assert lab.running() == {"low"}
    assert "there is room for" in why(lab, "p1")


def test_groups_of_the_same_name_in_two_queues_do_not_wait_for_each_other() -> None:
    lab = queues(2)
    lab.put(cluster_queue("r", 0), local_queue("r"))
    lab.put(sister("p0"), sister("p1"), sister("p2", queue="r"))
    lab.settle()
    assert lab.running() == {"p0", "p1"}


def test_one_whose_workload_is_deactivated_holds_the_others_back() -> None:
    lab = queues(3)
    lab.put(sister("p0"), sister("p1", active=False))
    lab.settle()
    assert lab.running() == set()


def test_they_all_start_though_only_one_workload_at_a_time_may_be_unready() -> None:
    lab = World(EngineConfig(wait_for_pods_ready=WaitForPodsReady(block_admission=True)))
    lab.put(flavor(), cluster_queue("q", 3), local_queue("q"))
    lab.put(*(sister(f"p{at}") for at in range(3)))
    lab.cycle()
    assert lab.running() == {"p0", "p1", "p2"}


def test_the_index_of_sisters_is_recomputed() -> None:
    lab = queues(3)
    lab.put(sister("p0"))
    known = lab.engine.state.workloads
    known._objects[WorkloadKey("ns/p0")] = msgspec.structs.replace(
        known.objects[WorkloadKey("ns/p0")], metadata=workload("p0", "q").metadata
    )
    with pytest.raises(DriftError, match="workloads with sisters"):
        known.validate({})


@histories(1, 2, 3, 4, 5)
def test_no_cycle_gives_quota_to_a_part_of_those_that_wait(seed: int) -> None:
    rng = random.Random(seed)
    lab = World()
    lab.put(flavor(), local_queue("q"), local_queue("r"))
    lab.put(*(cluster_queue(name, 4, cohort="c") for name in "qr"))
    for at in range(60):
        names = sorted(each.metadata.name for each in lab.workloads.values())
        running = sorted(lab.running())
        match rng.randrange(5):
            case 0 | 1:
                queue, group = rng.choice("qr"), rng.choice("gh")
                lab.put(sister(f"p{at}", group, queue, rng.randint(1, 3), created_s=at))
            case 2:
                lab.put(workload(f"w{at}", rng.choice("qr"), rng.randint(1, 3), created_s=at))
            case 3 if running:
                lab.finish(rng.choice(running))
            case _ if names:
                lab.delete(rng.choice(names))
        before = lab.running()
        waiting = _waiting(lab)
        lab.cycle()
        begun = lab.running() - before
        for together in waiting:
            assert not together & begun or together <= begun, (together, begun)


def _waiting(lab: World) -> list[set[str]]:
    """The pods without quota that start together, by queue and group."""
    found: dict[tuple[str, str], set[str]] = {}
    for each in lab.workloads.values():
        name = each.metadata.name
        group = each.metadata.annotations.get(STARTS_WITH)
        if group and name not in lab.running() and each.status.admission is None:
            found.setdefault((each.spec.queue_name, group), set()).add(name)
    return list(found.values())
