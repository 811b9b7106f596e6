"""The API server that tests run against does with a status that is put what a real one does."""

from typing import Any

import pytest

from kube.client import Client
from kube.errors import ConflictError, InvalidError
from kube.resources import NODES, Resource
from kube.testing import FakeApiServer
from kube.testing.server import parse_subresource

THINGS = Resource("example.org", "v1", "things", "Thing", namespaced=True)
Json = dict[str, Any]


def thing(server: FakeApiServer) -> Json:
    found: Json = server.get(THINGS, "a", namespace="ns")
    return found


def owners(found: Json) -> dict[str, Json]:
    return {one["manager"]: one["fieldsV1"] for one in found["metadata"]["managedFields"]}


async def put(client: Client, metadata: Json, **body: Any) -> None:
    whole = {"metadata": {"name": "a", **metadata}, **body}
    await client.update(THINGS, "a", whole, Json, field_manager="us", namespace="ns", subresource="status")


async def test_only_the_status_is_stored() -> None:
    async with FakeApiServer() as server, Client(server.config) as client:
        made = server.create(
            THINGS, "a", {"metadata": {"labels": {"k": "v"}}, "spec": {"x": 1}, "status": {"old": 1}}, namespace="ns"
        )
        meta = made["metadata"]
        same = {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"], "labels": {"k": "v"}}
        await put(client, same, spec={"x": 2}, status={"new": 1})
        found = thing(server)
        assert (found["spec"], found["status"], found["metadata"]["labels"]) == ({"x": 1}, {"new": 1}, {"k": "v"})
        assert owners(found) == {
            "test": {"f:metadata": {"f:labels": {"f:k": {}}}, "f:spec": {"f:x": {}}},
            "us": {"f:status": {"f:new": {}}},
        }


async def test_metadata_that_is_left_out_stays_and_loses_its_owner() -> None:
    """As with a server before Kubernetes 1.36."""
    async with FakeApiServer() as server, Client(server.config) as client:
        made = server.create(THINGS, "a", {"metadata": {"labels": {"k": "v"}}, "spec": {"x": 1}}, namespace="ns")
        await put(client, {"resourceVersion": made["metadata"]["resourceVersion"]}, status={"new": 1})
        found = thing(server)
        assert (found["spec"], found["metadata"]["labels"]) == ({"x": 1}, {"k": "v"})
        assert owners(found) == {"test": {"f:spec": {"f:x": {}}}, "us": {"f:status": {"f:new": {}}}}


async def test_another_version_or_object_is_a_conflict_and_no_version_is_invalid() -> None:
    async with FakeApiServer() as server, Client(server.config) as client:
        made = server.create(THINGS, "a", {"metadata": {}}, namespace="ns")
        version = made["metadata"]["resourceVersion"]
        for wrong in ({"resourceVersion": "1"}, {"resourceVersion": version, "uid": "other"}):
            with pytest.raises(ConflictError):
                await put(client, wrong, status={"new": 1})
        with pytest.raises(InvalidError, match="must be specified for an update"):
            await put(client, {}, status={"new": 1})
        assert "status" not in thing(server)
        server.create(NODES, "n", {"metadata": {}})
        await client.update(NODES, "n", {"metadata": {"name": "n"}, "status": {"a": 1}}, Json, subresource="status")
        assert server.get(NODES, "n")["status"] == {"a": 1}, "Kubernetes' own kinds need none"


@pytest.mark.parametrize(
    ("path", "subresource"),
    [
        (NODES.path(), ""),
        (NODES.path("n"), ""),
        (NODES.path("n", subresource="status"), "status"),
        (THINGS.path(namespace="ns"), ""),
        (THINGS.path("status", namespace="ns"), ""),
        (THINGS.path("a", namespace="ns", subresource="scale"), "scale"),
    ],
)
def test_a_subresource_is_what_follows_the_name(path: str, subresource: str) -> None:
    assert parse_subresource(path) == subresource


async def test_pages_and_changes_are_found_without_a_look_at_the_rest() -> None:
    async with FakeApiServer() as server:
        for name in "cab":
            server.create(THINGS, name, {"metadata": {}})
        before = server.store.version
        server.merge(THINGS, "b", {"metadata": {"labels": {"a": "b"}}})
        server.delete(THINGS, "c")
        async with Client(server.config) as client:
            listed = await client.list_all(THINGS, dict[str, Any])
    assert [item["metadata"]["name"] for item in listed.items] == ["a", "b"]
    assert [change.type for change in server.store.since(before)] == ["MODIFIED", "DELETED"]
    assert server.store.since(server.store.version) == []
