"""The node's pods by container id, and the uid and labels that the API server has of each."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct


class PodIdentity(Struct, frozen=True):
    """The uid and labels of a pod, as the API server has them. ``owner``: the kind and name of its controller, which
    the pods of one job share; empty for a pod of its own.
    """

    uid: str = ""
    labels: Mapping[str, str] = {}
    owner: str = ""


class PodContainer(Struct, frozen=True, order=True):
    """A container of a pod, as metrics name it."""

    namespace: str
    pod: str
    container: str


class ClaimUse(Struct, frozen=True, order=True):
    """The ResourceClaim by which a container has a device; all empty for a device that it has otherwise.

    ``profile`` and ``mig`` (a UUID) are set for a MIG instance; ``percent`` is the share of the GPU, where it is one.
    """

    namespace: str = ""
    name: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    profile: str = ""
    mig: str = ""
    percent: int = 0


class PodLookup(Protocol):
    """The node's pods as the API server shows them; while it is away the last known ones stay."""

    def container(self, container_id: str) -> PodContainer | None:
        """The pod and container of a container id (64 hexadecimal digits, no ``containerd://``)."""

    def identity(self, namespace: str, pod: str) -> PodIdentity | None:
        """The uid and labels of a pod that asked for devices."""


class ContainerTable:
    """A ``PodLookup`` that is told of pods one by one, by uid. It holds the containers of the pods that exist."""

    def __init__(self) -> None:
        self._ids: dict[str, tuple[str, ...]] = {}
        self._containers: dict[str, PodContainer] = {}
        self._identities: dict[tuple[str, str], PodIdentity] = {}
        self._names: dict[str, tuple[str, str]] = {}
        """Namespace and name by uid, for pods with an identity."""

    def container(self, container_id: str) -> PodContainer | None:
        return self._containers.get(container_id)

    def identity(self, namespace: str, pod: str) -> PodIdentity | None:
        return self._identities.get((namespace, pod))

    def program(self, namespace: str, pod: str) -> str:
        """A name of what runs in the pod: its controller's, which the pods of one job share, else its own."""
        known = self.identity(namespace, pod)
        return f"{namespace}/{known.owner if known is not None and known.owner else pod}"

    def describe(self, uid: str, namespace: str, pod: str, identity: PodIdentity) -> None:
        """Record that the pod has this name and identity, until it is dropped."""
        self._names[uid] = (namespace, pod)
        self._identities[namespace, pod] = identity

    def put(self, uid: str, containers: Iterable[tuple[str, PodContainer]]) -> None:
        """Record that the pod has these containers, by id, and no others."""
        self.drop(uid)
        found = dict(containers)
        if found:
            self._ids[uid] = tuple(found)
            self._containers.update(found)

    def drop(self, uid: str) -> None:
        for container_id in self._ids.pop(uid, ()):
            self._containers.pop(container_id, None)
        name = self._names.pop(uid, None)
        # Another pod may have the name by now: news of the two may come in either order.
        if name is not None and self._identities[name].uid == uid:
            del self._identities[name]

    def __len__(self) -> int:
        return len(self._containers)
