"""The devices that the controller planned for the pod that the kubelet is admitting. Pure: it takes pods, answers and
holders.

    bound(pod), unbound(uid), held(holders), given(resource, devices)  ->  Plans.choose(...)

No call of the kubelet names the pod. The kubelet admits pods one by one, in the order in which the API server shows
them bound: a call is for the oldest pod that still lacks devices of that resource and number. Where its own plan is no
longer free, it swaps with a pod of the same workload and shape, then with any pod whose plan is free. Devices that are
planned for other pods are avoided as long as enough are left.

Devices that Allocate gave are recorded under a pod at once, so that a burst of calls is served before pod resources
shows any device of it; pod resources corrects the record. Devices that were given before the watch showed their pod are
attributed to the next pod of that demand: this pod comes last from then on, since otherwise each later pod would be
taken for the one before it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from inventory.devices import DeviceId, ResourceName
from inventory.layout.entries import PERCENT_RESOURCE
from inventory.layout.layout import physical_id

PodKey = tuple[str, str]
"""A pod's namespace and name."""


class Demand(Struct, frozen=True):
    """One container's request for devices of one resource: the kubelet makes one call for each, and says no more of it
    than these two. ``gpus`` is, for percents, the number of GPUs that they lie on; 0 where the pod's annotation names
    no valid number.
    """

    resource: ResourceName
    count: int
    gpus: int = 1


class BoundPod(Struct, frozen=True, kw_only=True):
    """A pod of this node that the kubelet has not acknowledged yet.

    ``age`` orders pods as the API server showed them bound; ``demands`` are in the kubelet's order, ``plan`` is what
    the controller chose, as UUIDs or device ids, and ``workload`` the workload's name: both empty for a pod without a
    plan.
    """

    uid: str
    key: PodKey
    age: int
    demands: tuple[Demand, ...]
    plan: tuple[str, ...] = ()
    workload: str = ""


class Choice(Struct, frozen=True):
    """The answer of ``Plans.choose``. ``devices`` is empty where no plan decides; ``avoid`` is planned for others.

    ``known``: a pod that this call may be for is known. Without one, the watch may be late; a pod to which an earlier
    answer was attributed does not count, though its plan is better than none.
    """

    devices: tuple[DeviceId, ...] = ()
    avoid: frozenset[DeviceId] = frozenset()
    known: bool = True
    gpus: int = 1


class _Waiting:
    """A pod that lacks devices: ``open`` demands, and a plan that it may have swapped with another pod."""

    def __init__(self, pod: BoundPod) -> None:
        self.pod = pod
        self.open = list(pod.demands)
        self.plan = pod.plan
        self.taken: set[DeviceId] = set()
        self.supposed = False
        """Whether an Allocate that came before the watch showed this pod has been attributed to it."""

    @property
    def turn(self) -> tuple[bool, int, PodKey]:
        return self.supposed, self.pod.age, self.pod.key

    def wants(self, demand: Demand) -> bool:
        return demand in self.open

    def demand(self, resource: ResourceName, count: int) -> Demand | None:
        """The first open demand for ``count`` devices of ``resource``, for which the kubelet may be asking."""
        return next((demand for demand in self.open if (demand.resource, demand.count) == (resource, count)), None)

    def alike(self, other: "_Waiting") -> bool:
        """Whether the two pods are interchangeable: same workload, same demands."""
        mine, theirs = self.pod, other.pod
        return bool(mine.workload) and (mine.workload, mine.demands) == (theirs.workload, theirs.demands)


class _Given(Struct, frozen=True):
    """An answer to Allocate that pod resources does not show yet, and the pod's demand that it was recorded under.

    ``supposed`` is the uid of the pod that it was attributed to: one that the watch showed only later, for an answer
    that was recorded under no pod.
    """

    demand: Demand
    devices: frozenset[DeviceId]
    uid: str | None
    supposed: str = ""


class _Offer(Struct, frozen=True):
    devices: frozenset[DeviceId]
    asker: str
    owner: str


_REMEMBERED: Final = 512
"""The most answers of Allocate that are kept: more than a node has pods."""
_PACKED: Final = 6
"""The most containers of a pod that share GPUs by the percent for which all ways to place them are tried."""


