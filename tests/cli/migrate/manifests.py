"""Objects as the charts of NVIDIA's programs, Kueue, Volcano and KAI render them, with the fields that a plan reads."""

from typing import Any

import yaml

Json = dict[str, Any]

PLUGIN_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"
NODE_NAME = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
FILES = {"a100": "version: v1\nflags: {migStrategy: single}\n", "t4": "version: v1\n"}


def dumped(*objects: Json) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False)


def workload(kind: str, name: str, namespace: str, *containers: Json, **pod: Any) -> Json:
    labels = {"app.kubernetes.io/name": name}
    spec: Json = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": list(containers), **pod}},
    }
    if kind == "Deployment":
        spec["replicas"] = 1
    head = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}}
    return {**head, "spec": spec}


def env(**values: str) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]


def config_manager(name: str, process: str, default: str, *, once: bool) -> Json:
    """The container of the plugin's chart that chooses a configuration file by the node's label."""
    variables = {
        "ONESHOT": str(once).lower(),
        "KUBECONFIG": "",
        "NODE_LABEL": "nvidia.com/device-plugin.config",
        "CONFIG_FILE_SRCDIR": "/available-configs",
        "CONFIG_FILE_DST": "/config/config.yaml",
        "DEFAULT_CONFIG": default,
        "FALLBACK_STRATEGIES": "named,single,empty",
        "SEND_SIGNAL": str(not once).lower(),
        "SIGNAL": "" if once else "1",
        "PROCESS_TO_SIGNAL": "" if once else process,
    }
    command = {"command": ["config-manager"], "env": [NODE_NAME, *env(**variables)]}
    return {"name": name, "image": PLUGIN_IMAGE, **command}


