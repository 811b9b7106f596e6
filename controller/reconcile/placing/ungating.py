"""Decides which of a workload's pods may be scheduled now, and where: deals its topology assignment to its pods.

Each domain of the assignment has as many places as it counts pods. Where the pods of a set have ranks, the places are
numbered through in the order of the domains and rank r has place r; otherwise, and if the places taken already
contradict that (a domain was replaced, and the order is another now), free places are given in order. Source: Kueue's
KEP 2724, "Support for ReplicatedJobs, rank-based ordering" and "Node failures".
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from controller.jobs.framework.podview import INDEX_OFFSET
from controller.objects.meta import Struct
from controller.objects.placeencoding import HOSTNAME_LABEL, Domain, decode
from controller.objects.workload import PodSet, PodSetAssignment, PodSetTopologyRequest, Workload, admitted_pods

_DIGITS: Final = 9
_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
_MPI: Final = "MPIJob"
_GROUP_MEMBERS: Final = 2


class Ranks(Struct, frozen=True, kw_only=True):
    """The labels of a pod that give its rank: index, plus sub-group times the pods of one, minus ``offset`` and
    ``before``.

    ``before``: pods of the leader's set, if leader and workers are numbered through. An index below that means that
    each set is numbered by itself.
    """

    index_label: str
    sub_group_label: str = ""
    sub_group_count: int = 0
    offset: int = 0
    before: int = 0


class PodSetPlaces(Struct, frozen=True, kw_only=True):
    """One pod set of an admitted workload. ``levels`` and ``domains`` are empty if it is not placed.

    ``count`` pods were admitted; ``needed`` of them must exist before the first of a gang loses its gate.
    """

    name: str
    count: int
    needed: int
    levels: tuple[str, ...] = ()
    domains: tuple[Domain, ...] = ()
    ranks: Ranks | None = None


class PlacedPod(Struct, frozen=True, kw_only=True):
    """A pod of a pod set that may run, or that still has its place; other pods are left out.

    ``waits``: it has the gate. A pod without it is where its node selector says. ``ended``: it keeps its place because
    no other pod follows it, and does not count as a running pod of a gang. ``leaves``: it is being deleted. ``age``
    orders pods from the oldest on.
    """

    uid: str
    pod_set: str
    age: tuple[float, str]
    waits: bool
    ended: bool = False
    leaves: bool = False
    labels: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}


class PodPlace(Struct, frozen=True):
    """A pod to ungate: ``uid``, and the node selector on top of its own."""

    uid: str
    node_selector: Mapping[str, str]


def before(workload: Workload) -> dict[str, int]:
    """The number of pods of its leader that are numbered before the pods of a pod set; sets without a leader are left
    out.

    The leader is the smaller of the two sets of a group, of equal ones the first. A LeaderWorkerSet numbers its workers
    from 1 on, and so does an MPIJob whose launcher works. Jobs number the pods of each set from 0 on. Source: Kueue's
    topology ungater (pkg/controller/tas), where a pod set's rank offset comes from its group.
    """
    admission = workload.status.admission
    asked = {one.name: one.topology_request for one in workload.spec.pod_sets if one.topology_request is not None}
    groups: dict[str, list[PodSetAssignment]] = {}
    for one in admission.pod_set_assignments if admission is not None else ():
        request = asked.get(one.name)
        if request is not None and request.pod_set_group_name and not _numbers_each_set(workload, request):
            groups.setdefault(request.pod_set_group_name, []).append(one)
    offsets = {}
    for members in groups.values():
        if len(members) == _GROUP_MEMBERS:
            leader, workers = sorted(members, key=lambda one: one.count or 0)
            offsets[workers.name] = leader.count or 0
    return offsets


def _numbers_each_set(workload: Workload, request: PodSetTopologyRequest) -> bool:
    if request.pod_index_label == _REPLICA_INDEX:
        owners = [one.kind for one in workload.metadata.owner_references if one.controller]
        return bool(owners) and _MPI not in owners
    return request.pod_index_label == _COMPLETION_INDEX


def pod_set_places(
    pod_set: PodSet,
    assignment: PodSetAssignment,
    *,
    offset: int | None = None,
    needed: int | None = None,
    before: int = 0,
) -> PodSetPlaces:
    """The places of a pod set. ``offset`` None: the one in its template. Raises
    ``TopologyEncodingError``.
    """
    count = admitted_pods(pod_set, assignment)
    asked, topology = pod_set.topology_request, assignment.topology_assignment
    ranks = None
    if asked is not None and asked.pod_index_label:
        ranks = Ranks(
            index_label=asked.pod_index_label,
            sub_group_label=asked.sub_group_index_label or "",
            sub_group_count=asked.sub_group_count or 0,
            offset=_offset(pod_set) if offset is None else offset,
            before=before,
        )
    return PodSetPlaces(
        name=pod_set.name,
        count=count,
        needed=count if needed is None else min(needed, count),
        levels=() if topology is None else topology.levels,
        domains=() if topology is None else tuple(decode(topology)),
        ranks=ranks,
    )


def ungated(
    sets: Sequence[PodSetPlaces], pods: Sequence[PlacedPod], unhealthy: frozenset[str] = frozenset(), *, gang: bool
) -> tuple[PodPlace, ...]:
    """The pods to ungate now, each once, in order. The answer stays the same until one of them has lost its gate.

    ``unhealthy``: host names that get no pod. ``gang``: no pod loses its gate before every set has the pods it needs
    and each of these has its place; once one has, the rest follow as they come.
    """
    by_uid = {pod.uid: pod for pod in pods}  # one that is listed twice is one pod
    places: list[PodPlace] = []
    complete = True
    for pod_set in sets:
        own = [pod for pod in by_uid.values() if pod.pod_set == pod_set.name]
        gone = sum(not pod.waits for pod in own)
        here = _set(pod_set, own, unhealthy)
        places += here
        complete = complete and gone + len(here) >= pod_set.needed
    begun = any(not pod.waits and not pod.ended for pod in by_uid.values())
    return tuple(places) if begun or complete or not gang else ()


def rank(ranks: Ranks, labels: Mapping[str, str], count: int) -> int | None:
    """The pod's number within its set of ``count``; None if its labels name none, or none that exists."""
    index = number(labels.get(ranks.index_label))
    if index is None:
        return None
    index -= ranks.offset + ranks.before
    if ranks.sub_group_label and ranks.sub_group_count > 0:
        group = number(labels.get(ranks.sub_group_label))
        size, rest = divmod(count, ranks.sub_group_count)
        if group is None or rest or not 0 <= index < size or group >= ranks.sub_group_count:
            return None
        index += group * size
    return index if 0 <= index < count else None


