"""The GpuNode, ``tessera.dev/v1alpha1``: everything about one node's GPUs, for people, the controller and other tools.

Its status is declared here alone: the agent writes these structs, the controller and the command read them, and
``python -m hack.crds`` prints the CRD from them, so that the bounds here are those of the schema. Input is untrusted
until it is decoded: every text, number and list is bounded, and ``repeated`` finds the errors that types cannot
express.

Each side declares the metadata itself: ``agent.cluster.gpunode`` with the owner, ``controller.objects.core`` as it
reads all objects.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from inventory.listsize import MAX_REPLICAS

KIND: Final = "GpuNode"
PLURAL: Final = "gpunodes"

MAX_GPUS: Final = 64
MAX_INSTANCES: Final = 16
MAX_HOLDERS: Final = 4096
MAX_PROBLEMS: Final = 64
MAX_WITHHELD: Final = 256
MAX_FAULT_COUNTS: Final = 256
GRANT_LASTS_S: Final = 600.0
"""The seconds for which a grant of a repair holds; a GPU that was not acted on by then asks anew."""
MAX_TEXT: Final = 512
RESETS_NEVER: Final = "never"
"""``GpuNodeStatus.reset_mode`` of a node whose agent repairs nothing, and hears no orders."""
HANDED_OUT: Final = ("Healthy", "Suspect")
"""States of health in which the agent gives a device to containers; a device without a state is healthy."""

Word = Annotated[str, Meta(max_length=253)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Number = Annotated[int, Meta(ge=0, le=4096)]
Starts = Annotated[tuple[Number, ...], Meta(max_length=32)]
Time = Annotated[datetime, Meta(tz=True)]
Enforced = Annotated[
    str,
    Meta(
        max_length=32,
        description="What keeps the containers on one device apart: hardware; daemon; daemon, by client; or nobody.",
    ),
]


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of the parts of a GpuNode: immutable, camel case on the wire, defaults left out when written. ``gc=False``
    saves 16 bytes of each, and the garbage collector's walk (decision 094).
    """


class Health(Struct, frozen=True, kw_only=True):
    """A device's state in the agent's health machine. Healthy and Suspect devices are handed out."""

    state: Annotated[str, Meta(max_length=32, description="Healthy, Suspect, Unhealthy or Probation.")]
    reasons: Annotated[tuple[Text, ...], Meta(max_length=32, description="The open faults.")] = ()
    since: Annotated[Time | None, Meta(description="When the state last changed.")] = None
    until: Annotated[Text, Meta(description="Of a device that is not handed out: what ends the state.")] = ""
    repair: Annotated[
        str,
        Meta(
            max_length=32,
            description="The state of the GPU's repair. In each but Probation no new container gets it, whatever its "
            "health. Absent: it is not repaired.",
        ),
    ] = ""
    reset_due: Annotated[
        bool,
        Meta(description="A reset is due, at a moment at which nobody needs the GPU: a memory row remap waits for it."),
    ] = False
    unrepaired: Annotated[
        Text, Meta(description="Of a GPU that is not handed out: why nothing repairs it, where resets are on.")
    ] = ""

    @property
    def handed_out(self) -> bool:
        """Whether the health lets containers have the device. Those that have it keep it whatever ``repair`` says."""
        return self.state in HANDED_OUT


class Offer(Struct, frozen=True, kw_only=True):
    """The resource under which a device is advertised, the number of its replicas, and the means that keep their users
    apart.
    """

    resource: Word
    replicas: Annotated[
        int, Meta(ge=1, le=MAX_REPLICAS, description="Devices that it is; of a fractional GPU its percents.")
    ] = 1
    enforcement: Enforced = ""
    granularity: Annotated[int, Meta(ge=1, le=MAX_REPLICAS, description="A request is a multiple of this.")] = 1
    spread: Annotated[bool, Meta(description="Of a fractional GPU: the emptiest is given first, not the fullest.")] = (
        False
    )
    daemon: Annotated[
        str,
        Meta(
            max_length=253,
            description="Of a fractional GPU that shares its MPS daemon: the first GPU of those that a container may "
            "have equal parts of.",
        ),
    ] = ""
    memory_mib: Annotated[Count | None, Meta(description="Memory that one device's container may use.")] = (
        msgspec.field(name="memoryMiB", default=None)
    )
    threads: Annotated[Count | None, Meta(description="Percentage of threads that one device's container may use.")] = (
        None
    )


