"""Pod sets on their way between a job and its workload: composed, compared, started with, and put back.

job's templates -> JobPodSet -> Workload.spec.podSets      (what is asked)
Workload.status.admission -> PodSetInfo -> job's templates (what was given)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import msgspec

from controller.jobs.framework import names
from controller.jobs.framework.raw import JobError, Json, copied, map_patch, mapping, sequence, shown, strings
from controller.objects.core import PodSpec, PodTemplateSpec
from controller.objects.decode import DecodeError, decode
from controller.objects.meta import Condition, Struct, epoch_s, find_condition, is_true, object_key, to_json
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import PodSet, PodSetAssignment, Workload, admitted_pods
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.workload import is_growth
from inventory.api.names import ABOVE_MINIMUM_OF, CHECKPOINT_GRACE, CLAIM_DEVICES, KEPT_OFF, POD_GROUP, YIELD

OWN_LABELS: Final = (names.POD_SET, names.CLUSTER_QUEUE_NAME, names.LOCAL_QUEUE_NAME)
OWN_ANNOTATIONS: Final = (names.WORKLOAD, names.SLICE_NAME)
UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
OWN_GATES: Final = (names.TOPOLOGY_GATE, names.ELASTIC_JOB)

# The fields that a start writes in a template, and a stop therefore has to put back.
_METADATA: Final = ("labels", "annotations")
_LISTS: Final = ("tolerations", "schedulingGates")

_PODS: Final = "pods"
_FOR_POLICIES: Final = (CHECKPOINT_GRACE, YIELD)
"""Annotations of a job by which the chart's policy marks its pods as they are created."""
_REMEMBERED: Final = 256
_MOST_BYTES: Final = 8192
"""Templates with more bytes are decoded anew each time, so that the cache is bounded."""


class JobPodSet(Struct, frozen=True, kw_only=True):
    """A pod set that a job requests; ``template`` is the complete pod template, ``topology_request`` the API's JSON."""

    name: str
    count: int
    template: Json
    min_count: int | None = None
    topology_request: Json | None = None

    def as_json(self) -> Json:
        template = copied(self.template)
        _drop_repeated_variables(template)
        body: Json = {"name": self.name, "count": self.count, "template": template}
        if self.min_count is not None:
            body["minCount"] = self.min_count
        if self.topology_request is not None:
            body["topologyRequest"] = copied(self.topology_request)
        return body


def _drop_repeated_variables(template: Json) -> None:
    """Drops all but the last of environment variables of one name, which counts: a Workload may not repeat one, unlike
    a pod.
    """
    for key in ("initContainers", "containers"):
        for container in sequence(template, "spec", key):
            env = container.get("env") if isinstance(container, dict) else None
            if env:
                last = {variable["name"]: index for index, variable in enumerate(env)}
                if len(last) < len(env):
                    container["env"] = [env[index] for index in sorted(last.values())]


@dataclass(frozen=True)
class SeenWorkload:
    """A workload as a watch showed it: ``typed`` to decide by, ``raw`` because its templates must go back whole.

    ``read`` makes ``raw``, which has the spec and may have no more. It is called once, and only if ``raw`` is needed.
    """

    typed: Workload
    read: Callable[[], Json]

    @classmethod
    def of(cls, raw: Json) -> "SeenWorkload":
        """The workload in its JSON. Raises DecodeError."""
        return cls(decode(raw, Workload), lambda: raw)

    @cached_property
    def raw(self) -> Json:
        return self.read()

    @property
    def owner_references(self) -> list[Json]:
        """The owner references as JSON, to be sent back."""
        found: list[Json] = to_json(self.typed.metadata.owner_references)
        return found

    @property
    def name(self) -> str:
        return self.typed.metadata.name

    @property
    def uid(self) -> str:
        return self.typed.metadata.uid

    @property
    def age_key(self) -> tuple[float, str]:
        """The sort key of workloads from the oldest to the newest."""
        return (epoch_s(self.typed.metadata.creation_timestamp), self.name)

    @property
    def is_finished(self) -> bool:
        return is_true(self.typed.status.conditions, "Finished")

    @property
    def is_terminating(self) -> bool:
        """Whether the workload is being deleted."""
        return self.typed.metadata.deletion_timestamp is not None

    @property
    def is_live(self) -> bool:
        return not self.is_finished and not self.is_terminating

    @property
    def has_finalizer(self) -> bool:
        return names.RESOURCE_IN_USE in self.typed.metadata.finalizers

    @property
    def is_reserved(self) -> bool:
        """Whether the workload holds quota, or is still booked as if it did."""
        return self.typed.status.admission is not None or is_true(self.typed.status.conditions, "QuotaReserved")

    @property
    def is_admitted(self) -> bool:
        return self.typed.status.admission is not None and is_true(self.typed.status.conditions, "Admitted")

    @property
    def eviction(self) -> Condition | None:
        """The condition Evicted if it is True, else None."""
        found = find_condition(self.typed.status.conditions, "Evicted")
        return found if found is not None and found.status == "True" else None

    def templates(self) -> dict[str, Json]:
        """The pod template of each pod set. Raises JobError for a template that no API server would have accepted."""
        by_pod_set = {}
        for index, pod_set in enumerate(sequence(self.raw, "spec", "podSets")):
            template = mapping({"podSets": pod_set}, "podSets", "template")
            by_pod_set[self.typed.spec.pod_sets[index].name] = template
        return by_pod_set


