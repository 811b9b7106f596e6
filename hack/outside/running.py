"""A story on the real controller, and the judge's verdict on it."""

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from msgspec import Struct

from cli.playground.cluster import PlaygroundNode, stamp
from hack.outside.acts import FLAVORS, GPUS_OF_NODE, NODES, Act, Json, Story
from hack.planted.nets import queueworld
from hack.planted.nets.queueworld import WORKLOADS, QueueWorld, config, controller, first, machines, play, world_of
from history.judge import Finding, Verdict
from kube.errors import KubeError
from kube.resources import Resource
from kube.testing import FakeApiServer

QUIET_S: Final = 17.0
"""After the last act: longer than the judge's longest bound, on a clock that goes six times as fast."""
COHORTS: Final = Resource("kueue.x-k8s.io", "v1beta2", "cohorts", "Cohort")
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass")
_KINDS: Final = {
    "Namespace": queueworld.NAMESPACES,
    "RuntimeClass": RUNTIME_CLASSES,
    "ResourceFlavor": queueworld.FLAVORS,
    "AdmissionCheck": queueworld.CHECKS,
    "WorkloadPriorityClass": queueworld.PRIORITIES,
    "Cohort": COHORTS,
    "ClusterQueue": queueworld.CLUSTER_QUEUES,
    "LocalQueue": queueworld.LOCAL_QUEUES,
    "Job": queueworld.JOBS,
}


class Told(Struct, frozen=True):
    """``admitted`` and ``evicted``: how often a Workload was, by what the API server said."""

    verdict: Verdict
    admitted: int = 0
    evicted: int = 0


def lasts_s(story: Story) -> float:
    """The story's own seconds, without what starts before it."""
    return max((act.at_s for act in story.acts), default=0.0) + QUIET_S


async def judged(story: Story) -> Told:
    """Raises what ends the controller."""
    async with FakeApiServer() as server:
        world = world_of(server, _nodes())
        todo = first(world, ((act.at_s, partial(carry_out, act=act)) for act in story.acts))
        more = ("fairSharing: {}\n" if story.fair else "") + ("tessera: {policy: tessera}\n" if story.tessera else "")
        async with controller(server, config(more=more)):
            verdict = await play(world, todo, lasts_s(story))
        return Told(verdict, _times(server, "Admitted"), _times(server, "Evicted"))


class Outcome(Struct, frozen=True):
    """``findings``: sentences. ``admitted`` and ``evicted``: how often a Workload was."""

    findings: tuple[str, ...]
    admitted: int = 0
    evicted: int = 0


async def outcome_of(story: Story) -> Outcome:
    """A controller that ends by itself is a finding."""
    try:
        ran = await judged(story)
    except Exception as failed:  # noqa: BLE001 - whatever ends it
        return Outcome((f"the controller ended: {type(failed).__name__}: {failed}",))
    return Outcome(tuple(map(_shown, ran.verdict.findings)), ran.admitted, ran.evicted)


def _shown(finding: Finding) -> str:
    return f"{finding.t:7.1f} {finding.rule}: {', '.join(finding.objects)}: {finding.message}"


def carry_out(world: QueueWorld, act: Act) -> None:
    """What is there no more is passed over."""
    with contextlib.suppress(KubeError):
        if act.kind == "WorkloadOf":
            for meta in _workloads_of(world, act):
                world.server.merge(WORKLOADS, meta["name"], act.body, namespace=act.namespace)
        elif act.kind == "PendingChecks":
            _answer(world, act)
        else:
            _write(world, act)


def _write(world: QueueWorld, act: Act) -> None:
    resource = _KINDS[act.kind]
    match act.verb:
        case "create":
            meta = {**act.body.get("metadata", {}), "name": act.name}
            if act.namespace:
                meta["namespace"] = act.namespace
            world.create(resource, {**act.body, "metadata": meta})
        case "merge":
            world.server.merge(resource, act.name, act.body, namespace=act.namespace)
        case "delete":
            world.server.delete(resource, act.name, namespace=act.namespace)


def _workloads_of(world: QueueWorld, act: Act) -> Iterator[Json]:
    """Their metadata."""
    for each in world.all(WORKLOADS):
        meta: Json = each["metadata"]
        owners = meta.get("ownerReferences") or []
        if meta["namespace"] == act.namespace and any(owner["name"] == act.name for owner in owners):
            yield meta


def _answer(world: QueueWorld, act: Act) -> None:
    """Set the state of a pending AdmissionCheck, as its controller does."""
    for stored in world.all(WORKLOADS):
        meta, status = stored["metadata"], stored.get("status") or {}
        states = status.get("admissionChecks") or []
        due = [state for state in states if state["name"] == act.name and state["state"] == "Pending"]
        if meta["namespace"] == act.namespace and due and _is(stored, "QuotaReserved"):
            answer = {**act.body, "message": "", "lastTransitionTime": stamp(time.time())}
            states = [{**state, **answer} if state in due else state for state in states]
            world.server.merge(
                WORKLOADS, meta["name"], {"status": {"admissionChecks": states}}, namespace=act.namespace
            )


def _is(workload: Json, condition: str) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or []
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _times(server: FakeApiServer, condition: str) -> int:
    """How often the condition of any Workload became true."""
    changes = [each for each in server.store.changes if each.body.get("kind") == WORKLOADS.kind]
    return sum(_is(each.body, condition) and not _is(each.before or {}, condition) for each in changes)


def _nodes() -> dict[str, PlaygroundNode]:
    by_name = {}
    for number, (name, machine) in enumerate(machines(NODES, GPUS_OF_NODE).items()):
        labels = {**machine.labels, "flavor": FLAVORS[number % len(FLAVORS)]}
        by_name[name] = PlaygroundNode(labels, machine.gpus, machine.healthy)
    return by_name
