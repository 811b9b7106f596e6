"""The GpuLayout, ``tessera.dev/v1alpha1``: how the GPUs of some nodes are to be cut and shared, as people write it.

``python -m hack.crds`` prints the CRD from these structs. The agent reads the same fields with the reader of its config
file, which checks more than a schema can, and makes ``inventory.layout.entries`` of them.
"""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from inventory.listsize import MAX_REPLICAS

KIND: Final = "GpuLayout"
PLURAL: Final = "gpulayouts"
MAX_ENTRIES: Final = 64
MAX_PROFILES: Final = 16
MAX_MPS_CLIENTS: Final = 60
"""The most clients that any GPU and driver take; ``agent.mps.specs`` knows the limit of one GPU."""

Name = Annotated[str, Meta(max_length=63)]
Quantity = Annotated[str, Meta(max_length=24, description="Memory, such as 40Gi.")]


class ClientFields(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One MPS client's share of a GPU."""

    memory: Quantity = ""
    threads: Annotated[int, Meta(ge=1, le=100, description="Active thread percentage.")] | None = None
    resource: Annotated[str, Meta(max_length=63, description="Its name; unequal clients have one each.")] = ""


class SharesFields(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Shares of a GPU by claim."""

    granularity: Annotated[int, Meta(ge=1, le=100, description="Percent, a divisor of 100.")] | None = None


class EntryFields(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Some GPUs, and what becomes of them."""

    mode: Annotated[str, Meta(max_length=16, description="whole, timeSlicing, mps, mig, fractional or dra.")]
    gpus: Annotated[
        Any,
        Meta(
            description="Indexes and UUIDs, [0, GPU-...], or a section with product, any or both: {any: 2}.",
            extra_json_schema={"x-kubernetes-preserve-unknown-fields": True},
        ),
    ]
    replicas: Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | None = None
    clients: Annotated[
        tuple[ClientFields, ...], Meta(max_length=MAX_MPS_CLIENTS, description="mode mps: shares by size.")
    ] = ()
    granularity: Annotated[int, Meta(ge=1, le=100, description="mode fractional: a divisor of 100.")] | None = None
    placement: Annotated[str, Meta(max_length=16, description="mode fractional: packed or spread.")] = ""
    one_daemon: Annotated[
        bool, Meta(description="mode fractional: one MPS daemon, so that a container may have parts of several GPUs.")
    ] = False
    profiles: Annotated[
        tuple[Name, ...], Meta(max_length=MAX_PROFILES, description="mode mig: what the GPU is cut into.")
    ] = ()
    sharing: Annotated[str, Meta(max_length=16, description="mode mig with replicas: timeSlicing or mps.")] = ""
    rename: bool | None = None
    resource: Annotated[str, Meta(max_length=63, description="The resource's name in place of the usual one.")] = ""
    shares: Annotated[SharesFields, Meta(description="mode dra: shares alone, by MPS.")] | None = None
    when_busy: Annotated[str, Meta(max_length=16, description="refuse, wait or drain.")] = ""


class RetireFields(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The number of equal faults within a time that retires a GPU."""

    faults: Annotated[int, Meta(ge=1, le=100)] | None = None
    within: Annotated[str, Meta(max_length=16, description="A duration, such as 24h.")] = ""


class RemediationFields(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Repairs of the nodes' GPUs. What is not given stays as the agent's own configuration says."""

    reset: Annotated[
        str, Meta(description="Whether GPUs are reset.", extra_json_schema={"enum": ["never", "when-free", "drain"]})
    ] = ""
    reboot: Annotated[
        str, Meta(description="Whether a reboot is asked for.", extra_json_schema={"enum": ["never", "ask"]})
    ] = ""
    attempts: Annotated[int, Meta(ge=1, le=10, description="Resets for one fault.")] | None = None
    retire_after: RetireFields | None = None


class SpecFields(Struct, frozen=True, rename="camel"):
    """The layout of the GPUs of the nodes that carry the labels: how they are cut and shared."""

    layout: Annotated[
        tuple[EntryFields, ...], Meta(max_length=MAX_ENTRIES, description="GPUs that no entry names stay whole.")
    ]
    node_selector: Annotated[
        dict[str, Name], Meta(description="Labels that a node must carry; none: every node with GPUs.")
    ] = {}
    remediation: RemediationFields | None = None
