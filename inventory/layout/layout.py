"""Turns hardware and an administrator's choices into the resources that a node advertises.

``plan(node, spec, modes)`` is the one place that decides names, device ids and replicas. A GPU that fits no rule is
left out with a problem that names it; the other GPUs are still advertised.
"""

import bisect
import fnmatch
from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct, structs

from inventory import listsize
from inventory.devices import DeviceId, Gpu, GpuUuid, MigInstance, MigUuid, NodeInventory, ResourceName
from inventory.layout.entries import (
    PERCENT_RESOURCE,
    Dra,
    Fractional,
    FractionPlacement,
    GpuMode,
    Mig,
    Mps,
    TimeSliced,
    Whole,
)
from inventory.layout.sharing import (
    DeviceSelector,
    LayoutSpec,
    MigStrategy,
    ReplicatedResource,
    Replication,
    ResourcePattern,
    SharingMode,
)
from inventory.words import layouts as words

DEFAULT_GPU_RESOURCE = ResourceName("nvidia.com/gpu")
REPLICA_MARK = "::"


PERCENTS = 100
"""The number of devices of a fractional GPU: one for each percent."""


class Share(Struct, frozen=True):
    """The sharing of a device among containers, and the limits of one container.

    ``memory_mib`` and ``threads`` (a percentage) are limits for its environment; None: no limit of its own. For a
    fractional GPU they are the whole GPU's: a container gets as many hundredths as it gets devices, in steps of
    ``granularity``. ``alone``: a container gets one such device at most, since a second share would not add to the
    first. ``together``: the GPUs whose daemon is this one's, see ``Fractional`` and ``_share_of``.
    """

    sharing: SharingMode
    memory_mib: int | None = None
    threads: int | None = None
    granularity: int = 1
    packed: bool = True
    alone: bool = False
    together: tuple[GpuUuid, ...] = ()


class LogicalDevice(Struct, frozen=True):
    """One device as kubelet sees it. Several may stand on one physical GPU: MIG instances, replicas, or both.

    ``share`` is None for a device that one container holds alone.
    """

    id: DeviceId
    gpu: GpuUuid
    mig: MigUuid | None = None
    replica: int | None = None
    numa_node: int | None = None
    share: Share | None = None

    @property
    def physical_id(self) -> str:
        """The UUID handed to the container: the MIG instance's where there is one, else the GPU's."""
        return self.mig or self.gpu


class Resource(Struct, frozen=True):
    """One extended resource with its devices, in the order of GPU index, MIG index, replica.

    ``sharing`` is NONE when every device is held by one container; devices with and without replicas may stand
    side by side under one name.
    """

    name: ResourceName
    devices: tuple[LogicalDevice, ...]
    sharing: SharingMode = SharingMode.NONE
    fail_requests_greater_than_one: bool = False


class Layout(Struct, frozen=True):
    """The resources that the node advertises, and one line for each part of the spec that could not be met.

    ``notes`` are lines about parts of the spec that were met and may surprise.
    """

    resources: tuple[Resource, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def resource(self, name: ResourceName) -> Resource | None:
        return next((resource for resource in self.resources if resource.name == name), None)

    def validate(self) -> None:
        """Check the invariants: names unique, no device id twice anywhere, ids formed from the UUIDs that they stand
        for.
        """
        names = [resource.name for resource in self.resources]
        assert len(set(names)) == len(names), "a resource name is planned twice"
        ids = [device.id for resource in self.resources for device in resource.devices]
        assert len(set(ids)) == len(ids), "a device is advertised twice"
        for resource in self.resources:
            for device in resource.devices:
                mark = "" if device.replica is None else f"{REPLICA_MARK}{device.replica}"
                assert device.id == device.physical_id + mark, f"device id {device.id} does not name its device"
                assert resource.sharing is not SharingMode.NONE or device.replica is None, "an unshared replica"
                assert (device.share is None) == (device.replica is None), "a share without a replica"
            if resource.name == PERCENT_RESOURCE:
                counts = Counter(device.gpu for device in resource.devices)
                assert set(counts.values()) <= {PERCENTS}, "a fractional GPU has more or less than 100 percents"


def physical_id(device: str) -> str:
    """The UUID inside a device id: the part before ``::``."""
    return device.partition(REPLICA_MARK)[0]


def mig_resource_name(profile: str) -> ResourceName:
    """The name that the mixed strategy gives a profile: ``1g.10gb+me`` becomes ``nvidia.com/mig-1g.10gb.me``."""
    return ResourceName(f"nvidia.com/mig-{profile.replace('+', '.')}")


def shared_name(name: ResourceName) -> ResourceName:
    """The name that ``renameByDefault`` gives a replicated resource."""
    return ResourceName(f"{name}.shared")


class _Base(Struct, frozen=True):
    """A device before sharing: the name under which it would be advertised, and the words by which a selector may mean
    it.
    """

    name: ResourceName
    device: LogicalDevice
    refs: tuple[str, ...]


def plan(node: NodeInventory, spec: LayoutSpec, modes: Mapping[GpuUuid, GpuMode] | None = None) -> Layout:
    """The resources that ``node`` advertises; deterministic, in order of first appearance.

    GPUs in ``modes`` are offered as those say, and ``spec`` gives the names of devices that are not shared. The others
    follow ``spec`` alone, as if the node had no more GPUs than them.
    """
    modes = modes or {}
    problems: list[str] = []
    rest = structs.replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.uuid not in modes), links=())
    base = list(_base_devices(rest, spec, problems))
    offered = list(_share(base, spec.replication, problems))
    for gpu in node.gpus:
        if gpu.uuid in modes:
            offered += _in_mode(gpu, modes[gpu.uuid], spec, problems)
    order = {gpu.uuid: place for place, gpu in enumerate(node.gpus)}
    # The sort is stable: within one GPU the devices keep their order.
    offered.sort(key=lambda offer: order[offer.device.gpu])
    offered = _that_fit_a_list(offered, problems)
    return Layout(_resources(offered, spec.replication), tuple(problems), tuple(_notes(rest, spec)))


