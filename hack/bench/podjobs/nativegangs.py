"""Batch Jobs with PodGroups of Kubernetes' own for their starts against the same without: ``hack.bench native-gangs``.

A thousand jobs of four pods on nodes that kwok plays, twice, with the API on: ``tessera.nativeGangs`` off, then auto.
One more write for each job is expected. The scheduler's cycle decides the wall time.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hack.bench.podjobs.load import LIVED
from hack.bench.podjobs.volcanojobs import Run, measured, nodes_for, show
from hack.bench.throughput.drain import CRDS, apply_crds
from hack.bench.throughput.measuring import ROOT, audited
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries

SERVED = {"runtime-config": "scheduling.k8s.io/v1beta1=true"}
GATES = "GenericWorkload=true"
CONFIG = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {qps: -1}
health: {healthProbeBindAddress: "0"}
integrations: {frameworks: [batch/job]}
tessera: {policy: tessera, nativeGangs: %s}
"""
MODES = {"without groups": "off", "with groups": "auto"}


def main(words: Sequence[str] = ()) -> None:
    options = _options(words)
    runs: dict[str, Run] = {}
    for name, mode in MODES.items():
        runs[name] = run = asyncio.run(_measured(mode, options))
        told = f"{name}: {options.jobs} jobs ran after {run.load.running_s:.1f} s"
        print(f"native-gangs: {time.strftime('%H:%M:%S')} {told}", file=sys.stderr, flush=True)
    show(options.jobs, runs)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench native-gangs", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--jobs", type=int, default=1000, help="of each mode (default %(default)s)")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds before a run is given up")
    return parser.parse_args(words)


async def _measured(mode: str, options: argparse.Namespace) -> Run:
    nodes = nodes_for(options.jobs)
    with (
        tempfile.TemporaryDirectory(prefix="tessera-gangs-") as folder,
        audited(f"gangs-{mode}", Path(folder), flags=SERVED, kwok_nodes=nodes, gates=GATES) as cluster,
    ):
        apply_crds(cluster, CRDS)
        _apply_policy(cluster)
        config = CONFIG % mode
        kind = LIVED["batch"]
        return await measured(cluster, Path(folder), kind, options.jobs, config=config, limit_s=options.limit)


def _apply_policy(cluster: Cluster) -> None:
    """The chart's policy by which pods join their group."""
    chart, served = ROOT / "charts" / "tessera", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
    command = [str(binaries.binary("helm")), "template", "t", str(chart), "--api-versions", served]
    command += ["--show-only", "templates/pod-native-group-policy.yaml"]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered)
