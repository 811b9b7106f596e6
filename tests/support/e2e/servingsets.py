"""StatefulSets and LeaderWorkerSets on a real control plane: their bodies, and a played controller of the latter.

The StatefulSet controller is real, for both: a LeaderWorkerSet's pods are those of StatefulSets.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.cluster.watching.kinds import PODS, WORKLOADS
from controller.jobs.serving.leaderworkerset import SUBGROUP_TOPOLOGY
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.objects.quantity import parse_quantity
from hack.cluster.cluster import Cluster
from hack.cluster.waiting import until as wait_until
from kube.client import Client
from kube.errors import KubeError
from kube.kubeconfig import from_kubeconfig
from kube.resources import Resource
from tests.support.e2e.lab import EXAMPLES
from tests.support.e2e.podlab import GATE, GPU, QUEUE, TEAM, PodLab, is_held, may_run, node
from tests.support.e2e.queuelab import Json, admission

STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
LEADER_WORKER_SETS: Final = Resource(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", namespaced=True
)
PREFIX: Final = "leaderworkerset.sigs.k8s.io/"
NAME, GROUP_INDEX, WORKER_INDEX = f"{PREFIX}name", f"{PREFIX}group-index", f"{PREFIX}worker-index"
LEADER_NAME: Final = f"{PREFIX}leader-name"
_EVERY_S: Final = 0.1

# The real one labels pods in its webhook: leaders have the number of their group in their name, workers their own.
LABELLING: Final = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: lws-labels}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    objectSelector: {matchExpressions: [{key: leaderworkerset.sigs.k8s.io/name, operator: Exists}]}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  variables:
  - {name: number, expression: "object.metadata.name.split('-')[object.metadata.name.split('-').size() - 1]"}
  - {name: worker, expression: "object.metadata.?annotations[?'leaderworkerset.sigs.k8s.io/leader-name'].hasValue()"}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: 'add', path: '/metadata/labels/leaderworkerset.sigs.k8s.io~1worker-index',
        value: variables.worker ? variables.number : '0'}] +
        (variables.worker ? [] : [JSONPatch{op: 'add',
        path: '/metadata/labels/leaderworkerset.sigs.k8s.io~1group-index', value: variables.number}])
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: lws-labels}
spec: {policyName: lws-labels}
"""


def template(app: str, *, gpus: int = 1, image: str = "one", **annotations: str) -> Json:
    container = {"name": "main", "image": image, "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def stateful_set(name: str, replicas: int, queue: str, **spec: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": TEAM, "labels": {QUEUE: queue}},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name),
            **spec,
        },
    }


def leader_worker_set(name: str, replicas: int, size: int, queue: str, notes: Json | None = None) -> Json:
    """Each pod has one GPU. ``notes``: annotations of both templates."""
    made = template(name, **(notes or {}))
    return {
        "apiVersion": LEADER_WORKER_SETS.api_version,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "namespace": TEAM, "labels": {QUEUE: queue}},
        "spec": {
            "replicas": replicas,
            "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": {"size": size, "leaderTemplate": made, "workerTemplate": made},
        },
    }


async def a_tree_runs(scene: PodLab, queue: str) -> None:
    """A group whose two subgroups ask for a node each, the leader with the first worker, and the second; then it is
    deleted.
    """
    body = leader_worker_set("tree", 1, 3, queue)
    body["metadata"]["annotations"] = {SUBGROUP_TOPOLOGY: HOSTNAME_LABEL}
    body["spec"]["leaderWorkerTemplate"]["subGroupPolicy"] = {"subGroupSize": 1}
    await scene.client.create(LEADER_WORKER_SETS, body, dict[str, Any], namespace=TEAM)
    await scene.until(lambda: scene.runs("tree-0", "tree-0-1", "tree-0-2"), "a tree of subgroups runs")
    assert node(scene.pod("tree-0")) == node(scene.pod("tree-0-1"))
    (made,) = (one for name, one in scene.queues.watcher.workloads.items() if "leaderworkerset-tree-" in name)
    assert [each["name"] for each in made["spec"]["podSets"]] == ["leader", "subgroup-0", "subgroup-1"]
    await scene.client.delete(LEADER_WORKER_SETS, "tree", namespace=TEAM)


