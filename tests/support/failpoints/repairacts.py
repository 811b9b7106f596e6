"""What happens around repairs of GPUs while the controller is killed."""

import time
from typing import Final

from cli.playground.cluster import stamp
from controller.cluster.watching.kinds import FLAVORS, GPU_NODES
from failpoints.names import Failpoint
from inventory.api.names import REMEDIATION_BREAKER, REMEDIATION_RESUMED
from tests.support.failpoints.cluster import CONFIG, Act, Json, KilledCluster, Stage

REPAIRED: Final = CONFIG + "  remediation: {budget: 100, wait: 0s}\n"
GPU: Final = "GPU-n1-0"


def repair(generation: int, asks: str, state: str = "Draining") -> Json:
    return {"gpu": GPU, "state": state, "generation": generation, "asks": asks, "since": stamp(time.time())}


def asks(here: KilledCluster, *repairs: Json) -> None:
    here.server.merge(GPU_NODES, "n1", {"status": {"repairs": [*repairs]}})


def is_granted(here: KilledCluster, generation: int) -> bool:
    found = here.server.get(GPU_NODES, "n1")["status"].get("remediationGrants", [])
    return [each["generation"] for each in found if each["gpu"] == GPU] == [generation]


def a_repair_is_granted(here: KilledCluster, n: str) -> list[Stage]:
    generation = int(n) + 1
    return [
        Stage(lambda: asks(here, repair(generation, "reset")), lambda: is_granted(here, generation), "it is granted"),
        Stage(lambda: asks(here), lambda: True, "the GPU is well"),
    ]


def a_breaker_is_lifted(here: KilledCluster, n: str) -> list[Stage]:
    del n
    before: list[str] = []

    def notes() -> dict[str, str]:
        found: dict[str, str] = here.server.get(FLAVORS, "gpu")["metadata"].get("annotations", {})
        return found

    def lift() -> None:
        before.append(notes().get(REMEDIATION_RESUMED, ""))
        here.server.merge(FLAVORS, "gpu", {"metadata": {"annotations": {REMEDIATION_BREAKER: "resume"}}})

    def is_lifted() -> bool:
        return REMEDIATION_BREAKER not in notes() and notes().get(REMEDIATION_RESUMED, "") not in ("", *before)

    return [Stage(lift, is_lifted, "grants count from now on")]


REPAIRS: Final = (
    Act("a repair is granted", (Failpoint.REPAIR_GRANTED,), a_repair_is_granted, REPAIRED),
    Act("a breaker is lifted", (Failpoint.BREAKER_RESUMED,), a_breaker_is_lifted, REPAIRED),
)
