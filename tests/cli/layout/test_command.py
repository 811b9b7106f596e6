"""``tessera layout``: what would change and whom it would disturb, from files and from what the agents told."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import click.testing
import msgspec
import pytest

from agent.cluster.gpulayouts import GPU_LAYOUTS
from agent.cluster.gpunode import GPU_NODES, build
from agent.kubelet.holders import Holder
from cli import evictions
from cli.layout.plan import seen
from cli.main import tessera
from inventory.devices import DeviceId, GpuUuid, MigProfile, NodeInventory, ResourceName
from inventory.layout.entries import Fractional, GpuMode, Mig, Mps, MpsClient, TimeSliced, Whole
from inventory.layout.layout import plan
from inventory.layout.sharing import LayoutSpec, SharingMode
from kube.resources import NODES
from kube.testing import FakeApiServer
from tests.cli.conftest import Run
from tests.support.cli.frontdoor import kubeconfig
from tests.support.inventory.builders import gpu, node, uuid

FLEET = "nodes:\n- {name: node-1, gpus: 4, product: NVIDIA H100 80GB HBM3, labels: {pool: x}}\n"
SLICES = [{"gpus": [0, 1], "mode": "timeSlicing", "replicas": 4}]


def manifest(layout: list[dict[str, Any]], **more: Any) -> str:
    spec = {"layout": layout, **more}
    body = {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuLayout", "metadata": {"name": "mine"}, "spec": spec}
    return json.dumps(body)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The layout's file and the fleet's."""
    fleet, layout = tmp_path / "fleet.yaml", tmp_path / "layout.yaml"
    fleet.write_text(FLEET)
    layout.write_text(manifest(SLICES))
    return layout, fleet


def test_a_fleet_file_is_planned_without_a_cluster(run: Run, files: tuple[Path, Path]) -> None:
    layout, fleet = files
    done = run("layout", "plan", "-f", str(layout), "--fleet", str(fleet))
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "node-1: changes",
        "  GPU 0: whole -> timeSlicing x 4 (enforced by nobody)",
        "  GPU 1: whole -> timeSlicing x 4 (enforced by nobody)",
        "  nvidia.com/gpu: 4 -> 2",
        "  nvidia.com/gpu.shared: 0 -> 8",
    ]


def test_an_agents_configuration_is_planned_like_a_manifest(run: Run, files: tuple[Path, Path]) -> None:
    layout, fleet = files
    of_manifest = run("layout", "plan", "-f", str(layout), "--fleet", str(fleet), "-o", "json").output
    odd = "flags: {migStrategy: none}\nflags: {}\n"  # NVIDIA's section, as its plugin takes it
    layout.write_text(f"version: v1\n{odd}layout:\n- {{gpus: [0, 1], mode: timeSlicing, replicas: 4}}\n---\n")
    assert run("layout", "plan", "-f", str(layout), "--fleet", str(fleet), "-o", "json").output == of_manifest
    (found,) = json.loads(of_manifest)["nodes"]
    assert (found["refused"], found["after"]) == (False, {"nvidia.com/gpu": 2, "nvidia.com/gpu.shared": 8})


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (manifest([{"gpus": [9], "mode": "whole"}]), 1, "gpus: 9: no such GPU, this node has the GPUs 0, 1, 2, 3"),
        (manifest([{"gpus": [0], "mode": "mig", "profiles": ["4g.40gb"] * 2}]), 1, "found 2 of 4g.40gb, expected 1"),
        (
            manifest([{"gpus": [0], "mode": "mig", "profiles": ["4g.40gb", "3g.40gb", "1g.10gb"]}]),
            1,
            "do not fit together on this GPU",
        ),
        (manifest([{"gpus": [0], "mode": "hole"}]), 2, "spec.layout[0].mode: found 'hole', expected whole"),
        ("version: v1\nlayout: [{gpus: [0]}]\n", 2, "layout.yaml:2: layout[0]: found none, expected the key mode"),
        ("kind: [GpuLayout\n", 2, "layout.yaml"),
        (manifest(SLICES, nodeSelector={"pool": "y"}), 0, "no node with GPUs is selected"),
        (manifest(SLICES, nodeSelector={"pool": "x"}), 0, "node-1: changes"),
        (manifest([]), 0, "node-1: nothing changes"),
    ],
)
def test_what_cannot_be_is_said_with_its_exit_code(
    run: Run, files: tuple[Path, Path], text: str, code: int, said: str
) -> None:
    layout, fleet = files
    layout.write_text(text)
    done = run("layout", "plan", "-f", str(layout), "--fleet", str(fleet))
    assert (done.exit_code, said in done.output) == (code, True), done.output


