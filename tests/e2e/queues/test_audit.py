"""``tessera audit`` as a person runs it: a process of its own, with the rights that its page names and no others.

The API server, the Job controller, the scheduler and the controller are real; kwok plays pods.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until as wait_until
from history.rule import LATE_S
from tests.support.e2e.queuelab import ALONE, CONFIG, NAMESPACE, ROOT, Controller, QueueLab, install, lab, until
from tests.support.e2e.viewers import kubeconfig

pytestmark = pytest.mark.e2e

Json = dict[str, Any]
TEAM: Final = "team"
ALL_S: Final = 60.0
RIGHTS: Final = ROOT / "examples/audit-rights.yaml"
NEEDED: Final = ("clusterqueues", "localqueues", "workloads", "pods")
"""Kinds that an audit must be able to list and watch, by its page: it ends where it may not."""
_API: Final = {"apiVersion": "rbac.authorization.k8s.io/v1"}
_LATER_S: Final = LATE_S + 2.0
_QUOTA: Final = {
    "clusterQueue": "q",
    "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "plain"}, "resourceUsage": {"cpu": "1"}}],
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    with Cluster.up(f"audit-{os.getpid()}", Spec(nodes=(), kwok_nodes=2)) as cluster:
        install(cluster)
        cluster.kubectl("create", "namespace", TEAM)
        config = ("create", "configmap", "tessera-controller", "-n", NAMESPACE)
        cluster.kubectl(*config, f"--from-literal=controller.yaml={CONFIG}")
        let_in(cluster)
        yield cluster


# -- accounts ----------------------------------------------------------------------------------------------------------


def let_in(cluster: Cluster) -> None:
    """An account with the page's rights, and for each right one without it; all are in effect."""
    role, local = yaml.safe_load_all(RIGHTS.read_text())
    accounts: dict[str, list[Json]] = {"auditor": role["rules"]}
    for resource in NEEDED:
        for verb in ("list", "watch"):
            accounts[f"no-{verb}-{resource}"] = list(without(role["rules"], (resource,), verb))
    others = {each for rule in role["rules"] for each in rule["resources"]} - set(NEEDED)
    for verb in ("list", "watch"):
        accounts[f"no-{verb}-others"] = list(without(role["rules"], others, verb))
    objects = [local, *(each for name, rules in accounts.items() for each in bound(name, rules))]
    objects += [binding("RoleBinding", "auditor", "Role", local["metadata"]["name"], NAMESPACE)]
    cluster.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    name_of_last = list(accounts)[-1]

    def is_let_in() -> bool:
        """The first account's last right, and a right of the last account."""
        try:
            for name, path in (
                ("auditor", f"/api/v1/namespaces/{NAMESPACE}/configmaps/tessera-controller"),
                (name_of_last, "/api/v1/pods"),
            ):
                cluster.kubectl("get", "--raw", path, f"--as=system:serviceaccount:{TEAM}:{name}")
        except ClusterError:
            return False
        return True

    wait_until(is_let_in, "the rights are in effect", timeout_s=60)


def without(rules: Iterable[Json], resources: Iterable[str], verb: str) -> Iterator[Json]:
    """The rules, but these resources without that verb."""
    for rule in rules:
        mine = [each for each in rule["resources"] if each in resources]
        theirs = [each for each in rule["resources"] if each not in resources]
        verbs = [each for each in rule["verbs"] if each != verb]
        yield from [{**rule, "resources": theirs}] if theirs else []
        yield from [{**rule, "resources": mine, "verbs": verbs}] if mine and verbs else []


def bound(name: str, rules: list[Json]) -> Iterator[Json]:
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": TEAM}}
    yield {**_API, "kind": "ClusterRole", "metadata": {"name": f"test-{name}"}, "rules": rules}
    yield binding("ClusterRoleBinding", name, "ClusterRole", f"test-{name}")


def binding(kind: str, account: str, role_kind: str, role: str, namespace: str = "") -> Json:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": TEAM}
    meta = {"name": f"test-{account}", **({"namespace": namespace} if namespace else {})}
    return {**_API, "kind": kind, "metadata": meta, "roleRef": reference, "subjects": [subject]}


# -- a person's shell --------------------------------------------------------------------------------------------------


class Ran(NamedTuple):
    code: int | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Auditor:
    """A person with one of the accounts, and a folder for records."""

    def __init__(self, cluster: Cluster, folder: Path, account: str = "auditor") -> None:
        token = cluster.kubectl("create", "token", account, "-n", TEAM, "--duration=1h").strip()
        folder = folder / account
        folder.mkdir()
        self.file = kubeconfig(cluster, token, folder, TEAM)

    async def run(self, *words: str) -> Ran:
        async with self.running(*words) as process, asyncio.timeout(ALL_S):
            out, err = await process.communicate()
            return Ran(process.returncode, out.decode(), err.decode())

    @asynccontextmanager
    async def running(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        command = [sys.executable, "-c", "from cli.main import main; main()", "audit", *words]
        environment = {**os.environ, "KUBECONFIG": str(self.file)}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, env=environment, cwd=ROOT, stdout=pipe, stderr=pipe)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@asynccontextmanager
