"""The controller's net: scenes in queues, judged by ``history/``. ``python -m hack.planted.nets.queues``."""

import asyncio
import json
import logging
import sys
import time
from typing import Final

from cli.playground.cluster import stamp
from controller.config.load import parse
from controller.process.flags import Flags
from controller.process.process import Process
from hack.planted.nets.queuescenes import acts
from hack.planted.nets.queueworld import JOB_SETS, STEP_S, QueueWorld, controller, install_nodes, machines
from history.judge import Verdict
from kube.testing import FakeApiServer, eventually

LASTS_S: Final = 24.0
"""The last act, and what the judge's longest bound is on the record's clock."""
_CONFIG: Final = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {qps: -1}
health: {healthProbeBindAddress: "0"}
integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}
tessera: {policy: tessera}
"""


async def judged(lasts_s: float = LASTS_S) -> Verdict:
    nodes = machines(6, 8)
    async with FakeApiServer() as server:
        server.store.stamp = lambda: stamp(time.time())
        server.install(JOB_SETS)
        world = QueueWorld(server, nodes)
        install_nodes(server, nodes)
        todo = acts()
        while todo[0][0] <= 0:
            todo.pop(0)[1](world)
        flags = Flags(kubeconfig="none", metrics=(None,), web=None, leader_elect=False, namespace="tessera-system")
        process = Process(parse(_CONFIG, "the net's configuration"), flags, connect=lambda: server.config)
        async with controller(process.run):
            await eventually(lambda: process.core is not None and process.core.loaded.is_set(), within_s=60.0)
            world.begin()
            while world.now_s < lasts_s:
                while todo and todo[0][0] <= world.now_s:
                    todo.pop(0)[1](world)
                world.step()
                await asyncio.sleep(STEP_S)
            return world.verdict()


def main() -> int:
    logging.disable(logging.CRITICAL)
    verdict = asyncio.run(judged())
    for each in verdict.findings:
        print(json.dumps({"net": "history", "message": f"{each.rule}: {', '.join(each.objects)}: {each.message}"}))
    return 1 if verdict.findings else 0


if __name__ == "__main__":
    sys.exit(main())
