"""``apps/v1`` Deployment: each of its pods is queued by itself, with a Workload of its own."""

from types import MappingProxyType

from controller.jobs.framework.podview import MANAGED
from controller.jobs.serving.kind import MARKS, Stamp, StampedKind


class Deployment(StampedKind):
    """Deployments, see ``kind.StampedKind``. Their pods are watched as queued pods from their creation on."""

    framework = "deployment"
    group = "apps"
    version = "v1"
    kind = "Deployment"
    plural = "deployments"
    stamps = (Stamp(path=("spec", "template"), labels=MappingProxyType({MANAGED: "true"}), copied=MARKS),)
