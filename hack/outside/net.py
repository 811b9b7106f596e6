"""The driver as a net for planted faults (``hack.planted --outside``): the first stories, all at a time.
``python -m hack.outside.net``.
"""

import asyncio
import logging
import sys
from typing import Final

from hack.outside.__main__ import SECONDS
from hack.outside.running import outcome_of
from hack.outside.story import told
from hack.planted.nets import reported

SEEDS: Final = range(1, 17)


async def judged() -> list[str]:
    """Sentences, each with the seed of its story."""
    outcomes = await asyncio.gather(*(outcome_of(told(seed, SECONDS)) for seed in SEEDS))
    pairs = zip(SEEDS, outcomes, strict=True)
    return [f"seed {seed}: {each.strip()}" for seed, outcome in pairs for each in outcome.findings]


def main() -> int:
    return reported("outside", asyncio.run(judged()))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
