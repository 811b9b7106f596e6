"""Faults of simulated hardware, as the kubelet comes to see them: who is hit, who is not, and how they come back."""

from agent.health.states import FaultKind, HealthState
from inventory.devices import MigInstance
from tests.support.agent.node import EAGER, GPU, Lab, fleet

TEN = f"{EAGER}sharing: {{timeSlicing: {{resources: [{{name: {GPU}, replicas: 10}}]}}}}\n"
MIXED = EAGER + "flags: {migStrategy: mixed}\n"
CUT = "  migEnabled: [0]\n  mig: {0: [3g.20gb, 3g.20gb]}\n"
SLICE = "nvidia.com/mig-3g.20gb"
LINKED = "  nvlink: dgx1\n"


def instances(lab: Lab) -> tuple[MigInstance, ...]:
    return lab.report().node.gpus[0].mig_instances


def kinds(lab: Lab, index: int) -> set[FaultKind]:
    return {fault.kind for fault in lab.agent.node_state.health.faults(lab.uuid(index))}


def steps(lab: Lab, index: int) -> list[tuple[HealthState, HealthState]]:
    return [(change.old, change.new) for change in lab.reporter.transitions if change.gpu == lab.uuid(index)]


async def test_xid_79_takes_out_all_replicas_of_its_gpu_and_no_other(lab: Lab) -> None:
    await lab.serve(fleet(3), TEN)
    lab.sim(gpu=1, xid=79)
    await lab.until(lambda: bool(lab.down()))
    assert lab.down() == lab.on(1)
    assert len(lab.down()) == 10
    assert steps(lab, 1) == [(HealthState.HEALTHY, HealthState.UNHEALTHY)]
    assert steps(lab, 0) == steps(lab, 2) == []


async def test_xid_31_is_the_programs_own_fault_and_takes_out_nobody(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(2))
    lists = endpoint.lists
    lab.sim(gpu=0, xid=31)
    lab.sim(gpu=1, xid=43)
    await lab.until(lambda: b"xid_errors_total" in lab.agent.metrics.exposition())
    lab.sim(gpu=1, xid=79)  # after which the kubelet is sure to have heard of the others
    await lab.until(lambda: endpoint.lists > lists)
    assert lab.down() == {lab.uuid(1)}
    assert endpoint.lists == lists + 1
    assert lab.state(0) is HealthState.HEALTHY


async def test_an_xid_in_a_gpu_instance_takes_out_that_instance_alone(lab: Lab) -> None:
    await lab.serve(fleet(2, more=CUT), MIXED, resource=SLICE)
    hit, spared = instances(lab)
    lab.sim(gpu=0, xid=48, gi=hit.gi_id, ci=hit.ci_id)
    await lab.until(lambda: bool(lab.down(SLICE)))
    assert lab.down(SLICE) == {hit.uuid}
    assert lab.state(0, spared.uuid) is HealthState.HEALTHY
    assert lab.down() == set()


async def test_an_xid_without_an_instance_takes_out_every_instance_of_the_gpu(lab: Lab) -> None:
    await lab.serve(fleet(2, more=CUT), MIXED, resource=SLICE)
    lab.sim(gpu=0, xid=48)
    await lab.until(lambda: len(lab.down(SLICE)) == 2)
    assert lab.down(SLICE) == {mig.uuid for mig in instances(lab)}
    assert lab.down() == set(), "the whole GPU beside it is another board"


async def test_an_xid_takes_out_the_gpu_it_names_whichever_set_it_came_to(lab: Lab) -> None:
    await lab.serve(fleet(3, more="  strayEvents: true\n"))
    lab.sim(gpu=1, xid=48)
    await lab.until(lambda: bool(lab.down()))
    assert lab.down() == {lab.uuid(1)}
    assert lab.state(0) is HealthState.HEALTHY


async def test_after_a_reset_comes_probation_and_then_health(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(2))
    lab.sim(gpu=1, xid=79)
    await lab.until(lambda: bool(lab.down()))
    lab.sim(gpu=1, reset=True)
    await lab.restored(1)
    await lab.until(lambda: len(endpoint.healthy) == 2)
    assert steps(lab, 1) == [
        (HealthState.HEALTHY, HealthState.UNHEALTHY),
        (HealthState.UNHEALTHY, HealthState.PROBATION),
        (HealthState.PROBATION, HealthState.HEALTHY),
    ]
    unhealthy, probation, _ = (change for change in lab.reporter.transitions if change.gpu == lab.uuid(1))
    assert "79" in unhealthy.cause
    assert probation.reason == "ResetObserved"
    assert lab.agent.node_state.health.faults(lab.uuid(1)) == ()


async def test_probation_lasts_as_long_as_configured(lab: Lab) -> None:
    await lab.serve(fleet(1), EAGER.replace("probationSeconds: 0.1", "probationSeconds: 0.4"))
    lab.sim(gpu=0, xid=79)
    await lab.until(lambda: lab.state(0) is HealthState.UNHEALTHY)
    lab.sim(gpu=0, reset=True)
    await lab.restored(0)
    passed = lab.reporter.transitions[-1]
    assert (passed.old, passed.new) == (HealthState.PROBATION, HealthState.HEALTHY)
    assert 0.4 <= passed.age_s < 20.0


async def test_a_harmless_xid_does_not_erase_a_fatal_one(lab: Lab) -> None:
    await lab.serve(fleet(2))
    lab.sim(gpu=0, xid=48)
    await lab.until(lambda: lab.state(0) is HealthState.UNHEALTHY)
    lab.sim(gpu=0, xid=31)
    lab.sim(gpu=0, xid=63)
    await lab.until(lambda: b'xid="63"' in lab.agent.metrics.exposition())
    assert lab.state(0) is HealthState.UNHEALTHY
    assert lab.down() == {lab.uuid(0)}


