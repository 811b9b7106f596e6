"""Jobs and their Workloads as they are once admitted, made by the reconciler itself, without an engine. Pure."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from controller.jobs.framework.actions import Action, CreateWorkload, StartJob
from controller.jobs.framework.kind import JobKind, ObjectKind, Patch, completed
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import ClusterObjects, JobSettings, Observed
from controller.objects.decode import decode
from controller.objects.queues import ResourceFlavor
from controller.reconcile.jobs.reconcile import reconcile
from hack.bench.throughput.drainshape import FLAVOR

_SETTINGS: Final = JobSettings(wait_for_pods_ready=False)
_FLAVOR: Final = decode({"metadata": {"name": FLAVOR}}, ResourceFlavor)


class Starts:
    """``priorities``: values of WorkloadPriorityClasses by name; ``look`` finds the objects that jobs name."""

    def __init__(
        self,
        *,
        priorities: Mapping[str, int] = MappingProxyType({}),
        look: Callable[[ObjectKind, str, str], Json | None] = lambda _kind, _namespace, _name: None,
    ) -> None:
        self._look = look
        self._cluster = ClusterObjects(
            flavor=lambda _: _FLAVOR,
            workload_priority=priorities.get,
            pod_priority=lambda _: None,
            global_default=lambda: None,
            owner=lambda _namespace, _owner: None,
            is_job_kind=lambda _version, _kind: False,
            is_admitted=lambda _uid: False,
            look=look,
        )

    def composed(self, kind: JobKind, job: Json) -> Json:
        """The Workload that a job waits with."""
        body: Json = next(each for each in self._actions(kind, job) if isinstance(each, CreateWorkload)).body
        return body

    def admission(self, workload: Json, kind: JobKind, job: Json, cluster_queue: str) -> Json:
        """The status of the admitted Workload: all on the one flavor."""
        resources = {pod_set.name: _resources(pod_set.template) for pod_set in kind.pod_sets(self._whole(kind, job))}
        assignments = [
            {
                "name": pod_set["name"],
                "count": pod_set["count"],
                "flavors": dict.fromkeys(resources[pod_set["name"]], FLAVOR),
                "resourceUsage": dict.fromkeys(resources[pod_set["name"]], "1"),
            }
            for pod_set in workload["spec"]["podSets"]
        ]
        conditions = [condition(type_) for type_ in ("QuotaReserved", "Admitted")]
        return {
            "admission": {"clusterQueue": cluster_queue, "podSetAssignments": assignments},
            "conditions": conditions,
        }

    def start(self, kind: JobKind, job: Json, workload: Json) -> tuple[Patch, ...]:
        """The next patches of the job's start, by its admitted Workload; none once it has been started."""
        if not kind.is_suspended(job):
            return ()
        actions = self._actions(kind, job, SeenWorkload.of(workload))
        return next(each for each in actions if isinstance(each, StartJob)).patches

    def _whole(self, kind: JobKind, job: Json) -> Json:
        return completed(kind, job, self._look)

    def _actions(self, kind: JobKind, job: Json, *workloads: SeenWorkload) -> tuple[Action, ...]:
        return reconcile(Observed(kind=kind, job=job, workloads=workloads), _SETTINGS, self._cluster)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type_: str, message: str = "bench") -> dict[str, Any]:
    return {"type": type_, "status": "True", "reason": type_, "message": message, "lastTransitionTime": now()}


def _resources(template: Json) -> list[str]:
    resources = {
        name: None
        for container in template["spec"]["containers"]
        for part in container.get("resources", {}).values()
        for name in part
    }
    return list(resources)
