"""What runs beside a server of GPUs, and who serves GPUs beside an operator: two never serve one node, and nothing that
is still needed is stopped.
"""

import pytest

from tests.cli.migrate.conftest import Answer
from tests.cli.migrate.manifests import (
    PLUGIN_IMAGE,
    Json,
    cluster_policy,
    device_plugin_chart,
    dra_driver_chart,
    dumped,
    exporter_chart,
    feature_discovery,
    operand,
    plugin_configs,
    static_plugin,
)

WAITS = {"nvidia.com/gpu.deploy.device-plugin": "false"}
OFF = {"enabled": False}


def commands(found: Json, words: str) -> list[int]:
    return [i for i, each in enumerate(found["steps"]) if words in each["command"]]


def what(found: list[Json]) -> set[str]:
    return {each["what"] for each in found}


@pytest.mark.parametrize("one", [exporter_chart(), feature_discovery()], ids=["dcgm-exporter", "feature discovery"])
def test_what_serves_no_gpus_brings_no_agent_beside_who_does_and_goes_on(migrated: Answer, one: Json) -> None:
    """A cloud's own device plugin has an image of its own, which no plan knows."""
    found = migrated(d__yaml=dumped(one))
    assert found["values"]["nodeSelector"] == WAITS
    assert commands(found, "kubectl patch daemonset/") == []
    assert what(found["kept"]) >= {"what serves GPUs on nodes", f"DaemonSet {one['metadata']['name']}"}


def test_beside_a_plugin_both_go_after_the_agent(migrated: Answer) -> None:
    found = migrated(d__yaml=dumped(exporter_chart(), feature_discovery(), static_plugin()))
    assert "nodeSelector" not in found["values"]
    daemons = ("nvidia-device-plugin-daemonset", "gpu-feature-discovery", "dcgm-exporter")
    plugin, *others = (commands(found, f"daemonset/{name}")[0] for name in daemons)
    assert plugin < commands(found, "helm install")[0] < min(others)


def test_beside_nvidias_dra_driver_the_exporter_goes_too(migrated: Answer) -> None:
    found = migrated(d__yaml=dumped(exporter_chart(), *dra_driver_chart()))
    assert commands(found, "daemonset/dcgm-exporter")
    assert "Deployment nvidia-dra-driver-gpu-controller" in what(found["kept"])


def test_a_plugin_beside_a_policy_without_one_is_stopped_and_the_agents_go_where_it_was(migrated: Answer) -> None:
    policy = cluster_policy(devicePlugin=OFF, cdi={"enabled": True})
    found = migrated(all__yaml=dumped(policy, plugin_configs(), *device_plugin_chart()))
    stop, install = (commands(found, words)[0] for words in ("daemonset/nvdp-nvidia-device-plugin ", "helm install"))
    assert stop < install
    values = found["values"]
    assert values["config"]["default"] == "a100"
    assert not {"nodeSelector", "deviceListStrategy"} & set(values)


def test_what_a_plugin_beside_a_policy_does_not_say_is_its_own_default_and_not_the_policys(migrated: Answer) -> None:
    policy = cluster_policy(devicePlugin=OFF, mig={"strategy": "mixed"}, cdi=OFF)
    found = migrated(all__yaml=dumped(policy, static_plugin()))
    assert not {"migStrategy", "nvidiaDriverRoot", "runtimeClassName"} & set(found["values"])
    assert what(found["lost"]) == {
        "spec.mig.strategy: mixed",
        "spec.hostPaths.driverInstallDir: /run/nvidia/driver",
        "spec.operator.runtimeClass: nvidia",
    }


def test_what_a_plugin_beside_a_policy_says_alike_is_not_lost(migrated: Answer) -> None:
    plugin = static_plugin()
    plugin["spec"]["template"]["spec"]["runtimeClassName"] = "nvidia"
    plugin["spec"]["template"]["spec"]["containers"][0]["env"] += [
        {"name": "MIG_STRATEGY", "value": "single"},
        {"name": "NVIDIA_DRIVER_ROOT", "value": "/run/nvidia/driver"},
    ]
    found = migrated(all__yaml=dumped(cluster_policy(devicePlugin=OFF, cdi=OFF), plugin))
    values = found["values"]
    assert (values["migStrategy"], values["runtimeClassName"]) == ("single", "nvidia")
    assert (values["nvidiaDriverRoot"], found["lost"]) == ("/run/nvidia/driver", [])


def test_a_second_plugin_beside_the_operators_is_stopped_too(migrated: Answer) -> None:
    own = [operand("nvidia-device-plugin-daemonset"), operand("gpu-feature-discovery")]
    found = migrated(all__yaml=dumped(cluster_policy(), *own, static_plugin()))
    (stop,) = commands(found, "kubectl patch daemonset/")
    assert "--namespace=kube-system" in found["steps"][stop]["command"]
    assert stop < commands(found, "helm install")[0]
    assert "affinity" in found["values"]


@pytest.mark.parametrize("has_owner", [True, False])
def test_the_operators_own_daemon_sets_are_switched_off_by_its_policy(migrated: Answer, has_owner: bool) -> None:
    own = operand("nvidia-dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4")
    if not has_owner:
        del own["metadata"]["ownerReferences"]
    found = migrated(all__yaml=dumped(cluster_policy(), own))
    assert commands(found, "kubectl patch daemonset/") == []
    assert commands(found, '"dcgmExporter"')


def test_an_exporter_of_its_own_beside_a_policy_gives_its_settings_and_goes(migrated: Answer) -> None:
    exporter = exporter_chart(DCGM_EXPORTER_LISTEN=":9500")
    found = migrated(all__yaml=dumped(cluster_policy(dcgmExporter=OFF), exporter))
    assert found["values"]["metrics"]["port"] == 9500
    assert commands(found, "daemonset/dcgm-exporter")[0] > commands(found, "helm install")[0]


def test_a_policy_without_a_device_plugin_brings_no_agent_beside_who_serves(migrated: Answer) -> None:
    found = migrated(p__yaml=dumped(cluster_policy(devicePlugin=OFF)))
    assert found["values"]["nodeSelector"] == WAITS
    assert "affinity" not in found["values"]
    assert commands(found, "clusterpolicies") == []
    assert what(found["kept"]) >= {"what serves GPUs on nodes", "spec.dcgmExporter", "spec.gfd", "spec.migManager"}


@pytest.mark.parametrize("words", [("--node=gpu-1",), ()])
def test_a_plugin_beside_an_operator_that_no_label_lets_leave_is_said(migrated: Answer, words: tuple[str, ...]) -> None:
    head = cluster_policy() if words else {
        "apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "g"}, "spec": {}
    }  # fmt: skip
    found = migrated(*words, all__yaml=dumped(head, static_plugin(image=PLUGIN_IMAGE)))
    assert "DaemonSet nvidia-device-plugin-daemonset" in what(found["lost"])