async def test_a_gpu_that_only_answers_again_does_not_come_back(lab: Lab) -> None:
    await lab.serve(fleet(2))
    lab.sim(gpu=0, xid=74)
    await lab.until(lambda: lab.state(0) is HealthState.UNHEALTHY)
    lab.sim(gpu=1, xid=79)
    lab.sim(gpu=1, reset=True)
    await lab.restored(1)
    assert lab.state(0) is HealthState.UNHEALTHY, "three times probed, never reset"
    lab.sim(gpu=0, reset=True)
    await lab.restored(0)


async def test_a_gpu_lost_without_a_word_is_found_by_its_probe(lab: Lab) -> None:
    await lab.serve(fleet(2))
    lab.sim(gpu=1, lost=True)
    await lab.until(lambda: lab.down() == {lab.uuid(1)})
    assert kinds(lab, 1) >= {FaultKind.LOST}
    assert lab.reporter.transitions[0].reason == "GpuLost"


async def test_uncorrected_memory_errors_are_an_input(lab: Lab) -> None:
    await lab.serve(fleet(2))
    lab.sim(gpu=0, ecc={"volatile": 2})
    await lab.until(lambda: lab.down() == {lab.uuid(0)})
    assert kinds(lab, 0) == {FaultKind.ECC}
    lab.sim(gpu=0, reset=True)
    await lab.restored(0)


async def test_a_failed_row_remap_stays_until_the_board_is_another(lab: Lab) -> None:
    await lab.serve(fleet(2))
    lab.sim(gpu=0, remapFailure=True)
    await lab.until(lambda: lab.down() == {lab.uuid(0)})
    lab.sim(gpu=0, reset=True)
    lab.sim(gpu=1, xid=79)
    lab.sim(gpu=1, reset=True)
    await lab.restored(1)
    assert lab.state(0) is HealthState.UNHEALTHY
    assert kinds(lab, 0) == {FaultKind.REMAP_FAILURE}


async def test_a_direct_nvlink_that_is_down_makes_both_ends_suspect_and_takes_out_nobody(lab: Lab) -> None:
    await lab.serve(fleet(8, "Tesla V100-SXM2-16GB", LINKED))
    lab.sim(gpu=0, nvlinkDown=[0])
    await lab.until(lambda: lab.state(0) is HealthState.SUSPECT)
    assert lab.down() == set()
    lab.sim(gpu=0, nvlinkDown=[])
    await lab.restored(0)
    assert lab.reporter.transitions[-1].reason == "NvLinkUp"


async def test_an_nvlink_into_a_switch_that_is_down_takes_the_gpu_out(lab: Lab) -> None:
    await lab.serve(fleet(4, more="  nvlink: full\n"))
    lab.sim(gpu=2, nvlinkDown=[3])
    await lab.until(lambda: lab.down() == {lab.uuid(2)})
    lab.sim(gpu=2, nvlinkDown=[])
    await lab.restored(2)


async def test_a_link_that_is_down_through_a_discovery_is_still_missed(lab: Lab) -> None:
    await lab.serve(fleet(4, more="  nvlink: full\n"))
    lab.sim(gpu=2, nvlinkDown=[3])
    await lab.until(lambda: lab.state(2) is HealthState.UNHEALTHY)
    # A discovery that waits for GPU 0, and probes of GPU 2 meanwhile.
    lab.sim(gpu=0, slow={"call": "nvmlDeviceGetName", "seconds": 0.2})
    await lab.look_again()
    lab.sim(gpu=0, xid=79)
    lab.sim(gpu=0, reset=True)
    await lab.restored(0)
    assert lab.state(2) is HealthState.UNHEALTHY


async def test_allocate_refuses_a_device_the_kubelet_does_not_yet_know_to_be_down(lab: Lab) -> None:
    import grpc
    import pytest

    from kubeletapi import deviceplugin_v1beta1_pb2 as pb

    endpoint = await lab.serve(fleet(2))
    lab.sim(gpu=0, xid=79)
    await lab.until(lambda: lab.state(0) is HealthState.UNHEALTHY)
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=[lab.uuid(0)])])
    with pytest.raises(grpc.aio.AioRpcError, match="79"):
        await endpoint.stub.Allocate(request, timeout=60)


async def test_switched_off_health_takes_out_only_what_is_gone(lab: Lab) -> None:
    await lab.serve(fleet(2), "version: v1\nhealth: {enabled: false, probeIntervalSeconds: 0.1}\n")
    lab.sim(gpu=0, xid=79)
    await lab.until(lambda: b'xid="79"' in lab.agent.metrics.exposition())
    assert lab.down() == set()
    lab.sim(gpu=1, remove=True)
    await lab.until(lambda: set(lab.endpoint().devices) == {lab.uuid(0)})


async def test_a_lost_board_that_is_put_back_is_given_again_however_soon_it_is_seen_gone(lab: Lab) -> None:
    await lab.serve(fleet(2))
    board = lab.uuid(1)
    for _ in range(4):
        lab.sim(gpu=1, xid=79)
        await lab.until(lambda: lab.down() == {board})
        lab.sim(gpu=1, remove=True)
        await lab.until(lambda: board not in {gpu.uuid for gpu in lab.agent.node_state.node.gpus})
        lab.sim(gpu=1, add=True)
        await lab.restored(1)
