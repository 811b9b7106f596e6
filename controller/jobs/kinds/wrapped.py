"""The pods of an object, by its kind, as AppWrapper's controller finds them (its InferPodSets).

Paths begin at the component that holds the object: with ``template``. Counts are those of the pods that the object will
have, which for Ray are not always the replicas that AppWrapper's controller reads.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from controller.jobs.framework.raw import Json, integer, mapping, parallel_pods, sequence, text
from controller.jobs.framework.templated import Path
from controller.jobs.kinds.kubeflow import REPLICA_INDEX, injected_into_pytorch
from controller.jobs.kinds.raypods import (
    WAIT_GCS_READY,
    head_pod,
    keeps_state_in_redis,
    submitter_pod,
    worker_pod,
    worker_pods,
)
from controller.objects.meta import Struct

_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"


class PodsOf(Struct, frozen=True, kw_only=True):
    """A pod set of an object; see ``templated.Slot``."""

    path: Path
    count: int
    index_label: str | None = None
    sub_group_label: str | None = None
    sub_group_count: int | None = None
    charged: Callable[[Json], Json] | None = None
    injected: str = ""


def pods_of(template: Json) -> tuple[PodsOf, ...]:
    """The pod sets of an object; none for an object without pods, or of an unknown kind."""
    inferring = _INFERRED.get((text(template, "apiVersion"), text(template, "kind")))
    return () if inferring is None else tuple(inferring(template))


def _pod(_template: Json) -> Iterator[PodsOf]:
    yield PodsOf(path=("template",), count=1, charged=_template_of)


def _replicated(template: Json) -> Iterator[PodsOf]:
    if "template" in mapping(template, "spec"):
        yield PodsOf(path=("template", "spec", "template"), count=integer(template, "spec", "replicas", default=1))


def _job(template: Json) -> Iterator[PodsOf]:
    count = parallel_pods(mapping(template, "spec"))
    yield PodsOf(path=("template", "spec", "template"), count=count, index_label=_COMPLETION_INDEX)


def _job_set(template: Json) -> Iterator[PodsOf]:
    for index, group in enumerate(sequence(template, "spec", "replicatedJobs")):
        if "template" in group:
            replicas = integer(group, "replicas", default=1)
            yield PodsOf(
                path=("template", "spec", "replicatedJobs", index, "template", "spec", "template"),
                count=replicas * parallel_pods(mapping(group, "template", "spec")),
                index_label=_COMPLETION_INDEX,
                sub_group_label=_JOB_INDEX,
                sub_group_count=replicas,
            )


def _pytorch(template: Json) -> Iterator[PodsOf]:
    replicas = mapping(template, "spec", "pytorchReplicaSpecs")
    for name in ("Master", "Worker"):
        if "template" in mapping(replicas, name):
            yield PodsOf(
                path=("template", "spec", "pytorchReplicaSpecs", name, "template"),
                count=integer(replicas, name, "replicas", default=1),
                index_label=REPLICA_INDEX,
                injected=injected_into_pytorch(name, replicas),
            )


def _ray_cluster(template: Json) -> Iterator[PodsOf]:
    yield from _ray(template, ("spec",), ())


def _ray_job(template: Json) -> Iterator[PodsOf]:
    """The pod sets of a RayJob. The submitter's pod is no pod set of its own here: its containers are charged with the
    head.
    """
    cluster = mapping(template, "spec", "rayClusterSpec")
    submitter: Json = {}
    if text(template, "spec", "submissionMode") in ("", "K8sJobMode", "SidecarMode"):
        submitter = mapping(template, "spec", "submitterPodTemplate") or submitter_pod(cluster)
    yield from _ray(template, ("spec", "rayClusterSpec"), tuple(sequence(submitter, "spec", "containers")))


def _ray(template: Json, path: tuple[str, ...], sidecars: tuple[Json, ...]) -> Iterator[PodsOf]:
    cluster = mapping(template, *path)
    redis = keeps_state_in_redis(cluster, template)
    yield PodsOf(
        path=("template", *path, "headGroupSpec", "template"),
        count=1,
        charged=partial(head_pod, cluster=cluster, redis=redis, sidecars=sidecars),
    )
    for index, group in enumerate(sequence(cluster, "workerGroupSpecs")):
        if "template" in group:
            yield PodsOf(
                path=("template", *path, "workerGroupSpecs", index, "template"),
                count=worker_pods(group),
                charged=partial(worker_pod, cluster=cluster),
                injected=WAIT_GCS_READY,
            )


def _template_of(pod: Json) -> Json:
    """A Pod's metadata and spec as a pod template."""
    metadata = {key: value for key, value in mapping(pod, "metadata").items() if key in ("labels", "annotations")}
    return {**({"metadata": metadata} if metadata else {}), "spec": mapping(pod, "spec")}


_INFERRED: Final[dict[tuple[str, str], Callable[[Json], Iterator[PodsOf]]]] = {
    ("v1", "Pod"): _pod,
    ("apps/v1", "Deployment"): _replicated,
    ("apps/v1", "StatefulSet"): _replicated,
    ("batch/v1", "Job"): _job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _job_set,
    ("kubeflow.org/v1", "PyTorchJob"): _pytorch,
    ("ray.io/v1", "RayCluster"): _ray_cluster,
    ("ray.io/v1", "RayJob"): _ray_job,
}
