"""Roles for people who edit jobs, with what each says of the status: those that the kinds' own releases ship.

Source: JobSet config/rbac/jobset_editor_role.yaml; KubeRay ray-operator/config/rbac; Kubeflow's training operator 1.8
manifests/overlays/kubeflow; its trainer manifests/overlays/kubeflow-platform; the MPI operator
manifests/base/cluster-role.yaml; the Spark operator config/rbac; AppWrapper config/rbac. Kueue ships the same for all
of them, which read the status too.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_EDIT: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Editor(NamedTuple):
    """``of_status``: what the role may do with the status of the objects."""

    group: str
    plurals: tuple[str, ...]
    of_status: tuple[str, ...] = ("get",)


EDITORS: Final = (
    Editor("jobset.x-k8s.io", ("jobsets",)),
    Editor("ray.io", ("rayclusters", "rayjobs", "rayservices")),
    Editor("kubeflow.org", ("pytorchjobs", "tfjobs", "xgboostjobs", "paddlejobs", "jaxjobs")),
    Editor("kubeflow.org", ("mpijobs",), of_status=_EDIT),
    Editor("trainer.kubeflow.org", ("trainjobs",)),
    Editor("sparkoperator.k8s.io", ("sparkapplications",)),
    Editor("workload.codeflare.dev", ("appwrappers",)),
    Editor("leaderworkerset.x-k8s.io", ("leaderworkersets",)),
)


def cluster_role(name: str) -> dict[str, Any]:
    """All of them as one role."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": list(_rules()),
    }


def _rules() -> Iterator[dict[str, Any]]:
    for editor in EDITORS:
        group, plurals = [editor.group], list(editor.plurals)
        yield {"apiGroups": group, "resources": plurals, "verbs": list(_EDIT)}
        status = [f"{plural}/status" for plural in plurals]
        yield {"apiGroups": group, "resources": status, "verbs": list(editor.of_status)}
