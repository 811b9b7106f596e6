"""CPU until a request: of programs whose work is known."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.bench.commandline.firstrequest import Door, NoRequestError, to_end, to_first_line, to_first_request
from hack.bench.commandline.main import EMPTY, KUBECTL, rows

WORK = "import time\nwhile time.process_time() < {0}: pass\n"


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    found = Door(path=tmp_path / "door")
    yield found
    found.close()


def program(before_s: float, path: Path, *, asks: bool = True) -> list[str]:
    """Uses so much CPU, then asks, then works on until it is ended."""
    then = "s.sendall(b'x')" if asks else "s.close()"
    ask = f"s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r}); {then}\n"
    return [sys.executable, "-c", f"import socket\n{WORK.format(before_s)}{ask}{WORK.format(60) if asks else ''}"]


def test_what_is_done_before_the_request_counts(door: Door, tmp_path: Path) -> None:
    taken_s = to_first_request(program(0.3, tmp_path / "door"), os.environ, [door])
    assert 0.3 <= taken_s < 5


def test_a_connection_without_a_request_is_none(door: Door, tmp_path: Path) -> None:
    with pytest.raises(NoRequestError, match="ended without a request"):
        to_first_request(program(0, tmp_path / "door", asks=False), os.environ, [door])


def test_a_program_that_fails_is_told_with_its_last_words(door: Door) -> None:
    failing = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    with pytest.raises(NoRequestError, match="no such luck"):
        to_first_request(failing, os.environ, [door])
    with pytest.raises(NoRequestError, match="no such luck"):
        to_end(failing, os.environ)


def test_a_line_and_an_end_count_as_well() -> None:
    line = [sys.executable, "-c", f"{WORK.format(0.2)}print('x', flush=True)\n{WORK.format(60)}"]
    assert 0.2 <= to_first_line(line, os.environ) < 5
    assert 0.2 <= to_end([sys.executable, "-c", WORK.format(0.2)], os.environ) < 5


def test_a_row_has_its_ratios_to_what_was_measured_beside_it() -> None:
    found = rows({EMPTY: 0.01, KUBECTL: 0.1, "queue list": 0.25, "queue list --offline": 0.5})
    assert [(row.measured, row.target) for row in found] == [
        ("0.010 s = 0.1 x kubectl", ""),
        ("0.100 s = 10.0 x python", ""),
        ("0.250 s = 25.0 x python, 2.5 x kubectl", "0.5 s"),
        ("0.500 s = 50.0 x python, 5.0 x kubectl", ""),
    ]
    assert rows({EMPTY: 0.01})[0].measured == "0.010 s"


def test_a_door_on_a_port_is_this_machines_alone() -> None:
    found = Door()
    assert found.listener.family == socket.AF_INET
    assert found.listener.getsockname()[0] == "127.0.0.1"
    found.close()
