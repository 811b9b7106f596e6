"""Container images: the parts of a reference, and the system that a program in an image belongs to. Pure."""

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from controller.insight.simulation.documents import Document

Json = dict[str, Any]

_OF_NVIDIAS_PLUGIN: Final = {
    "nvidia-device-plugin": "plugin",
    "gpu-feature-discovery": "discovery",
    "mps-control-daemon": "mps",
}
"""Programs of the image of NVIDIA's device plugin, told apart by the command, and the system of each."""
_SYSTEMS: Final = {
    "k8s-device-plugin": "plugin",
    "gpu-feature-discovery": "discovery",
    "mps-control-daemon": "mps",
    "dcgm-exporter": "exporter",
    "k8s-mig-manager": "mig",
    "dra-driver-nvidia-gpu": "claims",
    "k8s-dra-driver": "claims",
    "k8s-dra-driver-gpu": "claims",
    "nvidia-dra-driver-gpu": "claims",
    "kueue": "kueue",
    "kueue-rhel9": "kueue",
    "vc-agent": "volcano",
    "vc-controller-manager": "volcano",
    "vc-scheduler": "volcano",
    "vc-webhook-manager": "volcano",
    "kai-scheduler": "kai",
}
"""Last segments of images' names, and the system of each."""
_KAI_FOLDER: Final = "kai-scheduler"
"""KAI's images are called after their program alone, below this folder."""
_OTHERS_FOLDERS: Final = ("amd", "rocm")
"""Folders of vendors whose device plugin's image is called as NVIDIA's is."""
_ARCHITECTURE: Final = re.compile(r"-(amd64|arm64)$")
_CONFIG_MANAGER: Final = "config-manager"
_STOPPED: Final = {
    "DaemonSet": frozenset({"claims", "discovery", "exporter", "mig", "mps", "plugin", "volcano"}),
    "Deployment": frozenset({"kai", "kueue", "volcano"}),
}
"""Systems whose objects of a kind go with a migration. The Deployments of NVIDIA's DRA driver stay."""


class Image(Struct, frozen=True):
    """A reference of an image; ``tag`` and ``digest`` may be empty."""

    repository: str
    tag: str
    digest: str


def image_of(reference: str) -> Image:
    """The parts of a reference: a registry's port is no tag."""
    name, _, digest = reference.partition("@")
    head, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return Image(f"{head}{slash}{last}", tag, digest)


def system_of(document: Document) -> str | None:
    """The system that a DaemonSet or a Deployment belongs to, by the commands and images of its containers. A manager
    of configuration files stands beside a program and tells nothing of it.
    """
    containers = [each for each in _listed(document, "containers") if not is_config_manager(each)]
    for each in containers:
        for word in _words(each):
            for program, system in _OF_NVIDIAS_PLUGIN.items():
                if re.search(rf"(^|[/\s]){program}($|[\s;&])", word):
                    return system
    named = (_by_name(str(each.get("image") or "")) for each in containers)
    return next((each for each in named if each), None)


def is_replaced(document: Document) -> bool:
    """Whether a migration has to stop the DaemonSet or the Deployment: a plan has a step for it, and the check tells
    it while it has pods. NVIDIA's DRA driver for ComputeDomains alone stays.
    """
    system = system_of(document)
    if system == "claims" and {str(each.get("name")) for each in _listed(document, "containers")} == {_DOMAINS}:
        return False
    return system in _STOPPED.get(document.kind, ())


_DOMAINS: Final = "compute-domains"
"""The container of NVIDIA's driver for ComputeDomains in the DaemonSet that it shares with the one for GPUs."""


def config_managers(document: Document) -> list[Json]:
    """The containers that choose a configuration file by the node's label, the first ones among them."""
    found = [*_listed(document, "initContainers"), *_listed(document, "containers")]
    return [each for each in found if is_config_manager(each)]


def is_config_manager(container: Json) -> bool:
    """Whether a container of NVIDIA's plugin chooses its configuration file."""
    return any(word.rpartition("/")[2] == _CONFIG_MANAGER for word in _words(container)[:1])


def _by_name(reference: str) -> str | None:
    *folders, last = image_of(reference).repository.split("/")
    last = _ARCHITECTURE.sub("", last)
    folder = folders[-1] if folders else ""
    if folder == _KAI_FOLDER:
        return "kai"
    return None if folder in _OTHERS_FOLDERS else _SYSTEMS.get(last)


def _words(container: Json) -> list[str]:
    command = container.get("command")
    return [str(word) for word in command] if isinstance(command, list) else []


def _listed(document: Document, key: str) -> Iterator[Json]:
    spec: Any = document.data
    for each in ("spec", "template", "spec"):
        spec = spec.get(each) if isinstance(spec, dict) else None
    found = spec.get(key) if isinstance(spec, dict) else None
    yield from (each for each in found or () if isinstance(each, dict)) if isinstance(found, list) else ()
