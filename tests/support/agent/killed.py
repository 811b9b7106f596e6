"""Changes that are killed with -9 at each of their steps, and what the next life makes of them. One JSON line each.

    python -m tests.support.agent.killed FOLDER

Run by test_killed: each life is a forked process, so that a kill is a kill; this parent has no thread to fork.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from agent.mig.outcomes import Outcome, Wish
from simulator.nvml import library  # noqa: F401 - here, and not anew in each life
from tests.support.agent.gpuchange import A30, H100, Bench, bench

SCENARIOS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "recut": (H100, "  mig: {0: [4g.40gb, 1g.10gb, 2g.20gb]}\n", ("4g.40gb", "1c.2g.20gb", "1c.2g.20gb", "1g.10gb+me")),
    "from whole": (A30, "", ("2g.12gb", "1g.6gb")),
}
NEXT: dict[str, Callable[[tuple[str, ...], Bench], Any]] = {
    "the same": lambda wanted, b: b.change().bring(Wish(wanted)),
    "nothing": lambda _, b: b.change().undo(),
}
"""What is wished in the next life."""


def life(folder: Path, product: str, more: str, body: Callable[[Bench], Any]) -> int:
    """Run ``body`` in a process of its own; how it ended (a negative signal, or its exit code)."""
    pid = os.fork()
    if pid == 0:
        with bench(folder, product, more) as b:
            if ("4g.40gb", 0) in b.layout():
                b.pods = {b.device(0): ["ml/train-0"]}
            body(b)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(number: int, wanted: tuple[str, ...]) -> Callable[[Bench], None]:
    def body(b: Bench) -> None:
        left = [number]

        def at(_: str) -> None:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

        b.at = at
        asyncio.run(b.change().bring(Wish(wanted)))

    return body


def told(folder: Path, make: Callable[[Bench], Any]) -> Callable[[Bench], None]:
    """Write what a life finds, does and leaves."""

    def body(b: Bench) -> None:
        found = b.layout()
        outcome: Outcome = asyncio.run(make(b))
        mig, entry = b.mig(), b.journal.read(b.uuid)
        parts = [[one.profile, one.start, sorted(c.part.slices for c in one.computes)] for one in mig.instances]
        text = {
            "found": found,
            "state": outcome.state.value,
            "instances": parts,
            "uuids": sorted(mig.uuids.values()),
            "enabled": mig.enabled,
            "open": entry is not None and not entry.done,
        }
        (folder / "told.json").write_text(json.dumps(text))

    return body


def main() -> None:
    # A kill, unlike a power cut, loses nothing that was written; a busy disk would make this minutes.
    os.fsync = lambda fd: None  # noqa: ARG005
    root = Path(sys.argv[1])
    for scenario, (product, more, wanted) in SCENARIOS.items():
        for number in count():
            folder = root / "killed"
            ended = life(folder, product, more, killed_at(number, wanted))
            for following, make in NEXT.items():
                again = Path(shutil.copytree(folder, root / "again"))
                assert life(again, product, more, told(again, partial(make, wanted))) == 0
                line = {"scenario": scenario, "next": following, "killed": ended == -signal.SIGKILL}
                sys.stdout.write(json.dumps(line | json.loads((again / "told.json").read_text())) + "\n")
                shutil.rmtree(again)
            shutil.rmtree(folder)
            if ended != -signal.SIGKILL:
                break


if __name__ == "__main__":
    main()
