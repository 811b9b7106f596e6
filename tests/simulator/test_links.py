import pynvml
import pytest

from simulator.boards import wiring as topology
from simulator.boards.wiring import DGX1_LINKS
from tests.simulator.conftest import Simulate, gpu, node


def link_matrix(gpus: int) -> list[list[int]]:
    """Direct link counts as an agent works them out: links up whose remote address is the peer's."""
    address = {pynvml.nvmlDeviceGetPciInfo(gpu(i)).busId: i for i in range(gpus)}
    matrix = [[0] * gpus for _ in range(gpus)]
    for i in range(gpus):
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            try:
                if not pynvml.nvmlDeviceGetNvLinkState(gpu(i), link):
                    continue
            except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported):
                break
            if pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu(i), link) == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                matrix[i][address[pynvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(i), link).busId]] += 1
    return matrix


def test_a_dgx1_is_a_cube_mesh(simulate: Simulate) -> None:
    simulate(node(8, "Tesla V100-SXM2-16GB"))
    assert link_matrix(8) == [list(row) for row in DGX1_LINKS]


def test_bridged_boards_are_linked_in_pairs(simulate: Simulate) -> None:
    simulate(node(4, "NVIDIA RTX A6000"))
    assert link_matrix(4) == [[0, 4, 0, 0], [4, 0, 0, 0], [0, 0, 0, 4], [0, 0, 4, 0]]


def test_a_matrix_is_wired_as_it_says(simulate: Simulate) -> None:
    matrix = [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    simulate(node(3, "Tesla T4", f"  nvlink: {matrix}\n"))
    assert link_matrix(3) == matrix


@pytest.mark.parametrize(
    ("product", "gpus", "links", "remote"),
    [
        ("NVIDIA A100-SXM4-40GB", 8, 12, "00000000:C4:00.0"),
        ("NVIDIA H100 80GB HBM3", 8, 18, "FFFFFFFF:FF:FF.F"),
        ("Tesla V100-SXM3-32GB", 16, 6, "00000000:C4:00.0"),
    ],
)
def test_all_links_of_a_switched_board_end_at_switches(
    simulate: Simulate, product: str, gpus: int, links: int, remote: str
) -> None:
    simulate(node(gpus, product))
    handle = gpu(gpus - 1)
    kinds = [pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) for link in range(links)]
    assert kinds == [pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH] * links
    assert pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, 0).busId == remote
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetNvLinkState(handle, links)


def test_a_board_without_nvlink_does_not_support_it(simulate: Simulate) -> None:
    simulate(node(2, "NVIDIA L40S"))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetNvLinkState(gpu(), 0)


def test_a_link_that_is_down_is_down_at_both_ends(simulate: Simulate) -> None:
    simulate(node(2, "NVIDIA RTX A6000", "events:\n- {at: 0, gpu: 0, nvlinkDown: [1, 3]}\n"))
    states = [[pynvml.nvmlDeviceGetNvLinkState(gpu(i), link) for link in range(4)] for i in range(2)]
    assert states == [[1, 0, 1, 0], [1, 0, 1, 0]]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(1), 3)


def test_links_of_a_lost_peer_are_down(simulate: Simulate) -> None:
    simulate(node(2, "NVIDIA RTX A6000", "events:\n- {at: 0, gpu: 0, lost: true}\n"))
    assert [pynvml.nvmlDeviceGetNvLinkState(gpu(1), link) for link in range(4)] == [0, 0, 0, 0]


def test_distance_is_what_the_fleet_says(simulate: Simulate) -> None:
    simulate(node(3, "Tesla T4", "  pcie: [[X, PIX, NODE], [PIX, X, NODE], [NODE, NODE, X]]\n"))
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(1)) == pynvml.NVML_TOPOLOGY_SINGLE
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(2)) == pynvml.NVML_TOPOLOGY_NODE
    near = pynvml.nvmlDeviceGetTopologyNearestGpus(gpu(2), pynvml.NVML_TOPOLOGY_NODE)
    assert [pynvml.nvmlDeviceGetIndex(handle) for handle in near] == [0, 1]
    assert not pynvml.nvmlDeviceOnSameBoard(gpu(0), gpu(1))


def test_peer_access_over_nvlink_needs_a_path(simulate: Simulate) -> None:
    simulate(node(4, "NVIDIA RTX A6000"))
    nvlink = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    assert pynvml.nvmlDeviceGetP2PStatus(gpu(0), gpu(1), nvlink) == pynvml.NVML_P2P_STATUS_OK
    assert pynvml.nvmlDeviceGetP2PStatus(gpu(0), gpu(2), nvlink) == pynvml.NVML_P2P_STATUS_NOT_SUPPORTED


def fabric(index: int) -> tuple[int, bytes, int]:
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(gpu(index), pynvml.byref(info))
    return info.state, bytes(info.clusterUuid), info.cliqueId


def test_a_clique_is_told_with_its_cluster(simulate: Simulate) -> None:
    cluster = "11111111-2222-3333-4444-555555555555"
    simulate(node(2, "NVIDIA GB200", f"  fabricClusterUuid: {cluster}\n  cliqueId: 7\n"))
    assert fabric(1) == (pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, bytes.fromhex(cluster.replace("-", "")), 7)


def test_one_switched_board_has_a_fabric_without_a_cluster(simulate: Simulate) -> None:
    simulate(node(1, "NVIDIA H100 80GB HBM3"))
    assert fabric(0) == (pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, bytes(16), 0)


def test_boards_before_hopper_have_no_fabric(simulate: Simulate) -> None:
    simulate(node(1))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        fabric(0)


def test_both_ends_of_every_direct_link_agree() -> None:
    ends = topology.link_ends(DGX1_LINKS, 0)
    for i, links in enumerate(ends):
        for number, end in enumerate(links):
            assert end.peer is not None
            back = ends[end.peer][end.remote_link]
            assert (back.peer, back.remote_link) == (i, number)
