"""Reads a ``layout:`` list, GPU by GPU: the config file's, and that of ``GpuLayout.spec.layout``. Both have this one
reader.

What can be said without a node is said here, with line and key; ``inventory.layout.entries.resolve`` checks whether the
GPUs are there.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from agent.config.parsers import MEMORY_MIB
from agent.config.reader import Reader, read_tree
from inventory.api.gpulayout import MAX_ENTRIES, MAX_MPS_CLIENTS, MAX_PROFILES
from inventory.devices import ResourceName
from inventory.layout.entries import (
    PERCENT_RESOURCE,
    FractionPlacement,
    GpuLayoutSpec,
    GpuSelector,
    LayoutEntry,
    LayoutMode,
    MpsClient,
    WhenBusy,
)
from inventory.layout.sharing import SharingMode
from inventory.listsize import MAX_REPLICAS
from yamlfile import ConfigError, Document, Place, YamlKind, parse_text
from yamlfile.parsers import BOOL, TEXT, Parser, Unfit, integer, one_of

MAX_GPU_REFS = 64

_UUID = r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_REF = re.compile(rf"(0|[1-9]\d{{0,3}})|{_UUID}")
_PROFILE = re.compile(r"(\d{1,2}c\.)?\d{1,2}g\.\d{1,4}gb([+-][a-z.]+)*")
_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?)/([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)")
_MAX_NAME = 63

_MODE: Parser = one_of(LayoutMode)
_PLACEMENT: Parser = one_of(FractionPlacement)
_WHEN_BUSY: Parser = one_of(WhenBusy)

_ALWAYS = ("gpus", "mode", "whenBusy")
KEYS: Mapping[LayoutMode, tuple[str, ...]] = {
    LayoutMode.WHOLE: ("resource",),
    LayoutMode.TIME_SLICING: ("replicas", "rename", "resource"),
    LayoutMode.MPS: ("replicas", "clients", "rename", "resource"),
    LayoutMode.MIG: ("profiles", "replicas", "sharing", "rename", "resource"),
    LayoutMode.FRACTIONAL: ("granularity", "placement", "oneDaemon"),
    LayoutMode.DRA: ("shares",),
}
"""The keys of an entry in each mode, beside those that stand with every mode."""


def parse_layout(text: str, source: str) -> GpuLayoutSpec:
    """Read a list on its own, as JSON or YAML, as a GpuLayout's ``spec.layout`` has it. Raises ConfigError."""
    place = Place(Document(file=source), "spec.layout", parse_text(text, source))
    return read_layout(place, lines=False)


def parse_remediation(text: str, source: str) -> tuple[tuple[str, str | int | float], ...]:
    """Read a section on its own, as JSON or YAML, as a GpuLayout's ``spec.remediation`` has it: the settings that it
    gives, by their names. Raises ConfigError.

    Its keys are those of the config file but for ``verify`` and ``stewards``, which are about programs of the host: who
    may write a GpuLayout runs none there.
    """
    root = parse_text(f'{{"remediation": {text}}}', source)
    values, _ = read_tree(root, source, {})
    settings = {target.removeprefix("remediation."): value for target, value in values.items()}
    if any(name.startswith("verify") for name in settings):
        raise ConfigError(source, "remediation.verify", "a program", "none: the agent's own configuration names it")
    if "stewards" in settings:
        raise ConfigError(source, "remediation.stewards", "names", "none: the agent's own configuration names them")
    return tuple(
        sorted((name, value.value if isinstance(value, StrEnum) else value) for name, value in settings.items())
    )


def read_layout(place: Place, *, lines: bool = True) -> GpuLayoutSpec:
    """The entries of the list at ``place``. ``lines``: messages may name lines. Raises ConfigError."""
    items = [] if place.is_null else place.items()
    if len(items) > MAX_ENTRIES:
        raise place.error(f"{MAX_ENTRIES} entries at most", f"{len(items)} entries")
    entries: list[LayoutEntry] = []
    named: dict[str, Place] = {}
    for item in items:
        entry = _entry(item, item.where if lines else f"{item.document.file}: {item.path}")
        for ref in entry.gpus.refs:
            earlier = named.setdefault(ref, item)
            if earlier is not item:
                raise item.error(f"GPUs that {earlier.path} does not name", f"GPU {ref} a second time")
        entries.append(entry)
    return GpuLayoutSpec(tuple(entries), place.document.file)


