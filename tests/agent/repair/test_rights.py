"""The kernel says whether this process may reset GPUs."""

from pathlib import Path

import pytest

from agent.config.settings import Settings
from agent.repair.rights import may_reset
from inventory.devices import NodeName


@pytest.mark.parametrize(
    ("status", "may"),
    [
        ("Name:\tpython\nCapEff:\t000001ffffffffff\n", True),
        ("CapEff:\t0000000000280000\n", True),
        ("CapEff:\t0000000000200000\n", False),
        ("CapEff:\t0000000000080000\n", False),
        ("CapEff:\t0000000000000000\n", False),
        ("Name:\tpython\n", False),
        (None, False),
    ],
)
def test_it_takes_two_capabilities(status: str | None, may: bool, tmp_path: Path) -> None:
    if status is not None:
        (tmp_path / "self").mkdir()
        (tmp_path / "self" / "status").write_text(status)
    assert may_reset(Settings(node_name=NodeName("n"), proc_root=tmp_path)) is may


def test_simulated_gpus_take_none(tmp_path: Path) -> None:
    settings = Settings(node_name=NodeName("n"), proc_root=tmp_path, simulate=tmp_path / "fleet.yaml")
    assert may_reset(settings)