def _offset(pod_set: PodSet) -> int:
    """The number of the set's first pod; 0 if the template has none, or none in digits."""
    return number(pod_set.template.metadata.annotations.get(INDEX_OFFSET)) or 0


def number(value: str | None) -> int | None:
    """The number that a label's value has in digits; None for any other value."""
    if value is None or not (value.isascii() and value.isdecimal()) or len(value) > _DIGITS:
        return None
    return int(value)


def _set(places: PodSetPlaces, pods: Sequence[PlacedPod], unhealthy: frozenset[str]) -> list[PodPlace]:
    waiting = sorted((pod for pod in pods if pod.waits), key=lambda pod: pod.age)
    gone = [pod for pod in pods if not pod.waits]
    if not places.levels:
        return [PodPlace(pod.uid, {}) for pod in waiting[: max(places.count - len(gone), 0)]]
    domains = _merged(places.domains)
    taken: Counter[int] = Counter()
    where: dict[str, int] = {}
    of_values = {domain.values: number for number, domain in enumerate(domains)}
    for pod in gone:
        # A pod in no domain has lost its place to another pod. It is terminating, and takes no other place.
        number = of_values.get(tuple(pod.node_selector.get(level, "") for level in places.levels))
        if number is not None:
            taken[number] += 1
            where[pod.uid] = number
    hosts = places.levels[-1] == HOSTNAME_LABEL
    free = [
        0 if hosts and domain.values[-1] in unhealthy else max(domain.pods - taken[number], 0)
        for number, domain in enumerate(domains)
    ]
    owners = [number for number, domain in enumerate(domains) for _ in range(domain.pods)]
    numbered = _ranked(places, pods, len(owners))
    if numbered is not None and all(owners[numbered[uid]] == number for uid, number in where.items()):
        chosen = _by_rank(waiting, {numbered[uid] for uid in where}, numbered, owners, free)
    else:
        order = waiting if numbered is None else sorted(waiting, key=lambda pod: (numbered[pod.uid], pod.age))
        chosen = _in_order(order, free)
    return [PodPlace(uid, dict(zip(places.levels, domains[number].values, strict=True))) for uid, number in chosen]


def _merged(domains: Sequence[Domain]) -> list[Domain]:
    """The domains, with a domain that is listed twice merged into one."""
    pods: dict[tuple[str, ...], int] = {}
    for domain in domains:
        pods[domain.values] = pods.get(domain.values, 0) + max(domain.pods, 0)
    return [Domain(values, count) for values, count in pods.items()]


def _ranked(places: PodSetPlaces, pods: Sequence[PlacedPod], total: int) -> dict[str, int] | None:
    """The rank of each pod by uid; None if one of the pods has none."""
    ranks = places.ranks
    if ranks is None:
        return None
    indexes = (number(pod.labels.get(ranks.index_label)) for pod in pods)
    if any(index is not None and index < ranks.offset + ranks.before for index in indexes):
        ranks = msgspec.structs.replace(ranks, before=0)
    found = {pod.uid: rank(ranks, pod.labels, total) for pod in pods}
    known = {uid: number for uid, number in found.items() if number is not None}
    return known if len(known) == len(found) else None


def _by_rank(
    waiting: Sequence[PlacedPod],
    held: set[int],
    numbered: Mapping[str, int],
    owners: Sequence[int],
    free: list[int],
) -> list[tuple[str, int]]:
    """Gives each waiting pod the place of its rank. Of two pods with one rank the second waits until the first has
    ended: its place is still taken.
    """
    chosen = []
    for pod in waiting:
        number = numbered[pod.uid]
        if number not in held and free[owners[number]] > 0:
            held.add(number)
            free[owners[number]] -= 1
            chosen.append((pod.uid, owners[number]))
    return chosen


def _in_order(waiting: Sequence[PlacedPod], free: list[int]) -> list[tuple[str, int]]:
    slots = (number for number, places in enumerate(free) for _ in range(places))
    return [(pod.uid, number) for pod, number in zip(waiting, slots, strict=False)]
