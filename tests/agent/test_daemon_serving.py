"""From start to registered: what is advertised is what is there, shared as configured."""

import logging
import stat
from pathlib import Path

import grpc
import pytest

from deviceplugin.testing import Endpoint
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from tests.support.agent.node import EAGER, GPU, Lab, fleet

MIXED = EAGER + "flags: {migStrategy: mixed}\n"
SINGLE = EAGER + "flags: {migStrategy: single}\n"
CUT = "  migEnabled: [1]\n  mig: {1: [1g.5gb, 1g.5gb, 3g.20gb]}\n"


def shared(entry: str, more: str = "renameByDefault: false") -> str:
    return f"{EAGER}sharing:\n  timeSlicing:\n    {more}\n    resources:\n    - {entry}\n"


def resources(lab: Lab) -> dict[str, int]:
    """How many devices the kubelet has of each resource."""
    return {name: len(endpoint.devices) for name, endpoint in lab.kubelet.endpoints.items()}


async def allocate(endpoint: Endpoint, *devices: str) -> pb.ContainerAllocateResponse:
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=devices)])
    answer = await endpoint.stub.Allocate(request, timeout=60)
    return answer.container_responses[0]


async def test_what_is_advertised_is_the_fleet(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(4, more="  pcie: [[0, 1], [2, 3]]\n"))
    assert list(endpoint.devices) == [lab.uuid(i) for i in range(4)]
    assert endpoint.healthy == set(endpoint.devices)
    assert [endpoint.numa[lab.uuid(i)] for i in range(4)] == [(0,), (0,), (1,), (1,)]
    assert lab.kubelet.registrations == [GPU]
    assert endpoint.registration.version == "v1beta1"
    report = lab.report()
    assert [gpu.uuid for gpu in report.node.gpus] == [lab.uuid(i) for i in range(4)]
    assert report.driver_up
    assert report.simulated
    assert report.problems == ()


async def test_pods_get_what_they_asked_for_and_the_report_names_who_holds_it(lab: Lab) -> None:
    await lab.serve(fleet(8, "Tesla V100-SXM2-16GB", "  nvlink: dgx1\n"))
    one = await lab.kubelet.allocate(GPU, 1, pod="one")
    four = await lab.kubelet.allocate(GPU, 4, pod="four")
    assert len({*one.devices, *four.devices}) == 5
    assert one.response.envs["NVIDIA_VISIBLE_DEVICES"] == one.devices[0]
    assert sorted(four.response.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == sorted(four.devices)
    links = lab.report().node.links
    at = [gpu.index for gpu in lab.report().node.gpus if gpu.uuid in four.devices]
    assert all(any(links[i][j].nvlinks for j in at) for i in at), "one of the four is linked to none of the others"
    await lab.until(lambda: len(lab.report().holders) == 5)
    holders = {held.device: held.holder.pod for held in lab.report().holders}
    assert holders == {one.devices[0]: "one", **dict.fromkeys(four.devices, "four")}


async def test_a_device_that_is_not_of_this_node_is_refused_and_the_next_call_served(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(2))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await allocate(endpoint, "GPU-of-another-node")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await allocate(endpoint, lab.uuid(1))).envs["NVIDIA_VISIBLE_DEVICES"] == lab.uuid(1)


async def test_replicas_multiply_every_gpu_and_share_its_numa_node(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(2), shared(f"{{name: {GPU}, replicas: 10}}"))
    assert set(endpoint.devices) == {f"{lab.uuid(i)}::{n}" for i in range(2) for n in range(10)}
    assert endpoint.numa[f"{lab.uuid(0)}::3"] == endpoint.numa[f"{lab.uuid(0)}::7"]
    grant = await lab.kubelet.allocate(GPU, 2)
    assert {device.partition("::")[0] for device in grant.devices} == {lab.uuid(0), lab.uuid(1)}, "not distributed"


async def test_some_gpus_are_shared_and_the_others_stay_whole(lab: Lab) -> None:
    entry = f"{{name: {GPU}, replicas: 4, devices: [0, {2}], rename: {GPU}.part}}"
    await lab.serve(fleet(4), shared(entry), resource=f"{GPU}.part")
    await lab.listed()
    assert set(lab.endpoint().devices) == {lab.uuid(1), lab.uuid(3)}
    assert lab.on(0, f"{GPU}.part") == {f"{lab.uuid(0)}::{n}" for n in range(4)}
    assert resources(lab) == {GPU: 2, f"{GPU}.part": 8}


async def test_a_request_for_two_shares_is_refused_where_that_is_configured(lab: Lab) -> None:
    endpoint = await lab.serve(
        fleet(1), shared(f"{{name: {GPU}, replicas: 3}}", "failRequestsGreaterThanOne: true"), resource=GPU
    )
    with pytest.raises(grpc.aio.AioRpcError, match=r"INVALID_ARGUMENT"):
        await allocate(endpoint, f"{lab.uuid(0)}::0", f"{lab.uuid(0)}::1")
    assert await allocate(endpoint, f"{lab.uuid(0)}::0")


