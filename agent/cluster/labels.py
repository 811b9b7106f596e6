"""The labels with which a node describes its GPUs: the full set of NVIDIA's GPU feature discovery, and one of our own.

``labels(node, layout, spec, ...)`` is pure; the publisher writes the result. Keys and values are those that node
selectors, dashboards and the other operators' charts already use, so nothing changes for their readers.

Where several GPU models stand in one node the labels describe the most numerous one (of equals, that with the lowest
GPU index), always the same one; ``tessera.dev/gpu.product.<model>`` then counts each.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, structs

from agent.hardware.vgpu import VgpuHost
from inventory.api.names import GROUP
from inventory.devices import Gpu, MigInstance, NodeInventory, ResourceName
from inventory.layout.layout import Layout, Share, single_strategy_problem
from inventory.layout.sharing import LayoutSpec, MigStrategy, SharingMode

NVIDIA = "nvidia.com"
OWN = GROUP
_MAX_VALUE = 63
_MODEL_PREFIX = "gpu.product."
PERCENT_LARGEST = f"{OWN}/gpu-percent-largest"

_PCI_CLASS_DISPLAY_VGA = 0x0300
_PCI_CLASS_DISPLAY_3D = 0x0302
_MODES = {_PCI_CLASS_DISPLAY_3D: "compute", _PCI_CLASS_DISPLAY_VGA: "graphics"}

_RESOURCE_SUFFIXES = ("product", "count", "replicas", "sharing-strategy", "memory")
_MIG_SUFFIXES = (
    *_RESOURCE_SUFFIXES,
    "multiprocessors",
    "slices.gi",
    "slices.ci",
    *(f"engines.{engine}" for engine in ("copy", "decoder", "encoder", "jpeg", "ofa")),
)
_NODE_NAMES = (
    "gfd.timestamp",
    *(f"cuda.driver.{part}" for part in ("major", "minor", "rev")),
    *(f"cuda.runtime.{part}" for part in ("major", "minor")),
    *(f"cuda.driver-version.{part}" for part in ("major", "minor", "revision", "full")),
    *(f"cuda.runtime-version.{part}" for part in ("major", "minor", "full")),
    *(f"gpu.{name}" for name in ("machine", "family", "compute.major", "compute.minor", "mode", "clique")),
    "mig.capable",
    "mig.strategy",
    "mps.capable",
    *(f"vgpu.{name}" for name in ("present", "host-driver-version", "host-driver-branch")),
)
_EXACT = frozenset(f"{NVIDIA}/{name}" for name in (*_NODE_NAMES, *(f"gpu.{name}" for name in _MIG_SUFFIXES)))
_MIG_KEY = re.compile(
    rf"{re.escape(NVIDIA)}/mig-\d+g\.\d+gb[\w.-]*?\.(?:{'|'.join(re.escape(name) for name in _MIG_SUFFIXES)})"
)


ANSWERS = ("nvidia.com/mig.config.state",)
"""Labels that the agent applies while it answers. They are never removed by a patch, since another manager may write
them: server-side apply takes away what is ours."""


def is_published(key: str) -> bool:
    """Whether a label of that key is ours to write and to remove: the feature discovery set, and our own."""
    own = key == PERCENT_LARGEST or key.startswith(f"{OWN}/{_MODEL_PREFIX}")
    return own or key in _EXACT or _MIG_KEY.fullmatch(key) is not None


def label_value(text: str) -> str:
    """``text`` as a label value: what is not allowed is dropped, runs of blanks become ``-``; 63 characters at most.

    A value must start and end with a letter or digit, or be empty. In this order, as GPU feature discovery does it: a
    character between two blanks is dropped without leaving two dashes.
    """
    kept = "-".join(re.sub(r"[^A-Za-z0-9._ -]", "", text).split())
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", kept[:_MAX_VALUE])


def labels(
    node: NodeInventory,
    layout: Layout,
    spec: LayoutSpec,
    *,
    machine_type: str,
    timestamp_s: int | None,
    vgpu: VgpuHost | None = None,
    percent_largest: int | None = None,
) -> dict[str, str]:
    """The labels of ``node``; none at all without a GPU that could be read.

    ``machine_type`` is DMI's product name (empty: unknown). ``timestamp_s`` is when discovery started, None for no
    timestamp: it is handed in once and not each time, or every call would give other labels. ``percent_largest`` is the
    largest request for percents that fits one GPU now, None where no GPU is fractional.
    """
    gpus = [gpu for gpu in node.gpus if gpu.product]
    if not gpus:
        return {}
    devices = [device for resource in layout.resources for device in resource.devices]
    if spec.mig_strategy is MigStrategy.NONE and any(device.mig for device in devices):
        # A layout cut these GPUs: each profile has its own resource, whatever migStrategy says of the other GPUs.
        spec = structs.replace(spec, mig_strategy=MigStrategy.MIXED)
    model = _most_numerous(gpus)
    named = {
        **_versions(node),
        **_machine(gpus, model, machine_type),
        **_modes(gpus, spec, vgpu, mps=any(device.share and device.share.sharing.needs_mps for device in devices)),
        **_resources(node, gpus, model, layout, spec),
    }
    if timestamp_s is not None:
        named["gfd.timestamp"] = str(timestamp_s)
    own = _models(gpus)
    if percent_largest is not None:
        own[PERCENT_LARGEST] = str(percent_largest)
    return {f"{NVIDIA}/{name}": value for name, value in named.items()} | own


def _most_numerous(gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs of the model that the labels describe."""
    counts = Counter(gpu.product for gpu in gpus)
    first = min(gpus, key=lambda gpu: (-counts[gpu.product], gpu.index))
    return [gpu for gpu in gpus if gpu.product == first.product]


