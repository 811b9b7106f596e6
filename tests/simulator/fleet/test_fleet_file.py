from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.boards.products import PRODUCTS
from simulator.fleet.fleetfile import load_fleet
from simulator.reading import InputError
from tests.simulator.conftest import node

Write = Callable[[str], Path]

DESIGN = """
driver: {version: "570.124.06", cuda: "12.8"}
nodes:
- name: node-1
  labels: {topology.example/rack: r1}
  gpus: 8
  product: NVIDIA A100-SXM4-80GB
  uuidPrefix: "GPU-00000000-0000-0000-0000-"
  nvlink: full
  pcie: [[0, 1, 2, 3], [4, 5, 6, 7]]
  allocatable: {cpu: "128", memory: 2Ti, pods: "110"}
  migEnabled: [4, 5]
  mig: {4: [3g.40gb, 3g.40gb], 5: [1g.10gb, 1g.10gb]}
events:
- {at: 2.0, node: node-1, gpu: 3, xid: 79}
- {at: 9.0, node: node-1, gpu: 3, reset: true}
- {at: 9.5, node: node-1, gpu: 3, ecc: {volatile: 2}}
- {at: 9.6, node: node-1, gpu: 3, remapFailure: true}
- {at: 9.7, node: node-1, gpu: 3, nvlinkDown: [1, 2]}
- {at: 9.8, node: node-1, driver: down}
- {at: 9.9, node: node-1, driver: up}
- {at: 10, node: node-1, gpu: 1, slow: {call: nvmlDeviceGetMemoryInfo, seconds: 3}}
load:
- {node: node-1, gpu: 0, smUtil: 0.9, memUsedMiB: 40960, powerW: 380, pid: 4242}
"""


