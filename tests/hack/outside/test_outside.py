"""The driver: a story on the controller, what is kept of one with findings, and how it is made smaller."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hack.outside import __main__ as outside
from hack.outside import running, warp
from hack.outside.acts import Story
from hack.outside.running import Outcome, Told
from hack.outside.story import told
from history.judge import Finding, Verdict

REALLY = running.judged
WRONG = Finding(3.0, "over-quota", ("ClusterQueue q",), "6 are used, 4 may be")


def judging(story: Story) -> Told:
    """As if whoever deletes a job were found out."""
    bad = any(each.verb == "delete" for each in story.acts)
    return Told(Verdict((WRONG,) if bad else (), len(story.acts), ()), admitted=5, evicted=2)


@pytest.fixture(autouse=True)
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def at_once(story: Story) -> Told:
        return judging(story)

    monkeypatch.setattr(running, "judged", at_once)
    monkeypatch.setattr(outside, "ROOT", tmp_path)


def seed_with_deletions() -> int:
    return next(seed for seed in range(100) if judging(told(seed, outside.SECONDS)).verdict.findings)


def test_a_story_with_findings_is_told_kept_and_ends_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    seed = seed_with_deletions()
    assert outside.main(["--seed", str(seed)]) == 1
    printed = capsys.readouterr().out
    assert "over-quota: ClusterQueue q: 6 are used, 4 may be" in printed
    assert "outside: 1 of 1 stories with findings, 5 admissions, 2 evictions, 0 s of CPU" in printed
    kept = msgspec.json.decode((tmp_path / f"build/outside-{seed}.json").read_bytes(), type=Story)
    assert kept == told(seed, outside.SECONDS)


def test_a_story_that_cannot_end_in_time_is_not_begun(capsys: pytest.CaptureFixture[str]) -> None:
    assert outside.main(["--for", "1"]) == 2
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("outside: no story is begun: 1 s are left, one takes ")
    assert last.startswith("outside: 0 of 0 stories with findings")


def test_stories_are_begun_as_long_as_another_one_can_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Clock:
        now_s = 0.0

        @staticmethod
        def monotonic() -> float:
            return Clock.now_s

        process_time = monotonic

    def takes_20_s(work: Coroutine[Any, Any, Outcome]) -> Outcome:
        work.close()
        Clock.now_s += 20.0
        return Outcome(())

    monkeypatch.setattr(outside, "time", Clock)
    monkeypatch.setattr(warp, "run", takes_20_s)
    assert outside.main(["--for", "70"]) == 0
    printed = capsys.readouterr().out
    assert "outside: 40 s: 2 stories ended" in printed
    assert "outside: 0 of 3 stories with findings" in printed


def test_a_replayed_story_is_made_as_small_as_it_still_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "story.json"
    file.write_bytes(msgspec.json.encode(told(seed_with_deletions(), outside.SECONDS)))
    assert outside.main(["--replay", str(file), "--minimise"]) == 1
    (act,) = [line for line in capsys.readouterr().out.splitlines() if " s: " in line]
    assert "delete Job" in act


def test_a_controller_that_ends_by_itself_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def dies(_: Story) -> Told:
        raise RuntimeError("two in one place")

    monkeypatch.setattr(running, "judged", dies)
    assert outside.main(["--seed", "1"]) == 1
    assert "the controller ended: RuntimeError: two in one place" in capsys.readouterr().out


def test_the_real_controller_runs_a_story_and_the_judge_has_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "QUIET_S", 1.0)
    story = told(1, 3.0)
    again = next(each for each in story.acts if each.kind == "Job")
    again = msgspec.structs.replace(again, at_s=3.0)  # it is there already: passed over
    story = msgspec.structs.replace(story, acts=(*story.acts, again))
    ran = warp.run(REALLY(story))
    assert ran.verdict.findings == ()
    assert ran.verdict.facts > 20
    assert ran.admitted > 0
