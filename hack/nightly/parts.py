"""The parts of ``make nightly``. A part is one command that exits with 0 where all is well."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hack.fuzz.targets import TARGETS

MOST_MINUTES: Final = 60
SHARES: Final = 5
"""So many nights take every target of the fuzzer once."""
FUZZ_MINUTES: Final = 5
"""For each target of a night's share."""
PYTHON: Final = ".venv/bin/python"


@dataclass(frozen=True)
class Part:
    """``command``: ``{day}`` stands for the number of the day, which seeds are made of, ``{share}`` for targets of the
    fuzzer. ``limit_min``: longer than that is red.
    """

    name: str
    command: tuple[str, ...]
    shows: str
    limit_min: float = MOST_MINUTES

    def words(self, day: int) -> list[str]:
        """The command of that day, as a program and its arguments."""
        shares = [word for name in share(day) for word in ("--target", name)]
        return [
            found
            for word in self.command
            for found in (shares if word == "{share}" else [word.replace("{day}", str(day))])
        ]


def share(day: int) -> list[str]:
    """Targets of the fuzzer that are due on that day: each on one day of ``SHARES``."""
    return list(TARGETS)[day % SHARES :: SHARES]


PARTS: Final = (
    Part(
        "explore",
        ("make", "explore", "TIME=50m"),
        "the properties of the fast tests hold on histories of fresh seeds",
    ),
    Part(
        "chaos",
        (PYTHON, "-m", "hack.chaos", "--seed", "{day}", "--minutes", "25"),
        "25 minutes of faults on a real cluster by a seed of the day: nothing lost, doubled or over quota",
    ),
    Part(
        "versions",
        ("make", "e2e-versions"),
        "the scenes in which a version can make a difference, on real Kubernetes 1.36 and 1.35",
    ),
    Part(
        "mutants",
        ("make", "mutants", "COUNT=80", "SEED={day}"),
        "at least 85 % of 80 mistakes, planted by a seed of the day, are noticed by a test",
    ),
    Part(
        "planted",
        ("make", "planted"),
        "27 realistic faults are each found by a net that does not know the code",
    ),
    Part(
        "busy",
        (PYTHON, "-m", "hack.nightly.busy", "--times", "3", "--loops", "4", "make", "check", "thorough"),
        "all unit tests are green three times in a row beside four busy loops",
    ),
    Part(
        "storm",
        (PYTHON, "-m", "hack.nightly.storm", "--nodes", "1000"),
        "a storm of faults over 1,000 nodes of a real API server: the breaker trips, its budget acts, the next leader "
        "counts the same, it heals; XIDs of applications fence nothing",
    ),
    Part(
        "fuzz",
        (PYTHON, "-m", "hack.fuzz", "--minutes", str(FUZZ_MINUTES), "--seed", "{day}", "{share}"),
        f"a fifth of the parsers of hostile bytes, {FUZZ_MINUTES} minutes each, another fifth each day",
    ),
)
BY_NAME: Final[Mapping[str, Part]] = {part.name: part for part in PARTS}
