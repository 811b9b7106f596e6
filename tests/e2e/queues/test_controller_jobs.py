"""The controller on a real control plane: Jobs are started, stopped and resumed; crashes lose and double nothing."""

import asyncio
import json
import os
import random
import re
import tarfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.watching.kinds import (
    CLUSTER_QUEUES,
    FLAVORS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    TOPOLOGIES,
    WORKLOAD_CLASSES,
)
from controller.objects.decode import decode
from controller.objects.placeencoding import decode as decode_places
from controller.objects.workload import Workload
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from kube.client import Selection
from tests.support.e2e.charttext import rendered
from tests.support.e2e.person import Person
from tests.support.e2e.plannedclaims import CONFIGURATION, WAITS, PlannedClaims
from tests.support.e2e.queuelab import (
    ALONE,
    CONFIG,
    NAMESPACE,
    QUEUE,
    QueueLab,
    admission,
    install,
    lab,
    until,
)
from tests.support.e2e.webhooklab import Webhook

pytestmark = pytest.mark.e2e

STOPS_S = 60.0
"""The promise is two seconds, on an idle machine."""
FAILOVER_S = 120.0
"""The promise is twenty seconds, on an idle machine: a lease is free after fifteen."""
SHORT_LEASE = "leaderElection: {leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}\n"


_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d) UTC")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    with Cluster.up(
        f"queues-{os.getpid()}", Spec(nodes=(), kwok_nodes=2, kwok_capacity={"nvidia.com/gpu": "2"})
    ) as cluster:
        install(cluster)
        yield cluster


async def classes(scene: QueueLab) -> None:
    for name, value in (("low", 10), ("high", 100)):
        await scene.share(WORKLOAD_CLASSES, name, value=value)


async def test_jobs_start_are_preempted_resume_and_end(cluster: Cluster, tmp_path: Path) -> None:
    async with lab(cluster, {"alone": 2}) as scene:
        await classes(scene)
        await scene.queue("alone", 2, preemption={"withinClusterQueue": "LowerPriority"})
        with scene.controllers(tmp_path, "one") as (controller,):
            await scene.job("first", "alone", pods=2, priority="low")
            await until(lambda: scene.runs("first"), "the first job runs")
            await until(
                lambda: scene.condition("first", "PodsReady") == "True/Started", "its pods are known to be ready"
            )
            template = scene.watcher.jobs["team/first"]["spec"]["template"]
            await scene.job("second", "alone", pods=1, priority="high")
            await until(lambda: scene.condition("first", "Evicted") == "True/Preempted", "the first has to go")
            await until(lambda: scene.runs("second"), "the second runs in its place")
            await until(lambda: scene.suspended("first"), "the first has no pods")
            scene.finish("second")
            await until(lambda: scene.complete("second"), "the second ends")
            await until(lambda: scene.runs("first"), "the first runs again")
            assert scene.watcher.jobs["team/first"]["spec"]["template"]["spec"] == template["spec"]
            await until(lambda: scene.condition("second", "Finished") == "True/Succeeded", "its workload is finished")
            await scene.clean()
            assert controller.stop() < STOPS_S


