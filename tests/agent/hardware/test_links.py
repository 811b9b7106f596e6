"""The link matrix from each GPU's own ends."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from agent.hardware.driver import remember_links
from agent.hardware.gpus import link_matrix
from inventory.devices import Gpu, NvLink, RemoteType
from inventory.links import UNKNOWN_LINK, Link, PcieLevel
from tests.support.inventory.builders import gpu

SWITCH = NvLink(0, active=True, remote_type=RemoteType.SWITCH, remote_pci_bus_id="0000:aa:00.0")


def linked(index: int, links: Sequence[NvLink]) -> Gpu:
    numbered = tuple(structs.replace(link, link=n) for n, link in enumerate(links))
    return structs.replace(gpu(index), nvlinks=numbered)


def to(index: int, *, active: bool = True) -> NvLink:
    """A link to the GPU of that index."""
    return NvLink(0, active=active, remote_type=RemoteType.GPU, remote_pci_bus_id=gpu(index).pci_bus_id)


def test_direct_links_count_where_both_ends_see_them() -> None:
    links = link_matrix([linked(0, [to(1), to(1)]), linked(1, [to(0), to(0)]), linked(2, [])], {})
    assert (links[0][1].nvlinks, links[1][0].nvlinks, links[0][2].nvlinks) == (2, 2, 0)


def test_a_link_that_one_end_calls_down_does_not_count() -> None:
    links = link_matrix([linked(0, [to(1), to(1)]), linked(1, [to(0), to(0, active=False)])], {})
    assert links[0][1].nvlinks == links[1][0].nvlinks == 1


def test_switch_lanes_count_up_to_the_smaller_number() -> None:
    links = link_matrix([linked(0, [SWITCH] * 12), linked(1, [SWITCH] * 11), linked(2, [])], {})
    assert (links[0][1].nvswitch, links[0][2].nvswitch) == (11, 0)
    assert links[0][1].nvlinks == 0


def test_pcie_levels_hold_both_ways_and_unknown_ones_stay_unknown() -> None:
    ancestors = {(0, 1): 10, (1, 2): 77}
    links = link_matrix([gpu(0), gpu(1), gpu(2)], ancestors)
    assert links[0][1].pcie is links[1][0].pcie is PcieLevel.PIX
    assert links[1][2].pcie is None
    assert links[0][2] == Link()


def test_a_link_whose_end_is_hidden_counts_for_no_pair() -> None:
    hidden = NvLink(0, active=True)
    assert link_matrix([linked(0, [hidden]), linked(1, [hidden])], {})[0][1].nvlinks == 0


def test_no_gpu_and_one_gpu_have_their_matrix() -> None:
    assert link_matrix([], {}) == ()
    assert link_matrix([gpu(0)], {}) == ((UNKNOWN_LINK,),)


ENDS = st.one_of(st.integers(0, 3).map(to), st.integers(0, 3).map(lambda i: to(i, active=False)), st.just(SWITCH))


@given(
    st.lists(st.lists(ENDS, max_size=6), max_size=4),
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(-5, 60)),
)
def test_whatever_the_ends_say_the_matrix_is_symmetric(
    ends: list[list[NvLink]], ancestors: dict[tuple[int, int], int]
) -> None:
    links = link_matrix([linked(i, links) for i, links in enumerate(ends)], ancestors)
    n = len(ends)
    assert [len(row) for row in links] == [n] * n
    for i in range(n):
        assert links[i][i] == UNKNOWN_LINK
        for j in range(n):
            assert links[i][j] == links[j][i]


def test_a_link_that_goes_down_keeps_the_end_it_had() -> None:
    before = linked(0, [to(1), SWITCH])
    now = linked(0, [NvLink(0, active=False), NvLink(0, active=False)])
    kept = remember_links(now, before).nvlinks
    assert [(link.active, link.remote_type, link.remote_pci_bus_id) for link in kept] == [
        (False, RemoteType.GPU, gpu(1).pci_bus_id),
        (False, RemoteType.SWITCH, SWITCH.remote_pci_bus_id),
    ]


def test_a_link_that_is_up_is_believed_over_the_memory_of_it() -> None:
    assert remember_links(linked(0, [to(2)]), linked(0, [to(1)])) == linked(0, [to(2)])
    assert remember_links(linked(0, [to(2)]), None) == linked(0, [to(2)])
