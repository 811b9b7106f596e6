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
from msgspec import Struct, structs

from controller.cluster.config.settings import RemediationRules
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import FLAVORS, GPU_NODES, NODES
from controller.cluster.writing.stampedwrites import stamped_write, why_not
from controller.messages import repairs as words
from controller.messages.spans import exact
from controller.objects.core import Node
from controller.objects.queues import ResourceFlavor
from controller.reconcile.repairs.breaker import (
    Decisions,
    HeldBack,
    RepairBreaker,
    RepairFlavor,
    RepairNode,
    Tripped,
    Why,
)
from controller.reconcile.repairs.grantrecords import due_text, read_record
from controller.reconcile.repairs.grants import Grant, entries, node_repairs, rfc3339
from failpoints.names import Failpoint
from inventory.api.names import (
    NO_FLAVOR,
    NVSENTINEL_MANAGED,
    REMEDIATION_BREAKER,
    REMEDIATION_GRANTS,
    REMEDIATION_RESUMED,
    REMEDIATION_TRIPPED,
    REPAIR_BREAKER,
    REPAIR_BREAKER_RESUMED,
    REPAIR_BREAKER_TRIPPED,
    REPAIR_TAINT,
)
from kube.clock import Clock, Turns
from kube.objects import ObjectReference
from kube.reading.reflector import Added, Changed, Removed
from kube.resources import Resource
from kube.writing.writes import Abandoned, Conflicted, Missing, Outcome, Verb, Write, Written

log = logging.getLogger(__name__)

RESUME: Final = "resume"
_TOGETHER_S: Final = 0.1
"""The time for which reports are gathered: GPUs often fail together, and the oldest ask comes first."""
_AGAIN_S: Final = 1.0
_SHOWN_S: Final = 5.0
"""The time after which a list that was written and is not seen in the GpuNode is written again."""


class BreakerKeys(Struct, frozen=True):
    """The annotations by which an object shows a breaker, and by which a person lifts it."""

    lift: str
    resumed: str
    tripped: str


_OF_FLAVORS: Final = BreakerKeys(REMEDIATION_BREAKER, REMEDIATION_RESUMED, REMEDIATION_TRIPPED)
_OF_GPU_NODES: Final = BreakerKeys(REPAIR_BREAKER, REPAIR_BREAKER_RESUMED, REPAIR_BREAKER_TRIPPED)


