"""Prepares nodes whose repair wants a reboot, live, and says so where an agent is away.

GpuNodes, Nodes, agents' pods -> controller.reconcile.repairs.maintenance -> taint, conditions, RebootNode

A Node is read as JSON before it is changed, and the patch is tied to the version that was read: taints and conditions
are replaced as whole lists, and the typed copy lacks fields of theirs. That is rare: a node that is to be rebooted, or
that is lost.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import AGENT_PODS, GPU_NODES, NODES
from controller.cluster.writing.stampedwrites import stamped_write, why_not
from controller.messages import repairs as words
from controller.messages.spans import exact
from controller.objects.core import Node
from controller.objects.decode import GpuNode
from controller.objects.meta import find_condition
from controller.reconcile.repairs.agentpods import AWAY_S, AgentPods
from controller.reconcile.repairs.grants import REBOOT, node_repairs
from controller.reconcile.repairs.maintenance import AWAY, conditions_due, reboot_name, taints_due
from controller.reconcile.repairs.repairs_shell import about_node
from failpoints.names import Failpoint
from inventory.api.names import GPU_READY, GPUS_HEALTHY, MAINTENANCE_PLANNED, REPAIR_TAINT
from kube.client import Client
from kube.clock import Clock, Turns
from kube.errors import KubeError, NotFoundError
from kube.objects import ObjectReference, timestamp
from kube.reading.reflector import Added, Changed, Removed
from kube.resources import Resource
from kube.writing.writes import Abandoned, Conflicted, Missing, Outcome, Verb, Write, Written

log = logging.getLogger(__name__)

REBOOTS: Final = Resource("janitor.dgxc.nvidia.com", "v1alpha1", "rebootnodes", "RebootNode")
_TOGETHER_S: Final = 0.2
_AGAIN_S: Final = 1.0
_SERVED_S: Final = 60.0
"""The time after which a kind that was not served is tried again."""
_LOOK_S: Final = 30.0
_LOOKS: Final = 2
"""A RebootNode that is taken back is looked for twice, so much apart: its creation may have been on its way."""


class _Gpus(Struct, frozen=True, kw_only=True):
    """What a GpuNode says of its node. ``reboot``: the message about the GPU whose repair asks for a reboot, with
    ``is_granted``; empty where none does. ``is_held``: some container holds a device.
    """

    reboot: str = ""
    is_granted: bool = False
    is_held: bool = False


class MaintenanceController:
    """``hear`` takes changes of GpuNodes, Nodes and the pods of agents in ``own_namespace``; ``run``, from when all of
    them are known, works until cancelled. ``tell`` records an Event: about what, type, reason, note.
    """

    def __init__(
        self,
        client: Client,
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        own_namespace: str,
        clock: Clock,
        tell: Callable[[ObjectReference, str, str, str], None],
    ) -> None:
        self._client = client
        self._put = put
        self._clock = clock
        self._tell = tell
        self._turns = Turns(clock, together_s=_TOGETHER_S)
        self._gpus: dict[str, _Gpus] = {}
        """GpuNodes that ask for a reboot."""
        self._agents: set[str] = set()
        """Names of GpuNodes."""
        self._gone: set[str] = set()
        """Names of GpuNodes that were there in this term."""
        self._without_s: dict[str, float] = {}
        """When nodes that had no GpuNode in this term were first seen with a condition of an agent's."""
        self._nodes: dict[str, Node] = {}
        """Nodes that have our taint, or a condition of the agent's or of ours; others have nothing to be changed."""
        self._pods = AgentPods(own_namespace)
        self._dirty: set[str] = set()
        self._due_s: dict[str, float] = {}
        """Nodes without an agent that runs, and when that will count."""
        self._asked: set[str] = set()
        """Nodes whose RebootNode is there, or cannot be."""
        self._looks: dict[str, int] = {}
        """How often no RebootNode was found of nodes whose repair is over: one may still come, by a former leader."""
        self._said_away: dict[str, tuple[str, object]] = {}
        self._not_served_until_s = 0.0

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == GPU_NODES:
                self._hear_gpus(key.name, entry.object)
            case Removed(key=key) if observed.resource == GPU_NODES:
                self._agents.discard(key.name)
                self._gone.add(key.name)
                self._note(key.name, None)
                self._dirty.add(key.name)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == NODES:
                self._hear_node(key.name, entry.object)
            case Removed(key=key) if observed.resource == NODES:
                self._nodes.pop(key.name, None)
                self._without_s.pop(key.name, None)
                self._pods.forget(key.name)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == AGENT_PODS:
                self._dirty |= self._pods.set_pod(key.namespace, key.name, entry.object, self._clock.wall())
            case Removed(key=key) if observed.resource == AGENT_PODS:
                self._dirty |= self._pods.set_pod(key.namespace, key.name, None, self._clock.wall())
            case _:
                return
        if self._dirty:
            self._turns.wake()

    def _hear_gpus(self, name: str, node: GpuNode) -> None:
        if name not in self._agents:
            self._agents.add(name)
            self._gone.discard(name)
            self._without_s.pop(name, None)
            self._dirty.add(name)
        repairs = node_repairs(name, node.status)
        ask = next((ask for ask in repairs.asks if ask.action == REBOOT), None)
        if ask is None:
            self._note(name, None)
            return
        grant = repairs.grants.get(ask.gpu)
        causes = {repair.gpu: repair.cause for repair in node.status.repairs}
        gpus = _Gpus(
            reboot=words.reboot_planned(ask.gpu, causes.get(ask.gpu, "")),
            is_granted=grant is not None and ask.is_answered_by(grant, grant.granted_s),
            is_held=bool(node.status.holders),
        )
        self._note(name, gpus)

    def _note(self, name: str, found: _Gpus | None) -> None:
        if self._gpus.get(name) == found:
            return
        if found is None:
            del self._gpus[name]
        else:
            self._gpus[name] = found
        self._dirty.add(name)

    def _hear_node(self, name: str, node: Node) -> None:
        types = {condition.type for condition in node.status.conditions}
        tainted = any(taint.key == REPAIR_TAINT for taint in node.spec.taints)
        if tainted or not types.isdisjoint({MAINTENANCE_PLANNED, GPU_READY, GPUS_HEALTHY}):
            self._nodes[name] = node
        else:
            self._nodes.pop(name, None)
        if name in self._nodes or name in self._gpus:
            self._dirty.add(name)

    # -- the work ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            await self._turns.next(min(self._due_s.values(), default=None))
            now_s = self._clock.wall()
            for name in [name for name, due_s in self._due_s.items() if due_s <= now_s]:
                del self._due_s[name]
                self._dirty.add(name)
            for name in sorted(self._dirty):
                self._dirty.discard(name)
                try:
                    await self._reconcile(name)
                except KubeError as error:
                    log.warning("node %s: what it says about repairs cannot be written, trying on: %s", name, error)
                    self._later(name)

    def _later(self, name: str, after_s: float = _AGAIN_S) -> None:
        self._dirty.add(name)
        self._turns.again(after_s)

    def _planned(self, name: str) -> str:
        """The message of MaintenancePlanned; empty where no reboot is wanted, or none was granted yet."""
        gpus, node = self._gpus.get(name), self._nodes.get(name)
        tainted = node is not None and any(taint.key == REPAIR_TAINT for taint in node.spec.taints)
        return gpus.reboot if gpus is not None and (gpus.is_granted or tainted) else ""

    def _away(self, name: str) -> tuple[str, object]:
        """Why the agent's conditions are not known, empty where they are; and since when. It is written once for each
        time: an agent that is there after all says its conditions again, and has the last word.
        """
        node = self._nodes.get(name)
        ready = find_condition(node.status.conditions, "Ready") if node is not None else None
        if name in self._agents and ready is not None and ready.status == "Unknown":
            return words.node_unreachable(), ready.last_transition_time
        if name in self._gone:
            return words.no_gpunode(), None
        if node is None:
            return "", None
        return self._dead(name) if name in self._agents else self._without(name, node)

    def _without(self, name: str, node: Node) -> tuple[str, object]:
        """``_away`` of a node that had no GpuNode yet in this term: it has had one where it has a condition that an
        agent alone writes. A new agent says its conditions before its GpuNode, so that this waits.
        """
        now_s = self._clock.wall()
        if find_condition(node.status.conditions, GPUS_HEALTHY) is None:
            return "", None
        due_s = self._without_s.setdefault(name, now_s) + AWAY_S
        if now_s < due_s:
            self._due_s[name] = due_s
            return "", None
        return words.no_gpunode(), None

    def _dead(self, name: str) -> tuple[str, object]:
        """``_away`` of a node that is there: its agent alone may have ended."""
        now_s = self._clock.wall()
        since_s = self._pods.missing_since_s(name, now_s)
        if since_s is None:
            self._due_s.pop(name, None)
        elif now_s < since_s + AWAY_S:
            self._due_s[name] = since_s + AWAY_S
        else:
            return words.no_agent_runs(exact(AWAY_S)), since_s
        return "", None

    async def _reconcile(self, name: str) -> None:
        planned, (away, since) = self._planned(name), self._away(name)
        if not away:
            self._said_away.pop(name, None)
        elif self._said_away.get(name) == (away, since):
            away = ""
        node = self._nodes.get(name)
        taints = [] if node is None else [{"key": taint.key} for taint in node.spec.taints]
        conditions = [] if node is None else [msgspec.to_builtins(each) for each in node.status.conditions]
        is_tainted = taints_due(taints, wanted=bool(planned)) is None
        said = conditions_due(conditions, planned=planned, away=away, now="") is None
        if not is_tainted or not said:
            await self._write(name, planned, away)
            if away and name not in self._dirty:
                self._said_away[name] = away, since
        await self._reboot(name, planned)

    async def _write(self, name: str, planned: str, away: str) -> None:
        """Reads the Node and writes its taints, then its conditions. Raises KubeError."""
        try:
            raw: dict[str, Any] = await self._client.get(NODES, name, dict)
        except NotFoundError:
            return
        meta = raw["metadata"]
        tied = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        taints = taints_due(raw.get("spec", {}).get("taints") or [], wanted=bool(planned))
        if taints is not None:
            outcome = await self._put(self._patch(name, {"metadata": tied, "spec": {"taints": taints}}))
            if not isinstance(outcome, Written) or outcome.object is None:
                self._not_written(name, outcome)
                return
            tied["resourceVersion"] = outcome.object.metadata.resource_version
        given = raw.get("status", {}).get("conditions") or []
        conditions = conditions_due(given, planned=planned, away=away, now=timestamp(self._clock.wall()))
        if conditions is None:
            return
        outcome = await self._put(self._patch_status(name, {"metadata": tied, "status": {"conditions": conditions}}))
        if not isinstance(outcome, Written):
            self._not_written(name, outcome)
        elif planned and taints is not None:
            self._tell(about_node(name), "Warning", MAINTENANCE_PLANNED, planned)

    def _patch(self, name: str, body: dict[str, Any]) -> Write[Any]:
        return stamped_write(Verb.MERGE_PATCH, NODES, {"name": name}, body, Failpoint.REPAIR_TAINT)

    def _patch_status(self, name: str, body: dict[str, Any]) -> Write[Any]:
        meta, failpoint = {"name": name}, Failpoint.REPAIR_CONDITIONS
        return stamped_write(Verb.MERGE_PATCH, NODES, meta, body, failpoint, subresource="status", slot=AWAY)

    def _not_written(self, name: str, outcome: Outcome[Any]) -> None:
        if not isinstance(outcome, Missing | Abandoned):
            if not isinstance(outcome, Conflicted):
                log.warning("node %s: %s", name, why_not(outcome))
            self._later(name)

    async def _reboot(self, name: str, planned: str) -> None:
        """Asks for the reboot where that kind is served, once nobody holds a GPU of the node; takes it back when the
        repair is over. Raises KubeError.
        """
        gpus = self._gpus.get(name)
        if planned and gpus is not None and not gpus.is_held and name not in self._asked:
            await self._ask(name)
        elif not planned and name in self._nodes and self._had_reboot(name):
            await self._take_back(name)

    def _had_reboot(self, name: str) -> bool:
        return name in self._asked or (
            self._looks.get(name, 0) < _LOOKS
            and any(
                condition.type == MAINTENANCE_PLANNED and condition.status != "True"
                for condition in self._nodes[name].status.conditions
            )
        )

    async def _ask(self, name: str) -> None:
        if self._clock.wall() < self._not_served_until_s:
            self._later(name, _SERVED_S)
            return
        body = {
            "apiVersion": REBOOTS.api_version,
            "kind": REBOOTS.kind,
            "metadata": {"name": reboot_name(name)},
            "spec": {"nodeName": name, "force": False},
        }
        outcome = await self._put(
            stamped_write(Verb.CREATE, REBOOTS, {"name": reboot_name(name)}, body, Failpoint.REBOOT_ASKED)
        )
        if isinstance(outcome, Written | Conflicted):
            self._asked.add(name)
            self._looks.pop(name, None)
        elif isinstance(outcome, Missing):
            self._not_served_until_s = self._clock.wall() + _SERVED_S
            self._later(name, _SERVED_S)
        else:
            self._not_written(name, outcome)

    async def _take_back(self, name: str) -> None:
        try:
            reboot: dict[str, Any] = await self._client.get(REBOOTS, reboot_name(name), dict)
        except NotFoundError:
            self._asked.discard(name)
            self._looks[name] = self._looks.get(name, 0) + 1
            if self._looks[name] < _LOOKS:
                self._later(name, _LOOK_S)
            return
        outcome = await self._put(
            stamped_write(
                Verb.DELETE, REBOOTS, {"name": reboot_name(name)}, reboot["metadata"]["uid"], Failpoint.REBOOT_OVER
            )
        )
        if isinstance(outcome, Written | Missing):
            self._asked.discard(name)
            self._later(name, _LOOK_S)
        else:
            self._not_written(name, outcome)
