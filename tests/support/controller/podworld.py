"""Pods, their Workload, the API server's rules about them, the kubelet and a person, in memory.

What depends on Kubernetes behaves as it does there: optimistic locking; gates are only taken off; a node selector
only grows, and only behind a gate; what is deleted stays while it has finalizers; a pod without a node that is
deleted never ends; an object all of whose owners have gone is deleted.
"""

from collections import Counter
from typing import Any

import msgspec

from controller.jobs.framework.actions import (
    CreateWorkload,
    DeleteWorkload,
    EmitEvent,
    FinishWorkload,
    Refuse,
    ReleaseQuota,
    RemoveFinalizer,
    SetPodsReady,
    SetReclaimable,
    SetWaitingForPods,
    UpdateWorkload,
)
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import (
    ADMISSION_GATE,
    GROUP_NAME,
    GROUP_TOTAL,
    MANAGED,
    TERMINATION_TARGET,
    SeenPod,
    key_of,
)
from controller.jobs.framework.raw import Json, merged
from controller.jobs.framework.settings import JobSettings
from controller.objects.meta import to_json
from controller.objects.placeencoding import Domain, encode
from controller.reconcile.pods.actions import DeletePod, PatchPod, PodAction
from controller.reconcile.pods.group import SeenPods
from controller.reconcile.pods.reconcile import reconcile_pods
from inventory.api.names import ABOVE_MINIMUM_OF
from kube.testing.store import copied
from tests.support.controller.jobmodel import ConflictError, InvalidError, cluster_objects

LEVELS = ("rack", "kubernetes.io/hostname")


