"""Kubernetes' own groups of pods, ``scheduling.k8s.io``: Workload, PodGroup and CompositePodGroup.

Sources: ``k8s.io/api/scheduling`` v1beta1 and v1alpha3 of Kubernetes 1.37, v1alpha2 of 1.36, whose PodGroup names its
template by another field and its disruption mode by one word. Any user may write these objects, so they are
hostile until ``problems`` or ``workload_problems`` has found nothing. Fields of a feature gate that is off are absent.
"""

from collections.abc import Iterator
from typing import Any, Final

from controller.objects.meta import Condition, Int32, KubernetesObject, Struct

NATIVE: Final = "scheduling.k8s.io"
NATIVE_VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
"""The versions that are read, the newest first."""
COMPOSITE_VERSION: Final = "v1alpha3"
"""The one version of CompositePodGroup."""
DEEPEST_NATIVE: Final = 4
"""The most levels of groups in one tree, PodGroups among them."""

_MOST_TEMPLATES: Final = 8
_MOST_CLAIMS: Final = 4
_HIGHEST: Final = 1_000_000_000
_OLD_MODES: Final = {"": "", "Pod": "single", "PodGroup": "all"}
_PREEMPTION: Final = ("", "Never", "PreemptLowerPriority")


class GangPolicy(Struct, frozen=True, kw_only=True):
    """The policy of a gang: ``min_count`` pods of a PodGroup, or ``min_group_count`` groups of a CompositePodGroup. A
    Job may leave its number out.
    """

    min_count: Int32 | None = None
    min_group_count: Int32 | None = None


class SchedulingPolicy(Struct, frozen=True, kw_only=True):
    """A policy: one of the two is there."""

    basic: dict[str, Any] | None = None
    gang: GangPolicy | None = None


class TopologyKey(Struct, frozen=True, kw_only=True):
    """A label of nodes: all pods are on nodes with one value of it."""

    key: str = ""


class SchedulingConstraints(Struct, frozen=True, kw_only=True):
    topology: tuple[TopologyKey, ...] = ()


class GroupClaim(Struct, frozen=True, kw_only=True):
    """A claim that all pods share which name it in the same words: an existing one, or one of the group's own."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class DisruptionMode(Struct, frozen=True, kw_only=True):
    """A disruption mode: one of the two is there."""

    single: dict[str, Any] | None = None
    all: dict[str, Any] | None = None


class WorkloadReference(Struct, frozen=True, kw_only=True):
    """A reference to a template of a Workload, by both spellings of the template's name."""

    workload_name: str = ""
    template_name: str = ""
    pod_group_template_name: str = ""


class TemplateReference(Struct, frozen=True, kw_only=True):
    """The reference as v1alpha2 has it."""

    workload: WorkloadReference | None = None


class GroupSpec(Struct, frozen=True, kw_only=True):
    """What a PodGroup, a CompositePodGroup, a template of either and ``spec.scheduling`` of a Job have in common; each
    has some of the fields.
    """

    parent_composite_pod_group_name: str = ""
    workload_ref: WorkloadReference | None = None
    pod_group_template_ref: TemplateReference | None = None
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()
    resource_claims: tuple[GroupClaim, ...] = ()
    disruption_mode: DisruptionMode | str | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str = ""

    @property
    def level(self) -> str:
        """The label of nodes of which one domain has all pods; empty for none."""
        return next((each.key for each in self.scheduling_constraints.topology), "")

    @property
    def is_gang(self) -> bool:
        return self.scheduling_policy.gang is not None

    @property
    def mode(self) -> str:
        """``single``, ``all``, or empty where the group does not say."""
        said = self.disruption_mode
        if isinstance(said, str):
            return _OLD_MODES.get(said, "")
        return "" if said is None else "all" if said.all is not None else "single"

    @property
    def template(self) -> tuple[str, str]:
        """The names of the Workload and of its template that the group was made from; empty for none."""
        old = None if self.pod_group_template_ref is None else self.pod_group_template_ref.workload
        found = self.workload_ref or old
        if found is None:
            return "", ""
        return found.workload_name, found.template_name or found.pod_group_template_name


class ClaimStatus(Struct, frozen=True, kw_only=True):
    """The ResourceClaim that was made for a claim of the group; an empty name: none was needed."""

    name: str = ""
    resource_claim_name: str = ""


