"""The API of one reconciliation of pods, in memory: pods and Workloads, our reconciler's actions carried out on them.

As for jobs (``world``) a case is compared with what the API holds after each action of our first steps. Pods of a case
may share a uid, or have none: here each has one of its own, which is taken off again where they are compared.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from controller.cluster.watching.ledger import WrittenVersions
from controller.jobs.framework import names
from controller.jobs.framework.actions import (
    AwaitOwner,
    CreateWorkload,
    DeleteWorkload,
    EmitEvent,
    Refuse,
    RemoveFinalizer,
    UpdateWorkload,
)
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import TERMINATION_TARGET, SeenPod, key_of
from controller.jobs.framework.raw import Json, merged
from controller.objects.decode import decode
from controller.objects.meta import to_json
from controller.objects.workload import Workload
from controller.reconcile.pods.actions import DeletePod, PatchPod, PodAction
from controller.reconcile.pods.compose import own_workload
from controller.reconcile.pods.group import SeenPods
from controller.reconcile.pods.reconcile import reconcile_pods
from kube.reading.entries import ObjectKey
from tests.conformance.kueuejobs import world
from tests.conformance.replay import Case

UID_MARK: Final = "#"
"""Between the uid that a case gives a pod and the pod's name."""


@dataclass
class PodsWorld:
    """``pods`` and ``workloads`` by name; ``group``: the group's name, or that of the pod on its own, and which."""

    pods: dict[str, Json]
    workloads: dict[str, Json]
    group: tuple[str, bool]
    jobs: world.World
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    refused: bool = False
    events: list[tuple[str, str]] = field(default_factory=list)

    def next(self) -> tuple[PodAction, ...]:
        name, is_group = self.group
        mine = [
            SeenPod(copy.deepcopy(raw))
            for raw in self.pods.values()
            if (key_of(SeenPod(raw))[1] == name if is_group else raw["metadata"]["name"] == name)
        ]
        all_ = [SeenWorkload.of(copy.deepcopy(raw)) for raw in self.workloads.values()]
        found = own_workload(name if is_group else "", mine, all_, self.jobs.gates)
        if not mine:
            found = next((one for one in all_ if _is_of(one, name, is_group=is_group)), None)
        seen = SeenPods(pods=tuple(mine), workload=found, namespace_labels=self.namespace_labels)
        return reconcile_pods(seen, self.jobs.settings, self.jobs.cluster)

    def carry_out(self, action: PodAction) -> None:
        match action:
            case PatchPod(name=name, body=body):
                self.pods[name] = merged(self.pods[name], _untied(body))
                self._collect(name)
            case DeletePod(name=name, reason=reason):
                self._delete(name, reason)
            case CreateWorkload(body=body):
                self.workloads.setdefault(body["metadata"]["name"], copy.deepcopy(body))
            case UpdateWorkload(name=name, patch=patch):
                self.workloads[name] = merged(self.workloads[name], _untied(patch))
            case DeleteWorkload(name=name):
                world.delete(self.workloads, name)
            case RemoveFinalizer(name=name):
                world.remove_finalizer(self.workloads, name)
            case AwaitOwner():
                self.events.append(("Normal", "AwaitsOwner"))
            case EmitEvent(type=type_, reason=reason):
                self.events.append((type_, reason))
            case Refuse(reason=reason):
                self.refused = True
                self.events.append(("Warning", reason))
            case _:
                raw = self.workloads[action.name]
                raw["status"] = to_json(self.jobs.after(decode(raw, Workload), action).status)

    def _delete(self, name: str, reason: str) -> None:
        raw = self.pods[name]
        condition = {"type": TERMINATION_TARGET, "status": "True", "reason": reason}
        listed = (raw.get("status") or {}).get("conditions") or []
        if not any(one["type"] == TERMINATION_TARGET and one["status"] == "True" for one in listed):
            self.pods[name] = merged(raw, {"status": {"conditions": [*listed, condition]}})
        self.pods[name]["metadata"].setdefault("deletionTimestamp", "2025-01-01T00:00:00Z")
        self._collect(name)

    def _collect(self, name: str) -> None:
        metadata = self.pods[name]["metadata"]
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            del self.pods[name]


