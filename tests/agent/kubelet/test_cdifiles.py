"""CDI files on disk: written when something changes, by NVIDIA's tool where it works, else by our own knowledge."""

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agent.config.settings import DriverSettings
from agent.kubelet import cdifiles
from agent.kubelet.cdifiles import CdiFiles, run_program
from agent.kubelet.driverfiles import NoDriverError
from deviceplugin.answer import CDI_VENDOR
from deviceplugin.cdi import file_name
from deviceplugin.drivermounts import HOOKS
from deviceplugin.strategy import AllocationSpec, DeviceIdStrategy, DeviceListStrategy, NodeAccess
from kube.testing import eventually
from tests.deviceplugin.test_cdi import VALIDATOR
from tests.support.agent.hosts import VERSION, install
from tests.support.deviceplugin.views import access_of
from tests.support.inventory.builders import instances, whole

CDI = AllocationSpec(strategies=(DeviceListStrategy.CDI_CRI,))
GPU_FILE = file_name("gpu")
ACCESS = structs.replace(access_of([whole(0), *instances(1, 1)]), driver_version=VERSION)
GENERATED: dict[str, Any] = {
    "cdiVersion": "0.7.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
        for name in ("GPU-00", "MIG-01-0", "all")
    ],
    "containerEdits": {"env": ["GENERATED=1"]},
}


def program(path: Path, script: str) -> Path:
    """A shell script in place of a program of the host."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def ctk(folder: Path, output: str, *, status: int = 0) -> Path:
    """An nvidia-ctk that prints ``output`` and writes down how it was called."""
    (folder / "output").write_text(output)
    script = f'echo "$@" >> {folder}/calls\ncat {folder}/output\necho trouble >&2\nexit {status}'
    return program(folder / "nvidia-ctk", script)


class Host:
    """A host below a folder, with a driver, and a ``ldconfig`` that prints nothing unless told otherwise."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.cdi = root / "cdi"
        self.driver_root = root / "driver"
        monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
        self.ldconfig("")
        install(self.driver_root / "usr/lib64")

    def ldconfig(self, output: str) -> None:
        (self.root / "ldconfig.txt").write_text(output)
        program(self.root / "bin/ldconfig", f'echo "$@" > {self.root}/ldconfig.args\ncat {self.root}/ldconfig.txt')

    def files(self, hook: Path | None = None, *, simulated: bool = False) -> CdiFiles:
        hook = hook or self.root / "none/nvidia-ctk"
        driver = DriverSettings(driver_root=self.driver_root, dev_root=self.root, cdi_hook_path=hook)
        return CdiFiles(self.cdi, driver, simulated=simulated)

    def read(self, name: str = GPU_FILE) -> Any:
        return json.loads((self.cdi / name).read_bytes())

    def devices(self, name: str = GPU_FILE) -> list[str]:
        return [device["name"] for device in self.read(name)["devices"]]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


# What is written, and when.


async def test_each_class_has_a_file_that_runtimes_can_read(host: Host) -> None:
    spec = AllocationSpec(strategies=CDI.strategies, gds=True, imex_channels=(0,))
    changed = await host.files().write(spec, ACCESS)
    assert set(changed) == {path.name for path in host.cdi.iterdir()}
    assert set(changed) == {GPU_FILE, file_name("gds"), file_name("imex-channel")}
    for name in changed:
        VALIDATOR.validate(host.read(name))
        assert stat.S_IMODE((host.cdi / name).stat().st_mode) == 0o644


async def test_files_that_lack_a_device_are_told_from_those_that_do_not(host: Host) -> None:
    files = host.files()
    assert files.lacking(CDI, ACCESS)
    await files.write(CDI, ACCESS)
    assert not files.lacking(CDI, ACCESS)
    assert files.lacking(AllocationSpec(strategies=CDI.strategies, device_id=DeviceIdStrategy.INDEX), ACCESS)
    (host.cdi / GPU_FILE).write_text("{")
    assert files.lacking(CDI, ACCESS)
    assert not files.lacking(AllocationSpec(), ACCESS)


