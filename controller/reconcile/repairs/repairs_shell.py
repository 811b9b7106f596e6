"""Grants repairs of GPUs, live.

GpuNodes, Nodes, ResourceFlavors -> controller.reconcile.repairs.breaker -> status.remediationGrants, Events, figures

The grants are applied by a field manager that the agent is not, tied to the version of the GpuNode that asked: a late
grant of a former leader is refused once the GpuNode has changed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from controller.cluster.config.settings import RemediationRules
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import FLAVORS, GPU_NODES, NODES
from controller.cluster.writing.workloadwrites import Stamped
from controller.messages import repairs as words
from controller.messages.spans import exact
from controller.objects.core import Node
from controller.objects.meta import ObjectMeta
from controller.objects.queues import ResourceFlavor
from controller.reconcile.repairs.breaker import (
    NO_FLAVOR,
    HeldBack,
    RepairBreaker,
    RepairFlavor,
    RepairNode,
    Tripped,
    Why,
)
from controller.reconcile.repairs.grants import Grant, entries, node_repairs, rfc3339
from failpoints.names import Failpoint
from inventory.api.names import (
    NVSENTINEL_MANAGED,
    REMEDIATION_BREAKER,
    REMEDIATION_RESUMED,
    REMEDIATION_TRIPPED,
    REPAIR_TAINT,
)
from kube.clock import Clock, Turns
from kube.objects import ObjectReference
from kube.reading.reflector import Added, Changed, Removed
from kube.writing.writes import Abandoned, Conflicted, Missing, Outcome, Verb, Write, Written

log = logging.getLogger(__name__)

RESUME: Final = "resume"
_TOGETHER_S: Final = 0.1
"""The time for which reports are gathered: GPUs often fail together, and the oldest ask comes first."""
_AGAIN_S: Final = 1.0
_SHOWN_S: Final = 5.0
"""The time after which a list that was written and is not seen in the GpuNode is written again."""


class RepairFigures(Protocol):
    """Counts what the breaker does."""

    def repair_granted(self, action: str) -> None: ...

    def breakers(self, tripped: Mapping[str, bool]) -> None:
        """Whether the breaker of each flavor has tripped."""


class RepairController:
    """``hear`` takes changes of GpuNodes, Nodes and flavors; ``run``, from when all of them are known, works until
    cancelled. ``tell`` records an Event: about what, type, reason, note.
    """

    def __init__(
        self,
        rules: RemediationRules,
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        clock: Clock,
        figures: RepairFigures,
        tell: Callable[[ObjectReference, str, str, str], None],
    ) -> None:
        self.breaker = RepairBreaker(rules)
        self._put = put
        self._clock = clock
        self._figures = figures
        self._tell = tell
        self._turns = Turns(clock, together_s=_TOGETHER_S)
        self._versions: dict[str, tuple[str, str]] = {}
        """The uid and the newest known version of GpuNodes with repairs, or with grants of the one before."""
        self._writing: set[str] = set()
        """Objects of which a write is under way, ``GpuNode/name`` or ``ResourceFlavor/name``."""
        self._sent: dict[str, tuple[tuple[Grant, ...], float]] = {}
        """Lists that were written, and until when the GpuNode may still show an older one."""
        self._flavors: dict[str, ResourceFlavor] = {}
        """Flavors whose annotation waits for an answer, in the version that was seen last."""
        self._known: dict[str, ObjectMeta] = {}
        """All flavors, as they were seen last."""
        self._told: set[tuple[str, str, int, Why]] = set()
        self._tripped: set[str] = set()

    # -- events ------------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == GPU_NODES:
                changed = self._hear_repairs(key.name, entry)
            case Removed(key=key) if observed.resource == GPU_NODES:
                changed = self.breaker.set_repairs(key.name, None)
                self._versions.pop(key.name, None)
                self._sent.pop(key.name, None)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == NODES:
                changed = self.breaker.set_node(key.name, repair_node(entry.object))
            case Removed(key=key) if observed.resource == NODES:
                changed = self.breaker.set_node(key.name, None)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == FLAVORS:
                changed = self._hear_flavor(key.name, entry.object)
            case Removed(key=key) if observed.resource == FLAVORS:
                changed = self.breaker.set_flavor(key.name, None)
                self._flavors.pop(key.name, None)
                self._known.pop(key.name, None)
            case _:
                return
        if changed:
            self._turns.wake()

    def _hear_repairs(self, name: str, entry: Any) -> bool:
        found = node_repairs(name, entry.object.status)
        sent = self._sent.get(name)
        if sent is not None and dict(found.grants) == {grant.gpu: grant for grant in sent[0]}:
            del self._sent[name]
        if found.is_idle and not self.breaker.remembers(name):
            self._versions.pop(name, None)
        else:
            self._versions[name] = entry.uid, entry.resource_version
        return self.breaker.set_repairs(name, found)

    def _hear_flavor(self, name: str, flavor: ResourceFlavor) -> bool:
        self._known[name] = flavor.metadata
        waits = REMEDIATION_BREAKER in flavor.metadata.annotations
        before = self._flavors.get(name)
        if waits:
            self._flavors[name] = flavor
        else:
            self._flavors.pop(name, None)
        changed = self.breaker.set_flavor(name, repair_flavor(flavor))
        shows = REMEDIATION_TRIPPED in flavor.metadata.annotations
        return changed or (waits and before != flavor) or shows is not (name in self._tripped)

    # -- the work ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            await self._turns.next(self.breaker.next_due_s())
            self.reconcile()

    def reconcile(self) -> None:
        """Decides, and submits the writes that are due."""
        now_s = self._clock.wall()
        for name, flavor in list(self._flavors.items()):
            self._answer(name, flavor, now_s)
        found = self.breaker.decide(now_s)
        for node, grant in found.granted:
            self._figures.repair_granted(grant.action)
            self._tell(about_node(node), "Normal", "GpuRepairGranted", words.step_granted(grant.gpu, grant.action))
        for node, grants in found.lists.items():
            self._write(node, grants)
        self._tell_held(found.held_back)
        self._tell_tripped(found.tripped)
        for name, meta in list(self._known.items()):
            if (REMEDIATION_TRIPPED in meta.annotations) is not (name in found.tripped):
                self._show_tripped(name, meta, rfc3339(now_s) if name in found.tripped else None)

    def _show_tripped(self, name: str, meta: ObjectMeta, since: str | None) -> None:
        """Write on the flavor that its breaker has tripped, None: that it has not. It is shown, and read by nobody who
        decides.
        """
        place = f"{FLAVORS.kind}/{name}"
        if place in self._writing or name in self._flavors:
            return  # the flavor changes, and is heard of again
        self._writing.add(place)
        metadata = {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "annotations": {REMEDIATION_TRIPPED: since},
        }
        done = self._put(
            Write(
                verb=Verb.MERGE_PATCH,
                resource=FLAVORS,
                name=name,
                body={"metadata": metadata},
                kind=Stamped,
                failpoint=Failpoint.BREAKER_SHOWN,
            )
        )
        done.add_done_callback(partial(self._shown, name))

    def _shown(self, name: str, future: "asyncio.Future[Outcome[Any]]") -> None:
        self._writing.discard(f"{FLAVORS.kind}/{name}")
        if not isinstance(outcome := future.result(), Written | Conflicted):
            self._not_written(f"resourceflavor {name}: its annotation", outcome)

    def _write(self, node: str, grants: tuple[Grant, ...]) -> None:
        place, version = f"{GPU_NODES.kind}/{node}", self._versions.get(node)
        sent = self._sent.get(node)
        if version is None or place in self._writing:
            return
        if sent is not None and sent[0] == grants and self._clock.wall() < sent[1]:
            self._turns.again(sent[1] - self._clock.wall())
            return
        metadata = {"name": node, "uid": version[0], "resourceVersion": version[1]}
        body: dict[str, Any] = {"apiVersion": GPU_NODES.api_version, "kind": GPU_NODES.kind, "metadata": metadata}
        if grants:
            body["status"] = {"remediationGrants": entries(grants)}
        self._writing.add(place)
        done = self._put(
            Write(
                verb=Verb.APPLY,
                resource=GPU_NODES,
                name=node,
                body=body,
                kind=Stamped,
                failpoint=Failpoint.REPAIR_GRANTED,
            )
        )
        done.add_done_callback(partial(self._written, node, grants))

    def _written(self, node: str, grants: tuple[Grant, ...], future: "asyncio.Future[Outcome[Any]]") -> None:
        outcome = future.result()
        self._writing.discard(f"{GPU_NODES.kind}/{node}")
        if isinstance(outcome, Written):
            self._sent[node] = grants, self._clock.wall() + _SHOWN_S
        else:
            self.breaker.failed(node, grants)
            self._not_written(f"gpunode {node}: its grants", outcome)
        self._turns.wake()

    def _not_written(self, what: str, outcome: Outcome[Any]) -> None:
        if not isinstance(outcome, Missing | Abandoned):
            log.info("%s could not be written, trying on: %s", what, getattr(outcome, "error", outcome))
            self._turns.again(_AGAIN_S)

    def _answer(self, name: str, flavor: ResourceFlavor, now_s: float) -> None:
        """Answers a person's annotation: the time from which on grants count stands in another one."""
        place = f"{FLAVORS.kind}/{name}"
        if place in self._writing:
            return
        found = flavor.metadata.annotations[REMEDIATION_BREAKER]
        if found != RESUME:
            self._flavors.pop(name)
            note = words.breaker_annotation(REMEDIATION_BREAKER, repr(found[:63]))
            self._tell(about_flavor(flavor), "Warning", "InvalidRemediationBreaker", note)
            return
        metadata = {
            "uid": flavor.metadata.uid,
            "resourceVersion": flavor.metadata.resource_version,
            "annotations": {REMEDIATION_BREAKER: None, REMEDIATION_RESUMED: rfc3339(now_s)},
        }
        self._writing.add(place)
        done = self._put(
            Write(
                verb=Verb.MERGE_PATCH,
                resource=FLAVORS,
                name=name,
                body={"metadata": metadata},
                kind=Stamped,
                failpoint=Failpoint.BREAKER_RESUMED,
            )
        )
        done.add_done_callback(partial(self._answered, name, flavor))

    def _answered(self, name: str, flavor: ResourceFlavor, future: "asyncio.Future[Outcome[Any]]") -> None:
        outcome = future.result()
        self._writing.discard(f"{FLAVORS.kind}/{name}")
        if isinstance(outcome, Written):
            if self._flavors.get(name) == flavor:
                del self._flavors[name]
            self._tell(about_flavor(flavor), "Normal", "RepairBreakerLifted", words.breaker_lifted())
        else:
            self._not_written(f"resourceflavor {name}: its annotation", outcome)

    # -- what people are told ----------------------------------------------------------------------------------------

    def _tell_held(self, held: Iterable[HeldBack]) -> None:
        """Tells of each ask that is held back once for each reason."""
        now: set[tuple[str, str, int, Why]] = set()
        for each in held:
            ask = each.ask
            now.add(one := (ask.node, ask.gpu, ask.generation, each.why))
            note = self._why(each)
            if one not in self._told and note:
                self._tell(about_node(ask.node), "Warning", "GpuRepairWaits", note)
        self._told = now

    def _why(self, held: HeldBack) -> str:
        gpu, step, window = held.ask.gpu, held.ask.action, exact(self.breaker.rules.window_s)
        match held.why:
            case Why.BUDGET:
                flavor = f"flavor {held.group}" if held.group != NO_FLAVOR else "the nodes of no flavor"
                return words.budget_spent(gpu, step, str(held.budget), flavor, window)
            case Why.LEVEL:
                return words.domain_taken(gpu, step, held.other, held.level, window)
            case Why.UNMANAGED:
                return words.nobody_repairs(gpu, step, NVSENTINEL_MANAGED)
            case Why.FULL:
                return words.grants_full(gpu, step, window)
            case _:
                return ""  # there is no Node that an Event could be about

    def _tell_tripped(self, tripped: Mapping[str, Tripped]) -> None:
        for flavor in tripped.keys() - self._tripped - {NO_FLAVOR}:
            found, window = tripped[flavor], exact(self.breaker.rules.window_s)
            note = words.breaker_tripped(str(found.waiting), str(found.budget), window, REMEDIATION_BREAKER)
            self._tell(_flavor_reference(flavor, ""), "Warning", "RepairBreakerTripped", note)
        for flavor in self._tripped - tripped.keys() - {NO_FLAVOR}:
            self._tell(_flavor_reference(flavor, ""), "Normal", "RepairBreakerHealed", words.breaker_healed())
        self._tripped = set(tripped)
        self._figures.breakers({flavor: flavor in tripped for flavor in {*self._known, *tripped}})


