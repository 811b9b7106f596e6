"""CRDs of job kinds for an API server: those of the shared data, and what is missing among them."""

import os
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from hack.cluster import waiting
from tests.conformance.crds import crdfiles
from tests.support.e2e.queueapi import Api

Json = dict[str, Any]

SHARED: Final = Path(os.environ.get("TESSERA_SHARED") or crdfiles.ROOT.parent / "shared") / "crds"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FOLDERS: Final = ("jobset", "kubeflow", "kuberay", "appwrapper", "spark", "lws")

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


# The trainer's first releases had podSpecOverrides in its place.
RUNTIME_PATCHES: Final = [
    {
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/runtimePatches",
        "value": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
]


def install(api: Api) -> None:
    """All of them, TrainJob's as it is now; what is there already stays."""
    assert SHARED.is_dir(), f"CRDs of job kinds not found: {SHARED} is no folder; set TESSERA_SHARED"
    files = [path for folder in FOLDERS for path in sorted((SHARED / folder).glob("*.yaml"))]
    found = [JAX_CRD, *(yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in files)]
    for crd in found:
        if crd["metadata"]["name"].startswith("trainjobs."):
            spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            spec["properties"]["runtimePatches"] = RUNTIME_PATCHES[0]["value"]
        made = api.ask("POST", CRDS, crd)
        assert made.accepted or made.body.get("reason") == "AlreadyExists", made.message
    for crd in found:
        name = crd["metadata"]["name"]
        waiting.until(partial(is_served, api, name), f"{name} served", timeout_s=60, every_s=0.1)


def is_served(api: Api, name: str) -> bool:
    conditions = api.ask("GET", f"{CRDS}/{name}").body.get("status", {}).get("conditions", ())
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
