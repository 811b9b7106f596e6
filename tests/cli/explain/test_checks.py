"""``tessera explain`` of a workload that holds quota says which admission checks it waits for, and what these say."""

from controller.cluster.watching.kinds import CHECKS, PROVISIONING_CONFIGS, PROVISIONING_REQUESTS
from controller.insight.explain import checks_waited_for
from controller.objects.decode import decode
from controller.objects.workload import Workload
from kube.testing import eventually
from tests.cli.queue.test_command import served
from tests.support.cli.shell import Shell


async def test_a_workload_that_waits_for_its_nodes_says_so(shell: Shell) -> None:
    scene = shell.scene
    for kind in (PROVISIONING_CONFIGS, PROVISIONING_REQUESTS):
        scene.server.install(kind)
    scene.queue(admissionChecksStrategy={"admissionChecks": [{"name": "make"}]})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "c"}
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    scene.make(CHECKS, "make", {}, spec=spec)
    scene.make(PROVISIONING_CONFIGS, "c", {}, spec={"provisioningClassName": "k"})
    async with scene.controller(served(), core_only=False) as process:
        shell.door.behind = process
        scene.workload("w")
        await eventually(lambda: len(scene.server.list_all(PROVISIONING_REQUESTS)) == 1)
        said = {"type": "Provisioned", "status": "False", "reason": "CapacityIsNotFound", "message": "in an hour"}
        status = {"conditions": [{**said, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        accepted = {**status["conditions"][0], "type": "Accepted", "status": "True"}
        status["conditions"].append(accepted)
        scene.server.merge(PROVISIONING_REQUESTS, "w-make-1", {"status": status}, namespace="team")

        def told() -> bool:
            return any(state["message"] == "in an hour" for state in scene.status("w")["admissionChecks"])

        await eventually(told)
        found = await shell.json("explain", "team/w")
        assert found["checks"] == [{"name": "make", "state": "Pending", "message": "in an hour"}]
        shown = " ".join((await shell.run("explain", "w")).stdout.split())
        assert "Admission check make is Pending: in an hour" in shown


def test_a_workload_that_is_admitted_waits_for_no_check() -> None:
    states = [{"name": "make", "state": "Pending", "message": "late"}, {"name": "other", "state": "Ready"}]

    def with_quota(**admitted: str) -> Workload:
        conditions = [{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "False", **admitted}]
        return decode({"status": {"conditions": conditions, "admissionChecks": states}}, Workload)

    waits = [{"name": "make", "state": "Pending", "message": "late"}]
    assert checks_waited_for(with_quota()) == waits
    assert checks_waited_for(with_quota(status="True")) == []