class PodSetInfo(Struct, frozen=True, kw_only=True):
    """What a start writes into a pod set's template. ``own_*`` are the controller's: they win over the template's."""

    name: str
    count: int
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    scheduling_gates: tuple[str, ...] = ()
    own_labels: dict[str, str] = msgspec.field(default_factory=dict)
    own_annotations: dict[str, str] = msgspec.field(default_factory=dict)
    off: tuple[Json, ...] = ()
    """Expressions of the nodes that the pods are kept to; templates say so by an annotation of ``own_annotations``."""


class StartConflictError(Exception):
    """Job, flavors and admission checks require different values for one key: no start can ever succeed."""


class FlavorMissingError(Exception):
    """A flavor that was assigned does not exist (any more, or yet)."""


def typed_template(template: Json, path: str) -> PodTemplateSpec:
    """The decoded template. Raises JobError."""
    try:
        text = msgspec.json.encode(template)
    except (TypeError, ValueError, OverflowError, RecursionError):
        text = b""  # what is no JSON is refused with its path below
    try:
        return _typed(text) if 0 < len(text) <= _MOST_BYTES else decode(template, PodTemplateSpec)
    except DecodeError as error:
        raise JobError(f"{path}: {error}") from None


@lru_cache(maxsize=_REMEMBERED)
def _typed(text: bytes) -> PodTemplateSpec:
    """The decoded template, cached: a job's templates are read in each reconciliation, and its workload's beside
    them. A template of one container is decoded in 25 us and found in 0.2 us.
    """
    return decode(text, PodTemplateSpec)


def check_requests(template: Json, path: str) -> None:
    """Checks the template's requests. Raises JobError for one that no quota can be charged with."""
    spec = typed_template(template, path).spec
    groups = [(f"containers[{i}]", c.resources) for i, c in enumerate(spec.containers)]
    groups += [(f"initContainers[{i}]", c.resources) for i, c in enumerate(spec.init_containers)]
    if spec.resources is not None:
        groups.append(("resources", spec.resources))
    for where, resources in groups:
        for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
            field = f"{path}.spec.{where}.{kind}"
            if _PODS in amounts:
                raise JobError(f"{field}[pods]: a container must not request pods, the queue counts them")
            low = next((name for name, quantity in amounts.items() if quantity.nanos < 0), None)
            if low is not None:
                raise JobError(f"{field}[{low}]: expected an amount of at least 0, found {amounts[low]}")


def no_claim_plan(_pod_set: str) -> str:
    """A claim plan that leaves the choice of devices to the scheduler."""
    return ""


def infos(
    workload: Workload,
    flavor: Callable[[str], ResourceFlavor | None],
    *,
    elastic: bool,
    grows: bool = False,
    claims: Callable[[str], str] = no_claim_plan,
    gates: FeatureGates | None = None,
    group: str = "",
    off: tuple[Json, ...] = (),
) -> tuple[PodSetInfo, ...]:
    """The changes to each pod set of an admitted workload at its start. ``grows``: the workload is the minimum of its
    job. ``claims``: by pod set the annotation with the devices for its claims, see ``claimplan``. ``group``: the
    PodGroup of this start; empty for none. ``off``: see ``PodSetInfo``.

    Raises FlavorMissingError, and StartConflictError if flavors or admission checks contradict each other.
    """
    admission = workload.status.admission
    if admission is None:
        return ()
    sets = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    on = gates or FeatureGates()
    pod_set_infos = (
        _info(
            workload,
            assignment,
            sets.get(assignment.name, PodSet(count=0)),
            flavor,
            claims,
            on,
            elastic=elastic,
            grows=grows,
        )
        for assignment in admission.pod_set_assignments
    )
    more = {**({POD_GROUP: group} if group else {}), **({KEPT_OFF: "spot"} if off else {})}
    return tuple(_with_more(info, more, off) if more else info for info in pod_set_infos)


