"""What a property found, from the text of its failure to what a person adds to the test so that it is tried for ever.

The text is pytest's: Hypothesis tells of the case in the notes of the exception, each line of them behind an ``E``.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

_TOLD: Final = re.compile(r"( *)(?:Falsifying|Failing)(?: explicit)? (?:example|test case):\s*(.*)")
_BLOB: Final = re.compile(r"@reproduce_failure\(.*\)")
_DRAWN: Final = re.compile(r"=data\(\.\.\.\)")
_SEED: Final = re.compile(r"\[(?:.*-)?(\d+)\]$")


def to_pin(node: str, text: str) -> list[str]:
    """One block for each failure of the test ``node``; at least one."""
    lines = [re.sub(r"^(?:E|[ |+]*\|) ?", "", line).rstrip() for line in text.splitlines()]
    blob = next((found[0] for line in lines if (found := _BLOB.search(line))), None)
    pins = [_pinned(told, blob) for told in _examples(lines)]
    if pins:
        return pins
    seed = _SEED.search(node)
    return [f"@histories(..., {seed[1]})" if seed else "nothing to pin was told: see the failure"]


def _pinned(told: Sequence[str], blob: str | None) -> str:
    text = "\n".join(told)
    if text.startswith("state = "):
        return "\n".join(("def test_...() -> None:", *(f"    {line}" for line in told)))
    if _DRAWN.search(text) and blob:
        # What is drawn inside a test cannot be given from outside.
        return f"{blob}  # for as long as it takes: then write the history down as a test\n{text}"
    call = re.sub(r"^\w+\(", "@example(", text)
    return re.sub(r"^ +self=.*\n", "", call, flags=re.MULTILINE)


def _examples(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each case that failed: a call, or the steps of a state machine."""
    rest = iter(lines)
    for line in rest:
        told = _TOLD.match(line)
        if told is None:
            continue
        indent, first = told.groups()
        block = [] if first in ("", "<state machine>") else [first]
        for more in rest if not _is_whole(block) else ():
            block.append(more.removeprefix(indent))
            if _is_whole(block):
                break
        yield block


def _is_whole(block: Sequence[str]) -> bool:
    if not block:
        return False
    if block[0].startswith("state = "):
        return block[-1] == "state.teardown()"
    return block[-1] == ")" or (len(block) == 1 and block[0].endswith(")"))
