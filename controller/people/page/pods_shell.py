"""Pods for the page: the workloads that have a running pod, by the watch; and the pods of one workload, on demand."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import PODS
from controller.insight.podcounts import with_running_pods
from controller.insight.podtroubles import FailurePolicy, pods_shown
from controller.jobs.framework.podsets import first_slice
from controller.jobs.framework.podview import workload_of
from controller.objects.core import Pod
from controller.objects.decode import DecodeError, GpuNode, decode
from controller.objects.workload import Workload
from controller.people.page.queuerows import WithPods
from controller.people.visibility.limits import Recent
from controller.scheduler.model.resources import WorkloadKey
from kube.client import Client, Selection
from kube.clock import Clock
from kube.errors import KubeError

Json = dict[str, Any]
_KEPT_S: Final = 5.0
_MOST: Final = 256


class RunningPods:
    """The workloads that have a running pod. Pods are watched from the first question on: a controller whose page is
    never opened is spared them unless a Topology needs them. ``_found`` is counted anew after a pod changed.
    """

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self._found: frozenset[WorkloadKey] = frozenset()
        self._changed = True
        self._hears = False

    def _hear(self) -> None:
        self._changed = True

    def now(self) -> WithPods:
        """Workloads of which a pod runs; None before all pods have been listed once."""
        if not self._hears:
            self._hears = True
            self._feeds.note(PODS, self._hear)
            self._feeds.want(PODS)
        if not self._feeds[PODS].synced:
            return None
        if self._changed:
            self._changed = False
            self._found = with_running_pods(self._feeds[PODS].objects())
        return self._found


class PodsOfWorkload:
    """The pods of workloads. ``of`` one that holds quota lists the pods of its namespace and tells how they do, as
    ``tessera explain`` does. One namespace is listed at a time, and once in 5 s for all who ask.
    """

    def __init__(
        self, client: Client, nodes: Callable[[], Iterable[GpuNode]], policy: FailurePolicy, clock: Clock
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._policy = policy
        self._clock = clock
        self._turn = asyncio.Lock()
        self._recent: Recent[WorkloadKey, Json | None] = Recent(most=_MOST, life_s=_KEPT_S)

    async def of(self, workload: Workload) -> Json | None:
        """How the workload's pods do; None if it holds no quota, or if the API server does not answer."""
        key = WorkloadKey(workload.key)
        async with self._turn:
            kept = self._recent.get(key, self._clock.monotonic())
            if kept is not None:
                return kept[0]
            try:
                pods = await self._listed(workload)
            except KubeError:
                pods = None
            self._recent.put(key, pods, self._clock.monotonic())
            return pods

    async def _listed(self, workload: Workload) -> Json | None:
        key = first_slice(workload)

        def own(raw: bytes) -> Json | None:
            try:
                is_own = workload_of(decode(raw, Pod)) == key
            except DecodeError:
                return None
            return msgspec.json.decode(raw, type=dict[str, Any]) if is_own else None

        listed = await self._client.list_decoded(PODS, own, Selection(workload.metadata.namespace))
        pods = [pod for pod in listed.items if pod is not None]
        now = datetime.fromtimestamp(self._clock.wall(), UTC)
        return pods_shown(workload, pods, self._nodes(), self._policy, now)
