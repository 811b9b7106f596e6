"""Planned devices of pods, against those that they got."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from controller.reconcile.placing.planresults import PlannedPod, PlanOutcome, PlanResults
from controller.scheduler.model.resources import WorkloadKey


def planned_pod(uid: str, *devices: str, workload: str = "ns/w", pod_set: str = "main") -> PlannedPod:
    return PlannedPod(uid=uid, workload=WorkloadKey(workload), pod_set=pod_set, devices=tuple(sorted(devices)))


def results(*pods: tuple[str, PlannedPod], held: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """What is said, in either order of events."""
    one, other = PlanResults(), PlanResults()
    first = [each for pod, what in pods for each in one.set_pod(pod, what)] + one.set_node("n", held)
    second = other.set_node("n", held) + [each for pod, what in pods for each in other.set_pod(pod, what)]
    one.validate()
    other.validate()
    assert {each.pod for each in first} == {each.pod for each in second}
    return {each.pod: each.kind.value for each in first}


def test_what_was_planned_is_honoured() -> None:
    assert results(("a", planned_pod("1", "g1", "g0")), held={"a": ("g0", "g1")}) == {"a": "honoured"}


def test_pods_of_one_pod_set_swap() -> None:
    pods = ("a", planned_pod("1", "g0")), ("b", planned_pod("2", "g1"))
    assert results(*pods, held={"a": ("g1",), "b": ("g0",)}) == {"a": "swapped", "b": "swapped"}


def test_pods_of_different_pod_sets_drift() -> None:
    pods = ("a", planned_pod("1", "g0")), ("b", planned_pod("2", "g1", pod_set="other"))
    assert results(*pods, held={"a": ("g1",)}) == {"a": "drifted"}


def test_a_pod_that_has_not_got_all_its_devices_yet_is_not_judged() -> None:
    core = PlanResults()
    assert core.set_pod("a", planned_pod("1", "g0", "g1")) == []
    assert core.set_node("n", {"a": ("g0",)}) == []
    (found,) = core.set_node("n", {"a": ("g0", "g1")})
    assert found.kind is PlanOutcome.HONOURED


def test_a_pod_is_judged_once_and_its_successor_anew() -> None:
    core = PlanResults()
    core.set_pod("a", planned_pod("1", "g0"))
    assert len(core.set_node("n", {"a": ("g5",)})) == 1
    assert core.set_node("n", {"a": ("g5",)}) == []
    assert core.set_pod("a", planned_pod("2", "g0")) == []
    assert len(core.set_node("n", {"a": ("g5",)})) == 1


def test_what_was_reported_of_a_pod_that_is_gone_says_nothing_of_the_next_of_its_name() -> None:
    core = PlanResults()
    core.set_pod("a", planned_pod("1", "g0"))
    core.set_node("n", {"a": ("g0",)})
    core.set_pod("a", None)
    assert core.set_pod("a", planned_pod("2", "g1")) == []
    assert core.set_pod("a", planned_pod("3", "g2")) == []
    (found,) = core.set_node("n", {"a": ("g2",)})
    assert (found.uid, found.kind) == ("3", PlanOutcome.HONOURED)


@example(
    [
        ("pod", "b", "2", "x"),
        ("node", "n", {"b": ("x",)}),
        ("node", "n", {}),
        ("pod", "b", "1", "x"),
        ("pod", "b", "2", "x"),
        ("node", "n", {"a": ("x",), "b": ("x",)}),
    ]
)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pod"), st.sampled_from("ab"), st.sampled_from(["", "1", "2"]), st.sampled_from("xy")),
            st.tuples(st.just("node"), st.sampled_from("nm"), st.dictionaries(st.sampled_from("ab"), st.just(("x",)))),
        ),
        max_size=20,
    )
)
def test_nobody_is_judged_twice(steps: Any) -> None:
    core, judged = PlanResults(), list[tuple[str, int]]()
    known: dict[str, tuple[str, int]] = {}
    """By name the uid of the pod that has it, and which of its bearers that one is: a uid that is back is a new one."""
    for step in steps:
        match step:
            case ("pod", pod, uid, device):
                before, bearer = known.get(pod, ("", 0))
                known[pod] = uid, bearer + (uid != before)
                found = core.set_pod(pod, planned_pod(uid, device) if uid else None)
            case (_, node, held):
                found = core.set_node(node, held)
        core.validate()
        assert all(known[one.pod][0] == one.uid for one in found)
        judged += [(one.pod, known[one.pod][1]) for one in found]
    assert len(set(judged)) == len(judged)
