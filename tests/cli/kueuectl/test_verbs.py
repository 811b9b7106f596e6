"""The verbs of ``kubectl kueue``: each row of the page runs, and what it does is what it says."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.kueuectl import passthrough
from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, JOBS, LOCAL_QUEUES, WORKLOADS
from controller.jobs.framework import names
from kube.resources import PODS
from tests.support.cli.shell import Shell

PAGE = Path(__file__).parents[3] / "docs/kueuectl.md"
ROWS = re.findall(r"^\| `kubectl kueue ([^`]+)` \| `tessera ([^`]+)` \|$", PAGE.read_text(), re.MULTILINE)


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What kubectl is called with; it ends with 7."""
    called: list[list[str]] = []

    def call(words: list[str]) -> int:
        called.append(words[1:])
        return 7

    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    return called


@pytest.fixture
def team(shell: Shell) -> Shell:
    """A queue with the job ``train``, its Workload and its pod."""
    scene, server = shell.scene, shell.scene.server
    scene.queue()
    server.create(JOBS, "train", {"metadata": {"labels": {names.QUEUE_NAME: "lq-cq"}}}, namespace="team")
    uid = server.get(JOBS, "train", namespace="team")["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    scene.workload("job-train-1", 2)
    server.merge(WORKLOADS, "job-train-1", {"metadata": {"ownerReferences": [owner]}}, namespace="team")
    pod = {"metadata": {"annotations": {names.WORKLOAD: "job-train-1"}}, "status": {"phase": "Running"}}
    server.create(PODS, "train-0", pod, namespace="team")
    return shell


async def test_each_row_of_the_page_runs(team: Shell, handed: list[list[str]]) -> None:
    assert len(ROWS) > 25
    for _, line in ROWS:
        words = shlex.split(line)
        before = len(handed)
        passed = words[0] in passthrough.VERBS or (words[0] == "delete" and words[1] != "workload")
        await team.run(*words, code=7 if passed else 0)
        assert len(handed) - before == passed, line


def test_each_verb_of_kueuectl_has_a_row() -> None:
    verbs = {" ".join(theirs.split()[:2]) for theirs, _ in ROWS}
    kinds = ("clusterqueue", "localqueue", "resourceflavor")
    expected = {f"create {kind}" for kind in kinds} | {f"list {kind}" for kind in (*kinds, "workload", "pods")}
    expected |= {f"{verb} {kind}" for verb in ("stop", "resume") for kind in (*kinds[:2], "workload")}
    expected |= {f"delete {kind}" for kind in (*kinds, "workload")}
    assert expected <= verbs
    assert {"get", "describe", "edit", "patch", "version", "completion"} <= {each.split()[0] for each in verbs}


async def test_what_is_created_is_there_and_a_dry_run_leaves_nothing(team: Shell) -> None:
    server = team.scene.server
    words = ("create", "cq", "new", "--cohort", "c", "--nominal-quota", "default:cpu=9")
    for how in ("client", "server"):
        said = (await team.run(*words, "--dry-run", how)).stdout
        assert said == f"clusterqueue.kueue.x-k8s.io/new created ({how} dry run)\n"
        assert [each["metadata"]["name"] for each in server.list_all(CLUSTER_QUEUES)] == ["cq"]
    assert (await team.run(*words)).stdout == "clusterqueue.kueue.x-k8s.io/new created\n"
    spec = server.get(CLUSTER_QUEUES, "new")["spec"]
    assert (spec["cohortName"], spec["queueingStrategy"], spec["namespaceSelector"]) == ("c", "BestEffortFIFO", {})
    assert spec["preemption"] == {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"}
    assert "409" in (await team.run(*words, code=1)).stderr
    made = await team.json("create", "lq", "mine", "-c", "new")
    assert made["spec"] == server.get(LOCAL_QUEUES, "mine", namespace="team")["spec"] == {"clusterQueue": "new"}
    said = (await team.run("create", "lq", "other", "-c", "no", code=1)).stderr
    assert '-c: found "no", expected a ClusterQueue that exists (--ignore-unknown-cq passes over it)' in said
    await team.run("create", "rf", "spot", "--node-labels", "a=b,c=d")
    assert server.get(FLAVORS, "spot")["spec"] == {"nodeLabels": {"a": "b", "c": "d"}}
    said = (await team.run("create", "cq", "x", "--nominal-quota", "cpu=1", code=2)).stderr
    assert '--nominal-quota: found "cpu=1", expected FLAVOR:RESOURCE=AMOUNT' in said


async def test_queues_are_stopped_with_what_runs_or_without(team: Shell) -> None:
    server = team.scene.server

    def policies() -> tuple[Any, Any]:
        local = server.get(LOCAL_QUEUES, "lq-cq", namespace="team")["spec"].get("stopPolicy")
        return server.get(CLUSTER_QUEUES, "cq")["spec"].get("stopPolicy"), local

    assert (await team.run("stop", "cq", "cq")).stdout == "ClusterQueue cq: stopPolicy HoldAndDrain (was None)\n"
    await team.run("stop", "lq", "lq-cq", "--keep-already-running")
    assert policies() == ("HoldAndDrain", "Hold")
    said = (await team.run("resume", "clusterqueues", "cq", "--dry-run", "server")).stdout
    assert said == "ClusterQueue cq: stopPolicy None (was HoldAndDrain) (dry run: server)\n"
    assert policies() == ("HoldAndDrain", "Hold")
    await team.run("resume", "lq", "lq-cq", "-n", "team")
    assert policies() == ("HoldAndDrain", "None")
    assert "expected a LocalQueue that exists" in (await team.run("stop", "lq", "no", code=1)).stderr


async def test_lists_have_columns_filters_and_names(team: Shell) -> None:
    active = [{"type": "Active", "status": "True"}]
    team.scene.server.merge(CLUSTER_QUEUES, "cq", {"status": {"conditions": active, "pendingWorkloads": 3}})
    lines = (await team.run("list", "cq", "--active", "true", "-o", "wide")).stdout.splitlines()
    assert lines[2].split()[:5] == ["cq", "-", "3", "0", "True"]
    assert lines[2].split()[-3:] == ["-", "None", "default"]
    assert (await team.run("list", "cq", "--active", "false")).stdout == "No ClusterQueue is found.\n"
    assert (await team.run("list", "lq", "-o", "name")).stdout == "localqueue.kueue.x-k8s.io/lq-cq\n"
    assert (await team.run("list", "lq", "-A", "-c", "no", "-o", "name")).stdout == ""
    found = await team.json("list", "rf")
    assert (found["kind"], [each["metadata"]["name"] for each in found["items"]]) == ("ResourceFlavorList", ["default"])
    pods = (await team.run("list", "pods", "--for", "job/train")).stdout.splitlines()
    assert pods[2].split()[:2] == ["train-0", "Running"]
    assert "expected TYPE/NAME" in (await team.run("list", "pods", "--for", "train", code=2)).stderr


async def test_a_workload_is_deleted_with_its_job_after_a_yes(team: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    server = team.scene.server
    team.scene.workload("alone", 1)
    monkeypatch.setattr("cli.evictions.on_terminal", lambda: True)
    refused = await team.run("delete", "workload", "train", "alone", code=1)
    assert "job.batch/train in team" in refused.stderr
    assert len(server.list_all(JOBS)) == 1
    said = (await team.run("delete", "wl", "--all", "--dry-run", "server")).stdout.splitlines()
    assert said == [
        "workload.kueue.x-k8s.io/alone in team deleted (server dry run)",
        "job.batch/train in team deleted (server dry run)",
    ]
    assert len(server.list_all(JOBS)) == 1
    await team.run("delete", "wl", "train", "alone", "-y")
    assert server.list_all(JOBS) == []
    assert [each["metadata"]["name"] for each in server.list_all(WORKLOADS)] == ["job-train-1"]
    for words in (("delete", "workload"), ("delete", "workload", "a", "--all")):
        assert "expected one of them" in (await team.run(*words, code=2)).stderr


async def test_kubectls_words_are_handed_over_as_they_are(team: Shell, handed: list[list[str]]) -> None:
    await team.run("get", "cq", "-o", "yaml", "--context", "x", "-h", code=7)
    await team.run("delete", "lq", "a", "-n", "team", "--wait=false", code=7)
    assert handed == [
        ["get", "clusterqueues.kueue.x-k8s.io", "-o", "yaml", "--context", "x", "-h"],
        ["delete", "localqueues.kueue.x-k8s.io", "a", "-n", "team", "--wait=false"],
    ]
    assert 'found "jobs", expected one of clusterqueue (cq), ' in (await team.run("get", "jobs", code=2)).stderr


async def test_without_kubectl_it_says_so(team: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    said = (await team.run("describe", "wl", "w", code=1)).stderr
    assert said.startswith("Error: kubectl: found no such program in $PATH")


async def test_all_are_deleted_though_the_job_of_one_is_gone(team: Shell) -> None:
    server = team.scene.server
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "u2", "controller": True}
    team.scene.workload("a-first", 1)
    server.merge(WORKLOADS, "a-first", {"metadata": {"ownerReferences": [owner]}}, namespace="team")
    await team.run("delete", "wl", "--all", "--yes")
    assert server.list_all(JOBS) == []


async def test_a_name_forges_no_line_of_what_is_deleted(team: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.evictions.on_terminal", lambda: True)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x\n  job.batch/y", "uid": "u", "controller": True}
    team.scene.server.merge(WORKLOADS, "job-train-1", {"metadata": {"ownerReferences": [owner]}}, namespace="team")
    refused = await team.run("delete", "wl", "job-train-1", code=1)
    assert refused.stderr.splitlines()[1] == "  job.batch/x\\n  job.batch/y in team"


async def test_of_a_group_of_pods_each_is_deleted_and_none_is_moved(team: Shell) -> None:
    server = team.scene.server
    team.scene.workload("group", 1)
    for name in ("p", "q"):
        server.create(PODS, name, {"metadata": {"annotations": {names.WORKLOAD: "group"}}}, namespace="team")
    uids = {name: server.get(PODS, name, namespace="team")["metadata"]["uid"] for name in ("p", "q")}
    references = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uids[name]} for name in ("p", "q")]
    metadata = {"annotations": {names.JOB_OWNER_NAME: "group"}, "ownerReferences": references}
    server.merge(WORKLOADS, "group", {"metadata": metadata}, namespace="team")
    server.create(LOCAL_QUEUES, "other", {"spec": {"clusterQueue": "cq"}}, namespace="team")
    refused = await team.run("workload", "move", "group", "--to", "other", code=1)
    assert "team/group: found a group of 2 pods, expected a job" in refused.stderr
    said = (await team.run("delete", "wl", "group", "--yes")).stdout
    assert said == "pod/p in team deleted\npod/q in team deleted\n"
    assert [each["metadata"]["name"] for each in server.list_all(PODS)] == ["train-0"]
    assert "pod" not in (await team.run("workload", "story", "group")).stderr


async def test_a_job_that_was_created_anew_meanwhile_is_not_deleted(team: Shell) -> None:
    server = team.scene.server
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "an-earlier-one", "controller": True}
    server.merge(WORKLOADS, "job-train-1", {"metadata": {"ownerReferences": [owner]}}, namespace="team")
    refused = await team.run("delete", "wl", "job-train-1", "--yes", code=1)
    assert "job.batch/train in team: found another object of that name" in refused.stderr
    assert len(server.list_all(JOBS)) == 1


async def test_of_jobs_of_several_kinds_under_one_name_the_type_says_which(team: Shell) -> None:
    server = team.scene.server
    team.scene.workload("other", 1)
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "p", "controller": True}
    server.merge(WORKLOADS, "other", {"metadata": {"ownerReferences": [owner]}}, namespace="team")
    refused = await team.run("workload", "show", "train", code=1)
    assert "found jobs of several kinds called train, expected one of job-train-1 (of a Job), other" in refused.stderr
    assert "train-0" in (await team.run("list", "pods", "--for", "job/train")).stdout
    assert "train-0" not in (await team.run("list", "pods", "--for", "pytorchjob/train")).stdout
    assert (
        "expected a Workload or a job that exists"
        in (await team.run("list", "pods", "--for", "mpijob/train", code=1)).stderr
    )
    assert "expected a Workload" in (await team.run("list", "pods", "--for", "wl/train", code=1)).stderr
