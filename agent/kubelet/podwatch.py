"""The pods bound to this node, and the devices that were planned for them: the shell around ``agent.kubelet.plans``.

    API server -> watch of the node's pods -> see() -> Plans -> GetPreferredAllocation
                                                    -> ContainerTable -> whose process uses a GPU (agent.telemetry)

Only the fields that matter are decoded. For pods that wait for no device the ids of their containers are kept, and for
those that ever asked for one uid and labels. Without an API server there are no plans, and nothing waits for any.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from agent.kubelet.containers import ContainerTable, PodContainer, PodIdentity
from agent.kubelet.holders import Holder, Look, Newcomers
from agent.kubelet.plans import BoundPod, Choice, Demand, Plans, PodKey
from agent.process.spread import SOON, Spread, fleet_backoff
from inventory.api import deviceplan
from inventory.api.names import DEVICES, GPU_PERCENT_DEVICES
from inventory.devices import DeviceId, ResourceName
from inventory.layout.entries import PERCENT_RESOURCE
from inventory.layout.fractions import gpus_asked
from kube.client import Client, Selection
from kube.clock import Clock, SystemClock
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Change, Changed, Reflector, Removed
from kube.resources import PODS

NEWS_S: Final = 2.0
"""The longest wait in seconds of a request for news of its pod: kubelet and agent hear of it from one server, each
alone.

On a machine with ten times the load that it has processors for, news came up to 0.4 s after the request.
"""
BRIEF_S: Final = 0.1
"""The longest such wait where the kubelet does not say which pods it has, after a wait in vain: a pod of which no news
comes may ask again.
"""
FRESH_S: Final = 120.0
"""The seconds without news after which a watch counts as bringing none: a healthy one has a bookmark about once a
minute.
"""
_DIGITS: Final = 6
_ENDED: Final = ("Succeeded", "Failed")


class _Annotations(Struct, frozen=True):
    devices: str = field(default="", name=DEVICES)
    workload: str = field(default="", name="kueue.x-k8s.io/workload")
    percent_devices: str | None = field(default=None, name=GPU_PERCENT_DEVICES)


class _Owner(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Meta(Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: _Annotations | None = None
    labels: dict[str, str] | None = None
    owner_references: tuple[_Owner, ...] | None = None


class _Resources(Struct, frozen=True):
    limits: dict[str, Any] | None = None


class _Container(Struct, frozen=True):
    resources: _Resources | None = None


class _Claim(Struct, frozen=True):
    name: str = ""


class _Spec(Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    resource_claims: tuple[_Claim, ...] = ()


class _ContainerStatus(Struct, frozen=True):
    name: str = ""
    container_id: str = field(default="", name="containerID")


class _Status(Struct, frozen=True, rename="camel"):
    phase: str = ""
    start_time: str | None = None
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[_ContainerStatus, ...] = ()


class _Pod(Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


IDLE: Final = BoundPod(uid="", key=("", ""), age=0, demands=())
"""The entry of all pods that wait for no device: one object, however many they are."""


class SeenPod(Struct, frozen=True):
    """The record of one pod: the devices it waits for, and its containers by id (none for a pod that has ended)."""

    waiting: BoundPod
    containers: tuple[tuple[str, PodContainer], ...] = ()
    over: bool = False
    identity: PodIdentity | None = None
    going: bool = False
    """Whether the pod is over or is being deleted: the kubelet may name the next one of its name."""


_NOTHING: Final = SeenPod(IDLE)
_GOING: Final = SeenPod(IDLE, going=True)
_OVER: Final = SeenPod(IDLE, over=True, going=True)

_decoder = msgspec.json.Decoder(_Pod)


def see(raw: bytes) -> SeenPod:
    """The record of the pod in ``raw``. Raises msgspec.MsgspecError."""
    pod = _decoder.decode(raw)
    if pod.status.phase in _ENDED:
        return _OVER
    waiting, containers, identity = _waiting(pod), tuple(_containers(pod)), _identity(pod)
    going = pod.metadata.deletion_timestamp is not None
    known = containers or waiting is not IDLE or identity is not None
    if not known:
        return _GOING if going else _NOTHING
    return SeenPod(waiting, containers, identity=identity, going=going)


def read(raw: bytes) -> BoundPod:
    """The pod, if it still waits for devices; IDLE for all others. Raises msgspec.MsgspecError."""
    return _waiting(_decoder.decode(raw))


def _containers(pod: _Pod) -> Iterable[tuple[str, PodContainer]]:
    """The containers by id, without the runtime's name before it (``containerd://``)."""
    status = pod.status
    if status.phase in _ENDED:
        return
    for status_of in (
        *status.container_statuses,
        *status.init_container_statuses,
        *status.ephemeral_container_statuses,
    ):
        container_id = status_of.container_id.rpartition("://")[2]
        if container_id:
            yield container_id, PodContainer(pod.metadata.namespace, pod.metadata.name, status_of.name)


