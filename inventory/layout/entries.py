"""The wanted layout of a node's GPUs, GPU by GPU: the entries of ``layout:``, and their meaning on one node.

    LayoutEntry, ... -> GpuLayoutSpec -> resolve(node, spec) -> Resolved: one GpuMode for each GPU that an entry names

The same entries stand in the agent's config file and in ``GpuLayout.spec.layout``. A spec is checked as a whole: with
any problem no part of it is applied. GPUs that no entry names are not in the answer: they stay as they are, and are
advertised as they would be without a layout.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, structs

from inventory.api.gpulayout import MAX_MPS_CLIENTS
from inventory.api.names import GPU_PERCENT
from inventory.devices import Gpu, GpuUuid, NodeInventory, ResourceName
from inventory.layout.sharing import SharingMode
from inventory.mig import parts as migparts
from inventory.mig import plan as migplan
from inventory.words import layouts as words

PERCENT_RESOURCE = ResourceName(GPU_PERCENT)
MAX_MPS_CLIENTS_BEFORE_VOLTA = 16
"""The most MPS clients of a GPU before Volta. Source: NVIDIA's MPS documentation, "Limitations"."""
_VOLTA = (7, 0)


class LayoutMode(StrEnum):
    """The mode that an entry gives to the GPUs that it names."""

    WHOLE = "whole"
    TIME_SLICING = "timeSlicing"
    MPS = "mps"
    MIG = "mig"
    FRACTIONAL = "fractional"
    DRA = "dra"


class FractionPlacement(StrEnum):
    """The GPU that the next fraction is taken from: the fullest that has room (packed), or the emptiest (spread)."""

    PACKED = "packed"
    SPREAD = "spread"


class WhenBusy(StrEnum):
    """The action where pods hold devices that have to go: refuse the change, wait for them to end, or evict them."""

    REFUSE = "refuse"
    WAIT = "wait"
    DRAIN = "drain"


class Enforcement(StrEnum):
    """The means that keep the containers on one device apart.

    ``daemon``: MPS limits that the daemon sets for every client. ``daemon, by client``: MPS limits in the container's
    environment, which a container that wants to can raise.
    """

    HARDWARE = "hardware"
    DAEMON = "daemon"
    BY_CLIENT = "daemon, by client"
    NOBODY = "nobody"


class GpuSelector(Struct, frozen=True):
    """The GPUs that an entry means: ``refs`` (indexes in decimal, and UUIDs), or ``any_count`` GPUs of ``product``.

    ``any_count`` None with ``product``: all GPUs of that product. ``product`` None with ``any_count``: GPUs of any
    product.
    """

    refs: tuple[str, ...] = ()
    product: str | None = None
    any_count: int | None = None

    def __str__(self) -> str:
        if self.refs:
            return f"[{', '.join(self.refs)}]"
        parts = [] if self.product is None else [f"product: {self.product}"]
        return f"{{{', '.join([*parts, *([] if self.any_count is None else [f'any: {self.any_count}'])])}}}"


class MpsClient(Struct, frozen=True):
    """One MPS client's share of a GPU. ``resource`` is the name it is advertised under, where it has its own.

    ``memory_mib`` limits pinned device memory, ``threads`` is the active thread percentage; None: not limited.
    """

    memory_mib: int | None = None
    threads: int | None = None
    resource: ResourceName | None = None


class LayoutEntry(Struct, frozen=True):
    """One entry of ``layout:``. The reader checks which fields stand with which mode.

    ``replicas``: timeSlicing, mps (equal shares), mig (of each instance, by ``sharing``). ``clients``: mps.
    ``granularity``, ``placement``, ``one_daemon``: fractional. ``profiles``: mig. ``resource`` replaces the resource's
    name, ``rename`` False keeps the plain one. ``shares``: dra, the granularity of shares in percent. ``where`` is the
    entry's name in messages: file and line.
    """

    gpus: GpuSelector
    mode: LayoutMode
    replicas: int | None = None
    clients: tuple[MpsClient, ...] = ()
    granularity: int = 1
    placement: FractionPlacement = FractionPlacement.PACKED
    one_daemon: bool = False
    profiles: tuple[str, ...] = ()
    sharing: SharingMode = SharingMode.TIME_SLICING
    when_busy: WhenBusy = WhenBusy.REFUSE
    rename: bool = True
    resource: ResourceName | None = None
    shares: int | None = None
    where: str = ""


