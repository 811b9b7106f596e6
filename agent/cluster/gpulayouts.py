"""GpuLayout objects: their shape at the API server, and which of them a node goes by.

    GpuLayout JSON -> read() -> Found; Found, ..., the node's labels -> choose() -> Chosen

The CRD is generated from ``GpuLayoutSpec`` here by ``python -m hack.crds``. What the schema cannot say (``gpus`` is a
list or a section) and what only a node knows is the agent's to check: one bad GpuLayout leaves the last good one.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from agent.config.layoutsection import parse_layout
from inventory.layout.entries import MAX_MPS_CLIENTS
from inventory.layout.entries import GpuLayoutSpec as Layout
from kube.resources import Resource
from yamlfile import ConfigError

GPU_LAYOUTS = Resource("tessera.dev", "v1alpha1", "gpulayouts", "GpuLayout")

Name = Annotated[str, Meta(max_length=63)]
Quantity = Annotated[str, Meta(max_length=24, description="Memory, such as 40Gi.")]


class Client(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One MPS client's share of a GPU."""

    memory: Quantity = ""
    threads: Annotated[int, Meta(ge=1, le=100, description="Active thread percentage.")] | None = None
    resource: Annotated[str, Meta(max_length=63, description="Its name; unequal clients have one each.")] = ""


class Entry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Some GPUs, and what becomes of them."""

    mode: Annotated[str, Meta(max_length=16, description="whole, timeSlicing, mps, mig or fractional.")]
    gpus: Annotated[
        Any,
        Meta(
            description="Indexes and UUIDs, [0, GPU-...], or a section with product, any or both: {any: 2}.",
            extra_json_schema={"x-kubernetes-preserve-unknown-fields": True},
        ),
    ]
    replicas: Annotated[int, Meta(ge=1, le=4096)] | None = None
    clients: Annotated[
        tuple[Client, ...], Meta(max_length=MAX_MPS_CLIENTS, description="mode mps: shares by size.")
    ] = ()
    granularity: Annotated[int, Meta(ge=1, le=100, description="mode fractional: a divisor of 100.")] | None = None
    placement: Annotated[str, Meta(max_length=16, description="mode fractional: packed or spread.")] = ""
    profiles: Annotated[tuple[Name, ...], Meta(max_length=16, description="mode mig: what the GPU is cut into.")] = ()
    sharing: Annotated[str, Meta(max_length=16, description="mode mig with replicas: timeSlicing or mps.")] = ""
    rename: bool | None = None
    resource: Annotated[str, Meta(max_length=63, description="The resource's name in place of the usual one.")] = ""
    when_busy: Annotated[str, Meta(max_length=16, description="refuse, wait or drain.")] = ""


class Spec(Struct, frozen=True, rename="camel"):
    """How the GPUs of the nodes that carry the labels are to be cut and shared."""

    layout: Annotated[tuple[Entry, ...], Meta(max_length=64, description="GPUs that no entry names stay whole.")]
    node_selector: Annotated[
        dict[str, Name], Meta(description="Labels that a node must carry; none: every node with GPUs.")
    ] = {}


class Found(Struct, frozen=True):
    """One GpuLayout as an agent reads it. ``layout`` is None where ``problem`` says what is wrong with it."""

    name: str
    selector: Mapping[str, str]
    layout: Layout | None
    problem: str = ""

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.selector.items())


class Chosen(Struct, frozen=True):
    """What a node goes by: ``layout``, None for none, unless ``problem`` says to keep what was."""

    layout: Layout | None = None
    problem: str = ""


class _Meta(Struct):
    name: str


class _Raw(Struct):
    layout: msgspec.Raw = msgspec.Raw(b"[]")
    selector: dict[str, str] = msgspec.field(name="nodeSelector", default_factory=dict)


class _Object(Struct):
    metadata: _Meta
    spec: _Raw = msgspec.field(default_factory=_Raw)


_decoder = msgspec.json.Decoder(_Object)


def read(raw: bytes) -> Found:
    """One object off the wire. Raises msgspec.MsgspecError where it is no GpuLayout at all."""
    found = _decoder.decode(raw)
    name = found.metadata.name
    try:
        layout = parse_layout(bytes(found.spec.layout).decode(), f"GpuLayout {name}")
    except ConfigError as wrong:
        return Found(name, found.spec.selector, None, str(wrong))
    return Found(name, found.spec.selector, layout)


def choose(found: Iterable[Found], labels: Mapping[str, str]) -> Chosen:
    """The one GpuLayout that selects a node with ``labels``; none is an answer, two are a problem."""
    selecting = sorted((one for one in found if one.selects(labels)), key=lambda one: one.name)
    if len(selecting) > 1:
        names = ", ".join(one.name for one in selecting)
        return Chosen(problem=f"the GpuLayouts {names} all select this node, expected one: the last good layout stays")
    if not selecting:
        return Chosen()
    only = selecting[0]
    return Chosen(only.layout, f"{only.problem}: the last good layout stays" if only.problem else "")