def _models(gpus: Sequence[Gpu]) -> dict[str, str]:
    """The number of GPUs of each model, as labels; empty where all GPUs are of one model."""
    counts = Counter(gpu.product for gpu in gpus)
    if len(counts) == 1:
        return {}
    room = _MAX_VALUE - len(_MODEL_PREFIX)
    named = {product: label_value(label_value(product)[:room]) for product in counts}
    return {f"{OWN}/{_MODEL_PREFIX}{name}": str(counts[product]) for product, name in named.items() if name}


def _versions(node: NodeInventory) -> dict[str, str]:
    versions: dict[str, str] = {}
    if node.driver_version:
        major, minor, revision = (*node.driver_version.split(".", 2), "", "")[:3]
        driver = {"major": major, "minor": minor}
        versions |= {f"cuda.driver.{part}": label_value(value) for part, value in (driver | {"rev": revision}).items()}
        full = driver | {"revision": revision, "full": node.driver_version}
        versions |= {f"cuda.driver-version.{part}": label_value(value) for part, value in full.items()}
    if node.cuda_version != (0, 0):
        major, minor = (str(part) for part in node.cuda_version)
        versions |= {"cuda.runtime.major": major, "cuda.runtime.minor": minor}
        versions |= {"cuda.runtime-version.major": major, "cuda.runtime-version.minor": minor}
        versions["cuda.runtime-version.full"] = f"{major}.{minor}"
    return versions


def _machine(gpus: Sequence[Gpu], model: Sequence[Gpu], machine_type: str) -> dict[str, str]:
    major, minor = model[0].compute_capability
    classes = {gpu.pci_class for gpu in gpus}
    one_class = classes.pop() if len(classes) == 1 else None
    facts = {
        "gpu.machine": label_value(machine_type) or "unknown",
        "gpu.family": family(major, minor),
        "gpu.compute.major": str(major),
        "gpu.compute.minor": str(minor),
        "gpu.mode": "unknown" if one_class is None else _MODES.get(one_class, "unknown"),
    }
    cliques = {gpu.clique for gpu in gpus}
    clique = cliques.pop() if len(cliques) == 1 else None
    if clique is not None:
        facts["gpu.clique"] = label_value(clique.label)
    return facts


