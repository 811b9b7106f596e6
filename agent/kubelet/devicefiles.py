"""The node's device files as containers get them: by path, and by the names in the CDI specs.

Files that a setting promises and this host does not have are looked for again every few seconds: a driver's files and
an IMEX channel come after the agent as often as before it.
"""

import logging
from collections.abc import Collection
from pathlib import Path

from msgspec import structs

from agent.config.settings import DriverSettings, Settings
from agent.kubelet.access import Roots, missing_channels, node_access
from agent.kubelet.cdifiles import CdiFiles
from agent.kubelet.driverfiles import NoDriverError, find_nvml
from agent.kubelet.hostroot import HostRoot, Seen, seen_at
from agent.words import node as words
from deviceplugin.cdi import Spec
from deviceplugin.strategy import AllocationSpec, NodeAccess
from inventory.devices import NodeInventory

log = logging.getLogger(__name__)


def absent_channels(settings: Settings) -> tuple[str, ...]:
    """The paths of the IMEX channels that every container is to get and this host does not have."""
    if settings.simulate is not None:
        return ()
    seen = seen_at(settings.driver.driver_root, settings.driver.container_driver_root)
    return missing_channels(settings.driver.dev_root, settings.allocation.imex_channels, seen)


def required_channel_problem(settings: Settings) -> str | None:
    """Why these settings cannot be used on this host, as one line; None where they can."""
    absent = absent_channels(settings) if settings.imex_required else ()
    if not absent:
        return None
    return words.no_channel(absent[0])


def nvml_library(settings: Settings) -> Path | None:
    """NVML below the driver root, as this process sees it, for a container into which no runtime put NVML; None if
    absent.
    """
    driver = settings.driver
    return find_nvml(HostRoot(driver.driver_root, seen_at(driver.driver_root, driver.container_driver_root)))


class DeviceFiles:
    """The device files of one node. The driver's place and the allocation may change with the settings, the
    rest never.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cdi = CdiFiles(settings.cdi_dir, settings.driver, simulated=settings.simulate is not None)
        self._problem: str | None = None
        self._absent: tuple[str, ...] = ()
        self._lacking = False

    def reconfigure(self, settings: Settings) -> None:
        """Use the new settings from the next call on: the driver's place, and what containers get."""
        self._settings = structs.replace(
            self._settings,
            driver=settings.driver,
            allocation=settings.allocation,
            imex_required=settings.imex_required,
        )
        self._cdi.driver = settings.driver

    @property
    def problem(self) -> str | None:
        """Why no container can be given a device, as of the last ``write``: one line."""
        return self._problem

    @property
    def complete(self) -> bool:
        """Whether all files that settings ask for exist, and all that specs name beside them."""
        return self._problem is None and not (self._absent or self._lacking or self._cdi.sockets_differ())

    def lacking_nodes(self, spec: AllocationSpec, access: NodeAccess, by_claim: Collection[str]) -> dict[str, str]:
        """Why containers could not use devices with the files that they would get, by the device's UUID. Devices in
        ``by_claim`` are given with their files whatever ``spec`` says.
        """
        lacking = {
            uuid: device.lacking
            for uuid, device in access.devices.items()
            if device.lacking and (spec.gives_nodes or uuid in by_claim)
        }
        self._lacking = bool(lacking)
        return lacking

    def access(self, node: NodeInventory) -> NodeAccess:
        """The files of each GPU and MIG instance of ``node``, as they are now."""
        return node_access(
            node,
            Roots(self._driver.dev_root, self._settings.proc_root, self._settings.sys_root),
            channels=self._settings.allocation.imex_channels,
            simulated=self._settings.simulate is not None,
            seen=self._seen,
        )

    def lacking(self, spec: AllocationSpec, access: NodeAccess) -> bool:
        """Whether an answer could name a device that no CDI spec defines."""
        return self._cdi.lacking(spec, access)

    async def write(self, spec: AllocationSpec, access: NodeAccess) -> None:
        """Write the CDI specs, and update ``problem`` and ``complete``."""
        self._note_channels()
        problem = required_channel_problem(self._settings)
        try:
            changed = await self._cdi.write(spec, access)
        except NoDriverError as missing:
            problem = problem or words.no_spec(str(missing))
        except OSError as failed:
            log.warning("CDI specs not written", extra={"error": str(failed)})
            if self._cdi.lacking(spec, access):
                problem = problem or words.no_spec(str(failed))
        else:
            if changed:
                log.info("CDI specs written", extra={"files": ",".join(changed)})
        if problem is not None and problem != self._problem:
            log.warning("no container can be given a device", extra={"problem": problem})
        self._problem = problem

    async def gpu_spec(self, access: NodeAccess) -> Spec:
        """See ``CdiFiles.gpu_spec``."""
        return await self._cdi.gpu_spec(access)

    def _note_channels(self) -> None:
        absent = absent_channels(self._settings)
        if absent and absent != self._absent:
            log.warning("IMEX channel not there: containers get none", extra={"paths": ",".join(absent)})
        self._absent = absent

    @property
    def _driver(self) -> DriverSettings:
        return self._settings.driver

    @property
    def _seen(self) -> Seen:
        return seen_at(self._driver.driver_root, self._driver.container_driver_root)