class BreakerObject(Struct, frozen=True, kw_only=True):
    """An object that may show a breaker, in the version that was seen last: a flavor its own, a GpuNode the one of
    nodes of no flavor.
    """

    resource: Resource
    name: str
    uid: str
    version: str
    annotations: Mapping[str, str] = {}

    @property
    def keys(self) -> BreakerKeys:
        return _OF_FLAVORS if self.resource == FLAVORS else _OF_GPU_NODES

    @property
    def place(self) -> str:
        return f"{self.resource.kind}/{self.name}"

    @property
    def shows(self) -> bool:
        """Whether the object says that the breaker has tripped."""
        return self.keys.tripped in self.annotations

    @property
    def regarded(self) -> ObjectReference:
        """The object that Events are about."""
        return about_flavor(self.name, self.uid) if self.resource == FLAVORS else about_node(self.name)


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
        self._gpu_nodes: dict[str, BreakerObject] = {}
        """GpuNodes with repairs, with grants of the one before, or that show a breaker."""
        self._flavors: dict[str, BreakerObject] = {}
        self._writing: set[str] = set()
        """The places of objects of which a write is under way."""
        self._sent: dict[str, tuple[tuple[Grant, ...], float]] = {}
        """Lists that were written, and until when the GpuNode may still show an older one."""
        self._asked: dict[str, BreakerObject] = {}
        """Objects whose annotation waits for an answer, by place."""
        self._shown_on = ""
        """The GpuNode that shows the breaker of nodes of no flavor; empty while that has not tripped."""
        self._told: set[tuple[str, str, int, Why]] = set()
        self._tripped: set[str] = set()
        self._late: set[str] = set()
        """The names of objects that could not be written in the version that was seen."""

    # -- events ------------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == GPU_NODES:
                changed = self._hear_repairs(key.name, entry)
            case Removed(key=key) if observed.resource == GPU_NODES:
                changed = self.breaker.set_repairs(key.name, None)
                gone = self._gpu_nodes.pop(key.name, None)
                self._asked.pop(f"{GPU_NODES.kind}/{key.name}", None)
                self._sent.pop(key.name, None)
                changed |= gone is not None and gone.shows
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == NODES:
                changed = self.breaker.set_node(key.name, repair_node(entry.object))
            case Removed(key=key) if observed.resource == NODES:
                changed = self.breaker.set_node(key.name, None)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == FLAVORS:
                changed = self._hear_flavor(key.name, entry.object)
            case Removed(key=key) if observed.resource == FLAVORS:
                changed = self.breaker.set_flavor(key.name, None)
                self._flavors.pop(key.name, None)
                self._late.discard(key.name)
                self._asked.pop(f"{FLAVORS.kind}/{key.name}", None)
            case _:
                return
        if changed:
            self._turns.wake()

    def _hear_repairs(self, name: str, entry: Any) -> bool:
        annotations = {
            key: value
            for key, value in entry.object.metadata.annotations.items()
            if key in structs.astuple(_OF_GPU_NODES)
        }
        node_state = node_repairs(name, entry.object.status, _time_s(annotations.get(REPAIR_BREAKER_RESUMED)))
        sent = self._sent.get(name)
        if sent is not None and dict(node_state.grants) == {grant.gpu: grant for grant in sent[0]}:
            del self._sent[name]
        seen = BreakerObject(
            resource=GPU_NODES, name=name, uid=entry.uid, version=entry.resource_version, annotations=annotations
        )
        if node_state.is_idle and not annotations and not self.breaker.remembers(name):
            self._gpu_nodes.pop(name, None)
        else:
            self._gpu_nodes[name] = seen
        changed = self._hear_annotations(seen) or seen.shows is not (name == self._shown_on)
        return self.breaker.set_repairs(name, node_state) or changed

    def _hear_flavor(self, name: str, flavor: ResourceFlavor) -> bool:
        meta = flavor.metadata
        seen = BreakerObject(
            resource=FLAVORS, name=name, uid=meta.uid, version=meta.resource_version, annotations=meta.annotations
        )
        self._flavors[name] = seen
        changed = self._hear_annotations(seen)
        changed |= seen.shows is not (name in self._tripped) or name in self._late
        return self.breaker.set_flavor(name, repair_flavor(flavor)) or changed

    def _hear_annotations(self, seen: BreakerObject) -> bool:
        """Returns whether a person's annotation is there that was not, or in another version."""
        if seen.keys.lift not in seen.annotations:
            self._asked.pop(seen.place, None)
            return False
        before = self._asked.get(seen.place)
        self._asked[seen.place] = seen
        return before != seen

    # -- the work ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            await self._turns.next(self.breaker.next_due_s())
            self.reconcile()

    def reconcile(self) -> None:
        """Decides, and submits the writes that are due."""
        now_s = self._clock.wall()
        for asked in list(self._asked.values()):
            self._answer(asked, now_s)
        decided = self.breaker.decide(now_s)
        for node, grant in decided.granted:
            self._figures.repair_granted(grant.action)
            self._tell(about_node(node), "Normal", "GpuRepairGranted", words.step_granted(grant.gpu, grant.action))
        for node, grants in decided.lists.items():
            self._write(node, grants)
        self._tell_held(decided.held_back)
        shown_on = self._shown_where(decided)
        self._shown_on = shown_on or self._shown_on
        self._tell_tripped(decided.tripped)
        self._shown_on = shown_on
        for seen in (*self._flavors.values(), *self._gpu_nodes.values()):
            trips = seen.name in decided.tripped if seen.resource == FLAVORS else seen.name == self._shown_on
            due: dict[str, str | None] = {}
            if seen.shows is not trips:
                due[seen.keys.tripped] = rfc3339(now_s) if trips else None
            if seen.resource == FLAVORS:
                due |= self._unrecorded(seen, now_s)
            if due:
                self._show(seen, due)

    def _unrecorded(self, seen: BreakerObject, now_s: float) -> dict[str, str | None]:
        """The annotation with the grants that count in a flavor, where it is to be written."""
        is_due, text = due_text(self.breaker.counted(seen.name, now_s), seen.annotations.get(REMEDIATION_GRANTS))
        return {REMEDIATION_GRANTS: text} if is_due else {}

    def _show(self, seen: BreakerObject, annotations: Mapping[str, str | None]) -> None:
        """Write what the object shows: that the breaker has tripped, which nobody reads who decides, and the grants
        that the next leader counts.
        """
        if seen.place in self._writing or seen.place in self._asked:
            self._late.add(seen.name)
            return  # the object changes, and is heard of again
        self._late.discard(seen.name)
        self._annotate(seen, annotations, Failpoint.BREAKER_SHOWN, self._shown)

    def _shown(self, seen: BreakerObject, outcome: Outcome[Any]) -> None:
        if isinstance(outcome, Conflicted):
            self._late.add(seen.name)
        elif not isinstance(outcome, Written):
            self._not_written(f"{seen.place}: its annotation", outcome)

    def _annotate(
        self,
        seen: BreakerObject,
        annotations: Mapping[str, str | None],
        failpoint: Failpoint,
        then: Callable[[BreakerObject, Outcome[Any]], None],
    ) -> None:
        """Write annotations, None: take them off, on this version of the object alone."""
        metadata = {"uid": seen.uid, "resourceVersion": seen.version, "annotations": annotations}
        self._writing.add(seen.place)
        done = self._put(
            stamped_write(Verb.MERGE_PATCH, seen.resource, {"name": seen.name}, {"metadata": metadata}, failpoint)
        )

        def ended(future: "asyncio.Future[Outcome[Any]]") -> None:
            self._writing.discard(seen.place)
            then(seen, future.result())

        done.add_done_callback(ended)

    def _write(self, node: str, grants: tuple[Grant, ...]) -> None:
        seen, sent = self._gpu_nodes.get(node), self._sent.get(node)
        if seen is None or seen.place in self._writing:
            return
        if sent is not None and sent[0] == grants and self._clock.wall() < sent[1]:
            self._turns.again(sent[1] - self._clock.wall())
            return
        metadata = {"name": node, "uid": seen.uid, "resourceVersion": seen.version}
        body: dict[str, Any] = {"apiVersion": GPU_NODES.api_version, "kind": GPU_NODES.kind, "metadata": metadata}
        if grants:
            body["status"] = {"remediationGrants": entries(grants)}
        self._writing.add(seen.place)
        done = self._put(stamped_write(Verb.APPLY, GPU_NODES, {"name": node}, body, Failpoint.REPAIR_GRANTED))
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
            log.info("%s could not be written, trying on: %s", what, why_not(outcome))
            self._turns.again(_AGAIN_S)

    def _answer(self, asked: BreakerObject, now_s: float) -> None:
        """Answers a person's annotation: the time from which on grants count stands in another one."""
        if asked.place in self._writing:
            return
        keys, note = asked.keys, ""
        found = asked.annotations[keys.lift]
        if found != RESUME:
            note = words.breaker_annotation(keys.lift, repr(found[:63]))
        elif asked.resource == GPU_NODES and NO_FLAVOR not in (of := self.breaker.flavors_of(asked.name)):
            note = words.breaker_of_a_flavor(keys.lift, ", ".join(f"flavor {name}" for name in of))
        if note:
            self._asked.pop(asked.place)
            self._tell(asked.regarded, "Warning", "InvalidRemediationBreaker", note)
            return
        self._annotate(
            asked, {keys.lift: None, keys.resumed: rfc3339(now_s)}, Failpoint.BREAKER_RESUMED, self._answered
        )

    def _answered(self, asked: BreakerObject, outcome: Outcome[Any]) -> None:
        if isinstance(outcome, Written):
            if self._asked.get(asked.place) == asked:
                del self._asked[asked.place]
            self._tell(asked.regarded, "Normal", "RepairBreakerLifted", words.breaker_lifted())
        else:
            self._not_written(f"{asked.place}: its annotation", outcome)

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
        window = exact(self.breaker.rules.window_s)
        for flavor in tripped.keys() - self._tripped:
            waiting, budget = str(tripped[flavor].waiting), str(tripped[flavor].budget)
            if flavor == NO_FLAVOR:
                note = words.breaker_tripped_without_flavor(waiting, budget, window, NO_FLAVOR)
            else:
                note = words.breaker_tripped(waiting, budget, window, REMEDIATION_BREAKER)
            self._tell(self._about(flavor), "Warning", "RepairBreakerTripped", note)
        for flavor in self._tripped - tripped.keys():
            self._tell(self._about(flavor), "Normal", "RepairBreakerHealed", words.breaker_healed())
        self._tripped = set(tripped)
        self._figures.breakers({flavor: flavor in tripped for flavor in {*self._flavors, *tripped}})

    def _about(self, flavor: str) -> ObjectReference:
        return about_node(self._shown_on) if flavor == NO_FLAVOR else about_flavor(flavor, "")

    def _shown_where(self, found: Decisions) -> str:
        """The GpuNode that is to show the breaker of nodes of no flavor: one that does, if a repair of it still waits,
        else the one whose repair waits longest; empty where none waits.
        """
        waiting = [each.ask.node for each in found.held_back if each.group == NO_FLAVOR and each.why is Why.BUDGET]
        shows = [name for name in waiting if name in self._gpu_nodes and self._gpu_nodes[name].shows]
        return next(iter((*shows, *waiting)), "")


def about_node(name: str) -> ObjectReference:
    """The name stands for the uid, as in the kubelet's own Events about its node."""
    return ObjectReference(NODES.api_version, NODES.kind, name, name)


def about_flavor(name: str, uid: str) -> ObjectReference:
    return ObjectReference(FLAVORS.api_version, FLAVORS.kind, name, uid)


def repair_node(node: Node) -> RepairNode:
    is_tainted = any(taint.key == REPAIR_TAINT for taint in node.spec.taints)
    return RepairNode(labels=node.metadata.labels, in_maintenance=is_tainted)


def repair_flavor(flavor: ResourceFlavor) -> RepairFlavor:
    resumed_s = _time_s(flavor.metadata.annotations.get(REMEDIATION_RESUMED))
    recorded = read_record(flavor.metadata.annotations.get(REMEDIATION_GRANTS))
    return RepairFlavor(node_labels=flavor.spec.node_labels, resumed_s=resumed_s, recorded=recorded)


def _time_s(text: str | None) -> float:
    """The time in an annotation; 0 where there is none, or none that can be read."""
    try:
        return 0.0 if text is None else msgspec.convert(text[:64], datetime).timestamp()
    except (msgspec.ValidationError, ValueError, OverflowError):
        return 0.0
