"""What an example needs is in it, or stands in its first line: a cluster may have nothing but Tessera."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack.cluster.programs.images import PUBLIC_CUDA_IMAGE, PUBLIC_PAUSE_IMAGE

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
READ_BY_PROGRAMS = ("bargaining", "capacity", "configs", "fleets", "live", "metrics", "migrate", "page", "simulate")
"""Folders of files that are not applied: of the agent, the controller, Helm, Prometheus and the simulations."""
APPLIED = sorted(
    path
    for path in EXAMPLES.rglob("*.yaml")
    if path.relative_to(EXAMPLES).parts[0] not in READ_BY_PROGRAMS and path.name != "values.yaml"
)
OPERATORS: Final = {
    "kubeflow.org/v1": "Kubeflow's training operator",
    "kubeflow.org/v2beta1": "Kubeflow's MPI operator",
    "trainer.kubeflow.org": "Kubeflow Trainer",
    "jobset.x-k8s.io": "the JobSet controller",
    "leaderworkerset.x-k8s.io": "the LeaderWorkerSet controller",
    "ray.io": "the KubeRay operator",
    "sparkoperator.k8s.io": "Kubeflow's Spark operator",
    "workload.codeflare.dev": "the AppWrapper controller",
    "batch.volcano.sh": "Volcano's CRDs",
    "scheduling.volcano.sh": "Volcano's CRDs",
    "scheduling.run.ai": "KAI's CRDs",
    "keda.sh": "KEDA",
}
"""Whose kinds they are."""
THERE: Final = {
    "v1",
    "apps",
    "autoscaling",
    "batch",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
}
"""Groups of Kubernetes' own; the chart brings two more."""
OURS: Final = {"tessera.dev", "kueue.x-k8s.io"}
PUBLIC: Final = {
    PUBLIC_CUDA_IMAGE,
    PUBLIC_PAUSE_IMAGE,
    "docker.io/library/python:3.13-slim",
    "docker.io/library/spark:4.0.0",
    "docker.io/rayproject/ray:2.46.0",
    "quay.io/jupyter/base-notebook:latest",
}
"""Images that a cluster can pull, by their full names."""
Need = tuple[str, str]
"""A kind of thing and its name."""


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(EXAMPLES)) for path in paths]


