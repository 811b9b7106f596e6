"""Gives orders to simulated hardware, whether a simulation runs or not.

A running simulation takes them on its control socket. Without one they are applied to the state file, under its lock:
no process receives the event itself then, but its lasting effects are there when the agent starts.
"""

import json
import socket
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from simulator.control import SOCKET_FILE, read_request
from simulator.fleet import orders
from simulator.hardware import hardware as hw
from simulator.hardware.hardware import OrderError
from simulator.hardware.status import describe
from simulator.hardware.store import Store, StoreError
from simulator.reading import InputError

ANSWER_TIMEOUT_S = 10.0
ANSWER_LIMIT = 2**20
RETRY_PAUSE_S = 0.01


class OrderRefusedError(ValueError):
    """The order was not followed; one line says why."""


def order(socket_or_state_dir: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Give one order, written as the fleet file's events are (``{"gpu": 3, "xid": 79}``, ``{"reboot": True}``).

    The answer is ``{"ok": True, "live": bool}``, with ``status`` for a status order; ``live`` is whether a running
    simulation took it. Raises OrderRefusedError.
    """
    path = Path(socket_or_state_dir)
    if path.is_dir():
        path /= SOCKET_FILE
    elif not path.is_socket() and path.suffix != ".sock":
        raise OrderRefusedError(f"{path}: no such folder, expected the state folder of an agent (--state-dir)")
    line = json.dumps(request)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            _connect(connection, path)
            answer = _ask(connection, line)
    except (FileNotFoundError, ConnectionRefusedError):
        return _apply(path.parent, line)
    except OSError as error:
        raise OrderRefusedError(f"{path}: {error}") from error
    if "error" in answer:
        raise OrderRefusedError(str(answer["error"]))
    return answer


def _connect(connection: socket.socket, path: Path) -> None:
    """Connect, within the time limit. A Unix socket with a time-out does not wait for room in a full backlog:
    connect(2) says EAGAIN at once.
    """
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            connection.connect(str(path))
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(RETRY_PAUSE_S)
        else:
            return


def _ask(connection: socket.socket, line: str) -> dict[str, Any]:
    connection.sendall(line.encode() + b"\n")
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(ANSWER_LIMIT)
        data += part
        if not part or len(data) > ANSWER_LIMIT:
            raise OrderRefusedError("the simulator hung up without an answer")
    answer = json.loads(data)
    if not isinstance(answer, dict):
        raise OrderRefusedError("the simulator's answer is no object")
    return answer


def _apply(state_dir: Path, line: str) -> dict[str, Any]:
    """Follow an order on the state file alone."""
    if not state_dir.is_dir():
        raise OrderRefusedError(f"{state_dir}: no such folder")
    try:
        with Store(state_dir, wait_s=1.0) as store:
            hardware = store.load()
            if hardware is None:
                raise OrderRefusedError(f"{state_dir}: no simulated hardware here; run an agent with --simulate first")
            wanted = read_request(line, len(hardware.gpus))
            t = max(0.0, time.time() - hardware.created)
            if isinstance(wanted, orders.Status):
                return {"ok": True, "live": False, "status": describe(hardware, t)}
            if isinstance(wanted, orders.Reboot):
                store.save(hw.reboot(hardware, boot_id=str(uuid4()), created=time.time()))
            else:
                store.save(hw.apply(hardware, wanted, t)[0])
    except (InputError, OrderError, StoreError) as error:
        raise OrderRefusedError(str(error)) from error
    return {"ok": True, "live": False}
