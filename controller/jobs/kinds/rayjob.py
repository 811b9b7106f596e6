"""``ray.io/v1`` RayJob: a Ray cluster for one job, and a submitter of the job.

The submitter depends on ``spec.submissionMode``: a pod of its own (K8sJobMode: the pod set ``submitter``, last), a
container in the head (SidecarMode), or KubeRay itself.

A retry (``spec.backoffLimit``) makes a new cluster when the old one is gone, under the same workload.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from controller.jobs.framework import names
from controller.jobs.framework.kind import Outcome, Refusal, Review, Rule
from controller.jobs.framework.marks import queue_name
from controller.jobs.framework.podsets import template_patch
from controller.jobs.framework.raw import Json, at, flag, mapping, sequence, text
from controller.jobs.framework.templated import Slot, dotted, located, replaced
from controller.jobs.kinds.ray import RayKind
from controller.jobs.kinds.raypods import submitter_container, submitter_pod
from controller.jobs.rules import cel
from controller.jobs.rules.topology import pod_set

SUBMITTER: Final = "submitter"

_SUBMITTER_PATH: Final = ("spec", "submitterPodTemplate")
_ENDED: Final = ("Complete", "Failed")
_SELECTOR, _CLUSTER, _SHUTDOWN = "spec.clusterSelector", "spec.rayClusterSpec", "spec.shutdownAfterJobFinishes"
_NO_SELECTOR: Final = "a queued job runs on a cluster of its own: expected no clusterSelector"
_OWN_CLUSTER: Final = "a queued job runs on a cluster of its own: expected its specification, found none"
_GIVES_BACK: Final = "a queued job gives its pods back when it has finished: expected true, found false"
_SELECTS: Final = f"size({cel.field('object', 'spec', 'clusterSelector')}.orValue({{}})) > 0"
_NO_CLUSTER: Final = f"!{cel.field('object', 'spec', 'rayClusterSpec')}.hasValue()"
_STAYS: Final = f"!{cel.field('object', 'spec', 'shutdownAfterJobFinishes')}.orValue(false)"
_SUBMITS: Final = f"{cel.field('object', 'spec', 'submissionMode')}.orValue('') == 'K8sJobMode'"
_WITHOUT_PODS: Final = ("", "Suspended")
_INVALID: Final = "ValidationFailed"


class RayJob(RayKind):
    framework = "ray.io/rayjob"
    kind = "RayJob"
    plural = "rayjobs"
    cluster_path = ("spec", "rayClusterSpec")

    @property
    def template_paths(self) -> tuple[str, ...]:
        return (*super().template_paths, dotted(_SUBMITTER_PATH))

    def is_skipped(self, job: Json) -> bool:
        """Whether the job is not queued: a job that runs on an existing cluster has no pods to charge but its
        submitter's.
        """
        return bool(mapping(job, "spec", "clusterSelector")) and not queue_name(job)

    def cluster_names(self, job: Json) -> tuple[str, ...]:
        name = text(job, "status", "rayClusterName")
        return (name,) if name else ()

    def head_sidecars(self, job: Json, cluster: Json) -> tuple[Json, ...]:
        return (submitter_container(cluster),) if _mode(job) == "SidecarMode" else ()

    def other_pod_sets(self, job: Json) -> int:
        return 1 if _mode(job) == "K8sJobMode" else 0

    def slots(self, job: Json) -> tuple[Slot, ...]:
        slots = super().slots(job)
        if _mode(job) != "K8sJobMode":
            return slots
        cluster = self.cluster(job)
        submitter = Slot(
            name=SUBMITTER,
            path=_SUBMITTER_PATH,
            count=1,
            charged=lambda written: written or submitter_pod(cluster),
        )
        return (*slots, submitter)

    def placed(self, job: Json, wanted: dict[str, Json]) -> Json:
        """The job with its placement. The default submitter is written out with its own: there is no other place for
        that.

        The submitter does not wait behind the gate of elastic jobs: its number never changes, and its cluster does not
        tell it.
        """
        if SUBMITTER in wanted:
            wanted = {**wanted, SUBMITTER: _ungated(wanted[SUBMITTER])}
            default = submitter_pod(self.cluster(job))
            if located(job, _SUBMITTER_PATH) is None and template_patch(default, wanted[SUBMITTER]):
                job = replaced(job, _SUBMITTER_PATH, default)
        return super().placed(job, wanted)

    def finished(self, job: Json) -> Outcome | None:
        """How the job ended. With ``ttlSecondsAfterFinished`` the cluster outlives the job, and its quota is held as
        long.
        """
        if _status(job) not in _ENDED or self.live_clusters(job):
            return None
        succeeded = text(job, "status", "jobStatus") == "SUCCEEDED"
        message = text(job, "status", "message") or f"RayJob {'finished successfully' if succeeded else 'failed'}"
        return Outcome(reason="Succeeded" if succeeded else "Failed", message=message)

    def pods_ready(self, job: Json) -> bool:
        return text(job, "status", "rayClusterStatus", "state") == "ready"

    def is_active(self, job: Json) -> bool:
        if _status(job) == _INVALID:  # it may have become so while it ran
            return bool(self.live_clusters(job))
        return _status(job) not in _WITHOUT_PODS

    def says_suspended(self, _job: Json) -> bool:
        """Always true: KubeRay writes each status under the resourceVersion that it saw, so none is older than the
        suspension.
        """
        return True

    def is_on_hold(self, job: Json) -> bool:
        return _status(job) == _INVALID

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        own = (
            Rule(refused=_selects, says={"selector": cel.when(_SELECTS, cel.says(_SELECTOR, _NO_SELECTOR))}),
            Rule(refused=_without_cluster, says={"cluster": cel.when(_NO_CLUSTER, cel.says(_CLUSTER, _OWN_CLUSTER))}),
            Rule(refused=_stays, says={"shutdown": cel.when(_STAYS, cel.says(_SHUTDOWN, _GIVES_BACK))}),
        )
        return (*own, *super().rules)

    other_pod_sets_in_cel = f"({_SUBMITS} ? 1 : 0)"

    @cached_property
    def pod_sets_in_cel(self) -> str:
        submitter = pod_set(
            name=cel.quoted(SUBMITTER),
            path=cel.quoted(f"{dotted(_SUBMITTER_PATH)}.metadata.annotations"),
            count="1",
            annotations=cel.field("object", *_SUBMITTER_PATH, "metadata", "annotations"),
        )
        return f"{super().pod_sets_in_cel} + ({_SUBMITS} ? [{submitter}] : [])"


def _selects(review: Review) -> Iterator[Refusal]:
    if mapping(review.new, "spec", "clusterSelector"):
        yield Refusal(type="Invalid", field=_SELECTOR, sentence=_NO_SELECTOR)


def _without_cluster(review: Review) -> Iterator[Refusal]:
    if at(review.new, "spec", "rayClusterSpec") is None:
        yield Refusal(type="Required", field=_CLUSTER, sentence=_OWN_CLUSTER)


def _stays(review: Review) -> Iterator[Refusal]:
    if not flag(review.new, "spec", "shutdownAfterJobFinishes"):
        yield Refusal(type="Invalid", field=_SHUTDOWN, sentence=_GIVES_BACK)


def _ungated(template: Json) -> Json:
    """The template without the gate; the very same object if it has none: an empty list of gates stays as it was
    written.
    """
    gated = sequence(template, "spec", "schedulingGates")
    gates = [gate for gate in gated if gate != {"name": names.ELASTIC_JOB}]
    if len(gates) == len(gated):
        return template
    spec = {key: value for key, value in mapping(template, "spec").items() if key != "schedulingGates"}
    return {**template, "spec": {**spec, **({"schedulingGates": gates} if gates else {})}}


def _mode(job: Json) -> str:
    return text(job, "spec", "submissionMode")


def _status(job: Json) -> str:
    return text(job, "status", "jobDeploymentStatus")
