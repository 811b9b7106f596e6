"""Jobs of GPUs, their queues, and how they fare, read from the API server each time they are asked for."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from tests.support.e2e.lab import EXAMPLES, until
from tests.support.e2e.queueapi import Api

QUEUES: Final = EXAMPLES / "queues"
SIMULATE: Final = EXAMPLES / "simulate"
GPU: Final = "nvidia.com/gpu"
PRODUCT: Final = "nvidia.com/gpu.product"
A100: Final = "NVIDIA-A100-SXM4-80GB"
H100: Final = "NVIDIA-H100-SXM5-80GB"
HIGH: Final = "training-high"
KUEUE: Final = "/apis/kueue.x-k8s.io/v1beta2"
KUBEFLOW: Final = ("tfjobs.kubeflow.org", "pytorchjobs.kubeflow.org")
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_CLASS: Final = "kueue.x-k8s.io/priority-class"

Json = dict[str, Any]


class Scene:
    """Jobs go by ``namespace/name``."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kubectl = cluster.kubectl
        self._api = Api(cluster)

    def close(self) -> None:
        self._api.close()

    # What is made.

    def apply(self, file: Path, *, kinds: Sequence[str] = ()) -> None:
        """``file`` as it is, or its documents of these kinds."""
        if not kinds:
            self.kubectl("apply", "-f", str(file))
            return
        for document in yaml.safe_load_all(file.read_text()):
            if document["kind"] in kinds:
                self.create(document)

    def create(self, document: Json) -> None:
        self.kubectl("apply", "-f", "-", input=json.dumps(document))

    def namespace(self, name: str) -> None:
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def local_queue(self, name: str, cluster_queue: str) -> None:
        namespace, _, short = name.partition("/")
        metadata = {"name": short, "namespace": namespace}
        spec = {"clusterQueue": cluster_queue}
        self.create({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": metadata, "spec": spec})

    def job(
        self,
        name: str,
        queue: str,
        *,
        gpus: int,
        pods: int = 1,
        workload_class: str = "",
        pod_class: str = "",
        selector: dict[str, str] | None = None,
    ) -> None:
        """``pods`` pods of ``gpus`` each, that run until ``finish``."""
        namespace, _, short = name.partition("/")
        container = {"name": "main", "image": "none", "resources": {"limits": {GPU: gpus}}}
        pod: Json = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0}
        pod |= {"nodeSelector": selector} if selector else {}
        pod |= {"priorityClassName": pod_class} if pod_class else {}
        labels = {_QUEUE: queue, **({_CLASS: workload_class} if workload_class else {})}
        spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
        metadata = {"name": short, "namespace": namespace, "labels": labels}
        self._created("/apis/batch/v1", "jobs", {"kind": "Job", "metadata": metadata, "spec": spec})

    def _created(self, base: str, plural: str, body: Json) -> None:
        verdict = self._api.ask("POST", f"{base}/namespaces/{body['metadata']['namespace']}/{plural}", body)
        assert verdict.accepted, verdict.message

    def finish(self, name: str) -> None:
        namespace = name.partition("/")[0]
        pods = [one["metadata"]["name"] for one in self.pods(name)]
        self.kubectl("annotate", "pod", *pods, "-n", namespace, "--overwrite", f"{COMPLETE_AFTER}=0s")

    def delete_job(self, name: str) -> None:
        namespace, _, short = name.partition("/")
        self.kubectl("delete", "job", short, "-n", namespace, "--cascade=foreground", "--timeout=120s")

    def set_preemption(self, queue: str, **policy: str) -> None:
        self.kubectl("patch", "clusterqueue", queue, "--type=merge", "-p", json.dumps({"spec": {"preemption": policy}}))

    # What is there.

    def job_of(self, name: str) -> Json:
        namespace, _, short = name.partition("/")
        return self._api.ask("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/{short}").body

    def workload(self, name: str) -> Json:
        """The job's; empty while there is none."""
        namespace, _, short = name.partition("/")
        found = self._api.ask("GET", f"{KUEUE}/namespaces/{namespace}/workloads").body["items"]
        return next((one for one in found if _owner(one) == short), {})

    def pods(self, name: str) -> list[Json]:
        """Of a job of whatever kind."""
        namespace, _, short = name.partition("/")
        found = self._api.ask("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
        return [one for one in found if _owner(one) == short]

    def products(self, name: str) -> set[str]:
        """Of the nodes that its pods were bound to by the scheduler."""
        nodes = {one["spec"]["nodeName"] for one in self.pods(name)}
        return {self._api.ask("GET", f"/api/v1/nodes/{node}").body["metadata"]["labels"][PRODUCT] for node in nodes}

    def running(self, name: str) -> int:
        return sum(one["status"].get("phase") == "Running" for one in self.pods(name))

    def runs(self, name: str) -> bool:
        """Whether all its pods are ready, by what the Job controller says."""
        job = self.job_of(name)
        spec, status = job.get("spec", {}), job.get("status", {})
        return not spec.get("suspend", True) and status.get("ready", 0) == spec["parallelism"]

    def suspended(self, name: str) -> bool:
        return bool(self.job_of(name)["spec"]["suspend"]) and not self.pods(name)

    def condition(self, name: str, type_: str) -> str:
        """``True/Reason`` of the job's workload; empty where it has none."""
        found = self._condition(name, type_)
        return f"{found['status']}/{found['reason']}" if found else ""

    def message(self, name: str, type_: str) -> str:
        return str(self._condition(name, type_).get("message", ""))

    def _condition(self, name: str, type_: str) -> Json:
        conditions = self.workload(name).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == type_), {})

    def borrowed(self, queue: str, flavor: str) -> int:
        """GPUs of a flavor that a ClusterQueue's status says are borrowed."""
        status = self._api.ask("GET", f"{KUEUE}/clusterqueues/{queue}").body.get("status", {})
        found: list[Json] = next(
            (one["resources"] for one in status.get("flavorsUsage", ()) if one["name"] == flavor), []
        )
        return next((int(one["borrowed"]) for one in found if one["name"] == GPU), 0)

    def consumed(self, name: str) -> str:
        """GPUs of past use that a LocalQueue's status holds, a quantity; empty where it holds none."""
        namespace, _, short = name.partition("/")
        status = self._api.ask("GET", f"{KUEUE}/namespaces/{namespace}/localqueues/{short}").body.get("status", {})
        past = status.get("fairSharing", {}).get("admissionFairSharingStatus", {}).get("consumedResources", {})
        return str(past.get(GPU, ""))

    def until_served(self, file: Path) -> None:
        """Return once the API server sends the jobs of ``file`` to the default queue: they name none."""

        def sent() -> bool:
            made = json.loads(self.kubectl("apply", "--dry-run=server", "-o", "json", "-f", str(file)))
            jobs = [one for one in made.get("items", [made]) if one["kind"].endswith("Job")]
            return all(one["metadata"].get("labels", {}).get(_QUEUE) == "default" for one in jobs)

        until(sent, f"the jobs of {file.name} go to the default queue")

    # What is left.

    def clean(self) -> None:
        """No job, queue or flavor: the next test finds all of the cluster free."""
        kinds = ",".join(("jobs.batch", *KUBEFLOW))
        self.kubectl("delete", kinds, "--all", "-A", "--cascade=foreground", "--timeout=120s")
        until(lambda: not self._api.ask("GET", f"{KUEUE}/workloads").body["items"], "no workload is left")
        for kinds in ("localqueues", "clusterqueues", "resourceflavors"):
            # By group: other kinds of these names may be there.
            self.kubectl("delete", f"{kinds}.kueue.x-k8s.io", "--all", "-A", "--timeout=120s")


def cluster_queue(name: str, flavor: str, gpus: int, **spec: Any) -> Json:
    """A ClusterQueue of GPUs of one flavor."""
    quota = {"name": GPU, "nominalQuota": gpus}
    group = {"coveredResources": [GPU], "flavors": [{"name": flavor, "resources": [quota]}]}
    body = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": body}


def _owner(workload: Json) -> str:
    return next((one["name"] for one in workload["metadata"].get("ownerReferences", ())), "")
