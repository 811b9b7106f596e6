"""What a container is told: every device list strategy, alone and combined."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from deviceplugin.answer import (
    AllocationError,
    ContainerAnswer,
    Device,
    Mount,
    answer,
    cdi_name,
    granted,
)
from deviceplugin.strategy import (
    AllocationSpec,
    DeviceAccess,
    DeviceIdStrategy,
    DeviceListStrategy,
    DeviceNode,
    NodeAccess,
)
from inventory.devices import DeviceId, GpuUuid
from inventory.layout.layout import LogicalDevice, Resource, Share
from inventory.layout.sharing import SharingMode
from tests.support.deviceplugin.views import EXTRAS, access_of, gpus, mixture, null_node, shared
from tests.support.inventory.builders import instances, replicas, uuid, whole

ENVVAR = DeviceListStrategy.ENVVAR
VOLUME_MOUNTS = DeviceListStrategy.VOLUME_MOUNTS
CDI_ANNOTATIONS = DeviceListStrategy.CDI_ANNOTATIONS
CDI_CRI = DeviceListStrategy.CDI_CRI

STRATEGIES = st.lists(st.sampled_from(DeviceListStrategy), min_size=1, unique=True).map(tuple)
SPECS = st.builds(
    AllocationSpec,
    strategies=STRATEGIES,
    device_id=st.sampled_from(DeviceIdStrategy),
    pass_device_specs=st.booleans(),
    gdrcopy=st.booleans(),
    gds=st.booleans(),
    mofed=st.booleans(),
    imex_channels=st.sampled_from([(), (0,), (0, 3)]),
)
DEVICES = st.lists(st.sampled_from(mixture()), min_size=1, unique=True)


def tell(spec: AllocationSpec, devices: Sequence[LogicalDevice]) -> ContainerAnswer:
    return answer(spec, access_of(devices), devices, "token")


def by_id(resource: Resource) -> dict[str, LogicalDevice]:
    return {device.id: device for device in resource.devices}


def grant(resource: Resource, *ids: str, unhealthy: dict[str, str] | None = None) -> tuple[LogicalDevice, ...]:
    bad = {DeviceId(one): why for one, why in (unhealthy or {}).items()}
    return granted(resource, by_id(resource), bad, ids)


# One strategy at a time.


def test_envvar_lists_the_uuids_in_the_order_kubelet_asked() -> None:
    assert tell(AllocationSpec(), [whole(2), whole(0)]) == ContainerAnswer(
        envs={"NVIDIA_VISIBLE_DEVICES": "GPU-02,GPU-00"}
    )


def test_envvar_names_imex_channels_in_a_variable() -> None:
    assert tell(AllocationSpec(imex_channels=(0, 4)), [whole(0)]).envs == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-00",
        "NVIDIA_IMEX_CHANNELS": "0,4",
    }


def test_volume_mounts_lists_devices_as_mounts_of_dev_null() -> None:
    spec = AllocationSpec(strategies=(VOLUME_MOUNTS,), imex_channels=(0,))
    root = "/var/run/nvidia-container-devices"
    assert tell(spec, [whole(0), whole(1)]) == ContainerAnswer(
        envs={"NVIDIA_VISIBLE_DEVICES": root},
        mounts=(
            Mount(f"{root}/GPU-00", "/dev/null"),
            Mount(f"{root}/GPU-01", "/dev/null"),
            Mount(f"{root}/imex/0", "/dev/null"),
        ),
    )


def test_cdi_cri_names_qualified_devices() -> None:
    spec = AllocationSpec(strategies=(CDI_CRI,), imex_channels=(0,), gdrcopy=True, gds=True, mofed=True)
    vendor = "k8s.device-plugin.nvidia.com"
    assert tell(spec, [whole(0)]) == ContainerAnswer(
        envs={"NVIDIA_GDRCOPY": "enabled", "NVIDIA_GDS": "enabled", "NVIDIA_MOFED": "enabled"},
        cdi_devices=(
            f"{vendor}/gpu=GPU-00",
            f"{vendor}/imex-channel=0",
            f"{vendor}/gdrcopy=all",
            f"{vendor}/gds=all",
            f"{vendor}/mofed=all",
        ),
    )


def test_cdi_annotations_puts_the_same_names_under_one_key() -> None:
    spec = AllocationSpec(strategies=(CDI_ANNOTATIONS,), gds=True, cdi_annotation_prefix="x.example/")
    assert tell(spec, [whole(0), whole(1)]) == ContainerAnswer(
        envs={"NVIDIA_GDS": "enabled"},
        annotations={
            "x.example/nvidia-device-plugin_token": ",".join(
                [cdi_name("gpu", "GPU-00"), cdi_name("gpu", "GPU-01"), cdi_name("gds", "all")]
            )
        },
    )


# Combinations.


def test_volume_mounts_beside_envvar_takes_over_the_variable_and_keeps_the_imex_one() -> None:
    told = tell(AllocationSpec(strategies=(ENVVAR, VOLUME_MOUNTS), imex_channels=(0,)), [whole(0)])
    assert told.envs == {
        "NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices",
        "NVIDIA_IMEX_CHANNELS": "0",
    }
    assert [mount.container_path.rpartition("/")[2] for mount in told.mounts] == ["GPU-00", "0"]


@given(SPECS, DEVICES)
def test_each_channel_carries_something_exactly_when_its_strategy_is_chosen(
    spec: AllocationSpec, devices: list[LogicalDevice]
) -> None:
    told = tell(spec, devices)
    chosen = set(spec.strategies)
    assert bool(told.annotations) == (CDI_ANNOTATIONS in chosen)
    assert bool(told.cdi_devices) == (CDI_CRI in chosen)
    assert bool(told.mounts) == (VOLUME_MOUNTS in chosen)
    assert ("NVIDIA_VISIBLE_DEVICES" in told.envs) == bool({ENVVAR, VOLUME_MOUNTS} & chosen)
    assert bool(told.devices) == (spec.pass_device_specs and bool({ENVVAR, VOLUME_MOUNTS} & chosen))


@given(SPECS, DEVICES)
def test_every_channel_names_the_same_distinct_physical_devices(
    spec: AllocationSpec, devices: list[LogicalDevice]
) -> None:
    told = tell(spec, devices)
    expected = list(dict.fromkeys(device.physical_id for device in devices))
    if spec.device_id is DeviceIdStrategy.INDEX:
        expected = [access_of(devices).devices[one].index for one in expected]
    prefix = cdi_name("gpu", "")
    named = [[name.removeprefix(prefix) for name in told.cdi_devices if name.startswith(prefix)]]
    named += [
        [name.removeprefix(prefix) for name in value.split(",") if name.startswith(prefix)]
        for value in told.annotations.values()
    ]
    named += [
        [mount.container_path.rpartition("/")[2] for mount in told.mounts if "/imex/" not in mount.container_path]
    ]
    if VOLUME_MOUNTS not in spec.strategies:
        named += [told.envs.get("NVIDIA_VISIBLE_DEVICES", "").split(",")]
    lists = [names for names in named if names not in ([], [""])]
    assert lists
    assert all(names == expected for names in lists)


@given(SPECS, DEVICES, st.sets(st.sampled_from(sorted(EXTRAS))))
def test_features_are_switched_on_by_variables_always_and_named_where_the_host_has_them(
    spec: AllocationSpec, devices: list[LogicalDevice], there: set[str]
) -> None:
    access = access_of(devices, extras={cls: EXTRAS[cls] for cls in there})
    told = answer(spec, access, devices, "token")
    for feature in ("gdrcopy", "gds", "mofed"):
        wanted = getattr(spec, feature)
        assert told.envs.get(f"NVIDIA_{feature.upper()}") == ("enabled" if wanted else None)
        if CDI_CRI in spec.strategies:
            assert (cdi_name(feature, "all") in told.cdi_devices) == (wanted and feature in there)


@given(SPECS, DEVICES)
def test_an_imex_channel_that_is_not_there_leaves_no_trace(spec: AllocationSpec, devices: list[LogicalDevice]) -> None:
    told = answer(spec, access_of(devices, extras={}), devices, "token")
    without = answer(structs.replace(spec, imex_channels=()), access_of(devices, extras={}), devices, "token")
    assert told == without
    assert "imex" not in repr(told).lower()


@given(SPECS, DEVICES)
def test_no_path_and_no_name_stands_twice(spec: AllocationSpec, devices: list[LogicalDevice]) -> None:
    told = tell(spec, devices)
    for names in (
        [device.container_path for device in told.devices],
        [mount.container_path for mount in told.mounts],
        list(told.cdi_devices),
    ):
        assert len(set(names)) == len(names)


@given(SPECS, DEVICES)
def test_every_annotation_key_is_one_the_api_server_takes(spec: AllocationSpec, devices: list[LogicalDevice]) -> None:
    for key in answer(spec, access_of(devices), devices, "0123456789abcdef").annotations:
        prefix, _, name = key.partition("/")
        assert prefix == "cdi.k8s.io"
        assert re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", name)


# What a device is called, and its files.


def test_replicas_of_one_gpu_are_one_device() -> None:
    told = tell(AllocationSpec(), [*replicas(1, 3), *replicas(0, 2)])
    assert told.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-01,GPU-00"


def test_index_strategy_names_gpus_and_instances_by_index() -> None:
    told = tell(
        AllocationSpec(device_id=DeviceIdStrategy.INDEX, strategies=(ENVVAR, CDI_CRI)), [whole(3), instances(5, 2)[1]]
    )
    assert told.envs["NVIDIA_VISIBLE_DEVICES"] == "3,5:1"
    assert told.cdi_devices == (cdi_name("gpu", "3"), cdi_name("gpu", "5:1"))


def test_a_device_without_known_access_goes_by_its_uuid() -> None:
    spec = AllocationSpec(device_id=DeviceIdStrategy.INDEX, pass_device_specs=True)
    told = answer(spec, NodeAccess(), [whole(3)], "token")
    assert told == ContainerAnswer(envs={"NVIDIA_VISIBLE_DEVICES": "GPU-03"})


def test_device_specs_are_the_shared_nodes_and_the_devices_own() -> None:
    access = access_of([whole(0), whole(1)], shared_nodes=("/dev/nvidiactl", "/dev/nvidia-uvm"))
    told = answer(AllocationSpec(pass_device_specs=True), access, [whole(1)], "token")
    assert told.devices == (
        Device("/dev/nvidiactl", "/host/dev/nvidiactl", "rw"),
        Device("/dev/nvidia-uvm", "/host/dev/nvidia-uvm", "rw"),
        Device("/dev/nvidia1", "/host/dev/nvidia1", "rw"),
    )


def test_instances_of_one_gpu_share_its_node_and_bring_their_capabilities() -> None:
    told = tell(AllocationSpec(pass_device_specs=True), instances(1, 2))
    assert [device.container_path for device in told.devices] == [
        "/dev/nvidiactl",
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap101",
        "/dev/nvidia-caps/nvidia-cap102",
        "/dev/nvidia-caps/nvidia-cap103",
        "/dev/nvidia-caps/nvidia-cap104",
    ]


def test_device_specs_bring_the_imex_channels_that_are_there() -> None:
    told = tell(AllocationSpec(pass_device_specs=True, imex_channels=(0,)), [whole(0)])
    assert told.devices[-1] == Device("/dev/nvidia-caps-imex-channels/channel0", "/dev/null", "rw")


def test_device_specs_leave_display_files_to_cdi() -> None:
    own = DeviceAccess("0", (null_node("/dev/nvidia0"),), (null_node("/dev/dri/card0"),))
    told = answer(AllocationSpec(pass_device_specs=True), NodeAccess({"GPU-00": own}), [whole(0)], "token")
    assert [device.container_path for device in told.devices] == ["/dev/nvidia0"]


def test_a_container_path_is_never_given_two_hosts() -> None:
    access = NodeAccess(
        devices=access_of([whole(0)]).devices, shared_nodes=(DeviceNode("/elsewhere/nvidia0", "/dev/nvidia0"),)
    )
    told = answer(AllocationSpec(pass_device_specs=True), access, [whole(0)], "token")
    assert [device.container_path for device in told.devices] == ["/dev/nvidia0"]


# Whether it is granted at all.


def test_devices_are_granted_in_the_order_asked() -> None:
    assert [device.id for device in grant(gpus(4), "GPU-02", "GPU-00")] == ["GPU-02", "GPU-00"]


def test_an_empty_request_is_granted_and_answered_with_an_empty_list() -> None:
    assert grant(gpus(2)) == ()
    assert grant(shared(2, 2, one_at_most=True)) == ()
    assert tell(AllocationSpec(), []) == ContainerAnswer(envs={"NVIDIA_VISIBLE_DEVICES": ""})
    assert tell(AllocationSpec(strategies=(CDI_ANNOTATIONS, CDI_CRI)), []) == ContainerAnswer()


def test_an_unknown_device_is_refused_by_name() -> None:
    with pytest.raises(
        AllocationError, match=r'invalid allocation request for "nvidia\.com/gpu": unknown device: GPU-77$'
    ):
        grant(gpus(2), "GPU-00", "GPU-77")


def test_a_replica_that_is_not_advertised_is_unknown() -> None:
    with pytest.raises(AllocationError, match="unknown device: GPU-00::9"):
        grant(shared(1, 4), "GPU-00::9")


def test_an_id_that_stands_twice_is_one_device() -> None:
    assert [device.id for device in grant(gpus(2), "GPU-00", "GPU-00")] == ["GPU-00"]
    assert grant(shared(2, 2, one_at_most=True), "GPU-00::0", "GPU-00::0")


def test_an_unhealthy_device_is_refused_with_its_reason_and_its_neighbour_is_not() -> None:
    with pytest.raises(AllocationError, match="device GPU-01 is unhealthy: XID 79"):
        grant(gpus(2), "GPU-01", unhealthy={"GPU-01": "XID 79"})
    assert grant(gpus(2), "GPU-00", unhealthy={"GPU-01": "XID 79"})


def test_more_than_one_replica_is_refused_where_the_config_says_so() -> None:
    with pytest.raises(AllocationError, match=r"invalid request: maximum request size .* is 1; found 2$"):
        grant(shared(2, 2, one_at_most=True), "GPU-00::0", "GPU-01::0")
    assert grant(shared(2, 2, one_at_most=True), "GPU-00::1")
    assert grant(shared(2, 2), "GPU-00::0", "GPU-00::1")


def test_unshared_devices_of_a_resource_that_also_has_replicas_may_be_asked_for_together() -> None:
    mixed = Resource(shared(1, 2).name, (whole(2), whole(3), *replicas(0, 2)), shared(1, 2).sharing, True)
    assert len(grant(mixed, "GPU-02", "GPU-03")) == 2
    with pytest.raises(AllocationError):
        grant(mixed, "GPU-02", "GPU-00::0")


def test_replicas_of_two_mps_daemons_are_not_granted_together() -> None:
    share, both = Share(SharingMode.MPS), Share(SharingMode.MPS, together=(GpuUuid("GPU-00"), GpuUuid("GPU-01")))

    def offered(share: Share) -> Resource:
        devices = (structs.replace(device, share=share) for device in (*replicas(0, 2), *replicas(1, 2)))
        return Resource(shared(1, 2).name, tuple(devices), SharingMode.MPS)

    assert grant(offered(both), "GPU-00::0", "GPU-01::1")
    assert grant(offered(share), "GPU-00::0", "GPU-00::1")
    with pytest.raises(AllocationError, match="found devices of 2 MPS daemons, expected one"):
        grant(offered(share), "GPU-00::0", "GPU-01::1")


@example(["\U00010000" * 100])
@given(st.lists(st.text(max_size=300) | st.sampled_from([uuid(i) for i in range(4)]), max_size=6))
def test_any_request_is_granted_exactly_or_refused_in_one_short_line(ids: list[str]) -> None:
    if set(ids) <= {"GPU-00", "GPU-01", "GPU-02"}:
        granted = [device.id for device in grant(gpus(4), *ids, unhealthy={"GPU-03": "lost"})]
        assert granted == list(dict.fromkeys(ids))
        return
    with pytest.raises(AllocationError) as refused:
        grant(gpus(4), *ids, unhealthy={"GPU-03": "lost"})
    assert len(str(refused.value)) < 200