def _identity(pod: _Pod) -> PodIdentity | None:
    """The identity of a pod that asks for devices, by an extended resource or by claim; None for any other pod."""
    asks = next(iter(_demands((*pod.spec.init_containers, *pod.spec.containers))), None) is not None
    if not asks and not pod.spec.resource_claims:
        return None
    owners = (f"{each.kind} {each.name}" for each in pod.metadata.owner_references or () if each.controller)
    return PodIdentity(pod.metadata.uid, pod.metadata.labels or {}, next(owners, ""))


def _waiting(pod: _Pod) -> BoundPod:
    """The pod with its demands and plan; IDLE once it was admitted. The kubelet sets ``startTime`` when it has admitted
    the pod, and a pod's devices are given at its admission.
    """
    meta, status = pod.metadata, pod.status
    if status.start_time is not None or status.phase in _ENDED:
        return IDLE
    annotations = meta.annotations or _Annotations()
    gpus = gpus_asked(annotations.percent_devices) or 0
    demands = tuple(_demands((*pod.spec.init_containers, *pod.spec.containers), gpus))
    if not demands:
        return IDLE
    return BoundPod(
        uid=meta.uid,
        key=(meta.namespace, meta.name),
        # Versions of one resource can be compared as numbers (API conventions): this one is the binding's.
        age=int(meta.resource_version) if meta.resource_version.isdigit() else 0,
        demands=demands,
        plan=deviceplan.devices(annotations.devices),
        workload=f"{meta.namespace}/{annotations.workload}" if annotations.workload else "",
    )


def _demands(containers: Iterable[_Container], gpus: int = 1) -> Iterable[Demand]:
    """Whole numbers of extended resources (``vendor/name``), in the order in which the kubelet serves containers."""
    for container in containers:
        limits = container.resources.limits if container.resources is not None else None
        for name, quantity in (limits or {}).items():
            text = str(quantity)
            if "/" in name and text.isdecimal() and len(text) <= _DIGITS and int(text) > 0:
                yield Demand(ResourceName(name), int(text), gpus if name == PERCENT_RESOURCE else 1)


async def _blind() -> Look | None:
    """The look at a kubelet that does not say which pods it has: None."""
    return None


