"""The agent's memory stays flat on a full node whose pods come and go. Needs no cluster, only time."""

import asyncio

import pytest

from hack.bench.node.soak import soak

pytestmark = pytest.mark.e2e

TURNS = 120.0


def test_memory_is_flat_while_pods_come_and_go() -> None:
    found = asyncio.run(soak(TURNS))
    assert found.flat, f"{found.early_mib:.1f} MiB, then {found.late_mib:.1f} MiB"
