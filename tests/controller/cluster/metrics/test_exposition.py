"""The page of /metrics, read off an engine: queues, local queues and who waits for what."""

import pytest

from controller.cluster.config.load import parse
from controller.cluster.metrics.exposition import Acting, exposing
from controller.cluster.metrics.instruments import Instruments
from controller.insight.forecast.parts import finished as whole
from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Admitted
from controller.scheduler.decisions.status import finished
from tests.controller.cluster.metrics.test_workloadkinds import of_kind
from tests.support.engine.world import NOW_S, World, cluster_queue, cohort, flavor, local_queue, workload

KUEUE = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def page(world: World, *over: Workload, config: str = "") -> set[str]:
    acting = Acting(world.engine, over, writes_pending=0, events_dropped=0)
    shown = whole(exposing(Instruments(), parse(KUEUE + config), None, acting, {}, role="leader", version="1"))
    lines = {line for line in shown.text().decode().splitlines() if not line.startswith("#")}
    return {line.replace(',replica_role="leader"', "").removesuffix(".0") for line in lines}


def crowded() -> World:
    """4 GPUs, 3 of them in use; two of one shape and one of another wait."""
    world = World()
    world.put(flavor(), cohort("all"), cluster_queue("cq", 4, cohort="all"), local_queue("cq"))
    world.put(workload("runs", "cq", 3))
    world.cycle()
    world.put(*(workload(name, "cq", 5, created_s=at) for at, name in enumerate(("big", "large"))))
    world.put(workload("small", "cq", 2, created_s=5))
    world.cycle()
    return world


def test_those_who_wait_for_a_change_are_told_from_those_who_are_tried_next() -> None:
    lines = page(crowded())
    for name in (
        'kueue_pending_workloads{cluster_queue="cq"',
        'kueue_local_queue_pending_workloads{name="cq",namespace="ns"',
    ):
        assert {f'{name},status="active"}} 1', f'{name},status="inadmissible"}} 2'} <= lines
    shapes = 'kueue_pending_scheduling_hashes{cluster_queue="cq",status='
    assert {f'{shapes}"active"}} 1', f'{shapes}"inadmissible"}} 1'} <= lines


def test_a_local_queue_says_what_its_workloads_hold_and_why_others_wait() -> None:
    lines = page(crowded())
    of = 'name="cq",namespace="ns"'
    assert {
        f'kueue_local_queue_status{{active="True",{of}}} 1',
        f'kueue_local_queue_status{{active="False",{of}}} 0',
        f"kueue_local_queue_reserving_active_workloads{{{of}}} 1",
        f'kueue_local_queue_resource_reservation{{flavor="default",{of},resource="gpu"}} 3',
        f'kueue_local_queue_resource_usage{{flavor="default",{of},resource="gpu"}} 3',
        f'kueue_local_queue_unadmitted_workloads{{{of},reason="ExceedsMaxQuota",underlying_cause="no_fit"}} 2',
    } <= lines


@pytest.mark.parametrize("pauses", range(7))
def test_what_goes_while_the_page_is_read_in_parts_does_not_break_it(
    pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever there is may be gone after a pause: queues, cohorts, those who wait and those who run."""
    monkeypatch.setattr("controller.cluster.metrics.exposition._PART", 1)
    world = crowded()
    world.put(cluster_queue("other", 4, cohort="all"), local_queue("other"), workload("next", "other", 9))
    world.cycle()
    acting = Acting(world.engine, tuple(world.workloads.values()), writes_pending=0, events_dropped=0)
    config = parse(f"{KUEUE}metrics: {{enableClusterQueueResources: true}}\n")
    parts = exposing(Instruments(), config, None, acting, {}, role="leader", version="1")
    for _ in range(pauses):
        next(parts)
    for one in (*world.workloads.values(), local_queue("other"), cluster_queue("other"), local_queue("cq")):
        world.engine.drop(type(one), one.metadata.namespace, one.metadata.name, world.now_s)
    assert "kueue_build_info" in whole(parts).text().decode()


def test_workloads_are_told_by_the_kind_of_their_job() -> None:
    world = crowded()
    owned = [
        of_kind(one, "PyTorchJob" if one.metadata.name == "runs" else "RayJob") for one in world.workloads.values()
    ]
    lines = page(world, *owned)
    assert 'tessera_workloads{job_kind="PyTorchJob",state="admitted"} 1' in lines
    assert 'tessera_workloads{job_kind="RayJob",state="pending"} 3' in lines


def test_those_that_ended_are_counted_while_they_are_there() -> None:
    world = crowded()
    (made,) = [one for one in world.workloads.values() if one.metadata.name == "runs"]
    lines = page(world, finished(made, "Succeeded", "Done", NOW_S), made)
    assert 'kueue_finished_workloads{cluster_queue="cq"} 1' in lines
    assert 'kueue_local_queue_finished_workloads{name="cq",namespace="ns"} 1' in lines


def test_what_is_not_asked_for_is_left_out() -> None:
    world = crowded()
    assert not [line for line in page(world) if "resource_pending" in line or "nominal_quota" in line]
    wanted = page(world, config="metrics: {enableClusterQueueResources: true}\n")
    assert 'kueue_cluster_queue_resource_pending{cluster_queue="cq",cohort="all",resource="gpu"} 12' in wanted
    off = page(world, config="featureGates: {LocalQueueMetrics: false, MetricsForCohorts: false}\n")
    assert not [line for line in off if "local_queue" in line]
    assert [line for line in page(world) if line.startswith("kueue_cohort_")]


def test_without_the_gate_there_are_no_series_of_cohorts() -> None:
    config = "featureGates: {MetricsForCohorts: false}\n"
    world = World(parse(KUEUE + config).engine)
    world.put(flavor(), cohort("all"), cluster_queue("cq", 4, cohort="all"), local_queue("cq"), workload("w", "cq", 1))
    assert [type(one) for one in world.cycle().made] == [Admitted]
    assert not [line for line in page(world, config=config) if "kueue_cohort_" in line]
