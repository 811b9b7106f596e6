"""A reset by nvidia-smi, as the simulated hardware takes it."""

import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

import simulator.nvidiasmi
from simulator.boards.loads import Load
from simulator.fleet import orders
from simulator.hardware.hardware import OrderError
from simulator.hardware.status import describe
from simulator.simulation import Simulation
from tests.simulator.conftest import Simulate, gpu, node

H100 = "NVIDIA H100 80GB HBM3"


def free(simulation: Simulation, index: int = 0) -> None:
    """Nobody has the GPU: NVML was shut down, persistence mode is off."""
    pynvml.nvmlShutdown()
    simulation.order(orders.Persistence(gpu=index, on=False))


def smi(simulation: Simulation, folder: Path, *words: str) -> tuple[int, str]:
    """nvidia-smi with these words, and its output."""
    simulation.serve(folder / "sim.sock")
    command = [sys.executable, "-IS", simulator.nvidiasmi.__file__, str(folder / "sim.sock"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_recovery_action_and_the_instances_are_gone_after_it(simulate: Simulate) -> None:
    simulation = simulate(node(1, H100, "  migEnabled: [0]\n  mig: {0: [3g.40gb]}\n"))
    simulation.order(orders.Xid(gpu=0, xid=119))
    free(simulation)
    simulation.order(orders.GpuReset(gpu=0))
    after = simulation.hardware.gpus[0]
    assert (after.recovery, after.mig.enabled, after.mig.instances) == (0, True, ())


def test_resets_by_the_tool_are_counted_apart_from_those_that_a_person_orders(simulate: Simulate) -> None:
    simulation = simulate(node(1, H100))
    free(simulation)
    for order in (orders.Reset(gpu=0), orders.GpuReset(gpu=0), orders.Reset(gpu=0)):
        simulation.order(order)
        simulation.order(orders.Persistence(gpu=0, on=False))
    (told,) = describe(simulation.hardware, 0.0)["gpus"]
    assert (told["resets"], told["toolResets"]) == (3, 1)


def test_it_is_refused_while_nvml_has_the_gpu_open(simulate: Simulate) -> None:
    simulation = simulate(node(2, H100))
    gpu(0)
    simulation.order(orders.Persistence(gpu=0, on=False))
    simulation.order(orders.Persistence(gpu=1, on=False))
    with pytest.raises(OrderError, match="in use"):
        simulation.order(orders.GpuReset(gpu=0))
    simulation.order(orders.GpuReset(gpu=1))
    pynvml.nvmlShutdown()
    simulation.order(orders.GpuReset(gpu=0))


def test_it_is_refused_while_a_process_is_on_the_gpu(simulate: Simulate) -> None:
    simulation = simulate(node(1, H100))
    free(simulation)
    simulation.order(orders.SetLoad(gpu=0, load=Load(gpu=0, pid=42)))
    with pytest.raises(OrderError, match=r"in use .*process 42"):
        simulation.order(orders.GpuReset(gpu=0))
    simulation.order(orders.End(gpu=0, pid=42))
    simulation.order(orders.GpuReset(gpu=0))


def test_it_is_refused_in_persistence_mode(simulate: Simulate) -> None:
    simulation = simulate(node(1, H100))
    pynvml.nvmlShutdown()
    with pytest.raises(OrderError, match=r"in use .*persistence"):
        simulation.order(orders.GpuReset(gpu=0))


def test_it_is_refused_for_a_lost_gpu(simulate: Simulate) -> None:
    simulation = simulate(node(1, H100))
    simulation.order(orders.Xid(gpu=0, xid=79))
    free(simulation)
    with pytest.raises(OrderError, match="lost"):
        simulation.order(orders.GpuReset(gpu=0))


def test_it_fails_by_order(simulate: Simulate) -> None:
    simulation = simulate(node(1, H100))
    free(simulation)
    simulation.order(orders.Fail(gpu=0, call="reset", code=19))
    with pytest.raises(OrderError, match="error 19"):
        simulation.order(orders.GpuReset(gpu=0))
    simulation.order(orders.Fail(gpu=0, call="reset", code=0))
    simulation.order(orders.GpuReset(gpu=0))


def test_the_fault_comes_back_by_order(simulate: Simulate) -> None:
    simulation = simulate(node(1, H100))
    simulation.order(orders.Returns(gpu=0, xid=119))
    free(simulation)
    simulation.order(orders.GpuReset(gpu=0))
    assert simulation.hardware.gpus[0].recovery == 1
    simulation.order(orders.Returns(gpu=0, xid=0))
    simulation.order(orders.GpuReset(gpu=0))
    assert simulation.hardware.gpus[0].recovery == 0


def test_the_program_resets_the_gpus_that_it_is_told(simulate: Simulate, tmp_path: Path) -> None:
    simulation = simulate(node(3, H100))
    pynvml.nvmlShutdown()
    uuids = ",".join(simulation.node.gpus[index].uuid for index in (0, 2))
    assert smi(simulation, tmp_path, "--gpu-reset", "-i", uuids)[0] == 15
    assert smi(simulation, tmp_path, "-pm", "0", "-i", uuids)[0] == 0
    assert smi(simulation, tmp_path, "--gpu-reset", "-i", uuids) == (0, "All done.\n")
    assert [each.epoch for each in simulation.hardware.gpus] == [2, 1, 2]


def test_the_program_says_why_not(simulate: Simulate, tmp_path: Path) -> None:
    simulation = simulate(node(1, H100))
    gpu(0)
    code, said = smi(simulation, tmp_path, "--gpu-reset", "-i", simulation.node.gpus[0].uuid)
    assert code == 15
    assert "currently in use" in said
    assert smi(simulation, tmp_path, "--gpu-reset", "-i", "GPU-none")[0] == 2
