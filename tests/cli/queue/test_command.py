"""``tessera queue`` and ``tessera explain`` against a whole controller and an API server in this process."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import click.testing
import pytest
import yaml

from cli.access.cluster import run
from cli.explain.command import _row
from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.kinds import (
    CLUSTER_QUEUES,
    FLAVORS,
    GPU_NODES,
    JOBS,
    LOCAL_QUEUES,
    VOLCANO_QUEUES,
    WORKLOADS,
)
from controller.jobs.framework import names
from controller.jobs.framework.podview import GroupName
from controller.jobs.kinds.jobset import JobSet
from controller.messages.spans import exact
from controller.people.page.queuerows import tree_rows
from controller.people.page.server_shell import PageServer
from controller.reconcile.jobshell.watched import resource_of
from controller.scheduler.model.resources import WorkloadKey
from inventory import __version__
from inventory.api.names import STARTS_WITH
from kube.errors import from_response
from kube.resources import EVENTS, NODES, PODS
from kube.testing import eventually
from tests.support.cli.shell import Shell
from tests.support.controller.gpunodes import full_status
from tests.support.controller.stage import CONFIG, config
from tests.support.controller.viewworld import trusted, until_served


def served(more: str = "") -> ControllerConfig:
    """A configuration whose webhooks listen where nobody else does; ``more``: keys of the block ``tessera``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return config(f"{CONFIG}{more}webhook: {{host: 127.0.0.1, port: {free.getsockname()[1]}}}\n")


@asynccontextmanager
async def busy(shell: Shell) -> AsyncIterator[None]:
    """a holds both cpus of ``cq``, and its pod runs; b (3 cpus, never) and c (2) wait. The controller is behind its
    Service.
    """
    scene = shell.scene
    scene.queue(cpus=2)
    scene.queue("elsewhere", cpus=9)
    async with scene.controller(served(), core_only=False) as process:
        shell.door.behind = process
        scene.workload("a", 2)
        scene.workload("o", 9, queue="lq-elsewhere")
        await scene.until_admitted("a", "o")
        scene.workload("b", 3)
        scene.workload("c", 2)
        await eventually(lambda: bool(scene.condition("b", "QuotaReserved") and scene.condition("c", "QuotaReserved")))
        runs = {"metadata": {"annotations": {names.WORKLOAD: "a"}}, "status": {"phase": "Running"}}
        scene.server.create(PODS, "a-0", runs, namespace="team")
        yield


async def test_what_queues_have(shell: Shell) -> None:
    async with busy(shell):
        found = await shell.json("queue", "list")
        assert found["source"] == "controller"
        (queue, _) = found["clusterQueues"]
        assert (queue["name"], queue["active"], queue["admitted"]) == ("cq", True, 1)
        assert queue["quota"] == [{"flavor": "default", "name": "cpu", "nominalQuota": "2"}]
        assert found["localQueues"][0]["name"] == "team/lq-cq"
        lines = (await shell.run("queue", "list")).stdout.splitlines()
        assert lines[2].split() == ["cq", "-", "open", "2", "1", "default", "cpu", "2", "2", "0", "0"]
        assert "LocalQueues" in lines
        assert (queue["running"], queue["admittedWithoutPods"]) == (1, 0)


async def test_only_what_has_pods_that_run_counts_as_running(shell: Shell) -> None:
    async with busy(shell):
        shell.scene.server.merge(PODS, "a-0", {"status": {"phase": "Pending"}}, namespace="team")
        found = await shell.json("queue", "list")
        for queue in (found["clusterQueues"][0], found["localQueues"][0]):
            assert (queue["running"], queue["admittedWithoutPods"]) == (0, 1)
        lines = (await shell.run("queue", "list")).stdout.splitlines()
        assert lines[2].split()[3:5] == ["2", "0"]
        assert "cq: 1 admitted workload has no pod that runs: tessera explain WORKLOAD says why" in lines
        shell.door.forbidden = "/pods$"
        shown = await shell.run("queue", "list")
        assert shown.stdout.splitlines()[2].split()[3:5] == ["2", "1"]
        assert shown.stderr.startswith("note: workloads whose pods run are not counted, but admitted ones: ")


