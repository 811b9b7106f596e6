"""Finds the admitted workloads with pods that run: quota alone does not make a job run."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from cli.access.cluster import told
from cli.printing.console import Json, aside
from cli.workload.rows import state_of
from controller.cluster.watching.kinds import WORKLOADS
from controller.insight.podcounts import Admitted, counted, with_running_pods
from controller.jobs.framework.podsets import first_slice
from controller.objects.core import Pod
from controller.objects.decode import DecodeError, decode
from controller.objects.workload import Workload
from controller.scheduler.model.resources import WorkloadKey
from kube.client import Client, Selection
from kube.errors import KubeError
from kube.resources import PODS

T = TypeVar("T")

_RUNNING = Selection(field_selector="status.phase=Running")


async def admitted(client: Client) -> Admitted | None:
    """The admitted workloads; None, with a note, where workloads or pods may not be read."""
    try:
        workloads = (await client.list_decoded(WORKLOADS, lambda raw: _decoded(raw, Workload))).items
        running = (await client.list_decoded(PODS, _workload_of, _RUNNING)).items
    except KubeError as failed:
        aside(f"workloads whose pods run are not counted, but admitted ones: {told(failed)}")
        return None
    return counted(_admitted(filter(None, workloads)), frozenset(filter(None, running)))


def _admitted(workloads: Iterable[Workload]) -> Iterator[tuple[WorkloadKey, tuple[str, str]]]:
    """Each admitted workload, with its ClusterQueue by name, and its LocalQueue as ``NAMESPACE/NAME``."""
    for workload in workloads:
        admission = workload.status.admission
        if admission is not None and state_of(workload) == "Admitted":
            local_queue = f"{workload.metadata.namespace}/{workload.spec.queue_name}"
            yield first_slice(workload), (admission.cluster_queue, local_queue)


def with_running(queues: Iterable[Json], found: Admitted | None) -> list[Json]:
    """The queues with ``running`` and ``admittedWithoutPods``, of their admitted workloads; None where these are not
    known.
    """
    if found is None:
        return [{**queue, "running": None, "admittedWithoutPods": None} for queue in queues]
    return [
        {
            **queue,
            "running": found.running[queue["name"]],
            "admittedWithoutPods": found.without_pods(queue["name"]),
        }
        for queue in queues
    ]


def _workload_of(raw: bytes) -> WorkloadKey | None:
    """The Workload of a pod; the pod is not kept, there may be many."""
    pod = _decoded(raw, Pod)
    return next(iter(with_running_pods((pod,))), None) if pod is not None else None


def _decoded(raw: bytes, type_: type[T]) -> T | None:
    try:
        return decode(raw, type_)
    except DecodeError:
        return None
