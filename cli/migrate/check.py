"""Parts that are left after a migration, and pods that miss the GPUs that they had. Pure."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from cli.migrate.fates import PARTS
from cli.migrate.inputs import is_replaced, system_of
from cli.migrate.operator import CLAIMS_ON, MOVED
from cli.migrate.parts import Json, Told
from cli.migrate.steps import NAMESPACE, services_of
from cli.words import migrating as say
from controller.insight.simulation.documents import Document
from inventory.api.names import REPLACED

_QUEUES: Final = ("kueue", "volcano", "kai")
"""The systems whose webhooks the controller stands in for."""
_BESIDE: Final = ("discovery", "exporter", "mig")
"""Systems that run beside any server of GPUs: they are left where an agent has come."""
_SERVERS: Final = ("claims", "plugin")
_GROUPS: Final = (".volcano.sh", "kueue.x-k8s.io", "scheduling.run.ai", "kai.scheduler")
"""How names of their API groups end."""
_PREFIX: Final = "nvidia.com/"
_PLUGIN_ON: Final = f"nvidia.com/gpu.deploy.{PARTS['devicePlugin'][1]}"
_ENDED: Final = ("Succeeded", "Failed")


class Cluster(Struct, frozen=True):
    """The objects that the check looks at, as the API server has them."""

    policies: list[Json] = []
    sets: list[Json] = []
    webhooks: list[Json] = []
    pods: list[Json] = []
    nodes: list[Json] = []
    gpu_nodes: list[Json] = []
    unlisted: list[str] = []
    """Plurals of the kinds that the account may not list: their lists are empty."""


class MigrationCheck(Struct, frozen=True):
    """``left``: old parts that still run or would be run; ``lacking``: pods and nodes that miss what they had;
    ``unknown``: kinds that the account may not list, so that nothing is said about them.
    """

    left: list[Told] = []
    lacking: list[Told] = []
    unknown: list[Told] = []


_COMPARED: Final = frozenset({"gpunodes", "nodes", "pods"})
"""Kinds that are compared with one another: without one of them nothing can be said of what is missed."""


def checked(cluster: Cluster) -> MigrationCheck:
    lacking = [] if _COMPARED & set(cluster.unlisted) else list(_lacking(cluster))
    unknown = [Told(each, say.NOT_LISTED) for each in dict.fromkeys(cluster.unlisted)]
    return MigrationCheck(list(_left(cluster)), lacking, unknown)


def _left(cluster: Cluster) -> Iterator[Told]:
    agents = _has_agents(cluster)
    for policy in cluster.policies:
        spec = policy.get("spec") or {}
        on = {part: words for part, (words, _) in PARTS.items() if _of(spec, part).get("enabled") is not False}
        served = _nodes_of_operator(cluster)
        if on and served and (agents or "devicePlugin" in on):
            yield Told(f"ClusterPolicy {policy['metadata']['name']}", say.still_on(list(on.values()), served))
    for workload in cluster.sets:
        metadata, status = workload["metadata"], workload.get("status") or {}
        count = status.get("currentNumberScheduled" if workload["kind"] == "DaemonSet" else "replicas") or 0
        document = Document("cluster", 1, workload)
        is_old = metadata.get("namespace") != NAMESPACE and is_replaced(document)
        if is_old and count and (agents or system_of(document) not in _BESIDE):
            yield Told(f"{workload['kind']} {metadata.get('namespace')}/{metadata['name']}", say.still_runs(count))
    services = [services_of(*place) for place in _deployments(cluster)]
    for each in cluster.webhooks:
        if any(_is_old(webhook, services) for webhook in each.get("webhooks") or ()):
            yield Told(f"{each['kind']} {each['metadata']['name']}", say.STILL_ASKED)


def _deployments(cluster: Cluster) -> Iterator[tuple[str, list[str]]]:
    """The old controllers, whether they have pods or not."""
    for each in cluster.sets:
        metadata = each["metadata"]
        space = str(metadata.get("namespace") or "default")
        if each["kind"] == "Deployment" and space != NAMESPACE and system_of(Document("", 1, each)) in _QUEUES:
            yield space, [str(metadata["name"])]


def _is_old(webhook: Json, services: list[str]) -> bool:
    """Whether a webhook is an old controller's: it leads to its Service, or is asked about its kinds."""
    service = _of(webhook, "clientConfig", "service")
    if service.get("namespace") == NAMESPACE:
        return False
    groups = [str(group) for rule in webhook.get("rules") or () for group in rule.get("apiGroups") or ()]
    place = f"{service.get('namespace')}/{service.get('name')}"
    return any(group.endswith(_GROUPS) for group in groups) or any(re.search(each, place) for each in services)


def _nodes_of_operator(cluster: Cluster) -> int:
    """Nodes where the operator has its device plugin."""
    labels = [each["metadata"].get("labels") or {} for each in cluster.nodes]
    return sum(1 for each in labels if each.get(_PLUGIN_ON) == "true")