class GpuLayoutSpec(Struct, frozen=True):
    """A whole ``layout:`` list. ``source`` is its name in messages: a file, or ``GpuLayout <name>``. In
    ``remediation`` are the settings of repairs that a GpuLayout gives beside it, by their names in the agent.
    """

    entries: tuple[LayoutEntry, ...] = ()
    source: str = "layout"
    remediation: tuple[tuple[str, str | int | float], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries)


class Whole(Struct, frozen=True, tag="whole"):
    """A GPU that one container holds at a time; MIG mode off."""

    resource: ResourceName | None = None


class TimeSliced(Struct, frozen=True, tag="timeSlicing"):
    """A GPU that is offered ``replicas`` times, with nothing that keeps the containers apart; MIG mode off."""

    replicas: int
    rename: bool = True
    resource: ResourceName | None = None


class Mps(Struct, frozen=True, tag="mps"):
    """A GPU with one MPS control daemon, offered once for each client; MIG mode off.

    ``equal``: the shares are ``1/len(clients)`` each and the daemon's own defaults; else they are each client's, set in
    its container's environment. Clients of equal shares have no limits of their own here.
    """

    clients: tuple[MpsClient, ...]
    equal: bool
    rename: bool = True
    resource: ResourceName | None = None


class Mig(Struct, frozen=True, tag="mig"):
    """A GPU that is cut into GPU instances of ``profiles`` (a multiset, in the order given), each offered ``replicas``
    times.

    ``sharing`` is the way in which replicas of an instance share it; with ``replicas`` 1 it is NONE.
    """

    profiles: tuple[str, ...]
    replicas: int = 1
    sharing: SharingMode = SharingMode.NONE
    when_busy: WhenBusy = WhenBusy.REFUSE
    rename: bool = True
    resource: ResourceName | None = None


class Fractional(Struct, frozen=True, tag="fractional"):
    """A GPU that is offered by the percent, in multiples of ``granularity``, each request on one GPU; MPS, MIG mode
    off.

    ``together``: the GPUs that one MPS daemon serves, this one among them, in the node's order; empty where this one
    has its own. A request may lie on several of them, equal parts on each.
    """

    granularity: int = 1
    placement: FractionPlacement = FractionPlacement.PACKED
    together: tuple[GpuUuid, ...] = ()


class Dra(Struct, frozen=True, tag="dra"):
    """A GPU that is given out by ResourceClaim alone: it is in no resource of the device plugin. MIG mode is as claims
    want it.

    ``shares``: it is given out by shares alone, in multiples of so many percent, by MPS; None: whole or by MIG
    instances.
    """

    shares: int | None = None


GpuMode = Whole | TimeSliced | Mps | Mig | Fractional | Dra


def mode_word(mode: GpuMode) -> LayoutMode:
    """The word of the config file for a mode."""
    words: dict[type, LayoutMode] = {
        Whole: LayoutMode.WHOLE,
        TimeSliced: LayoutMode.TIME_SLICING,
        Mps: LayoutMode.MPS,
        Mig: LayoutMode.MIG,
        Fractional: LayoutMode.FRACTIONAL,
        Dra: LayoutMode.DRA,
    }
    return words[type(mode)]


def enforcement(mode: GpuMode) -> Enforcement:
    """The means that keeps apart the containers that share one device of a GPU in that mode."""
    if isinstance(mode, TimeSliced) or (isinstance(mode, Mig) and mode.sharing is SharingMode.TIME_SLICING):
        return Enforcement.NOBODY
    if isinstance(mode, Dra):
        return Enforcement.HARDWARE if mode.shares is None else Enforcement.BY_CLIENT
    if isinstance(mode, Fractional) or (isinstance(mode, Mps) and not mode.equal):
        return Enforcement.BY_CLIENT
    if isinstance(mode, Mps) or (isinstance(mode, Mig) and mode.sharing is SharingMode.MPS):
        return Enforcement.DAEMON
    return Enforcement.HARDWARE


def needs_mps(mode: GpuMode) -> bool:
    """Whether an MPS control daemon has to run for the GPU, or for each of its MIG instances."""
    if isinstance(mode, Dra):
        return mode.shares is not None
    return isinstance(mode, (Mps, Fractional)) or (isinstance(mode, Mig) and mode.sharing is SharingMode.MPS)


class Resolved(Struct, frozen=True):
    """The meaning of a layout on one node. With any of ``problems`` no part of it is applied: ``modes`` is empty.

    ``when_busy`` has, for the same GPUs, the action where pods hold devices that have to go.
    """

    modes: Mapping[GpuUuid, GpuMode] = {}
    problems: tuple[str, ...] = ()
    when_busy: Mapping[GpuUuid, WhenBusy] = {}


