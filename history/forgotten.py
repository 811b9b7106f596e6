"""Every job that was accepted has a decision, or a reason why there is none."""

from collections import Counter
from collections.abc import Iterable, Iterator

from history import objects as api
from history.objects import Json, Key
from history.order import place_of
from history.podcost import UNIT, pod_cost
from history.quotas import Cell, follows_capacity
from history.rule import Rule, Scene, Wrong

_BOUND_S = 60.0
_JOBS = ("Job", "JobSet")
_KUBEFLOW = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "TrainJob")
_SUSPENDED = (*_KUBEFLOW, "RayJob", "RayCluster", "AppWrapper")
"""Kinds of jobs that may be nobody's, unless they are suspended."""
_FOR_QUOTA = "WaitingForQuota"
_NO_ROOM = "insufficient unused quota"
"""Part of Kueue's message for missing quota: its reason is Pending whatever is missing."""
_UNSAID = "free quota for workloads that wait as Pending and do not say that quota is missing"


class Forgotten(Rule, name="forgotten", lasts_s=_BOUND_S, kinds=("Workload", "Pod", *_JOBS, *_SUSPENDED)):
    """``forgotten``: for 60 seconds, which is far above what a decision, a reason or a release takes,

    - a job or pod that names a queue has no Workload, or a Workload that waits has no reason, or is held back for
      longer than it was to be;
    - a Workload is admitted, and its job is suspended or its pods wait behind the queue's gates; or it has quota, its
      checks are ready, and it is not admitted;
    - a Workload has quota that nothing needs: its job is over or gone, another slice took its place, or it is
      evicted and has no pods;
    - the first of its ClusterQueue says that it waits for quota, while all who wait in its tree fit into what is free.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked: dict[Key, tuple[str, Counter[str] | None]] = {}
        """The ClusterQueue of each Workload that waits, and its requests; None where these are not known."""
        self._in: dict[str, set[Key]] = {}
        """The Workloads of ``_asked`` by ClusterQueue."""
        self._roomy: set[str] = set()
        """Trees, by their first ClusterQueue, in which all who wait would fit."""

    def subjects(self, touched: Iterable[Key]) -> Iterator[Key]:
        every = set(touched)
        if self.scene.quotas.reshaped:
            every |= self._asked.keys()
        for key in every:
            if key.kind == "Workload":
                self._note(key)
        behind: set[Key] = set()
        for tree in [each.name for each in every if each.kind == api.TREE]:
            was, now, root = tree in self._roomy, self._has_room(tree), self.scene.quotas.root_of(tree)
            (self._roomy.add if now else self._roomy.discard)(tree)
            if (was or now) and root is not None:
                behind.update(*(self._in.get(queue, ()) for queue in self.scene.quotas.queues(root)))
        return super().subjects(every | behind)

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        body = self.world.objects.get(subject)
        if body is None or api.is_leaving(body):
            return
        if subject.kind == "Workload":
            yield from self._workload(subject, body)
        elif subject.namespace in self.world.settings.unmanaged:
            return
        elif subject.kind == "Pod":
            yield from self._pod(subject, body)
        elif api.label(body, api.QUEUE) and not is_finished(body) and (subject.kind in _JOBS or is_suspended(body)):
            above = any(api.label(each, api.QUEUE) for each in self.world.chain(body))
            if not above and not self.world.workloads_for(body):
                yield Wrong((str(subject),), "it names a queue and has no Workload")

    def _pod(self, subject: Key, pod: Json) -> Iterator[Wrong]:
        if not api.is_gated(pod) or api.is_over(pod):
            return
        workloads = self.world.workloads_of(subject)
        alone = not workloads and not api.label(pod, api.GROUP) and not api.label(pod, api.CAPACITY)
        if alone and (not api.owners(pod) or api.is_gated(pod, api.GATES[:1])):
            yield Wrong((str(subject),), "it waits behind the queue's gate and has no Workload")
        found = [self.world.objects[each] for each in workloads]
        if any(api.is_admitted(each) and not api.is_true(each, "Evicted") for each in found):
            said = "its Workload is admitted, and it waits behind the queue's gate"
            yield Wrong(api.named([subject, *workloads]), said)

    def _workload(self, subject: Key, workload: Json) -> Iterator[Wrong]:
        if api.is_true(workload, "Finished"):
            return
        back_s = api.stamp_s(api.text(workload, "status", "requeueState", "requeueAt"))
        held_back = api.condition(workload, "Requeued")
        if held_back.get("status") == "False" and back_s is not None:
            made = api.text(workload, "metadata", "creationTimestamp")
            from_s = api.stamp_s(api.text(held_back, "lastTransitionTime") or made) or back_s
            yield Wrong((str(subject),), "the time at which it comes back is over", max(0.0, back_s - from_s))
        elif api.holds(workload):
            yield from self._holder(subject, workload)
        elif api.waits(workload):
            reason = api.condition(workload, "QuotaReserved")
            if not api.text(reason, "reason") or not api.text(reason, "message"):
                yield Wrong((str(subject),), "it waits and no reason is told")
            elif reason["reason"] == "Pending" and _NO_ROOM not in reason["message"]:
                self.scene.unseen.add(_UNSAID)
            elif reason["reason"] in (_FOR_QUOTA, "Pending") and self._is_next(subject):
                queue = f"ClusterQueue {self.world.cluster_queue(workload)}"
                yield Wrong((str(subject), queue), "it waits for quota, and what is free is enough for all who wait")

    def _holder(self, subject: Key, workload: Json) -> Iterator[Wrong]:
        jobs = self.world.owners_of(subject)
        if api.is_true(workload, "Evicted"):
            pods = [self.world.objects[each] for each in self.world.pods_of(subject)]
            if not any(api.is_bound(each) for each in pods):
                yield Wrong((str(subject),), "it is evicted, none of its pods runs, and it has quota")
            return
        for job in jobs:
            body = self.world.objects[job]
            if is_finished(body):
                yield Wrong(api.named([subject, job]), "its job is over, and it has quota")
                continue
            stopped = is_suspended(body) and not runs_away(body) and api.label(body, api.QUEUE)
            if api.is_admitted(workload) and stopped:
                yield Wrong(api.named([subject, job]), "it is admitted, and its job is suspended")
        later = [each.get("delayedTopologyRequest") == "Pending" for each in api.assignments(workload)]
        if not api.is_admitted(workload) and not api.unready_checks(workload) and not any(later):
            yield Wrong((str(subject),), "it has quota, no check of it is open, and it is not admitted")
        if subject in self.scene.quotas.replaced.values():
            yield Wrong((str(subject),), "another slice has its place, and it has quota")
        uids = [api.text(each, "uid") for each in api.owners(workload)]
        if uids and all(each in self.world.gone for each in uids):
            yield Wrong((str(subject),), "its owners are deleted, and it has quota")

    # -- quota that is free --------------------------------------------------------------------------------------------

    def _note(self, key: Key) -> None:
        queue, _ = self._asked.pop(key, ("", None))
        self._in.get(queue, set()).discard(key)
        body = self.world.objects.get(key)
        if body is not None and api.waits(body):
            queue = self.world.cluster_queue(body)
            self._asked[key] = queue, _asked(body)
            self._in.setdefault(queue, set()).add(key)

    def _has_room(self, tree: str) -> bool:
        """Whether all who wait fit, in any flavor: nothing is then kept for anybody."""
        root, more = self.scene.quotas.root_of(tree), dict[str, Counter[Cell]]()
        if root is None or root.first != tree or follows_capacity(root):
            return False
        for queue in self.scene.quotas.queues(root):
            waiting = self._in.get(queue)
            flavors = self.scene.quotas.flavors(queue) if waiting else {}
            for key in waiting or ():
                asked = self._asked[key][1]
                if asked is None or not asked.keys() <= flavors.keys() | {"pods"}:
                    return False
                for resource, amount in asked.items():
                    for flavor in flavors.get(resource, ()):
                        more.setdefault(queue, Counter())[Cell(flavor, resource)] += amount
        return bool(more) and all(each.used <= each.limit for each in self.scene.quotas.uses(root, more))

    def _is_next(self, subject: Key) -> bool:
        queue = self._asked.get(subject, ("", None))[0]
        root, body = self.scene.quotas.root_of(queue), self.world.get("ClusterQueue", "", queue)
        if root is None or root.first not in self._roomy or api.text(body, "spec", "stopPolicy") not in ("", "None"):
            return False
        return subject == min(self._in[queue], key=lambda each: (place_of(self.world.objects[each]), each))


def _asked(workload: Json) -> Counter[str] | None:
    """The most that a Workload asks for; None where claims or a RuntimeClass are part of it."""
    total: Counter[str] = Counter()
    for each in api.rows(workload, "spec", "podSets"):
        spec, count = api.inner(each, "template", "spec"), api.whole(each, "count", default=1)
        if api.rows(spec, "resourceClaims") or api.text(spec, "runtimeClassName"):
            return None
        for resource, amount in pod_cost(spec).items():
            total[resource] += amount * count
        total["pods"] += count * UNIT
    return total


def is_finished(job: Json) -> bool:
    return api.is_true(job, "Complete") or api.is_true(job, "Failed") or api.is_true(job, "Completed")


def runs_away(job: Json) -> bool:
    """Whether the job runs in another cluster: here it stays suspended."""
    managers = (api.value(job, "spec", "managedBy"), api.value(job, "spec", "runPolicy", "managedBy"))
    return "kueue.x-k8s.io/multikueue" in managers


def is_suspended(job: Json) -> bool:
    return api.value(job, "spec", "suspend") is True or api.value(job, "spec", "runPolicy", "suspend") is True