def _lacking(cluster: Cluster) -> Iterator[Told]:
    held = {each["metadata"]["name"]: _holders(each) for each in cluster.gpu_nodes}
    allocatable = {each["metadata"]["name"]: _of(each, "status", "allocatable") for each in cluster.nodes}
    asked: dict[str, Counter[str]] = {}
    without = dict[str, int]()
    for pod in cluster.pods:
        node, wanted = _of(pod, "spec").get("nodeName"), _requests(pod)
        if not node or not wanted or _of(pod, "status").get("phase") in _ENDED:
            continue
        asked.setdefault(node, Counter()).update(wanted)
        key = f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}"
        if node not in held:
            without[node] = without.get(node, 0) + 1
        elif key not in held[node] and _of(pod, "status").get("phase") == "Running":
            yield Told(f"pod {key}", say.not_a_holder(", ".join(sorted(wanted)), node))
    for node, count in sorted(without.items()):
        yield Told(f"node {node}", say.no_agent(count))
    for node, amount_of in sorted(allocatable.items()):
        amounts = {key: value for key, value in amount_of.items() if key.startswith(_PREFIX)}
        if amounts and not any(map(_amount, amounts.values())) and node not in held and node not in without:
            yield Told(f"node {node}", say.nobody_serves(", ".join(sorted(amounts))))
    yield from _waiting(cluster)
    if not _has_agents(cluster) and (stopped := list(dict.fromkeys(_stopped(cluster, allocatable)))):
        yield Told(say.SERVERS, say.no_server(stopped))
    for node, wanted in sorted(asked.items()):
        for resource, count in sorted(wanted.items()):
            offered = _amount(allocatable.get(node, {}).get(resource))
            if offered < count:
                yield Told(f"node {node}: {resource}", say.offers_less(count, offered))


def _stopped(cluster: Cluster, allocatable: dict[str, Json]) -> Iterator[str]:
    """What served GPUs until a plan stopped it: DaemonSets that a step holds still; a ClusterPolicy without its device
    plugin, and nodes that went over by their label, where nodes with GPUs offer none.
    """
    for each in cluster.sets:
        metadata, place = each["metadata"], _of(each, "spec", "template", "spec", "nodeSelector")
        if each["kind"] == "DaemonSet" and REPLACED in place and system_of(Document("", 1, each)) in _SERVERS:
            yield f"DaemonSet {metadata.get('namespace')}/{metadata['name']}"
    for node in cluster.nodes:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        offers = any(_amount(value) for key, value in allocatable[name].items() if key.startswith(_PREFIX))
        if labels.get(CLAIMS_ON) == MOVED and not offers:
            yield f"the DRA driver of node {name}"
        elif labels.get(_PLUGIN_ON) == "true" and not offers:
            off = (each for each in cluster.policies if _of(each, "spec", "devicePlugin").get("enabled") is False)
            yield from (f"the device plugin of ClusterPolicy {each['metadata']['name']}" for each in off)


def _has_agents(cluster: Cluster) -> bool:
    """Whether a node has an agent, or is to have one."""
    return any(_of(each, "status").get("desiredNumberScheduled") for each in cluster.sets if _is_agents(each))


def _is_agents(each: Json) -> bool:
    labels = _of(each, "spec", "template", "metadata", "labels")
    return each["metadata"].get("namespace") == NAMESPACE and labels.get("app.kubernetes.io/component") == "agent"


def _waiting(cluster: Cluster) -> Iterator[Told]:
    """The agents' DaemonSet where no node fits it, and pods that ask for GPUs have no node."""
    pods = sum(map(_waits_for_gpus, cluster.pods))
    for each in cluster.sets if pods else ():
        if _is_agents(each) and not _of(each, "status").get("desiredNumberScheduled"):
            yield Told(f"DaemonSet {NAMESPACE}/{each['metadata']['name']}", say.no_place(pods))


def _waits_for_gpus(pod: Json) -> bool:
    has_ended = _of(pod, "status").get("phase") in _ENDED
    return bool(_requests(pod)) and not has_ended and not _of(pod, "spec").get("nodeName")


def _holders(gpu_node: Json) -> set[str]:
    found = _of(gpu_node, "status").get("holders")
    return {f"{each.get('namespace')}/{each.get('pod')}" for each in found or () if isinstance(each, dict)}


def _requests(pod: Json) -> Counter[str]:
    """Devices of NVIDIA's names that the pod's containers ask for; an init container's are free again."""
    devices = Counter[str]()
    for container in _of(pod, "spec").get("containers") or ():
        for name, amount in _of(container, "resources", "limits").items():
            if name.startswith(_PREFIX):
                devices[name] += _amount(amount)
    return +devices


def _amount(value: Any) -> int:
    text = str(value or 0)
    return int(text) if text.isdigit() else 0


def _of(value: Json, *keys: str) -> Json:
    for key in keys:
        value = value.get(key) or {}
    return value
