"""CapacityRequests on a real control plane, with the chart's CRD, policies and rights: what a program asks for, is
answered, uses and gives back. Nodes and pods are played by kwok.
"""

import asyncio
import importlib.util
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from controller.cluster.watching.kinds import CAPACITY_REQUESTS, CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until as wait_until
from tests.support.e2e.charttext import rendered
from tests.support.e2e.kubernetes import POLICIES
from tests.support.e2e.lab import EXAMPLES
from tests.support.e2e.podlab import (
    GATE,
    GPU,
    QUEUE,
    TEAM,
    PodLab,
    is_held,
    pod_body,
    pod_lab,
    pods_installed,
    refused,
)
from tests.support.e2e.queuelab import as_controller

GATED = pytest.mark.skipif(not POLICIES, reason="the API server puts pods behind the gate from 1.36 on")
pytestmark = [pytest.mark.e2e, GATED]

REQUEST = "tessera.dev/capacity-request"
UNITS = "tessera.dev/granted-units"
ON = ("controller.bargaining.enabled=true",)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    spec = Spec(nodes=(), kwok_nodes=2, kwok_capacity={GPU: "8"})
    with Cluster.up(f"capacity-{os.getpid()}", spec) as cluster, pods_installed(cluster):
        yield cluster


@pytest.fixture(scope="module")
def bargaining(cluster: Cluster) -> Cluster:
    """The cluster once the chart has bargaining on."""
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=rendered("capacity-policy"))
    made = rendered("capacity-policy", "controller-rbac", values=ON)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=made)
    probe = json.dumps(pod_body("probe", labels={REQUEST: "any"}))

    def is_on() -> bool:
        said = refused(cluster, "create", "--dry-run=server", "-f", "-", input=json.dumps(request_body("probe")))
        found = refused(cluster, "create", "--dry-run=server", "-o", "json", "-f", "-", input=probe)
        return not said and not found and is_held(_dry(cluster, probe))

    wait_until(is_on, "the policies in effect", timeout_s=120, every_s=0.2)
    return cluster


def _dry(cluster: Cluster, body: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=body)
    )
    return found


def request_body(name: str, queue: str = "q", **spec: Any) -> dict[str, Any]:
    """One GPU a unit, unless ``spec`` says otherwise."""
    whole = {"queueName": queue, "unit": {GPU: "1"}, **spec}
    return {
        "apiVersion": "tessera.dev/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": whole,
    }


@dataclass
class Bidder:
    """One request and what was answered, by the API server."""

    scene: PodLab
    name: str

    async def ask(self, queue: str, **spec: Any) -> None:
        body = request_body(self.name, queue, **spec)
        body["spec"] = {key: value for key, value in body["spec"].items() if value is not None}
        await self.scene.client.create(CAPACITY_REQUESTS, body, dict[str, Any], namespace=TEAM)

    async def change(self, **spec: Any) -> None:
        patch = {"spec": spec}
        await self.scene.client.merge_patch(CAPACITY_REQUESTS, self.name, patch, dict[str, Any], namespace=TEAM)

    def status(self) -> dict[str, Any]:
        found = self.scene.cluster.kubectl("get", "capacityrequest", self.name, "-n", TEAM, "-o", "json")
        status: dict[str, Any] = json.loads(found).get("status", {})
        return status

    async def becomes(self, state: str) -> dict[str, Any]:
        last: dict[str, Any] = {}

        def is_so() -> bool:
            last.clear()
            last.update(self.status())
            return last.get("state") == state

        await self.scene.until(is_so, f"{self.name} is {state}: {last}", timeout_s=60)
        return last

    def pod(self, name: str, gpus: int = 1) -> dict[str, Any]:
        return pod_body(name, gpus=gpus, labels={REQUEST: self.name})

    def delete(self) -> None:
        self.scene.cluster.kubectl("delete", "capacityrequest", self.name, "-n", TEAM, "--wait=false")


