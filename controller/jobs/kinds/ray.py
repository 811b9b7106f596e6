"""What RayCluster, RayJob and RayService share: each has the specification of one Ray cluster, whose pods are charged.

An elastic one may leave the number of its workers to Ray's autoscaler. The autoscaler writes into the RayCluster: the
counts of a RayJob or RayService are then those of the cluster it runs, as soon as there is one.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Final

from controller.jobs.framework import names
from controller.jobs.framework.kind import ObjectKind, Reference, Refusal, Review, Rule, fact
from controller.jobs.framework.marks import is_elastic
from controller.jobs.framework.raw import JobError, Json, has_condition, integer, mapping, sequence, shown, text
from controller.jobs.framework.templated import MAX_POD_SETS, Path, Slot, TemplatedKind, dotted
from controller.jobs.kinds.raypods import (
    WAIT_GCS_READY,
    autoscales,
    head_pod,
    keeps_state_in_redis,
    worker_pod,
    worker_pods,
)
from controller.jobs.rules import cel
from controller.jobs.rules.topology import pod_set
from inventory.words.catalog import plural

HEAD: Final = "head"
RAY_CLUSTERS: Final = ObjectKind(group="ray.io", version="v1", kind="RayCluster", plural="rayclusters")
CLUSTER_GENERATION: Final = "kueue.x-k8s.io/raycluster-generation"
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"

_GATE: Final = "ElasticJobsViaWorkloadSlices"
_ELASTIC: Final = f"variables.elastic && variables.gates.{_GATE}"
"""Whether the object is elastic, in CEL. With the gate off nothing is elastic."""
_HEAD_ANNOTATIONS: Final = ("headGroupSpec", "template", "metadata", "annotations")
_ELASTIC_ONLY: Final = f"a queued job is autoscaled only as an elastic one: expected annotation {names.ELASTIC_JOB}"
_NOT_ELSEWHERE: Final = "a job that another cluster runs (MultiKueue) is not autoscaled: expected false, found true"
_HEAD_TAKEN: Final = f"found {HEAD!r}, which is the name of the head's pod set: expected another"
_NOT_RESIZED: Final = "only an elastic job is resized while it runs"
_CLEANUP_FINALIZER: Final = "ray.io/gcs-ft-redis-cleanup-finalizer"


class RayKind(TemplatedKind):
    """A kind of KubeRay, see ``kind.JobKind``. ``cluster_path``: the path of the cluster's specification."""

    group = "ray.io"
    version = "v1"
    can_be_elastic = True
    only_queued_are_judged = True
    managed_by_path = ("spec", "managedBy")
    own_controller = "ray.io/kuberay-operator"
    reads = (RAY_CLUSTERS,)
    cluster_path: tuple[str, ...]

    @property
    def template_paths(self) -> tuple[str, ...]:
        where = dotted(self.cluster_path)
        return (f"{where}.headGroupSpec.template", f"{where}.workerGroupSpecs[].template")

    def cluster_names(self, _job: Json) -> tuple[str, ...]:
        """RayClusters that were made for the job; the size of the first one counts."""
        return ()

    def head_sidecars(self, _job: Json, _cluster: Json) -> tuple[Json, ...]:
        """Containers in the head besides the cluster's own."""
        return ()

    # -- pod sets ----------------------------------------------------------------------------------------------------

    def references(self, job: Json) -> tuple[Reference, ...]:
        return tuple(Reference(kind=RAY_CLUSTERS, name=name) for name in self.cluster_names(job))

    def cluster(self, job: Json) -> Json:
        return mapping(job, *self.cluster_path)

    def live_clusters(self, job: Json) -> tuple[Json, ...]:
        """RayClusters of the job that exist."""
        found = (fact(job, reference) for reference in self.references(job))
        return tuple(cluster for cluster in found if cluster is not None)

    def slots(self, job: Json) -> tuple[Slot, ...]:
        cluster, counts = self.cluster(job), self._autoscaled(job)
        head = Slot(
            name=HEAD,
            path=(*self.cluster_path, "headGroupSpec", "template"),
            count=1,
            charged=partial(
                head_pod,
                cluster=cluster,
                redis=keeps_state_in_redis(cluster, job),
                sidecars=self.head_sidecars(job, cluster),
            ),
        )
        groups = sequence(cluster, "workerGroupSpecs")
        workers = [
            Slot(
                name=_pod_set(group),
                path=(*self.cluster_path, "workerGroupSpecs", index, "template"),
                count=counts.get(_pod_set(group), worker_pods(group)),
                charged=partial(worker_pod, cluster=cluster),
                injected=WAIT_GCS_READY,
            )
            for index, group in enumerate(groups)
        ]
        return (head, *workers)

    def _autoscaled(self, job: Json) -> dict[str, int]:
        """Pods by worker group of the RayCluster that the job runs, if Ray's autoscaler sets them; else empty."""
        cluster, first = self.cluster(job), self.references(job)[:1]
        live = fact(job, first[0]) if first and autoscales(cluster) and is_elastic(job) else None
        return {} if live is None else live_counts(counts_of(cluster), live, where=self.field("workerGroupSpecs"))

    def pod_selector(self, job: Json) -> str:
        """The label selector of its pods, which carry the name of their RayCluster."""
        found = self.cluster_names(job) or (text(job, "metadata", "name"),)
        return f"ray.io/cluster={found[0]}" if len(found) == 1 else f"ray.io/cluster in ({','.join(found)})"

    # -- its life ----------------------------------------------------------------------------------------------------

    def is_stopped(self, job: Json) -> bool:
        if not self.is_suspended(job):
            return False
        if text(job, "metadata", "deletionTimestamp"):
            # KubeRay writes no status any more: the objects that it made are deleted, or still exist.
            return not self.live_clusters(job) and not cleans_up(job)
        return not self.is_active(job) and self.says_suspended(job)

    def slice_mark(self, job: Json) -> str:
        return ".".join([super().slice_mark(job), *self.workload_annotations(job).values()])

    def workload_annotations(self, job: Json) -> dict[str, str]:
        """The generation of the RayCluster that it runs, empty before that exists: the name of a slice follows from it
        too.
        """
        first = self.references(job)[:1] if is_elastic(job) else ()
        live = fact(job, first[0]) if first else None
        return {CLUSTER_GENERATION: str(generation(live)) if live else ""} if first else {}

    # -- what is refused ---------------------------------------------------------------------------------------------

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule(refused=self._autoscaling, says={"autoscaling": self._autoscaling_says()}),
            Rule(refused=self._groups, says={"groups": self._groups_says(), "groupNames": self._group_names_says()}),
            Rule(refused=self._resized, says={"resized": self._resized_says()}),
        )

    def _autoscaling(self, review: Review) -> Iterator[Refusal]:
        field = self.field("enableInTreeAutoscaling")
        if not autoscales(self.cluster(review.new)):
            return
        if not (is_elastic(review.new) and review.gates.on(_GATE)):
            yield Refusal(type="Invalid", field=field, sentence=_ELASTIC_ONLY)
        elif text(review.new, *self.managed_by_path) == MULTIKUEUE:
            yield Refusal(type="Forbidden", field=field, sentence=_NOT_ELSEWHERE)

    def _autoscaling_says(self) -> str:
        field = self.field("enableInTreeAutoscaling")
        elsewhere = f"{cel.field('object', *self.managed_by_path)}.orValue('') == {cel.quoted(MULTIKUEUE)}"
        return cel.when(
            f"!{self.in_cel('enableInTreeAutoscaling', default='false')}", "''",
            cel.when(
                f"!({_ELASTIC})", cel.says(field, _ELASTIC_ONLY),
                cel.when(elsewhere, cel.says(field, _NOT_ELSEWHERE)),
            ),
        )  # fmt: skip

    def _groups(self, review: Review) -> Iterator[Refusal]:
        groups = sequence(self.cluster(review.new), "workerGroupSpecs")
        most = MAX_POD_SETS - 1 - self.other_pod_sets(review.new)
        if len(groups) > most:
            yield Refusal(
                type="TooMany",
                field=self.field("workerGroupSpecs"),
                sentence=f"expected at most {most} worker groups beside the other pod sets, found {len(groups)}",
            )
        for index, group in enumerate(groups):
            if text(group, "groupName").lower() == HEAD:
                yield Refusal(
                    type="Forbidden",
                    field=self.field("workerGroupSpecs", index, "groupName"),
                    sentence=_HEAD_TAKEN,
                )

    def _groups_says(self) -> str:
        count = f"size({self.in_cel('workerGroupSpecs', default='[]')})"
        most = f"({MAX_POD_SETS - 1} - {self.other_pod_sets_in_cel})"
        sentence = cel.text(
            cel.quoted(f"{self.field('workerGroupSpecs')}: expected at most "),
            f"string({most})",
            "' worker groups beside the other pod sets, found '",
            f"string({count})",
        )
        return cel.when(f"{count} > {most}", sentence)

    def _group_names_says(self) -> str:
        groups = self.in_cel("workerGroupSpecs", default="[]")
        named = f"{groups}[i].?groupName.orValue('').lowerAscii() == {cel.quoted(HEAD)}"
        path = cel.quoted(self.field("workerGroupSpecs"))
        sentence = cel.text(path, "'['", "string(i)", cel.quoted(f"].groupName: {_HEAD_TAKEN}"))
        return cel.first(f"{cel.places(groups)}.map(i, {cel.when(named, sentence)})")

    def _resized(self, review: Review) -> Iterator[Refusal]:
        """Refusals of changed counts. KubeRay follows a change at once: only the pods of an elastic job wait for their
        quota.
        """
        old, new = review.before, review.new
        elastic = is_elastic(new) and review.gates.on(_GATE)
        if old is None or elastic or self.is_suspended(old) or self.is_suspended(new):
            return
        had, has = counts_of(self.cluster(old)), counts_of(self.cluster(new))
        if had != has:
            sentence = f"{_NOT_RESIZED}: expected {_listed(had)}, found {_listed(has)}"
            yield Refusal(type="Forbidden", field=self.field("workerGroupSpecs"), sentence=sentence)

    def _resized_says(self) -> str:
        groups = [self.in_cel("workerGroupSpecs", at=at, default="[]") for at in ("oldObject", "object")]
        had, has = (f"{each}.map(g, {_PODS_OF_GROUP})" for each in groups)
        listed = "(size({0}) == 0 ? 'no workers' : {0}.join(', '))".format
        sentence = cel.text(
            cel.quoted(f"{self.field('workerGroupSpecs')}: {_NOT_RESIZED}: expected "), listed(had), "', found '",
            listed(has),
        )  # fmt: skip
        differ = f"!({had}.all(c, c in {has}) && {has}.all(c, c in {had}))"
        running = f"variables.updated && !({_ELASTIC}) && !variables.wasSuspended && !variables.suspended"
        return cel.when(running, cel.when(differ, sentence))

    @cached_property
    def pod_sets_in_cel(self) -> str:
        groups = self.in_cel("workerGroupSpecs", default="[]")
        head = pod_set(
            name=cel.quoted(HEAD),
            path=cel.quoted(self.field("headGroupSpec", "template", "metadata", "annotations")),
            count="1",
            annotations=cel.field("object", *self.cluster_path, *_HEAD_ANNOTATIONS),
        )
        workers = pod_set(
            name=f"{groups}[i].?groupName.orValue('').lowerAscii()",
            path=cel.text(
                cel.quoted(f"{self.field('workerGroupSpecs')}["), "string(i)", "'].template.metadata.annotations'"
            ),
            count=_worker_pods(f"{groups}[i]"),
            annotations=cel.field(f"{groups}[i]", "template", "metadata", "annotations"),
        )
        return f"[{head}] + {cel.places(groups)}.map(i, {workers})"

    other_pod_sets_in_cel: str = "0"

    def other_pod_sets(self, _job: Json) -> int:
        """The number of pod sets besides the cluster's."""
        return 0

    def field(self, *path: str | int) -> str:
        whole: Path = (*self.cluster_path, *path)
        return dotted(whole)

    def in_cel(self, *path: str, default: str, at: str = "object") -> str:
        """A value of the cluster's specification, in CEL."""
        return f"{cel.field(at, *self.cluster_path, *path)}.orValue({default})"


