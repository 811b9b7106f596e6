"""Commands to one MPS control daemon through the driver's own program: commands go to its standard input, answers come
from its output.

The daemon's socket speaks a protocol of NVIDIA's own that is not documented; the program is documented.
"""

import asyncio
import os
import re
from collections.abc import Iterable, Mapping, Sequence

from agent.process.tasks import started
from failpoints import points
from failpoints.names import Failpoint

ASK_TIMEOUT_S = 10.0
_KEPT = 200
_PID = re.compile(r"[0-9]{1,10}")


class MpsError(Exception):
    """An MPS command failed; one line says which and why."""


async def run(words: Sequence[str], env: Mapping[str, str], text: str = "", timeout_s: float | None = None) -> str:
    """Run the program and return its output. Raises MpsError where the program is missing, fails or takes too long."""
    timeout_s = ASK_TIMEOUT_S if timeout_s is None else timeout_s
    name = os.path.basename(words[0])  # noqa: PTH119 - a word of a command line
    options = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
    try:
        async with started(*words, **options, env={**os.environ, **env}) as process:
            async with asyncio.timeout(timeout_s):
                output, _ = await process.communicate(text.encode())
    except TimeoutError:
        raise MpsError(f"{name} did not end within {timeout_s:g} s") from None
    except OSError as missing:
        raise MpsError(f"cannot run {words[0]}: {missing.strerror}") from None
    printed = output.decode(errors="replace").strip()
    if process.returncode != 0:
        last = printed.splitlines()[-1][-_KEPT:] if printed else f"exit code {process.returncode}"
        raise MpsError(f"{name}: {last}")
    return printed


class Control:
    """The daemon that has its pipe folder in ``env``; ``words`` start the control program."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        self._words = tuple(words)
        self._env = env

    async def ask(self, command: str, timeout_s: float | None = None) -> str:
        """The answer to one command. Raises MpsError."""
        return await run(self._words, self._env, f"{command}\n", timeout_s)

    async def servers(self) -> tuple[int, ...]:
        """The pids of the daemon's servers: none before the first client. Raises MpsError."""
        return _pids(await self.ask("get_server_list"))

    async def clients(self) -> tuple[int, ...]:
        """The pids of the processes that are connected now. Raises MpsError."""
        found = [await self.ask(f"get_client_list {server}") for server in await self.servers()]
        return tuple(pid for answer in found for pid in _pids(answer))

    async def limit(
        self, threads_percent: int | None, limits_mib: Sequence[int | None], servers: Iterable[int]
    ) -> None:
        """Set the defaults of later servers and, for new clients, of the running ``servers``; read them back. Raises
        MpsError.

        Devices go by their order in the daemon's environment: the daemon accepts limits by UUID, but they have no
        effect.
        """
        limits = [(at, mib) for at, mib in enumerate(limits_mib) if mib is not None]
        threads = 100 if threads_percent is None else threads_percent
        points.before(Failpoint.MPS_LIMITS)
        await self.ask(f"set_default_active_thread_percentage {threads}")
        for at, mib in limits:
            await self.ask(f"set_default_device_pinned_mem_limit {at} {mib}M")
        for server in servers:
            await self.ask(f"set_active_thread_percentage {server} {threads}")
            for at, mib in limits:
                await self.ask(f"set_device_pinned_mem_limit {server} {at} {mib}M")
        points.after(Failpoint.MPS_LIMITS)
        answer = await self.ask("get_default_active_thread_percentage")
        if not same_percentage(answer, threads):
            raise MpsError(f"the MPS daemon keeps {answer or 'no'} % of the threads for a client, expected {threads}")
        for at, mib in limits:
            answer = await self.ask(f"get_default_device_pinned_mem_limit {at}")
            if not same_size(answer, mib):
                raise MpsError(f"the MPS daemon keeps the memory limit {answer or 'none'}, expected {mib}M")


def same_percentage(answer: str, percent: int) -> bool:
    """Whether ``answer``, such as ``25.0``, is ``percent``; the daemon may round to what its hardware can do."""
    try:
        return abs(float(answer) - percent) < 1
    except ValueError:
        return False


def same_size(answer: str, mib: int) -> bool:
    """Whether ``answer``, such as ``3G`` or ``20000M``, is ``mib`` MiB, rounded as the answer's unit has it."""
    matched = re.fullmatch(r"(\d+)(?:\.\d+)?\s*([KMG])i?B?", answer.strip(), re.IGNORECASE)
    if matched is None:
        return False
    shown_mib = {"K": int(matched[1]) // 1024, "M": int(matched[1]), "G": int(matched[1]) * 1024}[matched[2].upper()]
    return shown_mib == mib if matched[2] not in "Gg" else shown_mib <= mib < shown_mib + 1024


def _pids(answer: str) -> tuple[int, ...]:
    return tuple(int(line) for line in answer.split() if _PID.fullmatch(line))
