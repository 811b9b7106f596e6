import json
import socket
import threading
from pathlib import Path
from typing import Any

import pynvml
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from simulator import client
from simulator.client import OrderRefusedError
from simulator.control import read_request
from simulator.reading import InputError
from simulator.simulation import Simulation
from tests.simulator.conftest import Simulate, gpu, node
from tests.support.hang import HANG_S


@pytest.fixture
def served(simulate: Simulate, tmp_path: Path) -> Simulation:
    simulation = simulate(node(more="  migEnabled: [0]\n"))
    simulation.serve(tmp_path / "state" / "sim.sock")
    return simulation


def raw(state: Path, data: bytes) -> bytes:
    """What the socket answers to bytes, up to the end of a line or of the connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(HANG_S)
        connection.connect(str(state / "sim.sock"))
        try:
            connection.sendall(data)
            return connection.recv(2**20)
        except (BrokenPipeError, ConnectionResetError):
            return b""


ORDERS: list[dict[str, Any]] = [
    {"gpu": 0, "xid": 31},
    {"gpu": 0, "xid": 94, "gi": 2, "ci": 0},
    {"gpu": 0, "reset": True},
    {"gpu": 0, "ecc": {"volatile": 2}},
    {"gpu": 0, "remapFailure": True},
    {"gpu": 0, "remap_failure": True},
    {"gpu": 1, "nvlinkDown": [0, 1]},
    {"gpu": 1, "nvlink_down": []},
    {"driver": "down"},
    {"driver": "up"},
    {"gpu": 1, "slow": {"call": "nvmlDeviceGetName", "seconds": 0.1}},
    {"slow": {"call": "nvmlDeviceGetName", "seconds": 0}},
    {"gpu": 1, "fail": {"call": "nvmlDeviceGetName", "code": 999}},
    {"fail": {"call": "nvmlDeviceGetName", "code": 0}},
    {"gpu": 1, "load": {"smUtil": 0.5, "memUsedMiB": 100, "powerW": 200, "pid": 5}},
    {"gpu": 1, "load": {}},
    {"gpu": 1, "lost": True},
    {"gpu": 1, "remove": True},
    {"gpu": 1, "add": True},
    {"reboot": True},
]


def test_every_order_is_followed_live(served: Simulation, tmp_path: Path) -> None:
    assert served.node_name == "node-1"
    for order in ORDERS:
        assert client.order(tmp_path / "state", order) == {"ok": True, "live": True}, order


def test_an_order_is_heard_at_once(served: Simulation, tmp_path: Path) -> None:
    del served
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(gpu(1), pynvml.nvmlEventTypeXidCriticalError, events)
    client.order(tmp_path / "state" / "sim.sock", {"gpu": 1, "xid": 79})
    assert pynvml.nvmlEventSetWait(events, 0).eventData == 79


def test_the_socket_is_private_and_goes_with_the_simulation(served: Simulation, tmp_path: Path) -> None:
    path = tmp_path / "state" / "sim.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    served.close()
    assert not path.exists()


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ({"gpu": 7, "lost": True}, "gpu: found 7, expected a GPU's index from 0 to 1"),
        ({"lost": True}, "gpu: found nothing, expected a GPU's index"),
        ({"gpu": 0, "xid": "79"}, "xid: found '79', expected a whole number from 1 to 1000"),
        ({"gpu": 0, "lost": False}, "lost: found False, expected true"),
        ({"gpu": 0, "xid": 1, "lost": True}, "expected one order at a time"),
        ({"gpu": 0, "explode": True}, "found the key 'explode', expected one of xid, lost"),
        ({"gpu": 0, "nvlinkDown": [30]}, "nvlinkDown: found [30], expected links from 0 to 11"),
        ({"slow": {"call": "sleep", "seconds": 1}}, "slow.call: found 'sleep', expected an NVML function's name"),
        ({"fail": {"call": "nvmlInit", "code": 1000}}, "fail.code: found 1000, expected a whole number from 0 to 999"),
        ({"gpu": 0, "load": {"smUtil": -1}}, "load.smUtil: found -1, expected a number from 0 to 1"),
        ({}, "found no event, expected one of"),
    ],
)
def test_a_wrong_order_is_refused_in_one_line(
    served: Simulation, tmp_path: Path, order: dict[str, Any], told: str
) -> None:
    before = served.hardware
    with pytest.raises(OrderRefusedError) as error:
        client.order(tmp_path / "state", order)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert served.hardware is before


HOSTILE = [
    b"\n",
    b"\0\n",
    b"[]\n",
    b"{\n",
    b"\xff\xfe\n",
    b'{"gpu": 1e999, "lost": true}\n',
    b"[" * 60_000 + b"\n",
    b"x" * 200_000,
    b'{"gpu": {"gpu": 1}, "lost": true}\n',
    b'{"' + b"a" * 60_000 + b'": 1}\n',
]


def test_hostile_input_is_answered_and_ends_nothing(served: Simulation, tmp_path: Path) -> None:
    del served
    state = tmp_path / "state"
    for data in HOSTILE:
        answer = raw(state, data)
        assert answer == b"" or "error" in json.loads(answer.splitlines()[0]), data[:40]
    idle = []
    for _ in range(40):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(state / "sim.sock"))
        idle.append(connection)
    for connection in idle:
        connection.close()
    for _ in range(3):
        assert client.order(state, {"status": True})["status"]["gpus"][0]["present"] is True


def test_an_order_waits_for_room_in_a_full_backlog(tmp_path: Path) -> None:
    path = tmp_path / "sim.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(0)
    first = socket.socket(socket.AF_UNIX)
    first.connect(str(path))
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(client.order(path, {"status": True})))
    asking.start()
    asking.join(timeout=0.05)
    assert asking.is_alive(), "the backlog has no room yet"
    listener.accept()[0].close()
    second, _ = listener.accept()
    second.recv(1024)
    second.sendall(b'{"ok": true}\n')
    asking.join(timeout=HANG_S)
    for each in (first, second, listener):
        each.close()
    assert answers == [{"ok": True}]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    ["gpu", "xid", "gi", "lost", "ecc", "slow", "fail", "load", "driver", "nvlinkDown", "reset", "status"]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@example({"\n": None})
@given(st.dictionaries(keys, values, max_size=4) | values)
def test_any_value_is_an_order_or_an_input_error(value: object) -> None:
    told = ""
    try:
        read_request(json.dumps(value), 4)
    except InputError as error:
        told = str(error)
    assert "\n" not in told