class Plans:
    """The pods that wait for their devices. ``choose`` says which devices to prefer, ``given`` records which the
    kubelet took.

    Written on the agent's event loop alone: by the pod watch (``bound``, ``unbound``), the pod resources reader
    (``held``) and the device plugins (``choose``, ``given``). A pod is in ``_waiting`` (it has open demands) or in
    ``_served`` (it has none), never in both; no device is in two answers of ``_given``. ``validate`` holds these.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        """Pods with an open demand, by uid."""
        self._served: dict[str, _Waiting] = {}
        """Pods that have all devices they asked for, while the API server does not say so; by uid."""
        self._given: list[_Given] = []
        self._offers: dict[ResourceName, _Offer] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    # -- events ------------------------------------------------------------------------------------------------------

    def bound(self, pod: BoundPod) -> None:
        """Record that the pod is bound here and not acknowledged. A repeated call may change its plan and
        nothing else.
        """
        known = self._waiting.get(pod.uid) or self._served.get(pod.uid)
        if known is None or known.pod.demands != pod.demands:
            self.unbound(pod.uid)
            if pod.demands:
                self._waiting[pod.uid] = _Waiting(pod)
                self._suppose(self._waiting[pod.uid])
            return
        if known.pod.plan != pod.plan:
            known.plan = pod.plan
        known.pod = pod

    def unbound(self, uid: str) -> None:
        """Record that the pod has its devices, or has ended: it asks for nothing more."""
        self._waiting.pop(uid, None)
        self._served.pop(uid, None)

    def held(self, holders: Mapping[DeviceId, PodKey]) -> None:
        """Take in pod resources' answer. Devices recorded under the wrong pod become open demands of that pod again."""
        shown = set(holders.values())
        open_: list[_Given] = []
        for grant in self._given:
            pods = {holders.get(device) for device in grant.devices}
            if None in pods:
                open_.append(grant)
                continue
            late = self._waiting.get(grant.supposed)
            if late is not None and late.pod.key not in shown:
                late.supposed = False
            wrong = self._entry(grant.uid)
            if wrong is not None and wrong.pod.key not in pods and wrong.pod.key not in shown:
                self._reopen(wrong, grant)
        self._given = open_
        for uid, entry in list(self._waiting.items()):
            if entry.pod.key in shown and self._has_all(entry, holders):
                entry.open.clear()
                self._served[uid] = self._waiting.pop(uid)

    def given(self, resource: ResourceName, devices: Iterable[DeviceId]) -> None:
        """Record that the kubelet took these devices for a container."""
        taken = frozenset(devices)
        demand = Demand(resource, len(taken), _gpus(resource, taken))
        entry = self._receiver(demand, taken)
        # The kubelet does not say when devices come back: an answer that names them again is the sign.
        self._given = [answer for answer in self._given if answer.devices.isdisjoint(taken)][-_REMEMBERED + 1 :]
        self._given.append(_Given(demand, taken, entry.pod.uid if entry is not None else None))
        if entry is None:
            return
        entry.taken |= taken
        entry.open.remove(demand)
        if not entry.open:
            self._served[entry.pod.uid] = self._waiting.pop(entry.pod.uid)

    # -- queries -----------------------------------------------------------------------------------------------------

    def choose(
        self, resource: ResourceName, available: Sequence[DeviceId], required: Sequence[DeviceId], size: int
    ) -> Choice:
        """The devices to prefer out of ``available``, ``required`` among them; the caller leaves out unhealthy
        devices.
        """
        asking = self._asking(resource, size)
        demand = (asking.demand(resource, size) if asking is not None else None) or Demand(resource, size)
        known = asking is not None and not asking.supposed
        self._offers.pop(resource, None)
        free = _Free(available)
        if asking is not None:
            for owner in self._candidates(asking, demand):
                devices = _planned(owner, free, frozenset(required), demand)
                if devices:
                    self._offers[resource] = _Offer(frozenset(devices), asking.pod.uid, owner.pod.uid)
                    return Choice(devices=devices, known=known)
        return Choice(avoid=self._reserved(asking, free), known=known, gpus=demand.gpus)

    def gpus_asked(self, resource: ResourceName, size: int) -> frozenset[int]:
        """The numbers of GPUs on which such a request of a waiting pod may be meant to lie."""
        found = (entry.demand(resource, size) for entry in self._waiting.values())
        return frozenset(demand.gpus for demand in found if demand is not None)

    def validate(self) -> None:
        """Check that each pod is in one place, that open demands are its own, and that no device is given twice."""
        assert self._waiting.keys().isdisjoint(self._served), "a pod is waiting and served"
        for uid, entry in {**self._waiting, **self._served}.items():
            assert entry.pod.uid == uid, f"{uid} is filed under another pod"
            left = list(entry.pod.demands)
            for demand in entry.open:
                assert demand in left, f"{uid} waits for what it never asked for"
                left.remove(demand)
            assert bool(entry.open) == (uid in self._waiting), f"{uid} is in the wrong place"
        given = [device for answer in self._given for device in answer.devices]
        assert len(given) == len(set(given)), "a device is remembered as given twice"
        assert all(len(answer.devices) == answer.demand.count for answer in self._given), "an answer of another size"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _ordered(self) -> list[_Waiting]:
        return sorted(self._waiting.values(), key=lambda entry: entry.turn)

    def _asking(self, resource: ResourceName, count: int) -> _Waiting | None:
        return min(
            (entry for entry in self._waiting.values() if entry.demand(resource, count) is not None),
            key=lambda entry: entry.turn,
            default=None,
        )

    def _candidates(self, asking: _Waiting, demand: Demand) -> Iterator[_Waiting]:
        """Pods whose plan may serve this call, best first. A pod without a plan takes no other pod's."""
        if not asking.plan:
            return
        yield asking
        others = [entry for entry in self._ordered() if entry is not asking and entry.plan and entry.wants(demand)]
        yield from (entry for entry in others if asking.alike(entry))
        # The pod's plan is not free: most likely the pod was served long ago and the call is for another.
        yield from (entry for entry in others if not asking.alike(entry))

    def _reserved(self, asking: _Waiting | None, free: "_Free") -> frozenset[DeviceId]:
        return frozenset(
            device
            for entry in self._waiting.values()
            if entry is not asking
            for name in entry.plan
            if (device := DeviceId(name)) in free.ids
        )

    def _receiver(self, demand: Demand, devices: frozenset[DeviceId]) -> _Waiting | None:
        """The pod to record the devices under: the one they were offered to, whose plan they are, or the oldest that
        asks.
        """
        offer = self._offers.pop(demand.resource, None)
        if offer is not None and offer.devices == devices:
            asker, owner = self._waiting.get(offer.asker), self._waiting.get(offer.owner)
            if asker is not None and asker.wants(demand):
                if owner is not None and owner is not asker:
                    asker.plan, owner.plan = owner.plan, asker.plan
                return asker
        own = (
            entry
            for entry in self._ordered()
            if entry.wants(demand) and set(_planned(entry, _Free(devices), frozenset(), demand)) == devices
        )
        return next(own, None) or next((entry for entry in self._ordered() if entry.wants(demand)), None)

    def _suppose(self, entry: _Waiting) -> None:
        """Attribute to a new pod the oldest answer of its size that was recorded under no pod: most likely it was its
        own.
        """
        for at, given in enumerate(self._given):
            if given.uid is None and not given.supposed and entry.wants(given.demand):
                self._given[at] = replace(given, supposed=entry.pod.uid)
                entry.supposed = True
                return

    def _entry(self, uid: str | None) -> _Waiting | None:
        return None if uid is None else self._waiting.get(uid) or self._served.get(uid)

    def _reopen(self, entry: _Waiting, given: _Given) -> None:
        if entry.open.count(given.demand) == entry.pod.demands.count(given.demand):
            return  # the pod was bound again with other demands
        entry.open.append(given.demand)
        entry.taken -= given.devices
        self._served.pop(entry.pod.uid, None)
        self._waiting[entry.pod.uid] = entry

    @staticmethod
    def _has_all(entry: _Waiting, holders: Mapping[DeviceId, PodKey]) -> bool:
        """Whether pod resources shows as many devices as the pod asks for: containers get their devices one by one.

        Containers that start one after the other share devices, so fewer may be all: then the pod's acknowledgement
        decides.
        """
        shown = sum(key == entry.pod.key for key in holders.values())
        return shown >= sum(demand.count for demand in entry.pod.demands)


