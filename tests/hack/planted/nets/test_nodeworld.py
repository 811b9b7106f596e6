"""The node of a scene: a kubelet that may be slow, and a record of what it and the hardware have said."""

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.testing import Grant
from hack.planted.nets import node, nodeworld
from hack.planted.nets.nodejudge import Finding, Hand
from hack.planted.nets.nodeworld import CannotJudgeError, Kubelet, Node
from kubeletapi import deviceplugin_v1beta1_pb2 as pb


def gpu(uuid: str, *instances: str) -> dict[str, Any]:
    return {"uuid": uuid, "mig": [{"profile": "3g.20gb", "uuids": [each]} for each in instances]}


async def test_a_list_behind_the_gate_says_what_was_so_when_it_was_asked_for(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path, lambda: 0.0)
    kubelet.close_gate(free=1)
    assert not (await kubelet.List(None, None)).pod_resources
    late = asyncio.create_task(kubelet.List(None, None))
    await asyncio.sleep(0)
    kubelet.pods["team", "a"] = [Grant("nvidia.com/gpu", ("GPU-0",), pb.ContainerAllocateResponse())]
    assert (kubelet.lists, late.done()) == (2, False)
    kubelet.open_gate()
    assert not (await late).pod_resources
    assert len((await kubelet.List(None, None)).pod_resources) == 1
    assert kubelet.hands() == (Hand("team/a", "nvidia.com/gpu", "GPU-0"),)


def test_hardware_is_noted_when_it_has_changed(tmp_path: Path) -> None:
    found = Node(tmp_path, "")
    for each in (gpu("GPU-0"), gpu("GPU-0"), gpu("GPU-0", "MIG-1")):
        found.note_hardware([each])
    mig = [{"uuid": "MIG-1", "profile": "3g.20gb"}]
    wanted = [[{"uuid": "GPU-0", "mig": each, "replicas": 1, "resets": 0}] for each in ([], mig)]
    assert [line["gpus"] for line in found.record] == wanted
    assert found.parents == {"MIG-1": "GPU-0"}


async def test_an_agent_that_cannot_start_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeworld, "fleet", lambda *_: "nodes: none\n")
    # A socket's path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="net-") as folder:
        await _cannot_start(Path(folder) / "bad")


async def _cannot_start(folder: Path) -> None:
    async with nodeworld.node(folder, 1) as found:
        await found.start(nodeworld.HEALTH)
        with pytest.raises(CannotJudgeError, match=r"the agent ended with \d+: .*fleet.yaml"):
            await found.comes(lambda: False)


@pytest.mark.parametrize(
    ("found", "unknown", "code"),
    [([], [], 0), ([Finding("kubelet", "wrong")], ["b: no agent"], 1), ([], ["b: no agent"], 2)],
)
def test_the_exit_code_says_whether_anything_was_found_or_could_not_be_judged(
    found: list[Finding],
    unknown: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def judged(_: object) -> tuple[list[Finding], list[str]]:
        return found, unknown

    monkeypatch.setattr(node, "judged", judged)
    monkeypatch.setattr(logging, "disable", lambda *_: None)
    # asyncio.run cannot be inside of a loop: this test has none.
    assert node.main([]) == code
    printed = capsys.readouterr()
    assert printed.out == "".join(f'{{"net": "{each.net}", "message": "{each.message}"}}\n' for each in found)
    assert printed.err == "".join(f"{each}\n" for each in unknown)
