"""The state of an admitted Workload's pods, read with the caller's rights."""

from datetime import UTC, datetime

from cli.access.cluster import Where, named_config
from cli.access.gpunodes_shell import list_gpu_nodes
from cli.printing.console import Json
from cli.workload.read import pods_of
from controller.cluster.config.load import load, parse
from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.kinds import WORKLOADS
from controller.insight.podtroubles import FailurePolicy, pods_shown
from controller.objects.decode import GpuNode
from controller.objects.workload import Workload
from kube.client import Client
from kube.errors import KubeError
from yamlfile import ConfigError


async def running(client: Client, where: Where, workload: Workload) -> Json | None:
    """The pods as ``pods_shown`` gives them; None where the Workload holds no quota."""
    if workload.status.admission is None:
        return None
    given = await client.get(WORKLOADS, workload.metadata.name, Json, namespace=workload.metadata.namespace)
    pods, nodes = await pods_of(client, given), await gpu_nodes(client)
    return pods_shown(workload, pods, nodes, await _policy(client, where), datetime.now(UTC))


async def gpu_nodes(client: Client) -> tuple[GpuNode, ...]:
    """The GpuNodes; empty where they may not be read, or do not exist."""
    try:
        return tuple(await list_gpu_nodes(client, []))
    except KubeError:
        return ()


async def _policy(client: Client, where: Where) -> FailurePolicy:
    """The failure policy of the controller's configuration, where that may be read."""
    try:
        config: ControllerConfig
        if where.config is not None:
            config = load(where.config)
        else:
            text = await named_config(client, where)
            if text is None:
                return FailurePolicy()
            config = parse(text, where.controller)
    except ConfigError:
        return FailurePolicy()
    return FailurePolicy.of(config)
