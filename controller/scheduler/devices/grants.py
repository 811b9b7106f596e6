"""What the devices of one node are given to: grants of the engine, reports of the agent, and annotations of pods."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from controller.objects.core import ENDED_PHASES, Pod
from controller.objects.meta import object_key
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.scheduler.devices.board import Board, Pool
from controller.scheduler.devices.kinds import Free
from controller.scheduler.model.devicerequest import Link, PodDeviceRequest
from controller.scheduler.model.resources import Amount, ResourceName, WorkloadKey
from inventory.api import deviceplan
from inventory.api.gpunode import GpuNodeStatus
from inventory.api.names import DEVICES, PLACEHOLDER_CLASS, PLACEHOLDER_OF, WORKLOAD_OF_POD

_POD_SET: Final = "kueue.x-k8s.io/podset"

PoolRequests = Sequence[tuple[Pool, int]]
"""The pools that a pod takes devices from, with the number it takes of each."""
Set = tuple[str, ...]
"""The devices of one pod: UUIDs of GPUs or MIG instances in the board's order, one entry for each replica it takes."""


class GrantOwner(NamedTuple):
    """The pod set that devices are granted to."""

    workload: WorkloadKey
    pod_set: str


NOBODY: Final = GrantOwner(WorkloadKey(""), "")
PLACEHOLDERS: Final = GrantOwner(WorkloadKey(""), "placeholders")
"""The owner of all placeholders, which hold nothing: they give way to the pods that they stand for."""


class Grant(NamedTuple):
    """The devices of one pod set on one node. ``pods`` pods of the owner run on the node; ``sets`` has the devices of
    those pods that could be given some.
    """

    owner: GrantOwner
    pods: int
    single_pod: Mapping[ResourceName, Amount]
    ask: PodDeviceRequest
    sets: tuple[Set, ...]
    assumed: bool
    """Whether the grant exists only while a question is answered."""


Chosen = tuple[tuple[Grant, ...], tuple[int, Mapping[ResourceName, Amount], PodDeviceRequest], tuple[Set, ...]]


class PodFacts(NamedTuple):
    """A pod of a placed workload. ``node``: where it runs or is to run, empty for a placeholder that waits; ``told``:
    the devices that its annotation names; ``leaving``: it is being deleted, and its devices become free whatever its
    workload has by now.
    """

    owner: GrantOwner
    node: str
    told: Set
    leaving: bool = False


class Drift(NamedTuple):
    """A pod that holds other devices than its annotation names."""

    pod: str
    node: str
    planned: Set
    held: Set


class NodeDevices:
    """The devices of one node that has a GpuNode. Only ``put`` changes ``grants``, and clears all that follows from
    them.

    ``taken``, ``free``, ``chosen`` and ``measured`` are results that follow from ``board``, ``grants``, ``reports``,
    ``seen`` and the pods on the node. Those who compute one store it here; ``forget`` drops all of them, ``put`` all
    but ``chosen``, which names the grants that it was made beside.

    ``__slots__`` save 48 bytes of each, 0.5 MiB of 10,000 nodes.
    """

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
        """The devices that each pod holds, by pod key."""
        self.reported = Counter(uuid for devices in self.reports.values() for uuid in devices)
        self.seen: set[GrantOwner] = set()
        """Pod sets that have or had a grant on this node: a pod of one without a grant is stopping.
        ``DeviceCache`` adds the owner of each new grant, and hands the set on to the object that follows when the
        GpuNode changes; ``granting.settle`` drops those without a grant and a pod.
        """
        self.taken: dict[bool, Counter[str]] = {}
        """How often each device is given away, by whether the cluster is taken as empty. ``granting.taken`` fills it
        where it is missing.
        """
        self.free: tuple[tuple[ResourceName, Pool, Free], ...] | None = None
        """The free units of each resource, as things are. ``DeviceSupply`` fills it where it is missing."""
        self.chosen: Chosen | None = None
        """The last choice: the grants beside which it was made, the request, and the sets; None after any other change.
        ``granting.filled`` writes and reads it: a trial that grants the same again beside the same grants chooses the
        same.
        """
        self.measured: dict[bool, tuple[int, float, float]] = {}
        """The measure by whether the cluster is taken as empty: version of the mix, free devices, and how many of them
        are expected to be of no use. ``DeviceSupply.measured`` fills it where it is missing or of another version.
        """

    def put(self, grants: tuple[Grant, ...]) -> None:
        self.grants = grants
        self._remake()

    def forget(self) -> None:
        """Drops cached results after pods or reports have changed."""
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
    """Whether the pod's containers have ended for good."""
    return pod.status.phase in ENDED_PHASES


