"""``ray.io/v1`` RayService: Serve applications on a Ray cluster that runs until the service is deleted.

What suspends it is the field in the cluster's specification. ``spec.suspend`` is the owner's: while it is set the
service holds no quota.

An upgrade would run a second cluster beside the first, which is not charged: the specification of the cluster does not
change while it runs, but for the counts, unless ``spec.upgradeStrategy`` is None (then KubeRay upgrades nothing).
"""

from typing import Any, Final

from controller.jobframework.kind import Outcome, Refusal
from controller.jobframework.raw import Json, flag, has_condition, sequence, text
from controller.jobkinds.ray import RayKind, is_without_pods

# KubeRay starts no new cluster for these.
_COUNTS: Final = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")


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

    def validate_update(self, old: Json, new: Json) -> tuple[Refusal, ...]:
        resized = super().validate_update(old, new)
        running = not self.is_suspended(old) and not self.is_suspended(new)
        upgrades = text(new, "spec", "upgradeStrategy", "type") != "None"
        if not (running and upgrades) or self._of_one_cluster(old) == self._of_one_cluster(new):
            return resized
        sentence = (
            "a change while it runs starts a second cluster that is not charged: expected it unchanged but for the "
            "counts, or spec.upgradeStrategy.type 'None', or the service suspended"
        )
        return (*resized, Refusal(type="Forbidden", field=self._field(), sentence=sentence))

    def _of_one_cluster(self, job: Json) -> Json:
        """What a new cluster is started for when it changes."""
        cluster = self.cluster(job)
        workers: list[Any] = [
            {key: value for key, value in group.items() if key not in _COUNTS}
            for group in sequence(cluster, "workerGroupSpecs")
        ]
        return {**cluster, "workerGroupSpecs": workers}
