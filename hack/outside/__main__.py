"""``python -m hack.outside [--seed N] [--stories N] [--at-once N] [--seconds S] [--replay FILE] [--minimise]``.

Exit code: 0 nothing was found, 1 something was; the story is written to ``build/outside-SEED.json``.
"""

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hack.chaos.schedule import minimise
from hack.outside.acts import Story
from hack.outside.running import Outcome, outcome_of
from hack.outside.story import told

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 12.0


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
    seeds = range(asked.seed, asked.seed + asked.stories)
    results = asyncio.run(explored(seeds, asked.at_once, asked.seconds))
    spent_s = time.process_time() - began_s
    found = sum(bool(each.findings) for each in results)
    admitted, evicted = sum(each.admitted for each in results), sum(each.evicted for each in results)
    said = f"{admitted} admissions, {evicted} evictions, {spent_s:.0f} s of CPU"
    print(f"outside: {found} of {asked.stories} stories with findings, {said}", flush=True)
    return 1 if found else 0


async def explored(seeds: Sequence[int], at_once: int, seconds: float) -> list[Outcome]:
    """Runs the stories. Each that has findings is told and kept."""
    turns = asyncio.Semaphore(at_once)

    async def one(seed: int) -> Outcome:
        async with turns:
            story = told(seed, seconds)
            outcome = await outcome_of(story)
            if outcome.findings:
                _keep(story, outcome.findings)
            return outcome

    return await asyncio.gather(*(one(seed) for seed in seeds))


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
    parser.add_argument("--at-once", type=int, default=4, help="stories at a time: they mostly wait (4)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"until a story's last act ({SECONDS:g})")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="a story that was kept")
    parser.add_argument("--minimise", action="store_true", help="of a replayed story, look for the fewest acts")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
