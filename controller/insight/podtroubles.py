"""Why the pods of an admitted Workload do not run: a failed GPU, no node, a missing image. Pure.

The answer has the scheduler's and the kubelet's own sentences, the pods that they are about, since when, and what
happens next. Pods are as the API server has them; GpuNodes as agents wrote them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct, to_builtins

from controller.cluster.config.settings import ControllerConfig, OnGpuFailure
from controller.messages.spans import exact
from controller.objects.core import ENDED_PHASES
from controller.objects.decode import GpuNode
from controller.objects.meta import find_condition
from controller.objects.workload import Workload
from controller.scheduler.decisions.gangverdict import verdict_deadlines
from inventory.api.gpunode import Device, Health
from inventory.api.names import ON_GPU_FAILURE
from inventory.words.catalog import plural

Json = dict[str, Any]

NO_NODE: Final = "NoNode"
GPU_FAILED: Final = "GpuFailed"
GATED: Final = "Gated"
MISSING: Final = "Missing"
_STARTING: Final = ("ContainerCreating", "PodInitializing", "")
_UNSELECTED: Final = re.compile(
    r"0/(?P<all>\d+) nodes are available: (?P<those>\d+) node\(s\) didn't match Pod's node affinity/selector\b.*",
    re.DOTALL,
)


class FailurePolicy(Struct, frozen=True, kw_only=True):
    """The controller's configuration about failures, as far as it is known. ``ready_s``: waitForPodsReady.timeout."""

    on_gpu_failure: str | None = None
    ready_s: float | None = None

    @classmethod
    def of(cls, config: ControllerConfig) -> "FailurePolicy":
        ready = config.engine.wait_for_pods_ready
        return cls(on_gpu_failure=config.gpu_failures.policy.value, ready_s=None if ready is None else ready.timeout_s)


class PodTrouble(Struct, frozen=True, kw_only=True, rename="camel"):
    """A reason why pods do not run. ``what``: in the words of the scheduler, the kubelet or an agent. It is about
    ``count`` of ``of`` pods; ``pods`` are their names, as far as they have any.
    """

    kind: str
    what: str
    pods: tuple[str, ...]
    count: int
    of: int
    since: datetime | None
    next: str

    @property
    def sentence(self) -> str:
        """The trouble in a sentence: ``2 of 2 pods find no node: 0/2 nodes are available``."""
        them = f"{self.count} of {plural(self.of, 'pod')}"
        one = self.count == 1
        verb = {
            NO_NODE: "finds no node" if one else "find no node",
            GPU_FAILED: "has a GPU that failed" if one else "have a GPU that failed",
            GATED: "is held by a gate" if one else "are held by gates",
            MISSING: "does not exist" if one else "do not exist",
        }.get(self.kind, "does not start" if one else "do not start")
        return f"{them} {verb}: {self.what}"


_KEEPS: Final = "; its quota is kept meanwhile"
_SETTLED_S: Final = 60.0
"""The time that a job may take to make its pods."""


def pods_shown(
    workload: Workload, pods: Sequence[Json], nodes: Iterable[GpuNode], policy: FailurePolicy, now: datetime
) -> Json | None:
    """The number of pods that are ``running`` and ``succeeded``, ``of`` all, and the troubles of the others. None if
    the Workload holds no quota. ``pods``: its own. A gang that kube-scheduler starts none of keeps its quota for a
    time alone.
    """
    admission = workload.status.admission
    if admission is None:
        return None
    wanted = sum(each.count for each in workload.spec.pod_sets)
    expected = sum(each.count or 0 for each in admission.pod_set_assignments) or wanted
    admitted = find_condition(workload.status.conditions, "Admitted")
    since = admitted.last_transition_time if admitted is not None and admitted.status == "True" else None
    settled = since is not None and (now - since).total_seconds() > _SETTLED_S
    pods = _of_the_workload(pods, expected)
    counts = {phase.lower(): in_phase(pods, phase) for phase in ("Running", "Succeeded")}
    found = troubles(pods, expected, nodes, policy, settled=settled)
    ends_s = min(verdict_deadlines(workload), default=None)
    shown = [_shown(each, now) for each in found]
    if ends_s is not None:
        left = exact(max(0, round(ends_s - now.timestamp())))
        shown = [
            {**each, "next": each["next"].replace(_KEEPS, f"; its quota is taken back in {left}")} for each in shown
        ]
    return {**counts, "of": max(expected, len(pods)), "troubles": shown}


def _of_the_workload(pods: Sequence[Json], expected: int) -> Sequence[Json]:
    """The pods without gated ones that are too many: those above a gang's minimum are queued by themselves soon."""
    spare, remaining = len(pods) - sum(in_phase(pods, phase) for phase in ENDED_PHASES) - expected, list[Json]()
    for pod in reversed(pods):
        if spare > 0 and pod["spec"].get("schedulingGates"):
            spare -= 1
        else:
            remaining.append(pod)
    return remaining[::-1]


def with_sizes(pods: Json | None, too_large: str | None) -> Json | None:
    """``pods_shown`` where no node is large enough for a pod (``too_large``): pods without a node wait in vain."""
    if pods is None or too_large is None:
        return pods
    changed = []
    for trouble in pods["troubles"]:
        after = trouble["next"].partition(_KEEPS)
        said = f"It never starts on these nodes. {too_large}{''.join(after[1:])}"
        changed.append({**trouble, "next": said} if trouble["kind"] == NO_NODE else trouble)
    return {**pods, "troubles": changed}


def _shown(trouble: PodTrouble, now: datetime) -> Json:
    since_s = None if trouble.since is None else max(0, int((now - trouble.since).total_seconds()))
    body: Json = to_builtins(trouble)
    return {**body, "sentence": trouble.sentence, "sinceSeconds": since_s}