class _Free:
    """The available devices, by id and by the UUID inside it, in their order."""

    def __init__(self, available: Iterable[DeviceId]) -> None:
        self.ids = frozenset(available)
        self._by_uuid: dict[str, list[DeviceId]] | None = None
        self._available = available

    def of(self, name: str) -> Sequence[DeviceId]:
        """The devices that an entry of a plan can mean: the device of that id, or any replica of that UUID."""
        if name in self.ids:
            return (DeviceId(name),)
        if self._by_uuid is None:
            self._by_uuid = {}
            for device in self._available:
                self._by_uuid.setdefault(physical_id(device), []).append(device)
        return self._by_uuid.get(name, ())


def _planned(owner: _Waiting, free: _Free, required: frozenset[DeviceId], demand: Demand) -> tuple[DeviceId, ...]:
    """Devices of the owner's plan, as many as the demand asks, with all of ``required``; empty where some are
    not free.
    """
    by_name: dict[str, list[DeviceId]] = {}
    seen: set[DeviceId] = set()
    left = _left(owner, required)
    for name, count in left.items():
        usable = [
            device
            for device in free.of(name)
            if device not in seen and (device not in owner.taken or device in required)
        ]
        usable.sort(key=lambda device: device not in required)
        seen.update(usable[:count])
        by_name[name] = usable[:count]
    if demand.resource == PERCENT_RESOURCE and demand.gpus != 1:
        by_name = _on_each(by_name, required, demand)
    elif demand.resource == PERCENT_RESOURCE:
        gpu = _lying_on(owner, left, {name: len(devices) for name, devices in by_name.items()}, required, demand)
        by_name = {gpu: by_name[gpu]} if gpu is not None else {}
    every = [part for devices in by_name.values() for part in devices]
    if not required <= set(every) or len(every) < demand.count:
        return ()
    rest = [device for device in every if device not in required]
    chosen = {*required, *rest[: demand.count - len(required)]}
    return tuple(device for device in every if device in chosen)


