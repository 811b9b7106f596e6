"""Chooses the sets of devices for the grants of one node: first what pods hold, then what their annotations say, then
what was planned before, then the best free set.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from controller.scheduler.devices.grants import (
    NOBODY,
    PLACEHOLDERS,
    Grant,
    GrantOwner,
    NodeDevices,
    PodFacts,
    Set,
    chosen,
    still_free,
)
from controller.scheduler.devices.pods import KnownPods

_Pods = Sequence[tuple[str, PodFacts]]


def taken(state: NodeDevices, pods: KnownPods, *, empty: bool) -> Counter[str]:
    """How often each device is given away. ``empty``: as if nothing that may be preempted were running."""
    known = state.taken.get(empty)
    if known is None:
        known = Counter(foreign(state, pods)) if state.reports else Counter()
        for grant in state.grants:
            if grant.assumed or not empty:
                for uuids in grant.sets:
                    known.update(uuids)
        state.taken[empty] = known
    return known


def foreign(state: NodeDevices, pods: KnownPods) -> Iterator[str]:
    """Devices held by pods whose pod set never had a grant on the node."""
    for key, devices in state.reports.items():
        facts = pods.get(key)
        if not pods.is_over(key) and (facts is None or facts.owner not in state.seen) and not _gives_way(facts):
            yield from devices


def _gives_way(facts: PodFacts | None) -> bool:
    return facts is not None and facts.owner == PLACEHOLDERS


def is_short(state: NodeDevices, grant: Grant, pods: KnownPods) -> bool:
    """Whether the grant lacks a set for one of its pods, or has not the set that a waiting pod's annotation names."""
    if len(grant.sets) < grant.pods:
        return True
    mine = pods.of(state.name, grant.owner)
    told = Counter(facts.told for key, facts in mine if _waits(state, key, facts)) if mine else None
    return told is not None and bool(told - Counter(grant.sets))


def filled(state: NodeDevices, grant: Grant, last: Sequence[Set], pods: KnownPods, *, empty: bool) -> Grant:
    """The grant with a set of devices for each pod, as far as there are free ones.

    For the same request in the same state the same sets are chosen again: a cycle asks, tries and then admits.
    """
    plain = not last and not empty and not pods.of(state.name, grant.owner)
    if plain and state.chosen is not None and state.chosen[0] == state.grants:
        _, alike, sets = state.chosen
        if alike == (grant.pods, grant.single_pod, grant.ask):
            return grant._replace(sets=sets)
    found = newly_filled(state, grant, last, pods, empty=empty)
    if plain:
        state.chosen = state.grants, (grant.pods, grant.single_pod, grant.ask), found.sets
    return found


def newly_filled(state: NodeDevices, grant: Grant, last: Sequence[Set], pods: KnownPods, *, empty: bool) -> Grant:
    taken_units = Counter(taken(state, pods, empty=empty))
    sets: list[Set] = []
    mine = pods.of(state.name, grant.owner)
    if mine:
        sets = _holding(state, grant, mine, taken_units, sparing=True)
        sets += _promised(state, grant, mine, taken_units, grant.pods - len(sets))
    if last:
        sets += still_free(state.board, grant, last, taken_units, grant.pods - len(sets))
    sets += _picked(state, grant, taken_units, grant.pods - len(sets))
    return grant._replace(sets=tuple(sets))


def settle(state: NodeDevices, pods: KnownPods) -> None:
    """Chooses all sets of the node anew, after an object has changed."""
    there = pods.on(state.name)
    state.seen = {grant.owner for grant in state.grants} | (state.seen & {facts.owner for facts in there.values()})
    state.forget()
    foreign_units = Counter(foreign(state, pods))
    mine: dict[GrantOwner, list[tuple[str, PodFacts]]] = {}
    for key in sorted(there):
        mine.setdefault(there[key].owner, []).append((key, there[key]))
    backed = [_holding(state, grant, mine.get(grant.owner, ()), foreign_units) for grant in state.grants]
    for at, grant in enumerate(state.grants):
        backed[at] += _promised(state, grant, mine.get(grant.owner, ()), foreign_units, grant.pods - len(backed[at]))
    sets_of = _completed(state, pods, backed, Counter(foreign_units), keeping=True)
    if any(len(sets) < grant.pods for grant, sets in zip(state.grants, sets_of, strict=True)):
        # Sets that no pod's annotation names yet may be exchanged where one more pod then fits.
        anew = _completed(state, pods, backed, foreign_units, keeping=False)
        sets_of = max(sets_of, anew, key=lambda sets: sum(map(len, sets)))
    state.put(tuple(grant._replace(sets=tuple(sets)) for grant, sets in zip(state.grants, sets_of, strict=True)))


