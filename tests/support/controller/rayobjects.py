"""Ray's objects as the API server returns them after creation, and what KubeRay does with them, in memory."""

from typing import Any

from controller.jobs.framework import names
from controller.jobs.framework.raw import Json
from tests.support.controller.jobmodel import UID


def template(name: str = "ray", **spec: Any) -> Json:
    container = {"name": name, "image": "ray:2.55", "resources": {"requests": {"cpu": "1"}}}
    return {"spec": {"containers": [container], **spec}}


def group(name: str = "gpu", **fields: Any) -> Json:
    return {
        "groupName": name,
        "replicas": 2,
        "minReplicas": 0,
        "maxReplicas": 9,
        "numOfHosts": 1,
        "template": template("worker"),
        **fields,
    }


def cluster(*groups: Json, **fields: Any) -> Json:
    """The specification of a cluster."""
    return {"headGroupSpec": {"template": template("head")}, "workerGroupSpecs": list(groups or (group(),)), **fields}


def _object(kind: str, spec: Json, name: str, annotations: dict[str, str] | None) -> Json:
    return {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": UID,
            "resourceVersion": "1",
            "generation": 1,
            "labels": {names.QUEUE_NAME: "q"},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": spec,
        "status": {},
    }


def ray_cluster(*groups: Json, annotations: dict[str, str] | None = None, **fields: Any) -> Json:
    return _object("RayCluster", {"suspend": True, **cluster(*groups, **fields)}, "c", annotations)


def ray_job(
    *groups: Json, annotations: dict[str, str] | None = None, ray: dict[str, Any] | None = None, **fields: Any
) -> Json:
    """``ray``: fields of the cluster's specification."""
    spec = {
        "suspend": True,
        "shutdownAfterJobFinishes": True,
        "submissionMode": "K8sJobMode",
        "rayClusterSpec": cluster(*groups, **(ray or {})),
        **fields,
    }
    return _object("RayJob", spec, "j", annotations)


def ray_service(*groups: Json, annotations: dict[str, str] | None = None, **fields: Any) -> Json:
    spec = {"rayClusterConfig": {"suspend": True, **cluster(*groups)}, **fields}
    return _object("RayService", spec, "s", annotations)


ELASTIC = {names.ELASTIC_JOB: "true"}
