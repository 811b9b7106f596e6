"""A small cluster around an engine: it keeps the objects, takes what decisions write, and lets jobs stop and finish."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import KubernetesObject, is_true, to_json
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons, status
from controller.scheduler.decisions.decisions import Admitted, Decision, Decisions, Evicted
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import WorkloadKey

NOW_S = 1735689600.0


def flavor(name: str = "default", **spec: Any) -> KubernetesObject:
    return decode_object({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec})


def cluster_queue(
    name: str,
    nominal: int = 10,
    *,
    cohort: str = "",
    borrow: int | None = None,
    lend: int | None = None,
    preemption: Mapping[str, Any] | None = None,
    flavors: Iterable[str] = ("default",),
    **spec: Any,
) -> KubernetesObject:
    quota: dict[str, Any] = {"name": "gpu", "nominalQuota": str(nominal)}
    quota |= {} if borrow is None else {"borrowingLimit": str(borrow)}
    quota |= {} if lend is None else {"lendingLimit": str(lend)}
    groups = [{"coveredResources": ["gpu"], "flavors": [{"name": one, "resources": [quota]} for one in flavors]}]
    full = {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption, **spec}
    return decode_object({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": full})


def cohort(name: str, parent: str = "") -> KubernetesObject:
    return decode_object(
        {"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": name}, "spec": {"parentName": parent}}
    )


def local_queue(name: str, to: str = "", **spec: Any) -> KubernetesObject:
    metadata = {"name": name, "namespace": "ns"}
    spec = {"clusterQueue": to or name, **spec}
    return decode_object({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": spec})


def workload(
    name: str,
    queue: str,
    gpus: int = 1,
    *,
    priority: int = 0,
    count: int = 1,
    least: int | None = None,
    created_s: int = 0,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Workload:
    """``count`` pods of ``gpus`` each, created so many seconds after the world began."""
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"gpu": str(gpus)}}}]}}
    made = decode_object(
        {
            "apiVersion": KUEUE,
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-{name}",
                "creationTimestamp": f"2025-01-01T00:{created_s // 60:02}:{created_s % 60:02}Z",
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "queueName": queue,
                "priority": priority,
                "podSets": [{"name": "main", "count": count, "minCount": least, "template": template}],
                **spec,
            },
        }
    )
    assert isinstance(made, Workload)
    return made


def requesting(made: Workload, requests: Mapping[str, str]) -> Workload:
    """The same with other requests of each of its containers."""
    data = to_json(made)
    for pod_set in data["spec"]["podSets"]:
        for container in pod_set["template"]["spec"]["containers"]:
            container["resources"] = {"requests": dict(requests)}
    found = decode_object({"apiVersion": KUEUE, "kind": "Workload", **data})
    assert isinstance(found, Workload)
    return found


class World:
    """``cycle`` writes what was decided and tells the engine; ``refuse`` names decisions whose write fails.

    The engine is validated once a call that changed it: half of all time went into looking after each of its writes.
    """

    def __init__(self, config: EngineConfig | None = None) -> None:
        self.engine = Engine(config)
        self.now_s = NOW_S
        self.workloads: dict[WorkloadKey, Workload] = {}
        self.others: dict[tuple[type[KubernetesObject], str], KubernetesObject] = {}
        """All other objects, as they were put last."""
        self.log: list[tuple[str, WorkloadKey]] = []
        self.arrived = 0
        """For whoever numbers what comes."""

    def put(self, *objects: KubernetesObject) -> None:
        for one in objects:
            if isinstance(one, Workload):
                self.workloads[WorkloadKey(one.key)] = one
            else:
                self.others[type(one), one.key] = one
            self.engine.put(one, self.now_s)
        self.engine.validate()

    def cycle(self, *, refuse: Iterable[type[Decision]] = ()) -> Decisions:
        decisions = self.engine.cycle(self.now_s)
        self.engine.validate()
        for one in decisions.made:
            key = WorkloadKey(one.key)
            if isinstance(one, tuple(refuse)):
                self.engine.failed(one, self.now_s, "refused")
                continue
            self.log.append((type(one).__name__, key))
            if key in self.workloads:
                self._write(key, one.status())
        if decisions.made:
            self.engine.validate()
        return decisions

    def settle(self, limit: int = 200) -> int:
        """Cycles until nothing changes any more; AssertionError when it goes on and on."""
        for number in range(limit):
            if self.engine.settled(self.now_s):
                return number
            self.cycle()
        raise AssertionError(f"still changing after {limit} cycles: {self.log[-20:]}")

    def rest(self, limit: int = 30, *, at_once: int | None = None) -> bool:
        """Until all is decided and all victims have gone: whether it came to that in so many turns, in each of which
        all of the evicted leave, or ``at_once``. Under Kueue's rules two workloads may evict each other for ever.
        """
        self.settle()
        for _ in range(limit):
            if not self.stop_evicted(at_once):
                return True
            self.settle()
        return False

    def rebuild(self) -> None:
        """All sums are made anew from the objects there are."""
        assert self.engine.rebuild([*self.others.values(), *self.workloads.values()], self.now_s) == []
        self.engine.validate()

    def finish(self, name: str) -> None:
        workload = self.workloads.pop(WorkloadKey(f"ns/{name}"))
        self.engine.put(status.finished(workload, "Succeeded", "done", self.now_s), self.now_s)
        self.engine.validate()

    def drop(self, kind: type[KubernetesObject], key: str) -> None:
        """An object that is not a workload is gone; ``key``: its own, with the namespace where it has one."""
        del self.others[kind, key]
        namespace, _, name = key.rpartition("/")
        self.engine.drop(kind, namespace, name, self.now_s)
        self.engine.validate()

    def delete(self, name: str) -> None:
        del self.workloads[WorkloadKey(f"ns/{name}")]
        self.engine.drop(Workload, "ns", name, self.now_s)
        self.engine.validate()

    def stop_evicted(self, limit: int | None = None) -> int:
        """The jobs of evicted workloads, of all or of so many, stop: these give their quota back and queue again. How
        many there were.
        """
        gone = self.leaving()
        for one in gone[:limit]:
            freed = status.unreserved(
                one, PendingReason.PENDING_EVALUATION, "stopped", now_s=self.now_s, gates=self.engine.state.config.gates
            )
            self._write(WorkloadKey(one.key), status.requeued(freed, "Preempted", "again", self.now_s))
        if gone:
            self.engine.validate()
        return len(gone)

    def leaving(self) -> list[Workload]:
        """Workloads that are evicted and still hold quota."""
        return [one for one in self.workloads.values() if self.held(one) and is_true(one.status.conditions, "Evicted")]

    @staticmethod
    def held(workload: Workload) -> bool:
        return is_true(workload.status.conditions, reasons.QUOTA_RESERVED)

    def running(self) -> set[str]:
        """Names of those that hold quota."""
        return {one.metadata.name for one in self.workloads.values() if self.held(one)}

    def condition(self, name: str, type_: str = "QuotaReserved") -> str:
        """``status/reason``."""
        for one in self.workloads[WorkloadKey(f"ns/{name}")].status.conditions:
            if one.type == type_:
                return f"{one.status}/{one.reason}"
        return ""

    def _write(self, key: WorkloadKey, after: Workload) -> None:
        self.workloads[key] = msgspec.structs.replace(self.workloads[key], status=after.status)
        self.engine.put(self.workloads[key], self.now_s)


__all__ = ["Admitted", "Evicted", "World", "cluster_queue", "cohort", "flavor", "local_queue", "requesting", "workload"]
