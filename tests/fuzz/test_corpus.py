"""Inputs that once broke a parser, and some that are hostile to any: a value or a declared error comes out."""

import time
from functools import cache
from pathlib import Path

import pytest

from hack.fuzz.target import HOSTILE, Parse, Shape, execute
from hack.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())
JSON = [name for name, target in TARGETS.items() if target.shape is Shape.JSON and name != "manifest"]
"""Manifests are read as YAML, which takes seconds for text as deep."""
LONGEST_S = 2.0


@cache
def made(name: str) -> tuple[Parse, tuple[type[Exception], ...]]:
    return TARGETS[name].make()


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_is_mended(path: Path) -> None:
    execute(*made(name := path.parent.name), path.read_bytes(), each_line=TARGETS[name].each_line)


@pytest.mark.parametrize("name", JSON)
def test_json_that_is_deep_or_broken_gives_a_value_or_a_declared_error(name: str) -> None:
    parse, declared = made(name)
    started_s = time.process_time()
    for given in HOSTILE:
        execute(parse, declared, given, each_line=TARGETS[name].each_line)
    assert time.process_time() - started_s < LONGEST_S


def test_every_folder_of_the_corpus_is_a_target_and_small() -> None:
    assert {path.parent.name for path in FOUND} <= TARGETS.keys()
    assert sum(path.stat().st_size for path in FOUND) < 256 * 1024
