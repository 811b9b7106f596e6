"""Opaque configurations of a claim: NVIDIA's kinds, read strictly. Pure.

    parameters of a config -> check(config), or ClaimError with field, found and expected

Of several that concern a device the strongest (last) decides; the others must be sound as well.
Source: resource.nvidia.com/v1beta1, ``GpuConfig`` and ``MigDeviceConfig``.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from agent.dra.claim import ClaimError, Config, parameters

API_VERSION: Final = "resource.nvidia.com/v1beta1"
NOT_SERVED: Final = {
    "MigDeviceConfig": "MIG devices are not given out by claim",
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


class GpuConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    api_version: Annotated[str, Meta(max_length=64)]
    kind: Literal["GpuConfig"]
    sharing: Sharing | None = None


def check(config: Config) -> None:
    """Raises ClaimError for a config that is unknown, misspelt, or asks for what is not served."""
    found = parameters(config)
    where = f"config of {config.source}"
    kind, version = found.get("kind"), found.get("apiVersion")
    if version != API_VERSION:
        raise ClaimError(f"{where}: apiVersion: found {version!r:.80}, expected {API_VERSION}")
    if kind in NOT_SERVED:
        raise ClaimError(f"{where}: kind: found {kind}, expected GpuConfig: {NOT_SERVED[str(kind)]}")
    try:
        gpu = msgspec.convert(found, type=GpuConfig)
    except msgspec.ValidationError as wrong:
        raise ClaimError(f"{where}: {kind!r:.80}: {wrong}") from None
    _served(gpu.sharing, f"{where}: sharing")


def _served(sharing: Sharing | None, where: str) -> None:
    if sharing is None:
        return
    if sharing.strategy == "MPS":
        raise ClaimError(f"{where}.strategy: found MPS, expected TimeSlicing: MPS by claim is not served")
    if sharing.mps_config is not None:
        raise ClaimError(f"{where}.mpsConfig: found with strategy TimeSlicing, expected none")
    interval = (sharing.time_slicing_config or TimeSlicingConfig()).interval
    if interval != "Default":
        raise ClaimError(
            f"{where}.timeSlicingConfig.interval: found {interval}, expected Default: "
            "NVML has no call that sets another"
        )
