"""Placeholders that have devices give way to pods that wait for their node."""

from hypothesis import given
from hypothesis import strategies as st

from controller.reconcile.provisioning.givingway import LONGEST_S, GivingWay
from controller.scheduler.model.resources import WorkloadKey

KEY = WorkloadKey("team/train")


def test_none_is_made_again_while_the_pod_waits_and_not_for_ever() -> None:
    known = GivingWay()
    assert known.tell("team/p", "n1")
    assert known.is_awaited("n1")
    known.gave(KEY, "n1", 10.0)
    assert known.holds_back(KEY, 10.0 + LONGEST_S - 1.0)
    assert not known.holds_back(KEY, 10.0 + LONGEST_S), "the pod waits for something else"
    known.gave(KEY, "n1", 100.0)
    assert not known.tell("team/p", ""), "it has its node"
    assert not known.holds_back(KEY, 100.0)


def test_who_did_not_give_way_is_not_held_back() -> None:
    known = GivingWay()
    known.tell("team/p", "n1")
    assert not known.holds_back(KEY, 0.0)
    known.gave(KEY, "n1", 0.0)
    known.forget(KEY)
    assert not known.holds_back(KEY, 0.0)


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from(["", "n1", "n2"])), max_size=20))
def test_a_node_is_awaited_by_the_pods_that_were_last_sent_to_it(told: list[tuple[str, str]]) -> None:
    known, last = GivingWay(), dict[str, str]()
    for pod, node in told:
        assert known.tell(pod, node) == (node != "" and last.get(pod) != node)
        last[pod] = node
        known.validate()
    assert {node for node in ("n1", "n2") if known.is_awaited(node)} == {node for node in last.values() if node}
