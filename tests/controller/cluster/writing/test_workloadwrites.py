"""A workload's status is put as a whole where that takes nothing from anybody; everything else is a patch."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.watching.kinds import WORKLOADS, reader
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.writing.mergepatch import status_body, status_patch
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.objects.meta import Condition
from controller.objects.quantity import parse_quantity
from controller.objects.workload import (
    NO_STATUS,
    Admission,
    AdmissionCheckState,
    EvictionCount,
    PodSetAssignment,
    ReclaimablePod,
    RequeueState,
    SchedulingStats,
    Workload,
    WorkloadStatus,
)
from controller.scheduler.decisions import status
from failpoints.names import Failpoint
from kube.client import Client
from kube.clock import SystemClock
from kube.errors import KubeError
from kube.testing import FakeApiServer, eventually
from kube.testing.store import Store
from kube.writing.writer import Tuning, Writer

Json = dict[str, Any]
KEY = (WORKLOADS.path(), "ns", "a")
NAME = "ns/a"
read_workload = reader(Workload)


def workload(**more: Any) -> Json:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-1", "controller": True}
    metadata = {
        "labels": {"kueue.x-k8s.io/job-uid": "u-1"},
        "annotations": {"note": "x"},
        "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        "ownerReferences": [owner],
    }
    template = {"spec": {"containers": [{"name": "c", "env": [{"name": "not", "value": "read"}]}]}}
    spec = {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": template}]}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec, **more}


def read(stored: Json) -> Workload:
    return read_workload(msgspec.json.encode(stored))


def ended(before: Workload) -> Workload:
    return status.finished(before, "Succeeded", "", 0.0)


def claim(before: Workload, cluster: str = "here") -> Workload:
    return msgspec.structs.replace(before, status=msgspec.structs.replace(before.status, cluster_name=cluster))


class Scene:
    """An API server, and the writes of one term."""

    def __init__(self, server: FakeApiServer, ledger: Ledger, writes: WorkloadWrites) -> None:
        self.server = server
        self.ledger = ledger
        self.writes = writes

    @property
    def stored(self) -> Json:
        found: Json = self.server.get(WORKLOADS, "a", namespace="ns")
        return found

    def seen(self) -> LedgerEntry:
        """As the watch shows it now."""
        entry = self.ledger.observe(read(self.stored)) or self.ledger.get(read(self.stored).key)  # type: ignore[arg-type]
        assert entry is not None
        return entry

    async def write(self, entry: LedgerEntry, make: Callable[[Workload], Workload] = ended) -> Result:
        return await self.until(lambda then: self.writes.status(entry, make(entry.workload), then, Failpoint.LIFECYCLE))

    async def until(self, begin: Callable[[Callable[[Result, str], None]], None]) -> Result:
        results: list[Result] = []
        begin(lambda result, _: results.append(result))
        await eventually(lambda: bool(results))
        return results[0]

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.server.written(NAME.partition("/")[2] + "/status")]


@asynccontextmanager
async def scene(given: Json) -> AsyncIterator[Scene]:
    async with (
        FakeApiServer() as server,
        Client(server.config) as client,
        Writer(client, clock=SystemClock(), random=random.random, tuning=Tuning(field_owner="us")) as writer,
    ):
        server.create(WORKLOADS, "a", given, namespace="ns")
        ledger = Ledger()
        nothing: Any = lambda *_: None  # noqa: E731
        writes = WorkloadWrites(client, writer, ledger, changed=nothing, gone=nothing, freed=nothing)
        yield Scene(server, ledger, writes)


def owned(stored: Json, manager: str) -> Json:
    return next(one["fieldsV1"] for one in stored["metadata"]["managedFields"] if one["manager"] == manager)


async def test_each_status_is_put_where_the_answer_to_the_last_one_showed_no_more() -> None:
    async with scene(workload()) as now:
        before = now.stored
        kept = now.seen()
        assert await now.write(kept) is Result.WRITTEN
        assert (set(owned(now.stored, "us")), owned(now.stored, "test")) == ({"f:status"}, owned(before, "test"))
        assert await now.write(kept, lambda one: status.requeued(one, "Again", "", 1.0)) is Result.WRITTEN
        assert now.methods == ["PUT", "PUT"]
        after = now.stored
    assert {one["type"] for one in after["status"]["conditions"]} == {"Finished", "Requeued"}
    assert after["spec"] == before["spec"], "what the controller does not read of it too"
    assert owned(after, "test") == owned(before, "test")
    assert set(owned(after, "us")) == {"f:status"}


LEFT_ALONE = {
    "a status of a newer API": workload(status={"fromTomorrow": 1}),
    "a status within it": workload(status={"conditions": [{"type": "A", "status": "True", "fromTomorrow": 1}]}),
    "a name that was generated": workload(metadata={"generateName": "a-"}),
    "an object that is being deleted": workload(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
}


@pytest.mark.parametrize("why", LEFT_ALONE, ids=lambda why: why.replace(" ", "-"))
async def test_what_is_not_known_in_full_is_patched(why: str) -> None:
    async with scene(LEFT_ALONE[why]) as now:
        before = now.stored
        kept = now.seen()
        assert await now.write(kept, claim) is Result.WRITTEN
        assert await now.write(kept, lambda one: claim(one, "elsewhere")) is Result.WRITTEN
        assert now.methods == ["PATCH", "PATCH"]
        assert now.stored["status"] == {**before.get("status", {}), "clusterName": "elsewhere"}


BY_OTHERS = {"a status that was emptied": {}, "a status that is known": {"clusterName": "there"}}


@pytest.mark.parametrize("why", BY_OTHERS, ids=lambda why: why.replace(" ", "-"))
async def test_a_status_by_others_is_patched_until_an_answer_shows_all_of_it(why: str) -> None:
    async with scene(workload(status=BY_OTHERS[why])) as now:
        kept = now.seen()
        assert await now.write(kept) is Result.WRITTEN
        assert await now.write(kept, claim) is Result.WRITTEN
        now.server.merge(WORKLOADS, "a", {"status": {"clusterName": "there"}}, namespace="ns")
        assert now.seen() is kept
        assert await now.write(kept, claim) is Result.WRITTEN
        assert now.methods == ["PATCH", "PUT", "PATCH"]
        assert now.stored["status"].keys() == {"conditions", "clusterName"}


async def test_what_came_into_our_own_write_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a webhook does it."""
    async with scene(workload()) as now:
        kept, put = now.seen(), Store.update_status

        def admitted(store: Store, key: Any, body: Json, manager: str) -> Json:
            return put(store, key, {**body, "status": {**body["status"], "fromTomorrow": 1}}, manager)

        monkeypatch.setattr(Store, "update_status", admitted)
        assert await now.write(kept) is Result.WRITTEN
        assert await now.write(kept, claim) is Result.WRITTEN
        assert now.methods == ["PUT", "PATCH"]
        assert now.stored["status"].keys() == {"conditions", "clusterName", "fromTomorrow"}


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v2"])
def test_fields_said_in_another_version_are_not_known_in_full(version: str) -> None:
    def managed(by: str) -> Workload:
        entry = {"manager": "m", "operation": "Apply", "apiVersion": f"kueue.x-k8s.io/{by}", "fieldsV1": {}}
        return read(workload(metadata={"name": "a", "uid": "u", "resourceVersion": "1", "managedFields": [entry]}))

    assert _is_whole(managed("v1beta2"))
    assert not _is_whole(managed(version))


