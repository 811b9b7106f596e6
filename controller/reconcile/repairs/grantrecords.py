"""The grants that count in a flavor, in its annotation: for a leader that begins while GpuNodes are away. Pure.

RepairBreaker.counted -> due_text -> annotation of the ResourceFlavor -> read_record -> RepairFlavor.recorded -> breaker
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

MAX_RECORDED: Final = 1000
"""The grants that an annotation has at most, the newest: some 80 KB of the 256 KB that all annotations may have."""
_MAX_CHARACTERS: Final = 1 << 18

GrantRecord = Mapping[str, Mapping[str, float]]
"""When a GPU was granted a step last, by node and GPU, in seconds since 1970."""


def read_record(text: str | None) -> GrantRecord:
    """The record in an annotation. Empty for one that cannot be read, which somebody else has written."""
    if text is None or len(text) > _MAX_CHARACTERS:
        return {}
    try:
        found = msgspec.json.decode(text, type=dict[str, dict[str, datetime]])
        return {node: {gpu: at.timestamp() for gpu, at in gpus.items()} for node, gpus in found.items()}
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return {}


def due_text(counted: GrantRecord, shown: str | None) -> tuple[bool, str | None]:
    """Whether the annotation, which is ``shown`` now, is to be written, and what it is to be; None: taken off.

    It is written when it lacks a grant that counts, and taken off when none does: those that count no more stay in it
    until then, and cost no write of their own.
    """
    newest = sorted(((at_s, node, gpu) for node, gpus in counted.items() for gpu, at_s in gpus.items()), reverse=True)
    has = read_record(shown)
    if all(has.get(node, {}).get(gpu, 0.0) >= at_s for at_s, node, gpu in newest[:MAX_RECORDED]):
        return not newest and shown is not None, None
    due: dict[str, dict[str, str]] = {}
    for at_s, node, gpu in sorted(newest[:MAX_RECORDED], key=lambda each: each[1:]):
        at = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        due.setdefault(node, {})[gpu] = at
    return True, msgspec.json.encode(due).decode()
