"""A cluster that runs NVIDIA's device plugin and Kueue: their objects as they write them, and stand-ins for what runs.

The plugin is served by a program of ours on the real kubelet; Kueue's decisions are written by a test, its CRDs are its
own. Pods, the kubelet, the Job controller and Tessera, once it comes, are real.
"""

import json
from pathlib import Path
from typing import Any, Final

from hack.cluster.controlplane.render import TEST_IMAGE
from hack.image import agentimage
from simulator.fleet.fleetfile import load_fleet
from tests.conformance.crds import crdfiles
from tests.support.e2e import nvidiaplugin
from tests.support.e2e.lab import EXAMPLES, GPU, Lab, until
from tests.support.e2e.lifelab import PRESENT, QUEUES

FLEET: Final = EXAMPLES / "fleets" / "dgx1.yaml"
OPERATOR: Final = "gpu-operator"
KUEUE: Final = "kueue-system"
_GROUP: Final = "kueue.x-k8s.io"
_WORKLOADS: Final = f"/apis/{_GROUP}/v1beta2/namespaces/default/workloads"
_JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"
_SERVICE: Final = {"namespace": KUEUE, "name": "kueue-webhook-service"}

Json = dict[str, Any]


def nvidia(lab: Lab) -> None:
    """The GPU operator's DaemonSets for the node's eight GPUs, which its labels let in, and labels of the node."""
    devices = [gpu.uuid for gpu in load_fleet(FLEET).node(lab.host.name).gpus]
    program = Path(nvidiaplugin.__file__).read_text()
    plugin = {
        "name": "plugin",
        "image": f"{agentimage.REPOSITORY}:{PRESENT}",
        "imagePullPolicy": "Never",
        "command": [str(agentimage.PYTHON), "-c", program, *devices],
        "volumeMounts": [{"name": "plugins", "mountPath": str(nvidiaplugin.FOLDER)}],
    }
    sleeping = {"name": "main", "image": TEST_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "86400"]}
    labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "8", "nvidia.com/mig.strategy": "none"}
    containers: dict[str, Json] = {
        "device-plugin": plugin,
        "gpu-feature-discovery": sleeping,
        "dcgm-exporter": sleeping,
    }
    lab.cluster.kubectl("create", "namespace", OPERATOR)
    for name, container in containers.items():
        full = f"nvidia-{name}-daemonset" if name == "device-plugin" else f"nvidia-{name}"
        lab.cluster.kubectl("create", "-f", "-", input=json.dumps(_daemon_set(full, name, container)))
        labels[f"nvidia.com/gpu.deploy.{name}"] = "true"
    lab.cluster.kubectl("label", "node", lab.host.name, *(f"{key}={value}" for key, value in labels.items()))
    lab.await_amounts({GPU: len(devices)})


def _daemon_set(name: str, part: str, container: Json) -> Json:
    plugins = {"name": "plugins", "hostPath": {"path": str(nvidiaplugin.FOLDER)}}
    pod = {
        "nodeSelector": {f"nvidia.com/gpu.deploy.{part}": "true"},
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [plugins],
    }
    labels = {"app": name}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    metadata = {"name": name, "namespace": OPERATOR}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def kueue(lab: Lab) -> None:
    """Its CRDs, which its own server converts, its Deployment, its release's record, queues, and an APIService.

    The Service has no endpoints, as that of a Kueue that was scaled down.
    """
    kubectl = lab.cluster.kubectl
    kubectl("apply", "--server-side", "-f", str(crdfiles.peers()))
    converts = {"clientConfig": {"service": {**_SERVICE, "path": "/convert"}}, "conversionReviewVersions": ["v1"]}
    patch = json.dumps({"spec": {"conversion": {"strategy": "Webhook", "webhook": converts}}})
    for plural in ("clusterqueues", "cohorts", "localqueues", "workloads"):
        kubectl("patch", "crd", f"{plural}.{_GROUP}", "--type=merge", "-p", patch)
    kubectl("create", "namespace", KUEUE)
    for body in (_deployment(), _service(), _record(), _api_service(), *QUEUES):
        kubectl("create", "-f", "-", input=json.dumps(body))
    kubectl("-n", KUEUE, "rollout", "status", "deployment", "--timeout=300s")


def _named(name: str, **more: Any) -> Json:
    return {"name": name, "labels": {"app.kubernetes.io/name": "kueue"}, **more}


