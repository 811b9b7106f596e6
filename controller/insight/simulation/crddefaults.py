"""Defaults that the CRDs of job kinds give, where they bear on what a job is charged: an API server fills them in.

Sources: the schemas in the CRDs of KubeRay 1.7, JobSet 0.13, the MPI operator and the trainer v2; a conformance test
compares them with the table. Defaults within pod templates are those of pods: decoding gives them. LimitRanges, which
have no CRD, take defaults from one field to the next.
"""

from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

_LIMIT_RANGE: Final = ("v1", "LimitRange")
_MAX_INT32: Final = 2**31 - 1
_WORKER_GROUP: Final = {"replicas": 0, "minReplicas": 0, "maxReplicas": _MAX_INT32, "numOfHosts": 1}
_RUNTIME: Final = {
    "spec.mlPolicy.mpi.runLauncherAsNode": False,
    "spec.mlPolicy.mpi.numProcPerNode": 1,
    "spec.template.spec.replicatedJobs[].replicas": 1,
}


def _worker_groups(cluster: str) -> dict[str, Any]:
    return {f"{cluster}.workerGroupSpecs[].{field}": value for field, value in _WORKER_GROUP.items()}


DEFAULTS: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): {"spec.replicatedJobs[].replicas": 1},
    ("kubeflow.org/v2beta1", "MPIJob"): {"spec.runLauncherAsWorker": False},
    ("ray.io/v1", "RayCluster"): _worker_groups("spec"),
    ("ray.io/v1", "RayJob"): {"spec.submissionMode": "K8sJobMode", **_worker_groups("spec.rayClusterSpec")},
    ("ray.io/v1", "RayService"): _worker_groups("spec.rayClusterConfig"),
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"): _RUNTIME,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): _RUNTIME,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): {
        "spec.runtimeRef.apiGroup": "trainer.kubeflow.org",
        "spec.runtimeRef.kind": "ClusterTrainingRuntime",
        "spec.managedBy": "trainer.kubeflow.org/trainjob-controller",
    },
}
"""Defaults by ``apiVersion`` and ``kind``: path, ``[]`` behind a list, and the value if its parent exists without
it."""


def with_defaults(data: Json) -> Json:
    """The object as an API server stores it, as far as the table goes; the very same object for a kind without a
    row.
    """
    if (data["apiVersion"], data["kind"]) == _LIMIT_RANGE:
        return _limit_range(data)
    for path, value in DEFAULTS.get((data["apiVersion"], data["kind"]), {}).items():
        data = _filled(data, path.split("."), value)
    return data


def _limit_range(data: Json) -> Json:
    """A LimitRange with its defaults: a container's limit is its maximum at most, and its request that limit, else the
    minimum.

    Source: Kubernetes' ``SetDefaults_LimitRangeItem``. A value of another shape is left to the decoder.
    """
    spec = data.get("spec")
    limits = spec.get("limits") if isinstance(spec, dict) else None
    if not isinstance(limits, list):
        return data
    return {**data, "spec": {**data["spec"], "limits": [_limit(item) for item in limits]}}


def _limit(item: Any) -> Any:
    if not isinstance(item, dict) or item.get("type") != "Container":
        return item
    given = [item.get(key) or {} for key in ("max", "min", "default", "defaultRequest")]
    if not all(isinstance(each, dict) for each in given):
        return item
    most, least, limit, request = given
    limit = {**most, **limit}
    found = {"default": limit, "defaultRequest": {**least, **limit, **request}}
    return {**item, **{key: value for key, value in found.items() if value}}


def _filled(value: Any, path: list[str], default: Any) -> Any:
    """The value with the default at the path. A ``value`` of another shape than the CRD's is left to its reader."""
    if not isinstance(value, dict):
        return value
    key, rest = path[0], path[1:]
    if not rest:
        return value if key in value else {**value, key: default}
    name = key.removesuffix("[]")
    inner = value.get(name)
    if inner is None:
        return value
    if key == name:
        return {**value, name: _filled(inner, rest, default)}
    if not isinstance(inner, list):
        return value
    return {**value, name: [_filled(item, rest, default) for item in inner]}
