"""The controllers of job kinds, as far as queues see them: they make pods and child objects, and write statuses.

Each reads its own objects by the fields of its own API and by nothing of ours. Child Jobs are run by the real Job
controller; pods of other kinds are made here and are played by kwok. Facts about each are in its docstring, by the
sources of the real one.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from kube.errors import KubeError
from kube.resources import PODS, Resource
from tests.support.e2e.kindworld import World

Json = dict[str, Any]

CHILD_JOBS: Final = Resource("batch", "v1", "jobs", "Job", namespaced=True)
SERVICES: Final = Resource("", "v1", "services", "Service", namespaced=True)
JOB_SETS: Final = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True)
RAY_CLUSTERS: Final = Resource("ray.io", "v1", "rayclusters", "RayCluster", namespaced=True)
RUNTIMES: Final = Resource("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime")
QUEUE: Final = "kueue.x-k8s.io/queue-name"
_NOW: Final = "2026-01-01T00:00:00Z"
_PLACEMENT: Final = {"metadata": ("labels", "annotations"), "spec": ("nodeSelector", "tolerations", "schedulingGates")}


class Operator(ABC):
    """Of one kind. ``children``: the kinds of objects that it makes."""

    resource: Resource
    children: tuple[Resource, ...] = (PODS,)

    @abstractmethod
    def wanted(self, job: Json, have: dict[str, list[Json]]) -> Iterable[Json]:
        """The objects that are to be there now. ``have``: children by plural."""

    @abstractmethod
    def status(self, job: Json, have: dict[str, list[Json]]) -> Json:
        """All of ``status``."""

    def ended(self, _job: Json) -> bool:
        return False


def pod(name: str, template: Json, **labels: str) -> Json:
    body = copy.deepcopy(template)
    metadata = body.setdefault("metadata", {})
    metadata["name"] = name
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    body["spec"].setdefault("restartPolicy", "Never")
    body["spec"]["terminationGracePeriodSeconds"] = 0
    return {"apiVersion": "v1", "kind": "Pod", **body}


def child_job(name: str, spec: Json, *, suspend: bool, **labels: str) -> Json:
    """Labels of the parent that are of queues are copied, as people's own templates do: they must not count."""
    made = copy.deepcopy(spec)
    template = made["template"]
    template["metadata"] = {**template.get("metadata", {})}
    template["metadata"]["labels"] = {**template["metadata"].get("labels", {}), **labels}
    template["spec"].setdefault("restartPolicy", "Never")
    template["spec"]["terminationGracePeriodSeconds"] = 0
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {**labels, QUEUE: "research"}},
        "spec": {**made, "suspend": suspend},
    }


def condition(type_: str, on: bool) -> Json:
    state = "True" if on else "False"
    return {"type": type_, "status": state, "reason": "Played", "message": "", "lastTransitionTime": _NOW}


def true(job: Json, type_: str) -> bool:
    return any(one["type"] == type_ and one["status"] == "True" for one in job.get("status", {}).get("conditions", []))


def phases(pods: list[Json], *phase: str) -> int:
    return sum(one.get("status", {}).get("phase", "Pending") in phase for one in pods)


