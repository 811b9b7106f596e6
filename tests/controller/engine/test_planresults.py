"""Pods that were told their devices, against what they got."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.planresults import Kind, PlanResults, Told
from controller.engine.resources import WorkloadKey


def told(uid: str, *devices: str, workload: str = "ns/w", pod_set: str = "main") -> Told:
    return Told(uid=uid, workload=WorkloadKey(workload), pod_set=pod_set, devices=tuple(sorted(devices)))


def results(*pods: tuple[str, Told], held: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """What is said, in either order of events."""
    one, other = PlanResults(), PlanResults()
    first = [each for pod, what in pods for each in one.set_pod(pod, what)] + one.set_node("n", held)
    second = other.set_node("n", held) + [each for pod, what in pods for each in other.set_pod(pod, what)]
    one.validate()
    other.validate()
    assert {each.pod for each in first} == {each.pod for each in second}
    return {each.pod: each.kind.value for each in first}


def test_what_was_planned_is_honoured() -> None:
    assert results(("a", told("1", "g1", "g0")), held={"a": ("g0", "g1")}) == {"a": "honoured"}


def test_pods_of_one_pod_set_swap() -> None:
    pods = ("a", told("1", "g0")), ("b", told("2", "g1"))
    assert results(*pods, held={"a": ("g1",), "b": ("g0",)}) == {"a": "swapped", "b": "swapped"}


def test_pods_of_different_pod_sets_drift() -> None:
    pods = ("a", told("1", "g0")), ("b", told("2", "g1", pod_set="other"))
    assert results(*pods, held={"a": ("g1",)}) == {"a": "drifted"}


def test_a_pod_that_has_not_got_all_its_devices_yet_is_not_judged() -> None:
    core = PlanResults()
    assert core.set_pod("a", told("1", "g0", "g1")) == []
    assert core.set_node("n", {"a": ("g0",)}) == []
    (found,) = core.set_node("n", {"a": ("g0", "g1")})
    assert found.kind is Kind.HONOURED


def test_a_pod_is_judged_once_and_its_successor_anew() -> None:
    core = PlanResults()
    core.set_pod("a", told("1", "g0"))
    assert len(core.set_node("n", {"a": ("g5",)})) == 1
    assert core.set_node("n", {"a": ("g5",)}) == []
    assert len(core.set_pod("a", told("2", "g0"))) == 1


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
    core, judged = PlanResults(), list[tuple[str, str]]()
    for step in steps:
        match step:
            case ("pod", pod, "", _):
                found = core.set_pod(pod, None)
                judged = [one for one in judged if one[0] != pod]
            case ("pod", pod, uid, device):
                found = core.set_pod(pod, told(uid, device))
            case (_, node, held):
                found = core.set_node(node, held)
        core.validate()
        judged += [(one.pod, one.uid) for one in found]
    # One of another uid took its place, and came back: then it is somebody new.
    assert all(judged.count(one) == 1 or len({uid for pod, uid in judged if pod == one[0]}) > 1 for one in judged)
