"""``pytorch``, ``tensorflow``, ``mpi`` and ``ray``: the pods of a job find each other as their framework expects it.

``pytorch`` writes the variables that ``torch.distributed`` starts by, ``tensorflow`` the variable ``TF_CONFIG``, which
says what the cluster is and which of its tasks runs here. ``mpi`` tells the master its workers and lets them accept it
by ssh, by the names and keys of ``svc`` and ``ssh``. ``ray`` starts Ray in the named containers of head and workers,
and a Service leads to the head.
"""

import json
from collections.abc import Mapping
from typing import Final

from controller.foreign.jobs.plugins.flags import Parsed, Value
from controller.foreign.jobs.plugins.plugin import (
    TASK_SPEC,
    JobView,
    Kept,
    PluginDefaults,
    PodView,
    containers,
    fits,
    open_port,
    owned,
    set_variables,
    variable,
)
from controller.jobs.framework.raw import JobError, Json, shown

_WAITS, _WAITS_AT_MOST, _IMAGE = "wait-master-enabled", "wait-master-timeout", "wait-master-image"
_WAITING: Final = "wait-for-master"

_ROLES: Final = ("ps", "worker", "chief", "evaluator")

_PORTS: Final = {"gcs": "port", "dashboard": "dashboardPort", "client-server": "clientPort"}
"""Names of the head's ports by the flags that set them."""


class Pytorch(PluginDefaults):
    """Writes the variables. Ranks count pods: the master has rank 0, workers follow in the order of their indexes."""

    name = "pytorch"
    flags: Mapping[str, Value] = {
        "master": "master",
        "worker": "worker",
        "port": 23456,
        _WAITS: False,
        _WAITS_AT_MOST: 300,
        _IMAGE: "busybox:1.36.1",
    }

    def write(self, pod: Json, made: PodView, job: JobView, given: Parsed) -> None:
        master, worker = given.text("master"), given.text("worker")
        found = job.task(master)
        if found is None:
            return
        address, port = found.host(0), given.number("port")
        variables = [
            variable("MASTER_ADDR", address),
            variable("MASTER_PORT", port),
            variable("WORLD_SIZE", job.replicas(master, worker)),
        ]
        if made.task in (master, worker):
            variables.append(variable("RANK", 0 if made.task == master else made.index + 1))
        for container in containers(pod, initial=False):
            open_port(container, "pytorchjob-port", port)
            set_variables(container, *variables)
        if made.task == worker and given.on(_WAITS):
            _wait(pod, address, given)


def _wait(pod: Json, address: str, given: Parsed) -> None:
    """Adds the init container by which workers wait until the master's name is known; the pod fails if it is not in
    time.

    The name is short, and busybox' ``nslookup`` queries it unchanged: the script tries each domain of the search list,
    as the C library does. Process 1 would not be ended by SIGTERM without a trap.
    """
    initial = pod["spec"].setdefault("initContainers", [])
    if any(container.get("name") == _WAITING for container in initial):
        return
    seconds = given.number(_WAITS_AT_MOST)
    script = (
        "known() { for zone in '' $(sed -n 's/^search //p' /etc/resolv.conf); do "
        f"nslookup {address}${{zone:+.$zone}} > /dev/null 2>&1 && return; done; false; }}; "
        f"trap 'exit 1' TERM; end=$(($(date +%s) + {seconds})); until known; do "
        f"if [ $(date +%s) -ge $end ]; then echo 'no address of {address} within {seconds} seconds' >&2; exit 1; fi; "
        "sleep 1; done"
    )
    initial.append({"name": _WAITING, "image": given.text(_IMAGE), "command": ["sh", "-c", script]})


class Tensorflow(PluginDefaults):
    name = "tensorflow"
    flags: Mapping[str, Value] = {**{role: role for role in _ROLES}, "port": 2222}

    def write(self, pod: Json, made: PodView, job: JobView, given: Parsed) -> None:
        if len(job.tasks) == 1 and job.tasks[0].replicas == 1:
            return  # no cluster: TensorFlow would look for one
        roles = {given.text(role): role for role in _ROLES}
        port = given.number("port")
        tasks = [task for task in job.tasks if task.name in roles and task.replicas > 0]
        # Names by index are no shorter than the first. A hostname that all pods share is written for each of them.
        fits("TF_CONFIG", sum(len(f'"{task.host(0)}:{port}",') * task.replicas for task in tasks))
        cluster = {roles[task.name]: [f"{task.host(index)}:{port}" for index in range(task.replicas)] for task in tasks}
        here = {"type": roles.get(made.task, made.task), "index": made.index}
        config = json.dumps({"cluster": cluster, "task": here}, separators=(",", ":"))
        for container in containers(pod, initial=False):
            set_variables(container, variable("TF_CONFIG", config))


class Mpi(PluginDefaults):
    name = "mpi"
    flags: Mapping[str, Value] = {"master": "master", "worker": "worker", "port": 22}

    def write(self, pod: Json, made: PodView, job: JobView, given: Parsed) -> None:
        workers = job.task(given.text("worker"))
        if made.task == given.text("master") and workers is not None:
            for container in containers(pod):
                set_variables(container, variable("MPI_HOST", ",".join(workers.hosts)))
        if made.task == given.text("worker"):
            for container in containers(pod, initial=False):
                open_port(container, "mpijob-port", given.number("port"))


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
