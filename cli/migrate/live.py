"""Reads a cluster for a plan, and afterwards for its check: lists alone, and nothing is written."""

from collections.abc import Iterable
from typing import Final

import msgspec

from cli.access.cluster import Where
from cli.access.kubeapi import opened
from cli.manifests import WrongInputError
from cli.migrate.check import Cluster
from cli.migrate.inputs import Inputs, is_ours, sort_in
from cli.migrate.reading import judge_kueue
from cli.migrate.steps import NAMESPACE
from cli.printing.console import Json
from cli.words import migrating as say
from controller.insight.simulation.documents import Document
from inventory.api.names import GROUP
from kube.client import Client
from kube.errors import ForbiddenError, NotFoundError
from kube.resources import NODES, PODS, Resource

_FILE: Final = "cluster"


def _of(group: str, version: str, *kinds: str) -> tuple[Resource, ...]:
    """Resources by their kinds, namespaced or not: all of a kind are listed."""
    return tuple(Resource(group, version, _plural(kind), kind) for kind in kinds)


def _plural(kind: str) -> str:
    small = kind.lower()
    if small.endswith(("y", "s", "ch")):
        return f"{small[:-1]}ies" if small.endswith("y") else f"{small}es"
    return f"{small}s"


CONFIG_MAPS: Final = _of("", "v1", "ConfigMap")
SETS: Final = _of("apps", "v1", "DaemonSet", "Deployment")
KINDS: Final = (
    *_of("nvidia.com", "v1", "ClusterPolicy"),
    *_of("nvidia.com", "v1alpha1", "GPUCluster"),
    *CONFIG_MAPS,
    NODES,
    *_of("", "v1", "Namespace"),
    *SETS,
    *_of("resource.k8s.io", "v1", "DeviceClass", "ResourceClaimTemplate", "ResourceSlice"),
    *_of("resource.nvidia.com", "v1beta1", "ComputeDomain"),
    *_of("kueue.x-k8s.io", "v1beta2", "AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "MultiKueueConfig",
         "MultiKueueCluster", "ProvisioningRequestConfig", "ResourceFlavor", "Topology", "WorkloadPriorityClass"),
    *_of("batch.volcano.sh", "v1alpha1", "Job"),
    *_of("scheduling.volcano.sh", "v1beta1", "Queue", "PodGroup"),
    *_of("topology.volcano.sh", "v1alpha1", "HyperNode"),
    *_of("scheduling.run.ai", "v2", "Queue"),
    *_of("scheduling.run.ai", "v2alpha2", "PodGroup"),
    *_of("kai.scheduler", "v1", "SchedulingShard", "Config"),
)  # fmt: skip
"""Kinds that a plan is made from; those that a cluster does not have are passed over."""
_OLDER: Final = {"kueue.x-k8s.io/v1beta2": "v1beta1"}
"""The version to try where an API server does not serve the newer one."""
_WEBHOOKS: Final = _of("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration",
                       "ValidatingWebhookConfiguration")  # fmt: skip
_GPU_NODES: Final = _of(GROUP, "v1alpha1", "GpuNode")


async def read_cluster(where: Where) -> Inputs:
    """All that a plan is made from. Of Tessera's own objects the workloads of its release are read alone.

    Raises WrongInputError with a line for each kind that may not be listed, or for each object that cannot be read.
    """
    inputs, refused = Inputs(is_live=True), list[str]()
    async with opened(where) as client:
        number = 0
        for resource in KINDS:
            for data in await _listed(client, resource, refused):
                number += 1
                document = Document(_FILE, number, data)
                if data["metadata"].get("namespace") != NAMESPACE or is_ours(document):
                    sort_in(document, inputs)
    if refused:
        raise WrongInputError("\n".join(map(say.may_not_list, refused)))
    judge_kueue(inputs)
    if inputs.unreadable:
        raise WrongInputError("\n".join(f"{each.place()}: found no object" for each in inputs.unreadable))
    return inputs


async def read_after(where: Where) -> Cluster:
    """What the check looks at. Kinds that may not be listed are named in it."""
    refused: list[str] = []
    async with opened(where) as client:
        return Cluster(
            policies=await _all(client, _of("nvidia.com", "v1", "ClusterPolicy"), refused),
            sets=await _all(client, SETS, refused),
            webhooks=await _all(client, _WEBHOOKS, refused),
            pods=await _all(client, (PODS,), refused),
            nodes=await _all(client, (NODES,), refused),
            gpu_nodes=await _all(client, _GPU_NODES, refused),
            unlisted=refused,
        )


async def _all(client: Client, resources: Iterable[Resource], refused: list[str]) -> list[Json]:
    return [each for resource in resources for each in await _listed(client, resource, refused)]


async def _listed(client: Client, resource: Resource, refused: list[str]) -> list[Json]:
    """All objects of a kind in all namespaces, each with its kind: items of a list have none. One that may not be
    listed is added to ``refused``, by its plural.
    """
    try:
        items = (await client.list_all(resource, Json)).items
    except NotFoundError:
        older = _OLDER.get(resource.api_version)
        return await _listed(client, msgspec.structs.replace(resource, version=older), refused) if older else []
    except ForbiddenError:
        refused.append(resource.plural)
        return []
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [head | item for item in items]