def about_node(name: str) -> ObjectReference:
    """The name stands for the uid, as in the kubelet's own Events about its node."""
    return ObjectReference(NODES.api_version, NODES.kind, name, name)


def about_flavor(flavor: ResourceFlavor) -> ObjectReference:
    return _flavor_reference(flavor.metadata.name, flavor.metadata.uid)


def _flavor_reference(name: str, uid: str) -> ObjectReference:
    return ObjectReference(FLAVORS.api_version, FLAVORS.kind, name, uid)


def repair_node(node: Node) -> RepairNode:
    is_tainted = any(taint.key == REPAIR_TAINT for taint in node.spec.taints)
    return RepairNode(labels=node.metadata.labels, in_maintenance=is_tainted)


def repair_flavor(flavor: ResourceFlavor) -> RepairFlavor:
    return RepairFlavor(node_labels=flavor.spec.node_labels, resumed_s=_resumed_s(flavor))


def _resumed_s(flavor: ResourceFlavor) -> float:
    """The time in the annotation; 0 where there is none, or none that can be read."""
    text = flavor.metadata.annotations.get(REMEDIATION_RESUMED)
    try:
        return 0.0 if text is None else msgspec.convert(text[:64], datetime).timestamp()
    except (msgspec.ValidationError, ValueError, OverflowError):
        return 0.0
