"""Reads from the API what runs by a Workload: for children that its job's own controller did not make.

One child at a time is reconciled: between the list of what runs and the write that starts a child, no other starts. In
a namespace this takes a fifth of the time at most, however many children wait there: each costs a list of its pods.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

from controller.cluster.watching.kinds import PODS
from controller.cluster.watching.workqueue import NotYetError
from controller.jobs.framework.charge import MAKES, Charge, Pods, asked, group_kind, pods_of
from controller.jobs.framework.kind import JobKind, completed
from controller.jobs.framework.marks import controller_of
from controller.jobs.framework.names import POD_SET, WORKLOAD
from controller.jobs.framework.podsets import JobPodSet, SeenWorkload, typed_template
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import JobError, Json, annotations, labels, strings, text
from controller.jobs.framework.settings import ClusterObjects
from kube.client import Client, Selection

_BY_OTHERS: Final = frozenset({("sparkoperator.k8s.io", "SparkApplication")})
"""Kinds whose pods are not all made by their own controller."""

_REST: Final = 4
"""The pause after a read, in multiples of its duration."""

Job = tuple[JobKind, Json]


class ChargeReader:
    """Reads charges. ``workloads``: those of the job with a uid. ``children``: jobs that the object with a uid
    controls. ``behind``: whether a view of a job is older than this controller's own last write to it.
    """

    def __init__(
        self,
        client: Client,
        cluster: ClusterObjects,
        *,
        workloads: Callable[[str], Collection[SeenWorkload]],
        children: Callable[[str], Collection[Job]],
        behind: Callable[[JobKind, Json], bool],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._workloads = workloads
        self._children = children
        self._behind = behind
        self._now_s = now_s
        self._alone = asyncio.Lock()
        self._rests: dict[str, float] = {}
        """The time until which no child of a namespace is reconciled."""

    def rest(self, namespace: str) -> None:
        """Checks that the namespace does not rest. Raises NotYetError while another child of it has just been
        reconciled.
        """
        if self._now_s() < self._rests.get(namespace, 0.0):
            raise NotYetError("other children of its namespace have just been looked at")

    @asynccontextmanager
    async def alone(self, namespace: str) -> AsyncIterator[None]:
        """Keeps all other children from starting until the block ends. Raises NotYetError as ``rest`` does."""
        async with self._alone:
            self.rest(namespace)
            began_s = self._now_s()
            try:
                yield
            finally:
                ended_s = self._now_s()
                self._rests = {key: until for key, until in self._rests.items() if until > ended_s}
                self._rests[namespace] = ended_s + _REST * (ended_s - began_s)

    async def read(self, above: str, *, job: Job | None, child: Json) -> Charge | None:
        """The charge of a Workload. ``above``: the uid of the topmost job, ``job`` itself if it is of a kind that is
        queued here; ``child`` is not counted. None if no admitted Workload is known.
        """
        namespace, without = (text(child, "metadata", key) for key in ("namespace", "uid"))
        admitted = [each for each in self._workloads(above) if each.is_admitted and each.is_live and not each.eviction]
        workload = max(admitted, key=lambda each: each.age_key, default=None)
        if workload is None:
            return None
        listing = await self._client.list_all(PODS, dict[str, Any], Selection(namespace=namespace))
        tree = dict(self._tree(above))
        if any(self._behind(*each) for each in tree.values()):
            raise NotYetError("a job beside it has just been written")
        pods = _of_tree(listing.items, {above, *tree}, workload.name, without)
        makers = [each for uid, each in tree.items() if uid != without and not any(self._children(uid))]
        # A job below it does not change the number of pods that the job itself is yet to make.
        if job is not None and _makes_its_pods(job[0]):
            makers.append(job)
        makers = [each for each in makers if not _is_its_own(child, *each)]
        return Charge(workload=workload, taken=tuple(self._taken(makers, pods)))

    def _tree(self, above: str) -> Iterator[tuple[str, Job]]:
        """Jobs below, by uid. No object owns itself, but a user may write so."""
        left, seen = [above], {above}
        while left:
            for kind, job in self._children(left.pop()):
                uid = text(job, "metadata", "uid")
                if uid not in seen:
                    seen.add(uid)
                    left.append(uid)
                    yield uid, (kind, job)

    def _taken(self, makers: Collection[Job], pods: list[Json]) -> Iterator[Pods]:
        """The pods of jobs that make some: as many as each requests, though they are yet to come, or all that exist."""
        for kind, job in makers:
            uid = text(job, "metadata", "uid")
            own = [pod for pod in pods if _controller_uid(pod) == uid]
            sets = self._asked(kind, job)
            if len(own) < sum(each.count for each in sets):
                pods = [pod for pod in pods if _controller_uid(pod) != uid]
                yield from (pods_of(each) for each in sets)
        for pod in pods:
            spec = typed_template({"spec": pod.get("spec") or {}}, text(pod, "metadata", "name")).spec
            yield asked(spec, 1, labels(pod).get(POD_SET, ""))

    def _asked(self, kind: JobKind, given: Json) -> tuple[JobPodSet, ...]:
        """The job's pod sets; empty if it does not run, or cannot be read: its pods are counted one by one."""
        try:
            job = completed(kind, given, self._cluster.look)
            if kind.is_suspended(job) or kind.finished(job) is not None:
                return ()
            return kind.pod_sets(job)
        except JobError:
            return ()


def _is_its_own(child: Json, kind: JobKind, job: Json) -> bool:
    """Whether the job's own controller counts the child, a pod, as one of those that it makes: it makes one fewer."""
    if _controller_uid(child) != text(job, "metadata", "uid"):
        return False
    wanted = dict(part.partition("=")[::2] for part in kind.pod_selector(job).split(","))
    wanted |= strings(job, "spec", "selector", "matchLabels")
    return labels(child).items() >= wanted.items()


def _makes_its_pods(kind: JobKind) -> bool:
    own = group_kind(f"{kind.group}/{kind.version}", kind.kind)
    return own not in _BY_OTHERS and ("", "Pod") in MAKES.get(own, ())


def _of_tree(pods: Collection[Json], uids: set[str], workload: str, without: str) -> list[Json]:
    """Pods that may run by the workload: pods that it started, and pods below its job, pods of pods too."""
    live = [
        pod for pod in pods if without not in (text(pod, "metadata", "uid"), _controller_uid(pod)) and _may_run(pod)
    ]
    below, running = set(uids), dict[str, Json]()
    while True:
        more = {
            text(pod, "metadata", "uid"): pod
            for pod in live
            if _controller_uid(pod) in below or _workload_of(pod) == workload
        }
        if more.keys() == running.keys():
            return list(running.values())
        running = more
        below |= running.keys()


def _may_run(pod: Json) -> bool:
    try:
        return not (seen := SeenPod(pod)).is_over and not seen.is_gated
    except JobError:
        return True


def _workload_of(pod: Json) -> str:
    try:
        return annotations(pod).get(WORKLOAD, "")
    except JobError:
        return ""


def _controller_uid(pod: Json) -> str:
    owner = controller_of(pod)
    return "" if owner is None else owner.uid
