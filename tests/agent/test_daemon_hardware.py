"""Hardware that comes, goes, hangs and changes under the agent: lists follow, calls are answered."""

import asyncio
import json
import logging
import time
from collections.abc import Sequence

import pynvml
import pytest

from agent.daemon import Restart
from agent.hardware import driver as session
from agent.hardware import monitor
from agent.hardware.worker import GpuWorker
from agent.health.states import FaultKind, HealthState
from agent.persistence import statefiles
from deviceplugin.testing import Endpoint
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from tests.simulator.test_mig import create, destroy
from tests.support.agent.node import EAGER, GPU, Lab, fleet
from tests.support.hang import HANG_S

MIXED = EAGER + "flags: {migStrategy: mixed}\n"
HASTY = EAGER.replace("probeTimeoutSeconds: 1", "probeTimeoutSeconds: 0.4")
CUT = "  migEnabled: [0]\n  mig: {0: [3g.20gb]}\n"
SLICE, SMALL = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb"
HUNG_S = 3600
"""A call of a hung GPU takes longer than any test waits: what waited for it would never pass."""


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if message in record.getMessage()]


def metric(lab: Lab, name: str) -> float:
    value = lab.agent.metrics.registry.get_sample_value(name)
    assert value is not None
    return value


async def preferred(endpoint: Endpoint, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
    one = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
    )
    answer = await endpoint.stub.GetPreferredAllocation(
        pb.PreferredAllocationRequest(container_requests=[one]), timeout=HANG_S
    )
    return list(answer.container_responses[0].deviceIDs)


async def allocate(endpoint: Endpoint, *devices: str) -> None:
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=devices)])
    await endpoint.stub.Allocate(request, timeout=HANG_S)


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When NVML was opened."""
    at_s: list[float] = []
    init = pynvml.nvmlInit

    def noted() -> None:
        at_s.append(time.monotonic())
        init()

    monkeypatch.setattr(pynvml, "nvmlInit", noted)
    return at_s


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that waits for a hung GPU, beyond its probes, waits for long."""
    monkeypatch.setattr(GpuWorker.call, "__defaults__", (10 * HANG_S,))


# Hanging


@pytest.mark.usefixtures("patient")
async def test_a_hung_gpu_delays_no_call_for_another(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(4), HASTY)
    lab.sim(gpu=0, slow={"call": "*", "seconds": HUNG_S})
    asked = 0
    async with asyncio.timeout(HANG_S):
        while asked < 10 or lab.down() != {lab.uuid(0)}:
            for devices in ([lab.uuid(1)], [lab.uuid(2), lab.uuid(3)]):
                assert await preferred(endpoint, [*devices, lab.uuid(0)], devices, len(devices)) == devices
                await allocate(endpoint, *devices)
                asked += 1
    await lab.kubelet.allocate(GPU, 3)
    assert endpoint.healthy == {lab.uuid(i) for i in (1, 2, 3)}
    assert {lab.state(i) for i in (1, 2, 3)} == {HealthState.HEALTHY}


async def test_a_gpu_that_answers_after_a_hang_returns_by_probation(lab: Lab) -> None:
    await lab.serve(fleet(2), HASTY)
    lab.sim(gpu=0, slow={"call": "nvmlDeviceGetMemoryInfo", "seconds": 1.2})
    await lab.until(lambda: lab.down() == {lab.uuid(0)})
    lab.sim(gpu=0, slow={"call": "nvmlDeviceGetMemoryInfo", "seconds": 0})
    await lab.restored(0)
    states = [change.new for change in lab.reporter.transitions]
    assert states == [HealthState.SUSPECT, HealthState.UNHEALTHY, HealthState.PROBATION, HealthState.HEALTHY]


@pytest.mark.usefixtures("patient")
async def test_another_gpus_fault_is_heard_while_one_hangs(lab: Lab) -> None:
    await lab.serve(fleet(3), HASTY)
    lab.sim(gpu=0, slow={"call": "*", "seconds": HUNG_S})
    await lab.until(lambda: lab.down() == {lab.uuid(0)})
    lab.sim(gpu=2, xid=79)
    await lab.until(lambda: lab.down() == {lab.uuid(0), lab.uuid(2)})


@pytest.mark.usefixtures("patient")
async def test_others_are_probed_while_a_discovery_waits_for_a_hung_gpu(lab: Lab) -> None:
    await lab.serve(fleet(3), HASTY)
    lab.sim(gpu=0, slow={"call": "*", "seconds": HUNG_S})
    await lab.until(lambda: lab.down() == {lab.uuid(0)})
    lab.agent.monitor.rescan()
    await lab.until(lambda: not lab.agent.monitor._rescan.is_set())
    lab.sim(gpu=2, lost=True)
    await lab.until(lambda: lab.state(2) is HealthState.UNHEALTHY)