async def test_the_page_and_the_lists_count_and_call_queues_alike(shell: Shell) -> None:
    scene = shell.scene
    async with busy(shell):
        scene.server.create(FLAVORS, "nowhere", {"spec": {"nodeLabels": {"gpu": "none"}}})
        quota = {"name": "nowhere", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
        spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]}
        scene.server.create(CLUSTER_QUEUES, "nodeless", {"spec": spec})
        scene.server.create(LOCAL_QUEUES, "door", {"spec": {"clusterQueue": "nodeless"}}, namespace="team")
        scene.server.create(NODES, "n-1", {"metadata": {"labels": {"gpu": "some"}}})
        assert shell.door.behind is not None
        view = shell.door.behind.view
        assert view is not None
        page = view.server.page
        assert isinstance(page, PageServer)

        def told() -> dict[str, tuple[object, ...]]:
            state = page.state()
            rows = (row for _, row in tree_rows(state.engine, state.with_pods())) if state is not None else ()
            queues = [row for row in rows if row["kind"] == "queue"]
            return {row["name"]: (row["running"], row["admittedWithoutPods"], row["state"]) for row in queues}

        async def until(wanted: dict[str, tuple[object, ...]]) -> None:
            await eventually(lambda: told() == wanted, what=f"{told()} becomes {wanted}")

        await until({"cq": (1, 0, "open"), "elsewhere": (0, 1, "open"), "nodeless": (0, 0, "no nodes")})
        found = (await shell.json("queue", "list"))["clusterQueues"]
        counts = {each["name"]: (each["running"], each["admittedWithoutPods"]) for each in found}
        assert counts == {name: row[:2] for name, row in told().items()}
        await eventually(lambda: "conditions" in scene.server.get(CLUSTER_QUEUES, "nodeless").get("status", {}))
        listed, seen = [(await shell.run(*words)).stdout.splitlines() for words in (("queue", "list"), ("top",))]
        for lines in (listed, seen):
            states = {line.split()[0]: line for line in lines if line.split()[:1] in (["cq"], ["nodeless"])}
            assert " open " in states["cq"]
            assert " no nodes " in states["nodeless"]
        assert any(line.split()[:4] == ["team/door", "nodeless", "no", "nodes"] for line in listed)
        available = {each["name"]: [row["amount"] for row in each["available"]] for each in found}
        state = page.state()
        assert state is not None
        rows = {row["name"]: [each["available"] for each in row["resources"]] for _, row in tree_rows(state.engine)}
        assert (available["nodeless"], rows["nodeless"]) == (["0"], [0]), "it could take nothing now"
        scene.server.merge(PODS, "a-0", {"status": {"phase": "Succeeded"}}, namespace="team")
        await until({"cq": (0, 1, "open"), "elsewhere": (0, 1, "open"), "nodeless": (0, 0, "no nodes")})


async def test_who_waits_and_why_is_the_same_with_and_without_the_controller(shell: Shell) -> None:
    async with busy(shell):
        live = await shell.json("queue", "pending", "--queue", "cq")
        here = await shell.json("queue", "pending", "--queue", "cq", "--offline")
        assert (live.pop("source"), here.pop("source")) == ("controller", "computed here")
        (queue,) = live["clusterQueues"]
        assert [(one["workload"], one["position"], one["reason"]) for one in queue["pending"]] == [
            ("team/b", 0, "ExceedsMaxQuota"),
            ("team/c", 1, "WaitingForQuota"),
        ]
        for body in (live, here):
            for one in body["clusterQueues"][0]["pending"]:
                one.pop("parked")
                forecast = one.pop("forecast")
                assert forecast["fromSeconds"] is None, "nobody says how long a runs"
        assert here == live
        text = (await shell.run("queue", "pending", "--local", "team/lq-cq")).stdout
        assert "Needs 2 cpu of flavor default: 0 free, 2 more needed" in text
        nobody = await shell.json("queue", "pending", "--local", "team/lq-cq", "--limit", "1")
        assert len(nobody["clusterQueues"][0]["pending"]) == 1


