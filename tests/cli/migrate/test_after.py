"""After every step of a plan the check finds nothing left of the old parts, and after every way back all of it again;
where a step failed and no server of GPUs is there, it says so.
"""

import copy
import json
import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import astuple

from cli.migrate.check import Cluster, checked
from cli.migrate.fates import PARTS
from cli.migrate.inputs import Inputs, sort_in
from cli.migrate.parts import Step
from cli.migrate.plan import planned
from controller.insight.simulation.documents import Document
from inventory.api.names import REPLACED
from tests.cli.migrate.manifests import (
    PLUGIN_IMAGE,
    Json,
    cluster_policy,
    device_plugin_chart,
    dra_driver_chart,
    exporter_chart,
    feature_discovery,
    operand,
    plugin_configs,
    queue_programs,
    static_plugin,
)
from tests.cli.migrate.test_queues import configurations_of

OPERANDS = {
    "devicePlugin": operand("nvidia-device-plugin-daemonset"),
    "gfd": operand("gpu-feature-discovery", PLUGIN_IMAGE, "gpu-feature-discovery"),
    "migManager": operand("nvidia-mig-manager", "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.12.1"),
    "dcgmExporter": operand("nvidia-dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3"),
}


def asked(name: str, namespace: str, service: str, group: str) -> Json:
    one = {
        "clientConfig": {"service": {"namespace": namespace, "name": service}},
        "rules": [{"apiGroups": [group]}],
    }
    return {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": name}, "webhooks": [one]}


FOUND: dict[str, list[Json]] = {
    "device plugin": [*device_plugin_chart(), plugin_configs()],
    "static plugin": [static_plugin()],
    "exporter": [exporter_chart()],
    "feature discovery": [feature_discovery()],
    "DRA driver": dra_driver_chart(),
    "operator": [cluster_policy(), *OPERANDS.values()],
    "operator without a plugin": [
        cluster_policy(devicePlugin={"enabled": False}),
        *(each for part, each in OPERANDS.items() if part != "devicePlugin"),
    ],
    "kueue": [*queue_programs("kueue"), asked("kueue", "kueue-system", "kueue-webhook-service", "batch")],
    "volcano": [*queue_programs("volcano"), asked("vc", "volcano-system", "volcano-admission-service", "")],
    "kai": [*queue_programs("kai"), asked("kai", "kai-scheduler", "admission", "")],
}
"""What may run in a cluster, by a name."""


class Site:
    """A cluster as far as the commands of a plan change it: a model that knows kubectl's words and no plans."""

    def __init__(self, objects: list[Json]) -> None:
        self.objects = copy.deepcopy(objects)
        for each in self.objects:
            self._status(each, 2)
        labels = {"nvidia.com/gpu.deploy.device-plugin": "true"}
        self.nodes: list[Json] = [{"metadata": {"name": "gpu-1", "labels": labels}, "status": {}}]
        self.kept = dict[str, list[Json]]()
        self.agents: list[Json] = []

    @staticmethod
    def _status(each: Json, count: int) -> None:
        key = "currentNumberScheduled" if each["kind"] == "DaemonSet" else "replicas"
        each["status"] = (each.get("status") or {}) | {key: count}

    def _sets(self, kind: str) -> list[Json]:
        return [each for each in self.objects if each["kind"] == kind]

    def inputs(self) -> Inputs:
        found = Inputs(is_live=True)
        nodes = [{"apiVersion": "v1", "kind": "Node", **each} for each in self.nodes]
        for number, each in enumerate([*self.objects, *nodes]):
            if "webhooks" not in each:
                sort_in(Document("cluster", number, each), found)
        return found

    def cluster(self) -> Cluster:
        return Cluster(
            policies=self._sets("ClusterPolicy"),
            sets=[*self._sets("DaemonSet"), *self._sets("Deployment"), *self.agents],
            webhooks=[each for each in self.objects if "webhooks" in each],
            nodes=self.nodes,
            gpu_nodes=[{"metadata": {"name": "gpu-1"}}] if self.agents else [],
        )

    def run(self, line: str, values: Json) -> None:
        words = shlex.split(line)
        match words[:3]:
            case ["kubectl", "patch", at] if at.startswith("daemonset/"):
                self._held(at.partition("/")[2], words[3].partition("=")[2], json.loads(words[words.index("-p") + 1]))
            case ["kubectl", "patch", at] if at.startswith("clusterpolicies"):
                self._switched(json.loads(words[words.index("-p") + 1]))
            case ["kubectl", "scale", at]:
                self._scaled(at.partition("/")[2], words[3].partition("=")[2], int(words[4].partition("=")[2]))
            case _ if "helm install" in line:
                head = {"kind": "DaemonSet", "metadata": {"name": "tessera-agent", "namespace": "tessera-system"}}
                labels = {"app.kubernetes.io/component": "agent"}
                waits = "nvidia.com/gpu.deploy.device-plugin" in values.get("nodeSelector", {})
                template: Json = {"metadata": {"labels": labels}, "spec": {"containers": []}}
                status = {"desiredNumberScheduled": 0 if waits else 1}
                self.agents = [{**head, "spec": {"template": template}, "status": status}]
            case _ if "helm uninstall" in line:
                self.agents = []
            case _ if "-webhooks " in line and "awk" in line:
                self._unasked(line)
            case _ if "-webhooks " in line:
                self.objects += self.kept.pop(line.partition("configmap/")[2].partition(" ")[0])

    def _held(self, name: str, namespace: str, patch: Json) -> None:
        (one,) = (each for each in self._sets("DaemonSet")
                  if (each["metadata"]["name"], each["metadata"]["namespace"]) == (name, namespace))  # fmt: skip
        asked_for = patch["spec"]["template"]["spec"]["nodeSelector"][REPLACED]
        place = one["spec"]["template"]["spec"].setdefault("nodeSelector", {})
        place[REPLACED] = asked_for
        if asked_for is None:
            del place[REPLACED]
        self._status(one, 0 if asked_for else 2)

    def _switched(self, patch: Json) -> None:
        (policy,) = self._sets("ClusterPolicy")
        for part, value in patch["spec"].items():
            policy["spec"][part] = policy["spec"].get(part, {}) | value
            if value["enabled"] is None:
                del policy["spec"][part]["enabled"]
            name = OPERANDS[part]["metadata"]["name"]
            for each in self._sets("DaemonSet"):
                if each["metadata"]["name"] == name and each["metadata"]["namespace"] == "gpu-operator":
                    self._status(each, 0 if value["enabled"] is False else 2)

    def _scaled(self, name: str, namespace: str, replicas: int) -> None:
        (one,) = (each for each in self._sets("Deployment")
                  if (each["metadata"]["name"], each["metadata"]["namespace"]) == (name, namespace))  # fmt: skip
        self._status(one, 2 if replicas else 0)

    def _unasked(self, line: str) -> None:
        there = [each for each in self.objects if "webhooks" in each]
        leads = [
            (each["metadata"]["name"], service["namespace"], service["name"])
            for each in there
            for service in (each["webhooks"][0]["clientConfig"]["service"],)
        ]
        gone = configurations_of(line, *leads)
        name = line.partition("configmap/")[2].partition(" ")[0]
        self.kept[name] = [each for each in there if each["metadata"]["name"] in gone]
        self.objects = [each for each in self.objects if each not in self.kept[name]]


SERVED = {"allocatable": {"nvidia.com/gpu": "8"}}
"""The status of a node whose GPUs a program serves that no plan knows."""


def moved(site: Site) -> tuple[list[Step], Json]:
    plan = planned(site.inputs())
    for step in plan.steps:
        site.run(step.command, plan.values)
    return plan.steps, plan.values


MIXTURES = st.sets(st.sampled_from(sorted(FOUND)), min_size=1).filter(
    lambda each: not {"operator", "operator without a plugin"} <= each
)


@given(MIXTURES)
@example({"volcano"})
@example({"DRA driver"})
@example({"exporter"})
@example({"operator without a plugin", "device plugin"})
@example(set(FOUND) - {"operator without a plugin"})
def test_after_all_steps_nothing_is_left_and_after_all_ways_back_all_of_it(names: set[str]) -> None:
    site = Site([each for name in sorted(names) for each in FOUND[name]])
    if "operator without a plugin" in names:
        site.nodes[0]["status"] = SERVED
    before, first = copy.deepcopy(site.objects), checked(site.cluster())
    steps, values = moved(site)
    found = checked(site.cluster())
    assert (found.left, found.lacking) == ([], [])
    for step in reversed(steps):
        site.run(step.undo, values)
    assert sorted(map(astuple, checked(site.cluster()).left)) == sorted(map(astuple, first.left))
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in site.objects}
    for each in before:
        there = by_name[each["kind"], each["metadata"]["name"]]
        assert there["status"] == each["status"] if "status" in each else True


