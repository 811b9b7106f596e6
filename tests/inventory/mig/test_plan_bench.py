"""The benchmark of MIG plans keeps running; its figures are read by people."""

import pytest

from hack.bench.node import migplan
from simulator.boards.products import PRODUCTS


def test_the_benchmark_prints_every_board(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(migplan, "BOARDS", ("NVIDIA A30",))
    migplan.main(20)
    printed = capsys.readouterr().out
    assert "NVIDIA A30: " in printed
    assert "worst" in printed
    assert "(target: 10 ms)" in printed


def test_all_sets_of_instances_are_tried() -> None:
    a30 = migplan.profiles_of(PRODUCTS["NVIDIA A30"])
    sets = set(migplan.stands([one for one in a30 if "+me" not in one.name]))
    # 4g alone; each half empty, a 2g, or one of its two slices, or both: 5 ways a half.
    assert len(sets) == 1 + 5 * 5