class Kubeflow(Operator):
    """training-operator 1.9: a suspended job has no pods; they are named NAME-TYPE-INDEX in lower case."""

    def __init__(self, plural: str, kind: str, replicas: str) -> None:
        self.resource = Resource("kubeflow.org", "v1", plural, kind, namespaced=True)
        self._replicas = replicas

    def types(self, job: Json) -> Iterator[tuple[str, Json, int]]:
        for type_, spec in job["spec"][self._replicas].items():
            yield type_, spec["template"], spec.get("replicas", 1)

    def suspended(self, job: Json) -> bool:
        return bool(job["spec"].get("runPolicy", {}).get("suspend", False))

    def wanted(self, job: Json, have: dict[str, list[Json]]) -> Iterable[Json]:
        if self.suspended(job):
            return
        for type_, template, count in self.types(job):
            yield from self.pods(job, type_, template, count)

    def pods(self, job: Json, type_: str, template: Json, count: int) -> Iterator[Json]:
        name = job["metadata"]["name"]
        for index in range(count):
            labels = {
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/replica-type": type_.lower(),
                "training.kubeflow.org/replica-index": str(index),
            }
            yield pod(f"{name}-{type_.lower()}-{index}", template, **labels)

    def status(self, job: Json, have: dict[str, list[Json]]) -> Json:
        pods, total = have["pods"], sum(count for _, _, count in self.types(job))
        statuses = {}
        for type_, _, _ in self.types(job):
            own = [p for p in pods if p["metadata"]["labels"].get(_TYPE) == type_.lower()]
            statuses[type_] = {"active": phases(own, "Pending", "Running"), "succeeded": phases(own, "Succeeded")}
        conditions = [
            condition("Created", True),
            condition("Suspended", self.suspended(job)),
            condition("Running", phases(pods, "Running") == total),
            condition("Succeeded", phases(pods, "Succeeded") == total),
        ]
        return {"conditions": conditions, "replicaStatuses": statuses}

    def ended(self, job: Json) -> bool:
        return true(job, "Succeeded")


_TYPE: Final = "training.kubeflow.org/replica-type"


class Mpi(Kubeflow):
    """mpi-operator v2beta1: workers are pods, the launcher is a Job that is suspended and started with the MPIJob; its
    template follows when it is started again. It ends with its launcher, and workers are then deleted.
    """

    children = (PODS, CHILD_JOBS)

    def __init__(self) -> None:
        self.resource = Resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob", namespaced=True)
        self._replicas = "mpiReplicaSpecs"

    def wanted(self, job: Json, have: dict[str, list[Json]]) -> Iterable[Json]:
        for type_, template, count in self.types(job):
            if type_ == "Launcher":
                spec = {"template": template, "backoffLimit": 6}
                name = f"{job['metadata']['name']}-launcher"
                yield child_job(name, spec, suspend=self.suspended(job), **{_TYPE: "launcher"})
            elif not self.suspended(job) and not self._launched(have):
                yield from self.pods(job, type_, template, count)

    def _launched(self, have: dict[str, list[Json]]) -> bool:
        return any(true(one, "Complete") for one in have["jobs"])

    def status(self, job: Json, have: dict[str, list[Json]]) -> Json:
        pods, done = have["pods"], self._launched(have)
        launcher = sum(one.get("status", {}).get("active", 0) for one in have["jobs"])
        statuses = {
            "Launcher": {"active": launcher, "succeeded": int(done)},
            "Worker": {"active": phases(pods, "Pending", "Running")},
        }
        conditions = [
            condition("Created", True),
            condition("Suspended", self.suspended(job)),
            condition("Running", launcher > 0 and phases(pods, "Running") > 0),
            condition("Succeeded", done),
        ]
        return {"conditions": conditions, "replicaStatuses": statuses}


