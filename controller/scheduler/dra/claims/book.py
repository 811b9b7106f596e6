"""The latest claims, templates, classes and published devices, and what a workload's claims count as."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from controller.objects.core import PodResourceClaim, PodSpec
from controller.objects.deviceclaims import (
    AskedDevices,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from controller.objects.meta import KubernetesObject, epoch_s
from controller.objects.quantity import NANO
from controller.objects.workload import PodSet, Workload
from controller.scheduler.dra.claims.amounts import Amounts, ClaimProblemError, DeviceAmounts
from controller.scheduler.dra.claims.published import PublishedDevices
from controller.scheduler.model.deviceclaims import (
    NO_CLAIMS,
    ClaimKey,
    ClaimRules,
    PodSetClaims,
    WorkloadClaims,
    of_group,
)
from controller.scheduler.model.podrequests import RequestRules, added, one_pod, whole_amount
from controller.scheduler.model.resources import ResourceName

POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
OF_ONE_POD: Final = {POD_CLAIM: ""}
"""The annotations that are kept of a claim that was made for one pod."""
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of a class's name in the extended resource that every class has."""
_OF_GROUP: Final = "#"
"""Stands behind the template in the key of a claim that is made for all pods of a workload: no name has it."""
_GATE_OFF: Final = "Its pods ask for devices by claim, and the feature gate KueueDRAIntegration is off"


