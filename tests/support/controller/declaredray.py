"""Random jobs of Ray's kinds, AppWrappers and SparkApplications, and the pods that their controllers make of them.

The numbers and containers are those that KubeRay, AppWrapper's controller and Spark give to pods.
"""

from typing import Final

from hypothesis import strategies as st

from controller.jobs.framework.kind import Look
from controller.jobs.framework.raw import Json
from kube.testing.store import copied
from tests.support.controller.declaredjobs import (
    MAPS,
    TOLERATIONS,
    Model,
    Pod,
    Sample,
    pods_of,
    templates,
    typed,
    with_init,
)
from tests.support.controller.rayobjects import ray_cluster, ray_job, ray_service

_SUBMITTER: Final = {
    "name": "ray-job-submitter",
    "image": "i",
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "200Mi"}},
}
_COLLECTOR: Final = {
    "name": "ray-history-collector",
    "resources": {"limits": {"cpu": "200m", "memory": "256Mi"}, "requests": {"cpu": "50m", "memory": "64Mi"}},
}

_WAIT: Final = {"name": "wait-gcs-ready", "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}}}


# -- Ray ---------------------------------------------------------------------------------------------------------------


def _groups() -> st.SearchStrategy[list[Json]]:
    numbers = {"replicas": st.integers(0, 4), "minReplicas": st.integers(0, 2), "maxReplicas": st.integers(1, 3)}
    group = st.fixed_dictionaries(
        {"groupName": st.sampled_from(["gpu", "cpu"]), "template": templates("worker"), **numbers},
        optional={"numOfHosts": st.integers(0, 3), "suspend": st.booleans()},
    )
    return st.lists(group, max_size=2, unique_by=lambda each: each["groupName"])


def _cluster_fields() -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {"headGroupSpec": templates("head").map(lambda each: {"template": each}), "workerGroupSpecs": _groups()},
        optional={"historyServerOptions": st.just({"collectorOptions": {}})},
    )


def _with(template: Json, *containers: Json) -> Json:
    made = copied(template)
    made["spec"]["containers"] += containers
    return made


def _ray_pods(spec: Json, *in_head: Json) -> list[Pod]:
    sidecars = [_COLLECTOR] if "historyServerOptions" in spec else []
    found = pods_of(_with(spec["headGroupSpec"]["template"], *sidecars, *in_head), 1)
    for group in spec["workerGroupSpecs"]:
        replicas = min(max(group["replicas"], group["minReplicas"]), group["maxReplicas"])
        count = 0 if group.get("suspend") else replicas * max(group.get("numOfHosts", 1), 1)
        found += pods_of(with_init(_with(group["template"], *sidecars), _WAIT), count)
    return found


def _cluster_model() -> Model:
    def run(job: Json, on: bool) -> None:
        job["status"]["state"] = "ready" if on else "suspended"

    return Model(
        samples=_cluster_fields().map(lambda fields: Sample(ray_cluster(**fields))),
        pods=lambda job, _: [] if job["spec"]["suspend"] else _ray_pods(job["spec"]),
        run=run,
    )


def _job_model() -> Model:
    modes = st.sampled_from(["K8sJobMode", "SidecarMode", "HTTPMode"])
    submitters = st.one_of(st.none(), templates("submit"))

    def made(fields: Json, mode: str, submitter: Json | None) -> Sample:
        given = {"submitterPodTemplate": submitter} if submitter is not None else {}
        return Sample(ray_job(ray=fields, submissionMode=mode, **given))

    def pods(job: Json, _look: Look) -> list[Pod]:
        spec, mode = job["spec"], job["spec"]["submissionMode"]
        if spec["suspend"]:
            return []
        submitting = pods_of(spec["submitterPodTemplate"], 1) if mode == "K8sJobMode" else []
        return _ray_pods(spec["rayClusterSpec"], *([_SUBMITTER] if mode == "SidecarMode" else [])) + submitting

    def run(job: Json, on: bool) -> None:
        job["status"]["jobDeploymentStatus"] = "Running" if on else "Suspended"

    def kept(spec: Json) -> Json:
        """A start writes the default submitter out."""
        if spec["submissionMode"] != "K8sJobMode":
            return spec
        return {"submitterPodTemplate": {"spec": {"containers": [_SUBMITTER], "restartPolicy": "Never"}}, **spec}

    return Model(st.builds(made, _cluster_fields(), modes, submitters), pods, run, kept)


def _service_model() -> Model:
    def made(fields: Json) -> Sample:
        return Sample(ray_service(rayClusterConfig={"suspend": True, **fields}))

    def pods(job: Json, _look: Look) -> list[Pod]:
        config = job["spec"]["rayClusterConfig"]
        return [] if config["suspend"] else _ray_pods(config)

    def run(job: Json, on: bool) -> None:
        job["status"]["conditions"] = [{"type": "Ready", "status": "True" if on else "False"}]

    return Model(_cluster_fields().map(made), pods, run)


# -- AppWrapper --------------------------------------------------------------------------------------------------------


def _component(template: Json, replicas: int, kind: str) -> Json:
    """An object with one template, of a kind that is known or of one that is not."""
    if kind == "Thing":
        body = {"apiVersion": "example.dev/v1", "kind": kind, "spec": {"parts": [{"pod": template}]}}
        return {"template": body, "podSets": [{"path": "template.spec.parts[0].pod", "replicas": replicas}]}
    spec = {"parallelism": replicas, "template": template}
    return {"template": {"apiVersion": "batch/v1", "kind": kind, "spec": spec}}