async def test_a_victim_is_told_what_it_lost_to_whom_and_when_it_runs_again(cluster: Cluster, tmp_path: Path) -> None:
    quotas = [{"name": "cpu", "nominalQuota": "4"}, {"name": "nvidia.com/gpu", "nominalQuota": "2"}]
    group = {"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [{"name": "plain", "resources": quotas}]}

    def told() -> str:
        conditions = scene.watcher.of_job("trains")["status"]["conditions"]
        return str(next(one["message"] for one in conditions if one["type"] == "Preempted"))

    def notes() -> set[str]:
        listed = json.loads(cluster.kubectl("get", "events.events.k8s.io", "-n", "team", "-o", "json"))["items"]
        name = scene.watcher.of_job("trains")["metadata"]["name"]
        return {one["note"] for one in listed if one["reason"] == "Preempted" and one["regarding"]["name"] == name}

    async with lab(cluster, {"priced": 4}) as scene:
        await classes(scene)
        await scene.queue("priced", 4, preemption={"withinClusterQueue": "LowerPriority"}, resourceGroups=[group])
        with scene.controllers(tmp_path, "one", flags=ALONE):
            cost = {"tessera.dev/restart-cost": "2m"}
            await scene.job("trains", "priced", pods=2, gpus=1, priority="low", notes=cost)
            await until(lambda: scene.runs("trains"), "the training runs")
            since = time.time()
            await until(lambda: time.time() >= since + 2.0, "it has worked for a while, so it has something to lose")
            hour = {"tessera.dev/runtime": "1h"}
            await scene.job("urgent", "priced", pods=2, gpus=1, priority="high", notes=hour)
            await until(lambda: scene.runs("urgent"), "the urgent job runs in its place")
            await until(lambda: "starts again" in told(), "its victim is told when it starts again")
            said = told()
            assert said.startswith(f"Preempted to accommodate workload {_key(scene, 'urgent')} (UID ")
            lost = re.search(r"It loses (\d+) GPU-seconds of work and 240 by its restart", said)
            assert lost is not None, said
            assert int(lost[1]) >= 4, "two GPUs for two seconds at least"
            first, last = (
                datetime.strptime(one, "%Y-%m-%d %H:%M").replace(tzinfo=UTC) for one in _MOMENT.findall(said)
            )
            assert datetime.now(UTC) < last
            assert first < last
            await until(lambda: said in notes(), "an Event says it too")
            scene.finish("urgent")
            await until(lambda: scene.runs("trains"), "the training runs again")
            assert told() == f"Earlier: {said}", "the promise can be looked up when it runs again"
            await scene.clean()


def _key(scene: QueueLab, job: str) -> str:
    meta = scene.watcher.of_job(job)["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


async def test_borrowed_quota_comes_back_to_its_owner(cluster: Cluster, tmp_path: Path) -> None:
    preemption = {"reclaimWithinCohort": "Any"}
    async with lab(cluster, {"*": 4}) as scene:
        await scene.queue("lender", 2, cohort="both", preemption=preemption)
        await scene.queue("borrower", 2, cohort="both", preemption=preemption)
        with scene.controllers(tmp_path, "one", flags=ALONE):
            for number in range(4):
                await scene.job(f"guest-{number}", "borrower")
            await until(lambda: all(scene.runs(f"guest-{n}") for n in range(4)), "the borrower has all four cpus")
            await scene.job("owner", "lender", pods=2)
            await until(lambda: scene.runs("owner"), "the owner has its own back")

            def reclaimed() -> list[str]:
                return [scene.condition(f"guest-{n}", "Preempted") for n in range(4)]

            await until(lambda: reclaimed().count("True/InCohortReclamation") == 2, "two are told why they went")
            await scene.clean()


async def test_a_window_of_a_calendar_brings_quota_and_a_wrong_entry_is_told(cluster: Cluster, tmp_path: Path) -> None:
    def annotate(calendar: str) -> None:
        cluster.kubectl("annotate", "--overwrite", "clusterqueue", "timed", f"tessera.dev/quota-calendar={calendar}")

    def told() -> str:
        path = "{.status.conditions[?(@.type=='tessera.dev/QuotaAnnotations')].message}"
        return cluster.kubectl("get", "clusterqueue", "timed", "-o", f"jsonpath={path}")

    async with lab(cluster, {"timed": 2}) as scene:
        await scene.queue("timed", 0)
        # The window begins with the next minute but one at the latest, and stays open for the test.
        begins = datetime.fromtimestamp(time.time() + 65, UTC)
        annotate(f'[{{from: "{begins:%M %H} * * *", for: 2h, nominal: {{plain: {{cpu: 2}}}}}}, {{from: nights}}]')
        with scene.controllers(tmp_path, "one", flags=ALONE):
            await scene.job("late", "timed", pods=2)
            await until(lambda: scene.condition("late", "QuotaReserved").startswith("False"), "the job has no quota")
            await until(lambda: 'entry 2, {"from":"nights"}' in told(), "the wrong entry is told")
            assert time.time() < begins.replace(second=0).timestamp()
            await until(lambda: scene.runs("late"), "the job runs when its window has begun")
            assert time.time() >= begins.replace(second=0).timestamp()
            annotate("[]")
            await until(lambda: told() == "", "nothing is wrong any more")
            await scene.clean()


async def test_a_person_makes_queues_and_rules_workloads_by_the_command(cluster: Cluster, tmp_path: Path) -> None:
    async with lab(cluster, {"shell": 2}) as scene:
        await classes(scene)
        await scene.share(NAMESPACES, "team")
        person = Person(cluster, tmp_path)
        await person.run("create", "rf", "shell")
        made = ("create", "cq", "shell", "--nominal-quota", "shell:cpu=2")
        assert "server dry run" in await person.run(*made, "--dry-run", "server")
        assert await person.run("list", "cq", "-o", "name") == ""
        await person.run(*made)
        for name in ("shell", "other"):
            await person.run("create", "lq", name, "-c", "shell")
        with scene.controllers(tmp_path, "one"):
            await scene.job("first", "shell", pods=2)
            await until(lambda: scene.runs("first"), "the first job runs")
            await scene.job("second", "shell", priority="low")
            await until(lambda: scene.condition("second", "QuotaReserved").startswith("False"), "the second waits")
            await _look(person)
            await _rule(person, scene)
            await _hand_over(person, tmp_path)
            await scene.clean()
            await person.run("delete", "rf", "shell")  # while there is a controller that takes its finalizer off


async def _look(person: Person) -> None:
    """``first`` runs and ``second`` waits."""
    for status, job in (("admitted", "first"), ("pending", "second")):
        (found,) = (await person.json("list", "workload", "--status", status))["items"]
        assert found["metadata"]["ownerReferences"][0]["name"] == job
    assert len((await person.json("list", "pods", "--for", "job/first"))["items"]) == 2
    story = [
        (each["about"].partition(" ")[0], each["what"])
        for each in (await person.json("workload", "story", "first"))["story"]
    ]
    assert {("Job", "created"), ("Workload", "QuotaReserved"), ("Workload", "Admitted"), ("Pod", "ready")} <= set(story)
    assert (await person.json("workload", "show", "first"))["state"] == "Admitted"
    (queue,) = (await person.json("top", "--once"))["queues"]
    assert (queue["name"], queue["state"]) == ("shell", "open")
    shown = await person.watch("top", "--every", "1", until="ClusterQueues")
    assert "\x1b[?1049h" in shown, "it has a screen of its own"
    assert (await person.json("version"))["agents"] == []


async def _rule(person: Person, scene: QueueLab) -> None:
    assert "holds quota" in await person.run("workload", "move", "first", "--to", "other", code=1)
    await person.run("workload", "move", "second", "--to", "other")
    await until(lambda: scene.watcher.of_job("second")["spec"]["queueName"] == "other", "the second has moved")
    await person.run("workload", "raise", "second", "--class", "high")
    await until(lambda: scene.watcher.of_job("second")["spec"].get("priority") == 100, "the second is raised")
    await person.run("workload", "stop", "first")
    await until(lambda: scene.suspended("first"), "the first is stopped")
    await until(lambda: scene.runs("second"), "the second runs in its place")
    await until(lambda: scene.condition("first", "QuotaReserved").startswith("False"), "the first gave its quota back")
    assert (await person.json("workload", "show", "first"))["state"] == "Stopped"
    await person.run("workload", "resume", "first")
    scene.finish("second")
    await until(lambda: scene.runs("first"), "the first runs again")
    await person.run("stop", "cq", "shell")
    await until(lambda: scene.suspended("first"), "the queue is drained")
    await person.run("resume", "cq", "shell")
    await until(lambda: scene.runs("first"), "the queue admits again")


async def _hand_over(person: Person, folder: Path) -> None:
    """What kubectl does, a bundle without the job's name, and a deletion with the job."""
    await person.run("get", "cq", "shell", "-o", "name")
    await person.run("patch", "lq", "other", "--type", "merge", "-p", '{"spec": {"stopPolicy": "Hold"}}')
    (other,) = (await person.json("list", "lq", "--field-selector", "metadata.name=other"))["items"]
    assert other["spec"]["stopPolicy"] == "Hold"
    await person.run("get", "cq", "nosuch", code=1)
    await person.run("support-bundle", "-f", str(folder / "report.tar.gz"))
    with tarfile.open(folder / "report.tar.gz") as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive}
        bodies = {name.partition("/")[2]: file.read() for name, file in files.items() if file is not None}
    assert json.loads(bodies["versions.json"])["kubernetes"]["gitVersion"].startswith("v1.")
    assert json.loads(bodies["workloads.json"])
    assert not [name for name, body in bodies.items() if b"job-first" in body]
    (gone,) = (await person.json("delete", "workload", "first", "--yes"))["deleted"]
    assert (gone["kind"], gone["name"]) == ("Job", "first")


async def test_killed_at_random_under_load_nothing_is_lost_doubled_or_over_quota(
    cluster: Cluster, tmp_path: Path
) -> None:
    rng, names = random.Random(1), [f"load-{number}" for number in range(24)]
    async with lab(cluster, {"*": 4}) as scene:
        await classes(scene)
        preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
        for queue in ("left", "right"):
            await scene.queue(queue, 2, cohort="load", preemption=preemption)
        with scene.controllers(tmp_path, "one", flags=ALONE) as (controller,):
            for name in names:
                queue, class_ = rng.choice(("left", "right")), rng.choice(("low", "high"))
                await scene.job(name, queue, pods=rng.choice((1, 2)), runs="1s", priority=class_)

            def over() -> int:
                return sum(map(scene.complete, names))

            # Each second one is given the time to get something done, however long it takes to start here.
            for patient in cycle((True, False)):
                if patient:
                    enough = min(over() + 1, len(names))
                    await until(lambda: over() >= enough, f"{enough} jobs have ended")  # noqa: B023 - waited for
                if over() == len(names):
                    break
                await asyncio.sleep(rng.uniform(0.0, 3.0))
                controller.kill()
                controller.start()
            await until(
                lambda: all(scene.condition(name, "Finished") == "True/Succeeded" for name in names),
                "all workloads are finished",
            )
            assert scene.watcher.most > 0
            await scene.clean()


async def test_two_replicas_fail_over_and_a_lease_that_is_let_go_is_free(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "controller.yaml").write_text(CONFIG.replace(SHORT_LEASE, ""))
    async with lab(cluster, {"alone": 1}) as scene:
        await scene.queue("alone", 1)
        with scene.controllers(tmp_path, "one", "two") as replicas:
            await scene.job("before", "alone", runs="1s")
            await until(lambda: scene.complete("before"), "somebody leads")
            leader = next(one for one in replicas if "leading as" in one.log.read_text())
            other = next(one for one in replicas if one is not leader)
            assert "leading as" not in other.log.read_text()
            killed_s = time.monotonic()
            leader.kill()
            await scene.job("after", "alone", runs="1s")
            await until(lambda: scene.runs("after") or scene.complete("after"), "the other leads")
            assert time.monotonic() - killed_s < FAILOVER_S
            other.stop()
            leases = json.loads(cluster.kubectl("get", "leases", "-n", NAMESPACE, "-o", "json"))["items"]
            assert leases
            assert not [one for one in leases if one["spec"].get("holderIdentity")]
            leader.start()
            await scene.job("again", "alone", runs="1s")
            await until(lambda: scene.complete("again"), "the first leads again")
            await scene.clean()


async def test_the_api_server_is_restarted_under_it(cluster: Cluster, tmp_path: Path) -> None:
    async with lab(cluster, {"alone": 1}) as scene:
        await scene.queue("alone", 1)
        with scene.controllers(tmp_path, "one", flags=ALONE) as (controller,):
            await scene.job("before", "alone")
            await until(lambda: scene.runs("before"), "it runs")
            scene.restart_apiserver()
            await until(lambda: _answers(cluster), "the API server is back")
            await scene.job("after", "alone", runs="1s")
            scene.finish("before")
            await until(lambda: scene.complete("after"), "the next one had its turn")
            assert controller.runs
            await scene.clean()


def _answers(cluster: Cluster) -> bool:
    try:
        cluster.kubectl("get", "--raw", "/readyz", timeout_s=20)
    except Exception:  # noqa: BLE001 - whatever it is, it is not back yet
        return False
    return True


async def test_pods_of_a_placed_job_run_where_their_rank_says(cluster: Cluster, tmp_path: Path) -> None:
    hostname = "kubernetes.io/hostname"
    async with lab(cluster, {"*": 200}) as scene:
        await scene.share(TOPOLOGIES, "hosts", spec={"levels": [{"nodeLabel": hostname}]})
        await scene.share(FLAVORS, "placed", spec={"nodeLabels": {"type": "kwok"}, "topologyName": "hosts"})
        flavor = {"name": "placed", "resources": [{"name": "cpu", "nominalQuota": "200"}]}
        group = {"coveredResources": ["cpu"], "flavors": [flavor]}
        await scene.share(NAMESPACES, "team")
        await scene.make(CLUSTER_QUEUES, "places", spec={"namespaceSelector": {}, "resourceGroups": [group]})
        await scene.make(LOCAL_QUEUES, "places", namespace="team", spec={"clusterQueue": "places"})
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "50"}}}
        template = {
            "metadata": {"annotations": {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}},
            "spec": {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0},
        }
        spec = {"suspend": True, "parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": template}
        body = {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}
        job = {**body, "metadata": {"name": "ranked", "namespace": "team", "labels": {QUEUE: "places"}}}
        with scene.controllers(tmp_path, "one", flags=ALONE):
            await scene.client.create(JOBS, job, dict[str, Any], namespace="team")
            ready = scene.watcher.jobs
            await until(
                lambda: ready.get("team/ranked", {}).get("status", {}).get("ready", 0) == 4, "all four pods run"
            )
            await until(lambda: bool(admission(scene.watcher.of_job("ranked"))), "its places are heard of")
            admitted = decode(scene.watcher.of_job("ranked"), Workload).status.admission
            assert admitted is not None
            assignment = admitted.pod_set_assignments[0].topology_assignment
            assert assignment is not None
            wanted = [domain.values[-1] for domain in decode_places(assignment) for _ in range(domain.pods)]
            assert len(set(wanted)) == 2, "one node does not hold them"
            chosen = Selection(namespace="team", label_selector="batch.kubernetes.io/job-name=ranked")
            pods = (await scene.client.list_all(PODS, dict[str, Any], chosen)).items
            ranks = {int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]): pod for pod in pods}
            assert [ranks[rank]["spec"]["nodeName"] for rank in range(4)] == wanted
            await scene.clean()
        cluster.kubectl("delete", "resourceflavors.kueue.x-k8s.io", "placed", "--wait=false")