class ClaimBook:
    """The objects that claims count by. ``put`` and ``drop`` take objects of CLAIM_TYPES. Claims that were made for one
    pod are not kept: their template says what they are.
    """

    def __init__(self, rules: ClaimRules, requests: RequestRules) -> None:
        self.rules = rules
        self._requests = requests
        self._classes: dict[str, DeviceClass] = {}
        self._templates: dict[str, ResourceClaimTemplate] = {}
        self._claims: dict[ClaimKey, ResourceClaim] = {}
        self._devices = PublishedDevices()
        self._amounts = DeviceAmounts(rules, self._classes, self._devices)
        self._of_templates: dict[str, Amounts | ClaimProblemError] = {}
        """What a claim of each template counts as; cleared when anything that this depends on may have changed."""
        self._extended: dict[str, str] = {}
        """DeviceClass by extended resource, where the class changes what the resource counts as."""
        self._behind: dict[str, str] = {}
        """DeviceClass by extended resource. Requests of such a resource must be whole numbers."""

    # -- objects -----------------------------------------------------------------------------------------------------

    def put(self, given: KubernetesObject) -> bool:
        """Store an object. Returns whether anything may count differently now."""
        changed = self._put(given)
        if changed and not isinstance(given, ResourceClaim):
            self._of_templates.clear()
        return changed

    def _put(self, given: KubernetesObject) -> bool:
        match given:
            case DeviceClass():
                known = self._classes.get(given.metadata.name)
                self._classes[given.metadata.name] = given
                return self._extend() or known is None or known.spec != given.spec
            case ResourceClaimTemplate():
                before = self._templates.get(given.key)
                self._templates[given.key] = given
                return before is None or before.spec != given.spec
            case ResourceClaim():
                return self._put_claim(given)
            case ResourceSlice():
                return self._devices.put(given)
        return False

    def _put_claim(self, given: ResourceClaim) -> bool:
        if is_of_one_pod(given):
            return False
        known = self._claims.get(given.key)
        self._claims[given.key] = given
        return known is None or (known.spec, known.status) != (given.spec, given.status)

    def drop(self, kind: type[KubernetesObject], namespace: str, name: str) -> bool:
        """Remove an object. Returns whether anything may count differently now."""
        key = f"{namespace}/{name}"
        if kind is not ResourceClaim:
            self._of_templates.clear()
        if kind is DeviceClass:
            gone = self._classes.pop(name, None) is not None
            return self._extend() or gone
        if kind is ResourceClaimTemplate:
            return self._templates.pop(key, None) is not None
        if kind is ResourceClaim:
            return self._claims.pop(key, None) is not None
        return self._devices.drop(name)

    def _extend(self) -> bool:
        """Recompute the extended resources of all classes. If two classes have one name the newest counts, then the
        smaller name. Returns whether anything changed.
        """
        class_names: dict[str, str] = {}
        if self.rules.on and self.rules.extended_resources:
            class_names = extended_names(self._classes.values(), implicit=self.rules.every_kind)
        extended = {resource: name for resource, name in class_names.items() if self._differs(resource, name)}
        changed = extended != self._extended or class_names != self._behind
        self._extended, self._behind = extended, class_names
        return changed

    def _differs(self, resource: str, device_class: str) -> bool:
        mappings = tuple(self._amounts.mappings_of(device_class))
        return any(mapping.resource != resource or mapping.sources for mapping in mappings)

    # -- counting ----------------------------------------------------------------------------------------------------

    def count(
        self, workload: Workload, counts: Mapping[str, int], paid: Callable[[ClaimKey, ResourceName], bool]
    ) -> WorkloadClaims | None:
        """What the workload's claims count as; None where it has no claims. ``counts``: the pods of each set that still
        need resources. ``paid``: whether another workload is charged a resource of a claim.
        """
        pod_sets = workload.spec.pod_sets
        if self._behind and (problem := self._in_parts(pod_sets)):
            return WorkloadClaims(problem=problem)
        if not self._extended and not any(pod_set.template.spec.resource_claims for pod_set in pod_sets):
            return None
        if not self.rules.on:
            asks = self.rules.reject and any(pod_set.template.spec.resource_claims for pod_set in pod_sets)
            return WorkloadClaims(problem=_GATE_OFF) if asks else None
        sets, named = list[PodSetClaims](), first_naming(workload, counts, of_groups=self.rules.every_kind)
        for pod_set in pod_sets:
            try:
                sets.append(self._pod_set(pod_set, workload, named, paid))
            except ClaimProblemError as problem:
                return WorkloadClaims(problem=f"pod set {pod_set.name or 'main'}: {problem}")
        if not named and all(found == NO_CLAIMS for found in sets):
            return None
        return WorkloadClaims(pod_sets=tuple(sets), named=named)

    def _in_parts(self, pod_sets: Iterable[PodSet]) -> str:
        """A sentence about an extended resource that is requested in fractions, which do not exist; empty for none."""
        for pod_set in pod_sets:
            spec = pod_set.template.spec
            if not _mentions(spec, self._behind):
                continue
            for container in (*spec.containers, *spec.init_containers):
                for name, amount in {**container.resources.limits, **container.resources.requests}.items():
                    if name in self._behind and amount.nanos % NANO:
                        where = f"pod set {pod_set.name or 'main'}: container {container.name}"
                        return f"{where}: expected a whole number of {name} (DeviceClass {self._behind[name]})"
        return ""

    def _pod_set(
        self,
        pod_set: PodSet,
        workload: Workload,
        named: Mapping[ClaimKey, str],
        paid: Callable[[ClaimKey, ResourceName], bool],
    ) -> PodSetClaims:
        """What the claims of one pod set count as. ``named``: the pod set that is charged for each shared claim. Raises
        ClaimProblemError.
        """
        spec, namespace = pod_set.template.spec, workload.metadata.namespace
        of_each_pod: Amounts = {}
        once: Amounts = {}
        counted = set[ClaimKey]()
        for claim in spec.resource_claims:
            key = shared_key(workload, pod_set, claim, of_groups=self.rules.every_kind)
            if key:
                if self.rules.every_kind and (named.get(key) != pod_set.name or key in counted):
                    continue
                counted.add(key)
                try:
                    amounts = self.of_claim(key)
                except ClaimProblemError as problem:
                    raise ClaimProblemError(f"claim {claim.name}: {problem}") from None
                once = added(once, {name: 0 if paid(key, name) else amount for name, amount in amounts.items()})
            elif claim.resource_claim_template_name:
                of_each_pod = added(of_each_pod, self._of_template(claim, namespace))
        of_each_pod, instead = self._with_extended(spec, of_each_pod)
        return PodSetClaims(each=of_each_pod, once=once, instead=instead)

    def of_claim(self, key: ClaimKey) -> Amounts:
        """What a shared claim counts as. Raises ClaimProblemError."""
        template, is_of_group, _ = key.partition(_OF_GROUP)
        if is_of_group:
            return self.of_template(template)
        if not self.rules.every_kind:
            raise ClaimProblemError("a claim by name (resourceClaimName) is not supported, a template is")
        claim = self._claims.get(key)
        if claim is None:
            raise ClaimProblemError(f"there is no ResourceClaim {key}")
        try:
            return self._counted(self._amounts.of_claim(claim.spec, claim.status.allocation))
        except ClaimProblemError as problem:
            raise ClaimProblemError(f"ResourceClaim {claim.metadata.name}: {problem}") from None

    def _of_template(self, claim: PodResourceClaim, namespace: str) -> Amounts:
        try:
            return self.of_template(f"{namespace}/{claim.resource_claim_template_name}")
        except ClaimProblemError as problem:
            raise ClaimProblemError(f"claim {claim.name}: {problem}") from None

    def of_template(self, key: str) -> Amounts:
        """What a claim of a template counts as. Raises ClaimProblemError."""
        template = self._templates.get(key)
        if template is None:
            raise ClaimProblemError(f"there is no ResourceClaimTemplate {key}")
        known = self._of_templates.get(key)
        if known is None:
            try:
                known = self._counted(self._amounts.of_claim(template.spec.spec))
            except ClaimProblemError as problem:
                known = ClaimProblemError(f"ResourceClaimTemplate {template.metadata.name}: {problem}")
            self._of_templates[key] = known
        if isinstance(known, ClaimProblemError):
            raise ClaimProblemError(str(known))
        return known

    def _counted(self, amounts: Amounts) -> Amounts:
        """The amounts as they are charged, with their worth in honest units, which Kueue does not know."""
        if not self.rules.every_kind:
            return {name: whole_amount(name, amount * NANO) for name, amount in amounts.items()}
        return self._requests.apply({name: amount * NANO for name, amount in amounts.items()})

    def _with_extended(self, spec: PodSpec, of_each_pod: Amounts) -> tuple[Amounts, tuple[ResourceName, ...]]:
        """``of_each_pod`` with what extended resources of mapped classes count as, and the names of these resources."""
        if not self._extended or not _mentions(spec, self._extended):
            return of_each_pod, ()
        instead = []
        for name, amount in one_pod(spec).items():
            device_class = self._extended.get(name)
            if device_class is None or amount <= 0:
                continue
            mappings = self._amounts.mappings_of(device_class)
            if not self.rules.every_kind and any(mapping.sources for mapping in mappings):
                raise ClaimProblemError(
                    f"{name} stands for DeviceClass {device_class}, whose mapping has sources: not supported"
                )
            asked = msgspec.structs.replace(_ANY, device_class_name=device_class)
            amounts = self._amounts.of_devices(asked, amount)
            of_each_pod = added(
                of_each_pod, {mapped: whole_amount(mapped, count * NANO) for mapped, count in amounts.items()}
            )
            instead.append(name)
        return of_each_pod, tuple(instead)