class PodWatch:
    """A ``deviceplugin.choice.Planner``. ``follow`` runs beside it, where there is an API server.

    ``freed`` is called when a pod ends that held devices: the kubelet does not tell. ``granted`` gets the devices that
    Allocate handed out, before the kubelet lists them. ``look`` asks the kubelet for its pods.
    """

    def __init__(
        self,
        freed: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
        spread: Spread | None = None,
        granted: Callable[[ResourceName, tuple[DeviceId, ...]], None] = lambda *_: None,
        look: Callable[[], Awaitable[Look | None]] = _blind,
    ) -> None:
        self.plans = Plans()
        self.containers = ContainerTable()
        self._clock = clock or SystemClock()
        self._reflector: Reflector[SeenPod] | None = None
        self._news = asyncio.Event()
        self._patience_s = NEWS_S
        self._look = look
        self._newcomers = Newcomers(NEWS_S)
        self._holders: frozenset[PodKey] = frozenset()
        self._freed = freed
        self._granted = granted
        self._spread = spread or Spread()

    async def follow(self, client: Client, node_name: str, random: Callable[[], float]) -> None:
        """Follow the node's pods until cancelled. A server that refuses is asked again, less and less often."""
        self._reflector = Reflector(
            client,
            PODS,
            see,
            self.hear,
            clock=self._clock,
            backoff=fleet_backoff(random),
            pace=self._spread.pace("Pods", SOON),
            selection=Selection(field_selector=f"spec.nodeName={node_name}"),
        )
        await self._reflector.run()

    def hear(self, change: Change[SeenPod]) -> None:
        self._news.set()
        match change:
            case Added(new=entry) | Changed(new=entry):
                self.containers.put(entry.uid, entry.object.containers)
                if entry.object.identity is not None:
                    self.containers.describe(entry.uid, *change.key, entry.object.identity)
                if entry.object.waiting is IDLE:
                    self.plans.unbound(entry.uid)
                    if entry.object.over and tuple(change.key) in self._holders:
                        self._freed()
                else:
                    self.plans.bound(entry.object.waiting)
                    self._patience_s = NEWS_S
            case Removed(old=entry):
                self.containers.drop(entry.uid)
                self.plans.unbound(entry.uid)
                if tuple(change.key) in self._holders:
                    self._freed()

    def held(self, holders: Mapping[DeviceId, Holder]) -> None:
        """Take in the holders of pod resources' answer."""
        pods = {device: (holder.namespace, holder.pod) for device, holder in holders.items()}
        self._holders = frozenset(pods.values())
        self.plans.held(pods)

    def given(self, resource: ResourceName, devices: Iterable[DeviceId]) -> None:
        taken = tuple(devices)
        self._granted(resource, taken)
        self.plans.given(resource, taken)

    def gpus_asked(self, resource: ResourceName, size: int) -> frozenset[int]:
        return self.plans.gpus_asked(resource, size)

    async def advise(
        self, resource: ResourceName, available: Sequence[DeviceId], required: Sequence[DeviceId], size: int
    ) -> Choice:
        """The devices planned for the pod that asks. Where no known pod may be asking, the kubelet says which pods it
        has: the request waits for the news of those, ``NEWS_S`` at most, and of no others.
        """
        choice = self.plans.choose(resource, available, required, size)
        if choice.known or not self.follows:
            return choice
        end_s = self._clock.monotonic() + NEWS_S
        listed = await self._listed(required)
        if not listed:
            end_s = min(end_s, self._clock.monotonic() + self._patience_s)
        while not (choice := self.plans.choose(resource, available, required, size)).known and self.follows:
            now_s = self._clock.monotonic()
            left_s = end_s - now_s
            if listed:
                left_s = min(left_s, self._newcomers.awaited(self.knows, now_s))
            self._news.clear()
            if left_s <= 0 or not await self._clock.wait(self._news, left_s):
                if not listed:
                    self._patience_s = BRIEF_S
                break
        return choice

    async def _listed(self, required: Sequence[DeviceId]) -> bool:
        """Ask the kubelet for its pods, unless that would harm. True where it has answered.

        List makes the kubelet count anew which devices are taken, from the containers that have got theirs. It would
        forget those that it has set apart for the container that it asks about, and gives in ``required``.
        """
        if required:
            return False
        answer = await self._look()
        if answer is None:
            return False
        self.plans.held({device: (holder.namespace, holder.pod) for device, holder in answer.holders.items()})
        self._newcomers.listed(answer.without, self.knows, self._clock.monotonic())
        return True

    def knows(self, pod: PodKey) -> bool:
        """Whether the watch has the pod of this name, and not only one before it that goes."""
        entry = self._reflector.get(ObjectKey(*pod)) if self._reflector is not None else None
        return entry is not None and not entry.object.going

    @property
    def follows(self) -> bool:
        """Whether the watch is fresh enough to show a pod that was just bound."""
        lag_s = self._reflector.lag_s if self._reflector is not None and self._reflector.synced else None
        return lag_s is not None and lag_s < FRESH_S
