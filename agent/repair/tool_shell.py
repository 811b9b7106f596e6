"""The programs of a repair: the driver's own nvidia-smi, and the one that verifies a GPU. Each runs in a session of its
own, for a limited time, not longer than this agent, and the end of its output is kept.
"""

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from agent.config.settings import Settings
from agent.health.repairstate import ResetResult
from agent.kubelet.devicefiles import nvml_library
from agent.kubelet.driverfiles import PROGRAM_FOLDERS
from agent.kubelet.hostroot import HostRoot, seen_at
from agent.process.tasks import started
from agent.verify import LIBRARY, LIBRARY_VARIABLE
from agent.words import repairs as words
from failpoints import points
from failpoints.names import Failpoint
from inventory.devices import GpuUuid

RESET_WITHIN_S = 60.0
PERSISTENCE_WITHIN_S = 20.0
NVIDIA_SMI: Final = "nvidia-smi"
_KEPT: Final = 400
_IN_USE: Final = "in use"
"""The words of nvidia-smi where a process has the GPU."""


_NOT_RUN: Final = (126, 127)
"""The exit codes of shells for a program that may not be run, or is not there."""


class VerifierError(Exception):
    """The administrator's program could not be run, so that nothing is known of the GPU; one line says why."""


class Ended(Struct, frozen=True):
    """How a program ended. ``code`` None: it did not end in its time, and was killed. ``output`` is its end, on one
    line.
    """

    code: int | None
    output: str


class ResetTool:
    """nvidia-smi, from the driver's root; for simulated GPUs the simulator's, which is run in the same way."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def reset(self, gpus: Iterable[GpuUuid]) -> tuple[ResetResult, str]:
        """Reset these GPUs in one step; the result with one line."""
        try:
            ended = await self._nvidia_smi(("--gpu-reset", "-i", ",".join(gpus)), RESET_WITHIN_S)
        except OSError as missing:
            return ResetResult.FAILED, words.no_tool(str(missing))
        if ended.code is None:
            return ResetResult.HUNG, words.not_in_time(f"{RESET_WITHIN_S:g}")
        if ended.code == 0:
            return ResetResult.DONE, ""
        result = ResetResult.BUSY if _IN_USE in ended.output else ResetResult.FAILED
        return result, f"{NVIDIA_SMI}: {ended.output}"

    async def persistence(self, gpus: Iterable[GpuUuid], *, on: bool) -> str:
        """Turn persistence mode on or off; empty where that is done, else one line why not."""
        try:
            ended = await self._nvidia_smi(("-pm", str(int(on)), "-i", ",".join(gpus)), PERSISTENCE_WITHIN_S)
        except OSError as missing:
            return words.no_tool(str(missing))
        if ended.code is None:
            return words.not_in_time(f"{PERSISTENCE_WITHIN_S:g}")
        return "" if ended.code == 0 else f"{NVIDIA_SMI}: {ended.output}"

    async def _nvidia_smi(self, arguments: tuple[str, ...], within_s: float) -> Ended:
        """Raises OSError where the program cannot be run."""
        program, env = self._program()
        points.before(Failpoint.NVIDIA_SMI)
        ended = await run((*program, *arguments), env, within_s)
        points.after(Failpoint.NVIDIA_SMI)
        return ended

    def _program(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        if self._settings.simulate is not None:
            import simulator

            script = Path(simulator.__file__).parent / "nvidiasmi.py"
            return (sys.executable, "-IS", str(script), str(self._settings.state_dir / "sim.sock")), {}
        driver = self._settings.driver
        seen = seen_at(driver.driver_root, driver.container_driver_root)
        root = HostRoot(driver.driver_root, seen)
        for folder in PROGRAM_FOLDERS:
            if (inside := root.real(f"{folder}/{NVIDIA_SMI}")) is not None:
                library = nvml_library(self._settings)
                env = {} if library is None else {"LD_LIBRARY_PATH": str(library.parent)}
                return (str(seen(Path(root.host(inside)))),), env
        raise FileNotFoundError(f"no {NVIDIA_SMI} below {driver.driver_root}")


async def verify(settings: Settings, gpu: GpuUuid) -> str:
    """Run the administrator's program with this GPU alone visible; empty where it ends with 0, else one line. Raises
    VerifierError.

    ``agent.verify`` is told where the driver's libcuda is, which the loader need not find in a container.
    """
    command, timeout_s = settings.remediation.verify_command, settings.remediation.verify_timeout_s
    env: dict[str, str] = {"CUDA_VISIBLE_DEVICES": gpu, "NVIDIA_VISIBLE_DEVICES": gpu}
    library = None if settings.simulate is not None else nvml_library(settings)
    if library is not None and (cuda := library.with_name(LIBRARY)).exists():
        env[LIBRARY_VARIABLE] = str(cuda)
    try:
        ended = await run(command, env, timeout_s)
    except OSError as missing:
        raise VerifierError(words.verifier_not_run(command[0], missing.strerror or "an error")) from None
    if ended.code is None:
        return words.probe_late(f"{timeout_s:g}")
    if ended.code in _NOT_RUN:
        raise VerifierError(words.verifier_not_run(command[0], ended.output))
    return "" if ended.code == 0 else words.probe_failed(ended.code, ended.output)


async def run(command: tuple[str, ...], env: Mapping[str, str], within_s: float) -> Ended:
    """Run the program to its end, or kill it and its children when the time is over, or when this agent dies (see
    ``guardian``). One that cannot be run ends with 126 or 127. Raises OSError.
    """
    guarded = (sys.executable, "-IS", str(Path(__file__).with_name("guardian.py")), *command)
    options = {
        "stdin": asyncio.subprocess.PIPE,  # held open: its end tells the guardian that this process has died
        "stdout": asyncio.subprocess.PIPE,
        "stderr": asyncio.subprocess.STDOUT,
    }
    try:
        async with started(*guarded, **options, env={**os.environ, **env}) as process:
            async with asyncio.timeout(within_s):
                assert process.stdout is not None
                output = await process.stdout.read()
                code = await process.wait()
    except TimeoutError:
        return Ended(None, "")
    printed = " ".join(output.decode(errors="replace").split())
    return Ended(code, printed[-_KEPT:] or f"exit code {code}")
