"""The pages of job kinds are true: their examples ask for the pods that stand there, their sentences are the code's."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.jobs.framework import names
from controller.jobs.framework.kind import JobKind, ObjectKind, completed
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.templated import Path as At
from controller.jobs.framework.templated import TemplatedKind, located, replaced
from controller.jobs.framework.topologyrequest import GROUP_NAME, REQUIRED
from controller.jobs.kinds.table import DECLARED_KINDS, JOB_KINDS
from controller.jobs.rules.serving import deployment_created, statefulset_created
from controller.jobs.serving.kind import StampedKind
from controller.jobs.serving.leaderworkerset import SUBGROUP_TOPOLOGY, LeaderWorkerSet
from controller.jobs.serving.table import STAMPED_KINDS
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import MIN_REPLICAS
from tests.support.controller.kindrules import broken

DOCS = Path(__file__).resolve().parents[2] / "docs"
ALL_PAGES = sorted((DOCS / "kinds").glob("*.md"))
SERVING = DOCS / "kinds" / "serving.md"
"""Of kinds that have no Workload of their own."""
JOB_KIND = DOCS / "kinds" / "jobkind.md"
"""Of kinds that users declare: ``test_jobkind_page``."""
PAGES = [page for page in ALL_PAGES if page not in (SERVING, JOB_KIND)]
RUNTIME: Json = {
    "spec": {
        "mlPolicy": {"numNodes": 1},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {"template": {"spec": {"containers": [{"name": "node"}]}}},
                        },
                    }
                ]
            }
        },
    }
}
REMOVED: Any = object()


def blocks(page: Path, language: str = "") -> list[str]:
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for marked, text in found if marked == language]


def example(page: str) -> tuple[TemplatedKind, Json]:
    """The kind and the object of the page's example."""
    (text,) = blocks(DOCS / "kinds" / f"{page}.md", "yaml")
    job = yaml.safe_load(text)
    found = {(f"{kind.group}/{kind.version}", kind.kind): kind for kind in DECLARED_KINDS}
    return found[job["apiVersion"], job["kind"]], job


def look(_kind: ObjectKind, _namespace: str, name: str) -> Json | None:
    return {"torch": RUNTIME, "live": {"spec": {"workerGroupSpecs": [{"groupName": "other"}]}}}.get(name)


def changed(job: Json, *changes: tuple[At, Any]) -> Json:
    for at, value in changes:
        *above, last = at
        if value is REMOVED:
            outer = dict(located(job, tuple(above)))
            del outer[last]
            job = replaced(job, tuple(above), outer)
        else:
            job = replaced(job, at, value)
    return job


def said(page: str, *changes: tuple[At, Any], rule: bool = False) -> str:
    """What is said of the example with these changes: by the controller, or by the one rule of its kind."""
    kind, job = example(page)
    job = changed(job, *changes)
    if rule:
        (refusal,) = broken(kind, completed(kind, job, look))
        return f"{refusal.field}: {refusal.sentence}"
    with pytest.raises(JobError) as error:
        kind.pod_sets(completed(kind, job, look))
    return str(error.value)


def said_of_update(page: str, *changes: tuple[At, Any]) -> str:
    kind, old = example(page)
    (refusal,) = broken(kind, changed(old, *changes), before=old)
    return f"{refusal.field}: {refusal.sentence}"


JOBS = ("spec", "replicatedJobs")
MANY = [{"name": f"j{number}", "template": {}} for number in range(19)]
ONE_TEMPLATE: At = (*JOBS, 0, "template", "spec", "template")
CLUSTER = ("spec", "rayClusterSpec")
ELASTIC = (("metadata", "annotations"), {names.ELASTIC_JOB: "true"})
AUTOSCALING = ((*CLUSTER, "enableInTreeAutoscaling"), True)
DECLARED = ("spec", "components", 0, "podSets")


def of_all_kinds() -> Iterator[str]:
    yield said("jobset", (JOBS, MANY))
    yield said("jobset", ((*JOBS, 0, "replicas"), -1))
    yield said("jobset", (ONE_TEMPLATE, []))


