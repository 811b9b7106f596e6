"""Writes the CDI specs, and lets NVIDIA's own tool generate the GPU spec where the host has it.

The specs are written again whenever the devices, the driver or the settings change; they are left in place at the end,
because containers that restart while the agent is away still need them.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from agent.config.settings import DriverSettings
from agent.kubelet.driverfiles import NoDriverError, find_driver, find_hook, listed_folders
from agent.kubelet.graphicsfiles import Files, find_sockets
from agent.kubelet.hostroot import HostRoot, seen_at
from agent.persistence.files import write_atomically
from agent.process.tasks import started
from deviceplugin.cdi import Spec, device_names, file_name, rename_kind, specs
from deviceplugin.drivermounts import DriverFiles, HookProgram
from deviceplugin.strategy import AllocationSpec, DeviceIdStrategy, DeviceListStrategy, NodeAccess
from failpoints import points
from failpoints.names import Failpoint

log = logging.getLogger(__name__)

PROGRAM_TIMEOUT_S = 30.0
IPC_OFF = "disable-ipc-discoverer"
"""NVIDIA's feature flag for a spec without the sockets of the driver's daemons."""
_BY_UUID = AllocationSpec(strategies=(DeviceListStrategy.CDI_CRI,), device_id=DeviceIdStrategy.UUID)


class _GeneratedDevice(Struct):
    name: str


class _Generated(Struct):
    """The fields of a generated spec that we rely on."""

    devices: list[_GeneratedDevice]


class CdiFiles:
    """The CDI specs below ``folder``. ``DeviceFiles.reconfigure`` may replace ``driver`` between two writes."""

    def __init__(self, folder: Path, driver: DriverSettings, *, simulated: bool) -> None:
        self._folder = folder
        self.driver = driver
        self._simulated = simulated
        self._written: dict[str, bytes] = {}
        self._sockets: Files | None = None
        """The sockets of the driver's daemons at the last write; None before, and where none are looked for."""

    def lacking(self, spec: AllocationSpec, access: NodeAccess) -> bool:
        """Whether an answer could name a device that the present files do not define."""
        for name, document in specs(spec, access, DriverFiles()).items():
            try:
                there = msgspec.json.decode((self._folder / name).read_bytes(), type=_Generated)
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                return bool(document["devices"])
            if not device_names(document) <= {device.name for device in there.devices}:
                return True
        return False

    def sockets_differ(self) -> bool:
        """Whether a daemon of the driver has come or gone: a spec that names a missing socket fails containers."""
        if self._sockets is None:
            return False
        return self._daemons() != self._sockets

    def _daemons(self) -> Files | None:
        if self._simulated or IPC_OFF in self.driver.cdi_feature_flags:
            return None
        return find_sockets(HostRoot(self.driver.driver_root, self._seen))

    async def write(self, spec: AllocationSpec, access: NodeAccess) -> tuple[str, ...]:
        """Bring the files in line; return the names of those that changed.

        Raises OSError when they cannot be written, and NoDriverError where there is no driver to give to containers:
        then no file says otherwise.
        """
        changed = []
        self._sockets = self._daemons() if spec.uses_cdi else None
        try:
            documents = await self._documents(spec, access)
        except NoDriverError:
            self._remove(file_name("gpu"))
            raise
        for name, document in documents.items():
            content = msgspec.json.format(msgspec.json.encode(document))
            if not document["devices"]:
                # Runtimes refuse a spec without devices, and it would hide the good ones beside it.
                self._remove(name)
                self._written.pop(name, None)
            elif self._written.get(name) != content or not (self._folder / name).exists():
                write_atomically(self._folder / name, content, Failpoint.CDI, mode=0o644)
                self._written[name] = content
                changed.append(name)
        return tuple(changed)

    def _remove(self, name: str) -> None:
        points.before(Failpoint.CDI_REMOVED)
        (self._folder / name).unlink(missing_ok=True)
        points.after(Failpoint.CDI_REMOVED)

    async def gpu_spec(self, access: NodeAccess) -> Spec:
        """A spec of all devices, named by UUID, however they are handed out. Raises NoDriverError, OSError."""
        return (await self._documents(_BY_UUID, access))[file_name("gpu")]

    async def _documents(self, spec: AllocationSpec, access: NodeAccess) -> dict[str, Mapping[str, Any]]:
        if not spec.uses_cdi:
            return {}
        if self._simulated or not access.devices:
            return specs(spec, access, DriverFiles())
        generated = await self._generate(spec)
        if generated is None:
            return specs(spec, access, await self._driver_files(access))
        documents = specs(spec, access, DriverFiles())
        unnamed = device_names(documents[file_name("gpu")]) - device_names(generated)
        if unnamed:
            # An answer that names a device without a spec fails the container: our own spec has all devices.
            log.warning("nvidia-ctk left devices out", extra={"devices": ",".join(sorted(unnamed))})
            return specs(spec, access, await self._driver_files(access))
        documents[file_name("gpu")] = generated
        return documents

    async def _generate(self, spec: AllocationSpec) -> Mapping[str, Any] | None:
        """The GPU spec by ``nvidia-ctk cdi generate``; None where there is no such program or it fails."""
        program = self.driver.cdi_hook_path
        # A program of the host's that this process sees elsewhere has its libraries elsewhere too, and is not run.
        if program.name != "nvidia-ctk" or self._seen(program) != program or not program.exists():
            return None
        output = await run_program(
            str(program),
            "cdi",
            "generate",
            "--format=json",
            f"--device-name-strategy={spec.device_id.value}",
            f"--driver-root={self.driver.driver_root}",
            f"--dev-root={self.driver.dev_root}",
            *(f"--disable-hook={hook}" for hook in self.driver.cdi_disable_hooks),
            *(f"--feature-flag={flag}" for flag in self.driver.cdi_feature_flags),
        )
        if output is None:
            return None
        try:
            document = msgspec.json.decode(output, type=dict[str, Any])
            msgspec.convert(document, type=_Generated)
        except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
            log.warning("nvidia-ctk printed no spec", extra={"error": str(wrong)})
            return None
        return rename_kind(document, "gpu") if document["devices"] else None

    async def _driver_files(self, access: NodeAccess) -> DriverFiles:
        root = HostRoot(self.driver.driver_root, self._seen)
        try:
            driver_files = find_driver(root, access.driver_version)
        except NoDriverError:
            listed = await self._listed_folders()
            if not listed:
                raise
            driver_files = find_driver(root, access.driver_version, listed)
        sockets = () if IPC_OFF in self.driver.cdi_feature_flags else driver_files.sockets
        return structs.replace(driver_files, sockets=sockets, hook=self._hook())

    async def _listed_folders(self) -> tuple[str, ...]:
        # ldconfig gets the cache file by name, not the root by -r: that is a chroot, a right we do without.
        cache = self._seen(self.driver.driver_root / "etc/ld.so.cache")
        output = await run_program("ldconfig", "-p", "-C", str(cache)) if cache.exists() else None
        return () if output is None else listed_folders(output.decode(errors="replace"))

    def _hook(self) -> HookProgram | None:
        driver = self.driver
        hidden = driver.container_driver_root.is_dir() and not driver.cdi_hook_path.is_relative_to(driver.driver_root)
        return find_hook(driver.cdi_hook_path, driver.cdi_disable_hooks, hidden=hidden, seen=self._seen)

    def _seen(self, path: Path) -> Path:
        return seen_at(self.driver.driver_root, self.driver.container_driver_root)(path)


async def run_program(*words: str) -> bytes | None:
    """The output of a program; None, and one warning, when it is missing, fails or takes too long."""
    pipe = asyncio.subprocess.PIPE
    try:
        async with started(*words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
            async with asyncio.timeout(PROGRAM_TIMEOUT_S):
                output, errors = await process.communicate()
    except TimeoutError:
        log.warning("took too long", extra={"program": words[0], "timeout_s": PROGRAM_TIMEOUT_S})
        return None
    except OSError as missing:
        log.warning("cannot run", extra={"program": words[0], "error": str(missing)})
        return None
    if process.returncode != 0:
        log.warning("failed", extra={"program": words[0], "error": errors.decode(errors="replace")[-200:]})
        return None
    return output