def is_of_one_pod(claim: ResourceClaim) -> bool:
    """Whether the claim was made for a pod, by a template or for an extended resource: no other pod names it."""
    given = claim.metadata
    if POD_CLAIM in given.annotations:  # a claim of a PodGroup has the annotation too, and many pods
        return not any(owner.controller and owner.kind == "PodGroup" for owner in given.owner_references)
    return EXTENDED_CLAIM in given.annotations


def extended_names(classes: Iterable[DeviceClass], *, implicit: bool) -> dict[str, str]:
    """DeviceClass name by extended resource. ``implicit``: each class also under its implicit resource name."""
    class_of: dict[str, str] = {}
    for device_class in _newest_last(classes):
        name = device_class.metadata.name
        if implicit:
            class_of[f"{IMPLICIT}{name}"] = name
        if device_class.spec.extended_resource_name:
            class_of[device_class.spec.extended_resource_name] = name
    return class_of


def claims_of(workload: Workload) -> Iterator[tuple[bool, str]]:
    """The objects that the workload's claims name: whether each is a template, and ``namespace/name``."""
    namespace = workload.metadata.namespace
    for pod_set in workload.spec.pod_sets:
        for claim in pod_set.template.spec.resource_claims:
            if claim.resource_claim_name:
                yield False, f"{namespace}/{claim.resource_claim_name}"
            elif claim.resource_claim_template_name:
                yield True, f"{namespace}/{claim.resource_claim_template_name}"


def asks_by_class(workload: Workload) -> bool:
    """Whether the workload's pods request an extended resource by the name of its class."""
    return any(
        name.startswith(IMPLICIT)
        for pod_set in workload.spec.pod_sets
        for container in (*pod_set.template.spec.containers, *pod_set.template.spec.init_containers)
        for part in (container.resources.requests, container.resources.limits)
        for name in part
    )


def shared_key(workload: Workload, pod_set: PodSet, claim: PodResourceClaim, *, of_groups: bool) -> ClaimKey:
    """The key of a claim of which there is one for several pods; empty for one of each pod.

    ``of_groups``: a claim that is made for all pods of the workload has a key of its own, by its template.
    """
    namespace = workload.metadata.namespace
    if claim.resource_claim_name:
        return f"{namespace}/{claim.resource_claim_name}"
    template = claim.resource_claim_template_name
    if of_groups and template and claim.name in of_group(pod_set.template):
        return f"{namespace}/{template}{_OF_GROUP}{workload.metadata.name}/{claim.name}"
    return ""


def first_naming(workload: Workload, counts: Mapping[str, int], *, of_groups: bool) -> dict[ClaimKey, str]:
    """Each shared claim that any pods have, with the first pod set that names it and has pods: the claim is charged
    there.
    """
    first_of = dict[ClaimKey, str]()
    for pod_set in workload.spec.pod_sets:
        for claim in pod_set.template.spec.resource_claims if counts.get(pod_set.name, 0) > 0 else ():
            if key := shared_key(workload, pod_set, claim, of_groups=of_groups):
                first_of.setdefault(key, pod_set.name)
    return first_of


def _mentions(spec: PodSpec, names: Mapping[str, str]) -> bool:
    return any(
        name in names
        for container in (*spec.containers, *spec.init_containers)
        for part in (container.resources.requests, container.resources.limits)
        for name in part
    )


def _newest_last(classes: Iterable[DeviceClass]) -> list[DeviceClass]:
    """The classes sorted by age, the newest last; of equal age the smaller name is last."""
    by_name = sorted(classes, key=lambda given: given.metadata.name, reverse=True)
    return sorted(by_name, key=lambda given: epoch_s(given.metadata.creation_timestamp))


_ANY: Final = AskedDevices()
