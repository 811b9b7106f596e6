"""What one node's devices are given to: grants of the engine, reports of the agent, and what pods were told."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from controller.engine.devices.board import Board, Pool
from controller.engine.devices.kinds import Free
from controller.engine.model.devicerequest import DeviceAsk, Link
from controller.engine.model.encoding import HOSTNAME_LABEL
from controller.engine.model.resources import Amount, ResourceName, WorkloadKey
from controller.objects.core import Pod
from controller.objects.meta import object_key
from inventory.api import deviceplan
from inventory.api.gpunode import GpuNodeStatus
from inventory.api.names import DEVICES

_WORKLOAD: Final = "kueue.x-k8s.io/workload"
_POD_SET: Final = "kueue.x-k8s.io/podset"
_OVER: Final = ("Succeeded", "Failed")

Wanted = Sequence[tuple[Pool, int]]
"""The pools that a pod takes devices from, and how many."""
Set = tuple[str, ...]
"""The devices of one pod: UUIDs of GPUs or MIG instances in the board's order, one for each replica it takes."""


class GrantOwner(NamedTuple):
    """The pod set that devices are granted to."""

    workload: WorkloadKey
    pod_set: str


NOBODY: Final = GrantOwner(WorkloadKey(""), "")


class Grant(NamedTuple):
    """``pods`` pods of the owner run on the node; ``sets`` are the devices of as many of them as could be given any."""

    owner: GrantOwner
    pods: int
    single_pod: Mapping[ResourceName, Amount]
    ask: DeviceAsk
    sets: tuple[Set, ...]
    assumed: bool
    """For the while of a question only."""


Chosen = tuple[tuple[Grant, ...], tuple[int, Mapping[ResourceName, Amount], DeviceAsk], tuple[Set, ...]]


class PodFacts(NamedTuple):
    """A pod of a placed workload: where it runs or is to run, and what its annotation says.

    ``leaving``: it is being deleted. What it holds comes free, whatever its workload has by now.
    """

    owner: GrantOwner
    node: str
    told: Set
    leaving: bool = False


class Drift(NamedTuple):
    """A pod holds other devices than it was told."""

    pod: str
    node: str
    planned: Set
    held: Set


class NodeDevices:
    """One node with a GpuNode. ``put`` alone changes ``grants``."""

    __slots__ = (
        "board",
        "chosen",
        "free",
        "given",
        "grants",
        "measured",
        "name",
        "reported",
        "reports",
        "seen",
        "taken",
    )

    def __init__(self, name: str, board: Board, given: GpuNodeStatus, grants: tuple[Grant, ...]) -> None:
        self.name = name
        self.board = board
        self.given = given
        self.grants = grants
        self.reports = _reports(given, board)
        """By pod, what it holds."""
        self.reported = Counter(uuid for devices in self.reports.values() for uuid in devices)
        self.seen: set[GrantOwner] = set()
        """Pod sets that have or had a grant here: their pods without one are stopping."""
        self.taken: dict[bool, Counter[str]] = {}
        """By whether the cluster is thought empty, how often each device is given away; remade when missing."""
        self.free: tuple[tuple[ResourceName, Pool, Free], ...] | None = None
        """What is free by resource, as things are; remade when missing."""
        self.chosen: Chosen | None = None
        """What was chosen last: beside which grants, for which request, and the sets; None after any other change."""
        self.measured: dict[bool, tuple[int, float, float]] = {}
        """Likewise, by which version of the mix: devices free, and those expected to be of no use."""

    def put(self, grants: tuple[Grant, ...]) -> None:
        self.grants = grants
        self._remake()

    def forget(self) -> None:
        """Pods or reports have changed."""
        self.chosen = None
        self._remake()

    def _remake(self) -> None:
        self.taken.clear()
        self.free = None
        self.measured.clear()


def same_hardware(status: GpuNodeStatus, other: GpuNodeStatus) -> bool:
    return status.devices == other.devices and status.links == other.links


def _reports(given: GpuNodeStatus, board: Board) -> dict[str, Set]:
    held: dict[str, list[str]] = {}
    for holder in given.holders:
        if holder.physical in board.order:
            held.setdefault(holder.pod_key, []).append(holder.physical)
    return {pod: board.sorted(devices) for pod, devices in held.items()}


def is_over(pod: Pod) -> bool:
    """Whether its containers have ended for good."""
    return pod.status.phase in _OVER


