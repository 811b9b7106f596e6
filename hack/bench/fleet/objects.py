"""The fleet's objects as the API server keeps them: JSON with uids, as large as real ones are. Pure."""

import uuid
from collections.abc import Iterator
from typing import Any, Final

from controller.objects.meta import to_json
from hack.bench.decisions.topology import gpu_node
from hack.bench.fleet.shape import COHORT_QUEUES, GPUS, LOCAL_QUEUES_EACH, Fleet, Running, Waiting, block, rack
from inventory.api.names import GROUP, VERSION

API: Final = "kueue.x-k8s.io/v1beta2"
GPU: Final = "nvidia.com/gpu"
HOST: Final = "kubernetes.io/hostname"
LEVELS: Final = {"block": "bench.example/block", "rack": "bench.example/rack", "host": HOST}
POOL: Final = ("bench.example/pool", "gpu")
FLAVOR, TOPOLOGY = "gpu", "fleet"
PROJECTS: Final = 20
"""Of each team: templates of one project are alike."""
MADE: Final = "2026-01-01T00:00:00Z"
_SPACE: Final = uuid.UUID(int=0)
Json = dict[str, Any]


def node_name(number: int) -> str:
    return f"node-{number:05}"


def uid(kind: str, number: int) -> str:
    return str(uuid.uuid5(_SPACE, f"{kind}-{number}"))


def team(queue: int) -> str:
    """The namespace of a ClusterQueue's LocalQueues."""
    return f"team-{queue:04}"


def local_queue(number: int) -> str:
    return f"lq-{number % LOCAL_QUEUES_EACH}"


def condition(type_: str, message: str, at: str = MADE) -> Json:
    return {"type": type_, "status": "True", "reason": type_, "message": message, "lastTransitionTime": at}


def _meta(kind: str, number: int, name: str, namespace: str = "", **more: Any) -> Json:
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, **place, "uid": uid(kind, number), "generation": 1, "creationTimestamp": MADE, **more}


def _managed(manager: str, version: str, fields: Json) -> Json:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": version,
        "time": MADE,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def setting(fleet: Fleet) -> Iterator[Json]:
    """Topology, flavor, queues; namespaces are not among them."""
    levels = [{"nodeLabel": label} for label in LEVELS.values()]
    yield _custom("Topology", _meta("Topology", 0, TOPOLOGY), {"levels": levels})
    spec = {"nodeLabels": dict([POOL]), "topologyName": TOPOLOGY}
    yield _custom("ResourceFlavor", _meta("ResourceFlavor", 0, FLAVOR), spec)
    for queue in range(fleet.queues):
        yield cluster_queue(fleet, queue)
        for number in range(LOCAL_QUEUES_EACH):
            meta = _meta("LocalQueue", queue * LOCAL_QUEUES_EACH + number, local_queue(number), team(queue))
            yield _custom("LocalQueue", meta, {"clusterQueue": f"cq-{queue:04}", "stopPolicy": "None"})


def _custom(kind: str, metadata: Json, spec: Json) -> Json:
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def cluster_queue(fleet: Fleet, queue: int) -> Json:
    quota = fleet.quota(queue)
    resources = [
        {"name": GPU, "nominalQuota": str(quota)},
        {"name": "cpu", "nominalQuota": str(16 * quota)},
        {"name": "memory", "nominalQuota": f"{128 * quota}Gi"},
    ]
    covered = [each["name"] for each in resources]
    spec = {
        "cohortName": f"cohort-{queue // COHORT_QUEUES}",
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        # All have one priority: victims are looked for and never found, for nobody here would stop their jobs.
        "preemption": {"reclaimWithinCohort": "LowerPriority", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": covered, "flavors": [{"name": FLAVOR, "resources": resources}]}],
    }
    return _custom("ClusterQueue", _meta("ClusterQueue", queue, f"cq-{queue:04}"), spec)


def node(number: int) -> Json:
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "gpu.8x",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": "8",
        HOST: node_name(number),
        LEVELS["rack"]: f"rack-{rack(number):04}",
        LEVELS["block"]: f"block-{block(number):03}",
        POOL[0]: POOL[1],
    }
    room = {
        "cpu": "192",
        "memory": "2113406488Ki",
        "ephemeral-storage": "7200000000Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": "110",
        GPU: str(GPUS),
    }
    pressure = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [
        {**condition(type_, f"kubelet has no {type_}"), "status": "False", "lastHeartbeatTime": MADE}
        for type_ in pressure
    ]
    conditions.append({**condition("Ready", "kubelet is posting ready status"), "lastHeartbeatTime": MADE})
    images = [
        {"names": [f"registry.example/team/image-{at}@sha256:{at:064}", f"registry.example/team/image-{at}:1.0"]}
        | {"sizeBytes": 1_000_000_000 + at}
        for at in range(10)
    ]
    info = {"kubeletVersion": "v1.36.0", "osImage": "Debian GNU/Linux 12", "architecture": "amd64"}
    status = {
        "capacity": room,
        "allocatable": room,
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"}],
        "images": images,
        "nodeInfo": info,
    }
    fields: Json = {"f:status": {"f:conditions": {f'k:{{"type":"{type_}"}}': {} for type_ in (*pressure, "Ready")}}}
    meta = _meta("Node", number, node_name(number), labels=labels, managedFields=[_managed("kubelet", "v1", fields)])
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status}


def gpu_node_of(number: int) -> Json:
    """As the agent tells of eight GPUs behind switches."""
    given = to_json(gpu_node(node_name(number), lambda _a, _b: 12))
    meta = _meta("GpuNode", number, node_name(number))
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GpuNode", "metadata": meta, "status": given["status"]}


