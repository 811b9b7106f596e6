"""What the chart's admission policies are printed from: for each kind its rules, and how its objects are read in CEL.

The kinds are those that wait by a field, pods, and those whose pods wait for them. The controller alone applies rules
without CEL, and the parts of rules that need other objects (the default queue of a namespace, the runtime of a
TrainJob, the quota of a StatefulSet's earlier size).
"""

from collections.abc import Iterator
from typing import Final

from controller.jobs.framework.kind import JobKind, Review, Rule
from controller.jobs.framework.raw import Json, integer, sequence
from controller.jobs.framework.templated import TemplatedKind
from controller.jobs.kinds.table import JOB_KINDS
from controller.jobs.rules import batchjob, cel, kinds, pods, serving
from controller.objects.meta import Struct


class Ruled(Struct, frozen=True, kw_only=True):
    """One kind with its rules. ``suspended`` and ``was_suspended``: in CEL, whether its objects are held back.

    ``defaults``: in CEL, patches of new objects. ``pod_sets``: in CEL, as ``jobs.rules.topology.pod_set`` has them;
    empty if they follow from other objects.
    """

    framework: str
    group: str
    version: str
    kind: str
    plural: str
    rules: tuple[Rule, ...]
    suspended: str
    was_suspended: str
    pod_sets: str = ""
    defaults: str = ""

    @property
    def says(self) -> dict[str, str]:
        """All sentences by their names, in the order of the rules."""
        return {name: said for rule in self.rules for name, said in rule.says.items()}

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the kind's policy, except for ``gates``; each may use those before it."""
        own = {"suspended": self.suspended, "wasSuspended": self.was_suspended}
        return dict(cel.VARIABLES) | own | ({"podSets": self.pod_sets} if self.pod_sets else {})


def review(ruled: Ruled, job: Json, before: Json | None = None) -> Review:
    """The review of a job as the API server's policies see it."""
    kind = next((kind for kind in JOB_KINDS if kind.framework == ruled.framework), None)
    if kind is not None:
        states = [True if each is None else kind.is_suspended(each) for each in (before, job)]
    elif ruled.framework == "pod":
        states = [bool(sequence(each or {}, "spec", "schedulingGates")) for each in (before, job)]
    else:
        states = [before is None or integer(before, "status", "readyReplicas", default=0) == 0] * 2
    return Review(new=job, before=before, was_suspended=states[0], is_suspended=states[1])


def _of_kind(kind: JobKind) -> Ruled:
    suspended, was_suspended = (f"{cel.field(at, *kind.suspend_path)}.orValue(false)" for at in ("object", "oldObject"))
    return Ruled(
        framework=kind.framework,
        group=kind.group,
        version=kind.version,
        kind=kind.kind,
        plural=kind.plural,
        rules=kinds.rules(kind) if isinstance(kind, TemplatedKind) else batchjob.rules(),
        suspended=suspended,
        was_suspended=f"variables.updated && {was_suspended}",
        pod_sets=kind.pod_sets_in_cel,
        defaults=kind.defaults_in_cel,
    )


def _serving(framework: str, group: str, kind: str, rules: tuple[Rule, ...], pod_sets: str = "") -> Ruled:
    idle = f"!variables.updated || {cel.field('oldObject', 'status', 'readyReplicas')}.orValue(0) == 0"
    return Ruled(
        framework=framework,
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        rules=rules,
        suspended=idle,
        was_suspended=idle,
        pod_sets=pod_sets,
    )


def _all() -> Iterator[Ruled]:
    yield from map(_of_kind, JOB_KINDS)
    gated = f"size({cel.field('object', 'spec', 'schedulingGates')}.orValue([])) > 0"
    yield Ruled(
        framework="pod",
        group="",
        version="v1",
        kind="Pod",
        plural="pods",
        rules=pods.rules(),
        suspended=gated,
        was_suspended=f"variables.updated && {gated.replace('object', 'oldObject')}",
        pod_sets=pods.POD_SETS,
    )
    yield _serving("deployment", "apps", "Deployment", serving.deployment_rules())
    yield _serving("statefulset", "apps", "StatefulSet", serving.statefulset_rules(), serving.STATEFULSET_POD_SETS)
    groups, lws = "leaderworkerset.x-k8s.io", serving.leaderworkerset_rules()
    yield _serving(f"{groups}/leaderworkerset", groups, "LeaderWorkerSet", lws, serving.LEADERWORKERSET_POD_SETS)


RULED: Final = tuple(_all())