def _worker_pods(group: str) -> str:
    """``raypods.worker_pods`` in CEL."""
    replicas, least, most, hosts = (
        f"{group}.?{key}.orValue({default})"
        for key, default in (("replicas", 1), ("minReplicas", 0), ("maxReplicas", 2**31 - 1), ("numOfHosts", 1))
    )
    asked = f"({least} > {replicas} ? {least} : {replicas})"
    bounded = f"({most} < {asked} ? {most} : {asked})"
    return f"({group}.?suspend.orValue(false) ? 0 : {bounded} * ({hosts} < 1 ? 1 : {hosts}))"


_PODS_OF_GROUP: Final = f"string({_worker_pods('g')}) + ' pods in ' + g.?groupName.orValue('').lowerAscii()"


def is_without_pods(cluster: Json) -> bool:
    """Whether a suspended RayCluster has no pods, by KubeRay's status.

    KubeRay writes the state when the last pod is gone. A cluster that was suspended from its creation on and has no
    status never had pods. ``status.observedGeneration`` tells nothing: KubeRay does not write a status for its sake.
    """
    if text(cluster, "status", "state") == "suspended" or has_condition(cluster, "RayClusterSuspended"):
        return not has_condition(cluster, "RayClusterSuspending")
    seen = text(cluster, "status", "state") or sequence(cluster, "status", "conditions")
    return not seen and generation(cluster) <= 1


def generation(cluster: Json) -> int:
    return integer(cluster, "metadata", "generation", default=0)


def cleans_up(job: Json) -> bool:
    """Whether KubeRay still has to run the Job that cleans up in Redis."""
    return _CLEANUP_FINALIZER in sequence(job, "metadata", "finalizers")


def counts_of(cluster: Json) -> dict[str, int]:
    """Pods by worker group in a cluster's specification."""
    return {_pod_set(group): worker_pods(group) for group in sequence(cluster, "workerGroupSpecs")}


def live_counts(asked: Mapping[str, int], live: Json, *, where: str) -> dict[str, int]:
    """Pods by worker group as the RayCluster has them. Raises JobError if it has a group that the job does not name."""
    live_pods = counts_of(mapping(live, "spec"))
    unknown = live_pods.keys() - asked.keys()
    if unknown:
        raise JobError(f"{where}: its RayCluster has a group {shown(min(unknown))}, expected one of that name here")
    return {**asked, **live_pods}


def _pod_set(group: Json) -> str:
    return text(group, "groupName").lower()


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{plural(count, 'pod')} in {name}" for name, count in counts.items()) or "no workers"
