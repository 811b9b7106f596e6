"""The node's device files as containers get them: by path, and by the names in the CDI specs."""

import logging

from agent.access import node_access, seen_at
from agent.cdifiles import CdiFiles
from agent.config.settings import DriverSettings, Settings
from deviceplugin.strategy import AllocationSpec, NodeAccess
from inventory.devices import Node

log = logging.getLogger(__name__)


class DeviceFiles:
    """Of one node. Where the driver lies may change with the settings, the rest of it never."""

    def __init__(self, settings: Settings) -> None:
        self._proc_root = settings.proc_root
        self._simulated = settings.simulate is not None
        self._cdi = CdiFiles(settings.cdi_dir, settings.driver, simulated=self._simulated)

    @property
    def driver(self) -> DriverSettings:
        """In use from the next call on."""
        return self._cdi.driver

    @driver.setter
    def driver(self, driver: DriverSettings) -> None:
        self._cdi.driver = driver

    def access(self, node: Node) -> NodeAccess:
        """The files of each GPU and MIG instance, as the node is now."""
        return node_access(
            node,
            dev_root=self.driver.dev_root,
            proc_root=self._proc_root,
            simulated=self._simulated,
            seen=seen_at(self.driver.driver_root, self.driver.container_driver_root),
        )

    def lacking(self, spec: AllocationSpec, access: NodeAccess) -> bool:
        """Whether an answer could name a device that no CDI spec defines."""
        return self._cdi.lacking(spec, access)

    async def write(self, spec: AllocationSpec, access: NodeAccess) -> None:
        """Bring the CDI specs in line; where they cannot be written, that is logged."""
        try:
            changed = await self._cdi.write(spec, access)
        except OSError as failed:
            log.warning("CDI specs not written", extra={"error": str(failed)})
            return
        if changed:
            log.info("CDI specs written", extra={"files": ",".join(changed)})
