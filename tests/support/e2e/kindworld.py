"""What the API server has of all job kinds, listed once for everybody who looks: players of controllers, and tests."""

import asyncio
import functools
import json
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from controller.cluster.watching.kinds import WORKLOADS
from controller.objects.decode import decode
from controller.objects.placeencoding import decode as decode_places
from controller.objects.quantity import parse_quantity
from controller.objects.workload import Workload
from hack.cluster.cluster import Cluster
from kube.client import Client
from kube.errors import KubeError
from kube.resources import PODS, Resource

Json = dict[str, Any]

GPU: Final = "nvidia.com/gpu"
RESOURCES: Final = ("cpu", "memory", GPU)
URGENT: Final = "urgent"
"""The name of the Job that preempts; it and its pods are left out of what is seen."""
_POD_SET: Final = "kueue.x-k8s.io/podset"
_RANKS: Final = ("training.kubeflow.org/replica-index", "batch.kubernetes.io/job-completion-index")
_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_EVERY_S: Final = 0.15


class World:
    """Lists everything again and again. ``listed`` is one round's, whole."""

    def __init__(self, cluster: Cluster, client: Client, resources: Iterable[Resource]) -> None:
        self.cluster, self.client = cluster, client
        self.listed: dict[Resource, list[Json]] = {}
        self._resources = tuple(dict.fromkeys((*resources, WORKLOADS, PODS)))
        self._begun = self._done = 0
        self._told = asyncio.Condition()

    async def run(self) -> None:
        """Until it is cancelled. A round that fails is not told of."""
        while True:
            self._begun += 1
            with suppress(KubeError):
                self.listed = {resource: await self._list(resource) for resource in self._resources}
                async with self._told:
                    self._done = self._begun
                    self._told.notify_all()
            await asyncio.sleep(_EVERY_S)

    async def _list(self, resource: Resource) -> list[Json]:
        return list((await self.client.list_all(resource, dict[str, Any])).items)

    async def next(self) -> None:
        """Return when a round is told of that began after the call: it knows what was written before."""
        wanted = self._begun + 1
        async with self._told:
            await self._told.wait_for(lambda: self._done >= wanted)

    def of(self, namespace: str, resource: Resource, name: str) -> "Seen":
        def here(resource: Resource) -> list[Json]:
            return [each for each in self.listed[resource] if each["metadata"]["namespace"] == namespace]

        pods = [each for each in here(PODS) if each["status"].get("phase") not in ("Succeeded", "Failed")]
        return Seen(
            job=next((each for each in here(resource) if each["metadata"]["name"] == name), {}),
            workloads=[each for each in here(WORKLOADS) if not _is_urgent(each)],
            pods=[each for each in pods if not _is_urgent(each)],
        )


def _is_urgent(each: Json) -> bool:
    return any(owner["name"] == URGENT for owner in each["metadata"].get("ownerReferences", []))


