"""What the devices of all nodes can still give: how many pods could be given devices, and which MIG instances could be
made.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from controller.scheduler.devices import granting
from controller.scheduler.devices.board import Pool
from controller.scheduler.devices.grants import NOBODY, Grant, NodeDevices, fitting_pods_together
from controller.scheduler.devices.kinds import Free
from controller.scheduler.devices.mix import Mix
from controller.scheduler.devices.nofit import DeviceNoFit, device_no_fit
from controller.scheduler.devices.pods import KnownPods
from controller.scheduler.model.devicerequest import PodDeviceRequest
from controller.scheduler.model.resources import Amount, ResourceName
from inventory.layout.layout import mig_resource_name

UNBOUNDED: Final = 1 << 30
_PERCENT: Final = 0.01
_MOST_PODS: Final = 256
"""Limit of pods counted on one node: no node runs more."""
_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
"""The label with the memory of each GPU, in MiB."""
_PRODUCT_SUFFIXES: Final = ("-SHARED", "-MIG-")
_MEMORY_DIGITS: Final = 12
_MIG_PREFIX: Final = mig_resource_name("")


class LabelledGpus(NamedTuple):
    """What the labels of GPU feature discovery say of a node whose GPUs no agent reports. ``product`` is empty and
    ``memory_mib`` 0 where the labels say nothing.
    """

    product: str
    memory_mib: int

    def may_be(self, ask: PodDeviceRequest) -> bool:
        """Whether the node may have GPUs as asked for; False where the labels name others."""
        fine = not ask.product or not self.product or self._is(ask.product)
        return fine and (not self.memory_mib or self.memory_mib >= ask.min_memory_mib)

    def _is(self, product: str) -> bool:
        rest = self.product.removeprefix(product)
        return not rest or (rest != self.product and rest.startswith(_PRODUCT_SUFFIXES))


class Makeable(NamedTuple):
    """A MIG instance that does not exist yet and that fits on the GPU. A layout makes it; the queue cuts no GPUs.
    ``starts``: the memory slices at which it could begin. ``mode``: whether MIG mode is on already.
    """

    node: str
    gpu: int
    starts: tuple[int, ...]
    mode: bool


class DeviceSupply:
    """The devices of all nodes. A node is found by the name of its object or by its hostname label.

    Only ``DeviceCache`` writes ``nodes``, ``pods``, ``mix`` and what labels say; ``fitting_workers`` puts a grant on a
    node while it answers and takes it off again.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeDevices] = {}
        self.pods = KnownPods()
        self._labelled: dict[str, LabelledGpus] = {}
        """What labels say of nodes' GPUs, by node name; nodes whose labels say nothing are left out. ``DeviceCache``
        writes it with each change of a node's labels.
        """
        self.mix = Mix()

    def node(self, host: str) -> NodeDevices | None:
        return self.nodes.get(self.pods.name(host))

    def fitting_pods(
        self, host: str, single_pod: Mapping[ResourceName, Amount], ask: PodDeviceRequest, *, empty: bool
    ) -> int:
        """How many such pods could be given devices on the host. ``empty``: as if nothing preemptible were running."""
        state = self.node(host)
        if state is None:
            labelled = self._labelled.get(self.pods.name(host)) if ask.binding else None
            return UNBOUNDED if labelled is None or labelled.may_be(ask) else 0
        wanted = state.board.wanted(single_pod)
        if not wanted:
            return 0 if ask.binding else UNBOUNDED
        link = None if ask.wished else ask.link
        taken = self._taken(state, empty=empty)
        frees = [(pool.kind, pool.kind.open(pool.free(taken), ask), size) for pool, size in wanted]
        most = min(kind.fitting_pods(free, size, link, ask.split) for kind, free, size in frees)
        if len(wanted) > 1 and link is not None:
            return fitting_pods_together(state.board, wanted, ask, taken, min(most, _MOST_PODS))
        return most

    def unfit(
        self, host: str, single_pod: Mapping[ResourceName, Amount], ask: PodDeviceRequest, *, empty: bool
    ) -> DeviceNoFit:
        """Why ``fitting_pods`` is 0 on the host."""
        state = self.node(host)
        if state is None:
            return DeviceNoFit.LABELS
        return device_no_fit(state.board, self._taken(state, empty=empty), single_pod, ask)

    def fitting_workers(
        self,
        host: str,
        leader: tuple[Mapping[ResourceName, Amount], PodDeviceRequest],
        workers: tuple[Mapping[ResourceName, Amount], PodDeviceRequest],
        *,
        empty: bool,
    ) -> int | None:
        """``fitting_pods`` for workers once their leader has its devices; None where the leader finds none."""
        state = self.node(host)
        if state is None:
            return UNBOUNDED
        before = state.grants
        grant = granting.filled(state, Grant(NOBODY, 1, *leader, (), assumed=True), (), self.pods, empty=empty)
        if not grant.sets and state.board.wanted(leader[0]):
            return None
        state.put((*before, grant))
        try:
            return self.fitting_pods(host, *workers, empty=empty)
        finally:
            state.put(before)

    def rise(self, host: str, single_pod: Mapping[ResourceName, Amount], ask: PodDeviceRequest, pods: int) -> float:
        """How much ``pods`` more pods on the host would raise the number of devices that no request can use; 0 where
        its devices are not known.
        """
        state = self.node(host)
        if state is None:
            return 0.0
        if state.free is None:
            state.free = tuple(self.free(state.name))
        return sum(
            [
                self.mix.rise(pool, name, free, single_pod[name], ask, pods)
                for name, pool, free in state.free
                if single_pod.get(name, 0) > 0
            ]
        )

    def free(self, name: str, *, empty: bool = False) -> Iterator[tuple[ResourceName, Pool, Free]]:
        """The pools of a node with their free units, by resource."""
        state = self.nodes.get(name)
        if state is not None:
            taken = self._taken(state, empty=empty)
            for resource, pool in state.board.pools.items():
                yield resource, pool, pool.free(taken)

    def held(self, state: NodeDevices, uuid: str) -> bool:
        """Whether a pod has the device of the node, or is planned to have it."""
        return self._taken(state, empty=False)[uuid] > 0

    def measured(self, name: str, *, empty: bool = False) -> tuple[float, float] | None:
        """The free devices of a node and how many of them are expected to be of no use; None where its devices are not
        known. A percent of a GPU is a hundredth of a device.
        """
        state = self.nodes.get(name)
        if state is None:
            return None
        known = state.measured.get(empty)
        if known is None or known[0] != self.mix.version:
            free = unusable = 0.0
            for resource, pool, amounts in self.free(name, empty=empty):
                part = _PERCENT if pool.kind.alone else 1
                free += sum(amounts) * part
                unusable += self.mix.unusable(pool, resource, amounts) * part
            known = self.mix.version, free, unusable
            state.measured[empty] = known
        return known[1], known[2]

    def _taken(self, state: NodeDevices, *, empty: bool) -> Counter[str]:
        return granting.taken(state, self.pods, empty=empty)


def labelled_gpus(labels: Mapping[str, str]) -> LabelledGpus | None:
    product, memory = labels.get(_PRODUCT_LABEL, ""), labels.get(_MEMORY_LABEL, "")
    number = int(memory) if memory.isascii() and memory.isdigit() and len(memory) <= _MEMORY_DIGITS else 0
    return LabelledGpus(product, number) if product or number else None


def could_be_made(supply: DeviceSupply, resource: ResourceName) -> Iterator[Makeable]:
    """Where the instance fits beside existing ones. A GPU whose MIG mode is off counts only while no pod has it."""
    if not resource.startswith(_MIG_PREFIX):
        return
    for name, state in supply.nodes.items():
        for device in state.given.devices:
            mig = device.mig
            if mig is None or not device.healthy or (not mig.enabled and supply.held(state, device.uuid)):
                continue
            for placement in mig.placements:
                if placement.free and str(mig_resource_name(placement.profile)) == resource:
                    yield Makeable(name, device.index, placement.free, mig.enabled)