class LeaderWorkerSets:
    """The controller of LeaderWorkerSets (lws 0.10), as far as queues see it, in a loop until it is cancelled.

    Leaders are the pods of one StatefulSet of the set's name, workers those of one for each leader, owned by it. A
    worker's StatefulSet is made once its leader is Ready (``startupPolicy: LeaderReady``). A pod that is deleted or has
    failed takes its group along: the leader is deleted, and the workers with it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def run(self) -> None:
        while True:
            with suppress(KubeError):
                for owner in await self._list(LEADER_WORKER_SETS):
                    if "deletionTimestamp" not in owner["metadata"]:
                        await self._tend(owner)
            await asyncio.sleep(_EVERY_S)

    async def _list(self, resource: Resource) -> list[Json]:
        return list((await self._client.list_all(resource, dict[str, Any])).items)

    async def _tend(self, owner: Json) -> None:
        name, spec = owner["metadata"]["name"], owner["spec"]["leaderWorkerTemplate"]
        sets = {one["metadata"]["name"]: one for one in await self._list(STATEFUL_SETS)}
        pods = [one for one in await self._list(PODS) if one["metadata"]["labels"].get(NAME) == name]
        leaders = self._set(name, owner["spec"]["replicas"], spec["leaderTemplate"], {NAME: name}, {})
        leaders["metadata"]["ownerReferences"] = [_owned_by(LEADER_WORKER_SETS, owner)]
        await self._match(leaders, sets.get(name))
        await self._recreate(pods)
        for leader in pods:
            meta = leader["metadata"]
            ready = any(
                one["type"] == "Ready" and one["status"] == "True" for one in leader["status"].get("conditions", [])
            )
            if LEADER_NAME in meta.get("annotations", {}) or "deletionTimestamp" in meta or not ready:
                continue
            labels = {NAME: name, GROUP_INDEX: meta["labels"][GROUP_INDEX]}
            workers = self._set(
                meta["name"], spec["size"] - 1, spec["workerTemplate"], labels, {LEADER_NAME: meta["name"]}
            )
            workers["spec"]["ordinals"] = {"start": 1}
            workers["metadata"]["ownerReferences"] = [_owned_by(PODS, leader)]
            await self._match(workers, sets.get(meta["name"]))
        await self._report(owner, sets.get(name))

    def _set(self, name: str, replicas: int, made: Json, labels: Json, notes: Json) -> Json:
        copied = json.loads(json.dumps(made))
        given = copied.setdefault("metadata", {})
        for part, more in (("labels", labels), ("annotations", notes)):
            given[part] = {**given.get(part, {}), **more}
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name, "namespace": TEAM, "labels": labels},
            "spec": {
                "replicas": replicas,
                "podManagementPolicy": "Parallel",
                "serviceName": name,
                "selector": {"matchLabels": labels},
                "template": copied,
            },
        }

    async def _match(self, wanted: Json, there: Json | None) -> None:
        name = wanted["metadata"]["name"]
        with suppress(KubeError):
            if there is None:
                await self._client.create(STATEFUL_SETS, wanted, dict[str, Any], namespace=TEAM)
            elif there["metadata"]["ownerReferences"][0]["uid"] == wanted["metadata"]["ownerReferences"][0]["uid"]:
                now = (there["spec"]["replicas"], there["spec"]["template"]["spec"]["containers"][0]["image"])
                image = wanted["spec"]["template"]["spec"]["containers"][0]["image"]
                if now != (wanted["spec"]["replicas"], image):
                    patch = {"spec": {"replicas": wanted["spec"]["replicas"], "template": wanted["spec"]["template"]}}
                    await self._client.merge_patch(STATEFUL_SETS, name, patch, dict[str, Any], namespace=TEAM)

    async def _recreate(self, pods: list[Json]) -> None:
        """A worker that was deleted is found missing once its set's other pods are there: the leader remembers."""
        for leader in pods:
            meta = leader["metadata"]
            if LEADER_NAME in meta.get("annotations", {}) or "deletionTimestamp" in meta:
                continue
            group = meta["labels"][GROUP_INDEX]
            workers = [one for one in pods if one is not leader and one["metadata"]["labels"].get(GROUP_INDEX) == group]
            gone = [one for one in workers if "deletionTimestamp" in one["metadata"] or _phase(one) == "Failed"]
            if gone or _phase(leader) == "Failed":
                with suppress(KubeError):
                    await self._client.delete(PODS, meta["name"], namespace=TEAM)

    async def _report(self, owner: Json, leaders: Json | None) -> None:
        status = {} if leaders is None else leaders.get("status", {})
        keys = ("replicas", "readyReplicas", "updatedReplicas")
        wanted = {key: status.get(key, 0) for key in keys}
        wanted["hpaPodSelector"] = f"{NAME}={owner['metadata']['name']},{WORKER_INDEX}=0"
        if {key: owner.get("status", {}).get(key) for key in wanted} != wanted:
            with suppress(KubeError):
                await self._client.merge_patch(
                    LEADER_WORKER_SETS,
                    owner["metadata"]["name"],
                    {"status": wanted},
                    dict[str, Any],
                    namespace=TEAM,
                    subresource="status",
                )