def _is_whole(found: Workload) -> bool:
    entry = Ledger().observe(found)
    return entry is not None and entry.whole


def test_no_status_is_told_from_one_that_is_not_known() -> None:
    assert read(workload()).status is NO_STATUS
    assert read(workload(status=None)).status is NO_STATUS
    others: list[Json] = [{}, {"fromTomorrow": 1}, {"conditions": []}]
    for other in others:
        found = read(workload(status=other)).status
        assert found == NO_STATUS
        assert found is not NO_STATUS


async def test_a_version_that_nobody_has_read_is_patched() -> None:
    """Something may have been added to our own write on its way in."""
    async with scene(workload()) as now:
        kept = now.seen()
        stopped = {"spec": {"active": False}}
        result = await now.until(
            lambda then: now.writes.spec(kept, kept.workload, stopped, then, Failpoint.DEACTIVATED)
        )
        assert result is Result.WRITTEN
        assert await now.write(kept) is Result.WRITTEN
        assert now.methods == ["PATCH"]


async def test_nothing_to_write_is_not_written() -> None:
    async with scene(workload()) as now:
        assert await now.write(now.seen(), lambda before: before) is Result.UNCHANGED
        assert now.server.written("") == []


async def test_whoever_wrote_first_wins_over_a_status_that_is_put() -> None:
    async with scene(workload()) as now:
        kept = now.seen()
        now.server.merge(WORKLOADS, "a", {"status": {"clusterName": "there"}}, namespace="ns")
        assert await now.write(kept) is Result.LOST
        assert now.stored["status"] == {"clusterName": "there"}
        assert kept.workload.status.cluster_name == "there"
        assert await now.write(kept) is Result.WRITTEN
        assert now.methods == ["PUT", "PATCH"]
        assert now.stored["status"]["clusterName"] == "there"


