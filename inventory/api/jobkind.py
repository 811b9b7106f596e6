"""The JobKind, ``tessera.dev/v1alpha1``: where a foreign kind of job has its pod templates, counts and status.

``python -m hack.crds`` prints the CRD from these structs and from the rules of
``controller.jobs.kinds.declared.rules``. The controller reads the same structs: ``controller.jobs.kinds.declared.kind``
makes a kind of job of a specification.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

KIND: Final = "JobKind"
PLURAL: Final = "jobkinds"
MAX_POD_SETS: Final = 18
"""The most pod sets of a Workload, a limit of its CRD."""

_KEY: Final = r"\.[A-Za-z_][A-Za-z0-9_-]*"
_STEP: Final = rf"({_KEY}|\['[^'\\\[\]]{{1,253}}'\]|\[[0-9]{{1,4}}\])"
# Python's $ would let a line break through behind the text; the CRD, in which $ is the very end, has $ in its place.
ONE: Final = rf"^{_KEY}{_STEP}*\Z"
EACH: Final = rf"^{_KEY}{_STEP}*\[\*\]{_STEP}*\Z"
ONE_OR_EACH: Final = rf"^{_KEY}{_STEP}*(\[\*\])?{_STEP}*\Z"
TEMPLATE: Final = rf"^\.spec{_STEP}+(\[\*\])?{_STEP}*\Z"
SUSPEND: Final = rf"^\.spec({_KEY})+\Z"
_GROUP: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+\Z"
_ANY_GROUP: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?\Z"
_WORD: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z"
_KIND: Final = r"^[A-Z][A-Za-z0-9]*\Z"
_LABEL: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z"

SHAPES: Final = {
    ONE: "a JSON path of one field, as .status['a.b'].pods[0]",
    EACH: "a JSON path with one [*], as .spec.groups[*].name",
    ONE_OR_EACH: "a JSON path with at most one [*], as .spec.groups[*].size",
    TEMPLATE: "a JSON path below .spec with at most one [*], as .spec.groups[*].template",
    SUSPEND: "a JSON path of keys below .spec, as .spec.suspend",
    _GROUP: "an API group with a dot",
    _ANY_GROUP: "an API group",
    _WORD: "lower-case letters, digits and dashes",
    _KIND: "the name of a kind",
    _LABEL: "the key of a label",
}
"""The meaning of each pattern in words."""

_LENGTH: Final = 253
_BOUND: Final = "[*] stands for the key or index that it has in the template's path."
Path = Annotated[str, Meta(max_length=_LENGTH, pattern=ONE)]
_Name = Annotated[str, Meta(max_length=_LENGTH, pattern=EACH, description=f"The path of a name; {_BOUND}")]
_Number = Annotated[str, Meta(max_length=_LENGTH, pattern=ONE_OR_EACH, description=f"The path of a number; {_BOUND}")]
_Sum = Annotated[
    str, Meta(max_length=_LENGTH, pattern=ONE_OR_EACH, description="A number; with [*] in its path the sum of all.")
]
_Least = Annotated[int, Meta(ge=1, le=1_000_000, description="What the count reaches, 1 by default.")]
_AllPods = Annotated[bool, Meta(description="The count reaches the number of all pods.")]
_Label = Annotated[str, Meta(max_length=317, pattern=_LABEL)]
_Template = Annotated[
    str,
    Meta(
        max_length=_LENGTH,
        pattern=TEMPLATE,
        description="The path of a pod template. With [*], all items of a list or of a map.",
    ),
]
_SetName = Annotated[
    str,
    Meta(
        max_length=40,
        pattern=_WORD,
        description="The pod set's name. With [*] the key or index comes behind it, after a dash.",
    ),
]
_Default = Annotated[int, Meta(ge=0, le=100_000, description="Pods where the object has no count, 1 by default.")]
_Version = Annotated[str, Meta(max_length=63, pattern=_WORD)]
_Kind = Annotated[str, Meta(max_length=63, pattern=_KIND)]
_Plural = Annotated[str, Meta(max_length=63, pattern=_WORD)]


class StatusTest(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """One question about an object: a condition, a field of certain values, or a count."""

    condition: Annotated[str, Meta(min_length=1, max_length=316)] | None = None
    status: Annotated[str, Meta(max_length=16, description="Of the condition, True by default.")] | None = None
    field: Path | None = None
    values: Annotated[
        tuple[Annotated[str, Meta(max_length=_LENGTH)], ...],
        Meta(max_length=16, description="The field is one of these; the empty text stands for an absent field."),
    ] = ()
    count: _Sum | None = None
    at_least: _Least | None = None
    all_pods: _AllPods | None = None


class PodSetFields(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """One pod set; with [*] in the template's path one for each item of that list or map. It has replicas groups, each
    of count pods, or of atMost where that is fewer (as completions cut parallelism); the labels are those by which pods
    say their number in their group, and their group's number.
    """

    template: _Template
    name: _SetName | None = None
    name_from: _Name | None = None
    optional: Annotated[bool, Meta(description="An object may lack the template, and these pods.")] | None = None
    count: _Number | None = None
    default_count: _Default | None = None
    at_most: _Number | None = None
    replicas: _Number | None = None
    index_label: _Label | None = None
    replica_label: _Label | None = None
    reclaimable: _Number | None = None


class OwnedKind(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A kind between the objects and their pods."""

    group: Annotated[str, Meta(max_length=_LENGTH, pattern=_ANY_GROUP)]
    version: _Version
    kind: _Kind
    plural: _Plural


