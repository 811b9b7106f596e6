"""``tessera sim``: each command is the order it is said to be, and a wrong one is a line."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.sim import sim
from simulator.control import read_request
from simulator.simulation import Simulation, open_simulation
from tests.cli.conftest import Run, SimulatorSocket
from tests.support.agent.node import fleet

ORDERS: dict[str, dict[str, Any]] = {
    "xid --gpu 3 79": {"gpu": 3, "xid": 79},
    "xid --gpu 0 --gi 2 94": {"gpu": 0, "xid": 94, "gi": 2},
    "xid --gpu 0 --gi 2 --ci 0 94": {"gpu": 0, "xid": 94, "gi": 2, "ci": 0},
    "lost --gpu 1": {"gpu": 1, "lost": True},
    "reset --gpu 1": {"gpu": 1, "reset": True},
    "gpu-reset --gpu 1": {"gpu": 1, "gpuReset": True},
    "returns --gpu 1 119": {"gpu": 1, "returns": 119},
    "remove --gpu 1": {"gpu": 1, "remove": True},
    "add --gpu 1": {"gpu": 1, "add": True},
    "remap-failure --gpu 1": {"gpu": 1, "remapFailure": True},
    "ecc --gpu 1": {"gpu": 1, "ecc": {"volatile": 1, "corrected": 0}},
    "ecc --gpu 1 --volatile 2 --corrected 5": {"gpu": 1, "ecc": {"volatile": 2, "corrected": 5}},
    "nvlink-down --gpu 1 0 4": {"gpu": 1, "nvlinkDown": [0, 4]},
    "nvlink-down --gpu 1": {"gpu": 1, "nvlinkDown": []},
    "driver down": {"driver": "down"},
    "driver up": {"driver": "up"},
    "driver up --version 575.57.08": {"driver": "up", "version": "575.57.08"},
    "slow --gpu 1 nvmlDeviceGetMemoryInfo 30": {
        "gpu": 1,
        "slow": {"call": "nvmlDeviceGetMemoryInfo", "seconds": 30.0},
    },
    "slow * 0": {"slow": {"call": "*", "seconds": 0.0}},
    "fail --gpu 1 nvmlDeviceGetMemoryInfo 999": {
        "gpu": 1,
        "fail": {"call": "nvmlDeviceGetMemoryInfo", "code": 999},
    },
    "fail * 0": {"fail": {"call": "*", "code": 0}},
    "load --gpu 0 --sm-util 0.5 --mem-used-mib 1024 --power-w 300 --pid 42": {
        "gpu": 0,
        "load": {"smUtil": 0.5, "memUsedMiB": 1024, "powerW": 300.0, "pid": 42},
    },
    "load --gpu 0": {"gpu": 0, "load": {}},
    "load --gpu 0 --pid 42 --gi 2 --ci 1 --type client": {
        "gpu": 0,
        "load": {"pid": 42, "gi": 2, "ci": 1, "type": "client"},
    },
    "end --gpu 0 42": {"gpu": 0, "end": 42},
    "reboot": {"reboot": True},
    "status": {"status": True},
}


@pytest.mark.parametrize("words", ORDERS)
def test_a_command_is_this_order_and_the_simulator_understands_it(
    run: Run, simulator: SimulatorSocket, words: str
) -> None:
    done = run("sim", *words.split())
    assert done.exit_code == 0, done.output
    assert simulator.orders == [ORDERS[words]]
    assert read_request(json.dumps(simulator.orders[0]), 4)
    if words != "status":
        assert done.output == "done\n"


def test_every_command_is_tried_here() -> None:
    assert {words.split()[0] for words in ORDERS} == sim.commands.keys()


def test_json_is_the_simulators_own_answer(run: Run, simulator: SimulatorSocket) -> None:
    simulator.answer = {"ok": True, "live": True, "status": {"node": "node-1"}}
    assert json.loads(run("sim", "-o", "json", "reset", "--gpu", "0").output) == simulator.answer
    assert json.loads(run("sim", "reset", "--gpu", "0", "-o", "json").output) == simulator.answer
    assert json.loads(run("sim", "status").output) == simulator.answer


def test_the_state_folder_may_stand_behind_the_command(
    run: Run, simulator: SimulatorSocket, state_dir: Path, tmp_path: Path
) -> None:
    done = run("sim", "--state-dir", str(tmp_path), "reset", "--gpu", "0", "--state-dir", str(state_dir))
    assert (done.exit_code, len(simulator.orders)) == (0, 1)


def test_a_refusal_is_exit_1_and_one_line(run: Run, simulator: SimulatorSocket) -> None:
    simulator.answer = {"error": "gpu: found 9, expected an index from 0 to 3"}
    done = run("sim", "lost", "--gpu", "9")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "Error: gpu: found 9, expected an index from 0 to 3\n"


@pytest.mark.parametrize(
    "words",
    [
        "xid 79",
        "xid --gpu 1",
        "xid --gpu 1 0",
        "xid --gpu -1 79",
        "driver sideways",
        "slow --gpu 1 nvmlInit",
        "slow * -1",
        "fail nvmlInit",
        "fail nvmlInit -1",
        "load --gpu 0 --sm-util 2",
        "explode",
    ],
)
def test_what_is_asked_wrongly_is_exit_2_and_never_sent(run: Run, simulator: SimulatorSocket, words: str) -> None:
    assert run("sim", *words.split()).exit_code == 2
    assert simulator.orders == []


def test_without_simulated_hardware_it_is_exit_1_and_says_how_to_get_some(run: Run) -> None:
    done = run("sim", "reset", "--gpu", "0")
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert "run an agent with --simulate first" in line


def test_a_state_folder_that_is_not_there_is_exit_1_and_one_line(run: Run) -> None:
    done = run("sim", "--state-dir", "/nonexistent/tessera", "status")
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert "/nonexistent/tessera" in done.stderr


# Against the simulator itself, without NVML.

Simulate = Callable[[], Simulation]


@pytest.fixture
def hardware(state_dir: Path) -> Iterator[Simulate]:
    """Simulated hardware as an agent runs it; called again, as the next agent finds it."""
    running: list[Simulation] = []
    (state_dir / "fleet.yaml").write_text(fleet(2))

    def start() -> Simulation:
        while running:
            running.pop().close()
        simulation = open_simulation(state_dir / "fleet.yaml", None, state_dir, proc_root=state_dir / "proc")
        simulation.serve(state_dir / "sim.sock")
        running.append(simulation)
        return simulation

    yield start
    while running:
        running.pop().close()


def status(run: Run) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run("sim", "status").output)
    return answer


def test_a_reboot_of_running_hardware_ends_its_faults_and_gives_a_new_boot_id(
    run: Run, hardware: Simulate, state_dir: Path
) -> None:
    before = hardware().boot_id
    assert run("sim", "xid", "--gpu", "1", "79").exit_code == 0
    assert status(run)["status"]["gpus"][1]["lost"]
    assert run("sim", "reboot").exit_code == 0
    found = status(run)
    assert found["live"]
    assert not found["status"]["gpus"][1]["lost"]
    assert found["status"]["bootId"] != before
    assert (state_dir / "proc/sys/kernel/random/boot_id").read_text().strip() == found["status"]["bootId"]


def test_a_reboot_while_no_agent_runs_is_what_the_next_agent_finds(run: Run, hardware: Simulate) -> None:
    simulation = hardware()
    before = simulation.boot_id
    assert run("sim", "xid", "--gpu", "1", "79").exit_code == 0
    simulation.close()
    assert run("sim", "lost", "--gpu", "0").exit_code == 0
    assert run("sim", "reboot").exit_code == 0
    found = status(run)
    assert not found["live"]
    assert [gpu["lost"] for gpu in found["status"]["gpus"]] == [False, False]
    assert found["status"]["bootId"] != before


def test_an_order_while_no_agent_runs_is_kept_for_the_next(run: Run, hardware: Simulate) -> None:
    hardware().close()
    assert run("sim", "lost", "--gpu", "0").exit_code == 0
    assert hardware().hardware.gpus[0].lost
