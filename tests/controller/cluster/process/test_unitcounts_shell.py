"""The status of a LocalQueue that names units tells what it would admit."""

from typing import Any

import pytest

from controller.cluster.process import unitcounts_shell
from controller.cluster.watching.kinds import LOCAL_QUEUES
from controller.insight import admissible
from kube.testing import eventually
from tests.support.controller.stage import Stage, stage


def told(scene: Stage, name: str) -> str:
    queue = scene.server.get(LOCAL_QUEUES, name, namespace="team")
    conditions = queue.get("status", {}).get("conditions", [])
    return next((f"{one['status']}: {one['message']}" for one in conditions if one["type"] == "tessera.dev/Units"), "")


async def test_a_status_tells_the_units_that_would_be_admitted_and_follows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unitcounts_shell, "COUNT_EVERY_S", 0.05)
    async with stage() as scene:
        scene.queue(cpus=6)
        for name, units in (("served", '{"server": {"cpu": "2"}}'), ("odd", '{"server": {"fpga": 1}}'), ("no", "{")):
            meta = {"annotations": {"tessera.dev/units": units}}
            scene.make(LOCAL_QUEUES, name, meta, namespace="team", spec={"clusterQueue": "cq"})
        async with scene.controller():
            await eventually(
                lambda: told(scene, "served") == "True: Would be admitted now at priority 0: server on default: 3"
            )
            await eventually(
                lambda: told(scene, "odd") == "True: No flavor of the ClusterQueue has what its units request"
            )
            assert told(scene, "no").startswith("False: ")
            assert told(scene, "lq-cq") == ""
            scene.workload("a", 3)
            await eventually(lambda: told(scene, "served").endswith("server on default: 1"))
            writes = len(scene.server.written("localqueues/served/status"))
            counted: list[int] = []
            counting = admissible.count_parts

            def noted(*given: Any) -> Any:
                counted.append(1)
                return counting(*given)

            monkeypatch.setattr(unitcounts_shell, "count_parts", noted)
            await eventually(lambda: len(counted) > 4)
            assert len(scene.server.written("localqueues/served/status")) == writes, "an equal count is not written"
        async with scene.controller():
            await eventually(lambda: told(scene, "served").endswith("server on default: 1"))
            unnamed = {"metadata": {"annotations": {"tessera.dev/units": None}}}
            scene.server.merge(LOCAL_QUEUES, "served", unnamed, namespace="team")
            await eventually(lambda: told(scene, "served") == "")


async def test_counts_that_fail_end_no_term(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(unitcounts_shell, "annotated", broken)
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            scene.workload("a", 2)
            await scene.until_admitted("a")
    assert "no units of LocalQueues could be counted" in caplog.text