@contextmanager
def controller(scene: PodLab, folder: Path, *, on: bool = True) -> Iterator[Any]:
    """The controller, by the chart's rights, with bargaining on or off."""
    scene.config(folder)
    path = folder / "controller.yaml"
    text = path.read_text()
    marked = "tessera: {policy: tessera, pendingCondition: {after: 1s}}"
    assert marked in text
    switch = f"after: 1s}}, bargaining: {{enabled: {'true' if on else 'false'}}}"
    path.write_text(text.replace(marked, marked.replace("after: 1s}", switch)))
    account = folder / "account.kubeconfig"
    account.write_text(as_controller(scene.cluster))
    with scene.queues.controllers(folder, "one", flags=("--no-leader-elect", "--kubeconfig", str(account))) as made:
        yield made[0]


def test_a_cluster_whose_chart_has_bargaining_off_refuses_requests_and_names_the_value(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("capacity-policy"))
    command = ("create", "--dry-run=server", "-f", "-")
    body = json.dumps(request_body("early"))
    wait_until(lambda: bool(refused(cluster, *command, input=body)), "the policy in effect", timeout_s=120, every_s=0.2)
    assert "controller.bargaining.enabled: found false, expected true" in refused(cluster, *command, input=body)


async def test_what_a_request_may_change_and_pods_may_say_the_api_server_holds(bargaining: Cluster) -> None:
    cluster = bargaining
    create = ("create", "-f", "-")
    for wrong, said in (
        ({"duration": "0s"}, "duration is above 0"),
        ({"duration": "9999h"}, "duration is above 0, and at most 8784h"),
        ({"answerWithin": "0m"}, "answerWithin is above 0"),
        ({"useWithin": "0.0h"}, "useWithin is above 0"),
        ({"unit": {GPU: "500m"}}, "unit has whole numbers, except of cpu, memory and ephemeral-storage"),
    ):
        assert said in refused(cluster, *create, input=json.dumps(request_body("wrong", **wrong))), wrong
    long = refused(cluster, *create, input=json.dumps(request_body("n" * 64)))
    assert "metadata.name: expected at most 63 characters: pods name it in a label" in long
    assert not refused(cluster, "create", "--dry-run=server", "-f", "-", input=json.dumps(request_body("n" * 63)))
    halves = request_body("halves", unit={GPU: 1, "cpu": "500m", "memory": "1Gi"}, duration="90m")
    assert not refused(cluster, "create", "--dry-run=server", "-f", "-", input=json.dumps(halves))
    cluster.kubectl(*create, input=json.dumps(request_body("fixed", min=2, max=4, duration="1h")))
    change = ("patch", "capacityrequest", "fixed", "-n", TEAM, "--type=merge", "-p")
    for spec, said in (
        ({"queueName": "other"}, "queueName cannot be changed"),
        ({"unit": {GPU: "2"}}, "unit cannot be changed"),
        ({"min": 3}, "min cannot be changed"),
        ({"max": 5}, "max can only become smaller"),
        ({"max": 1}, "max is at least min"),
    ):
        assert said in refused(cluster, *change, json.dumps({"spec": spec})), spec
    renewed = {"max": 3, "accept": "offer-1", "renew": "2026-01-01T00:00:00Z"}
    assert not refused(cluster, *change, json.dumps({"spec": renewed}))
    status = ("patch", "capacityrequest", "fixed", "-n", TEAM, "--subresource=status", "--type=merge", "-p")
    assert "status: found a change by" in refused(cluster, *status, '{"status": {"state": "Granted", "units": 4}}')
    cluster.kubectl("delete", "capacityrequest", "fixed", "-n", TEAM)
    both = pod_body("both", queue="q", labels={REQUEST: "fixed"})
    assert "expected one of them" in refused(cluster, *create, input=json.dumps(both))
    forged = pod_body("forged", labels={REQUEST: "fixed"}, notes={UNITS: "0"})
    assert "only the controller writes it" in refused(cluster, *create, input=json.dumps(forged))
    cluster.kubectl(*create, input=json.dumps(pod_body("inside", labels={REQUEST: "fixed"})))
    free = ("patch", "pod", "inside", "-n", TEAM, "--type=merge", "-p")
    assert GATE in json.dumps(json.loads(cluster.kubectl("get", "pod", "inside", "-n", TEAM, "-o", "json"))["spec"])
    assert "only the controller lets a" in refused(cluster, *free, '{"spec":{"schedulingGates":[]}}')
    label = json.dumps({"metadata": {"labels": {REQUEST: "another"}}})
    assert "does not change" in refused(cluster, *free, label)
    cluster.kubectl("delete", "pod", "inside", "-n", TEAM, "--now")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "both", "namespace": TEAM, "labels": {QUEUE: "q"}},
        "spec": {"suspend": True, "template": {"metadata": {"labels": {REQUEST: "fixed"}}, "spec": both["spec"]}},
    }
    assert "expected one of them" in refused(cluster, *create, input=json.dumps(job))


