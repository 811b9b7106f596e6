"""Watches that break off too long ago to be taken up again, and a controller that reads them too slowly."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.cut import Cut
from tests.support.e2e.queuelab import install, lab, until

pytestmark = pytest.mark.e2e

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/workloads"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Without its watch cache, the API server can only tell what etcd has not compacted away: here a few seconds."""
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    forgetful = ("--watch-cache=false", "--etcd-compaction-interval=3s")
    spec = Spec(nodes=(), kwok_nodes=1, apiserver_args=forgetful)
    with Cluster.up(f"watches-{os.getpid()}", spec) as cluster:
        install(cluster)
        yield cluster


def through(cluster: Cluster, cut: Cut, folder: Path) -> Path:
    """A kubeconfig that leads through the relay."""
    config = json.loads(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{cut.port}"
    file = folder / "cut.kubeconfig"
    file.write_text(json.dumps(config))
    return file


def server(cluster: Cluster) -> tuple[str, int]:
    found = urlsplit(json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    assert found.hostname is not None
    assert found.port is not None
    return found.hostname, found.port


def version(cluster: Cluster) -> str:
    listed = json.loads(cluster.kubectl("get", "--raw", f"{WORKLOADS}?limit=1"))
    return str(listed["metadata"]["resourceVersion"])


def forgotten(cluster: Cluster, resource_version: str) -> bool:
    """Whether a watch from this version is answered with 410."""
    query = f"{WORKLOADS}?watch=1&timeoutSeconds=1&resourceVersion={resource_version}"
    return '"code":410' in cluster.kubectl("get", "--raw", query)


async def test_what_happened_meanwhile_is_made_up_for_when_a_watch_cannot_be_taken_up(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with lab(cluster, {"alone": 2}) as scene:
        await scene.queue("alone", 2)
        with Cut(server(cluster)) as cut:
            flags = ("--no-leader-elect", "--kubeconfig", str(through(cluster, cut, tmp_path)))
            with scene.controllers(tmp_path, "one", flags=flags) as (controller,):
                await scene.job("goes", "alone")
                await scene.job("stays", "alone")
                await until(lambda: scene.runs("goes") and scene.runs("stays"), "both run")
                before = version(cluster)
                cut.cut()
                # Gone without the controller hearing of it; and one that comes meanwhile.
                cluster.kubectl("delete", "job", "-n", "team", "goes", "--cascade=background")
                await scene.job("comes", "alone")
                turns = count()

                def gone() -> bool:
                    """etcd compacts by the clock, up to a revision of some time ago: there must be newer ones."""
                    cluster.kubectl("label", "namespace", "team", "--overwrite", f"turn={next(turns)}")
                    return forgotten(cluster, before)

                await until(gone, "what the controller knew last is compacted away")
                cut.mend()
                await until(lambda: scene.runs("comes"), "the place of the one that went is taken")
                assert scene.runs("stays")
                assert controller.runs
                await scene.clean()


async def test_a_controller_that_stands_still_catches_up(cluster: Cluster, tmp_path: Path) -> None:
    async with lab(cluster, {"alone": 4}) as scene:
        await scene.queue("alone", 4)
        with scene.controllers(tmp_path, "one", flags=("--no-leader-elect",)) as (controller,):
            await scene.job("first", "alone", runs="1s")
            await until(lambda: scene.complete("first"), "the controller works")
            assert controller.process is not None
            controller.process.send_signal(signal.SIGSTOP)
            names = [f"job-{number}" for number in range(12)]
            for name in names:
                await scene.job(name, "alone", runs="1s")
            for number in range(60):
                cluster.kubectl("label", "job", "-n", "team", "--all", "--overwrite", f"turn={number % 7}")
                if number % 20 == 19:
                    await asyncio.sleep(1.0)  # time for the server to find its buffers full
            controller.process.send_signal(signal.SIGCONT)
            await until(lambda: all(map(scene.complete, names)), "all have run")
            await until(
                lambda: all(scene.condition(name, "Finished") == "True/Succeeded" for name in names),
                "all workloads are finished",
            )
            await scene.clean()