def resolve(node: NodeInventory, spec: GpuLayoutSpec, previous: Mapping[GpuUuid, GpuMode] | None = None) -> Resolved:
    """The mode of each GPU that ``spec`` names; deterministic.

    Entries that name GPUs are served first, then those that mean all of a product, then the ``any`` ones in their
    order. Among several candidates, ``any`` takes GPUs that were in that mode in ``previous``, then those that are cut
    so already, then the lowest index: this disturbs the fewest running pods. Each problem is one line.
    """
    problems: list[str] = []
    taken: dict[GpuUuid, LayoutEntry] = {}
    for entry in sorted(spec.entries, key=_rank):
        mode = mode_of(entry)
        for gpu in _selected(node, entry, mode, taken, previous or {}, problems):
            earlier = taken.setdefault(gpu.uuid, entry)
            if earlier is not entry:
                problems.append(_twice(gpu, earlier, entry))
    modes = {gpu.uuid: mode_of(taken[gpu.uuid]) for gpu in node.gpus if gpu.uuid in taken}
    for entry in spec.entries:
        if entry.one_daemon:
            _put_together(entry, [gpu for gpu in node.gpus if taken.get(gpu.uuid) is entry], modes, problems)
    for gpu in node.gpus:
        if gpu.uuid in taken:
            problems += _unfit(gpu, modes[gpu.uuid], taken[gpu.uuid].where)
    problems += _disagreements(modes.values())
    if problems:
        return Resolved(problems=tuple(problems))
    return Resolved(modes, when_busy={uuid: entry.when_busy for uuid, entry in taken.items()})


def mode_of(entry: LayoutEntry) -> GpuMode:
    """The mode that an entry asks for."""
    rename, resource = entry.rename, entry.resource
    if entry.mode is LayoutMode.TIME_SLICING:
        return TimeSliced(entry.replicas or 1, rename, resource)
    if entry.mode is LayoutMode.MPS:
        clients = entry.clients or (MpsClient(),) * (entry.replicas or 1)
        return Mps(clients, equal=not entry.clients, rename=rename, resource=resource)
    if entry.mode is LayoutMode.MIG:
        replicas = entry.replicas or 1
        sharing = entry.sharing if replicas > 1 else SharingMode.NONE
        return Mig(entry.profiles, replicas, sharing, entry.when_busy, rename, resource)
    if entry.mode is LayoutMode.FRACTIONAL:
        return Fractional(entry.granularity, entry.placement)
    if entry.mode is LayoutMode.DRA:
        return Dra(entry.shares)
    return Whole(resource)


def is_cut_so(gpu: Gpu, mode: GpuMode) -> bool:
    """Whether the GPU's MIG state is the one that ``mode`` wants."""
    if not isinstance(mode, Mig):
        return not gpu.mig_enabled
    existing = Counter(mig.profile for mig in gpu.mig_instances)
    return gpu.mig_enabled and existing == Counter(mode.profiles)


def _rank(entry: LayoutEntry) -> int:
    if entry.gpus.refs:
        return 0
    return 1 if entry.gpus.any_count is None else 2


def _twice(gpu: Gpu, earlier: LayoutEntry, entry: LayoutEntry) -> str:
    other = f"the entry at {earlier.where}" if earlier.where else f"the entry gpus: {earlier.gpus}"
    return words.named_twice(entry.where, str(entry.gpus), f"GPU {gpu.index} ({gpu.uuid})", other)


def _selected(
    node: NodeInventory,
    entry: LayoutEntry,
    mode: GpuMode,
    taken: Mapping[GpuUuid, LayoutEntry],
    previous: Mapping[GpuUuid, GpuMode],
    problems: list[str],
) -> Sequence[Gpu]:
    selector = entry.gpus
    if selector.refs:
        return _named(node, entry, problems)
    fitting = [gpu for gpu in node.gpus if selector.product in (None, gpu.product)]
    if selector.any_count is None:
        if not fitting:
            problems.append(_absent(node, entry, str(selector)))
        return fitting
    free = [gpu for gpu in fitting if gpu.uuid not in taken]
    if len(free) < selector.any_count:
        problems.append(words.too_few(entry.where, str(selector), len(free), selector.any_count))
        return []
    return sorted(
        free,
        key=lambda gpu: (_alone(previous.get(gpu.uuid)) != mode, bool(_unfit(gpu, mode)), not is_cut_so(gpu, mode)),
    )[: selector.any_count]