class JobSets(Operator):
    """jobset 0.10: child Jobs NAME-REPLICATED-INDEX, suspended with it; their templates follow when it is resumed."""

    resource = JOB_SETS
    children = (CHILD_JOBS,)

    def wanted(self, job: Json, have: dict[str, list[Json]]) -> Iterable[Json]:
        name, suspend = job["metadata"]["name"], bool(job["spec"].get("suspend", False))
        for replicated in job["spec"]["replicatedJobs"]:
            for index in range(replicated.get("replicas", 1)):
                labels = {
                    "jobset.sigs.k8s.io/jobset-name": name,
                    "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"],
                    "jobset.sigs.k8s.io/job-index": str(index),
                }
                child = f"{name}-{replicated['name']}-{index}"
                # Its webhook's default.
                spec = {"completionMode": "Indexed", **replicated["template"]["spec"]}
                yield child_job(child, spec, suspend=suspend, **labels)

    def status(self, job: Json, have: dict[str, list[Json]]) -> Json:
        by_name = {one["metadata"]["name"]: one for one in have["jobs"]}
        listed = []
        for replicated in job["spec"]["replicatedJobs"]:
            names = [
                f"{job['metadata']['name']}-{replicated['name']}-{i}" for i in range(replicated.get("replicas", 1))
            ]
            own = [by_name[name] for name in names if name in by_name]
            needed = replicated["template"]["spec"].get("parallelism", 1)
            listed.append(
                {
                    "name": replicated["name"],
                    "ready": sum(
                        not true(o, "Complete")
                        and o.get("status", {}).get("ready", 0) + o.get("status", {}).get("succeeded", 0) >= needed
                        for o in own
                    ),
                    "succeeded": sum(true(one, "Complete") for one in own),
                    "failed": sum(true(one, "Failed") for one in own),
                    "active": sum(one.get("status", {}).get("active", 0) > 0 for one in own),
                    "suspended": sum(true(one, "Suspended") for one in own),
                }
            )
        total = sum(replicated.get("replicas", 1) for replicated in job["spec"]["replicatedJobs"])
        done = sum(each["succeeded"] for each in listed) == total
        conditions = [condition("Suspended", bool(job["spec"].get("suspend", False))), condition("Completed", done)]
        return {"replicatedJobsStatus": listed, "conditions": conditions}

    def ended(self, job: Json) -> bool:
        return true(job, "Completed")


class TrainJobs(Operator):
    """trainer v2: a JobSet of its name, of the runtime's template, the trainer's nodes and runtimePatches in order;
    it is updated while it is suspended only.
    """

    resource = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", namespaced=True)
    children = (JOB_SETS,)
    runtimes: dict[str, Json]

    def wanted(self, job: Json, have: dict[str, list[Json]]) -> Iterable[Json]:
        spec = copy.deepcopy(self.runtimes[job["spec"]["runtimeRef"]["name"]]["spec"]["template"]["spec"])
        for replicated in spec["replicatedJobs"]:
            step = replicated["template"].get("metadata", {}).get("labels", {})
            if step.get("trainer.kubeflow.org/trainjob-ancestor-step") == "trainer":
                nodes = job["spec"]["trainer"]["numNodes"]
                replicated["template"]["spec"] |= {"parallelism": nodes, "completions": nodes}
        for patch in job["spec"].get("runtimePatches", []):
            listed = patch.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", [])
            for given in listed:
                (target,) = [each for each in spec["replicatedJobs"] if each["name"] == given["name"]]
                template = target["template"]["spec"]["template"]
                merge_placement(template, given.get("template", {}).get("spec", {}).get("template", {}))
        spec["suspend"] = bool(job["spec"].get("suspend", False))
        metadata = {"name": job["metadata"]["name"], "labels": {QUEUE: "research"}}
        yield {"apiVersion": JOB_SETS.api_version, "kind": "JobSet", "metadata": metadata, "spec": spec}

    def status(self, job: Json, have: dict[str, list[Json]]) -> Json:
        listed = [each for one in have["jobsets"] for each in one.get("status", {}).get("replicatedJobsStatus", [])]
        done = any(true(one, "Completed") for one in have["jobsets"])
        conditions = [condition("Suspended", bool(job["spec"].get("suspend", False))), condition("Complete", done)]
        return {"conditions": conditions, **({"jobsStatus": listed} if listed else {})}

    def ended(self, job: Json) -> bool:
        return true(job, "Complete")


def merge_placement(template: Json, given: Json) -> None:
    """Maps key by key, tolerations as a whole, gates by name."""
    metadata, spec = template.setdefault("metadata", {}), template["spec"]
    for key in ("labels", "annotations"):
        if key in given.get("metadata", {}):
            metadata[key] = {**metadata.get(key, {}), **given["metadata"][key]}
    more = given.get("spec", {})
    if "nodeSelector" in more:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **more["nodeSelector"]}
    if "tolerations" in more:
        spec["tolerations"] = more["tolerations"]
    if "schedulingGates" in more:
        spec["schedulingGates"] = [*spec.get("schedulingGates", []), *more["schedulingGates"]]


