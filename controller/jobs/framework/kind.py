"""The interface of a kind of job. One module implements each kind; everything else is common.

Twelve questions every kind answers. The others are capabilities: each base of ``JobKind`` is one, and says of a kind
without it that it has nothing of it.

All methods are pure: they read the job's JSON as a watch showed it and return patches for a shell to send. JobError
means that the job is not what its kind allows, in one sentence for its owner. Methods that must work for a job that
runs already (``stop`` above all) do not raise it for annotations that went bad since.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, Self

from controller.jobs.framework.podsets import JobPodSet, PodSetInfo, SeenWorkload
from controller.jobs.framework.raw import Json, flag, integer, mapping, text
from controller.objects.meta import Struct
from controller.scheduler.model.gates import FeatureGates

Ending = Literal["Succeeded", "Failed"]
FACTS: Final = "$facts"
"""The key under which ``completed`` puts other objects into a job's JSON. No patch names it, so it never leaves the
process."""


class Patch(Struct, frozen=True, kw_only=True):
    """A merge patch (RFC 7386) of the job, or of its ``status``.

    The uid in its metadata protects another job of the same name (the API server answers 422), a resourceVersion
    protects a job that has changed since (409). Either way the job is reconciled again.
    """

    body: Json
    subresource: Literal["", "status"] = ""


def tie(job: Json) -> Json:
    """The metadata of a patch that holds for the job as it was seen, and for no other state of it.

    Without the version, the stop of a former leader that arrives late would stop a job that runs again.
    """
    return {key: text(job, "metadata", key) for key in ("uid", "resourceVersion")}


class Outcome(Struct, frozen=True, kw_only=True):
    """How a job ended."""

    reason: Ending
    message: str


class Refusal(Struct, frozen=True, kw_only=True):
    """Why a job may not be created or changed in this way: ``type`` is Kubernetes' field error, ``field`` its path."""

    type: Literal["Invalid", "Forbidden", "Required", "NotSupported", "Duplicate", "TooLong", "TooMany"]
    field: str
    sentence: str


class Review(Struct, frozen=True, kw_only=True):
    """A job that is created, or changed from ``before``, as rules read it.

    ``was_suspended``, ``is_suspended``: before and after. ``has_default_queue``: its namespace has a LocalQueue
    ``default``.
    """

    new: Json
    before: Json | None = None
    gates: FeatureGates = FeatureGates()
    was_suspended: bool = True
    is_suspended: bool = True
    has_default_queue: bool = False


class Rule(Struct, frozen=True, kw_only=True):
    """One rule about jobs in two forms: for this process, and for the API server, whose policies are printed from it.

    ``says``: expressions of CEL by the names of the policy's variables. Each is the sentence of a refusal, with its
    field before it, and empty if nothing is refused. A rule without expressions is applied by the controller alone.
    """

    refused: Callable[[Review], Iterable[Refusal]]
    says: Mapping[str, str] = MappingProxyType({})


def refused(rules: Iterable[Rule], review: Review) -> tuple[Refusal, ...]:
    return tuple(refusal for rule in rules for refusal in rule.refused(review))


class ObjectKind(Struct, frozen=True, kw_only=True):
    """A kind of other objects that jobs of a kind are read together with."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True


class Reference(Struct, frozen=True, kw_only=True):
    """An object that a job names; in the job's own namespace if its kind has namespaces."""

    kind: ObjectKind
    name: str


class ReadsOthers:
    """The capability of kinds whose pod sets follow from other objects too: kinds of these, and which a job names."""

    reads: tuple[ObjectKind, ...] = ()
    """Kinds of other objects that ``references`` may name."""

    def references(self, _job: Json) -> tuple[Reference, ...]:
        """Other objects that its pod sets follow from. All other methods expect them in the job, see ``completed``."""
        return ()


