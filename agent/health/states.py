"""The four states of a device, and what the core says about a change between them."""

from enum import StrEnum

from msgspec import Struct

from agent.health.faults import Fault
from inventory.devices import GpuUuid, MigUuid


class HealthState(StrEnum):
    """Healthy and Suspect are advertised Healthy to kubelet, Unhealthy and Probation are advertised Unhealthy."""

    HEALTHY = "Healthy"
    SUSPECT = "Suspect"
    UNHEALTHY = "Unhealthy"
    PROBATION = "Probation"

    @property
    def advertised_healthy(self) -> bool:
        return self in (HealthState.HEALTHY, HealthState.SUSPECT)


class Transition(Struct, frozen=True, kw_only=True):
    """One device changed state at ``at_s``, after ``age_s`` seconds in the old one.

    ``reason`` is one CamelCase word for Events and metric labels, ``cause`` a sentence for people.
    """

    gpu: GpuUuid
    mig: MigUuid | None
    old: HealthState
    new: HealthState
    reason: str
    cause: str
    at_s: float
    age_s: float


class DeviceHealth(Struct, frozen=True, kw_only=True):
    """How one device stands. ``faults`` are those that touch it, worst first, oldest first among equals."""

    state: HealthState
    since_s: float
    faults: tuple[Fault, ...] = ()
    clean_probes: int = 0
    """Good answers in a row since Probation began."""

    @property
    def advertised_healthy(self) -> bool:
        return self.state.advertised_healthy

    @property
    def reason(self) -> str:
        """What explains the state in a few words; empty when there is nothing to explain."""
        return "; ".join(fault.cause for fault in self.faults)