def _injected(template: Json, info: Json) -> Json:
    """As AppWrapper's controller merges them."""
    made = copied(template)
    for key, part in (("labels", "metadata"), ("annotations", "metadata"), ("nodeSelector", "spec")):
        if info.get(key):
            outer = made.setdefault(part, {})
            outer[key] = {**(outer.get(key) or {}), **info[key]}
    for key in ("tolerations", "schedulingGates"):
        if info.get(key):
            made["spec"][key] = [*(made["spec"].get(key) or []), *info[key]]
    return made


def _wrapper_model() -> Model:
    components = st.lists(
        st.builds(_component, templates(), st.integers(0, 3), st.sampled_from(["Job", "Thing"])), min_size=1, max_size=3
    )

    def made(parts: list[Json]) -> Sample:
        version = "workload.codeflare.dev/v1beta2"
        return Sample(typed(version, "AppWrapper", {"suspend": True, "components": parts}))

    def pods(job: Json, _look: Look) -> list[Pod]:
        found: list[Pod] = []
        for component in [] if job["spec"]["suspend"] else job["spec"]["components"]:
            spec, (info,) = component["template"]["spec"], component["podSetInfos"]
            declared = component.get("podSets")
            template = spec["parts"][0]["pod"] if declared else spec["template"]
            found += pods_of(_injected(template, info), declared[0]["replicas"] if declared else spec["parallelism"])
        return found

    def run(job: Json, on: bool) -> None:
        job["status"]["phase"] = "Running" if on else "Suspended"
        job["status"]["conditions"] = [{"type": "QuotaReserved", "status": "True" if on else "False"}]

    return Model(components.map(made), pods, run)


# -- Spark -------------------------------------------------------------------------------------------------------------

_MEMORY: Final = {"512m": "896Mi", "8g": "9011Mi"}
_NAMES: Final = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}


def _roles(name: str) -> st.SearchStrategy[Json]:
    some = st.dictionaries(st.sampled_from(["example.dev/x", "example.dev/y"]), st.sampled_from("abc"), min_size=1)
    return st.fixed_dictionaries(
        {"memory": st.sampled_from(sorted(_MEMORY)), "cores": st.integers(1, 4)},
        optional={
            "labels": some,
            "annotations": some,
            "nodeSelector": some,
            "tolerations": st.just([{"key": "role", "operator": "Exists"}]),
            "template": st.builds(_base, st.just(_NAMES[name]), TOLERATIONS, st.just([{"name": "example.dev/gate"}])),
        },
    )


def _base(name: str, tolerations: list[Json], gates: list[Json]) -> Json:
    return {"spec": {"containers": [{"name": name}], "tolerations": tolerations, "schedulingGates": gates}}


def _spark_model() -> Model:
    executors = st.tuples(_roles("executor"), st.integers(0, 3)).map(lambda each: {**each[0], "instances": each[1]})

    def made(driver: Json, executor: Json, selector: Json | None) -> Sample:
        spec: Json = {"suspend": True, "mode": "cluster", "type": "Scala", "driver": driver, "executor": executor}
        # Spark's operator refuses a selector of the application beside those of the roles.
        if selector is not None and "nodeSelector" not in driver and "nodeSelector" not in executor:
            spec["nodeSelector"] = selector
        return Sample(typed("sparkoperator.k8s.io/v1beta2", "SparkApplication", spec))

    def pods(job: Json, _look: Look) -> list[Pod]:
        spec = job["spec"]
        if spec["suspend"]:
            return []
        return [
            pod
            for role, count in (("driver", 1), ("executor", spec["executor"]["instances"]))
            for pod in pods_of(_spark_pod(spec[role], role), count)
        ]

    def run(job: Json, on: bool) -> None:
        job["status"]["applicationState"] = {"state": "RUNNING" if on else "SUSPENDED"}

    def kept(spec: Json) -> Json:
        """A start writes the roles' templates out, and the application's node selector into both."""
        found = {key: value for key, value in spec.items() if key != "nodeSelector"}
        selector = {"nodeSelector": spec["nodeSelector"]} if spec.get("nodeSelector") else {}
        for role, name in _NAMES.items():
            found[role] = {"template": {"spec": {"containers": [{"name": name}]}}, **spec[role], **selector}
        return found

    selectors = st.one_of(st.none(), MAPS)
    return Model(st.builds(made, _roles("driver"), executors, selectors), pods, run, kept)


def _spark_pod(role: Json, name: str) -> Json:
    requests = {"cpu": str(role["cores"]), "memory": _MEMORY[role["memory"]]}
    spec: Json = {"containers": [{"name": _NAMES[name], "resources": {"requests": requests}}]}
    return {"metadata": {"labels": role["labels"]}, "spec": {**spec, "nodeSelector": role["nodeSelector"]}}


RAY_MODELS: Final[dict[str, Model]] = {
    "ray.io/raycluster": _cluster_model(),
    "ray.io/rayjob": _job_model(),
    "ray.io/rayservice": _service_model(),
    "workload.codeflare.dev/appwrapper": _wrapper_model(),
    "sparkoperator.k8s.io/sparkapplication": _spark_model(),
}
"""By the kind's name in the configuration."""
