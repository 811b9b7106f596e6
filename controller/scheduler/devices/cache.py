"""Which pod has which devices of which node: what agents report, and what is planned for pods that no report shows yet.

    GpuNode -> board, reports      Pod -> its owner, its annotation      placement -> grants

A *grant* is what one pod set has on one node: a set of devices for each of its pods. For each pod the reported devices
count first and replace the plan; next those on its annotation, then those planned before, then the best set that is
free. Devices that a pod still holds after its workload gave back its place are free: the pod is on its way out, and the
kubelet admits no other pod to them before it is gone.

Grants change inside trials and are undone exactly; objects change outside of trials.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from controller.objects.core import Pod
from controller.objects.decode import GpuNode
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.scheduler.devices import granting
from controller.scheduler.devices.board import Board
from controller.scheduler.devices.grants import (
    Drift,
    Grant,
    GrantOwner,
    NodeDevices,
    PodFacts,
    Set,
    host_of,
    is_over,
    pod_facts,
    same_hardware,
)
from controller.scheduler.devices.mix import DeviceShape
from controller.scheduler.devices.supply import DeviceSupply, labelled_gpus
from controller.scheduler.model.devicerequest import ANY
from controller.scheduler.model.resources import FlavorName
from controller.scheduler.model.undo import UndoLog
from controller.scheduler.model.workload import TopologyUsage

HeldPlace = tuple[FlavorName, TopologyUsage, GrantOwner]
_QUIET_S: Final = 30.0


class DeviceCache(DeviceSupply):
    """The part of the supply that changes with objects and places.

    A node's grants are those of the pod sets that hold places on it, except on nodes in ``_new``: these have none yet,
    and get them from all held places before anything is asked of them. So when a controller starts, each node is
    settled once, and not again for each of its pods and workloads. ``_last`` outlives the grants that it was taken
    from.

    ``held`` returns all places that are held now; it is called when a node's devices become known. ``told`` is called
    with the nodes whose free devices that changes.
    """

    def __init__(
        self,
        undo: UndoLog,
        held: Callable[[], Iterable[HeldPlace]] = tuple,
        told: Callable[[Sequence[str]], object] = len,
    ) -> None:
        super().__init__()
        self._undo = undo
        self._held = held
        self._told = told
        self._new: dict[str, None] = {}
        """Nodes whose grants are still to be made from the held places."""
        self._unsettled = 0, 0.0
        """The number of nodes in ``_new`` at the last ``follow``, and since when it is that number; only ``follow``
        writes it.
        """
        self._last: dict[tuple[GrantOwner, str], tuple[Set, ...]] = {}
        """The devices that were given back last: a pod set that takes the same place again keeps them."""

    def set_host(self, name: str, label: str | None, labels: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Store the hostname label of a node (None if it has none), by which its places are found, and what its
        ``labels`` say of its GPUs. Returns whether places find the node by another name than before.
        """
        labelled = labelled_gpus(labels)
        if labelled is not None:
            self._labelled[name] = labelled
        else:
            self._labelled.pop(name, None)
        renamed = self.pods.set_host(name, label)
        if renamed:
            for state in (
                self.nodes.get(node_name) for node_name in dict.fromkeys((name, label)) if node_name is not None
            ):
                if state is not None:
                    state.put(())
                    self._new[state.name] = None
        return renamed

    # -- objects -----------------------------------------------------------------------------------------------------

    def set_gpu_node(self, given: GpuNode) -> bool:
        """Store a GpuNode. Returns whether anything changed that placement looks at."""
        name, status = given.metadata.name, given.status
        known = self.nodes.get(name)
        if known is None:
            self.nodes[name] = NodeDevices(name, Board(given), status, ())
            self._new[name] = None
            return True
        if known.given == status:
            return False
        board = known.board if same_hardware(known.given, status) else Board(given)
        now = self.nodes[name] = NodeDevices(name, board, status, known.grants)
        now.seen = known.seen
        for key in known.reports.keys() - now.reports.keys():
            self.pods.forget(key)
        if name not in self._new:
            granting.settle(now, self.pods)
        return board is not known.board or self._both(known) != self._both(now)

    def remove_gpu_node(self, name: str) -> bool:
        self._new.pop(name, None)
        return self.nodes.pop(name, None) is not None

    def set_pod(self, pod: Pod) -> tuple[str, ...]:
        """Store a pod of a placed workload, or one that was such a pod before. Returns the nodes whose free devices it
        changes.
        """
        facts = pod_facts(pod)
        if facts is None and is_over(pod) and pod.key not in self.pods:
            return self._ended_unseen(pod)
        return self._tell_pod(pod.key, facts)

    def remove_pod(self, key: str) -> tuple[str, ...]:
        return self._tell_pod(key, None)

    def _ended_unseen(self, pod: Pod) -> tuple[str, ...]:
        """Handles a pod that had ended when this controller started: its agent may still report it."""
        host = host_of(pod)
        state = self.node(host)
        if self.pods.is_over(pod.key) or not host or (state is not None and pod.key not in state.reports):
            return ()
        if state is None:
            self.pods.remember(pod.key)
            return ()
        before = self._both(state)
        self.pods.remember(pod.key)
        if state.name in self._new:
            state.forget()
            return ()
        granting.settle(state, self.pods)
        return (state.name,) if self._both(state) != before else ()

    def _tell_pod(self, key: str, now: PodFacts | None) -> tuple[str, ...]:
        host = self.pods.name(now.node) if now is not None else None
        before = self.pods.get(key)
        names = dict.fromkeys(node for node in (before and self.pods.name(before.node), host) if node is not None)
        there = [self.nodes[name] for name in names if name in self.nodes] if before != now else []
        states = [state for state in there if state.name not in self._new]
        taken = [self._both(state) for state in states]
        self.pods.tell(key, now)
        for state in there:
            if state.name in self._new:
                state.forget()  # its grants are made later, from all that is known then
            else:
                granting.settle(state, self.pods)
        return tuple(state.name for state, was in zip(states, taken, strict=True) if self._both(state) != was)

    def _both(self, state: NodeDevices) -> tuple[Counter[str], Counter[str]]:
        """How often each device is given away, as things are and on an empty cluster."""
        return self._taken(state, empty=False), self._taken(state, empty=True)

    def begin(self, now_s: float, *, anew: bool = False) -> None:
        """Prepares for decisions: makes the grants of new nodes, and brings the mix of requests up to date."""
        self.mix.refresh(now_s, anew=anew)
        if self._new:
            self._catch_up()

    @property
    def is_behind(self) -> bool:
        """Whether the grants of some nodes are still to be made."""
        return bool(self._new)

    def follow(self, now_s: float) -> None:
        """``begin`` for an engine that decides nothing. Waits until no new node has appeared for ``_QUIET_S``, since
        what runs on the nodes may come with later pages of the initial lists.
        """
        known, since_s = self._unsettled
        if len(self._new) != known or now_s < since_s:
            self._unsettled = len(self._new), now_s
        elif self._new and now_s >= since_s + _QUIET_S:
            self._catch_up()

    # -- questions ---------------------------------------------------------------------------------------------------

    def plan(self, owner: GrantOwner, host: str) -> tuple[Set, ...]:
        """The devices of each pod of the owner on this host; sets that no pod is reported to hold come first."""
        if self._new and not self._undo.recording:
            self._catch_up()
        state = self.node(host)
        if state is None:
            return ()
        sets = [uuids for grant in state.grants if grant.owner == owner for uuids in grant.sets]
        pods = self.pods.of(state.name, owner)
        held = {state.reports[key] for key, facts in pods if key in state.reports and not facts.leaving}
        return tuple(sorted(sets, key=held.__contains__))

    def drifts(self, workload: str) -> Iterator[Drift]:
        """Pods of the workload that hold other devices than their annotation says, and than the annotation of any pod
        of the same pod set on the node.
        """
        for key, facts in self.pods.of_workload(workload):
            state = self.node(facts.node) if facts.told else None
            held = state.reports.get(key) if state is not None else None
            if state is not None and held is not None and sorted(held) != sorted(facts.told):
                alike = self.pods.on(state.name).values()
                if not any(other.owner == facts.owner and sorted(other.told) == sorted(held) for other in alike):
                    yield Drift(key, state.name, facts.told, held)

    # -- places ------------------------------------------------------------------------------------------------------

    def add(self, usage: TopologyUsage, owner: GrantOwner, *, assumed: bool = False, empty: bool = False) -> None:
        """Grants devices to all pods of an assignment, on nodes whose devices are known. ``assumed``: only while a
        question is answered.
        """
        if not self.nodes or usage.levels[-1:] != (HOSTNAME_LABEL,):
            return
        recording = self._undo.recording
        for values, pods in usage.domains:
            state = self.node(values[-1])
            if state is None or not state.board.wanted(usage.single_pod):
                continue
            if state.name in self._new and not recording and not assumed:
                self._see(state, owner)
                continue
            grant = Grant(owner, pods, usage.single_pod, usage.devices or ANY, (), assumed)
            last = self._last.pop((owner, state.name), None) if not assumed else None
            if last is None and not recording and not assumed and not self.pods.of(state.name, owner):
                self._note(state, grant)
            before = state.grants
            if not recording and not assumed:
                self._see(state, owner)
            state.put((*before, granting.filled(state, grant, last or (), self.pods, empty=empty)))
            if not assumed:
                self._undo.record(state.put, before)
            if not recording and not assumed and granting.is_short(state, state.grants[-1], self.pods):
                granting.settle(state, self.pods)

    def remove(self, usage: TopologyUsage, owner: GrantOwner, *, assumed: bool = False) -> None:
        """Takes back what ``add`` granted."""
        if not self.nodes or usage.levels[-1:] != (HOSTNAME_LABEL,):
            return
        if not self._undo.recording:
            self._last.clear()
        for values, _pods in usage.domains:
            state = self.node(values[-1])
            if state is None:
                continue
            before = state.grants
            at = next((at for at in range(len(before) - 1, -1, -1) if before[at].owner == owner), None)
            if at is None:
                continue
            if not assumed:
                self._last[owner, state.name] = before[at].sets
                self._undo.record(state.put, before)
            state.put((*before[:at], *before[at + 1 :]))

    def complete(self, usage: TopologyUsage, owner: GrantOwner) -> bool:
        """Whether each pod of the assignment has its devices, on all nodes whose devices are known."""
        for values, pods in usage.domains:
            state = self.node(values[-1])
            if state is not None and state.board.wanted(usage.single_pod):
                mine = [grant for grant in state.grants if grant.owner == owner]
                if sum(len(grant.sets) for grant in mine) < pods:
                    return False
        return True

    # -- inside ------------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        new, self._new = self._new, {}
        for _, usage, owner in self._held():
            if usage.levels[-1:] != (HOSTNAME_LABEL,):
                continue
            for values, pods in usage.domains:
                state = self.node(values[-1])
                if state is not None and state.name in new and state.board.wanted(usage.single_pod):
                    grant = Grant(owner, pods, usage.single_pod, usage.devices or ANY, (), assumed=False)
                    self._note(state, grant)
                    state.put((*state.grants, grant))
        found = [name for name in new if name in self.nodes]
        for name in found:
            granting.settle(self.nodes[name], self.pods)
        self._told(found)

    def _see(self, state: NodeDevices, owner: GrantOwner) -> None:
        if owner not in state.seen:
            state.seen.add(owner)
            if self.pods.of(state.name, owner):
                state.forget()

    def _note(self, state: NodeDevices, grant: Grant) -> None:
        for name in state.board.pools:
            size = grant.single_pod.get(name, 0)
            if size > 0:
                self.mix.note(DeviceShape(name, size, grant.ask), grant.pods)

    def _validate_owners(self) -> None:
        expected: Counter[tuple[str, GrantOwner, int]] = Counter()
        for _, usage, owner in self._held():
            for values, pods in usage.domains if usage.levels[-1:] == (HOSTNAME_LABEL,) else ():
                state = self.node(values[-1])
                if state is not None and state.board.wanted(usage.single_pod):
                    expected[state.name, owner, pods] += 1
        found = Counter((name, grant.owner, grant.pods) for name, state in self.nodes.items() for grant in state.grants)
        if self._held is not tuple and found != expected:
            raise AssertionError(f"devices are granted to {found - expected} and not to {expected - found}")

    def validate(self) -> None:
        """Recompute what is kept. AssertionError for a device that is given twice, or given to an owner without a
        place.
        """
        if not self._undo.recording and not self._new:
            self._validate_owners()
        self.pods.validate()
        for state in self.nodes.values():
            granting.validate(state, self.pods)
