"""What happens around requests for nodes while the controller is killed."""

import json
from typing import Final

from cli.playground.cluster import GPU
from controller.cluster.watching.kinds import (
    CHECKS,
    CLAIM_TEMPLATES,
    CLUSTER_QUEUES,
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_SLICES,
    FLAVORS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    PROVISIONING_CONFIGS,
    PROVISIONING_REQUESTS,
)
from failpoints.names import Failpoint
from inventory.api.names import NODE_TEMPLATE, PLACEHOLDER_OF
from kube.errors import NotFoundError
from tests.support.failpoints.acts import PRIORITY, ends, gone, job, over, running, runs, workload
from tests.support.failpoints.cluster import CONFIG, TEAM, Act, Json, KilledCluster, Stage

TESSERA: Final = CONFIG.replace("policy: kueue", "policy: tessera")
NETWORK: Final = "net.example.com"
PORT: Final = "net.example.com/port"
MAPPED: Final = f"{TESSERA}resources: {{deviceClassMappings: [{{name: {PORT}, deviceClassNames: [{NETWORK}]}}]}}\n"
AT: Final = "2026-01-01T00:00:00Z"


def queue(here: KilledCluster, n: str, *flavors: str, retries: int = 3) -> None:
    """A queue whose check requests nodes, of flavor ``gpu`` or these."""
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": f"c-{n}"}
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    here.make(CHECKS, f"make-{n}", meta={"generation": 1}, spec=spec)
    strategy = {"backoffLimitCount": retries, "backoffBaseSeconds": 0}
    here.make(PROVISIONING_CONFIGS, f"c-{n}", spec={"provisioningClassName": "k", "retryStrategy": strategy})
    quotas = [{"name": name, "resources": [{"name": GPU, "nominalQuota": "4"}]} for name in flavors or ("gpu",)]
    groups = [{"coveredResources": [GPU], "flavors": quotas}]
    checks = {"admissionChecks": [{"name": f"make-{n}"}]}
    whole = {"namespaceSelector": {}, "resourceGroups": groups, "admissionChecksStrategy": checks}
    here.make(CLUSTER_QUEUES, f"cq-{n}", spec=whole)
    here.make(LOCAL_QUEUES, f"lq-{n}", TEAM, spec={"clusterQueue": f"cq-{n}"})


def request(here: KilledCluster, n: str, attempt: int = 1) -> Json:
    """The request of the job's workload; empty where there is none."""
    found = workload(here, n)
    try:
        name = f"{found['metadata']['name']}-make-{n}-{attempt}"
        made: Json = here.server.get(PROVISIONING_REQUESTS, name, namespace=TEAM)
    except (KeyError, NotFoundError):
        return {}
    return made


