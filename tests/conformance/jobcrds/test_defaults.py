"""The defaults that a simulation fills in are those of the CRDs, and none that bears on a charge is missing."""

import pytest

from controller.insight.simulation.crddefaults import DEFAULTS
from controller.jobs.framework.kind import api_version
from controller.jobs.kinds.table import DECLARED_KINDS
from tests.conformance.jobcrds.kindcrds import below, specs

pytestmark = pytest.mark.conformance

WITHOUT_BEARING = {
    "backoffLimit": "retries keep the quota",
    "failurePolicy": "restarts keep the quota",
    "flux": "a plugin of the runtime that adds no pod",
    "groupName": "a name for the jobs of a JobSet, and no pod",
    "launcherCreationPolicy": "the launcher is charged from the beginning",
    "mpiImplementation": "what the containers run",
    "networkPolicy": "no pod",
    "networkTopology": "Volcano's scheduler alone reads it",
    "podGroupPolicy": "another scheduler's gang",
    "priority": "the order in which Ray's autoscaler grows the groups",
    "retentionPolicy": "volumes",
    "slotsPerWorker": "processes in a pod",
    "sshAuthMountPath": "a volume",
    "suspend": "the policies set it when a job is created, and a simulation starts there",
    "ttlSecondsAfterFinished": "after the end",
    "ttlSeconds": "after the end",
    "upgradeStrategy": "a second cluster of a RayService is refused",
}
"""Words of a path, and why a default there does not change what is charged."""
OF_CONTAINERS = {"env", "envFrom", "initContainers", "sidecars", "headService", "serveService", "podSpecOverrides"}
REFERENCES = {"fileKeyRef", "secretRef", "secretKeyRef", "configMapKeyRef", "imagePullSecrets", "volumes"}
READ = {(api_version(kind), kind.kind) for kind in DECLARED_KINDS} | {
    (f"{other.group}/{other.version}", other.kind) for kind in DECLARED_KINDS for other in kind.reads
}


def given(key: tuple[str, str]) -> dict[str, object]:
    """The defaults that bear on a charge, by path. JAXJob has no CRD there."""
    skipped = WITHOUT_BEARING.keys() | OF_CONTAINERS | REFERENCES
    return {
        path: field["default"]
        for path, field in below(specs().get(key, {}), "spec")
        if "default" in field and skipped.isdisjoint(path.replace("[]", "").replace("{}", "").split("."))
    }


@pytest.mark.parametrize("key", sorted(READ), ids=lambda key: key[1])
def test_a_simulation_fills_in_what_the_crd_does(key: tuple[str, str]) -> None:
    assert dict(DEFAULTS.get(key, {})) == given(key)


def test_no_default_is_of_a_kind_that_is_not_read() -> None:
    assert DEFAULTS.keys() <= READ