async def test_a_grant_starts_its_pods_at_once_and_gives_back_what_is_left(bargaining: Cluster, tmp_path: Path) -> None:
    async with pod_lab(bargaining) as scene:
        await scene.queue("night", 4)
        with controller(scene, tmp_path) as process:
            burst = Bidder(scene, "burst")
            await burst.ask("night", min=2, max=4, duration="1h")
            granted = await burst.becomes("Granted")
            assert (granted["units"], granted["flavor"]) == (4, "gpus")
            name = granted["workload"]
            await scene.until(lambda: scene.condition(name, "Admitted") == "True/Admitted", "its Workload is seen", 30)
            given = scene.workload(name)["status"]["admission"]["podSetAssignments"]
            assert given[0]["resourceUsage"] == {GPU: "4"}
            await scene.create(pod_body("queued", queue="night"))
            await scene.create(burst.pod("first", gpus=2), burst.pod("second"), burst.pod("large", gpus=5))
            await scene.until(lambda: scene.runs("first", "second"), "its pods run")
            assert scene.pod("first")["spec"]["nodeSelector"] == {"type": "kwok"}
            assert len(scene.pod("first")["metadata"]["annotations"][UNITS].split(",")) == 2
            assert is_held(scene.pod("large")), "it has more than the grant"
            assert is_held(scene.pod("queued")), "the grant has all of the quota"
            await scene.until(lambda: burst.status().get("used") == 3, "what is used is told")
            process.kill()
            await scene.create(burst.pod("third"), burst.pod("fourth"))
            process.start()
            last = ("third", "fourth")
            await scene.until(lambda: any(map(scene.runs, last)), "the next leader knows which unit is left", 60)
            assert any(is_held(scene.pod(name)) for name in last)
            await scene.finish(["second"])
            await scene.until(lambda: scene.runs(*last), "a pod that has ended leaves its unit", 60)
            burst.delete()
            await scene.until(lambda: scene.runs("queued"), "what was held goes to the queue", 60)
            await scene.until(lambda: not scene.pod("first"), "what ran inside is gone", 60)
            await scene.clean()


async def test_offers_are_held_accepted_and_expire(bargaining: Cluster, tmp_path: Path) -> None:
    async with pod_lab(bargaining) as scene:
        await scene.queue("shared", 4)
        with controller(scene, tmp_path):
            note = {"tessera.dev/runtime": "1h"}
            await scene.create(pod_body("training", queue="shared", gpus=2, notes=note))
            await scene.until(lambda: scene.runs("training"), "training has two of four")
            first = Bidder(scene, "first")
            await first.ask("shared", min=4, duration="30m", answerWithin="60s")
            offered = await first.becomes("Offered")
            now, later = offered["offers"]
            assert (now["units"], now["held"], later["units"]) == (2, True, 4)
            assert "2 of at most 4 nvidia.com/gpu of flavor gpus free in ClusterQueue shared" in later["why"]
            assert f"2 nvidia.com/gpu of {TEAM}/pod-training" in later["why"]
            second = Bidder(scene, "second")
            await second.ask("shared", min=2, duration="30m", answerWithin="2s")
            assert not any(each.get("held") for each in (await second.becomes("Offered"))["offers"])
            expired = await second.becomes("Expired")
            assert expired["message"] == "No offer was accepted within 2s"
            await first.change(accept=now["id"])
            assert (await first.becomes("Granted"))["units"] == 2
            await scene.create(first.pod("worker", gpus=2))
            await scene.until(lambda: scene.runs("worker"), "it runs on what was offered")
            first.delete()
            second.delete()
            await scene.clean()


