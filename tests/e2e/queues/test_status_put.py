"""A workload's status is put as a whole: on a real API server that takes nothing from anybody else."""

import json
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from controller.cluster.watching.kinds import WORKLOADS, reader
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.mergepatch import status_body, status_patch
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.objects.quantity import parse_quantity
from controller.objects.workload import NO_STATUS, Admission, PodSetAssignment, Workload
from controller.scheduler.decisions import status
from failpoints.names import Failpoint
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from kube.client import Client
from kube.clock import SystemClock
from kube.config import ClusterConfig
from kube.errors import ConflictError, InvalidError
from kube.kubeconfig import from_kubeconfig
from kube.resources import Resource
from kube.testing import eventually
from kube.writing.writer import DEFAULTS, Writer
from kube.writing.writes import Outcome, Verb, Write
from tests.support.e2e.lab import until
from tests.support.e2e.queueapi import GROUP, Api, await_kinds, converting, install
from tests.support.e2e.queuelab import ACCOUNT, NAMESPACE, grant

pytestmark = pytest.mark.e2e

Json = dict[str, Any]
SITE = "site"
TEAM = "team"
OLDER = Resource(GROUP, "v1beta1", "workloads", "Workload", namespaced=True)
read_workload = reader(Workload)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    binaries.build("kubernetes")
    name = f"status-put-{os.getpid()}"
    with Cluster.up(name, Spec(nodes=())) as cluster, converting(tmp_path_factory.mktemp("tls")) as webhook:
        install(cluster, webhook)
        api = Api(cluster)
        await_kinds(api, GROUP)
        api.close()
        cluster.kubectl("create", "namespace", TEAM)
        yield cluster


@pytest.fixture
def config(cluster: Cluster) -> ClusterConfig:
    return from_kubeconfig(cluster.kubeconfig)


@pytest.fixture
async def client(config: ClusterConfig) -> AsyncIterator[Client]:
    async with Client(config, user_agent="a-reader") as client:
        yield client


def owner(**more: bool) -> Json:
    """Of nobody who is there: no garbage collector runs here for long enough, and finalizers keep the workload."""
    return {"apiVersion": "example.test/v1", "kind": "Run", "name": "a-run", "uid": "0a-1b", **more}


def workload(name: str, resource: Resource = WORKLOADS, **metadata: Any) -> Json:
    """With everything in its metadata and spec that somebody may own, parts that the controller does not read too."""
    container = {
        "name": "main",
        "image": "none",
        "env": [{"name": "LEVEL", "value": "3"}],
        "resources": {"requests": {"cpu": "100m"}},
    }
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    full = {
        "name": name,
        "namespace": TEAM,
        "labels": {"kueue.x-k8s.io/job-uid": "u", "empty": ""},
        "annotations": {"site.test/note": "a\nb", "empty": ""},
        "finalizers": ["kueue.x-k8s.io/resource-in-use", "site.test/keep"],
        "ownerReferences": [owner(controller=True, blockOwnerDeletion=True)],
        **metadata,
    }
    spec = {"queueName": "q", "active": True, "podSets": [{"name": "main", "count": 2, "template": template}]}
    version = f"{resource.group}/{resource.version}"
    return {"apiVersion": version, "kind": "Workload", "metadata": full, "spec": spec}


async def applied(client: Client, given: Json, resource: Resource = WORKLOADS) -> Json:
    """``given`` by a manager of its own; as it is stored then."""
    name = given["metadata"]["name"]
    await client.apply(resource, name, given, Json, field_manager=SITE, namespace=TEAM)
    return await stored(client, name)


async def stored(client: Client, name: str) -> Json:
    return await client.get(WORKLOADS, name, Json, namespace=TEAM)


def typed(found: Json) -> Workload:
    return read_workload(msgspec.json.encode(found))


def decided(before: Workload) -> Workload:
    """With a status of several levels, an empty one of the required fields among them."""
    usage = {"cpu": parse_quantity("200m")}
    assigned = PodSetAssignment(name="main", flavors={"cpu": "default"}, resource_usage=usage, count=2)
    reserved = msgspec.structs.replace(
        before.status, admission=Admission(cluster_queue="cq", pod_set_assignments=(assigned,))
    )
    return status.finished(msgspec.structs.replace(before, status=reserved), "Succeeded", "", time.time())


