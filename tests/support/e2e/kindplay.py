"""One job kind's example, through all of its lives: it is deleted in each state, and goes the whole way once."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, JOBS, LOCAL_QUEUES, NAMESPACES
from hack.cluster.controlplane.controlplane import KWOK_ANNOTATION
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from kube.client import Selection
from kube.errors import KubeError
from kube.resources import EVENTS, NODES, PODS, Resource
from tests.support.e2e.kindoperators import RUNTIMES
from tests.support.e2e.kindworld import GPU, RESOURCES, URGENT, Json, Seen, World, asked, written

QUEUE, HOST = "kueue.x-k8s.io/queue-name", "kubernetes.io/hostname"
RACK, RANKS_OF, TOPOLOGY = "tessera.test/rack", "tessera.test/ranks-of", "racks"
RANKED: Final = frozenset(("jobset", "pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob", "mpijob", "trainjob"))
"""Kinds whose pods have ranks: the last life of each is on nodes of one GPU, and its pods are placed one by one."""
NEVER_END: Final = frozenset(("raycluster", "rayservice"))
WRITTEN_OUT: Final = {
    "rayjob": ("submitterPodTemplate",),
    "sparkapplication": ("driver/template", "executor/template"),
}
"""Where a start has no template to write into, it writes the default out; a stop leaves that, without placement."""
SMALL: Final[dict[str, tuple[str | int, ...]]] = {
    "pytorchjob": ("pytorchReplicaSpecs", "Worker", "template"),
    "raycluster": ("workerGroupSpecs", 0, "template"),
}
"""Pods whose containers ask here for less than the init container that the kind's controller puts before them."""
LATE_S: Final = 300.0
"""All kinds share one kwok, which stands still while the kinds that meet are killed in a state: one that does not meet
waits for its pods as long.
"""
HELD, ADMITTED, RUNNING, PREEMPTED, FINISHED = "held", "admitted", "running", "preempted", "finished"
PODS_WAIT, PODS_GO_ON = "pods wait", "pods go on"


@dataclass
class Played:
    """What one kind went through. ``error`` is empty if all of it was as it must be."""

    steps: list[str] = field(default_factory=list)
    error: str = ""


class Meetings:
    """Where plays wait for one another: something happens once, when all that still play have come."""

    def __init__(self, acts: dict[str, Callable[[], Awaitable[None]]]) -> None:
        self._acts = acts
        self._playing = 0
        self._come: dict[str, int] = {}
        self._over: dict[str, asyncio.Event] = {name: asyncio.Event() for name in acts}

    def join(self) -> None:
        self._playing += 1

    async def leave(self) -> None:
        """Others wait no more for one that has failed."""
        self._playing -= 1
        for name in [name for name, come in self._come.items() if come >= self._playing]:
            await self._hold(name)

    async def at(self, name: str) -> None:
        self._come[name] = self._come.get(name, 0) + 1
        if self._come[name] >= self._playing:
            await self._hold(name)
        await self._over[name].wait()

    async def _hold(self, name: str) -> None:
        if not self._over[name].is_set():
            await self._acts[name]()
            self._over[name].set()


