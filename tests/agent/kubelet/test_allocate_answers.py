"""Allocate beside NVIDIA's device plugin, row by row, on hosts laid out as GKE, Talos and Debian lay theirs out."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agent.config.load import load
from agent.config.settings import DriverSettings, Settings
from agent.kubelet.devicefiles import DeviceFiles, required_channel_problem
from deviceplugin.answer import ContainerAnswer, answer
from inventory.devices import DeviceId
from inventory.layout.layout import LogicalDevice
from tests.agent.answers import rows
from tests.support.agent.hosts import LAYOUTS, Host
from tests.support.inventory.builders import gpu, node, uuid

GPU = LogicalDevice(id=DeviceId(uuid(0)), gpu=uuid(0))
ROWS = rows("allocate")


def settings_of(row: dict[str, Any], host: Host) -> Settings:
    """What the agent makes of the row's file, on that host."""
    path = host.root / "config.yaml"
    path.write_text(json.dumps({"version": "v1", **row["config"]}))
    loaded = load(path, {}, {"--node-name": "node-1"}).settings
    driver = DriverSettings(
        driver_root=host.driver_root, dev_root=host.dev_root, container_driver_root=host.root / "not-in-a-container"
    )
    return structs.replace(
        loaded, driver=driver, sys_root=host.root / "sys", proc_root=host.root / "proc", cdi_dir=host.root / "cdi"
    )


def as_data(told: ContainerAnswer) -> dict[str, Any]:
    return {
        "envs": dict(told.envs),
        "mounts": {one.container_path: one.host_path for one in told.mounts},
        "devices": {one.container_path: one.host_path for one in told.devices},
        "cdi": list(told.cdi_devices),
        "annotation": [name for value in told.annotations.values() for name in value.split(",")],
    }


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("row", ROWS, ids=[row["case"] for row in ROWS])
def test_a_container_is_told_what_nvidias_plugin_tells_it(row: dict[str, Any], layout: str, tmp_path: Path) -> None:
    host = LAYOUTS[layout](tmp_path)
    host.devices(*row.get("host", ()))
    settings = settings_of(row, host)
    problem = required_channel_problem(settings)
    if "exits" in row:
        # NVIDIA's line names the channel, ours its path.
        *_, channel, _, _, _ = row["exits"].split()
        assert problem is not None
        assert f"/{channel} does not exist" in problem
        assert "\n" not in problem
        return
    assert problem is None
    access = DeviceFiles(settings).access(node([gpu(0)]))
    devices = [GPU] if row.get("ids", ["GPU-00"]) else []
    expected = {key: row.get(key, type(value)()) for key, value in as_data(ContainerAnswer()).items()}
    expected["devices"] = {
        inside: path.replace("HOST", str(host.dev_root)) for inside, path in expected["devices"].items()
    }
    assert as_data(answer(settings.allocation, access, devices, "token")) == expected
