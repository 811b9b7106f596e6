"""``trainer.kubeflow.org/v1alpha1`` TrainJob: the pod sets of the JobSet that its runtime makes of it.

Facts (kubeflow/trainer, pkg/runtime and its plugin jobset):
- ``runtimePatches`` are merged into the runtime's template in their order, by strategic merge: maps key by key, gates
  by their name, tolerations as a whole list. Then the job of the step ``trainer`` (in MPI: the one called ``node``)
  gets ``trainer.numNodes`` pods, or the policy's, and its container ``trainer.resourcesPerNode``.
- ``runtimePatches`` may change while the TrainJob is suspended. A running JobSet is not updated: what it is to run with
  must be written before it is unsuspended.
- ``spec.podSpecOverrides``, later ``spec.podTemplateOverrides``, were what ``runtimePatches`` are.
- ``spec.initializer`` adds variables to the runtime's initializers, which run with it and without it. At creation the
  runtime must have the job and the container of each part of it.
- Entries of ``runtimePatches`` have different managers, and items of lists in them different names: these are the keys
  of the CRD's lists.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from controller.jobs.framework.kind import ObjectKind, Outcome, Reference, Refusal, Review, Rule, fact
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import JobError, Json, flag, integer, mapping, merged, sequence, shown, text
from controller.jobs.framework.templated import Slot, TemplatedKind, ended, replaced, selector
from controller.jobs.kinds.jobset import all_jobs_ready, any_job_active, job_slots, may_restart, of_succeeded_jobs
from controller.jobs.rules import cel
from controller.scheduler.model.gates import FeatureGates

MANAGER: Final = "kueue.x-k8s.io/manager"
"""The manager's name in the entry of ``spec.runtimePatches`` that a start writes."""

GROUP: Final = "trainer.kubeflow.org"
CLUSTER_RUNTIMES: Final = ObjectKind(
    group=GROUP, version="v1alpha1", kind="ClusterTrainingRuntime", plural="clustertrainingruntimes", namespaced=False
)
RUNTIMES: Final = ObjectKind(group=GROUP, version="v1alpha1", kind="TrainingRuntime", plural="trainingruntimes")

_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER: Final = "trainer"
_INITIALIZERS: Final = ("dataset-initializer", "model-initializer")
_NODE, _LAUNCHER = "node", "launcher"
_JOBS_OF_PATCH: Final = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
_POD_TEMPLATE: Final = ("template", "spec", "template")
_OVERRIDES: Final = {"overrides": "podSpecOverrides", "templateOverrides": "podTemplateOverrides"}
"""Fields that are refused, by the names of their sentences in CEL."""
_CONTAINERS: Final = ("initContainers", "containers")
_NAMED: Final = (*_CONTAINERS, "schedulingGates", "volumes", "imagePullSecrets")
"""Lists of a patch's pod whose items have different names."""
_OLD_OVERRIDES: Final = "an older trainer's, which cannot be started with labels and gates: write spec.runtimePatches"