def says(here: KilledCluster, n: str, type_: str, attempt: int = 1) -> None:
    """The autoscaler."""
    said = {"type": type_, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": AT}
    name = request(here, n, attempt)["metadata"]["name"]
    here.server.merge(PROVISIONING_REQUESTS, name, {"status": {"conditions": [said]}}, namespace=TEAM)


def none_left(here: KilledCluster) -> bool:
    return here.server.list_all(PROVISIONING_REQUESTS) == []


def nodes_are_requested(here: KilledCluster, n: str) -> list[Stage]:
    def begun() -> None:
        queue(here, n)
        job(here, n, 2, queue=f"lq-{n}")

    return [
        Stage(begun, lambda: bool(request(here, n)), "its nodes are requested"),
        Stage(lambda: says(here, n, "Provisioned"), lambda: over(here, n), "the job has run"),
        Stage(lambda: None, lambda: none_left(here), "no request is left"),
        ends(here, n),
    ]


def a_request_fails(here: KilledCluster, n: str) -> list[Stage]:
    def begun() -> None:
        queue(here, n)
        job(here, n, 2, queue=f"lq-{n}")

    return [
        Stage(begun, lambda: bool(request(here, n)), "its nodes are requested"),
        Stage(lambda: says(here, n, "Failed"), lambda: bool(request(here, n, 2)), "they are requested again"),
        Stage(lambda: says(here, n, "Provisioned", 2), lambda: over(here, n), "the job has run"),
        Stage(lambda: ends(here, n).deed(), lambda: gone(here, n) and none_left(here), "no request is left"),
    ]


def a_flavor_is_given_up(here: KilledCluster, n: str) -> list[Stage]:
    def begun() -> None:
        here.make(FLAVORS, f"spare-{n}", spec={"nodeLabels": {"pool": "gpu"}, "topologyName": "hosts"})
        queue(here, n, "gpu", f"spare-{n}", retries=0)
        job(here, n, 2, queue=f"lq-{n}")

    def on_the_spare() -> bool:
        sets = workload(here, n).get("status", {}).get("admission", {}).get("podSetAssignments", [])
        return bool(request(here, n, 2)) and [each["flavors"][GPU] for each in sets] == [f"spare-{n}"]

    return [
        Stage(begun, lambda: bool(request(here, n)), "its nodes are requested"),
        Stage(lambda: says(here, n, "Failed"), on_the_spare, "nodes of the next flavor are requested"),
        Stage(lambda: says(here, n, "Provisioned", 2), lambda: over(here, n), "the job has run"),
        Stage(lambda: ends(here, n).deed(), lambda: gone(here, n) and none_left(here), "no request is left"),
    ]


def placeholders(here: KilledCluster) -> list[Json]:
    return [each for each in here.server.list_all(PODS) if PLACEHOLDER_OF in each["metadata"].get("labels", {})]


def copies(here: KilledCluster) -> list[Json]:
    found = here.server.list_all(CLAIM_TEMPLATES)
    return [each for each in found if PLACEHOLDER_OF in each["metadata"].get("labels", {})]


def nodes_come(here: KilledCluster, n: str, *, claims: bool = False) -> list[Stage]:
    """A flavor has no node yet: placeholders wait, two nodes come, and the job runs on them. ``claims``: each pod has a
    claim beside its GPU, for a network device of its node.
    """

    def begun() -> None:
        template: Json = {"gpus": 2, "max": 2}
        if claims:
            template["devices"] = [{"driver": NETWORK, "count": 2}]
            if not here.server.list_all(DEVICE_CLASSES):
                selects = {"cel": {"expression": f"device.driver == '{NETWORK}'"}}
                here.make(DEVICE_CLASSES, NETWORK, spec={"selectors": [selects]})
            asked = {"name": "one", "exactly": {"deviceClassName": NETWORK, "count": 1}}
            here.make(CLAIM_TEMPLATES, f"one-{n}", TEAM, spec={"spec": {"devices": {"requests": [asked]}}})
        spec = {"nodeLabels": {"pool": f"more-{n}"}, "topologyName": "hosts"}
        here.make(FLAVORS, f"more-{n}", meta={"annotations": {NODE_TEMPLATE: json.dumps(template)}}, spec=spec)
        counted = (GPU, PORT) if claims else (GPU,)
        quotas = [{"name": f"more-{n}", "resources": [{"name": each, "nominalQuota": "4"} for each in counted]}]
        groups = [{"coveredResources": [*counted], "flavors": quotas}]
        whole = {"namespaceSelector": {}, "resourceGroups": groups}
        here.make(CLUSTER_QUEUES, f"cq-{n}", spec=whole)
        here.make(LOCAL_QUEUES, f"lq-{n}", TEAM, spec={"clusterQueue": f"cq-{n}"})
        job(here, n, 4, queue=f"lq-{n}", claims=f"one-{n}" if claims else None)

    def come() -> None:
        for each in ("a", "b"):
            here.join(f"{each}{n}", f"more-{n}")
            if claims:
                publish(here, f"{each}{n}")

    def go() -> None:
        ends(here, n).deed()
        for each in ("a", "b"):
            here.leave(f"{each}{n}")
            if claims:
                here.server.delete(DEVICE_SLICES, f"{each}{n}")

    def none_is_left() -> bool:
        return gone(here, n) and not placeholders(here) and not copies(here)

    return [
        Stage(begun, lambda: len(placeholders(here)) == 4, "placeholders wait"),
        Stage(come, lambda: over(here, n) and not copies(here), "the job has run"),
        Stage(go, none_is_left, "no placeholder is left"),
    ]


def publish(here: KilledCluster, name: str) -> None:
    """The driver of a node's network devices."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "port-0"}, {"name": "port-1"}]
    spec = {"driver": NETWORK, "nodeName": name, "pool": pool, "devices": devices}
    here.make(DEVICE_SLICES, name, spec=spec)


def nodes_come_with_claims(here: KilledCluster, n: str) -> list[Stage]:
    return nodes_come(here, n, claims=True)


def a_node_is_taken_away(here: KilledCluster, n: str) -> list[Stage]:
    """The taint of an autoscaler: the gang of two leaves both nodes, and starts again when the taint has gone."""
    tainted: list[str] = []
    before: list[str] = []

    def taken() -> None:
        found = running(here, n)
        before.extend(each["metadata"]["uid"] for each in found)
        tainted.append(found[0]["spec"]["nodeName"])
        taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        here.server.merge(NODES, tainted[0], {"spec": {"taints": [taint]}})

    def left() -> bool:
        return not any(each["metadata"]["uid"] in before for each in running(here, n)) and not runs(here, n, 4)

    def back() -> None:
        here.server.merge(NODES, tainted[0], {"spec": {"taints": None}})

    return [
        Stage(lambda: job(here, n, 4, runs_s=None), lambda: runs(here, n, 4), "the job runs"),
        Stage(taken, left, "its whole gang has left"),
        Stage(back, lambda: runs(here, n, 4), "it runs again"),
        ends(here, n),
    ]


def a_victim_is_told(here: KilledCluster, n: str) -> list[Stage]:
    """A victim of preemption waits again, and its condition says when it is likely to start."""
    low, high = f"low-{n}", f"high-{n}"

    def told() -> bool:
        conditions = workload(here, low).get("status", {}).get("conditions", [])
        said = [each["message"] for each in conditions if each["type"] == "Preempted" and each["status"] == "True"]
        return any("starts again" in each for each in said)

    return [
        Stage(lambda: job(here, low, 4, runs_s=None), lambda: runs(here, low, 4), "the first job runs"),
        Stage(lambda: job(here, high, 3, runs_s=None, labels={PRIORITY: "urgent"}), told, "its victim is told"),
        Stage(lambda: ends(here, high).deed(), lambda: runs(here, low, 4), "the first job runs again"),
        ends(here, low),
    ]


_KINDS: Final = (PROVISIONING_CONFIGS, PROVISIONING_REQUESTS)
PROVISIONING: Final = (
    Act(
        "nodes are requested",
        (
            Failpoint.CHECK_ACTIVE,
            Failpoint.POD_TEMPLATE,
            Failpoint.PROVISIONING_REQUEST,
            Failpoint.POD_TEMPLATE_CHANGED,
            Failpoint.PROVISIONING_REQUEST_REMOVED,
        ),
        nodes_are_requested,
        kinds=_KINDS,
    ),
    Act("nodes come", (Failpoint.PLACEHOLDER, Failpoint.PLACEHOLDER_REMOVED), nodes_come, TESSERA),
    Act(
        "nodes come with devices by claim",
        (Failpoint.PLACEHOLDER_CLAIMS, Failpoint.PLACEHOLDER_CLAIMS_REMOVED),
        nodes_come_with_claims,
        MAPPED,
        (CLAIM_TEMPLATES, DEVICE_CLASSES, DEVICE_CLAIMS, DEVICE_SLICES),
    ),
    Act(
        "a node is taken away",
        (Failpoint.NODE_INTERRUPTED, Failpoint.INTERRUPTIONS_RECORDED),
        a_node_is_taken_away,
        TESSERA,
    ),
    Act("a victim is told", (Failpoint.RESTART_FORETOLD,), a_victim_is_told, TESSERA),
    Act("a request for nodes fails", (Failpoint.CHECK_STATE,), a_request_fails, kinds=_KINDS),
    Act("a flavor is given up", (Failpoint.FLAVORS_GIVEN_UP,), a_flavor_is_given_up, TESSERA, _KINDS),
)
