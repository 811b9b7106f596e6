"""A kind of job made of a JobKind's specification: it answers as a kind in code does, by JSON paths.

What the specification cannot guarantee is checked in each object: that templates exist and lie apart, that a Workload
takes the names, that numbers are numbers. An object that fails is refused with a JobError.
"""

import re
from collections.abc import Iterator
from typing import Final

from controller.jobs.framework.kind import Outcome
from controller.jobs.framework.raw import JobError, Json, integer, shown
from controller.jobs.framework.templated import Path, Slot, TemplatedKind, dotted, located, selector
from controller.jobs.kinds.declared.paths import items, number, parsed, words
from controller.jobs.kinds.declared.statustests import CONDITIONS, StatusReader
from inventory.api.jobkind import PodSetFields, SpecFields, StatusTest

MAX_PODS: Final = 2**31 - 1
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_OWNER_LABEL: Final = "app.kubernetes.io/instance"


class DeclaredKind(TemplatedKind):
    """A declared kind, see ``kind.JobKind``. ``spec`` has passed ``spec.read``.

    ``leaving``: the JobKind is being deleted. Running objects go on to their end, and none starts any more.
    """

    def __init__(self, spec: SpecFields, *, leaving: bool = False) -> None:
        self.spec = spec
        self.leaving = leaving
        self.group, self.version, self.kind, self.plural = spec.group, spec.version, spec.kind, spec.plural
        self.framework = f"{spec.group}/{spec.kind.lower()}"
        self.suspend_path = tuple(spec.suspend.removeprefix(".").split("."))
        self._status = StatusReader(_path(spec.conditions) or CONDITIONS)
        self._observed, self._message = _path(spec.observed_generation), _path(spec.message)
        self._priority_class = _path(spec.priority_class)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeclaredKind) and (self.spec, self.leaving) == (other.spec, other.leaving)

    def __hash__(self) -> int:
        return hash((self.framework, self.leaving))

    # -- pod sets ----------------------------------------------------------------------------------------------------

    def slots(self, job: Json) -> tuple[Slot, ...]:
        found = tuple(slot for _, _, slot in self._found(job))
        _check_apart([slot.path for slot in found], self.suspend_path)
        return found

    def _found(self, job: Json) -> Iterator[tuple[PodSetFields, str | int | None, Slot]]:
        """The pod sets of an object, each with the item that ``[*]`` stands for and its slot."""
        for pod_set in self.spec.pod_sets:
            template = parsed(pod_set.template)
            if template.has_all:
                for item, path in items(job, template):
                    yield pod_set, item, _slot(job, pod_set, item, path)
                continue
            path = template.bound(None)
            if not pod_set.optional or located(job, path) is not None:
                yield pod_set, None, _slot(job, pod_set, None, path)

    def pod_priority_class(self, job: Json) -> str:
        own = words(job, self._priority_class) if self._priority_class else ""
        return own or super().pod_priority_class(job)

    def pod_selector(self, job: Json) -> str:
        """The selector of its pods. It is used for elastic kinds only, which none of these is."""
        return selector(_OWNER_LABEL, job)

    # -- status ------------------------------------------------------------------------------------------------------

    def finished(self, job: Json) -> Outcome | None:
        if self._holds(self.spec.succeeded, job):
            return Outcome(reason="Succeeded", message=self._said(self.spec.succeeded, job, "finished successfully"))
        if self._holds(self.spec.failed, job):
            return Outcome(reason="Failed", message=self._said(self.spec.failed, job, "failed"))
        return None

    def _said(self, test: StatusTest | None, job: Json, otherwise: str) -> str:
        own = words(job, self._message) if self._message else ""
        of_condition = self._status.said(test, job) if test is not None else ""
        return own or of_condition or f"{self.kind} {otherwise}"

    def pods_ready(self, job: Json) -> bool:
        return self._holds(self.spec.ready, job, sum(slot.count for slot in self.slots(job)))

    def is_active(self, job: Json) -> bool:
        return self._holds(self.spec.active, job)

    def says_suspended(self, job: Json) -> bool:
        """Whether the object's controller has seen the suspension. It has not seen an object without a status, or with
        the status of its creation.
        """
        if self.spec.suspended is not None and job.get("status") and not self._holds(self.spec.suspended, job):
            return False
        generation = integer(job, "metadata", "generation", default=1)
        if not self._observed or generation <= 1:
            return True
        return (number(job, self._observed) or 0) >= generation

    def reclaimed(self, job: Json) -> dict[str, int]:
        return {
            slot.name: max(0, number(job, parsed(pod_set.reclaimable).bound(item)) or 0)
            for pod_set, item, slot in self._found(job)
            if pod_set.reclaimable is not None
        }

    def is_on_hold(self, job: Json) -> bool:
        return self.leaving and self.is_suspended(job)

    def _holds(self, test: StatusTest | None, job: Json, pods: int = 0) -> bool:
        return test is not None and self._status.holds(test, job, pods)