async def test_an_accepted_offer_of_later_waits_and_ends_what_was_held(bargaining: Cluster, tmp_path: Path) -> None:
    async with pod_lab(bargaining) as scene:
        await scene.queue("eight", 8)
        with controller(scene, tmp_path):
            await scene.create(pod_body("six", queue="eight", gpus=6, notes={"tessera.dev/runtime": "2h"}))
            await scene.until(lambda: scene.runs("six"), "six of eight are used")
            patient = Bidder(scene, "patient")
            await patient.ask("eight", min=4, duration="1h", answerWithin="60s")
            offers = (await patient.becomes("Offered"))["offers"]
            assert [(each["id"], each["units"], each.get("held", False)) for each in offers] == [
                ("offer-1", 2, True),
                ("offer-2", 4, False),
            ]
            await patient.change(accept="offer-2")
            await scene.until(lambda: patient.status().get("accepted") == "offer-2", "it is accepted", 60)
            waits = patient.status()
            assert waits["message"].startswith("Offer offer-2 is accepted: 4 units wait in LocalQueue eight"), waits
            await scene.until(lambda: bool(scene.workload(waits["workload"])), "its Workload is seen")
            assert scene.workload(waits["workload"])["spec"]["podSets"][0]["count"] == 4
            assert [each["id"] for each in waits["offers"] if not each.get("held")] == ["offer-1", "offer-2"]
            await scene.create(pod_body("short", queue="eight", gpus=2, notes={"tessera.dev/runtime": "1m"}))
            await scene.until(lambda: scene.runs("short"), "what was held is free")
            await scene.finish(["six", "short"])
            assert (await patient.becomes("Granted"))["units"] == 4
            patient.delete()
            await scene.clean()