async def test_what_never_starts_is_told_with_the_most_that_fits_in_both_commands(shell: Shell) -> None:
    async with busy(shell):
        never = "unless it asks for at most 2 cpu of flavor default, or the quota is raised"
        for offline in ((), ("--offline",)):
            found = await shell.json("explain", "team/b", *offline)
            assert (found["forecast"]["never"], found["forecast"]["starts"]) == (never, f"never, {never}")
            pending = await shell.json("queue", "pending", "--queue", "cq", *offline)
            assert [one["forecast"]["never"] for one in pending["clusterQueues"][0]["pending"]] == [never, None]
        assert f"Likely start: never, {never}" in (await shell.run("explain", "b")).stdout
        assert "never" in (await shell.run("queue", "pending")).stdout.split()


async def test_an_explanation_says_what_is_missing_and_who_holds_it(shell: Shell) -> None:
    async with busy(shell):
        live = await shell.json("explain", "team/c")
        here = await shell.json("explain", "c", "--offline")
        for found in (live, here):
            assert (found["state"], found["position"], found["reason"]) == ("Pending", 1, "WaitingForQuota")
            (row,) = found["wouldAdmit"]["resources"]
            assert [row[key] for key in ("needed", "available", "lacking", "atMost")] == ["2", "0", "2", "2"]
            assert (row["quotaLeft"], row["borrowable"]) == ("0", "0")
            (holder,) = row["heldBy"]
            assert (holder["workload"], holder["clusterQueue"], holder["amount"]) == ("team/a", "cq", "2")
            forecast = found["forecast"]
            assert (forecast["ahead"], forecast["before"]) == (1, [{"workload": "team/b"}])
            assert "What it waits for has no known end" in forecast["assumes"]
            assert [change["sentence"] for change in forecast["changes"]] == ["When team/a (2 cpu) ends"]
        assert [one["reason"] for one in live["story"]] == ["WaitingForQuota"]
        assert here["story"] == []
        text = (await shell.run("explain", "c")).stdout
        for part in (
            "team/c: Pending, WaitingForQuota",
            "position 2 in the queue",
            "Likely start: unknown",
            "behind team/b",
            "When team/a (2 cpu) ends",
            "Holders of cpu of flavor default",
            "Story",
        ):
            assert part in text
        assert "team/a: Admitted" in (await shell.run("explain", "a")).stdout