def _notes(node: NodeInventory, spec: LayoutSpec) -> Iterable[str]:
    """The note about GPUs whose MIG mode is not looked at. NVIDIA's plugin has this rule for migStrategy none, and
    sites rely on it.
    """
    for gpu in node.gpus:
        if gpu.mig_enabled and spec.mig_strategy is MigStrategy.NONE:
            yield (
                f"GPU {gpu.index} ({gpu.uuid}) has MIG mode on and migStrategy is none: "
                "it is offered whole, CUDA will see one instance at most"
            )


def _base_devices(node: NodeInventory, spec: LayoutSpec, problems: list[str]) -> Iterable[_Base]:
    if spec.mig_strategy is MigStrategy.SINGLE and any(gpu.mig_enabled for gpu in node.gpus):
        yield from _single(node, spec, problems)
        return
    for gpu in node.gpus:
        if gpu.mig_enabled and spec.mig_strategy is MigStrategy.MIXED:
            yield from _mixed(gpu, spec, problems)
            continue
        name = _name_of(gpu, spec, problems)
        if name is not None:
            yield _whole(gpu, name)


def _name_of(gpu: Gpu, spec: LayoutSpec, problems: list[str]) -> ResourceName | None:
    name = _match(spec.gpu_patterns, gpu.product)
    if name is None:
        problems.append(words.no_gpu_pattern(f"GPU {gpu.index} ({gpu.product})"))
    return name


def _single(node: NodeInventory, spec: LayoutSpec, problems: list[str]) -> Iterable[_Base]:
    """The MIG instances under the GPU's own name; only where all GPUs are cut alike, otherwise none is offered."""
    invalid = single_strategy_problem(node)
    if invalid is not None:
        problems.append(invalid)
        return
    for gpu in node.gpus:
        name = _name_of(gpu, spec, problems)
        if name is None:
            continue
        for mig in gpu.mig_instances:
            yield _instance(gpu, mig, name)


def single_strategy_problem(node: NodeInventory) -> str | None:
    """Why ``migStrategy: single`` cannot hold on this node, or None: all GPUs MIG-enabled, all cut into one profile,
    which may be a part of a GPU instance (``1c.3g.20gb``).
    """
    whole = [str(gpu.index) for gpu in node.gpus if not gpu.mig_enabled]
    if whole:
        return words.single_whole(", ".join(whole))
    empty = [str(gpu.index) for gpu in node.gpus if not gpu.mig_instances]
    if empty:
        return words.single_empty(", ".join(empty))
    profiles = sorted({mig.profile for gpu in node.gpus for mig in gpu.mig_instances})
    if len(profiles) > 1:
        return words.single_mixed(", ".join(profiles))
    return None


def _only_a_part(gpu: Gpu, mig: MigInstance) -> str:
    return words.part_only(gpu.index, mig.profile, mig.uuid)