def pod(name: str, *, cpu: str = "1", labels: Json | None = None, notes: Json | None = None, **spec: Any) -> Json:
    """A pod of queue ``q`` as the API server returns it when the policies have marked it."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "q", MANAGED: "true", **(labels or {})},
            "annotations": dict(notes or {}),
            "finalizers": [MANAGED],
        },
        "spec": {"containers": [container], "schedulingGates": [{"name": ADMISSION_GATE}], **spec},
        "status": {"phase": "Pending"},
    }


def member(name: str, total: int, *, labels: Json | None = None, notes: Json | None = None, **more: Any) -> Json:
    """A pod of the group ``g``."""
    return pod(
        name, labels={GROUP_NAME: "g", **(labels or {})}, notes={GROUP_TOTAL: str(total), **(notes or {})}, **more
    )


class PodWorld:
    """One group (or one pod) and everything around it.

    Pods above the group's minimum have Workloads of their own, called by the pod; subgroups above it are called by the
    name of theirs.
    """

    def __init__(self, *pods: Json, settings: JobSettings | None = None) -> None:
        self.pods: dict[str, Json] = {}
        self.workloads: dict[str, Json] = {}
        self.pod_group: Json | None = None
        self.namespace_terminating = False
        self.settings = settings or JobSettings()
        self.cluster = cluster_objects()
        self.events: list[tuple[str, str]] = []
        self.refusals: list[str] = []
        self._clock = 0
        self._version = 0
        for one in pods:
            self.create(one)

    # What a watch shows, and the controller.

    def observed(self, above: str = "") -> SeenPods:
        """The group, or what is ``above`` its minimum."""
        mine = [raw for raw in self.pods.values() if _above_as(raw) == above]
        group = [raw for raw in self.workloads.values() if not _is_above(raw)]
        (workload,) = ([self._of(above)] if above else group) or (None,)
        named = mine[0]["metadata"]["annotations"][ABOVE_MINIMUM_OF] if above else ""
        return SeenPods(
            pods=tuple(SeenPod(copied(raw)) for raw in mine),
            workload=None if workload is None else SeenWorkload.of(copied(workload)),
            pod_group=self.pod_group,
            namespace_terminating=self.namespace_terminating,
            minimum=SeenWorkload.of(copied(self.workloads[named])) if named in self.workloads else None,
        )

    def next_actions(self) -> tuple[PodAction, ...]:
        every = dict.fromkeys(_above_as(raw) for raw in self.pods.values())
        seen = [self.observed(), *map(self.observed, sorted(filter(None, every)))]
        uids = {raw["metadata"]["uid"] for raw in self.pods.values()}
        orphans = [raw for raw in self.workloads.values() if _is_above(raw) and uids.isdisjoint(_owners(raw))]
        seen += [SeenPods(pods=(), workload=SeenWorkload.of(copied(raw))) for raw in orphans]
        return tuple(action for each in seen for action in reconcile_pods(each, self.settings, self.cluster))

    def step(self, *, crash_after: int | None = None) -> tuple[PodAction, ...]:
        actions = self.next_actions()
        for action in actions[:crash_after]:
            try:
                self.carry_out(action)
            except ConflictError:
                break
        self.collect()
        return actions

    def settle(self, rounds: int = 40) -> None:
        """Until neither controller nor kubelet has anything left to do. AssertionError if that never is."""
        for _ in range(rounds):
            before = self._picture()
            self.step()
            self.kubelet()
            if self._picture() == before:
                return
        raise AssertionError(f"no rest after {rounds} rounds: {self.next_actions()}")

    def _picture(self) -> bytes:
        return msgspec.json.encode((self.pods, self.workloads), order="sorted")

    # The API server.

    def create(self, body: Json) -> None:
        raw = copied(body)
        self._clock += 1
        raw["metadata"].setdefault("uid", f"uid-{raw['metadata']['name']}-{self._clock}")
        raw["metadata"]["creationTimestamp"] = f"2026-01-01T00:{self._clock // 60:02}:{self._clock % 60:02}Z"
        assert raw["metadata"]["name"] not in self.pods
        self.pods[raw["metadata"]["name"]] = self._touch(raw)

    def _touch(self, raw: Json) -> Json:
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        return raw

    def carry_out(self, action: PodAction) -> None:  # noqa: C901, PLR0912 - one branch an action
        match action:
            case PatchPod(name=name, body=body):
                self.patch_pod(name, body)
            case DeletePod(name=name, uid=uid, reason=reason):
                if name in self.pods and self.pods[name]["metadata"]["uid"] == uid:
                    told = {"type": TERMINATION_TARGET, "status": "True", "reason": reason}
                    self.pods[name]["status"].setdefault("conditions", []).append(told)
                    self.delete(name)
            case CreateWorkload(body=body):
                if body["metadata"]["name"] not in self.workloads:
                    made = self._touch(copied(body))
                    made["metadata"]["uid"] = f"uid-workload-{self._version}"
                    self.workloads[body["metadata"]["name"]] = made
            case UpdateWorkload(name=name, patch=patch):
                self._update(name, patch)
            case DeleteWorkload(name=name):
                self.delete_workload(name)
            case RemoveFinalizer(name=name):
                self.workloads[name]["metadata"]["finalizers"] = []
            case FinishWorkload(name=name, reason=reason, message=message):
                self.condition(name, "Finished", "True", reason, message)
            case SetReclaimable(name=name, pods=pods):
                self._status(name)["reclaimablePods"] = [{"name": key, "count": count} for key, count in pods.items()]
            case SetPodsReady(name=name, status=status, reason=reason, message=message):
                self.condition(name, "PodsReady", status, reason, message)
            case SetWaitingForPods(name=name, status=status, reason=reason, message=message):
                self.condition(name, "WaitingForReplacementPods", status, reason, message)
            case ReleaseQuota(name=name):
                self._status(name).pop("admission", None)
                self.condition(name, "QuotaReserved", "False", "Pending")
                self.condition(name, "Admitted", "False", "NoReservation")
            case EmitEvent(reason=reason, message=message):
                self.events.append((reason, message))
            case Refuse(sentence=sentence):
                self.refusals.append(sentence)

    def patch_pod(self, name: str, body: Json) -> None:
        """ConflictError, InvalidError."""
        old = self.pods.get(name)
        if old is None or body["metadata"]["uid"] != old["metadata"]["uid"]:
            raise ConflictError("another pod")
        if body["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise ConflictError("resourceVersion")
        new = merged(old, body)
        before, after = old["spec"], new["spec"]
        gates, left = before.get("schedulingGates") or [], after.get("schedulingGates") or []
        if any(gate not in gates for gate in left):
            raise InvalidError("spec.schedulingGates: only deletion is allowed")
        had, has = before.get("nodeSelector", {}), after.get("nodeSelector", {})
        if had != has and (not gates or any(has.get(key) != value for key, value in had.items())):
            raise InvalidError("spec.nodeSelector: only additions to a gated pod are allowed")
        if (after.get("tolerations") or [])[: len(before.get("tolerations") or [])] != (
            before.get("tolerations") or []
        ):
            raise InvalidError("spec.tolerations: only additions are allowed")
        _check_affinity(before, after, gated=bool(gates))
        mutable = ("schedulingGates", "nodeSelector", "tolerations", "affinity")
        if {k: v for k, v in before.items() if k not in mutable} != {
            k: v for k, v in after.items() if k not in mutable
        }:
            raise InvalidError("spec: field is immutable")
        if new != old:
            self.pods[name] = self._touch(new)

    def _update(self, name: str, patch: Json) -> None:
        old = self.workloads[name]
        if patch["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise ConflictError("resourceVersion")
        reserved = "admission" in old.get("status", {})
        new = merged(old, patch)
        if reserved and new["spec"]["podSets"] != old["spec"]["podSets"]:
            raise InvalidError("spec.podSets: field is immutable")
        self.workloads[name] = self._touch(new)

    def delete(self, name: str) -> None:
        meta = self.pods[name]["metadata"]
        meta.setdefault("deletionTimestamp", "2026-01-01T01:00:00Z")
        self._touch(self.pods[name])

    def delete_workload(self, name: str) -> None:
        self.workloads[name]["metadata"].setdefault("deletionTimestamp", "2026-01-01T01:00:00Z")
        self._touch(self.workloads[name])

    def collect(self) -> None:
        """Deletion without finalizers, and garbage collection by owners."""
        for name, raw in list(self.pods.items()):
            over = raw["status"]["phase"] in ("Succeeded", "Failed") or not raw["spec"].get("nodeName")
            if "deletionTimestamp" in raw["metadata"] and not raw["metadata"].get("finalizers") and over:
                del self.pods[name]
        uids = {raw["metadata"]["uid"] for raw in self.pods.values()}
        for name, raw in list(self.workloads.items()):
            owners = raw["metadata"].get("ownerReferences", [])
            if owners and not any(owner["uid"] in uids for owner in owners):
                self.delete_workload(name)
            if "deletionTimestamp" in raw["metadata"] and not raw["metadata"].get("finalizers"):
                del self.workloads[name]

    def _status(self, name: str) -> Json:
        status: Json = self._touch(self.workloads[name]).setdefault("status", {})
        return status

    def condition(self, name: str, type_: str, status: str, reason: str, message: str = "") -> None:
        conditions = self._status(name).setdefault("conditions", [])
        conditions[:] = [one for one in conditions if one["type"] != type_]
        conditions.append({"type": type_, "status": status, "reason": reason, "message": message})

    def has(self, type_: str) -> bool:
        conditions = self.workload.get("status", {}).get("conditions", [])
        return any(one["type"] == type_ and one["status"] == "True" for one in conditions)

    # The kubelet and the scheduler of pods.

    def kubelet(self) -> None:
        """Pods without gates run; those that are to go, end."""
        for raw in self.pods.values():
            if raw["spec"].get("schedulingGates") or raw["status"]["phase"] in ("Succeeded", "Failed"):
                continue
            if "deletionTimestamp" in raw["metadata"]:
                if raw["spec"].get("nodeName"):
                    raw["status"]["phase"] = "Failed"
                    self._touch(raw)
            elif raw["status"]["phase"] == "Pending":
                host = raw["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname", "some-node")
                raw["spec"]["nodeName"] = host
                raw["status"]["phase"] = "Running"
                raw["status"].setdefault("conditions", []).append({"type": "Ready", "status": "True"})
                self._touch(raw)
        self.collect()

    def end(self, name: str, phase: str) -> None:
        assert self.pods[name]["status"]["phase"] == "Running"
        self.pods[name]["status"]["phase"] = phase
        self._touch(self.pods[name])

    # The scheduler of workloads.

    def admit(
        self,
        *,
        flavor: str = "a100",
        hosts: dict[str, int] | None = None,
        count: int | None = None,
        above: str = "",
    ) -> None:
        """``hosts``: places by host name, dealt out over the pod sets in order. ``above``: the Workload of this pod,
        or of this subgroup.
        """
        admitted = self.workload_of(above) if above else self.workload
        places = [host for host, number in (hosts or {}).items() for _ in range(number)]
        assignments: list[Json] = []
        for one in admitted["spec"]["podSets"]:
            size = one["count"] if count is None else count
            given: Json = {"name": one["name"], "flavors": {"cpu": flavor}, "count": size}
            if hosts is not None:
                mine, places = Counter(places[:size]), places[size:]
                domains = [Domain(("r1", host), number) for host, number in mine.items()]
                given["topologyAssignment"] = to_json(encode(LEVELS, domains))
            assignments.append(given)
        name = admitted["metadata"]["name"]
        self._status(name)["admission"] = {"clusterQueue": "cq", "podSetAssignments": assignments}
        self.condition(name, "Evicted", "False", "QuotaReserved")
        self.condition(name, "QuotaReserved", "True", "QuotaReserved")
        self.condition(name, "Admitted", "True", "Admitted")

    def evict(self, reason: str = "Preempted", above: str = "") -> None:
        evicted = self.workload_of(above) if above else self.workload
        self.condition(evicted["metadata"]["name"], "Evicted", "True", reason, "somebody more important came")

    # What tests look at.

    @property
    def workload(self) -> Json:
        (only,) = (raw for raw in self.workloads.values() if not _is_above(raw))
        return only

    def workload_of(self, pod: str) -> Json:
        """That of a pod, or of a subgroup, above the minimum."""
        found = self._of(pod)
        assert found is not None
        return found

    def _of(self, above: str) -> Json | None:
        if above not in self.pods or _above_as(self.pods[above]) != above:
            return self.workloads.get(above)
        uid = self.pods[above]["metadata"]["uid"]
        found = [raw for raw in self.workloads.values() if _is_above(raw) and _owners(raw) == {uid}]
        return next((raw for raw in found if raw["metadata"]["name"].startswith("pod-")), None)

    def above(self) -> list[str]:
        """Pods above the minimum."""
        return sorted(name for name, raw in self.pods.items() if _is_above(raw))

    def running(self) -> set[str]:
        return {name for name, raw in self.pods.items() if raw["status"]["phase"] == "Running"}

    def free(self) -> set[str]:
        """Those without the queue's gates that have not ended."""
        return {
            name
            for name, raw in self.pods.items()
            if not raw["spec"].get("schedulingGates") and raw["status"]["phase"] in ("Pending", "Running")
        }

    def hosts(self) -> dict[str, str]:
        return {
            name: raw["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname", "")
            for name, raw in self.pods.items()
            if raw["status"]["phase"] == "Running"
        }

    def sizes(self) -> list[int]:
        return [one["count"] for one in self.workload["spec"]["podSets"]]

    def outcome(self) -> str:
        conditions = self.workload.get("status", {}).get("conditions", [])
        return next((str(one["reason"]) for one in conditions if one["type"] == "Finished"), "")