async def test_claims_of_a_job_get_the_devices_that_were_planned_for_it(cluster: Cluster, tmp_path: Path) -> None:
    (node, *_) = cluster.kubectl("get", "nodes", "-l", "type=kwok", "-o", "name").split()
    parts = ("webhook", "claims-webhook")
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered(*parts, values=("dra.enabled=true",)))
    (tmp_path / "controller.yaml").write_text(CONFIGURATION)
    async with lab(cluster, {"*": 8}) as scene:
        claims = PlannedClaims(scene, node.partition("/")[2])
        await claims.prepared()
        with scene.controllers(tmp_path, "one", flags=ALONE):
            with Webhook(cluster):
                await claims.job("linked", "pair", WAITS)
                await until(lambda: bool(claims.claim("linked")), "the first job's pod has its claim")
                await until(lambda: '["GPU-0","GPU-1"]' in claims.planned("linked"), "it has a plan")
                await claims.job("single", "one")
                await until(lambda: scene.runs("single"), "the second runs, past the first's pair")
                assert claims.given("single") == [("gpu/planned", "gpu-2")]
                claims.lets_go("linked")
                await until(lambda: scene.runs("linked"), "the first runs on its pair")
                assert sorted(claims.given("linked")) == [("gpu/planned", "gpu-0"), ("gpu/planned", "gpu-1")]
            began_s = time.monotonic()
            await claims.job("unplanned", "one")
            await until(lambda: scene.runs("unplanned"), "the webhook is away, and the third runs")
            assert time.monotonic() - began_s < STOPS_S
            assert claims.planned("unplanned")
            assert claims.given("unplanned") == [("gpu", "gpu-3")]
            await scene.clean()
        claims.gone()
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "t-tessera-controller-claims")
