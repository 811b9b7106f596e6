"""What a driver has beside its libraries: for OpenCL, Vulkan, EGL, OptiX, X.Org, and its daemons' sockets."""

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agent.config.settings import DriverSettings
from agent.kubelet.cdifiles import CdiFiles
from agent.kubelet.driverfiles import find_driver
from agent.kubelet.hostroot import HostRoot
from deviceplugin.cdi import gpu_spec
from deviceplugin.drivermounts import HookProgram
from deviceplugin.strategy import AllocationSpec, DeviceAccess, DeviceListStrategy, NodeAccess
from tests.support.agent.hosts import VERSION, debian, elf, gke

LIB = "/usr/lib/x86_64-linux-gnu"
BESIDE = (
    "/etc/OpenCL/vendors/nvidia.icd",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "/usr/share/nvidia/nvoptix.bin",
    "/etc/X11/xorg.conf.d/10-nvidia.conf",
    "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
    f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    f"/lib/firmware/updates/{os.uname().release}/nvidia/{VERSION}/gsp_tu10x.bin",
    "/usr/lib/xorg/modules/drivers/nvidia_drv.so",
    f"/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so.{VERSION}",
    f"{LIB}/libnvidia-egl-gbm.so.1.1.1",
    f"{LIB}/libnvidia-egl-wayland2.so.1.0.0",
    f"{LIB}/nvidia/current/libnvidia-nvvm70.so.4",
    f"{LIB}/nvidia/current/libnvidia-allocator.so.{VERSION}",
    f"{LIB}/nvidia/current/libnvidia-vulkan-producer.so.{VERSION}",
)


def put(root: Path, *paths: str) -> None:
    for path in paths:
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(elf(place.name))


def edits_of(root: Path, program: HookProgram | None) -> dict[str, Any]:
    driver = structs.replace(find_driver(HostRoot(root), VERSION), hook=program)
    found: dict[str, Any] = gpu_spec(AllocationSpec(), NodeAccess(), driver)["containerEdits"]
    return found


def mounts_of(edits: dict[str, Any]) -> dict[str, str]:
    return {one["containerPath"]: one["hostPath"] for one in edits["mounts"]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    debian(tmp_path)
    put(tmp_path, *BESIDE)
    return tmp_path


def test_all_that_nvidias_list_has_beside_libraries_is_mounted_at_its_place(root: Path) -> None:
    """NVIDIA's toolkit (1.20.0, run on this root) has the same mounts."""
    mounts = mounts_of(edits_of(root, HookProgram("/usr/bin/nvidia-cdi-hook")))
    for path in BESIDE:
        host = mounts[path]
        assert host.startswith(f"{root}/")
        assert Path(host).samefile(root / path.lstrip("/")), path


def test_vulkans_files_are_in_etc_wherever_the_root_has_them(tmp_path: Path) -> None:
    host = gke(tmp_path)
    put(host.driver_root, "/vulkan/icd.d/nvidia_icd.json")
    put(host.driver_root, f"/usr/share/vulkan/icd.d/nvidia_icd.{os.uname().machine}.json")
    mounts = mounts_of(edits_of(host.driver_root, None))
    assert mounts["/etc/vulkan/icd.d/nvidia_icd.json"] == f"{host.driver_root}/vulkan/icd.d/nvidia_icd.json"
    assert f"/etc/vulkan/icd.d/nvidia_icd.{os.uname().machine}.json" in mounts


@pytest.mark.parametrize("program", [None, HookProgram("/usr/bin/nvidia-cdi-hook")])
def test_links_of_gbm_vulkan_and_x_org_are_there_with_and_without_the_hook_program(
    root: Path, program: HookProgram | None
) -> None:
    edits = edits_of(root, program)
    current = f"{LIB}/nvidia/current"
    names = {word.partition("::")[2] for hook in edits.get("hooks", ()) for word in hook["args"]}
    names |= mounts_of(edits).keys()
    assert names >= {
        f"{current}/gbm/nvidia-drm_gbm.so",
        f"{current}/libnvidia-vulkan-producer.so",
        "/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so",
    }
    if program is None:
        assert f"{LIB}/gbm/nvidia-drm_gbm.so" in names, "where an image's own loader of GBM looks"


def test_sockets_of_the_drivers_daemons_are_given_as_sockets(root: Path) -> None:
    put(root, "/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps/control")
    mounts = {one["containerPath"]: one for one in edits_of(root, None)["mounts"]}
    for path in ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"):
        assert mounts[path]["hostPath"] == f"{root}{path}"
        assert "ro" not in mounts[path]["options"]
        assert "noexec" in mounts[path]["options"]
    assert not any("nvidia-mps" in path and path.startswith("/tmp") for path in mounts)


async def test_a_socket_that_comes_or_goes_is_noticed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = DriverSettings(driver_root=root, cdi_hook_path=Path("/nowhere/nvidia-ctk"))
    files = CdiFiles(tmp_path_factory.mktemp("cdi"), settings, simulated=False)
    spec = AllocationSpec(strategies=(DeviceListStrategy.CDI_CRI,))
    access = NodeAccess({"GPU-0": DeviceAccess("0")}, driver_version=VERSION)
    assert not files.sockets_differ(), "nothing is written yet"
    await files.write(spec, access)
    assert not files.sockets_differ()
    put(root, "/run/nvidia-fabricmanager/socket")
    assert files.sockets_differ()
    assert await files.write(spec, access)
    assert not files.sockets_differ()
