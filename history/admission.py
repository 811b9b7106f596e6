"""Pods run by admission, and gangs whole."""

from collections.abc import Iterator
from typing import ClassVar

from history import objects as api
from history.objects import Json, Key
from history.rule import LATE_S, Rule, Wrong

_PART = "tessera.dev/gang"
_HALF_S = 120.0


class Unadmitted(Rule):
    """``ran-without-admission``: a queued pod has a node, has not ended and is not being deleted, and no Workload of it
    is admitted; counts after 5 seconds, since pods and Workloads come by two watches.

    A pod is queued by a queue's label on an owner, by the queue's gates, by a Workload, and by its own label where pods
    are queued.
    """

    name: ClassVar[str] = "ran-without-admission"
    lasts_s: ClassVar[float] = LATE_S
    kinds: ClassVar[tuple[str, ...]] = ("Pod",)

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        pod = self.world.objects.get(subject)
        if pod is None or not _runs(pod) or not self.world.is_queued(pod):
            return
        workloads = self.world.workloads_of(subject)
        if any(api.is_admitted(self.world.objects[each]) for each in workloads):
            return
        if not any(self.world.times[each].was_admitted for each in workloads):
            said = "and no Workload of it is admitted" if workloads else "and has no Workload"
            yield Wrong(api.named([subject, *workloads]), f"it runs on {api.text(pod, 'spec', 'nodeName')} {said}")


class Released(Rule):
    """``released-early``: pods run on after the quota of their Workload went to others; counts after 10 seconds, since
    a job that ends leaves pods that are deleted next.
    """

    name: ClassVar[str] = "released-early"
    lasts_s: ClassVar[float] = 10.0
    kinds: ClassVar[tuple[str, ...]] = ("Pod",)

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        pod = self.world.objects.get(subject)
        if pod is None or not _runs(pod) or not self.world.is_queued(pod):
            return
        workloads = self.world.workloads_of(subject)
        found = [self.world.objects[each] for each in workloads]
        if (
            found
            and not any(map(api.is_admitted, found))
            and any(self.world.times[each].was_admitted for each in workloads)
        ):
            said = "is finished" if any(api.is_true(each, "Finished") for each in found) else "has no quota any more"
            yield Wrong(api.named([subject, *workloads]), f"its Workload {said}, and it runs on")


def _runs(pod: Json) -> bool:
    return api.is_bound(pod) and not api.is_leaving(pod)


class HalfGang(Rule):
    """``half-gang``: of a pod set that is admitted some pods have had a node for 120 seconds, and others have none; or
    some wait behind the queue's gates and others do not. That long, since nodes are chosen one by one and controllers
    make lost pods anew. Or it is admitted with fewer pods than its minimum.

    Workloads that say which of their pods have to run together (an elastic gang) are not judged.
    """

    name: ClassVar[str] = "half-gang"
    lasts_s: ClassVar[float] = _HALF_S
    kinds: ClassVar[tuple[str, ...]] = ("Workload",)

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        workload = self.world.objects.get(subject)
        if (
            workload is None
            or not api.is_admitted(workload)
            or api.is_true(workload, "Evicted")
            or api.note(workload, _PART)
        ):
            return
        pods = [self.world.objects[each] for each in self.world.pods_of(subject)]
        there = [pod for pod in pods if not api.is_leaving(pod)]
        ended, given = api.reclaimable(workload), api.assignments(workload)
        wanted = {api.text(each, "name"): each for each in api.rows(workload, "spec", "podSets")}
        for each in given:
            name = api.text(each, "name")
            count = api.whole(each, "count", default=1)
            asked = wanted.get(name, {})
            least = api.whole(asked, "minCount", default=api.whole(asked, "count", default=1))
            if count < least:
                yield Wrong((str(subject),), f"pod set {name} is admitted with {count} of at least {least} pods")
            mine = [pod for pod in there if len(given) == 1 or api.label(pod, api.POD_SET) == name]
            placed = {api.uid(pod) for pod in mine if api.is_bound(pod) or api.is_over(pod)}
            runs = any(map(api.is_bound, mine))
            if runs and len(placed) < count - ended.get(name, 0):
                waiting = sum(map(api.is_gated, mine))
                said = f", {waiting} wait behind a gate" if waiting else ""
                yield Wrong((str(subject),), f"{len(placed)} of {count} pods of pod set {name} have a node{said}")
