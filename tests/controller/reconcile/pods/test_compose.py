"""What the workload of pods is to say of them, and what is put right when it says it no more."""

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.settings import JobSettings
from tests.support.controller.podworld import PodWorld, member, pod

TEAM, GATED_BY = "team", names.ADMISSION_GATED_BY
COPYING = JobSettings(label_keys_to_copy=(TEAM,))


@pytest.mark.parametrize("of_a_group", [False, True])
def test_labels_and_annotations_that_were_taken_from_the_workload_come_back(*, of_a_group: bool) -> None:
    labels, notes = {TEAM: "vision"}, {GATED_BY: "a.example/gate"}
    raw = member("a", 1, labels=labels, notes=notes) if of_a_group else pod("a", labels=labels, notes=notes)
    world = PodWorld(raw, settings=COPYING)
    world.settle()
    meta = world.workload["metadata"]
    before = {part: dict(meta[part]) for part in ("labels", "annotations")}
    assert before["labels"][TEAM] == "vision"
    assert before["annotations"][GATED_BY] == "a.example/gate"
    meta["labels"], meta["annotations"] = {"other": "stays"}, {"other": "stays"}
    world.settle()
    after = world.workload["metadata"]
    assert after["labels"] == {**labels, "other": "stays"}
    assert after["annotations"] == {**notes, "other": "stays"}


def test_the_gate_leaves_the_workload_when_it_has_left_the_pod() -> None:
    world = PodWorld(pod("a", notes={GATED_BY: "a.example/gate"}))
    world.settle()
    del world.pods["a"]["metadata"]["annotations"][GATED_BY]
    world.settle()
    assert GATED_BY not in world.workload["metadata"]["annotations"]
