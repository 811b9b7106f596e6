"""What the API server says about a node: its labels, and the one GpuLayout that it goes by."""

import asyncio
import json
from typing import Any

import pytest

from agent.cluster.gpulayouts import GPU_LAYOUTS, Chosen, Found, choose, read
from agent.cluster.nodewatch import CONFIG_LABEL, NodeWatch
from inventory.layout.entries import GpuLayoutSpec, LayoutMode
from kube.client import Client
from kube.resources import NODES
from kube.testing import FakeApiServer, VirtualClock, eventually
from tests.support.inventory.layouts import fractional, layout, on


def raw(name: str = "a", **spec: Any) -> bytes:
    return json.dumps({"metadata": {"name": name}, "spec": spec}).encode()


SLICES = [{"gpus": [1], "mode": "timeSlicing", "replicas": 4}]


def test_the_list_is_the_config_files_and_so_are_its_mistakes() -> None:
    found = read(raw(layout=SLICES, nodeSelector={"pool": "x"}))
    assert found.layout is not None
    assert [(one.mode, one.replicas) for one in found.layout.entries] == [(LayoutMode.TIME_SLICING, 4)]
    assert found.layout.source == "GpuLayout a"
    assert (found.selects({"pool": "x", "other": "y"}), found.selects({"pool": "y"})) == (True, False)
    bad = read(raw(layout=[{"gpus": {"anny": 1}, "mode": "whole"}]))
    assert bad.layout is None
    assert "spec.layout[0].gpus.anny: found an unknown key; did you mean any?" in bad.problem


GOOD = layout(fractional(on(0)))


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ([], Chosen()),
        ([Found("a", {"pool": "y"}, GOOD)], Chosen()),
        ([Found("a", {"pool": "x"}, GOOD), Found("b", {"pool": "y"}, GOOD)], Chosen(GOOD)),
        (
            [Found("b", {}, GOOD), Found("a", {"pool": "x"}, GOOD)],
            Chosen(problem="The GpuLayouts a, b all select this node, expected one: the last good layout stays"),
        ),
        ([Found("a", {}, None, "wrong")], Chosen(problem="wrong: the last good layout stays. Correct the GpuLayout")),
    ],
)
def test_one_layout_selects_a_node_or_none(found: list[Found], chosen: Chosen) -> None:
    assert choose(found, {"pool": "x"}) == chosen


async def test_labels_and_layouts_are_followed() -> None:
    async with FakeApiServer() as server:
        clock = VirtualClock()
        told = asyncio.Event()
        watch = NodeWatch(told.set, clock)
        server.create(NODES, "node-1", {"metadata": {"labels": {"pool": "x"}}})
        server.create(NODES, "node-2", {"metadata": {"labels": {"pool": "y"}}})
        async with Client(server.config, user_agent="test", clock=clock) as client:
            task = asyncio.create_task(watch.follow(client, "node-1", lambda: 0.5))
            await eventually(lambda: watch.chosen == Chosen())
            assert watch.labels == {"pool": "x"}
            server.create(GPU_LAYOUTS, "a", {"spec": {"layout": SLICES, "nodeSelector": {"pool": "x"}}})
            await eventually(lambda: watch.chosen is not None and watch.chosen.layout is not None)
            assert told.is_set()
            server.create(GPU_LAYOUTS, "b", {"spec": {"layout": []}})
            await eventually(lambda: watch.chosen is not None and "a, b" in watch.chosen.problem)
            server.merge(NODES, "node-1", {"metadata": {"labels": {"pool": None, CONFIG_LABEL: "small"}}})
            await eventually(lambda: watch.chosen == Chosen(GpuLayoutSpec((), "GpuLayout b")))
            assert watch.labels == {CONFIG_LABEL: "small"}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
