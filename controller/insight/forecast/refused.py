"""The rules of its kind by which a cluster refuses an object that is to be queued. Pure.

The API server's policies apply them when the object is created, and the controller once more when it makes the
Workload.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from controller.foreign.jobs.kind import ForeignJobKind
from controller.foreign.rules.table import FOREIGN_JOB, job_defaulted
from controller.jobs.framework.kind import JobKind, Look, Review, Rule, completed, refused
from controller.jobs.framework.marks import controller_of
from controller.jobs.framework.raw import Json
from controller.jobs.framework.templated import TemplatedKind
from controller.jobs.rules import batchjob, kinds, pods, serving
from controller.scheduler.model.gates import FeatureGates

_OTHERS: Final[Mapping[tuple[str, str], Callable[[], tuple[Rule, ...]]]] = {
    ("v1", "Pod"): pods.rules,
    ("apps/v1", "Deployment"): serving.deployment_rules,
    ("apps/v1", "StatefulSet"): serving.statefulset_rules,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): serving.leaderworkerset_rules,
}
"""The rules of pods and serving objects, by ``apiVersion`` and ``kind``."""


def refused_by_rules(kind: JobKind | None, job: Json, gates: FeatureGates, look: Look) -> tuple[str, ...]:
    """The rules that a queued object breaks, each with its field and once.

    ``kind``: None for pods and serving objects. ``look``: finds the objects that it is read together with. Policies do
    not check a child that its owner's controller makes: the controller checks the rules of its kind alone. Raises
    JobError.
    """
    if isinstance(kind, ForeignJobKind):
        job = job_defaulted(job)
    elif kind is not None:
        job = completed(kind, kind.defaulted(job, gates), look)
    if controller_of(job) is None:
        rules = _others(job["apiVersion"], job["kind"]) if kind is None else _rules(kind)
    else:
        rules = () if kind is None else kind.rules
    told = (f"{refusal.field}: {refusal.sentence}" for refusal in refused(rules, Review(new=job, gates=gates)))
    return tuple(dict.fromkeys(told))


@lru_cache(maxsize=64)
def _rules(kind: JobKind) -> tuple[Rule, ...]:
    """The rules of a kind, cached by its identity: a forecast of 1,000 objects of a kind makes them once, in 30 to 80
    us.
    """
    if isinstance(kind, ForeignJobKind):
        return FOREIGN_JOB.rules
    return kinds.rules(kind) if isinstance(kind, TemplatedKind) else batchjob.rules()


@lru_cache(maxsize=8)
def _others(version: str, kind: str) -> tuple[Rule, ...]:
    """Like ``_rules``, for kinds that are no jobs; made in 50 to 80 us."""
    found = _OTHERS.get((version, kind))
    return () if found is None else found()
