"""``python -m hack.nightly [--part NAME] [--list]``; see the package. Exits with 1 if a part was red."""

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from hack.nightly.page import PAGE, LastRun, commit, record
from hack.nightly.parts import BY_NAME, PARTS, Part
from hack.nightly.running import Ended, run, say


def main(words: Sequence[str], runs: Callable[[Part, int], Ended] = run, page: Path = PAGE) -> int:
    parser = argparse.ArgumentParser(prog="hack.nightly", description="What shows more than CI has time for.")
    parser.add_argument("--part", action="append", choices=list(BY_NAME), help="only this one; may be repeated")
    parser.add_argument("--list", action="store_true", help="the parts, and what each shows")
    options = parser.parse_args(words)
    if options.list:
        for part in PARTS:
            print(f"{part.name:10} {part.shows} ({part.limit_min:g} min at most)")
        return 0
    red = []
    for name in options.part or BY_NAME:
        # What is checked out when it begins is what it shows something about.
        at, what = datetime.now(UTC), commit()
        ended = runs(BY_NAME[name], at.toordinal())
        result = "green" if ended.green else f"RED: {ended.why}"
        record(BY_NAME[name], LastRun(what, f"{at:%Y-%m-%d}", result, f"{ended.minutes:.0f}"), PARTS, page)
        red += [] if ended.green else [name]
    say(f"red: {', '.join(red)}" if red else "all green")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