def _alone(mode: GpuMode | None) -> GpuMode | None:
    """The mode as an entry asks for it, before it is known which GPUs the entry has."""
    return structs.replace(mode, together=()) if isinstance(mode, Fractional) and mode.together else mode


def _put_together(entry: LayoutEntry, gpus: Sequence[Gpu], modes: dict[GpuUuid, GpuMode], problems: list[str]) -> None:
    """Give the entry's GPUs one daemon. A client's memory limits name its GPUs by their order in the container, which
    is not the kubelet's: they have to be alike.
    """
    products = sorted({gpu.product for gpu in gpus})
    if len(products) > 1:
        problems.append(words.different_products(entry.where, str(entry.gpus), ", ".join(products)))
    together = tuple(gpu.uuid for gpu in gpus)
    for uuid in together if len(together) > 1 else ():
        mode = modes[uuid]
        if isinstance(mode, Fractional):
            modes[uuid] = structs.replace(mode, together=together)


def _named(node: NodeInventory, entry: LayoutEntry, problems: list[str]) -> list[Gpu]:
    gpus: list[Gpu] = []
    for ref in entry.gpus.refs:
        gpu = next((gpu for gpu in node.gpus if ref in (str(gpu.index), gpu.uuid)), None)
        if gpu is None:
            problems.append(_absent(node, entry, ref))
        elif gpu in gpus:
            problems.append(words.stands_twice(entry.where, str(entry.gpus), f"GPU {gpu.index} ({gpu.uuid})"))
        else:
            gpus.append(gpu)
    return gpus


def _absent(node: NodeInventory, entry: LayoutEntry, gpus: str) -> str:
    if not node.gpus:
        return words.no_gpu(entry.where, gpus)
    indexes = ", ".join(str(gpu.index) for gpu in node.gpus)
    products = ", ".join(dict.fromkeys(gpu.product for gpu in node.gpus))
    return words.no_such_gpu(entry.where, gpus, indexes, products)


def _unfit(gpu: Gpu, mode: GpuMode, where: str = "") -> list[str]:
    """The reasons why the GPU cannot be brought into that mode."""
    name = f"GPU {gpu.index} ({gpu.product})"
    if isinstance(mode, Mig):
        return _unfit_mig(gpu, mode, where, name)
    if isinstance(mode, Mps):
        return _unfit_mps(gpu, mode, where, name)
    return []


def _unfit_mig(gpu: Gpu, mode: Mig, where: str, name: str) -> list[str]:
    if not gpu.readable:
        return []  # the GPU could not be read: its mode is unknown
    if not gpu.mig_capable:
        return [words.no_mig(where, name)]
    known = {profile.name: profile for profile in gpu.mig_profiles}
    if not known:
        return []  # some drivers tell profiles only in MIG mode: NVML's answer decides
    problems = [
        words.unknown_profile(where, name, profile, ", ".join(sorted(known)))
        for profile in dict.fromkeys(mode.profiles)
        if migparts.split(profile)[0] not in known
    ]
    for profile, count in Counter(mode.profiles).items():
        if profile in known and count > known[profile].max_count:
            problems.append(words.too_many(where, name, count, profile, known[profile].max_count))
    if not problems and (why := migplan.possible(gpu.mig_profiles, mode.profiles)) is not None:
        problems.append(words.impossible(where, name, why))
    return problems


def _unfit_mps(gpu: Gpu, mode: Mps, where: str, name: str) -> list[str]:
    problems = []
    before_volta = (0, 0) < gpu.compute_capability < _VOLTA
    most = MAX_MPS_CLIENTS_BEFORE_VOLTA if before_volta else MAX_MPS_CLIENTS
    if len(mode.clients) > most:
        problems.append(words.too_many_clients(where, name, len(mode.clients), most))
    memory_mib = sum(client.memory_mib or 0 for client in mode.clients)
    if gpu.memory_mib and memory_mib > gpu.memory_mib:
        problems.append(words.too_much_memory(where, name, memory_mib, gpu.memory_mib))
    return problems


def _disagreements(modes: Iterable[GpuMode]) -> list[str]:
    """The problems that show only in all entries together."""
    placements = sorted({mode.placement.value for mode in modes if isinstance(mode, Fractional)})
    if len(placements) > 1:
        return [words.two_placements()]
    return []