async def test_without_a_cdi_strategy_nothing_is_written(host: Host) -> None:
    assert await host.files().write(AllocationSpec(), ACCESS) == ()
    assert not host.cdi.exists()


async def test_only_what_changed_is_written_again(host: Host) -> None:
    files = host.files()
    spec = AllocationSpec(strategies=CDI.strategies, gds=True)
    await files.write(spec, ACCESS)
    assert await files.write(spec, ACCESS) == ()
    assert await files.write(spec, access_of([whole(0)])) == (GPU_FILE,)
    assert host.devices() == ["GPU-00"]


async def test_a_file_that_somebody_removed_is_written_again(host: Host) -> None:
    files = host.files()
    await files.write(CDI, ACCESS)
    (host.cdi / GPU_FILE).unlink()
    assert await files.write(CDI, ACCESS) == (GPU_FILE,)


async def test_a_node_without_devices_has_no_file_since_an_empty_one_is_invalid(host: Host) -> None:
    files = host.files()
    await files.write(CDI, ACCESS)
    assert await files.write(CDI, NodeAccess()) == ()
    assert not (host.cdi / GPU_FILE).exists()
    assert await files.write(CDI, ACCESS) == (GPU_FILE,)


async def test_a_folder_that_cannot_be_written_is_an_os_error(host: Host) -> None:
    host.cdi.write_text("a file where the folder should be")
    with pytest.raises(OSError, match="cdi"):
        await host.files().write(CDI, ACCESS)


async def test_simulated_gpus_run_no_program_of_the_host(host: Host) -> None:
    hook = ctk(host.root / "bin", json.dumps(GENERATED))
    await host.files(hook, simulated=True).write(CDI, ACCESS)
    assert host.devices() == ["GPU-00", "MIG-01-0"]
    assert not (host.root / "bin/calls").exists()
    assert not (host.root / "ldconfig.args").exists()


# The driver.


async def test_the_drivers_libraries_are_those_of_its_folders_and_no_program_is_asked(host: Host) -> None:
    await host.files().write(CDI, ACCESS)
    mounts = {one["containerPath"]: one["hostPath"] for one in host.read()["containerEdits"]["mounts"]}
    assert mounts["/usr/lib64/libcuda.so.1"] == f"{host.driver_root}/usr/lib64/libcuda.so.{VERSION}"
    assert not (host.root / "ldconfig.args").exists()


async def test_where_the_folders_have_none_the_loaders_cache_says_where(host: Host) -> None:
    (host.driver_root / "usr/lib64").rename(host.driver_root / "opt")
    (host.driver_root / "etc").mkdir()
    (host.driver_root / "etc/ld.so.cache").touch()
    host.ldconfig("\tlibcuda.so.1 (libc6,x86-64) => /opt/libcuda.so.1\n")
    await host.files().write(CDI, ACCESS)
    cache = host.driver_root / "etc/ld.so.cache"
    assert (host.root / "ldconfig.args").read_text().split() == ["-p", "-C", str(cache)]
    assert f"{host.driver_root}/opt/libcuda.so.{VERSION}" in (host.cdi / GPU_FILE).read_text()


async def test_without_libcuda_no_file_says_that_there_is_a_gpu(host: Host) -> None:
    files = host.files()
    await files.write(CDI, ACCESS)
    (host.driver_root / "usr/lib64" / f"libcuda.so.{VERSION}").unlink()
    with pytest.raises(
        NoDriverError, match=rf"^found no libcuda.so.{VERSION} below the driver root {host.driver_root},"
    ):
        await files.write(CDI, ACCESS)
    assert not (host.cdi / GPU_FILE).exists()


