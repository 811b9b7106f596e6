"""A record in few words: objects as the API server has them, and the lines that tell of them."""

import io
import json
from typing import Any, Final

from history.judge import Finding, Verdict, judged
from history.record import read

Json = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
BEGAN: Final = "2026-01-01T00:00:{:02d}Z"


class Told:
    """Lines in the order in which they are told; ``t`` goes on by ``later``."""

    def __init__(self) -> None:
        self.t = 0.0
        self.lines: list[Json] = []
        self._there: dict[tuple[str, str, str], Json] = {}

    def later(self, seconds: float) -> None:
        self.t = round(self.t + seconds, 3)

    def line(self, source: str, **given: Any) -> None:
        self.lines.append({"t": self.t, "source": source, **given})

    def put(self, *bodies: Json) -> None:
        for body in bodies:
            meta = body["metadata"]
            key = (body["kind"], meta.get("namespace", ""), meta["name"])
            self.line("api", type="MODIFIED" if key in self._there else "ADDED", object=json.loads(json.dumps(body)))
            self._there[key] = body

    def drop(self, *bodies: Json) -> None:
        for body in bodies:
            meta = body["metadata"]
            self._there.pop((body["kind"], meta.get("namespace", ""), meta["name"]), None)
            self.line("api", type="DELETED", object=body)

    def pods(self, node: str, **held: list[str]) -> None:
        """PodResources: pods of the namespace ``team`` and the ids that each has."""
        listed = [
            {
                "namespace": "team",
                "name": name.replace("_", "-"),
                "containers": [{"name": "c", "devices": [{"resource": GPU, "ids": ids}]}],
            }
            for name, ids in held.items()
        ]
        self.line("kubelet", node=node, call="PodResources", pods=listed)

    def hardware(self, node: str, *gpus: Json) -> None:
        self.line("hardware", node=node, gpus=list(gpus))

    def verdict(self) -> Verdict:
        return judged(read(io.BytesIO(self.text())))

    def found(self) -> list[Finding]:
        return list(self.verdict().findings)

    def text(self) -> bytes:
        return b"".join(json.dumps(each).encode() + b"\n" for each in self.lines)


def meta(name: str, namespace: str = "team", **more: Any) -> Json:
    return {"name": name, "uid": f"uid-{namespace}-{name}", **({"namespace": namespace} if namespace else {}), **more}


def cluster_queue(name: str = "cq", quota: int = 4, **spec: Any) -> Json:
    """One flavor ``f``; ``limits`` go into its resource. ``notes``: annotations."""
    limits, notes = spec.pop("limits", {}), spec.pop("notes", {})
    resources = [{"name": spec.pop("resource", GPU), "nominalQuota": str(quota), **limits}]
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "f", "resources": resources}]}]
    about = {"name": name, "uid": f"uid-cq-{name}", "annotations": notes}
    return {"kind": "ClusterQueue", "metadata": about, "spec": {"resourceGroups": groups, **spec}}


def local_queue(name: str = "lq", queue: str = "cq") -> Json:
    return {"kind": "LocalQueue", "metadata": meta(name), "spec": {"clusterQueue": queue}}


def spec_of(gpus: int = 1, **more: Any) -> Json:
    return {"containers": [{"name": "c", "resources": {"limits": {GPU: str(gpus)}}}], **more}


def job(name: str, *, count: int = 1, suspend: bool = False, queue: str = "lq", spec: Json | None = None) -> Json:
    body = {"suspend": suspend, "parallelism": count, "template": {"spec": spec or spec_of()}}
    about = meta(name, labels={"kueue.x-k8s.io/queue-name": queue} if queue else {})
    return {"kind": "Job", "metadata": about, "spec": body}


def owner(body: Json) -> Json:
    return {"kind": body["kind"], "name": body["metadata"]["name"], "uid": body["metadata"]["uid"], "controller": True}


def workload(of: Json, *, count: int = 1, spec: Json | None = None, at: int = 0, **more: Any) -> Json:
    """It waits, and says why."""
    sets = [{"name": "main", "count": count, "template": {"spec": spec or of["spec"]["template"]["spec"]}}]
    about = meta(f"job-{of['metadata']['name']}", ownerReferences=[owner(of)], creationTimestamp=BEGAN.format(at))
    told = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "no quota"}
    body = {"queueName": "lq", "podSets": sets, **more}
    return {"kind": "Workload", "metadata": about, "spec": body, "status": {"conditions": [told]}}


def admitted(waiting: Json, *, queue: str = "cq", count: int | None = None, checks: bool = False) -> Json:
    """``checks``: it has quota and waits for admission checks."""
    given = [
        {"name": each["name"], "count": each["count"] if count is None else count, "flavors": {GPU: "f"}}
        for each in waiting["spec"]["podSets"]
    ]
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", *(() if checks else ("Admitted",)))]
    status = {"admission": {"clusterQueue": queue, "podSetAssignments": given}, "conditions": conditions}
    return {**waiting, "status": status}


def having(body: Json, kind: str, reason: str = "", status: str = "True") -> Json:
    """With one more condition, in place of one of its kind."""
    others = [each for each in body.get("status", {}).get("conditions", []) if each["type"] != kind]
    new = {"type": kind, "status": status, "reason": reason, "message": reason}
    return {**body, "status": {**body.get("status", {}), "conditions": [*others, new]}}


def pod(name: str, of: Json | None = None, *, node: str = "n1", spec: Json | None = None, **about: Any) -> Json:
    """It runs on ``node``, or has none yet."""
    owners = {"ownerReferences": [owner(of)]} if of is not None else {}
    body = {**(spec or (of["spec"]["template"]["spec"] if of is not None else spec_of()))}
    phase = "Running" if node else "Pending"
    return {
        "kind": "Pod",
        "metadata": {**meta(name), **owners, **about},
        "spec": {**body, **({"nodeName": node} if node else {})},
        "status": {"phase": phase},
    }


def ended(body: Json, phase: str = "Succeeded") -> Json:
    return {**body, "status": {"phase": phase}}


def leaving(body: Json) -> Json:
    return {**body, "metadata": {**body["metadata"], "deletionTimestamp": BEGAN.format(59)}}