def host_of(pod: Pod) -> str:
    """The node on which the pod runs or is to run; empty where that is not known yet."""
    return pod.spec.node_name or pod.spec.node_selector.get(HOSTNAME_LABEL, "")


def is_placeholder(pod: Pod) -> bool:
    """Whether the pod only makes an autoscaler bring a node. The class, whose priority is below that of all pods that
    name none, is asked for too: a label alone would let a stranger's pod count as nothing.
    """
    return PLACEHOLDER_OF in pod.metadata.labels and pod.spec.priority_class_name == PLACEHOLDER_CLASS


def pod_facts(pod: Pod) -> PodFacts | None:
    """The facts of a pod. None for a pod that is over, has no node yet, or belongs to no workload that places
    its pods. A placeholder has facts without a node too: its claims get their devices before it gets its node.
    """
    if is_placeholder(pod):
        return None if is_over(pod) else PodFacts(PLACEHOLDERS, host_of(pod), ())
    annotations, labels = pod.metadata.annotations, pod.metadata.labels
    workload, pod_set = annotations.get(WORKLOAD_OF_POD), labels.get(_POD_SET)
    node = host_of(pod)
    if not workload or pod_set is None or not node or is_over(pod):
        return None
    told = deviceplan.devices(annotations.get(DEVICES, ""))
    owner = GrantOwner(WorkloadKey(object_key(pod.metadata.namespace, workload)), pod_set)
    return PodFacts(owner, node, told, pod.metadata.deletion_timestamp is not None)


def still_free(board: Board, grant: Grant, sets: Iterable[Set], taken: Counter[str], missing: int) -> list[Set]:
    """The first of ``sets`` that suit the request and that no pod has, ``missing`` at most; ``taken`` counts them from
    then on.
    """
    free_sets: list[Set] = []
    for uuids in sets:
        if len(free_sets) >= missing:
            break
        if _suits(board, grant, uuids, taken):
            free_sets.append(uuids)
            taken.update(uuids)
    return free_sets


def chosen(board: Board, grant: Grant, taken: Counter[str], missing: int) -> list[Set]:
    """Sets for ``missing`` more pods, fewer where no more are free; ``taken`` counts them from then on."""
    sets: list[Set] = []
    wanted = board.wanted(grant.single_pod)
    ask = grant.ask
    while wanted and len(sets) < missing:
        chosen = _of_one_pod(board, wanted, ask, ask.link, taken)
        if not chosen and ask.wished:
            chosen = _of_one_pod(board, wanted, ask, None, taken)
        if not chosen:
            return sets
        sets.append(board.sorted(chosen) if len(wanted) > 1 else tuple(chosen))
    return sets


def _of_one_pod(
    board: Board, wanted: PoolRequests, ask: PodDeviceRequest, link: Link | None, taken: Counter[str]
) -> list[str]:
    """The devices of one pod over all its resources, every two of them linked; ``taken`` counts them from then on.
    Empty where there are none.
    """
    if len(wanted) == 1 or link is None:
        return _within(board, wanted, ask, link, taken, None)
    for region in board.links.regions(link):
        found = _within(board, wanted, ask, link, taken, region)
        if found:
            return found
    return []


def _within(
    board: Board,
    wanted: PoolRequests,
    ask: PodDeviceRequest,
    link: Link | None,
    taken: Counter[str],
    region: int | None,
) -> list[str]:
    """The devices of one pod over all its resources. ``region``: mask of the GPUs that may be chosen from, narrowed
    with each choice; None: all GPUs.
    """
    device_names: list[str] = []
    for pool, size in wanted:
        free = pool.kind.open(pool.free(taken), ask)
        if region is not None:
            makes = pool.kind.makes
            free = tuple([count if region >> make.gpu & 1 else 0 for count, make in zip(free, makes, strict=True)])
        places = pool.kind.choose(free, size, link, ask.split)
        if not places:
            taken.subtract(device_names)
            return []
        devices = [pool.uuids[at] for at in places]
        for uuid in devices:
            taken[uuid] += 1
        device_names += devices
        if region is not None and link is not None:
            region &= board.links.near({pool.kind.makes[at].gpu for at in places}, link)
    return device_names


def fitting_pods_together(
    board: Board, wanted: PoolRequests, ask: PodDeviceRequest, taken: Mapping[str, int], most: int
) -> int:
    """How many pods find linked devices of several resources, one pod after the other; ``most`` at most."""
    given = Counter(taken)
    return next((count for count in range(most) if not _of_one_pod(board, wanted, ask, ask.link, given)), most)


def _suits(board: Board, grant: Grant, given: Set, taken: Counter[str]) -> bool:
    """Whether the set is one that could be chosen for the grant now."""
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
