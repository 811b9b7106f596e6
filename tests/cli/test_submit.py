"""``tessera submit`` beside a whole controller and an API server in this process."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.printing.console import patience
from cli.submit import state_of
from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.kinds import JOBS, LOCAL_QUEUES, NAMESPACES, WORKLOAD_CLASSES, WORKLOADS
from inventory.api.names import RUNTIME
from kube.resources import Resource
from kube.testing import eventually
from tests.support.cli.shell import Shell
from tests.support.controller.stage import CONFIG, config

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)


def served() -> ControllerConfig:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return config(f"{CONFIG}webhook: {{host: 127.0.0.1, port: {free.getsockname()[1]}}}\n")


@asynccontextmanager
async def busy(shell: Shell) -> AsyncIterator[None]:
    """``holds`` has one of two cpus for an hour."""
    scene = shell.scene
    scene.queue(cpus=2)
    for resource in (JOBS, WORKLOADS, CONFIG_MAPS):
        scene.server.install(resource)
    async with scene.controller(served(), core_only=False) as process:
        shell.door.behind = process
        scene.workload("holds", 1, annotations={RUNTIME: "3600s"})
        await scene.until_admitted("holds")
        yield


def file(folder: Path, *objects: dict[str, Any]) -> str:
    made = folder / "objects.json"
    made.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(made)


def job(name: str, cpus: int, queue: str = "lq-cq") -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": str(cpus)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


async def test_what_would_become_of_a_job_is_told_and_nothing_is_created(shell: Shell, tmp_path: Path) -> None:
    async with busy(shell):
        given = file(tmp_path, job("large", 2), job("small", 1), {**job("none", 1), "metadata": {"name": "none"}})
        found = await shell.json("submit", "--dry-run", given)
        large, small, none = found["items"]
        assert (large["startsNow"], large["clusterQueue"]) == (False, "cq")
        assert "1 more needed" in large["sentence"]
        assert large["forecast"]["toSeconds"] > 600.0
        assert [change["kind"] for change in large["forecast"]["changes"]] == ["ends"]
        assert (small["startsNow"], small["sentence"], small["created"]) == (True, None, False)
        assert (none["startsNow"], none["forecast"]) == (None, None)
        text = (await shell.run("submit", "--dry-run", given)).stdout
        for part in (
            "Job team/large passes the API server's checks",
            "It would wait in ClusterQueue cq",
            "Likely start",
        ):
            assert part in text
        assert "It would start at once, in ClusterQueue cq" in text
        assert "When team/holds (1 cpu) ends" in text
        assert list(shell.scene.server.list_all(JOBS)) == []


async def test_a_job_is_created_and_followed_into_its_queue(shell: Shell, tmp_path: Path) -> None:
    async with busy(shell):
        found = await shell.json("submit", file(tmp_path, job("large", 2)))
        (row,) = found["items"]
        assert (row["created"], row["clusterQueue"], row["position"]) == (True, "cq", 0)
        assert row["workload"].startswith("team/job-large-")
        assert row["forecast"]["ahead"] == 0
        text = (await shell.run("submit", file(tmp_path, job("next", 2)))).stdout
        assert "position 2 in the queue" in text


async def test_a_name_may_be_left_to_the_api_server_and_what_is_created_before_a_failure_is_told(
    shell: Shell, tmp_path: Path
) -> None:
    async with busy(shell):
        first = {**job("first", 1), "metadata": {"generateName": "first-", "labels": job("", 1)["metadata"]["labels"]}}
        strange = {"apiVersion": "x.io/v1", "kind": "Y", "metadata": {"name": "y"}}
        given = file(tmp_path, first, strange, job("never", 1))
        found = await shell.run("submit", given, "-o", "json", code=1)
        assert "expected a kind that the API server has" in found.stderr
        (row,) = json.loads(found.stdout)["items"]
        assert (row["created"], row["clusterQueue"]) == (True, "cq")
        assert row["name"].startswith("first-")
        (kept,) = shell.scene.server.list_all(JOBS)
        assert kept["metadata"]["name"] == row["name"]


async def test_with_wait_it_ends_when_the_job_is_admitted(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.submit._WAIT_LOOK_S", 0.05)
    async with busy(shell):
        text = (await shell.run("submit", "--wait", file(tmp_path, job("small", 1)))).stdout
        assert text.splitlines()[0] == "Job team/small created"
        await eventually(lambda: len(list(shell.scene.server.list_all(WORKLOADS))) == 2)


async def test_who_waits_for_admission_is_told_how_much_is_not_admitted_yet(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.submit._WAIT_LOOK_S", 0.05)
    begun: list[str] = []

    def at_once(what: Callable[[], str]) -> AbstractAsyncContextManager[None]:
        begun.append(what())
        return patience(what, quiet_s=0.0)

    monkeypatch.setattr("cli.submit.patience", at_once)
    async with busy(shell):
        waits = asyncio.create_task(shell.run("submit", "--wait", file(tmp_path, job("second", 2))))
        await eventually(lambda: "1 of 1 not admitted yet" in begun)
        shell.scene.finish("holds")
        done = await waits
    assert "1 of 1 not admitted yet, 0 s" in done.stderr
    assert done.stdout.splitlines()[-1].endswith(": Admitted")


DRY = pytest.mark.parametrize("dry", [(), ("--dry-run",)])


@DRY
async def test_an_unknown_field_is_refused_unless_it_may_be_there(
    shell: Shell, tmp_path: Path, dry: tuple[str, ...]
) -> None:
    async with busy(shell):
        wrong = job("one", 1)
        wrong["spec"]["paralelism"] = 3
        given = file(tmp_path, wrong)
        told = (await shell.run("submit", *dry, given, code=2)).stderr
        said = "Job one: spec.paralelism: found an unknown field, expected parallelism. Correct it, or use --allow-un"
        assert told.startswith(f"Error: {given}:1: {said}")
        assert list(shell.scene.server.list_all(JOBS)) == []
        told = (await shell.run("submit", *dry, "--allow-unknown-fields", given)).stderr
        assert "note: " in told
        assert told.endswith("expected parallelism; passed over\n")


@DRY
async def test_a_class_that_is_not_there_is_refused_with_those_that_are(
    shell: Shell, tmp_path: Path, dry: tuple[str, ...]
) -> None:
    async with busy(shell):
        shell.scene.server.create(WORKLOAD_CLASSES, "higher", {"value": 9})
        wrong = job("one", 1)
        wrong["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
        told = (await shell.run("submit", *dry, file(tmp_path, job("good", 1), wrong), code=2)).stderr
        path = "metadata.labels[kueue.x-k8s.io/priority-class]"
        said = f'Job one: {path}: found "high", expected a WorkloadPriorityClass: higher. Create it, or correct'
        (line,) = told.splitlines()
        assert f"objects.json:1: {said} the label. Did you mean higher?" in line
        assert list(shell.scene.server.list_all(JOBS)) == []
        brought = {"apiVersion": WORKLOAD_CLASSES.api_version, "kind": "WorkloadPriorityClass", "value": 1}
        shell.scene.server.install(WORKLOAD_CLASSES)
        given = file(tmp_path, {**brought, "metadata": {"name": "high"}}, wrong)
        assert "priority-class" not in (await shell.run("submit", given)).stderr


async def test_classes_that_may_not_be_read_are_told_to_be_left_out(shell: Shell, tmp_path: Path) -> None:
    async with busy(shell):
        shell.door.forbidden = "workloadpriorityclasses"
        wrong = job("one", 1)
        wrong["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
        told = (await shell.run("submit", "--dry-run", file(tmp_path, wrong))).stderr
        assert "note: priority classes are not looked up: " in told
        (line,) = [line for line in told.splitlines() if "there is no forecast" in line]
        assert line == (
            "note: there is no forecast: metadata.labels[kueue.x-k8s.io/priority-class]: found 'high', expected a"
            " WorkloadPriorityClass that exists"
        )


@DRY
async def test_a_label_that_is_almost_the_queues_is_refused_with_the_queues_of_the_namespace(
    shell: Shell, tmp_path: Path, dry: tuple[str, ...]
) -> None:
    async with busy(shell):
        wrong = {**job("one", 1), "metadata": {"name": "one", "labels": {"kueue.x-k8s.io/queue": "lq-cp"}}}
        error = (await shell.run("submit", *dry, file(tmp_path, wrong), code=2)).stderr.splitlines()[-1]
        assert "Job one: metadata.labels[kueue.x-k8s.io/queue]: found the label kueue.x-k8s.io/queue, expected" in error
        assert "expected the label kueue.x-k8s.io/queue-name with a LocalQueue of team: lq-cq. Correct it" in error
        assert list(shell.scene.server.list_all(JOBS)) == []


POLICY = "jobs.batch \"one\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
REFUSALS = [
    (422, POLICY + "spec.template: expected a container, found none", "spec.template: found none, expected a contain"),
    (403, POLICY + "spec.template: too large", "spec.template: too large"),
    (403, 'admission webhook "w" denied the request: spec.parallelism: too many', "spec.parallelism: too many"),
    (
        422,
        'Job.batch "one" is invalid: spec.template.spec.containers: Required value',
        "spec.template.spec.containers: Required value",
    ),
    (400, "no kind of that name", "no kind of that name"),
    (
        403,
        "policy 'p' with binding 'b' denied request: expression '[a.?b + c]' resulted in error: got 'types.Null', no y",
        "found an object that the policy p cannot read (resulted in error: got 'types.Null', no y)",
    ),
]


@pytest.mark.parametrize(("status", "message", "said"), REFUSALS)
async def test_what_the_api_server_refuses_is_a_line_of_the_file(
    shell: Shell, tmp_path: Path, status: int, message: str, said: str
) -> None:
    async with busy(shell):
        shell.door.refuses["/jobs$"] = (status, message)
        (line,) = (await shell.run("submit", file(tmp_path, job("one", 1)), code=2)).stderr.splitlines()
        assert f"objects.json:1: Job one: {said}" in line
        assert "POST" not in line


async def test_a_right_that_the_sender_lacks_is_no_fault_of_the_file(shell: Shell, tmp_path: Path) -> None:
    async with busy(shell):
        shell.door.forbidden = "/jobs$"
        assert "is forbidden" in (await shell.run("submit", file(tmp_path, job("one", 1)), code=1)).stderr


def spaces(shell: Shell, *names: str) -> None:
    shell.scene.server.checks_namespaces = True
    for name in names:
        shell.scene.server.create(NAMESPACES, name)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
async def test_a_queue_that_is_not_there_is_a_warning_with_those_of_the_namespace(
    shell: Shell, tmp_path: Path, dry: tuple[str, ...]
) -> None:
    async with busy(shell):
        shell.scene.server.create(LOCAL_QUEUES, "other", {"spec": {"clusterQueue": "cq"}}, namespace="team")
        shell.scene.server.create(LOCAL_QUEUES, "theirs", {"spec": {"clusterQueue": "cq"}}, namespace="apart")
        found = await shell.run("submit", *dry, file(tmp_path, job("one", 1, "lq-cp"), job("two", 1)))
        (line,) = [line for line in found.stderr.splitlines() if "warning" in line]
        assert 'Job one: metadata.labels[kueue.x-k8s.io/queue-name]: found "lq-cp", expected a LocalQueue' in line
        assert "of team: lq-cq, other. Create it, or correct the label. Did you mean lq-cq?" in line
        assert "Job team/one" in found.stdout


async def test_a_queue_that_the_manifests_bring_is_there_and_one_of_a_workload_counts(
    shell: Shell, tmp_path: Path
) -> None:
    async with busy(shell):
        shell.scene.server.install(LOCAL_QUEUES)
        queue = {"apiVersion": LOCAL_QUEUES.api_version, "kind": "LocalQueue", "metadata": {"name": "new"}}
        queue["spec"] = {"clusterQueue": "cq"}
        workload = {"apiVersion": WORKLOADS.api_version, "kind": "Workload", "metadata": {"name": "w"}}
        pods = {"name": "main", "count": 1, "template": job("", 1)["spec"]["template"]}
        workload["spec"] = {"queueName": "nwe", "podSets": [pods]}
        found = await shell.run("submit", "--dry-run", file(tmp_path, queue, job("one", 1, "new"), workload))
        (line,) = [line for line in found.stderr.splitlines() if "warning" in line]
        assert (
            'Workload w: spec.queueName: found "nwe", expected a LocalQueue of team: lq-cq, new. Create it, or' in line
        )
        assert "Did you mean new?" in line


async def test_queues_that_may_not_be_read_are_told_to_be_left_out(shell: Shell, tmp_path: Path) -> None:
    async with busy(shell):
        shell.door.forbidden = "localqueues"
        found = await shell.run("submit", "--dry-run", file(tmp_path, job("one", 1, "lq-cp")))
        assert "note: queues of team are not looked up: " in found.stderr
        assert "warning" not in found.stderr


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
async def test_a_namespace_that_is_not_there_is_a_line_with_the_nearest(
    shell: Shell, tmp_path: Path, dry: tuple[str, ...]
) -> None:
    async with busy(shell):
        spaces(shell, "research")
        given = file(tmp_path, job("one", 1))
        told = await shell.run("submit", *dry, "-n", "reserch", given, code=1)
        said = '--namespace: found "reserch", expected a namespace that exists. Did you mean research?'
        assert told.stderr == f"Error: {said}\n"
        own = {**job("two", 1), "metadata": {"name": "two", "namespace": "taem"}}
        told = await shell.run("submit", *dry, file(tmp_path, own), code=1)
        said = 'Job two: metadata.namespace: found "taem", expected a namespace that exists. Did you mean team?'
        assert told.stderr.endswith(f": {said}\n")
        assert list(shell.scene.server.list_all(JOBS)) == []


async def test_a_queue_is_created_in_a_namespace_that_is_there(shell: Shell) -> None:
    shell.scene.queue()
    spaces(shell)
    words = ("create", "localqueue", "jobs", "-c", "cq")
    told = await shell.run(*words, "-n", "taem", code=1)
    assert '--namespace: found "taem", expected a namespace that exists. Did you mean team?' in told.stderr
    assert (await shell.run(*words, "-n", "team")).exit_code == 0


async def test_a_dry_run_says_so_where_no_cluster_answers(shell: Shell, tmp_path: Path) -> None:
    found = json.loads(shell.kubeconfig.read_text())
    found["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    shell.kubeconfig.write_text(json.dumps(found))
    told = await shell.run("submit", "--dry-run", file(tmp_path, job("one", 1)), code=1)
    assert told.stderr.startswith("Error: the API server cannot be reached: ")


async def test_what_cannot_be_sent_is_a_line(shell: Shell, tmp_path: Path) -> None:
    async with busy(shell):
        strange = {"apiVersion": "x.io/v1", "kind": "Y", "metadata": {"name": "y"}}
        said = (await shell.run("submit", file(tmp_path, strange), code=1)).stderr
        assert "found Y of x.io/v1, expected a kind that the API server has" in said
        await shell.run("submit", str(tmp_path / "none.yaml"), code=2)
        wrong = json.loads(json.dumps(job("small", 1)).replace("queue-name", "queuename"))
        wrong["spec"]["parallelism"] = "1"
        warning, error = (await shell.run("submit", file(tmp_path, wrong), code=2)).stderr.splitlines()
        assert "warning: Job small: metadata.labels[kueue.x-k8s.io/queuename]: found an unknown label" in warning
        assert 'Job small: spec.parallelism: found "1" (a string), expected 1' in error
        shell.door.behind = None
        found = await shell.run("submit", "--dry-run", file(tmp_path, job("small", 1)))
        assert "there is no forecast" in found.stderr


def test_a_workload_is_as_far_as_its_last_condition() -> None:
    assert state_of({}) == "Pending"
    true = [{"type": each, "status": "True"} for each in ("QuotaReserved", "Admitted")]
    assert state_of({"status": {"conditions": true}}) == "Admitted"


async def test_a_wait_that_takes_too_long_ends_and_names_who_waits(shell: Shell, tmp_path: Path) -> None:
    async with busy(shell):
        given = file(tmp_path, job("never", 9), job("now", 1))
        ended = await shell.run("submit", "--wait", "--timeout", "1s", given, code=1)
        error = ended.stderr.splitlines()[-1]
        assert error.startswith("Error: after 1 s not admitted: team/job-never-")
        assert "job-now" not in error
        assert "tessera explain WORKLOAD" in error
    assert (
        "--timeout: found one, expected --wait" in (await shell.run("submit", "--timeout", "1s", given, code=2)).stderr
    )