async def test_of_one_whose_evictions_are_held_it_says_for_how_long(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.cluster.writing.pace.Pace.quick", lambda _self, _now_s: True)
    scene = shell.scene
    scene.queue(cpus=1, preemption={"withinClusterQueue": "LowerPriority"})
    async with scene.controller(served("  holdEvictions: 10m\n"), core_only=False) as process:
        shell.door.behind = process
        scene.workload("low", 1, priority=1)
        await scene.until_admitted("low")
        scene.workload("high", 1, priority=2)
        await eventually(lambda: len(scene.core.decisions.held) == 1)
        found = await shell.json("explain", "team/high")
        held = found["evictionsHeld"]
        assert (found["sentence"], held["evictions"]) == ("Waits for 1 workload to be preempted: team/low", 1)
        assert 500 < held["seconds"] <= 600
        for_long = f"It evicts 1 workload in {exact(held['seconds'])}"
        assert held["sentence"] == f"{for_long}; what ends by itself until then is spared"
        said = (await shell.run("explain", "high")).stdout
        assert "It evicts 1 workload in " in said
        assert (await shell.json("explain", "team/low"))["evictionsHeld"] is None
        scene.server.delete(WORKLOADS, "high", namespace="team")
        await eventually(lambda: len(scene.core.decisions.held) == 0, what="its evictions are taken back")
        assert scene.condition("low", "Evicted") == ""


async def test_of_an_admitted_workload_it_says_what_keeps_its_pods_and_what_happens_next(shell: Shell) -> None:
    async with busy(shell):
        server, said = shell.scene.server, "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
        server.merge(PODS, "a-0", {"status": {"phase": "Pending", "conditions": [condition]}}, namespace="team")
        found = (await shell.json("explain", "a"))["pods"]
        assert (found["running"], found["of"], found["troubles"][0]["pods"]) == (0, 1, ["a-0"])
        told = (await shell.run("explain", "a")).stdout.splitlines()
        assert told[:5] == [
            "team/a: Admitted",
            "ClusterQueue cq by LocalQueue lq-cq, priority 0",
            "Pods that run: 0 of 1",
            f"1 of 1 pod finds no node: {said}",
            "  It starts once a node has room; its quota is kept meanwhile",
        ]
        server.merge(PODS, "a-0", {"status": {"phase": "Running", "conditions": []}}, namespace="team")
        assert "All requirements of admission" in (await shell.run("explain", "a")).stdout
        health = {"state": "Unhealthy", "reasons": ["XID 79: the GPU has fallen off the bus"]}
        holder = {"device": "GPU-0", "namespace": "team", "pod": "a-0"}
        status = {"devices": [{"uuid": "GPU-0", "index": 3, "health": health}], "holders": [holder]}
        server.create(GPU_NODES, "n-1", {"status": full_status(status)})
        text = (await shell.run("explain", "a")).stdout
        assert "1 of 1 pod has a GPU that failed: GPU 3 of n-1: XID 79: the GPU has fallen off the bus" in text
        assert "All requirements of admission" not in text


async def test_a_job_stands_for_its_workload(shell: Shell) -> None:
    async with busy(shell):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
        shell.scene.server.merge(WORKLOADS, "c", {"metadata": {"ownerReferences": [owner]}}, namespace="team")
        found = await shell.json("explain", "team/train")
        assert (found["workload"], found["job"]) == ("team/c", "Job train")
        shell.scene.server.create(JOBS, "free", {"metadata": {}}, namespace="team")
        said = (await shell.run("explain", "free", code=1)).stderr
        expected = "a Job in no queue, expected one with the label kueue.x-k8s.io/queue-name"
        assert said == f"Error: WORKLOAD: found team/free, {expected}\n"
        assert "expected a Workload or a job that exists" in (await shell.run("explain", "nobody", code=1)).stderr
        sets = resource_of(JobSet())
        labels = {"kueue.x-k8s.io/queue-name": "q"}
        shell.scene.server.create(sets, "free", {"metadata": {"labels": labels}}, namespace="team")
        said = (await shell.run("explain", "free", code=1)).stderr
        assert said == "Error: WORKLOAD: found team/free, a JobSet that has no Workload yet. See its Events\n"
        for reason, note, second in (("A", "the older", 1), ("B", "spec.x: found y, expected z", 2)):
            at = f"2026-01-01T00:00:0{second}Z"
            regarding = {"kind": "JobSet", "name": "free"}
            body = {"type": "Warning", "reason": reason, "note": note, "regarding": regarding, "eventTime": at}
            shell.scene.server.create(EVENTS, f"free.{second}", {"metadata": {}, **body}, namespace="team")
        said = (await shell.run("explain", "free", code=1)).stderr
        assert said.endswith("a JobSet that has no Workload yet: spec.x: found y, expected z. See its Events\n")


async def test_a_deployment_stands_for_a_replica_that_waits(shell: Shell) -> None:
    scene = shell.scene
    scene.queue(cpus=1)
    of_jobs_alone = config(f"{CONFIG}integrations: {{frameworks: [batch/job]}}\n")
    async with scene.controller(of_jobs_alone, core_only=False):
        for name, cpus in (("pod-llama-5d9c-aaaaa-1", 1), ("pod-llama-5d9c-bbbbb-2", 1), ("pod-other-5d9c-ccccc-3", 9)):
            scene.workload(name, cpus)
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name[4:-2], "uid": name, "controller": True}
            scene.server.merge(WORKLOADS, name, {"metadata": {"ownerReferences": [owner]}}, namespace="team")
        await scene.until_admitted("pod-llama-5d9c-aaaaa-1")
        await eventually(lambda: scene.condition("pod-llama-5d9c-bbbbb-2", "QuotaReserved").startswith("False"))
        found = await shell.json("explain", "team/llama")
        assert (found["workload"], found["state"]) == ("team/pod-llama-5d9c-bbbbb-2", "Pending")


