"""The API server goes away and comes back, tells its news late, and grants an agent no more than the chart asks for."""

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest

from hack.chaos.proxy import Mode, Proxy
from hack.cluster.controlplane.pki import Pki
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from kubeletapi import deviceplugin_v1beta1_pb2_grpc as pb_grpc
from tests.support.e2e.agentrights import chart_token
from tests.support.e2e.cut import Cut
from tests.support.e2e.lab import EXAMPLES, FAST, GPU, WAIT_S, Agent, Lab, Pod, until

pytestmark = pytest.mark.e2e

LATE_S = 0.6
PLAN = "tessera.dev/devices"


def test_an_outage_of_the_api_server_is_survived_and_the_latest_state_arrives(lab: Lab, tmp_path: Path) -> None:
    address = urlsplit(lab.cluster.server)
    assert address.hostname is not None
    assert address.port is not None
    with Cut((address.hostname, address.port)) as api:
        config = lab.kubeconfig(tmp_path / "kubeconfig", server=f"https://127.0.0.1:{api.port}")
        fleet = EXAMPLES / "fleets/pairs.yaml"
        with lab.agent(fleet, f"health: {FAST}", api=False, kubeconfig=str(config)) as agent:
            product = agent.report().node.gpus[0].product
            # An earlier agent's GpuNode may be there.
            until(lambda: [one["product"] for one in lab.gpunode().get("devices", [])] == [product] * 4, "the GpuNode")
            until(lambda: lab.device_state(2) == "Healthy", "all is well")
            until(lambda: lab.labels().get("nvidia.com/gpu.product") == "NVIDIA-RTX-A6000", "its labels")
            api.cut()
            agent.sim(gpu=1, xid=79)
            agent.sim(gpu=2, xid=119)
            lab.await_amounts({GPU: 2})
            # Pods get GPUs all the while: the kubelet asks the agent, not the API server.
            assert lab.run("meanwhile", {GPU: 2}).visible
            agent.sim(gpu=1, reset=True)
            lab.await_amounts({GPU: 3})
            assert lab.device_state(2) == "Healthy"
            api.mend()
            latest = ["Healthy", "Unhealthy"]
            until(lambda: [lab.device_state(gpu) for gpu in (1, 2)] == latest, "the latest state")
            uuid = agent.report().node.gpus[2].uuid
            until(lambda: any(uuid in one.get("note", "") for one in lab.events()), "the Event of the outage")


def test_an_agent_that_starts_during_an_outage_serves_its_kubelet(lab: Lab, tmp_path: Path) -> None:
    with Cut(("127.0.0.1", 9)) as nowhere:
        nowhere.cut()
        config = lab.kubeconfig(tmp_path / "kubeconfig", server=f"https://127.0.0.1:{nowhere.port}")
        with lab.agent(EXAMPLES / "fleets/pairs.yaml", None, api=False, kubeconfig=str(config)) as agent:
            lab.await_amounts({GPU: 4})
            until(lambda: agent.get("/readyz")[0] == 200, "it is ready")


@pytest.fixture
def late(lab: Lab, tmp_path: Path) -> Iterator[Agent]:
    """An agent that hears of each pod ``LATE_S`` after the kubelet, and has heard from its watch of pods before."""
    address = urlsplit(lab.cluster.server)
    assert address.hostname is not None
    assert address.port is not None
    with Proxy((address.hostname, address.port), Pki(lab.cluster.paths.pki)) as api:
        api.set(Mode(lag_s=LATE_S))
        config = lab.kubeconfig(tmp_path / "kubeconfig", server=f"https://127.0.0.1:{api.port}")
        with lab.agent(EXAMPLES / "fleets/dgx1.yaml", None, api=False, kubeconfig=str(config)) as agent:
            lab.await_amounts({GPU: 8})
            lab.run("first", {GPU: 1})
            lab.delete_pods()
            agent.until(lambda report: not report.holders, "the watch has told that the first pod is gone")
            yield agent


def test_the_kubelet_names_a_pod_whose_news_is_late_and_it_gets_its_planned_devices(lab: Lab, late: Agent) -> None:
    uuids = [gpu.uuid for gpu in late.report().node.gpus]
    for turn, planned in enumerate(([5], [2, 7], [0, 1, 6])):
        body = lab.pod_body(f"planned-{turn}", {GPU: len(planned)})
        body["metadata"]["annotations"] = {PLAN: ",".join(uuids[gpu] for gpu in planned)}
        lab.cluster.kubectl("create", "-f", "-", input=json.dumps(body))
        pod = Pod(lab, f"planned-{turn}")
        pod.await_ready()
        assert set(pod.visible) == {uuids[gpu] for gpu in planned}


def test_a_request_waits_for_nothing_where_the_kubelet_has_no_pod_that_is_not_known(lab: Lab, late: Agent) -> None:
    lab.run("known", {GPU: 1})
    late.until(lambda report: bool(report.holders), "its holder is known")
    every = [gpu.uuid for gpu in late.report().node.gpus]
    free = [uuid for uuid in every if uuid not in lab.given()["known"][GPU]]
    asked = pb.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=4)
    took_s = []
    with grpc.insecure_channel(f"unix:{late.sockets()[GPU]}") as channel:
        stub = pb_grpc.DevicePluginStub(channel)
        for _ in range(30):
            began_s = time.monotonic()
            answer = stub.GetPreferredAllocation(
                pb.PreferredAllocationRequest(container_requests=[asked]), timeout=WAIT_S
            )
            took_s.append(time.monotonic() - began_s)
            assert len(set(answer.container_responses[0].deviceIDs) & set(free)) == 4
    # It would wait for a tenth of a second each time, and twenty times that at first.
    assert statistics.median(took_s) < LATE_S / 10


@pytest.fixture
def token(lab: Lab, tmp_path: Path) -> Iterator[str]:
    """Of the chart's service account, as the kubelet would give it to a pod on the node."""
    with chart_token(lab, tmp_path) as token:
        yield token


def test_the_chart_s_rights_are_enough_for_everything_it_tells(lab: Lab, tmp_path: Path, token: str) -> None:
    config = lab.kubeconfig(tmp_path / "kubeconfig", token=token)
    with lab.agent(EXAMPLES / "fleets/dgx1.yaml", f"health: {FAST}", api=False, kubeconfig=str(config)) as agent:
        until(lambda: lab.labels().get("nvidia.com/gpu.product") == "Tesla-V100-SXM2-16GB", "labels")
        until(lambda: len(lab.gpunode().get("devices", [])) == 8, "the GpuNode")
        agent.sim(gpu=6, xid=62)
        uuid = agent.report().node.gpus[6].uuid
        until(lambda: lab.device_state(6) == "Unhealthy", "its health")
        until(lambda: any(uuid in one.get("note", "") for one in lab.events()), "an Event")
        assert "orbidden" not in agent.log()
