"""A Job whose starts have PodGroups of Kubernetes' own: the API server, the mutating policy, the Job controller's pods
and kube-scheduler, in memory.

kube-scheduler behaves as 1.37 does: it tries no pod of a gang while fewer than ``minCount`` pods of it exist that have
not ended, and binds as many as that together or none.
"""

from typing import Any

from controller.jobs.framework.actions import Action, LowerGroup, MakeGroup, RemoveGroup, SetGangScheduled
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.raw import Json, merged
from controller.jobs.framework.settings import Observed
from controller.objects.decode import decode
from controller.objects.nativegroups import NativeGroup
from controller.reconcile.lifecycle.schedulerverdict import INITIALLY_SCHEDULED
from inventory.api.names import GANG_SCHEDULED, POD_GROUP
from kube.testing.store import copied
from tests.support.controller.jobmodel import ConflictError, World


class GroupWorld(World):
    """``served``: whether the API has PodGroups. ``groups``: those that are there, by name. ``pods``: of the Job, each
    with its group, whether it has a node, and whether it has ended. ``room``: nodes' places for pods.
    """

    def __init__(self, job_: Json, *, room: int = 100, kind: JobKind | None = None) -> None:
        super().__init__(job_, kind=kind)
        self.served = True
        self.room = room
        self.groups: dict[str, Json] = {}
        self.made: list[str] = []
        """Names of all groups that ever were, in their order."""
        self.pods: list[Json] = []
        self.seconds = 0

    # -- what the controller sees and does -----------------------------------------------------------------------------

    def observed(self, job_: Json | None = None) -> Observed:
        seen = super().observed(job_)
        if not self.served:
            return seen
        groups = tuple(decode(copied(each), NativeGroup) for each in self.groups.values())
        return Observed(**{field: getattr(seen, field) for field in seen.__struct_fields__} | {"groups": groups})

    def carry_out(self, action: Action) -> None:
        match action:
            case MakeGroup(body=body):
                self._make(body)
            case LowerGroup(name=name, patch=patch):
                group = self.groups.get(name)
                if group is None or group["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"]:
                    raise ConflictError(name)
                self._store(merged(group, patch))
            case RemoveGroup(name=name, uid=uid):
                if name in self.groups and self.groups[name]["metadata"]["uid"] == uid:
                    self.groups[name]["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
                self._collect()
            case SetGangScheduled(name=name, status=status, reason=reason, message=message):
                self.condition(name, GANG_SCHEDULED, status, reason, message)
            case _:
                super().carry_out(action)

    def condition(self, name: str, type_: str, status: str, reason: str, message: str = "") -> None:
        """Sets a condition, with the time at which its status changed."""
        had = [one for one in self.workloads[name].get("status", {}).get("conditions", []) if one["type"] == type_]
        super().condition(name, type_, status, reason, message)
        new = self.workloads[name]["status"]["conditions"][-1]
        same = bool(had) and had[0]["status"] == status and type_ != GANG_SCHEDULED
        new["lastTransitionTime"] = had[0]["lastTransitionTime"] if same else self.now()

    def now(self) -> str:
        return f"2026-01-01T{self.seconds // 3600:02}:{self.seconds // 60 % 60:02}:{self.seconds % 60:02}Z"

    def evict(self, name: str, reason: str = "Preempted") -> None:
        super().evict(name, reason)
        stats = self.workloads[name]["status"].setdefault("schedulingStats", {"evictions": []})
        stats["evictions"].append({"reason": reason, "underlyingCause": "", "count": 1})

    # -- the API server ------------------------------------------------------------------------------------------------

    def _make(self, body: Json) -> None:
        name = body["metadata"]["name"]
        if name in self.groups:
            return
        assert name not in self.made, f"{name} was of an earlier start"
        group = copied(body)
        group["metadata"]["uid"] = f"g-{len(self.made)}"
        self.made.append(name)
        self._store(group)

    def _store(self, group: Json) -> None:
        self._touch(group)
        self.groups[group["metadata"]["name"]] = group

    def _collect(self) -> None:
        """The finalizer of PodGroupProtection, and the garbage collector."""
        used = {pod["group"] for pod in self.pods if not pod["ended"]}
        uids = {raw["metadata"]["uid"] for raw in self.workloads.values()}
        for name, group in list(self.groups.items()):
            if group["metadata"]["ownerReferences"][0]["uid"] not in uids:
                group["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
            if "deletionTimestamp" in group["metadata"] and name not in used:
                del self.groups[name]

    # -- Kubernetes ----------------------------------------------------------------------------------------------------

    def job_controller(self) -> None:
        super().job_controller()
        assert self.job is not None
        spec, status = self.job["spec"], self.job["status"]
        if spec["suspend"] or self.is_finished():
            self.pods = [pod for pod in self.pods if pod["ended"]]
        else:
            going = sum(not pod["ended"] for pod in self.pods)
            notes = spec["template"]["metadata"].get("annotations", {})
            group = notes.get(POD_GROUP, "") if self.served else ""  # a gate that is off drops the field
            self.pods += [
                {"group": group, "bound": False, "ended": False} for _ in range(status.get("active", 0) - going)
            ]
            ready = sum(pod["bound"] and not pod["ended"] for pod in self.pods)
            if status.get("ready", 0) != ready:
                status["ready"] = ready
                self._touch(self.job)
        self._collect()

    def scheduler(self) -> None:
        for name in {pod["group"] for pod in self.pods}:
            self._schedule(name)

    def _schedule(self, name: str) -> None:
        mine = [pod for pod in self.pods if pod["group"] == name and not pod["ended"]]
        waiting = [pod for pod in mine if not pod["bound"]]
        free = self.room - sum(pod["bound"] and not pod["ended"] for pod in self.pods)
        if not name:
            for pod in waiting[:free]:
                pod["bound"] = True
            return
        group = self.groups.get(name)
        if group is None or not waiting:
            return
        least = group["spec"]["schedulingPolicy"]["gang"]["minCount"]
        if len(mine) < least:
            return
        bound = len(mine) - len(waiting)
        if bound + min(free, len(waiting)) < least:
            self.say(name, "False", "Unschedulable", "0/2 nodes are available")
            return
        for pod in waiting[:free]:
            pod["bound"] = True
        self.say(name, "True", "Scheduled")

    def say(self, name: str, status: str, reason: str, message: str = "", type_: str = INITIALLY_SCHEDULED) -> None:
        """kube-scheduler's verdict on a group; a good one is final."""
        group = copied(self.groups[name])
        conditions: list[dict[str, Any]] = group.setdefault("status", {}).setdefault("conditions", [])
        old = next((one for one in conditions if one["type"] == type_), None)
        if old is not None and old["status"] in ("True", status):
            return
        new = {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": self.now()}
        group["status"]["conditions"] = [*(one for one in conditions if one is not old), new]
        self._store(group)

    def pod_ends(self, *, succeeds: bool = True) -> None:
        """A pod that has a node ends; one that fails is replaced."""
        pod = next((each for each in self.pods if each["bound"] and not each["ended"]), None)
        if pod is None or self.job is None:
            return
        pod["ended"] = True
        if succeeds:
            self.pod_succeeds()
        else:
            self.job["status"]["failed"] = self.job["status"].get("failed", 0) + 1
            self._touch(self.job)

    def settle(self, rounds: int = 40) -> None:
        for _ in range(rounds):
            before = self.picture(), repr((self.groups, self.pods))
            self.job_controller()
            self.step()
            self.scheduler()
            if (self.picture(), repr((self.groups, self.pods))) == before:
                return
        raise AssertionError(f"no rest after {rounds} rounds: {self.next_actions()}")

    # -- what is asked -------------------------------------------------------------------------------------------------

    @property
    def group(self) -> Json:
        """The one group that is not being deleted."""
        (found,) = (each for each in self.groups.values() if "deletionTimestamp" not in each["metadata"])
        return found

    def running(self) -> int:
        return sum(pod["bound"] and not pod["ended"] for pod in self.pods)

    def waiting(self) -> int:
        return sum(not pod["bound"] and not pod["ended"] for pod in self.pods)

    def told(self) -> str:
        """``status/reason`` of what the Workload says of its gang; empty where it says nothing."""
        conditions = self.workloads[self.only].get("status", {}).get("conditions", [])
        return next((f"{one['status']}/{one['reason']}" for one in conditions if one["type"] == GANG_SCHEDULED), "")
