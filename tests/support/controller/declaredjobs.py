"""Random jobs of every declared kind, and the pods that each kind's controller makes of a job that runs.

A kind without a row in ``MODELS`` fails the test of all kinds: it is not shown to run what it was charged for.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st

from controller.jobs.framework.kind import Look, completed, no_objects
from controller.jobs.framework.raw import Json
from controller.jobs.kinds.kubeflow import ReplicaKind
from controller.jobs.kinds.table import DECLARED_KINDS
from controller.jobs.kinds.trainjob import TrainJob, job_set_spec
from tests.support.controller.jobmodel import UID

Pod = tuple[Json, Json]
"""Metadata and spec."""


@dataclass(frozen=True)
class Sample:
    """A suspended job, and the objects that it names."""

    job: Json
    look: Look = no_objects


@dataclass(frozen=True)
class Model:
    samples: st.SearchStrategy[Sample]
    pods: Callable[[Json, Look], list[Pod]]
    run: Callable[[Json, bool], None]
    """Writes into the status that pods run, or that none do."""
    kept: Callable[[Json], Json] = lambda spec: spec
    """The specification with what a start writes out and no stop takes away: templates that were there by default."""


def typed(api_version: str, kind: str, spec: Json) -> Json:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": "j",
            "namespace": "default",
            "uid": UID,
            "resourceVersion": "1",
            "generation": 1,
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": spec,
        "status": {},
    }


_WORDS = st.sampled_from(["a", "b", "c"])
MAPS = st.dictionaries(st.sampled_from(["example.dev/x", "example.dev/y"]), _WORDS, max_size=2)
TOLERATIONS = st.lists(
    st.builds(lambda key: {"key": key, "operator": "Exists"}, _WORDS), max_size=2, unique_by=lambda each: each["key"]
)
_GATES = st.lists(st.builds(lambda name: {"name": f"example.dev/{name}"}, _WORDS), max_size=2, unique_by=str)


def _containers(name: str) -> st.SearchStrategy[list[Json]]:
    requests = st.fixed_dictionaries({"cpu": st.integers(0, 4).map(str)}, optional={"memory": st.just("1Gi")})
    side = st.builds(lambda given: {"name": "side", "resources": {"requests": given}}, requests)
    main = st.builds(lambda given: {"name": name, "image": "i", "resources": {"requests": given}}, requests)
    return st.builds(lambda one, more: [one, *more], main, st.lists(side, max_size=1))


@cache
def templates(name: str = "main") -> st.SearchStrategy[Json]:
    """Pod templates with and without each of the parts that a start writes, also empty ones."""
    spec = st.fixed_dictionaries(
        {"containers": _containers(name)},
        optional={"nodeSelector": MAPS, "tolerations": TOLERATIONS, "schedulingGates": _GATES},
    )
    metadata = st.fixed_dictionaries({}, optional={"labels": MAPS, "annotations": MAPS})
    return st.fixed_dictionaries({"spec": spec}, optional={"metadata": metadata})


# -- Kubeflow's, and the MPI operator's --------------------------------------------------------------------------------


def _replica_model(kind: ReplicaKind) -> Model:
    replica = st.fixed_dictionaries({"template": templates()}, optional={"replicas": st.integers(0, 4)})
    specs = st.dictionaries(st.sampled_from(kind.types), replica, min_size=1)

    def made(replicas: Json) -> Sample:
        spec = {kind.replicas: replicas, "runPolicy": {"suspend": True}}
        return Sample(typed(f"kubeflow.org/{kind.version}", kind.kind, spec))

    def pods(job: Json, _look: Look) -> list[Pod]:
        if job["spec"]["runPolicy"]["suspend"]:
            return []
        waits = kind.kind == "PyTorchJob" and "Master" in job["spec"][kind.replicas]
        return [
            pod
            for type_, replica in job["spec"][kind.replicas].items()
            for pod in pods_of(
                with_init(replica["template"], _WAIT) if waits and type_ == "Worker" else replica["template"],
                replica.get("replicas", 1),
            )
        ]

    def run(job: Json, on: bool) -> None:
        job["status"]["replicaStatuses"] = {type_: {"active": 1} for type_ in job["spec"][kind.replicas] if on}

    return Model(st.builds(made, specs), pods, run)


_WAIT: Final = {"name": "init-pytorch", "resources": {"requests": {"cpu": "50m", "memory": "10Mi"}}}


def with_init(template: Json, container: Json) -> Json:
    made = copy.deepcopy(template)
    made["spec"]["initContainers"] = [*made["spec"].get("initContainers", []), container]
    return made


def pods_of(template: Json, count: int) -> list[Pod]:
    return [(template.get("metadata", {}), template["spec"])] * count


# -- JobSet, and what becomes one --------------------------------------------------------------------------------------


@cache
def _replicated(name: str, step: str = "") -> st.SearchStrategy[Json]:
    numbers = st.integers(0, 3)
    job = st.fixed_dictionaries(
        {"template": templates("node")}, optional={"parallelism": numbers, "completions": numbers}
    )
    head: Json = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}}} if step else {}
    return st.fixed_dictionaries(
        {"name": st.just(name), "template": job.map(lambda spec: {**head, "spec": spec})},
        optional={"replicas": st.integers(0, 3)},
    )


def _job_set_pods(spec: Json) -> list[Pod]:
    found: list[Pod] = []
    for replicated in spec["replicatedJobs"]:
        child = replicated["template"]["spec"]
        parallelism = child.get("parallelism", 1)
        each = min(parallelism, child.get("completions", parallelism))
        found += pods_of(child["template"], replicated.get("replicas", 1) * each)
    return found


def _job_set_model() -> Model:
    jobs = st.lists(_WORDS.flatmap(_replicated), min_size=1, max_size=3, unique_by=lambda each: each["name"])

    def run(job: Json, on: bool) -> None:
        names = [each["name"] for each in job["spec"]["replicatedJobs"]]
        job["status"]["replicatedJobsStatus"] = [{"name": name, "active": int(on)} for name in names]

    return Model(
        samples=jobs.map(
            lambda each: Sample(
                typed("jobset.x-k8s.io/v1alpha2", "JobSet", {"suspend": True, "replicatedJobs": list(each)})
            )
        ),
        pods=lambda job, _: [] if job["spec"]["suspend"] else _job_set_pods(job["spec"]),
        run=run,
    )


def _train_job_model() -> Model:
    runtimes = st.tuples(_replicated("node", step="trainer"), _replicated("model"))
    trainers = st.fixed_dictionaries(
        {},
        optional={"numNodes": st.integers(1, 4), "resourcesPerNode": st.just({"requests": {"cpu": "7"}})},
    )
    others = st.lists(st.builds(_patch, MAPS, TOLERATIONS, _GATES), max_size=1)

    def made(jobs: Any, trainer: Json, patches: list[Json]) -> Sample:
        runtime = {"spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": list(jobs)}}}}
        spec = {"suspend": True, "runtimeRef": {"name": "r"}, "trainer": trainer, "runtimePatches": patches}
        job = TrainJob().defaulted(typed("trainer.kubeflow.org/v1alpha1", "TrainJob", spec))
        return Sample(job, lambda _kind, _namespace, _name: runtime)

    def pods(job: Json, look: Look) -> list[Pod]:
        if job["spec"]["suspend"]:
            return []
        return _job_set_pods(job_set_spec(completed(TrainJob(), job, look)))

    def run(job: Json, on: bool) -> None:
        job["status"]["jobsStatus"] = [{"name": "node", "active": int(on)}]

    return Model(st.builds(made, runtimes, trainers, others), pods, run)


def _patch(selector: Json, tolerations: list[Json], gates: list[Json]) -> Json:
    pod = {"spec": {"nodeSelector": selector, "tolerations": tolerations, "schedulingGates": gates}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    return {"manager": "example.dev/other", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


MODELS: dict[str, Model] = {
    **{kind.framework: _replica_model(kind) for kind in DECLARED_KINDS if isinstance(kind, ReplicaKind)},
    "jobset.x-k8s.io/jobset": _job_set_model(),
    "trainer.kubeflow.org/trainjob": _train_job_model(),
}
"""By the kind's name in the configuration."""
