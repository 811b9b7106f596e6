"""``apps/v1`` Deployment: one Workload a pod.

Facts (the Deployment and ReplicaSet controllers):
- A ReplicaSet has the pods of one version of the template. Scaled down, it deletes those that wait first.
- A pod that is deleted is replaced at once, by one of another name.
- Labels of the template are those of its ReplicaSet as well.
"""

from controller.jobframework.podview import MANAGED, SUSPENDING_PARENT
from controller.jobframework.raw import Json
from controller.jobframework.templated import Path
from controller.servingkinds.kind import StampedKind, copied_marks


class Deployment(StampedKind):
    """See ``kind.StampedKind``. Its pods are queued as pods on their own are."""

    framework = "deployment"
    group = "apps"
    version = "v1"
    kind = "Deployment"
    plural = "deployments"
    templates = (("spec", "template"),)

    def stamp(self, owner: Json, _path: Path) -> tuple[dict[str, str], dict[str, str]]:
        return {**copied_marks(owner), MANAGED: "true"}, {SUSPENDING_PARENT: self.parent}
