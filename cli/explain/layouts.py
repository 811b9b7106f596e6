"""The layout that would make nodes offer what a pod asks for, with the example to start from. Pure."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from controller.objects.decode import GpuNode
from inventory.api.names import GPU_PERCENT
from inventory.layout.layout import DEFAULT_GPU_RESOURCE, mig_resource_name, shared_name

FOLDER: Final = "examples/layouts"
_MIG: Final = str(mig_resource_name(""))


class Remedy(Struct, frozen=True, kw_only=True):
    """A layout that would help. ``sentence`` names it; ``file`` is the example, from the root of the repository; empty
    where none helps.
    """

    sentence: str
    file: str = ""


def for_resource(resource: str, nodes: Iterable[GpuNode]) -> Remedy:
    """The remedy where no node offers the resource."""
    known = tuple(nodes)
    if not any(node.status.devices for node in known):
        return no_agent()
    if resource == DEFAULT_GPU_RESOURCE:
        return _layout("mode: whole", "whole.yaml")
    if resource == shared_name(DEFAULT_GPU_RESOURCE):
        return _layout("mode: timeSlicing or mps", "shared.yaml")
    if resource == GPU_PERCENT:
        return _layout("mode: fractional", "notebooks.yaml")
    if resource.startswith(_MIG):
        return _mig(resource.removeprefix(_MIG), known)
    return _layout(f"an entry with resource: {resource}", "sizes.yaml")


def no_agent() -> Remedy:
    return Remedy(sentence="No agent has told of a GPU: see docs/install.md")


def _layout(what: str, file: str) -> Remedy:
    return Remedy(sentence=f"A layout with {what} offers it", file=f"{FOLDER}/{file}")


def _mig(profile: str, nodes: tuple[GpuNode, ...]) -> Remedy:
    bare = profile.removesuffix(".shared")
    able, profiles = [], set()
    for node in nodes:
        for device in node.status.devices:
            names = {str(mig_resource_name(each.profile)) for each in device.mig.placements} if device.mig else set()
            profiles |= {name.removeprefix(_MIG) for name in names}
            if f"{_MIG}{bare}" in names:
                able.append(f"GPU {device.index} of {node.metadata.name}")
    if not able and profiles:
        return Remedy(sentence=f"No GPU here has the profile {bare}; there are {', '.join(sorted(profiles))}")
    if not able:
        return Remedy(sentence="No GPU here can do MIG")
    shared = " and replicas" if bare != profile else ""
    return _layout(f"mode: mig, profiles: [{bare}]{shared} (on {able[0]}, for one)", "mig.yaml")


def how(remedy: Remedy) -> str:
    """The commands for a person to type."""
    pool = remedy.file.rpartition("/")[2].removesuffix(".yaml")
    label = f"kubectl label node NODE example.com/pool={pool}"
    return f"{label}; tessera layout apply -f {remedy.file}"
