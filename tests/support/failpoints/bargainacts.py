"""A program bargains, uses what it got and gives it back, while the controller is killed."""

from typing import Final

from cli.playground.cluster import GPU
from controller.cluster.watching.kinds import CAPACITY_REQUESTS, PODS, WORKLOADS
from failpoints.names import Failpoint
from kube.errors import NotFoundError
from tests.support.failpoints.cluster import CONFIG, TEAM, Act, Json, KilledCluster, Stage

BARGAINING: Final = CONFIG + "  bargaining: {enabled: true}\n"
REQUEST: Final = "tessera.dev/capacity-request"
GATE: Final = "kueue.x-k8s.io/admission"


def status(here: KilledCluster, name: str) -> Json:
    found: Json = here.server.get(CAPACITY_REQUESTS, name, namespace=TEAM).get("status", {})
    return found


async def ask(here: KilledCluster, name: str, state: str, **spec: object) -> None:
    whole = {"queueName": "lq", "unit": {GPU: "1"}, **spec}
    here.make(CAPACITY_REQUESTS, name, TEAM, spec=whole)
    await here.until(lambda: status(here, name).get("state") == state, f"{name} is {state}")


def workloads_of(here: KilledCluster, name: str) -> list[str]:
    owners = {
        each["metadata"]["name"]: each["metadata"].get("ownerReferences", [])
        for each in here.server.list_all(WORKLOADS)
    }
    return [key for key, some in owners.items() if any(owner["name"] == name for owner in some)]


def a_program_bargains(here: KilledCluster, n: str) -> list[Stage]:
    name, pod = f"ask-{n}", f"inside-{n}"

    def ask() -> None:
        spec = {"queueName": "lq", "unit": {GPU: "1"}, "min": 2, "max": 2, "duration": "1h"}
        here.make(CAPACITY_REQUESTS, name, TEAM, spec=spec)

    def use() -> None:
        container = {"name": "main", "image": "i", "resources": {"limits": {GPU: "1"}}}
        spec = {"restartPolicy": "Never", "containers": [container], "schedulingGates": [{"name": GATE}]}
        here.make(PODS, pod, TEAM, meta={"labels": {REQUEST: name}}, spec=spec, status={"phase": "Pending"})

    def is_used() -> bool:
        found = here.server.get(PODS, pod, namespace=TEAM)
        return found["status"].get("phase") == "Running" and status(here, name).get("used") == 1

    def is_given_back() -> bool:
        owners = [each["metadata"].get("ownerReferences", []) for each in here.server.list_all(WORKLOADS)]
        try:
            here.server.get(PODS, pod, namespace=TEAM)
        except NotFoundError:
            return not any(owner["name"] == name for each in owners for owner in each)
        return False

    return [
        Stage(ask, lambda: status(here, name).get("state") == "Granted", "it is granted"),
        Stage(use, is_used, "its pod runs"),
        Stage(lambda: here.server.delete(CAPACITY_REQUESTS, name, namespace=TEAM), is_given_back, "its units are back"),
    ]


BARGAINS: Final = (
    Act("a program bargains", (Failpoint.CAPACITY_STATUS,), a_program_bargains, BARGAINING, (CAPACITY_REQUESTS,)),
)
