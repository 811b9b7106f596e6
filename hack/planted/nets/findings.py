"""How a program of nets ends; the package says what is printed."""

import json
from collections.abc import Sequence


def told(net: str, messages: Sequence[str]) -> int:
    """Print the findings of ``net``; the exit code is returned."""
    for each in messages:
        print(json.dumps({"net": net, "message": each}))
    return 1 if messages else 0
