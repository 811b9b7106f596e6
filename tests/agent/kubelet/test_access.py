"""Which files a container needs, from recorded /dev, /proc and /sys trees."""

import shutil
from pathlib import Path

import pytest

from agent.kubelet.access import NULL, Roots, capability_paths, missing_channels, node_access
from agent.kubelet.hostroot import seen_at
from deviceplugin.strategy import DeviceAccess, DeviceNode, NodeAccess, Symlink
from inventory.devices import Gpu, NodeInventory
from tests.support.inventory.builders import gpu, node


def touch(root: Path, *paths: str) -> None:
    for path in paths:
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def capability(proc: Path, minor: int, below: str, content: str) -> None:
    path = proc / f"driver/nvidia/capabilities/gpu{minor}/mig" / below / "access"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def two_gpus() -> NodeInventory:
    """A whole GPU, and one with an instance; minors in another order than indexes, as drivers do."""
    whole, cut = gpu(0), gpu(1, mig=["3g.20gb"])
    return node([_with_minor(whole, 5), _with_minor(cut, 3)])


def _with_minor(one: Gpu, minor: int) -> Gpu:
    from msgspec import structs

    return structs.replace(one, minor=minor)


def look(
    node: NodeInventory, dev_root: Path, proc_root: Path, *, channels: tuple[int, ...] = (), simulated: bool = False
) -> NodeAccess:
    return node_access(node, Roots(dev_root, proc_root, dev_root / "sys"), channels=channels, simulated=simulated)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    root = tmp_path / "proc"
    capability(root, 3, "gi1", "DeviceFileMinor: 21\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    capability(root, 3, "gi1/ci0", "DeviceFileMinor: 22\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    return root


def test_each_device_has_its_index_and_its_own_files(tmp_path: Path, proc: Path) -> None:
    dev_root = tmp_path / "host"
    access = look(two_gpus(), dev_root, proc, simulated=False)
    assert access.devices == {
        "GPU-00": DeviceAccess("0", (DeviceNode(f"{dev_root}/dev/nvidia5", "/dev/nvidia5"),)),
        "GPU-01": DeviceAccess("1", (DeviceNode(f"{dev_root}/dev/nvidia3", "/dev/nvidia3"),)),
        "MIG-01-0": DeviceAccess(
            "1:0",
            (
                DeviceNode(f"{dev_root}/dev/nvidia3", "/dev/nvidia3"),
                DeviceNode(f"{dev_root}/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap21"),
                DeviceNode(f"{dev_root}/dev/nvidia-caps/nvidia-cap22", "/dev/nvidia-caps/nvidia-cap22"),
            ),
        ),
    }


@pytest.mark.parametrize("gone", ["driver/nvidia/capabilities", "driver/nvidia/capabilities/gpu3/mig/gi1/ci0"])
def test_capabilities_that_are_hidden_are_read_from_the_list_of_all(tmp_path: Path, proc: Path, gone: str) -> None:
    shutil.rmtree(proc / gone)
    listed = proc / "driver/nvidia-caps/mig-minors"
    listed.parent.mkdir()
    listed.write_text("config 1\nmonitor 2\ngpu3/gi1/access 21\ngpu3/gi1/ci0/access 22\ngpu3/gi2/access 30\n")
    device = look(two_gpus(), tmp_path, proc).devices["MIG-01-0"]
    assert [node.container_path[-5:] for node in device.nodes[1:]] == ["cap21", "cap22"]
    assert device.lacking == ""


def test_an_instance_without_capabilities_says_so(tmp_path: Path) -> None:
    devices = look(two_gpus(), tmp_path, tmp_path / "proc").devices
    assert "GPU 1 MIG 0 (3g.20gb): neither" in devices["MIG-01-0"].lacking
    assert devices["GPU-01"].lacking == ""


def test_shared_files_are_those_that_the_host_has(tmp_path: Path, proc: Path) -> None:
    touch(tmp_path, "/dev/nvidiactl", "/dev/nvidia-uvm")
    access = look(two_gpus(), tmp_path, proc, simulated=False)
    assert [one.container_path for one in access.shared_nodes] == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert access.shared_nodes[0].host_path == f"{tmp_path}/dev/nvidiactl"


def test_on_the_hosts_own_root_both_paths_are_the_same(proc: Path) -> None:
    access = look(two_gpus(), Path("/"), proc, simulated=False)
    (own,) = access.devices["GPU-00"].nodes
    assert own.host_path == own.container_path == "/dev/nvidia5"


def test_a_simulated_gpu_is_dev_null_under_the_real_name(tmp_path: Path, proc: Path) -> None:
    touch(tmp_path, "/dev/nvidiactl")
    access = look(two_gpus(), tmp_path, proc, simulated=True)
    assert {one.host_path for device in access.devices.values() for one in device.nodes} == {NULL}
    assert [one.container_path for one in access.devices["GPU-00"].nodes] == ["/dev/nvidia5"]
    assert access.shared_nodes == ()


@pytest.mark.parametrize("content", ["", "DeviceFileMinor: x\n", "DeviceFileMode: 292\n"])
def test_a_capability_file_without_a_minor_is_left_out(tmp_path: Path, content: str) -> None:
    capability(tmp_path, 3, "gi1", content)
    capability(tmp_path, 3, "gi1/ci0", "DeviceFileMinor: 22\n")
    cut = two_gpus().gpus[1]
    assert capability_paths(tmp_path, cut, cut.mig_instances[0]) == ("/dev/nvidia-caps/nvidia-cap22",)


def test_without_capability_files_an_instance_has_its_gpus_node(tmp_path: Path) -> None:
    access = look(two_gpus(), tmp_path, tmp_path / "none", simulated=False)
    assert [one.container_path for one in access.devices["MIG-01-0"].nodes] == ["/dev/nvidia3"]


def devices(root: Path, *paths: str) -> None:
    """Character devices, as links to one."""
    for path in paths:
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to("/dev/null")


def extras(access: NodeAccess) -> dict[str, list[str]]:
    return {cls: [one.container_path for one in nodes] for cls, nodes in access.extras.items()}


def test_features_bring_the_device_files_that_the_host_has(tmp_path: Path, proc: Path) -> None:
    devices(tmp_path, "/dev/gdrdrv", "/dev/nvidia-caps-imex-channels/channel1", "/dev/nvidia-fs0", "/dev/nvidia-fs1")
    touch(tmp_path, "/dev/infiniband/uverbs0")
    found = look(two_gpus(), tmp_path, proc, channels=(0, 1))
    assert extras(found) == {
        "gdrcopy": ["/dev/gdrdrv"],
        "gds": ["/dev/nvidia-fs0", "/dev/nvidia-fs1"],
        "mofed": [],
        "imex-channel": ["/dev/nvidia-caps-imex-channels/channel1"],
    }
    assert found.extras["gdrcopy"][0].host_path == f"{tmp_path}/dev/gdrdrv"


def test_features_of_simulated_gpus_are_dev_null_too(tmp_path: Path, proc: Path) -> None:
    found = look(two_gpus(), tmp_path, proc, channels=(0,), simulated=True)
    assert all(nodes for nodes in found.extras.values())
    assert {one.host_path for nodes in found.extras.values() for one in nodes} == {NULL}


def test_a_channel_is_missing_unless_a_character_device_is_there(tmp_path: Path) -> None:
    channel = "/dev/nvidia-caps-imex-channels/channel0"
    assert missing_channels(tmp_path, (0,)) == (channel,)
    touch(tmp_path, channel)
    assert missing_channels(tmp_path, (0,)) == (channel,)
    (tmp_path / channel[1:]).unlink()
    devices(tmp_path, channel)
    assert missing_channels(tmp_path, (0,)) == ()


# Displays.


def test_a_whole_gpu_has_its_display_files_and_their_names_by_bus_id(tmp_path: Path, proc: Path) -> None:
    node = two_gpus()
    bus_id = node.gpus[0].pci_bus_id
    for name in ("card1", "renderD128", "controlD64"):
        (tmp_path / "sys/bus/pci/devices" / bus_id / "drm" / name).mkdir(parents=True)
    devices(tmp_path, "/dev/dri/card1", "/dev/dri/renderD128", "/dev/dri/card0")
    by_path = tmp_path / "dev/dri/by-path"
    by_path.mkdir()
    (by_path / f"pci-{bus_id}-card").symlink_to("../card1")
    (by_path / f"pci-{bus_id}-render").symlink_to("../card0")
    whole, cut = look(node, tmp_path, proc).devices["GPU-00"], look(node, tmp_path, proc).devices["MIG-01-0"]
    assert [one.container_path for one in whole.display_nodes] == ["/dev/dri/card1", "/dev/dri/renderD128"]
    assert whole.display_links == (Symlink(f"/dev/dri/by-path/pci-{bus_id}-card", "../card1"),)
    assert (cut.display_nodes, cut.display_links) == ((), ())


# In a container.


def test_in_a_container_what_exists_is_looked_up_at_the_mounted_driver_root(tmp_path: Path) -> None:
    mounted = tmp_path / "driver-root"
    (mounted / "dev").mkdir(parents=True)
    (mounted / "dev/nvidiactl").touch()
    roots = Roots(Path("/"), tmp_path, tmp_path)
    found = node_access(node([gpu(0)]), roots, simulated=False, seen=seen_at(Path("/"), mounted))
    assert found.shared_nodes == (DeviceNode("/dev/nvidiactl", "/dev/nvidiactl"),)


def test_outside_a_container_paths_are_as_they_are(tmp_path: Path) -> None:
    assert seen_at(Path("/"), tmp_path / "absent")(Path("/dev/nvidia0")) == Path("/dev/nvidia0")