@pytest.mark.parametrize("name", sorted(set(FOUND) - {"exporter", "feature discovery", "operator without a plugin"}))
def test_before_the_first_step_all_that_goes_is_left(name: str) -> None:
    assert checked(Site(FOUND[name]).cluster()).left


@pytest.mark.parametrize("name", ["device plugin", "static plugin", "DRA driver", "operator"])
def test_after_a_failed_installation_the_check_says_that_nothing_serves_gpus(name: str) -> None:
    site = Site(FOUND[name])
    moved(site)
    site.agents = []
    (lacking,) = checked(site.cluster()).lacking
    assert (lacking.what, "no agent came" in lacking.why) == ("servers of GPUs", True)


def test_a_cloud_whose_own_plugin_serves_gpus_misses_nothing() -> None:
    """The operator is there without its device plugin, and the node offers GPUs."""
    site = Site(FOUND["operator without a plugin"])
    site.nodes[0]["status"] = SERVED
    found = checked(site.cluster())
    assert (found.left, found.lacking) == ([], [])


def test_the_parts_of_the_model_are_the_operators() -> None:
    assert set(OPERANDS) == set(PARTS)


def test_what_volcanos_agent_did_on_nodes_is_lost() -> None:
    plan = planned(Site(FOUND["volcano"]).inputs())
    assert "DaemonSet volcano-agent" in {each.what for each in plan.lost}
