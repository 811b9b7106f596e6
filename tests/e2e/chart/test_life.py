"""One release through its life, by the commands of its pages, beside pods, a gang and a job that waits."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from tests.support.e2e.claimlab import CLASS, Volumes
from tests.support.e2e.lab import CRDS, GPU, until
from tests.support.e2e.lifelab import (
    FILES,
    LAYOUT,
    PRESENT,
    PREVIOUS,
    QUEUES,
    SAID,
    SPEC,
    Life,
    Thing,
    answered_all_the_time,
)

pytestmark = pytest.mark.e2e

OLDER_API = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"


def left(life: Life) -> set[Thing]:
    """What the page names, and what people made themselves."""
    theirs = ("Job default late", "Job default waits", "Pod default holds", "LocalQueue default team")
    found = {(kind, place, name) for kind, place, name in map(str.split, theirs)}
    found |= {("ClusterQueue", "", "team"), ("ResourceFlavor", "", "any"), ("GpuLayout", "", "notebooks")}
    found |= {("Pod", "default", name) for name in life.containers()}
    return life.left() | found | {("Workload", "default", name) for name in life.workloads()}


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    binaries.build("helm")
    with Cluster.up(f"life-{os.getpid()}", SPEC) as cluster:
        life = Life.beside(cluster, tmp_path_factory.mktemp("life"))
        life.load(PREVIOUS, PRESENT)
        yield life


@pytest.fixture(scope="module")
def before(life: Life) -> tuple[set[Thing], set[str]]:
    """Of a cluster that nothing was installed in: its objects, and the files of its node."""
    return life.before()


@pytest.fixture(scope="module")
def running(life: Life, before: tuple[set[Thing], set[str]]) -> dict[str, Any]:  # noqa: ARG001 - before it
    """The previous release, with four GPUs held by a pod, a gang of two in a queue, and a job that waits behind it.

    What is not to change from here on.
    """
    life.install(PREVIOUS)
    life.lab.await_amounts({GPU: 8})
    life.cluster.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, QUEUES)))
    life.cluster.kubectl("apply", "-f", str(LAYOUT))
    life.lab.run("holds", {GPU: 4})
    life.job("gang", 2)
    until(lambda: sum(bool(one["since"]) for one in life.containers().values()) == 3, "the gang runs")
    life.job("waits", 1)
    until(lambda: len(life.admissions()) == 2, "the job that waits has a workload")
    until(lambda: len(life.holders()) == 6, "the agent knows who holds what")
    assert life.agents() == {SAID[PREVIOUS]}
    return state(life)


def state(life: Life) -> dict[str, Any]:
    return {
        "containers": life.containers(),
        "admitted": life.admissions(),
        "holders": life.holders(),
        "waits": life.suspended("waits"),
    }


def test_an_upgrade_interrupts_nothing(life: Life, running: dict[str, Any]) -> None:
    with answered_all_the_time(life.lab, OLDER_API):
        life.shell.follow("upgrade.md", "Upgrading", life.site())
    until(lambda: life.agents() == {PRESENT}, "the new agent has written its GpuNode")
    life.lab.await_amounts({GPU: 8})
    until(lambda: state(life) == running, "all is as it was")
    assert running["waits"]


def test_going_back_interrupts_nothing(life: Life, running: dict[str, Any]) -> None:
    with answered_all_the_time(life.lab, OLDER_API):
        life.shell.follow("upgrade.md", "Going back")
    until(lambda: life.agents() == {SAID[PREVIOUS]}, "the older agent has written its GpuNode")
    life.lab.await_amounts({GPU: 8})
    until(lambda: state(life) == running, "all is as it was")


def test_upgraded_again_it_decides_about_what_was_there(life: Life, running: dict[str, Any]) -> None:
    life.shell.follow("upgrade.md", "Upgrading", life.site())
    until(lambda: life.agents() == {PRESENT}, "the new agent has written its GpuNode")
    until(lambda: state(life) == running, "all is as it was")
    life.cluster.kubectl("delete", "job", "gang", "--cascade=foreground", "--timeout=120s")
    until(lambda: not life.suspended("waits"), "the job that waited starts")
    until(lambda: sum(bool(one["since"]) for one in life.containers().values()) == 2, "its pod runs")


@pytest.mark.usefixtures("running")
def test_claims_take_the_place_of_an_emptydir_and_go_again(life: Life) -> None:
    """The commands of docs/history.md: what runs goes on, no file is shared, and a claim outlives pods and kinds."""
    volumes = Volumes.made(life, 2)
    until(lambda: len(life.holders()) == 5, "the agent knows that the gang is gone")
    there = state(life)
    enabled = "persistence.enabled=true"
    claimed = {**life.site(), enabled: f"{enabled} --set controller.history.persistence.storageClassName={CLASS}"}
    life.shell.follow("history.md", "Claims in place of an emptyDir", claimed)
    until(lambda: life.controllers() == {"StatefulSet": 2}, "both replicas have claims")
    until(lambda: all(volumes.samples()), "each replica has written a file of its own")
    until(lambda: state(life) == there, "all is as it was")

    life.shell.follow("history.md", "Back to an emptyDir", life.site())
    until(lambda: life.controllers() == {"Deployment": 2}, "no replica has a claim")
    until(lambda: state(life) == there, "all is as it was")

    before = volumes.samples()
    life.shell.follow("history.md", "Claims in place of an emptyDir", claimed)
    more = "each replica goes on with the file of its claim"
    until(lambda: all(now > then for now, then in zip(volumes.samples(), before, strict=True)), more)
    until(lambda: state(life) == there, "all is as it was")

    life.shell.follow("history.md", "Back to an emptyDir", life.site())
    volumes.gone()


@pytest.mark.usefixtures("running")
def test_an_uninstall_after_a_life_leaves_what_the_page_names(life: Life, before: tuple[set[Thing], set[str]]) -> None:
    life.job("late", 2)
    until(lambda: "late" in life.admissions(), "another job waits")
    there = life.containers()
    life.shell.follow("upgrade.md", "Uninstalling")
    life.lab.await_amounts({GPU: 0})
    objects, files = before
    life.await_left(objects, left(life))
    assert life.files() - files <= FILES
    assert life.containers() == there
    assert life.suspended("late")


@pytest.mark.history(allow={"ran-without-admission"}, why="Workloads go with their CRD, and what runs goes on")
@pytest.mark.usefixtures("running")
def test_without_the_crds_no_queue_is_left_and_what_runs_goes_on(life: Life) -> None:
    """After the uninstall: nobody converts between versions any more."""
    there = life.containers()
    life.cluster.kubectl("delete", "-f", str(CRDS), "--timeout=120s")
    kinds = {kind for kind, _, _ in life.everything()}
    assert kinds.isdisjoint({"ClusterQueue", "LocalQueue", "ResourceFlavor", "Workload", "GpuNode", "GpuLayout"})
    assert life.containers() == there
    assert life.suspended("late")