def test_the_documented_example_is_read_whole(fleet: Write) -> None:
    read = load_fleet(fleet(DESIGN))
    spec = read.node("node-1")
    assert (read.driver, read.cuda) == ("570.124.06", 12080)
    assert spec.labels == {"topology.example/rack": "r1"}
    assert spec.allocatable["memory"] == "2Ti"
    assert [gpu.uuid for gpu in spec.gpus][7] == "GPU-00000000-0000-0000-0000-000000000007"
    assert [gpu.numa_node for gpu in spec.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert spec.mig == {4: ("3g.40gb", "3g.40gb"), 5: ("1g.10gb", "1g.10gb")}
    assert [event.at for event in spec.events] == [2, 9, 9.5, 9.6, 9.7, 9.8, 9.9, 10]
    assert spec.loads[0].pid == 4242


def test_generated_uuids_count_in_decimal(fleet: Write) -> None:
    spec = load_fleet(fleet(node(12, more="  uuidPrefix: GPU-x-\n"))).node(None)
    assert spec.gpus[11].uuid == "GPU-x-000000000011"


def test_nodes_without_a_prefix_have_uuids_of_their_own(fleet: Write) -> None:
    text = "nodes:\n" + "".join(f"- {{name: n{i}, gpus: 2, product: Tesla T4}}\n" for i in range(3))
    nodes = load_fleet(fleet(text)).nodes
    assert len({gpu.uuid for spec in nodes for gpu in spec.gpus}) == 6


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_product_makes_a_node_of_eight(fleet: Write, product: str) -> None:
    spec = load_fleet(fleet(node(8, product))).node(None)
    assert all(len(gpu.links) == gpu.product.nvlinks or not gpu.links for gpu in spec.gpus)


def test_a_gpu_list_overrides_what_the_product_says(fleet: Write) -> None:
    text = """
nodes:
- name: n
  product: Tesla T4
  gpus:
  - {index: 1, minor: 7, uuid: GPU-b, pciBusId: "0000:AB:00.0", numaNode: 1, serial: 42, memoryMiB: 8192}
  - {index: 0, product: NVIDIA L40S, cliqueId: 3, fabricClusterUuid: 1AB8D0C0-0000-0000-0000-0123456789ab}
"""
    first, second = load_fleet(fleet(text)).node(None).gpus
    assert (first.product.name, first.clique_id) == ("NVIDIA L40S", 3)
    assert first.cluster_uuid == "1ab8d0c0-0000-0000-0000-0123456789ab"
    assert (second.uuid, second.minor, second.pci.sysfs, second.numa_node) == ("GPU-b", 7, "0000:ab:00.0", 1)
    assert (second.serial, second.memory_mib) == ("42", 8192)


def test_a_level_matrix_tells_distance_and_numa_node(fleet: Write) -> None:
    matrix = "[[X, PIX, SYS], [PIX, X, SYS], [SYS, SYS, X]]"
    spec = load_fleet(fleet(node(3, "Tesla T4", f"  pcie: {matrix}\n"))).node(None)
    assert spec.levels[0] == (0, 10, 50)
    assert [gpu.numa_node for gpu in spec.gpus] == [0, 0, 1]


MISTAKES = [
    ("nodes:\n- {name: a, gpus: eight, product: Tesla T4}\n", "2: nodes[0].gpus: found 'eight', expected a number"),
    ("nodes:\n- name: a\n  gpus: 1\n  product: Tesla T5\n", "4: nodes[0].product: found 'Tesla T5', expected one of"),
    ("nodes:\n- name: a\n  gpu: 1\n", "3: nodes[0].gpu: found the key 'gpu', expected gpus. Correct it"),
    ("nodes:\n- gpus: 1\n  product: Tesla T4\n", "2: nodes[0].name: found nothing, expected a node's name"),
    (node(2, more="  nvlink: [[0, 1], [2, 0]]\n"), "5: nodes[0].nvlink[0][1]: found 1, expected 2"),
    (node(2, more="  nvlink: mesh\n"), "5: nodes[0].nvlink: found 'mesh', expected one of full, none"),
    (node(2, more="  pcie: [[0], [0]]\n"), "5: nodes[0].pcie: found [[0], [0]], expected lists of GPU indexes"),
    (node(2, more="  migEnabled: [2]\n"), "5: nodes[0].migEnabled[0]: found 2, expected a whole number from 0 to 1"),
    (node(2, "Tesla T4", "  migEnabled: [0]\n"), "expected a GPU with MIG: Tesla T4 has none"),
    (node(2, more="  mig: {0: [9g.1gb]}\n"), "5: nodes[0].mig[0]: found ['9g.1gb'], expected profiles of NVIDIA A100"),
    (node(2, more="  mig: {0: [4g.40gb, 4g.40gb]}\n"), "expected profiles that fit together"),
    (node(2, more="events:\n- {at: 1, gpu: 2, lost: true}\n"), "6: events[0].gpu: found 2, expected a GPU's index"),
    (node(2, more="events:\n- {at: 1, gpu: 1, xid: big}\n"), "6: events[0].xid: found 'big', expected a whole number"),
    (node(2, more="events:\n- {at: 1, gpu: 1}\n"), "6: events[0]: found no event, expected one of xid, lost"),
    (node(2, more="events:\n- {at: 1, node: z, driver: up}\n"), "6: events[0].node: found 'z', expected one of node-1"),
    (node(2, more="events:\n- {at: 1, driver: sideways}\n"), "6: events[0].driver: found 'sideways', expected one of"),
    (node(2, more="events:\n- {at: 1, gpu: 0, reboot: true}\n"), "6: events[0].reboot: found the key 'reboot'"),
    (node(2, more="load:\n- {gpu: 0, smUtil: 90}\n"), "6: load[0].smUtil: found 90, expected a number from 0 to 1"),
    (node(2, more="driver: {version: newest}\n"), "5: driver.version: found 'newest', expected a driver version"),
    ("nodes: [\n", "1: column 9: not valid YAML: found the end of the text, expected a value"),
    (
        "apiVersion: v1\nkind: Namespace\n---\na: b\n",
        "3: found a manifest of several documents, expected one document, which has nodes",
    ),
    ("nodes: []\n---\nnodes: []\n", "2: found a second document, expected one document"),
    ("nodes:\n- name: a\n  name: b\n", "3: name: found the key twice, expected it once"),
    ("- 1\n", "1: the whole document: found [1], expected a mapping"),
    ("", "found nothing, expected a mapping"),
]


@pytest.mark.parametrize(("text", "told"), MISTAKES, ids=[told[:40] for _, told in MISTAKES])
def test_a_mistake_is_told_in_one_line_with_its_place(fleet: Write, text: str, told: str) -> None:
    path = fleet(text)
    with pytest.raises(InputError) as error:
        load_fleet(path)
    message = str(error.value)
    assert message.startswith(str(path))
    assert told in message
    assert "\n" not in message


def test_a_missing_file_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.yaml: found no such file or directory, expected a readable file"):
        load_fleet(tmp_path / "nothing.yaml")


def test_an_unknown_node_lists_the_known_ones(fleet: Write) -> None:
    read = load_fleet(fleet("nodes:\n- {name: a, gpus: 0, product: Tesla T4}\n- {name: b, gpus: 0}\n"))
    with pytest.raises(InputError, match="expected one of a, b"):
        read.node("c")
    with pytest.raises(InputError, match="expected one of a, b"):
        read.node(None)
    assert read.node("b").gpus == ()


def test_the_only_node_needs_no_name(fleet: Write) -> None:
    assert load_fleet(fleet(node(1))).node("some-host").name == "node-1"
