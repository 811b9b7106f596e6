"""A Job, its Workloads, the API server's rules about them and the Job controller, in memory.

It behaves as Kubernetes does where start and stop depend on it: optimistic locking, which parts of a Job may change
when, and a Job controller that takes its time. ``tests/e2e/queues/test_jobs_core.py`` checks it against the real one.
"""

from typing import Any

import msgspec

from controller.jobs.framework.actions import (
    Action,
    AwaitPods,
    CreateWorkload,
    DeleteWorkload,
    EmitEvent,
    FinishWorkload,
    HoldWorkload,
    Refuse,
    ReleaseQuota,
    RemoveFinalizer,
    SetPodsReady,
    SetReclaimable,
    StartJob,
    StopJob,
    UngatePods,
    UpdateWorkload,
)
from controller.jobs.framework.kind import JobKind, Patch
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import Json, merged
from controller.jobs.framework.settings import ClusterObjects, JobSettings, Observed
from controller.jobs.kinds.batchjob import BatchJob
from controller.objects.decode import decode
from controller.objects.queues import ResourceFlavor
from controller.reconcile.jobs.reconcile import reconcile
from kube.testing.store import copied

UID = "0a1b2c3d-0000-4000-8000-000000000001"
MUTABLE_SPEC = ("nodeSelector", "tolerations", "schedulingGates")


class ConflictError(Exception):
    """409: the object is another than the patch was meant for."""


class InvalidError(Exception):
    """422: the API server refuses the change."""


