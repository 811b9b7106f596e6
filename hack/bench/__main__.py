"""``make bench``: every benchmark, one after the other. With names, only those: ``python -m hack.bench agent``."""

import asyncio
import sys
from collections.abc import Callable, Sequence

from hack.bench.agents import main as agents
from hack.bench.commandline import main as commandline
from hack.bench.decisions import departures, engine, forecast, fragmentation, gangs, page, topology, week
from hack.bench.fleet import main as fleet
from hack.bench.node import agent, beside, claimedpods, claims, label, metrics, migplan, preferred, repairs, soak
from hack.bench.podjobs import nativegangs, volcanojobs
from hack.bench.throughput import claimedjobs, drain, drainjobs, drainmodel, runner, runningjobs
from hack.bench.web import viewers

BENCHES: dict[str, Callable[[Sequence[str]], None]] = {
    "preferred": lambda _: preferred.main(),
    "migplan": lambda _: migplan.main(),
    "agent": lambda _: asyncio.run(agent.main()),
    "beside": beside.main,
    "agents": agents.main,
    "claims": lambda _: asyncio.run(claims.main()),
    "claimed-pods": claimedpods.main,
    "label": lambda _: asyncio.run(label.main()),
    "repairs": lambda _: asyncio.run(repairs.main()),
    "metrics": metrics.main,
    "soak": soak.main,
    "drain": drain.main,
    "drain-topology": lambda words: drain.main(["--topology", *words]),
    "runner": runner.main,
    "drain-jobs": drainjobs.main,
    "claimed-jobs": claimedjobs.main,
    "running-jobs": runningjobs.main,
    "volcano-jobs": volcanojobs.main,
    "native-gangs": nativegangs.main,
    "drain-model": drainmodel.main,
    "engine": engine.main,
    "fleet": fleet.main,
    "curves": fleet.curves,
    "topology": topology.main,
    "departures": departures.main,
    "fragmentation": fragmentation.main,
    "gangs": gangs.main,
    "forecast": forecast.main,
    "week": week.main,
    "page": page.main,
    "viewers": viewers.main,
    "commands": commandline.main,
}

BY_HAND = ("soak", "fleet", "curves")
"""Many minutes: only when they are named."""


def main(words: list[str]) -> int:
    """Names of benchmarks; what follows from the first option on goes to each of them. ``--help`` alone lists them."""
    if words in (["--help"], ["-h"]):
        print(f"usage: .venv/bin/python -m hack.bench [{'|'.join(BENCHES)} ...] [options of these]")
        print("Without names every benchmark but these runs: " + ", ".join(BY_HAND))
        print("examples:")
        print("  .venv/bin/python -m hack.bench drain --factor 0.2")
        print("  .venv/bin/python -m hack.bench engine --quick")
        return 0
    first = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    names, options = words[:first], words[first:]
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"bench: found {unknown[0]!r}, expected one of {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in names or [name for name in BENCHES if name not in BY_HAND]:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        BENCHES[name](options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
