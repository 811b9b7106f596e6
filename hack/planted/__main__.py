"""``python -m hack.planted [--count N --seed TEXT] [--fault NAME] [--outside] [-o json] [--page]``; see the package.

Exit code: 0 each fault was found, 1 one was not, 2 the nets cannot tell: a program failed, or spoke without any fault.
"""

import argparse
import hashlib
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.planted import table
from hack.planted.nodefaults import NODE_FAULTS
from hack.planted.planting import Fault, UnplantableError
from hack.planted.queuefaults import QUEUE_FAULTS
from hack.planted.running import Tree, Trial, programs, ran, trials

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/planted-faults.md"
FAULTS: Final = tuple(sorted((*QUEUE_FAULTS, *NODE_FAULTS), key=lambda each: each.name))
FOUND, MISSED, UNKNOWN = 0, 1, 2


def main(words: Sequence[str]) -> int:
    options = _parser().parse_args(words)
    chosen = (
        [each for each in FAULTS if each.name == options.fault] if options.fault else drawn(options.count, options.seed)
    )
    try:
        results = _results(chosen, options.jobs, outside=options.outside or options.page)
    except UnplantableError as wrong:
        _say(f"planted: {wrong}")
        return UNKNOWN
    if results is None:
        return UNKNOWN
    if options.page:
        PAGE.write_text(table.with_table(PAGE.read_text(), results))
    if options.output == "json":
        print(table.as_json(results))
    else:
        print("\n".join(table.lines(results)))
    _say(table.last_line(results))
    return FOUND if all(each.is_found for each in results) else MISSED


def drawn(count: int | None, seed: str) -> list[Fault]:
    """``count`` of all, the same for the same text; all where it is None."""
    if count is None or count >= len(FAULTS):
        return list(FAULTS)
    return random.Random(hashlib.sha256(seed.encode()).digest()).sample(FAULTS, count)


def _results(chosen: Sequence[Fault], jobs: int, *, outside: bool) -> list[Trial] | None:
    tree = Tree(ROOT)
    for program in sorted({program for each in chosen for program in programs(each, outside=outside)}):
        _say(f"planted: {program} without any fault")
        honest = ran(ROOT, program)
        if honest.error or honest.findings:
            _say(f"planted: {program}: {honest.error or f'spoke without any fault: {honest.findings[0].message}'}")
            return None
    results = []
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        for number, trial in enumerate(trials(tree, chosen, Path(folder), jobs, outside=outside), 1):
            results.append(trial)
            _say(f"{number:3}/{len(chosen)} {table.line(trial)}")
    return results


def _say(line: str) -> None:
    """Progress goes to stderr: stdout is for what a program reads."""
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.planted",
        description="do nets that do not know the code find realistic faults in it?",
    )
    parser.add_argument("--count", type=_positive, help="how many, drawn by --seed (all)")
    parser.add_argument("--seed", default="1", help="of the draw, any text (1)")
    parser.add_argument("--fault", choices=[each.name for each in FAULTS], metavar="NAME", help="only this one")
    parser.add_argument("--jobs", type=_positive, default=2, help="how many at a time (2)")
    parser.add_argument("--outside", action="store_true", help="ask the driver of random stories too, a minute a fault")
    parser.add_argument(
        "--page", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}, with --outside"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="of the table, on stdout")
    return parser


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
