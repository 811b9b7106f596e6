"""The annotation with a pod's devices: written by the controller, read by the agent of the pod's node.

This is a module of its own, as its two functions are called by the module's name on both sides.

    GPU-1,GPU-2        one device each
    GPU-1*60,GPU-2*60  a number of each: percents of a GPU, or replicas of it
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Final

_MOST: Final = 6400
"""The most devices in a plan: 64 GPUs by the percent."""
_MOST_TEXT: Final = 65_536


def written(devices: Iterable[str]) -> str:
    """The annotation's text. A device that stands several times in a row is written once, with its number."""
    runs = ((one, sum(1 for _ in run)) for one, run in groupby(devices))
    return ",".join(one if count == 1 else f"{one}*{count}" for one, count in runs)


def devices(annotation: str) -> tuple[str, ...]:
    """The annotation's devices, one entry for each; none where it names more than any pod is given."""
    if len(annotation) > _MOST_TEXT:
        return ()
    entries: list[str] = []
    for part in annotation.split(","):
        name, _, number = part.strip().partition("*")
        if not name:
            continue
        count = int(number) if number.isascii() and number.isdigit() and len(number) <= len(str(_MOST)) else 1
        if len(entries) + count > _MOST:
            return ()
        entries += [name] * count
    return tuple(entries)