async def test_mixed_mig_gives_each_profile_a_resource_and_whole_gpus_theirs(lab: Lab) -> None:
    await lab.serve(fleet(2, more=CUT), MIXED)
    await lab.until(lambda: resources(lab) == {GPU: 1, "nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-3g.20gb": 1})
    instances = {mig.uuid for mig in lab.report().node.gpus[1].mig_instances}
    assert lab.endpoint("nvidia.com/mig-1g.5gb").devices.keys() < instances
    grant = await lab.kubelet.allocate("nvidia.com/mig-3g.20gb", 1)
    assert grant.response.envs["NVIDIA_VISIBLE_DEVICES"] in instances
    assert lab.report().problems == ()


async def test_single_mig_gives_instances_the_gpus_own_name(lab: Lab) -> None:
    cut = "  migEnabled: [0, 1]\n  mig: {0: [3g.20gb, 3g.20gb], 1: [3g.20gb, 3g.20gb]}\n"
    endpoint = await lab.serve(fleet(2, more=cut), SINGLE)
    assert resources(lab) == {GPU: 4}
    assert set(endpoint.devices) == {mig.uuid for gpu in lab.report().node.gpus for mig in gpu.mig_instances}


async def test_single_mig_on_gpus_cut_differently_advertises_nothing_and_says_why_once(lab: Lab) -> None:
    lab.power_on(fleet(2, more=CUT))
    await lab.kubelet.start()
    await lab.start(SINGLE)
    await lab.until(lambda: bool(lab.reporter.problems))
    await lab.look_again()
    (problem,) = lab.reporter.problems
    assert "migStrategy single" in problem
    assert lab.report().problems == (problem,)
    assert lab.kubelet.endpoints == {}


async def test_without_a_mig_strategy_a_cut_gpu_is_offered_whole_and_that_is_no_problem(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await lab.serve(fleet(2, more=CUT))
    assert resources(lab) == {GPU: 2}
    await lab.look_again()
    assert (lab.reporter.problems, lab.report().problems) == ([], ())
    (line,) = [record for record in caplog.records if "MIG" in str(vars(record).get("note", ""))]
    assert (line.levelname, line.getMessage()) == ("INFO", "note")
    assert "it is offered whole" in vars(line)["note"]
    assert not [record for record in caplog.records if "not advertised" in record.getMessage()]


async def test_every_socket_of_the_agent_is_its_owners_alone(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(1))
    sockets = [lab.state_dir / "agent.sock", lab.kubelet.folder / endpoint.registration.endpoint]
    assert [stat.S_IMODE(path.stat().st_mode) for path in sockets] == [0o600, 0o600]
    await lab.until((lab.state_dir / "checkpoint.json").exists)
    assert stat.S_IMODE((lab.state_dir / "checkpoint.json").stat().st_mode) == 0o600


async def test_stopping_ends_the_streams_and_removes_the_sockets(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(2))
    socket = lab.kubelet.folder / endpoint.registration.endpoint
    assert socket.is_socket()
    await lab.stop()
    await lab.kubelet.wait_for(lambda: not endpoint.healthy)
    assert not socket.exists()
    assert not (lab.state_dir / "agent.sock").exists()


async def test_a_kubelet_that_restarts_gets_everything_again_on_fresh_sockets(lab: Lab) -> None:
    before = (await lab.serve(fleet(2))).registration.endpoint
    await lab.kubelet.restart()
    endpoint = await lab.listed()
    assert endpoint.registration.endpoint != before
    assert len(endpoint.healthy) == 2
    await lab.kubelet.allocate(GPU, 2)


async def test_a_removed_socket_is_made_anew(lab: Lab) -> None:
    before = (await lab.serve(fleet(1))).registration.endpoint
    (lab.kubelet.folder / before).unlink()
    await lab.until(lambda: lab.endpoint().registration.endpoint != before)
    await lab.until(lambda: len(lab.endpoint().healthy) == 1)


async def test_cdi_specs_are_there_before_the_kubelet_can_ask(lab: Lab) -> None:
    registered: list[list[Path]] = []
    lab.power_on(fleet(2))
    await lab.kubelet.start()
    agent = await lab.start(EAGER + "flags: {plugin: {deviceListStrategy: [cdi-cri]}}\n")
    apply = agent.manager.apply

    def watched(views: object) -> None:
        registered.append(sorted((lab.folder / "cdi").glob("*")) if agent.node_state.views() else [])
        apply(views)  # type: ignore[arg-type] # handed through as it came

    agent.manager.apply = watched  # type: ignore[method-assign] # to look at the moment itself
    await lab.listed()
    first = next(files for files in registered if files)
    assert first, "views were applied without CDI files"
    grant = await lab.kubelet.allocate(GPU, 1)
    (name,) = [device.name for device in grant.response.cdi_devices]
    kind, _, device = name.partition("=")
    written = "".join(path.read_text() for path in first)
    assert kind in written
    assert device in written