LARGE, SMALL = ResourceName("nvidia.com/gpu-large"), ResourceName("nvidia.com/gpu-small")


@pytest.mark.parametrize(
    "mode",
    [
        None,
        TimeSliced(4),
        TimeSliced(3, rename=False),
        TimeSliced(3, resource=LARGE),
        Fractional(25),
        Mps((MpsClient(),) * 3, equal=True),
        Mps((MpsClient(20480, 50, LARGE), MpsClient(10240, 25, SMALL)), equal=False),
        Mig(("1g.5gb", "3g.20gb")),
        Mig(("1g.5gb", "1g.5gb"), 2, SharingMode.TIME_SLICING),
        Mig(("1g.5gb",), 2, SharingMode.MPS),
        Whole(LARGE),
    ],
    ids=str,
)
def test_a_gpunode_tells_the_modes_that_are_in_force(mode: GpuMode | None) -> None:
    found = node([gpu(0, mig=mode.profiles if isinstance(mode, Mig) else None)])
    modes = {} if mode is None else {uuid(0): mode}
    layout = plan(found, LayoutSpec(), modes)
    told = seen(msgspec.json.encode(build(node=found, layout=layout)))
    assert told.modes == modes
    assert plan(told.node, LayoutSpec(), told.modes).resources == tuple(
        # NUMA nodes are told too, the rest of a device is its id.
        resource
        for resource in plan(told.node, LayoutSpec(), modes).resources
    )
    assert {r.name: len(r.devices) for r in plan(told.node, LayoutSpec(), told.modes).resources} == {
        r.name: len(r.devices) for r in layout.resources
    }


class Shell:
    def __init__(self, server: FakeApiServer, folder: Path) -> None:
        self.server = server
        self._file = folder / "layout.json"
        self._kubeconfig = kubeconfig(folder, server.config.server)

    def tell(
        self, found: NodeInventory, modes: Mapping[GpuUuid, GpuMode], held: Mapping[str, str], **labels: str
    ) -> None:
        """A node, and what its agent published."""
        holders = {DeviceId(one): Holder("team", pod, "main", ResourceName("x")) for one, pod in held.items()}
        told = build(node=found, layout=plan(found, LayoutSpec(), modes), holders=holders)
        self.server.create(NODES, found.name, {"metadata": {"labels": labels}})
        self.server.create(GPU_NODES, found.name, msgspec.to_builtins(told))

    async def run(self, verb: str, text: str, *words: str) -> click.testing.Result:
        self._file.write_text(text)
        args = ["layout", verb, "-f", str(self._file), "--kubeconfig", str(self._kubeconfig), *words]
        return await asyncio.to_thread(lambda: click.testing.CliRunner().invoke(tessera, args))


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    async with FakeApiServer() as server:
        yield Shell(server, tmp_path)


async def test_the_pods_in_the_way_are_named_and_nothing_is_written(shell: Shell) -> None:
    shell.tell(node([gpu(0), gpu(1)]), {}, {"GPU-01": "trainer"})
    done = await shell.run("plan", manifest(SLICES))
    assert done.exit_code == 1
    assert "    in the way: team/trainer: refused until they are gone" in done.output.splitlines()
    refused = await shell.run("apply", manifest(SLICES))
    assert (refused.exit_code, "not applied" in refused.output) == (1, True)
    assert not [one for one in shell.server.requests if one.method == "PATCH"]
    patient = [SLICES[0] | {"whenBusy": "wait"}]
    assert "waits for them" in (await shell.run("plan", manifest(patient))).output
    assert (await shell.run("apply", manifest(patient))).exit_code == 0


