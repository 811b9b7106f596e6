"""Whether a GPU is after its reset what it was before. Pure."""

from collections.abc import Iterator

from msgspec import Struct

from agent.words import repairs as words

_VIRTUAL_HOST = frozenset({2, 3, 4})
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU, HOST_VGPU and HOST_VSGA: a reset of such a GPU is not its user's."""


class GpuFacts(Struct, frozen=True, kw_only=True):
    """What NVML says of one GPU that a reset may spoil; None where this GPU does not tell.

    ``links_down`` are NVLinks that should be up, ``link_mbps`` the rate of those that are (MB/s), ``slowdown_c`` the
    temperature in degrees Celsius at which the GPU slows down, ``pids`` the processes on it.
    """

    memory_mib: int
    recovery_action: int | None = None
    ecc_uncorrected: int | None = None
    links_down: tuple[int, ...] = ()
    link_mbps: int | None = None
    pcie_width: int | None = None
    temperature_c: int | None = None
    slowdown_c: int | None = None
    virtualization: int | None = None
    persistence: bool = False
    pids: tuple[int, ...] = ()

    @property
    def virtual(self) -> bool:
        """Whether the GPU is a virtual one, or shared out as such."""
        return self.virtualization in _VIRTUAL_HOST


def differences(before: GpuFacts, after: GpuFacts) -> Iterator[str]:
    """The faults after the reset, one clause each; none where all is well."""
    if after.recovery_action:
        yield words.action_left(after.recovery_action)
    if after.ecc_uncorrected:
        yield words.errors_left(after.ecc_uncorrected)
    if after.memory_mib != before.memory_mib:
        yield words.memory_differs(after.memory_mib, before.memory_mib)
    if left := sorted(set(after.links_down) - set(before.links_down)):
        yield words.links_left(", ".join(map(str, left)))
    if before.link_mbps is not None and after.link_mbps is not None and after.link_mbps < before.link_mbps:
        yield words.slower(after.link_mbps, before.link_mbps)
    if before.pcie_width is not None and after.pcie_width is not None and after.pcie_width < before.pcie_width:
        yield words.narrower(after.pcie_width, before.pcie_width)
    if after.temperature_c is not None and after.slowdown_c is not None and after.temperature_c >= after.slowdown_c:
        yield words.too_hot(after.temperature_c, after.slowdown_c)
