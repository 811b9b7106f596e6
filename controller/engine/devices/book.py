"""Who has which devices of which node: what the agents report, and what is planned for pods that they do not show yet.

    GpuNode -> board, reports      Pod -> whose it is, what it was told      placement -> grants

A *grant* is what one pod set has on one node: a set of devices for each of its pods. Reports are the truth and replace
the plan; what a pod was told on its annotation comes next, then what was planned before, then the best set that is
free. Devices that a pod still holds whose workload has given back its place are free: the pod is on its way out, and
the kubelet lets nobody in before it is gone.

Grants change inside trials and are undone exactly; objects change outside of them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from controller.engine.devices.board import Board, Pool
from controller.engine.devices.grants import (
    NOBODY,
    Drift,
    Grant,
    NodeDevices,
    Owner,
    PodFacts,
    Set,
    chosen,
    host_of,
    is_over,
    pod_facts,
    same_hardware,
    still_free,
)
from controller.engine.devices.kinds import Free
from controller.engine.devices.mix import Mix, Shape
from controller.engine.devices.request import ANY, DeviceAsk
from controller.engine.resources import Amount, FlavorName, ResourceName
from controller.engine.topologyencoding import HOSTNAME_LABEL
from controller.engine.undo import UndoLog
from controller.engine.workload import TopologyUsage
from controller.objects.core import Pod
from controller.objects.gpunode import GpuNode

Place = tuple[FlavorName, TopologyUsage, Owner]
_MOST_OVER: Final = 4096
UNBOUNDED: Final = 1 << 30


class DeviceBook:
    """Nodes are known by the names of their objects, or by their hostname labels.

    ``held``: all places that are held now, asked for when a node's devices become known; ``told`` hears of nodes whose
    free devices change by that.
    """

    def __init__(
        self,
        undo: UndoLog,
        held: Callable[[], Iterable[Place]] = tuple,
        told: Callable[[Sequence[str]], object] = len,
    ) -> None:
        self.nodes: dict[str, NodeDevices] = {}
        self._hosts: dict[str, str] = {}
        """By hostname label the names of nodes that are called otherwise."""
        self._labels: dict[str, str] = {}
        self.mix = Mix()
        self._undo = undo
        self._held = held
        self._told = told
        self._pods: dict[str, PodFacts] = {}
        self._over: dict[str, None] = {}
        """Pods that had a place and have ended, the latest: their agent may report them still, or only then."""
        self._where: dict[str, str] = {}
        self._on_node: dict[str, dict[str, PodFacts]] = {}
        self._new: dict[str, None] = {}
        """Nodes whose grants are still to be made of what is held."""
        self._last: dict[tuple[Owner, str], tuple[Set, ...]] = {}
        """What was given back last: whoever takes the same place again keeps the devices."""

    def set_host(self, name: str, label: str | None) -> None:
        """The hostname label of a node, None without one."""
        known = self._labels.pop(name, None)
        if known is not None:
            self._hosts.pop(known, None)
        if label is not None and label != name:
            self._hosts[label] = name
            self._labels[name] = label

    # -- objects -----------------------------------------------------------------------------------------------------

    def set_gpu_node(self, given: GpuNode) -> bool:
        """Whether anything changed that placement looks at."""
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
            self._over.pop(key, None)
        self._settle(now)
        return board is not known.board or self._both(known) != self._both(now)

    def remove_gpu_node(self, name: str) -> bool:
        self._new.pop(name, None)
        return self.nodes.pop(name, None) is not None

    def set_pod(self, pod: Pod) -> tuple[str, ...]:
        """A pod of a placed workload, or one that has become something else. The nodes whose devices it changes."""
        facts = pod_facts(pod)
        if facts is None and is_over(pod) and pod.key not in self._pods:
            return self._ended_unseen(pod)
        return self._tell_pod(pod.key, facts)

    def remove_pod(self, key: str) -> tuple[str, ...]:
        return self._tell_pod(key, None)

    def _ended_unseen(self, pod: Pod) -> tuple[str, ...]:
        """It had ended when this controller began: its agent may report it still."""
        host = host_of(pod)
        state = self.node(host)
        if pod.key in self._over or not host or (state is not None and pod.key not in state.reports):
            return ()
        if state is None:
            self._remember(pod.key)
            return ()
        before = self._both(state)
        self._remember(pod.key)
        self._settle(state)
        return (state.name,) if self._both(state) != before else ()

    def _remember(self, key: str) -> None:
        self._over[key] = None
        if len(self._over) > _MOST_OVER:
            del self._over[next(iter(self._over))]

    def _tell_pod(self, key: str, now: PodFacts | None) -> tuple[str, ...]:
        before = self._pods.get(key)
        if before == now:
            return ()
        old, new = self._where.pop(key, None), self._name(now.node) if now is not None else None
        names = dict.fromkeys(name for name in (old, new) if name is not None)
        states = [self.nodes[name] for name in names if name in self.nodes]
        taken = [self._both(state) for state in states]
        if old is not None:
            del self._pods[key], self._on_node[old][key]
            if not self._on_node[old]:
                del self._on_node[old]
            if now is None:
                self._remember(key)
        if now is not None and new is not None:
            self._over.pop(key, None)
            self._pods[key] = now
            self._where[key] = new
            self._on_node.setdefault(new, {})[key] = now
        for state in states:
            self._settle(state)
        return tuple(state.name for state, was in zip(states, taken, strict=True) if self._both(state) != was)

    def _name(self, host: str) -> str:
        return self._hosts.get(host, host)

    def _both(self, state: NodeDevices) -> tuple[Counter[str], Counter[str]]:
        """What is given away, as it is and on an empty cluster."""
        return self._taken(state, empty=False), self._taken(state, empty=True)

    def begin(self, now_s: float, *, anew: bool = False) -> None:
        """Before decisions: grants for nodes that have become known, and the mix of requests as it is now."""
        self.mix.refresh(now_s, anew=anew)
        if self._new:
            self._catch_up()

    # -- questions ---------------------------------------------------------------------------------------------------

    def node(self, host: str) -> NodeDevices | None:
        return self.nodes.get(self._name(host))

    def room(self, host: str, single_pod: Mapping[ResourceName, Amount], ask: DeviceAsk, *, empty: bool) -> int:
        """How many such pods could be given devices there. ``empty``: as if nothing that may go were running."""
        state = self.node(host)
        if state is None:
            return UNBOUNDED
        wanted = state.board.wanted(single_pod)
        if not wanted:
            return 0 if ask.binding else UNBOUNDED
        link = None if ask.wished else ask.link
        taken = self._taken(state, empty=empty)
        return min(pool.kind.room(pool.kind.open(pool.free(taken), ask), size, link) for pool, size in wanted)

    def room_beside(
        self,
        host: str,
        leader: tuple[Mapping[ResourceName, Amount], DeviceAsk],
        workers: tuple[Mapping[ResourceName, Amount], DeviceAsk],
        *,
        empty: bool,
    ) -> int | None:
        """``room`` for workers once their leader has its devices; None where it finds none."""
        state = self.node(host)
        if state is None:
            return UNBOUNDED
        before = state.grants
        grant = self._filled(state, Grant(NOBODY, 1, *leader, (), assumed=True), (), empty=empty)
        if not grant.sets and state.board.wanted(leader[0]):
            return None
        state.put((*before, grant))
        try:
            return self.room(host, *workers, empty=empty)
        finally:
            state.put(before)

    def rise(self, host: str, single_pod: Mapping[ResourceName, Amount], ask: DeviceAsk, pods: int) -> float:
        """By how much so many pods there would add to the devices that nobody can use; 0 where nothing is known."""
        state = self.node(host)
        if state is None:
            return 0.0
        if state.free is None:
            state.free = tuple(self.free(state.name))
        return sum(
            [
                self.mix.rise(pool, name, free, single_pod[name], ask, pods)
                for name, pool, free in state.free
                if single_pod.get(name, 0) > 0
            ]
        )

    def free(self, name: str, *, empty: bool = False) -> Iterator[tuple[ResourceName, Pool, Free]]:
        """What is free on a node, by resource."""
        state = self.nodes.get(name)
        if state is not None:
            taken = self._taken(state, empty=empty)
            for resource, pool in state.board.pools.items():
                yield resource, pool, pool.free(taken)

    def measured(self, name: str, *, empty: bool = False) -> tuple[int, float] | None:
        """Devices that are free on a node, and how many of them are expected to be of no use; None if not known."""
        state = self.nodes.get(name)
        if state is None:
            return None
        known = state.measured.get(empty)
        if known is None or known[0] != self.mix.version:
            found = list(self.free(name, empty=empty))
            unusable = sum(self.mix.unusable(pool, resource, free) for resource, pool, free in found)
            known = self.mix.version, sum(sum(free) for _, _, free in found), unusable
            state.measured[empty] = known
        return known[1], known[2]

    def plan(self, owner: Owner, host: str) -> tuple[Set, ...]:
        """For each pod its devices; those that no pod is reported to hold yet come first."""
        if self._new and not self._undo.recording:
            self._catch_up()
        state = self.node(host)
        if state is None:
            return ()
        sets = [one for grant in state.grants if grant.owner == owner for one in grant.sets]
        held = {state.reports[key] for key, _ in self._known_pods(state, owner) if key in state.reports}
        return tuple(sorted(sets, key=held.__contains__))

    def drifts(self, workload: str) -> Iterator[Drift]:
        """Pods of the workload that hold other devices than their annotation and those of their like name."""
        for key, facts in self._pods.items():
            if facts.owner.workload == workload and facts.told:
                state = self.node(facts.node)
                held = state.reports.get(key) if state is not None else None
                if state is not None and held is not None and sorted(held) != sorted(facts.told):
                    alike = self._on_node.get(state.name, {}).values()
                    if not any(one.owner == facts.owner and sorted(one.told) == sorted(held) for one in alike):
                        yield Drift(key, state.name, facts.told, held)

    # -- places ------------------------------------------------------------------------------------------------------

    def add(self, usage: TopologyUsage, owner: Owner, *, assumed: bool = False, empty: bool = False) -> None:
        """Devices for all pods of an assignment, wherever they are known. ``assumed``: for the while of a question."""
        if not self.nodes or usage.levels[-1:] != (HOSTNAME_LABEL,):
            return
        recording = self._undo.recording
        if self._new and not recording and not assumed:
            self._catch_up()
        for values, pods in usage.domains:
            state = self.node(values[-1])
            if state is None or not state.board.wanted(usage.single_pod):
                continue
            grant = Grant(owner, pods, usage.single_pod, usage.devices or ANY, (), assumed)
            last = self._last.pop((owner, state.name), None) if not assumed else None
            if last is None and not recording and not assumed and not self._told_of(state, owner):
                self._note(state, grant)
            before = state.grants
            if not recording and not assumed and owner not in state.seen:
                state.seen.add(owner)
                if self._known_pods(state, owner):
                    state.forget()
            state.put((*before, self._filled(state, grant, last or (), empty=empty)))
            if not assumed:
                self._undo.record(state.put, before)
            if not recording and not assumed and self._short(state, state.grants[-1]):
                self._settle(state)

    def remove(self, usage: TopologyUsage, owner: Owner, *, assumed: bool = False) -> None:
        """The reverse of ``add``."""
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

    def complete(self, usage: TopologyUsage, owner: Owner) -> bool:
        """Whether each pod of the assignment has its devices, wherever devices are known."""
        for values, pods in usage.domains:
            state = self.node(values[-1])
            if state is not None and state.board.wanted(usage.single_pod):
                mine = [grant for grant in state.grants if grant.owner == owner]
                if sum(len(grant.sets) for grant in mine) < pods:
                    return False
        return True

    # -- inside ------------------------------------------------------------------------------------------------------

    def _taken(self, state: NodeDevices, *, empty: bool) -> Counter[str]:
        known = state.taken.get(empty)
        if known is None:
            known = Counter(self._foreign(state)) if state.reports else Counter()
            for grant in state.grants:
                if grant.assumed or not empty:
                    for one in grant.sets:
                        known.update(one)
            state.taken[empty] = known
        return known

    def _foreign(self, state: NodeDevices) -> Iterator[str]:
        """Held by pods that have no place from here."""
        for key, devices in state.reports.items():
            facts = self._pods.get(key)
            if key not in self._over and (facts is None or facts.owner not in state.seen):
                yield from devices

    def _known_pods(self, state: NodeDevices, owner: Owner) -> list[tuple[str, PodFacts]]:
        there = self._on_node.get(state.name)
        return [] if there is None else [(key, there[key]) for key in sorted(there) if there[key].owner == owner]

    def _short(self, state: NodeDevices, grant: Grant) -> bool:
        """Whether others have what would be needed for it, or what its pods were told."""
        if len(grant.sets) < grant.pods:
            return True
        pods = self._known_pods(state, grant.owner)
        told = Counter(facts.told for key, facts in pods if facts.told and key not in state.reports) if pods else None
        return told is not None and bool(told - Counter(grant.sets))

    def _told_of(self, state: NodeDevices, owner: Owner) -> bool:
        """Whether the owner was there before this controller began."""
        return bool(self._known_pods(state, owner))

    def _filled(self, state: NodeDevices, grant: Grant, last: Sequence[Set], *, empty: bool) -> Grant:
        """The grant with a set for each pod, as far as there are any.

        What was chosen for the like in the same state is chosen again: a cycle asks, tries and then admits.
        """
        plain = not last and not empty and not self._known_pods(state, grant.owner)
        if plain and state.chosen is not None and state.chosen[0] == state.grants:
            _, alike, sets = state.chosen
            if alike == (grant.pods, grant.single_pod, grant.ask):
                return grant._replace(sets=sets)
        found = self._newly_filled(state, grant, last, empty=empty)
        if plain:
            state.chosen = state.grants, (grant.pods, grant.single_pod, grant.ask), found.sets
        return found

    def _newly_filled(self, state: NodeDevices, grant: Grant, last: Sequence[Set], *, empty: bool) -> Grant:
        taken = Counter(self._taken(state, empty=empty))
        sets: list[Set] = []
        if state.name in self._on_node:
            pods = self._known_pods(state, grant.owner)
            sets = _holding(state, grant, pods, taken)
            sets += _promised(state, grant, pods, taken, grant.pods - len(sets))
        if last:
            sets += still_free(state.board, grant, last, taken, grant.pods - len(sets))
        sets += _picked(state, grant, taken, grant.pods - len(sets))
        return grant._replace(sets=tuple(sets))

    def _settle(self, state: NodeDevices) -> None:
        """Grants anew, after an object has changed: first what pods hold, then what they were told, then the rest."""
        there = self._on_node.get(state.name, {}).values()
        state.seen = {grant.owner for grant in state.grants} | (state.seen & {facts.owner for facts in there})
        state.forget()
        taken = Counter(self._foreign(state))
        pods: dict[Owner, list[tuple[str, PodFacts]]] = {}
        for key in sorted(self._on_node.get(state.name, ())):
            facts = self._pods[key]
            pods.setdefault(facts.owner, []).append((key, facts))
        backed = [_holding(state, grant, pods.get(grant.owner, ()), taken) for grant in state.grants]
        for at, grant in enumerate(state.grants):
            missing = grant.pods - len(backed[at])
            backed[at] += _promised(state, grant, pods.get(grant.owner, ()), taken, missing)
        found = self._completed(state, backed, Counter(taken), keeping=True)
        if any(len(sets) < grant.pods for grant, sets in zip(state.grants, found, strict=True)):
            # What nobody was told yet may move where that makes room for one more.
            anew = self._completed(state, backed, taken, keeping=False)
            found = max(found, anew, key=lambda one: sum(map(len, one)))
        state.put(tuple(grant._replace(sets=tuple(sets)) for grant, sets in zip(state.grants, found, strict=True)))

    def _completed(
        self, state: NodeDevices, backed: Sequence[Sequence[Set]], taken: Counter[str], *, keeping: bool
    ) -> list[list[Set]]:
        """By grant its sets, as many as there are. ``keeping``: those planned before, as far as they are free."""
        found = [list(sets) for sets in backed]
        for at, grant in enumerate(state.grants if keeping else ()):
            missing = grant.pods - len(found[at])
            if missing <= 0:
                continue
            mine = Counter(grant.sets) - Counter(found[at])
            # What pods were told that hold something by now, that or other devices.
            mine -= Counter(facts.told for key, facts in self._known_pods(state, grant.owner) if key in state.reports)
            found[at] += still_free(state.board, grant, mine.elements(), taken, missing)
        for at in sorted(range(len(found)), key=lambda at: _ease(state, state.grants[at])):
            found[at] += _picked(state, state.grants[at], taken, state.grants[at].pods - len(found[at]))
        return found

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
                    state.grants = (*state.grants, grant)
        found = [name for name in new if name in self.nodes]
        for name in found:
            self._settle(self.nodes[name])
        self._told(found)

    def _note(self, state: NodeDevices, grant: Grant) -> None:
        for name in state.board.pools:
            size = grant.single_pod.get(name, 0)
            if size > 0:
                self.mix.note(Shape(name, size, grant.ask), grant.pods)

    def _validate_owners(self) -> None:
        expected: Counter[tuple[str, Owner, int]] = Counter()
        for _, usage, owner in self._held():
            for values, pods in usage.domains if usage.levels[-1:] == (HOSTNAME_LABEL,) else ():
                state = self.node(values[-1])
                if state is not None and state.board.wanted(usage.single_pod):
                    expected[state.name, owner, pods] += 1
        found = Counter((name, one.owner, one.pods) for name, state in self.nodes.items() for one in state.grants)
        if self._held is not tuple and found != expected:
            raise AssertionError(f"devices are granted to {found - expected} and not to {expected - found}")

    def validate(self) -> None:
        """Recompute what is kept. AssertionError for a device given twice, or to one who has no place."""
        if not self._undo.recording and not self._new:
            self._validate_owners()
        for name, state in self.nodes.items():
            for empty, taken in list(state.taken.items()):
                del state.taken[empty]
                if self._taken(state, empty=empty) != taken:
                    raise AssertionError(f"{name}: kept {taken}, given away {state.taken[empty]}")
            replicas = {unit.uuid: unit.replicas for pool in state.board.pools.values() for unit in pool.units}
            held = Counter(state.reports.values())
            planned = {uuid for grant in state.grants for one in Counter(grant.sets) - held for uuid in one}
            for uuid, times in self._taken(state, empty=False).items():
                if uuid in planned and times > replicas.get(uuid, 0):
                    raise AssertionError(f"{name}: {uuid} is given {times} times")
            if state.chosen is not None and state.chosen[0] == state.grants:
                pods, single_pod, ask = state.chosen[1]
                anew = self._newly_filled(
                    state, Grant(NOBODY, pods, single_pod, ask, (), assumed=False), (), empty=False
                )
                if anew.sets != state.chosen[2]:
                    raise AssertionError(f"{name}: remembered {state.chosen[2]}, chosen {anew.sets}")
            for grant in state.grants:
                if grant.assumed:
                    raise AssertionError(f"{name}: devices were assumed for {grant.owner} and not taken back")
                if len(grant.sets) > grant.pods:
                    raise AssertionError(f"{name}: {grant.owner} has {len(grant.sets)} sets for {grant.pods} pods")


def _holding(state: NodeDevices, grant: Grant, pods: Sequence[tuple[str, PodFacts]], taken: Counter[str]) -> list[Set]:
    """What its pods hold; taken from then on."""
    size = state.board.size(grant.single_pod)
    held = [state.reports[key] for key, _ in pods if len(state.reports.get(key, ())) == size][: grant.pods]
    for one in held:
        taken.update(one)
    return held


def _promised(
    state: NodeDevices, grant: Grant, pods: Sequence[tuple[str, PodFacts]], taken: Counter[str], missing: int
) -> list[Set]:
    """What pods of it that hold nothing yet were told, where nobody else has it; taken from then on."""
    told = [facts.told for key, facts in pods if key not in state.reports and facts.told] if missing > 0 else ()
    return still_free(state.board, grant, told, taken, missing)


def _ease(state: NodeDevices, grant: Grant) -> tuple[bool, bool, int]:
    """Who finds devices almost anywhere comes last."""
    return not grant.ask.binding, grant.ask.link is None, -state.board.size(grant.single_pod)


def _picked(state: NodeDevices, grant: Grant, taken: Counter[str], missing: int) -> list[Set]:
    """Sets for so many pods, sooner of what nobody holds than of what those hold who are on their way out."""
    if missing <= 0 or not state.reported:
        return chosen(state.board, grant, taken, missing)
    found = chosen(state.board, grant, taken | state.reported, missing)
    for one in found:
        taken.update(one)
    return found + chosen(state.board, grant, taken, missing - len(found))
