"""The kinds that the controller watches and writes, the types as which they are decoded, and their decoders.

The JSON of Workloads is kept beside the typed copy.
"""

import zlib
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import msgspec

from controller.foreign.objects.kai import KaiQueue
from controller.foreign.objects.volcanoqueue import VolcanoQueue
from controller.jobs.framework.raw import Json
from controller.objects import capacityrequests
from controller.objects.core import LimitRange, Namespace, Node, Pod, PriorityClass, RuntimeClass
from controller.objects.decode import GpuNode, decode, read_custom
from controller.objects.deviceclaims import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from controller.objects.interning import interned
from controller.objects.meta import KubernetesObject, ObjectMeta, OwnerReference
from controller.objects.provisioning import PROVISIONING, ProvisioningRequest, ProvisioningRequestConfig
from controller.objects.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from controller.objects.sharing import ALIKE, Remembered, SharingDecoder
from controller.objects.workload import EMPTY_STATUS, NO_STATUS, Workload, WorkloadSpec
from controller.scheduler.dra.allocation.sliceinterner import ResourceSliceInterner
from controller.scheduler.dra.claims.book import OF_ONE_POD, asks_by_class, claims_of, is_of_one_pod
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.caches import ByIdentity
from controller.scheduler.model.deviceclaims import ClaimRules
from controller.scheduler.model.nodetemplate import NodeTemplateError, template_of
from controller.scheduler.model.resources import WorkloadKey
from inventory.api import jobkind
from inventory.api.gpunode import KIND, PLURAL
from inventory.api.names import CAPACITY_REQUEST, GROUP, JOINING, VERSION
from kube.resources import Resource

_GROUP: Final = "kueue.x-k8s.io"
_VERSION: Final = "v1beta2"

WORKLOADS: Final = Resource(_GROUP, _VERSION, "workloads", "Workload", namespaced=True)
LOCAL_QUEUES: Final = Resource(_GROUP, _VERSION, "localqueues", "LocalQueue", namespaced=True)
CLUSTER_QUEUES: Final = Resource(_GROUP, _VERSION, "clusterqueues", "ClusterQueue")
COHORTS: Final = Resource(_GROUP, _VERSION, "cohorts", "Cohort")
FLAVORS: Final = Resource(_GROUP, _VERSION, "resourceflavors", "ResourceFlavor")
CHECKS: Final = Resource(_GROUP, _VERSION, "admissionchecks", "AdmissionCheck")
TOPOLOGIES: Final = Resource(_GROUP, _VERSION, "topologies", "Topology")
WORKLOAD_CLASSES: Final = Resource(_GROUP, _VERSION, "workloadpriorityclasses", "WorkloadPriorityClass")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace")
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange", namespaced=True)
POD_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass")
NODES: Final = Resource("", "v1", "nodes", "Node")
GPU_NODES: Final = Resource(GROUP, VERSION, PLURAL, KIND)
DECLARATIONS: Final = Resource(GROUP, VERSION, jobkind.PLURAL, jobkind.KIND)
"""JobKinds. They are read as JSON: see ``controller.jobs.kinds.declared``."""
PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True)
JOBS: Final = Resource("batch", "v1", "jobs", "Job", namespaced=True)


class Labelled(Resource, frozen=True):
    """The objects of a kind that have a label, watched beside the others; without ``selector`` all of the kind.

    ``word`` goes before them in texts.
    """

    selector: str = ""
    word: str = "queued"


