"""Invariants broken on purpose, so that a run shows that it would tell. Each makes one real wrong in the cluster."""

import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final

from hack.chaos.api import CLAIMS, JOBS, TEAM, WORKLOADS, RefusedError
from hack.chaos.faults.processes import Heal, nothing
from hack.chaos.invariants import Json
from hack.chaos.load import GPU, Shape, job
from hack.chaos.world import PLANTED, World, signal_all
from hack.cluster import waiting
from tests.support.agent.hands import DRIVER
from tests.support.e2e import queuelab


def lost(world: World) -> Heal:
    """An accepted job is deleted by somebody who does not say so."""
    name = world.load.name()
    assert world.load.submit(job(name, Shape(GPU, 1), "research", 2)) is not None, "the API server took no job"
    world.api.delete(f"{JOBS}/{name}")
    return nothing


def doubled(world: World) -> Heal:
    """Two claims have the same GPU: their status is written past the scheduler."""
    whole: list[tuple[str, str]] = []

    def are_there() -> bool:
        whole[:] = [
            (each["spec"]["pool"]["name"], one["name"])
            for each in world.api.items("/apis/resource.k8s.io/v1/resourceslices")
            if each["spec"]["driver"] == DRIVER
            for one in each["spec"].get("devices", ())
            if one["attributes"].get("type", {}).get("string") == "gpu"
        ]
        return bool(whole)

    # An agent that has just started may be about to publish them.
    waiting.until(are_there, "a whole GPU that can be claimed", timeout_s=60.0)
    pool, device = whole[0]
    for number in range(2):
        _claimed(world, f"{PLANTED}-{number}", pool, device)
    return nothing


def _claimed(world: World, name: str, pool: str, device: str) -> None:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"devices": {"requests": requests}},
    }
    made = world.api.call("POST", CLAIMS, body)
    result = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device}
    # Of a pod that does not exist the claims' controller would end the reservation at once.
    user = {"apiGroup": "example.com", "resource": "users", "name": name, "uid": made["metadata"]["uid"]}
    status: Json = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    world.api.call("PUT", f"{CLAIMS}/{name}/status", {**made, "status": status})


def quota(world: World) -> Heal:
    """A Workload is admitted with a hundred GPUs: its status is written past the controllers, which sleep through the
    calm, as they would take that back.
    """
    wake = _asleep(world)
    container = {"name": "main", "image": "none", "resources": {"requests": {GPU: "100"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    made = world.api.call(
        "POST",
        WORKLOADS,
        {
            "apiVersion": queuelab.API,
            "kind": "Workload",
            "metadata": {"name": PLANTED, "namespace": TEAM},
            "spec": {"queueName": "research", "podSets": [{"name": "main", "count": 1, "template": template}]},
        },
    )
    assignment = {"name": "main", "count": 1, "flavors": {GPU: "gpus"}, "resourceUsage": {GPU: "100"}}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [
        {"type": type_, "status": "True", "reason": "Planted", "message": "planted", "lastTransitionTime": now}
        for type_ in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": "research", "podSetAssignments": [assignment]}
    status = {"admission": admission, "conditions": conditions}
    with contextlib.suppress(RefusedError):  # the controller wrote first: again, whatever stands there
        world.api.call("PUT", f"{WORKLOADS}/{PLANTED}/status", {**made, "status": status})
        return wake
    world.api.patch(f"{WORKLOADS}/{PLANTED}/status", {"status": status})
    return wake


def unsettled(world: World) -> Heal:
    """Both controllers sleep through the calm, and a job waits for them."""
    wake = _asleep(world)
    world.load.submit(job(world.load.name(), Shape(GPU, 1), "research", 1))
    return wake


def _asleep(world: World) -> Heal:
    """Stop both controllers. The returned function has them go on."""
    pids = [one.process.pid for one in world.replicas if one.process is not None]
    signal_all(pids, signal.SIGSTOP)
    return lambda: signal_all(pids, signal.SIGCONT)


PLANTS: Final[Mapping[str, Callable[[World], Heal]]] = {
    "lost": lost,
    "doubled": doubled,
    "quota": quota,
    "unsettled": unsettled,
}
