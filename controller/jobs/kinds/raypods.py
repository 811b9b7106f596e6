"""The pods that KubeRay makes of the specification of a Ray cluster: how many, and what it adds to their templates.

Source: KubeRay 1.7, ray-operator/controllers/ray, common/pod.go, common/job.go and GetWorkerGroupDesiredReplicas in
utils/util.go. KubeRay leaves labels, annotations, node selector, tolerations and gates of a template alone.
"""

from typing import Any, Final

from controller.jobs.framework.raw import JobError, Json, annotations, at, flag, integer, mapping, sequence, text
from controller.objects.quantity import parse_quantity

WAIT_GCS_READY: Final = "wait-gcs-ready"
"""The init container of each worker, unless KubeRay runs with ENABLE_INIT_CONTAINER_INJECTION=false."""
_MAX_REPLICAS: Final = 2**31 - 1
_REDIS_ANNOTATION: Final = "ray.io/ft-enabled"
_REDIS_MINIMUM: Final = (("cpu", "200m"), ("memory", "256Mi"))
_AUTOSCALER: Final = {"cpu": "500m", "memory": "512Mi"}
_COLLECTOR: Final[Json] = {
    "limits": {"cpu": "200m", "memory": "256Mi"},
    "requests": {"cpu": "50m", "memory": "64Mi"},
}
_SUBMITTER: Final[Json] = {
    "limits": {"cpu": "1", "memory": "1Gi"},
    "requests": {"cpu": "500m", "memory": "200Mi"},
}


def worker_pods(group: Json) -> int:
    """The number of pods of a worker group: replicas, within the group's own bounds, times the hosts of a replica."""
    if flag(group, "suspend"):
        return 0
    replicas = max(integer(group, "replicas", default=1), integer(group, "minReplicas", default=0))
    hosts = integer(group, "numOfHosts", default=1)
    return min(replicas, integer(group, "maxReplicas", default=_MAX_REPLICAS)) * max(hosts, 1)


def autoscales(cluster: Json) -> bool:
    return flag(cluster, "enableInTreeAutoscaling")


def keeps_state_in_redis(cluster: Json, job: Json) -> bool:
    """Whether a Job cleans up in Redis after the cluster. The annotation is inherited from the cluster's owner."""
    options = at(cluster, "gcsFaultToleranceOptions")
    if options is None:
        return annotations(job).get(_REDIS_ANNOTATION, "").lower() == "true"
    return text(cluster, "gcsFaultToleranceOptions", "backend") in ("", "redis")


def head_pod(template: Json, cluster: Json, *, redis: bool, sidecars: tuple[Json, ...] = ()) -> Json:
    """The head's template with the containers that KubeRay adds to it.

    With Redis its request is at least that of the cleanup, which runs when the head is gone. Raises JobError for a head
    without a container, of which no cleanup can be made.
    """
    containers = sequence(template, "spec", "containers")
    if redis and not containers:
        raise JobError("headGroupSpec.template.spec.containers: expected that of the head, found none")
    if redis:
        containers = [_enough_for_cleanup(containers[0]), *containers[1:]]
    if autoscales(cluster):
        found = mapping(cluster, "autoscalerOptions", "resources")
        containers = [*containers, _container("autoscaler", found or {"limits": _AUTOSCALER, "requests": _AUTOSCALER})]
    return _with_containers(template, [*containers, *_collector(cluster), *sidecars])


def worker_pod(template: Json, cluster: Json) -> Json:
    return _with_containers(template, [*sequence(template, "spec", "containers"), *_collector(cluster)])


def submitter_container(cluster: Json) -> Json:
    """The container that submits the job to the cluster, with the image of the head."""
    containers = sequence(cluster, "headGroupSpec", "template", "spec", "containers")
    image = text(containers[0], "image") if containers else ""
    return {"name": "ray-job-submitter", **({"image": image} if image else {}), "resources": _SUBMITTER}


def submitter_pod(cluster: Json) -> Json:
    """The template of the submitter if the job has none."""
    return {"spec": {"containers": [submitter_container(cluster)], "restartPolicy": "Never"}}


def _enough_for_cleanup(container: Json) -> Json:
    requests, limits = mapping(container, "resources", "requests"), mapping(container, "resources", "limits")
    raised = {
        name: low
        for name, low in _REDIS_MINIMUM
        if parse_quantity(requests.get(name, limits.get(name, "0"))) < parse_quantity(low)
    }
    if not raised:
        return container
    return {**container, "resources": {**mapping(container, "resources"), "requests": {**requests, **raised}}}


def _collector(cluster: Json) -> list[Json]:
    """The sidecar of the history server in every pod; empty if it is not configured."""
    if at(cluster, "historyServerOptions", "collectorOptions") is None:
        return []
    given = mapping(cluster, "historyServerOptions", "collectorOptions", "resources")
    return [_container("ray-history-collector", given or _COLLECTOR)]


def _container(name: str, resources: Json) -> Json:
    return {"name": name, "resources": resources}


def _with_containers(template: Json, containers: list[Any]) -> Json:
    if containers == sequence(template, "spec", "containers"):
        return template
    return {**template, "spec": {**mapping(template, "spec"), "containers": containers}}
