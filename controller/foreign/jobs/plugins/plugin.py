"""The interface of a plugin, the job as plugins read it, and writes into pods that plugins share."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from controller.foreign.jobs.plugins.flags import Parsed, Value
from controller.foreign.rules.volcanodefaults import DEFAULT_TASK
from controller.jobs.framework.raw import JobError, Json, integer, mapping, sequence, text
from controller.objects.meta import Struct

GROUP: Final = "batch.volcano.sh"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
TASK_SPEC: Final = "volcano.sh/task-spec"
LONGEST_VARIABLE: Final = 128 * 1024 - 1
"""The most bytes of ``NAME=value``. With its end it is 32 pages of 4 KiB: execve of Linux answers E2BIG for more."""
_FEWER: Final = "Linux starts no program with it, so the job may not have as many pods"


class TaskView(Struct, frozen=True, kw_only=True):
    """A task as plugins read it. ``stem``: the names of its pods without their indexes. ``domain``: the subdomain of
    their DNS names.

    A template with a hostname gives all its pods the same name, which is listed once.
    """

    name: str
    replicas: int
    stem: str
    domain: str
    hostname: str = ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the task's pods in DNS within the namespace, in the order of their indexes."""
        return tuple(self.host(index) for index in range(self.named))

    @property
    def listed_bytes(self) -> int:
        """The bytes of ``hosts`` with a separator behind each, computed without making them."""
        count = self.named
        bytes_each = len(f"{self.host(0)},".encode())
        if self.hostname or not count:
            return bytes_each * count
        more: int = sum(count - 10**digits for digits in range(1, len(str(count))))
        return bytes_each * count + more

    def host(self, index: int) -> str:
        if self.replicas < 1:
            return ""
        name = self.hostname or f"{self.stem}-{min(index, self.replicas - 1)}"
        return f"{name}.{self.domain}"

    @property
    def named(self) -> int:
        """The number of different names of the task's pods."""
        return max(0, min(self.replicas, 1) if self.hostname else self.replicas)


class JobView(Struct, frozen=True, kw_only=True):
    name: str
    namespace: str
    uid: str
    tasks: tuple[TaskView, ...]

    def task(self, name: str) -> TaskView | None:
        return next((task for task in self.tasks if task.name == name), None)

    def replicas(self, *names: str) -> int:
        return sum(task.replicas for task in self.tasks if task.name in names)

    @property
    def selector(self) -> dict[str, str]:
        """Labels that all pods of the job have."""
        return {JOB_NAME: self.name, JOB_NAMESPACE: self.namespace}


class PodView(Struct, frozen=True, kw_only=True):
    """The pod that is made: its task, and its index in that."""

    task: str
    index: int


class Kept(Struct, frozen=True, kw_only=True):
    """An object beside the job. ``follows``: it is written again when the job changes, else it is made once."""

    body: Json
    follows: bool = False


class Plugin(Protocol):
    """A plugin of Volcano's Jobs. ``flags``: its arguments with their defaults."""

    @property
    def name(self) -> str: ...
    @property
    def flags(self) -> Mapping[str, Value]: ...

    def write(self, pod: Json, made: PodView, job: JobView, given: Parsed) -> None:
        """Writes into the pod, which is the caller's own copy."""
        ...

    def objects(self, job: JobView, given: Parsed) -> tuple[Kept, ...]: ...


class PluginDefaults:
    """Answers of plugins that keep no object."""

    flags: Mapping[str, Value] = {}

    def objects(self, _job: JobView, _given: Parsed) -> tuple[Kept, ...]:
        return ()


def view(job: Json) -> JobView:
    """A job as plugins read it. Raises JobError."""
    name = text(job, "metadata", "name")
    return JobView(
        name=name,
        namespace=text(job, "metadata", "namespace"),
        uid=text(job, "metadata", "uid"),
        tasks=tuple(_task(task, place, name) for place, task in enumerate(sequence(job, "spec", "tasks"))),
    )


def _task(task: Json, place: int, job: str) -> TaskView:
    name = text(task, "name") or f"{DEFAULT_TASK}{place}"
    replicas = integer(task, "replicas", default=0)
    hostname, subdomain = (text(task, "template", "spec", key) for key in ("hostname", "subdomain"))
    return TaskView(name=name, replicas=replicas, stem=f"{job}-{name}", domain=subdomain or job, hostname=hostname)


def containers(pod: Json, *, initial: bool = True) -> Iterator[Json]:
    """The containers of a pod. ``initial``: the init containers as well."""
    spec = mapping(pod, "spec")
    for key in ("containers", "initContainers") if initial else ("containers",):
        yield from sequence(spec, key)


def set_variables(container: Json, *variables: Json) -> None:
    """Sets environment variables. One of the same name is replaced where it stands, as a container gets the last of a
    name.
    """
    env = container.setdefault("env", [])
    for variable in variables:
        place = next((place for place, each in enumerate(env) if each.get("name") == variable["name"]), None)
        if place is None:
            env.append(dict(variable))
        else:
            env[place] = dict(variable)


def variable(name: str, value: object) -> Json:
    """A variable as JSON. Raises JobError for one that is too long: the container would not start."""
    found = str(value)
    fits(name, len(f"{name}={found}".encode()))
    return {"name": name, "value": found}


def fits(name: str, size: int) -> None:
    """Checks the size of a variable. Raises JobError if ``size`` bytes are too many. The check before a list is made
    costs nothing, however many pods a job specifies.
    """
    if size > LONGEST_VARIABLE:
        raise JobError(f"spec.plugins: expected at most {LONGEST_VARIABLE} bytes of {name}, found {size}: {_FEWER}")


def open_port(container: Json, name: str, port: int) -> None:
    ports = container.setdefault("ports", [])
    if all(each.get("containerPort") != port for each in ports):
        ports.append({"name": name, "containerPort": port})


def mount(pod: Json, volume: Json, **where: str) -> None:
    """Adds the volume to the pod, and mounts it in all containers."""
    spec = pod.setdefault("spec", {})
    spec.setdefault("volumes", []).append(volume)
    for container in containers(pod):
        container.setdefault("volumeMounts", []).append({"name": volume["name"], **where})


def owned(job: JobView, api_version: str, kind: str, name: str, **content: Any) -> Json:
    """An object that the job controls: it is deleted with the job at the latest."""
    owner = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Job",
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {"name": name, "namespace": job.namespace, "ownerReferences": [owner]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