async def test_switches_for_hooks_reach_the_tool_and_our_own_spec(host: Host) -> None:
    hook = ctk(host.root / "bin", json.dumps(GENERATED))
    files = host.files(hook)
    files.driver = structs.replace(files.driver, cdi_disable_hooks=("enable-cuda-compat",), cdi_feature_flags=("x",))
    await files.write(CDI, ACCESS)
    assert (host.root / "bin/calls").read_text().split()[-2:] == [
        "--disable-hook=enable-cuda-compat",
        "--feature-flag=x",
    ]
    hook.write_text("#!/bin/sh\nexit 1\n")
    await files.write(CDI, ACCESS)
    hooks = [one["args"][2] for one in host.read()["containerEdits"]["hooks"]]
    assert hooks == [hook for hook in HOOKS if hook != "enable-cuda-compat"]


# NVIDIA's tool.


async def test_a_generated_spec_is_used_under_our_kind(host: Host) -> None:
    hook = ctk(host.root / "bin", json.dumps(GENERATED))
    assert await host.files(hook).write(CDI, ACCESS) == (GPU_FILE,)
    assert host.read() == GENERATED | {"kind": f"{CDI_VENDOR}/gpu"}


async def test_the_tool_is_told_roots_and_naming(host: Host) -> None:
    hook = ctk(host.root / "bin", json.dumps(GENERATED))
    spec = AllocationSpec(strategies=CDI.strategies, device_id=DeviceIdStrategy.INDEX)
    await host.files(hook).write(spec, ACCESS)
    words = (host.root / "bin/calls").read_text().split()
    assert words == [
        "cdi",
        "generate",
        "--format=json",
        "--device-name-strategy=index",
        f"--driver-root={host.driver_root}",
        f"--dev-root={host.root}",
    ]


@pytest.mark.parametrize(
    ("output", "status"),
    [
        (json.dumps(GENERATED), 1),
        ("", 0),
        ("not JSON", 0),
        ("[]", 0),
        ("{}", 0),
        ('{"devices": []}', 0),
        ('{"devices": {"name": "GPU-00"}}', 0),
        ('{"devices": [{"containerEdits": {}}]}', 0),
        ('{"devices": [{"name": 7}]}', 0),
        (json.dumps(GENERATED | {"devices": GENERATED["devices"][:1]}), 0),
    ],
    ids=[
        "fails",
        "silent",
        "not-json",
        "list",
        "no-devices-key",
        "no-devices",
        "devices-a-mapping",
        "nameless",
        "name-a-number",
        "a-device-missing",
    ],
)
async def test_a_tool_that_fails_is_replaced_by_our_own_spec(
    host: Host, output: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    hook = ctk(host.root / "bin", output, status=status)
    await host.files(hook).write(CDI, ACCESS)
    VALIDATOR.validate(host.read())
    assert host.devices() == ["GPU-00", "MIG-01-0"]
    assert len([record for record in caplog.records if record.name == "agent.kubelet.cdifiles"]) <= 1


# Running programs.


async def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdifiles, "PROGRAM_TIMEOUT_S", 0.3)
    path = program(tmp_path / "hangs", f"sleep 600 &\necho $! > {tmp_path}/child\nwait")
    assert await run_program(str(path)) is None
    child = int((tmp_path / "child").read_text())
    await eventually(lambda: not is_running(child))


async def test_a_cancelled_run_ends_its_program(tmp_path: Path) -> None:
    path = program(tmp_path / "hangs", f"echo $$ > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pid\nsleep 600")
    running = asyncio.create_task(run_program(str(path)))
    await eventually((tmp_path / "pid").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    pid = int((tmp_path / "pid").read_text())
    await eventually(lambda: not is_running(pid))


async def test_a_program_that_is_missing_or_fails_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await run_program(str(tmp_path / "missing")) is None
    assert await run_program(str(program(tmp_path / "fails", "echo why >&2; exit 3"))) is None
    assert [record.getMessage() for record in caplog.records] == ["cannot run", "failed"]


async def test_what_a_program_prints_comes_back_whole(tmp_path: Path) -> None:
    path = program(tmp_path / "prints", "head -c 300000 /dev/zero")
    assert await run_program(str(path)) == b"\0" * 300_000


def is_running(pid: int) -> bool:
    """Whether the process lives; one that nobody has waited for yet is dead all the same."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
