"""Kinds whose pod templates lie in their own object: a kind declares what differs, the rest of ``kind.JobKind`` is
here.

A kind is a subclass: names and paths as class attributes, ``slots`` for where its templates lie and how many pods are
made of each, and what its status means. Start and stop write five parts of a template (labels, annotations, node
selector, tolerations, scheduling gates) and nothing else.

A path may lead through lists, and a merge patch replaces a list whole: every patch of a template therefore carries the
resourceVersion of the job it was computed from.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

from controller.jobs.framework.kind import JobKind, Outcome, Patch, tie
from controller.jobs.framework.marks import is_elastic
from controller.jobs.framework.podsets import (
    JobPodSet,
    PodSetInfo,
    SeenWorkload,
    StartConflictError,
    check_requests,
    is_marked,
    is_started,
    started_template,
    template_patch,
)
from controller.jobs.framework.raw import (
    JobError,
    Json,
    condition,
    has_condition,
    mapping,
    sequence,
    shown,
    strings,
    text,
)
from controller.jobs.framework.topologyrequest import check_groups, ranked, topology_request
from controller.objects.meta import Struct

Path = tuple[str | int, ...]
"""Keys of objects and indexes of lists."""

MAX_POD_SETS: Final = 18
"""The most pod sets of a Workload, by its CRD."""

_PLACEMENT: Final = {"metadata": ("labels", "annotations"), "spec": ("nodeSelector", "tolerations", "schedulingGates")}


class Slot(Struct, frozen=True, kw_only=True):
    """One pod set of a job: where its template lies in the object, and how many pods are made of it.

    ``index_label`` is the label with a pod's number in its set, or in its sub group where there are any. ``charged``
    makes the template that pods really have of the written one, if the kind's controller adds to it: it leaves the
    parts alone that a start writes. ``source`` is the written template of a kind that keeps it elsewhere. ``injected``
    names the init container that the kind's controller puts into the pods; the configuration says what it requests.
    ``field``, ``annotations_field``: the paths as users of the kind know them, if they differ from ``path``.
    """

    name: str
    path: Path
    count: int
    index_label: str | None = None
    sub_group_label: str | None = None
    sub_group_count: int | None = None
    charged: Callable[[Json], Json] | None = None
    source: Json | None = None
    injected: str = ""
    field: str = ""
    annotations_field: str = ""

    @property
    def shown(self) -> str:
        return self.field or dotted(self.path)

    @property
    def annotations_shown(self) -> str:
        return self.annotations_field or f"{self.shown}.metadata.annotations"

    def template(self, job: Json) -> Json:
        """The pod template with everything that the kind's controller adds; requests are computed from it."""
        written = self.written(job)
        return written if self.charged is None else self.charged(written)

    def written(self, job: Json) -> Json:
        if self.source is not None:
            return self.source
        found = located(job, self.path)
        if found is not None and not isinstance(found, dict):
            raise JobError(f"{self.shown}: expected a pod template, found {type(found).__name__}")
        return found or {}