def device_plugin_chart(*, default: str = "a100", mps_root: str = "/run/nvidia/mps") -> list[Json]:
    """What the device plugin's chart makes of ``config.name``, ``gfd.enabled`` and ``mps.root``: three DaemonSets, of
    which each has a config manager as its first container.
    """
    volumes = [
        {"name": "available-configs", "configMap": {"name": "plugin-configs"}},
        {"name": "config", "emptyDir": {}},
    ]
    seen = env(CONFIG_FILE="/config/config.yaml", NVIDIA_MIG_MONITOR_DEVICES="all", NVIDIA_VISIBLE_DEVICES="all")
    pod_name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    space = {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    plugin = [*env(MPS_ROOT=mps_root, MIG_STRATEGY="mixed", PASS_DEVICE_SPECS="false"), *seen]
    found = []
    for name, program, variables, place in (
        ("nvdp-nvidia-device-plugin", "nvidia-device-plugin", plugin, {}),
        ("nvdp-nvidia-device-plugin-gpu-feature-discovery", "gpu-feature-discovery",
         [NODE_NAME, space, pod_name, *env(MIG_STRATEGY="mixed", GFD_SLEEP_INTERVAL="60s"), *seen], {}),
        ("nvdp-nvidia-device-plugin-mps-control-daemon", "mps-control-daemon",
         [NODE_NAME, *env(MIG_STRATEGY="mixed"), *seen], {"nodeSelector": {"nvidia.com/mps.capable": "true"}}),
    ):  # fmt: skip
        main = {"name": f"{program}-ctr", "image": PLUGIN_IMAGE, "command": [program], "env": variables}
        sidecar = config_manager(f"{program}-sidecar", program, default, once=False)
        first = config_manager(f"{program}-init", program, default, once=True)
        pod = {"initContainers": [first], "volumes": volumes, "shareProcessNamespace": True, **place}
        found.append(workload("DaemonSet", name, "nvidia-device-plugin", sidecar, main, **pod))
    return found


def plugin_configs(name: str = "plugin-configs") -> Json:
    metadata = {"name": name, "namespace": "nvidia-device-plugin"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": FILES}


def static_plugin(namespace: str = "kube-system", image: str = PLUGIN_IMAGE) -> Json:
    """NVIDIA's plugin by its manifest without a chart."""
    name = "nvidia-device-plugin-daemonset"
    one = {"name": "nvidia-device-plugin-ctr", "image": image, "env": env(FAIL_ON_INIT_ERROR="false")}
    return workload("DaemonSet", name, namespace, one, priorityClassName="system-node-critical")


def exporter_chart(namespace: str = "monitoring", **variables: str) -> Json:
    """dcgm-exporter's chart."""
    usual = {"DCGM_EXPORTER_KUBERNETES": "true", "DCGM_EXPORTER_LISTEN": ":9400"} | variables
    one = {
        "name": "exporter",
        "image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3-4.1.3-ubuntu22.04",
        "args": ["-f", "/etc/dcgm-exporter/default-counters.csv"],
        "env": [*env(**usual), NODE_NAME],
        "ports": [{"name": "metrics", "containerPort": 9400}],
    }
    return workload("DaemonSet", "dcgm-exporter", namespace, one, runtimeClassName="nvidia")


def feature_discovery(namespace: str = "node-feature-discovery") -> Json:
    """Feature discovery by its manifest without a chart."""
    one = {"name": "gpu-feature-discovery", "image": PLUGIN_IMAGE, "command": ["/usr/bin/gpu-feature-discovery"]}
    return workload("DaemonSet", "gpu-feature-discovery", namespace, one)


def dra_driver_chart() -> list[Json]:
    """The chart of NVIDIA's DRA driver with both of its halves."""
    space, image = "nvidia-dra-driver-gpu", "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.4.0"
    halves = [
        {"name": name, "image": image, "command": ["bash", "-c"], "args": [program]}
        for name, program in (("compute-domains", "compute-domain-kubelet-plugin"), ("gpus", "gpu-kubelet-plugin"))
    ]
    controller = {"name": "compute-domain", "image": image, "command": ["compute-domain-controller", "-v", "4"]}
    return [
        workload("DaemonSet", f"{space}-kubelet-plugin", space, *halves),
        workload("Deployment", f"{space}-controller", space, controller),
    ]


def queue_programs(system: str) -> list[Json]:
    """The programs of one system of queues, as its chart or manifest has them."""
    if system == "kueue":
        one = {"name": "manager", "image": "registry.k8s.io/kueue/kueue:v0.14.2", "args": ["--zap-log-level=2"]}
        return [workload("Deployment", "kueue-controller-manager", "kueue-system", one)]
    if system == "volcano":
        space = "volcano-system"
        names = {"scheduler": "vc-scheduler", "admission": "vc-webhook-manager", "controllers": "vc-controller-manager"}
        found = [
            workload("Deployment", f"volcano-{name}", space, {"name": name, "image": f"docker.io/volcanosh/{image}:v1.12.1"})  # noqa: E501
            for name, image in names.items()
        ]  # fmt: skip
        agent = {"name": "volcano-agent", "image": "docker.io/volcanosh/vc-agent:v1.12.1"}
        return [*found, workload("DaemonSet", "volcano-agent", space, agent, hostNetwork=True)]
    return [
        workload("Deployment", name, "kai-scheduler", {"name": name, "image": f"ghcr.io/kai-scheduler/kai-scheduler/{image}:v0.9.3"})  # noqa: E501
        for name, image in (("kai-operator", "operator"), ("binder", "binder"), ("kai-scheduler-default", "scheduler"))
    ]  # fmt: skip


def cluster_policy(**spec: Any) -> Json:
    head = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}
    status = {"state": "ready", "namespace": "gpu-operator"}
    return {**head, "spec": {"mig": {"strategy": "single"}, **spec}, "status": status}


def operand(name: str, image: str = PLUGIN_IMAGE, *command: str) -> Json:
    """A DaemonSet that the GPU Operator made."""
    one = {"name": name, "image": image} | ({"command": list(command)} if command else {})
    found = workload("DaemonSet", name, "gpu-operator", one)
    owner = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy", "controller": True}
    found["metadata"]["ownerReferences"] = [owner]
    return found
