"""The parts of the agent that a reload touches: a changed label switch must not end a kubelet stream."""

from enum import StrEnum

import msgspec
from msgspec import Struct

from agent.config.settings import Settings


class Concern(StrEnum):
    """A part of the agent that can take up new settings by itself."""

    LAYOUT = "layout"
    ALLOCATION = "allocation"
    HEALTH = "health"
    REMEDIATION = "remediation"
    LABELS = "labels"
    EVENTS = "events"
    METRICS = "metrics"
    LOGGING = "logging"


_CONCERNS = {
    "layout": Concern.LAYOUT,
    "gpu_layout": Concern.LAYOUT,
    "mig": Concern.LAYOUT,
    "replica_policy": Concern.ALLOCATION,
    "allocation": Concern.ALLOCATION,
    "driver": Concern.ALLOCATION,
    "imex_required": Concern.ALLOCATION,
    "health": Concern.HEALTH,
    "remediation": Concern.REMEDIATION,
    "labels": Concern.LABELS,
    "events": Concern.EVENTS,
    "metrics": Concern.METRICS,
    "logging": Concern.LOGGING,
}
_WITHOUT_EFFECT = frozenset({"fail_on_init_error"})


class Changes(Struct, frozen=True):
    """The difference of two settings. ``restart_needed`` names the settings that keep their old value until the agent
    restarts.
    """

    concerns: frozenset[Concern] = frozenset()
    restart_needed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.concerns or self.restart_needed)


def changed(old: Settings, new: Settings) -> Changes:
    """The parts of the agent that differ between two settings."""
    differing = [
        field.name
        for field in msgspec.structs.fields(Settings)
        if getattr(old, field.name) != getattr(new, field.name) and field.name not in _WITHOUT_EFFECT
    ]
    return Changes(
        frozenset(_CONCERNS[name] for name in differing if name in _CONCERNS),
        tuple(name for name in differing if name not in _CONCERNS),
    )