class TemplatedKind(JobKind):
    """A kind with templates, see ``kind.JobKind``. ``priority_class_path``: the kind's own field for the pods'
    PriorityClass, if it has one.

    ``starts_in_two_writes``: the templates must have been written before the job is unsuspended, and are put back only
    when its pods are gone.
    """

    priority_class_path: tuple[str, ...] = ()
    starts_in_two_writes: bool = False
    only_queued_are_judged: bool = False

    # -- what a kind declares ----------------------------------------------------------------------------------------

    @abstractmethod
    def slots(self, job: Json) -> tuple[Slot, ...]:
        """The slots of a job in the order of its pod sets, names in lower case. Raises JobError."""

    @abstractmethod
    def is_active(self, job: Json) -> bool:
        """Whether pods of the job may exist, by its status."""

    def says_suspended(self, job: Json) -> bool:
        """Whether the kind's controller has seen the suspension: before it, "no active pods" may be an old count.

        A job without any condition was never seen to run.
        """
        return has_condition(job, "Suspended") or not sequence(job, "status", "conditions")

    def reclaimed(self, _job: Json) -> dict[str, int]:
        """Pods by pod set that will not be needed any more, by the job's status."""
        return {}

    # -- what follows from it ----------------------------------------------------------------------------------------

    def pod_sets(self, job: Json) -> tuple[JobPodSet, ...]:
        elastic = self.can_be_elastic and is_elastic(job)
        found = tuple(self._pod_set(job, slot, elastic=elastic) for slot in self._checked_slots(job))
        check_groups([(each.name, each.count, each.topology_request) for each in found])
        return found

    def _checked_slots(self, job: Json) -> tuple[Slot, ...]:
        version = text(job, "apiVersion").rpartition("/")[2]
        if version in self.refused_versions:
            raise JobError(f"apiVersion: found {version}: {self.refused_versions[version]}")
        slots = self.slots(job)
        if not 1 <= len(slots) <= MAX_POD_SETS:
            raise JobError(f"spec: expected 1 to {MAX_POD_SETS} pod sets, found {len(slots)}")
        twice = next((slot.name for index, slot in enumerate(slots) if slot.name in _names(slots[:index])), None)
        if twice is not None:
            raise JobError(f"spec: expected pod sets of different names, found {shown(twice)} twice")
        low = next((slot for slot in slots if slot.count < 0), None)
        if low is not None:
            raise JobError(f"{low.shown}: expected a number of pods of at least 0, found {low.count}")
        return slots

    def _pod_set(self, job: Json, slot: Slot, *, elastic: bool) -> JobPodSet:
        template = slot.template(job)
        check_requests(template, slot.shown)
        request = topology_request(
            strings(template, "metadata", "annotations"),
            path=slot.annotations_shown,
            count=slot.count,
            elastic=elastic,
        )
        request = ranked(request, slot.index_label, slot.sub_group_label, slot.sub_group_count)
        return JobPodSet(name=slot.name, count=slot.count, template=template, topology_request=request)

    def templates(self, job: Json) -> dict[str, Json]:
        return {slot.name: slot.template(job) for slot in self.slots(job)}

    def injected(self, job: Json) -> dict[str, str]:
        return {slot.name: slot.injected for slot in self.slots(job) if slot.injected}

    def counts(self, job: Json) -> dict[str, int]:
        return {slot.name: slot.count for slot in self.slots(job)}

    def pod_priority_class(self, job: Json) -> str:
        if self.priority_class_path and (own := text(job, *self.priority_class_path)):
            return own
        templates = (slot.written(job) for slot in self.slots(job))
        return next((name for each in templates if (name := text(each, "spec", "priorityClassName"))), "")

    def is_stopped(self, job: Json) -> bool:
        if not self.is_suspended(job) or self.is_active(job):
            return False
        # A job that is being deleted may get no condition any more.
        return bool(text(job, "metadata", "deletionTimestamp")) or self.says_suspended(job)

    def reclaimable(self, job: Json, workload: SeenWorkload) -> dict[str, int]:
        asked = {pod_set.name: pod_set.count for pod_set in workload.typed.spec.pod_sets}
        spare = {name: min(count, asked.get(name, 0)) for name, count in self.reclaimed(job).items()}
        return {name: count for name, count in spare.items() if count > 0}

    def is_started(self, job: Json, workload: SeenWorkload) -> bool:
        written = {slot.name: slot.written(job) for slot in self.slots(job)}
        marked = [name for name, template in written.items() if is_marked(template)]
        if not marked:
            return False
        originals = workload.templates()
        return any(is_started(written[name], originals.get(name, {})) for name in marked)

    def start(self, job: Json, workload: SeenWorkload, infos: tuple[PodSetInfo, ...]) -> tuple[Patch, ...]:
        slots, originals = self.slots(job), workload.templates()
        by_name = {info.name: info for info in infos}
        if set(_names(slots)) != originals.keys() or by_name.keys() != originals.keys() or len(infos) != len(slots):
            raise StartConflictError(
                f"workload {workload.name}: expected an assignment of each of the pod sets {', '.join(_names(slots))}, "
                f"found {', '.join(info.name for info in infos) or 'none'}"
            )
        wanted = {slot.name: started_template(originals[slot.name], by_name[slot.name]) for slot in slots}
        placed = self.placed(job, wanted)
        if placed is not job:
            if not self.is_stopped(job):
                return ()
            if self.starts_in_two_writes:
                return (_tied(job, placed),)
        return (_tied(job, replaced(placed, self.suspend_path, False)),)

    def stop(self, job: Json, workload: SeenWorkload | None) -> tuple[Patch, ...]:
        suspended = self.is_suspended(job)
        if suspended and (workload is None or not self.is_started(job, workload)):
            return ()
        restored = job
        if not self.starts_in_two_writes or self.is_stopped(job):
            restored = self._restored(job, workload)
        if suspended:
            return () if restored is job else (_tied(job, restored),)
        if restored is job:
            return (self.suspend(job),)
        return (_tied(job, replaced(restored, self.suspend_path, True)),)

    def _restored(self, job: Json, workload: SeenWorkload | None) -> Json:
        """The job with its templates' placement as the workload has it; the very same object if the workload does not
        tell.
        """
        try:
            # A job with other pod sets became another job: its former templates are not known.
            if workload is None or set(_names(self.slots(job))) != workload.templates().keys():
                return job
            return self.restored(job, workload)
        except JobError:
            return job

    def restored(self, job: Json, workload: SeenWorkload) -> Json:
        """The job with the workload's spec in all that starts write; the very same object if it is equal."""
        return self.placed(job, workload.templates())

    def placed(self, job: Json, wanted: dict[str, Json]) -> Json:
        """The job with the placement of these templates, by pod set, in its own; the very same object if it is
        equal.
        """
        for slot in self.slots(job):
            now = slot.written(job)
            if template_patch(now, wanted[slot.name]):
                job = replaced(job, slot.path, with_placement(now, wanted[slot.name]))
        return job


