"""GpuLayout objects: how they are read, and which of them a node goes by.

    GpuLayout JSON -> read() -> Found; Found, ..., the node's labels -> choose() -> Chosen

Its fields are declared in ``inventory.api.gpulayout``. What their schema cannot say (``gpus`` is a list or a section)
and what only a node knows is the agent's to check: one bad GpuLayout leaves the last good one.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from agent.config.layoutsection import parse_layout, parse_remediation
from agent.words import node as words
from inventory.api.gpulayout import KIND, PLURAL
from inventory.api.names import GROUP, VERSION
from inventory.layout.entries import GpuLayoutSpec as Layout
from kube import depth
from kube.resources import Resource
from yamlfile import ConfigError

GPU_LAYOUTS = Resource(GROUP, VERSION, PLURAL, KIND)


class Found(Struct, frozen=True):
    """One GpuLayout as an agent reads it. ``layout`` is None where ``problem`` says what is wrong with it."""

    name: str
    selector: Mapping[str, str]
    layout: Layout | None
    problem: str = ""

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.selector.items())


class Chosen(Struct, frozen=True):
    """The layout that holds on a node: ``layout``, None for none. With a ``problem`` the last one stays."""

    layout: Layout | None = None
    problem: str = ""


class _Meta(Struct):
    name: str


class _Raw(Struct):
    layout: msgspec.Raw = msgspec.Raw(b"[]")
    remediation: msgspec.Raw = msgspec.Raw(b"null")
    selector: dict[str, str] = msgspec.field(name="nodeSelector", default_factory=dict)


class _Object(Struct):
    metadata: _Meta
    spec: _Raw = msgspec.field(default_factory=_Raw)


def read(raw: bytes) -> Found:
    """One object off the wire. Raises msgspec.MsgspecError where it is no GpuLayout at all."""
    decoded = depth.decode(raw, _Object)
    name = decoded.metadata.name
    try:
        layout = parse_layout(bytes(decoded.spec.layout).decode(errors="replace"), f"GpuLayout {name}")
        remediation = parse_remediation(bytes(decoded.spec.remediation).decode(errors="replace"), f"GpuLayout {name}")
    except ConfigError as wrong:
        return Found(name, decoded.spec.selector, None, str(wrong))
    return Found(name, decoded.spec.selector, msgspec.structs.replace(layout, remediation=remediation))


def choose(found: Iterable[Found], labels: Mapping[str, str]) -> Chosen:
    """The one GpuLayout that selects a node with ``labels``; none is an answer, two are a problem."""
    selecting = sorted((each for each in found if each.selects(labels)), key=lambda each: each.name)
    if len(selecting) > 1:
        names = ", ".join(each.name for each in selecting)
        return Chosen(problem=words.several_layouts(names))
    if not selecting:
        return Chosen()
    only = selecting[0]
    return Chosen(only.layout, words.bad_layout(only.problem) if only.problem else "")