class Verbs:
    """Which writes were sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Verb, int | None]] = []

    def attempted(self, write: Write[Any], latency_s: float, status: int | None) -> None:  # noqa: ARG002 - the protocol's
        self.sent.append((write.verb, status))

    def finished(self, write: Write[Any], outcome: Outcome[Any], waited_s: float) -> None:
        pass


@asynccontextmanager
async def writing(client: Client) -> AsyncIterator[tuple[WorkloadWrites, Ledger, Verbs]]:
    """What the controller writes with."""
    ledger, verbs = Ledger(), Verbs()
    async with Writer(client, clock=SystemClock(), random=random.random, observer=verbs) as writer:
        nothing = {"changed": lambda *_: None, "gone": lambda *_: None, "freed": lambda *_: None}
        yield WorkloadWrites(client, writer, ledger, **nothing), ledger, verbs


def requeued(before: Workload, why: str = "Again") -> Workload:
    return status.requeued(before, why, "", time.time())


async def decide(client: Client, name: str, *makes: Callable[[Workload], Workload]) -> Verbs:
    """Write a status as the controller does, or several one after the other."""
    async with writing(client) as (writes, ledger, verbs):
        entry = ledger.observe(typed(await stored(client, name)))
        assert entry is not None
        for make in makes or (decided,):
            ended: list[tuple[Result, str]] = []
            writes.status(entry, make(entry.workload), lambda *end, ended=ended: ended.append(end), Failpoint.FINISHED)
            await eventually(lambda ended=ended: bool(ended), within_s=120)  # type: ignore[misc]
            assert ended == [(Result.WRITTEN, "")]
        return verbs


def managers(found: Json) -> dict[tuple[str, str, str], Json]:
    """What each manager owns, by name, operation and subresource, with the version in which it said so."""
    return {
        (one["manager"], one["operation"], one.get("subresource", "")): {
            "version": one["apiVersion"],
            "fields": one["fieldsV1"],
        }
        for one in found["metadata"]["managedFields"]
    }


def without(found: Json, *names: str) -> Json:
    """Metadata but for what every write changes, or ``names``."""
    gone = {"resourceVersion", "managedFields", *names}
    return {name: value for name, value in found["metadata"].items() if name not in gone}


OURS = (DEFAULTS.field_owner, "Update", "status")
THEIRS = (SITE, "Apply", "")

OWNERS = {
    "a controller": owner(controller=True, blockOwnerDeletion=True),
    "no controller": owner(),
    "a controller no": owner(controller=False, blockOwnerDeletion=False),
}


@pytest.mark.parametrize("reference", OWNERS, ids=lambda name: name.replace(" ", "-"))
async def test_a_status_that_is_put_leaves_all_else_as_it_was(client: Client, reference: str) -> None:
    name = f"whole-{reference.replace(' ', '-')}"
    before = await applied(client, workload(name, ownerReferences=[OWNERS[reference]]))
    verbs = await decide(client, name)
    after = await stored(client, name)
    assert verbs.sent == [(Verb.UPDATE, 200)]
    assert after["spec"] == before["spec"]
    assert without(after) == without(before)
    assert managers(after)[THEIRS] == managers(before)[THEIRS]
    assert {"f:labels", "f:annotations", "f:finalizers", "f:ownerReferences"} == set(
        managers(after)[THEIRS]["fields"]["f:metadata"]
    )
    assert set(managers(after)) == {THEIRS, OURS}
    assert set(managers(after)[OURS]["fields"]) == {"f:status"}
    assert set(managers(after)[OURS]["fields"]["f:status"]) == {".", "f:admission", "f:conditions"}


async def test_it_leaves_the_entry_of_who_created_it_as_it_was(client: Client) -> None:
    await client.create(WORKLOADS, workload("created"), Json, namespace=TEAM)
    before = await stored(client, "created")
    verbs = await decide(client, "created")
    after = await stored(client, "created")
    assert verbs.sent == [(Verb.UPDATE, 200)]
    assert managers(before).items() <= managers(after).items()
    assert set(managers(after)) - set(managers(before)) == {OURS}


async def test_all_statuses_after_it_are_put_as_well(client: Client) -> None:
    before = await applied(client, workload("twice"))
    verbs = await decide(client, "twice", decided, requeued)
    after = await stored(client, "twice")
    assert verbs.sent == [(Verb.UPDATE, 200), (Verb.UPDATE, 200)]
    assert {each["type"] for each in after["status"]["conditions"]} == {"Finished", "Requeued"}
    assert (after["spec"], without(after)) == (before["spec"], without(before))
    assert managers(after)[THEIRS] == managers(before)[THEIRS]
    assert set(managers(after)) == {THEIRS, OURS}


async def test_one_that_another_wrote_is_put_once_all_of_it_is_known(client: Client) -> None:
    """After the restart of a controller."""
    await applied(client, workload("found"))
    await decide(client, "found")
    verbs = await decide(client, "found", requeued, lambda known: requeued(known, "OnceMore"))
    assert verbs.sent == [(Verb.MERGE_PATCH, 200), (Verb.UPDATE, 200)]


async def test_a_patch_stores_the_same(client: Client) -> None:
    """Each says what the other does, to the last field and owner."""
    put, patched = await applied(client, workload("put")), await applied(client, workload("patched"))
    now = typed(patched)
    after = decided(now)
    body = status_body(now, after)
    as_put = status_body(typed(put), decided(typed(put))) | {"status": body["status"]}
    patch = status_patch(now, after)
    await client.merge_patch(
        WORKLOADS, "patched", patch, Json, field_manager=OURS[0], namespace=TEAM, subresource="status"
    )
    await client.update(WORKLOADS, "put", as_put, Json, field_manager=OURS[0], namespace=TEAM, subresource="status")
    one, other = await stored(client, "put"), await stored(client, "patched")
    assert (one["status"], one["spec"], managers(one)) == (other["status"], other["spec"], managers(other))
    assert one["status"]["conditions"][0]["message"] == "", "what is required is written though it is empty"


async def test_another_version_or_object_is_refused(client: Client) -> None:
    old = typed(await applied(client, workload("raced")))
    body = status_body(old, decided(old))
    other = body | {"metadata": body["metadata"] | {"uid": "0a-1b"}}
    await client.merge_patch(WORKLOADS, "raced", {"metadata": {"labels": {"a": "b"}}}, Json, namespace=TEAM)
    before = await stored(client, "raced")
    without_one = body | {"metadata": {**body["metadata"], "resourceVersion": ""}}
    with pytest.raises(InvalidError, match="must be specified for an update"):
        await client.update(WORKLOADS, "raced", without_one, Json, namespace=TEAM, subresource="status")
    other["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
    for wrong in (body, other):
        with pytest.raises(ConflictError) as caught:
            await client.update(WORKLOADS, "raced", wrong, Json, namespace=TEAM, subresource="status")
        assert caught.value.status == 409
    assert await stored(client, "raced") == before


async def test_what_somebody_said_in_another_version_stays_his(client: Client) -> None:
    """Older servers compare the spec where it was written in another version than ours: a patch is sent."""
    before = await applied(client, workload("older", OLDER), OLDER)
    assert managers(before)[THEIRS]["version"] == f"{GROUP}/v1beta1"
    assert typed(before).status is not NO_STATUS
    verbs = await decide(client, "older")
    after = await stored(client, "older")
    assert verbs.sent == [(Verb.MERGE_PATCH, 200)]
    assert managers(after)[THEIRS] == managers(before)[THEIRS]


async def test_a_name_that_was_generated_stays_whose_it_was(client: Client) -> None:
    given = workload("")
    given["metadata"] = {name: value for name, value in given["metadata"].items() if name != "name"}
    given["metadata"]["generateName"] = "some-"
    name = (await client.create(WORKLOADS, given, Json, namespace=TEAM))["metadata"]["name"]
    before = await stored(client, name)
    verbs = await decide(client, name)
    assert verbs.sent == [(Verb.MERGE_PATCH, 200)]
    assert managers(before).items() <= managers(await stored(client, name)).items()


def may_patch(cluster: Cluster, account: str) -> bool:
    user = f"system:serviceaccount:{account}"
    with suppress(ClusterError):
        words = ("patch", f"workloads.{GROUP}", "--subresource", "status", "--namespace", TEAM, "--as", user)
        return cluster.kubectl("auth", "can-i", *words).strip() == "yes"
    return False


async def decide_as(cluster: Cluster, config: ClusterConfig, account: str, name: str) -> Verbs:
    """As a service account, ``namespace:name``, once it may patch statuses."""
    namespace, _, short = account.partition(":")
    until(lambda: may_patch(cluster, account), f"rights of {account}")
    token = cluster.kubectl("create", "token", short, "--namespace", namespace).strip()
    async with Client(replace(config, token=token, cert_pem=None, key_pem=None, token_file=None)) as client:
        return await decide(client, name)


async def test_the_rights_of_the_chart_are_enough(cluster: Cluster, config: ClusterConfig, client: Client) -> None:
    binaries.build("helm")
    grant(cluster)
    await applied(client, workload("granted"))
    verbs = await decide_as(cluster, config, f"{NAMESPACE}:{ACCOUNT}", "granted")
    assert verbs.sent == [(Verb.UPDATE, 200)]


async def test_without_the_right_to_put_it_is_patched(cluster: Cluster, config: ClusterConfig, client: Client) -> None:
    """The rights of an older release."""
    cluster.kubectl("create", "serviceaccount", "patcher", "--namespace", TEAM)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "patcher"},
        "rules": [
            {"apiGroups": [GROUP], "resources": ["workloads"], "verbs": ["get"]},
            {"apiGroups": [GROUP], "resources": ["workloads/status"], "verbs": ["patch"]},
        ],
    }
    cluster.kubectl("apply", "-f", "-", input=json.dumps(role))
    words = ("--clusterrole", "patcher", "--serviceaccount", f"{TEAM}:patcher")
    cluster.kubectl("create", "clusterrolebinding", "patcher", *words)
    await applied(client, workload("patcher"))
    verbs = await decide_as(cluster, config, f"{TEAM}:patcher", "patcher")
    assert verbs.sent == [(Verb.UPDATE, 403), (Verb.MERGE_PATCH, 200)]
    assert typed(await stored(client, "patcher")).status.admission is not None
