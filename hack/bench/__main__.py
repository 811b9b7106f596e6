"""``make bench``: every benchmark, one after the other. With names, only those: ``python -m hack.bench agent``."""

import asyncio
import sys
from collections.abc import Callable

from hack.bench import agent, preferred

BENCHES: dict[str, Callable[[], None]] = {"preferred": preferred.main, "agent": lambda: asyncio.run(agent.main())}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"bench: found {unknown[0]!r}, expected one of {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in names or BENCHES:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        BENCHES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
