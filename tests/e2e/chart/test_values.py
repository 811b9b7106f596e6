"""What Helm says of a wrong value: the value by its path, what was found, what is expected."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from controller.cluster.config.load import parse
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
        (
            "controller.config.tessera.spot.maxGrace=20s",
            'controller.config.tessera.spot.maxGrace: found "20s", expected a duration of whole seconds from 30s to',
        ),
        (
            "controller.config.tessera.spot.maxGrace=20m,controller.pods.maxCheckpointGraceSeconds=600",
            "controller.pods.maxCheckpointGraceSeconds: found 600, expected null or 1200 as controller.config.tessera",
        ),
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


OLD, NEW = "controller.pods.maxCheckpointGraceSeconds", "controller.config.tessera.spot.maxGrace"


@pytest.mark.parametrize(
    ("by", "settings", "pods_get_s", "is_believed"),
    [
        ("policy", (), 600, "600s"),
        ("policy", (f"{OLD}=900",), 900, "900s"),
        ("policy", (f"{NEW}=1h30m",), 5400, "1h30m"),
        ("policy", (f"{NEW}=20m", f"{OLD}=1200"), 1200, "20m"),
        ("webhook", (), None, "30s"),
        ("webhook", (f"{OLD}=900",), None, "30s"),
    ],
)
def test_a_grace_is_believed_as_far_as_the_api_server_raises_pods_to_it(
    by: str, settings: tuple[str, ...], pods_get_s: int | None, is_believed: str
) -> None:
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--set", f"controller.jobs.suspendBy={by}"]
    command += [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    objects = [each for each in yaml.safe_load_all(done.stdout) if each is not None]
    marks = [
        each for each in objects if each["metadata"]["name"].endswith("-pod-marks") and "mutations" in each["spec"]
    ]
    most = [
        int(variable["expression"])
        for each in marks
        for variable in each["spec"]["variables"]
        if variable["name"] == "most"
    ]
    assert most == ([] if pods_get_s is None else [pods_get_s])
    (written,) = (next(iter(each["data"].values())) for each in objects if "maxGrace" in str(each.get("data")))
    assert f"maxGrace: {is_believed}\n" in written
    expected_s = 30 if pods_get_s is None else pods_get_s
    assert parse(written).engine.extensions.max_grace_s == expected_s, "the controller reads the same number"


def test_the_pod_that_cleans_up_at_an_uninstall_goes_where_the_controller_may() -> None:
    where = {
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    }
    values = [part for key, value in where.items() for part in ("--set-json", f"controller.{key}={json.dumps(value)}")]
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), *values]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    objects = [each for each in yaml.safe_load_all(done.stdout) if each is not None]
    (hook,) = (each for each in objects if (each["kind"], each["metadata"]["name"][-9:]) == ("Job", "uninstall"))
    pod = hook["spec"]["template"]["spec"]
    assert {key: pod.get(key) for key in where} == where
