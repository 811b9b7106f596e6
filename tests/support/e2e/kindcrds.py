"""CRDs of job kinds for an API server: those of the shared data, and what is missing among them."""

import os
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from hack.cluster import waiting
from tests.conformance.crds import crdfiles
from tests.support.controller.declarations import job_kind
from tests.support.e2e.queueapi import Api

Json = dict[str, Any]

SHARED: Final = Path(os.environ.get("TESSERA_SHARED") or crdfiles.ROOT.parent / "shared") / "crds"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FOLDERS: Final = ("jobset", "kubeflow", "kuberay", "spark", "lws")

JAX_CRD: Final[Json] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jaxjobs.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "names": {"kind": "JAXJob", "listKind": "JAXJobList", "plural": "jaxjobs", "singular": "jaxjob"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            part: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            for part in ("spec", "status")
                        },
                    }
                },
            }
        ],
    },
}


OTHER_JOB: Final[Json] = job_kind(group="lab.example", kind="Job", plural="jobs")["spec"]
"""A kind of one's own that is called as Kubernetes' is, and held by another field."""
OTHER_JOB_CRD: Final[Json] = JAX_CRD | {
    "metadata": {"name": "jobs.lab.example"},
    "spec": JAX_CRD["spec"]
    | {
        "group": "lab.example",
        "names": {"kind": "Job", "listKind": "JobList", "plural": "jobs", "singular": "job"},
    },
}

# The trainer's first releases had podSpecOverrides in its place.
RUNTIME_PATCHES: Final = [
    {
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/runtimePatches",
        "value": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
]


def install(api: Api) -> None:
    """Those that Kueue has webhook cases about, TrainJob's as it is now, and one of a name that another group has."""
    assert SHARED.is_dir(), f"CRDs of job kinds not found: {SHARED} is no folder; set TESSERA_SHARED"
    files = [path for folder in FOLDERS for path in sorted((SHARED / folder).glob("*.yaml"))]
    listed = (yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in files if "runtimes" not in path.name)
    found = [JAX_CRD, OTHER_JOB_CRD, *map(without_texts, listed)]
    for crd in found:
        crd["spec"]["versions"] = [version for version in crd["spec"]["versions"] if version["storage"]]
        if crd["metadata"]["name"].startswith("trainjobs."):
            spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            spec["properties"]["runtimePatches"] = RUNTIME_PATCHES[0]["value"]
        made = api.ask("POST", CRDS, crd)
        assert made.accepted or made.body.get("reason") == "AlreadyExists", made.message
    for crd in found:
        name = crd["metadata"]["name"]
        waiting.until(partial(is_served, api, name), f"{name} served", timeout_s=60, every_s=0.1)


def without_texts(node: Any) -> Any:
    """Descriptions are most of a CRD, and of the time that a server takes over it."""
    if isinstance(node, dict):
        return {
            key: without_texts(item) for key, item in node.items() if key != "description" or not isinstance(item, str)
        }
    return [without_texts(item) for item in node] if isinstance(node, list) else node


def is_served(api: Api, name: str) -> bool:
    conditions = api.ask("GET", f"{CRDS}/{name}").body.get("status", {}).get("conditions", ())
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
