"""The benchmark of preferred allocation keeps running; its figures are read by people."""

import pytest

from hack.bench.node import preferred


def test_the_benchmark_prints_every_part(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"WORST_N": 13, "REQUESTS": 2, "SEEDS": 1}.items():
        monkeypatch.setattr(preferred, name, value)
    monkeypatch.setattr(preferred, "PRODUCTS", {"cube mesh": preferred.cube_mesh()})
    preferred.main()
    printed = capsys.readouterr().out
    assert "cube mesh: filled in" in printed
    assert " 9 GPUs " in printed
    assert "13 GPUs: filled in" in printed


def test_the_cube_mesh_has_six_links_a_gpu() -> None:
    for i in range(8):
        assert sum(lanes for pair, lanes in preferred.CUBE_MESH.items() if i in pair) == 6