def _deployment() -> Json:
    container = {"name": "manager", "image": TEST_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "86400"]}
    labels = {"control-plane": "controller-manager"}
    pod = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    metadata = _named("kueue-controller-manager", namespace=KUEUE)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _service() -> Json:
    spec = {"selector": {"none": "such"}, "ports": [{"port": 443, "targetPort": 9443}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _named(_SERVICE["name"], namespace=KUEUE), "spec": spec}


def _record() -> Json:
    """What Helm keeps of a release."""
    labels = {"owner": "helm", "name": "kueue", "status": "deployed", "version": "1"}
    metadata = {"name": "sh.helm.release.v1.kueue.v1", "namespace": KUEUE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "metadata": metadata}


def _api_service() -> Json:
    spec = {
        "group": "visibility.kueue.x-k8s.io",
        "version": "v1beta2",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": KUEUE, "name": "kueue-visibility-server"},
    }
    name = f"{spec['version']}.{spec['group']}"
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": _named(name), "spec": spec}


def webhooks(lab: Lab) -> None:
    """Kueue's, which refuse what they cannot be asked about. Nothing of the scene is made after them by hand."""
    rules = [
        {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]},
        {"apiGroups": [_GROUP], "apiVersions": ["v1beta2"], "resources": ["workloads", "workloads/status"]},
    ]
    client = {"service": {**_SERVICE, "path": "/any"}}
    for kind, name in (("Mutating", "kueue-mutating"), ("Validating", "kueue-validating")):
        hook = {
            "name": "any.kb.io",
            "clientConfig": client,
            "rules": [{**rule, "operations": ["CREATE", "UPDATE"]} for rule in rules],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        metadata = _named(f"{name}-webhook-configuration")
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration"}
        lab.cluster.kubectl("create", "-f", "-", input=json.dumps({**head, "metadata": metadata, "webhooks": [hook]}))


def queued(lab: Lab, name: str, *, admitted: bool) -> None:
    """A Job of one GPU with its Workload as Kueue writes the two, running or waiting."""
    container = lab.pod_body("any", {GPU: 1})["spec"]["containers"][0]
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    metadata = {"name": name, "namespace": "default", "labels": {f"{_GROUP}/queue-name": "team"}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    spec = {"suspend": True, "template": {"spec": pod}}
    made = lab.cluster.kubectl("create", "-o", "json", "-f", "-", input=json.dumps({**body, "spec": spec}))
    job: Json = json.loads(made)
    workload = _workload(job)
    lab.cluster.kubectl("create", "-f", "-", input=json.dumps(workload))
    _patch(lab, f"workload.{_GROUP}", workload["metadata"]["name"], {"status": _status(admitted=admitted)}, "status")
    if admitted:
        labels = {f"{_GROUP}/podset": "main"}
        _patch(lab, "job", name, {"spec": {"suspend": False, "template": {"metadata": {"labels": labels}}}})
        until(lambda: lab.get(f"{_JOBS}/{name}")["status"].get("ready") == 1, f"the pod of {name} runs")


def _patch(lab: Lab, kind: str, name: str, body: Json, subresource: str = "") -> None:
    more = (f"--subresource={subresource}",) if subresource else ()
    lab.cluster.kubectl("patch", kind, name, "-n", "default", "--type=merge", "-p", json.dumps(body), *more)


def _workload(job: Json) -> Json:
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    metadata = {
        "name": f"job-{name}-{uid[:5]}",
        "namespace": "default",
        "labels": {f"{_GROUP}/job-uid": uid},
        "finalizers": [f"{_GROUP}/resource-in-use"],
        "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
    }
    template = {"metadata": {}, "spec": job["spec"]["template"]["spec"]}
    spec = {
        "active": True,
        "priority": 0,
        "queueName": "team",
        "podSets": [{"name": "main", "count": 1, "template": template}],
    }
    return {"apiVersion": f"{_GROUP}/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec}


def _status(*, admitted: bool) -> Json:
    def condition(type_: str, status: str, reason: str, message: str) -> Json:
        told = {"type": type_, "status": status, "reason": reason, "message": message}
        return {**told, "lastTransitionTime": "2026-11-01T00:00:00Z", "observedGeneration": 1}

    if not admitted:
        why = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor any"
        return {"conditions": [condition("QuotaReserved", "False", "Pending", why)]}
    given = {"name": "main", "count": 1, "flavors": {GPU: "any"}, "resourceUsage": {GPU: "1"}}
    return {
        "admission": {"clusterQueue": "team", "podSetAssignments": [given]},
        "conditions": [
            condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue team"),
            condition("Admitted", "True", "Admitted", "The workload is admitted"),
        ],
    }


def workloads(lab: Lab) -> dict[str, Json]:
    """By their jobs."""
    return {one["metadata"]["ownerReferences"][0]["name"]: one for one in lab.get(_WORKLOADS)["items"]}