def _is_of(workload: SeenWorkload, name: str, *, is_group: bool) -> bool:
    """Whether it is the Workload of a group, or of a pod, none of whose pods is there."""
    if is_group:
        return workload.name == name
    return any(owner.kind == "Pod" and owner.name == name for owner in workload.typed.metadata.owner_references)


def _untied(patch: Mapping[str, Any]) -> Json:
    metadata = {key: value for key, value in (patch.get("metadata") or {}).items() if key not in _TIES}
    return {**patch, "metadata": metadata}


_TIES: Final = ("uid", "resourceVersion")


def pods_world(case: Case) -> PodsWorld:
    given = case.input
    pods = {raw["metadata"]["name"]: _with_uid(raw) for raw in _pods(case)}
    jobs = world.world(case, world.KINDS[0], None, given.get("workloads") or (), given.get("initObjects") or ())
    labels = next(
        (
            one["metadata"].get("labels") or {}
            for one in world.api_objects(case)
            if one["kind"] == "Namespace"
            and one["metadata"]["name"] in {raw["metadata"]["namespace"] for raw in pods.values()}
        ),
        {},
    )
    there = {raw["metadata"]["name"]: raw for raw in world.api_objects(case) if raw["kind"] == "Workload"}
    return PodsWorld(
        pods=pods,
        workloads={name: _owned(raw, pods) for name, raw in (jobs.workloads | there).items()},
        group=_group(case, pods),
        jobs=jobs,
        namespace_labels=labels,
    )


def _pods(case: Case) -> Sequence[Json]:
    """As the API has them, where the case says both."""
    given = {raw["metadata"]["name"]: raw for raw in case.input.get("pods") or ()}
    there = {raw["metadata"]["name"]: raw for raw in world.api_objects(case) if raw["kind"] == "Pod"}
    return list((given | there).values())


def _group(case: Case, pods: Mapping[str, Json]) -> tuple[str, bool]:
    key = case.input.get("reconcileKey")
    if key:
        *_, name = key.split("/")
        return name, key.startswith("group/")
    first = next(iter(pods.values()))
    group = key_of(SeenPod(first))[1]
    return group or first["metadata"]["name"], bool(group)


def _with_uid(raw: Json) -> Json:
    metadata = raw["metadata"]
    made: Json = merged(raw, {"metadata": {"uid": f"{metadata.get('uid', '')}{UID_MARK}{metadata['name']}"}})
    return made


def _owned(raw: Json, pods: Mapping[str, Json]) -> Json:
    """Its owners that are there by their new uids."""
    found = copy.deepcopy(raw)
    for owner in found["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == "Pod" and _plain(pods.get(owner["name"], {})) == owner.get("uid", ""):
            owner["uid"] = pods[owner["name"]]["metadata"]["uid"]
    return found


def _plain(pod: Json) -> str | None:
    uid: str | None = pod.get("metadata", {}).get("uid")
    return None if uid is None else uid.partition(UID_MARK)[0]


def with_given_uids(raw: Json) -> Json:
    """A pod or Workload as a case has it."""
    metadata = copy.deepcopy(raw["metadata"])
    if "uid" in metadata:
        metadata["uid"] = metadata["uid"].partition(UID_MARK)[0]
    for owner in metadata.get("ownerReferences") or ():
        owner["uid"] = owner.get("uid", "").partition(UID_MARK)[0]
    labels = metadata.get("labels") or {}
    if names.JOB_UID in labels:
        labels[names.JOB_UID] = labels[names.JOB_UID].partition(UID_MARK)[0]
    return {**raw, "metadata": metadata}


def is_behind(case: Case, pods: Mapping[str, Json]) -> bool:
    """Whether a deletion that was asked for has not been seen: our last write to a pod is newer than the pod."""
    asked = {uid for one in case.input.get("excessPodsExpectations") or () for uid in one["uids"]}
    written = WrittenVersions()
    for raw in pods.values():
        meta = raw["metadata"]
        key = ObjectKey(meta["namespace"], meta["name"])
        if (_plain(raw) or "") in asked:
            written.wrote(key, meta["uid"], "2")
        if written.behind(key, meta["uid"], "1"):
            return True
    return False


def now_s(case: Case) -> float:
    return datetime.fromisoformat(case.input["now"]).timestamp()
