"""``tessera advise --pack``, from files and from an API server's objects."""

import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

from cli.main import tessera
from controller.objects.decode import KUEUE
from controller.objects.meta import KubernetesObject, to_json
from tests.controller.scheduler.consolidation.test_packing import fragmented
from tests.support.engine.foreignqueues import asks, kai_queue, rest
from tests.support.engine.foreignqueues import node as gpu_node
from tests.support.engine.world import World, workload

VERSIONS = {"Node": "v1", "Queue": "scheduling.run.ai/v2"}


def written(lab: World, folder: Path) -> Path:
    """All objects of the world as ``kubectl get -o json`` writes them."""
    file = folder / "state.json"
    objects: list[KubernetesObject] = [*lab.others.values(), *lab.workloads.values()]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(map(manifest, objects))}))
    return file


def manifest(given: KubernetesObject) -> dict[str, Any]:
    kind = type(given).__name__.removeprefix("Kai")
    return {"apiVersion": VERSIONS.get(kind, KUEUE), "kind": kind, **to_json(given)}


def asked(*words: str, code: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(tessera, ["advise", *words])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    lab = fragmented()
    lab.put(workload("wide", "q", 4, created_s=50))
    return written(lab, tmp_path)


def test_a_plan_says_what_moves_from_where_to_where_and_what_it_costs(waiting: Path) -> None:
    body = json.loads(asked("--pack", "-f", str(waiting), "-o", "json").stdout)
    (plan,) = body["plans"]
    assert (body["source"], plan["workload"], plan["clusterQueue"]) == ("files", "ns/wide", "q")
    (move,) = plan["moves"]
    assert (move["workload"], move["from"], move["to"]) == ("ns/d", ["n2"], ["n1"])
    assert body["lostGpuSeconds"] == plan["lostGpuSeconds"] == move["lostGpuSeconds"] > 0


def test_people_read_a_table_and_a_sum(waiting: Path) -> None:
    lines = asked("--pack", "-f", str(waiting)).stdout.splitlines()
    assert lines[0].startswith("ns/wide in q: ")
    assert lines[2].split()[:4] == ["ns/d", "q", "n2", "n1"]
    assert lines[-2].startswith("1 would run if 1 moved; ")
    assert lines[-1] == "no move would free a whole node"


def test_nodes_that_would_be_free_are_named_with_what_they_cost_and_save(tmp_path: Path) -> None:
    file = written(fragmented(), tmp_path)
    (freed,) = json.loads(asked("--pack", "-f", str(file), "-o", "json").stdout)["frees"]
    (move,) = freed["moves"]
    assert (freed["node"], move["workload"], move["from"], move["to"]) == ("n2", "ns/d", ["n2"], ["n1"])
    assert freed["lostGpuSeconds"] == move["lostGpuSeconds"] > 0
    assert freed["savesNodeHours"] is None, "nobody knows how long d runs"
    lines = asked("--pack", "-f", str(file)).stdout.splitlines()
    assert lines[1].startswith("node n2 would be free: saves 1 node-hour an hour, for as long as they run; ")
    assert lines[-1].startswith("1 node would be free if 1 moved; ")
    assert json.loads(asked("--pack", "-f", str(file), "-n", "other", "-o", "json").stdout)["frees"] == []
    page = (Path(__file__).parents[3] / "docs/packing.md").read_text()
    named = page.split("`-o json` has them as `frees`:")[1].split("\n")[0]
    assert all(f"`{key}`" in named for key in (*freed, "from", "to"))


def test_only_one_namespace_is_told_where_one_is_named(waiting: Path) -> None:
    assert json.loads(asked("--pack", "-f", str(waiting), "-n", "other", "-o", "json").stdout)["plans"] == []
    assert asked("--pack", "-f", str(waiting), "-n", "other").stdout.splitlines()[0] == (
        "no move would let a workload run that waits"
    )


def test_trees_of_kais_queues_are_advised_on_too(tmp_path: Path) -> None:
    lab = World()
    lab.put(gpu_node("n1", 4), gpu_node("n2", 4), kai_queue("q", quota=8))
    for at, (name, gpus) in enumerate((("a", 2), ("b", 3), ("c", 2), ("d", 1))):
        lab.put(asks(name, "q", gpus, created_s=at))
        rest(lab)
    lab.finish("a")
    lab.finish("b")
    lab.put(asks("wide", "q", 4, created_s=50))
    body = json.loads(asked("--pack", "-f", str(written(lab, tmp_path)), "-o", "json").stdout)
    assert [plan["workload"] for plan in body["plans"]] == ["ns/wide"]


def test_a_file_that_is_wrong_is_told_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(f"apiVersion: {KUEUE}\nkind: Workload\nmetadata: {{name: w}}\nspec: {{podSets: 3}}\n")
    assert (
        "wrong.yaml:4: Workload w: spec.podSets: found 3, expected" in asked("--pack", "-f", str(file), code=2).output
    )


def test_files_are_for_moves_and_something_must_be_asked(waiting: Path) -> None:
    assert "--file: found one, expected --pack" in asked("-f", str(waiting), code=2).output
    assert "--prometheus: found none, expected its URL, or --pack" in asked(code=2).output


def test_what_is_no_object_of_queues_is_passed_over(waiting: Path) -> None:
    body = json.loads(waiting.read_text())
    body["items"].append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {}})
    waiting.write_text(json.dumps(body))
    assert len(json.loads(asked("--pack", "-f", str(waiting), "-o", "json").stdout)["plans"]) == 1


def test_the_page_shows_the_answer_about_packing_as_it_is(waiting: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/advise.md").read_text()
    shown = json.loads(page.split("```json\n")[2].split("```")[0])
    found = json.loads(asked("--pack", "-f", str(waiting), "-o", "json").stdout)
    assert shown.keys() == found.keys()
    assert shown["plans"][0].keys() == found["plans"][0].keys()
    assert shown["plans"][0]["moves"][0].keys() == found["plans"][0]["moves"][0].keys()