def _template(number: int, queue: int, gpus: int) -> Json:
    """As it is in Workloads: without what a Job adds of its own, so that those of one project are alike."""
    container = {
        "name": "main",
        "image": f"registry.example/{team(queue)}/trainer:1.{number // LOCAL_QUEUES_EACH % PROJECTS}",
        "command": ["python", "-m", "train"],
        "env": [{"name": "EPOCHS", "value": "10"}, {"name": "SEED", "value": "7"}],
        "resources": {
            "requests": {"cpu": str(8 * gpus), "memory": f"{64 * gpus}Gi", GPU: str(gpus)},
            "limits": {GPU: str(gpus)},
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    labels = {"app": "trainer", "team": team(queue)}
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    }
    return {"metadata": {"labels": labels}, "spec": spec}


def _workload(name: str, number: int, queue: int, pod_set: Json) -> Json:
    """Owned by an object of a kind that nobody here follows: no Job has to be there."""
    lq = local_queue(number // LOCAL_QUEUES_EACH)
    owner = {
        "apiVersion": "bench.example/v1",
        "kind": "Training",
        "name": name,
        "uid": uid(f"Training-{name[0]}", number),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    fields: Json = {
        "f:metadata": {"f:labels": {}, "f:ownerReferences": {}},
        "f:spec": {"f:podSets": {}, "f:queueName": {}},
    }
    meta = _meta(
        name.rpartition("-")[0],
        number,
        name,
        team(queue),
        labels={"kueue.x-k8s.io/job-uid": owner["uid"]},
        ownerReferences=[owner],
        finalizers=["kueue.x-k8s.io/resource-in-use"],
        managedFields=[_managed("tessera", API, fields)],
    )
    spec = {"queueName": lq, "priority": 0, "active": True, "podSets": [pod_set]}
    return {"apiVersion": API, "kind": "Workload", "metadata": meta, "spec": spec}


def pending(waiting: Waiting) -> Json:
    kind, name = waiting.kind, f"pending-{waiting.number:06}"
    pod_set: Json = {
        "name": "main",
        "count": kind.pods,
        "template": _template(waiting.number, waiting.queue, kind.gpus),
    }
    if kind.level:
        pod_set["topologyRequest"] = {"required": LEVELS[kind.level]}
    return _workload(name, waiting.number, waiting.queue, pod_set)


def running(given: Running) -> Json:
    name = f"running-{given.number:06}"
    pod_set: Json = {"name": "main", "count": given.pods, "template": _template(given.number, given.queue, given.gpus)}
    if len(given.places) > 1:
        pod_set["topologyRequest"] = {"required": LEVELS["rack"]}
    made = _workload(name, given.number, given.queue, pod_set)
    hosts = [node_name(number) for number, _ in given.places]
    counts = [pods for _, pods in given.places]
    values: Json = {"universal": hosts[0]} if len(hosts) == 1 else {"individual": {"roots": hosts}}
    assigned = {
        "name": "main",
        "count": given.pods,
        "flavors": dict.fromkeys((GPU, "cpu", "memory"), FLAVOR),
        "resourceUsage": {
            GPU: str(given.gpus * given.pods),
            "cpu": str(8 * given.gpus * given.pods),
            "memory": f"{64 * given.gpus * given.pods}Gi",
        },
        "topologyAssignment": {
            "levels": [HOST],
            "slices": [
                {
                    "domainCount": len(hosts),
                    "valuesPerLevel": [values],
                    "podCounts": {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts},
                }
            ],
        },
    }
    conditions = [
        {**condition("QuotaReserved", f"Quota reserved in ClusterQueue cq-{given.queue:04}"), "observedGeneration": 1},
        {**condition("Admitted", "The workload is admitted"), "observedGeneration": 1},
        {**condition("PodsReady", "All pods reached readiness"), "observedGeneration": 1},
    ]
    admission = {"clusterQueue": f"cq-{given.queue:04}", "podSetAssignments": [assigned]}
    return {**made, "status": {"admission": admission, "conditions": conditions}}


def pods(given: Running) -> Iterator[Json]:
    """Of a running workload, as a job's pods that were sent to their nodes."""
    name, number = f"running-{given.number:06}", 16 * given.number
    for place, count in given.places:
        for _ in range(count):
            yield _pod(given, name, number, node_name(place))
            number += 1


def _pod(given: Running, workload: str, number: int, host: str) -> Json:
    template = _template(given.number, given.queue, given.gpus)
    name = f"{workload}-{number % 16}"
    meta = _meta(
        "Pod",
        number,
        name,
        team(given.queue),
        labels={
            **template["metadata"]["labels"],
            "batch.kubernetes.io/job-name": workload,
            "kueue.x-k8s.io/podset": "main",
        },
        annotations={
            "kueue.x-k8s.io/workload": workload,
            "kueue.x-k8s.io/podset-required-topology": LEVELS["rack"],
        },
        managedFields=[_managed("kubelet", "v1", {"f:status": {"f:conditions": {}, "f:phase": {}, "f:podIP": {}}})],
    )
    spec = {
        **template["spec"],
        "nodeName": host,
        "nodeSelector": {HOST: host},
        "serviceAccountName": "default",
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
    }
    status = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "startTime": MADE,
        "conditions": [condition(type_, "") for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready")],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def everything(fleet: Fleet) -> Iterator[Json]:
    """All objects but namespaces, what others need first."""
    yield from setting(fleet)
    for number in range(fleet.nodes):
        yield node(number)
        yield gpu_node_of(number)
    for run in fleet.runs():
        yield running(run)
        yield from pods(run)
    for waiting in fleet.waits():
        yield pending(waiting)
