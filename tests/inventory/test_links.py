"""Pair scores: NVLink outweighs PCIe, NVSwitch lanes count, and odd directions never raise a score."""

from hypothesis import given
from hypothesis import strategies as st

from inventory.links import PCIE_SCORE, UNKNOWN_LINK, Link, PcieLevel, scores

LINKS = st.builds(
    Link, pcie=st.none() | st.sampled_from(PcieLevel), nvlinks=st.integers(0, 18), nvswitch=st.integers(0, 18)
)


@given(LINKS, LINKS)
def test_more_lanes_always_score_higher_than_a_nearer_pcie_place(one: Link, other: Link) -> None:
    lanes = one.nvlinks + one.nvswitch, other.nvlinks + other.nvswitch
    if lanes[0] != lanes[1]:
        assert (one.score > other.score) == (lanes[0] > lanes[1])


def test_nearer_on_pcie_scores_higher() -> None:
    nearest_first = [PcieLevel.PSB, PcieLevel.PIX, PcieLevel.PXB, PcieLevel.PHB, PcieLevel.NODE, PcieLevel.SYS]
    assert [Link(pcie=level).score for level in nearest_first] == [60, 50, 40, 30, 20, 10]
    assert set(PCIE_SCORE) == set(PcieLevel)


def test_an_unknown_link_scores_nothing_and_says_so() -> None:
    assert UNKNOWN_LINK.score == 0
    assert UNKNOWN_LINK.label == "?"


def test_labels_are_those_of_the_topology_matrix() -> None:
    assert Link(pcie=PcieLevel.SYS).label == "SYS"
    assert Link(pcie=PcieLevel.SYS, nvlinks=2).label == "NV2"
    assert Link(nvswitch=12).label == "NV12"


@given(st.data(), st.integers(0, 4))
def test_scores_are_symmetric_non_negative_and_never_above_the_worse_direction(data: st.DataObject, n: int) -> None:
    links = [[data.draw(LINKS) for _ in range(n)] for _ in range(n)]
    matrix = scores(links)
    for i in range(n):
        assert matrix[i][i] == 0
        for j in range(n):
            assert matrix[i][j] == matrix[j][i]
            if i != j:
                assert 0 <= matrix[i][j] == min(links[i][j].score, links[j][i].score)
