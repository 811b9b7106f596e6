"""Turns documents into what a simulation starts from: objects for the engine, and jobs with their times.

The API server's part is done here: v1beta1 becomes v1beta2, namespaces exist, defaults of the schema are filled in.
Objects that a document refers to (priority classes, namespaces) may stand before or after it; of two documents for one
object the later one counts, as if both had been applied.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar

import msgspec

from controller.cluster.config.settings import NAMESPACE_NAME_LABEL, ControllerConfig, Policy
from controller.foreign.objects import KINDS
from controller.foreign.podgroups.group import group_queue
from controller.foreign.rules import servinggangs
from controller.foreign.rules.refusedkinds import REFUSED
from controller.foreign.rules.ruled import created
from controller.foreign.rules.table import FOREIGN_JOB, FOREIGN_KINDS
from controller.insight.bargaining.life import LONGEST_HOLD_S
from controller.insight.bargaining.wishes import Composer as RequestComposer
from controller.insight.simulation.bargained.requests import (
    REQUEST,
    GivenRequest,
    is_request,
    queue_of_request,
    queued_by_request,
    requests,
)
from controller.insight.simulation.crddefaults import with_defaults
from controller.insight.simulation.documents import Document, InputError, Json, named
from controller.insight.simulation.groups import KINDS_OF_GROUPS, groups
from controller.insight.simulation.inputs.kindwords import another_kind, unread_kind
from controller.insight.simulation.inputs.queuewords import passed_over
from controller.insight.simulation.jobkinds import JobKindsRead, is_declaration, kinds_read
from controller.insight.simulation.owners import Name, by_name, is_made, without_children
from controller.insight.simulation.pools.specs import FIXED, PoolFleet
from controller.insight.simulation.pools.templates import Templated, with_templates, wrong_template
from controller.insight.simulation.queued.aboveminimum import above_minimum
from controller.insight.simulation.queued.fractions import fleet_of, in_percents
from controller.insight.simulation.queued.growing import grown
from controller.insight.simulation.queued.nativegroups import NATIVE_KINDS, NativeGroups
from controller.insight.simulation.queued.replicas import KIND as DEPLOYMENT
from controller.insight.simulation.queued.replicas import is_spare, replicas
from controller.insight.simulation.start import EPOCH_S, as_at_start, base_of, drain_problem, wait_problem
from controller.insight.simulation.submissions import (
    DEFAULT_QUEUE,
    KINDS_OF_JOBS,
    POD,
    READ_KINDS,
    REFUSED_KINDS,
    Composer,
    PodGroups,
    Submission,
    apart,
    gathered,
    has_queue,
    names_queue,
    parts,
    pod_group_of,
)
from controller.jobs.framework.foreignmarks import as_queued, foreign_queue
from controller.jobs.framework.kind import Look, ObjectKind
from controller.jobs.framework.podview import GroupName, SeenPod
from controller.jobs.framework.raw import JobError, strings
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.objects.conversion import GROUP, HUB, OLD, ConversionError, convert
from controller.objects.core import Namespace, PriorityClass
from controller.objects.decode import DecodeError, UnknownKindError, decode_object
from controller.objects.meta import KubernetesObject, ObjectMeta
from controller.objects.queues import (
    ClusterQueue,
    LocalQueue,
    ResourceFlavor,
    WorkloadPriorityClass,
)
from controller.scheduler.flavors.spot import floor_problem, spot_problem
from controller.scheduler.mirror.specs import Adoption, QueueOwner, System, system_of
from controller.scheduler.quota.prices import order_problem

_CONTROLLER_NAMESPACE: Final = "tessera-system"
_CLUSTER_SCOPED: Final = (
    "AdmissionCheck",
    "ClusterQueue",
    "ClusterTrainingRuntime",
    "Cohort",
    "DeviceClass",
    "JobKind",
    "Namespace",
    "Node",
    "PriorityClass",
    "Queue",
    "ResourceFlavor",
    "ResourceSlice",
    "RuntimeClass",
    "Topology",
    "WorkloadPriorityClass",
)
_JOB_GROUPS: Final = (
    FOREIGN_JOB.group,
    "jobset.x-k8s.io",
    "kubeflow.org",
    "leaderworkerset.x-k8s.io",
    "ray.io",
    "sparkoperator.k8s.io",
    "trainer.kubeflow.org",
    "workload.codeflare.dev",
)
"""API groups that have jobs only: an unknown kind of them is an error, since leaving it out would change the result."""

_FOREIGN: Final = {
    (f"{kind.group}/{kind.version}", kind.kind): kind for kind in FOREIGN_KINDS if kind is not FOREIGN_JOB
}
"""Foreign kinds except for foreign Jobs, which are read with the jobs."""
_WITHOUT_EFFECT: Final = {(each.group, each.kind): each.sentence for each in REFUSED}
"""The sentences of other foreign kinds, which a cluster refuses, and what to write instead."""
_QUEUES: Final = ("ClusterQueue", "LocalQueue")
_PREEMPTION_DEFAULTS: Final = {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"}


T = TypeVar("T")
Facts = dict[tuple[ObjectKind, str, str], Json]
"""Objects that jobs are read together with, by kind, namespace (empty for the cluster's) and name."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation starts from. ``base_s``: seconds since 1970 at which virtual time starts. ``submissions`` are
    in the order of their arrival.

    ``warnings``: one line for everything that was read and has no part in the simulation. ``unqueued``: those of them
    about jobs that name no queue.
    """

    base_s: float
    objects: tuple[KubernetesObject, ...]
    submissions: tuple[Submission, ...]
    warnings: tuple[str, ...]
    unqueued: tuple[str, ...] = ()
    pools: PoolFleet = FIXED
    """Nodes that come and go."""
    start_told: bool = False
    """Whether ``base_s`` is a time that somebody told, and is shown."""
    requests: tuple[GivenRequest, ...] = ()
    """CapacityRequests in the order of their arrival."""
    longest_hold_s: float = LONGEST_HOLD_S
    """How long their offers are held at most."""
    systems: Mapping[System, Adoption] = {}
    """The systems of which Queues or jobs were read. The queues that each system has without an object are among
    ``objects``."""


def scenario(
    documents: Iterable[Document],
    config: ControllerConfig,
    nodes: Iterable[KubernetesObject] = (),
    pools: PoolFleet = FIXED,
    start_s: float | None = None,
) -> Scenario:
    """The scenario of the documents. ``nodes``: nodes with their GpuNodes that come beside the documents. ``pools``:
    those of them that come and go. ``start_s``: seconds since 1970 at which virtual time starts, if that is told.

    Raises InputError with all problems.
    """
    findings = _Findings([], [], [])
    jobs, objects = list[Document](), list[KubernetesObject]()
    pod_groups: dict[tuple[str, GroupName], Json] = {}
    facts: Facts = {}
    wishes: list[tuple[int, Document]] = []
    systems: set[System] = set()
    stored = [_stored(document) for document in named(map(_placed, documents))]
    externals, tiers = config.integrations.external_frameworks, config.tiers
    kinds = kinds_read(stored, externals, tiers, grow=config.jobs_grow)
    beside = tuple(nodes)
    fleet, known, natives = fleet_of(config.fractions, stored, beside), by_name(stored), NativeGroups()
    queues = {each.key: queue_of_request(each) for each in stored if is_request(each)}

    def take(document: Document) -> None:
        _check_foreign(document)
        _check_annotations(document)
        if is_request(document):
            wishes.append((len(jobs), document))
        elif _arrives(document, kinds):
            jobs.append(in_percents(queued_by_request(document, queues), fleet))
        elif (read := READ_KINDS.get((document.version, document.kind))) is not None:
            meta = document.data["metadata"]
            facts[read, meta["namespace"] if read.namespaced else "", meta["name"]] = document.data
        elif (group := pod_group_of(document)) is not None:
            pod_groups[document.data["metadata"]["namespace"], group] = document.data
        elif not natives.take(document):
            objects.extend(_object(document, kinds, findings.notes, known))

    for document in stored:
        if not is_declaration(document):
            findings.tried(partial(take, document), None)
    findings.end()
    outside = _Outside(config, objects)
    findings.errors += [*natives.wrong_levels(jobs, objects), *natives.wrong_priorities(jobs, objects)]
    findings.notes += [*natives.unread(jobs), *natives.surplus(jobs)]
    objects += natives.claims(objects)
    pod_groups |= natives.pod_groups()
    jobs = [findings.tried(partial(natives.joined, job, known), job) for job in jobs]
    jobs = [
        queued
        for job in jobs
        if (queued := findings.tried(partial(_queued, job, pod_groups, systems, outside, config.schedulers), None))
    ]
    systems |= {system_of(type(loaded)) for loaded in objects if isinstance(loaded, QueueOwner)}
    objects += _namespaces(objects, jobs)
    base_s = findings.tried(partial(base_of, objects, start_s), EPOCH_S)
    objects = [as_at_start(loaded, base_s) for loaded in objects]
    findings.notes += _without_effect(objects, config)
    composer = Composer(
        _settings(config),
        cluster_of(objects, lambda *named: facts.get(named)),
        base_s,
        _default_queues(objects),
        pod_groups,
        kinds,
        max_grace_s=config.engine.extensions.max_grace_s,
    )
    submissions = findings.tried(partial(_submissions, jobs, stored, objects, composer, findings), list[Submission]())
    asking = RequestComposer(composer.settings, composer.cluster)
    asked = findings.tried(
        partial(requests, wishes, asking, base_s, submissions, start_told=start_s is not None),
        tuple[GivenRequest, ...](),
    )
    findings.end()
    comes = config.engine.extensions.coming_nodes
    there = [*objects, *(as_at_start(loaded, base_s) for loaded in beside)]
    made = with_templates(there, pools) if comes else Templated(there, pools)
    return Scenario(
        base_s=base_s,
        requests=asked,
        longest_hold_s=config.bargaining.longest_hold_s,
        objects=tuple(made.objects),
        submissions=tuple(submissions),
        warnings=tuple(findings.notes),
        unqueued=tuple(findings.unqueued),
        pools=made.fleet,
        start_told=start_s is not None,
        systems={system: config.switch(system).adoption for system in sorted(systems)},
    )


def _check_annotations(document: Document) -> None:
    """Raises InputError for an annotation of ours that cannot be read."""
    annotations = strings(document.data, "metadata", "annotations")
    problem = ""
    if document.kind in _QUEUES:
        problems = (each(annotations) for each in (spot_problem, floor_problem, wait_problem, order_problem))
        problem = next(filter(None, problems), "")
    elif document.kind == "Node":
        problem = drain_problem(annotations)
    elif document.kind == "ResourceFlavor":
        problem = wrong_template(annotations)
    if problem:
        raise document.error(f"{document.subject}{problem}")


class _Findings(msgspec.Struct):
    """Sentences about the documents. ``unqueued``: a warning for each job that names no queue."""

    errors: list[str]
    notes: list[str]
    unqueued: list[str]

    def tried(self, work: Callable[[], T], otherwise: T) -> T:
        """The result of ``work``, or ``otherwise`` with its problems noted: one wrong document does not hide the
        problems of others.
        """
        try:
            return work()
        except InputError as wrong:
            self.errors += wrong.lines
            return otherwise

    def end(self) -> None:
        """Ends the reading. Raises InputError if there was an error."""
        if self.errors:
            raise InputError.of(self.errors)


# -- objects -----------------------------------------------------------------------------------------------------------


def _placed(document: Document) -> Document:
    """The document with its namespace: a namespaced object without one is in ``default``."""
    data = document.data
    if document.kind in _CLUSTER_SCOPED or data["metadata"].get("namespace"):
        return document
    return document.having({**data, "metadata": {**data["metadata"], "namespace": "default"}})


def _stored(document: Document) -> Document:
    """The document with the defaults of its CRD."""
    data = with_defaults(document.data)
    return document if data is document.data else document.having(data)


def _arrives(document: Document, kinds: JobKindsRead) -> bool:
    if document.kind == "Workload" and document.version.startswith(f"{GROUP}/"):
        return True
    what = (document.version, document.kind)
    return what in kinds or what in KINDS_OF_GROUPS or what in (POD, DEPLOYMENT)


def unqueued_kind(document: Document, kinds: Collection[tuple[str, str]]) -> str:
    """The problem of an object whose kind is close to one that queues, by name or version; empty for any other."""
    return another_kind(document, (*kinds, DEPLOYMENT, *KINDS_OF_GROUPS, POD))


def wrong_kinds(documents: Iterable[Document], config: ControllerConfig) -> Iterator[str]:
    """A line for each document of a kind, or a version of one, that no API server has and that is close to one that is
    read.
    """
    given = list(documents)
    kinds = kinds_read(given, config.integrations.external_frameworks, config.tiers)
    every = (*kinds, DEPLOYMENT, *KINDS_OF_GROUPS, POD, REQUEST, *KINDS, *READ_KINDS, *_FOREIGN, *NATIVE_KINDS)
    for each in given:
        if told := another_kind(each, every):
            yield told


def is_job(document: Document) -> bool:
    """Whether the document is of a kind of jobs that is read without a JobKind of the manifests."""
    return _arrives(document, KINDS_OF_JOBS)


def _object(
    document: Document, kinds: JobKindsRead, notes: list[str], known: Mapping[Name, Document]
) -> Iterator[KubernetesObject]:
    """The object, or a note for one without effect. Raises InputError.

    An object that the controller of a Deployment or another object made carries the labels of its pods: it is no job.
    """
    every = (*kinds, DEPLOYMENT, *KINDS_OF_GROUPS, POD)
    meant = another_kind(document, (*every, REQUEST, *KINDS, *READ_KINDS, *_FOREIGN, *NATIVE_KINDS))
    if meant and document.group == GROUP:
        raise InputError(meant)
    data = _hub(document)
    if (data["apiVersion"], data["kind"]) not in KINDS:
        what = f"{document.kind} of {document.version}"
        if sentence := REFUSED_KINDS.get((document.version, document.kind)):
            raise document.error(f"{what}: {sentence}")
        queues = names_queue(document) and not is_made(document, known)
        if meant:
            raise InputError(meant)
        if queues or document.group in _JOB_GROUPS:
            raise InputError(unread_kind(document, every))
        if document.kind == "Configuration":
            sentence = "found a configuration file, expected a manifest. Give it with --config"
            raise InputError(document.told(("kind",), sentence))
        why = _WITHOUT_EFFECT.get((document.group, document.kind), "")
        note = f"{what} decides nothing here, passed over"
        notes.append(f"{document.place()}: {note}{why and f' ({why})'}")
        return
    try:
        yield decode_object(_defaulted(data), KINDS)
    except UnknownKindError as error:  # pragma: no cover - looked up above
        raise document.error(error) from None
    except DecodeError as error:
        raise document.error(error) from None


def _check_foreign(document: Document) -> None:
    """Checks a foreign queue or PodGroup. Raises InputError if the API server refuses it."""
    kind = _FOREIGN.get((document.version, document.kind))
    if kind is None:
        return
    try:
        problem = next((f"{each.field}: {each.sentence}" for each in created(kind, document.data)), "")
    except JobError as error:
        problem = str(error)
    if problem:
        raise document.error(f"{document.kind} {document.data['metadata']['name']}: {problem}")


def _hub(document: Document) -> Json:
    """The object in v1beta2."""
    if document.version not in (OLD, HUB):
        return document.data
    try:
        return convert(document.data, HUB)
    except ConversionError as error:
        raise document.error(f"{document.kind} {document.data['metadata']['name']}: {error}") from None


def _defaulted(data: Json) -> Json:
    """The object with the defaults of its schema that decoding does not give."""
    spec = data.get("spec")
    preemption = spec.get("preemption") if isinstance(spec, dict) else None
    if data["kind"] != "ClusterQueue" or not isinstance(preemption, dict):
        return data
    filled = {**_PREEMPTION_DEFAULTS, **preemption}
    borrow = filled.get("borrowWithinCohort")
    if isinstance(borrow, dict):
        filled["borrowWithinCohort"] = {"policy": "Never", **borrow}
    return {**data, "spec": {**data["spec"], "preemption": filled}}


def _namespaces(objects: list[KubernetesObject], jobs: list[Document]) -> list[KubernetesObject]:
    """A Namespace for every name that is used, with the label that the API server puts on each."""
    given = [loaded for loaded in objects if isinstance(loaded, Namespace)]
    objects[:] = [loaded for loaded in objects if not isinstance(loaded, Namespace)]
    labels: dict[str, dict[str, str]] = {namespace.metadata.name: namespace.metadata.labels for namespace in given}
    used = {loaded.metadata.namespace for loaded in objects} | {job.data["metadata"]["namespace"] for job in jobs}
    names = sorted(name for name in used | labels.keys() if name)
    return [
        Namespace(metadata=ObjectMeta(name=name, labels={**labels.get(name, {}), NAMESPACE_NAME_LABEL: name}))
        for name in names
    ]


def _without_effect(objects: Iterable[KubernetesObject], config: ControllerConfig) -> Iterator[str]:
    """A sentence for each setting of the manifests that has no effect under this configuration."""
    for loaded in objects:
        if not isinstance(loaded, ClusterQueue):
            continue
        name, spec = loaded.metadata.name, loaded.spec
        scope = spec.admission_scope
        by_usage = scope is not None and scope.admission_mode == "UsageBasedAdmissionFairSharing"
        if by_usage and config.engine.admission_fair_sharing is None:
            yield f"ClusterQueue {name}: usage-based admission needs admissionFairSharing in --config: no effect"


# -- jobs --------------------------------------------------------------------------------------------------------------


def _submissions(
    jobs: list[Document],
    given: list[Document],
    objects: list[KubernetesObject],
    composer: Composer,
    findings: _Findings,
) -> list[Submission]:
    """The submissions of jobs that no other job made; ``given`` are all documents. Raises InputError."""
    labels = {loaded.metadata.name: loaded.metadata.labels for loaded in objects if isinstance(loaded, Namespace)}
    queues = _default_queues(objects)

    def is_queued(document: Document) -> bool:
        namespace = document.data["metadata"].get("namespace", "")
        return _arrives(document, composer.kinds) and composer.is_queued(document, labels.get(namespace, {}))

    def parts_of(job: Document) -> list[Document]:
        made = [group for replica in _checked(job, queues, composer, labels) for group in groups(replica, queues)]
        made = [part for each in made for part in above_minimum(each)]
        return [part for each in made for part in grown(each, composer.kinds)]

    jobs = without_children(jobs, given, is_queued, findings.notes)
    jobs = [part for job in jobs for part in findings.tried(partial(parts_of, job), list[Document]())]
    submissions: list[Submission] = []
    seen: dict[str, Document] = {}
    every = [part for documents in gathered(jobs) for part in parts(documents, composer.pod_groups)]
    for order, documents in enumerate(every):
        stored = [each.having(_hub(each)) for each in documents]
        namespace = stored[0].data["metadata"]["namespace"]
        try:
            one = composer.submission(stored, order, labels.get(namespace, {}))
        except InputError as wrong:
            findings.errors += wrong.lines
            continue
        if one is not None and one.key in seen and not _is_alike(documents[0], seen[one.key]):
            one = one.renamed(apart(documents[0]))
            findings.notes.append(f"{documents[0].place()}: {documents[0].kind} {one.key} is called so here")
        if one is None:
            _pass_over(documents[0], objects, findings)
        elif one.key in seen:
            findings.errors.append(_taken(documents[0], one.key, seen[one.key]))
        else:
            seen[one.key] = documents[0]
            submissions.append(one)
    return sorted(submissions, key=lambda loaded: (loaded.arrival_s, loaded.order))


def _pass_over(document: Document, objects: list[KubernetesObject], findings: _Findings) -> None:
    """Notes a warning for a job without a queue: nobody writes a job to see it left out."""
    metadata = document.data["metadata"]
    where = f"{metadata['namespace']}/{metadata['name']}"
    if document.kind == "Workload" or has_queue(document):
        note = f"{document.kind} {where} is finished, or not managed here, passed over"
        findings.notes.append(f"{document.place()}: {note}")
        return
    queues = {
        one.metadata.name
        for one in objects
        if isinstance(one, LocalQueue) and one.metadata.namespace == metadata["namespace"]
    }
    findings.unqueued.append(passed_over(document, queues))


def _is_alike(one: Document, other: Document) -> bool:
    """Whether both documents are one object to an API server, or pods of one group."""
    if (one.version, one.kind) == (other.version, other.kind) == POD:
        return SeenPod(one.data).foreign_group == SeenPod(other.data).foreign_group
    return (one.group, one.kind) == (other.group, other.kind)


def _taken(document: Document, key: str, first: Document) -> str:
    sentence = f"found the name {key}, expected another: {first.kind} in {first.place()} has it"
    return document.told(("metadata", "name"), sentence)


def _checked(
    job: Document, queues: frozenset[str], composer: Composer, labels: Mapping[str, Mapping[str, str]]
) -> list[Document]:
    """The job as it is, or the pods that a Deployment makes, all alike. Raises InputError for a job that is refused."""
    of_namespace = labels.get(job.data["metadata"]["namespace"], {})
    composer.check(job, of_namespace)
    made = replicas(job, queues)
    if made and made[0] is not job:
        composer.check(made[0], of_namespace)
    return made


def _default_queues(objects: Iterable[KubernetesObject]) -> frozenset[str]:
    found = (loaded.metadata for loaded in objects if isinstance(loaded, LocalQueue))
    return frozenset(loaded.namespace for loaded in found if loaded.name == DEFAULT_QUEUE)


class _Outside:
    """Whether a system's switch leaves a namespace out."""

    def __init__(self, config: ControllerConfig, objects: Iterable[KubernetesObject]) -> None:
        self._config = config
        given = (loaded for loaded in objects if isinstance(loaded, Namespace))
        self._labels = {each.metadata.name: each.metadata.labels for each in given}

    def __call__(self, system: System, namespace: str) -> bool:
        labels = {**self._labels.get(namespace, {}), NAMESPACE_NAME_LABEL: namespace}
        return not self._config.switch(system).namespaces.matches(labels)


def _queued(
    document: Document,
    pod_groups: PodGroups,
    systems: set[System],
    outside: _Outside,
    schedulers: Mapping[str, System],
) -> Document:
    """The document with Kueue's label if its job is for a foreign queue. Raises InputError."""

    def queue_of(namespace: str, name: GroupName) -> str:
        return group_queue(name, pod_groups.get((namespace, name)))

    if document.kind == "Workload":
        return document
    try:
        queue = foreign_queue(document.data, queue_of, schedulers)
        if queue is None or outside(queue.system, document.data["metadata"]["namespace"]):
            return document
        systems.add(queue.system)
        return document.having(as_queued(servinggangs.in_queue(document.data, queue), queue_of, schedulers))
    except JobError as error:
        raise document.error(f"{document.kind} {document.data['metadata']['name']}: {error}") from None


def _settings(config: ControllerConfig) -> JobSettings:
    return JobSettings(
        manage_jobs_without_queue_name=config.manage_jobs_without_queue_name,
        managed_jobs_namespace_selector=config.namespace_selector(_CONTROLLER_NAMESPACE),
        label_keys_to_copy=config.integrations.label_keys_to_copy,
        keeps_minimum=config.policy is Policy.TESSERA,
        injected=config.injected,
        tiers=config.tiers,
        gates=config.engine.gates,
    )


def cluster_of(objects: Iterable[KubernetesObject], look: Look) -> ClusterObjects:
    """The objects that jobs are composed with: all of these, and no others."""
    all_objects = list(objects)
    flavors = {loaded.metadata.name: loaded for loaded in all_objects if isinstance(loaded, ResourceFlavor)}
    workload_classes = {
        loaded.metadata.name: loaded.value for loaded in all_objects if isinstance(loaded, WorkloadPriorityClass)
    }
    pod_classes = {loaded.metadata.name: loaded for loaded in all_objects if isinstance(loaded, PriorityClass)}
    defaults = sorted(
        (class_ for class_ in pod_classes.values() if class_.global_default),
        key=lambda class_: (class_.value, class_.metadata.name),
    )
    system = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

    def pod_priority(name: str) -> int | None:
        return pod_classes[name].value if name in pod_classes else system.get(name)

    return ClusterObjects(
        flavor=flavors.get,
        workload_priority=workload_classes.get,
        pod_priority=pod_priority,
        global_default=lambda: (defaults[0].metadata.name, defaults[0].value) if defaults else None,
        owner=lambda _namespace, _reference: None,
        is_job_kind=lambda _version, _kind: False,
        may_be_spare=is_spare,
        is_admitted=lambda _uid: False,
        look=look,
    )