class GroupStatus(Struct, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[ClaimStatus, ...] = ()


class NativeGroup(KubernetesObject, frozen=True, kw_only=True):
    """A PodGroup or a CompositePodGroup, by its kind."""

    spec: GroupSpec = GroupSpec()
    status: GroupStatus = GroupStatus()


class GroupTemplate(GroupSpec, frozen=True, kw_only=True):
    """A template of a PodGroup, or with others below it of a CompositePodGroup."""

    name: str = ""
    pod_group_templates: tuple["GroupTemplate", ...] = ()
    composite_pod_group_templates: tuple["GroupTemplate", ...] = ()


class ControllerReference(Struct, frozen=True, kw_only=True):
    """The object whose pods these are, in the Workload's own namespace."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class NativeWorkloadSpec(Struct, frozen=True, kw_only=True):
    controller_ref: ControllerReference | None = None
    pod_group_templates: tuple[GroupTemplate, ...] = ()
    composite_pod_group_templates: tuple[GroupTemplate, ...] = ()


class NativeWorkload(KubernetesObject, frozen=True, kw_only=True):
    """A Workload of ``scheduling.k8s.io``: templates, and whose pods they are for. It has no status."""

    spec: NativeWorkloadSpec = NativeWorkloadSpec()


def problems(spec: GroupSpec, *, composite: bool = False, of_job: bool = False) -> Iterator[str]:
    """The reasons why the API server refuses the spec of a group: one sentence each with field, value found and value
    expected.

    ``of_job``: it is ``spec.scheduling`` of a Job, whose gang may leave its number out, and which alone may not combine
    the policy basic with the disruption mode all.
    """
    policy = spec.scheduling_policy
    if (policy.basic is None) == (policy.gang is None):
        found = "neither" if policy.basic is None else "both"
        yield f"schedulingPolicy: expected one of basic and gang, found {found}"
    if policy.gang is not None:
        key = "minGroupCount" if composite else "minCount"
        least = policy.gang.min_group_count if composite else policy.gang.min_count
        if least is None and not of_job:
            yield f"schedulingPolicy.gang.{key}: expected at least 1, found none"
        elif least is not None and least < 1:
            yield f"schedulingPolicy.gang.{key}: expected at least 1, found {least}"
    keys = spec.scheduling_constraints.topology
    if len(keys) > 1:
        yield f"schedulingConstraints.topology: expected 1 key at most, found {len(keys)}"
    if any(not each.key for each in keys):
        yield "schedulingConstraints.topology[0].key: expected a label of nodes, found an empty one"
    yield from _of_claims(spec.resource_claims)
    yield from _of_disruption(spec)
    if of_job and spec.mode == "all" and policy.basic is not None:
        yield "disruptionMode: expected single beside schedulingPolicy.basic, found all"
    if spec.priority is not None and spec.priority > _HIGHEST:
        yield f"priority: expected {_HIGHEST} at most, found {spec.priority}"
    if spec.preemption_policy not in _PREEMPTION:
        yield f"preemptionPolicy: expected Never or PreemptLowerPriority, found {spec.preemption_policy[:63]!r}"


def group_problems(group: NativeGroup, *, composite: bool = False) -> Iterator[str]:
    """``problems`` of a whole object, with the paths of its fields."""
    spec = group.spec
    yield from (f"spec.{each}" for each in problems(spec, composite=composite))
    if (composite or spec.parent_composite_pod_group_name) and not all(spec.template):
        yield "spec.workloadRef: expected the names of a Workload and a template of it, found none"


def workload_problems(workload: NativeWorkload) -> Iterator[str]:
    """The reasons why the API server refuses the Workload, as ``problems`` has them."""
    spec = workload.spec
    if bool(spec.pod_group_templates) == bool(spec.composite_pod_group_templates):
        found = "both" if spec.pod_group_templates else "neither"
        yield f"spec: expected one of podGroupTemplates and compositePodGroupTemplates, found {found}"
    names: set[str] = set()
    for key, templates in (
        ("podGroupTemplates", spec.pod_group_templates),
        ("compositePodGroupTemplates", spec.composite_pod_group_templates),
    ):
        yield from _of_templates(f"spec.{key}", templates, names, 1)


def _of_templates(where: str, templates: tuple[GroupTemplate, ...], names: set[str], depth: int) -> Iterator[str]:
    """``names``: those of the templates before; this adds its own."""
    if len(templates) > _MOST_TEMPLATES:
        yield f"{where}: expected {_MOST_TEMPLATES} templates at most, found {len(templates)}"
        return
    composite = where.endswith("compositePodGroupTemplates")
    if templates and depth > DEEPEST_NATIVE:
        yield f"{where}: expected {DEEPEST_NATIVE} levels at most, found more"
        return
    for at, template in enumerate(templates):
        own = f"{where}[{at}]"
        if not template.name:
            yield f"{own}.name: expected the name of a template, found an empty one"
        elif template.name in names:
            yield f"{own}.name: expected a name of its own, found {template.name[:63]!r} again"
        names.add(template.name)
        yield from (f"{own}.{problem}" for problem in problems(template, composite=composite))
        yield from _of_templates(f"{own}.podGroupTemplates", template.pod_group_templates, names, depth + 1)
        below = f"{own}.compositePodGroupTemplates"
        yield from _of_templates(below, template.composite_pod_group_templates, names, depth + 1)


def _of_claims(claims: tuple[GroupClaim, ...]) -> Iterator[str]:
    if len(claims) > _MOST_CLAIMS:
        yield f"resourceClaims: expected {_MOST_CLAIMS} at most, found {len(claims)}"
    for at, claim in enumerate(claims):
        if not claim.name or claim.name in [each.name for each in claims[:at]]:
            yield f"resourceClaims[{at}].name: expected a name of its own, found {claim.name[:63]!r}"
        if bool(claim.resource_claim_name) == bool(claim.resource_claim_template_name):
            found = "both" if claim.resource_claim_name else "neither"
            what = "one of resourceClaimName and resourceClaimTemplateName"
            yield f"resourceClaims[{at}]: expected {what}, found {found}"


def _of_disruption(spec: GroupSpec) -> Iterator[str]:
    mode = spec.disruption_mode
    if isinstance(mode, str):
        if mode not in _OLD_MODES:
            yield f"disruptionMode: expected Pod or PodGroup, found {mode[:63]!r}"
    elif mode is not None and (mode.single is None) == (mode.all is None):
        found = "neither" if mode.all is None else "both"
        yield f"disruptionMode: expected one of single and all, found {found}"