@functools.cache
def documents(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for document in yaml.safe_load_all(path.read_text()):
        found += document["items"] if document["kind"] == "List" else [document]
    return found


def first_line(path: Path) -> str:
    return path.read_text().partition("\n")[0]


def inside(value: Any, key: str) -> Iterator[Any]:
    """Every value of ``key``, at any depth."""
    if isinstance(value, dict):
        yield from ([value[key]] if key in value else [])
        for each in value.values():
            yield from inside(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from inside(each, key)


def brought(path: Path) -> set[Need]:
    """What the file itself makes."""
    made = set()
    for document in documents(path):
        kind, metadata = document["kind"], document["metadata"]
        within = f"{metadata.get('namespace', 'default')}/" if kind == "LocalQueue" else ""
        made.add((kind, within + metadata["name"]))
    return made


def groups(document: dict[str, Any]) -> Iterator[Need]:
    version = document["apiVersion"]
    group = version.partition("/")[0]
    if group not in THERE | OURS:
        yield ("operator", OPERATORS.get(version) or OPERATORS[group])
    if document["kind"] == "JobKind":
        yield ("operator", document["metadata"]["name"])


def queues(document: dict[str, Any]) -> Iterator[Need]:
    namespace = document["metadata"].get("namespace", "default")
    if namespace != "default":
        yield ("Namespace", namespace)
    labels = document["metadata"].get("labels", {})
    if "kueue.x-k8s.io/queue-name" in labels:
        yield ("LocalQueue", f"{namespace}/{labels['kueue.x-k8s.io/queue-name']}")
    if "kai.scheduler/queue" in labels:
        yield ("Queue", labels["kai.scheduler/queue"])
    spec = document.get("spec", {})
    if document["kind"] == "LocalQueue":
        yield ("ClusterQueue", spec["clusterQueue"])
    if document["kind"] == "ClusterQueue":
        yield from (("ResourceFlavor", each["name"]) for flavors in inside(spec, "flavors") for each in flavors)
    # Volcano's queue `default` is there without an object (docs/migration-volcano.md).
    if document["kind"] in ("Job", "PodGroup") and spec.get("queue", "default") != "default":
        yield ("Queue", spec["queue"])
    if document["kind"] == "Queue" and "parent" in spec:
        yield ("Queue", spec["parent"])


def nodes(document: dict[str, Any]) -> Iterator[Need]:
    spec = document.get("spec", {})
    for labels in (*inside(spec, "nodeLabels"), *inside(spec, "nodeSelector")):
        yield from (("label", f"{key}={value}") for key, value in labels.items() if not key.startswith("nvidia.com/"))
    for limits in inside(spec, "limits"):
        yield from (("resource", name) for name in limits if name not in ("nvidia.com/gpu", "cpu", "memory"))
    yield from (("Topology", name) for name in inside(spec, "topologyName"))
    yield from (("PriorityClass", name) for name in inside(spec, "priorityClassName") if name != "train")
    yield from (("label", key) for key in inside(document, "kueue.x-k8s.io/podset-preferred-topology"))


def needs(path: Path) -> set[Need]:
    return {need for each in documents(path) for look in (groups, queues, nodes) for need in look(each)}


def told(path: Path) -> tuple[set[Need], str]:
    """What the files that the first line names bring, with what these name; and the first lines themselves."""
    line, made = first_line(path), brought(path)
    for name in re.findall(r"examples/[\w/-]+\.yaml", line):
        if (ROOT / name) in APPLIED:
            further, said = told(ROOT / name)
            made, line = made | further, f"{line} {said}"
    return made, line


@pytest.mark.parametrize("path", APPLIED, ids=names(APPLIED))
def test_what_an_example_needs_is_in_it_or_in_its_first_line(path: Path) -> None:
    assert re.match(r"# Needs: \S", first_line(path))
    made, line = told(path)
    missing = {need for need in needs(path) - made if need[1].rpartition("/")[2] not in line and need[1] not in line}
    assert missing == set()


@pytest.mark.parametrize("path", APPLIED, ids=names(APPLIED))
def test_a_file_that_a_first_line_names_is_there(path: Path) -> None:
    for name in re.findall(r"(?:examples|docs)/[\w./-]*\w", first_line(path)):
        assert (ROOT / name).exists()


@pytest.mark.parametrize("path", APPLIED, ids=names(APPLIED))
def test_an_example_asks_for_resources_that_its_queue_covers(path: Path) -> None:
    """What a ClusterQueue does not cover is never admitted there: naming that queue would be of no use."""
    labels = [each["metadata"].get("labels", {}) for each in documents(path)]
    if not any("kueue.x-k8s.io/queue-name" in each for each in labels):
        return
    sources = [ROOT / name for name in re.findall(r"examples/(?:queues|demo)/[\w-]+\.yaml", told(path)[1])] + [path]
    covered = {name for each in sources for cover in inside(documents(each), "coveredResources") for name in cover}
    asked = {name for each in inside(documents(path), "resources") if isinstance(each, dict)
             for part in ("requests", "limits") for name in each.get(part, {})}  # fmt: skip
    assert asked <= covered


def every_image() -> list[tuple[str, str]]:
    found = []
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        found += [(str(path.relative_to(EXAMPLES)), one) for one in re.findall(r"\bimage: (\S+)", path.read_text())]
    return found


def test_images_can_be_pulled_or_the_first_line_asks_for_one_of_yours() -> None:
    foreign = {name for name, image in every_image() if image not in PUBLIC}
    assert len(foreign) < len({name for name, _ in every_image()}) / 5
    for name in foreign:
        assert re.search(r"images? of yours", first_line(EXAMPLES / name)), name


def test_the_examples_of_the_first_page_build_on_nothing_or_on_one_that_it_named_before() -> None:
    """Applied in their order to a cluster that is empty, none is refused."""
    page = (ROOT / "README.md").read_text()
    order = [ROOT / name for name in re.findall(r"\]\((examples/[\w./-]+\.yaml)\)", page)]
    assert len(order) > 5
    there: set[Need] = set()
    for path in order:
        there |= brought(path)
        asked = {need for need in needs(path) if need[0] in ("Namespace", "operator")}
        assert asked <= there, path.name