async def test_a_leader_worker_set_stands_for_a_group_that_waits_and_each_group_for_itself(shell: Shell) -> None:
    scene = shell.scene
    scene.queue(cpus=1)
    of_jobs_alone = config(f"{CONFIG}integrations: {{frameworks: [batch/job]}}\n")
    owner = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "llm", "uid": "u"}
    async with scene.controller(of_jobs_alone, core_only=False):
        for index, name in enumerate(("first", "second")):
            scene.workload(name, 1)
            notes = {names.JOB_OWNER_NAME: "llm", names.COMPONENT_INDEX: str(index)}
            metadata = {"ownerReferences": [owner], "annotations": notes}
            scene.server.merge(WORKLOADS, name, {"metadata": metadata}, namespace="team")
        await scene.until_admitted("first")
        await eventually(lambda: scene.condition("second", "QuotaReserved").startswith("False"))
        found = await shell.json("explain", "team/llm")
        assert (found["workload"], found["job"], found["state"]) == ("team/second", "LeaderWorkerSet llm", "Pending")
        assert (await shell.json("explain", "team/llm-0"))["workload"] == "team/first"


async def test_a_pod_group_of_kubernetes_stands_for_its_gang_or_for_the_oldest_of_its_pods_that_waits(
    shell: Shell,
) -> None:
    scene = shell.scene
    scene.queue(cpus=1)
    of_jobs_alone = config(f"{CONFIG}integrations: {{frameworks: [batch/job]}}\n")
    async with scene.controller(of_jobs_alone, core_only=False):
        gang = GroupName(None, "train").workload
        scene.workload(gang, 1)
        await scene.until_admitted(gang)
        assert (await shell.json("explain", "team/train"))["workload"] == f"team/{gang}"
        for name in ("sweep-0", "sweep-1"):
            scene.workload(name, 1)
            scene.server.merge(WORKLOADS, name, {"metadata": {"annotations": {STARTS_WITH: "sweep"}}}, namespace="team")
        told = "2 pods of PodGroup sweep wait, and there is room for 0"
        await eventually(lambda: told in str(scene.conditions("sweep-0")))
        found = await shell.json("explain", "team/sweep")
        assert (found["workload"], found["state"]) == ("team/sweep-0", "Pending")
        assert told in found["sentence"]


async def test_without_a_controller_the_answer_is_computed_and_says_so(shell: Shell) -> None:
    shell.scene.queue(cpus=1)
    shell.scene.workload("big", 2)
    result = await shell.run("explain", "big", "-o", "json")
    assert (
        "note: the controller cannot be reached (view.tessera.dev is not served here: expected the chart's"
        in result.stderr
    )
    assert "default configuration counts" in result.stderr
    found = json.loads(result.stdout)
    assert (found["source"], found["reason"]) == ("computed here", "ExceedsMaxQuota")


async def test_a_replica_that_follows_asks_the_one_that_leads(shell: Shell) -> None:
    scene = shell.scene
    scene.queue()
    async with scene.controller(served(), elect=True, core_only=False, name="pod-1_a1b2") as first:
        await eventually(lambda: first.core is not None)
        async with scene.controller(served(), elect=True, core_only=False, name="pod-2_c3d4") as second:
            await eventually(lambda: second.leader is not None and "pod-1" in second.leader)
            shell.door.behind = second
            assert (await shell.json("queue", "list"))["source"] == "computed here"
            ports = [{"name": "web", "containerPort": await until_served(first)}]
            pod = {"spec": {"containers": [{"ports": ports}]}, "status": {"podIP": "127.0.0.1"}}
            scene.server.create(PODS, "pod-1", pod, namespace="tessera-system")
            assert (await shell.json("queue", "list"))["source"] == "controller"


