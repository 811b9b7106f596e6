"""The chart's controller: rendered, read by the code it configures, and taken by a real API server."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cluster.config.load import parse
from controller.cluster.config.settings import Policy
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.lab import until

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[3] / "charts" / "tessera"
OIDC = CHART.parents[1] / "examples" / "page" / "oidc-values.yaml"
NAME = "t-tessera-controller"


def rendered(*settings: str, file: Path | None = None) -> str:
    words = [word for one in settings for word in ("--set-json", one)]
    words += ["--values", str(file)] if file else []
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--namespace", "tessera-system", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}


@pytest.fixture(scope="module", autouse=True)
def helm() -> None:
    binaries.build("helm")


def test_its_configuration_is_one_and_the_sites_keys_win() -> None:
    found = objects(rendered('controller.config={"fairSharing": {}, "webhook": {"port": 9999}}'))
    config = parse(found["ConfigMap", NAME]["data"]["controller.yaml"])
    assert config.policy is Policy.TESSERA
    assert config.engine.fair_sharing is not None
    assert config.webhook.port == 9999
    assert config.certificates.service_name == f"{NAME}-webhook"
    assert ("Service", f"{NAME}-webhook") in found
    assert config.without_effect == ()


def test_it_runs_twice_without_any_privilege() -> None:
    found = objects(rendered())
    spec = found["Deployment", NAME]["spec"]
    assert spec["replicas"] == 2
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert found["PodDisruptionBudget", NAME]["spec"]["minAvailable"] == 1
    rules = found["ClusterRole", NAME]["rules"]
    assert not any("*" in rule[part] for rule in rules for part in ("apiGroups", "resources", "verbs"))
    assert not any("secrets" in rule["resources"] for rule in rules)


def test_the_past_is_recorded_on_a_volume_of_each_replicas_own() -> None:
    def pod(kind: str, *settings: str) -> dict[str, Any]:
        found = objects(rendered(*settings))
        assert (kind, NAME) in found
        assert (
            len([one for key, one in found.items() if key[1] == NAME and key[0] in ("Deployment", "StatefulSet")]) == 1
        )
        spec: dict[str, Any] = found[kind, NAME]["spec"]
        return spec

    def volumes(spec: dict[str, Any]) -> dict[str, Any]:
        return {one["name"]: one for one in spec["template"]["spec"]["volumes"]}

    usual = pod("Deployment")
    assert volumes(usual)["history"]["emptyDir"] == {"sizeLimit": "512Mi"}
    claimed = pod("StatefulSet", 'controller.history.persistence={"enabled": true, "storageClassName": "fast"}')
    assert "history" not in volumes(claimed)
    (claim,) = claimed["volumeClaimTemplates"]
    assert (claim["metadata"]["name"], claim["spec"]["storageClassName"]) == ("history", "fast")
    assert claimed["template"]["spec"]["securityContext"]["fsGroup"] == 65532
    assert claimed["selector"] == usual["selector"]
    for spec in (usual, claimed):
        (container,) = spec["template"]["spec"]["containers"]
        assert "/var/lib/tessera-history" in {one["mountPath"] for one in container["volumeMounts"]}
    off = pod("Deployment", "controller.history.enabled=false")
    assert "history" not in volumes(off)
    text = objects(rendered("controller.history.enabled=false"))["ConfigMap", NAME]["data"]["controller.yaml"]
    assert parse(text).page_history is None
    usual_text = objects(rendered())["ConfigMap", NAME]["data"]["controller.yaml"]
    assert parse(usual_text).page_history == Path("/var/lib/tessera-history")


def test_agents_and_controller_are_reached_at_the_ports_that_they_serve_alone() -> None:
    found = objects(rendered('networkPolicy.metricsFrom=[{"podSelector": {"matchLabels": {"app": "prometheus"}}}]'))
    for key, kind in ((NAME, "Deployment"), (NAME.replace("controller", "agent"), "DaemonSet")):
        policy, pod = found["NetworkPolicy", key]["spec"], found[kind, key]["spec"]["template"]
        assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert policy["policyTypes"] == ["Ingress"]
        (container,) = (each for each in pod["spec"]["containers"] if each.get("ports"))
        opened = {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}
        assert set(opened) == {port["name"] for port in container["ports"]}
        assert {name for name, peers in opened.items() if peers} == {"metrics"}
    assert not [kind for kind, _ in objects(rendered("networkPolicy.enabled=false")) if kind == "NetworkPolicy"]


def test_the_page_signs_people_in_with_a_secret_that_no_configmap_has() -> None:
    found = objects(rendered('controller.page.oidc.ca.name="authorities"', file=OIDC))
    oidc = parse(found["ConfigMap", NAME]["data"]["controller.yaml"]).oidc
    assert oidc is not None
    assert (oidc.issuer_url, oidc.client_id, oidc.scopes) == (
        "https://login.example.com",
        "tessera",
        ("email", "groups"),
    )
    pod = found["Deployment", NAME]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["page-client-secret"]["secret"] == {
        "secretName": "page-login",
        "items": [{"key": "client-secret", "path": "value"}],
    }
    assert volumes["page-ca"]["configMap"] == {"name": "authorities", "items": [{"key": "ca.crt", "path": "value"}]}
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert oidc.client_secret_file is not None
    assert oidc.ca_file is not None
    assert mounts[str(oidc.client_secret_file.parent)] == "page-client-secret"
    assert mounts[str(oidc.ca_file.parent)] == "page-ca"
    assert {oidc.client_secret_file.name, oidc.ca_file.name} == {"value"}


def test_without_a_provider_nothing_is_mounted_for_one() -> None:
    text = rendered()
    assert "oidc" not in objects(text)["ConfigMap", NAME]["data"]["controller.yaml"]
    assert "tessera-page" not in text


def test_without_the_controller_there_is_nothing_of_it() -> None:
    assert not [key for key in objects(rendered("controller.enabled=false")) if "controller" in key[1]]


def test_bargaining_and_external_metrics_are_there_by_their_values_alone() -> None:
    usual = objects(rendered())
    assert ("ValidatingAdmissionPolicy", "t-tessera-capacity-off") in usual
    assert ("APIService", "v1beta1.external.metrics.k8s.io") not in usual
    on = objects(rendered("controller.bargaining.enabled=true", "controller.visibility.externalMetrics=true"))
    assert ("ValidatingAdmissionPolicy", "t-tessera-capacity-off") not in on
    assert ("ValidatingAdmissionPolicy", f"{NAME}-capacity-pods") in on
    assert ("APIService", "v1beta1.external.metrics.k8s.io") in on
    assert parse(on["ConfigMap", NAME]["data"]["controller.yaml"]).bargaining.on
    assert not parse(usual["ConfigMap", NAME]["data"]["controller.yaml"]).bargaining.on


def test_what_was_granted_keeps_its_policies_and_rights_where_bargaining_is_off() -> None:
    """The controller brings it to its end, and who may edit a namespace may delete requests of before."""
    usual, on = objects(rendered()), objects(rendered("controller.bargaining.enabled=true"))
    of_capacity = {key for key in on if "capacity" in key[1]}
    off = {
        ("ValidatingAdmissionPolicy", "t-tessera-capacity-off"),
        ("ValidatingAdmissionPolicyBinding", "t-tessera-capacity-off"),
    }
    assert {key for key in usual if "capacity" in key[1]} == of_capacity | off
    assert all(usual[key] == on[key] for key in of_capacity)
    assert usual["ClusterRole", NAME] == on["ClusterRole", NAME]
    others = objects(rendered("controller.jobs.manageWithoutQueueName=true"))
    assert ("ValidatingAdmissionPolicy", f"{NAME}-capacity-pods") not in others
    assert not [
        key for key in objects(rendered("controller.enabled=false")) if "capacity" in key[1] and "off" not in key[1]
    ]


def test_an_uninstall_takes_the_finalizers_off_with_rights_of_its_own() -> None:
    found = objects(rendered())
    hooks = {key: one for key, one in found.items() if key[1] == f"{NAME}-uninstall"}
    rights = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    assert {kind for kind, _ in hooks} == {"ServiceAccount", "Job", *rights}
    assert all(one["metadata"]["annotations"]["helm.sh/hook"] == "post-delete" for one in hooks.values())
    (container,) = hooks["Job", f"{NAME}-uninstall"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["tessera-controller", "--remove-finalizers"]
    assert not [
        key for key in objects(rendered("controller.removeFinalizersOnUninstall=false")) if "uninstall" in key[1]
    ]


def test_helm_test_looks_with_rights_to_look_alone() -> None:
    found = objects(rendered())
    hooks = {key: one for key, one in found.items() if key[1] == f"{NAME}-test"}
    rules = [rule for one in hooks.values() for rule in one.get("rules", ())]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list"}
    assert all(one["metadata"]["annotations"]["helm.sh/hook"] == "test" for one in hooks.values())
    (container,) = hooks["Pod", f"{NAME}-test"]["spec"]["containers"]
    assert container["command"] == ["tessera-controller", "--check-installation"]


def test_the_priority_classes_have_the_names_and_values_that_sites_know() -> None:
    found = objects(rendered("controller.priorityClasses.create=true"))
    values = {
        "system-critical": 1_000_000,
        "production-inference": 10_000,
        "training-high": 1_000,
        "training-standard": 500,
        "development": 100,
    }
    assert {name: one["value"] for (kind, name), one in found.items() if kind == "WorkloadPriorityClass"} == values
    pods = {("tessera-" if name.startswith("system-") else "") + name: value for name, value in values.items()}
    pods["tessera-placeholder"] = -10
    assert {name: one["value"] for (kind, name), one in found.items() if kind == "PriorityClass"} == pods


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster.up(f"controllerchart-{os.getpid()}", Spec(nodes=())) as cluster:
        yield cluster


def test_a_real_api_server_takes_all_of_it(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "tessera-system")
    cluster.kubectl("apply", "--server-side", "-f", str(CHART / "crds"))
    # A dry run makes no account, and a pod of one that is not there is refused.
    more = ("controller.bargaining.enabled=true", "controller.visibility.externalMetrics=true")
    text = rendered("controller.priorityClasses.create=true", *more, file=OIDC)
    text = "---\n".join(yaml.safe_dump(one) for one in objects(text).values() if one["kind"] != "Pod")
    for dry in ("--dry-run=server", "--dry-run=none"):
        cluster.kubectl("apply", "--server-side", dry, "-f", "-", input=text)


def test_an_annotation_that_cannot_be_read_is_told_to_who_writes_it(cluster: Cluster) -> None:
    """After the installation, on the same API server."""
    container = {"name": "main", "image": "none"}
    template: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "annotations": {"tessera.dev/spot": "nevr"}},
        "spec": {"suspend": True, "template": template},
    }
    queue: dict[str, Any] = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "q", "namespace": "default", "annotations": {"tessera.dev/on-demand-floor": "25"}},
        "spec": {"clusterQueue": "cq"},
    }
    until(lambda: bool(warnings(cluster, job)), "the policy in effect")
    assert [line.partition("binding ")[2].partition(": ")[2] for line in warnings(cluster, job)] == [
        (
            'metadata.annotations[tessera.dev/spot]: found "nevr", expected never, allowed or preferred; '
            "until then it counts as not written"
        )
    ]
    assert "[tessera.dev/on-demand-floor]: found" in "".join(warnings(cluster, queue))
    template["metadata"] = {"annotations": {"tessera.dev/checkpoint-grace": "1 minute"}}
    assert "spec.template.metadata.annotations[tessera.dev/checkpoint-grace]: found" in "".join(warnings(cluster, job))
    job["metadata"]["annotations"] = {"tessera.dev/spot": "never"}
    template["metadata"] = {"annotations": {"tessera.dev/checkpoint-grace": "1m"}}
    assert warnings(cluster, job) == []


def warnings(cluster: Cluster, body: dict[str, Any]) -> list[str]:
    words, environment = cluster.kubectl_command("create", "--dry-run=server", "-f", "-")
    done = subprocess.run(
        words, env=environment, input=json.dumps(body), capture_output=True, text=True, check=True, timeout=60
    )
    return [line for line in done.stderr.splitlines() if line.startswith("Warning: Validation")]
