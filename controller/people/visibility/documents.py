"""Documents that tell clients what is served: discovery and OpenAPI; and Kubernetes' Status objects. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from controller.people.visibility.routes import EXTERNAL_GROUP, EXTERNAL_VERSION, KUEUE_GROUP, KUEUE_VERSIONS, SERIES
from inventory import __version__
from inventory.api.names import VIEW_GROUP, VIEW_VERSION

Json = dict[str, Any]

_REASONS: Final[Mapping[int, str]] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    VIEW_GROUP: (VIEW_VERSION,),
    KUEUE_GROUP: KUEUE_VERSIONS,
    EXTERNAL_GROUP: (EXTERNAL_VERSION,),
}


def _resource(name: str, kind: str, *verbs: str, namespaced: bool = False, singular: str = "") -> Json:
    return {"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": list(verbs)}


_RESOURCES: Final[Mapping[str, tuple[Json, ...]]] = {
    VIEW_GROUP: (
        _resource("queueviews", "QueueView", "get", "list", singular="queueview"),
        _resource("queueviews/pending", "PendingView", "get"),
        _resource("workloadviews", "WorkloadView", "get", namespaced=True, singular="workloadview"),
        _resource("localqueueviews", "LocalQueueView", "get", namespaced=True, singular="localqueueview"),
        _resource("forecasts", "Forecast", "create", namespaced=True, singular="forecast"),
    ),
    KUEUE_GROUP: (
        _resource("clusterqueues/pendingworkloads", "PendingWorkloadsSummary", "get"),
        _resource("localqueues/pendingworkloads", "PendingWorkloadsSummary", "get", namespaced=True),
    ),
    EXTERNAL_GROUP: tuple(_resource(name, "ExternalMetricValueList", "list", namespaced=True) for name in SERIES),
}


def documents() -> dict[str, Json]:
    """The documents by path."""
    groups = {name: _group(name, versions) for name, versions in _GROUPS.items()}
    by_path: dict[str, Json] = {
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [
                {key: each[key] for key in ("name", "versions", "preferredVersion")} for each in groups.values()
            ],
        },
        "/openapi/v2": {
            "swagger": "2.0",
            "info": {"title": "Tessera", "version": __version__},
            "paths": {},
            "definitions": {},
        },
    }
    schemas = {}
    for name, group in groups.items():
        by_path[f"/apis/{name}"] = group
        for version in _GROUPS[name]:
            path = f"apis/{name}/{version}"
            by_path[f"/{path}"] = {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{name}/{version}",
                "resources": list(_RESOURCES[name]),
            }
            schemas[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
            by_path[f"/openapi/v3/{path}"] = {
                "openapi": "3.0.0",
                "info": {"title": "Tessera", "version": __version__},
                "paths": {},
            }
    by_path["/openapi/v3"] = {"paths": schemas}
    return by_path


def _group(name: str, versions: tuple[str, ...]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": listed, "preferredVersion": listed[0]}


def status(code: int, message: str) -> Json:
    """A failure as a Status object, which Kubernetes' clients read."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS[code],
        "code": code,
    }
