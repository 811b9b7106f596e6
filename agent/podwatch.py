"""The pods that are bound to this node, and the devices that were planned for them: the shell around ``agent.plans``.

    API server -> watch of the node's pods -> read() -> Plans -> GetPreferredAllocation

Only what matters is decoded, and of pods that ask for no extended resource, or that the kubelet has acknowledged,
nothing is kept. Without an API server there are no plans, and nothing waits for any.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from agent.plans import BoundPod, Choice, Demand, Plans
from agent.podresources import Holder
from inventory.ids import DeviceId, ResourceName
from kube.backoff import Backoff
from kube.client import Client, Selection
from kube.clock import Clock, SystemClock
from kube.reflector import Added, Change, Changed, Reflector, Removed
from kube.resources import PODS

NEWS_S: Final = 0.1
"""How long a request waits for the pod it may be about: the kubelet and we hear of it from one server, each alone."""
FRESH_S: Final = 120.0
"""A watch that has heard nothing for so long brings no news: a healthy one has a bookmark about once a minute."""
MAX_PLANNED: Final = 64
_DIGITS: Final = 6


class _Annotations(Struct, frozen=True):
    devices: str = field(default="", name="tessera.dev/devices")
    workload: str = field(default="", name="kueue.x-k8s.io/workload")


class _Meta(Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: _Annotations | None = None


class _Resources(Struct, frozen=True):
    limits: dict[str, Any] | None = None


class _Container(Struct, frozen=True):
    resources: _Resources | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()


class _Status(Struct, frozen=True, rename="camel"):
    phase: str = ""
    start_time: str | None = None


class _Pod(Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


IDLE: Final = BoundPod(uid="", key=("", ""), age=0, demands=())
"""Stands for all pods that wait for no device: one object, however many they are."""

_decoder = msgspec.json.Decoder(_Pod)


def read(raw: bytes) -> BoundPod:
    """The pod, if it still waits for devices; IDLE for all others. Raises msgspec.MsgspecError.

    The kubelet sets ``startTime`` when it has admitted the pod, and a pod's devices are given at its admission.
    """
    pod = _decoder.decode(raw)
    meta, status = pod.metadata, pod.status
    if status.start_time is not None or status.phase in ("Succeeded", "Failed"):
        return IDLE
    demands = tuple(_demands((*pod.spec.init_containers, *pod.spec.containers)))
    if not demands:
        return IDLE
    said = meta.annotations or _Annotations()
    return BoundPod(
        uid=meta.uid,
        key=(meta.namespace, meta.name),
        # Versions of one resource can be compared as numbers (API conventions): this one is the binding's.
        age=int(meta.resource_version) if meta.resource_version.isdigit() else 0,
        demands=demands,
        plan=tuple(filter(None, (word.strip() for word in said.devices.split(",")[:MAX_PLANNED]))),
        workload=f"{meta.namespace}/{said.workload}" if said.workload else "",
    )


def _demands(containers: Iterable[_Container]) -> Iterable[Demand]:
    """Whole numbers of extended resources (``vendor/name``), in the order in which the kubelet serves containers."""
    for container in containers:
        limits = container.resources.limits if container.resources is not None else None
        for name, quantity in (limits or {}).items():
            text = str(quantity)
            if "/" in name and text.isdecimal() and len(text) <= _DIGITS and int(text) > 0:
                yield Demand(ResourceName(name), int(text))


class PodWatch:
    """A ``deviceplugin.choice.Planner``. ``follow`` runs beside it, where there is an API server."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.plans = Plans()
        self._clock = clock or SystemClock()
        self._reflector: Reflector[BoundPod] | None = None
        self._news = asyncio.Event()

    async def follow(self, client: Client, node_name: str, random: Callable[[], float]) -> None:
        """Follow the node's pods until cancelled. A server that refuses is asked again, less and less often."""
        self._reflector = Reflector(
            client,
            PODS,
            read,
            self.hear,
            clock=self._clock,
            backoff=Backoff(random=random),
            selection=Selection(field_selector=f"spec.nodeName={node_name}"),
        )
        await self._reflector.run()

    def hear(self, change: Change[BoundPod]) -> None:
        match change:
            case Added(new=entry) | Changed(new=entry):
                if entry.object is IDLE:
                    self.plans.unbound(entry.uid)
                else:
                    self.plans.bound(entry.object)
                    self._news.set()
            case Removed(old=entry):
                self.plans.unbound(entry.uid)

    def held(self, holders: Mapping[DeviceId, Holder]) -> None:
        """Pod resources' answer."""
        self.plans.held({device: (holder.namespace, holder.pod) for device, holder in holders.items()})

    def given(self, resource: ResourceName, devices: Iterable[DeviceId]) -> None:
        self.plans.given(resource, devices)

    async def advise(
        self, resource: ResourceName, available: Sequence[DeviceId], required: Sequence[DeviceId], size: int
    ) -> Choice:
        choice = self.plans.choose(resource, available, required, size)
        end_s = self._clock.monotonic() + NEWS_S
        while not choice.known and self._follows:
            left_s = end_s - self._clock.monotonic()
            self._news.clear()
            if left_s <= 0 or not await self._clock.wait(self._news, left_s):
                break
            choice = self.plans.choose(resource, available, required, size)
        return choice

    @property
    def _follows(self) -> bool:
        """Whether a pod that was bound a moment ago would be heard of."""
        lag_s = self._reflector.lag_s if self._reflector is not None and self._reflector.synced else None
        return lag_s is not None and lag_s < FRESH_S