def _mixed(gpu: Gpu, spec: LayoutSpec, problems: list[str]) -> Iterable[_Base]:
    if not gpu.mig_instances:
        problems.append(words.empty_mig(f"GPU {gpu.index} ({gpu.uuid})"))
    for mig in gpu.mig_instances:
        if not mig.fills_gpu_instance:
            problems.append(_only_a_part(gpu, mig))
            continue
        name = _match(spec.mig_patterns, mig.profile) if spec.mig_patterns else mig_resource_name(mig.profile)
        if name is None:
            problems.append(words.no_mig_pattern(gpu.index, mig.profile))
            continue
        yield _instance(gpu, mig, name)


def _match(patterns: Iterable[ResourcePattern], text: str) -> ResourceName | None:
    for entry in patterns:
        # The config's grammar has `*` alone; fnmatch knows more.
        escaped = entry.pattern.replace("[", "[[]").replace("?", "[?]")
        if fnmatch.fnmatchcase(text, escaped):
            return entry.name
    return None


def _whole(gpu: Gpu, name: ResourceName) -> _Base:
    device = LogicalDevice(id=DeviceId(gpu.uuid), gpu=gpu.uuid, numa_node=gpu.numa_node)
    return _Base(name, device, (str(gpu.index), gpu.uuid))


def _instance(gpu: Gpu, mig: MigInstance, name: ResourceName) -> _Base:
    device = LogicalDevice(id=DeviceId(mig.uuid), gpu=gpu.uuid, mig=mig.uuid, numa_node=gpu.numa_node)
    # A bare GPU index or UUID means every instance on it.
    return _Base(name, device, (f"{gpu.index}:{mig.index}", mig.uuid, str(gpu.index), gpu.uuid))


class _Offer(Struct, frozen=True):
    """A device under a name: by itself, or ``replicas`` times, numbered from ``first``, with ``share`` each.

    Replicas are counted before they are made: the configuration may ask for millions.
    """

    name: ResourceName
    device: LogicalDevice
    share: Share | None = None
    replicas: int = 1
    first: int = 0

    def devices(self) -> Iterable[LogicalDevice]:
        if self.share is None:
            yield self.device
            return
        for n in range(self.first, self.first + self.replicas):
            yield structs.replace(
                self.device, id=DeviceId(f"{self.device.id}{REPLICA_MARK}{n}"), replica=n, share=self.share
            )

    def list_bytes(self, most: int) -> int:
        """The bytes that the offer takes in the kubelet's list of devices, with ``most`` replicas at most."""
        of = len(self.device.id), self.device.numa_node
        if self.share is None:
            return listsize.device_bytes(*of)
        return listsize.replicas_bytes(*of, self.first, min(self.replicas, most))


def _that_fit_a_list(offered: list[_Offer], problems: list[str]) -> list[_Offer]:
    """The offers without those of resources whose list the kubelet could not read; a problem names the largest
    number.
    """
    by_name: dict[ResourceName, list[_Offer]] = {}
    for offer in offered:
        by_name.setdefault(offer.name, []).append(offer)
    for name, offers in by_name.items():
        largest = max(offer.replicas for offer in offers)
        if _fits(offers, largest):
            continue
        fits = bisect.bisect_left(range(largest), x=True, key=lambda most: not _fits(offers, most)) - 1
        problems.append(words.list_too_long(name, largest, max(fits, 0), listsize.MAX_BYTES >> 20))
        offered = [offer for offer in offered if offer.name != name]
    return offered


def _fits(offers: Iterable[_Offer], most: int) -> bool:
    return sum(offer.list_bytes(most) for offer in offers) <= listsize.MAX_BYTES


def _share(base: list[_Base], replication: Replication | None, problems: list[str]) -> Iterable[_Offer]:
    """Replicate the devices that the entries select. Where two entries offer a device under one name the larger number
    counts, as with NVIDIA's plugin; under two names the earlier entry. Every entry must select something.
    """
    entry_of: dict[DeviceId, ReplicatedResource] = {}
    for wanted in replication.resources if replication else ():
        chosen = _select([item for item in base if item.name == wanted.name], wanted.devices)
        if not chosen:
            problems.append(words.no_device_shared(wanted.name))
        for item in chosen:
            earlier = entry_of.setdefault(item.device.id, wanted)
            if earlier.rename == wanted.rename and earlier.replicas < wanted.replicas:
                entry_of[item.device.id] = wanted
    for item in base:
        entry = entry_of.get(item.device.id)
        if entry is None or replication is None:
            yield _Offer(item.name, item.device)
            continue
        share = _share_of(item, entry, base, entry_of, replication)
        yield _Offer(_replicated_name(entry, replication), item.device, share, entry.replicas)


