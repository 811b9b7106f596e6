"""How the pods of an admitted Workload do, read with the caller's rights."""

from datetime import UTC, datetime
from typing import Final

import msgspec

from cli.cluster import Where, named_config
from cli.console import Json
from cli.workload.read import pods_of
from controller import podtroubles
from controller.config.load import load, parse
from controller.config.settings import ControllerConfig
from controller.objects.decode import DecodeError, GpuNode, read_gpu_node
from controller.objects.meta import find_condition
from controller.objects.workload import Workload
from controller.podtroubles import FailurePolicy
from controller.watching.kinds import GPU_NODES, WORKLOADS
from kube.client import Client
from kube.errors import KubeError
from yamlfile import ConfigError

_SETTLED_S: Final = 60.0
"""So long a job may take to make its pods."""


async def running(client: Client, where: Where, workload: Workload) -> Json | None:
    """``running`` of ``of`` pods, and what keeps the others; None where it holds no quota."""
    admission = workload.status.admission
    if admission is None:
        return None
    given = await client.get(WORKLOADS, workload.metadata.name, Json, namespace=workload.metadata.namespace)
    pods = await pods_of(client, given)
    wanted = sum(each.count for each in workload.spec.pod_sets)
    expected = sum(each.count or 0 for each in admission.pod_set_assignments) or wanted
    admitted = find_condition(workload.status.conditions, "Admitted")
    now = datetime.now(UTC)
    since = admitted.last_transition_time if admitted is not None and admitted.status == "True" else None
    settled = since is not None and (now - since).total_seconds() > _SETTLED_S
    nodes = await gpu_nodes(client)
    found = podtroubles.troubles(pods, expected, nodes, await _policy(client, where), settled=settled)
    told = [_told(each, now) for each in found]
    counts = {phase.lower(): podtroubles.in_phase(pods, phase) for phase in ("Running", "Succeeded")}
    return {**counts, "of": max(expected, len(pods)), "troubles": told}


def _told(trouble: podtroubles.PodTrouble, now: datetime) -> Json:
    since_s = None if trouble.since is None else max(0, int((now - trouble.since).total_seconds()))
    body: Json = msgspec.to_builtins(trouble)
    return {**body, "sentence": trouble.sentence, "sinceSeconds": since_s}


async def gpu_nodes(client: Client) -> tuple[GpuNode, ...]:
    """None where they may not be read, or are not there."""

    def decode(raw: bytes) -> GpuNode | None:
        try:
            return read_gpu_node(raw)
        except DecodeError:
            return None

    try:
        listed = (await client.list_decoded(GPU_NODES, decode)).items
    except KubeError:
        return ()
    return tuple(each for each in listed if each is not None)


async def _policy(client: Client, where: Where) -> FailurePolicy:
    """Of the controller's configuration, where it may be read."""
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
    ready = config.engine.wait_for_pods_ready
    return FailurePolicy(
        on_gpu_failure=config.gpu_failures.policy.value, ready_s=None if ready is None else ready.timeout_s
    )