class Play:
    """One kind's example in its own namespace, with queues of just its size."""

    def __init__(self, world: World, meetings: Meetings, resource: Resource, bodies: list[Json]) -> None:
        self.world, self.client, self.meetings, self.resource = world, world.client, meetings, resource
        self.name = resource.kind.lower()
        self.namespace, self.cluster_queue = f"kind-{self.name}", self.name
        self.played = Played()
        self.queue = ""
        self.need: dict[str, int] = {}
        (self._body,) = [body for body in bodies if body["kind"] == resource.kind]
        self._others = [body for body in bodies if body["kind"] != resource.kind]
        meetings.join()

    async def run(self) -> None:
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001 - it is one test's result, and the other kinds go on
            self.played.error = f"after {self.played.steps}: {error!r}\n{await self._told()}"
        finally:
            await self.meetings.leave()

    async def _run(self) -> None:
        await self._prepare()
        await self._is_deleted_while_held()
        await self._quota("played")
        await self._open()
        await self._is_deleted_while_admitted()
        await self._is_deleted_while_running()
        await self._is_deleted_while_preempted()
        await self._goes_the_whole_way()

    def did(self, step: str) -> None:
        self.played.steps.append(step)

    # -- lives -------------------------------------------------------------------------------------------------------

    async def _is_deleted_while_held(self) -> None:
        need = (await self._create()).workload["spec"]["podSets"]
        assert sum(one["count"] for one in need) >= 2, need
        self.need = {name: sum(one["count"] * asked(one["template"], name) for one in need) for name in RESOURCES}
        await self._delete(HELD)

    async def _is_deleted_while_admitted(self) -> None:
        await self.meetings.at(PODS_WAIT)
        await self.make(self.resource, self.body())
        seen = await self.until(lambda seen: seen.waits_to_run, "it is admitted, and its pods wait")
        assert all(seen.requested[name] <= seen.charged[name] for name in RESOURCES), f"more than charged: {seen}"
        await self._ask_to_delete()
        await self.meetings.at(PODS_GO_ON)
        await self._is_gone(ADMITTED)

    async def _is_deleted_while_running(self) -> None:
        await self.make(self.resource, self.body())
        await self.until(lambda seen: seen.as_charged, "its pods run, and are those that were charged")
        await self._delete(RUNNING)

    async def _is_deleted_while_preempted(self) -> None:
        original = await self.make(self.resource, self.body())
        await self.until(lambda seen: seen.as_charged, "its pods run, and are those that were charged")
        await self._preempt(original)
        await self._delete(PREEMPTED)
        await self._urgent_goes()

    async def _goes_the_whole_way(self) -> None:
        """The controller is killed in each state."""
        if self.name in RANKED:
            self.cluster_queue = f"{self.name}-ranks"
            await self._nodes()
            await self._quota(f"{self.name}-ranks")
        await self._local_queue("whole")
        original = (await self._create()).job
        self.did("held")
        await self.meetings.at(HELD)
        await self._open()
        await self.until(lambda seen: seen.waits_to_run, "it is admitted, and its pods wait")
        await self.meetings.at(ADMITTED)
        await self._runs("runs")
        await self.meetings.at(RUNNING)
        await self._runs("still runs")
        await self._preempt(original)
        self.did("restored")
        await self.meetings.at(PREEMPTED)
        await self._urgent_goes()
        await self._runs("runs again")
        await self._finish()
        await self.meetings.at(FINISHED)
        await self._delete(FINISHED)

    # -- steps -------------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        await self.make(NAMESPACES, {"metadata": {"name": self.namespace}})
        await self._local_queue("research")
        for body in self._others:
            await self.make(RUNTIMES, body)

    async def _local_queue(self, name: str) -> None:
        """The one that its jobs go to from now on. It is held."""
        spec = {"clusterQueue": self.cluster_queue, "stopPolicy": "Hold"}
        await self.make(LOCAL_QUEUES, {"metadata": {"name": name}, "spec": spec})
        self.queue = name

    async def _open(self) -> None:
        patch = {"spec": {"stopPolicy": "None"}}
        await self.client.merge_patch(LOCAL_QUEUES, self.queue, patch, Any, namespace=self.namespace)

    async def _quota(self, flavor: str) -> None:
        """Of all that it needs, and no more."""
        quotas = [{"name": each, "nominalQuota": f"{nanos}n"} for each, nanos in self.need.items()]
        group = {"coveredResources": list(RESOURCES), "flavors": [{"name": flavor, "resources": quotas}]}
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": preemption}
        await self.make(CLUSTER_QUEUES, {"metadata": {"name": self.cluster_queue}, "spec": spec})

    async def _nodes(self) -> None:
        """For it alone: one for each GPU, so that its ranks lie on different ones; and their flavor."""
        flavor, resources = f"{self.name}-ranks", {"cpu": "16", "memory": "64Gi", "pods": "20", GPU: "1"}
        for index in range(self.gpus):
            name = f"{self.name}-{index}"
            labels = {RANKS_OF: self.name, RACK: f"{self.name}-{index // 2}", HOST: name}
            metadata = {"name": name, "labels": labels, "annotations": dict([KWOK_ANNOTATION])}
            status = {"capacity": resources, "allocatable": resources}
            await self.make(NODES, {"metadata": metadata, "status": status})
        spec = {"nodeLabels": {RANKS_OF: self.name}, "topologyName": TOPOLOGY}
        await self.make(FLAVORS, {"metadata": {"name": flavor}, "spec": spec})

    @property
    def gpus(self) -> int:
        return self.need[GPU] // 10**9

    def body(self) -> Json:
        made = copy.deepcopy(self._body)
        made["metadata"]["labels"][QUEUE] = self.queue
        if self.name in SMALL:
            template: Any = made["spec"]
            for key in SMALL[self.name]:
                template = template[key]
            for container in template["spec"]["containers"]:
                container["resources"]["requests"] = {"cpu": "10m", "memory": "1Mi"}
        return made

    async def make(self, resource: Resource, body: Json) -> Json:
        namespace = self.namespace if resource.namespaced else None
        given = {**body, "apiVersion": resource.api_version, "kind": resource.kind}
        given["metadata"] = {**body["metadata"], **({"namespace": namespace} if namespace else {})}
        return await self.client.create(resource, given, dict[str, Any], namespace=namespace)

    async def _create(self) -> Seen:
        """It is written as running, and held: no pod, and a workload without quota. As it was then."""
        await self.make(self.resource, self.body())
        seen = await self.until(lambda seen: bool(seen.workloads), "it has a workload")
        assert not seen.pods, "it is held, and has pods"
        assert not seen.admitted
        return seen

    async def _runs(self, what: str) -> None:
        seen = await self.until(lambda seen: seen.as_charged, f"it {what}, and its pods are those that were charged")
        assert self.name not in RANKED or not seen.misplaced, seen.misplaced
        self.did(what)

    async def _preempt(self, original: Json) -> None:
        """All pods go, and the object is again as it was made."""
        await self._urgent_comes()
        await self.until(lambda seen: not seen.admitted and not seen.pods, "it is preempted and its pods are gone")
        defaults = WRITTEN_OUT.get(self.name, ())
        wanted = written(original, defaults)
        await self.until(lambda seen: written(seen.job, defaults) == wanted, "its templates are restored")

    async def _urgent_comes(self) -> None:
        """A Job that needs all of the queue."""
        container = {
            "name": "main",
            "image": "none",
            "resources": {"limits": {GPU: "1", "cpu": "100m", "memory": "1Mi"}},
        }
        template = {"spec": {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0}}
        labels = {QUEUE: self.queue, "kueue.x-k8s.io/priority-class": URGENT}
        spec = {"suspend": True, "parallelism": self.gpus, "completions": self.gpus, "template": template}
        await self.make(JOBS, {"metadata": {"name": URGENT, "labels": labels}, "spec": spec})

    async def _urgent_goes(self) -> None:
        """With its pods: the API server leaves them where the request says nothing about them."""
        await asyncio.to_thread(self.world.cluster.kubectl, "delete", "job", URGENT, "-n", self.namespace)

    async def _finish(self) -> None:
        if self.name in NEVER_END:
            return
        late_s = asyncio.get_running_loop().time() + LATE_S
        while not (seen := await self._look()).finished:
            assert asyncio.get_running_loop().time() < late_s, f"it did not finish: {seen}"
            await self.complete(seen.pods)
        self.did("finished")

    async def complete(self, pods: Iterable[Json]) -> None:
        patch = {"metadata": {"annotations": {COMPLETE_AFTER: "0s"}}}
        for pod in pods:
            if COMPLETE_AFTER not in pod["metadata"].get("annotations", {}):
                with suppress(KubeError):  # it goes meanwhile
                    name = pod["metadata"]["name"]
                    await self.client.merge_patch(PODS, name, patch, Any, namespace=self.namespace)

    async def _delete(self, state: str) -> None:
        await self._ask_to_delete()
        await self._is_gone(state)

    async def _ask_to_delete(self) -> None:
        await self.client.delete(self.resource, self.name, namespace=self.namespace)

    async def _is_gone(self, state: str) -> None:
        def nothing(seen: Seen) -> bool:
            return not seen.job and not seen.workloads and not seen.pods

        await self.until(nothing, f"nothing is left of one that was deleted while {state}")
        self.did(f"deleted while {state}")

    async def until(self, holds: Callable[[Seen], bool], what: str) -> Seen:
        late_s = asyncio.get_running_loop().time() + LATE_S
        while not holds(seen := await self._look()):
            assert asyncio.get_running_loop().time() < late_s, f"not within {LATE_S:.0f} s: {what}: {seen}"
        return seen

    async def _look(self) -> Seen:
        await self.world.next()
        return self.world.of(self.namespace, self.resource, self.name)

    async def _told(self) -> str:
        events = await self.client.list_all(EVENTS, dict[str, Any], Selection(self.namespace))
        return "\n".join(f"{one['regarding'].get('name')} {one['reason']} {one.get('note')}" for one in events.items)


STEPS: Final = (
    *(f"deleted while {state}" for state in (HELD, ADMITTED, RUNNING, PREEMPTED)),
    *("held", "runs", "still runs", "restored", "runs again"),
)


def steps(name: str) -> list[str]:
    """Those of a kind that went through all of its lives."""
    end = () if name in NEVER_END else ("finished",)
    return [*STEPS, *end, f"deleted while {FINISHED}"]
