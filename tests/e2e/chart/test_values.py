"""What Helm says of a wrong value: the value by its path, what was found, what is expected."""

import json
import subprocess
from pathlib import Path

import pytest

from hack.cluster.programs import binaries

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[3] / "charts" / "tessera"
KIND = {"group": "a.example", "version": "v1", "kind": "Sweep", "plural": "Sweeps", "suspend": ".spec.a"}
REST = {"podSets": [], "ready": "", "active": ""}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("migStrateg=single", "at '': additional properties 'migStrateg' not allowed"),
        ("migStrategy=both", "at '/migStrategy': value must be one of <nil>, 'none', 'single', 'mixed'"),
        ("metrics.port=0", "at '/metrics/port': minimum: got 0, want 1"),
        ("deviceListStrategy=cdi", "at '/deviceListStrategy': value must be one of"),
        ("deviceListStrategy={cdi}", "at '/deviceListStrategy/0': value must be one of"),
        (
            "nvidiaDriverRoot=run",
            'nvidiaDriverRoot: found "run", expected an absolute path, such as /run/nvidia/driver',
        ),
        ("stateDir=", 'stateDir: found "", expected an absolute path'),
        ("mps.resources={a.example/b,gpu}", 'mps.resources[]: found "gpu", expected a resource\'s name'),
        ("controller.kai.leases={a/b/c}", 'controller.kai.leases[]: found "a/b/c", expected NAMESPACE/NAME of a Lease'),
        ("controller.page.oidc.issuerURL=https://a.example", "controller.page.oidc.clientID: found nothing, expected"),
    ],
)
def test_a_wrong_value_is_refused_with_a_sentence(setting: str, said: str) -> None:
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert said in done.stderr


def test_of_a_list_of_objects_the_field_is_named() -> None:
    command = [
        str(binaries.binary("helm")),
        "template",
        "t",
        str(CHART),
        "--set-json",
        f"controller.jobKinds={json.dumps([KIND | REST])}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert 'controller.jobKinds[].plural: found "Sweeps", expected the kind' in done.stderr