async def test_a_url_is_asked_with_the_callers_token(shell: Shell, tmp_path: Path) -> None:
    shell.scene.queue()
    shell.scene.server.users["secret"] = {"username": "person"}
    async with shell.scene.controller(served(), core_only=False) as process:
        url = f"https://127.0.0.1:{await until_served(process)}/"
        authorities = tmp_path / "ca.crt"
        authorities.write_bytes(trusted(process))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(authorities))
            assert (await shell.json("queue", "list", "--server", url))["source"] == "computed here"
            shell.log_in("secret")
            assert (await shell.json("queue", "list", "--server", url))["source"] == "controller"
            assert (await shell.json("version", "--server", url))["controller"] == {"version": __version__}
    assert shell.door.asked == []


async def test_queues_stop_drain_and_resume(shell: Shell) -> None:
    shell.scene.queue()
    server = shell.scene.server

    def policies() -> tuple[str, str]:
        cluster = server.get(CLUSTER_QUEUES, "cq")["spec"]
        local = server.get(LOCAL_QUEUES, "lq-cq", namespace="team")["spec"]
        return cluster.get("stopPolicy", ""), local.get("stopPolicy", "")

    assert (await shell.run("queue", "stop", "cq")).stdout == "ClusterQueue cq: stopPolicy Hold (was None)\n"
    await shell.run("queue", "stop", "team/lq-cq", "--drain")
    assert policies() == ("Hold", "HoldAndDrain")
    body = await shell.json("queue", "resume", "team/lq-cq")
    assert (body["kind"], body["stopPolicy"], body["before"]) == ("LocalQueue", "None", "HoldAndDrain")
    assert policies() == ("Hold", "None")
    assert (await shell.run("queue", "resume", "cq")).stdout.endswith("(was Hold)\n")
    assert "expected a ClusterQueue that exists" in (await shell.run("queue", "stop", "no", code=1)).stderr


async def test_queues_of_volcano_are_listed_under_their_names(shell: Shell) -> None:
    shell.scene.server.install(VOLCANO_QUEUES)
    shell.scene.server.create(VOLCANO_QUEUES, "research", {"spec": {"weight": 1}})
    listed = await shell.json("queue", "list", "--offline")
    assert {"research", "default"} <= {queue["name"] for queue in listed["clusterQueues"]}


async def test_a_workload_in_a_stopped_queue_is_told_so(shell: Shell) -> None:
    async with busy(shell):
        await shell.run("queue", "stop", "cq")
        for words in (("c",), ("c", "--offline")):
            text = (await shell.run("explain", *words)).stdout
            assert text.splitlines()[0] == "team/c: Pending, Suspended"
            assert "The ClusterQueue is stopped (Hold)" in text
        shell.scene.workload("d", 1)  # comes to a queue that tries nobody
        await eventually(lambda: "d" in str(shell.scene.core.engine.state.queues.get(WorkloadKey("team/d"))))
        for where in ((), ("--offline",)):
            (queue,) = (await shell.json("queue", "pending", "--queue", "cq", *where))["clusterQueues"]
            for each in queue["pending"]:
                assert each["reason"] == "Suspended"
                assert "is stopped (Hold)" in each["sentence"]
        text = (await shell.run("queue", "pending")).stdout
        assert text.splitlines()[-1].startswith("The ClusterQueue is stopped (Hold)")


EVERYBODYS = r"/kueue\.x-k8s\.io/v1beta2/\w+$|/api/v1/nodes$"
"""Lists over all namespaces, and of what belongs to none."""


async def test_an_account_of_one_namespace_gets_its_own_names_and_the_amounts_of_others(shell: Shell) -> None:
    async with busy(shell):
        shell.scene.queue("theirs", cpus=2, namespace="other", cohort="both")
        shell.scene.server.merge(CLUSTER_QUEUES, "cq", {"spec": {"cohortName": "both"}})
        shell.scene.workload("hers", 2, queue="lq-theirs", namespace="other")
        await eventually(lambda: bool(shell.scene.status("hers", namespace="other").get("admission")))
        shell.door.forbidden = EVERYBODYS
        shell.scene.server.allows = lambda spec: spec["resourceAttributes"].get("namespace") == "team"
        told = await shell.run("explain", "c")
        assert told.stdout.splitlines()[0] == "team/c: Pending, WaitingForQuota"
        assert "What would admit it" in told.stdout
        assert "a workload of queue theirs" in told.stdout
        assert "team/a" in told.stdout
        assert "other/hers" not in told.stdout
        assert told.stderr == ""