def _section(place: Place, values: dict[str, Any]) -> None:
    values["gpu_layout"] = read_layout(place)


SECTION: Reader = _section


def _entry(place: Place, where: str) -> LayoutEntry:
    fields = place.fields(sorted({*_ALWAYS, *(key for keys in KEYS.values() for key in keys)}))
    mode: LayoutMode = place.required(fields, "mode").value(_MODE)
    known = (*_ALWAYS, *KEYS[mode])
    for key, field in fields.items():
        if key not in known:
            raise field.error(f"one of {', '.join(sorted(known))} with mode {mode.value}", f"the key {key}")
    entry = LayoutEntry(
        gpus=_selector(place.required(fields, "gpus")),
        mode=mode,
        when_busy=fields["whenBusy"].value(_WHEN_BUSY) if "whenBusy" in fields else WhenBusy.REFUSE,
        rename=bool(fields["rename"].value(BOOL)) if "rename" in fields else True,
        resource=_resource(fields["resource"]) if "resource" in fields else None,
        replicas=_replicas(place, fields, mode),
        clients=_clients(fields["clients"]) if "clients" in fields else (),
        granularity=fields["granularity"].value(GRANULARITY) if "granularity" in fields else 1,
        placement=fields["placement"].value(_PLACEMENT) if "placement" in fields else FractionPlacement.PACKED,
        one_daemon=bool(fields["oneDaemon"].value(BOOL)) if "oneDaemon" in fields else False,
        profiles=_profiles(place.required(fields, "profiles")) if mode is LayoutMode.MIG else (),
        sharing=_SHARING[fields["sharing"].value(_SHARED_BY)] if "sharing" in fields else SharingMode.TIME_SLICING,
        shares=_shares(fields["shares"]) if "shares" in fields else None,
        where=where,
    )
    if entry.resource is not None and "rename" in fields:
        raise fields["rename"].error("either resource or rename", "both")
    return entry


# -- gpus --------------------------------------------------------------------------------------------------------

_GPUS = "a list of indexes (0) and UUIDs, {product: NAME}, {any: N} or both"


def _selector(place: Place) -> GpuSelector:
    if place.node.kind is YamlKind.MAP:
        fields = place.fields(("product", "any"))
        if not fields:
            raise place.error(_GPUS, "an empty section")
        return GpuSelector(
            product=fields["product"].value(_PRODUCT) if "product" in fields else None,
            any_count=fields["any"].value(integer(1, MAX_GPU_REFS)) if "any" in fields else None,
        )
    if place.node.kind is not YamlKind.LIST:
        raise place.error(_GPUS)
    refs = distinct_refs(place, _REF, "an index (0) or a GPU's UUID (GPU-...)", "each GPU once")
    if not 0 < len(refs) <= MAX_GPU_REFS:
        raise place.error(_GPUS, f"{len(refs)} GPUs")
    return GpuSelector(refs=refs)


def distinct_refs(place: Place, pattern: re.Pattern[str], expected: str, once: str) -> tuple[str, ...]:
    """The items of a list, which are to match ``pattern`` and to differ. Raises ConfigError: ``expected``, ``once``."""
    refs: list[str] = []
    for item in place.items():
        ref = item.node.whole or (item.node.text if item.node.kind is YamlKind.STRING else "")
        if not pattern.fullmatch(ref):
            raise item.error(expected)
        if ref in refs:
            raise item.error(once, f"{ref} twice")
        refs.append(ref)
    return tuple(refs)


def _nonempty(text: str) -> str:
    if not text or "\n" in text:
        raise Unfit
    return text


_PRODUCT = Parser(
    expected="a product's name as NVML gives it", convert=_nonempty, kinds=frozenset({YamlKind.STRING, YamlKind.INT})
)

# -- shares ------------------------------------------------------------------------------------------------------


