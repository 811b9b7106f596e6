"""The holder of each device, from the kubelet's pod resources API (v1).

The kubelet allows all its clients together 100 calls a second: List is asked at most once a second, with backoff, and
once for a call of the kubelet's that no known pod explains. The answer names pods and containers, no UIDs.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio

from agent.kubelet.grants import Grants, Shown
from agent.kubelet.holders import Claimed, Holder, Look, holders_of, nothing, sharers_of, shown_of
from agent.persistence.files import identity
from inventory.devices import DeviceId, ResourceName
from kube.clock import Clock, SystemClock, sleep
from kubeletapi import podresources_v1_pb2 as pb
from kubeletapi import podresources_v1_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

SOCKET = "kubelet.sock"
CALL_TIMEOUT_S = 10.0
LOOK_TIMEOUT_S = 1.0
SHORTEST_INTERVAL_S = 1.0
IDLE_INTERVAL_S = 10.0
TOLD_INTERVAL_S = 30.0
"""The seconds between two Lists where the API server tells of pods that end."""
WAITING_INTERVAL_S = 2.5
"""The seconds between two Lists while a change waits for a pod to end: the kubelet does not tell."""
SETTLE_S = 0.1
"""The seconds from an Allocate until the kubelet lists it: it does so when it has taken our answer."""
LONGEST_RETRY_S = 30.0
MAX_ANSWER_BYTES = 16 << 20


class _Line:
    """A channel to the kubelet, with the calls that are on it."""

    def __init__(self, target: str, kubelet: object) -> None:
        # The channel has a connection of its own: gRPC shares one among channels of one target, and with it what an
        # earlier kubelet broke.
        options = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES), ("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(target, options=options)
        self.stub = pb_grpc.PodResourcesListerStub(self.channel)
        self.kubelet = kubelet
        self.calls = 0


class PodResources:
    """Client of the kubelet at ``folder/kubelet.sock``.

    Its channel is kept: a new one for each call is half of what a call costs. A call gets a new channel where the
    socket is another kubelet's, and after a failure, since a channel that failed may pause before it connects again.
    The old channel is closed by the last call on it, since closing ends all calls.
    """

    def __init__(self, folder: Path) -> None:
        self._socket = folder / SOCKET
        self._line: _Line | None = None

    async def list(self, timeout_s: float = CALL_TIMEOUT_S) -> pb.ListPodResourcesResponse:
        """All pods of the node with what they hold. Raises grpc.aio.AioRpcError."""
        async with self._stub() as stub:
            return await stub.List(pb.ListPodResourcesRequest(), timeout=timeout_s)

    async def get(self, namespace: str, pod: str) -> pb.PodResources:
        """The devices that one pod holds. Raises grpc.aio.AioRpcError (NOT_FOUND where there is no such pod)."""
        async with self._stub() as stub:
            request = pb.GetPodResourcesRequest(pod_name=pod, pod_namespace=namespace)
            return (await stub.Get(request, timeout=CALL_TIMEOUT_S)).pod_resources

    async def allocatable(self) -> dict[ResourceName, set[DeviceId]]:
        """The devices that the kubelet believes it may hand out, by resource. Raises grpc.aio.AioRpcError."""
        async with self._stub() as stub:
            answer = await stub.GetAllocatableResources(pb.AllocatableResourcesRequest(), timeout=CALL_TIMEOUT_S)
        found: dict[ResourceName, set[DeviceId]] = {}
        for group in answer.devices:
            found.setdefault(ResourceName(group.resource_name), set()).update(map(DeviceId, group.device_ids))
        return found

    async def close(self) -> None:
        """Close the channel; a later call opens a new one."""
        line, self._line = self._line, None
        if line is not None:
            await line.channel.close()

    @asynccontextmanager
    async def _stub(self) -> AsyncIterator["pb_grpc.PodResourcesListerAsyncStub"]:
        kubelet = identity(self._socket)
        line, before = self._line, self._line
        if line is None or line.kubelet != kubelet:
            line = self._line = _Line(f"unix:{self._socket}", kubelet)
        if before is not None and before is not line and not before.calls:
            await before.channel.close()
        line.calls += 1
        try:
            yield line.stub
        except grpc.aio.AioRpcError:
            if self._line is line:
                self._line = None
            raise
        finally:
            line.calls -= 1
            if self._line is not line and not line.calls:
                await line.channel.close()


class HolderWatch:
    """Keeps the last known holders. ``changed`` is called after each answer that differs, and after each while
    something waits for an answer (``waits``).

    ``nudge`` makes it ask soon (an Allocate just happened, a pod has ended); without one it asks every ten seconds,
    since the kubelet does not tell when a pod ends, more often while something waits, and seldom while the end of each
    pod is ``told``. ``grants`` gets each answer. ``now`` is the clock of ``began_s`` and of the grants; ``kubelet`` is
    another value when another kubelet answers: the devices that the one before listed count as granted until the new
    one, which learns of pods one by one, has listed them.
    """

    def __init__(  # noqa: PLR0913
        self,
        client: PodResources,
        units: Callable[[], set[str]],
        changed: Callable[[], None],
        clock: Clock | None = None,
        claimed: Callable[[], Claimed] = lambda: nothing,
        *,
        grants: Grants | None = None,
        now: Callable[[], float] | None = None,
        waits: Callable[[], bool] = lambda: False,
        told: Callable[[], bool] = lambda: False,
        kubelet: Callable[[], object] = lambda: None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._client = client
        self._units = units
        self._claimed = claimed
        self._changed = changed
        self._grants = grants or Grants()
        self._now = now or self._clock.monotonic
        self._waits = waits
        self._told = told
        self._kubelet = kubelet
        self._answered_by: object = None
        self._nudged = asyncio.Event()
        self.holders: dict[DeviceId, Holder] = {}
        """One container of each device: the last of those that have it by one claim."""
        self.sharers: dict[DeviceId, tuple[Holder, ...]] = {}
        """All containers of each device that several have by one claim."""
        self.allocatable: dict[ResourceName, set[DeviceId]] = {}
        self.reachable = False
        self.began_s = float("-inf")
        """The time at which the List began from which the holders are."""
        self._asked_s = float("-inf")
        self._asked_about: set[str] = set()
        self._shown: set[Shown] = set()
        self._complained = False

    def nudge(self) -> None:
        self._nudged.set()

    async def close(self) -> None:
        """Close the channel to the kubelet."""
        await self._client.close()

    async def run(self) -> None:
        """Ask until cancelled. After a failure the last known holders stay."""
        retry_s = SHORTEST_INTERVAL_S
        again = False
        while True:
            try:
                await self.refresh()
            except grpc.aio.AioRpcError as failed:
                self._fail(failed)
                await self._pause(retry_s)
                retry_s = min(retry_s * 2, LONGEST_RETRY_S)
                continue
            retry_s = SHORTEST_INTERVAL_S
            await sleep(self._clock, SHORTEST_INTERVAL_S)
            # Kubelet lists a holder only after it took our answer to Allocate: a nudge is worth a second look.
            nudged = self._nudged.is_set()
            again = nudged if again else await self._clock.wait(self._nudged, self._interval_s)
            if again and not nudged:
                await sleep(self._clock, SETTLE_S)
            self._nudged.clear()

    @property
    def _interval_s(self) -> float:
        if self._waits():
            return WAITING_INTERVAL_S
        return TOLD_INTERVAL_S if self._told() else IDLE_INTERVAL_S

    async def _pause(self, retry_s: float) -> None:
        """Wait after a failure. A nudge ends the wait, since it is a sign that the kubelet lives."""
        await sleep(self._clock, SHORTEST_INTERVAL_S)
        if retry_s > SHORTEST_INTERVAL_S:
            await self._clock.wait(self._nudged, retry_s - SHORTEST_INTERVAL_S)
        self._nudged.clear()

    async def ask(self) -> None:
        """Ask once, a second after the last time at the earliest. Raises grpc.aio.AioRpcError."""
        while (wait_s := self._asked_s + SHORTEST_INTERVAL_S - self._now()) > 0:
            await sleep(self._clock, wait_s)
        await self.refresh()

    async def look(self) -> Look | None:
        """Ask once, within a call of the kubelet's, and keep nothing. None where the kubelet does not answer soon."""
        try:
            answer = await self._client.list(LOOK_TIMEOUT_S)
        except grpc.aio.AioRpcError as failed:
            log.debug("no look at pod resources: %s", failed.code().name)
            return None
        holders = holders_of(answer, self._units(), self._claimed())
        named = {(pod.namespace, pod.name) for pod in answer.pod_resources}
        return Look(holders, frozenset(named.difference((held.namespace, held.pod) for held in holders.values())))

    async def refresh(self) -> None:
        """Ask once. Raises grpc.aio.AioRpcError."""
        began_s = self._asked_s = self._now()
        kubelet = self._kubelet()
        answer = await self._client.list()
        allocatable = await self._client.allocatable()
        if began_s < self.began_s:
            return  # a later call was answered first
        # Our devices are looked up after the answers: a discovery may have come in between.
        units = self._units()
        holders = holders_of(answer, units, self._claimed())
        sharers = sharers_of(answer, self._claimed())
        if kubelet != self._answered_by:
            self._grant_anew()
        self._answered_by = kubelet
        self._shown = shown_of(answer)
        closed = self._grants.listed(self._shown, began_s)
        # An empty answer is news of devices that were not asked about before.
        known = self.holders, self.sharers, self.allocatable, self._asked_about
        same = (holders, sharers, allocatable, units) == known
        differs = not same or not self.reachable
        self.holders, self.sharers, self.allocatable, self.reachable = holders, sharers, allocatable, True
        self._asked_about, self.began_s = units, began_s
        if differs or closed or self._waits():
            self._changed()

    def _grant_anew(self) -> None:
        """Count the devices that the kubelet before this one listed as granted, until this one has listed them too."""
        for resource, device in self._shown:
            if device in self.holders and device not in self._grants.open:
                self._grants.granted(resource, (device,), self.began_s)

    def _fail(self, failed: grpc.aio.AioRpcError) -> None:
        if self.reachable or not self._complained:
            log.info(
                "pod resources not read",
                extra={"error": f"{failed.code().name}: {failed.details()}"},
            )
        self.reachable, self._complained = False, True
