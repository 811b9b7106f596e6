"""Allocate's answers as plain data: the ids that the kubelet chose come in, one container's edits go out.

Shapes follow the NVIDIA device plugin, so that its container toolkit and CDI runtimes understand them unchanged.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, structs

from deviceplugin.strategy import (
    IMEX_CLASS,
    AllocationSpec,
    DeviceAccess,
    DeviceIdStrategy,
    DeviceListStrategy,
    DeviceNode,
    NodeAccess,
)
from inventory.devices import DeviceId
from inventory.layout.fractions import FractionError, check_granted, is_fractional
from inventory.layout.layout import LogicalDevice, Resource

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
VOLUME_ROOT = "/var/run/nvidia-container-devices"
CDI_VENDOR = "k8s.device-plugin.nvidia.com"
_SHOWN = 80
"""The most characters of an id that an error shows."""


class AllocationError(ValueError):
    """The request cannot be granted: the caller named devices that this resource does not have to give."""


class Mount(Struct, frozen=True):
    container_path: str
    host_path: str
    read_only: bool = False


class Device(Struct, frozen=True):
    container_path: str
    host_path: str
    permissions: str = "rw"


class ContainerAnswer(Struct, frozen=True):
    """The edits of one container: kubelet's ContainerAllocateResponse."""

    envs: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Device, ...] = ()
    annotations: Mapping[str, str] = {}
    cdi_devices: tuple[str, ...] = ()


def cdi_name(cls: str, device: str) -> str:
    """A fully qualified CDI device name: ``k8s.device-plugin.nvidia.com/gpu=<device>``."""
    return f"{CDI_VENDOR}/{cls}={device}"


def granted(
    resource: Resource,
    by_id: Mapping[str, LogicalDevice],
    unhealthy: Mapping[DeviceId, str],
    ids: Sequence[str],
    gpus_asked: Collection[int] = (1,),
) -> tuple[LogicalDevice, ...]:
    """The devices behind ``ids``, each once, checked: known, healthy, and no more replicas than the resource allows.

    Raises AllocationError, in the words of NVIDIA's plugin where it refuses too. ``unhealthy`` maps a device to the
    reason why it is not to be given; ``gpus_asked`` is ``fractions.check_granted``'s.
    """
    devices = []
    for device_id in dict.fromkeys(ids):
        device = by_id.get(device_id)
        if device is None:
            shown = device_id if device_id.isprintable() else ascii(device_id[:_SHOWN])  # up to ten letters for one
            raise _invalid(resource, f"unknown device: {shown[:_SHOWN]}")
        if device.id in unhealthy:
            raise AllocationError(f"device {device.id} is unhealthy: {unhealthy[device.id]}")
        devices.append(device)
    if devices and is_fractional(devices[0]):
        try:
            check_granted(devices, gpus_asked)
        except FractionError as why:
            raise AllocationError(str(why)) from None
    elif len(devices) > 1 and any(_one_at_most(resource, device) for device in devices):
        raise _invalid(
            resource, f"invalid request: maximum request size for shared resources is 1; found {len(devices)}"
        )
    elif len(daemons := {_daemon(device) for device in devices}) > 1:
        raise _invalid(resource, f"found devices of {len(daemons)} MPS daemons, expected one: ask for 1")
    return tuple(devices)


def _invalid(resource: Resource, why: str) -> AllocationError:
    return AllocationError(f'invalid allocation request for "{resource.name}": {why}')


def _one_at_most(resource: Resource, device: LogicalDevice) -> bool:
    alone = device.share is not None and device.share.alone
    return alone or (resource.fail_requests_greater_than_one and device.replica is not None)


def _daemon(device: LogicalDevice) -> str:
    """The MPS daemon that serves the device; empty for none."""
    if device.share is None or not device.share.sharing.needs_mps:
        return ""
    return device.share.together[0] if device.share.together else device.physical_id


