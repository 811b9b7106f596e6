import signal
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest
from msgspec.structs import replace

import simulator
from simulator import client
from simulator.client import OrderRefusedError
from simulator.fleet.orders import Reboot, Xid
from simulator.hardware.store import LOCK_FILE, STATE_FILE, Store, StoreError
from tests.simulator.conftest import Simulate, gpu, node, wait_for
from tests.support.firstuse import crashes

AGENT = """
import sys, time, pynvml, simulator
from pathlib import Path
simulation = simulator.install(Path(sys.argv[1]), None, Path(sys.argv[2]))
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
pynvml.nvmlDeviceSetMigMode(handle, 1)
pynvml.nvmlDeviceCreateGpuInstance(handle, 9)
simulation.serve(Path(sys.argv[2]) / "sim.sock")
print("ready", flush=True)
time.sleep(600)
"""


def test_kill_9_heals_nothing_and_undoes_nothing(simulate: Simulate, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(node())
    state = tmp_path / "state"
    command = [sys.executable, "-c", AGENT, str(path), str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        assert client.order(state, {"gpu": 1, "xid": 79})["live"] is True
        with pytest.raises(StoreError):
            Store(state)
        agent.send_signal(signal.SIGKILL)
    simulation = simulate()
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]
    assert [gi.profile for gi in simulation.hardware.gpus[0].mig.instances] == [9]
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        gpu(1)


def test_the_state_file_is_private_and_whole(simulate: Simulate, tmp_path: Path) -> None:
    simulate(node())
    for name in (STATE_FILE, LOCK_FILE):
        assert (tmp_path / "state" / name).stat().st_mode & 0o777 == 0o600


def test_two_simulations_cannot_share_a_state(simulate: Simulate, tmp_path: Path) -> None:
    simulate(node())
    with pytest.raises(StoreError, match="another process runs this simulated hardware"):
        Store(tmp_path / "state")


def test_a_broken_state_file_is_told(simulate: Simulate, tmp_path: Path) -> None:
    simulate(node()).close()
    (tmp_path / "state" / STATE_FILE).write_text("{")
    with pytest.raises(StoreError, match=f"{STATE_FILE}: .*remove the file"):
        simulator.install(tmp_path / "fleet.yaml", None, tmp_path / "state")


def test_another_node_in_the_fleet_file_is_new_hardware(simulate: Simulate) -> None:
    simulation = simulate(node(2))
    simulation.order(Xid(gpu=0, xid=79))
    boot_id = simulation.boot_id
    assert simulate(node(2, more="load:\n- {gpu: 1, smUtil: 1, pid: 1}\n")).boot_id == boot_id
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu(1)).gpu == 100
    simulation = simulate(node(3))
    assert simulation.boot_id != boot_id
    assert not simulation.hardware.gpus[0].lost


def test_a_reboot_is_a_new_boot_without_faults(simulate: Simulate, tmp_path: Path) -> None:
    simulation = simulate(node(), proc_root=tmp_path / "proc")
    simulation.order(Xid(gpu=0, xid=79))
    before = simulation.boot_id
    old = gpu(1)
    simulation.order(Reboot())
    assert simulation.boot_id != before
    assert (tmp_path / "proc/sys/kernel/random/boot_id").read_text().strip() == simulation.boot_id
    assert pynvml.nvmlDeviceGetName(gpu(0))
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetName(old)


def test_events_that_happened_do_not_happen_again_after_a_restart(simulate: Simulate) -> None:
    simulation = simulate(node(more="events:\n- {at: 0, gpu: 0, xid: 31}\n- {at: 0, gpu: 1, lost: true}\n"))
    wait_for(lambda: simulation.hardware.gpus[1].lost)
    simulation = simulate()
    assert [xid.xid for xid in simulation.hardware.gpus[0].xids] == [31]


def test_the_clock_counts_while_nobody_runs(simulate: Simulate, tmp_path: Path) -> None:
    simulate(node(more="events:\n- {at: 100, gpu: 0, lost: true}\n")).close()
    with Store(tmp_path / "state") as store:
        stored = store.load()
        assert stored is not None
        store.save(replace(stored, created=0.0))
    simulate()
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        gpu(0)


def test_orders_reach_hardware_that_nobody_runs(simulate: Simulate, tmp_path: Path) -> None:
    simulation = simulate(node(more="  mig: {1: [3g.40gb]}\n"))
    boot_id = simulation.boot_id
    simulation.close()
    state = tmp_path / "state"
    assert client.order(state, {"gpu": 0, "xid": 48}) == {"ok": True, "live": False}
    status = client.order(state, {"status": True})["status"]
    assert status["gpus"][0]["recoveryAction"] == 1
    (half,) = status["gpus"][1]["mig"]
    assert (half["profile"], half["start"], half["size"], len(half["uuids"])) == ("3g.40gb", half["start"], 4, 1)
    client.order(state, {"reboot": True})
    simulation = simulate()
    assert simulation.boot_id != boot_id
    assert simulation.hardware.gpus[0].recovery == 0
    assert simulation.hardware.gpus[1].mig.instances == ()


def test_orders_without_hardware_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OrderRefusedError, match="no such folder"):
        client.order(tmp_path / "nothing", {"status": True})
    with pytest.raises(OrderRefusedError, match="no simulated hardware here"):
        client.order(tmp_path, {"status": True})


def test_the_first_readers_of_a_process_may_come_at_once(simulate: Simulate, tmp_path: Path) -> None:
    simulate(node())
    path = str(tmp_path / "state" / STATE_FILE)
    prepared = f"from pathlib import Path\nfrom simulator.hardware.store import read\npath = Path({path!r})"
    assert not crashes(prepared, "assert read(path)")