def _left(owner: _Waiting, required: frozenset[DeviceId]) -> Counter[str]:
    """The devices of the plan that the pod's containers have not used; those in ``required`` stay for the next one."""
    left = Counter(owner.plan)
    for device in owner.taken - required:
        word = device if left[device] > 0 else physical_id(device)
        if left[word] > 0:
            left[word] -= 1
    return +left


def _on_each(
    found: Mapping[str, list[DeviceId]], required: frozenset[DeviceId], demand: Demand
) -> dict[str, list[DeviceId]]:
    """The plan's devices on as many GPUs as the demand says, equally many on each; empty where the plan has no such
    GPUs that are free.
    """
    per_gpu = demand.count // demand.gpus if demand.gpus else 0
    pinned = {physical_id(device) for device in required}
    able = [gpu for gpu, devices in found.items() if per_gpu and len(devices) >= per_gpu]
    chosen = sorted(able, key=lambda gpu: gpu not in pinned)[: demand.gpus]
    return {gpu: found[gpu][:per_gpu] for gpu in found if gpu in chosen} if len(chosen) == demand.gpus else {}


def _gpus(resource: ResourceName, devices: Iterable[DeviceId]) -> int:
    """The number of GPUs that the devices lie on, as far as that is a part of a demand."""
    return max(1, len(set(map(physical_id, devices)))) if resource == PERCENT_RESOURCE else 1


def _lying_on(
    owner: _Waiting, left: Mapping[str, int], had: Mapping[str, int], required: frozenset[DeviceId], demand: Demand
) -> str | None:
    """The GPU for a request for percents, chosen so that the pod's other containers fit on what is left."""
    pinned = {physical_id(device) for device in required}
    able = [gpu for gpu in left if had[gpu] >= demand.count and pinned <= {gpu}]
    able.sort(key=lambda gpu: left[gpu])
    rest = [planned.count for planned in owner.open if planned.resource == demand.resource]
    if demand.count in rest:
        rest.remove(demand.count)
    if len(able) > 1 and len(rest) <= _PACKED:
        for gpu in able:
            if _fit([count - demand.count * (name == gpu) for name, count in left.items()], sorted(rest, reverse=True)):
                return gpu
    return next(iter(able), None)


def _fit(room: list[int], sizes: Sequence[int]) -> bool:
    """Whether every request fits on one of the GPUs."""
    if not sizes:
        return True
    for at in {free: at for at, free in enumerate(room) if free >= sizes[0]}.values():
        if _fit([free - sizes[0] * (one == at) for one, free in enumerate(room)], sizes[1:]):
            return True
    return False