def _with_more(info: PodSetInfo, more: Mapping[str, str], off: tuple[Json, ...]) -> PodSetInfo:
    return msgspec.structs.replace(info, own_annotations={**info.own_annotations, **more}, off=off)


def _info(
    workload: Workload,
    assignment: PodSetAssignment,
    pod_set: PodSet,
    flavor: Callable[[str], ResourceFlavor | None],
    claims: Callable[[str], str],
    gates: FeatureGates,
    *,
    elastic: bool,
    grows: bool,
) -> PodSetInfo:
    selector: dict[str, str] = {}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    tolerations: list[Json] = []
    for name in sorted(set(assignment.flavors.values())):
        resource_flavor = flavor(name)
        if resource_flavor is None:
            raise FlavorMissingError(f"ResourceFlavor {name} does not exist")
        _merge(selector, resource_flavor.spec.node_labels, f"node selector of flavor {name}")
        tolerations += [to_json(toleration) for toleration in resource_flavor.spec.tolerations]
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates:
            if update.name == assignment.name:
                _merge(selector, update.node_selector, f"node selector of admission check {check.name}")
                _merge(labels, update.labels, f"labels of admission check {check.name}")
                _merge(annotations, update.annotations, f"annotations of admission check {check.name}")
                tolerations += [to_json(toleration) for toleration in update.tolerations]
    tas = gates.on("TopologyAwareScheduling")
    placed = grows or (tas and (assignment.topology_assignment or assignment.delayed_topology_request))
    held = [names.TOPOLOGY_GATE] if placed else []
    devices = claims(assignment.name) if placed else ""
    return PodSetInfo(
        name=assignment.name,
        count=admitted_pods(pod_set, assignment),
        node_selector=selector,
        labels=labels,
        annotations=annotations,
        tolerations=tuple(tolerations),
        scheduling_gates=tuple(held + ([names.ELASTIC_JOB] if elastic else [])),
        own_labels=_own_labels(workload, assignment.name, queues=gates.on("AssignQueueLabelsForPods")),
        own_annotations={
            **({UNCONSTRAINED: "true"} if tas and _is_placed_unasked(workload, assignment) else {}),
            names.WORKLOAD: workload.metadata.name,
            **{key: value for key in _FOR_POLICIES if (value := workload.metadata.annotations.get(key))},
            **({ABOVE_MINIMUM_OF: ""} if grows else {}),
            **({CLAIM_DEVICES: devices} if devices else {}),
            **({names.SLICE_NAME: slice_name(workload)} if elastic or _is_later_slice(workload) else {}),
        },
    )


def _is_placed_unasked(workload: Workload, assignment: PodSetAssignment) -> bool:
    """Whether the pod set has a topology assignment, and requests no topology itself."""
    if assignment.topology_assignment is None:
        return False
    sets = (pod_set for pod_set in workload.spec.pod_sets if pod_set.name == assignment.name)
    asked = next((pod_set.topology_request for pod_set in sets), None)
    return asked is None or not (asked.required or asked.preferred or asked.unconstrained)


def before_growth(workload: Workload) -> int | None:
    """The number of pods with which the job of a growth runs until it has grown: the growth asks for one more at the
    least. None for any other workload.
    """
    least = workload.spec.pod_sets[0].min_count if workload.spec.pod_sets else None
    return None if least is None or not is_growth(workload) else least - 1


def _is_later_slice(workload: Workload) -> bool:
    return slice_name(workload) != workload.metadata.name


def slice_name(workload: Workload) -> str:
    """The name that all slices of a job share: that of its first slice."""
    return workload.metadata.annotations.get(names.SLICE_NAME, workload.metadata.name)


def first_slice(workload: Workload) -> WorkloadKey:
    """The key of the first slice of a job, which the pods of all its slices name; else the workload's own."""
    return WorkloadKey(object_key(workload.metadata.namespace, slice_name(workload)))


