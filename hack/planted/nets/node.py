"""The node's net: real agents on simulated GPUs, judged by the GPUs, by what the kubelet was told and by ``history/``.
``python -m hack.planted.nets.node [SCENE ...]``.
"""

import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from hack.planted.nets import claimscenes, migscenes, nodescenes
from hack.planted.nets.nodejudge import Finding
from hack.planted.nets.nodeworld import PRODUCT, CannotJudgeError, Node, node
from kube.testing import FakeApiServer

Play = Callable[[Node], Awaitable[list[Finding]]]

SCENES: Final[dict[str, tuple[int, Play]]] = {
    "taken": (2, nodescenes.taken_a_moment_ago),
    "late": (2, nodescenes.learned_late),
    "meanwhile": (2, nodescenes.written_meanwhile),
    "health": (2, nodescenes.reset_and_probation),
    "repaired": (2, nodescenes.repaired_when_free),
    "parts": (1, nodescenes.parts_of_a_gpu),
    "killed": (1, migscenes.killed_in_between),
    "held": (1, migscenes.held_instance),
}
"""By name the number of GPUs and what happens on them. Each has an agent of its own."""
PRODUCTS: Final = {"repaired": "NVIDIA H100 80GB HBM3"}
"""The product of a scene that needs its own: an A100 behind an NVSwitch is not reset alone."""
CLAIMS: Final = "claims"
HANG_S: Final = 200.0
"""A scene that takes so long has no end."""


async def played(folder: Path, name: str) -> list[Finding]:
    gpus, play = SCENES[name]
    async with node(folder / name, gpus, product=PRODUCTS.get(name, PRODUCT)) as found:
        return [*await play(found), *found.findings()]


async def claimed(folder: Path) -> list[Finding]:
    async with FakeApiServer() as server:
        rights = claimscenes.kubeconfig(folder / "kubeconfig", server)
        async with node(folder / CLAIMS, 2, str(rights)) as found:
            return [*await claimscenes.given_back(found, server), *found.findings()]


async def judged(names: Sequence[str]) -> tuple[list[Finding], list[str]]:
    """What is found, and the scenes that could not be judged, with why."""
    # A socket's path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="net-", dir="/tmp") as folder:
        plays = [claimed(Path(folder)) if name == CLAIMS else played(Path(folder), name) for name in names]
        answers = await asyncio.gather(*(asyncio.wait_for(each, HANG_S) for each in plays), return_exceptions=True)
    findings: list[Finding] = []
    unknown: list[str] = []
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, CannotJudgeError):
            unknown.append(f"{name}: {answer}")
        elif isinstance(answer, Exception):
            unknown.append(f"{name}: {type(answer).__name__}: {answer}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            findings += answer
    return findings, unknown


def main(words: Sequence[str]) -> int:
    logging.disable(logging.CRITICAL)
    findings, unknown = asyncio.run(judged(words or [*SCENES, CLAIMS]))
    for each in dict.fromkeys(findings):
        print(json.dumps(each._asdict()))
    for why in unknown:
        print(why, file=sys.stderr)
    if findings:
        return 1
    return 2 if unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
