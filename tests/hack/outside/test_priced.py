"""Stories of policy tessera: jobs that tell of checkpoints, queues with calendars, and the judge's verdict on them."""

import pytest

from controller.objects.decode import decode
from controller.objects.queues import ClusterQueue
from controller.scheduler.quota.calendar import calendar_of, next_change_s
from hack.outside import running, warp
from hack.outside.priced import CALENDAR, FROM, LAST, is_priced
from hack.outside.story import told
from hack.outside.warp import EPOCH_S

PRICED = [seed for seed in range(FROM, FROM + 120) if is_priced(seed)]


def test_the_stories_that_are_a_net_for_planted_faults_are_as_they_were() -> None:
    assert not any(told(seed, 5.0).tessera for seed in range(1, FROM))
    assert len(PRICED) == 40


def test_every_third_story_behind_them_has_checkpoints_and_most_have_windows() -> None:
    texts = [" ".join(each.told() for each in told(seed, 12.0).acts) for seed in PRICED]
    assert all("tessera.dev/checkpoint-interval" in text for text in texts)
    assert sum(CALENDAR in text for text in texts) > len(texts) / 2
    assert sum(LAST in text for text in texts) > len(texts) / 2


def test_every_window_is_right_and_begins_or_ends_while_the_story_goes_on() -> None:
    queues = [
        act for seed in PRICED for act in told(seed, 12.0).acts if (act.verb, act.kind) == ("create", "ClusterQueue")
    ]
    found = [
        calendar_of(
            decode({"metadata": {"name": act.name, **act.body["metadata"]}, "spec": act.body["spec"]}, ClusterQueue)
        )
        for act in queues
        if CALENDAR in act.body.get("metadata", {}).get("annotations", {})
    ]
    assert len(found) > 20
    for calendar in found:
        assert calendar.problems == ()
        changes_s = next_change_s(calendar.entries, EPOCH_S)
        assert changes_s is not None
        assert 5.0 < changes_s - EPOCH_S < 12.0


@pytest.mark.parametrize("seed", PRICED[:3])
def test_with_checkpoints_and_calendars_the_judge_has_nothing_to_say(seed: int) -> None:
    ran = warp.run(running.judged(told(seed, 12.0)))
    assert ran.verdict.findings == ()
    assert ran.admitted > 0
    assert ran.evicted > 0
