"""Strangers at the webhooks' port, against the controller as its pod runs it: decisions and conversions go on."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.incluster import NAMESPACE, InCluster
from tests.support.e2e.lab import ROOT, until

pytestmark = [pytest.mark.e2e, pytest.mark.alone("its peers take both processors, and what they hold up is timed")]

SECONDS = 40
STALL_S = 0.25
MORE_MIB = 128
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: beside}
spec: {cohort: any}
"""


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InCluster]:
    binaries.build("helm")
    with Cluster.up(f"hostile-{os.getpid()}", Spec(nodes=())) as cluster:
        controller = InCluster(cluster, tmp_path_factory.mktemp("controller"), {}, metrics_port=free_port())
        controller.install()
        with controller.running():
            yield controller


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def family(pid: int) -> list[int]:
    """The process and all that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def memory_mib(pid: int) -> float:
    """Of the process and all that it started; what they share counts once."""
    total = 0
    for each in family(pid):
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{each}/smaps_rollup").read_text(), re.MULTILINE)
        total += int(found[1]) if found else 0
    return total / 1024


def lease(controller: InCluster) -> tuple[str, int]:
    found = json.loads(controller.cluster.kubectl("get", "lease", "tessera-controller", "-n", NAMESPACE, "-o", "json"))
    return found["spec"]["holderIdentity"], found["spec"]["leaseTransitions"]


def test_silent_large_slow_and_converting_peers_hold_up_no_decision_and_take_little_memory(
    controller: InCluster,
) -> None:
    assert controller.process is not None
    pid = controller.process.pid
    until(lambda: bool(lease(controller)[0]), "it leads")
    leading, before_mib = lease(controller), memory_mib(pid)
    probing = [sys.executable, "-m", "tests.support.e2e.probing", str(controller.metrics_port), str(SECONDS)]
    peers = [sys.executable, "-m", "tests.support.e2e.hostilepeers", controller.host, "443", str(SECONDS)]
    with (
        subprocess.Popen(probing, cwd=ROOT, stdout=subprocess.PIPE, text=True) as probe,
        subprocess.Popen(peers, cwd=ROOT, stdout=subprocess.PIPE, text=True) as attack,
    ):
        most_mib, converted = before_mib, 0
        while attack.poll() is None:
            most_mib = max(most_mib, memory_mib(pid))
            converted += controller._dry(QUEUE.encode()).returncode == 0
            time.sleep(0.2)
        told = json.loads(attack.communicate()[0])
        stalled_s = float(probe.communicate(timeout=SECONDS + 60)[0])
    seen = f"{told}, {stalled_s:.3f} s, {before_mib:.0f} to {most_mib:.0f} MiB, {converted} conversions"
    assert stalled_s <= STALL_S, seen
    assert most_mib - before_mib <= MORE_MIB, seen
    assert converted > 0, f"the API server's own conversions: {seen}"
    assert lease(controller) == leading, seen
    assert told.get("converting 200", 0) > 0, f"they were taken seriously: {seen}"
    assert told.get("large 200", 0) > 0, seen
    assert told.get("silent ended", 0) > 400, f"the silent ones are cut off: {seen}"
    assert controller._dry(QUEUE.encode()).returncode == 0, "and it serves on"