QUEUED_PODS: Final = Labelled("", "v1", "pods", "Pod", namespaced=True, selector="kueue.x-k8s.io/managed=true")
"""Pods that are or were queued, on their own or in groups. They are read as JSON: see
``controller.reconcile.pods.reconcile_shell``."""
JOINING_PODS: Final = Labelled("", "v1", "pods", "Pod", namespaced=True, selector=f"{JOINING}=true", word="joining")
"""Pods of serving objects that are in no group yet: see ``controller.reconcile.serving``."""
FOREIGN_JOB_PODS: Final = Labelled(
    "", "v1", "pods", "Pod", namespaced=True, selector="volcano.sh/job-name", word="Volcano's"
)
"""Pods of Volcano Jobs: see ``controller.foreign.jobs``."""
CAPACITY_REQUESTS: Final = Resource(GROUP, VERSION, capacityrequests.PLURAL, capacityrequests.KIND, namespaced=True)
CAPACITY_PODS: Final = Labelled("", "v1", "pods", "Pod", namespaced=True, selector=CAPACITY_REQUEST, word="granted")
"""Pods that name a CapacityRequest, read as JSON: see ``controller.insight.bargaining.requests_shell``."""
AGENT_PODS: Final = Labelled(
    "", "v1", "pods", "Pod", namespaced=True, selector="app.kubernetes.io/component=agent", word="agents'"
)
"""Pods of the agents, and of others with that label: see ``controller.reconcile.repairs.agentpods``."""
VOLCANO_COMMANDS: Final = Resource("bus.volcano.sh", "v1alpha1", "commands", "Command", namespaced=True)
DEPLOYMENTS: Final = Labelled(
    "apps", "v1", "deployments", "Deployment", namespaced=True, selector="kueue.x-k8s.io/queue-name"
)
REPLICA_SETS: Final = Labelled(
    "apps", "v1", "replicasets", "ReplicaSet", namespaced=True, selector="kueue.x-k8s.io/managed=true"
)
"""ReplicaSets of queued Deployments: their labels are those of the pod template."""
POD_GROUPS: Final = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", namespaced=True)
KAI_POD_GROUPS: Final = Resource("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup", namespaced=True)
POD_GROUPS_OF: Final[dict[System, Resource]] = {System.VOLCANO: POD_GROUPS, System.KAI: KAI_POD_GROUPS}
STATUS_APART: Final = frozenset({KAI_POD_GROUPS})
"""PodGroups whose status is a subresource."""

TYPES: Final[dict[Resource, type[KubernetesObject]]] = {
    WORKLOADS: Workload,
    LOCAL_QUEUES: LocalQueue,
    CLUSTER_QUEUES: ClusterQueue,
    COHORTS: Cohort,
    FLAVORS: ResourceFlavor,
    CHECKS: AdmissionCheck,
    TOPOLOGIES: Topology,
    WORKLOAD_CLASSES: WorkloadPriorityClass,
    NAMESPACES: Namespace,
    LIMIT_RANGES: LimitRange,
    POD_CLASSES: PriorityClass,
    RUNTIME_CLASSES: RuntimeClass,
    NODES: Node,
    GPU_NODES: GpuNode,
    PODS: Pod,
}
"""Kinds by which the engine decides. Jobs are read as JSON: see ``controller.reconcile.jobshell.watched``."""


VOLCANO_QUEUES: Final = Labelled("scheduling.volcano.sh", "v1beta1", "queues", "Queue", word="Volcano's")
KAI_QUEUES: Final = Labelled("scheduling.run.ai", "v2", "queues", "Queue", word="KAI's")
QUEUES_OF: Final[dict[System, Resource]] = {System.VOLCANO: VOLCANO_QUEUES, System.KAI: KAI_QUEUES}
FOREIGN_QUEUES: Final[dict[Resource, type[KubernetesObject]]] = {VOLCANO_QUEUES: VolcanoQueue, KAI_QUEUES: KaiQueue}
"""Queues that are watched if Tessera decides for their system: see ``controller.cluster.process.foreignsystems``."""
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass")
CLAIM_TEMPLATES: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True
)
DEVICE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
DEVICE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
CLAIM_KINDS: Final[dict[Resource, type[KubernetesObject]]] = {
    DEVICE_CLASSES: DeviceClass,
    CLAIM_TEMPLATES: ResourceClaimTemplate,
    DEVICE_CLAIMS: ResourceClaim,
    DEVICE_SLICES: ResourceSlice,
}
"""The kinds of Dynamic Resource Allocation. A kind is watched if it may change what a claim counts as, see
``claim_readers``."""
DECIDING: Final = TYPES | FOREIGN_QUEUES | CLAIM_KINDS
"""All kinds whose objects the engine gets, with the types as which they are decoded."""


def _names_claims(given: object) -> bool:
    return isinstance(given, Workload) and next(claims_of(given), None) is not None


def _has_claims(given: object) -> bool:
    return isinstance(given, Workload) and (_names_claims(given) or asks_by_class(given))


def _serves_resource(given: object) -> bool:
    return isinstance(given, DeviceClass) and bool(given.spec.extended_resource_name)


