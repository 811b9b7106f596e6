"""The drain of GPUs: who leaves, and how. Pure: what is to be drained, who holds it, pods and time in; actions out.

The reason is data: a repair that was granted its drain is one, a reboot of the node that is planned another. A pod's
policy about failed GPUs says how it goes: it is evicted, or its gang is requeued as a whole, at once. A pod that its
policy leaves alone may finish until the drain's time is over; then its gang is requeued through its workload, or the
pod is evicted where it has none. A gang is decided on as a whole and once, however many of its GPUs are drained: the
earliest time counts. What another part does about a GPU that has failed is not done twice: until the time is over, a
drain of such a GPU leaves pods that are evicted or requeued to it. Pods on GPUs that are well, and leave for another
GPU's sake, may all finish until the time is over.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from controller.cluster.config.settings import OnGpuFailure
from controller.reconcile.failures.gpufailures import Victim, gang_of
from controller.scheduler.model.resources import WorkloadKey

AGAIN_S: Final = 120.0
"""The time after which an action is taken once more for pods that still hold a GPU."""
REFUSED_S: Final = 30.0
"""The time for which an eviction may be refused before people are told; it is asked for on, and never forced."""


class DrainReason(StrEnum):
    """Why devices are to be freed. Other reasons than repairs are for whoever drains."""

    REPAIR = "GpuRepair"
    REBOOT = "GpuReboot"


class Drain(Struct, frozen=True, kw_only=True):
    """Devices of one node that are to be freed: UUIDs of GPUs and MIG instances. ``cause``: the reason in words.

    ``until_s``: how long pods may stay that their policy leaves alone. ``ends_s``: from then on the drain does not hold
    any more, unless it is set anew. ``failed``: the devices have failed, and pods that are to be evicted or requeued
    for that are dealt with elsewhere. ``waits``: pods of every policy may stay until ``until_s``.
    """

    devices: frozenset[str]
    reason: DrainReason
    cause: str
    until_s: float
    ends_s: float = float("inf")
    failed: bool = False
    waits: bool = False

    @property
    def is_at_once(self) -> bool:
        """Whether pods whose policy says so leave before the time is over."""
        return not (self.failed or self.waits)

    def lets_stay(self, policy: OnGpuFailure) -> bool:
        """Whether a pod of this policy may finish until the time is over, and nobody else asks it to leave before."""
        return policy is OnGpuFailure.NOTIFY or (self.waits and not self.failed)


class DrainKind(StrEnum):
    TELL = "tell"
    """People are told until when the pod may stay."""
    EVICT = "evict"
    REQUEUE = "requeue-gang"


class DrainAction(Struct, frozen=True, kw_only=True):
    """One action about a gang. ``pods``: those that it is about, with their uids; of a requeued gang those that hold
    devices. ``until_s``: when the time of those that are told is over.
    """

    kind: DrainKind
    gang: str
    pods: tuple[tuple[str, str], ...]
    node: str
    drain: Drain
    workload: WorkloadKey | None = None

    @property
    def until_s(self) -> float:
        return self.drain.until_s


class _Done(Struct):
    """The progress of a pod. ``told_s``: the time that people were told. ``acted_s``: when an action was last taken.
    ``refused_s``: since when its eviction is refused.
    """

    told_s: float | None = None
    acted_s: float | None = None
    refused_s: float | None = None
    is_said: bool = False


class Draining:
    """``unknown`` names the pods to be read, ``set_pod`` takes what was found, ``due_actions`` decides.

    ``_drains`` has nodes with drains alone, ``_holders`` those nodes' pods by device. ``_pods`` and ``_done`` have pods
    of ``_holders`` only: a pod that holds nothing drained any more is forgotten.
    """

    def __init__(self) -> None:
        self._drains: dict[str, tuple[Drain, ...]] = {}
        self._holders: dict[str, dict[str, tuple[str, ...]]] = {}
        self._pods: dict[str, Victim | None] = {}
        self._done: dict[str, _Done] = {}
        self._due_s: float | None = None

    # -- events ------------------------------------------------------------------------------------------------------

    def set_node(self, node: str, drains: Sequence[Drain], holders: Sequence[tuple[str, str]] = ()) -> bool:
        """Notes what is to be drained on a node, and who holds its devices: pairs of device and pod. Returns whether
        anything has changed.
        """
        devices = {device for drain in drains for device in drain.devices}
        held: dict[str, tuple[str, ...]] = {}
        for device, pod in holders:
            if device in devices and pod not in held.get(device, ()):
                held[device] = (*held.get(device, ()), pod)
        before = self._drains.get(node, ()), self._holders.get(node, {})
        if before == (tuple(drains), held):
            return False
        if drains:
            self._drains[node], self._holders[node] = tuple(drains), held
        else:
            self._drains.pop(node, None)
            self._holders.pop(node, None)
        self._forget()
        return True

    def set_pod(self, pod: str, found: Victim | None) -> None:
        """Notes a pod. None: it is gone, over, or leaving already."""
        if pod not in self._all_pods():
            return
        before = self._pods.get(pod)
        if before is not None and found is not None and before.uid != found.uid:
            self._done.pop(pod, None)
        self._pods[pod] = found

    def refused(self, action: DrainAction, now_s: float) -> bool:
        """Notes that an eviction was refused, by a PodDisruptionBudget as a rule: it is due again. Returns whether it
        has been refused for so long that people are to be told, which is True once.
        """
        long = False
        for pod, _ in action.pods:
            done = self._done.get(pod)
            if done is None:
                continue
            done.acted_s = None
            done.refused_s = now_s if done.refused_s is None else done.refused_s
            if not done.is_said and now_s >= done.refused_s + REFUSED_S:
                done.is_said = long = True
        return long

    def failed(self, action: DrainAction) -> None:
        """Notes that the action could not be carried out: it is due again, and its pods are to be read anew."""
        for pod, _ in action.pods:
            if pod in self._done:
                self._done[pod].acted_s = None
            self._pods.pop(pod, None)

    # -- questions ---------------------------------------------------------------------------------------------------

    def unknown(self) -> list[str]:
        """Pods that hold something that is drained, and are not known."""
        return sorted(self._all_pods() - self._pods.keys())

    def nodes_of(self, pod: str) -> set[str]:
        """The nodes on which the pod is said to hold something that is drained."""
        return {node for node, held in self._holders.items() if any(pod in pods for pods in held.values())}

    def due_actions(self, now_s: float) -> list[DrainAction]:
        """The actions to take now, each once. Call again at ``next_due_s``."""
        self._due_s = None
        actions: list[DrainAction] = []
        for gang, cases in sorted(self._gangs(now_s).items()):
            actions += self._of_gang(gang, cases, now_s)
        return actions

    def next_due_s(self) -> float | None:
        """The time at which a pod's time is over, or an action is due again; None if there is none."""
        return self._due_s

    def validate(self) -> None:
        """Recomputes the indexes. Raises AssertionError, also if something is kept of pods that hold nothing."""
        assert self._drains.keys() == self._holders.keys(), "holders of nodes that are not drained"
        assert all(self._drains.values()), "an empty entry of drains"
        for node, held in self._holders.items():
            drained = {device for drain in self._drains[node] for device in drain.devices}
            assert held.keys() <= drained, "holders of devices that are not drained"
        assert (self._pods.keys() | self._done.keys()) <= self._all_pods(), "a pod is remembered that holds nothing"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _all_pods(self) -> set[str]:
        return {pod for held in self._holders.values() for pods in held.values() for pod in pods}

    def _forget(self) -> None:
        held = self._all_pods()
        self._pods = {pod: victim for pod, victim in self._pods.items() if pod in held}
        self._done = {pod: done for pod, done in self._done.items() if pod in held}

    def _cases(self, now_s: float) -> Iterator[tuple[str, str, Drain]]:
        """Each pod that holds something drained, with its node and the drain whose time is over first."""
        for node, drains in self._drains.items():
            drain_of: dict[str, Drain] = {}
            for drain in drains:
                if now_s >= drain.ends_s:
                    continue
                self._due_at(drain.ends_s, now_s)
                for device in drain.devices:
                    for pod in self._holders[node].get(device, ()):
                        if pod not in drain_of or drain.until_s < drain_of[pod].until_s:
                            drain_of[pod] = drain
            for pod, drain in drain_of.items():
                yield pod, node, drain

    def _gangs(self, now_s: float) -> Mapping[str, list[tuple[str, Victim, str, Drain]]]:
        """The cases of pods that are there, by gang."""
        by_gang: dict[str, list[tuple[str, Victim, str, Drain]]] = {}
        for pod, node, drain in self._cases(now_s):
            victim = self._pods.get(pod)
            if victim is not None:
                by_gang.setdefault(gang_of(pod, victim), []).append((pod, victim, node, drain))
        return by_gang

    def _of_gang(self, gang: str, cases: list[tuple[str, Victim, str, Drain]], now_s: float) -> Iterator[DrainAction]:
        """The actions about one gang. A gang that one of its pods wants requeued is requeued as a whole."""
        cases = sorted(cases, key=lambda case: (case[3].until_s, case[0]))
        _, first, node, drain = cases[0]
        is_over = now_s >= drain.until_s
        policies = {victim.policy for _, victim, _, each in cases if each.is_at_once}
        if is_over or OnGpuFailure.REQUEUE_GANG in policies:
            yield from self._leave(gang, cases, now_s)
            return
        self._due_at(drain.until_s, now_s)
        evicted = [case for case in cases if case[1].policy is OnGpuFailure.EVICT and case[3].is_at_once]
        for case in evicted:
            yield from self._evict(gang, case, now_s)
        left = [case for case in cases if case[3].lets_stay(case[1].policy)]
        untold = [case for case in left if self._note(case[0]).told_s != drain.until_s]
        for case in untold:
            self._note(case[0]).told_s = drain.until_s
        if untold:
            yield self._action(DrainKind.TELL, gang, untold, node, drain, first.workload)

    def _leave(self, gang: str, cases: list[tuple[str, Victim, str, Drain]], now_s: float) -> Iterator[DrainAction]:
        """All of the gang goes: by its workload, once; or, where it has none, pod by pod."""
        _, victim, node, drain = cases[0]
        if victim.workload is None:
            for case in cases:
                yield from self._evict(gang, case, now_s)
        elif not any(self._is_acted(case[0], now_s) for case in cases):
            for case in cases:
                self._note(case[0]).acted_s = now_s
            self._due_at(now_s + AGAIN_S, now_s)
            yield self._action(DrainKind.REQUEUE, gang, cases, node, drain, victim.workload)

    def _evict(self, gang: str, case: tuple[str, Victim, str, Drain], now_s: float) -> Iterator[DrainAction]:
        pod, victim, node, drain = case
        if not self._is_acted(pod, now_s):
            self._note(pod).acted_s = now_s
            self._due_at(now_s + AGAIN_S, now_s)
            yield self._action(DrainKind.EVICT, gang, [case], node, drain, victim.workload)

    def _action(
        self,
        kind: DrainKind,
        gang: str,
        cases: Sequence[tuple[str, Victim, str, Drain]],
        node: str,
        drain: Drain,
        workload: WorkloadKey | None,
    ) -> DrainAction:
        pods = tuple((pod, victim.uid) for pod, victim, _, _ in cases)
        return DrainAction(kind=kind, gang=gang, pods=pods, node=node, drain=drain, workload=workload)

    def _note(self, pod: str) -> _Done:
        return self._done.setdefault(pod, _Done())

    def _is_acted(self, pod: str, now_s: float) -> bool:
        acted_s = self._note(pod).acted_s
        if acted_s is None or now_s >= acted_s + AGAIN_S:
            return False
        self._due_at(acted_s + AGAIN_S, now_s)
        return True

    def _due_at(self, at_s: float, now_s: float) -> None:
        if now_s < at_s < float("inf"):
            self._due_s = at_s if self._due_s is None else min(self._due_s, at_s)
