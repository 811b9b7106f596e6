"""A claim as the API server has it: what of it is the driver's, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.dra.answer import cdi_id, claim_of, claim_spec, file_name
from agent.dra.claim import Claim, ClaimError, Config, Opaque, Ref, parameters, read, taken
from agent.dra.configs import check, clients_of, mps_of
from agent.dra.ledger import GivenDevice, Prepared
from agent.dra.publishing.devices import DraDevice
from inventory.devices import GpuUuid

DRIVER = "gpu.nvidia.com"
REF = Ref("team", "mine", "u1")


def result(request: str = "gpu", driver: str = DRIVER, **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": driver, "pool": "node-1", "device": "gpu-0", **more}


def config(source: str, requests: list[str] | None = None, driver: str = DRIVER, **content: Any) -> dict[str, Any]:
    return {"source": source, "requests": requests or [], "opaque": {"driver": driver, "parameters": content}}


def claim(results: list[dict[str, Any]] | None = None, configs: list[dict[str, Any]] | None = None) -> Claim:
    devices = {"results": results or [], "config": configs or []}
    status = {
        "reservedFor": [
            {"resource": "pods", "name": "one", "uid": "p1"},
            {"resource": "pods", "name": "two", "uid": "p2"},
            {"apiGroup": "example.com", "resource": "pods", "name": "three", "uid": "p3"},
            {"resource": "nodes", "name": "four", "uid": "p4"},
        ],
        **({} if results is None else {"allocation": {"devices": devices}}),
    }
    meta = {"name": "mine", "namespace": "team", "uid": "u1", "labels": {"a": "b"}}
    return read(json.dumps({"kind": "ResourceClaim", "metadata": meta, "status": status}).encode())


def test_only_the_drivers_results_are_its_part_and_pods_are_those_it_is_reserved_for() -> None:
    part = taken(REF, claim([result("a"), result("b", "other.example.com"), result("c/sub", shareID="s")]), DRIVER)
    assert [(each.request, each.main_request, each.share_id) for each in part.results] == [
        ("a", "a", ""),
        ("c/sub", "c", "s"),
    ]
    assert part.pods == ("one", "two")


def test_configs_concern_their_requests_and_the_claims_win_over_the_classs() -> None:
    part = taken(
        REF,
        claim(
            [result("a"), result("b/x"), result("b/y")],
            [
                config("FromClaim", n=1),
                config("FromClass", n=2),
                config("FromClaim", ["b"], n=3),
                config("FromClaim", ["b/y"], n=4),
                config("FromClaim", driver="other.example.com", n=5),
            ],
        ),
        DRIVER,
    )
    numbers = [[parameters(each)["n"] for each in configs] for configs in part.configs]
    assert numbers == [[2, 1], [2, 1, 3], [2, 1, 3, 4]]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (claim(None), "ResourceClaim team/mine: status.allocation: found none, expected devices"),
        (
            claim([result(driver="other.example.com")]),
            "ResourceClaim team/mine: status.allocation: found no device of gpu.nvidia.com, expected one at least",
        ),
    ],
)
def test_a_claim_without_a_device_of_ours_is_refused(found: Claim, why: str) -> None:
    with pytest.raises(ClaimError) as refused:
        taken(REF, found, DRIVER)
    assert str(refused.value) == why


def test_another_claim_under_the_same_name_is_refused() -> None:
    with pytest.raises(ClaimError, match="found uid u1, expected u0: the claim was replaced"):
        taken(Ref("team", "mine", "u0"), claim([result()]), DRIVER)


def gpu_config(**more: Any) -> Config:
    content = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **more}
    return Config("FromClaim", (), Opaque(DRIVER, json.dumps(content).encode()))  # type: ignore[arg-type] # as on the wire


@pytest.mark.parametrize(
    "sharing",
    [
        {},
        {"sharing": None},
        {"sharing": {"strategy": "TimeSlicing"}},
        {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}}},
    ],
)
def test_a_gpu_config_that_changes_nothing_is_taken(sharing: dict[str, Any]) -> None:
    check(gpu_config(**sharing), mig=False)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (gpu_config(apiVersion="v1"), "apiVersion: found 'v1', expected resource.nvidia.com/v1beta1"),
        (gpu_config(kind="VfioDeviceConfig"), "kind: found VfioDeviceConfig, expected GpuConfig: GPUs are not passed"),
        (gpu_config(kind="Gpu"), "kind: found 'Gpu', expected GpuConfig"),
        (gpu_config(kind=["GpuConfig"]), "kind: found ['GpuConfig'], expected GpuConfig"),
        (gpu_config(sharin={}), "unknown field `sharin`"),
        (gpu_config(sharing={"strategy": "Magic"}), "Invalid enum value 'Magic' - at `$.sharing.strategy`"),
        (
            gpu_config(sharing={"strategy": "MPS", "timeSlicingConfig": {}}),
            "sharing.timeSlicingConfig: found with strategy MPS, expected none",
        ),
        (
            gpu_config(sharing={"strategy": "MPS", "mpsConfig": {"multiUser": True}}),
            "sharing.mpsConfig.multiUser: found true, expected none: the agent's mps.multiUser says it",
        ),
        (
            gpu_config(sharing={"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 101}}),
            "Expected `int` <= 100 - at `$.sharing.mpsConfig.defaultActiveThreadPercentage`",
        ),
        (gpu_config(sharing={"strategy": "MPS", "mpsConfig": {"threads": 50}}), "unknown field `threads`"),
        (
            gpu_config(sharing={"strategy": "TimeSlicing", "mpsConfig": {}}),
            "sharing.mpsConfig: found with strategy TimeSlicing, expected none",
        ),
        (
            gpu_config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
            "sharing.timeSlicingConfig.interval: found Long, expected Default",
        ),
    ],
)
def test_a_config_that_is_not_served_is_refused_with_field_and_value(found: Config, why: str) -> None:
    with pytest.raises(ClaimError) as refused:
        check(found, mig=False)
    assert why in str(refused.value)
    assert str(refused.value).startswith("config of FromClaim: ")


def mig_config(*requests: str, **more: Any) -> Config:
    found = gpu_config(kind="MigDeviceConfig", **more)
    return Config("FromClaim", requests, found.opaque)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            mig_config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {}}),
            "'MigDeviceConfig': Object contains unknown field `timeSlicingConfig`",
        ),
        (mig_config(sharing={"strategy": "TimeSlicing", "mpsConfig": {}}), "sharing.mpsConfig: found with strategy"),
        (gpu_config(kind="VfioDeviceConfig"), "kind: found VfioDeviceConfig, expected MigDeviceConfig"),
    ],
)
def test_a_mig_devices_config_is_read_as_strictly(found: Config, why: str) -> None:
    with pytest.raises(ClaimError) as refused:
        check(found, mig=True)
    assert why in str(refused.value)


def test_a_config_of_another_kind_of_device_is_passed_over_unless_it_names_the_request() -> None:
    long = {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}}
    check(gpu_config(**long), mig=True)
    check(mig_config(sharing={"strategy": "MPS"}), mig=False)
    check(mig_config(sharing={"strategy": "TimeSlicing"}), mig=True)
    with pytest.raises(ClaimError, match="found MigDeviceConfig, expected GpuConfig: a whole GPU was allocated"):
        check(mig_config("gpu"), mig=False)
    with pytest.raises(ClaimError, match="unknown field"):
        check(mig_config(sharin={}), mig=False)


def test_parameters_that_are_no_object_are_refused() -> None:
    with pytest.raises(ClaimError, match=r"^Opaque parameters of gpu.nvidia.com: "):
        parameters(Config(opaque=Opaque(DRIVER, b"[1]")))  # type: ignore[arg-type] # as on the wire


NODE_SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "k8s.device-plugin.nvidia.com/gpu",
    "devices": [{"name": f"GPU-{n}", "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{n}"}]}} for n in (0, 1)],
    "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
}


def test_a_claims_spec_stands_on_its_own_and_its_ids_have_the_uid() -> None:
    twice = [GivenDevice(request, "node-1", "gpu-1", GpuUuid("GPU-1"), admin=True) for request in ("a", "b")]
    spec = claim_spec(
        DRIVER, Prepared("u1", "team", "mine", tuple(twice)), NODE_SPEC, lambda device: device.gpu, Path("/mps")
    )
    assert spec == {
        "cdiVersion": "0.5.0",
        "kind": "k8s.gpu.nvidia.com/claim",
        "devices": [{"name": "u1-gpu-1", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia1"}]}}],
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }
    assert cdi_id(DRIVER, "u1", twice[0]) == "k8s.gpu.nvidia.com/claim=u1-gpu-1"
    assert file_name(DRIVER, "u1") == "k8s.gpu.nvidia.com-claim_u1.json"
    assert file_name("gpu.example.com", "u1") == "k8s.gpu.example.com-claim_u1.json"
    names = (file_name(DRIVER, "u1"), "k8s.device-plugin.nvidia.com-gpu.json", file_name("gpu.example.com", "u1"))
    assert [claim_of(DRIVER, name) for name in names] == ["u1", None, None]


def mps(**wanted: Any) -> dict[str, Any]:
    return {"sharing": {"strategy": "MPS", "mpsConfig": wanted}}


def test_the_last_config_of_its_kind_says_whether_mps_is_asked_for() -> None:
    asked = gpu_config(
        **mps(
            defaultActiveThreadPercentage=50,
            defaultPinnedDeviceMemoryLimit="10Gi",
            defaultPerDevicePinnedMemoryLimit={"1": "4Gi", "GPU-b": "2Gi"},
        )
    )
    found = mps_of([gpu_config(), asked, mig_config()], mig=False)
    assert found is not None
    config, limits = found
    assert config is asked
    assert (limits.threads, limits.memory_mib) == (50, 10240)
    assert [limits.of(uuid, at) for at, uuid in enumerate(("GPU-a", "GPU-c", "GPU-b"))] == [10240, 4096, 2048]
    assert mps_of([asked, gpu_config()], mig=False) is None
    assert mps_of([asked], mig=True) is None
    assert mps_of([gpu_config(sharing={"strategy": "MPS"})], mig=False) is not None


def test_places_count_the_devices_that_a_claim_holds_and_each_once() -> None:
    names = ("gpu-0", "gpu-1", "gpu-1", "gpu-2")
    asked = mps(defaultPerDevicePinnedMemoryLimit={"0": "1Gi", "1": "2Gi", "2": "4Gi"})
    watched = [result(device="gpu-3", adminAccess=True)]
    opaque = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **asked}
    found = claim([*watched, *(result(device=name) for name in names)], [config("FromClaim", **opaque)])
    devices = {f"gpu-{at}": DraDevice(f"gpu-{at}", GpuUuid(f"GPU-{at}"), {}, {}) for at in range(4)}
    limits = [each and each.memory_mib for each in clients_of(taken(REF, found, DRIVER), devices)]
    assert limits == [None, 1024, 2048, 2048, 4096]


@pytest.mark.parametrize("wrong", ["10", "1k", "much", "-1Gi", ""])
def test_a_memory_limit_that_is_none_is_refused_with_its_field(wrong: str) -> None:
    for wanted, where in (
        ({"defaultPinnedDeviceMemoryLimit": wrong}, "defaultPinnedDeviceMemoryLimit"),
        ({"defaultPerDevicePinnedMemoryLimit": {"0": wrong}}, r"defaultPerDevicePinnedMemoryLimit\[0\]"),
    ):
        with pytest.raises(ClaimError, match=rf"sharing.mpsConfig.{where}: found '{wrong}', expected an amount"):
            mps_of([gpu_config(**mps(**wanted))], mig=False)
