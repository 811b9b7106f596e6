"""One target under atheris: ``python -m hack.fuzz.worker TARGET FOLDER [OPTION...]``, as ``hack.fuzz`` starts it.

Each new defect is written to FOLDER/found and the run goes on; libFuzzer ends it for an execution that takes too long
or too much memory, and prints how many there were.
"""

import hashlib
import logging
import sys
from pathlib import Path
from typing import Final

import atheris

from hack.fuzz.mutating import mutated
from hack.fuzz.target import DEEP, HOSTILE, Defect, Shape, execute

ROOMS: Final = ("agent", "controller", "deviceplugin", "failpoints", "inventory", "kube", "simulator", "yamlfile")
MOST_DEFECTS: Final = 20
LONG: Final = 1_000
_OWN: Final = 0.7
"""So often an input is changed by its shape; else as libFuzzer does, by what compared unequal."""


def main(name: str, folder: Path, options: list[str]) -> None:
    logging.disable()
    with atheris.instrument_imports(include=list(ROOMS)):
        from hack.fuzz.targets import named

        target = named(name)
        parse, declared = target.make()
        short = [each for each in HOSTILE if len(each) <= LONG]
        seeds = (*target.seeds(), *short, *DEEP[target.shape])
        for seed in (*seeds, *HOSTILE):  # what a parser imports when it is first used is followed too
            _tried(parse, declared, seed, {}, target.each_line)
    corpus, defects = folder / "corpus", folder / "found"
    for each in (corpus, defects):
        each.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    known: dict[str, Path] = {}

    def one(data: bytes) -> None:
        defect = _tried(parse, declared, data, known, target.each_line)
        if defect is None:
            return
        path = defects / f"{hashlib.sha256(data).hexdigest()[:16]}"
        known[defect.key] = path
        path.write_bytes(data)
        print(f"defect: {defect.key}: {path}\n{defect}", file=sys.stderr, flush=True)
        if len(known) >= MOST_DEFECTS:
            raise defect

    def change(data: bytes, most: int, seed: int) -> bytes:
        own = target.shape is not Shape.BYTES and seed % 1000 < _OWN * 1000
        return mutated(data, seed, most, target.shape) if own else bytes(atheris.Mutate(data, most))

    for seed in HOSTILE:
        one(seed)
    # What is kept goes into the first folder; the others are read.
    flags, more = [[each for each in options if each.startswith("-") == is_flag] for is_flag in (True, False)]
    words = [sys.argv[0], *flags, f"-artifact_prefix={defects}/", str(corpus), *more]
    atheris.Setup(words, one, custom_mutator=change)
    atheris.Fuzz()


def _tried(
    parse: object, declared: tuple[type[Exception], ...], data: bytes, known: dict[str, Path], each_line: str
) -> Defect | None:
    """The defect that ``data`` shows, where it is a new one."""
    try:
        execute(parse, declared, data, each_line=each_line)  # type: ignore[arg-type]
    except Defect as defect:
        return None if defect.key in known else defect
    return None


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
