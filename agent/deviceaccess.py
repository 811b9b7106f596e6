"""Writes the files that answers to the kubelet name, before any answer names them.

A container without the driver's files starts, and finds no GPU: where they are missing, no device is given.
"""

import asyncio
from collections.abc import Callable

from agent.config.settings import Settings
from agent.kubelet.devicefiles import DeviceFiles
from agent.nodestate import NodeState
from agent.process.tasks import until_poll
from deviceplugin.strategy import AllocationSpec, NodeAccess
from inventory.devices import NodeInventory

FILES_POLL_S = 5.0
FILES = "device-files"
"""The name of the reason for which devices that no container could use are withheld."""


class DeviceAccess:
    """The device files of one node. Writes CDI specs; keeps ``node_state.access`` and the devices that the node state
    withholds for want of files.

    ``adopting`` is held from writing the files to giving the node state an access: a spec on disk is never older than
    the access that names it. ``files`` is written under it alone.
    """

    def __init__(self, settings: Settings, node_state: NodeState) -> None:
        self.files = DeviceFiles(settings)
        self.adopting = asyncio.Lock()
        self._node_state = node_state

    async def begin(self) -> None:
        """Write the specs that answers would name, before the checkpoint's devices are shown."""
        if self.files.lacking(self._node_state.choices.allocation, self._node_state.access):
            await self._write(self._node_state.choices.allocation, self._node_state.access)

    async def bring(self, node: NodeInventory, spec: AllocationSpec | None = None) -> NodeAccess:
        """Write the files of ``node`` as it is now. ``spec`` is how devices will be handed out, where that changes."""
        access = self.files.access(node)
        await self._write(spec or self._node_state.choices.allocation, access)
        return access

    async def follow(self, changed: Callable[[], None]) -> None:
        """Look, until cancelled, for files that a setting promised and this host did not have; call ``changed`` when
        they have come.
        """
        while True:
            await asyncio.sleep(until_poll(FILES_POLL_S))
            if self.files.complete:
                continue
            before = self.files.problem, self._node_state.access
            async with self.adopting:
                self._node_state.access = await self.bring(self._node_state.node)
            if (self.files.problem, self._node_state.access) != before:
                changed()

    async def _write(self, spec: AllocationSpec, access: NodeAccess) -> None:
        await self.files.write(spec, access)
        problem = self.files.problem
        claimed = self._node_state.by_claim
        by_claim = {mig.uuid for gpu in self._node_state.node.gpus if gpu.uuid in claimed for mig in gpu.mig_instances}
        lacking = self.files.lacking_nodes(spec, access, by_claim)
        reasons = dict.fromkeys(access.devices, problem) if problem else lacking
        self._node_state.withhold(FILES, reasons)
        self._node_state.report(FILES, (problem,) if problem else tuple(lacking.values()))
