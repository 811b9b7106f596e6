"""Decides which workloads lost a node, by nodes, topology assignments and pods. Pure: events in, verdicts out.

A node that is gone, or that has no condition Ready, is lost at once. A node that is not ready, or that repels a
workload's pods by a taint, is lost to that workload when none of its pods runs there any more: all are over or
terminating. With the gate TASReplaceNodeDueToNotReadyOverFixedTime half a minute of not being ready is enough. With
TASReplaceNodeOnPodTermination off, that time is all that counts, and a taint loses the node at once; a taint that the
pods tolerate for some time loses it when they go. The first lost node is named in the workload's
``status.unhealthyNodes``, and the second pass places that domain anew; another one lost before that evicts. Source:
Kueue's KEP-2724, "Node failures", and its gates' names.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, TypeVar

from msgspec import Struct

from controller.objects.core import Taint, Toleration
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.taints import untolerated

FIXED_TIME_S: Final = 30.0
T = TypeVar("T")


class NodeState(Struct, frozen=True, kw_only=True):
    """A node. ``host`` is its host name label; ``ready`` None: it has no condition. ``since_s``: since when, wall
    clock.
    """

    host: str
    ready: bool | None
    since_s: float = 0.0
    taints: tuple[Taint, ...] = ()


class PlacedWorkload(Struct, frozen=True, kw_only=True):
    """An admitted workload on nodes: pods by host, the hosts that are named as lost, what its pods tolerate there.

    ``pod_sets``: the pod sets that are placed by host. All fields are empty for a workload without an admission: a pod
    that waits for a host waits in vain.
    """

    pods: Mapping[str, int]
    pod_sets: frozenset[str] = frozenset()
    unhealthy: tuple[str, ...] = ()
    tolerations: Mapping[str, tuple[Toleration, ...]] = {}
    """The tolerations of pods by host, for hosts where they have some."""


NOWHERE: Final = PlacedWorkload(pods={})
"""The shared object of all workloads that wait, of which there may be a hundred thousand."""


class PodState(Enum):
    WAITING = auto()
    """The pod is assigned to its host, and bound to no node yet."""
    RUNNING = auto()
    """The pod is bound to a node, whether its containers have started or not."""
    TERMINATING = auto()
    """The pod has failed, or is being deleted."""
    SUCCEEDED = auto()


class _Repelled(Enum):
    NOT_READY = auto()
    BY_TAINT = auto()
    AFTER_A_TIME = auto()
    """The node has a taint that the pods tolerate for some seconds."""


class PodOnHost(Struct, frozen=True, gc=False):
    """A pod on a host. ``placed``: its host was chosen by a topology assignment. ``pod_set`` is empty if it names
    none. ``gc=False`` saves 16 bytes of each and the collector's walk: there are 50,000 in a large fleet.
    """

    workload: WorkloadKey
    host: str
    state: PodState
    pod_set: str = ""
    placed: bool = False
    uid: str = ""


class Verdict(Struct, frozen=True, kw_only=True):
    """The verdict on a workload. ``unhealthy`` is what ``status.unhealthyNodes`` must become; ``evict``: several nodes
    are lost, one is replaced.

    ``stuck``: pods that wait for a lost node, or for one that their workload is not assigned to any more, by
    ``namespace/name``: others take their place once they have failed.
    """

    workload: WorkloadKey
    unhealthy: tuple[str, ...]
    evict: bool = False
    stuck: tuple[str, ...] = ()


class NodeFailures:
    """The nodes that workloads have lost. ``touch`` has a workload judged again although nothing changed: its verdict
    could not be written.

    Indexes, recomputed by ``validate``: ``_names`` of ``_nodes`` by host, ``_on_host`` of ``_placed`` by host,
    ``_states`` and ``_waiting`` of ``_pods``. ``_dirty`` may name workloads that are gone: they get no verdict.
    """

    def __init__(self, gates: FeatureGates) -> None:
        self._on = gates.on("TASFailedNodeReplacement")
        self._by_pods = gates.on("TASReplaceNodeOnPodTermination")
        self._by_taints = gates.on("TASReplaceNodeOnNodeTaints")
        self._by_time = gates.on("TASReplaceNodeDueToNotReadyOverFixedTime") or not self._by_pods
        self._nodes: dict[str, NodeState] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        """Names of nodes by host name: nearly always one, and a set of one takes four times the memory."""
        self._placed: dict[WorkloadKey, PlacedWorkload] = {}
        self._on_host: dict[str, tuple[WorkloadKey, ...]] = {}
        self._pods: dict[str, PodOnHost] = {}
        self._states: Counter[tuple[WorkloadKey, str, PodState]] = Counter()
        self._waiting: dict[WorkloadKey, dict[str, set[str]]] = {}
        """Pods that are bound to no node yet, by workload and host."""
        self._dirty: set[WorkloadKey] = set()
        self._due: dict[str, float] = {}
        """The time at which a host will have been not ready for too long."""

    # -- events ------------------------------------------------------------------------------------------------------

    def set_node(self, name: str, state: NodeState) -> None:
        old = self._nodes.get(name)
        if old == state:
            return
        if old is not None and old.host != state.host:
            self.remove_node(name)
        self._nodes[name] = state
        _put(self._names, state.host, name)
        self._touch_host(state.host)

    def remove_node(self, name: str) -> None:
        old = self._nodes.pop(name, None)
        if old is None:
            return
        _take(self._names, old.host, name)
        self._touch_host(old.host)

    def set_workload(self, key: WorkloadKey, placed: PlacedWorkload | None) -> None:
        """Notes a workload. None: it is placed on no node, or not any more."""
        old = self._placed.pop(key, None)
        if old == placed:
            if placed is not None:
                self._placed[key] = placed
            return
        for host in old.pods if old is not None else ():
            _take(self._on_host, host, key)
        if placed is not None:
            self._placed[key] = placed
            for host in placed.pods:
                _put(self._on_host, host, key)
            if placed != NOWHERE or key in self._waiting:
                self._dirty.add(key)

    def set_pod(self, name: str, pod: PodOnHost | None) -> None:
        """Notes a pod. ``name`` is ``namespace/name``; None: it is gone, or belongs to no workload."""
        old = self._pods.pop(name, None)
        if pod is not None:
            self._pods[name] = pod
        if old == pod:
            return
        for one, step in ((old, -1), (pod, 1)):
            if one is None:
                continue
            self._states[one.workload, one.host, one.state] += step
            if not self._states[one.workload, one.host, one.state]:
                del self._states[one.workload, one.host, one.state]
            self._dirty.add(one.workload)
            if one.state is PodState.WAITING:
                self._mark_waiting(name, one, there=step > 0)

    def touch(self, key: WorkloadKey) -> None:
        self._dirty.add(key)

    # -- questions ---------------------------------------------------------------------------------------------------

    def verdicts(self, now_s: float) -> list[Verdict]:
        """The verdicts on workloads with a change; nothing for a workload that has lost no node."""
        for host in [host for host, due_s in self._due.items() if due_s <= now_s]:
            del self._due[host]
            self._touch_host(host)
        dirty, self._dirty = self._dirty, set()
        found = (self._judge(key, now_s) for key in sorted(dirty)) if self._on else ()
        return [verdict for verdict in found if verdict is not None]

    def next_due_s(self) -> float | None:
        return min(self._due.values(), default=None)

    @property
    def has_work(self) -> bool:
        """Whether ``verdicts`` has a workload to judge now."""
        return bool(self._dirty)

    def validate(self) -> None:
        """Recomputes the indexes. Raises AssertionError."""
        on_host: dict[str, set[WorkloadKey]] = {}
        for key, placed in self._placed.items():
            for host in placed.pods:
                on_host.setdefault(host, set()).add(key)
        assert on_host == {host: set(keys) for host, keys in self._on_host.items()}, (
            "the index of workloads by host has drifted"
        )
        names: dict[str, set[str]] = {}
        for name, state in self._nodes.items():
            names.setdefault(state.host, set()).add(name)
        assert names == {host: set(nodes) for host, nodes in self._names.items()}, (
            "the index of nodes by host has drifted"
        )
        states = Counter((pod.workload, pod.host, pod.state) for pod in self._pods.values())
        assert states == self._states, "the count of pods has drifted"
        waiting: dict[WorkloadKey, dict[str, set[str]]] = {}
        for name, pod in self._pods.items():
            if pod.state is PodState.WAITING:
                waiting.setdefault(pod.workload, {}).setdefault(pod.host, set()).add(name)
        assert waiting == self._waiting, "the index of pods that wait has drifted"

    def uid(self, pod: str) -> str:
        """The uid of the pod of that ``namespace/name``; empty where it is gone."""
        found = self._pods.get(pod)
        return "" if found is None else found.uid

    # -- inside ------------------------------------------------------------------------------------------------------

    def _judge(self, key: WorkloadKey, now_s: float) -> Verdict | None:
        placed = self._placed.get(key)
        if placed is None:
            return None
        # A named host that the workload has left is cleared by the second pass.
        lost = [host for host in placed.unhealthy if host not in placed.pods or self._lost(key, placed, host, now_s)]
        lost += sorted(
            host for host in placed.pods if host not in placed.unhealthy and self._lost(key, placed, host, now_s)
        )
        stuck = sorted(
            name
            for host, names in self._waiting.get(key, {}).items()
            for name in names
            if host in lost or (host not in placed.pods and (self._is_stray(placed, name) or not self._is_there(host)))
        )
        if tuple(lost) == placed.unhealthy and not stuck:
            return None
        return Verdict(workload=key, unhealthy=tuple(lost), evict=len(lost) > 1, stuck=tuple(stuck))

    def _lost(self, key: WorkloadKey, placed: PlacedWorkload, host: str, now_s: float) -> bool:
        states = [self._nodes[name] for name in self._names.get(host, ())]
        if all(state.ready is None for state in states):
            return self._needed(key, placed, host)
        repelled = [self._repelled(placed, host, state) for state in states]
        if None in repelled:
            return False
        unready = [state for state in states if state.ready is False]
        if self._by_time and unready:
            due_s = max(state.since_s for state in unready) + FIXED_TIME_S
            if due_s <= now_s:
                return self._needed(key, placed, host)
            self._due[host] = due_s
        at_once = not self._by_pods and _Repelled.BY_TAINT in repelled
        going = self._by_pods and any(why is not _Repelled.AFTER_A_TIME for why in repelled)
        # Pods that tolerate a taint for a time may come to the node: while there are none yet, nothing is lost.
        going = going or (_Repelled.AFTER_A_TIME in repelled and bool(self._states[key, host, PodState.TERMINATING]))
        gone = going and not self._states[key, host, PodState.RUNNING]
        return (at_once or gone) and self._needed(key, placed, host)

    def _repelled(self, placed: PlacedWorkload, host: str, state: NodeState) -> "_Repelled | None":
        """Why the workload's pods cannot stay on the node; None if they can."""
        if not state.ready:
            return _Repelled.NOT_READY
        if not self._by_taints:
            return None
        tolerations = placed.tolerations.get(host, ())
        if untolerated(state.taints, tolerations) is not None:
            return _Repelled.BY_TAINT
        lasting = [toleration for toleration in tolerations if toleration.toleration_seconds is None]
        return None if untolerated(state.taints, lasting) is None else _Repelled.AFTER_A_TIME

    def _is_stray(self, placed: PlacedWorkload, name: str) -> bool:
        """Whether the pod was sent to a host by an assignment that does not hold any more."""
        pod = self._pods[name]
        of_set = not placed.pods or not pod.pod_set or pod.pod_set in placed.pod_sets
        return pod.placed and of_set

    def _needed(self, key: WorkloadKey, placed: PlacedWorkload, host: str) -> bool:
        """Whether any of its pods has still to run there: a pod that has succeeded needs no other place."""
        return placed.pods[host] > self._states[key, host, PodState.SUCCEEDED]

    def _touch_host(self, host: str) -> None:
        self._due.pop(host, None)
        self._dirty.update(self._on_host.get(host, ()))
        self._dirty |= {key for key, hosts in self._waiting.items() if host in hosts}

    def _is_there(self, host: str) -> bool:
        return any(self._nodes[name].ready for name in self._names.get(host, ()))

    def _mark_waiting(self, name: str, pod: PodOnHost, *, there: bool) -> None:
        hosts = self._waiting.setdefault(pod.workload, {})
        names = hosts.setdefault(pod.host, set())
        if there:
            names.add(name)
            return
        names.discard(name)
        if not names:
            del hosts[pod.host]
        if not hosts:
            del self._waiting[pod.workload]


def _put(index: dict[str, tuple[T, ...]], host: str, one: T) -> None:
    there = index.get(host, ())
    if one not in there:
        index[host] = (*there, one)


def _take(index: dict[str, tuple[T, ...]], host: str, one: T) -> None:
    """Removes a value from an index; a host without any value is removed too."""
    left = tuple(each for each in index[host] if each != one)
    if left:
        index[host] = left
    else:
        del index[host]


def sentence(hosts: Iterable[str]) -> str:
    """The message of an eviction because of these hosts."""
    return f"Lost {', '.join(hosts)}: only one lost node is replaced at a time"