def _own_labels(workload: Workload, pod_set: str, *, queues: bool) -> dict[str, str]:
    """Labels that a start writes on a pod set's pods. ``queues``: with the names of queues; a name that is longer than
    a label's value is left out.
    """
    admission = workload.status.admission
    wanted = {names.POD_SET: pod_set}
    if queues:
        wanted[names.CLUSTER_QUEUE_NAME] = admission.cluster_queue if admission is not None else ""
        wanted[names.LOCAL_QUEUE_NAME] = workload.spec.queue_name
    return {key: value for key, value in wanted.items() if value and names.is_label_value(value)}


def _merge(into: dict[str, str], more: Mapping[str, str], whose: str) -> None:
    for key, value in more.items():
        if into.setdefault(key, value) != value:
            raise StartConflictError(f"{whose}: {key} must be {shown(value)}, and is already {shown(into[key])}")


def started_template(template: Json, info: PodSetInfo) -> Json:
    """A copy of ``template`` with ``info`` written into it. Raises StartConflictError."""
    result = copied(template)
    metadata, spec = result.setdefault("metadata", {}), result.setdefault("spec", {})
    for target, key, more, own in (
        (metadata, "labels", info.labels, info.own_labels),
        (metadata, "annotations", info.annotations, info.own_annotations),
        (spec, "nodeSelector", info.node_selector, {}),
    ):
        into = dict(strings(target, key))
        _merge(into, more, f"pod set {info.name}, {key}")
        into.update(own)
        if into:
            target[key] = into
    _extend(spec, "tolerations", info.tolerations)
    _extend(spec, "schedulingGates", tuple({"name": gate} for gate in info.scheduling_gates))
    return result


def _extend(spec: Json, key: str, more: tuple[Json, ...]) -> None:
    listed = list(sequence(spec, key))
    known = [_plain(item) for item in listed]
    for item in more:
        if _plain(item) not in known:
            known.append(_plain(item))
            listed.append(copied(item))
    if listed:
        spec[key] = listed


def _plain(item: Json) -> Json:
    """A toleration without its operator if that is the default."""
    return {key: value for key, value in item.items() if (key, value) not in (("operator", "Equal"), ("operator", ""))}


def template_patch(now: Json, wanted: Json) -> Json:
    """The merge patch, from ``now`` to ``wanted``, of the fields that starts and stops write; empty if nothing
    differs.
    """
    metadata = {
        key: patch
        for key in _METADATA
        if (patch := map_patch(_part(now, "metadata", key), _part(wanted, "metadata", key)))
    }
    spec: Json = {}
    if selector := map_patch(_part(now, "spec", "nodeSelector"), _part(wanted, "spec", "nodeSelector")):
        spec["nodeSelector"] = selector
    for key in _LISTS:
        target = sequence(wanted, "spec", key)
        if sequence(now, "spec", key) != target:
            spec[key] = copied(target) or None
    return {name: part for name, part in (("metadata", metadata), ("spec", spec)) if part}


def _part(template: Json, *path: str) -> dict[str, str]:
    return strings(template, *path)


def is_marked(template: Json) -> bool:
    """Whether a start may have written into the template: one that has none of what every start writes is untouched."""
    metadata = mapping(template, "metadata")
    return any(
        have and not have.keys().isdisjoint(own)
        for key, own in (("labels", OWN_LABELS), ("annotations", OWN_ANNOTATIONS))
        for have in (strings(metadata, key),)
    )


def is_started(now: Json, original: Json) -> bool:
    """Whether ``now`` carries what a start puts into ``original``."""
    for keys, path in ((OWN_LABELS, ("metadata", "labels")), (OWN_ANNOTATIONS, ("metadata", "annotations"))):
        have, had = strings(now, *path), strings(original, *path)
        if any(have.get(key) is not None and have.get(key) != had.get(key) for key in keys):
            return True
    return False


def same_pods(one: PodSpec, other: PodSpec, *, but: str = "") -> bool:
    """Whether pods of both have the same requests, init containers of the name ``but`` aside."""
    if (one.containers, one.resources) != (other.containers, other.resources):
        return False
    if not but:
        return one.init_containers == other.init_containers
    kept = ([each for each in spec.init_containers if each.name != but] for spec in (one, other))
    return next(kept) == next(kept)


def same_shape(one: PodTemplateSpec, other: PodTemplateSpec) -> bool:
    """Whether two templates mean the same to a scheduler, and carry the same labels and annotations."""
    if one.metadata.labels != other.metadata.labels or one.metadata.annotations != other.metadata.annotations:
        return False
    # Some kinds set a restart policy that their templates leave out; it does not change a pod's requests.
    policy = other.spec.restart_policy
    return one.spec == other.spec or msgspec.structs.replace(one.spec, restart_policy=policy) == other.spec
