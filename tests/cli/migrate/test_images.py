"""A program is known by the last segment of its image and by its command, and a stranger's is nobody's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.migrate.inputs import Image, image_of, is_replaced, system_of
from controller.insight.simulation.documents import Document
from tests.cli.migrate.conftest import Answer
from tests.cli.migrate.manifests import (
    config_manager,
    dra_driver_chart,
    dumped,
    queue_programs,
    static_plugin,
    workload,
)

SHA = f"sha256:{'0' * 64}"


def system(image: str, kind: str = "DaemonSet") -> str | None:
    return system_of(Document("f", 1, workload(kind, "x", "y", {"name": "c", "image": image})))


@pytest.mark.parametrize(
    "image",
    [
        "registry.example.com/infra/node-config-manager:1.4",
        "ghcr.io/k8snetworkplumbingwg/dra-driver-sriov:v1",
        "quay.io/konflux-ci/tekton-kueue:latest",
        "registry.k8s.io/kueue/kueueviz-backend:v0.14.2",
        "docker.io/rocm/k8s-device-plugin:1.31",
        "gke.gcr.io/nvidia-gpu-device-plugin@" + SHA,
        "docker.io/me/dcgm-exporter-dashboards:1",
        "docker.io/me/kai-scheduler-metrics/web:1",
        "",
    ],
)
def test_a_strangers_image_belongs_to_no_system(image: str) -> None:
    assert system(image) is None


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (f"registry.example.com:5000/nvidia/k8s-device-plugin@{SHA}", "plugin"),
        (f"registry.example.com:5000/nvidia/k8s-device-plugin:v0.17.1@{SHA}", "plugin"),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.1", "plugin"),
        ("k8s-device-plugin", "plugin"),
        ("nvcr.io/nvidia/gpu-feature-discovery:v0.8.2", "discovery"),
        ("nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.12.1-ubuntu20.04", "mig"),
        ("registry:5000/k8s/dcgm-exporter", "exporter"),
        ("nvcr.io/nvidia/k8s-dra-driver-gpu:v25.3.0", "claims"),
        ("registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.4.0", "claims"),
        ("registry.k8s.io/kueue/kueue:v0.14.2", "kueue"),
        ("volcanosh/vc-scheduler-arm64:v1.8.2", "volcano"),
        ("ghcr.io/nvidia/kai-scheduler/binder:v0.5.1", "kai"),
    ],
)
def test_an_image_belongs_to_its_system_wherever_it_is_mirrored(image: str, expected: str) -> None:
    assert system(image) == expected


SEGMENT = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)


@given(
    st.lists(SEGMENT, min_size=1, max_size=3),
    st.none() | st.integers(1, 65535),
    st.sampled_from(["", "v1", "1.2-ubi9"]),
    st.sampled_from(["", SHA]),
)
def test_the_parts_of_a_reference_make_the_reference(path: list[str], port: int | None, tag: str, digest: str) -> None:
    repository = "/".join([f"registry.example.com:{port}" if port else "registry", *path])
    reference = repository + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
    assert image_of(reference) == Image(repository, tag, digest)


@pytest.mark.parametrize(
    ("program", "expected"), [("gpu-feature-discovery", "discovery"), ("mps-control-daemon", "mps")]
)
def test_a_config_manager_before_a_program_tells_nothing_of_it(program: str, expected: str) -> None:
    main = {"name": "c", "image": "nvcr.io/nvidia/k8s-device-plugin:v1", "command": [f"/usr/bin/{program}"]}
    found = workload("DaemonSet", "d", "n", config_manager("sidecar", program, "a", once=False), main)
    assert system_of(Document("f", 1, found)) == expected
    alone = workload("DaemonSet", "d", "n", config_manager("sidecar", program, "a", once=False))
    assert system_of(Document("f", 1, alone)) is None


def test_of_nvidias_dra_driver_what_serves_compute_domains_alone_stays() -> None:
    daemons, controller = dra_driver_chart()
    assert is_replaced(Document("f", 1, daemons))
    assert not is_replaced(Document("f", 1, controller))
    daemons["spec"]["template"]["spec"]["containers"].pop()
    assert not is_replaced(Document("f", 1, daemons))


def test_a_plugin_by_its_digest_from_a_registry_with_a_port_is_stopped(migrated: Answer) -> None:
    image = f"registry.example.com:5000/nvidia/k8s-device-plugin@{SHA}"
    found = migrated(d__yaml=dumped(static_plugin(image=image)))
    assert [each for each in found["steps"] if "daemonset/nvidia-device-plugin-daemonset" in each["command"]]


def test_programs_of_strangers_are_left_alone(migrated: Answer) -> None:
    strangers = [
        workload(kind, f"s{index}", "team", {"name": "c", "image": image})
        for index, (kind, image) in enumerate(
            [("DaemonSet", "registry.example.com/infra/node-config-manager:1.4"),
             ("DaemonSet", "ghcr.io/k8snetworkplumbingwg/dra-driver-sriov:v1"),
             ("Deployment", "quay.io/konflux-ci/tekton-kueue:latest")]
        )
    ]  # fmt: skip
    assert migrated(d__yaml=dumped(*strangers))["steps"] == []
    beside = migrated(d__yaml=dumped(*strangers, *queue_programs("kueue"), static_plugin()))
    assert not [each for each in beside["steps"] if "--namespace=team" in each["command"]]