# Coming and going


async def test_a_removed_gpu_is_unlisted_and_listed_again_once_it_is_back(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(3))
    socket = endpoint.registration.endpoint
    lab.sim(gpu=1, remove=True)
    await lab.until(lambda: set(endpoint.devices) == {lab.uuid(0), lab.uuid(2)})
    assert endpoint.healthy == set(endpoint.devices)
    lab.sim(gpu=1, add=True)
    await lab.until(lambda: endpoint.healthy == {lab.uuid(i) for i in range(3)})
    assert lab.endpoint().registration.endpoint == socket
    assert lab.kubelet.registrations == [GPU]
    (back,) = [change for change in lab.reporter.transitions if change.new is HealthState.PROBATION]
    assert (back.gpu, back.reason) == (lab.uuid(1), "GpuBack")


async def test_a_gpu_whose_index_moves_when_another_goes_stays_healthy(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(3))
    lab.sim(slow={"call": "nvmlDeviceGetHandleByIndex_v2", "seconds": 0.2})  # a discovery with time for probes in it
    lab.sim(gpu=0, remove=True)
    await lab.until(lambda: set(endpoint.devices) == {lab.uuid(1), lab.uuid(2)})
    lab.sim(gpu=0, add=True)
    await lab.until(lambda: endpoint.healthy == {lab.uuid(i) for i in range(3)})
    assert {change.gpu for change in lab.reporter.transitions} == {lab.uuid(0)}


async def test_the_last_gpu_may_go_and_come(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(1))
    lab.sim(gpu=0, remove=True)
    await lab.until(lambda: not endpoint.healthy)
    await lab.until(lambda: lab.agent.manager.status() == ())
    lab.sim(gpu=0, add=True)
    await lab.until(lambda: lab.endpoint().healthy == {lab.uuid(0)})


async def test_mig_instances_that_appear_and_vanish_change_the_lists_without_a_restart(lab: Lab) -> None:
    await lab.serve(fleet(2, more=CUT), MIXED, resource=SLICE)
    await lab.listed()
    sockets = {name: endpoint.registration.endpoint for name, endpoint in lab.kubelet.endpoints.items()}
    board = pynvml.nvmlDeviceGetHandleByIndex(0)
    new = create(board, "3g.20gb")
    await lab.until(lambda: len(lab.endpoint(SLICE).healthy) == 2)
    destroy(new)
    await lab.until(lambda: len(lab.endpoint(SLICE).healthy) == 1)
    create(board, "1g.5gb")
    await lab.listed(SMALL)
    assert len(lab.endpoint(SLICE).healthy) == 1
    now = {name: endpoint.registration.endpoint for name, endpoint in lab.kubelet.endpoints.items()}
    assert {name: now[name] for name in sockets} == sockets


async def test_a_profile_that_is_gone_leaves_the_kubelet_nothing_of_it(lab: Lab) -> None:
    await lab.serve(fleet(2, more=CUT), MIXED, resource=SLICE)
    endpoint = lab.endpoint(SLICE)
    board = pynvml.nvmlDeviceGetHandleByIndex(0)
    destroy(pynvml.nvmlDeviceGetGpuInstanceById(board, lab.report().node.gpus[0].mig_instances[0].gi_id))
    await lab.until(lambda: [status.resource for status in lab.agent.manager.status()] == [GPU])
    await lab.until(lambda: not endpoint.healthy)
    assert "no instance" in lab.report().problems[0]


