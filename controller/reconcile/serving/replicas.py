"""Replicas that each have a Workload of their own: which are above the minimum, and which takes over whose quota. Pure.

Both are marks on Workloads, so they survive the controller and are visible to all:

- ``tessera.dev/above-min-replicas``: the engine counts it as of the lowest priority, so it is reclaimed first. A new
  replica has the mark until it is known to be needed for the minimum; no mark is put on one that keeps the minimum.
- ``kueue.x-k8s.io/workload-slice-replacement-for``: the engine admits it with the quota of the Workload that it names,
  which ends. A newer revision takes from an older one, and any replica from one that is being deleted: revisions only
  grow, so no two take from each other for ever.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from controller.objects.meta import Struct


class Replica(Struct, frozen=True, kw_only=True):
    """A pod, or a group of pods, with its Workload. ``name``: the Workload's, without its namespace.

    ``holds``: it has quota and is not evicted. ``waits``: it has none, and its pod exists behind its gate. ``leaves``:
    its pod is being deleted, and not by the queue. ``is_spare``: it has the mark. ``follows``: the Workload whose quota
    it is to take over, empty for none. ``revision`` grows with each version of the template.
    """

    name: str
    created_s: float
    revision: int = 0
    holds: bool = False
    waits: bool = False
    leaves: bool = False
    is_ready: bool = False
    is_spare: bool = False
    follows: str = ""


def above_minimum(replicas: Iterable[Replica], minimum: int | None) -> frozenset[str]:
    """Names of the replicas above the minimum; empty if there is no minimum.

    Replicas that hold quota keep the minimum before those that wait, those that have kept it so far before others, then
    the oldest. Replicas that leave do not count, and stay as they are.
    """
    if minimum is None:
        return frozenset()
    staying = [replica for replica in replicas if not replica.leaves]
    staying.sort(key=lambda replica: (not replica.holds, replica.is_spare, replica.created_s, replica.name))
    return frozenset(replica.name for replica in staying[minimum:])


def changed_marks(replicas: Sequence[Replica], minimum: int | None) -> dict[str, bool]:
    """Whether each replica whose mark is wrong is to have it. Replicas that lose it come first: the minimum is kept at
    all times.
    """
    above = above_minimum(replicas, minimum)
    wrong = [replica for replica in replicas if not replica.leaves and replica.is_spare != (replica.name in above)]
    wrong.sort(key=lambda replica: not replica.is_spare)
    return {replica.name: replica.name in above for replica in wrong}


def takeovers(replicas: Sequence[Replica], is_stuck: Callable[[str], bool]) -> dict[str, str]:
    """The replica whose quota each one is to take over, by name; empty for a replica that is to take over none any
    more.

    ``is_stuck``: the replica does not fit as things are; called only for those that could take over another's quota.
    """
    there = {replica.name: replica for replica in replicas}
    waiting = sorted(
        (replica for replica in replicas if replica.waits),
        key=lambda replica: (-replica.revision, replica.created_s, replica.name),
    )
    giver_of: dict[str, str] = {}
    taken: set[str] = set()
    for replica in waiting:
        if replica.follows in there and there[replica.follows].holds:
            taken.add(replica.follows)
        elif replica.follows:
            giver_of[replica.name] = ""
    for replica in waiting:
        if replica.follows and replica.name not in giver_of:
            continue
        giver = next(_givers(replica, (other for other in replicas if other.name not in taken)), None)
        if giver is not None and is_stuck(replica.name):
            taken.add(giver.name)
            giver_of[replica.name] = giver.name
    return giver_of


def _givers(taker: Replica, others: Iterable[Replica]) -> Iterator[Replica]:
    """The replicas whose quota it may take: one that leaves comes first, then the one that is missed least."""
    giving = [other for other in others if other.holds and (other.leaves or other.revision < taker.revision)]
    giving.sort(
        key=lambda other: (
            not other.leaves,
            not other.is_spare,
            other.is_ready,
            other.revision,
            -other.created_s,
            other.name,
        )
    )
    yield from giving
