"""Claims of devices in the live controller: followed once they are named, counted, and told where they cannot be."""

from typing import Any

from controller.cluster.watching.kinds import (
    CLAIM_TEMPLATES,
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_SLICES,
    FLAVORS,
    WORKLOADS,
    claim_readers,
)
from controller.scheduler.model.deviceclaims import ClaimRules
from inventory.api.names import NODE_TEMPLATE
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, Stage, config, stage

MAPPED = config(
    CONFIG.replace("policy: kueue", "policy: tessera")
    + "resources: {deviceClassMappings: [{name: cpu, deviceClassNames: [gpu.example.com]}]}\n"
)
"""A device counts as a cpu: what the stage's queues have."""


def asks(count: int) -> dict[str, Any]:
    asked = {"deviceClassName": "gpu.example.com", "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": asked}]}}


def template(scene: Stage, name: str, count: int) -> None:
    scene.server.create(CLAIM_TEMPLATES, name, _body("ResourceClaimTemplate", {"spec": asks(count)}), namespace="team")


def claim(scene: Stage, name: str, count: int, **annotations: str) -> None:
    body = _body("ResourceClaim", asks(count))
    scene.server.create(DEVICE_CLAIMS, name, {**body, "metadata": {"annotations": annotations}}, namespace="team")


def _body(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec}


def claiming(scene: Stage, name: str, cpus: int = 0, **claim: str) -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": str(cpus)}}}
    pod = {"containers": [container], "resourceClaims": [{"name": "gpus", **claim}]}
    scene.workload(name, podSets=[{"name": "main", "count": 1, "template": {"spec": pod}}])


async def test_a_workload_is_told_that_its_template_is_missing_and_runs_once_it_is_there() -> None:
    async with stage() as scene:
        scene.queue(cpus=3)
        scene.server.install(CLAIM_TEMPLATES)
        async with scene.controller(MAPPED):
            claiming(scene, "w", resourceClaimTemplateName="two")
            await eventually(lambda: scene.condition("w", "Requeued") == "False/Inadmissible")
            assert scene.condition("w", "QuotaReserved") == "False/Misconfigured"
            template(scene, "two", 2)
            await scene.until_admitted("w")
            assert scene.used() == 2
            claiming(scene, "late", resourceClaimTemplateName="two")
            await eventually(lambda: scene.condition("late", "QuotaReserved") == "False/WaitingForQuota")
            scene.server.delete(WORKLOADS, "w", namespace="team")
            await scene.until_admitted("late")


async def test_a_shared_claim_is_charged_once_by_the_next_process_as_well() -> None:
    async with stage() as scene:
        scene.queue(cpus=10)
        claim(scene, "shared", 8)
        claim(scene, "other", 9, **{"resource.kubernetes.io/pod-claim-name": "gpus"})
        for name in ("a", "b"):
            claiming(scene, name, 1, resourceClaimName="shared")
        async with scene.controller(MAPPED):
            await scene.until_admitted("a", "b")
            scene.workload("waits", 2)
            await eventually(lambda: scene.condition("waits", "QuotaReserved") == "False/WaitingForQuota")
        assert scene.used() == 2, "of themselves"
        async with scene.controller(MAPPED) as process:
            await eventually(lambda: process.core is not None and process.core.loaded.is_set())
            scene.finish("a")
            await eventually(lambda: len(scene.core.engine.state.cluster.holders) == 1)
            scene.core.engine.settled(0.0)
            (holder,) = scene.core.engine.state.cluster.holders.values()
            assert sum(holder.usage.values()) == 9_000
            assert not scene.admitted("waits")
            scene.finish("b")
            await scene.until_admitted("waits")


async def test_nothing_is_read_of_claims_before_a_workload_names_one() -> None:
    async with stage() as scene:
        scene.queue(cpus=3)
        scene.server.create(DEVICE_CLASSES, "gpu.example.com", _body("DeviceClass", {}))
        claim(scene, "shared", 1)
        async with scene.controller(MAPPED):
            scene.workload("plain", 1)
            await scene.until_admitted("plain")
            assert scene.server.seen("GET", "/deviceclasses")
            assert _requests(scene) == {"resourceclaims": 1, "resourceclaimtemplates": 1}, "whether they are there"
            claiming(scene, "w", resourceClaimName="shared")
            await scene.until_admitted("w")
            assert _requests(scene)["resourceclaims"] > 1


async def test_slices_are_read_where_a_class_serves_an_extended_resource() -> None:
    async with stage() as scene:
        scene.queue(cpus=3)
        serving = _body("DeviceClass", {"extendedResourceName": "example.com/gpu"})
        scene.server.create(DEVICE_CLASSES, "gpu.example.com", serving)
        async with scene.controller(MAPPED):
            await eventually(lambda: _reads_slices(scene))


async def test_slices_are_read_where_nodes_with_devices_can_come() -> None:
    """The controller knows by ResourceSlices that a node has come, also before any workload has claims."""
    async with stage() as scene:
        template = {NODE_TEMPLATE: "{max: 1, devices: [{driver: gpu.example.com, count: 1}]}"}
        scene.make(FLAVORS, "coming", {"annotations": template})
        scene.server.create(DEVICE_CLASSES, "gpu.example.com", _body("DeviceClass", {}))
        scene.queue(cpus=3)
        async with scene.controller(MAPPED):
            await eventually(lambda: len(scene.server.seen("GET", "/resourceslices")) > 1)
            assert len(scene.server.seen("GET", "/resourceclaims")) <= 1


async def test_slices_are_read_where_a_workload_asks_by_the_name_of_a_class() -> None:
    async with stage() as scene:
        scene.queue(cpus=3)
        scene.server.create(DEVICE_CLASSES, "gpu.example.com", _body("DeviceClass", {}))
        async with scene.controller(MAPPED):
            scene.workload("plain", 1)
            await scene.until_admitted("plain")
            assert not _reads_slices(scene)
            asked = {"requests": {"deviceclass.resource.kubernetes.io/gpu.example.com": "1"}}
            pod = {"containers": [{"name": "main", "resources": asked}]}
            scene.workload("w", podSets=[{"name": "main", "count": 1, "template": {"spec": pod}}])
            await eventually(lambda: _reads_slices(scene))


def _reads_slices(scene: Stage) -> bool:
    """The first question is whether they are there."""
    return all(len(scene.server.seen("GET", f"/{kind}")) > 1 for kind in ("resourceclaims", "resourceslices"))


def _requests(scene: Stage) -> dict[str, int]:
    return {kind: len(scene.server.seen("GET", f"/{kind}")) for kind in ("resourceclaims", "resourceclaimtemplates")}


def test_classes_slices_and_claims_are_followed_without_a_mapping_for_what_classes_serve() -> None:
    followed = {CLAIM_TEMPLATES, DEVICE_CLASSES, DEVICE_CLAIMS, DEVICE_SLICES}
    assert claim_readers(ClaimRules(every_kind=True)).keys() == followed
    assert claim_readers(ClaimRules()).keys() == {CLAIM_TEMPLATES}
    assert not claim_readers(ClaimRules(on=False, every_kind=True))