class Instance(Struct, frozen=True, kw_only=True):
    """A MIG instance that exists."""

    uuid: Word
    profile: Annotated[str, Meta(max_length=63, description="The profile, as nvidia-smi spells it: 3g.40gb.")]
    gi: Annotated[Count, Meta(description="Id of the GPU instance.")]
    ci: Annotated[Count, Meta(description="Id of the compute instance.")]
    memory_mib: Count = msgspec.field(name="memoryMiB")
    start: Annotated[Number | None, Meta(description="First memory slice of the GPU instance.")] = None
    size: Annotated[Number | None, Meta(description="Memory slices of the GPU instance.")] = None
    offers: Annotated[tuple[Offer, ...], Meta(max_length=8)] = ()
    health: Annotated[Health | None, Meta(description="Only where it differs from the GPU's.")] = None


class Placement(Struct, frozen=True, kw_only=True):
    """A GPU instance profile of this GPU, and where it may start."""

    profile: Annotated[str, Meta(max_length=63)]
    profile_id: Annotated[Number, Meta(description="NVML's id, as nvidia-smi mig -lgip shows it.")]
    slices: Annotated[Number, Meta(description="Compute slices.")]
    size: Annotated[Number, Meta(description="Memory slices.")]
    starts: Annotated[Starts, Meta(description="Memory slices it may start at.")] = ()
    free: Annotated[
        Starts | None, Meta(description="Those that are free now; absent where the driver does not tell placements.")
    ] = None


class Mig(Struct, frozen=True, kw_only=True):
    """MIG on one GPU that is capable of it."""

    enabled: bool
    placements: Annotated[tuple[Placement, ...], Meta(max_length=32)] = ()
    instances: Annotated[tuple[Instance, ...], Meta(max_length=MAX_INSTANCES)] = ()


class Device(Struct, frozen=True, kw_only=True):
    """One physical GPU."""

    uuid: Word
    index: Annotated[Number, Meta(description="NVML's index.")]
    product: Word
    memory_mib: Count = msgspec.field(name="memoryMiB")
    pci_bus_id: Word
    minor: Annotated[Count | None, Meta(description="The N of /dev/nvidiaN; absent where it could not be asked.")] = (
        None
    )
    numa_node: Number | None = None
    serial: Word | None = None
    compute_capability: Annotated[str, Meta(max_length=16)] = ""
    clique: Annotated[str, Meta(max_length=253, description="NVLink fabric: cluster UUID, a dot, clique id.")] = ""
    mode: Annotated[str, Meta(max_length=32, description="whole, timeSlicing, mps, mig, fractional or dra.")] = ""
    offers: Annotated[tuple[Offer, ...], Meta(max_length=8)] = ()
    mig: Annotated[Mig | None, Meta(description="Absent where the GPU cannot do MIG.")] = None
    health: Health | None = None

    @property
    def uuids(self) -> tuple[str, ...]:
        """The GPU's own UUID, then those of its MIG instances: pods may hold any of them."""
        return (self.uuid, *(each.uuid for each in self.mig.instances)) if self.mig is not None else (self.uuid,)

    @property
    def health_state(self) -> str:
        """The health state; Healthy where the agent tells none."""
        return self.health.state if self.health is not None else "Healthy"

    @property
    def repair_state(self) -> str:
        """The state of the GPU's repair; empty where it is not repaired."""
        return self.health.repair if self.health is not None else ""

    @property
    def healthy(self) -> bool:
        """Whether containers get the device. A device of which the agent tells no health is healthy."""
        return self.health is None or self.health.handed_out


class LinkEntry(Struct, frozen=True, kw_only=True):
    """The connection of two GPUs. Pairs whose connection is unknown are left out."""

    a: Annotated[Number, Meta(description="Index of one GPU, the smaller.")]
    b: Annotated[Number, Meta(description="Index of the other GPU.")]
    pcie: Annotated[str, Meta(max_length=8, description="Nearest common ancestor: PSB, PIX, PXB, PHB, NODE, SYS.")] = ""
    nvlinks: Annotated[Number, Meta(description="Active direct NVLinks.")] = 0
    nvswitch: Annotated[Number, Meta(description="NVLinks that both have into NVSwitches.")] = 0