def host_of(pod: Pod) -> str:
    """Where it runs or is to run; empty where that is not known yet."""
    return pod.spec.node_name or pod.spec.node_selector.get(HOSTNAME_LABEL, "")


def pod_facts(pod: Pod) -> PodFacts | None:
    """None for a pod that is over, has no node yet, or belongs to no workload that places its pods."""
    annotations, labels = pod.metadata.annotations, pod.metadata.labels
    workload, pod_set = annotations.get(_WORKLOAD), labels.get(_POD_SET)
    node = host_of(pod)
    if not workload or pod_set is None or not node or is_over(pod):
        return None
    told = deviceplan.devices(annotations.get(DEVICES, ""))
    owner = GrantOwner(WorkloadKey(object_key(pod.metadata.namespace, workload)), pod_set)
    return PodFacts(owner, node, told, pod.metadata.deletion_timestamp is not None)


def still_free(board: Board, grant: Grant, sets: Iterable[Set], taken: Counter[str], missing: int) -> list[Set]:
    """The first of ``sets`` that suit the request and that no pod has; taken from then on."""
    found: list[Set] = []
    for uuids in sets:
        if len(found) >= missing:
            break
        if _suits(board, grant, uuids, taken):
            found.append(uuids)
            taken.update(uuids)
    return found


def chosen(board: Board, grant: Grant, taken: Counter[str], missing: int) -> list[Set]:
    """Sets for so many pods more, fewer where there are no others; taken from then on."""
    found: list[Set] = []
    wanted = board.wanted(grant.single_pod)
    ask = grant.ask
    while wanted and len(found) < missing:
        chosen = _of_one_pod(board, wanted, ask, ask.link, taken)
        if not chosen and ask.wished:
            chosen = _of_one_pod(board, wanted, ask, None, taken)
        if not chosen:
            return found
        found.append(board.sorted(chosen) if len(wanted) > 1 else tuple(chosen))
    return found


def _of_one_pod(board: Board, wanted: Wanted, ask: DeviceAsk, link: Link | None, taken: Counter[str]) -> list[str]:
    """Devices of all resources together, the link between every two of them; taken from then on."""
    if len(wanted) == 1 or link is None:
        return _within(board, wanted, ask, link, taken, None)
    for region in board.links.regions(link):
        found = _within(board, wanted, ask, link, taken, region)
        if found:
            return found
    return []


def _within(
    board: Board, wanted: Wanted, ask: DeviceAsk, link: Link | None, taken: Counter[str], region: int | None
) -> list[str]:
    """``region``: the GPUs that may be chosen from, fewer with each that is; None: all."""
    found: list[str] = []
    for pool, size in wanted:
        free = pool.kind.open(pool.free(taken), ask)
        if region is not None:
            makes = pool.kind.makes
            free = tuple([count if region >> make.gpu & 1 else 0 for count, make in zip(free, makes, strict=True)])
        places = pool.kind.choose(free, size, link, ask.split)
        if not places:
            taken.subtract(found)
            return []
        devices = [pool.uuids[at] for at in places]
        for uuid in devices:
            taken[uuid] += 1
        found += devices
        if region is not None and link is not None:
            region &= board.links.near({pool.kind.makes[at].gpu for at in places}, link)
    return found


def room_together(board: Board, wanted: Wanted, ask: DeviceAsk, taken: Mapping[str, int], most: int) -> int:
    """How many pods find linked devices of several resources one after the other, ``most`` at most."""
    given = Counter(taken)
    return next((count for count in range(most) if not _of_one_pod(board, wanted, ask, ask.link, given)), most)


def _suits(board: Board, grant: Grant, given: Set, taken: Counter[str]) -> bool:
    """Whether it is a set that could be chosen now."""
    counts = Counter(given)
    wanted = board.wanted(grant.single_pod)
    if sum(size for _, size in wanted) != len(given):
        return False
    gpus: set[int] = set()
    for pool, size in wanted:
        mine = {uuid: count for uuid, count in counts.items() if uuid in pool.place}
        free = pool.kind.open(pool.free(taken), grant.ask)
        counts_of = tuple(mine.get(uuid, 0) for uuid in pool.uuids)
        if any(had < count for had, count in zip(free, counts_of, strict=True)):
            return False
        if not pool.kind.suits(counts_of, size, grant.ask.split):
            return False
        gpus |= {pool.kind.makes[pool.place[uuid]].gpu for uuid in mine}
    link = grant.ask.link
    return link is None or grant.ask.wished or board.links.joined(sum(1 << gpu for gpu in gpus), link)