PROVISIONING_CONFIGS: Final = Resource(_GROUP, _VERSION, "provisioningrequestconfigs", "ProvisioningRequestConfig")
PROVISIONING_REQUESTS: Final = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", namespaced=True
)
PROVISIONING_KINDS: Final[dict[Resource, type[KubernetesObject]]] = {
    PROVISIONING_CONFIGS: ProvisioningRequestConfig,
    PROVISIONING_REQUESTS: ProvisioningRequest,
}
"""The kinds by which checks request nodes: see ``controller.reconcile.provisioning``. They are watched once there is a
check that does. The second is an autoscaler's, and may come and go."""


def _requests_nodes(given: object) -> bool:
    return isinstance(given, AdmissionCheck) and given.spec.controller_name == PROVISIONING


Needs = Callable[[object], bool]


def _has_devices_to_come(given: object) -> bool:
    """Whether nodes of a flavor count as come by the devices that drivers publish of them."""
    try:
        template = template_of(given) if isinstance(given, ResourceFlavor) else None
    except NodeTemplateError:
        return False
    return template is not None and bool(template.devices)


_HAS_CLAIMS: Final[dict[Resource, Needs]] = {WORKLOADS: _has_claims, DEVICE_CLASSES: _serves_resource}
NEEDED_BY: Final[dict[Resource, dict[Resource, Needs]]] = {
    PODS: {TOPOLOGIES: lambda _: True},
    CLAIM_TEMPLATES: {WORKLOADS: _names_claims, FLAVORS: _has_devices_to_come},
    DEVICE_CLAIMS: _HAS_CLAIMS,
    DEVICE_SLICES: _HAS_CLAIMS | {FLAVORS: _has_devices_to_come},
    PROVISIONING_CONFIGS: {CHECKS: _requests_nodes},
    PROVISIONING_REQUESTS: {CHECKS: _requests_nodes},
}
"""Kinds that are watched only once there is an object of another kind that needs them. A cluster has many pods, and
they count only if a Topology places pods on nodes; and as many claims, which count if a Workload names some, or if pods
may have an extended resource by claim. A node that can come, with devices, has come once they are published; and where
one can come there may be copies of claim templates for placeholders, which nobody but the controller removes."""

IF_SERVED: Final = frozenset({GPU_NODES, *CLAIM_KINDS})
"""Kinds that a cluster may lack: none of their objects exist while their CRD does not."""


def claim_readers(rules: ClaimRules) -> dict[Resource, Callable[[bytes], Any]]:
    """The decoders of the kinds by which claims of devices are counted."""
    if not rules.on:
        return {}
    readers: dict[Resource, Callable[[bytes], Any]] = {CLAIM_TEMPLATES: reader(ResourceClaimTemplate)}
    if rules.mappings or rules.placed:
        readers[DEVICE_CLASSES] = reader(DeviceClass)
    if rules.every_kind or rules.placed:
        readers[DEVICE_CLAIMS] = _claim_reader()
    if rules.reads_slices or rules.placed:
        readers[DEVICE_SLICES] = _slice_reader()
    return readers


def _claim_reader() -> Callable[[bytes], ResourceClaim]:
    """A decoder of claims. A claim that was made for one pod counts by its template: of it only its owner and its
    allocation are kept.
    """
    read = reader(ResourceClaim)

    def kept(raw: bytes) -> ResourceClaim:
        claim = read(raw)
        if not is_of_one_pod(claim):
            return claim
        whole = claim.metadata
        owners = tuple(
            OwnerReference(kind=owner.kind, name=owner.name, controller=True)
            for owner in whole.owner_references
            if owner.controller
        )
        meta = ObjectMeta(name=whole.name, namespace=whole.namespace, annotations=OF_ONE_POD, owner_references=owners)
        return ResourceClaim(metadata=meta, status=claim.status)

    return kept


def _slice_reader() -> Callable[[bytes], ResourceSlice]:
    """A decoder of slices. Parts that devices share are kept once: a node may publish hundreds that differ in their
    names alone.
    """
    read, interner = reader(ResourceSlice), ResourceSliceInterner()
    return lambda raw: interner.kept(read(raw))


def is_custom(resource: Resource) -> bool:
    """Whether a kind of jobs exists only if its CRD does: Kubernetes' own are in groups without a dot.

    A group's end ``.k8s.io`` tells nothing: ``sparkoperator.k8s.io`` has it.
    """
    return "." in resource.group


T = TypeVar("T")