def _share_of(
    item: _Base,
    entry: ReplicatedResource,
    base: Iterable[_Base],
    entry_of: Mapping[DeviceId, ReplicatedResource],
    replication: Replication,
) -> Share:
    """The share of one replica. MPS clients that may have several replicas have one daemon for all GPUs of the
    resource, as with NVIDIA's plugin, since a container speaks to one daemon; a process could use one MIG instance
    only.
    """
    if replication.mode is not SharingMode.MPS or replication.fail_requests_greater_than_one:
        return Share(replication.mode)
    if item.device.mig is not None:
        return Share(replication.mode, alone=True)
    name = _replicated_name(entry, replication)
    together = tuple(
        other.device.gpu
        for other in base
        if (of := entry_of.get(other.device.id)) is not None and _replicated_name(of, replication) == name
    )
    return Share(replication.mode, together=together if len(together) > 1 else ())


def _resources(offered: Iterable[_Offer], replication: Replication | None) -> tuple[Resource, ...]:
    grouped: dict[ResourceName, list[LogicalDevice]] = {}
    for offer in offered:
        grouped.setdefault(offer.name, []).extend(offer.devices())
    limited = replication is not None and replication.fail_requests_greater_than_one
    return tuple(
        Resource(
            name=name,
            devices=tuple(devices),
            sharing=next((device.share.sharing for device in devices if device.share), SharingMode.NONE),
            fail_requests_greater_than_one=limited and any(device.share for device in devices),
        )
        for name, devices in grouped.items()
    )


def _replicated_name(entry: ReplicatedResource, replication: Replication) -> ResourceName:
    if entry.rename is not None:
        return entry.rename
    return shared_name(entry.name) if replication.rename_by_default else entry.name


def _select(items: list[_Base], selector: DeviceSelector) -> list[_Base]:
    if selector.count is not None:
        return items[: selector.count]
    if selector.refs:
        wanted = set(selector.refs)
        return [item for item in items if wanted & set(item.refs)]
    return items


# -- GPU by GPU --------------------------------------------------------------------------------------------------


def _in_mode(gpu: Gpu, mode: GpuMode, spec: LayoutSpec, problems: list[str]) -> Iterable[_Offer]:
    if isinstance(mode, Mig):
        yield from _cut(gpu, mode, problems)
        return
    if isinstance(mode, Dra):
        return
    if gpu.mig_enabled:
        problems.append(words.mig_still_on(f"GPU {gpu.index} ({gpu.uuid})"))
        return
    name = _name_of(gpu, spec, problems)
    if name is None:
        return
    device = _whole(gpu, name).device
    if isinstance(mode, Whole):
        yield _Offer(mode.resource or name, device)
    elif isinstance(mode, TimeSliced):
        name = mode.resource or (shared_name(name) if mode.rename else name)
        yield _Offer(name, device, Share(SharingMode.TIME_SLICING), mode.replicas)
    elif isinstance(mode, Mps):
        name = mode.resource or (shared_name(name) if mode.rename else name)
        for n, client in enumerate(mode.clients):
            share = Share(SharingMode.MPS, client.memory_mib, client.threads, alone=True)
            yield _Offer(client.resource or name, device, share, first=n)
    else:
        yield _percents(gpu, device, mode)


def _percents(gpu: Gpu, device: LogicalDevice, mode: Fractional) -> _Offer:
    packed = mode.placement is FractionPlacement.PACKED
    share = Share(SharingMode.FRACTIONAL, gpu.memory_mib, PERCENTS, mode.granularity, packed, together=mode.together)
    return _Offer(PERCENT_RESOURCE, device, share, PERCENTS)


def _cut(gpu: Gpu, mode: Mig, problems: list[str]) -> Iterable[_Offer]:
    """Offer the instances that exist, wanted or not: the MIG planner's caller withholds those that it is about to
    remove.
    """
    missing = Counter(mode.profiles)
    missing.subtract(mig.profile for mig in gpu.mig_instances)
    if not gpu.mig_enabled or +missing:
        lacking = ", ".join((+missing).elements())
        problems.append(words.not_cut_yet(f"GPU {gpu.index} ({gpu.uuid})", lacking))
    for mig in gpu.mig_instances if gpu.mig_enabled else ():
        if not mig.fills_gpu_instance:
            problems.append(_only_a_part(gpu, mig))
            continue
        name = mode.resource or mig_resource_name(mig.profile)
        device = _instance(gpu, mig, name).device
        if mode.replicas == 1:
            yield _Offer(name, device)
            continue
        if mode.rename and mode.resource is None:
            name = shared_name(name)
        share = Share(mode.sharing, alone=mode.sharing is SharingMode.MPS)
        yield _Offer(name, device, share, mode.replicas)
