"""Pods that hang on unreachable nodes: given up where their annotation allows it, a minute late, and only then."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.cluster.watching.kinds import NODES, PODS
from controller.objects.core import Node
from controller.objects.decode import decode
from controller.reconcile.failures.stuckpods import CONDITION, GRACE_S, SAFE_TO_DELETE, UNREACHABLE, recovery
from kube.resources import EVENTS
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, config, stage

ENDS = datetime(2026, 1, 1, tzinfo=UTC)


def node(*taints: str) -> Node:
    raw = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]}}
    return decode(raw, Node)


def pod(*, safe: str = "true", ends: datetime | None = ENDS, **status: Any) -> dict[str, Any]:
    going = {} if ends is None else {"deletionTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}
    metadata = {"name": "p", "namespace": "team", "annotations": {SAFE_TO_DELETE: safe}, **going}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": "Running", **status}}


def test_it_fails_a_minute_after_its_grace_period_and_keeps_its_other_conditions() -> None:
    found = recovery(pod(conditions=[{"type": "Ready", "status": "False"}]), node(UNREACHABLE))
    assert found is not None
    assert found.due_s == ENDS.timestamp() + GRACE_S
    assert found.status["phase"] == "Failed"
    assert [each["type"] for each in found.status["conditions"]] == ["Ready", CONDITION]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_one_that_has_ended_keeps_its_phase(phase: str) -> None:
    found = recovery(pod(phase=phase), node(UNREACHABLE))
    assert found is not None
    assert found.status["phase"] == phase


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (pod(safe="false"), node(UNREACHABLE)),
        (pod(ends=None), node(UNREACHABLE)),
        (pod(conditions=[{"type": CONDITION, "status": "True"}]), node(UNREACHABLE)),
        (pod(), node("node.kubernetes.io/not-ready")),
        (pod(), None),
    ],
)
def test_others_are_left_alone(given: dict[str, Any], where: Node | None) -> None:
    assert recovery(given, where) is None


@pytest.mark.parametrize("on", [True, False])
async def test_in_the_controller_the_gate_decides(on: bool) -> None:
    gate = f"featureGates: {{FailureRecoveryPolicy: {str(on).lower()}}}\ntessera:"
    async with stage() as scene:
        scene.queue(cpus=1)
        late = pod(ends=datetime.now(UTC) - timedelta(hours=1))
        late["metadata"]["finalizers"] = ["example.com/kept"]
        scene.server.create(PODS, "p", {"apiVersion": "v1", "kind": "Pod", **late}, namespace="team")
        spec = {"taints": [{"key": UNREACHABLE, "effect": "NoExecute"}]}
        async with scene.controller(config(CONFIG.replace("tessera:", gate)), core_only=False):
            scene.server.create(NODES, "n", {"apiVersion": "v1", "kind": "Node", "metadata": {}, "spec": spec})
            if on:
                await eventually(lambda: scene.server.get(PODS, "p", namespace="team")["status"]["phase"] == "Failed")
                await eventually(
                    lambda: "KueueForcefullyDeleted" in [each["reason"] for each in scene.server.list_all(EVENTS)]
                )
            else:
                scene.workload("w", 1)
                await scene.until_admitted("w")
                assert scene.server.get(PODS, "p", namespace="team")["status"]["phase"] == "Running"