async def busy(cluster: Cluster, folder: Path) -> AsyncIterator[tuple[QueueLab, Controller]]:
    """A queue of two cpus in which two jobs run and two wait, and the controller."""
    async with lab(cluster, {}) as scene:
        await scene.queue("q", 2)
        with scene.controllers(folder, "one", flags=ALONE) as (controller,):
            for name in ("runs-1", "runs-2"):
                await scene.job(name, "q")
            await until(lambda: scene.runs("runs-1") and scene.runs("runs-2"), "two jobs run")
            for name in ("waits-1", "waits-2"):
                await scene.job(name, "q")
                await until(lambda name=name: bool(scene.condition(name, "QuotaReserved")), f"{name} has a reason")  # type: ignore[misc]
            yield scene, controller
            if not controller.runs:
                controller.start()  # finalizers are its own to take away
            await scene.clean()


# -- scenes ------------------------------------------------------------------------------------------------------------


@pytest.mark.history(
    allow={"over-quota", "ran-without-admission"},
    why="a person writes an admission beyond the quota, and starts a job that waits",
)
async def test_a_cluster_that_keeps_the_rules_has_no_findings_and_what_a_person_does_past_them_is_found(
    cluster: Cluster, tmp_path: Path
) -> None:
    auditor, kept = Auditor(cluster, tmp_path), tmp_path / "history.jsonl.gz"
    async with busy(cluster, tmp_path) as (scene, controller):
        good = await auditor.run("--for", "5s", "-o", "json")
        assert (good.code, good.json["findings"]) == (0, []), good
        assert good.json["facts"] > 0
        assert [line.partition(":")[0] for line in good.json["unseen"]] == ["hardware", "kubelets"]
        async with auditor.running("--for", "1h", "--record", str(kept), "-o", "json") as process:
            assert process.stderr is not None
            assert b"are watched for 3600 s" in await process.stderr.readline()
            objects = await done_past_the_queue(scene, controller)
            ended_s = time.monotonic() + _LATER_S
            await until(lambda: time.monotonic() > ended_s, "it has lasted for as long as the rules say")
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(ALL_S):
                out, err = await process.communicate()
    live = Ran(process.returncode, out.decode(), err.decode())
    assert (live.code, live.err) == (1, "")
    assert [(each["rule"], each["objects"]) for each in live.json["findings"]] == objects
    again = await auditor.run(str(kept), "-o", "json")
    assert (again.code, again.json) == (1, live.json)
    assert "3 cpu in flavor plain are used, 2 may be" in (await auditor.run(str(kept))).out


async def done_past_the_queue(scene: QueueLab, controller: Controller) -> list[tuple[str, list[str]]]:
    """What a person does with kubectl while no controller runs, which takes such things back: the rules that are
    broken, with their objects.
    """
    admitted, started = (scene.watcher.of_job(name)["metadata"]["name"] for name in ("waits-1", "waits-2"))
    controller.kill()
    admit(scene.cluster, admitted)
    unsuspended = json.dumps({"spec": {"suspend": False}})
    scene.cluster.kubectl("patch", "job", "waits-2", "-n", TEAM, "--type=merge", "-p", unsuspended)
    await until(lambda: scene.runs("waits-2"), "the job that waits is started")
    found = scene.cluster.kubectl("get", "pods", "-n", TEAM, "-l", "job-name=waits-2", "-o", "name").split()
    (pod,) = (each.removeprefix("pod/") for each in found)
    return [
        ("over-quota", ["ClusterQueue q", "ResourceFlavor plain", "cpu"]),
        ("ran-without-admission", [f"Pod team/{pod}", f"Workload team/{started}"]),
    ]


def admit(cluster: Cluster, workload: str) -> None:
    """As the controller would, without asking it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [
        {"type": type_, "status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": now}
        for type_ in ("QuotaReserved", "Admitted")
    ]
    status = json.dumps({"status": {"admission": _QUOTA, "conditions": conditions}})
    words = ("patch", "workloads.kueue.x-k8s.io", workload, "-n", TEAM, "--subresource=status", "--type=merge")
    cluster.kubectl(*words, "-p", status)


@pytest.mark.parametrize("resource", NEEDED)
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_with_one_needed_right_less_it_ends_and_names_it(
    cluster: Cluster, tmp_path: Path, resource: str, verb: str
) -> None:
    found = await Auditor(cluster, tmp_path, f"no-{verb}-{resource}").run("--for", "1h")
    assert (found.code, found.out) == (2, "")
    wrong = [line for line in found.err.splitlines() if "are watched for" not in line]
    assert len(wrong) == 1, found.err
    assert f"cannot {verb} resource" in wrong[0]
    assert f'"{resource}"' in wrong[0]


async def test_what_else_may_not_be_listed_or_followed_is_not_seen(cluster: Cluster, tmp_path: Path) -> None:
    served = {"cohorts", "jobs", "deployments", "replicasets", "statefulsets", "resourceclaims"}
    listed = await Auditor(cluster, tmp_path, "no-list-others").run("--for", "1s", "-o", "json")
    told = {line.partition(":")[0] for line in listed.json["unseen"]}
    assert listed.code == 0
    assert told >= {*served, "namespaces", "the controller's configuration", "hardware", "kubelets"}
    watched = await Auditor(cluster, tmp_path, "no-watch-others").run("--for", "1s", "-o", "json")
    told = {line.partition(":")[0] for line in watched.json["unseen"] if "may not be followed" in line}
    assert (watched.code, told) == (0, {*served, "resourceclaimtemplates"})


async def test_a_server_that_is_away_is_told_in_a_line(cluster: Cluster, tmp_path: Path) -> None:
    auditor = Auditor(cluster, tmp_path)
    config = json.loads(auditor.file.read_text())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    auditor.file.write_text(json.dumps(config))
    found = await auditor.run("--for", "5s")
    assert (found.code, found.out) == (2, "")
    assert len(found.err.splitlines()) == 1
    assert f"127.0.0.1:{port}" in found.err
