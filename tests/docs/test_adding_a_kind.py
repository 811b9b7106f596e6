"""``docs/adding-a-kind.md`` makes a kind from nothing: the page's code takes the page's object through admission."""

import copy
import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from controller.jobs.framework import names
from controller.jobs.framework.raw import Json
from controller.jobs.framework.templated import TemplatedKind
from tests.support.controller.jobmodel import UID
from tests.support.controller.kindworld import KindWorld

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-kind.md"
MOST_LINES = 100


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.fixture(name="kind")
def _kind(tmp_path: Path) -> TemplatedKind:
    path = tmp_path / "sweep.py"
    path.write_text(block("python"))
    spec = importlib.util.spec_from_file_location("sweep", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.Sweep()
    assert isinstance(found, TemplatedKind)
    return found


def sweep(**spec: object) -> Json:
    """The page's object, as the API server returns it after creation."""
    found: Json = yaml.safe_load(block("yaml"))
    found["metadata"] |= {"uid": UID, "resourceVersion": "1", "generation": 1}
    found["spec"] |= spec
    return {**found, "status": {}}


def run(job: Json, on: bool) -> None:
    """The controller of Sweeps: as many pods as were asked for, or none."""
    pods = 1 + job["spec"]["trials"]["parallel"] if on else 0
    job["status"] |= {"phase": "Running" if on else "Paused", "pods": pods, "readyPods": pods}


def test_it_is_a_page_of_code() -> None:
    assert len(block("python").splitlines()) < MOST_LINES


def test_its_object_waits_starts_is_preempted_restored_started_elsewhere_and_ends(kind: TemplatedKind) -> None:
    scene = KindWorld(kind, sweep(), run)
    before = copy.deepcopy(sweep()["spec"])
    scene.settle()
    workload = scene.workloads[scene.only]
    assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [("search", 1), ("trials", 4)]
    assert workload["spec"]["queueName"] == "research"
    assert scene.suspended()

    scene.admit(scene.only)
    scene.settle()
    assert scene.job is not None
    assert not scene.suspended()
    assert scene.job["status"]["pods"] == 5
    trials = scene.job["spec"]["trials"]["template"]
    assert trials["spec"]["nodeSelector"] == {"disk": "ssd", "gpu": "a100"}
    assert trials["metadata"]["labels"] == {
        "team": "vision",
        names.POD_SET: "trials",
        names.CLUSTER_QUEUE_NAME: "cq",
        names.LOCAL_QUEUE_NAME: "research",
    }
    assert scene.has(scene.only, "PodsReady")

    scene.evict(scene.only)
    scene.settle()
    assert scene.job["status"]["pods"] == 0
    assert scene.job["spec"] == before
    assert "admission" not in scene.workloads[scene.only]["status"]

    scene.admit(scene.only, flavor="h100")
    scene.settle()
    assert scene.job["spec"]["trials"]["template"]["spec"]["nodeSelector"]["gpu"] == "h100"
    name = scene.only
    scene.job["status"] |= {"phase": "Succeeded", "pods": 0, "message": "the best trial is 3"}
    scene.settle()
    (finished,) = (one for one in scene.workloads[name]["status"]["conditions"] if one["type"] == "Finished")
    assert (finished["reason"], finished["message"]) == ("Succeeded", "the best trial is 3")


def test_one_that_was_created_running_is_held_before_it_queues(kind: TemplatedKind) -> None:
    scene = KindWorld(kind, sweep(paused=False), run)
    scene.settle()
    assert scene.suspended()
    assert scene.live() == [scene.only]


def test_its_quota_is_kept_until_its_pods_are_gone(kind: TemplatedKind) -> None:
    scene = KindWorld(kind, sweep(), run)
    scene.settle()
    scene.admit(scene.only)
    scene.settle()
    scene.evict(scene.only)
    scene.step()
    assert scene.suspended()
    assert scene.next_actions() == ()
    scene.settle()
    assert "admission" not in scene.workloads[scene.only]["status"]


def test_what_is_not_its_shape_is_refused_in_one_sentence(kind: TemplatedKind) -> None:
    scene = KindWorld(kind, sweep(trials={"parallel": "many"}), run)
    scene.step()
    assert scene.refusals == ["spec.trials.parallel: expected an integer, found str"]
