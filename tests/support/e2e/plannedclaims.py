"""Four GPUs of one played node that are given out by claim, two by two a pair; Jobs that ask for one or for a pair."""

import json
from typing import Any, Final

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, JOBS, LOCAL_QUEUES, NAMESPACES, TOPOLOGIES
from inventory.api.names import CLAIM_DEVICES
from tests.support.e2e.queuelab import CONFIG, QUEUE, QueueLab

DRIVER: Final = "planned.example.com"
GPU: Final = "example.com/gpu"
QUEUE_NAME: Final = "claimed"
WAITS: Final = "example.com/wait"
"""A scheduling gate of the job's own: with its places, its pods wait on."""
CONFIGURATION: Final = f"""{CONFIG}\
resources:
  deviceClassMappings: [{{name: {GPU}, deviceClassNames: [{DRIVER}]}}]
"""
RESOURCE: Final = "resource.k8s.io/v1"
Json = dict[str, Any]


class PlannedClaims:
    """``prepared`` first."""

    def __init__(self, scene: QueueLab, node: str) -> None:
        self._scene = scene
        self._node = node

    async def prepared(self) -> None:
        scene = self._scene
        await scene.share(NAMESPACES, "team")
        await scene.share(TOPOLOGIES, "claimed", spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
        await scene.share(FLAVORS, "claimed", spec={"nodeLabels": {"type": "kwok"}, "topologyName": "claimed"})
        quota = [{"name": name, "nominalQuota": "8"} for name in ("cpu", GPU)]
        group = {"coveredResources": ["cpu", GPU], "flavors": [{"name": "claimed", "resources": quota}]}
        await scene.make(CLUSTER_QUEUES, QUEUE_NAME, spec={"namespaceSelector": {}, "resourceGroups": [group]})
        await scene.make(LOCAL_QUEUES, QUEUE_NAME, namespace="team", spec={"clusterQueue": QUEUE_NAME})
        for body in (self._device_class(), self._slice(), _template("one", 1), _template("pair", 2)):
            scene.cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(body))

    def gone(self) -> None:
        kubectl = self._scene.cluster.kubectl
        kubectl("delete", "resourceslice,deviceclass", DRIVER)
        kubectl("delete", "resourceclaimtemplate", "one", "pair", "-n", "team")
        kubectl("delete", "resourceflavors.kueue.x-k8s.io", "claimed", "--wait=false")

    async def job(self, name: str, template: str, *gates: str) -> None:
        """One pod that has a claim of the template."""
        container = {
            "name": "main",
            "image": "none",
            "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpus"}]},
        }
        pod = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": template}],
            "schedulingGates": [{"name": gate} for gate in gates],
        }
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": {QUEUE: QUEUE_NAME}},
            "spec": {"suspend": True, "template": {"spec": pod}},
        }
        await self._scene.client.create(JOBS, body, Json, namespace="team")

    def pod(self, job: str) -> Json:
        """Empty while there is none."""
        chosen = ("-n", "team", "-l", f"batch.kubernetes.io/job-name={job}", "-o", "json")
        found: list[Json] = json.loads(self._scene.cluster.kubectl("get", "pods", *chosen))["items"]
        return found[0] if found else {}

    def claim(self, job: str) -> Json:
        """Of the job's pod; empty while there is none."""
        pod = self.pod(job)
        named = pod.get("status", {}).get("resourceClaimStatuses", ())
        if not named:
            return {}
        name = named[0]["resourceClaimName"]
        found: Json = json.loads(self._scene.cluster.kubectl("get", "resourceclaim", name, "-n", "team", "-o", "json"))
        return found

    def given(self, job: str) -> list[tuple[str, str]]:
        """By which request, or alternative of it, the claim has which device."""
        allocation = self.claim(job).get("status", {}).get("allocation", {})
        return [(each["request"], each["device"]) for each in allocation.get("devices", {}).get("results", ())]

    def planned(self, job: str) -> str:
        """What the job's pods say that they are to get."""
        found = self._scene.watcher.jobs.get(f"team/{job}", {})
        metadata = found.get("spec", {}).get("template", {}).get("metadata", {})
        return str(metadata.get("annotations", {}).get(CLAIM_DEVICES, ""))

    def lets_go(self, job: str) -> None:
        """Its own gate is taken off the pod."""
        name = self.pod(job)["metadata"]["name"]
        patch = {"spec": {"schedulingGates": [{"$patch": "delete", "name": WAITS}]}}
        self._scene.cluster.kubectl("patch", "pod", name, "-n", "team", "-p", json.dumps(patch))

    @staticmethod
    def _device_class() -> Json:
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        metadata = {"name": DRIVER}
        return {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": metadata, "spec": {"selectors": [selector]}}

    def _slice(self) -> Json:
        devices = [
            {
                "name": f"gpu-{at}",
                "attributes": {"uuid": {"string": f"GPU-{at}"}, "pair": {"int": at // 2}},
            }
            for at in range(4)
        ]
        pool = {"name": self._node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": self._node, "pool": pool, "devices": devices}
        return {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": {"name": DRIVER}, "spec": spec}


def _template(name: str, count: int) -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": count}}
    constraint = {"requests": ["gpu"], "matchAttribute": f"{DRIVER}/pair"}
    devices = {"requests": [request], "constraints": [constraint]}
    metadata = {"name": name, "namespace": "team"}
    spec = {"spec": {"devices": devices}}
    return {"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}