class TrainJob(TemplatedKind):
    """TrainJobs, see ``kind.JobKind``."""

    framework = "trainer.kubeflow.org/trainjob"
    group = GROUP
    version = "v1alpha1"
    kind = "TrainJob"
    plural = "trainjobs"
    managed_by_path = ("spec", "managedBy")
    own_controller = "trainer.kubeflow.org/trainjob-controller"
    reads = (CLUSTER_RUNTIMES, RUNTIMES)
    starts_in_two_writes = True

    def references(self, job: Json) -> tuple[Reference, ...]:
        return (_runtime_of(job),)

    def slots(self, job: Json) -> tuple[Slot, ...]:
        spec = job_set_spec(job)
        templates = [mapping(replicated, *_POD_TEMPLATE) for replicated in sequence(spec, "replicatedJobs")]
        return tuple(
            Slot(
                name=slot.name,
                path=slot.path,
                count=slot.count,
                index_label=slot.index_label,
                sub_group_label=slot.sub_group_label,
                sub_group_count=slot.sub_group_count,
                source=template,
                field=f"job[{slot.name}]",
                annotations_field=f"job[{slot.name}].annotations",
            )
            for slot, template in zip(job_slots(spec, ("spec",)), templates, strict=True)
        )

    def placed(self, job: Json, wanted: dict[str, Json]) -> Json:
        """The job with the manager's own entry of ``runtimePatches``: what the wanted templates have beyond the runtime
        and the other entries.
        """
        beneath = sequence(job_set_spec(job, own_patch=False), "replicatedJobs")
        jobs = []
        for replicated in beneath:
            name = text(replicated, "name")
            extra = _above(mapping(replicated, *_POD_TEMPLATE), wanted[name.lower()])
            if extra:
                jobs.append({"name": name, "template": {"spec": {"template": extra}}})
        return _with_own(job, jobs)

    def restored(self, job: Json, _workload: SeenWorkload) -> Json:
        """The job without what a start wrote, which lies in an entry of its own: the runtime alone then says what
        runs.
        """
        return _with_own(job, [])

    def defaulted(self, job: Json, _gates: FeatureGates | None = None) -> Json:
        """The job with the manager's entry: other writers of an existing list can be noticed."""
        patches = sequence(job, "spec", "runtimePatches")
        if any(_is_own(patch) for patch in patches):
            return job
        empty = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}
        return _patched(job, [*patches, empty])

    @cached_property
    def defaults_in_cel(self) -> str:
        patches = cel.field("object", "spec", "runtimePatches")
        path = cel.pointer("spec", "runtimePatches")
        own = f"{patches}.orValue([]).exists(p, p.?manager.orValue('') == {cel.quoted(MANAGER)})"
        empty = "{'template': {'spec': {}}}"
        entry = f"{{'manager': dyn({cel.quoted(MANAGER)}), 'trainingRuntimeSpec': dyn({empty})}}"
        more, first = cel.added(cel.quoted(f"{path}/-"), entry), cel.added(cel.quoted(path), f"[{entry}]")
        return f"({own} ? [] : {patches}.hasValue() ? [{more}] : [{first}])"

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        says = {
            name: cel.when(
                f"size({cel.field('object', 'spec', field)}.orValue([])) > 0",
                cel.says(f"spec.{field}", _OLD_OVERRIDES),
            )
            for name, field in _OVERRIDES.items()
        }
        return (Rule(refused=_overridden, says=says), Rule(refused=_uninitialized), Rule(refused=_repeated))

    def pod_selector(self, job: Json) -> str:
        return selector("jobset.sigs.k8s.io/jobset-name", job)

    def finished(self, job: Json) -> Outcome | None:
        return ended(job, "Complete", "Failed", what="TrainJob")

    def pods_ready(self, job: Json) -> bool:
        return all_jobs_ready(job_set_spec(job), sequence(job, "status", "jobsStatus"))

    def is_active(self, job: Json) -> bool:
        return any_job_active(sequence(job, "status", "jobsStatus"))

    def reclaimed(self, job: Json) -> dict[str, int]:
        spec = job_set_spec(job)
        if may_restart(spec, 0):
            return {}  # a restart, which the TrainJob's status does not count, would run them again
        return of_succeeded_jobs(spec, sequence(job, "status", "jobsStatus"))


def _overridden(review: Review) -> Iterator[Refusal]:
    for field in _OVERRIDES.values():
        if sequence(review.new, "spec", field):
            yield Refusal(type="Forbidden", field=f"spec.{field}", sentence=_OLD_OVERRIDES)


