"""``python -m hack.fuzz [--target NAME]... [--minutes M | --executions N]``: hostile bytes for every parser.

    .venv/bin/python -m hack.fuzz --list
    .venv/bin/python -m hack.fuzz --target claim-config --executions 1000000
    .venv/bin/python -m hack.fuzz --minutes 10 -o json
    .venv/bin/python -m hack.fuzz --target object --replay FILE

Exits with 1 if something was found: its inputs belong into tests/fuzz/corpus/TARGET, which the fast tests replay.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hack.fuzz.outcome import Row, exit_code, row
from hack.fuzz.target import ROOT, Defect, execute
from hack.fuzz.targets import TARGETS

LONGEST_S: Final = 5
"""Of one execution, under instrumentation and beside other work."""
MOST_MIB: Final = 1024
MOST_BYTES: Final = 4_096
"""Of an input that is changed. The largest objects are looked at by tests/fuzz/test_limits.py."""
CORPUS: Final = ROOT / "tests/fuzz/corpus"


def main(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    chosen = arguments.target or list(TARGETS)
    if arguments.list:
        for target in TARGETS.values():
            print(f"{target.name:20} {target.what} (written by {target.writer})")
        return 0
    if arguments.replay:
        return _replay(chosen, arguments.replay)
    if importlib.util.find_spec("atheris") is None:
        print(
            "fuzz: atheris is missing: .venv/bin/pip install --require-hashes -r requirements/fuzz.txt", file=sys.stderr
        )
        return 2
    rows = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        root = Path(arguments.folder or folder)
        for name in chosen:
            rows.append(_run(name, root / name, arguments))
            print(rows[-1].line, file=sys.stderr, flush=True)
            for defect in rows[-1].defects:
                print(f"  {defect}", file=sys.stderr, flush=True)
    if arguments.output == "json":
        print(msgspec.json.encode(rows).decode())
    return exit_code(rows)


def _run(name: str, folder: Path, arguments: argparse.Namespace) -> Row:
    folder.mkdir(parents=True, exist_ok=True)
    minutes = arguments.minutes or (0 if arguments.executions > 0 else 1)
    options = [
        f"-runs={arguments.executions}",
        f"-max_total_time={round(minutes * 60)}",
        f"-seed={arguments.seed}",
        f"-timeout={LONGEST_S}",
        f"-rss_limit_mb={MOST_MIB}",
        f"-max_len={MOST_BYTES}",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    known = [str(CORPUS / name)] if (CORPUS / name).is_dir() else []
    started_s = time.monotonic()
    log = folder / "log"
    with log.open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "hack.fuzz.worker", name, str(folder), *options, *known],
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return row(name, log.read_text(errors="replace"), time.monotonic() - started_s)


def _replay(names: Sequence[str], path: Path) -> int:
    """What each target makes of a file."""
    code = 0
    for name in names:
        parse, declared = TARGETS[name].make()
        try:
            is_value = execute(parse, declared, path.read_bytes(), each_line=TARGETS[name].each_line)
            print(f"{name}: {'a value' if is_value else 'a declared error'}")
        except Defect as defect:
            print(f"{name}: {defect.key}\n{defect}")
            code = 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="only this one; may be repeated")
    parser.add_argument("--minutes", type=float, default=0, help="for each target (1, where no executions are told)")
    parser.add_argument("--executions", type=int, default=-1, help="for each target; with --minutes, what is less")
    parser.add_argument("--seed", type=int, default=1, help="of libFuzzer (1); with --executions runs can be repeated")
    parser.add_argument("--folder", help="where corpus, inputs found and logs of each target stay (a temporary one)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="no fuzzing: what the targets make of this input")
    parser.add_argument("--list", action="store_true", help="the targets, and who writes what they read")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json: the rows, on stdout")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
