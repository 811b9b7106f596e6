"""``tessera workload`` against an API server in this process."""

import pytest

from controller.cluster.watching.kinds import JOBS, LOCAL_QUEUES, NAMESPACES, WORKLOAD_CLASSES, WORKLOADS
from controller.jobs.framework import names
from kube.resources import EVENTS, PODS
from tests.support.cli.shell import Shell

AT = "2026-11-21T10:00:00Z"


@pytest.fixture
def queued(shell: Shell) -> Shell:
    """A job ``train`` with its Workload, which waits; a Workload ``alone`` that runs, with a pod."""
    scene, server = shell.scene, shell.scene.server
    scene.queue()
    scene.make(LOCAL_QUEUES, "big", {}, namespace="team", spec={"clusterQueue": "cq"})
    scene.make(WORKLOAD_CLASSES, "high", {}, value=1000)
    server.create(JOBS, "train", {"metadata": {"labels": {names.QUEUE_NAME: "lq-cq"}}}, namespace="team")
    uid = server.get(JOBS, "train", namespace="team")["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    scene.workload("job-train-1", 2)
    server.merge(WORKLOADS, "job-train-1", {"metadata": {"ownerReferences": [owner]}}, namespace="team")
    scene.workload("alone", 1)
    holds = [
        {"type": type_, "status": "True", "reason": type_, "lastTransitionTime": AT}
        for type_ in ("QuotaReserved", "Admitted")
    ]
    flavors = {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": 1}
    admission = {"clusterQueue": "cq", "podSetAssignments": [flavors]}
    status = {"conditions": holds, "admission": admission}
    server.merge(WORKLOADS, "alone", {"status": status}, namespace="team")
    pod = {"metadata": {"annotations": {names.WORKLOAD: "alone"}}, "spec": {"nodeName": "n-1"}}
    server.create(PODS, "alone-0", {**pod, "status": {"phase": "Running"}}, namespace="team")
    return shell


async def test_a_list_is_of_the_callers_namespace_or_of_all(queued: Shell) -> None:
    queued.scene.workload("far", 1, namespace="elsewhere")
    lines = (await queued.run("workload", "list")).stdout.splitlines()
    assert [line.split()[:6] for line in lines[2:]] == [
        ["alone", "-", "-", "lq-cq", "cq", "Admitted"],
        ["job-train-1", "Job", "train", "lq-cq", "cq", "Pending"],
    ]
    everywhere = (await queued.run("workload", "list", "-A", "-o", "name")).stdout.splitlines()
    assert everywhere == [f"workload.kueue.x-k8s.io/{name}" for name in ("far", "alone", "job-train-1")]
    assert (await queued.run("workload", "list", "-n", "nowhere")).stdout == "No workload is found.\n"
    wide = (await queued.run("workload", "list", "--for", "jobs.batch/train", "-o", "wide")).stdout.splitlines()
    assert len(wide) == 3
    assert wide[2].split()[-6:] == ["0", "-", "1", "cpu", "2", "-"]
    found = await queued.json("workload", "list", "--status", "admitted", "-c", "cq")
    assert (found["kind"], [each["metadata"]["name"] for each in found["items"]]) == ("WorkloadList", ["alone"])


async def test_places_come_from_the_visibility_api_where_it_is_served(queued: Shell) -> None:
    from cli.workload.read import PENDING

    items = [{"metadata": {"name": "job-train-1", "namespace": "team"}, "positionInLocalQueue": 4}]
    queued.scene.server.create(PENDING, "lq-cq", {"items": items}, namespace="team")
    lines = (await queued.run("workload", "list", "--status", "pending")).stdout.splitlines()
    assert lines[2].split()[6] == "5"
    queued.scene.server.merge(PENDING, "lq-cq", {"items": [{"positionInLocalQueue": "x"}]}, namespace="team")
    assert (await queued.run("workload", "list", "--status", "pending")).stdout.splitlines()[2].split()[6] == "-"


async def test_a_job_of_another_namespace_is_named_where_all_may_be_listed(queued: Shell) -> None:
    server = queued.scene.server
    server.create(NAMESPACES, "research")
    server.create(WORKLOADS, "bert", {"spec": {"podSets": []}}, namespace="research")
    for asked, meant in (("bert", "research/bert"), ("brt", "research/bert"), ("trian", "train")):
        told = (await queued.run("explain", asked, code=1)).stderr
        assert told.endswith(f"or pod/NAME. Did you mean {meant}?\n")
    queued.door.forbidden = "v1beta2/workloads$"
    assert "Did you mean" not in (await queued.run("explain", "bert", code=1)).stderr


async def test_one_is_shown_with_what_it_was_given_and_its_pods(queued: Shell) -> None:
    told = (await queued.run("workload", "show", "alone")).stdout
    assert told.startswith("team/alone: Admitted\nLocalQueue lq-cq, priority 0, ClusterQueue cq\nRequests cpu 1\n")
    assert "alone-0  Running  n-1" in told
    found = await queued.json("workload", "show", "train")
    assert (found["workload"]["metadata"]["name"], found["state"], found["pods"]) == ("job-train-1", "Pending", [])


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("state", ["holds", "waits", "over"])
async def test_of_a_jobs_workloads_of_one_second_the_one_that_holds_quota_is_meant(
    queued: Shell, first: str, second: str, state: str
) -> None:
    """``second`` replaces ``first``: it is the growth of a gang, or a later slice of an elastic job."""
    scene, server = queued.scene, queued.scene.server
    owners = server.get(WORKLOADS, "job-train-1", namespace="team")["metadata"]["ownerReferences"]
    server.delete(WORKLOADS, "job-train-1", namespace="team")
    said = {"holds": ["QuotaReserved"], "waits": ["Finished"], "over": ["QuotaReserved", "Finished"]}[state]
    for name, follows, types in ((first, "", said), (second, first, ["Finished"] if state == "over" else [])):
        scene.workload(name, 1)
        notes = {names.REPLACEMENT_FOR: f"team/{follows}"} if follows else {}
        meta = {"ownerReferences": owners, "annotations": notes, "creationTimestamp": AT}
        true = [{"type": each, "status": "True", "reason": each, "lastTransitionTime": AT} for each in types]
        server.merge(WORKLOADS, name, {"metadata": meta, "status": {"conditions": true}}, namespace="team")
    meant = first if state == "holds" else second
    found = await queued.json("workload", "show", "train")
    assert found["workload"]["metadata"]["name"] == meant
    if state != "over":
        await queued.run("workload", "stop", "train", "--yes")
        specs = {each: server.get(WORKLOADS, each, namespace="team")["spec"] for each in (first, second)}
        assert {each for each, spec in specs.items() if not spec.get("active", True)} == {meant}


async def test_a_story_has_conditions_the_job_pods_and_events(queued: Shell) -> None:
    for name, kind in (("e1", "Workload"), ("e2", "Pod")):
        about = {"kind": kind, "name": {"Workload": "alone", "Pod": "alone-0"}[kind]}
        body = {"metadata": {}, "regarding": about, "reason": f"On{kind}", "note": "x", "eventTime": AT}
        queued.scene.server.create(EVENTS, name, body, namespace="team")
    body = {"metadata": {}, "regarding": {"kind": "Pod", "name": "other"}, "reason": "Strange", "eventTime": AT}
    queued.scene.server.create(EVENTS, "e3", body, namespace="team")
    whats = {each["what"] for each in (await queued.json("workload", "story", "alone"))["story"]}
    assert {"QuotaReserved", "Admitted", "created", "OnWorkload", "OnPod"} <= whats
    assert "Strange" not in whats
    lines = (await queued.run("workload", "story", "alone")).stdout.splitlines()
    assert lines[0] == "Story of team/alone"
    assert len(lines) == 2 + len((await queued.json("workload", "story", "alone"))["story"])


async def test_a_story_without_the_right_to_pods_and_events_is_told_from_the_rest(queued: Shell) -> None:
    queued.door.forbidden = "/pods$|/events$"
    told = await queued.run("workload", "story", "alone")
    assert "Admitted" in told.stdout
    assert [line.partition(":")[0] for line in told.stderr.splitlines()] == ["note"] * 2


async def test_stop_and_resume_write_the_field_and_a_dry_run_nothing(queued: Shell) -> None:
    server = queued.scene.server

    def active() -> bool:
        return bool(server.get(WORKLOADS, "alone", namespace="team")["spec"].get("active", True))

    for how in ("client", "server"):
        said = (await queued.run("workload", "stop", "alone", "--dry-run", how)).stdout
        assert said == f"Workload team/alone: stopped (dry run: {how})\n"
        assert active()
    assert (await queued.run("workload", "stop", "alone")).stdout == "Workload team/alone: stopped\n"
    assert not active()
    found = await queued.json("workload", "resume", "team/alone")
    assert (found["workload"], found["patch"], found["dryRun"]) == ("team/alone", {"spec": {"active": True}}, "none")
    assert active()


async def test_a_move_and_a_raise_label_the_job(queued: Shell) -> None:
    said = (await queued.run("workload", "move", "train", "--to", "big")).stdout
    assert said == "Workload team/job-train-1: moved to LocalQueue big (was lq-cq)\n"
    await queued.run("workload", "raise", "train", "--class", "high")
    labels = queued.scene.server.get(JOBS, "train", namespace="team")["metadata"]["labels"]
    assert labels == {names.QUEUE_NAME: "big", names.PRIORITY_CLASS: "high"}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("workload move alone --to big", 1, "found a Workload that holds quota, expected one that waits: stop it"),
        ("workload move train --to no", 1, '--to: found "no", expected a LocalQueue that exists in team'),
        ("workload raise train --class no", 1, '--class: found "no", expected a WorkloadPriorityClass that exists'),
        ("workload raise alone --class high", 1, "found no class on a Workload that holds quota"),
        ("workload stop nobody", 1, "WORKLOAD: found team/nobody, expected a Workload or a job that exists"),
        ("workload move train --to bgi", 1, "exists in team. Did you mean big?"),
        ("workload raise train --class hihg", 1, "that exists. Did you mean high?"),
        ("workload stop trian", 1, "or pod/NAME. Did you mean train?"),
        ("explain teem/train", 1, "or pod/NAME. There is no namespace teem. Did you mean team?"),
        ("workload show a/b/c", 2, 'found "a/b/c", expected NAME or NAMESPACE/NAME'),
        ("workload list --for train", 2, '--for: found "train", expected TYPE/NAME such as job/bert'),
    ],
)
async def test_mistakes_are_one_sentence(queued: Shell, words: str, code: int, said: str) -> None:
    told = (await queued.run(*words.split(), code=code)).stderr.splitlines()[-1]
    assert told.startswith("Error: ")
    assert said in told


async def test_what_rbac_refuses_is_told(queued: Shell) -> None:
    queued.door.forbidden = "/workloads/alone$"
    assert "forbidden" in (await queued.run("workload", "stop", "alone", code=1)).stderr
