"""``python -m hack.outside [--seed N] [--stories N | --for S] [--at-once N] [--seconds S] [--replay FILE]
[--minimise]``.

Exit code: 0 nothing was found, 1 something was; the story is written to ``build/outside-SEED.json``; 2 no story ended
in the time.
"""

import argparse
import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from hack.chaos.schedule import minimise
from hack.outside.acts import Story
from hack.outside.running import Outcome, lasts_s, outcome_of
from hack.outside.story import told

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 12.0
TOLD_EVERY_S: Final = 5.0
_STARTING: Final = 1.3
"""A story takes so many times its own length, until one has shown that it takes longer."""


def main(words: Sequence[str]) -> int:
    asked = _parser().parse_args(words)
    logging.disable(logging.CRITICAL)  # the controllers' own
    try:
        return _run(asked)
    finally:
        logging.disable(logging.NOTSET)


def _run(asked: argparse.Namespace) -> int:
    if asked.replay is not None:
        story = msgspec.json.decode(asked.replay.read_bytes(), type=Story)
        return _replayed(story, smaller=asked.minimise)
    began_s = time.process_time()
    seeds = count(asked.seed) if asked.for_s is not None else range(asked.seed, asked.seed + asked.stories)
    results = asyncio.run(Stories(seeds, asked.seconds, asked.for_s).explored(asked.at_once))
    spent_s = time.process_time() - began_s
    found = sum(bool(each.findings) for each in results)
    admitted, evicted = sum(each.admitted for each in results), sum(each.evicted for each in results)
    said = f"{admitted} admissions, {evicted} evictions, {spent_s:.0f} s of CPU"
    print(f"outside: {found} of {len(results)} stories with findings, {said}", flush=True)
    return 1 if found else 0 if results else 2


class Stories:
    """Runs the stories of ``seeds``, as long as each can end within ``for_s``; None: all of them. What has not ended by
    then is cut off, and not judged. Each that has findings is told and kept.
    """

    def __init__(self, seeds: Iterable[int], seconds: float, for_s: float | None) -> None:
        self._seeds = iter(seeds)
        self._seconds = seconds
        self._began_s = time.monotonic()
        self._for_s = for_s
        self._slowness = _STARTING
        self._is_short = False
        self._under_way = 0
        self._ended: list[Outcome] = []

    async def explored(self, at_once: int) -> list[Outcome]:
        telling = asyncio.create_task(self._tell())
        try:
            async with asyncio.timeout(self._for_s):
                await asyncio.gather(*(self._one_by_one() for _ in range(at_once)))
        except TimeoutError:
            print(f"outside: {self._under_way} cut off: the time is up", flush=True)
        finally:
            telling.cancel()
        return self._ended

    async def _one_by_one(self) -> None:
        for seed in self._seeds:
            story = told(seed, self._seconds)
            takes_s = lasts_s(story)
            if takes_s * self._slowness > self._left_s():
                if not self._under_way and not self._ended and not self._is_short:
                    self._is_short = True
                    said = f"{self._left_s():.0f} s are left, one takes {takes_s * self._slowness:.0f} s"
                    print(f"outside: no story is begun: {said}", flush=True)
                return
            begun_s = time.monotonic()
            self._under_way += 1
            outcome = await outcome_of(story)
            if self._left_s() <= 0:
                return
            self._under_way -= 1
            self._slowness = max(self._slowness, (time.monotonic() - begun_s) / takes_s)
            self._ended.append(outcome)
            if outcome.findings:
                _keep(story, outcome.findings)

    def _left_s(self) -> float:
        return float("inf") if self._for_s is None else self._for_s - self._passed_s()

    def _passed_s(self) -> float:
        return time.monotonic() - self._began_s

    async def _tell(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(TOLD_EVERY_S)
                said = f"{len(self._ended)} stories ended, {self._under_way} under way"
                print(f"outside: {self._passed_s():.0f} s: {said}", flush=True)


def _keep(story: Story, findings: Sequence[str]) -> None:
    path = ROOT / "build" / f"outside-{story.seed}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.encode(story))
    lines = [f"FOUND by seed {story.seed}:", *(f"  {each}" for each in findings)]
    lines.append(f"  replay: .venv/bin/python -m hack.outside --replay {path.relative_to(ROOT)} --minimise")
    print("\n".join(lines), flush=True)


def _replayed(story: Story, *, smaller: bool) -> int:
    findings = asyncio.run(outcome_of(story)).findings
    print("\n".join(findings) or "nothing was found")
    if findings and smaller:
        least = _smallest(story)
        print("\n".join(each.told() for each in least.acts))
    return 1 if findings else 0


def _smallest(story: Story) -> Story:
    """The fewest acts with which something is found."""

    def kept(places: Sequence[int]) -> Story:
        return msgspec.structs.replace(story, acts=tuple(story.acts[place] for place in sorted(places)))

    def fails(places: Sequence[int]) -> bool:
        print(f"minimise: {len(places)} of {len(story.acts)} acts", file=sys.stderr, flush=True)
        return bool(asyncio.run(outcome_of(kept(places))).findings)

    return kept(minimise(range(len(story.acts)), fails))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.outside", description="random histories, judged from outside"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first story; the next has the next (1)")
    parser.add_argument("--stories", type=int, default=1, help="how many (1)")
    parser.add_argument("--for", dest="for_s", type=float, metavar="S", help="as many as end in so many seconds")
    parser.add_argument("--at-once", type=int, default=4, help="stories at a time: they mostly wait (4)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"until a story's last act ({SECONDS:g})")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="a story that was kept")
    parser.add_argument("--minimise", action="store_true", help="of a replayed story, look for the fewest acts")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
