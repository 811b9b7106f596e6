"""The simulation in a process of its own, with bounds of time and memory: what decides goes on meanwhile.

``python -m controller.web.whatif_shell`` reads pickles that its parent wrote: a Question, lists of objects, lists of
Workloads, each ended by an empty one. It answers with JSON.
"""

import asyncio
import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from aiohttp import web

from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.simulation.documents import InputError, documents
from controller.simulation.settling import UnsettledError
from controller.visibility.identity import User
from controller.visibility.server_shell import RefusedError
from controller.web.server_shell import limited
from controller.web.whatif import Asked, Json, Question, WrongChangeError, compared, read

BODY_BYTES: Final = 256 * 1024
LIMIT_S: Final = 25.0
_MEMORY_BYTES: Final = 3 * 1024**3
"""Of addresses, not of memory in use."""
_PART: Final = 100
_ANSWER_BYTES: Final = 8 * 1024 * 1024
_WRONG: Final = "wrong"


class WhatIf:
    """``question``: of what was asked, and its manifest. ``objects``, ``workloads``: those of this moment."""

    def __init__(
        self,
        question: Callable[[Asked, Json | None], Question],
        objects: Callable[[], Iterable[KubernetesObject]],
        workloads: Callable[[], Iterable[Workload]],
        *,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._question = question
        self._objects = objects
        self._workloads = workloads
        self._limit_s = limit_s
        self._asking: set[str] = set()
        self._turn = asyncio.Lock()

    async def handle(self, request: web.Request, user: User) -> Json:
        """Raises RefusedError."""
        if user.name in self._asking:
            raise RefusedError(409, "your last question is still being simulated", after_s=2.0)
        if self._turn.locked():
            raise RefusedError(429, "another simulation runs: try again", after_s=5.0)
        self._asking.add(user.name)
        try:
            async with self._turn:
                return await self._answered(request)
        finally:
            self._asking.discard(user.name)

    async def _answered(self, request: web.Request) -> Json:
        try:
            asked = read(await limited(request, BODY_BYTES))
            manifest = _manifest(asked.manifest) if asked.manifest else None
            question = self._question(asked, manifest)
        except (WrongChangeError, InputError) as wrong:
            raise RefusedError(422, str(wrong)) from None
        begun_s = time.perf_counter()
        try:
            async with asyncio.timeout(self._limit_s):
                found = await self._simulated(question)
        except TimeoutError:
            raise RefusedError(503, f"the simulation took longer than {self._limit_s:.0f} s") from None
        if _WRONG in found:
            raise RefusedError(422, str(found[_WRONG]))
        return {**found, "tookS": round(time.perf_counter() - begun_s, 2)}

    async def _simulated(self, question: Question) -> Json:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_ANSWER_BYTES,
        )
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            with suppress(ConnectionError):
                for part in _parts(question, list(self._objects()), list(self._workloads())):
                    child.stdin.write(part)
                    await child.stdin.drain()
                    await asyncio.sleep(0)
                child.stdin.close()
            raw = await child.stdout.read(_ANSWER_BYTES)
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
        try:
            return msgspec.json.decode(raw, type=Json)
        except msgspec.MsgspecError:
            raise RefusedError(503, "the simulation came to no end: it needs too much memory, or failed") from None


def _manifest(text: str) -> Json:
    """Raises InputError and WrongChangeError."""
    found = documents(text, "manifest")
    if len(found) != 1:
        raise WrongChangeError(f"manifest: found {len(found)} documents, expected one")
    return found[0].data


def _parts(question: Question, objects: list[KubernetesObject], workloads: list[Workload]) -> Iterator[bytes]:
    yield pickle.dumps(question)
    for many in (objects, workloads):
        for start in range(0, len(many), _PART):
            yield pickle.dumps(many[start : start + _PART])
        yield pickle.dumps([])


# -- the other process -----------------------------------------------------------------------------------------------


def answer(given: BinaryIO) -> Json:
    question = pickle.load(given)  # noqa: S301 - from our parent
    objects, workloads = list(_read(given)), list(_read(given))
    try:
        return compared(question, objects, workloads)
    except (WrongChangeError, UnsettledError) as wrong:
        return {_WRONG: str(wrong)}


def _read(given: BinaryIO) -> Iterator[Any]:
    while many := pickle.load(given):  # noqa: S301 - from our parent
        yield from many


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(LIMIT_S), int(LIMIT_S) + 1))
    with suppress(OSError):
        # Where memory is short the simulation goes first, not what decides.
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(OSError):
        os.nice(10)
    sys.stdout.buffer.write(msgspec.json.encode(answer(sys.stdin.buffer)))


if __name__ == "__main__":
    main()
