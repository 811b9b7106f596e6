"""``python -m hack.outside [--seed N] [--stories N | --for S] [--seconds S] [--replay FILE] [--minimise]``.

Exit code: 0 nothing was found, 1 something was; the story is written to ``build/outside-SEED.json``; 2 no story ended
in the time.
"""

import argparse
import logging
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from hack.chaos.schedule import minimise
from hack.outside import warp
from hack.outside.acts import Story
from hack.outside.running import Outcome, outcome_of
from hack.outside.story import told

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 12.0
TOLD_EVERY_S: Final = 5.0
_STARTING_S: Final = 5.0
"""A story takes so many seconds, until one has shown that it takes longer."""


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
    results = explored(seeds, asked.seconds, asked.for_s)
    spent_s = time.process_time() - began_s
    faulty = sum(bool(each.findings) for each in results)
    admitted, evicted = sum(each.admitted for each in results), sum(each.evicted for each in results)
    said = f"{admitted} admissions, {evicted} evictions, {spent_s:.0f} s of CPU"
    print(f"outside: {faulty} of {len(results)} stories with findings, {said}", flush=True)
    return 1 if faulty else 0 if results else 2


def explored(seeds: Iterable[int], seconds: float, for_s: float | None) -> list[Outcome]:
    """The outcomes of the stories of ``seeds``, one after another; None: all of them, otherwise as long as another one
    is likely to end within ``for_s`` seconds. Each that has findings is told and kept.
    """
    began_s = told_s = time.monotonic()
    longest_s, ended = _STARTING_S, list[Outcome]()
    for seed in seeds:
        begun_s = time.monotonic()
        left_s = float("inf") if for_s is None else for_s - (begun_s - began_s)
        if longest_s > left_s:
            if not ended:
                said = f"{max(0.0, left_s):.0f} s are left, one takes {longest_s:.0f} s"
                print(f"outside: no story is begun: {said}", flush=True)
            break
        story = told(seed, seconds)
        outcome = warp.run(outcome_of(story))
        ended.append(outcome)
        if outcome.findings:
            _keep(story, outcome.findings)
        now_s = time.monotonic()
        longest_s = max(longest_s, now_s - begun_s)
        if now_s >= told_s + TOLD_EVERY_S:
            told_s = now_s
            print(f"outside: {now_s - began_s:.0f} s: {len(ended)} stories ended", flush=True)
    return ended


def _keep(story: Story, findings: Sequence[str]) -> None:
    path = ROOT / "build" / f"outside-{story.seed}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.encode(story))
    lines = [f"FOUND by seed {story.seed}:", *(f"  {each}" for each in findings)]
    lines.append(f"  replay: .venv/bin/python -m hack.outside --replay {path.relative_to(ROOT)} --minimise")
    print("\n".join(lines), flush=True)


def _replayed(story: Story, *, smaller: bool) -> int:
    findings = warp.run(outcome_of(story)).findings
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
        return bool(warp.run(outcome_of(kept(places))).findings)

    return kept(minimise(range(len(story.acts)), fails))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.outside", description="random histories, judged from outside"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first story; the next has the next (1)")
    parser.add_argument("--stories", type=int, default=1, help="how many (1)")
    parser.add_argument("--for", dest="for_s", type=float, metavar="S", help="as many as end in so many seconds")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"until a story's last act ({SECONDS:g})")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="a story that was kept")
    parser.add_argument("--minimise", action="store_true", help="of a replayed story, look for the fewest acts")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