def of_jobset() -> Iterator[str]:
    yield said("jobset", (JOBS, MANY))
    yield said("jobset", ((*ONE_TEMPLATE, "metadata"), {"annotations": {GROUP_NAME: "g", REQUIRED: "rack"}}))


def of_kubeflow() -> Iterator[str]:
    yield said("kubeflow", (("spec", "pytorchReplicaSpecs"), {}))
    yield said("kubeflow", (("spec", "pytorchReplicaSpecs", "Worker", "replicas"), -1))


def of_mpijob() -> Iterator[str]:
    yield said("mpijob", (("apiVersion",), "kubeflow.org/v1"))


def of_trainjob() -> Iterator[str]:
    kind, job = example("trainjob")
    with pytest.raises(JobError) as error:
        kind.pod_sets(completed(kind, job, lambda _kind, _namespace, _name: None))
    yield str(error.value)
    yield said("trainjob", (("spec", "runtimeRef", "kind"), "Recipe"))
    yield said("trainjob", (("spec", "podSpecOverrides"), [{}]))
    yield said("trainjob", (("spec", "podTemplateOverrides"), [{}]))
    yield said("trainjob", (("spec", "initializer"), {"dataset": {}}), rule=True)
    yield said("trainjob", (("spec", "runtimePatches"), [{"manager": "example.dev/team"}] * 2), rule=True)


def of_ray() -> Iterator[str]:
    yield said("ray", ELASTIC, AUTOSCALING, (("status",), {"rayClusterName": "live"}))
    yield said("ray", (("spec", "clusterSelector"), {"a": "b"}), rule=True)
    yield said("ray", (CLUSTER, REMOVED), rule=True)
    yield said("ray", (("spec", "shutdownAfterJobFinishes"), REMOVED), rule=True)
    yield said("ray", AUTOSCALING, rule=True)
    yield said("ray", ELASTIC, AUTOSCALING, (("spec", "managedBy"), "kueue.x-k8s.io/multikueue"), rule=True)
    groups = [{"groupName": f"g{number}"} for number in range(17)]
    yield said("ray", ((*CLUSTER, "workerGroupSpecs"), groups), rule=True)
    yield said("ray", ((*CLUSTER, "workerGroupSpecs", 0, "groupName"), "head"), rule=True)
    yield said_of_update("ray", ((*CLUSTER, "workerGroupSpecs", 0, "replicas"), 3))


def of_appwrapper() -> Iterator[str]:
    yield said("appwrapper", (DECLARED, [{"path": "spec.template"}]))
    yield said("appwrapper", (DECLARED, [{"path": "template.spec.pods"}]))
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": {}}}
    yield said("appwrapper", (("spec", "components", 0, "template"), daemons), rule=True)


def of_spark() -> Iterator[str]:
    yield said("spark", (("spec", "driver", "memory"), "lots"))
    yield said("spark", (("spec", "memoryOverheadFactor"), "-1"))
    yield said("spark", (("spec", "mode"), "client"), rule=True)
    yield said("spark", (("spec", "dynamicAllocation"), {"enabled": True}), rule=True)
    yield said("spark", (("spec", "restartPolicy"), {"type": "Always"}), rule=True)
    yield said_of_update("spark", (("spec", "executor", "instances"), 3))


def of_serving() -> Iterator[str]:
    gates = FeatureGates()
    marks = {"labels": {names.QUEUE_NAME: "q"}}
    (wrong,) = deployment_created({"metadata": {**marks, "annotations": {MIN_REPLICAS: "-1"}}}, gates)
    yield f"{wrong.field}: {wrong.sentence}"
    for size, each in ((6, 4), (34, 2)):
        template = {"size": size, "subGroupPolicy": {"subGroupSize": each}}
        asks = {"metadata": {"annotations": {SUBGROUP_TOPOLOGY: "rack"}}, "spec": {"leaderWorkerTemplate": template}}
        with pytest.raises(JobError) as refused:
            LeaderWorkerSet().groups(asks)
        yield str(refused.value)
    with pytest.raises(JobError) as refused:
        LeaderWorkerSet().groups({"metadata": {"name": "many"}, "spec": {"replicas": 2**31 - 1}})
    yield str(refused.value)
    (wrong,) = statefulset_created({"metadata": {**marks, "annotations": {MIN_REPLICAS: "2"}}}, gates)
    yield f"{wrong.field}: {wrong.sentence}"


