"""What a plugin is, the job as plugins look at it, and the common writes into pods."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from controller.foreignrules.volcanodefaults import DEFAULT_TASK
from controller.jobframework.raw import Json, integer, mapping, sequence, text
from controller.objects.meta import Struct
from controller.volcanojobs.plugins.flags import Parsed, Value

GROUP: Final = "batch.volcano.sh"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
TASK_SPEC: Final = "volcano.sh/task-spec"


class TaskView(Struct, frozen=True, kw_only=True):
    """``hosts``: what its pods are called in DNS within the namespace, in the order of their indexes.

    A template with a hostname gives all its pods the same one: it is named once.
    """

    name: str
    replicas: int
    hosts: tuple[str, ...]

    def host(self, index: int) -> str:
        return self.hosts[min(index, len(self.hosts) - 1)] if self.hosts else ""


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
        """Labels that all of its pods have."""
        return {JOB_NAME: self.name, JOB_NAMESPACE: self.namespace}


class PodView(Struct, frozen=True, kw_only=True):
    """The pod that is made: of which task, and which of its pods."""

    task: str
    index: int


class Kept(Struct, frozen=True, kw_only=True):
    """An object beside the job. ``follows``: it is written again when the job changes, else it is made once."""

    body: Json
    follows: bool = False


class Plugin(Protocol):
    """``flags``: its arguments with their defaults."""

    @property
    def name(self) -> str: ...
    @property
    def flags(self) -> Mapping[str, Value]: ...

    def write(self, pod: Json, made: PodView, job: JobView, given: Parsed) -> None:
        """Write into the pod, which is the caller's own copy."""
        ...

    def objects(self, job: JobView, given: Parsed) -> tuple[Kept, ...]: ...


class PluginDefaults:
    """For plugins that keep no object."""

    flags: Mapping[str, Value] = {}

    def objects(self, _job: JobView, _given: Parsed) -> tuple[Kept, ...]:
        return ()


def view(job: Json) -> JobView:
    """Raises JobError."""
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
    names = [hostname] if hostname else [f"{job}-{name}-{index}" for index in range(replicas)]
    hosts = tuple(f"{each}.{subdomain or job}" for each in names[: max(replicas, 0)])
    return TaskView(name=name, replicas=replicas, hosts=hosts)


def containers(pod: Json, *, initial: bool = True) -> Iterator[Json]:
    """``initial``: the init containers as well."""
    spec = mapping(pod, "spec")
    for key in ("containers", "initContainers") if initial else ("containers",):
        yield from sequence(spec, key)


def set_variables(container: Json, *variables: Json) -> None:
    """One of the same name is replaced where it stands, as the last of a name is what a container gets."""
    env = container.setdefault("env", [])
    for variable in variables:
        place = next((place for place, each in enumerate(env) if each.get("name") == variable["name"]), None)
        if place is None:
            env.append(dict(variable))
        else:
            env[place] = dict(variable)


def variable(name: str, value: object) -> Json:
    return {"name": name, "value": str(value)}


def open_port(container: Json, name: str, port: int) -> None:
    ports = container.setdefault("ports", [])
    if all(each.get("containerPort") != port for each in ports):
        ports.append({"name": name, "containerPort": port})


def mount(pod: Json, volume: Json, **where: str) -> None:
    """In all containers."""
    spec = pod.setdefault("spec", {})
    spec.setdefault("volumes", []).append(volume)
    for container in containers(pod):
        container.setdefault("volumeMounts", []).append({"name": volume["name"], **where})


def owned(job: JobView, api_version: str, kind: str, name: str, **content: Any) -> Json:
    """An object of the job: it is deleted with it at the latest."""
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
