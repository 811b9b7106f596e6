"""NVIDIA's DRA driver, by a GPUCluster or its own chart, becomes a plan in which two drivers never serve one node."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from cli.migrate.inputs import Inputs
from cli.migrate.plan import planned
from cli.migrate.shapes import CLUSTER_SPEC, misfits
from controller.insight.simulation.documents import Document
from tests.cli.conftest import Run
from tests.cli.migrate.conftest import Answer, fits_the_chart
from tests.cli.migrate.test_plan import values_of

EXAMPLES = Path(__file__).parents[3] / "examples" / "migrate"
DEPLOYED = "nvidia.com/gpu.deploy.dra-driver"


def template(parameters: dict[str, Any]) -> str:
    opaque = {"driver": "gpu.nvidia.com", "parameters": {"apiVersion": "resource.nvidia.com/v1beta1", **parameters}}
    devices = {"requests": [{"name": "gpu"}], "config": [{"opaque": opaque}]}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    return yaml.safe_dump({**head, "metadata": {"name": "t", "namespace": "d"}, "spec": {"spec": {"devices": devices}}})


def resource_slice(node: str, gpus: int) -> str:
    devices = [{"name": f"gpu-{index}"} for index in range(gpus)] + [{"name": "gpu-0-mig-1g5gb-19-0"}]
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": {"name": node}, "devices": devices}
    return yaml.safe_dump(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}
    )


def commands(found: dict[str, Any]) -> list[str]:
    return [each["command"] for each in found["steps"]]


def test_agents_go_where_the_operators_driver_has_left(migrated: Answer) -> None:
    found = migrated(str(EXAMPLES / "gpucluster.yaml"))
    assert found["values"]["nodeSelector"] == {DEPLOYED: "moved-to-tessera"}
    assert found["values"]["dra"] == {"enabled": True, "classes": {"create": False}}
    lines = commands(found)
    left = next(i for i, each in enumerate(lines) if each.startswith("kubectl label nodes"))
    into = next(i for i, each in enumerate(lines) if "helm install" in each)
    assert left < into < len(lines) - 1
    assert "GpuLayout" in lines[-1]


def test_single_nodes_go_over_by_their_label(migrated: Answer) -> None:
    found = migrated(str(EXAMPLES / "gpucluster.yaml"), "--node=gpu-1")
    assert found["values"]["nodeSelector"] == {DEPLOYED: "false"}
    assert f"kubectl label node/gpu-1 --overwrite {DEPLOYED}=false" in commands(found)
    assert not [each for each in commands(found) if "patch gpuclusters" in each]


def test_the_layout_has_the_number_of_gpus_that_slices_tell(migrated: Answer) -> None:
    slices = f"{resource_slice('a', 4)}---\n{resource_slice('b', 8)}"
    last = migrated(str(EXAMPLES / "gpucluster.yaml"), slices__yaml=slices)["steps"][-1]
    assert '"any": 4' in last["command"]
    assert "correct the number" not in last["do"]
    assert "correct the number" in migrated(str(EXAMPLES / "gpucluster.yaml"))["steps"][-1]["do"]


def test_the_charts_values_become_ours(migrated: Answer) -> None:
    found = migrated(str(EXAMPLES / "dra-driver-values.yaml"))
    assert found["values"]["nvidiaDriverRoot"] == "/run/nvidia/driver"
    assert [each["what"] for each in found["lost"]] == ["DRA driver's chart: featureGates[TimeSlicingSettings]"]
    assert "daemonset/nvidia-dra-driver-gpu-kubelet-plugin --namespace=nvidia-dra-driver-gpu" in " ".join(
        commands(found)
    )


@pytest.mark.parametrize(
    ("parameters", "is_lost"),
    [
        ({"kind": "GpuConfig", "sharing": {"strategy": "MPS"}}, False),
        (
            {"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}},
            True,
        ),
        ({"kind": "VfioDeviceConfig"}, True),
        ({"kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}}, False),
    ],
)
def test_a_configuration_that_the_agent_refuses_is_lost(
    migrated: Answer, parameters: dict[str, Any], is_lost: bool
) -> None:
    found = migrated(claims__yaml=template(parameters))
    assert [each["what"] for each in found["lost"]] == ["ResourceClaimTemplate d/t"] * is_lost
    assert ("ResourceClaimTemplate (1)" in {each["what"] for each in found["kept"]}) is not is_lost


def test_compute_domains_stay_nvidias(migrated: Answer) -> None:
    text = "apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\nmetadata: {name: c, namespace: d}\n"
    assert {each["what"] for each in migrated(domain__yaml=text)["kept"]} >= {"ComputeDomain d/c"}


@given(values_of(CLUSTER_SPEC))
def test_values_fit_the_chart_whatever_the_cluster_says(spec: Any) -> None:
    assert not list(misfits(spec, CLUSTER_SPEC))
    body = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "c"}, "spec": spec}
    found = planned(Inputs(gpu_clusters=[Document("c.yaml", 1, body)]))
    found.validate()
    fits_the_chart(found.values)


def test_a_value_that_a_gpu_cluster_does_not_allow_is_a_line_and_exit_2(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    head = "apiVersion: nvidia.com/v1alpha1\nkind: GPUCluster\nmetadata: {name: c}\n"
    file.write_text(f"{head}spec:\n  draDriver:\n    featureGates: {{A: 1}}\n")
    done = run("migrate", str(file))
    assert done.exit_code == 2
    assert f"{file}:6: spec.draDriver.featureGates.A: found 1, expected true or false" in done.stderr
