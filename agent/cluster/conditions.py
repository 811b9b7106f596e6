"""The two conditions of a Node that its agent writes. Pure.

    NodeState, why not ready -> told() -> Told, Told; what the Node has, Told -> merged() -> the conditions to apply

``nvidia.com/GPUReady`` is what node-readiness-controller and schedulers may wait for, ``tessera.dev/GPUsHealthy`` what
people look at: True is well in both.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from agent.health.repairstate import RepairState
from agent.nodestate import NodeState
from agent.words import node as words
from inventory.api.names import GPU_READY, GPUS_HEALTHY
from kube.objects import timestamp

TYPES: Final = (GPU_READY, GPUS_HEALTHY)
MOST_NAMED: Final = 8
"""The most GPUs that are named in a message."""


class Told(Struct, frozen=True, kw_only=True):
    """One condition as it should be; ``holds`` is its status."""

    type: str
    holds: bool
    reason: str
    message: str

    @property
    def status(self) -> str:
        return "True" if self.holds else "False"


def told(node_state: NodeState, unready: str) -> tuple[Told, Told]:
    """The conditions of a node. ``unready``: why not all wanted devices are registered and probed, empty for all."""
    ready = Told(
        type=GPU_READY,
        holds=not unready,
        reason="NotReady" if unready else "Registered",
        message=unready or words.devices_ready(),
    )
    kept_out = {each.repair.gpu for each in node_state.repairs if each.repair.state is not RepairState.PROBATION}
    ill: list[str] = []
    for gpu in node_state.node.gpus:
        parts = [node_state.ailment(gpu.uuid, mig.uuid) for mig in gpu.mig_instances]
        why = node_state.ailment(gpu.uuid) or next(filter(None, parts), "")
        if not why and gpu.uuid in kept_out:
            why = words.in_repair()
        if why:
            ill.append(f"GPU {gpu.index}: {why}")
    more = len(ill) - MOST_NAMED
    message = "; ".join(ill[:MOST_NAMED]) + (words.and_more(more) if more > 0 else "")
    healthy = Told(
        type=GPUS_HEALTHY,
        holds=not ill,
        reason="GPUsUnhealthy" if ill else "AllHealthy",
        message=message or words.gpus_healthy(),
    )
    return ready, healthy


def merged(there: Iterable[Mapping[str, Any]], wanted: Sequence[Told], now_s: float) -> list[dict[str, Any]] | None:
    """The conditions to apply, where the Node has ``there``; None where it has them all. The time of the last
    transition is that of the status.
    """
    known = {each.get("type"): each for each in there}
    conditions: list[dict[str, Any]] = []
    differs = False
    for condition in wanted:
        old = known.get(condition.type, {})
        same = old.get("status") == condition.status
        since = old.get("lastTransitionTime") if same else None
        made = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": since or timestamp(now_s),
        }
        differs |= any(old.get(key) != value for key, value in made.items())
        conditions.append(made)
    return conditions if differs else None
