"""``tessera support-bundle`` against an API server in this process: the bytes of what it writes."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.watching.kinds import GPU_NODES, NAMESPACES, WORKLOADS
from controller.jobs.framework import names
from kube.resources import EVENTS, PODS, Resource
from tests.support.cli.shell import Shell
from tests.support.controller.gpunodes import full_status

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
SECRET = "hunter2-hunter2"
OTHERS = ("secret-project", "llama-900b", "lq-cq", "alice")


def unpacked(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            assert entry.mode == 0o600
            found[entry.name.removeprefix("tessera-support/")] = file.read()
        return found


@pytest.fixture
def world(shell: Shell) -> Shell:
    """Another team's workload that runs, its Event and holder; a controller with a log."""
    scene, server = shell.scene, shell.scene.server
    server.create(NAMESPACES, "kube-system", {"metadata": {"uid": "a-uid-of-this-cluster"}})
    scene.queue(namespace="secret-project")
    scene.workload("llama-900b", 2, namespace="secret-project", annotations={names.JOB_OWNER_NAME: "llama-900b"})
    env = [{"name": "TOKEN", "value": SECRET}]
    sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "m", "env": env}]}}}]
    said = [{"type": "Evicted", "status": "True", "reason": "x", "message": "for llama-900b-0 by alice@example.com"}]
    patch: dict[str, Any] = {"spec": {"podSets": sets}, "status": {"conditions": said}}
    server.merge(WORKLOADS, "llama-900b", patch, namespace="secret-project")
    holders = [{"device": "GPU-0", "namespace": "secret-project", "pod": "llama-900b-0"}]
    device = {"uuid": "GPU-0", "index": 0}
    server.create(GPU_NODES, "node-1", {"status": full_status({"devices": [device], "holders": holders})})
    about = {"kind": "Workload", "namespace": "secret-project", "name": "llama-900b"}
    server.create(
        EVENTS, "e", {"metadata": {}, "regarding": about, "note": "llama-900b waits"}, namespace="secret-project"
    )
    text = f"clientConnection:\n  password: {SECRET}\n"
    chart = {"labels": {"app.kubernetes.io/name": "tessera"}}
    for name, metadata in (("tessera-controller", chart), ("neighbour-settings", {})):
        given = {"metadata": metadata, "data": {"controller.yaml": text}}
        server.create(CONFIG_MAPS, name, given, namespace="tessera-system")
    spec = {"containers": [{"name": "controller", "image": "tessera:1", "env": env}]}
    for name, metadata in (("tessera-controller-0", chart), ("neighbour-0", {})):
        server.create(PODS, name, {"metadata": metadata, "spec": spec}, namespace="tessera-system")
    return shell


async def test_the_bytes_have_no_secret_and_no_name_of_others(world: Shell, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    told = await world.run("support-bundle", "-f", str(path))
    assert told.stdout == f"{path}: 18 files; look through it before you hand it on\n"
    assert path.stat().st_mode & 0o777 == 0o600
    files = unpacked(path)
    everything = b"".join(files.values())
    for hidden in (SECRET, *OTHERS, "a-uid-of-this-cluster", "neighbour"):
        assert hidden.encode() not in everything, hidden
    (workload,) = json.loads(files["workloads.json"])
    (gpu_node,) = json.loads(files["gpunodes.json"])
    (holder,) = gpu_node["status"]["holders"]
    assert workload["metadata"]["namespace"] == holder["namespace"]
    assert workload["metadata"]["namespace"].startswith("namespace-")
    assert workload["metadata"]["name"] in holder["pod"] or holder["pod"].startswith("pod-")
    assert json.loads(files["clusterqueues.json"])[0]["metadata"]["name"] == "cq"
    (pod,) = json.loads(files["pods.json"])
    assert pod["spec"]["containers"] == [{"name": "controller", "image": "tessera:1"}]
    assert b"password: (left out)" in files["config.json"]
    assert {"versions.json", "README.txt", "notes.txt", "logs/tessera-controller-0.controller.log"} <= files.keys()
    assert json.loads(files["versions.json"])["agents"] == [{"version": "", "nodes": 1}]


async def test_pseudonyms_are_the_same_in_the_next_bundle_and_kept_namespaces_are_told(
    world: Shell, tmp_path: Path
) -> None:
    names_: list[str] = []
    for at, keep in enumerate(((), (), ("--keep", "secret-project"))):
        path = tmp_path / f"{at}.tar.gz"
        await world.run("support-bundle", "-f", str(path), *keep)
        names_.append(json.loads(unpacked(path)["workloads.json"])[0]["metadata"]["namespace"])
    assert names_[0] == names_[1]
    assert names_[2] == "secret-project"
    assert json.loads(unpacked(tmp_path / "2.tar.gz")["kept.json"]) == ["secret-project"]


async def test_what_may_not_be_read_is_noted_and_the_rest_is_there(world: Shell, tmp_path: Path) -> None:
    world.door.forbidden = "/workloads$|/events$|/log$"
    path = tmp_path / "report.tar.gz"
    found = await world.json("support-bundle", "-f", str(path))
    files = unpacked(path)
    assert sorted(files) == found["files"]
    assert json.loads(files["workloads.json"]) == []
    said = files["notes.txt"].decode()
    assert all(f"{word}: " in said for word in ("workloads", "events", "log of tessera-controller-0"))


async def test_a_file_that_is_there_is_not_written_over(world: Shell, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    path.write_text("mine")
    told = await world.run("support-bundle", "-f", str(path), code=1)
    assert told.stderr.splitlines()[-1] == f"Error: {path}: cannot be written: file exists. Use another path"
    assert path.read_text() == "mine"