def _granularity(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100 or 100 % int(text):  # noqa: PLR2004 - percent
        raise Unfit
    return int(text)


GRANULARITY = Parser(
    expected="a divisor of 100: 1, 2, 4, 5, 10, 20, 25, 50 or 100",
    convert=_granularity,
    kinds=frozenset({YamlKind.INT}),
)


def _shares(place: Place) -> int:
    """Read the section of mode dra: the granularity, in percent, of the shares that claims get of a GPU."""
    fields = place.fields(("granularity",))
    return int(fields["granularity"].value(GRANULARITY)) if "granularity" in fields else 1


def _replicas(place: Place, fields: Mapping[str, Place], mode: LayoutMode) -> int | None:
    if mode is LayoutMode.MPS:
        if ("replicas" in fields) == ("clients" in fields):
            raise place.error("either replicas (equal shares) or clients", "both" if "clients" in fields else "neither")
        most = MAX_MPS_CLIENTS
    else:
        most = MAX_REPLICAS
    if "replicas" in fields:
        least = 1 if mode is LayoutMode.MIG else 2
        return int(fields["replicas"].value(integer(least, most)))
    if mode is LayoutMode.TIME_SLICING:
        raise place.error("the key replicas", "none")
    return None


_OWN_NAME = (
    "the key resource (resource: nvidia.com/gpu-large), one name for each size, since clients are of unequal size"
)
_CLIENT_KEYS = ("memory", "threads", "resource")


def _clients(place: Place) -> tuple[MpsClient, ...]:
    """Read the clients of mode mps. Clients of one size may share a resource name; of unequal sizes each says under
    which name it is offered.

    The kubelet picks a device by name and number: behind one name it could be any size.
    """
    items = place.items()
    if not 0 < len(items) <= MAX_MPS_CLIENTS:
        raise place.error(f"1 to {MAX_MPS_CLIENTS} clients", f"{len(items)} clients")
    clients = [_client(item) for item in items]
    size_of: dict[ResourceName, tuple[int | None, int | None]] = {}
    uneven = len({(client.memory_mib, client.threads) for client in clients}) > 1
    for item, client in zip(items, clients, strict=True):
        if uneven and client.resource is None:
            raise item.error(_OWN_NAME, "none")
        size = (client.memory_mib, client.threads)
        if client.resource is not None and size_of.setdefault(client.resource, size) != size:
            raise item.error("clients of one size behind each resource", f"another size of {client.resource}")
    return tuple(clients)


def _client(place: Place) -> MpsClient:
    fields = place.fields(_CLIENT_KEYS)
    if "memory" not in fields and "threads" not in fields:
        raise place.error("memory, threads or both", "neither")
    return MpsClient(
        memory_mib=fields["memory"].value(MEMORY_MIB) if "memory" in fields else None,
        threads=fields["threads"].value(integer(1, 100)) if "threads" in fields else None,
        resource=_resource(fields["resource"]) if "resource" in fields else None,
    )


def _resource(place: Place) -> ResourceName:
    """The name of an extended resource, with any domain but Kubernetes' own; ``nvidia.com/`` is added where no domain
    is given.
    """
    text: str = place.value(TEXT)
    name = text if "/" in text else f"nvidia.com/{text}"
    domain = name.partition("/")[0]
    if not _RESOURCE.fullmatch(name) or len(name) > _MAX_NAME:
        raise place.error(f"an extended resource such as nvidia.com/gpu-large, {_MAX_NAME} characters at most")
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or name == PERCENT_RESOURCE:
        raise place.error("a name that is not taken", name)
    return ResourceName(name)


# -- mig ---------------------------------------------------------------------------------------------------------

_SHARING = {LayoutMode.TIME_SLICING: SharingMode.TIME_SLICING, LayoutMode.MPS: SharingMode.MPS}
_SHARED_BY: Parser = one_of((LayoutMode.TIME_SLICING, LayoutMode.MPS))


def _profiles(place: Place) -> tuple[str, ...]:
    profiles: list[str] = []
    for item in place.items():
        if item.node.kind is not YamlKind.STRING or not _PROFILE.fullmatch(item.node.text):
            raise item.error("a MIG profile such as 3g.40gb")
        profiles.append(item.node.text)
    if not 0 < len(profiles) <= MAX_PROFILES:
        raise place.error(f"1 to {MAX_PROFILES} MIG profiles", f"{len(profiles)} profiles")
    return tuple(profiles)
