"""``python -m hack.mutants [--count 100] [--seed 1] [--room engine] [--in FOLDER] [-o json]``; see the package."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.mutants import choosing, survivors, verdict
from hack.mutants.running import CannotTell
from hack.mutants.trial import Tree, Trial
from hack.mutants.verdict import Result

ROOT: Final = Path(__file__).parents[2]


def main(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    known = {survivor.name: survivor.reason for survivor in survivors.listed(survivors.LIST.read_bytes())}
    try:
        results = _results(arguments, known)
    except CannotTell as wrong:
        print(f"mutants: {wrong}", file=sys.stderr)
        return verdict.UNKNOWN
    if arguments.output == "json":
        print(verdict.as_json(results).decode())
    for line in verdict.summary(results, known):
        _say(line)
    return verdict.exit_code(results)


def _results(arguments: argparse.Namespace, known: dict[verdict.Name, str]) -> list[Result]:
    rooms = {room: choosing.ROOMS[room] for room in arguments.room or choosing.ROOMS}
    tree = Tree(ROOT, rooms, within=tuple(arguments.within or ()))
    part, parts = arguments.part
    chosen = tree.drawn(arguments.count, arguments.seed)[part - 1 :: parts]
    if not chosen:
        raise CannotTell(
            "nothing to change there: --in names a folder of a room, as controller/scheduler/dra/allocation"
        )
    shared = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared").resolve()
    results = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        _say(f"mutants: {len(chosen)} of seed {arguments.seed}, after one run of the tests without any")
        trial = Trial(tree, Path(folder), known, jobs=arguments.jobs, shared=shared if arguments.conformance else None)
        for number, result in enumerate(trial.results(chosen), 1):
            results.append(result)
            _say(f"{number:3}/{len(chosen)} {verdict.line(result)}")
    return results


def _say(line: str) -> None:
    """Progress and summary go to stderr: stdout is for what a program reads."""
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack.mutants", description="do the tests notice when the code is wrong?")
    parser.add_argument("--count", type=_positive, default=100, help="how many mutants (100)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--room", action="append", choices=list(choosing.ROOMS), help="only this one; may be repeated")
    parser.add_argument("--in", dest="within", action="append", metavar="FOLDER", help="only this folder of the rooms")
    parser.add_argument("--part", type=_part, default=(1, 1), help="K/N: the K-th of those drawn, each N-th after it")
    parser.add_argument("--jobs", type=_positive, default=2, help="how many at a time (2)")
    parser.add_argument("--conformance", action="store_true", help="Kueue's cases look for the engine's mutants too")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json: the results, on stdout")
    return parser


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _part(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not 1 <= int(number) <= int(of):
        raise ValueError(text)
    return int(number), int(of)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