async def test_without_the_right_to_put_it_patches_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    async with scene(workload()) as now:
        now.server.refuse = lambda method, _path: 403 if method == "PUT" else None
        assert await now.write(now.seen()) is Result.WRITTEN
        assert now.methods == ["PUT", "PATCH"]
        now.server.delete(WORKLOADS, "a", namespace="ns")
        now.server.create(WORKLOADS, "a", workload(), namespace="ns")
        assert await now.write(now.seen()) is Result.WRITTEN
        assert now.methods == ["PUT", "PATCH", "PATCH"]
    assert len([one for one in caplog.records if "without the right" in one.message]) == 1


async def test_the_patch_in_its_place_is_made_from_the_same_version() -> None:
    """A writer that came while it was refused wins over the patch too."""
    async with scene(workload()) as now:
        kept = now.seen()

        def refuse(method: str, _path: str) -> int | None:
            if method != "PUT":
                return None
            now.server.merge(WORKLOADS, "a", {"status": {"clusterName": "there"}}, namespace="ns")
            now.seen()
            return 403

        now.server.refuse = refuse
        assert await now.write(kept) is Result.LOST
        assert now.stored["status"] == {"clusterName": "there"}


@pytest.mark.parametrize("status", [422, 403])
async def test_what_is_refused_for_another_reason_is_not_tried_as_a_patch(status: int) -> None:
    async with scene(workload()) as now:
        said = KubeError("admission webhook denied the request", status=status)
        now.server.refuse = lambda method, _path: said if method == "PUT" else None
        assert await now.write(now.seen()) is Result.REFUSED
        assert now.methods == ["PUT"]


# For any status.

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)
times = st.none() | st.datetimes(timezones=st.just(UTC))
names = st.sampled_from(["a", "b"])


def few(one: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(one, max_size=2).map(tuple)


counts = st.integers(0, 3)
conditions = st.builds(
    Condition,
    type=names,
    status=st.sampled_from(["True", "False"]),
    reason=texts,
    message=texts,
    last_transition_time=times,
    observed_generation=counts,
)
amounts = st.dictionaries(names, st.sampled_from(["1", "500m", "3Gi"]).map(parse_quantity), max_size=2)
assignments = st.builds(
    PodSetAssignment,
    name=names,
    flavors=st.dictionaries(names, names, max_size=2),
    resource_usage=amounts,
    count=st.none() | counts,
)
statuses = st.builds(
    WorkloadStatus,
    admission=st.none() | st.builds(Admission, cluster_queue=names, pod_set_assignments=few(assignments)),
    requeue_state=st.none() | st.builds(RequeueState, count=st.none() | counts, requeue_at=times),
    conditions=few(conditions),
    reclaimable_pods=few(st.builds(ReclaimablePod, name=names, count=counts)),
    admission_checks=few(st.builds(AdmissionCheckState, name=names, state=st.just("Ready"), message=texts)),
    scheduling_stats=st.none()
    | st.builds(SchedulingStats, evictions=few(st.builds(EvictionCount, reason=names, count=counts))),
    cluster_name=st.none() | names,
)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(names, texts, min_size=1),
        "annotations": st.dictionaries(names, texts, min_size=1),
        "finalizers": st.lists(names, min_size=1, unique=True),
        "ownerReferences": st.lists(
            st.fixed_dictionaries(
                {"apiVersion": st.just("v1"), "kind": st.just("Pod"), "name": names, "uid": names},
                optional={"controller": st.booleans(), "blockOwnerDeletion": st.booleans()},
            ),
            min_size=1,
        ),
    },
)


@settings(max_examples=30, deadline=None)
@given(metadata, statuses)
def test_a_put_and_a_patch_store_the_same_under_the_same_owners(given: Json, wanted: WorkloadStatus) -> None:
    put, patched = Store(), Store()
    for store in (put, patched):
        store.create(KEY, workload(metadata=given), "site")
    before = read(put.get(KEY).render())
    after = msgspec.structs.replace(before, status=wanted)
    body, patch = status_body(before, after), status_patch(before, after)
    assert bool(body) is bool(patch)
    if body:
        put.update_status(KEY, body, "us")
        patched.merge_patch(KEY, patch, "us")
    assert put.get(KEY).render() == patched.get(KEY).render()