def _uninitialized(review: Review) -> Iterator[Refusal]:
    """Refusals of initializers that the runtime lacks. The trainer refuses such a job at its creation, so the API
    server needs no policy.
    """
    asked = mapping(review.new, "spec", "initializer")
    if not asked or review.before is not None or not mapping(review.new, "spec", "runtimeRef"):
        return
    reference = _runtime_of(review.new)
    runtime = fact(review.new, reference)
    if runtime is None:
        return
    containers_of = {
        text(each, "name"): _containers(mapping(each, *_POD_TEMPLATE))
        for each in sequence(runtime, "spec", "template", "spec", "replicatedJobs")
    }
    there = ", ".join(f"{name}[{' '.join(containers)}]" for name, containers in containers_of.items())
    for wanted in _INITIALIZERS:
        part = wanted.removesuffix("-initializer")
        if asked.get(part) is not None and wanted not in containers_of.get(wanted, ()):
            sentence = f"expected a runtime whose job {wanted} has a container of this name"
            sentence += f", found {shown(reference.name)} with {there or 'no jobs'}"
            yield Refusal(type="Invalid", field=f"spec.initializer.{part}", sentence=sentence)


def _containers(template: Json) -> list[str]:
    return [text(each, "name") for key in _CONTAINERS for each in sequence(template, "spec", key)]


def _repeated(review: Review) -> Iterator[Refusal]:
    """Refusals of repeated names. The API server refuses these by the CRD: without it, as in a simulation, only this
    rule does.
    """
    patches, field = sequence(review.new, "spec", "runtimePatches"), "spec.runtimePatches"
    yield from _again(patches, "manager", field)
    for index, patch in enumerate(patches):
        jobs, of_jobs = sequence(patch, *_JOBS_OF_PATCH), ".".join((f"{field}[{index}]", *_JOBS_OF_PATCH))
        yield from _again(jobs, "name", of_jobs)
        for at, changed in enumerate(jobs):
            for key in _NAMED:
                path = (*_POD_TEMPLATE, "spec", key)
                yield from _again(sequence(changed, *path), "name", ".".join((f"{of_jobs}[{at}]", *path)))


def _again(items: list[Json], key: str, field: str) -> Iterator[Refusal]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = text(item, key)
        if name in seen:
            sentence = f"expected each once, found again {shown(name)}"
            yield Refusal(type="Duplicate", field=f"{field}[{index}].{key}", sentence=sentence)
        seen.add(name)


def job_set_spec(job: Json, *, own_patch: bool = True) -> Json:
    """The part of the JobSet's spec by which pods are scheduled. Raises JobError.

    ``own_patch``: with the manager's entry of ``runtimePatches``.
    """
    for refusal in _overridden(Review(new=job)):
        raise JobError(f"{refusal.field}: {refusal.sentence}")
    reference = _runtime_of(job)
    runtime = fact(job, reference)
    if runtime is None:
        raise JobError(f"spec.runtimeRef: there is no {reference.kind.kind} {shown(reference.name)}")
    policy, spec = mapping(runtime, "spec", "mlPolicy"), mapping(runtime, "spec", "template", "spec")
    patches = [patch for patch in sequence(job, "spec", "runtimePatches") if own_patch or not _is_own(patch)]
    jobs = [_built(job, policy, _patched_by(patches, replicated)) for replicated in sequence(spec, "replicatedJobs")]
    return {**spec, "replicatedJobs": jobs}


def _runtime_of(job: Json) -> Reference:
    reference = mapping(job, "spec", "runtimeRef")
    kind, group = text(reference, "kind") or CLUSTER_RUNTIMES.kind, text(reference, "apiGroup") or GROUP
    known = next((each for each in (CLUSTER_RUNTIMES, RUNTIMES) if each.kind == kind), None)
    if known is None or group != GROUP:
        wanted = f"a {CLUSTER_RUNTIMES.kind} or {RUNTIMES.kind} of {GROUP}"
        raise JobError(f"spec.runtimeRef: expected {wanted}, found kind {shown(kind)} of {shown(group)}")
    return Reference(kind=known, name=text(reference, "name"))


def _patched_by(patches: list[Json], replicated: Json) -> Json:
    for patch in patches:
        for change in sequence(patch, *_JOBS_OF_PATCH):
            if text(change, "name") == text(replicated, "name"):
                template = _strategic(mapping(replicated, "template"), mapping(change, "template"))
                replicated = {**replicated, "template": template}
    return replicated


