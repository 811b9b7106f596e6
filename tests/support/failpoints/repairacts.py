"""What happens around repairs of GPUs while the controller is killed."""

import time
from typing import Final

from cli.playground.cluster import stamp
from controller.cluster.watching.kinds import FLAVORS, GPU_NODES, NODES
from controller.reconcile.repairs.gpuresets_shell import RESETS
from controller.reconcile.repairs.maintenance_shell import REBOOTS
from failpoints.names import Failpoint
from inventory.api.names import (
    MAINTENANCE_PLANNED,
    REMEDIATION_BREAKER,
    REMEDIATION_ORDER,
    REMEDIATION_RESUMED,
    REMEDIATION_TRIPPED,
    REPAIR_TAINT,
)
from tests.support.failpoints.acts import ends, job, running, runs
from tests.support.failpoints.cluster import CONFIG, TEAM, Act, Json, KilledCluster, Stage

REPAIRED: Final = CONFIG + "  remediation: {budget: 100}\n"
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


def a_gpu_is_drained(here: KilledCluster, n: str, *, notes: dict[str, str] | None = None) -> list[Stage]:
    before: list[str] = []

    def drained() -> None:
        (pod,) = running(here, n)
        before.append(pod["metadata"]["uid"])
        gpu, name = here.gpus_of(pod["metadata"]["name"])[0], pod["metadata"]["name"]
        node = pod["spec"]["nodeName"]
        held = [{"device": gpu, "namespace": TEAM, "pod": name, "container": "main"}]
        ask = {**repair(int(n) + 1, "drain"), "gpu": gpu}
        here.server.merge(GPU_NODES, node, {"status": {"holders": held, "repairs": [ask]}})

    def moved() -> bool:
        return runs(here, n, 1) and running(here, n)[0]["metadata"]["uid"] not in before

    def over() -> None:
        for node in ("n1", "n2"):
            here.server.merge(GPU_NODES, node, {"status": {"holders": [], "repairs": []}})

    return [
        Stage(lambda: job(here, n, runs_s=None, pod_notes=notes), lambda: runs(here, n, 1), "the job runs"),
        Stage(drained, moved, "another pod runs"),
        Stage(over, lambda: True, "nothing is drained"),
        ends(here, n),
    ]


def a_gpu_is_drained_by_eviction(here: KilledCluster, n: str) -> list[Stage]:
    return a_gpu_is_drained(here, n, notes={"tessera.dev/on-gpu-failure": "evict"})


def a_reboot_is_planned(here: KilledCluster, n: str) -> list[Stage]:
    ask = repair(int(n) + 1, "reboot", "RebootWanted")

    def says(status: str) -> bool:
        found = here.server.get(NODES, "n1")
        conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
        tainted = any(each["key"] == REPAIR_TAINT for each in found.get("spec", {}).get("taints", []))
        return conditions.get(MAINTENANCE_PLANNED) == status and tainted == (status == "True")

    def is_asked() -> bool:
        return [each["spec"]["nodeName"] for each in here.server.list_all(REBOOTS)] == ["n1"]

    return [
        Stage(lambda: asks(here, ask), lambda: says("True") and is_asked(), "the node is prepared"),
        Stage(lambda: asks(here), lambda: says("False") and not here.server.list_all(REBOOTS), "the repair is over"),
    ]


def a_reset_is_asked_for(here: KilledCluster, n: str) -> list[Stage]:
    order, name = f"{REMEDIATION_ORDER}{GPU}", f"reset-{n}"

    def begun() -> None:
        here.make(RESETS, name, spec={"nodeName": "n1", "selector": {"uuids": [GPU]}})

    def status() -> Json:
        found: Json = here.server.get(RESETS, name).get("status", {})
        return found

    def is_ordered() -> bool:
        notes = here.server.get(GPU_NODES, "n1")["metadata"].get("annotations", {})
        return notes.get(order) == "start" and status().get("phase") == "InProgress"

    def obey() -> None:
        here.server.merge(GPU_NODES, "n1", {"metadata": {"annotations": {order: None}}})
        asks(here, repair(1, ""))

    def is_followed() -> bool:
        return any(each["message"] == GPU for each in status().get("conditions", []))

    return [
        Stage(begun, is_ordered, "it is ordered"),
        Stage(obey, is_followed, "the repair is seen"),
        Stage(lambda: asks(here), lambda: status().get("phase") == "Succeeded", "it is done"),
    ]


def a_breaker_trips_and_heals(here: KilledCluster, n: str) -> list[Stage]:
    def shows(tripped: bool) -> bool:
        return (REMEDIATION_TRIPPED in here.server.get(FLAVORS, "gpu")["metadata"].get("annotations", {})) is tripped

    return [
        Stage(lambda: asks(here, repair(int(n) + 1, "reset")), lambda: shows(True), "the flavor says so"),
        Stage(lambda: asks(here), lambda: shows(False), "the flavor says nothing"),
    ]


def an_order_is_refused(here: KilledCluster, n: str) -> list[Stage]:
    del n
    order = f"{REMEDIATION_ORDER}{GPU}"

    def is_gone() -> bool:
        return order not in here.server.get(GPU_NODES, "n1")["metadata"].get("annotations", {})

    def give() -> None:
        body: Json = {"metadata": {"annotations": {order: "start"}}, "status": {"resetMode": "never"}}
        here.server.merge(GPU_NODES, "n1", body)

    return [Stage(give, is_gone, "it is taken off")]


REPAIRS: Final = (
    Act("a repair is granted", (Failpoint.REPAIR_GRANTED,), a_repair_is_granted, REPAIRED),
    Act("a GPU is drained", (Failpoint.DRAIN_REQUEUED,), a_gpu_is_drained, REPAIRED),
    Act("a GPU is drained by eviction", (Failpoint.DRAIN_EVICTED,), a_gpu_is_drained_by_eviction, REPAIRED),
    Act(
        "a reboot is planned",
        (Failpoint.REPAIR_TAINT, Failpoint.REPAIR_CONDITIONS, Failpoint.REBOOT_ASKED, Failpoint.REBOOT_OVER),
        a_reboot_is_planned,
        REPAIRED,
        (REBOOTS,),
    ),
    Act(
        "a reset is asked for",
        (Failpoint.RESET_ORDERED, Failpoint.RESET_FOLLOWED),
        a_reset_is_asked_for,
        REPAIRED,
        (RESETS,),
    ),
    Act(
        "a breaker trips and heals",
        (Failpoint.BREAKER_SHOWN,),
        a_breaker_trips_and_heals,
        CONFIG + "  remediation: {budget: 0}\n",
    ),
    Act("an order is refused", (Failpoint.ORDER_REFUSED,), an_order_is_refused, REPAIRED),
    Act("a breaker is lifted", (Failpoint.BREAKER_RESUMED,), a_breaker_is_lifted, REPAIRED),
)
