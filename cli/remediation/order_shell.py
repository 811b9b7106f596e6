"""Writes a person's order about a GPU to its GpuNode, and waits until the node's agent has answered.

    annotation tessera.dev/remediation-<UUID> -> the agent obeys or refuses, takes it off -> status.orderAnswers

The patch names the version of the GpuNode that was read: an order that somebody writes in between is not overwritten.
"""

import asyncio
from typing import Final

import click
import msgspec

from cli.access.cluster import is_kind_missing
from cli.access.kubeapi import MANAGER
from cli.naming.meant import meant_or_there
from cli.printing.console import Json, patience
from cli.remediation import repairs
from cli.words import remediation as say
from controller.cluster.watching.kinds import GPU_NODES
from controller.objects.decode import DecodeError, GpuNode, read_gpu_node
from inventory.api.gpunode import RESETS_NEVER, Device, OrderAnswer
from inventory.api.names import REMEDIATION_ORDER
from kube.client import Client
from kube.errors import ConflictError, NotFoundError

_TRIES: Final = 5
_LOOK_S: Final = 0.3
"""The seconds between two looks at the GpuNode."""


class Ordered(msgspec.Struct, frozen=True, kw_only=True):
    """An order that is on the GpuNode. ``before`` is the answer that stood there when it was written."""

    node: str
    device: Device
    order: str
    before: OrderAnswer | None

    @property
    def key(self) -> str:
        """The annotation's name."""
        return f"{REMEDIATION_ORDER}{self.device.uuid}"

    @property
    def name(self) -> str:
        """The GPU as sentences name it."""
        return f"{self.node}: GPU {self.device.index}"


async def write(client: Client, node: str, gpu: str, order: str, *, replace: bool) -> Ordered:
    """Write the order; one that stands there already is not written again. Raises click.ClickException, also for a node
    whose agent takes no orders, and for another order that its agent has not answered yet, unless ``replace``.
    """
    for _ in range(_TRIES):
        gpu_node = await _read(client, node)
        made = _ordered(gpu_node, gpu, order)
        if gpu_node.status.reset_mode == RESETS_NEVER:
            raise click.ClickException(say.takes_no_orders(made.name))
        stands = gpu_node.metadata.annotations.get(made.key)
        if stands == order:
            return made
        if stands is not None and not replace:
            raise click.ClickException(say.order_stands(made.name, stands))
        body = {"metadata": {"resourceVersion": gpu_node.metadata.resource_version, "annotations": {made.key: order}}}
        try:
            await client.merge_patch(GPU_NODES, node, body, Json, field_manager=MANAGER)
        except ConflictError:
            continue  # the agent wrote its status, or somebody another order
        return made
    raise click.ClickException(say.changed_meanwhile(node))


async def answered(client: Client, made: Ordered, timeout_s: float) -> OrderAnswer:
    """Wait for the agent's answer. Raises click.ClickException when the time is over, or for an order that somebody has
    replaced.
    """
    stands: str | None = made.order
    try:
        async with asyncio.timeout(timeout_s), patience(lambda: f"waiting for the agent of {made.node}"):
            while True:
                found = await _read(client, made.node)
                stands = found.metadata.annotations.get(made.key)
                answer = repairs.answer(found, made.device.uuid)
                if stands not in (None, made.order):
                    raise click.ClickException(say.replaced(made.name, made.order, stands))
                if stands is None and answer is not None and answer != made.before and answer.order == made.order:
                    return answer
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        late = say.taken_off if stands is None else say.not_answered
        raise click.ClickException(late(made.name, made.order, f"{timeout_s:g}")) from None


def _ordered(node: GpuNode, gpu: str, order: str) -> Ordered:
    device = repairs.find(node, gpu)
    name = node.metadata.name
    if device is None:
        indexes = ", ".join(str(each.index) for each in sorted(node.status.devices, key=lambda each: each.index))
        raise click.ClickException(say.no_gpu(gpu, name, indexes) if indexes else say.no_gpus(gpu, name))
    return Ordered(node=name, device=device, order=order, before=repairs.answer(node, device.uuid))


async def _read(client: Client, node: str) -> GpuNode:
    """Read the GpuNode. Raises click.ClickException for one that does not exist or cannot be read."""
    try:
        return read_gpu_node(await client.get(GPU_NODES, node, Json))
    except NotFoundError as failed:
        if is_kind_missing(failed):
            raise
        raise click.ClickException(say.no_gpu_node(node) + await meant_or_there(client, GPU_NODES, node)) from None
    except DecodeError as wrong:
        raise click.ClickException(str(wrong)) from None