def _strategic(template: Json, change: Json) -> Json:
    """A strategic merge of a Job's template: like a merge patch, except that lists of named items are merged by
    name.
    """
    result: Json = merged(template, change)
    for keys in (("initContainers",), ("containers",), ("schedulingGates",)):
        path = ("spec", "template", "spec", *keys)
        changes = sequence(change, *path)
        if changes:
            result = replaced(result, path, _merged_by_name(sequence(template, *path), changes))
    return result


def _merged_by_name(items: list[Json], changes: list[Json]) -> list[Json]:
    by_name = {text(change, "name"): change for change in changes}
    known = {text(item, "name") for item in items}
    kept = [merged(item, by_name.get(text(item, "name"), {})) for item in items]
    return kept + [change for name, change in by_name.items() if name not in known]


def _built(job: Json, policy: Json, replicated: Json) -> Json:
    """A replicated job with the numbers and requests of the TrainJob and the runtime's policy."""
    labelled = mapping(replicated, "template", "metadata", "labels")
    step, name = labelled.get(_STEP), text(replicated, "name")
    count = integer(replicated, "template", "spec", "parallelism", default=1)
    if step == _TRAINER and policy:
        count = integer(policy, "numNodes", default=1)
    mpi = policy.get("mpi") is not None
    launcher_works = flag(policy, "mpi", "runLauncherAsNode") if mpi else False
    nodes = integer(job, "spec", "trainer", "numNodes", default=-1)
    if nodes >= 0 and (name == _NODE if mpi else step == _TRAINER):
        count = max(nodes - 1, 1) if launcher_works else nodes
    numbers = {"parallelism": count, "completions": count}
    if step == _TRAINER or step in _INITIALIZERS:
        replicated = {**replicated, "replicas": 1}
    given = mapping(job, "spec", "trainer", "resourcesPerNode")
    resources = {key: given[key] for key in ("limits", "requests") if given.get(key) is not None}
    at = (*_POD_TEMPLATE, "spec", "containers")
    if labelled and resources:
        named = (_NODE, _LAUNCHER) if launcher_works else (_NODE,)
        containers = [
            {**each, "resources": resources} if text(each, "name") in named else each
            for each in sequence(replicated, *at)
        ]
        replicated = replaced(replicated, at, containers)
    return replaced(replicated, ("template", "spec"), {**mapping(replicated, "template", "spec"), **numbers})


def _above(beneath: Json, wanted: Json) -> Json:
    """The patch that lays the placement of ``wanted`` over a template."""
    patch: dict[str, Any] = {}
    for outer, key in (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector")):
        have = mapping(beneath, outer, key)
        more = {name: value for name, value in mapping(wanted, outer, key).items() if have.get(name) != value}
        if more:
            patch.setdefault(outer, {})[key] = more
    for key in ("tolerations", "schedulingGates"):
        items = sequence(wanted, "spec", key)
        more_items = [item for item in items if item not in sequence(beneath, "spec", key)]
        if more_items:
            # Tolerations replace the list of the runtime; gates are merged into it by their names.
            patch.setdefault("spec", {})[key] = items if key == "tolerations" else more_items
    return patch


def _is_own(patch: Json) -> bool:
    return text(patch, "manager") == MANAGER


def _with_own(job: Json, jobs: list[Json]) -> Json:
    """The job with these Jobs in the manager's own entry of ``runtimePatches``; the very same object if it has them."""
    patches = sequence(job, "spec", "runtimePatches")
    own = next((patch for patch in patches if _is_own(patch)), {"manager": MANAGER})
    if sequence(own, *_JOBS_OF_PATCH) == jobs:
        return job
    spec = {key: value for key, value in mapping(own, *_JOBS_OF_PATCH[:-1]).items() if key != _JOBS_OF_PATCH[-1]}
    entry = replaced(own, _JOBS_OF_PATCH[:-1], {**spec, "replicatedJobs": jobs} if jobs else spec)
    listed = [entry if _is_own(patch) else patch for patch in patches]
    return _patched(job, listed if entry in listed else [*listed, entry])


def _patched(job: Json, patches: list[Json]) -> Json:
    return replaced(job, ("spec", "runtimePatches"), patches)
