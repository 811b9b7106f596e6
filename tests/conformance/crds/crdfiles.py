"""The CRDs of both: ours from the chart, Kueue's where they lie."""

import os
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[3]
OURS: Final = ROOT / "charts" / "tessera" / "crds"
PLURALS: Final = {
    "AdmissionCheck": "admissionchecks",
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "ProvisioningRequestConfig": "provisioningrequestconfigs",
    "ResourceFlavor": "resourceflavors",
    "Topology": "topologies",
    "Workload": "workloads",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}
VERSIONS: Final = ("v1beta1", "v1beta2")


def peers() -> Path:
    """The folder ``crds/kueue`` under ``$TESSERA_SHARED``, by default under ``../shared`` beside the checkout."""
    shared = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared")
    found = shared / "crds" / "kueue"
    if not found.is_dir():
        raise FileNotFoundError(f"Kueue's CRDs not found: {found} is no folder; set TESSERA_SHARED")
    return found


@cache
def ours(kind: str) -> dict[str, Any]:
    return _read(OURS / f"{PLURALS[kind]}.kueue.x-k8s.io.yaml")


@cache
def peer(kind: str) -> dict[str, Any]:
    return _read(peers() / f"kueue.x-k8s.io_{PLURALS[kind]}.yaml")


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


def version(crd: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in crd["spec"]["versions"] if one["name"] == name)
    return found


def schema(crd: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = version(crd, name)["schema"]["openAPIV3Schema"]
    return found
