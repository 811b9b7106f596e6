"""What each command costs before it asks: ``hack.bench commands [--rounds N] [--kubectl PATH]``.

CPU time to the first request, which a server of this process hears: HTTPS, a client certificate in the kubeconfig, the
image's bytecode. In the same rounds an empty program of the same Python, and kubectl where there is one.
"""

import argparse
import os
import shlex
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.bench.commandline.firstrequest import to_end
from hack.bench.commandline.scenes import ENGINE, HANDED_OVER, SCENES, Asked
from hack.bench.commandline.stage import TESSERA, Stage
from hack.bench.compiled import as_in_the_image
from hack.bench.table import Row, show

AIM: Final = "0.5 s"
EMPTY: Final = "python -c pass"
KUBECTL: Final = "kubectl get pods"


def main(words: Sequence[str] = ()) -> None:
    options = _options(words)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        try:
            taken = _rounds(_measures(stage, options), options.rounds)
        finally:
            stage.close()
    show(f"CPU to the first request, median of {options.rounds}, load {os.getloadavg()[0]:.1f}", rows(taken))


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m hack.bench commands", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each command")
    parser.add_argument("--kubectl", default=shutil.which("kubectl"), help="a kubectl to compare with")
    parser.add_argument("--only", default="", help="commands whose words begin so")
    return parser.parse_args(words)


def _measures(stage: Stage, given: argparse.Namespace) -> Mapping[str, Callable[[], float]]:
    env = stage.environment(as_in_the_image())
    costs: dict[str, Callable[[], float]] = {EMPTY: lambda: to_end((sys.executable, "-c", "pass"), env)}
    if given.kubectl is not None:
        costs[KUBECTL] = lambda: stage.program_s((*shlex.split(given.kubectl), "get", "pods"), Asked.API, env)
    lines = {**SCENES, **dict.fromkeys(ENGINE, Asked.API)}
    for line, asked in lines.items():
        costs[line] = lambda line=line, asked=asked: stage.command_s(line, asked, env)  # type: ignore[misc]
    for verb in sorted(HANDED_OVER):
        costs[f"{verb} cq"] = lambda verb=verb: to_end((*TESSERA, verb, "cq"), env)  # type: ignore[misc]
    bases = (EMPTY, KUBECTL)
    return {name: cost for name, cost in costs.items() if name in bases or name.startswith(given.only)}


def _rounds(measures: Mapping[str, Callable[[], float]], rounds: int) -> Mapping[str, float]:
    """Medians. Each round has all of them, so that an hour that is slower is slower for all; the first one compiles."""
    taken: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds + 1):
        for name, cost_s in measures.items():
            found = cost_s()
            if number:
                taken[name].append(found)
    return {name: statistics.median(each) for name, each in taken.items()}


def rows(taken: Mapping[str, float]) -> list[Row]:
    """``taken``: seconds; the bases among them."""
    bases = {base: taken[base] for base in (EMPTY, KUBECTL) if base in taken}
    table = []
    for name, cost_s in taken.items():
        ratios = [f"{cost_s / base_s:.1f} x {base.split()[0]}" for base, base_s in bases.items() if base != name]
        aimed = AIM if name not in (*bases, *ENGINE) else ""
        table.append(Row(name, f"{cost_s:.3f} s = {', '.join(ratios)}" if ratios else f"{cost_s:.3f} s", aimed))
    return table
