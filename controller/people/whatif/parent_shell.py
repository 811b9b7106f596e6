"""What-if questions are simulated in a process of its own, with bounds of time and memory: the controller goes on
meanwhile.

``child_shell`` describes what that process reads and answers.
"""

import asyncio
import pickle
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.people.page.server_shell import limited
from controller.people.visibility.identity import User
from controller.people.visibility.routes import Attributes, forecasts_in
from controller.people.visibility.server_shell import RefusedError
from controller.people.whatif.child_shell import LIMIT_S, NAMESPACE, WRONG, Given
from controller.people.whatif.question import Asked, Json, read
from controller.people.whatif.quotas import WrongChangeError

BODY_BYTES: Final = 256 * 1024
MOST_BYTES: Final = 3 * 1024**3
LEAST_BYTES: Final = 192 * 1024**2
"""The least memory for the process. With less it might end in the middle: an empty cluster takes 61 MiB, 10,000 small
workloads take 146 MiB."""
_RESERVE_BYTES: Final = 128 * 1024**2
"""Memory that stays free for the controller."""
_CGROUP: Final = Path("/sys/fs/cgroup")
_CHILD: Final = "controller.people.whatif.child_shell"
_PART: Final = 100
_ANSWER_BYTES: Final = 8 * 1024 * 1024


def free_memory_bytes(cgroup: Path = _CGROUP) -> int:
    """The memory that the container has left for a process beside this one; memory that could be reclaimed counts as
    free.

    Where a container runs out of memory the kernel may end all of its processes.
    """
    try:
        most = (cgroup / "memory.max").read_text().strip()
        if most == "max":
            return MOST_BYTES
        stat = dict(line.split(" ", 1) for line in (cgroup / "memory.stat").read_text().splitlines())
        used = int((cgroup / "memory.current").read_text()) - int(stat.get("inactive_file", 0))
        return min(MOST_BYTES, int(most) - used - _RESERVE_BYTES)
    except (OSError, ValueError):
        return MOST_BYTES


class WhatIf:
    """Answers what-if questions. ``given``: what the other process needs beside ``objects`` and ``workloads``, which
    are read at the moment of the question. ``may``: whether the user has this right. ``free_bytes``: bytes of memory
    that are left.
    """

    def __init__(
        self,
        given: Callable[[Asked], Given],
        may: Callable[[User, Attributes], Awaitable[bool]],
        objects: Callable[[], Iterable[KubernetesObject]],
        workloads: Callable[[], Iterable[Workload]],
        *,
        limit_s: float = LIMIT_S,
        free_bytes: Callable[[], int] = free_memory_bytes,
    ) -> None:
        self._given = given
        self._may = may
        self._objects = objects
        self._workloads = workloads
        self._limit_s = limit_s
        self._free_bytes = free_bytes
        self._asking: set[str] = set()
        self._turn = asyncio.Lock()

    async def handle(self, request: web.Request, user: User) -> Json:
        """The answer to a request. Raises RefusedError."""
        if user.name in self._asking:
            raise RefusedError(409, "your last question is still being simulated", after_s=2.0)
        self._asking.add(user.name)
        try:
            asked = await self._asked(request, user)
            if self._turn.locked():
                raise RefusedError(429, "another simulation runs: try again", after_s=5.0)
            async with self._turn:
                return await self._answered(asked, user)
        finally:
            self._asking.discard(user.name)

    async def _asked(self, request: web.Request, user: User) -> Asked:
        """The question in a request. Its body may arrive slowly: only its own sender waits for it."""
        try:
            asked = read(await limited(request, BODY_BYTES))
        except WrongChangeError as wrong:
            raise RefusedError(422, str(wrong)) from None
        if asked.manifest:
            await self._needs(user, asked.namespace)
        return asked

    async def _needs(self, user: User, namespace: str) -> None:
        if not await self._may(user, right := forecasts_in(namespace)):
            raise RefusedError(403, f'User "{user.name}" may not {right}')

    async def _answered(self, asked: Asked, user: User) -> Json:
        begun_s, free_bytes = time.perf_counter(), self._free_bytes()
        if free_bytes < LEAST_BYTES:
            raise RefusedError(503, "the controller's container has too little memory left to simulate", after_s=60.0)
        try:
            async with asyncio.timeout(self._limit_s):
                outcome = await self._simulated(self._given(asked), free_bytes, user)
        except TimeoutError:
            raise RefusedError(503, f"the simulation took longer than {self._limit_s:.0f} s") from None
        if WRONG in outcome:
            raise RefusedError(422, str(outcome[WRONG]))
        return {**outcome, "tookS": round(time.perf_counter() - begun_s, 2)}

    async def _simulated(self, given: Given, free_bytes: int, user: User) -> Json:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _CHILD,
            str(free_bytes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            with suppress(ConnectionError):
                child.stdin.write(pickle.dumps(given))
                await child.stdin.drain()
            first = _said(await child.stdout.readline())
            if WRONG in first:
                return first
            if given.asked.manifest and first[NAMESPACE] != given.asked.namespace:
                await self._needs(user, first[NAMESPACE])
            with suppress(ConnectionError):
                for part in _parts(list(self._objects()), list(self._workloads())):
                    child.stdin.write(part)
                    await child.stdin.drain()
                    await asyncio.sleep(0)
                child.stdin.close()
            return _said(await _all_of(child.stdout))
        except ValueError:  # a first line without an end
            return _said(b"")
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def _said(raw: bytes) -> Json:
    """A line of the other process. Raises RefusedError."""
    try:
        return msgspec.json.decode(raw, type=Json)
    except msgspec.MsgspecError:
        raise RefusedError(503, "the simulation came to no end: it needs too much memory, or failed") from None


async def _all_of(stream: asyncio.StreamReader) -> bytes:
    """All that the stream holds; nothing if it is too long."""
    received = bytearray()
    while chunk := await stream.read(64 * 1024):
        received += chunk
        if len(received) > _ANSWER_BYTES:
            return b""
    return bytes(received)


def _parts(objects: list[KubernetesObject], workloads: list[Workload]) -> Iterator[bytes]:
    for many in (objects, workloads):
        for start in range(0, len(many), _PART):
            yield pickle.dumps(many[start : start + _PART])
        yield pickle.dumps([])
