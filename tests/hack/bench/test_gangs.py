"""The benchmark of gangs measures a plan that was found and a division that was made."""

import pytest

from hack.bench.decisions import gangs


def test_it_prints_both_figures_beside_their_aims(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gangs, "NODES", 40)
    monkeypatch.setattr(gangs, "QUEUES", 40)
    gangs.main()
    out = capsys.readouterr().out
    assert "division of 40 queues" in out
    assert "plan over 40 nodes" in out


def test_it_refuses_to_measure_where_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gangs, "consolidation", lambda _session: None)
    with pytest.raises(SystemExit, match="measures nothing"):
        gangs.plan_ms(4)
