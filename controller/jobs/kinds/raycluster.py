"""``ray.io/v1`` RayCluster: a pod set ``head``, and one for each worker group. It runs until it is deleted."""

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from controller.jobs.framework import names
from controller.jobs.framework.kind import Outcome, Refusal, Review, Rule
from controller.jobs.framework.marks import is_elastic
from controller.jobs.framework.raw import Json, has_condition, sequence, text
from controller.jobs.framework.templated import located, replaced
from controller.jobs.kinds.ray import RayKind, is_without_pods
from controller.jobs.rules import cel
from controller.scheduler.model.gates import FeatureGates

_GATES: Final = ("spec", "schedulingGates")
_GATE: Final = {"name": names.ELASTIC_JOB}
_BELOW: Final = ".template.spec.schedulingGates"
_EXPECTED_GATE: Final = f"an elastic job's pods wait for their quota: expected the gate {names.ELASTIC_JOB}"


class RayCluster(RayKind):
    framework = "ray.io/raycluster"
    kind = "RayCluster"
    plural = "rayclusters"
    cluster_path = ("spec",)

    def finished(self, _job: Json) -> Outcome | None:
        return None

    def pods_ready(self, job: Json) -> bool:
        return text(job, "status", "state") == "ready"

    def is_active(self, job: Json) -> bool:
        return text(job, "status", "state") == "ready" or has_condition(job, "RayClusterSuspending")

    def says_suspended(self, job: Json) -> bool:
        return is_without_pods(job)

    def defaulted(self, job: Json, gates: FeatureGates | None = None) -> Json:
        """The job with the gate on all pods, if it is elastic: Ray's autoscaler may change the counts at any time."""
        if not is_elastic(job) or not (gates or FeatureGates()).on("ElasticJobsViaWorkloadSlices"):
            return job
        for slot in self.slots(job):
            held = sequence(slot.written(job), *_GATES)
            if _GATE not in held:
                job = replaced(job, (*slot.path, *_GATES), [*held, _GATE])
        return job

    @cached_property
    def defaults_in_cel(self) -> str:
        groups = self.in_cel("workerGroupSpecs", default="[]")
        head = cel.field("object", *self.cluster_path, "headGroupSpec")
        below = cel.pointer("template", "spec", "schedulingGates")
        worker = cel.text(cel.quoted(cel.pointer("spec", "workerGroupSpecs", "")), "string(i)", cel.quoted(below))
        ungated = f"{cel.places(groups)}.filter(i, !{_held(f'{groups}[i]')})"
        workers = f"{ungated}.map(i, {_gated(f'{groups}[i]', worker)})"
        own = cel.quoted(cel.pointer("spec", "headGroupSpec") + below)
        of_head = f"({head}.hasValue() && !{_held(head)} ? [{_gated(head, own)}] : [])"
        return f"(variables.elastic && variables.gates.ElasticJobsViaWorkloadSlices ? {workers} + {of_head} : [])"

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        return (*super().rules, Rule(refused=self._ungated, says={"ungated": self._ungated_says()}))

    def _ungated(self, review: Review) -> Iterator[Refusal]:
        if not is_elastic(review.new) or not review.gates.on("ElasticJobsViaWorkloadSlices"):
            return
        cluster = self.cluster(review.new)
        workers = range(len(sequence(cluster, "workerGroupSpecs")))
        for path in (*(("workerGroupSpecs", index) for index in workers), ("headGroupSpec",)):
            where = (*path, "template", *_GATES)
            if _GATE not in (located(cluster, where) or []):
                yield Refusal(type="Invalid", field=self.field(*where), sentence=_EXPECTED_GATE)

    def _ungated_says(self) -> str:
        groups, sentence = self.in_cel("workerGroupSpecs", default="[]"), cel.quoted(f"{_BELOW}: {_EXPECTED_GATE}")
        worker = cel.text(cel.quoted(f"{self.field('workerGroupSpecs')}["), "string(i)", "']'", sentence)
        of_workers = cel.first(f"{cel.places(groups)}.map(i, !{_held(f'{groups}[i]')} ? {worker} : '')")
        head = cel.text(cel.quoted(self.field("headGroupSpec")), sentence)
        of_head = f"!{_held(cel.field('object', *self.cluster_path, 'headGroupSpec'))}"
        return cel.when(
            "variables.elastic && variables.gates.ElasticJobsViaWorkloadSlices",
            cel.any_of(of_workers, cel.when(of_head, head)),
        )


def _gates(group: str) -> str:
    return f"{group}.?template.?spec.?schedulingGates.orValue([])"


def _held(group: str) -> str:
    """Whether the pods of a group wait behind the gate, in CEL."""
    return f"{_gates(group)}.exists(g, g.name == {cel.quoted(names.ELASTIC_JOB)})"


def _gated(group: str, path: str) -> str:
    """The operation that puts the gate on a group's pods, in CEL."""
    gate = f"{{'name': {cel.quoted(names.ELASTIC_JOB)}}}"
    more, all_of_them = cel.added(f"{path} + '/-'", gate), cel.added(path, f"[{gate}]")
    return f"(size({_gates(group)}) > 0 ? {more} : {all_of_them})"
