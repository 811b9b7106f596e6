"""Opaque configurations of a claim: NVIDIA's kinds, read strictly. Pure.

    parameters of a config, kind of the device -> check(config, kind), or ClaimError with field, found and expected

Where several concern a device the strongest (last) decides; the others must be valid as well. A config without requests
is for the devices of its own kind only; one that names the request of another kind is an error.
Source: resource.nvidia.com/v1beta1, ``GpuConfig`` and ``MigDeviceConfig``.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from agent.config.parsers import MEMORY_MIB, memory_mib
from agent.dra.claim import ClaimError, Config, MpsClient, Taken, parameters
from agent.dra.publishing.devices import DraDevice
from agent.words import claims as words
from yamlfile.parsers import Unfit

API_VERSION: Final = "resource.nvidia.com/v1beta1"
NOT_SERVED: Final = {
    "VfioDeviceConfig": "GPUs are not passed through to virtual machines",
    "ComputeDomainChannelConfig": "ComputeDomains need NVIDIA's own driver",
    "ComputeDomainDaemonConfig": "ComputeDomains need NVIDIA's own driver",
}


class TimeSlicingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    interval: Literal["Default", "Short", "Medium", "Long"] = "Default"


class MpsConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Limits of an MPS daemon: for each client, on every device or on those that are named by UUID or index."""

    default_active_thread_percentage: Annotated[int, Meta(ge=1, le=100)] | None = None
    default_pinned_device_memory_limit: str | None = None
    default_per_device_pinned_memory_limit: dict[str, str] | None = None
    multi_user: bool | None = None


class Sharing(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The way in which the containers of a claim share its GPU."""

    strategy: Literal["TimeSlicing", "MPS"]
    time_slicing_config: TimeSlicingConfig | None = None
    mps_config: MpsConfig | None = None


class MigSharing(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The way in which the containers of a claim share its MIG instance. It has no time slices to set."""

    strategy: Literal["TimeSlicing", "MPS"]
    mps_config: MpsConfig | None = None


class GpuConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api_version: Annotated[str, Meta(max_length=64)]
    kind: Literal["GpuConfig"]
    sharing: Sharing | None = None


class MigDeviceConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api_version: Annotated[str, Meta(max_length=64)]
    kind: Literal["MigDeviceConfig"]
    sharing: MigSharing | None = None


_KINDS: Final[Mapping[str, type[GpuConfig | MigDeviceConfig]]] = {
    "GpuConfig": GpuConfig,
    "MigDeviceConfig": MigDeviceConfig,
}


class MpsLimits(Struct, frozen=True):
    """The limits of each client of a claim's MPS daemon; None: no limit. ``by_device`` is keyed by UUID or index."""

    threads: int | None = None
    memory_mib: int | None = None
    by_device: Mapping[str, int] = {}

    def of(self, uuid: str, place: int) -> int | None:
        """The memory limit in MiB on the device with this UUID, at index ``place`` among the daemon's devices."""
        return self.by_device.get(uuid, self.by_device.get(str(place), self.memory_mib))


def mps_of(configs: Sequence[Config], *, mig: bool) -> tuple[Config, MpsLimits] | None:
    """The config by which MPS is asked for, and its limits; None where no config asks for it. Raises ClaimError, as
    ``check``.
    """
    deciding: tuple[Config, Sharing | MigSharing | None] | None = None
    for config in configs:
        read = check(config, mig=mig)
        if read is not None:
            deciding = config, read.sharing
    if deciding is None or deciding[1] is None or deciding[1].strategy != "MPS":
        return None
    wanted = deciding[1].mps_config or MpsConfig()
    where = f"config of {deciding[0].source}: sharing.mpsConfig"
    by_device = {
        name: _limit(text, f"{where}.defaultPerDevicePinnedMemoryLimit[{name:.80}]")
        for name, text in (wanted.default_per_device_pinned_memory_limit or {}).items()
    }
    every = wanted.default_pinned_device_memory_limit
    limit_mib = None if every is None else _limit(every, f"{where}.defaultPinnedDeviceMemoryLimit")
    return deciding[0], MpsLimits(wanted.default_active_thread_percentage, limit_mib, by_device)


def _limit(text: str, where: str) -> int:
    try:
        return memory_mib(text)
    except Unfit:
        raise ClaimError(words.bad_memory_limit(where, text, MEMORY_MIB.expected)) from None


def check(config: Config, *, mig: bool) -> GpuConfig | MigDeviceConfig | None:
    """The decoded config, or None where it is for another kind of device. ``mig``: the device is a MIG device, else a
    whole GPU.

    Raises ClaimError for a config that is unknown, misspelt, or asks for what is not served.
    """
    body = parameters(config)
    where = f"config of {config.source}"
    kind, version = body.get("kind"), body.get("apiVersion")
    if version != API_VERSION:
        raise ClaimError(words.bad_version(where, version, API_VERSION))
    expected = "MigDeviceConfig" if mig else "GpuConfig"
    if isinstance(kind, str) and kind in NOT_SERVED:
        raise ClaimError(words.kind_not_served(where, kind, expected, NOT_SERVED[kind]))
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ClaimError(words.bad_kind(where, kind, expected))
    try:
        read = msgspec.convert(body, type=known)
    except msgspec.ValidationError as wrong:
        raise ClaimError(words.bad_config(where, kind, str(wrong))) from None
    if config.requests and kind != expected:
        what = "a MIG device" if mig else "a whole GPU"
        raise ClaimError(words.kind_of_another(where, kind, expected, what))
    if kind != expected:
        return None
    if read.sharing is not None:
        _served(read.sharing, f"{where}: sharing")
    return read


def _served(sharing: Sharing | MigSharing, where: str) -> None:
    if sharing.strategy == "MPS":
        if isinstance(sharing, Sharing) and sharing.time_slicing_config is not None:
            raise ClaimError(words.time_slices_with_mps(where))
        if sharing.mps_config is not None and sharing.mps_config.multi_user:
            raise ClaimError(words.users_by_claim(where))
        return
    if sharing.mps_config is not None:
        raise ClaimError(words.mps_with_time_slices(where))
    if isinstance(sharing, MigSharing):
        return
    interval = (sharing.time_slicing_config or TimeSlicingConfig()).interval
    if interval != "Default":
        raise ClaimError(words.interval_not_served(where, interval))


def clients_of(part: Taken, devices: Mapping[str, DraDevice]) -> tuple[MpsClient | None, ...]:
    """The limits of each result's containers under MPS, None where it is not asked for. Raises ClaimError.

    A device watched with admin access has no index among a daemon's devices; each of the others has one.
    """
    groups: list[Config] = []
    places: defaultdict[int, dict[str, int]] = defaultdict(dict)
    clients: list[MpsClient | None] = []
    for result, configs in zip(part.results, part.configs, strict=True):
        device = devices.get(result.device)
        asked = mps_of(configs, mig=device is not None and device.slot is not None)
        if asked is None or device is None or result.admin_access:
            clients.append(None)
            continue
        config, limits = asked
        if config not in groups:
            groups.append(config)
        group = groups.index(config)
        place = places[group].setdefault(device.name, len(places[group]))
        clients.append(MpsClient(group, limits.threads, limits.of(device.gpu, place)))
    return tuple(clients)