def dotted(path: Path) -> str:
    """A path as text: ``spec.replicatedJobs[0].template``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def located(job: Json, path: Path) -> Any:
    """The value at ``path``; None if it, or anything on the way to it, is absent or null."""
    value: Any = job
    for index, key in enumerate(path):
        if value is None:
            return None
        if isinstance(key, int) and isinstance(value, list):
            value = value[key] if key < len(value) else None
        elif isinstance(key, str) and isinstance(value, dict):
            value = value.get(key)
        else:
            what = "a list" if isinstance(key, int) else "an object"
            raise JobError(f"{dotted(path[:index])}: expected {what}, found {type(value).__name__}")
    return value


def replaced(job: Json, path: Path, new: Any) -> Json:
    """``job`` with ``new`` at ``path``, which is not empty; the result shares all that is not on the way there."""
    found: Json = _with(job, path, new)
    return found


def _with(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(key, int):
        return [_with(item, rest, new) if index == key else item for index, item in enumerate(value)]
    found: Json = value or {}
    return {**found, key: _with(found.get(key), rest, new)}


def nested(path: tuple[str, ...], value: Any) -> Json:
    """The merge patch that sets one value."""
    return replaced({}, path, value)


def difference(now: Json, wanted: Json) -> Json:
    """The merge patch (RFC 7386) from one object to another; it has lists as a whole."""
    patch: Json = {key: None for key in now if key not in wanted}
    for key, value in wanted.items():
        have = now.get(key)
        if have is value or (key in now and have == value):
            continue
        patch[key] = difference(have, value) if isinstance(have, dict) and isinstance(value, dict) else value
    return patch


def with_placement(now: Json, wanted: Json) -> Json:
    """A copy of the template ``now`` with all that starts and stops write as ``wanted`` has it."""
    result = dict(now)
    for outer, keys in _PLACEMENT.items():
        source = mapping(wanted, outer)
        inner = {key: value for key, value in mapping(now, outer).items() if key not in keys}
        inner |= {key: source[key] for key in keys if key in source}
        if inner or outer in wanted:
            result[outer] = inner
        else:
            result.pop(outer, None)
    return result


def ended(job: Json, succeeded: str, failed: str, *, what: str) -> Outcome | None:
    """The outcome by conditions of these types, with their message if they have one; None if neither is true."""
    if has_condition(job, succeeded):
        return Outcome(
            reason="Succeeded", message=text(condition(job, succeeded), "message") or f"{what} finished successfully"
        )
    if has_condition(job, failed):
        return Outcome(reason="Failed", message=text(condition(job, failed), "message") or f"{what} failed")
    return None


def selector(label: str, job: Json) -> str:
    """The label selector of pods that carry the job's name in ``label``."""
    return f"{label}={text(job, 'metadata', 'name')}"


def _names(slots: tuple[Slot, ...]) -> list[str]:
    return [slot.name for slot in slots]


def _tied(job: Json, wanted: Json) -> Patch:
    """The patch to ``wanted`` that applies only to the job as it was seen."""
    patch = difference(job, wanted)
    return Patch(body={**patch, "metadata": {**patch.get("metadata", {}), **tie(job)}})
