"""What decisions say of themselves: codes, sentences, numbers, and the story they leave."""

import pytest

from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.decisions.sentences import details, listed, sentence
from controller.scheduler.decisions.stories import Stories
from controller.scheduler.flavors.assignment import (
    Assignment,
    FlavorAttempt,
    Mode,
    NoFitReason,
    PodSetChoice,
    QuotaNoFit,
)
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, FlavorResource, ResourceName, WorkloadKey
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

GPU, CPU = ResourceName("nvidia.com/gpu"), ResourceName("cpu")


def attempt(name: str, *shortfalls: QuotaNoFit, problem: str = "") -> FlavorAttempt:
    return FlavorAttempt(flavor=FlavorName(name), mode=Mode.NO_FIT, shortfalls=shortfalls, problem=problem)


def record(
    *attempts: FlavorAttempt,
    rule: Rule = Rule.NO_FIT,
    why: NoFitReason = NoFitReason.WaitingForQuota,
    detail: str = "",
) -> DecisionRecord:
    pod_set = PodSetChoice(name="main", count=2, requests={GPU: 8, CPU: 1500}, attempts=attempts)
    made = Assignment(pod_sets=(pod_set,), mode=Mode.NO_FIT, usage={}, no_fit_reason=why)
    return DecisionRecord(
        at_s=1.0,
        workload=WorkloadKey("ns/w"),
        cluster_queue=ClusterQueueName("q"),
        rule=rule,
        assignment=made,
        detail=detail,
    )


def lacks(needed: int, available: int, potential: int = 100, resource: ResourceName = GPU) -> QuotaNoFit:
    return QuotaNoFit(resource, needed, available, potential, nominal=10, used=10 - available)


@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_has_a_code_and_a_sentence(rule: Rule) -> None:
    made = record(attempt("a", lacks(8, 2)), rule=rule, detail="x")
    assert made.reason in PendingReason
    said = sentence(made)
    assert said
    assert "{" not in said


@pytest.mark.parametrize("why", [one for one in NoFitReason if one is not NoFitReason.NONE])
def test_the_code_of_what_does_not_fit_is_the_assigners(why: NoFitReason) -> None:
    assert record(why=why).reason == why.name


def test_what_fits_nowhere_for_no_stated_reason_waits_for_quota() -> None:
    assert record(why=NoFitReason.NONE).reason is PendingReason.WAITING_FOR_QUOTA


def test_the_smallest_change_is_the_flavor_with_the_smallest_missing_part() -> None:
    missing = record(attempt("far", lacks(8, 1)), attempt("near", lacks(8, 6)), attempt("mid", lacks(8, 4))).missing()
    assert missing is not None
    assert missing.flavor == "near"


def test_what_no_waiting_can_give_is_no_small_change() -> None:
    missing = record(attempt("never", lacks(8, 7, potential=7)), attempt("later", lacks(8, 0))).missing()
    assert missing is not None
    assert missing.flavor == "later"


def test_a_flavor_lacks_as_much_as_the_resource_it_lacks_most_of() -> None:
    both = attempt("both", lacks(8, 7), lacks(1000, 0, resource=CPU))
    missing = record(both, attempt("one", lacks(8, 4))).missing()
    assert missing is not None
    assert missing.flavor == "one"


def test_the_sentence_names_numbers_and_the_flavors_that_cannot_be() -> None:
    said = sentence(record(attempt("h100", lacks(8, 6)), attempt("old", problem="taint x is not tolerated")))
    assert said == (
        "Needs 8 nvidia.com/gpu of flavor h100: 6 free, 2 more needed; flavor old: taint x is not tolerated"
    )


def test_what_is_known_beside_the_numbers_comes_last() -> None:
    said = sentence(record(attempt("h100", lacks(8, 6)), detail="nothing moves now"))
    assert said == "Needs 8 nvidia.com/gpu of flavor h100: 6 free, 2 more needed; nothing moves now"


def test_more_than_can_ever_be_had_is_said_as_such() -> None:
    said = sentence(record(attempt("h100", lacks(8, 2, potential=4))))
    most = "Asks for 8 nvidia.com/gpu of flavor h100 where the queue can have 4 at most"
    assert said == f"{most} (ask for less, or raise its quota)"


def test_details_show_the_arithmetic_of_each_flavor() -> None:
    assert details(record(attempt("h100", lacks(8, 6)))) == [
        "pod set main: 2 pods, cpu 1500m, nvidia.com/gpu 8",
        "  flavor h100: does not fit",
        "    nvidia.com/gpu: needs 8, free 6, quota 10 of which used 4, at most 100 with all that may be borrowed",
    ]


def test_a_long_list_is_cut_with_its_length() -> None:
    assert listed(map(str, range(10))) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert listed(["a"]) == "a"


def test_a_story_tells_changes_and_forgets_the_quietest() -> None:
    stories = Stories(workloads=2, length=2)
    first = record(rule=Rule.NO_FIT)
    for rule in (Rule.NO_FIT, Rule.NO_FIT, Rule.PREEMPTS, Rule.FITS):
        stories.tell(record(rule=rule))
    assert [one.rule for one in stories.of(first.workload)] == [Rule.PREEMPTS, Rule.FITS]
    for name in ("ns/x", "ns/y"):
        other = DecisionRecord(
            at_s=2.0, workload=WorkloadKey(name), cluster_queue=ClusterQueueName("q"), rule=Rule.FITS
        )
        stories.tell(other)
    assert stories.of(first.workload) == ()
    assert len(stories) == 2


def test_who_holds_most_of_the_tree_is_told_first() -> None:
    it = World()
    it.put(flavor(), cluster_queue("a", 9, cohort="c"), cluster_queue("b", 9, cohort="c"), cluster_queue("z", 9))
    it.put(local_queue("a"), local_queue("b"), local_queue("z"))
    it.put(workload("one", "a", 2), workload("two", "b", 5), workload("three", "a", 3), workload("away", "z", 9))
    it.settle()
    fr = FlavorResource(FlavorName("default"), ResourceName("gpu"))
    held = it.engine.held_by(ClusterQueueName("a"), fr, limit=2)
    assert held == [("ns/two", "b", 5), ("ns/three", "a", 3)]