def validate(state: NodeDevices, pods: KnownPods) -> None:
    """Recompute what is kept. AssertionError for a device that is given twice, or given to an owner without a place."""
    name = state.name
    for empty, kept in list(state.taken.items()):
        del state.taken[empty]
        if taken(state, pods, empty=empty) != kept:
            raise AssertionError(f"{name}: kept {kept}, given away {state.taken[empty]}")
    held = Counter(state.reports.values())
    planned = {uuid for grant in state.grants for devices in Counter(grant.sets) - held for uuid in devices}
    for uuid, times in taken(state, pods, empty=False).items():
        if uuid in planned and times > state.board.offered(uuid):
            raise AssertionError(f"{name}: {uuid} is given {times} times")
    if state.chosen is not None and state.chosen[0] == state.grants:
        count, single_pod, ask = state.chosen[1]
        grant = Grant(NOBODY, count, single_pod, ask, (), assumed=False)
        anew = newly_filled(state, grant, (), pods, empty=False)
        if anew.sets != state.chosen[2]:
            raise AssertionError(f"{name}: remembered {state.chosen[2]}, chosen {anew.sets}")
    for grant in state.grants:
        if grant.assumed:
            raise AssertionError(f"{name}: devices were assumed for {grant.owner} and not taken back")
        if len(grant.sets) > grant.pods:
            raise AssertionError(f"{name}: {grant.owner} has {len(grant.sets)} sets for {grant.pods} pods")


def _completed(
    state: NodeDevices, pods: KnownPods, backed: Sequence[Sequence[Set]], given: Counter[str], *, keeping: bool
) -> list[list[Set]]:
    """The sets of each grant, as many as can be found. ``keeping``: sets that were planned before are kept as far as
    they are free.
    """
    completed = [list(sets) for sets in backed]
    for at, grant in enumerate(state.grants if keeping else ()):
        missing = grant.pods - len(completed[at])
        if missing <= 0:
            continue
        planned = Counter(grant.sets) - Counter(completed[at])
        # Excluded are sets on the annotations of pods that hold devices by now, be it those or others.
        mine = pods.of(state.name, grant.owner)
        planned -= Counter(facts.told for key, facts in mine if key in state.reports and not _waits(state, key, facts))
        completed[at] += still_free(state.board, grant, planned.elements(), given, missing)
    for at in sorted(range(len(completed)), key=lambda at: _ease(state, state.grants[at])):
        completed[at] += _picked(state, state.grants[at], given, state.grants[at].pods - len(completed[at]))
    return completed


def _holding(state: NodeDevices, grant: Grant, pods: _Pods, given: Counter[str], *, sparing: bool = False) -> list[Set]:
    """The sets that the grant's pods hold; ``given`` counts them from then on. ``sparing``: without devices that others
    have by now, since an evicted workload may be admitted again before its old pods are known to stop.
    """
    size = state.board.size(grant.single_pod)
    holding: list[Set] = []
    for key, facts in pods:
        held = state.reports.get(key, ())
        if len(holding) == grant.pods:
            break
        if len(held) != size or facts.leaving:
            continue
        if sparing and any(given[uuid] + count > state.board.offered(uuid) for uuid, count in Counter(held).items()):
            continue
        given.update(held)
        holding.append(held)
    return holding


def _promised(state: NodeDevices, grant: Grant, pods: _Pods, given: Counter[str], missing: int) -> list[Set]:
    """The sets that the annotations of pods without devices name, where no other pod has them; ``given`` counts them
    from then on.
    """
    told = [facts.told for key, facts in pods if _waits(state, key, facts)] if missing > 0 else ()
    return still_free(state.board, grant, told, given, missing)


def _waits(state: NodeDevices, key: str, facts: PodFacts) -> bool:
    """Whether the pod's annotation names devices and the pod holds none, or only a part of them. Containers get their
    devices one by one; what an init container alone had is not reported, though the kubelet keeps it for the pod.
    """
    held = state.reports.get(key, ())
    part = len(held) < len(facts.told) and not Counter(held) - Counter(facts.told)
    return part and not facts.leaving


def _ease(state: NodeDevices, grant: Grant) -> tuple[bool, bool, int]:
    """The sort key of grants that choose: a grant that finds devices almost anywhere comes last."""
    return not grant.ask.binding, grant.ask.link is None, -state.board.size(grant.single_pod)


def _picked(state: NodeDevices, grant: Grant, given: Counter[str], missing: int) -> list[Set]:
    """Sets for ``missing`` pods; free devices come before those that pods on their way out still hold."""
    if missing <= 0 or not state.reported:
        return chosen(state.board, grant, given, missing)
    found = chosen(state.board, grant, given | state.reported, missing)
    for sets in found:
        given.update(sets)
    return found + chosen(state.board, grant, given, missing - len(found))
