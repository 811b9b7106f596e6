"""Inputs that reach deep into the parsers of the controller."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hack.fuzz.common import as_json, manifests
from inventory.api import names

OBJECTS: Final = (
    "queues/*.yaml",
    "simulate/*.yaml",
    "kinds/*.yaml",
    "kai/*.yaml",
    "volcano/*.yaml",
    "claims/*.yaml",
    "*.yaml",
)


def objects() -> list[dict[str, Any]]:
    return [each for each in manifests(*OBJECTS) if isinstance(each.get("kind"), str)]


def read_here() -> Sequence[bytes]:
    from controller.objects.decode import KINDS

    found = [each for each in objects() if (each.get("apiVersion"), each["kind"]) in KINDS]
    bare = [{"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": {}} for version, kind in KINDS]
    return as_json([*found, *bare])


def as_reviews() -> Sequence[bytes]:
    return as_json(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "u", "operation": operation, "namespace": "team", "dryRun": True, "object": body},
        }
        for body in objects()
        for operation in ("CREATE", "UPDATE")
        if len(str(body)) < 6_000  # noqa: PLR2004 - small ones are changed faster
    )


def conversions() -> Sequence[bytes]:
    queues = [each for each in objects() if str(each.get("apiVersion")).startswith("kueue")]
    return as_json(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": {"uid": "u", "desiredAPIVersion": f"kueue.x-k8s.io/{version}", "objects": [each]},
        }
        for each in queues
        for version in ("v1beta1", "v1beta2")
    )


def requests() -> Sequence[bytes]:
    from inventory.api.names import VIEW_GROUP, VIEW_VERSION

    root = f"/apis/{VIEW_GROUP}/{VIEW_VERSION}"
    kueue = "/apis/visibility.kueue.x-k8s.io/v1beta2"
    lines = (
        f"{root}/queueviews/all/pending?offset=3&limit=5",
        f"{root}/namespaces/team/workloadviews/a",
        f"{kueue}/namespaces/team/localqueues/a/pendingworkloads",
        f"{root}/namespaces/team/forecasts",
    )
    return [f'{line}\n{{"spec": {{"manifest": {{"kind": "Job"}}}}}}'.encode() for line in lines]


GPU_NODE: Final = {
    "metadata": {"name": "n"},
    "status": {
        "gpus": [
            {
                "uuid": "GPU-1",
                "index": 0,
                "product": "A",
                "mode": "whole",
                "pciBusId": "0000:07:00.0",
                "memoryMiB": 1,
                "offers": [{"resource": "nvidia.com/gpu"}],
                "health": {"state": "Healthy"},
            }
        ]
    },
}
ANNOTATIONS: Final = {
    names.GANG: '{"minimum":2,"subgroups":[{"name":"a","minimum":1}]}',
    names.QUOTA_SHARES: '{"default":{"nvidia.com/gpu":"50%"}}',
}
QUOTA: Final = {"queue": "q", "flavor": "f", "resource": "cpu", "nominal": "4"}
REVIEW: Final = {"authenticated": True, "user": {"username": "me", "uid": "1", "groups": ["a"], "extra": {"k": ["v"]}}}
PROXY: Final = {"requestheader-allowed-names": '["front"]', "requestheader-username-headers": '["X-Remote-User"]'}


def pods_and_jobs() -> Sequence[bytes]:
    return [msgspec.json.encode(each) for each in objects() if each["kind"] not in ("Node", "GpuNode")]
