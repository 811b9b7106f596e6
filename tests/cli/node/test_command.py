"""``tessera node``: what a person and a program read about one node."""

import json
import os
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from agent.health.culprits import Culprit, FaultCount
from agent.health.events import ProbeOk, ResetObserved, XidSeen
from agent.health.repairstate import Repair, RepairState
from agent.kubelet.containers import ClaimUse
from agent.kubelet.holders import Holder
from agent.mig.outcomes import MigState, MigStatus
from agent.mps.core import DaemonState, Phase
from agent.nodestate import Choices, NodeState
from agent.report import GpuFaults, HeldDevice, NodeReport, device_reports, held_devices
from cli import evictions
from cli.node.command import SECTIONS
from deviceplugin.manager import ServerStatus
from deviceplugin.strategy import NodeAccess
from hack.show import script
from inventory.devices import DeviceId, Gpu, NodeName, ResourceName
from inventory.layout.sharing import LayoutSpec, MigStrategy
from inventory.links import Link, PcieLevel
from tests.cli.conftest import AgentSocket, Run
from tests.support.inventory.builders import gpu, node, uuid

GPU = ResourceName("nvidia.com/gpu")


def report(*gpus: Gpu, driver_up: bool = True) -> NodeReport:
    """Three GPUs, the last one cut in two: GPU 1 failed and was reset, GPU 0 is held, one instance failed."""
    node_state = NodeState(NodeName("node-a"), Choices(layout=LayoutSpec(mig_strategy=MigStrategy.MIXED)))
    found = node(gpus or (gpu(0), gpu(1), gpu(2, mig=["3g.20gb", "3g.20gb"])))
    found = msgspec.structs.replace(found, driver_version="570.124.06", cuda_version=(12, 8))
    node_state.discovered(found, NodeAccess(), 1000.0)
    for event, at_s in (
        (XidSeen(uuid(1), 79), 1060.0),
        (ResetObserved(uuid(1)), 1120.0),
        (ProbeOk(uuid(1)), 1121.0),
        (XidSeen(uuid(2), 48, gi=1, ci=0), 1130.0),
    ):
        node_state.apply(event, at_s)
    shown = node_state.node.gpus
    return NodeReport(
        version="0.1.0",
        now_s=1200.0,
        simulated=True,
        driver_up=driver_up,
        node=node_state.node,
        resources=node_state.layout.resources,
        problems=("GPU 9 cannot be read",),
        servers=tuple(
            ServerStatus(resource=one.name, socket="/x.sock", registered=one.name == GPU, streams=1)
            for one in node_state.layout.resources
        ),
        health=device_reports(node_state),
        faults=tuple(GpuFaults(one.uuid, faults) for one in shown if (faults := node_state.health.faults(one.uuid))),
        history=tuple(change for one in shown for change in node_state.health.history(one.uuid)),
        holders=(HeldDevice(DeviceId(uuid(0)), Holder("team", "trainer", "main", GPU)),),
        mig=(MigStatus(uuid(2), 2, "7g.40gb", MigState.REFUSED, "GPU 2: in use by ml/a: nothing was changed", 1140.0),),
        mps=(DaemonState(uuid(1), "GPU 1", Phase.WAITING, "no CUDA", 1195.0, 7, wanted=True),),
        repairs=(
            Repair(
                gpu=uuid(2),
                state=RepairState.DRAINING,
                since_s=1140.0,
                fault_s=1130.0,
                reason="Xid48",
                attempt=1,
                note="held by ml/a",
            ),
        ),
        application_faults=(
            FaultCount(
                gpu=uuid(0),
                serial="0324",
                xid=31,
                count=2,
                first_s=1100.0,
                last_s=1180.0,
                programs={"team/one": 1100.0, "team/other": 1180.0},
                culprit=Culprit.GPU,
            ),
        ),
    )


@pytest.fixture
def shown(agent: AgentSocket) -> AgentSocket:
    agent.answer = (200, msgspec.json.encode(report()))
    return agent


