"""``ray``: the named containers of head and workers start Ray; a Service leads to the head."""

from collections.abc import Mapping
from typing import Final

from controller.foreign.jobs.plugins.flags import Parsed, Value
from controller.foreign.jobs.plugins.plugin import (
    TASK_SPEC,
    JobView,
    Kept,
    PodView,
    containers,
    open_port,
    owned,
)
from controller.jobs.framework.raw import JobError, Json, shown

_PORTS: Final = {"gcs": "port", "dashboard": "dashboardPort", "client-server": "clientPort"}
"""Names of the head's ports by the flags that set them."""


class Ray:
    name = "ray"
    flags: Mapping[str, Value] = {
        "head": "head",
        "headContainer": "head",
        "worker": "worker",
        "workerContainer": "worker",
        "port": 6379,
        "dashboardPort": 8265,
        "clientPort": 10001,
    }

    def write(self, pod: Json, made: PodView, job: JobView, given: Parsed) -> None:
        head = job.task(given.text("head"))
        if head is None:
            found = ", ".join(shown(task.name) for task in job.tasks) or "none"
            raise JobError(f"spec.plugins.ray: expected a task {shown(given.text('head'))}, found {found}")
        for container in containers(pod, initial=False):
            if made.task == head.name and container.get("name") == given.text("headContainer"):
                for name, flag in _PORTS.items():
                    open_port(container, name, given.number(flag))
                container["command"] = ["sh", "-c", _head(given)]
            elif made.task == given.text("worker") and container.get("name") == given.text("workerContainer"):
                address = f"{head.host(0)}:{given.number('port')}"
                container["command"] = ["sh", "-c", f"ray start --block --address={address}"]

    def objects(self, job: JobView, given: Parsed) -> tuple[Kept, ...]:
        ports = [
            {"name": name, "port": given.number(flag), "targetPort": given.number(flag), "protocol": "TCP"}
            for name, flag in _PORTS.items()
        ]
        selector = {**job.selector, TASK_SPEC: given.text("head")}
        service = owned(job, "v1", "Service", f"{job.name}-head-svc", spec={"selector": selector, "ports": ports})
        return (Kept(body=service),)


def _head(given: Parsed) -> str:
    return (
        "ray start --head --block --dashboard-host=0.0.0.0"
        f" --port={given.number('port')} --dashboard-port={given.number('dashboardPort')}"
        f" --ray-client-server-port={given.number('clientPort')}"
    )
