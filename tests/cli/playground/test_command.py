"""``tessera try`` as a person has it: an address that answers, and nothing left after Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import click.testing
import psutil
import pytest

from cli.main import tessera
from cli.manifests import WrongInputError
from cli.playground.command import _world
from tests.support.e2e.lab import ROOT
from tests.support.hang import HANG_S


def test_a_plain_get_of_the_address_answers_the_page_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-c", "from cli.main import main; main()", "try"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, cwd=ROOT, text=True, stdout=pipe, stderr=pipe) as process:
        hang = threading.Timer(HANG_S, process.kill)
        hang.start()
        try:
            assert process.stdout is not None
            address = process.stdout.readline() and process.stdout.readline().rstrip("\n")
            with urllib.request.urlopen(address, timeout=HANG_S) as answer:
                assert "<title>" in answer.read().decode()
            with urllib.request.urlopen(f"{address}page/nodes/node-1", timeout=HANG_S) as answer:
                warm = [gpu["temperatureC"] for gpu in json.load(answer)["gpus"]]
            assert len(warm) == 8, "of the simulated fleet"
            assert all(each >= 30 for each in warm), "tiles have temperatures without a Prometheus"
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(f"{address}page/session", data=b"{}", timeout=HANG_S)
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate()
        finally:
            hang.cancel()
            process.kill()
    assert (process.returncode, told) == (0, "")
    assert address.startswith("http://127.0.0.1:")
    assert not [child for child in children if child.is_running()]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["queues.yaml"], "found MANIFESTS alone, expected --fleet FILE and MANIFESTS together"),
        (["--fleet", "nowhere.yaml", "queues.yaml"], "nowhere.yaml"),
    ],
)
def test_a_wrong_call_is_told_in_a_line(words: list[str], wanted: str) -> None:
    found = click.testing.CliRunner().invoke(tessera, ["try", *words])
    assert found.exit_code == 2
    assert wanted in found.stderr


def test_its_help_says_which_jobs_run() -> None:
    words = click.testing.CliRunner().invoke(tessera, ["try", "--help"]).stdout.split()
    assert "Only Jobs of batch/v1 run here: tessera simulate takes jobs of all kinds." in " ".join(words)


QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
spec: {nodeLabels: {nvidia.com/gpu.product: NVIDIA-H100}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: lab}
spec:
  namespaceSelector: {}
  resourceGroups:
  - {coveredResources: [nvidia.com/gpu], flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: nightly}
spec: {clusterQueue: lab}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train, labels: {kueue.x-k8s.io/queue-name: nightli}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def test_it_warns_and_refuses_as_simulate_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet, queues = tmp_path / "fleet.yaml", tmp_path / "queues.yaml"
    fleet.write_text("nodes:\n- {name: node-1, gpus: 8, product: NVIDIA A100-SXM4-80GB}\n")
    queues.write_text(QUEUES)
    assert len(_world((queues,), fleet).arrivals) == 1
    flavor, job = capsys.readouterr().err.replace(f"{tmp_path}/", "").splitlines()
    assert flavor.startswith(
        "queues.yaml:5: warning: ResourceFlavor a100: spec.nodeLabels[nvidia.com/gpu.product]: found"
    )
    assert job.startswith("queues.yaml:22: warning: Job train: metadata.labels[kueue.x-k8s.io/queue-name]: found")
    assert job.endswith("Did you mean nightly?")
    fleet.write_text("nodes:\n- {name: node-1, gpuz: 8}\n")
    queues.write_text(QUEUES.replace("gpu: 1}", "gpu: 0.5}"))
    with pytest.raises(WrongInputError) as wrong:
        _world((queues,), fleet)
    assert str(wrong.value).startswith(str(fleet))
    assert len(str(wrong.value).splitlines()) == 2