def section(text: str, title: str) -> list[list[str]]:
    """The rows of a section's table, as words, without its head."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    titles = (
        "GPUs",
        "Links",
        "MIG instances",
        "MIG layouts",
        "Resources",
        "Held",
        "MPS daemons",
        "Open faults",
        "Application faults",
        "Repairs",
        "Health history",
    )
    end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith(titles)), len(lines))
    return [re.split(r"\s{2,}", line.strip()) for line in lines[start + 2 : end]]


def test_what_is_held_by_claim_names_it_and_all_containers_that_share_it(agent: AgentSocket, run: Run) -> None:
    gpu, plugins = DeviceId(uuid(0)), DeviceId(uuid(1))
    left, right = (Holder("team", pod, "main", ResourceName("gpu.nvidia.com")) for pod in ("left", "right"))
    trainer = Holder("team", "trainer", "main", GPU)
    held = held_devices(
        {gpu: right, plugins: trainer}, {gpu: (left, right)}, {gpu: ClaimUse("team", "mine", "gpu.nvidia.com")}
    )
    agent.answer = (200, msgspec.json.encode(msgspec.structs.replace(report(), holders=held)))
    assert section(run("node").output, "Held") == [
        ["team/left", "main", "gpu.nvidia.com", gpu, "team/mine"],
        ["team/right", "main", "gpu.nvidia.com", gpu, "team/mine"],
        ["team/trainer", "main", GPU, plugins, "-"],
    ]


@pytest.mark.usefixtures("shown")
def test_everything_is_told_under_one_headline(run: Run) -> None:
    done = run("node")
    assert done.exit_code == 0
    head = done.output.splitlines()[0]
    assert head == "node-a: 3 GPUs, simulated, driver 570.124.06, CUDA 12.8; agent 0.1.0"
    assert [row[0] for row in section(done.output, "GPUs")] == ["0", "1", "2"]
    assert [row[6] for row in section(done.output, "GPUs")] == ["whole", "whole", "mig"]
    assert [row[7] for row in section(done.output, "GPUs")] == ["Healthy", "Probation", "Unhealthy"]
    assert [row[5] for row in section(done.output, "GPUs")] == ["off", "off", "on"]
    assert section(done.output, "Links")[0] == ["0", "-", "PIX", "SYS"]
    assert [row[1] for row in section(done.output, "MIG instances")] == ["3g.20gb", "3g.20gb"]
    assert section(done.output, "Held") == [["team/trainer", "main", GPU, uuid(0)]]
    assert section(done.output, "Open faults")[0][:3] == ["2", "1m10s", "1"]
    assert section(done.output, "Application faults") == [
        ["0", "31", "2", "20s", "the GPU", "team/one, team/other", "0324"]
    ]
    assert [row[2:4] for row in section(done.output, "Health history")] == [
        ["Healthy", "Unhealthy"],
        ["Unhealthy", "Probation"],
        ["Healthy", "Unhealthy"],
        ["Healthy", "Unhealthy"],
    ]


def test_a_retired_gpu_is_shown_where_its_health_is_read(run: Run, agent: AgentSocket) -> None:
    units = [
        msgspec.structs.replace(unit, repair="Retired") if unit.gpu_index == 0 else unit for unit in report().health
    ]
    agent.answer = (200, msgspec.json.encode(msgspec.structs.replace(report(), health=tuple(units))))
    assert [row[7] for row in section(run("node").output, "GPUs")] == ["Healthy, Retired", "Probation", "Unhealthy"]
    told = json.loads(run("node", "health", "-o", "json").output)
    assert [unit["repair"] for unit in told["health"] if unit["gpu_index"] == 0] == ["Retired"]


@pytest.mark.usefixtures("shown")
def test_a_resource_row_counts_what_is_healthy_and_held_and_says_who_knows_it(run: Run) -> None:
    rows = section(run("node", "resources").output, "Resources")
    assert rows[0] == [GPU, "2", "1", "1", "none", "hardware", "registered"]
    assert rows[1] == ["nvidia.com/mig-3g.20gb", "2", "1", "0", "none", "hardware", "not registered"]
    assert rows[2] == ["problem: GPU 9 cannot be read"]


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize("name", SECTIONS)
def test_each_section_can_be_asked_for_alone(run: Run, name: str) -> None:
    alone = run("node", name).output
    everything = run("node").output
    assert alone
    assert alone in everything
    assert "agent 0.1.0" not in alone


@pytest.mark.usefixtures("shown")
def test_in_a_pipe_there_are_no_colours_no_trailing_spaces_and_nothing_is_cut(state_dir: Path) -> None:
    done = subprocess.run(
        [script("tessera"), "node", "--state-dir", str(state_dir)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "40"},
    )
    assert "\x1b" not in done.stdout
    assert [line for line in done.stdout.splitlines() if line != line.rstrip()] == []
    assert "\u2026" not in done.stdout
    for index in range(3):
        assert len([line for line in done.stdout.splitlines() if line.endswith(f" {uuid(index)}")]) >= 1


@pytest.mark.usefixtures("shown")
def test_no_line_ends_in_spaces(run: Run) -> None:
    assert [line for line in run("node").output.splitlines() if line != line.rstrip()] == []


@pytest.mark.usefixtures("shown")
def test_titles_stand_on_one_line_however_narrow_the_table(run: Run) -> None:
    lines = run("node", "links").output.splitlines()
    assert lines[0].startswith("Links (")
    assert lines[0].endswith(")")
    assert lines[1].split() == ["0", "1", "2"]


def test_json_is_the_whole_report_for_programs(agent: AgentSocket, run: Run) -> None:
    whole = report()
    agent.answer = (200, msgspec.json.encode(whole))
    done = run("node", "-o", "json")
    assert done.exit_code == 0
    assert msgspec.json.decode(done.output.encode(), type=NodeReport) == whole
    assert json.loads(done.output)["node"]["gpus"][0]["uuid"] == uuid(0)
    assert agent.asked == [("GET", "/v1/node")]


def test_without_a_driver_the_headline_says_so(agent: AgentSocket, run: Run) -> None:
    agent.answer = (200, msgspec.json.encode(report(driver_up=False)))
    assert "no driver now (last seen: driver 570.124.06" in run("node").output


def test_a_node_without_gpus_is_one_line(agent: AgentSocket, run: Run) -> None:
    empty = NodeReport(version="1", now_s=0.0, simulated=False, driver_up=False, node=node([]))
    agent.answer = (200, msgspec.json.encode(empty))
    done = run("node")
    assert done.exit_code == 0
    (line,) = done.output.splitlines()
    assert line.startswith("node-a: 0 GPUs, no driver now")


def test_nvlinks_and_unknown_links_have_their_signs_and_those_of_a_failed_gpu_are_down(
    agent: AgentSocket, run: Run
) -> None:
    linked = report(gpu(0), gpu(1), gpu(2), gpu(3))
    links = [[Link() for _ in range(4)] for _ in range(4)]
    for a, b in ((0, 1), (0, 3)):
        links[a][b] = links[b][a] = Link(nvlinks=2, pcie=PcieLevel.SYS)
    changed = msgspec.structs.replace(linked.node, links=tuple(map(tuple, links)))
    agent.answer = (200, msgspec.json.encode(msgspec.structs.replace(linked, node=changed)))
    rows = section(run("node", "links").output, "Links")
    assert rows[0] == ["0", "-", "down", Link().label, "NV2"], "GPU 1 is out of service"
    assert rows[1] == ["1", "down", "-", Link().label, Link().label]


@pytest.mark.parametrize("words", [("node",), ("node", "-o", "json"), ("release-nvml",)])
def test_without_an_agent_it_is_exit_1_and_one_line(run: Run, state_dir: Path, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert str(state_dir / "agent.sock") in line
    assert "no agent answers there. Start it, or use --state-dir" in line
    assert done.stdout == ""


def test_an_answer_of_another_version_is_exit_1_and_one_line(agent: AgentSocket, run: Run) -> None:
    agent.answer = (200, b'{"version": 7}')
    done = run("node")
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert "Use the command of the agent's own version" in done.stderr


def test_an_agent_that_refuses_is_exit_1_with_its_words(agent: AgentSocket, run: Run) -> None:
    agent.answer = (400, b"seconds: expected a number up to 600\n")
    done = run("release-nvml", "--for", "30")
    assert done.exit_code == 1
    assert "seconds: expected a number up to 600" in done.stderr


def test_a_forced_release_names_the_pods_on_the_gpu_and_asks(
    shown: AgentSocket, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evictions, "on_terminal", lambda: True)
    refused = run("node", "release", "--gpu", "0", "--force")
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[:2] == ["1 pod would lose the GPU in a reset:", "  team/trainer"]
    assert [method for method, _ in shown.asked] == ["GET"]


@pytest.mark.parametrize("words", [("node", "everything"), ("node", "-o", "xml"), ("release-nvml", "--for", "0")])
def test_what_is_asked_wrongly_is_exit_2(run: Run, words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


def test_nvml_is_released_for_the_time_asked_for(agent: AgentSocket, run: Run) -> None:
    done = run("release-nvml", "--for", "30")
    assert (done.exit_code, done.output) == (0, "NVML is released for 30 s\n")
    assert agent.asked == [("POST", "/v1/release?seconds=30")]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("--gpu", "3", "--for", "30"), "/v1/release?gpu=3&seconds=30"),
        (("--gpu", "0", "--force"), "/v1/release?gpu=0&seconds=60&force=true"),
    ],
)
def test_a_gpu_is_let_go_and_what_the_agent_says_is_shown(
    agent: AgentSocket, run: Run, words: tuple[str, ...], asked: str
) -> None:
    agent.answer = (200, b"GPU 3 is let go for 30 s\n")
    done = run("node", "release", *words)
    assert (done.exit_code, done.output) == (0, "GPU 3 is let go for 30 s\n")
    assert agent.asked == [("POST", asked)]
    agent.answer = (409, b"GPU 3 is in use by ml/train (--force releases it all the same)\n")
    refused = run("node", "release", *words)
    assert refused.exit_code == 1
    assert "in use by ml/train" in refused.stderr


@pytest.mark.parametrize("words", [(), ("node",), ("node", "release"), ("node", "return"), ("release-nvml",), ("sim",)])
def test_help_has_examples(run: Run, words: tuple[str, ...]) -> None:
    done = run(*words, "--help")
    assert done.exit_code == 0
    assert "Example" in done.output
    assert "  tessera " in done.output


def test_version_is_told(run: Run) -> None:
    assert run("--version").output.startswith("tessera, version ")


@pytest.mark.usefixtures("shown")
def test_a_mig_layout_that_is_refused_says_why(run: Run) -> None:
    (row,) = section(run("node", "mig").output, "MIG layouts")
    assert row == ["2", "7g.40gb", "Refused", "1m00s", "GPU 2: in use by ml/a: nothing was changed"]


@pytest.mark.usefixtures("shown")
def test_an_mps_daemon_that_is_not_ready_says_why(run: Run) -> None:
    (row,) = section(run("node", "mps").output, "MPS daemons")
    assert row == ["GPU 1", uuid(1), "Waiting", "5s", "7", "no CUDA"]


@pytest.mark.usefixtures("shown")
def test_a_gpu_in_repair_shows_its_state_since_when_which_attempt_and_what_comes_next(run: Run) -> None:
    (row,) = section(run("node", "health").output, "Repairs")
    assert row == ["2", "Draining", "1m00s", "1", "held by ml/a", "it is reset once nobody has it"]


def test_what_a_gpu_in_repair_asks_for_is_in_what_comes_next(agent: AgentSocket, run: Run) -> None:
    agent.answer = (200, msgspec.json.encode(msgspec.structs.replace(report(), asks={uuid(2): "reset"})))
    (row,) = section(run("node", "health").output, "Repairs")
    assert row[-1] == "it is reset once the controller grants it", "as in its GpuNode"


def test_a_retired_gpu_is_given_back(agent: AgentSocket, run: Run) -> None:
    agent.answer = (200, b"GPU 3 is given back\n")
    done = run("node", "return", "--gpu", "3")
    assert (done.exit_code, done.output) == (0, "GPU 3 is given back\n")
    assert agent.asked == [("POST", "/v1/return?gpu=3")]
    agent.answer = (409, b"gpu: GPU 3 is not retired\n")
    refused = run("node", "return", "--gpu", "3")
    assert refused.exit_code == 1
    assert "not retired" in refused.stderr


def test_a_release_takes_its_options_on_both_sides_and_speaks_json(
    agent: AgentSocket, run: Run, state_dir: Path
) -> None:
    agent.answer = (200, b"GPU 3 is let go for 30 s\n")
    done = run("node", "--state-dir", str(state_dir), "release", "--gpu", "3", "--for", "30", "-o", "json")
    assert json.loads(done.stdout) == {"gpu": 3, "seconds": 30.0, "message": "GPU 3 is let go for 30 s"}
    done = run("release-nvml", "--for", "30", "-o", "json")
    assert json.loads(done.stdout) == {"seconds": 30.0, "message": "NVML is released for 30 s"}


def test_a_refused_release_is_the_agents_sentence(agent: AgentSocket, run: Run) -> None:
    agent.answer = (409, b"GPU 0 is in use by team/trainer (--force releases it all the same)\n")
    done = run("node", "release", "--gpu", "0")
    assert done.exit_code == 1
    assert done.stderr == "Error: GPU 0 is in use by team/trainer (--force releases it all the same)\n"


def test_errors_are_in_words(run: Run, state_dir: Path) -> None:
    said = run("node").stderr
    assert said.startswith(f"Error: {state_dir}/agent.sock: no such file or directory: no agent answers there")
