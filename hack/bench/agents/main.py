"""``python -m hack.bench agents``: what agents ask of an API server: one of them, a fleet that comes back, and how many
of them a server bears.
"""

import argparse
import asyncio
import json
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.bench.agents import replay, returning, traffic
from hack.bench.table import Row, show
from hack.bench.throughput.drain import apply_crds
from hack.bench.throughput.measuring import ROOT
from hack.cluster import Cluster, Spec

CRDS: Final = tuple(ROOT / "charts/tessera/crds" / f"{name}.tessera.dev.yaml" for name in ("gpunodes", "gpulayouts"))
PARTS: Final = ("one", "return", "many")


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench agents",
        description=__doc__,
        epilog="example: .venv/bin/python -m hack.bench agents --only return --agents 5000 --window 60",
    )
    parser.add_argument("--only", choices=PARTS, help="one part: one agent, a fleet's return, how many a server bears")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long the agent rests (default: %(default)s)")
    parser.add_argument("--agents", type=int, default=2000, help="of the fleet that returns (default: %(default)s)")
    parser.add_argument("--window", type=float, default=10.0, help="their --api-spread, in s (default: %(default)s)")
    parser.add_argument(
        "--most", type=int, default=4000, help="agents at most on the real API server (default: %(default)s)"
    )
    parser.add_argument("--resets", action="store_true", help="the one agent has remediation.reset: when-free")
    options = parser.parse_args(words)
    wanted = [options.only] if options.only else list(PARTS)
    if "return" in wanted:
        show(f"A fleet of {options.agents} comes back", _returns(options.agents, options.window))
    if {"one", "many"} & set(wanted):
        _on_a_server(wanted, options.minutes * 60, options.window, options.most, resets=options.resets)


def _returns(agents: int, window_s: float) -> list[Row]:
    logging.disable(logging.WARNING)
    rows = []
    for story in returning.STORIES:
        for window, target in ((0.0, ""), (window_s, "3 x")):
            found = returning.fleet(agents, window, story)
            how = f"window {window:g} s" if window else "no window"
            measured = f"{found.peak}, {found.ratio:.2f} x the mean of {found.lasted_s:.0f} s"
            rows.append(Row(f"{story.what}; {how}: requests in the worst second", measured, target))
    logging.disable(logging.NOTSET)
    return rows


def _on_a_server(wanted: Sequence[str], rest_s: float, window_s: float, most: int, *, resets: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name, Cluster.up("bench-agents", Spec(nodes=())) as on:
        apply_crds(on, *CRDS)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": traffic.NODE}}
        on.kubectl("create", "-f", "-", input=json.dumps(node))
        rests_s = rest_s if "one" in wanted else traffic.POD_S
        seen = asyncio.run(traffic.see(on, Path(name), rests_s, resets=resets))
        if "one" in wanted:
            show("One agent, 8 GPUs, on a real API server", traffic.rows(seen, resets=resets))
        if "many" in wanted:
            show("Recorded agents on a real API server", replay.rows(on, seen.exchanges, window_s, most))
