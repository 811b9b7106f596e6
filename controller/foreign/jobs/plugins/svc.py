"""``svc``: names in DNS for all pods of a job, and lists of them.

The lists are keys of one ConfigMap. Variables are taken from it when a container starts, and stay; the files in
``/etc/volcano`` follow when the job is scaled.
"""

from collections.abc import Mapping
from typing import Final

from controller.foreign.jobs.plugins.flags import Parsed, Value
from controller.foreign.jobs.plugins.plugin import (
    JobView,
    Kept,
    PodView,
    containers,
    mount,
    owned,
    set_variables,
    variable,
)
from controller.jobs.framework.raw import Json

_MOUNTED_AT: Final = "/etc/volcano"
_READY_OR_NOT, _OPEN, _VARIABLES = "publish-not-ready-addresses", "disable-network-policy", "inject-hosts-env"
_NO_PORT: Final = {"name": "placeholder-volcano", "port": 1, "protocol": "TCP", "targetPort": 1}
"""The port of a Service that needs none: some DNS servers give no names to a Service without a port."""


class Svc:
    name = "svc"
    flags: Mapping[str, Value] = {_READY_OR_NOT: False, _OPEN: False, _VARIABLES: True}

    def write(self, pod: Json, _made: PodView, job: JobView, given: Parsed) -> None:
        spec = pod.setdefault("spec", {})
        spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
        spec["subdomain"] = spec.get("subdomain") or job.name
        if given.on(_VARIABLES):
            from_map = [_taken(key, _map_name(job)) for task in job.tasks for key in _variables(task.name)]
            for container in containers(pod):
                set_variables(container, *from_map)
        name = _map_name(job)
        mount(pod, {"name": name, "configMap": {"name": name}}, mountPath=_MOUNTED_AT)

    def objects(self, job: JobView, given: Parsed) -> tuple[Kept, ...]:
        service = owned(
            job,
            "v1",
            "Service",
            job.name,
            spec={
                "clusterIP": "None",
                "selector": job.selector,
                "publishNotReadyAddresses": given.on(_READY_OR_NOT),
                "ports": [_NO_PORT],
            },
        )
        data = hosts(job)
        if given.on(_VARIABLES):
            for key in (key for task in job.tasks for key in _variables(task.name)):
                variable(key, data[key])  # containers get it from the ConfigMap
        listed = owned(job, "v1", "ConfigMap", _map_name(job), data=data)
        kept = (Kept(body=service), Kept(body=listed, follows=True))
        return kept if given.on(_OPEN) else (*kept, Kept(body=_own_pods_alone(job)))


def hosts(job: JobView) -> dict[str, str]:
    """The data of the ConfigMap: a list of hosts for each task."""
    data: dict[str, str] = {}
    for task in job.tasks:
        listed, counted = _variables(task.name)
        data[f"{_plain(task.name)}.host"] = "\n".join(task.hosts)
        data[listed] = ",".join(task.hosts)
        data[counted] = str(len(task.hosts))
    return data


def _variables(task: str) -> tuple[str, str]:
    name = _plain(task).upper()
    return f"VC_{name}_HOSTS", f"VC_{name}_NUM"


def _plain(task: str) -> str:
    return task.replace("-", "_")


def _map_name(job: JobView) -> str:
    return f"{job.name}-svc"


def _taken(key: str, config_map: str) -> Json:
    return {"name": key, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}}}


def _own_pods_alone(job: JobView) -> Json:
    pods = {"matchLabels": job.selector}
    spec = {"podSelector": pods, "ingress": [{"from": [{"podSelector": pods}]}], "policyTypes": ["Ingress"]}
    return owned(job, "networking.k8s.io/v1", "NetworkPolicy", job.name, spec=spec)