def in_phase(pods: Iterable[Json], phase: str) -> int:
    return sum((pod.get("status") or {}).get("phase") == phase for pod in pods)


def troubles(
    pods: Sequence[Json], expected: int, nodes: Iterable[GpuNode], policy: FailurePolicy, *, settled: bool
) -> tuple[PodTrouble, ...]:
    """The troubles of pods; failed GPUs come first. ``pods``: of one Workload that holds quota; ``expected``: the
    number that it requests. ``settled``: its job has had the time to make its pods.
    """
    there = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED_PHASES]
    of = max(expected, len(pods))
    lost = dict(_failed(nodes))
    affected: dict[tuple[str, str, str], list[tuple[str, datetime | None]]] = {}
    for pod in there:
        for kind, what, since, then in _of_pod(pod, lost, policy):
            affected.setdefault((kind, what, then), []).append((str(pod["metadata"]["name"]), since))
    made = []
    if settled and len(pods) < expected:
        lacking, then = expected - len(pods), "Its job makes them: see its Events"
        what = "its job has not made all of them"
        made.append(PodTrouble(kind=MISSING, what=what, pods=(), count=lacking, of=of, since=None, next=then))
    for (kind, what, then), which in affected.items():
        times = [since for _, since in which if since is not None]
        names, since = tuple(sorted(name for name, _ in which)), min(times, default=None)
        made.append(PodTrouble(kind=kind, what=what, pods=names, count=len(names), of=of, since=since, next=then))
    return tuple(sorted(made, key=lambda each: (each.kind == MISSING, each.kind != GPU_FAILED)))


Found = tuple[str, str, datetime | None, str]
"""Kind, what is wrong, since when, and what happens next."""


def _of_pod(pod: Json, lost: dict[str, list[tuple[str, Health]]], policy: FailurePolicy) -> Iterator[Found]:
    meta, status = pod["metadata"], pod.get("status") or {}
    ready = _unready(policy)
    for device, health in lost.get(f"{meta.get('namespace')}/{meta['name']}", ()):
        why = ", ".join(health.reasons) or health.state
        yield GPU_FAILED, f"{device}: {why}", health.since, _after_failure(meta, policy)
    for condition in status.get("conditions") or ():
        if condition.get("type") != "PodScheduled" or condition.get("status") != "False":
            continue
        since, message = _time(condition.get("lastTransitionTime")), str(condition.get("message") or "")
        if condition.get("reason") == "SchedulingGated":
            gates = ", ".join(str(each.get("name")) for each in pod["spec"].get("schedulingGates") or ())
            yield GATED, gates or message, since, "The pod is scheduled once its gates are lifted"
        else:
            then = f"It starts once {_what_nodes_lack(pod, message)}{_KEEPS}{ready}"
            yield NO_NODE, message, since, then
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if (reason := str(waiting.get("reason") or "")) not in _STARTING:
            message = str(waiting.get("message") or "")
            what = f"{container.get('name')}: {reason}" + (f": {message}" if message else "")
            yield reason, what, _time(status.get("startTime")), f"The kubelet tries again{ready}"


def _what_nodes_lack(pod: Json, message: str) -> str:
    """What the nodes lack, by the scheduler's sentence: if no node has the labels that the pod selects, more room would
    not help.
    """
    counted = _UNSELECTED.fullmatch(message)
    if counted is None or counted["all"] != counted["those"]:
        return "a node has room"
    selected = ", ".join(f"{key}={value}" for key, value in (pod["spec"].get("nodeSelector") or {}).items())
    return f"a node has {selected or 'the labels of its node affinity'}: none has"


def _time(value: object) -> datetime | None:
    """A time as the API writes it; None for anything else."""
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _containers(status: Json) -> Iterator[Json]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _unready(policy: FailurePolicy) -> str:
    if policy.ready_s is None:
        return ""
    return f". Where its pods are not all ready {exact(policy.ready_s)} after admission, it is evicted and waits again"


def _after_failure(meta: Json, policy: FailurePolicy) -> str:
    said = (meta.get("annotations") or {}).get(ON_GPU_FAILURE)
    match said if said in {each.value for each in OnGpuFailure} else policy.on_gpu_failure:
        case OnGpuFailure.EVICT:
            return "The pod is evicted, and its job makes it anew"
        case OnGpuFailure.REQUEUE_GANG:
            return "The workload is evicted, and waits in its queue again"
        case OnGpuFailure.NOTIFY:
            return f"Its pods keep what they have (policy notify); the annotation {ON_GPU_FAILURE}: evict moves them"
        case _:
            return "The controller's gpuFailures.policy decides whether its pods are evicted"


def _failed(nodes: Iterable[GpuNode]) -> Iterator[tuple[str, list[tuple[str, Health]]]]:
    """The failed devices that each pod, ``NAMESPACE/NAME``, holds, as people name them, with their health."""
    by_pod: dict[str, list[tuple[str, Health]]] = {}
    for node in nodes:
        lost = dict(of for device in node.status.devices for of in _lost(device))
        for holder in node.status.holders:
            if holder.physical in lost:
                name, health = lost[holder.physical]
                told = (f"{name} of {node.metadata.name}", health)
                if told not in by_pod.setdefault(holder.pod_key, []):
                    by_pod[holder.pod_key].append(told)
    yield from by_pod.items()


def _lost(device: Device) -> Iterator[tuple[str, tuple[str, Health]]]:
    if device.health is not None and not device.health.handed_out:
        yield device.uuid, (f"GPU {device.index}", device.health)
    for instance in device.mig.instances if device.mig is not None else ():
        health = instance.health or device.health
        if health is not None and not health.handed_out:
            yield instance.uuid, (f"{instance.profile} of GPU {device.index}", health)