# The driver


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that hangs is given up soon."""
    monkeypatch.setattr(GpuWorker.call, "__defaults__", (0.3,))
    monkeypatch.setattr(session, "OPEN_TIMEOUT_S", 0.3)
    monkeypatch.setattr(session, "CLOSE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(monitor, "RESCAN_S", 0.1)


@pytest.mark.usefixtures("brief")
async def test_a_driver_that_hangs_as_a_whole_takes_out_every_gpu(lab: Lab) -> None:
    # The count of GPUs times out before enough probes have.
    await lab.serve(fleet(2), HASTY)
    lab.sim(slow={"call": "*", "seconds": HUNG_S})
    await lab.until(lambda: metric(lab, "tessera_agent_driver_up") == 0)
    await lab.until(lambda: lab.down() == {lab.uuid(0), lab.uuid(1)})


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("call", ["nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"])
async def test_a_driver_that_hangs_at_the_start_takes_out_what_the_checkpoint_knows(lab: Lab, call: str) -> None:
    await lab.serve(fleet(2))
    await lab.stop()
    lab.sim(slow={"call": call, "seconds": 2})
    await lab.start()
    await lab.until(lambda: lab.kubelet.registrations == [GPU, GPU])
    await lab.until(lambda: lab.down() == {lab.uuid(0), lab.uuid(1)})
    assert {fault.kind for one in lab.report().faults for fault in one.faults} == {FaultKind.UNREADABLE}
    lab.sim(slow={"call": call, "seconds": 0})
    await lab.restored(0)


async def test_without_a_driver_what_is_known_is_served_and_it_is_said_once(
    lab: Lab, caplog: pytest.LogCaptureFixture, openings: list[float]
) -> None:
    endpoint = await lab.serve(fleet(2))
    lab.sim(driver="down")
    await lab.until(lambda: metric(lab, "tessera_agent_driver_up") == 0)
    assert not lab.report().driver_up
    await lab.until(lambda: len(openings) > 3, "it does not look for the driver again")
    assert len(lines(caplog, "no driver")) == 1
    assert endpoint.healthy == {lab.uuid(0), lab.uuid(1)}
    await lab.kubelet.allocate(GPU, 2)


async def test_a_driver_that_comes_back_is_taken_up_again(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(3))
    lab.sim(driver="down")
    await lab.until(lambda: metric(lab, "tessera_agent_driver_up") == 0)
    lab.sim(gpu=2, remove=True)
    lab.sim(driver="up")
    await lab.until(lambda: metric(lab, "tessera_agent_driver_up") == 1)
    await lab.until(lambda: set(endpoint.devices) == {lab.uuid(0), lab.uuid(1)})
    lab.sim(gpu=1, xid=79)
    await lab.until(lambda: lab.down() == {lab.uuid(1)}, "XIDs are not heard in the new session")
    assert lab.kubelet.registrations == [GPU]


async def test_another_driver_version_ends_the_process_for_a_new_start(lab: Lab) -> None:
    await lab.serve(fleet(2))
    lab.sim(driver="down")
    await lab.until(lambda: metric(lab, "tessera_agent_driver_up") == 0)
    lab.sim(driver="up", version="999.1.2")
    assert isinstance(await lab.ended(), Restart)


def forget_energy(lab: Lab) -> None:
    """Then only the driver's version tells that it was loaded anew."""
    path = lab.state_dir / statefiles.CHECKPOINT
    content = json.loads(path.read_text())
    assert content.pop("energy_mj")
    path.write_text(json.dumps(content))


async def test_faults_that_another_driver_has_cleared_are_gone_after_the_new_start(lab: Lab) -> None:
    await lab.serve(fleet(2))
    lab.sim(gpu=0, xid=48)
    lab.sim(gpu=1, remapFailure=True)
    await lab.until(lambda: lab.down() == {lab.uuid(0), lab.uuid(1)})
    await lab.stop()
    lab.sim(driver="down")
    lab.sim(driver="up", version="999.1.2")
    forget_energy(lab)
    await lab.start()
    await lab.restored(0)
    await lab.until(lambda: lab.endpoint().healthy == {lab.uuid(0)})
    assert lab.state(1) is HealthState.UNHEALTHY, "a board to be replaced is not mended by a driver"


# Nothing there yet


@pytest.mark.parametrize("absent", ["driver", "gpus"])
async def test_with_nothing_to_serve_the_agent_idles_is_ready_and_picks_it_up(
    lab: Lab, absent: str, caplog: pytest.LogCaptureFixture, openings: list[float]
) -> None:
    caplog.set_level(logging.INFO)
    lab.power_on(fleet(1))
    lab.sim(driver="down") if absent == "driver" else lab.sim(gpu=0, remove=True)
    await lab.kubelet.start()
    agent = await lab.start()
    await lab.until(lambda: agent._unready() is None)
    said = "no driver" if absent == "driver" else "lists no GPU"

    def looked() -> int:
        agent.monitor.rescan()
        return len(openings) if absent == "driver" else lab.discoveries

    await lab.until(lambda: looked() > 3, "it does not look again")
    assert len(lines(caplog, said)) == 1
    assert lab.kubelet.registrations == []
    lab.sim(driver="up") if absent == "driver" else lab.sim(gpu=0, add=True)
    endpoint = await lab.listed()
    assert endpoint.healthy == {lab.uuid(0)}


async def test_an_agent_that_has_not_looked_yet_is_not_ready(lab: Lab) -> None:
    lab.power_on(fleet(2))
    lab.sim(slow={"call": "nvmlDeviceGetCount", "seconds": 0.4})
    await lab.kubelet.start()
    agent = await lab.start()
    await lab.until(lambda: agent.endpoints.port > 0)
    reason = agent._unready()
    assert reason is not None
    assert "NVML" in reason
    await lab.listed()
    assert agent._unready() is None


# Letting go of NVML