class ResourceEntry(Struct, frozen=True, kw_only=True):
    """An extended resource that the node advertises."""

    name: Word
    devices: Annotated[Count, Meta(description="Devices advertised, replicas counted.")]
    sharing: Annotated[str, Meta(max_length=32, description="none, time-slicing, mps or fractional.")] = "none"
    enforcement: Enforced = ""
    fail_requests_greater_than_one: bool = False


class HolderEntry(Struct, frozen=True, kw_only=True):
    """A container that holds a device, as the kubelet says."""

    device: Annotated[str, Meta(max_length=253, description="A UUID, or a replica of one: UUID::n.")]
    namespace: Word
    pod: Word
    container: Word

    @property
    def physical(self) -> str:
        """The UUID of the GPU or MIG instance."""
        return self.device.partition("::")[0]

    @property
    def pod_key(self) -> str:
        return f"{self.namespace}/{self.pod}"


class WithheldEntry(Struct, frozen=True, kw_only=True):
    """A GPU or MIG instance that is given to no new container although it is healthy."""

    device: Annotated[Word, Meta(description="UUID of the GPU or of the MIG instance.")]
    why: Annotated[Text, Meta(description="The reason, and what ends it.")]


class RepairEntry(Struct, frozen=True, kw_only=True):
    """The repair of one GPU, as its agent sees it. The agent asks the controller by ``asks``, and by a ``generation``
    that it has not used for this GPU before: a grant holds for that generation alone.
    """

    gpu: Word
    state: Annotated[
        str,
        Meta(max_length=32, description="Draining, Resetting, Verifying, Probation, RebootWanted or Retired."),
    ]
    generation: Annotated[Count, Meta(description="Number of what is asked for; it grows with each new ask.")] = 0
    asks: Annotated[
        str,
        Meta(
            max_length=16,
            description="drain: the pods that hold the GPU should leave. reset: nobody holds it, and it may be reset. "
            "reboot: the node should be rebooted. Absent: nothing is asked for.",
        ),
    ] = ""
    since: Annotated[Time | None, Meta(description="When the state began.")] = None
    fault_since: Annotated[Time | None, Meta(description="When the fault began.")] = None
    reason: Annotated[Word, Meta(description="The fault in one word.")] = ""
    cause: Annotated[Text, Meta(description="The fault in a sentence.")] = ""
    attempt: Annotated[Number, Meta(description="Resets that were begun for this fault.")] = 0
    note: Annotated[Text, Meta(description="The last result, or what is waited for.")] = ""
    next: Annotated[Text, Meta(description="The next step.")] = ""
    takes_along: Annotated[
        tuple[Word, ...],
        Meta(
            max_length=MAX_GPUS,
            description="Other GPUs that are reset together with it: a drain is of these, too.",
        ),
    ] = ()


class ApplicationFaults(Struct, frozen=True, kw_only=True):
    """How often one XID of applications came on one board of the node, also on one that has gone since."""

    gpu: Word
    serial: Word = ""
    xid: Count
    count: Count
    first: Time
    last: Time
    culprit: Annotated[
        str,
        Meta(
            max_length=16,
            description="program: the same one had it on several GPUs. gpu: several programs had it here, and nowhere "
            "else. Absent: not known.",
        ),
    ] = ""
    programs: Annotated[
        tuple[Word, ...], Meta(max_length=8, description="Jobs or pods that had it, the latest last.")
    ] = ()


class GrantEntry(Struct, frozen=True, kw_only=True):
    """The controller's permission for one step of one repair. It holds for GRANT_LASTS_S seconds from ``granted``, and
    for the repair of this generation alone.
    """

    gpu: Word
    generation: Count
    action: Annotated[str, Meta(max_length=16, description="drain or reset.")]
    granted: Time


class Step(NamedTuple):
    """One step of one repair: what an agent asks for, and what a grant is of."""

    gpu: str
    generation: int
    action: str


