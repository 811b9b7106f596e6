"""A grant counts from Allocate's answer on, until the kubelet has listed it or has not for a minute."""

from hypothesis import given
from hypothesis import strategies as st

from agent.kubelet.grants import UNLISTED_S, Grants, Shown
from inventory.devices import DeviceId, ResourceName

GPU, SHARED = ResourceName("nvidia.com/gpu"), ResourceName("nvidia.com/gpu.shared")
A, B = DeviceId("GPU-0"), DeviceId("GPU-1")


def test_a_grant_counts_until_a_list_that_began_after_it_shows_the_device() -> None:
    grants = Grants()
    grants.granted(GPU, [A, B], 10.0)
    assert not grants.listed({(GPU, A)}, 10.0), "that list was asked for before"
    assert grants.listed({(GPU, A)}, 10.1)
    assert grants.open == {B: GPU}


def test_a_grant_that_no_list_shows_counts_for_a_minute_after_the_first_list_that_could_have() -> None:
    grants = Grants()
    grants.granted(GPU, [A], 10.0)
    assert not grants.listed(set(), 100.0), "long after, and the first"
    assert not grants.listed(set(), 100.0 + UNLISTED_S - 0.1)
    assert grants.listed(set(), 100.0 + UNLISTED_S)
    assert grants.open == {}


def test_without_a_list_a_grant_counts_for_ever_and_a_list_that_comes_late_is_passed_over() -> None:
    grants = Grants()
    grants.granted(GPU, [A], 10.0)
    grants.listed(set(), 11.0)
    assert not grants.listed({(GPU, A)}, 10.5), "it was asked for before the one that was taken in"
    assert grants.open == {A: GPU}


def test_a_device_that_another_resource_lists_under_the_same_name_is_not_the_grant() -> None:
    grants = Grants()
    grants.granted(GPU, [A], 10.0)
    assert not grants.listed({(SHARED, A)}, 11.0)
    assert grants.open == {A: GPU}


def test_a_device_that_is_given_anew_counts_anew() -> None:
    grants = Grants()
    grants.granted(GPU, [A], 10.0)
    grants.listed(set(), 11.0)
    grants.granted(SHARED, [A], 50.0)
    assert not grants.listed(set(), 11.0 + UNLISTED_S)
    assert grants.open == {A: SHARED}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["grant", "list", "late list"]),
        st.lists(st.tuples(st.sampled_from([GPU, SHARED]), st.sampled_from([A, B])), max_size=3),
        st.floats(0.0, 70.0),
    ),
    max_size=30,
)


@given(STEPS)
def test_an_open_grant_is_one_that_no_later_list_has_shown_or_missed_for_a_minute(
    steps: list[tuple[str, list[Shown], float]],
) -> None:
    grants, now_s = Grants(), 0.0
    given: dict[DeviceId, tuple[ResourceName, float]] = {}
    lists: list[tuple[float, set[Shown]]] = []
    for kind, what, passed_s in steps:
        now_s += passed_s
        if kind == "grant":
            for resource, device in what:
                grants.granted(resource, [device], now_s)
                given[device] = (resource, now_s)
        else:
            began_s = now_s if kind == "list" else now_s - passed_s / 2
            grants.listed(set(what), began_s)
            if began_s > max((began for began, _ in lists), default=float("-inf")):
                lists.append((began_s, set(what)))
        grants.validate()
        assert grants.open.keys() == {
            device
            for device, (resource, at_s) in given.items()
            if counts([(began_s, (resource, device) in shown) for began_s, shown in lists if began_s > at_s])
        }


def counts(later: list[tuple[float, bool]]) -> bool:
    """From the Lists that began after a grant, in order, each with whether it shows the device."""
    return not any(shows for _, shows in later) and (not later or later[-1][0] - later[0][0] < UNLISTED_S)