async def test_on_a_terminal_pods_that_would_be_evicted_are_named_and_asked_about(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.tell(node([gpu(0), gpu(1)]), {}, {"GPU-01": "trainer"})
    drains = manifest([SLICES[0] | {"whenBusy": "drain"}])
    monkeypatch.setattr(evictions, "on_terminal", lambda: True)
    refused = await shell.run("apply", drains)
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[:2] == ["1 pod would be evicted:", "  team/trainer"]
    assert shell.server.list_all(GPU_LAYOUTS) == []
    assert (await shell.run("apply", drains, "--yes")).exit_code == 0


async def test_apply_writes_the_layout_where_nobody_is_in_the_way(shell: Shell) -> None:
    shell.tell(node([gpu(0), gpu(1), gpu(2)]), {uuid(2): TimeSliced(2)}, {"GPU-02::0": "guest"})
    layout = [*SLICES, {"gpus": [2], "mode": "timeSlicing", "replicas": 2}]
    done = await shell.run("apply", manifest(layout))
    assert done.exit_code == 0, done.output
    assert "GPU 2" not in done.output
    (written,) = shell.server.list_all(GPU_LAYOUTS)
    assert written["spec"]["layout"] == layout


async def test_held_instances_that_can_stay_are_in_nobodys_way(shell: Shell) -> None:
    profiles = (
        MigProfile("1g.5gb", 19, 1, 1, tuple(range(7)), 7, 4864, 14),
        MigProfile("3g.20gb", 9, 3, 4, (0, 4), 2, 19968, 42),
        MigProfile("7g.40gb", 0, 7, 8, (0,), 1, 40192, 98),
    )
    cut = gpu(0, mig=["3g.20gb", "3g.20gb"])
    instances = tuple(
        msgspec.structs.replace(mig, start=start, size=4) for mig, start in zip(cut.mig_instances, (0, 4), strict=True)
    )
    cut = msgspec.structs.replace(cut, mig_profiles=profiles, mig_instances=instances)
    shell.tell(node([cut]), {uuid(0): Mig(("3g.20gb", "3g.20gb"))}, {"MIG-00-0": "trainer"})
    keeps = [{"gpus": [0], "mode": "mig", "profiles": ["3g.20gb", "1g.5gb", "1g.5gb"]}]
    done = await shell.run("plan", manifest(keeps))
    assert (done.exit_code, "in the way" in done.output) == (0, False), done.output
    done = await shell.run("plan", manifest([{"gpus": [0], "mode": "mig", "profiles": ["7g.40gb"]}]))
    assert (done.exit_code, "in the way: team/trainer" in done.output) == (1, True), done.output


async def test_a_node_that_another_layout_selects_is_a_problem(shell: Shell) -> None:
    shell.tell(node([gpu(0), gpu(1)]), {}, {}, pool="x")
    shell.server.create(GPU_LAYOUTS, "other", {"spec": {"layout": [], "nodeSelector": {"pool": "x"}}})
    done = await shell.run("plan", manifest(SLICES))
    assert done.exit_code == 1
    assert "the GpuLayout other selects this node too, expected one" in done.output


def test_a_config_file_is_nothing_to_apply(run: Run, files: tuple[Path, Path]) -> None:
    layout, _ = files
    layout.write_text("version: v1\nlayout: []\n")
    done = run("layout", "apply", "-f", str(layout))
    assert (done.exit_code, "expected a GpuLayout" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("", (), "layout.yaml: found an empty file, expected a GpuLayout or an agent's configuration"),
        ("kind: Pod", (), "layout.yaml: kind: found Pod, expected GpuLayout, or an agent's configuration"),
        ("a: [", (), "layout.yaml:1: column 5: not valid YAML: found the end of the text, expected a value"),
        ("kind: GpuLayout\n---\nb: 2", (), "layout.yaml:2: found a second document"),
        ("version: v1\nlayout: []", ("--node", "n9"), '--node: found "n9", expected a node of '),
    ],
)
def test_a_file_that_is_none_is_a_line_with_its_place(
    run: Run, files: tuple[Path, Path], text: str, words: tuple[str, ...], said: str
) -> None:
    layout, fleet = files
    layout.write_text(text)
    done = run("layout", "plan", "-f", str(layout), "--fleet", str(fleet), *words)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert said in line


async def test_a_node_of_which_no_agent_has_told_is_a_mistake(shell: Shell) -> None:
    shell.tell(node([gpu(0), gpu(1)]), {}, {}, pool="x")
    done = await shell.run("plan", manifest(SLICES), "--node", "n9")
    assert done.exit_code == 1
    assert '--node: found "n9", expected a node whose agent has written a GpuNode' in done.output