def is_granted(asked: Step, granted: Step, granted_s: float, now_s: float) -> bool:
    """Whether a grant that was given at ``granted_s`` lets the step that is asked for happen at ``now_s``, both in
    seconds since 1970.
    """
    return asked == granted and now_s < granted_s + GRANT_LASTS_S


class OrderAnswer(Struct, frozen=True, kw_only=True):
    """The agent's answer to an order of a person: an annotation of the GpuNode that it has taken off."""

    gpu: Word
    order: Annotated[str, Meta(max_length=16, description="start, stop, retire or return.")]
    answer: Text
    at: Time
    refused: Annotated[bool, Meta(description="Nothing was done, for the reason that the answer gives.")] = False


class Driver(Struct, frozen=True, kw_only=True):
    """Versions of the driver and of the newest CUDA it supports."""

    version: Word = ""
    cuda: Annotated[str, Meta(max_length=32)] = ""


class Summary(Struct, frozen=True, kw_only=True):
    """The node in a line, for kubectl get."""

    gpus: Count
    healthy: Annotated[Count, Meta(description="GPUs that are handed out: well, and not in repair.")]
    product: Annotated[str, Meta(max_length=MAX_TEXT)]


class GpuNodeStatus(Struct, frozen=True, kw_only=True):
    """The agent's findings on one node; only ``remediation_grants`` are the controller's."""

    summary: Summary
    observed_at: Annotated[Time | None, Meta(description="When any of this last changed.")] = None
    agent_version: Annotated[Word, Meta(description="Version of the agent that wrote this.")] = ""
    driver: Driver = Driver()
    devices: Annotated[tuple[Device, ...], Meta(max_length=MAX_GPUS)] = ()
    links: Annotated[tuple[LinkEntry, ...], Meta(max_length=MAX_GPUS * (MAX_GPUS - 1) // 2)] = ()
    resources: Annotated[tuple[ResourceEntry, ...], Meta(max_length=64)] = ()
    holders: Annotated[tuple[HolderEntry, ...], Meta(max_length=MAX_HOLDERS)] = ()
    withheld: Annotated[
        tuple[WithheldEntry, ...],
        Meta(max_length=MAX_WITHHELD, description="Devices that no new container is given, their health aside."),
    ] = ()
    problems: Annotated[
        tuple[Text, ...],
        Meta(max_length=MAX_PROBLEMS, description="What was asked for and could not be, one line each."),
    ] = ()
    reset_mode: Annotated[
        str,
        Meta(
            max_length=16,
            description="remediation.reset as it holds on the node: never, when-free or drain. With never the node's "
            "agent hears no orders. Absent: an agent wrote this that does not tell.",
        ),
    ] = ""
    repairs: Annotated[
        tuple[RepairEntry, ...], Meta(max_length=MAX_GPUS, description="GPUs that are repaired, or wait for it.")
    ] = ()
    order_answers: Annotated[
        tuple[OrderAnswer, ...], Meta(max_length=MAX_GPUS, description="The last order of each GPU, and its answer.")
    ] = ()
    application_faults: Annotated[
        tuple[ApplicationFaults, ...],
        Meta(max_length=MAX_FAULT_COUNTS, description="XIDs of applications, by GPU; they take no GPU out."),
    ] = ()
    remediation_grants: Annotated[
        tuple[GrantEntry, ...],
        Meta(max_length=MAX_GPUS, description="Repairs that may go on; written by the controller alone."),
    ] = ()


UNSEEN: Final = GpuNodeStatus(summary=Summary(gpus=0, healthy=0, product=""))
"""The status of a GpuNode that no agent wrote yet: no GPUs."""


def repeated(status: GpuNodeStatus) -> str | None:
    """The error in identifiers that must be unique (UUIDs of GPUs and instances, indexes), as one line; None where they
    are.
    """
    for what, found in (("uuid", _uuids(status)), ("index", (device.index for device in status.devices))):
        seen: set[object] = set()
        for value in found:
            if value in seen:
                return f"status.devices: expected each {what} once, found {str(value)[:80]!r} twice"
            seen.add(value)
    return None


def _uuids(status: GpuNodeStatus) -> Iterator[str]:
    for device in status.devices:
        yield from device.uuids