async def test_an_account_that_may_not_ask_the_controller_either_is_told_what_the_workload_says(shell: Shell) -> None:
    async with busy(shell):
        shell.door.forbidden = EVERYBODYS
        shell.scene.server.allows = lambda _: False
        shown = await shell.run("explain", "c")
        assert shown.stderr.splitlines()[-1].startswith("note: you may not read the queues")
        assert "computed here" not in shown.stderr
        told = shown.stdout.splitlines()
        assert told[:2] == ["team/c: Pending, WaitingForQuota", "ClusterQueue cq by LocalQueue lq-cq, priority 0"]
        assert told[2].startswith("Needs 2 cpu")
        found = await shell.json("explain", "a")
        assert (found["source"], found["state"], found["clusterQueue"]) == ("the Workload's status", "Admitted", "cq")
        shell.door.forbidden = "."
        assert "forbidden" in (await shell.run("explain", "c", code=1)).stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("queue", "pending", "--queue", "no"), 1, '--queue: found "no", expected a ClusterQueue\'s name'),
        (("queue", "pending", "--local", "no"), 2, '--local: found "no", expected NAMESPACE/NAME'),
        (("queue", "pending", "--local", "a/b"), 1, "expected a LocalQueue that exists"),
        (("queue", "pending", "--local", "team/lq-qc"), 1, "a LocalQueue that exists. Did you mean lq-cq?"),
        (("queue", "pending", "--queue", "cqq"), 1, "a ClusterQueue's name. Did you mean cq?"),
        (("queue", "stop", "cqq"), 1, "a ClusterQueue that exists. Did you mean cq?"),
        (("stop", "lq", "lq-qc", "-n", "team"), 1, "a LocalQueue that exists. Did you mean lq-cq?"),
        (("queue", "pending", "--local", "a/b", "--queue", "c"), 2, "found both, expected one"),
        (("queue", "pending", "--local", "a/b/c"), 2, '--local: found "a/b/c", expected NAMESPACE/NAME'),
        (("queue", "stop", ""), 2, 'found "", expected a ClusterQueue, or NAMESPACE/NAME of a LocalQueue'),
        (("queue", "resume", "a/b/c"), 2, 'found "a/b/c", expected a ClusterQueue, or NAMESPACE/NAME of a LocalQueue'),
        (("explain", "a/b/c"), 2, 'found "a/b/c", expected NAME or NAMESPACE/NAME'),
        (("queue", "list", "--controller", "tessera"), 2, 'found "tessera", expected NAMESPACE/SERVICE'),
        (("queue", "list", "--server", "tessera"), 2, 'found "tessera", expected https://HOST or https://HOST:PORT'),
        (("queue", "list", "--server", "http://tessera"), 2, "expected https://HOST or https://HOST:PORT"),
        (("queue", "list", "--server", "https://a b"), 2, 'found "https://a b", expected https://HOST or'),
        (("queue", "list", "--server", "https://a:99999"), 2, "expected https://HOST or https://HOST:PORT"),
        (("queue", "list", "--server", "https://[::1"), 2, "expected https://HOST or https://HOST:PORT"),
        (("queue", "list", "--server", "https://a?b=c"), 2, "expected https://HOST or https://HOST:PORT"),
        (("queue", "list", "--server", "https://me:secret@a"), 2, 'found "https://a", expected https://HOST or'),
        (("queue", "list", "--kubeconfig", "/nowhere"), 1, "/nowhere: found no such file, expected a kubeconfig file"),
        (("queue", "list", "--offline", "--config", "/nowhere"), 2, "/nowhere: found no such file or directory"),
    ],
)
async def test_mistakes_are_one_line(shell: Shell, words: tuple[str, ...], code: int, said: str) -> None:
    shell.scene.queue()
    assert said in (await shell.run(*words, code=code)).stderr


