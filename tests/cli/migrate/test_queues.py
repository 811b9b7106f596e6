"""Kueue's, Volcano's and KAI's configurations and objects become a plan in which two controllers never decide."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.migrate.foreign.part import scheduler_losses
from controller.cluster.config.load import parse
from tests.cli.conftest import Run
from tests.cli.migrate.conftest import Answer
from tests.support.hang import HANG_S

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "migrate"
EVERY = "{matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}"
HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


MEANWHILE = "Jobs and Pods that are created while neither Kueue nor the controller runs"


def commands(found: dict[str, Any]) -> list[str]:
    return [each["command"] for each in found["steps"]]


def configurations_of(command: str, *leads: tuple[str, str, str]) -> list[str]:
    """The webhook configurations that a step takes away, where each of ``leads`` (name, namespace, Service) is one:
    the shell runs its command with a kubectl that prints them as the template says.
    """
    lines = "".join(f"{name} {space}/{service}\\n" for name, space, service in leads)
    names, _, _ = command.partition('objects="$(')[2].partition(" | xargs")
    script = f"kubectl() {{ printf '{lines}'; }}; {names}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=HANG_S)
    return done.stdout.split()


def what(found: list[dict[str, str]]) -> set[str]:
    return {each["what"] for each in found}


def test_the_example_of_kueue_keeps_its_objects_and_names_what_has_no_effect(migrated: Answer) -> None:
    found = migrated(str(EXAMPLES / "kueue.yaml"))
    controller = found["values"]["controller"]
    assert (controller["enabled"], controller["policy"]) == (True, "kueue")
    assert controller["config"]["waitForPodsReady"] == {"timeout": "5m"}
    assert controller["config"]["featureGates"]["PartialAdmission"] is True
    assert controller["jobs"]["manageWithoutQueueName"] is True
    assert "ClusterQueue research" in what(found["kept"])
    lost = {
        each.removeprefix("ConfigMap kueue-manager-config, controller_manager_config.yaml: ")
        for each in what(found["lost"])
    }
    assert {"MultiKueueConfig elsewhere", MEANWHILE} < lost
    assert {"health.healthProbeBindAddress", "metrics.bindAddress", "webhook.port"} < lost
    lines = commands(found)
    stop = lines.index("kubectl scale deployment/kueue-controller-manager --namespace=kueue-system --replicas=0")
    (drop,) = (i for i, each in enumerate(lines) if "webhookconfigurations" in each)
    assert configurations_of(lines[drop], ("one", "kueue-system", "kueue-webhook-service")) == ["one"]
    assert drop < stop < next(i for i, each in enumerate(lines) if "helm install" in each)
    assert not any("workloads.kueue.x-k8s.io.yaml" in each or each.endswith("-f charts/tessera/crds") for each in lines)


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nfairSharing: {enable: true}\n",
        f"{HEAD}managedJobsNamespaceSelector: {EVERY}\nintegrations: {{frameworks: [pod]}}\n",
        f"{HEAD}leaderElection: {{resourceNamespace: kueue-system, leaseDuration: 20s}}\n",
        f"{HEAD}tls: {{minVersion: VersionTLS12}}\n",
        f"{HEAD}internalCertManagement: {{enable: false}}\nmanageJobsWithoutQueueName: false\n",
    ],
)
def test_the_controller_takes_the_configuration_that_the_chart_makes_of_the_values(migrated: Answer, text: str) -> None:
    controller = migrated(config__yaml=text)["values"]["controller"]
    jobs = controller.get("jobs", {})
    selector = jobs.get("namespaceSelector") or {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "tessera-system"]}
        ]
    }
    chart = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "tessera-system",
        "health": {"healthProbeBindAddress": "0"},
        "manageJobsWithoutQueueName": jobs.get("manageWithoutQueueName", False),
        "integrations": {"frameworks": ["batch/job", "pod"]},
        "managedJobsNamespaceSelector": selector,
        "webhook": {"port": 9443},
        "tessera": {"policy": "kueue"},
    }
    parse(json.dumps(chart | controller.get("config", {})))


def test_the_ways_back_start_a_controller_and_await_it_before_its_webhooks_are_asked_again(migrated: Answer) -> None:
    files = [str(EXAMPLES / "kueue.yaml"), str(ROOT / "examples" / "kai" / "queues.yaml")]
    back = [each["undo"] for each in reversed(migrated(*files)["steps"])]
    for system in ("kueue", "kai"):
        hooks = next(i for i, each in enumerate(back) if f"before-{system}-webhooks" in each)
        (start,) = (i for i, each in enumerate(back) if f"--namespace={system}-s" in each and "kubectl scale" in each)
        assert start < hooks, system
        assert back[start].index("kubectl scale") < back[start].index("kubectl rollout status"), system
    uninstall = next(i for i, each in enumerate(back) if "helm uninstall" in each)
    assert uninstall < min(i for i, each in enumerate(back) if "kubectl scale" in each)
    stop = next(each for each in back if "kueue-controller-manager" in each)
    assert "--replicas=2" in stop


def test_values_of_kueues_chart_are_read_with_the_configuration_in_them(migrated: Answer) -> None:
    values = {
        "enableKueueViz": True,
        "controllerManager": {
            "replicas": 3,
            "featureGates": [{"name": "PartialAdmission", "enabled": True}, {"name": "Nope", "enabled": True}],
        },
        "managerConfig": {"controllerManagerConfigYaml": f"{HEAD}fairSharing: {{}}\npprofBindAddress: ':8083'\n"},
    }
    found = migrated(values__yaml=yaml.safe_dump(values))
    controller = found["values"]["controller"]
    assert (controller["replicas"], controller["config"]["featureGates"]) == (3, {"PartialAdmission": True})
    assert controller["config"]["fairSharing"] == {}
    assert what(found["lost"]) == {
        "Kueue's chart: enableKueueViz",
        "controllerManagerConfigYaml: pprofBindAddress",
        "feature gate Nope",
        MEANWHILE,
    }


def test_a_mistake_in_kueues_configuration_is_a_line_of_the_manifest(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    text = "".join(f"    {line}\n" for line in f"{HEAD}waitForPodsReady: {{timeout: soon}}".splitlines())
    file.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  a.yaml: |\n{text}")
    done = run("migrate", str(file))
    assert done.exit_code == 2
    assert f"{file}:8: waitForPodsReady.timeout: found 'soon'" in done.stderr


@pytest.mark.parametrize("file", sorted((ROOT / "examples" / "volcano").glob("*.yaml")), ids=lambda each: each.stem)
def test_volcanos_manifests_stay_as_they_are(migrated: Answer, file: Path) -> None:
    found = migrated(str(file))
    assert found["lost"] == []
    assert found["values"]["controller"]["volcano"] == {"enabled": True}
    assert "kubectl apply --server-side -f charts/tessera/crds" in commands(found)
    assert any("--namespace=volcano-system" in each for each in commands(found))


def test_kais_queues_stay_as_they_are(migrated: Answer) -> None:
    found = migrated(str(ROOT / "examples" / "kai" / "queues.yaml"))
    assert found["lost"] == []
    assert found["values"]["controller"]["kai"] == {"enabled": True}


def test_what_nothing_here_serves_of_their_objects_is_lost(migrated: Answer) -> None:
    queue = {"affinity": {"nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["a"]}}}
    late = {"annotations": {"sla-waiting-time": "1h"}}
    texts = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, **more}, "spec": spec}
        for version, kind, name, more, spec in (
            ("scheduling.volcano.sh/v1beta1", "Queue", "q", {}, queue),
            ("topology.volcano.sh/v1alpha1", "HyperNode", "h", {}, {"tier": 1}),
            ("kai.scheduler/v1", "SchedulingShard", "s", {}, {}),
            ("scheduling.run.ai/v2", "Queue", "team", {}, {"priority": 1}),
            ("batch.volcano.sh/v1alpha1", "Job", "j", late, {}),
        )
    ]
    found = migrated(objects__yaml=yaml.safe_dump_all(texts))
    assert what(found["lost"]) == {
        "Queue q: spec.affinity.nodeGroupAffinity.requiredDuringSchedulingIgnoredDuringExecution[]",
        "HyperNode h",
        "SchedulingShard s",
        "Job j: sla-waiting-time",
    }
    assert "Queue team" in what(found["kept"])


def test_actions_and_plugins_of_a_scheduler_are_named_where_nothing_here_does_the_same(migrated: Answer) -> None:
    found = migrated(str(EXAMPLES / "volcano-scheduler.conf.yaml"))
    lost = {
        each.removeprefix("ConfigMap volcano-scheduler-configmap, volcano-scheduler.conf: ")
        for each in what(found["lost"])
    }
    assert lost == {"action shuffle", "plugin gang: enablePreemptable", "plugin drf", "plugin binpack"}


def test_an_action_or_plugin_that_nobody_knows_is_lost() -> None:
    data = {"actions": "allocate, dance", "tiers": [{"plugins": [{"name": "mine"}, {"name": "gang"}]}]}
    assert [each.what for each in scheduler_losses("f", data)] == ["f: action dance", "f: plugin mine"]


def test_a_scheduler_of_another_name_is_known_by_it(migrated: Answer) -> None:
    values = {"basic": {"image_tag_version": "v1"}, "custom": {"scheduler_name": "vc", "colocation_enable": True}}
    found = migrated(values__yaml=yaml.safe_dump(values))
    assert found["values"]["controller"]["volcano"] == {"enabled": True, "schedulerNames": ["vc"]}
    assert what(found["lost"]) == {"Volcano's chart: custom.colocation_enable"}


def test_kueue_beside_volcano_decides_by_kueues_policy(migrated: Answer) -> None:
    found = migrated(str(EXAMPLES / "kueue.yaml"), str(ROOT / "examples" / "volcano" / "job.yaml"))
    controller = found["values"]["controller"]
    assert (controller["policy"], controller["volcano"]) == ("kueue", {"enabled": True})
    assert len([each for each in commands(found) if "helm install" in each]) == 1


def deployment(name: str, namespace: str, image: str, **spec: Any) -> str:
    pod = {"spec": {"containers": [{"name": "c", "image": image}], **spec}}
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace}}
    return yaml.safe_dump({**head, "spec": {"replicas": 2, "template": pod}})


@pytest.mark.parametrize(
    ("text", "service"),
    [
        (deployment("prod-kueue-controller-manager", "q", "kueue:v1"), "prod-kueue-webhook-service"),
        (deployment("prod-controller-manager", "q", "kueue:v1"), "prod-webhook-service"),
        (deployment("prod-admission", "q", "vc-webhook-manager:v1"), "prod-admission-service"),
        (deployment("admission", "q", "ghcr.io/kai-scheduler/admission:v1"), "admission"),
    ],
)
def test_webhooks_go_by_the_service_they_lead_to_whatever_the_release_is_called(
    migrated: Answer, text: str, service: str
) -> None:
    (drop,) = (each for each in commands(migrated(d__yaml=text)) if "webhookconfigurations" in each)
    leads = (("a", "q", service), ("a", "q", service), ("b", "q", "own"), ("c", "other", service))
    assert configurations_of(drop, *leads) == ["a"]


def test_an_overridden_name_of_kueues_chart_is_that_of_its_deployment_and_its_service(migrated: Answer) -> None:
    for values, name in (({"fullnameOverride": "q"}, "q"), ({"nameOverride": "x"}, "kueue-x")):
        lines = commands(migrated(v__yaml=yaml.safe_dump({"enableKueueViz": False, **values})))
        assert any(f"deployment/{name}-controller-manager --namespace=kueue-system" in each for each in lines)
        (drop,) = (each for each in lines if "webhookconfigurations" in each)
        assert configurations_of(drop, ("a", "kueue-system", f"{name}-webhook-service")) == ["a"]


def test_resources_that_volcanos_plugins_share_gpus_by_are_lost(migrated: Answer) -> None:
    pod = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"volcano.sh/vgpu-number": 1, "cpu": 1}}}]}}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"}}
    found = migrated(j__yaml=yaml.safe_dump({**job, "spec": {"tasks": [{"template": pod}]}}))
    assert what(found["lost"]) == {"Job j: volcano.sh/vgpu-number"}
    assert not [each for each in found["kept"] if each["what"] == "Job j"]


def test_no_deletion_waits_without_an_end(migrated: Answer) -> None:
    """An APIService without a server keeps every namespace of a cluster from being deleted."""
    files = [str(EXAMPLES / name) for name in ("clusterpolicy.yaml", "kueue.yaml", "gpucluster.yaml")]
    lines = [each[key] for name in files for each in migrated(name)["steps"] for key in ("command", "undo")]
    deletions = re.findall(r"kubectl (?:delete|replace)[^|&;]*", " ".join(f"{each};" for each in lines))
    assert len(deletions) > 10
    assert [each for each in deletions if "--timeout=10m" not in each] == []
    (step,) = (each for each in migrated(files[1])["steps"] if "apiservice/" in each["command"])
    assert "NamespaceDeletionDiscoveryFailure" in step["do"]