class HasRules:
    """The capability of kinds with rules of their own about what may be created, and how it may change."""

    refused_versions: Mapping[str, str] = MappingProxyType({})
    """Other versions of the API group that objects of this kind may have, each with the reason why they do not queue.
    """
    managed_by_path: tuple[str, ...] = ()
    """The field that names the controller of a job; empty if the kind has none."""
    own_controller: str = ""
    """The value of that field for the kind's own controller."""

    @property
    def template_paths(self) -> tuple[str, ...]:
        """The paths of its pod templates: ``[]`` stands after a list, ``{}`` after a map, once in a path at most."""
        return ()

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The kind's own rules about jobs that are queued; the rules of all kinds are in ``jobs.rules``."""
        return ()

    @cached_property
    def pod_sets_in_cel(self) -> str:
        """The kind's pod sets in CEL, as ``jobs.rules.topology.pod_set`` has them; empty if they follow from other
        objects.
        """
        return ""

    def defaulted(self, job: Json, _gates: FeatureGates | None = None) -> Json:
        """``job`` with what queueing needs in it from its creation on; the same object if that is nothing."""
        return job

    @cached_property
    def defaults_in_cel(self) -> str:
        """The patches of ``defaulted`` as a list in CEL; empty if there never is one."""
        return ""


class Grows:
    """The capability of kinds whose jobs run with fewer pods than they ask for, or change their size while they run."""

    can_be_elastic: bool = False
    """Whether a running job of this kind may change its size."""
    may_grow: bool = True
    """Whether a job may begin with the minimum of its pods, see ``whole``."""

    def whole(self) -> Self:
        """The kind with growth turned off: each job starts with all its pods."""
        found = copy.copy(self)
        found.may_grow = False
        return found

    def counts_above(self, _job: Json) -> dict[str, int]:
        """Pods by pod set beyond those that the job begins with, queued one by one; empty if it does not grow."""
        return {}

    def full_counts(self, _job: Json) -> dict[str, int]:
        """Pods by pod set up to which a job that was admitted with fewer of them is to grow while it runs; empty for
        one that keeps the counts of its admission.
        """
        return {}

    def resized(self, job: Json, _counts: Mapping[str, int]) -> Patch:
        """The patch that lets a running job of ``full_counts`` run these pods by pod set."""
        return Patch(body={"metadata": tie(job)})

    def makes_all_at_once(self, _job: Json) -> bool:
        """Whether the kind's controller makes all pods of a start at once, none after others have started, and hands
        the annotations of its templates to them; false for a job whose pods get a PodGroup from others.
        """
        return False

    def pods_left(self, _job: Json) -> int | None:
        """The number of pods that a started job still needs, while one of them does not run; None while all do."""
        return None

    def slice_mark(self, job: Json) -> str:
        """A part of the workload's name that tells the slices of an elastic job apart: new with each size."""
        return str(integer(job, "metadata", "generation", default=0))


class WaitsOrLingers:
    """The capability of kinds whose jobs are not always ready to queue, or whose pods outlive them or come again."""

    ends_before_its_pods: bool = False
    """Whether pods of a finished job may still run, and its status does not say so."""

    def taken_away(self, _job: Json) -> tuple[Patch, ...]:
        """The patches that make its own controller delete the pods that still run of a finished job; empty once
        sent.
        """
        return ()

    def is_skipped(self, _job: Json) -> bool:
        """Whether the job is never queued, whatever its owners are."""
        return False

    def is_on_hold(self, _job: Json) -> bool:
        """Whether the job must not start now although it may: its workload waits without quota."""
        return False

    def needs_again(self, _job: Json, _workload: SeenWorkload) -> bool:
        """Whether the job is to run pods whose quota it has given back: it must request them anew."""
        return False