WAITING: Final = {"cpu": "200m", "memory": "256Mi"}
AUTOSCALER: Final = {"name": "autoscaler", "image": "ray", "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}}}


def ray_pods(name: str, cluster: Json) -> Iterator[Json]:
    """With in-tree autoscaling the head has a container more, and each worker waits in an init container for the head
    (common/pod.go, DefaultHeadPodTemplate and DefaultWorkerPodTemplate).
    """
    labels = {"ray.io/cluster": name}
    head = copy.deepcopy(cluster["headGroupSpec"]["template"])
    if cluster.get("enableInTreeAutoscaling"):
        head["spec"]["containers"].append(AUTOSCALER)
    yield pod(f"{name}-head", head, **labels, **{"ray.io/node-type": "head"})
    for group in cluster.get("workerGroupSpecs", []):
        for index in range(group.get("replicas", 1) * group.get("numOfHosts", 1)):
            named = {**labels, "ray.io/node-type": "worker", "ray.io/group": group["groupName"]}
            worker = copy.deepcopy(group["template"])
            resources = {"limits": WAITING, "requests": WAITING}
            waits = {"name": "wait-gcs-ready", "image": "ray", "resources": resources}
            worker["spec"]["initContainers"] = [*worker["spec"].get("initContainers", []), waits]
            yield pod(f"{name}-{group['groupName']}-{index}", worker, **named)


class RayClusters(Operator):
    """KubeRay 1.5: suspension deletes all pods; the state says ready when all of them run."""

    resource = RAY_CLUSTERS

    def wanted(self, job: Json, have: dict[str, list[Json]]) -> Iterable[Json]:
        return () if job["spec"].get("suspend") else ray_pods(job["metadata"]["name"], job["spec"])

    def status(self, job: Json, have: dict[str, list[Json]]) -> Json:
        suspend, pods = bool(job["spec"].get("suspend")), have["pods"]
        total = len(list(ray_pods("x", job["spec"])))
        gone = suspend and not pods
        conditions = [
            condition("RayClusterSuspending", suspend and bool(pods)),
            condition("RayClusterSuspended", gone),
            condition("RayClusterProvisioned", not suspend and phases(pods, "Running") == total),
        ]
        state = "suspended" if gone else "ready" if phases(pods, "Running") == total else ""
        return {"conditions": conditions, **({"state": state} if state else {})}


class RayJobs(Operator):
    """KubeRay: a cluster, and when it is ready a Job that submits; suspension deletes both. The cluster is deleted when
    the job has ended (``shutdownAfterJobFinishes``).
    """

    resource = Resource("ray.io", "v1", "rayjobs", "RayJob", namespaced=True)
    children = (RAY_CLUSTERS, CHILD_JOBS)

    def wanted(self, job: Json, have: dict[str, list[Json]]) -> Iterable[Json]:
        if job["spec"].get("suspend"):
            return
        name = job["metadata"]["name"]
        done = any(true(one, "Complete") for one in have["jobs"])
        if not done:
            labels = {"ray.io/originated-from-crd": "RayJob", QUEUE: "research"}
            metadata = {"name": f"{name}-cluster", "labels": labels}
            spec = job["spec"]["rayClusterSpec"]
            yield {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}
        if done or any(one.get("status", {}).get("state") == "ready" for one in have["rayclusters"]):
            template = job["spec"].get("submitterPodTemplate") or _submitter(job["spec"]["rayClusterSpec"])
            yield child_job(name, {"template": template, "backoffLimit": 0}, suspend=False)

    def status(self, job: Json, have: dict[str, list[Json]]) -> Json:
        clusters, done = have["rayclusters"], any(true(one, "Complete") for one in have["jobs"])
        state = clusters[0].get("status", {}).get("state", "") if clusters else ""
        if job["spec"].get("suspend"):
            left = clusters or have["jobs"] or have["pods"]
            return {"jobDeploymentStatus": "Suspending" if left else "Suspended"}
        if done:
            return {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
        given = {"rayClusterName": f"{job['metadata']['name']}-cluster", "rayClusterStatus": {"state": state}}
        return {"jobDeploymentStatus": "Running" if state == "ready" else "Initializing", **given}

    def ended(self, job: Json) -> bool:
        return bool(job.get("status", {}).get("jobDeploymentStatus") == "Complete")


def _submitter(cluster: Json) -> Json:
    """KubeRay's own template where the RayJob has none (common.GetDefaultSubmitterTemplate)."""
    head = cluster["headGroupSpec"]["template"]["spec"]["containers"][0]
    resources = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "ray-job-submitter", "image": head["image"], "resources": resources}
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


class RayServices(Operator):
    """KubeRay: one cluster, ready when it is; its suspension is the cluster's."""

    resource = Resource("ray.io", "v1", "rayservices", "RayService", namespaced=True)
    children = (RAY_CLUSTERS,)

    def wanted(self, job: Json, have: dict[str, list[Json]]) -> Iterable[Json]:
        metadata = {"name": f"{job['metadata']['name']}-cluster", "labels": {QUEUE: "research"}}
        spec = job["spec"]["rayClusterConfig"]
        yield {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}

    def status(self, job: Json, have: dict[str, list[Json]]) -> Json:
        ready = any(one.get("status", {}).get("state") == "ready" for one in have["rayclusters"])
        names = {"rayClusterName": f"{job['metadata']['name']}-cluster"} if have["rayclusters"] else {}
        return {"conditions": [condition("Ready", ready)], "activeServiceStatus": names}


class AppWrappers(Operator):
    """appwrapper 1.2: podSetInfos are merged into the objects when they are made; suspension deletes them."""

    resource = Resource("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper", namespaced=True)
    children = (CHILD_JOBS, SERVICES)

    def wanted(self, job: Json, have: dict[str, list[Json]]) -> Iterable[Json]:
        if job["spec"].get("suspend"):
            return
        for component in job["spec"]["components"]:
            body = copy.deepcopy(component["template"])
            for info in component.get("podSetInfos", []):
                template = body["spec"]["template"]
                given = {
                    "metadata": {key: info[key] for key in ("labels", "annotations") if key in info},
                    "spec": {key: info[key] for key in _PLACEMENT["spec"] if key in info},
                }
                merge_placement(template, given)
            yield body

    def status(self, job: Json, have: dict[str, list[Json]]) -> Json:
        suspend, jobs = bool(job["spec"].get("suspend")), have["jobs"]
        done = bool(jobs) and all(true(one, "Complete") for one in jobs)
        deployed = bool(jobs or have["services"] or have["pods"])
        ready = bool(jobs) and all(
            one.get("status", {}).get("ready", 0) >= one["spec"].get("parallelism", 1) for one in jobs
        )
        phase = "Succeeded" if done else ("Suspending" if deployed else "Suspended") if suspend else "Running"
        conditions = [
            condition("QuotaReserved", not done and (not suspend or deployed)),
            condition("ResourcesDeployed", deployed),
            condition("PodsReady", ready),
        ]
        return {"phase": phase, "conditions": conditions}

    def ended(self, job: Json) -> bool:
        return bool(job.get("status", {}).get("phase") == "Succeeded")


class SparkApplications(Operator):
    """spark-operator 2: Spark makes the pods of the fields of driver and executor (requests: BasicDriverFeatureStep);
    a Python application has 40 % of memory beside the heap, at least 384 MiB.
    """

    resource = Resource("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication", namespaced=True)

    def wanted(self, job: Json, have: dict[str, list[Json]]) -> Iterable[Json]:
        if job["spec"].get("suspend"):
            return
        name = job["metadata"]["name"]
        yield pod(f"{name}-driver", self._template(job, "driver", 512))
        if any(p["status"].get("phase") in ("Running", "Succeeded") for p in have["pods"]):
            for index in range(job["spec"]["executor"]["instances"]):
                yield pod(f"{name}-exec-{index}", self._template(job, "executor", 1024))

    def _template(self, job: Json, role: str, heap_mib: int) -> Json:
        spec = job["spec"][role]
        requests = {"cpu": str(spec["cores"]), "memory": f"{heap_mib + max(384, int(heap_mib * 0.4))}Mi"}
        limits = {spec["gpu"]["name"]: str(spec["gpu"]["quantity"])} if "gpu" in spec else {}
        container = {"name": f"spark-{role}", "image": "spark", "resources": {"requests": requests, "limits": limits}}
        given = {
            "metadata": {key: dict(spec[key]) for key in ("labels", "annotations") if key in spec},
            "spec": {key: spec[key] for key in ("nodeSelector", "tolerations") if key in spec},
        }
        gates = spec.get("template", {}).get("spec", {}).get("schedulingGates", [])
        more = {"schedulingGates": gates} if gates else {}
        return {"metadata": given["metadata"], "spec": {**given["spec"], **more, "containers": [container]}}

    def status(self, job: Json, have: dict[str, list[Json]]) -> Json:
        pods = have["pods"]
        driver = [one for one in pods if one["metadata"]["name"].endswith("-driver")]
        state = "RUNNING" if phases(driver, "Running") else "SUBMITTED"
        if job["spec"].get("suspend"):
            state = "SUSPENDING" if pods else "SUSPENDED"
        elif phases(driver, "Succeeded"):
            state = "COMPLETED"
        executors = {
            one["metadata"]["name"]: one.get("status", {}).get("phase", "Pending").upper()
            for one in pods
            if one not in driver
        }
        return {"applicationState": {"state": state}, "driverInfo": {}, "executorState": executors}

    def ended(self, job: Json) -> bool:
        return bool(job.get("status", {}).get("applicationState", {}).get("state") == "COMPLETED")


OPERATORS: Final[tuple[Operator, ...]] = (
    JobSets(),
    Kubeflow("pytorchjobs", "PyTorchJob", "pytorchReplicaSpecs"),
    Kubeflow("tfjobs", "TFJob", "tfReplicaSpecs"),
    Kubeflow("xgboostjobs", "XGBoostJob", "xgbReplicaSpecs"),
    Kubeflow("paddlejobs", "PaddleJob", "paddleReplicaSpecs"),
    Kubeflow("jaxjobs", "JAXJob", "jaxReplicaSpecs"),
    Mpi(),
    TrainJobs(),
    RayClusters(),
    RayJobs(),
    RayServices(),
    AppWrappers(),
    SparkApplications(),
)


LISTED: Final = (PODS, CHILD_JOBS, SERVICES, RUNTIMES, *(operator.resource for operator in OPERATORS))
"""What they read."""


class Operators:
    """All but those whose kinds have their real controllers, in one loop that acts on each new look until it is
    cancelled. What fails is tried again in the next.
    """

    def __init__(self, world: World, real: Collection[str] = ()) -> None:
        """``real``: the plurals of kinds that are left alone."""
        self._world, self._client = world, world.client
        self._played = [operator for operator in OPERATORS if operator.resource.plural not in real]

    async def run(self) -> None:
        while True:
            await self._world.next()
            with suppress(KubeError):
                await self._round(self._world.listed)

    async def _round(self, listed: dict[Resource, list[Json]]) -> None:
        TrainJobs.runtimes = {one["metadata"]["name"]: one for one in listed[RUNTIMES]}
        for operator in self._played:
            for job in listed[operator.resource]:
                if "deletionTimestamp" not in job["metadata"]:
                    await self._tend(operator, job, listed)

    async def _tend(self, operator: Operator, job: Json, listed: dict[Resource, list[Json]]) -> None:
        have: dict[str, list[Json]] = {"pods": []}
        for resource in operator.children:
            have[resource.plural] = [each for each in listed[resource] if owned(each, job)]
        owner = reference(operator.resource, job)
        if not operator.ended(job):
            for resource in operator.children:
                wanted = [each for each in operator.wanted(job, have) if each["kind"] == resource.kind]
                await self._match(resource, owner, job["metadata"]["namespace"], wanted, have[resource.plural])
        status = operator.status(job, have)
        if operator.ended(job) or status == job.get("status"):
            return
        meta, gone = job["metadata"], {key: None for key in job.get("status", {}) if key not in status}
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": {**status, **gone}}
        with suppress(KubeError):  # it has changed since: the next round sees that
            await self._client.merge_patch(
                operator.resource,
                meta["name"],
                body,
                dict[str, Any],
                namespace=meta["namespace"],
                subresource="status",
            )

    async def _match(
        self, resource: Resource, owner: Json, namespace: str, wanted: list[Json], have: list[Json]
    ) -> None:
        there = {each["metadata"]["name"]: each for each in have}
        names = {each["metadata"]["name"] for each in wanted}
        for each in wanted:
            name = each["metadata"]["name"]
            with suppress(KubeError):
                if name not in there:
                    each["metadata"] |= {"namespace": namespace, "ownerReferences": [owner]}
                    await self._client.create(resource, each, dict[str, Any], namespace=namespace)
                elif patch := followed(resource, there[name], each):
                    await self._client.merge_patch(resource, name, patch, dict[str, Any], namespace=namespace)
        for name in there.keys() - names:
            if "deletionTimestamp" not in there[name]["metadata"]:
                with suppress(KubeError):
                    await self._remove(resource, there[name])

    async def _remove(self, resource: Resource, child: Json) -> None:
        """Without a word about what becomes of its pods, a Job that is deleted leaves them: they go before it."""
        name, namespace = child["metadata"]["name"], child["metadata"]["namespace"]
        if resource == CHILD_JOBS and not true(child, "Suspended") and not true(child, "Complete"):
            stop = {"spec": {"suspend": True}}
            await self._client.merge_patch(resource, name, stop, dict[str, Any], namespace=namespace)
        else:
            await self._client.delete(resource, name, namespace=namespace)


def owned(child: Json, job: Json) -> bool:
    return any(one["uid"] == job["metadata"]["uid"] for one in child["metadata"].get("ownerReferences", []))


def reference(resource: Resource, job: Json) -> Json:
    named = {key: job["metadata"][key] for key in ("name", "uid")}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "controller": True, **named}


def followed(resource: Resource, child: Json, wanted: Json) -> Json:
    """The patch of a child that follows its parent: it stops at once, and starts with the parent's template."""
    if resource == PODS or "suspend" not in wanted["spec"]:
        return {}
    if bool(child["spec"].get("suspend")) == bool(wanted["spec"]["suspend"]):
        return {}
    if wanted["spec"]["suspend"]:
        return {"spec": {"suspend": True}}
    if resource != CHILD_JOBS:
        return {"spec": wanted["spec"]}
    now, then = child["spec"]["template"], wanted["spec"]["template"]
    template: Json = {}
    for part, keys in _PLACEMENT.items():
        for key in keys:
            have, want = now.get(part, {}).get(key), then.get(part, {}).get(key)
            if key in ("labels", "annotations", "nodeSelector"):
                generated = ("controller-uid", "job-name")
                gone = {k: None for k in have or {} if k not in (want or {}) and not k.endswith(generated)}
                want = {**(want or {}), **gone}
            if want != have:
                template.setdefault(part, {})[key] = want
    return {"spec": {"suspend": False, "template": template}}