def family(major: int, minor: int) -> str:
    """The architecture that NVIDIA's labels name for a CUDA compute capability."""
    if major == 7:  # noqa: PLR2004 - compute capabilities are their own names
        return "volta" if minor < 5 else "turing"  # noqa: PLR2004
    if major == 8:  # noqa: PLR2004
        return "ada-lovelace" if minor == 9 else "ampere"  # noqa: PLR2004
    names = {1: "tesla", 2: "fermi", 3: "kepler", 5: "maxwell", 6: "pascal", 9: "hopper"}
    names |= {10: "blackwell", 12: "blackwell", 13: "rubin"}
    return names.get(major, "undefined")


def _modes(gpus: Sequence[Gpu], spec: LayoutSpec, vgpu: VgpuHost | None, *, mps: bool) -> dict[str, str]:
    asked = spec.replication is not None and spec.replication.mode is SharingMode.MPS
    modes = {
        "mig.capable": _bool(any(gpu.mig_capable for gpu in gpus)),
        "mps.capable": _bool((mps or asked) and not (asked and any(gpu.mig_enabled for gpu in gpus))),
        "vgpu.present": _bool(vgpu is not None),
    }
    if spec.mig_strategy is not MigStrategy.NONE:
        modes["mig.strategy"] = spec.mig_strategy.value
    if vgpu is not None:
        modes["vgpu.host-driver-version"] = label_value(vgpu.driver_version)
        modes["vgpu.host-driver-branch"] = label_value(vgpu.driver_branch)
    return modes


def _bool(value: bool) -> str:
    return "true" if value else "false"


class _Offer(Struct, frozen=True):
    """The way in which one physical device is offered. ``marked`` is whether the product name must tell that it is
    shared.
    """

    replicas: int = 1
    sharing: SharingMode = SharingMode.NONE
    marked: bool = False


def _offers(layout: Layout, spec: LayoutSpec) -> dict[str, _Offer]:
    """The offer of each device, by physical id. A renamed resource tells by its name that it is shared, so its product
    need not.
    """
    unshared = {pattern.name for pattern in (*spec.gpu_patterns, *spec.mig_patterns)}
    offers: dict[str, _Offer] = {}
    for resource in layout.resources:
        counts = Counter(device.physical_id for device in resource.devices if device.replica is not None)
        kept_name = resource.name in unshared or _is_mig_name(resource.name)
        shares = {device.physical_id: device.share for device in resource.devices if device.share is not None}
        for physical_id, replicas in counts.items():
            share = shares.get(physical_id, Share(resource.sharing))
            # Readers of these labels know three strategies; fractions are kept apart by MPS.
            fractional = share.sharing is SharingMode.FRACTIONAL
            offers[physical_id] = _Offer(
                replicas=replicas // share.granularity,
                sharing=SharingMode.MPS if fractional else share.sharing,
                marked=kept_name,
            )
    return offers


def _is_mig_name(name: ResourceName) -> bool:
    return re.fullmatch(rf"{re.escape(NVIDIA)}/mig-\d+g\.\d+gb[\w.-]*", name) is not None and ".shared" not in name


def _commonest(offers: Sequence[_Offer]) -> _Offer:
    """The offer of most devices, of equals the first: GPUs may be shared one by one, and a label has one value."""
    return Counter(offers).most_common(1)[0][0]