def _path(given: str | None) -> Path:
    return parsed(given).bound(None) if given is not None else ()


def _slot(job: Json, pod_set: PodSetFields, item: str | int | None, path: Path) -> Slot:
    if located(job, path) is None:
        raise JobError(f"{dotted(path)}: expected a pod template, found none")
    replicas = 1 if pod_set.replicas is None else _number(job, pod_set.replicas, item, 1)
    count = replicas * _each(job, pod_set, item)
    if not 0 <= count <= MAX_PODS:
        raise JobError(f"{dotted(path)}: expected a number of pods of 0 to {MAX_PODS}, found {count}")
    return Slot(
        name=_name(job, pod_set, item, path),
        path=path,
        count=count,
        index_label=pod_set.index_label,
        sub_group_label=pod_set.replica_label,
        sub_group_count=replicas if pod_set.replica_label is not None else None,
    )


def _each(job: Json, pod_set: PodSetFields, item: str | int | None) -> int:
    """The number of pods of one replica."""
    default = 1 if pod_set.default_count is None else pod_set.default_count
    count = default if pod_set.count is None else _number(job, pod_set.count, item, default)
    return count if pod_set.at_most is None else min(count, _number(job, pod_set.at_most, item, count))


def _number(job: Json, path: str, item: str | int | None, default: int) -> int:
    where = parsed(path).bound(item)
    found = number(job, where)
    if found is not None and not 0 <= found <= MAX_PODS:
        raise JobError(f"{dotted(where)}: expected a number of 0 to {MAX_PODS}, found {found}")
    return default if found is None else found


def _name(job: Json, pod_set: PodSetFields, item: str | int | None, path: Path) -> str:
    where = dotted(path)
    if pod_set.name_from is not None:
        named = parsed(pod_set.name_from).bound(item)
        where, written = dotted(named), words(job, named)
    elif item is None:
        written = pod_set.name or ""
    else:
        written = str(item) if pod_set.name is None else f"{pod_set.name}-{item}"
    name = written.lower()
    if _NAME.fullmatch(name) is None:
        raise JobError(
            f"{where}: expected a name of letters, digits and dashes for its pod set, found {shown(written)}"
        )
    return name


def _check_apart(templates: list[Path], suspend: tuple[str, ...]) -> None:
    """Checks that no two paths lead to one template, as ``[0]`` and ``[*]`` may: only an object tells. Raises
    JobError.
    """
    for index, path in enumerate(templates):
        for other in templates[:index]:
            if path[: len(other)] == other or other[: len(path)] == path:
                raise JobError(f"{dotted(path)}: expected a template of its own, found it in {dotted(other)} too")
        if suspend[: len(path)] == path:
            raise JobError(
                f"{dotted(suspend)}: expected a field outside of the pod templates, found it in {dotted(path)}"
            )