async def test_an_api_server_that_is_away_is_one_line(shell: Shell) -> None:
    shell.scene.server.down = True
    (error,) = (await shell.run("queue", "list", code=1)).stderr.splitlines()
    assert error.startswith("Error: the API server cannot be reached: GET /api")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, b"404 page not found\n", "this cluster does not have the kind. Install Tessera's CRDs"),
        (404, b'{"kind": "Status", "reason": "NotFound", "message": "no such cq"}', "GET /apis/x: 404 no such cq"),
        (401, b'{"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"}', "expected credentials in"),
        (403, b'{"kind": "Status", "reason": "Forbidden", "message": "you may not"}', "GET /apis/x: 403 you may not"),
    ],
)
def test_what_the_api_server_refuses_is_said_with_what_to_do(status: int, body: bytes, said: str) -> None:
    async def refused() -> None:
        raise from_response("GET /apis/x", status, body)

    with pytest.raises(click.ClickException) as failed:
        run(refused())
    assert said in failed.value.message
    assert "\n" not in failed.value.message


def test_what_is_lacking_is_written_like_what_is_needed() -> None:
    given = {"resource": "memory", "needed": "512Gi", "nominal": "256Gi", "used": "64Gi", "available": "192Gi"}
    row = _row(given)
    assert (row["lacking"], row["quotaLeft"], row["borrowable"]) == ("320Gi", "192Gi", "0")
    row = _row({**given, "needed": "1500m", "available": "1", "used": "255Gi"})
    assert row["lacking"] == "500m"


async def test_moves_are_advised_on_from_the_api_servers_objects(shell: Shell) -> None:
    async with busy(shell):
        found = await shell.json("advise", "--pack")
        assert (found["source"], found["plans"]) == ("API server", [])


async def test_lists_are_given_wide_as_names_and_as_yaml(shell: Shell) -> None:
    async with busy(shell):
        assert (await shell.run("queue", "list", "-o", "name")).stdout.splitlines() == [
            "clusterqueue.kueue.x-k8s.io/cq",
            "clusterqueue.kueue.x-k8s.io/elsewhere",
            "localqueue.kueue.x-k8s.io/lq-cq",
            "localqueue.kueue.x-k8s.io/lq-elsewhere",
        ]
        wide = (await shell.run("queue", "list", "-o", "wide")).stdout.splitlines()
        assert wide[1].split()[4:7] == ["running", "reserving", "share"]
        assert wide[2].split()[:7] == ["cq", "-", "open", "2", "1", "1", "0"]
        assert wide[-3].split()[-2:] == ["running", "reserving"]
        assert wide[-2].split()[:3] == ["team/lq-cq", "cq", "open"]
        names = (await shell.run("queue", "pending", "-o", "name")).stdout.splitlines()
        assert names == ["workload.kueue.x-k8s.io/b", "workload.kueue.x-k8s.io/c"]
        parked = (await shell.run("queue", "pending", "-o", "wide")).stdout.splitlines()
        assert {line.split()[-1] for line in parked[2:4]} <= {"yes", "no"}
        told = yaml.safe_load((await shell.run("queue", "pending", "--queue", "cq", "-o", "yaml")).stdout)
        assert [one["workload"] for one in told["clusterQueues"][0]["pending"]] == ["team/b", "team/c"]


async def test_versions_of_the_controller_and_of_the_agents_are_told(shell: Shell) -> None:
    async with busy(shell):
        shell.scene.server.create(GPU_NODES, "n-1", {"status": {"agentVersion": "9.9.9"}})
        found = await shell.json("version")
        assert found["controller"] == {"version": found["client"]}
        assert found["agents"] == [{"version": "9.9.9", "nodes": 1}]
        shell.door.forbidden = "openapi|gpunodes"
        told = (await shell.run("version")).stdout.splitlines()
        assert len(told) == 3
        assert "is forbidden" in told[1]
        assert "is forbidden" in told[2]