@dataclass(frozen=True)
class Seen:
    """One look at a namespace: a job, its workloads, and all pods that have not ended."""

    job: Json
    workloads: list[Json]
    pods: list[Json]

    @property
    def workload(self) -> Json:
        """The only one that is not finished, else the only one."""
        going = [each for each in self.workloads if not has(each, "Finished")]
        (found,) = going or self.workloads
        return found

    @property
    def _holding(self) -> list[Json]:
        """Workloads that hold quota: of an elastic job two for a moment."""
        return [each for each in self.workloads if "admission" in each.get("status", {}) and not has(each, "Finished")]

    @property
    def _assignments(self) -> list[tuple[str, int, Json]]:
        """Name, pods and usage of each pod set that holds quota. A smaller count in the specification is in force at
        once: the admission keeps what was given.
        """
        found = []
        for each in self._holding:
            asked_for = {one["name"]: one["count"] for one in each["spec"]["podSets"]}
            for given in each["status"]["admission"]["podSetAssignments"]:
                count = min(given["count"], asked_for[given["name"]])
                per_pod = {name: nanos(str(total)) // given["count"] for name, total in given["resourceUsage"].items()}
                found.append((given["name"], count, {name: count * each for name, each in per_pod.items()}))
        return found

    @property
    def admitted(self) -> bool:
        return bool(self._holding) and all(has(each, "Admitted") for each in self._holding)

    @property
    def finished(self) -> bool:
        return has(self.workload, "Finished")

    @property
    def charged(self) -> dict[str, int]:
        return {name: sum(used.get(name, 0) for _, _, used in self._assignments) for name in RESOURCES}

    @property
    def requested(self) -> dict[str, int]:
        return requested(self.pods)

    @property
    def free(self) -> list[Json]:
        """Pods that no gate holds back."""
        return [pod for pod in self.pods if not pod["spec"].get("schedulingGates")]

    @property
    def as_charged(self) -> bool:
        """Pods without a gate run, and are those that were charged."""
        counts = Counter(pod["metadata"].get("labels", {}).get(_POD_SET, "") for pod in self.free)
        assigned = Counter({name: count for name, count, _ in self._assignments if count})
        all_run = all(pod["status"].get("phase") == "Running" for pod in self.free)
        return self.admitted and self.charged == requested(self.free) and counts == assigned and all_run

    def sized(self, pods: int, running: int) -> bool:
        """So many pods, of which so many were charged and run; the others wait behind a gate."""
        return self.as_charged and len(self.pods) == pods and len(self.free) == running

    @property
    def waits_to_run(self) -> bool:
        """It has its quota and pods of it, and none has begun."""
        begun = any(pod["status"].get("phase") == "Running" for pod in self.pods)
        return self.admitted and bool(self.pods) and not begun

    @property
    def misplaced(self) -> list[str]:
        """Of each pod set that was given places and whose pods have ranks: those that are not in the ranks' order."""
        admission = decode(self.workload, Workload).status.admission
        found = []
        for one in admission.pod_set_assignments if admission is not None else ():
            assert one.topology_assignment is not None, f"{one.name} was given no places"
            places = [place.values[-1] for place in decode_places(one.topology_assignment) for _ in range(place.pods)]
            mine = [pod for pod in self.pods if pod["metadata"]["labels"].get(_POD_SET) == one.name]
            nodes = [pod["spec"].get("nodeName", "") for pod in sorted(mine, key=rank)]
            if nodes != places:
                found.append(f"{one.name}: expected {places}, found {nodes}")
        return found

    def __str__(self) -> str:
        pods = [(p["metadata"]["name"], p["status"].get("phase"), p["spec"].get("schedulingGates")) for p in self.pods]
        statuses = [one.get("status", {}) for one in self.workloads]
        job = {part: self.job.get(part) for part in ("spec", "status")}
        return json.dumps({"pods": pods, "statuses": statuses, "job": job})[:6000]


def has(given: Json, type_: str) -> bool:
    found = given.get("status", {}).get("conditions", [])
    return any(one["type"] == type_ and one["status"] == "True" for one in found)


def rank(pod: Json) -> tuple[int, int]:
    """Of a pod in its pod set: a JobSet's by the index of its Job first."""
    labels = pod["metadata"]["labels"]
    return int(labels.get(_JOB_INDEX, 0)), next((int(labels[name]) for name in _RANKS if name in labels), 0)


def nanos(quantity: str) -> int:
    return parse_quantity(quantity).nanos


def requested(pods: Collection[Json]) -> dict[str, int]:
    return {name: sum(asked(pod, name) for pod in pods) for name in RESOURCES}


def asked(template: Json, name: str) -> int:
    """Of one pod, in 10^-9 of its unit: its containers together, or the init container that asks for more."""

    def of(container: Json) -> int:
        resources = container.get("resources", {})
        found = {**resources.get("limits", {}), **resources.get("requests", {})}
        return nanos(str(found.get(name, "0")))

    spec = template["spec"]
    return max(sum(map(of, spec["containers"])), *map(of, spec.get("initContainers", [])), 0)


def written(job: Json, defaults: tuple[str, ...] = ()) -> Json:
    """The spec as its user wrote it: an entry of ours and a map that say nothing any more are left out.

    ``defaults``: paths of templates that a start has written out, and that carry no placement after a stop.
    """
    spec: Json = json.loads(json.dumps(job.get("spec", {})))
    for path in defaults:
        *way, last = path.split("/")
        place = functools.reduce(lambda inner, key: inner[key], way, spec)
        left = place.get(last, {})
        assert not any(left.get("spec", {}).get(key) for key in ("nodeSelector", "tolerations", "schedulingGates"))
        assert not left.get("metadata"), left
        place.pop(last, None)
    patches = spec.pop("runtimePatches", [])
    spec["runtimePatches"] = [each for each in map(_bare, patches) if each != {"manager": "kueue.x-k8s.io/manager"}]
    found: Json = _bare(spec)
    return found


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _bare(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in ({}, [], None)}
    return [_bare(each) for each in value] if isinstance(value, list) else value
