"""What agents ask for their repairs, and what was granted, in seconds since 1970; read from GpuNodes, and written back.

A GPU has one entry in its node's list of grants, the newest: an older one is of a generation that is over. The list is
the breaker's record (decision 144).
"""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from inventory.api.gpunode import GpuNodeStatus, GrantEntry, RepairEntry, Step, is_granted

DRAIN: Final = "drain"
RESET: Final = "reset"
REBOOT: Final = "reboot"
_ACTIONS: Final = (DRAIN, RESET, REBOOT)
_UNDER_WAY: Final = ("Resetting", "Verifying")
"""States in which a GPU is worked on, whatever was granted."""


class Grant(Struct, frozen=True):
    """The permission for one step of the repair of ``gpu``."""

    gpu: str
    generation: int
    action: str
    granted_s: float


class Ask(Struct, frozen=True):
    """A step that an agent asks for. ``since_s``: when the state of the repair began; 0 where it does not say."""

    node: str
    gpu: str
    generation: int
    action: str
    since_s: float = 0.0

    def is_answered_by(self, grant: Grant | None, now_s: float) -> bool:
        """Whether the agent may act on ``grant`` now."""
        asked = Step(self.gpu, self.generation, self.action)
        return grant is not None and is_granted(
            asked, Step(grant.gpu, grant.generation, grant.action), grant.granted_s, now_s
        )


class NodeRepairs(Struct, frozen=True, kw_only=True):
    """The repairs of one node, of its ``gpus`` GPUs. ``under_way``: since when, by GPU that is worked on. ``grants``:
    by GPU. ``lifted_s``: when a person lifted the breaker of nodes of no flavor here, 0 for never.
    """

    gpus: int = 0
    asks: tuple[Ask, ...] = ()
    under_way: Mapping[str, float] = {}
    grants: Mapping[str, Grant] = {}
    lifted_s: float = 0.0

    @property
    def is_idle(self) -> bool:
        return not (self.asks or self.under_way or self.grants)


def node_repairs(node: str, status: GpuNodeStatus, lifted_s: float = 0.0) -> NodeRepairs:
    """The repairs that a GpuNode tells of. The last entry of a GPU counts, should there be two."""
    repairs = {repair.gpu: repair for repair in status.repairs}
    return NodeRepairs(
        gpus=len(status.devices),
        asks=tuple(_ask(node, repair) for repair in repairs.values() if repair.asks in _ACTIONS),
        under_way={gpu: _since_s(repair) for gpu, repair in repairs.items() if repair.state in _UNDER_WAY},
        grants=newest(_grant(entry) for entry in status.remediation_grants),
        lifted_s=lifted_s,
    )


def _ask(node: str, repair: RepairEntry) -> Ask:
    return Ask(node, repair.gpu, repair.generation, repair.asks, _since_s(repair))


def _since_s(repair: RepairEntry) -> float:
    return repair.since.timestamp() if repair.since is not None else 0.0


def _grant(entry: GrantEntry) -> Grant:
    return Grant(entry.gpu, entry.generation, entry.action, entry.granted.timestamp())


def moment_s(now_s: float) -> float:
    """``now_s`` as it is written: whole milliseconds, which are read back as the same number."""
    return math.floor(now_s * 1000) / 1000


def rfc3339(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def newest(grants: Iterable[Grant]) -> dict[str, Grant]:
    """The newest grant of each GPU."""
    newest_of: dict[str, Grant] = {}
    for grant in grants:
        before = newest_of.get(grant.gpu)
        if before is None or (before.granted_s, before.generation) < (grant.granted_s, grant.generation):
            newest_of[grant.gpu] = grant
    return newest_of


def entries(grants: Iterable[Grant]) -> list[GrantEntry]:
    """The list as it is written, the oldest first."""
    return [
        GrantEntry(
            gpu=grant.gpu,
            generation=grant.generation,
            action=grant.action,
            granted=datetime.fromtimestamp(grant.granted_s, UTC),
        )
        for grant in sorted(grants, key=lambda grant: (grant.granted_s, grant.gpu))
    ]
