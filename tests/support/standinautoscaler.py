"""A stand-in for Cluster Autoscaler's side of ProvisioningRequests: objects and the time in, writes out.

It behaves as the open-source one does: a request is accepted if its PodTemplates can be read; capacity that was found
is booked for a while from Provisioned on, also where its nodes are not there yet; a booking that no pod has consumed by
then expires; what failed is final. Nodes come one by one. It never looks at quota, order or pods' gates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

SCALE_UP = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"

Json = dict[str, Any]


@dataclass(frozen=True)
class Say:
    """The status that a request gets."""

    namespace: str
    name: str
    status: Json


@dataclass(frozen=True)
class AddNode:
    body: Json


@dataclass(frozen=True)
class RemoveNode:
    name: str


Act = Say | AddNode | RemoveNode


@dataclass
class StandInAutoscaler:
    """``node``: the body of the n-th node that is made. ``pods_per_node``: of any template. ``most``: nodes that the
    provider gives at most. ``fails``: the message with which the request of a name fails; empty where it does not.
    ``node_s``: seconds between two nodes.
    """

    node: Any
    pods_per_node: int = 1
    most: int = 100
    provision_s: float = 0.0
    node_s: float = 0.0
    booking_s: float = 600.0
    fails: Callable[[str], str] = lambda _: ""
    revoked: set[str] = field(default_factory=set)
    details: Mapping[str, str] = field(default_factory=dict)
    made: dict[str, list[str]] = field(default_factory=dict)
    """Names of nodes by the uid of the request that they were made for."""
    _due: list[tuple[float, str]] = field(default_factory=list)
    _accepted: dict[str, float] = field(default_factory=dict)
    _provisioned: dict[str, float] = field(default_factory=dict)
    _count: int = 0

    def look(self, requests: Sequence[Json], templates: Sequence[str], pods: Sequence[Json], now_s: float) -> list[Act]:
        """One loop. ``templates``: ``namespace/name`` of the PodTemplates that can be read."""
        acts: list[Act] = []
        for request in requests:
            acts += self._request(request, templates, pods, now_s)
        while self._due and self._due[0][0] <= now_s:
            _, uid = self._due.pop(0)
            self._count += 1
            body = self.node(self._count)
            self.made.setdefault(uid, []).append(body["metadata"]["name"])
            acts.append(AddNode(body))
        return acts

    def _request(self, request: Json, templates: Sequence[str], pods: Sequence[Json], now_s: float) -> list[Act]:
        meta, uid = request["metadata"], request["metadata"]["uid"]
        said = {one["type"] for one in request.get("status", {}).get("conditions", []) if one["status"] == "True"}
        if "Failed" in said or "CapacityRevoked" in said:
            return []
        if meta["name"] in self.revoked and "Provisioned" in said:
            gone = [RemoveNode(name) for name in self.made.pop(uid, [])]
            return [*gone, self._say(request, "CapacityRevoked", "CapacityRevoked", "the reservation is over", now_s)]
        if "Accepted" not in said:
            return [self._accept(request, templates, now_s)]
        if "Provisioned" not in said:
            self._accepted.setdefault(uid, now_s)
            return self._provision(request, now_s)
        self._provisioned.setdefault(uid, now_s)
        consumed = any(pod["metadata"].get("annotations", {}).get(CONSUME) == meta["name"] for pod in pods)
        if "BookingExpired" not in said and not consumed and now_s >= self._provisioned[uid] + self.booking_s:
            return [self._say(request, "BookingExpired", "CapacityReservationTimeExpired", "nobody came", now_s)]
        return []

    def _accept(self, request: Json, templates: Sequence[str], now_s: float) -> Say:
        namespace = request["metadata"]["namespace"]
        named = [f"{namespace}/{one['podTemplateRef']['name']}" for one in request["spec"]["podSets"]]
        if missing := [name for name in named if name not in templates]:
            return self._say(request, "Failed", "FailedToCreatePods", f"no PodTemplate {missing[0]}", now_s)
        return self._say(request, "Accepted", "Accepted", "it is known", now_s)

    def _provision(self, request: Json, now_s: float) -> list[Act]:
        meta = request["metadata"]
        if why := self.fails(meta["name"]):
            return [self._say(request, "Failed", "CapacityIsNotFound", why, now_s)]
        if now_s < self._accepted[meta["uid"]] + self.provision_s:
            return []
        pods = sum(one["count"] for one in request["spec"]["podSets"])
        nodes = -(-pods // self.pods_per_node)
        if self._count + len(self._due) + nodes > self.most:
            return [self._say(request, "Failed", "CapacityIsNotFound", f"{nodes} nodes are too many", now_s)]
        self._due += [(now_s + self.node_s * (number + 1), meta["uid"]) for number in range(nodes)]
        self._due.sort()
        return [self._say(request, "Provisioned", "CapacityIsProvisioned", "capacity was ordered", now_s)]

    def _say(self, request: Json, type_: str, reason: str, message: str, now_s: float) -> Say:
        at = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        said = {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}
        others = [one for one in request.get("status", {}).get("conditions", []) if one["type"] != type_]
        status: Json = {"conditions": [*others, said]}
        if type_ == "Provisioned" and self.details:
            status["provisioningClassDetails"] = dict(self.details)
        return Say(request["metadata"]["namespace"], request["metadata"]["name"], status)
