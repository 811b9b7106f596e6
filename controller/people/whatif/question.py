"""The present and a simulated change of it, side by side: the real engine on copies of the live objects. Pure.

Time stands still: the answer is what the engine would decide now. A preempted workload gives back what it holds at
once, as in ``controller.insight.simulation``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from controller.insight.simulation.manifests import Scenario
from controller.insight.simulation.run import Run
from controller.insight.simulation.submissions import Submission
from controller.objects.meta import KubernetesObject, is_true
from controller.objects.workload import Workload
from controller.people.whatif.quotas import QuotaChange, WrongChangeError, with_quotas
from controller.scheduler.decisions.reasons import FINISHED, PendingReason
from controller.scheduler.mirror.specs import Adoption, System
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from inventory.words.catalog import plural

Json = dict[str, Any]
MOST_CHANGES: Final = 500
_MOST_QUOTAS: Final = 100
_MOST_CHANGED: Final = 3
"""Workloads of an arrival for which the changes that would let them start are told."""
NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question: a manifest that arrives in its own namespace, else in ``namespace``; or quotas that change."""

    manifest: str = ""
    namespace: str = "default"
    quotas: tuple[QuotaChange, ...] = ()


def read(raw: bytes) -> Asked:
    """The question in a request's body. Raises WrongChangeError."""
    try:
        asked = msgspec.json.decode(raw, type=Asked)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as wrong:
        raise WrongChangeError(f"body: {str(wrong)[:200]}") from None
    if bool(asked.manifest) == bool(asked.quotas):
        found = "both a manifest and quotas" if asked.manifest else "an empty manifest and no quotas"
        raise WrongChangeError(f"manifest: found {found}, expected one of the two. Write the object to be tried")
    if NAMESPACE.fullmatch(asked.namespace) is None:
        raise WrongChangeError(f"namespace: found {asked.namespace[:63]!r}, expected the name of a namespace")
    if len(asked.quotas) > _MOST_QUOTAS:
        raise WrongChangeError(f"quotas: found {len(asked.quotas)}, expected at most {_MOST_QUOTAS}")
    return asked


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """The workloads of a manifest: ``workloads`` are tried, and ``left_out`` more are not. ``warnings``: what is likely
    not meant. ``unfit``: warnings that are told only if no flavor fits.
    """

    workloads: tuple[Workload, ...] = ()
    left_out: int = 0
    warnings: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """All that a simulation is asked. ``systems``: the systems whose Queues are decided for."""

    config: EngineConfig
    now_s: float
    quotas: tuple[QuotaChange, ...] = ()
    arrival: Arrival = Arrival()
    systems: Mapping[System, Adoption] = {}


def compared(question: Question, objects: Sequence[KubernetesObject], workloads: Sequence[Workload]) -> Json:
    """The answer to a question. Raises WrongChangeError and UnsettledError."""
    changed = with_quotas(objects, question.quotas)
    before = _Outcome(question, objects, workloads)
    after = _Outcome(question, changed, (*workloads, *question.arrival.workloads))
    changes = [*_changes(before, after)]
    return {
        "present": before.totals(),
        "simulated": after.totals(),
        "queues": [
            {"name": name, "present": before.of_queue(name), "simulated": after.of_queue(name)}
            for name in sorted(after.queues)
        ],
        "changes": changes[:MOST_CHANGES],
        "arrived": [
            {
                "workload": workload.key,
                "hidden": False,
                "state": after.state(WorkloadKey(workload.key)),
                "why": after.why(WorkloadKey(workload.key)),
                "changes": after.changes(WorkloadKey(workload.key)) if number < _MOST_CHANGED else [],
            }
            for number, workload in enumerate(question.arrival.workloads)
        ],
        "warnings": [*_warnings(question, after, len(changes))],
        "note": "What would be decided now; what ends or arrives later is not simulated.",
    }


def _warnings(question: Question, after: "_Outcome", changes: int) -> Iterator[str]:
    yield from question.arrival.warnings
    if any(after.fits_no_flavor(WorkloadKey(each.key)) for each in question.arrival.workloads):
        yield from question.arrival.unfit
    if changes > MOST_CHANGES:
        yield f"{plural(changes - MOST_CHANGES, 'more change is', 'more changes are')} not shown"
    if question.arrival.left_out:
        more = question.arrival.left_out
        above = plural(more, "more pod above the job's minimum is", "more pods above the job's minimum are")
        yield f"{above} not tried"


class _Outcome:
    """The engine's decisions until nothing changes."""

    def __init__(self, question: Question, objects: Sequence[KubernetesObject], workloads: Iterable[Workload]) -> None:
        submissions = tuple(
            Submission(order=order, arrival_s=0.0, runtime_s=None, workload=workload)
            for order, workload in enumerate(workloads)
        )
        scenario = Scenario(
            base_s=question.now_s,
            objects=tuple(objects),
            submissions=submissions,
            warnings=(),
            systems=question.systems,
        )
        self._run = Run(scenario, question.config, until_s=0.0, check=False)
        self._run.settle()
        self.queues = self._run.engine.state.cluster.queues
        self.keys = [WorkloadKey(submission.key) for submission in submissions]

    def state(self, key: WorkloadKey) -> str:
        holder = self._run.engine.state.cluster.holders.get(key)
        return "pending" if holder is None or holder.evicted else "admitted"

    def why(self, key: WorkloadKey) -> str:
        return self._run.sentence(key)

    def fits_no_flavor(self, key: WorkloadKey) -> bool:
        record = self._run.engine.stories.last(key)
        if record is None or self.state(key) == "admitted":
            return False
        return record.reason is PendingReason.NO_MATCHING_FLAVOR

    def changes(self, key: WorkloadKey) -> list[str]:
        """The changes that would let a waiting workload start; empty for one that runs, or that no change helps."""
        return [] if self.state(key) == "admitted" else self._run.changes(key)

    def queue(self, key: WorkloadKey) -> str:
        return self._run.cluster_queue(self._run.workloads[key]) if key in self._run.workloads else ""

    def _has_finished(self, key: WorkloadKey) -> bool:
        return is_true(self._run.workloads[key].status.conditions, FINISHED)

    def totals(self) -> Json:
        states = [self.state(key) for key in self.keys if key in self._run.workloads and not self._has_finished(key)]
        return {"admitted": states.count("admitted"), "pending": states.count("pending")}

    def of_queue(self, name: ClusterQueueName) -> Json:
        queue = self.queues.get(name)
        if queue is None:
            return {"admitted": 0, "pending": 0}
        active, parked = self._run.engine.state.queues.counts(name)
        return {"admitted": len(queue.holders), "pending": active + parked}


def _changes(before: _Outcome, after: _Outcome) -> Iterator[Json]:
    for key in before.keys:
        was, now = before.state(key), after.state(key)
        if was != now:
            yield {
                "workload": key,
                "hidden": False,
                "queue": after.queue(key),
                "before": was,
                "after": "evicted" if was == "admitted" else now,
                "why": after.why(key),
            }