def job(name: str = "train", **spec: Any) -> Json:
    """A suspended Job of queue ``q`` as the API server returns it after creation."""
    generated = {
        "batch.kubernetes.io/controller-uid": UID,
        "controller-uid": UID,
        "batch.kubernetes.io/job-name": name,
        "job-name": name,
    }
    template = {
        "metadata": {"labels": {**generated, "team": "vision"}, "annotations": {"note": "mine"}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "containers": [
                {
                    "name": "main",
                    "image": "busybox",
                    "env": [{"name": "A", "value": "1"}],
                    "resources": {"requests": {"cpu": "1"}},
                }
            ],
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": UID,
            "resourceVersion": "1",
            "generation": 1,
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {"suspend": True, "parallelism": 1, "completions": 1, "template": template, **spec},
        "status": {},
    }


def flavor(name: str, **spec: Any) -> ResourceFlavor:
    return decode({"metadata": {"name": name}, "spec": spec}, ResourceFlavor)


FLAVORS = {
    "a100": flavor(
        "a100", nodeLabels={"gpu": "a100"}, tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    ),
    "h100": flavor("h100", nodeLabels={"gpu": "h100"}),
    "hdd": flavor("hdd", nodeLabels={"disk": "hdd"}),
}
CLASSES = {"high": 1000, "low": 10}


def cluster_objects(**more: Any) -> ClusterObjects:
    known: dict[str, Any] = {
        "flavor": FLAVORS.get,
        "workload_priority": CLASSES.get,
        "pod_priority": {"gold": 77}.get,
        "global_default": lambda: None,
        "owner": lambda _namespace, _reference: None,
        "is_job_kind": lambda _version, kind: kind in ("Job", "JobSet"),
        "is_admitted": lambda _uid: False,
    }
    return ClusterObjects(**{**known, **more})


class World:
    """One Job and everything around it. ``minor`` is Kubernetes' version: 35 or 36."""

    def __init__(
        self, job_: Json, *, minor: int = 36, settings: JobSettings | None = None, kind: JobKind | None = None
    ) -> None:
        self.kind = kind or BatchJob()
        self.job: Json | None = copied(job_)
        self.workloads: dict[str, Json] = {}
        self.minor = minor
        self.settings = settings or JobSettings()
        self.cluster = cluster_objects()
        self.events: list[tuple[str, str]] = []
        self.refusals: list[str] = []
        self.gated_pods = 0
        self.left_pods: dict[str, int] | None = None
        """As ``Observed`` has them."""
        self._version = 1
        self._serial = 0

    # What a watch shows, and the controller.

    def observed(self, job_: Json | None = None) -> Observed:
        return Observed(
            kind=self.kind,
            job=copied(self.job if job_ is None else job_),
            workloads=tuple(SeenWorkload.of(copied(raw)) for raw in self.workloads.values()),
            gated_pods=self.gated_pods,
            left_pods=self.left_pods,
        )

    def next_actions(self, job_: Json | None = None) -> tuple[Action, ...]:
        return reconcile(self.observed(job_), self.settings, self.cluster)

    def step(self, *, crash_after: int | None = None, job_: Json | None = None) -> tuple[Action, ...]:
        """Reconcile once, from the job as it was (``job_``) if given; a crash leaves the later actions undone."""
        actions = self.next_actions(job_)
        for action in actions[:crash_after]:
            try:
                self.carry_out(action)
            except (ConflictError, InvalidError):
                break
        return actions

    def settle(self, rounds: int = 30) -> None:
        """Controller and Job controller until neither has anything left to do. AssertionError if that never is."""
        for _ in range(rounds):
            before = self.picture()
            self.job_controller()
            self.step()
            if self.picture() == before:
                return
        raise AssertionError(f"no rest after {rounds} rounds: {self.next_actions()}")

    def picture(self) -> bytes:
        return msgspec.json.encode((self.job, self.workloads), order="sorted")

    # The API server.

    def _touch(self, raw: Json) -> None:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)

    def carry_out(self, action: Action) -> None:  # noqa: C901, PLR0912 - one branch an action
        match action:
            case StartJob(patches=patches) | StopJob(patches=patches) | AwaitPods(patches=patches):
                for patch in patches:
                    self.patch_job(patch)
            case CreateWorkload(body=body):
                self._create(body)
            case UpdateWorkload(name=name, patch=patch_):
                self._update(name, patch_)
            case DeleteWorkload(name=name, uid=uid):
                if name in self.workloads and self.workloads[name]["metadata"]["uid"] == uid:
                    self.delete_workload(name)
            case RemoveFinalizer(name=name):
                raw = self.workloads[name]
                raw["metadata"]["finalizers"] = []
                if "deletionTimestamp" in raw["metadata"]:
                    del self.workloads[name]
            case FinishWorkload(name=name, reason=reason, message=message):
                self.condition(name, "Finished", "True", reason, message)
            case SetReclaimable(name=name, pods=pods):
                self._status(name)["reclaimablePods"] = [{"name": key, "count": count} for key, count in pods.items()]
            case SetPodsReady(name=name, status=status, reason=reason, message=message):
                self.condition(name, "PodsReady", status, reason, message)
            case ReleaseQuota(name=name):
                self._status(name).pop("admission")
                self.condition(name, "QuotaReserved", "False", "Pending")
                self.condition(name, "Admitted", "False", "NoReservation")
            case HoldWorkload(name=name, on=on, message=message):
                self._status(name).pop("admission", None)
                if on:
                    self.condition(name, "QuotaReserved", "False", "OnHold")
                    self.condition(name, "Admitted", "False", "NoReservation")
                self.condition(name, "Requeued", "False" if on else "True", "OnHold", message)
            case UngatePods():
                self.gated_pods = 0
            case EmitEvent(reason=reason, message=message):
                assert message
                self.events.append((reason, message))
            case Refuse(sentence=sentence):
                self.refusals.append(sentence)

    def _create(self, body: Json) -> None:
        name = body["metadata"]["name"]
        if name in self.workloads:
            return
        self._serial += 1
        raw = copied(body)
        raw["metadata"] |= {
            "uid": f"w-{self._serial}",
            "creationTimestamp": f"2026-01-01T00:00:{self._serial % 60:02}Z",
        }
        self._touch(raw)
        self.workloads[name] = raw

    def _update(self, name: str, patch: Json) -> None:
        raw = self.workloads.get(name)
        if raw is None or patch["metadata"]["resourceVersion"] != raw["metadata"]["resourceVersion"]:
            raise ConflictError(name)
        spec = patch.get("spec", {})
        if "admission" in raw.get("status", {}) and not self._elastic():
            assert "podSets" not in spec, "pod sets are immutable while quota is reserved"
            assert "queueName" not in spec, "the queue is immutable while quota is reserved"
        fresh = merged(raw, patch)
        self._touch(fresh)
        self.workloads[name] = fresh

    def _elastic(self) -> bool:
        return self.job is not None and "kueue.x-k8s.io/elastic-job" in self.job["metadata"].get("annotations", {})

    def delete_workload(self, name: str) -> None:
        raw = self.workloads[name]
        if raw["metadata"].get("finalizers"):
            raw["metadata"].setdefault("deletionTimestamp", "2026-01-01T01:00:00Z")
            self._touch(raw)
        else:
            del self.workloads[name]

    def _status(self, name: str) -> Json:
        raw = self.workloads[name]
        self._touch(raw)
        status: Json = raw.setdefault("status", {})
        return status

    def condition(self, name: str, type_: str, status: str, reason: str, message: str = "") -> None:
        conditions = self._status(name).setdefault("conditions", [])
        conditions[:] = [one for one in conditions if one["type"] != type_]
        conditions.append({"type": type_, "status": status, "reason": reason, "message": message})

    def patch_job(self, patch: Patch) -> None:
        """What the API server accepts of it. ConflictError, InvalidError."""
        old = self.job
        if old is None:
            raise ConflictError("gone")
        meta = patch.body.get("metadata", {})
        if meta.get("resourceVersion", old["metadata"]["resourceVersion"]) != old["metadata"]["resourceVersion"]:
            raise ConflictError("resourceVersion")
        if meta.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise InvalidError("metadata.uid: field is immutable")
        new = merged(old, patch.body)
        if patch.subresource == "status":
            new = {**old, "status": new["status"]}
            if old["status"].get("startTime") and not new["status"].get("startTime") and not old["spec"]["suspend"]:
                raise InvalidError("status.startTime: field is immutable for unsuspended job once set")
        else:
            new["status"] = old["status"]
            self._check_spec(old, new)
        if new != old:
            if new["spec"] != old["spec"]:
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            self._touch(new)
            self.job = new

    def _check_spec(self, old: Json, new: Json) -> None:
        before, after = copied(old["spec"]), copied(new["spec"])
        if before["completions"] != after["completions"]:
            if after.get("completionMode") != "Indexed":
                raise InvalidError("spec.completions: field is immutable")
            if after["completions"] != after["parallelism"]:
                raise InvalidError("spec.completions: can only be modified in tandem with spec.parallelism")
        if self._template_is_mutable(old):
            for template in (before["template"], after["template"]):
                template["metadata"].pop("labels", None)
                template["metadata"].pop("annotations", None)
                for key in MUTABLE_SPEC:
                    template["spec"].pop(key, None)
        if before["template"] != after["template"]:
            raise InvalidError("spec.template: field is immutable")

    def _template_is_mutable(self, old: Json) -> bool:
        status = old["status"]
        seen = any(one["type"] == "Suspended" and one["status"] == "True" for one in status.get("conditions", []))
        started = bool(status.get("startTime"))
        if self.minor >= 36:
            return bool(old["spec"]["suspend"]) and (not started or seen) and not status.get("active")
        return bool(old["spec"]["suspend"]) and not started

    # The Job controller.

    def job_controller(self) -> None:
        if self.job is None or self.is_finished():
            return
        before = copied(self.job["status"])
        spec, status = self.job["spec"], self.job["status"]
        if "deletionTimestamp" in self.job["metadata"]:
            # It suspends none that is being deleted, and says so of none: it counts the pods that are left.
            status["active"] = status["ready"] = 0
            if status != before:
                self._touch(self.job)
            return
        conditions = [one for one in status.get("conditions", []) if one["type"] != "Suspended"]
        had = any(one["type"] == "Suspended" for one in status.get("conditions", []))
        if spec["suspend"]:
            status["active"] = status["ready"] = 0
            conditions.append({"type": "Suspended", "status": "True", "reason": "JobSuspended"})
            if self.minor >= 36:
                status.pop("startTime", None)
        else:
            status.setdefault("startTime", "2026-01-01T00:10:00Z")
            status["active"] = min(spec["parallelism"], spec["completions"] - status.get("succeeded", 0))
            if had:
                conditions.append({"type": "Suspended", "status": "False", "reason": "JobResumed"})
        status["conditions"] = conditions
        if status != before:
            self._touch(self.job)

    def pods_are_ready(self) -> None:
        assert self.job is not None
        self.job["status"]["ready"] = self.job["status"].get("active", 0)
        self._touch(self.job)

    def pod_succeeds(self) -> None:
        assert self.job is not None
        status = self.job["status"]
        if status.get("active"):
            status["succeeded"] = status.get("succeeded", 0) + 1
            status["active"] -= 1
            status["ready"] = min(status.get("ready", 0), status["active"])
            if status["succeeded"] >= self.job["spec"]["completions"]:
                status["active"] = status["ready"] = 0
                status.setdefault("conditions", []).append({"type": "Complete", "status": "True"})
            self._touch(self.job)

    def is_finished(self) -> bool:
        assert self.job is not None
        return any(one["type"] in ("Complete", "Failed") for one in self.job["status"].get("conditions", []))

    # The scheduler of workloads, and people.

    def live(self) -> list[str]:
        """Names of the workloads that are neither finished nor terminating."""
        return [
            name
            for name, raw in self.workloads.items()
            if not self.has(name, "Finished") and "deletionTimestamp" not in raw["metadata"]
        ]

    def has(self, name: str, type_: str) -> bool:
        conditions = self.workloads[name].get("status", {}).get("conditions", [])
        return any(one["type"] == type_ and one["status"] == "True" for one in conditions)

    def admit(self, name: str, *, flavor: str = "a100", count: int | None = None) -> None:
        raw = self.workloads[name]
        self._status(name)["admission"] = {
            "clusterQueue": "cq",
            "podSetAssignments": [
                {
                    "name": pod_set["name"],
                    "flavors": {"cpu": flavor},
                    "count": pod_set["count"] if count is None else count,
                }
                for pod_set in raw["spec"]["podSets"]
            ],
        }
        self.condition(name, "Evicted", "False", "QuotaReserved")
        self.condition(name, "QuotaReserved", "True", "QuotaReserved")
        self.condition(name, "Admitted", "True", "Admitted")

    def evict(self, name: str, reason: str = "Preempted") -> None:
        self.condition(name, "Evicted", "True", reason, "somebody more important came")

    def edit(self, patch: Json) -> None:
        """A person's change of the job."""
        self.patch_job(Patch(body=patch))

    def template(self) -> Json:
        assert self.job is not None
        found: Json = copied(self.job["spec"]["template"])
        return found

    def suspended(self) -> bool:
        assert self.job is not None
        return bool(self.job["spec"]["suspend"])

    @property
    def only(self) -> str:
        """The name of the one live workload."""
        (name,) = self.live()
        return name