SENTENCES = {
    "jobset": of_jobset,
    "kubeflow": of_kubeflow,
    "mpijob": of_mpijob,
    "trainjob": of_trainjob,
    "ray": of_ray,
    "appwrapper": of_appwrapper,
    "spark": of_spark,
}


def lines(page: Path) -> list[str]:
    """Of the unmarked blocks, less the one that says what the example asks for."""
    kinds = {kind.kind for kind in DECLARED_KINDS}
    found = [line.strip() for block in blocks(page) for line in block.splitlines() if line.strip()]
    return [line for line in found if line.partition(":")[0] not in kinds]


def test_every_page_of_a_kind_is_held_to_its_sentences() -> None:
    assert {page.stem for page in PAGES} == SENTENCES.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_says_is_refused_is_refused_in_these_words(page: Path) -> None:
    assert lines(page) == list(SENTENCES[page.stem]())


def test_what_is_refused_of_serving_kinds_is_refused_in_these_words() -> None:
    assert lines(SERVING) == list(of_serving())


def test_what_is_refused_of_every_kind_is_refused_in_these_words() -> None:
    assert lines(DOCS / "job-kinds.md") == list(of_all_kinds())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_example_asks_for_the_pods_that_the_page_says(page: Path) -> None:
    kind, job = example(page.stem)
    asked = kind.pod_sets(completed(kind, job, look))
    told = f"{kind.kind}: " + ", ".join(f"{each.name} {each.count}" for each in asked)
    assert told in page.read_text().splitlines()


@pytest.mark.parametrize("kind", JOB_KINDS, ids=lambda kind: kind.kind)
def test_the_table_of_kinds_has_each_with_its_names(kind: JobKind) -> None:
    rows = re.findall(r"^\| (\[[^|]*) \|([^|]*)\|([^|]*)\|[^|]*\|[^|]*\|([^|]*)\|$", overview(), re.MULTILINE)
    (row,) = (row for row in rows if re.search(rf"\b{kind.kind}\b", row[0].partition("]")[0]))
    group = f"{kind.group}/{kind.version}"
    assert f"`{group}`" in row[0]
    prefix, _, name = kind.framework.rpartition("/")
    assert f"`{kind.framework}`" in row[1] or (f"`{prefix}/" in row[1] and f"`/{name}`" in row[1])
    assert f"`{'.'.join(kind.suspend_path)}`" in row[2]
    assert row[3].strip() == ("yes" if kind.can_be_elastic else "no")


def overview() -> str:
    return (DOCS / "job-kinds.md").read_text()


def test_every_page_of_a_kind_is_on_the_overview() -> None:
    assert {f"kinds/{page.name}" for page in ALL_PAGES} == set(re.findall(r"\]\((kinds/[\w-]+\.md)", overview()))


@pytest.mark.parametrize("kind", STAMPED_KINDS, ids=lambda kind: kind.kind)
def test_each_serving_kind_is_on_the_overview_and_has_an_example_on_its_page(kind: StampedKind) -> None:
    assert f"[{kind.kind}](kinds/serving.md) `{kind.group}/{kind.version}` | `{kind.framework}`" in overview()
    examples = [yaml.safe_load(text) for text in blocks(SERVING, "yaml")]
    (shown,) = (each for each in examples if each.get("kind") == kind.kind)
    assert shown["apiVersion"] == f"{kind.group}/{kind.version}"
    assert names.QUEUE_NAME in shown["metadata"]["labels"]