def reader(type_: type[T]) -> Callable[[bytes], T]:
    """A decoder of JSON into ``type_``: by msgspec if that works, else field by field. Raises DecodeError with the
    field's path.

    msgspec alone is three times as fast, and refuses some nulls that the API server reads as absent. Parts that objects
    of this decoder share are the same objects, and so are texts. A Workload's status is NO_STATUS only if all of its
    metadata that another client may own is decoded too.
    """
    fast = SharingDecoder(type_, ALIKE, read_custom)

    def read(raw: bytes) -> T:
        try:
            return cast("T", interned(fast.decode(raw)))
        except (msgspec.MsgspecError, ValueError):
            return cast("T", interned(decode(raw, type_)))

    return cast("Callable[[bytes], T]", _marking(read)) if type_ is Workload else read


def _marking(read: Callable[[bytes], Any]) -> Callable[[bytes], Workload]:
    def marked(raw: bytes) -> Workload:
        workload: Workload = read(raw)
        if workload.status is NO_STATUS and has_more(raw):
            return msgspec.structs.replace(workload, status=EMPTY_STATUS)
        return workload

    return marked


_ANY_VERSION: Final = f'"{WORKLOADS.group}/v'.encode()
_THIS_VERSION: Final = f'"{WORKLOADS.api_version}"'.encode()


def has_more(raw: bytes) -> bool:
    """Whether a Workload may have a ``generateName``, or fields whose manager wrote them in another version of the API:
    a server before Kubernetes 1.35 then compares all of what is put. Its metadata are text enough.

    The text is searched: decoding the fields would cost memory for every object, and a false yes costs only a patch.
    """
    return b'"generateName"' in raw or raw.count(_ANY_VERSION) != raw.count(_THIS_VERSION)


class _Specified(msgspec.Struct):
    """The part of a Workload's JSON that is kept."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")


_POD_SETS: Final = "podSets"


class PackedSpec(msgspec.Struct, frozen=True, gc=False):
    """The JSON of a Workload's spec: its pod sets, packed, and its other fields. Specs with an equal part share one
    object for it. 12,000 of them take 35 MiB with their watch, 62 before they were packed (decision 090).
    """

    pod_sets: bytes
    rest: bytes

    def json(self) -> Json:
        """The JSON ``{"spec": ...}``, made anew each time."""
        spec = msgspec.json.decode(self.rest)
        if self.pod_sets:
            spec[_POD_SETS] = msgspec.json.decode(zlib.decompress(self.pod_sets))
        return {"spec": spec}


_MOST_SPECS: Final = 16_384


class RawWorkloads:
    """A decoder for the watch of Workloads that keeps the JSON of their specs, packed; ``of`` returns the newest.

    Jobs are restored from it, so it must lose no field that the typed copy lacks. Only ``read`` adds, for followers
    too; the leader's ``forget`` removes what is deleted. Equal JSON of a spec is decoded as the same object: its packed
    JSON is found by that, so that a change of a status costs next to nothing.
    """

    def __init__(self) -> None:
        self._read = reader(Workload)
        self._specified = msgspec.json.Decoder(_Specified)
        self._fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._specs: dict[WorkloadKey, PackedSpec] = {}
        self._known = ByIdentity[WorkloadSpec, PackedSpec](_MOST_SPECS)
        """Packed specs by the decoded ones. All are dropped when there are too many."""
        self._packed = Remembered(lambda text: zlib.compress(text, 1))
        self._rests = Remembered(bytes)

    def read(self, raw: bytes) -> Workload:
        workload = self._read(raw)
        found = self._known.get(id(workload.spec))
        self._specs[WorkloadKey(workload.key)] = found[1] if found is not None else self._pack(workload.spec, raw)
        return workload

    def _pack(self, spec: WorkloadSpec, raw: bytes) -> PackedSpec:
        fields = self._fields.decode(self._specified.decode(raw).spec)
        pod_sets = self._packed.of(bytes(fields.pop(_POD_SETS))) if _POD_SETS in fields else b""
        packed = PackedSpec(pod_sets, self._rests.of(msgspec.json.encode(fields)))
        return self._known.keep(spec, packed)

    def of(self, key: WorkloadKey) -> PackedSpec | None:
        return self._specs.get(key)

    def forget(self, key: WorkloadKey) -> None:
        self._specs.pop(key, None)


class SeenNamespaces:
    """A decoder for the watch of Namespaces that keeps the name of each it ever saw: stories name some that are
    gone.
    """

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._read = reader(Namespace)

    def read(self, raw: bytes) -> Namespace:
        found = self._read(raw)
        self.seen.add(found.metadata.name)
        return found
