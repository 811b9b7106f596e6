"""``ray.io/v1`` RayService: Serve applications on a Ray cluster that runs until the service is deleted.

The field that suspends it is in the cluster's specification. ``spec.suspend`` is the owner's: while it is set the
service holds no quota.

An upgrade would run a second cluster beside the first, which is not charged: the specification of the cluster does not
change while it runs, but for the counts, unless ``spec.upgradeStrategy`` is None (then KubeRay upgrades nothing).
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from controller.jobs.framework.kind import Outcome, Refusal, Review, Rule
from controller.jobs.framework.raw import Json, flag, has_condition, sequence, text
from controller.jobs.kinds.ray import RayKind, is_without_pods
from controller.jobs.rules import cel

# KubeRay starts no new cluster when these change.
_COUNTS: Final = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")


_SECOND_CLUSTER: Final = (
    "a change while it runs starts a second cluster that is not charged: expected it unchanged but for the "
    "counts, or spec.upgradeStrategy.type 'None', or the service suspended"
)


def _same_but_for(old: str, new: str, keys: tuple[str, ...]) -> str:
    """Whether two maps differ in these keys at most, in CEL."""
    listed = f"[{', '.join(map(cel.quoted, keys))}]"
    kept = f"{new}.all(k, k in {listed} || (k in {old} && {old}[k] == {new}[k]))"
    return f"({kept} && {old}.all(k, k in {listed} || k in {new}))"


class RayService(RayKind):
    framework = "ray.io/rayservice"
    kind = "RayService"
    plural = "rayservices"
    cluster_path = ("spec", "rayClusterConfig")
    suspend_path = ("spec", "rayClusterConfig", "suspend")

    def cluster_names(self, job: Json) -> tuple[str, ...]:
        found = (text(job, "status", key, "rayClusterName") for key in ("activeServiceStatus", "pendingServiceStatus"))
        return tuple(name for name in found if name)

    def is_on_hold(self, job: Json) -> bool:
        return flag(job, "spec", "suspend")

    def finished(self, _job: Json) -> Outcome | None:
        return None

    def pods_ready(self, job: Json) -> bool:
        return has_condition(job, "Ready")

    def is_active(self, job: Json) -> bool:
        return has_condition(job, "Ready")

    def says_suspended(self, job: Json) -> bool:
        return all(is_without_pods(cluster) for cluster in self.live_clusters(job))

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        return (*super().rules, Rule(refused=self._upgraded, says={"upgraded": self._upgraded_says()}))

    def _upgraded(self, review: Review) -> Iterator[Refusal]:
        old, new = review.before, review.new
        if old is None or self.is_suspended(old) or self.is_suspended(new):
            return
        upgrades = text(new, "spec", "upgradeStrategy", "type") != "None"
        if upgrades and self._of_one_cluster(old) != self._of_one_cluster(new):
            yield Refusal(type="Forbidden", field=self.field(), sentence=_SECOND_CLUSTER)

    def _upgraded_says(self) -> str:
        old, new = (f"{cel.field(at, *self.cluster_path)}.orValue({{}})" for at in ("oldObject", "object"))
        before, after = (f"{each}.?workerGroupSpecs.orValue([])" for each in (old, new))
        kept = _same_but_for(f"{before}[i]", f"{after}[i]", _COUNTS)
        groups = f"size({before}) == size({after}) && {cel.places(after)}.all(i, {kept})"
        same = f"{_same_but_for(old, new, ('workerGroupSpecs',))} && {groups}"
        upgrades = f"{cel.field('object', 'spec', 'upgradeStrategy', 'type')}.orValue('') != 'None'"
        running = f"variables.updated && !variables.wasSuspended && !variables.suspended && {upgrades}"
        return cel.when(running, cel.when(f"!({same})", cel.says(self.field(), _SECOND_CLUSTER)))

    def _of_one_cluster(self, job: Json) -> Json:
        """The part of the specification whose change makes KubeRay start a new cluster."""
        cluster = self.cluster(job)
        workers: list[Any] = [
            {key: value for key, value in group.items() if key not in _COUNTS}
            for group in sequence(cluster, "workerGroupSpecs")
        ]
        return {**cluster, "workerGroupSpecs": workers}
