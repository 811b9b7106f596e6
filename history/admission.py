"""Pods run by admission, and gangs whole."""

from collections.abc import Iterator

from history import objects as api
from history.objects import Key
from history.rule import LATE_S, Rule, Wrong
from history.world import World

_PART = "tessera.dev/gang"
_HALF_S = 120.0
_NATIVE_S = 30.0
"""kube-scheduler binds the pods of a gang of its own in one cycle, with one call each."""
_GROUP = ("spec", "schedulingGroup", "podGroupName")
_AT_ONCE = ("JobSet", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")


class Unadmitted(Rule, name="ran-without-admission", lasts_s=LATE_S, kinds=("Pod", "Workload")):
    """``ran-without-admission``: a queued pod has a node, has not ended and is not being deleted, and no Workload of it
    is admitted; counts after 5 seconds, since pods and Workloads come by two watches.

    A pod is queued by a queue's label on an owner, by the queue's gates, by a Workload, and by its own label where pods
    are queued.
    """

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        times, workloads = self.world.times.get(subject), unadmitted(self.world, subject)
        if times is not None and times.unready:
            yield Wrong((str(subject),), f"it was admitted before its checks were ready: {', '.join(times.unready)}")
        if workloads is not None and not any(self.world.times[each].was_admitted for each in workloads):
            node = api.text(self.world.objects[subject], "spec", "nodeName")
            said = "no Workload of it is admitted" if workloads else "has no Workload"
            yield Wrong(api.named([subject, *workloads]), f"it runs on {node} and {said}")


class Released(Rule, name="released-early", lasts_s=10.0, kinds=("Pod",)):
    """``released-early``: pods run on after the quota of their Workload went to others; counts after 10 seconds, since
    a job that ends leaves pods that are deleted next.
    """

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        workloads = unadmitted(self.world, subject) or ()
        if any(self.world.times[each].was_admitted for each in workloads):
            over = any(api.is_true(self.world.objects[each], "Finished") for each in workloads)
            said = "is finished" if over else "has no quota any more"
            yield Wrong(api.named([subject, *workloads]), f"its Workload {said}, and it runs on")


def unadmitted(world: World, key: Key) -> list[Key] | None:
    """The Workloads of a queued pod that runs, of which none is admitted; None for any other pod."""
    pod = world.objects.get(key)
    if pod is None or not api.is_bound(pod) or api.is_leaving(pod) or not world.is_queued(pod):
        return None
    workloads = world.workloads_of(key)
    return None if any(api.is_admitted(world.objects[each]) for each in workloads) else workloads


class HalfGang(Rule, name="half-gang", lasts_s=_HALF_S, kinds=("Workload",)):
    """``half-gang``: of a pod set that is admitted some pods have had a node for 120 seconds, and others have none; or
    some wait behind the queue's gates and others do not; or of one of its pod sets none has, while another's have. That
    long, since nodes are chosen one by one and controllers make lost pods anew. Or it is admitted with fewer pods than
    its minimum.

    Pod sets of which there is no pod yet are waited for, unless the job is of a kind that makes all at once. Workloads
    that say which of their pods have to run together (an elastic gang) are not judged.

    Pods that name a PodGroup of Kubernetes' own (``spec.schedulingGroup``) start whole or not at all: 30 seconds count,
    until they have been whole once.
    """

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        workload = self.world.objects.get(subject)
        is_whole = workload is not None and not api.is_true(workload, "Evicted") and not api.note(workload, _PART)
        if workload is None or not is_whole or not api.is_admitted(workload) or _is_grant(workload):
            return
        pods = (self.world.objects[each] for each in self.world.pods_of(subject))
        there = [pod for pod in pods if not api.is_leaving(pod)]
        ended, assignments = api.reclaimable(workload), api.assignments(workload)
        wanted = {api.text(each, "name"): each for each in api.rows(workload, "spec", "podSets")}
        is_begun, is_ordered = any(map(api.is_bound, there)), self._is_ordered(subject)
        groups = {(subject.namespace, name) for pod in there if (name := api.text(pod, *_GROUP))}
        needed = sum(api.whole(each, "count", default=1) for each in assignments) - sum(ended.values())
        if sum(map(_is_placed, there)) >= needed:
            self.world.were_whole |= groups
        later_s = _NATIVE_S - _HALF_S if groups - self.world.were_whole else 0.0
        for assignment in assignments:
            name = api.text(assignment, "name")
            count = api.whole(assignment, "count", default=1)
            asked = wanted.get(name, {})
            least = api.whole(asked, "minCount", default=api.whole(asked, "count", default=1))
            if count < least:
                yield Wrong((str(subject),), f"pod set {name} is admitted with {count} of at least {least} pods")
            mine = [pod for pod in there if len(assignments) == 1 or api.label(pod, api.POD_SET) == name]
            placed = [pod for pod in mine if _is_placed(pod)]
            is_due = any(map(api.is_bound, mine)) or (is_begun and (bool(mine) or not is_ordered))
            if is_due and len(placed) < count - ended.get(name, 0):
                waiting = sum(map(api.is_gated, mine))
                said = f", {waiting} wait behind a gate" if waiting else ""
                told = f"{len(placed)} of {count} pods of pod set {name} have a node{said}"
                yield Wrong((str(subject),), told, later_s)

    def _is_ordered(self, workload: Key) -> bool:
        """Whether its job may make some pods after others have started or ended; so it may where it is not known."""
        jobs = [self.world.objects[each] for each in self.world.owners_of(workload)]
        waits = [api.rows(row, "dependsOn") for each in jobs for row in api.rows(each, "spec", "replicatedJobs")]
        orders = [api.text(each, "spec", "startupPolicy", "startupPolicyOrder") for each in jobs]
        return any(waits) or "InOrder" in orders or not any(each.get("kind") in _AT_ONCE for each in jobs)


def _is_grant(workload: api.Json) -> bool:
    """Whether its units are for pods that come and go: it is a CapacityRequest's."""
    return any(each.get("kind") == "CapacityRequest" for each in api.owners(workload))


def _is_placed(pod: api.Json) -> bool:
    return api.is_bound(pod) or api.is_over(pod)