def _owned_by(resource: Resource, owner: Json) -> Json:
    named = {key: owner["metadata"][key] for key in ("name", "uid")}
    more = {"controller": True, "blockOwnerDeletion": True}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **named, **more}


def _phase(pod: Json) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def install_leader_worker_sets(cluster: Cluster, crds: Path) -> None:
    """Their CRD, what labels their pods, and the policies for them in effect."""
    cluster.kubectl("apply", "--server-side", "-f", str(crds / "lws" / "leaderworkersets.yaml"))
    cluster.kubectl("apply", "-f", "-", input=LABELLING)
    probe = json.dumps(leader_worker_set("probe", 1, 2, "any"))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe-7", "namespace": TEAM, "labels": {NAME: "probe"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }

    def dry(body: str) -> Json:
        found: Json = json.loads(cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=body))
        return found

    def in_effect() -> bool:
        with suppress(Exception):
            made = dry(probe)["spec"]["leaderWorkerTemplate"]
            stamped = all(
                "annotations" in made[key].get("metadata", {}) for key in ("leaderTemplate", "workerTemplate")
            )
            return stamped and dry(json.dumps(pod))["metadata"]["labels"].get(GROUP_INDEX) == "7"
        return False

    wait_until(in_effect, "the policies for LeaderWorkerSets in effect", timeout_s=120, every_s=0.2)


@asynccontextmanager
async def played(cluster: Cluster) -> AsyncIterator[None]:
    """The controller of LeaderWorkerSets, until the block ends."""
    async with Client(from_kubeconfig(cluster.kubeconfig), timeout_s=10.0) as client:
        task = asyncio.create_task(LeaderWorkerSets(client).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def charged(client: Client) -> Counter[str]:
    """GPUs that each Workload with quota holds, by its name; those of single pods together."""
    found: Counter[str] = Counter()
    for workload in (await client.list_all(WORKLOADS, dict[str, Any])).items:
        for assigned in workload.get("status", {}).get("admission", {}).get("podSetAssignments", []):
            name = workload["metadata"]["name"]
            used = parse_quantity(assigned["resourceUsage"].get(GPU, "0")).value
            found["pods" if name.startswith("pod-") else name] += used
    return found


async def running(client: Client) -> Counter[str]:
    """GPUs of the pods that can run, by the Workload that they are of."""
    found: Counter[str] = Counter()
    for pod in (await client.list_all(PODS, dict[str, Any])).items:
        gates = [one["name"] for one in pod["spec"].get("schedulingGates", [])]
        if GATE in gates or _phase(pod) in ("Succeeded", "Failed"):
            continue
        named = pod["metadata"].get("annotations", {}).get("kueue.x-k8s.io/pod-group-name", "pods")
        found[named] += int(pod["spec"]["containers"][0]["resources"].get("limits", {}).get(GPU, 0))
    return found


def waits(scene: PodLab, name: str) -> bool:
    """It is there, and behind its gate."""
    return bool(scene.pod(name)) and is_held(scene.pod(name))


@dataclass(frozen=True)
class ServingExamples:
    """The examples that serve as a whole. Together they have 7 GPUs and three Workloads."""

    scene: PodLab
    files: tuple[Path, ...] = tuple(EXAMPLES / "kinds" / f"{name}.yaml" for name in ("statefulset", "leaderworkerset"))
    first: tuple[str, ...] = ("mistral-0", "qwen-0", "qwen-1")

    def apply(self) -> None:
        for file in self.files:
            self.scene.cluster.kubectl("apply", "-f", str(file))

    def delete(self) -> None:
        for file in self.files:
            self.scene.cluster.kubectl("delete", "-f", str(file), "--wait=false")

    def wait(self) -> bool:
        workloads = self.scene.queues.watcher.workloads
        return len(workloads) >= 3 and all(waits(self.scene, name) for name in self.first)

    def are_admitted(self) -> bool:
        pods = [self.scene.pod(name) for name in self.first]
        admitted = [bool(admission(each)) for each in self.scene.queues.watcher.workloads.values()]
        return all(pods) and all(map(may_run, pods)) and admitted == [True] * 3

    async def gone(self, state: str) -> None:
        seen, workloads = self.scene.watcher, self.scene.queues.watcher.workloads
        await self.scene.until(lambda: not seen.pods and not workloads, f"deleted while {state}: nothing is left")
