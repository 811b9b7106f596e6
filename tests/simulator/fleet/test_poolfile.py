"""Node pools and interruptions in a fleet file: what is read, and each mistake in one line."""

from pathlib import Path

import pytest

from simulator.fleet.fleet import Fleet
from simulator.fleet.fleetfile import load_fleet
from simulator.reading import InputError

POOL = "nodePools:\n- {name: gpu, max: 3, template: {gpus: 2, product: Tesla T4}}\n"
EVENTS = f"{POOL}events: "


def read(tmp_path: Path, text: str) -> Fleet:
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    return load_fleet(file)


def wrong(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{tmp_path}/")


def test_a_pool_alone_is_a_fleet_and_its_nodes_differ_in_name_and_gpus(tmp_path: Path) -> None:
    fleet = read(tmp_path, "nodes: []\n" + POOL)
    (pool,) = fleet.pools
    assert (fleet.nodes, [node.name for node in pool.nodes]) == ((), ["gpu-1", "gpu-2", "gpu-3"])
    assert len({gpu.uuid for node in pool.nodes for gpu in node.gpus}) == 6
    assert (pool.min_nodes, pool.delay_s, pool.remove_after_s, pool.cooldown_s) == (0, 0, 600, 3600)
    assert (pool.capacity, pool.price_per_hour) == ("", 0)
    assert read(tmp_path, POOL).pools == fleet.pools, "nodes may be left out"


def test_an_agent_has_no_node_in_a_fleet_of_pools(tmp_path: Path) -> None:
    for name in ("gpu-1", None):
        with pytest.raises(InputError, match="found no nodes, expected some: nodePools are for tessera simulate alone"):
            read(tmp_path, POOL).node(name)


def test_everything_can_be_said(tmp_path: Path) -> None:
    text = """
nodes:
- {name: fixed, gpus: 1, product: Tesla T4}
nodePools:
- name: gpu
  template:
    name: worker
    gpus: 2
    product: Tesla T4
    labels: {zone: a}
    taints: [{key: gpu, effect: NoSchedule}, {key: team, value: a, effect: NoExecute}]
  min: 1
  max: 2
  delay: 300
  removeAfter: 120.5
  capacity: spot
  pricePerHour: 12.34
  cooldown: 60
events:
- {at: 900, node: fixed, interrupt: 30}
- {at: 600, pool: gpu, interrupt: 0}
- {at: 700, node: worker-2, interrupt: 120}
- {at: 1, node: fixed, gpu: 0, xid: 79}
"""
    fleet = read(tmp_path, text)
    (pool,) = fleet.pools
    assert [(node.name, node.labels) for node in pool.nodes] == [(f"worker-{at}", {"zone": "a"}) for at in (1, 2)]
    assert pool.nodes[1].taint_objects == [
        {"key": "gpu", "value": "", "effect": "NoSchedule"},
        {"key": "team", "value": "a", "effect": "NoExecute"},
    ]
    assert (pool.min_nodes, pool.delay_s, pool.remove_after_s, pool.cooldown_s) == (1, 300, 120.5, 60)
    assert (pool.capacity, pool.price_per_hour) == ("spot", 12.34)
    assert [(each.at_s, each.pool or each.node, each.notice_s) for each in fleet.interruptions] == [
        (600, "gpu", 0),
        (700, "worker-2", 120),
        (900, "fixed", 30),
    ]
    assert len(fleet.nodes[0].events) == 1, "events of the hardware stay what they are"


def pool(**changes: str) -> str:
    said = {"name": "gpu", "max": "2", "template": "{gpus: 1, product: Tesla T4}", **changes}
    return "nodePools:\n- {" + ", ".join(f"{key}: {value}" for key, value in said.items() if value) + "}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodePools: 3\n", "fleet.yaml:1: nodePools: found 3, expected a list of node pools"),
        ("driver: {}\n", "fleet.yaml:1: nodes: found nothing, expected a list of nodes"),
        (pool(name=""), "nodePools[0].name: found nothing, expected a pool's name"),
        (pool(name="Big_Pool"), "nodePools[0].name: found 'Big_Pool-1', expected a node's name: lower case letters"),
        (pool(max=""), "nodePools[0].max: found nothing, expected the number of nodes that the pool may have"),
        (pool(max="0"), "nodePools[0].max: found 0, expected a whole number from 1 to 5000"),
        (pool(max="'2'"), "nodePools[0].max: found '2', expected a whole number from 1 to 5000"),
        (pool(min="3"), "nodePools[0].min: found 3, expected a whole number from 0 to 2"),
        (pool(delay="5m"), "nodePools[0].delay: found '5m', expected a number from 0 to 1e+09"),
        (pool(delay="-1"), "nodePools[0].delay: found -1, expected a number from 0 to 1e+09"),
        (pool(removeAfter=".nan"), "nodePools[0].removeAfter: found nan, expected a number from 0 to 1e+09"),
        (pool(cooldown="true"), "nodePools[0].cooldown: found True, expected a number from 0 to 1e+09"),
        (pool(pricePerHour="free"), "nodePools[0].pricePerHour: found 'free', expected a number from 0 to 1e+09"),
        (pool(capacity="Spot"), "nodePools[0].capacity: found 'Spot', expected one of spot, on-demand"),
        (pool(removeafter="1"), "nodePools[0].removeafter: found the key 'removeafter', expected removeAfter"),
        (pool(template=""), "nodePools[0].template: found nothing, expected a node, as an entry of nodes"),
        (pool(template="8"), "nodePools[0].template: found 8, expected a node, as an entry of nodes"),
        (pool(template="{gpus: 1}"), "nodePools[0].template.product: found nothing, expected a product"),
        (
            pool(template="{gpus: 1, product: Tesla T4, zone: b}"),
            "nodePools[0].template.zone: found the key 'zone', expected one of",
        ),
        (
            pool(template="{gpus: 1, product: Tesla T4, uuidPrefix: GPU-0}"),
            "nodePools[0].template.uuidPrefix: found 'GPU-0', expected no uuidPrefix: each node of the pool has",
        ),
        (
            pool(template="{gpus: [{uuid: GPU-a}], product: Tesla T4}"),
            "nodePools[0].template.gpus[0].uuid: found 'GPU-a', expected no uuid: each node of the pool has",
        ),
        (
            pool(template="{gpus: 1, product: Tesla T4, taints: [{key: a, effect: Never}]}"),
            "nodePools[0].template.taints[0].effect: found 'Never', expected one of NoSchedule, Prefer",
        ),
        (
            pool(template="{gpus: 1, product: Tesla T4, taints: [{effect: NoSchedule}]}"),
            "nodePools[0].template.taints[0].key: found nothing, expected a taint's key",
        ),
        (POOL + "- {name: gpu, max: 1, template: {gpus: 1, product: Tesla T4}}\n", "nodePools[1].name: found 'gpu'"),
        (
            "nodes: [{name: gpu-2, gpus: 1, product: Tesla T4}]\n" + POOL,
            "nodePools[0].name: found 'gpu', expected a name",
        ),
        (EVENTS + "[{at: 1, interrupt: 5}]\n", "events[0]: found {'at': 1, 'interrupt': 5}, expected a pool or a node"),
        (EVENTS + "[{at: 1, pool: cpu, interrupt: 5}]\n", "events[0].pool: found 'cpu', expected one of gpu"),
        (
            EVENTS + "[{at: 1, node: gpu-4, interrupt: 5}]\n",
            "events[0].node: found 'gpu-4', expected the name of a node: gpu-1 to gpu-3",
        ),
        (
            EVENTS + "[{at: 1, pool: gpu, node: gpu-1, interrupt: 5}]\n",
            "events[0].node: found 'gpu-1', expected no node beside a pool",
        ),
        (
            EVENTS + "[{at: 1, pool: gpu, interrupt: 2m}]\n",
            "events[0].interrupt: found '2m', expected a number from 0 to 1e+09",
        ),
        (EVENTS + "[{pool: gpu, interrupt: 5}]\n", "events[0].at: found nothing, expected seconds from the start"),
        (
            EVENTS + "[{at: 1, pool: gpu, interrupt: 5, xid: 79}]\n",
            "events[0].xid: found the key 'xid', expected one of",
        ),
        (EVENTS + "[{at: 1, pool: gpu, xid: 79}]\n", "events[0].pool: found the key 'pool', expected one of"),
    ],
)
def test_a_mistake_in_a_pool_is_one_line_with_file_field_found_and_expected(
    tmp_path: Path, text: str, told: str
) -> None:
    said = wrong(tmp_path, text)
    assert said.startswith("fleet.yaml:")
    assert told in said
