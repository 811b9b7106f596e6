"""Orders for nodes whose agents repair nothing: taken off at once, and said why."""

from typing import Any

from controller.cluster.watching.kinds import GPU_NODES
from controller.reconcile.repairs.orders_shell import orders_of
from inventory.api.names import REMEDIATION_ORDER
from kube.testing import eventually
from tests.controller.reconcile.repairs.test_repairs_shell import furnish, notes, rules
from tests.support.controller.stage import Stage, stage

ORDER = f"{REMEDIATION_ORDER}GPU-n1-0"


def says(scene: Stage, mode: str, **annotations: str) -> None:
    patch: dict[str, Any] = {"metadata": {"annotations": annotations}, "status": {"resetMode": mode}}
    scene.server.merge(GPU_NODES, "n1", patch)


def annotations(scene: Stage) -> dict[str, str]:
    return dict(scene.server.get(GPU_NODES, "n1")["metadata"].get("annotations", {}))


async def test_an_order_that_no_agent_takes_is_taken_off_and_people_are_told_why() -> None:
    async with stage() as scene:
        furnish(scene, "n1")
        async with scene.controller(rules(), core_only=False):
            says(scene, "never", **{ORDER: "start", "site": "x"})
            await eventually(lambda: annotations(scene) == {"site": "x"})
            why = "start is not obeyed: node n1 has remediation.reset: never. Set it before a repair is ordered"
            await eventually(lambda: notes(scene, "GpuOrderRefused") == [f"GPU GPU-n1-0: {why}"])


async def test_an_order_is_left_to_an_agent_that_takes_it_or_does_not_say() -> None:
    async with stage() as scene:
        furnish(scene, "n1", "n2")
        async with scene.controller(rules(), core_only=False):
            says(scene, "drain", **{ORDER: "start"})
            scene.server.merge(GPU_NODES, "n2", {"metadata": {"annotations": {f"{REMEDIATION_ORDER}a": "stop"}}})
            await eventually(lambda: annotations(scene) == {ORDER: "start"})
            says(scene, "never", **{f"{REMEDIATION_ORDER}b": "retire"})
            await eventually(lambda: annotations(scene) == {})
            assert scene.server.get(GPU_NODES, "n2")["metadata"]["annotations"] == {f"{REMEDIATION_ORDER}a": "stop"}


def test_orders_are_told_from_other_annotations_of_a_gpunode() -> None:
    assert orders_of({ORDER: "start", REMEDIATION_ORDER: "stop", "a": "b"}) == {"GPU-n1-0": "start"}
