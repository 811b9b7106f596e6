"""Every field of every kind's CRD is served, refused with its sentence, without bearing on scheduling, or told of."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import yaml

from controller.insight.simulation.crddefaults import with_defaults
from controller.jobs.framework.kind import Look, ObjectKind, api_version, completed, no_objects
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.templated import TemplatedKind
from controller.jobs.kinds.table import DECLARED_KINDS
from controller.jobs.rules import kinds
from controller.jobs.serving.leaderworkerset import LeaderWorkerSet
from controller.scheduler.model.gates import FeatureGates
from tests.conformance.jobcrds.fieldrows import POD, Refused, Row, Served, Told, uncovered, written
from tests.conformance.jobcrds.fieldtable import FIELDS
from tests.conformance.jobcrds.kindcrds import ROOT, below, specs

pytestmark = pytest.mark.conformance

Observe = Callable[[Json], Any]
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
BESIDE_EXAMPLES: dict[str, dict[str, Any]] = {
    "AppWrapper": {
        "spec.components": [
            {
                "template": {"spec": {"pods": {"spec": {"containers": []}}, "others": POD}},
                "podSets": [{"replicas": 2, "path": "template.spec.pods"}],
            }
        ]
    },
    "JobSet": {"status": {"replicatedJobsStatus": [{"name": "leader", "succeeded": 1}]}},
    "LeaderWorkerSet": {"status": {"replicas": 3, "updatedReplicas": 0}},
    "TrainJob": {"status": {"jobsStatus": [{"name": "node", "succeeded": 1}]}},
}
"""What examples do not have, and some fields are about."""


def versions() -> dict[str, str]:
    """apiVersion by kind."""
    served = {kind.kind: api_version(kind) for kind in DECLARED_KINDS}
    read = {other.kind: f"{other.group}/{other.version}" for kind in DECLARED_KINDS for other in kind.reads}
    return {**read, **served, LeaderWorkerSet.kind: f"{LeaderWorkerSet.group}/{LeaderWorkerSet.version}"}


@cache
def paths(kind: str) -> tuple[str, ...]:
    """All fields of its CRD. JAXJob has the ones of XGBoostJob: both are made of the operator's common types."""
    of = "XGBoostJob" if kind == "JAXJob" else kind
    found = tuple(path for path, _ in below(specs()[versions()[of], of], "spec"))
    return tuple(path.replace("xgb", "jax") for path in found) if kind == "JAXJob" else found


@pytest.mark.parametrize("kind", FIELDS)
def test_every_field_of_the_crd_has_a_row(kind: str) -> None:
    assert uncovered(list(paths(kind)), FIELDS[kind]) == []


@pytest.mark.parametrize(
    "added",
    ["spec.gang", "spec.workerGroupSpecs[].least", "spec.autoscalerOptions.most", "spec.workerGroupSpecs[].template2"],
)
def test_a_new_field_has_no_row(added: str) -> None:
    assert uncovered([*paths("RayCluster"), added], FIELDS["RayCluster"]) == [added]


@pytest.mark.parametrize("kind", FIELDS)
def test_no_row_is_of_a_field_that_is_gone(kind: str) -> None:
    assert FIELDS[kind].keys() - set(paths(kind)) == set()


def test_every_kind_has_a_table() -> None:
    assert FIELDS.keys() == versions().keys()


def rows(sort: type[Row]) -> list[Any]:
    return [
        pytest.param(kind, path, row, id=f"{kind}-{path}")
        for kind, found in FIELDS.items()
        for path, row in found.items()
        if isinstance(row, sort)
    ]


@pytest.mark.parametrize(("kind", "path", "row"), rows(Served))
def test_a_field_that_is_served_changes_what_follows(kind: str, path: str, row: Served) -> None:
    before, observe = example(kind)
    for other, value in row.beside.items():
        before = written(before, other, value)
    assert observe(written(before, path, row.tried)) != observe(before)


@pytest.mark.parametrize(("kind", "path", "row"), rows(Refused))
def test_a_field_that_is_refused_is_refused_with_its_sentence(kind: str, path: str, row: Refused) -> None:
    job, _ = example(kind)
    job = written(job, path, row.tried)
    if row.tried is None:
        del job["spec"][path.removeprefix("spec.")]
    assert row.sentence in sentences(declared(kind), job)
    assert row.sentence not in sentences(declared(kind), example(kind)[0])


@pytest.mark.parametrize(("kind", "path", "row"), rows(Told))
def test_a_field_that_is_told_of_stands_on_its_page(kind: str, path: str, row: Told) -> None:
    assert row.sentence in (ROOT / "docs" / row.page).read_text(), f"{kind} {path}"


def declared(kind: str) -> TemplatedKind:
    return next(each for each in DECLARED_KINDS if each.kind == kind)


def sentences(kind: TemplatedKind, job: Json) -> list[str]:
    return [f"{each.field}: {each.sentence}" for each in kinds.created(kind, job, FeatureGates())]


@cache
def manifest(kind: str) -> Json:
    name = "trainjob" if kind in RUNTIMES else kind.lower()
    found = yaml.safe_load_all((ROOT / f"examples/kinds/{name}.yaml").read_text())
    wanted = RUNTIMES[0] if kind in RUNTIMES else kind
    made: Json = with_defaults(next(each for each in found if each["kind"] == wanted))
    return made


def example(kind: str) -> tuple[Json, Observe]:
    """A suspended object, and what a change of one of its kind would show in."""
    made = manifest(kind)
    for path, value in BESIDE_EXAMPLES.get(kind, {}).items():
        made = written(made, path, value)
    if kind == LeaderWorkerSet.kind:
        return made, groups
    if kind in RUNTIMES:
        jobs = made["spec"]["template"]["spec"]["replicatedJobs"]
        extra = {"name": "extra", "replicas": 1, "template": {"spec": {"template": POD}}}
        return written(made, "spec.template.spec.replicatedJobs", [extra, *jobs]), of_runtime
    of = declared(kind)
    look = cluster_runtime if kind == "TrainJob" else no_objects
    return written(made, ".".join(of.suspend_path), True), partial(followed, of, look)


def cluster_runtime(kind: ObjectKind, _namespace: str, name: str) -> Json | None:
    return manifest(RUNTIMES[0]) if (kind.kind, name) == (RUNTIMES[0], "torch") else None


def groups(owner: Json) -> Any:
    return LeaderWorkerSet().groups(owner)


def of_runtime(runtime: Json) -> Any:
    """Of a TrainJob that says how many nodes there are, and of one that does not."""
    job, _ = example("TrainJob")
    kind, look = declared("TrainJob"), lambda _kind, _namespace, _name: runtime
    return [followed(kind, look, each) for each in (job, written(job, "spec.trainer", {}))]


def followed(kind: TemplatedKind, look: Look, job: Json) -> Any:
    """What it is charged for, with which priority, whether it waits, and what it gives back."""
    try:
        job = completed(kind, kind.defaulted(job), look)
        return (
            [(each.name, each.count, each.template, each.topology_request) for each in kind.pod_sets(job)],
            kind.pod_priority_class(job),
            (kind.is_suspended(job), kind.is_on_hold(job)),
            kind.reclaimed(job),
            job["spec"].get("components", [{}])[0].get("podSetInfos"),
        )
    except JobError as error:
        return str(error)