def _is_above(raw: Json) -> bool:
    return ABOVE_MINIMUM_OF in (raw["metadata"].get("annotations") or {})


def _above_as(raw: Json) -> str:
    """What a pod above the minimum is queued as: itself, or its subgroup; empty for one of the group."""
    if not _is_above(raw):
        return ""
    return key_of(SeenPod(raw))[1] or str(raw["metadata"]["name"])


def _owners(raw: Json) -> set[str]:
    return {str(owner["uid"]) for owner in raw["metadata"]["ownerReferences"]}


def group(size: int, *, notes: dict[str, str] | None = None) -> PodWorld:
    """All of a group's pods, waiting."""
    world = PodWorld(*(member(f"p{i}", size, notes=notes) for i in range(size)))
    world.settle()
    return world


def running_group(size: int, *, notes: dict[str, str] | None = None) -> PodWorld:
    world = group(size, notes=notes)
    world.admit()
    world.settle()
    assert len(world.running()) == size
    return world


def _check_affinity(before: Json, after: Json, *, gated: bool) -> None:
    """A gated pod may get required node affinity, and more expressions in each term that it has; nothing else changes.
    InvalidError.
    """

    def terms(spec: Json) -> list[Json]:
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        affinity = spec.get("affinity") or {}
        found: list[Json] = affinity.get("nodeAffinity", {}).get(required, {}).get("nodeSelectorTerms", [])
        return found

    had, has = terms(before), terms(after)
    if before.get("affinity") == after.get("affinity"):
        return
    grown = len(had) == len(has) and all(
        new.get("matchExpressions", [])[: len(old.get("matchExpressions", []))] == old.get("matchExpressions", [])
        and new.get("matchFields", []) == old.get("matchFields", [])
        for old, new in zip(had, has, strict=False)
    )
    if not gated or (had and not grown):
        raise InvalidError("spec.affinity.nodeAffinity: only additions to a gated pod are allowed")
