"""Which admitted workloads have pods that run: quota alone does not make a job run."""

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from cli.cluster import told
from cli.console import Json, aside
from cli.workload.rows import state_of
from controller.engine.model.resources import WorkloadKey
from controller.jobframework.podview import workload_of
from controller.objects.core import Pod
from controller.objects.decode import DecodeError, decode
from controller.objects.workload import Workload
from controller.watching.kinds import WORKLOADS
from kube.client import Client, Selection
from kube.errors import KubeError
from kube.resources import PODS

T = TypeVar("T")

_RUNNING = Selection(field_selector="status.phase=Running")


class Admitted(msgspec.Struct, frozen=True):
    """Admitted workloads by queue (a ClusterQueue's name, or NAMESPACE/NAME), and those of them whose pods run."""

    all: Counter[str]
    running: Counter[str]


async def admitted(client: Client) -> Admitted | None:
    """None, with a note, where workloads or pods may not be read."""
    try:
        workloads = (await client.list_decoded(WORKLOADS, lambda raw: _decoded(raw, Workload))).items
        running = (await client.list_decoded(PODS, _workload_of, _RUNNING)).items
    except KubeError as failed:
        aside(f"workloads whose pods run are not counted, but admitted ones: {told(failed)}")
        return None
    return counted(filter(None, workloads), frozenset(filter(None, running)))


def counted(workloads: Iterable[Workload], with_pods: frozenset[WorkloadKey]) -> Admitted:
    """``with_pods``: Workloads of which a pod runs."""
    every, running = Counter[str](), Counter[str]()
    for workload in workloads:
        admission = workload.status.admission
        if admission is None or state_of(workload) != "Admitted":
            continue
        for queue in (admission.cluster_queue, f"{workload.metadata.namespace}/{workload.spec.queue_name}"):
            every[queue] += 1
            running[queue] += workload.key in with_pods
    return Admitted(every, running)


def with_running(queues: Iterable[Json], found: Admitted | None) -> list[Json]:
    """``running`` and ``admittedWithoutPods``: of those that are admitted; None where it is not known."""
    if found is None:
        return [{**queue, "running": None, "admittedWithoutPods": None} for queue in queues]
    return [
        {
            **queue,
            "running": found.running[queue["name"]],
            "admittedWithoutPods": found.all[queue["name"]] - found.running[queue["name"]],
        }
        for queue in queues
    ]


def _workload_of(raw: bytes) -> WorkloadKey | None:
    """Of a pod; the pod is not kept, there may be many."""
    pod = _decoded(raw, Pod)
    return workload_of(pod) if pod is not None and pod.status.phase == "Running" else None


def _decoded(raw: bytes, type_: type[T]) -> T | None:
    try:
        return decode(raw, type_)
    except DecodeError:
        return None
