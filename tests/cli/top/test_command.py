"""``tessera top`` against an API server in this process, with an agent behind its proxy."""

import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

from controller.cluster.watching.kinds import GPU_NODES
from kube.resources import NODES, PODS
from tests.support.cli.shell import Shell
from tests.support.controller.gpunodes import full_status

LABELS = {"app.kubernetes.io/component": "agent"}
MEASURED = 'tessera_gpu_busy_ratio{UUID="GPU-0"} 0.25\nDCGM_FI_DEV_FB_USED{UUID="GPU-0"} 10240\n'


@pytest.fixture
async def seen(shell: Shell) -> AsyncIterator[Shell]:
    """Two nodes with a GPU each; the agent of the first answers."""
    server = shell.scene.server
    shell.scene.queue()
    for at, name in enumerate(("n-0", "n-1")):
        device = {"uuid": f"GPU-{at}", "index": 0, "product": "A100", "memoryMiB": 40960}
        holders = [{"device": "GPU-0", "namespace": "team", "pod": "p"}] if at == 0 else []
        server.create(GPU_NODES, name, {"status": full_status({"devices": [device], "holders": holders})})
        ports = [{"name": "metrics", "containerPort": 9500}]
        spec = {"nodeName": name, "containers": [{"name": "agent", "ports": ports}]}
        body = {"metadata": {"labels": LABELS}, "spec": spec, "status": {"phase": "Running"}}
        server.create(PODS, f"agent-{name}", body, namespace="tessera-system")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=MEASURED)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    shell.door.pods["agent-n-0"] = runner.addresses[0][1]
    yield shell
    await runner.cleanup()


async def test_in_a_pipe_it_is_told_once_with_what_is_known(seen: Shell) -> None:
    told = (await seen.run("top")).stdout.splitlines()
    assert told[0].endswith("  2 nodes, 2 GPUs: 1 in use, 25% busy")
    assert told[3].split() == [
        "n-0",
        "0",
        "A100",
        "-",
        "Healthy",
        "##--------",
        "25%",
        "##--------",
        "25%",
        "-",
        "-",
        "team/p",
    ]
    assert told[4].split()[:5] == ["n-1", "0", "A100", "-", "Healthy"]
    assert any(line.startswith("cq ") for line in told)
    assert told[-1].startswith("note: figures are not shown: n-1: GET /api/v1/namespaces/tessera-system/pods/agent-n-1")
    assert "agent-n-0:9500/metrics" in seen.door.asked


async def test_for_programs_it_is_json_with_totals(seen: Shell) -> None:
    found = await seen.json("top", "--node", "n-0", "--once")
    (gpu,) = found["gpus"]
    assert (gpu["busy"], gpu["usedMib"], gpu["holders"]) == (0.25, 10240.0, ["team/p"])
    assert found["totals"] == {
        "nodes": 1,
        "gpus": 1,
        "inUse": 1,
        "idle": 0,
        "free": 0,
        "watched": 0,
        "fault": 0,
        "off": 0,
        "busy": 0.25,
    }
    assert found["notes"] == []


REAL_NODE = {
    "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": None}]},
    "status": {
        "capacity": {"cpu": "2", "memory": "24662408Ki", "nvidia.com/gpu": "1", "pods": "110"},
        "allocatable": {"cpu": "2", "memory": "24560008Ki", "nvidia.com/gpu": "1", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": None}],
        "nodeInfo": {"kubeletVersion": "v1.36.3"},
    },
}
"""As a kubelet writes it."""


async def test_a_node_that_is_cordoned_or_not_ready_has_no_free_gpus(seen: Shell) -> None:
    seen.scene.server.create(NODES, "n-1", REAL_NODE)
    found = await seen.json("top")
    notes = found["notes"]
    assert [note.partition(":")[0] for note in notes] == ["figures are not shown"], "of the agent that does not answer"
    assert (found["totals"]["free"], found["totals"]["off"]) == (1, 0)
    for change in (
        {"spec": {"unschedulable": True}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    ):
        seen.scene.server.merge(NODES, "n-1", change)
        found = await seen.json("top")
        assert (found["totals"]["free"], found["totals"]["off"], found["notes"]) == (0, 1, notes)
        seen.scene.server.merge(NODES, "n-1", {"spec": {"unschedulable": None}})


async def test_what_may_not_be_read_is_a_note_and_gpu_nodes_are_needed(seen: Shell) -> None:
    def words(found: Any) -> list[str]:
        return [note.partition(":")[0] for note in found["notes"]]

    seen.door.forbidden = "clusterqueues|/pods$"
    assert words(await seen.json("top")) == ["figures are not shown", "queues are not shown"]
    seen.door.forbidden = "/proxy/"
    assert words(await seen.json("top", "--at-most", "1")) == [
        "figures are not shown",
        "figures of 1 of 2 nodes are asked for (--at-most)",
    ]
    seen.door.forbidden = "gpunodes"
    assert "forbidden" in (await seen.run("top", code=1)).stderr


async def test_nodes_without_an_agent_are_named(seen: Shell) -> None:
    for name in ("agent-n-0", "agent-n-1"):
        seen.scene.server.merge(PODS, name, {"status": {"phase": "Pending"}}, namespace="tessera-system")
    assert (await seen.json("top"))["notes"] == ["no agent runs on 2 nodes: n-0, n-1"]


async def test_a_gpu_node_that_cannot_be_read_is_passed_over(seen: Shell) -> None:
    seen.scene.server.merge(GPU_NODES, "n-1", {"status": {"devices": 7}})
    found = await seen.json("top")
    assert [gpu["node"] for gpu in found["gpus"]] == ["n-0"]
    assert found["notes"][0].startswith("passed over: ")


async def test_on_a_terminal_it_is_drawn_anew_until_ctrl_c(seen: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, waits = io.StringIO(), list[float]()
    terminal = Console(file=screen, force_terminal=True, width=140, height=30, color_system=None)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        assert "team/p" in screen.getvalue()
        if len(waits) == 1:
            screen.truncate(0)
            seen.scene.server.merge(GPU_NODES, "n-1", {"status": {"summary": {"gpus": 0}, "devices": []}})
            screen.write("team/p")
        elif len(waits) == 2:
            assert "1 node, 1 GPU:" in screen.getvalue()
            seen.scene.server.down = True
        else:
            assert "note: this is old: the API server cannot be reached" in screen.getvalue()
            raise KeyboardInterrupt

    monkeypatch.setattr("cli.top.command.console", lambda: terminal)
    monkeypatch.setattr("cli.top.command.sleep", sleep)
    done = await seen.run("top", "--every", "7")
    assert (done.stdout, waits) == ("", [7.0, 7.0, 7.0])
    assert screen.getvalue().count("\x1b[?1049l") == 1, "the screen is given back as it was"
