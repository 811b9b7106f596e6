"""NVIDIA's section sharing.mps, and our own section mps."""

from pathlib import Path

import pytest

from agent.config.load import load
from agent.config.settings import MpsSettings
from inventory.layout.sharing import Replication, SharingMode

MPS = "  mps: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}\n"
SLICES = "  timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}\n"


def replication(tmp_path: Path, text: str) -> Replication:
    (tmp_path / "config.yaml").write_text(text)
    found = load(tmp_path / "config.yaml", {}, {})
    assert found.warnings == ()
    assert found.settings.layout.replication is not None
    return found.settings.layout.replication


def test_a_request_above_one_fails_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    found = replication(tmp_path, f"version: v1\nsharing:\n{MPS}")
    assert (found.mode, found.rename_by_default, found.fail_requests_greater_than_one) == (SharingMode.MPS, True, True)
    lenient = "sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: gpu, replicas: 2}]}}"
    assert not replication(tmp_path, lenient).fail_requests_greater_than_one


@pytest.mark.parametrize("both", [MPS + SLICES, SLICES + MPS])
def test_mps_is_taken_where_both_sections_are_there(tmp_path: Path, both: str) -> None:
    assert replication(tmp_path, f"sharing:\n{both}").mode is SharingMode.MPS


def test_how_daemons_are_run(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "flags: {mpsRoot: /run/nvidia/mps}\n"
        "mps: {controlProgram: /opt/mps, multiUser: true, canary: false, privateShm: false, shmSizeMib: 512, "
        "probeIntervalSeconds: 2}\n"
    )
    settings = load(tmp_path / "config.yaml", {}, {}).settings
    assert settings.mps_root == Path("/run/nvidia/mps")
    assert settings.mps == MpsSettings(
        control_program=Path("/opt/mps"),
        multi_user=True,
        canary=False,
        private_shm=False,
        shm_size_mib=512,
        probe_interval_s=2.0,
    )
