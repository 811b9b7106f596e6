"""Folders of MPS daemons: open to clients of any user, closed to their hands; shared memory of a device's own."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.hardware.computemode import ComputeMode
from agent.mps import folders
from agent.mps.control import MpsError, same_percentage, same_size
from agent.mps.folders import SharedMemory, leftovers, make, members, remember_mode, remembered_modes, remove, trim_logs
from agent.mps.paths import device_paths, root_problem

DEVICE = "GPU-00000000-0000-0000-0000-000000000003"


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mps-") as base:
        yield Path(base) / "mps"


def test_any_user_passes_and_writes_its_log_and_only_the_owner_puts_sockets(root: Path) -> None:
    paths = make(root, DEVICE, SharedMemory.NONE, None)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, paths.base, paths.pipe, paths.log, paths.shm)}
    assert modes == {root: 0o711, paths.base: 0o711, paths.pipe: 0o755, paths.log: 0o1777, paths.shm: 0o1777}
    assert list(leftovers(root)) == [DEVICE]
    remove(paths)
    assert list(leftovers(root)) == []


def test_the_hosts_shared_memory_is_a_link_to_it(root: Path) -> None:
    paths = make(root, DEVICE, SharedMemory.HOST, None)
    assert str(paths.shm.readlink()) == "/dev/shm"
    remove(make(root, DEVICE, SharedMemory.HOST, None))
    assert Path("/dev/shm").is_dir()


def test_a_root_too_long_for_sockets_is_refused_before_anything_is_made(root: Path) -> None:
    long = root / ("m" * 50)
    assert root_problem(root) is None
    with pytest.raises(MpsError, match="too long"):
        make(long, DEVICE, SharedMemory.NONE, None)
    assert not long.exists()


def test_the_first_compute_mode_is_the_one_to_give_back(root: Path) -> None:
    paths = make(root, DEVICE, SharedMemory.NONE, None)
    assert remembered_modes(paths) == {}
    remember_mode(paths, DEVICE, ComputeMode.PROHIBITED)
    remember_mode(paths, DEVICE, ComputeMode.EXCLUSIVE_PROCESS)
    assert remembered_modes(paths) == {DEVICE: ComputeMode.PROHIBITED}
    (paths.base / folders.MODE_FILE).write_text("nonsense")
    assert remembered_modes(paths) == {}


def test_a_daemon_of_several_gpus_gives_back_the_mode_of_each(root: Path) -> None:
    paths = make(root, DEVICE, SharedMemory.NONE, None)
    assert members(paths) == (DEVICE,)
    remember_mode(paths, DEVICE, ComputeMode.PROHIBITED)
    remember_mode(paths, "GPU-other", ComputeMode.DEFAULT)
    remember_mode(paths, "GPU-other", ComputeMode.EXCLUSIVE_PROCESS)
    assert members(paths) == (DEVICE, "GPU-other")
    assert remembered_modes(paths) == {DEVICE: ComputeMode.PROHIBITED, "GPU-other": ComputeMode.DEFAULT}


def test_a_log_that_has_grown_too_long_is_emptied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = make(root, DEVICE, SharedMemory.NONE, None)
    monkeypatch.setattr(folders, "LOG_LIMIT_BYTES", 10)
    paths.control_log.write_text("x" * 11)
    (paths.log / "server.log").write_text("x" * 10)
    trim_logs(paths)
    assert (paths.control_log.stat().st_size, (paths.log / "server.log").stat().st_size) == (0, 10)


@pytest.mark.parametrize(
    ("answer", "mib", "same"),
    [
        ("20000M", 20000, True),
        ("20G", 20480, True),
        ("19G", 19906, True),  # rounded down to its unit
        ("19G", 20480, False),
        ("10000M", 20000, False),
        ("", 20000, False),
        ("nonsense", 20000, False),
    ],
)
def test_a_limit_that_is_read_back_is_the_one_that_was_set(answer: str, mib: int, same: bool) -> None:
    assert same_size(answer, mib) is same


def test_a_percentage_that_is_read_back_may_be_rounded() -> None:
    assert same_percentage("33.3", 33)
    assert not same_percentage("100.0", 33)
    assert not same_percentage("", 33)


NAMESPACE = """
import sys
from pathlib import Path
from agent.mps.folders import SharedMemory, make, remove
from agent.mps.launcher import bind_shm, _check
import ctypes, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
try:
    _check(libc.unshare(0x00020000), "unshare")
    _check(libc.mount(b"none", b"/", None, 0x44000, None), "private")
except OSError:
    sys.exit(77)
paths = make(Path(sys.argv[1]), sys.argv[2], SharedMemory.PRIVATE, 16)
assert os.path.ismount(paths.shm)
assert os.statvfs(paths.shm).f_blocks * os.statvfs(paths.shm).f_frsize == 16 << 20
make(Path(sys.argv[1]), sys.argv[2], SharedMemory.PRIVATE, 16)
words = [sys.executable, "-IS", "agent/mps/launcher.py", str(paths.shm)]
done = subprocess.run([*words, "sh", "-c", "echo inside > /dev/shm/mark"], check=True)
assert (paths.shm / "mark").read_text() == "inside\\n", "the program has another /dev/shm"
assert not os.path.exists("/dev/shm/mark"), "it came out"
missing = subprocess.run([*words, "no-such-program"], capture_output=True, text=True)
assert (missing.returncode, missing.stderr) == (1, "no-such-program: No such file or directory\\n"), missing
remove(paths)
assert not os.path.ismount(paths.shm) and not paths.base.exists()
"""


def test_a_device_has_shared_memory_of_its_own_and_its_daemon_has_it_at_dev_shm(root: Path) -> None:
    """In a mount namespace of a child: nothing of it is left behind."""
    repository = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", NAMESPACE, str(root), DEVICE],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode == 77:
        pytest.skip("may not mount here")
    assert done.returncode == 0, done.stderr
    assert not os.path.ismount(device_paths(root, DEVICE).shm)


def test_a_canary_without_cuda_says_so() -> None:
    canary = Path(folders.__file__).parent / "canary.py"
    done = subprocess.run([sys.executable, "-IS", str(canary)], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 0:
        pytest.skip("there is a GPU here")
    assert done.stdout.startswith("no CUDA context through MPS: ")