class SpecFields(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The places where objects of a kind have the fields that a queue must know."""

    group: Annotated[str, Meta(max_length=_LENGTH, pattern=_GROUP)]
    version: _Version
    kind: _Kind
    plural: _Plural
    suspend: Annotated[
        str,
        Meta(max_length=_LENGTH, pattern=SUSPEND, description="The field that holds an object back while it is true."),
    ]
    pod_sets: Annotated[tuple[PodSetFields, ...], Meta(min_length=1, max_length=MAX_POD_SETS)]
    ready: Annotated[StatusTest, Meta(description="All pods are ready or have succeeded.")]
    active: Annotated[StatusTest, Meta(description="Pods may exist.")]
    suspended: Annotated[StatusTest, Meta(description="The kind's controller has seen the suspension.")] | None = None
    observed_generation: (
        Annotated[str, Meta(max_length=_LENGTH, pattern=ONE, description="The generation that the status is of.")]
        | None
    ) = None
    conditions: (
        Annotated[
            str, Meta(max_length=_LENGTH, pattern=ONE, description="The conditions, .status.conditions by default.")
        ]
        | None
    ) = None
    succeeded: StatusTest | None = None
    failed: StatusTest | None = None
    message: (
        Annotated[str, Meta(max_length=_LENGTH, pattern=ONE, description="What the end of the Workload says.")] | None
    ) = None
    priority_class: (
        Annotated[
            str,
            Meta(max_length=_LENGTH, pattern=ONE, description="The object's own field for its pods' PriorityClass."),
        ]
        | None
    ) = None
    owns: Annotated[
        tuple[OwnedKind, ...],
        Meta(max_length=8, description="Kinds between an object and the Jobs or pods that are made for it."),
    ] = ()


class ConditionFields(Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition as all of Kubernetes' kinds have them."""

    type: Annotated[str, Meta(max_length=316)]
    status: Annotated[str, Meta(max_length=16)]
    reason: Annotated[str, Meta(max_length=1024)]
    message: Annotated[str, Meta(max_length=32768)]
    last_transition_time: Annotated[str, Meta(max_length=63, extra_json_schema={"format": "date-time"})]
    observed_generation: int = 0


class StatusFields(Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of the JobKind, as the leading controller sees it."""

    conditions: Annotated[tuple[ConditionFields, ...], Meta(max_length=8)] = ()
