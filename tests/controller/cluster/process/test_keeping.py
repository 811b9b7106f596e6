"""Finalizers, retention, and past usage over restarts."""

from datetime import UTC, datetime

from controller.cluster.config.settings import Retention
from controller.cluster.process.uninstall import remove_finalizers, remove_placeholders
from controller.cluster.watching.kinds import CLAIM_TEMPLATES, CLUSTER_QUEUES, LOCAL_QUEUES, PODS, WORKLOADS
from controller.cluster.writing.retention import deletion_s
from controller.objects.meta import ObjectMeta
from controller.objects.workload import Workload
from controller.scheduler.decisions import status
from controller.scheduler.model.resources import LocalQueueKey
from inventory.api.names import PLACEHOLDER_OF
from kube.client import Client
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, config, stage, stamp

IN_USE = "kueue.x-k8s.io/resource-in-use"


async def test_a_queue_that_is_deleted_goes_when_its_last_workload_has_gone() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller():
            scene.workload("a", 1)
            await scene.until_admitted("a")
            scene.server.merge(CLUSTER_QUEUES, "cq", {"metadata": {"deletionTimestamp": stamp()}})
            scene.workload("b", 1)

            def reason() -> str:
                found = scene.server.get(CLUSTER_QUEUES, "cq").get("status", {}).get("conditions", [])
                return str(found[0]["reason"]) if found else ""

            await eventually(lambda: reason() == "Terminating")
            assert IN_USE in scene.server.get(CLUSTER_QUEUES, "cq")["metadata"]["finalizers"]
            scene.finish("a")
            await eventually(lambda: "finalizers" not in scene.server.get(CLUSTER_QUEUES, "cq")["metadata"])
            assert not scene.admitted("b")


async def test_a_queue_without_the_finalizer_gets_it() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        scene.server.merge(CLUSTER_QUEUES, "cq", {"metadata": {"finalizers": ["site/own"]}})
        async with scene.controller():
            await eventually(
                lambda: scene.server.get(CLUSTER_QUEUES, "cq")["metadata"]["finalizers"] == ["site/own", IN_USE]
            )


async def test_finished_workloads_are_deleted_when_the_configuration_says_so() -> None:
    brief = config(CONFIG + "objectRetentionPolicies: {workloads: {afterFinished: 0s}}\n")
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(brief):
            scene.workload("a", 1)
            await scene.until_admitted("a")
            scene.finish("a")
            await eventually(lambda: scene.server.list_all(WORKLOADS) == [])


async def test_at_the_uninstall_no_finalizer_of_ours_stays_and_every_other_does() -> None:
    async with stage() as scene, Client(scene.server.config) as client:
        scene.queue()
        scene.server.merge(CLUSTER_QUEUES, "cq", {"metadata": {"finalizers": ["site/own", IN_USE]}})
        scene.workload("a")
        scene.server.merge(WORKLOADS, "a", {"metadata": {"finalizers": [IN_USE]}}, namespace="team")
        scene.server.unknown = {"topologies"}
        assert await remove_finalizers(client) == 3
        assert scene.server.get(CLUSTER_QUEUES, "cq")["metadata"]["finalizers"] == ["site/own"]
        assert "finalizers" not in scene.server.get(WORKLOADS, "a", namespace="team")["metadata"]
        assert await remove_finalizers(client) == 0


async def test_at_the_uninstall_no_placeholder_stays_and_every_other_pod_does() -> None:
    async with stage() as scene, Client(scene.server.config) as client:
        ours = {"metadata": {"labels": {PLACEHOLDER_OF: "w1"}}, "spec": {}}
        scene.server.create(PODS, "placeholder-1", ours, namespace="tessera-system")
        scene.server.create(PODS, "web", {"metadata": {}, "spec": {}}, namespace="team")
        assert await remove_placeholders(client, "tessera-system") == 1
        assert [each["metadata"]["name"] for each in scene.server.list_all(PODS)] == ["web"]
        assert await remove_placeholders(client, "tessera-system") == 0


async def test_at_the_uninstall_no_copy_of_a_claim_template_stays_and_every_other_template_does() -> None:
    async with stage() as scene, Client(scene.server.config) as client:
        ours = {"metadata": {"labels": {PLACEHOLDER_OF: "w1"}}, "spec": {}}
        scene.server.create(CLAIM_TEMPLATES, "placeholder-1", ours, namespace="tessera-system")
        scene.server.create(CLAIM_TEMPLATES, "own", {"metadata": {}, "spec": {}}, namespace="tessera-system")
        scene.server.create(CLAIM_TEMPLATES, "labelled", ours, namespace="team")
        assert await remove_placeholders(client, "tessera-system") == 1
        names = {each["metadata"]["name"] for each in scene.server.list_all(CLAIM_TEMPLATES)}
        assert names == {"own", "labelled"}
        scene.server.unknown = {"resourceclaimtemplates"}
        assert await remove_placeholders(client, "tessera-system") == 0


def test_what_is_not_deletion_stays() -> None:
    workload = Workload(metadata=ObjectMeta(name="a", namespace="ns"))
    rules = Retention(after_finished_s=10.0, after_deactivated_s=10.0)
    assert deletion_s(workload, rules) is None
    assert deletion_s(status.finished(workload, "Succeeded", "", 100.0), rules) == 110.0
    assert deletion_s(status.finished(workload, "Succeeded", "", 100.0), Retention()) is None


async def test_past_usage_is_written_down_and_taken_up_again() -> None:
    fair = config(CONFIG + "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 1s}\n")
    async with stage() as scene:
        scene.queue(cpus=4, admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"})
        kept = {"consumedResources": {"cpu": "100"}, "lastUpdate": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        patch = {"status": {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": kept}}}
        scene.server.merge(LOCAL_QUEUES, "lq-cq", patch, namespace="team")
        async with scene.controller(fair):
            scene.workload("a", 4)
            await scene.until_admitted("a")

            def written() -> str:
                found = scene.server.get(LOCAL_QUEUES, "lq-cq", namespace="team")["status"]["fairSharing"]
                return str(found["admissionFairSharingStatus"]["consumedResources"]["cpu"])

            await eventually(lambda: written() != "100")
            usage = scene.core.engine.state.usage.usage(LocalQueueKey("team/lq-cq"))
            assert 90.0 < usage < 110.0, "what was consumed before the start has halved by next to nothing"