async def test_released_nvml_is_closed_for_the_time_while_the_kubelet_is_served(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(2))
    assert pynvml._nvmlLib_refcount == 1
    lab.agent.monitor.release(2.0)
    await lab.until(lambda: pynvml._nvmlLib_refcount == 0, "the session was not closed")
    start_s = time.monotonic()
    await lab.until(lambda: not lab.report().driver_up)
    assert metric(lab, "tessera_agent_driver_up") == 0
    await lab.kubelet.allocate(GPU, 2)
    assert endpoint.healthy == {lab.uuid(0), lab.uuid(1)}
    await lab.until(lambda: lab.report().driver_up)
    assert time.monotonic() - start_s > 1.0
    lab.sim(gpu=0, xid=79)
    await lab.until(lambda: lab.down() == {lab.uuid(0)})


async def test_a_reset_while_nvml_is_released_is_noticed(lab: Lab) -> None:
    lab.power_on(fleet(1))
    lab.sim(gpu=0, load={"powerW": 400, "smUtil": 1.0})
    await lab.kubelet.start()
    await lab.start()
    await lab.listed()
    lab.sim(gpu=0, xid=95)
    await lab.until(lambda: lab.state(0) is HealthState.UNHEALTHY)
    await asyncio.sleep(0.25)  # for the energy counter, which runs in real time
    lab.agent.monitor.release(1.5)
    await lab.until(lambda: not lab.report().driver_up)
    lab.sim(gpu=0, reset=True)
    lab.sim(gpu=0, load={})
    await lab.restored(0)
    assert "ResetObserved" in [change.reason for change in lab.reporter.transitions]


async def test_a_second_release_prolongs_the_first(lab: Lab, openings: list[float]) -> None:
    await lab.serve(fleet(1))
    lab.agent.monitor.release(1.0)
    await lab.until(lambda: pynvml._nvmlLib_refcount == 0)
    asked_s = time.monotonic()
    lab.agent.monitor.release(1.5)
    lab.agent.monitor.release(0.05)  # and one that ends earlier shortens nothing
    await lab.until(lambda: lab.report().driver_up)
    first, second = openings
    assert first < asked_s
    assert second - asked_s > 1.49


# Lost at the start


async def test_a_gpu_lost_at_the_start_keeps_its_place_and_the_others_are_served(lab: Lab) -> None:
    await lab.serve(fleet(3))
    await lab.stop()
    lab.sim(gpu=1, lost=True)
    await lab.start()
    await lab.until(lambda: lab.state(1) is HealthState.UNHEALTHY)
    await lab.until(lambda: GPU in lab.kubelet.endpoints and lab.down() == {lab.uuid(1)})
    endpoint = await lab.listed()
    assert list(endpoint.devices) == [lab.uuid(i) for i in range(3)]
    assert endpoint.healthy == {lab.uuid(0), lab.uuid(2)}
    await lab.kubelet.allocate(GPU, 2)
    assert any("GPU 1" in problem for problem in lab.report().problems)
    lab.sim(gpu=1, reset=True)
    await lab.restored(1)
    await lab.until(lambda: len(lab.endpoint().healthy) == 3)
    assert lab.report().problems == ()


async def test_a_gpu_lost_before_anybody_ever_saw_it_comes_once_it_can_be_read(lab: Lab) -> None:
    lab.power_on(fleet(3))
    lab.sim(gpu=1, lost=True)
    await lab.kubelet.start()
    await lab.start()
    endpoint = await lab.listed()
    assert set(endpoint.devices) == {lab.uuid(0), lab.uuid(2)}
    lab.sim(gpu=1, reset=True)
    await lab.until(lambda: endpoint.healthy == {lab.uuid(i) for i in range(3)})


async def test_a_gpu_that_hung_at_the_start_has_not_thereby_been_reset(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fault of which the driver keeps no trace: only what NVML shows of a reset can end it.
    config = HASTY.replace("health: {", "health: {xids: {13: {class: reset}}, ")
    await lab.serve(fleet(2), config)
    lab.sim(gpu=0, xid=13)
    await lab.until(lambda: lab.down() == {lab.uuid(0)})
    await lab.stop()
    lab.sim(gpu=0, slow={"call": "*", "seconds": 1.5})
    monkeypatch.setattr(GpuWorker.call, "__defaults__", (0.5,))
    await lab.start(config)
    await lab.until(lambda: bool(lab.report().problems))
    lab.sim(gpu=0, slow={"call": "*", "seconds": 0})
    await lab.until(lambda: lab.report().problems == () and lab.report().node.gpus[0].readable)
    lab.sim(gpu=1, xid=79)
    lab.sim(gpu=1, reset=True)
    await lab.restored(1)
    assert lab.state(0) is HealthState.UNHEALTHY
