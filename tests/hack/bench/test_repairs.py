"""The benchmark of repairs, with one agent."""

import asyncio
import tempfile
from pathlib import Path

from agent.health.repairs import BREAKER_GPUS
from hack.bench.node.repairs import Repaired, granted, measured, rows


def test_one_agent_repairs_as_many_gpus_as_its_breaker_lets_it_and_no_other_leaves() -> None:
    with tempfile.TemporaryDirectory() as short:  # a socket's path has 108 characters at most
        found = asyncio.run(measured(Path(short), 1))
    assert len(found) == BREAKER_GPUS
    for each in found:
        assert 0 < each.fenced_s <= each.fenced_s + each.begun_s <= each.returned_s
        assert each.others == 0


def test_with_a_controller_each_reset_takes_a_grant() -> None:
    with tempfile.TemporaryDirectory() as short:
        found = asyncio.run(granted(Path(short) / "g", 1))
    assert [each.others for each in found] == [0] * BREAKER_GPUS


def test_its_table_adds_up_the_gpus_that_left_beside() -> None:
    found = [Repaired(0.01, 0.2, 2.0, 1), Repaired(0.02, 0.3, 3.0, 2)]
    told = {row.what: row for row in rows(found)}
    assert told["other GPUs that left the list meanwhile"].measured == "3"
    assert told["XID to the list with the GPU again, without probation"].measured == "median 2.50 s, worst 3.00 s"