async def test_units_of_another_flavor_are_offered_and_granted_without_the_templates_selector(
    bargaining: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(bargaining) as scene:
        for side in ("left", "right"):
            await scene.queues.share(FLAVORS, side, spec={"nodeLabels": {"side": side}})
        quotas = [{"name": side, "resources": [{"name": GPU, "nominalQuota": "2"}]} for side in ("left", "right")]
        group = {"coveredResources": [GPU], "flavors": quotas}
        await scene.queues.make(CLUSTER_QUEUES, "sides", spec={"namespaceSelector": {}, "resourceGroups": [group]})
        await scene.queues.make(LOCAL_QUEUES, "sides", namespace=TEAM, spec={"clusterQueue": "sides"})
        template = {"spec": {**pod_body("any")["spec"], "nodeSelector": {"side": "left"}}}
        with controller(scene, tmp_path):
            bidders = [Bidder(scene, name) for name in ("holder", "mover")]
            for each in bidders:
                await each.ask("sides", unit=None, template=template, min=2, duration="1h", answerWithin="60s")
                if each.name == "holder":
                    assert (await each.becomes("Granted"))["flavor"] == "left"
            mover = bidders[1]
            offers = (await mover.becomes("Offered"))["offers"]
            other = next(each for each in offers if each.get("elsewhere"))
            assert (other["flavor"], other["held"], other["units"]) == ("right", True, 2)
            await mover.change(accept=other["id"])
            assert (await mover.becomes("Granted"))["flavor"] == "right"
            for each in bidders:
                each.delete()
            await scene.clean()


async def test_more_than_there_ever_is_is_refused_and_unused_units_are_released(
    bargaining: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(bargaining) as scene:
        await scene.queue("four", 4)
        with controller(scene, tmp_path):
            greedy = Bidder(scene, "greedy")
            await greedy.ask("four", min=9, max=12)
            said = (await greedy.becomes("Refused"))["message"]
            assert said.startswith("No offer can be made of 9 units or more, unless "), said
            idle = Bidder(scene, "idle")
            await idle.ask("four", min=4, useWithin="2s", duration="1h")
            assert (await idle.becomes("Released"))["message"] == "Nothing used it within 2s of its start"
            await scene.create(pod_body("after", queue="four", gpus=4))
            await scene.until(lambda: scene.runs("after"), "the quota is back")
            nowhere = Bidder(scene, "nowhere")
            await nowhere.ask("missing", min=1)
            assert "LocalQueue missing does not exist" in (await nowhere.becomes("Refused"))["message"]
            for each in (greedy, idle, nowhere):
                each.delete()
            await scene.clean()


async def test_a_smaller_max_gives_units_back_and_a_grant_ends_at_its_time_with_what_runs_inside(
    bargaining: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(bargaining) as scene:
        scene.watcher.at_most = 4
        await scene.queue("timed", 4)
        with controller(scene, tmp_path):
            short = Bidder(scene, "short")
            await short.ask("timed", min=1, max=4, duration="20s")
            assert (await short.becomes("Granted"))["units"] == 4
            await scene.create(short.pod("inside"), pod_body("beside", queue="timed", gpus=2))
            await scene.until(lambda: scene.runs("inside"), "it runs inside")
            await short.change(max=2)
            await scene.until(lambda: scene.runs("beside"), "what was given back is the queue's", 15)
            fewer = short.status()
            assert fewer["units"] == 2
            assert fewer["message"].startswith("Granted 2 units of 1 nvidia.com/gpu of flavor gpus ")
            line = bargaining.kubectl("get", "capacityrequest", "short", "-n", TEAM, "--no-headers").split()
            assert line[:5] == ["short", "timed", "Granted", "2", fewer["until"]]
            released = await short.becomes("Released")
            assert released["message"].startswith("Its time was over at ")
            await scene.until(lambda: not scene.pod("inside"), "what ran inside has ended", 30)
            assert scene.runs("beside")
            short.delete()
            await scene.clean()


async def test_a_grant_is_preempted_by_a_higher_class_and_its_pods_end_first(
    bargaining: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(bargaining) as scene:
        scene.watcher.at_most = 4
        await scene.queue("ranked", 4, preemption={"withinClusterQueue": "LowerPriority"})
        urgent = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
        bargaining.kubectl("apply", "-f", "-", input=json.dumps(urgent))
        with controller(scene, tmp_path):
            low = Bidder(scene, "low")
            await low.ask("ranked", min=4, duration="1h")
            await low.becomes("Granted")
            await scene.create(low.pod("inside", gpus=4))
            await scene.until(lambda: scene.runs("inside"), "it runs")
            await scene.create(
                pod_body("first-aid", queue="ranked", gpus=4, labels={"kueue.x-k8s.io/priority-class": "urgent"})
            )
            released = await low.becomes("Released")
            assert released["message"].startswith("Its units were taken: Preempted"), released
            await scene.until(lambda: scene.runs("first-aid"), "the urgent one has its GPUs")
            low.delete()
            await scene.clean()


@contextmanager
def still(cluster: Cluster) -> Iterator[None]:
    """kwok does nothing: no pod begins, ends or goes."""
    kwok = cluster.state.processes["kwok"].pid
    os.kill(kwok, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kwok, signal.SIGCONT)


def _is_leaving(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


async def test_a_request_that_preempts_is_answered_once_its_victims_are_gone(
    bargaining: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(bargaining) as scene:
        scene.watcher.at_most = 8
        await scene.queue("ladder", 8, preemption={"withinClusterQueue": "LowerPriority"})
        upper = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "upper"},
            "value": 5,
        }
        bargaining.kubectl("apply", "-f", "-", input=json.dumps(upper))
        with controller(scene, tmp_path):
            slow = pod_body("slow-to-go", queue="ladder", gpus=6)
            slow["spec"]["terminationGracePeriodSeconds"] = 600
            await scene.create(slow)
            await scene.until(lambda: scene.runs("slow-to-go"), "the victim runs")
            taker = Bidder(scene, "taker")
            with still(bargaining):
                await taker.ask("ladder", min=5, duration="1h", priorityClassName="upper")
                await scene.until(lambda: _is_leaving(scene.pod("slow-to-go")), "the victim is told to go", 60)
                for name in ("next", "next-but-one"):
                    marker = Bidder(scene, name)
                    await marker.ask("ladder", min=9)
                    await marker.becomes("Refused")
                    marker.delete()
                waits = taker.status()
                assert not waits.get("state"), "its victim is still there"
                assert waits["message"].startswith("Waits for workloads to stop that were preempted for it")
            granted = await taker.becomes("Granted")
            assert (granted["units"], granted.get("offers")) == (5, None)
            await scene.create(taker.pod("taken", gpus=5))
            await scene.until(lambda: scene.runs("taken"), "it runs on what was taken")
            taker.delete()
            await scene.clean()


async def test_a_bidder_learns_nothing_of_another_namespace(bargaining: Cluster, tmp_path: Path) -> None:
    cluster = bargaining
    cluster.kubectl("create", "namespace", "rivals")
    cluster.kubectl("create", "rolebinding", "bidder", "--clusterrole=edit", "--user=bidder", "-n", "rivals")
    create = ("auth", "can-i", "create", "capacityrequests.tessera.dev", "--as=bidder", "-n")
    wait_until(lambda: not refused(cluster, *create, "rivals"), "its own namespace is the bidder's", timeout_s=60)
    assert refused(cluster, *create, TEAM), "another's is not"
    get = ("auth", "can-i", "get", "capacityrequests.tessera.dev", "--as=bidder", "-n", TEAM)
    assert refused(cluster, *get)
    write = (
        "auth",
        "can-i",
        "patch",
        "capacityrequests.tessera.dev",
        "--subresource=status",
        "--as=bidder",
        "-n",
        "rivals",
    )
    assert refused(cluster, *write), "nobody grants to himself"
    async with pod_lab(cluster) as scene:
        await scene.queue("common", 4)
        await scene.queues.make(LOCAL_QUEUES, "common", namespace="rivals", spec={"clusterQueue": "common"})
        with controller(scene, tmp_path):
            await scene.create(pod_body("secret-training", queue="common", gpus=3, notes={"tessera.dev/runtime": "1h"}))
            await scene.until(lambda: scene.runs("secret-training"), "another's job runs")
            body = request_body("rival", "common", min=4, duration="1h")
            body["metadata"]["namespace"] = "rivals"
            cluster.kubectl("create", "--as=bidder", "-f", "-", input=json.dumps(body))
            shown = ("get", "capacityrequest", "rival", "-n", "rivals", "--as=bidder", "-o", "json")
            found: dict[str, Any] = {}

            def is_offered() -> bool:
                found.update(json.loads(cluster.kubectl(*shown)).get("status", {}))
                return found.get("state") == "Offered"

            await scene.until(is_offered, "an offer", timeout_s=60)
            assert "3 nvidia.com/gpu of a workload of ClusterQueue common end by" in json.dumps(found)
            assert "secret" not in json.dumps(found)
            assert TEAM not in json.dumps(found)
            cluster.kubectl("delete", "namespace", "rivals", "--wait=false")
            await scene.clean()


def _client() -> ModuleType:
    path = EXAMPLES / "bargaining" / "client.py"
    assert len(path.read_text().splitlines()) <= 100
    spec = importlib.util.spec_from_file_location("client", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _call(cluster: Cluster, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    """What the client would send as a pod's account, by kubectl."""
    name = path.rsplit("/", 1)[1]
    match method:
        case "GET":
            answer = cluster.kubectl("get", "--raw", path)
        case "POST":
            answer = cluster.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(body))
        case "PATCH":
            change = ("--type=merge", "-o", "json", "-p", json.dumps(body))
            answer = cluster.kubectl("patch", "capacityrequest", name, "-n", TEAM, *change)
        case _:
            answer = cluster.kubectl("delete", "--raw", path)
    found: dict[str, Any] = json.loads(answer)
    return found


async def test_two_agents_that_bargain_by_the_example_client_share_the_gpus_of_a_night(
    bargaining: Cluster, tmp_path: Path
) -> None:
    client, call = _client(), partial(_call, bargaining)
    async with pod_lab(bargaining) as scene:
        scene.watcher.at_most = 4
        await scene.queue("agents", 4)
        with controller(scene, tmp_path):

            def ask(name: str) -> Any:
                spec = {"queueName": "agents", "unit": {GPU: 1}, "min": 3, "max": 4, "duration": "1h"}
                return client.Bargain(call, TEAM, name, spec, time.sleep)

            first = await asyncio.to_thread(ask, "agent-a")
            granted = await asyncio.to_thread(first.settle, client.held_or_first)
            assert (granted["state"], granted["units"]) == ("Granted", 4)
            await scene.create(pod_body("a-works", gpus=4, labels=first.label))
            await scene.until(lambda: scene.runs("a-works"), "the first agent's pod runs")
            until_before = granted["until"]

            def is_renewed() -> bool:
                first.renew()
                return bool(first.status()["until"] > until_before)

            await scene.until(is_renewed, "a renewal moves the end", 30)
            second = await asyncio.to_thread(ask, "agent-b")
            settled = asyncio.create_task(asyncio.to_thread(second.settle, client.held_or_first))
            await scene.until(lambda: bool(second.status().get("accepted")), "the second accepts what comes later", 60)
            assert second.status()["state"] == "Offered"
            await asyncio.to_thread(first.give_back)
            granted = await asyncio.wait_for(settled, 60)
            assert granted["state"] == "Granted"
            assert granted["units"] >= 3
            await scene.until(lambda: not scene.pod("a-works"), "the first agent's pod is gone", 60)
            await asyncio.to_thread(second.give_back)
            await scene.clean()


async def test_grants_of_before_last_as_told_and_end_with_their_pods_first_where_bargaining_is_turned_off(
    bargaining: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(bargaining) as scene:
        await scene.queue("before", 8)
        kept, timed = Bidder(scene, "kept"), Bidder(scene, "timed-off")
        with controller(scene, tmp_path):
            await kept.ask("before", min=2, duration="1h")
            name = (await kept.becomes("Granted"))["workload"]
            await timed.ask("before", min=2, duration="40s")
            await timed.becomes("Granted")
            await scene.create(kept.pod("stays"), timed.pod("ends"))
            await scene.until(lambda: scene.runs("stays", "ends"), "they run inside")
        bargaining.kubectl("apply", "--server-side", "-f", "-", input=rendered("capacity-policy", "controller-rbac"))
        with controller(scene, tmp_path, on=False):
            released = await timed.becomes("Released")
            assert released["message"].startswith("Its time was over at ")
            await scene.until(lambda: not scene.pod("ends"), "what ran inside has ended", 60)
            assert kept.status()["state"] == "Granted"
            await scene.create(kept.pod("later"))
            await scene.until(lambda: scene.runs("stays", "later"), "units that were granted can be used", 60)

            def is_gone() -> bool:
                there = ("-n", TEAM, "-o", "name", "--ignore-not-found")
                gone = not bargaining.kubectl("get", "workload", name, *there)
                assert not (gone and bargaining.kubectl("get", "pod", "stays", *there)), "a pod on units of nobody"
                return gone

            kept.delete()
            await scene.until(is_gone, "its pods and then its Workload are gone", 60)
            timed.delete()
            await scene.clean()
