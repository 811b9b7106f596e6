"""ResourceClaims as the driver reads them: which of its devices were allocated, and how they are to be set up.

    ResourceClaim JSON -> read(raw) -> Claim; taken(claim, driver) -> Taken, or ClaimError

A claim comes from the API server, which checked its shape; nothing of it is believed beyond that.
Source: resource.k8s.io/v1 ``ResourceClaim``.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from agent.words import claims as words
from kube import depth
from kube.resources import Resource

RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)


class ClaimError(ValueError):
    """The claim cannot be prepared: one line for the pod's events."""

    def __init__(self, text: str) -> None:
        """``text`` may hold names and words of the claim's author: it is made one line whatever they hold."""
        super().__init__(" ".join(text.split()))


class Result(Struct, frozen=True, rename="camel"):
    """One allocated device. ``request`` is ``main`` or, for one of several alternatives, ``main/sub``."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    share_id: str = field(default="", name="shareID")
    consumed_capacity: Mapping[str, str] = {}
    tolerations: tuple[msgspec.Raw, ...] = ()

    @property
    def main_request(self) -> str:
        """The request without its subrequest: the kubelet knows no subrequests."""
        return self.request.partition("/")[0]


class Opaque(Struct, frozen=True):
    driver: str
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class Config(Struct, frozen=True):
    """One opaque config of an allocation. ``source`` is FromClass or FromClaim; without ``requests`` it is for all of
    them.
    """

    source: str = "FromClaim"
    requests: tuple[str, ...] = ()
    opaque: Opaque | None = None

    def concerns(self, request: str) -> bool:
        """Whether the config is for the result of ``request``: the main name stands for each of its alternatives."""
        return not self.requests or request in self.requests or request.partition("/")[0] in self.requests


class Devices(Struct, frozen=True):
    results: tuple[Result, ...] = ()
    config: tuple[Config, ...] = ()


class Allocation(Struct, frozen=True):
    devices: Devices = Devices()


class Consumer(Struct, frozen=True):
    """An object that may use the claim; pods have no group."""

    name: str
    resource: str = "pods"
    api_group: str = field(default="", name="apiGroup")


class Condition(Struct, frozen=True, rename="camel"):
    """A condition in Kubernetes' form; the time is RFC 3339."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class DeviceStatus(Struct, frozen=True, rename="camel"):
    """The status that a driver writes of an allocated device (``AllocatedDeviceStatus``). ``data`` is a JSON object."""

    driver: str
    pool: str
    device: str
    share_id: str = field(default="", name="shareID")
    conditions: tuple[Condition, ...] | None = ()
    data: Any = None

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the entry in ``status.devices``, which the API keeps as a list with map keys."""
        return self.driver, self.pool, self.device, self.share_id


class Status(Struct, frozen=True, rename="camel"):
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()
    devices: tuple[DeviceStatus, ...] | None = ()

    def said_by(self, driver: str) -> tuple[DeviceStatus, ...]:
        """The statuses that the driver wrote of its devices."""
        return tuple(each for each in self.devices or () if each.driver == driver)


class Meta(Struct, frozen=True):
    name: str
    namespace: str
    uid: str


class Claim(Struct, frozen=True):
    """The fields of a ResourceClaim that the driver reads."""

    metadata: Meta
    status: Status = Status()

    @property
    def pods(self) -> tuple[str, ...]:
        """The names of the pods that the claim is reserved for, all in its namespace."""
        return tuple(
            consumer.name
            for consumer in self.status.reserved_for
            if (consumer.api_group, consumer.resource) == ("", "pods")
        )


class Ref(Struct, frozen=True):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"ResourceClaim {self.namespace}/{self.name}"


class Taken(Struct, frozen=True):
    """The driver's part of a claim: its results, and for each the configs that concern it, the strongest last."""

    ref: Ref
    pods: tuple[str, ...]
    results: tuple[Result, ...]
    configs: tuple[tuple[Config, ...], ...]
    mps: "tuple[MpsClient | None, ...]" = ()
    """The MPS client of each result, None where its config does not ask for MPS."""
    said: tuple[DeviceStatus, ...] = ()
    """The statuses of the driver's devices that the claim has already."""


class MpsClient(Struct, frozen=True):
    """The limits of each container of a claim on a device under MPS; None for no limit.

    Devices of one ``group`` have one daemon.
    """

    group: int
    threads: int | None = None
    memory_mib: int | None = None


def read(raw: bytes) -> Claim:
    """Decode a ResourceClaim. Opaque parameters, any driver's, may be nested as deep as their author likes. Raises
    msgspec.MsgspecError.
    """
    return depth.decode(raw, Claim)


def taken(ref: Ref, claim: Claim, driver: str) -> Taken:
    """The driver's part of ``claim``, which the API server has under the name in ``ref``.

    Configs of the class come before those of the claim; within each the later wins. Raises ClaimError.
    """
    uid = claim.metadata.uid
    if uid != ref.uid:
        raise ClaimError(words.replaced(ref, uid, ref.uid))
    allocation = claim.status.allocation
    if allocation is None:
        raise ClaimError(words.not_allocated(ref))
    results = tuple(result for result in allocation.devices.results if result.driver == driver)
    if not results:
        raise ClaimError(words.nothing_of_driver(ref, driver))
    ours = [config for config in allocation.devices.config if config.opaque and config.opaque.driver == driver]
    ours.sort(key=lambda config: config.source != "FromClass")
    configs = tuple(tuple(config for config in ours if config.concerns(result.request)) for result in results)
    return Taken(ref, claim.pods, results, configs, said=claim.status.said_by(driver))


def parameters(config: Config) -> Mapping[str, Any]:
    """A config's JSON object. Raises ClaimError."""
    assert config.opaque is not None, "a config of no driver"
    try:
        return msgspec.json.decode(config.opaque.parameters, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        raise ClaimError(words.bad_parameters(config.opaque.driver, str(wrong))) from None
