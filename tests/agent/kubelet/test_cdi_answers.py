"""The common edits of a GPU spec beside those of NVIDIA's container toolkit, on the same hosts."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agent.kubelet.driverfiles import NoDriverError, find_driver
from agent.kubelet.hostroot import HostRoot
from deviceplugin.cdi import gpu_spec
from deviceplugin.drivermounts import HookProgram
from deviceplugin.strategy import AllocationSpec, NodeAccess
from tests.agent.answers import rows
from tests.support.agent.hosts import LAYOUTS, VERSION

ROWS = rows("cdi")
FOUND_HERE = {"talos"}
"""Where we find a driver that NVIDIA's search, without a loader's cache, does not."""


def pairs(words: list[str]) -> set[str]:
    return {link for flag, link in pairwise(words) if flag == "--link"}


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['layout']}-{row['libraries']}" for row in ROWS])
def test_a_spec_has_what_nvidias_has_and_is_refused_where_it_is(row: dict[str, Any], tmp_path: Path) -> None:
    host = LAYOUTS[row["layout"]](tmp_path, libraries=row["libraries"])
    root = HostRoot(host.driver_root)
    if "refuses" in row and not (row["libraries"] and row["layout"] in FOUND_HERE):
        with pytest.raises(NoDriverError, match=f"libcuda.so.{VERSION}"):
            find_driver(root, VERSION)
        return
    driver = structs.replace(find_driver(root, VERSION), hook=HookProgram("/usr/bin/nvidia-cdi-hook"))
    edits = gpu_spec(AllocationSpec(), NodeAccess(), driver)["containerEdits"]
    mounts = {one["containerPath"]: one["hostPath"] for one in edits["mounts"]}
    if "refuses" in row:
        assert any(path.endswith(f"/libcuda.so.{VERSION}") for path in mounts)
        return
    assert set(row["env"]) <= set(edits["env"])
    expected = {inside: path.replace("ROOT", str(host.driver_root)) for inside, path in row["mounts"].items()}
    assert expected.items() <= mounts.items()
    (links, *others), (our_links, *our_others) = row["hooks"], [hook["args"] for hook in edits["hooks"]]
    assert our_others == others
    assert our_links[:2] == links[:2]
    assert pairs(links) <= pairs(our_links)