def _resources(
    node: NodeInventory, gpus: Sequence[Gpu], model: Sequence[Gpu], layout: Layout, spec: LayoutSpec
) -> dict[str, str]:
    offers = _offers(layout, spec)
    if spec.mig_strategy is MigStrategy.SINGLE and any(gpu.mig_enabled for gpu in gpus):
        if single_strategy_problem(node) is not None:
            return _invalid(model[0].product)
        return _mig_labels("gpu", [(gpu, mig) for gpu in model for mig in gpu.mig_instances], offers)
    published = _whole(model, offers)
    if spec.mig_strategy is MigStrategy.MIXED:
        for profile, instances in _by_profile(gpus).items():
            published |= _mig_labels(f"mig-{profile}", instances, offers)
    return published


def _invalid(product: str) -> dict[str, str]:
    """The labels that NVIDIA's GPU feature discovery writes where the single strategy cannot hold."""
    return {
        "gpu.product": _product(product, "MIG", "INVALID"),
        "gpu.count": "0",
        "gpu.replicas": "0",
        "gpu.sharing-strategy": "",
        "gpu.memory": "0",
    }


def _whole(model: Sequence[Gpu], offers: Mapping[str, _Offer]) -> dict[str, str]:
    """The labels of whole GPUs. GPUs in MIG mode count too, but the labels describe one that is not in MIG mode, if
    there is one.
    """
    plain = [gpu for gpu in model if not gpu.mig_enabled] or list(model)
    # A GPU in MIG mode is 0 replicas of a GPU, though migStrategy none offers it, shared or not.
    offer = _commonest([_Offer(replicas=0) if gpu.mig_enabled else offers.get(gpu.uuid, _Offer()) for gpu in plain])
    return {
        "gpu.product": _product(plain[0].product, *(("SHARED",) if offer.marked else ())),
        "gpu.count": str(len(model)),
        "gpu.replicas": str(offer.replicas),
        "gpu.sharing-strategy": offer.sharing.value,
        "gpu.memory": str(plain[0].memory_mib),
    }


def _by_profile(gpus: Iterable[Gpu]) -> dict[str, list[tuple[Gpu, MigInstance]]]:
    """Instances by profile as a label spells it; parts of a GPU instance have no resource and no labels."""
    by_profile: dict[str, list[tuple[Gpu, MigInstance]]] = {}
    for gpu in gpus:
        for mig in gpu.mig_instances if gpu.mig_enabled else ():
            if mig.fills_gpu_instance:
                by_profile.setdefault(_profile(mig), []).append((gpu, mig))
    return by_profile


def _profile(mig: MigInstance) -> str:
    return label_value(mig.profile.replace("+", "."))


def _mig_labels(
    prefix: str, instances: Sequence[tuple[Gpu, MigInstance]], offers: Mapping[str, _Offer]
) -> dict[str, str]:
    counts = Counter(gpu.product for gpu, _ in instances)
    gpu, mig = next(item for item in instances if counts[item[0].product] == max(counts.values()))
    offer = _commonest([offers.get(item.uuid, _Offer()) for _, item in instances])
    values = {
        "product": _product(gpu.product, "MIG", _profile(mig), *(("SHARED",) if offer.marked else ())),
        "count": str(len(instances)),
        "replicas": str(offer.replicas),
        "sharing-strategy": offer.sharing.value,
        "memory": str(mig.memory_mib),
        "multiprocessors": str(mig.multiprocessors),
        "slices.gi": str(mig.gi_slices),
        "slices.ci": str(mig.ci_slices),
        "engines.copy": str(mig.engines.copy),
        "engines.decoder": str(mig.engines.decoder),
        "engines.encoder": str(mig.engines.encoder),
        "engines.jpeg": str(mig.engines.jpeg),
        "engines.ofa": str(mig.engines.ofa),
    }
    return {f"{prefix}.{name}": value for name, value in values.items()}


def _product(product: str, *suffixes: str) -> str:
    """The product as a label value, the suffixes kept whole however long the name is."""
    tail = "".join(f"-{suffix}" for suffix in suffixes)
    return label_value(label_value(product)[: _MAX_VALUE - len(tail)] + tail)
