"""Jobs whose pods hold devices of a real kubelet, behind one queue; every pod there ever was is remembered."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, JOBS, LOCAL_QUEUES, NAMESPACES, PODS, TOPOLOGIES
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.render import TEST_IMAGE
from kube.clock import Backoff, SystemClock
from kube.reading.reflector import Added, Change, Changed, Reflector, Removed
from tests.support.e2e.lab import GPU, Agent, Lab
from tests.support.e2e.queuelab import ALONE, QUEUE, Controller, Json, QueueLab, _json, lab

ON_FAILURE = "tessera.dev/on-gpu-failure"
TEAM = "team"
SAY = 'echo -n "$NVIDIA_VISIBLE_DEVICES" > /dev/termination-log; '
BRIEF, LONG = SAY + "sleep 0.5", "trap 'exit 143' TERM; sleep 86400 & wait"


@dataclass
class DeviceScene:
    """Jobs of one queue, and every pod there ever was, as it was last seen."""

    queues: QueueLab
    agent: Agent
    bench: Lab
    controllers: list[Controller] = field(default_factory=list)
    pods: dict[str, Json] = field(default_factory=dict)
    """Every pod as it was last seen, by uid."""

    def hear(self, change: Change[Json]) -> None:
        match change:
            case Added(new=entry) | Changed(new=entry) | Removed(old=entry):
                self.pods[entry.uid] = entry.object
                self._note(entry.uid, gone=isinstance(change, Removed))

    def _note(self, uid: str, *, gone: bool) -> None:
        if gone:
            self.pods[uid]["metadata"].setdefault("deletionTimestamp", "gone")

    async def job(
        self, name: str, pods: int, gpus: int, *, script: str = BRIEF, resource: str = GPU, **notes: str
    ) -> None:
        body = self.body(name, pods, gpus, script=script, resource=resource, **notes)
        await self.queues.client.create(JOBS, body, dict[str, Any], namespace=TEAM)

    def body(self, name: str, pods: int, gpus: int, *, script: str, resource: str = GPU, **notes: str) -> Json:
        container = {
            "name": "main",
            "image": TEST_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", script],
            "resources": {"limits": {resource: str(gpus)}},
        }
        template = {
            "metadata": {"annotations": {"kueue.x-k8s.io/podset-unconstrained-topology": "true", **notes}},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
            },
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": {QUEUE: "gpus"}},
            "spec": {"suspend": True, "parallelism": pods, "completions": pods, "template": template},
        }

    def of(self, job: str) -> list[Json]:
        """Its pods that run or may run, and those that have ended well."""
        return [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == job
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def running(self, job: str) -> list[Json]:
        return [pod for pod in self.of(job) if pod["status"].get("phase") == "Running"]

    def has_ended(self, job: str, pods: int) -> bool:
        """Whether so many pods of it are known, each with the end of its containers."""
        ends = [
            "terminated" in one["state"] for pod in self.of(job) for one in pod["status"].get("containerStatuses", [])
        ]
        return len(self.of(job)) == pods <= len(ends) and all(ends)

    def held(self, pod: Json) -> set[str]:
        """What the kubelet says, by way of the agent."""
        name = pod["metadata"]["name"]
        return {one.device for one in self.agent.report().holders if one.holder.pod == name}

    def notes(self, pod: Json) -> list[str]:
        """Events of its GPU's failure."""
        found = self.bench.get("/apis/events.k8s.io/v1/events")["items"]
        mine = [one for one in found if one["regarding"].get("uid") == pod["metadata"]["uid"]]
        return [one["note"] for one in mine if one["reason"] == "GpuFailed"]

    def index(self, device: str) -> int:
        return next(gpu.index for gpu in self.agent.report().node.gpus if gpu.uuid == device)

    async def delete(self, *jobs: str, wait: bool = True) -> None:
        """``wait``: until their pods are gone too. Those that have ended hold nothing that anybody needs."""
        how = ("--cascade=foreground", "--timeout=240s") if wait else ("--wait=false",)
        chosen = ("-n", TEAM, *jobs, *how)
        await asyncio.to_thread(self.queues.cluster.kubectl, "delete", "job", *chosen)


@asynccontextmanager
async def device_scene(
    cluster: Cluster, agent: Agent, folder: Path, amounts: Mapping[str, int]
) -> AsyncIterator[DeviceScene]:
    """One queue ``gpus`` of the namespace TEAM with ``amounts`` of quota, and one controller; until the block ends."""
    async with lab(cluster, {}) as queues:
        await queues.share(NAMESPACES, TEAM)
        await queues.share(TOPOLOGIES, "hosts", spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
        chosen = {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": "hosts"}
        await queues.share(FLAVORS, "gpus", spec=chosen)
        quota = {"name": "gpus", "resources": [{"name": one, "nominalQuota": str(amounts[one])} for one in amounts]}
        groups = [{"coveredResources": [*amounts], "flavors": [quota]}]
        await queues.share(CLUSTER_QUEUES, "gpus", spec={"namespaceSelector": {}, "resourceGroups": groups})
        await queues.share(LOCAL_QUEUES, "gpus", namespace=TEAM, spec={"clusterQueue": "gpus"})
        found = DeviceScene(queues, agent, Lab(cluster, cluster.node("node-1")))
        backoff = Backoff(random=lambda: 0.5, initial_s=0.2, maximum_s=1.0)
        pods = Reflector(queues.client, PODS, _json, found.hear, clock=SystemClock(), backoff=backoff)
        task = asyncio.create_task(pods.run())
        await pods.wait_synced()
        try:
            with queues.controllers(folder, "one", flags=ALONE) as found.controllers:
                yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