class JobKind(ReadsOthers, HasRules, Grows, WaitsOrLingers, ABC):
    """One kind of job. The names are those of the API; ``framework`` is the name of the integration in Kueue's
    configuration. A kind says what is abstract here; all else, and what the bases ask, has an answer for kinds that
    have nothing of it.
    """

    framework: str
    group: str
    version: str
    kind: str
    plural: str
    suspend_path: tuple[str, ...] = ("spec", "suspend")
    """The field that holds a job back while it is true."""

    def __getstate__(self) -> dict[str, object]:
        """The state to pickle, without cached properties: rules hold functions, which cannot be pickled."""
        kept = vars(self).items()
        return {name: value for name, value in kept if not isinstance(getattr(type(self), name, None), cached_property)}

    # -- its pods ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def pod_sets(self, job: Json) -> tuple[JobPodSet, ...]:
        """The job's pod sets, with its templates of now. Raises JobError for a request that is not allowed."""

    @abstractmethod
    def templates(self, job: Json) -> dict[str, Json]:
        """The pod template of each pod set of now, less what the API server generated for this very job."""

    @abstractmethod
    def counts(self, job: Json) -> dict[str, int]:
        """Pods by pod set that the job would run as it is now: fewer than it requests under partial admission, or if it
        grows.
        """

    @abstractmethod
    def pod_selector(self, job: Json) -> str:
        """The label selector of the pods that the job runs."""

    @abstractmethod
    def pod_priority_class(self, job: Json) -> str:
        """The PriorityClass of the job's pods; empty if they name none."""

    def injected(self, _job: Json) -> dict[str, str]:
        """The name of the init container that the kind's controller puts into the pods of each pod set, by pod set."""
        return {}

    def workload_annotations(self, _job: Json) -> dict[str, str]:
        """Annotations of the job's workload besides those of all kinds."""
        return {}

    # -- its state ---------------------------------------------------------------------------------------------------

    def is_suspended(self, job: Json) -> bool:
        return flag(job, *self.suspend_path)

    @abstractmethod
    def is_stopped(self, job: Json) -> bool:
        """Whether the job is suspended and its pods are gone."""

    @abstractmethod
    def finished(self, job: Json) -> Outcome | None: ...

    @abstractmethod
    def pods_ready(self, job: Json) -> bool:
        """Whether all pods that the job runs with are ready or have succeeded."""

    @abstractmethod
    def reclaimable(self, job: Json, workload: SeenWorkload) -> dict[str, int]:
        """Pods by pod set that will not be needed any more, out of its count in the workload; only numbers above 0."""

    @abstractmethod
    def is_started(self, job: Json, workload: SeenWorkload) -> bool:
        """Whether the job's templates carry what a start put there and no stop has removed."""

    # -- its start and stop ------------------------------------------------------------------------------------------

    def suspend(self, job: Json) -> Patch:
        body: Any = True
        for key in reversed(self.suspend_path):
            body = {key: body}
        return Patch(body={"metadata": tie(job), **body})

    @abstractmethod
    def start(self, job: Json, workload: SeenWorkload, infos: tuple[PodSetInfo, ...]) -> tuple[Patch, ...]:
        """The patches to send now, in order, to let a suspended job run; the next ones follow from its state then.

        Empty while its old pods are still being deleted. Raises StartConflictError.
        """

    @abstractmethod
    def stop(self, job: Json, workload: SeenWorkload | None) -> tuple[Patch, ...]:
        """The patches to send now, in order, to stop the job; empty if there is nothing to do, or nothing yet.

        The job is suspended at once. Templates and counts go back to what the workload's spec says, at once or, if the
        kind does not let them change before, when the pods are gone.
        """


Look = Callable[[ObjectKind, str, str], Json | None]
"""Returns an object by its kind, namespace (empty for the cluster's) and name; None if there is none."""


def no_objects(_kind: ObjectKind, _namespace: str, _name: str) -> Json | None:
    """A ``Look`` that finds no object."""
    return None


def completed(kind: JobKind, job: Json, look: Look) -> Json:
    """The job with the objects that it references in it; the very same object if it references none. Raises
    JobError.
    """
    references = kind.references(job)
    if not references:
        return job
    namespace = text(job, "metadata", "namespace")
    facts = {
        _key(reference): look(reference.kind, namespace if reference.kind.namespaced else "", reference.name)
        for reference in references
    }
    return {**job, FACTS: facts}


def fact(job: Json, reference: Reference) -> Json | None:
    """The referenced object, out of a completed job; None if there is none."""
    found: Json | None = mapping(job, FACTS).get(_key(reference))
    return found


def _key(reference: Reference) -> str:
    return f"{reference.kind.group}/{reference.kind.plural}/{reference.name}"


def api_version(kind: JobKind) -> str:
    """The ``apiVersion`` of the kind's objects."""
    return f"{kind.group}/{kind.version}" if kind.group else kind.version
