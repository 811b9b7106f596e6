"""The driver as a net for planted faults."""

import json

import pytest

from hack.outside import net
from hack.outside.acts import Story
from hack.outside.running import Outcome


def test_findings_are_told_with_the_seed_of_their_story(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def third_is_bad(story: Story) -> Outcome:
        return Outcome(("    3.0 over-quota: q",) if story.seed == 3 else ())

    monkeypatch.setattr(net, "outcome_of", third_is_bad)
    assert net.main() == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {"net": "outside", "message": "seed 3: 3.0 over-quota: q"}


def test_silence_ends_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    async def good(_: Story) -> Outcome:
        return Outcome(())

    monkeypatch.setattr(net, "outcome_of", good)
    assert net.main() == 0
