"""Opaque configurations of a claim: NVIDIA's kinds, read strictly. Pure.

    parameters of a config, kind of the device -> check(config, kind), or ClaimError with field, found and expected

Of several that concern a device the strongest (last) decides; the others must be sound as well. A config without
requests is for the devices of its own kind alone; one that names the request of another kind is an error.
Source: resource.nvidia.com/v1beta1, ``GpuConfig`` and ``MigDeviceConfig``.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from agent.dra.claim import ClaimError, Config, parameters

API_VERSION: Final = "resource.nvidia.com/v1beta1"
NOT_SERVED: Final = {
    "VfioDeviceConfig": "GPUs are not passed through to virtual machines",
    "ComputeDomainChannelConfig": "ComputeDomains need NVIDIA's own driver",
    "ComputeDomainDaemonConfig": "ComputeDomains need NVIDIA's own driver",
}


class TimeSlicingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    interval: Literal["Default", "Short", "Medium", "Long"] = "Default"


class Sharing(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How the containers of a claim share its GPU."""

    strategy: Literal["TimeSlicing", "MPS"]
    time_slicing_config: TimeSlicingConfig | None = None
    mps_config: dict[str, object] | None = None


class MigSharing(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How the containers of a claim share its MIG instance. It has no time slices to set."""

    strategy: Literal["TimeSlicing", "MPS"]
    mps_config: dict[str, object] | None = None


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


def check(config: Config, *, mig: bool) -> None:
    """Raises ClaimError for a config that is unknown, misspelt, or asks for what is not served. ``mig``: it concerns a
    MIG device, else a whole GPU.
    """
    found = parameters(config)
    where = f"config of {config.source}"
    kind, version = found.get("kind"), found.get("apiVersion")
    if version != API_VERSION:
        raise ClaimError(f"{where}: apiVersion: found {version!r:.80}, expected {API_VERSION}")
    expected = "MigDeviceConfig" if mig else "GpuConfig"
    if isinstance(kind, str) and kind in NOT_SERVED:
        raise ClaimError(f"{where}: kind: found {kind}, expected {expected}: {NOT_SERVED[kind]}")
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ClaimError(f"{where}: kind: found {kind!r:.80}, expected {expected}")
    try:
        read = msgspec.convert(found, type=known)
    except msgspec.ValidationError as wrong:
        raise ClaimError(f"{where}: {kind!r:.80}: {wrong}") from None
    if config.requests and kind != expected:
        what = "a MIG device" if mig else "a whole GPU"
        raise ClaimError(f"{where}: kind: found {kind}, expected {expected}: {what} was allocated")
    if read.sharing is not None and kind == expected:
        _served(read.sharing, f"{where}: sharing")


def _served(sharing: Sharing | MigSharing, where: str) -> None:
    if sharing.strategy == "MPS":
        raise ClaimError(f"{where}.strategy: found MPS, expected TimeSlicing: MPS by claim is not served")
    if sharing.mps_config is not None:
        raise ClaimError(f"{where}.mpsConfig: found with strategy TimeSlicing, expected none")
    if isinstance(sharing, MigSharing):
        return
    interval = (sharing.time_slicing_config or TimeSlicingConfig()).interval
    if interval != "Default":
        raise ClaimError(
            f"{where}.timeSlicingConfig.interval: found {interval}, expected Default: "
            "NVML has no call that sets another"
        )
