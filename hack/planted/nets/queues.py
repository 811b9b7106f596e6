"""The controller's net: scenes in queues, judged by ``history/``. ``python -m hack.planted.nets.queues``."""

import asyncio
import logging
import sys
from typing import Final

from hack.planted.nets import reported
from hack.planted.nets.queuescenes import acts
from hack.planted.nets.queueworld import JOB_SETS, config, controller, first, machines, play, world_of
from history.judge import Verdict
from kube.testing import FakeApiServer

LASTS_S: Final = 24.0
"""The last act, and what the judge's longest bound is on the record's clock."""
TESSERA: Final = "tessera: {policy: tessera}\n"


async def judged(lasts_s: float = LASTS_S) -> Verdict:
    async with FakeApiServer() as server:
        server.install(JOB_SETS)
        world = world_of(server, machines(6, 8))
        todo = first(world, acts())
        async with controller(server, config(("batch/job", "jobset.x-k8s.io/jobset"), TESSERA)):
            return await play(world, todo, lasts_s)


def main() -> int:
    verdict = asyncio.run(judged())
    said = [f"{each.rule}: {', '.join(each.objects)}: {each.message}" for each in verdict.findings]
    return reported("history", said)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
