"""GPUs that fail under running pods, live: each pod's policy is carried out, and people are told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from controller.cluster.config.settings import GpuFailureRules, OnGpuFailure
from controller.cluster.watching.kinds import GPU_NODES, NODES, PODS
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.workloadwrites import WorkloadWrites
from controller.reconcile.failures import gpufailures
from controller.reconcile.failures.gpufailurerecord_shell import NAME, GpuFailureRecord
from controller.reconcile.failures.gpufailures import GpuFailureAction, Victim
from controller.reconcile.failures.gpufailures_shell import GpuFailureController
from controller.reconcile.failures.holders_shell import Foretelling
from inventory.api.names import GPU_FAILURE_ACTIONS
from kube.client import Client
from kube.errors import KubeError, NotFoundError, UnavailableError
from kube.resources import EVENTS, LEASES
from kube.testing import eventually
from kube.testing.clocks import VirtualClock
from kube.writing.writes import Abandoned, Outcome, Refused, Write
from tests.controller.cluster.process.test_gpunodes import gpu_node, gpu_workload, node, on_hosts
from tests.controller.reconcile.failures.test_nodefailures_shell import JOBS
from tests.support.controller.stage import CONFIG, Stage, config, stage
from tests.support.controller.told import page

ON_FAILURE = "tessera.dev/on-gpu-failure"


def holder(pod: str, gpu: int) -> dict[str, str]:
    return {"device": f"GPU-n1-{gpu}", "namespace": "team", "pod": pod, "container": "main"}


def pod(scene: Stage, name: str, policy: str = "", *, plan: str = "") -> None:
    annotations = {"kueue.x-k8s.io/workload": "gang"}
    annotations |= {ON_FAILURE: policy} if policy else {}
    annotations |= {"tessera.dev/devices": plan} if plan else {}
    metadata = {"annotations": annotations, "labels": {"kueue.x-k8s.io/podset": "main"}}
    spec = {"nodeName": "n1", "nodeSelector": {"kubernetes.io/hostname": "n1"}, "containers": [{"name": "main"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
    scene.server.create(PODS, name, body, namespace="team")


def fail(scene: Stage, gpu: int = 0) -> None:
    states = ["Unhealthy" if i == gpu else "Healthy" for i in range(2)]
    status = gpu_node("n1", *states)["status"]
    scene.server.merge(GPU_NODES, "n1", {"status": {"devices": status["devices"]}})


def said(scene: Stage, reason: str) -> list[str]:
    return [one["note"] for one in scene.server.list_all(EVENTS) if one["reason"] == reason]


def exists(scene: Stage, name: str) -> bool:
    try:
        scene.server.get(PODS, name, namespace="team")
    except NotFoundError:
        return False
    return True


@asynccontextmanager
async def running(policy: str, given: Any = JOBS) -> AsyncIterator[Stage]:
    """A workload of one pod, which holds GPU 0 of node n1."""
    async with stage() as scene:
        scene.queue()
        on_hosts(scene)
        scene.server.create(NODES, "n1", node("n1", 2))
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Healthy", "Healthy", holders=[holder("p", 0)]))
        async with scene.controller(given, core_only=False):
            gpu_workload(scene, "gang", 1)
            await scene.until_admitted("gang")
            pod(scene, "p", policy)
            yield scene


@pytest.mark.parametrize("policy", ["", "notify"])
async def test_people_are_told_and_the_pod_is_left_to_itself(policy: str) -> None:
    async with running(policy) as scene:
        fail(scene)
        await eventually(lambda: len(said(scene, "GpuFailed")) == 1)
        (note,) = said(scene, "GpuFailed")
        assert note == "GPU GPU-n1-0 of node n1 has failed (Xid79); the pod keeps running"
        assert exists(scene, "p")
        assert scene.admitted("gang")


async def test_the_pod_is_evicted() -> None:
    async with running("evict") as scene:
        fail(scene)
        await eventually(lambda: not exists(scene, "p"))
        await eventually(lambda: any("the pod is evicted" in note for note in said(scene, "GpuFailed")))
        assert scene.admitted("gang")


async def test_the_gang_goes_back_to_its_queue() -> None:
    async with running("requeue-gang") as scene:
        fail(scene)
        await eventually(lambda: scene.condition("gang", "Evicted") == "True/NodeFailures")
        await eventually(lambda: any("is requeued" in note for note in said(scene, "GpuFailed")))


async def test_what_the_budget_holds_back_is_told() -> None:
    none = config(CONFIG.replace("tessera:\n", "tessera:\n  gpuFailures: {budget: 0}\n"))
    async with running("evict", none) as scene:
        fail(scene)
        await eventually(lambda: any("budget of 0" in note for note in said(scene, "GpuFailed")))
        assert exists(scene, "p")


async def test_whoever_takes_over_finds_what_was_done_before() -> None:
    one = config(CONFIG.replace("tessera:\n", "tessera:\n  gpuFailures: {budget: 1}\n"))
    async with stage() as scene:
        scene.queue()
        on_hosts(scene)
        scene.server.create(NODES, "n1", node("n1", 2))
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Unhealthy", "Healthy", holders=[holder("p", 0)]))
        pod(scene, "p", "evict")
        async with scene.controller(one, core_only=False):
            await eventually(lambda: not exists(scene, "p"))
        (kept,) = [lease for lease in scene.server.list_all(LEASES) if lease["metadata"]["name"] == NAME]
        assert json.loads(kept["metadata"]["annotations"][GPU_FAILURE_ACTIONS])["paid"].keys() == {"pod team/p"}
        pod(scene, "q", "evict")
        scene.server.merge(GPU_NODES, "n1", {"status": {"holders": [holder("q", 0)]}})
        async with scene.controller(one, core_only=False, name="two"):
            await eventually(lambda: any(one["regarding"]["name"] == "q" for one in scene.server.list_all(EVENTS)))
        (note,) = [one["note"] for one in scene.server.list_all(EVENTS) if one["regarding"]["name"] == "q"]
        assert "evict is held back: the budget of 1" in note
        assert exists(scene, "q")


@pytest.mark.parametrize("kept", ["no json", '{"actions": "many"}'])
async def test_a_record_that_nobody_can_read_keeps_nobody_from_acting(kept: str) -> None:
    async with stage() as scene:
        body = {"metadata": {"annotations": {GPU_FAILURE_ACTIONS: kept}}}
        scene.server.create(LEASES, NAME, body, namespace="tessera-system")
        scene.queue()
        on_hosts(scene)
        scene.server.create(NODES, "n1", node("n1", 2))
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Unhealthy", "Healthy", holders=[holder("p", 0)]))
        pod(scene, "p", "evict")
        async with scene.controller(JOBS, core_only=False):
            await eventually(lambda: not exists(scene, "p"))


class Evicting:
    """A client that evicts every pod."""

    def __init__(self) -> None:
        self.evicted: list[str] = []

    async def create(
        self, _resource: Any, body: Any, _type: Any, *, name: str, namespace: str, subresource: str
    ) -> None:
        assert (name, subresource) == (body["metadata"]["name"], "eviction")
        assert body["deleteOptions"]["preconditions"] == {"uid": f"{namespace}/{body['metadata']['name']}"}
        self.evicted.append(body["metadata"]["name"])


async def test_a_disruption_budget_is_asked_again_and_never_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpufailures, "REFUSED_AGAIN_S", 0.1)
    monkeypatch.setattr(gpufailures, "REFUSED_S", 0.0)
    async with running("evict") as scene:
        busy = UnavailableError("Cannot evict pod as it would violate the pod's disruption budget.", status=429)
        scene.server.refuse = lambda method, path: busy if method == "POST" and path.endswith("/eviction") else None
        fail(scene)
        await eventually(lambda: len(scene.server.seen("POST", "/eviction")) > 2)
        assert exists(scene, "p")

        def told() -> list[str]:
            return [note for note in said(scene, "GpuFailed") if "its eviction is refused for 10m" in note]

        await eventually(lambda: len(told()) == 1)
        scene.workload("other")
        await scene.until_admitted("other")
        scene.server.refuse = lambda _method, _path: None
        await eventually(lambda: not exists(scene, "p"), what="evicted in the end")
        await eventually(lambda: any("the pod is evicted" in note for note in said(scene, "GpuFailed")))
        assert len(told()) == 1, "it is told once"


@pytest.mark.parametrize("outcome", [Abandoned("not the leader any more"), Refused(KubeError("no"))])
async def test_nothing_that_counts_is_done_before_its_record_is_written_by_who_leads(outcome: Outcome[Any]) -> None:
    """A controller that may not write it goes on without; one that leads no more leaves it to the next leader."""
    written, counted, told = list[Write[Any]](), list[str](), list[str]()

    def put(write: Write[Any]) -> "asyncio.Future[Outcome[Any]]":
        written.append(write)
        future: asyncio.Future[Outcome[Any]] = asyncio.get_running_loop().create_future()
        future.set_result(outcome)
        return future

    client, ledger = Evicting(), Ledger()
    failed = GpuFailureController(
        GpuFailureRules(policy=OnGpuFailure.EVICT),
        cast("Client", client),
        ledger,
        cast("WorkloadWrites", None),
        GpuFailureRecord(cast("Client", client), put, "tessera-system"),
        clock=VirtualClock(),
        may_write=lambda: True,
        count=counted.append,
        tell=lambda _about, _type, _reason, note: told.append(note),
        foretelling=cast("Foretelling", None),
    )
    evict, notify = (
        GpuFailureAction(
            kind=kind, pod=pod, victim=Victim(uid=pod, policy=kind), node="n1", device="GPU-n1-0", cause="Xid79"
        )
        for kind, pod in ((OnGpuFailure.EVICT, "team/p"), (OnGpuFailure.NOTIFY, "team/q"))
    )
    await failed._act([evict, notify])
    gone = "GPU GPU-n1-0 of node n1 has failed (Xid79)"
    leads = isinstance(outcome, Refused)
    assert told == [f"{gone}; the pod keeps running", *((f"{gone}; the pod is evicted",) if leads else ())]
    assert [one.resource for one in written] == [LEASES]
    assert client.evicted == (["p"] if leads else [])
    assert counted == ["notify", *(("evict",) if leads else ())]


async def test_the_sites_policy_holds_for_pods_that_do_not_say() -> None:
    evict = config(CONFIG.replace("tessera:\n", "tessera:\n  gpuFailures: {policy: evict}\n"))
    async with running("", evict) as scene:
        fail(scene)
        await eventually(lambda: not exists(scene, "p"))


async def test_a_policy_that_nobody_knows_is_told_and_counts_as_the_sites() -> None:
    async with running("explode") as scene:
        fail(scene)
        await eventually(lambda: len(said(scene, "GpuFailed")) == 1)
        (note,) = said(scene, "InvalidGpuFailurePolicy")
        assert note == f"{ON_FAILURE}: found 'explode', expected notify, evict, requeue-gang; policy notify applies"


async def test_a_gpu_that_nobody_holds_fails_in_silence() -> None:
    async with running("evict") as scene:
        fail(scene, 1)
        gpu_workload(scene, "two", 1)
        await eventually(lambda: scene.condition("two", "QuotaReserved") != "")
        assert exists(scene, "p")
        assert not said(scene, "GpuFailed")


async def test_a_pod_that_got_others_than_planned_is_told_of_once_and_counted() -> None:
    async with running("") as scene:
        pod(scene, "q", plan="GPU-n1-1")
        status = {"holders": [holder("p", 1), holder("q", 0)]}
        scene.server.merge(GPU_NODES, "n1", {"status": status})
        await eventually(lambda: said(scene, "GpuPlanDrift") == ["Planned GPU-n1-1, got GPU-n1-0 on node n1"])
        assert scene.process is not None
        counted = [line for line in page(scene.process).splitlines() if "device_plans_total{" in line]
        assert len(counted) == 1, counted
        assert 'result="drifted"' in counted[0]
        assert counted[0].endswith(" 1.0")


async def test_percents_that_drifted_are_told_in_few_words() -> None:
    async with running("") as scene:
        pod(scene, "q", plan="GPU-n1-1*60")
        held = [{**holder("q", 0), "device": f"GPU-n1-0::{n}"} for n in range(60)]
        scene.server.merge(GPU_NODES, "n1", {"status": {"holders": held}})
        await eventually(lambda: said(scene, "GpuPlanDrift") == ["Planned GPU-n1-1*60, got GPU-n1-0*60 on node n1"])
