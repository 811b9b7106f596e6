"""The driver as a net for planted faults (``hack.planted --outside``): the first stories.
``python -m hack.outside.net``.
"""

import logging
import sys
from typing import Final

from hack.outside import warp
from hack.outside.__main__ import SECONDS
from hack.outside.running import outcome_of
from hack.outside.story import told
from hack.planted.nets import reported

SEEDS: Final = range(1, 17)


def judged() -> list[str]:
    """Sentences, each with the seed of its story."""
    pairs = ((seed, warp.run(outcome_of(told(seed, SECONDS)))) for seed in SEEDS)
    return [f"seed {seed}: {each.strip()}" for seed, outcome in pairs for each in outcome.findings]


def main() -> int:
    return reported("outside", judged())


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