def merged(first: ContainerAnswer, envs: Mapping[str, str], mounts: Sequence[Mount]) -> ContainerAnswer:
    """The answer with more variables and mounts, for things that no device list names, such as the pipe of an MPS
    daemon.
    """
    return structs.replace(first, envs={**first.envs, **envs}, mounts=(*first.mounts, *mounts))


def answer(spec: AllocationSpec, access: NodeAccess, devices: Sequence[LogicalDevice], token: str) -> ContainerAnswer:
    """The edits that give a container ``devices``; ``token`` makes the CDI annotation key unique within the pod.

    A request without devices is answered too, as NVIDIA's plugin does: with an empty list.
    """
    physical = tuple(dict.fromkeys(device.physical_id for device in devices))
    names = tuple(_name(spec, access, uuid) for uuid in physical)
    channels = access.channels(spec)
    annotations: dict[str, str] = {}
    qualified = _qualified(spec, access, names, channels)
    if DeviceListStrategy.CDI_ANNOTATIONS in spec.strategies and qualified:
        annotations[f"{spec.cdi_annotation_prefix}nvidia-device-plugin_{token}"] = ",".join(qualified)
    cdi_devices = qualified if DeviceListStrategy.CDI_CRI in spec.strategies else ()
    return ContainerAnswer(
        envs=_envs(spec, names, channels),
        mounts=_mounts(spec, names, channels),
        devices=_device_specs(access, physical, channels) if _passes_device_specs(spec) else (),
        annotations=annotations,
        cdi_devices=cdi_devices,
    )


def _passes_device_specs(spec: AllocationSpec) -> bool:
    # CDI injects the files itself where it is the only strategy; beside others a runtime without CDI may be the one
    # that acts.
    return spec.pass_device_specs and not all(strategy.is_cdi for strategy in spec.strategies)


def _name(spec: AllocationSpec, access: NodeAccess, physical: str) -> str:
    known = access.devices.get(physical)
    return known.index if known is not None and spec.device_id is DeviceIdStrategy.INDEX else physical


def _qualified(
    spec: AllocationSpec, access: NodeAccess, names: Sequence[str], channels: Iterable[int]
) -> tuple[str, ...]:
    return (
        *(cdi_name("gpu", name) for name in names),
        *(cdi_name(IMEX_CLASS, str(channel)) for channel in channels),
        *(cdi_name(cls, "all") for cls in spec.extras if access.extras.get(cls)),
    )


def _envs(spec: AllocationSpec, names: Sequence[str], channels: Iterable[int]) -> dict[str, str]:
    # The legacy runtime and programs in the container read these variables, however the files come in.
    envs = {f"NVIDIA_{cls.upper()}": "enabled" for cls in spec.extras}
    if DeviceListStrategy.ENVVAR in spec.strategies:
        envs[VISIBLE_DEVICES] = ",".join(names)
        if listed := ",".join(map(str, channels)):
            envs["NVIDIA_IMEX_CHANNELS"] = listed
    if DeviceListStrategy.VOLUME_MOUNTS in spec.strategies:
        # Beside envvar this strategy takes the variable over: the path says that the mounts are the list.
        envs[VISIBLE_DEVICES] = VOLUME_ROOT
    return envs


def _mounts(spec: AllocationSpec, names: Sequence[str], channels: Iterable[int]) -> tuple[Mount, ...]:
    if DeviceListStrategy.VOLUME_MOUNTS not in spec.strategies:
        return ()
    paths = [*names, *(f"imex/{channel}" for channel in channels)]
    return tuple(Mount(f"{VOLUME_ROOT}/{path}", "/dev/null") for path in paths)


def _device_specs(
    access: NodeAccess, physical: Sequence[str], channels: Mapping[int, DeviceNode]
) -> tuple[Device, ...]:
    nodes = [node for uuid in physical for node in access.devices.get(uuid, DeviceAccess("")).nodes]
    # MIG instances of one GPU share its node: a container path may stand once only.
    distinct = {node.container_path: node for node in (*access.shared_nodes, *nodes, *channels.values())}
    return tuple(Device(node.container_path, node.host_path) for node in distinct.values())
