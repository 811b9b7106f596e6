"""The pods of a job that began with its minimum: which of them are in the minimum, and which are above it. Pure.

All pods of such a job are created behind one gate. The minimum has as many of each pod set as its Workload: pods that
run, then those of the lowest ranks, then the oldest. Pods beyond it are marked, and queued pod by pod from there on
(``controller.pods``); such a pod comes back only if a place of the minimum stays free, because its pod has ended and
its controller makes no other.
"""

from collections.abc import Collection, Sequence
from typing import Final

from controller.objects.meta import Struct
from controller.reconcile.placing.ungating import PlacedPod, PodSetPlaces, number

_NO_RANK: Final = 2**31


class Parts(Struct, frozen=True, kw_only=True):
    """Changes to the pods of a job that grows, by uid: ``above`` are to be marked as above its minimum, ``back`` to
    lose the mark.

    ``short``: pod sets with a free place, and a pod above that could have it.
    """

    above: frozenset[str] = frozenset()
    back: frozenset[str] = frozenset()
    short: frozenset[str] = frozenset()


def parts(
    sets: Sequence[PodSetPlaces], own: Sequence[PlacedPod], above: Sequence[PlacedPod], overdue: Collection[str]
) -> Parts:
    """The changes to the pods of a job. ``own``: pods that are in the minimum or may come into it, ``above``: pods that
    wait above it.

    ``overdue``: pod sets that have been short for so long that their free places go to pods above.
    """
    marked, back, short = list[str](), list[str](), set[str]()
    for pod_set in sets:
        mine = [pod for pod in own if pod.pod_set == pod_set.name]
        leaving = [pod for pod in mine if pod.leaves]
        lasting = sorted((pod for pod in mine if not pod.leaves), key=lambda pod: (pod.waits, _order(pod_set, pod)))
        marked += [pod.uid for pod in lasting[pod_set.count :] if pod.waits]
        # Two pods may share a place while one leaves: the other waits in the minimum for its end.
        free = pod_set.count - len(lasting) - len(leaving)
        waiting = sorted((pod for pod in above if pod.pod_set == pod_set.name), key=lambda pod: _order(pod_set, pod))
        if free <= 0 or not waiting:
            continue
        short.add(pod_set.name)
        if pod_set.name in overdue:
            back += [pod.uid for pod in waiting[:free]]
    return Parts(above=frozenset(marked), back=frozenset(back), short=frozenset(short))


def _order(pod_set: PodSetPlaces, pod: PlacedPod) -> tuple[int, tuple[float, str]]:
    """The sort key of pods: by rank, even beyond the places of the set; then from the oldest on."""
    index = None if pod_set.ranks is None else number(pod.labels.get(pod_set.ranks.index_label))
    return (_NO_RANK if index is None else index, pod.age)
