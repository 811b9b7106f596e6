"""The journal of repairs."""

from pathlib import Path

import pytest

from agent.health.repairstate import Repair, RepairSnapshot, RepairState
from agent.health.verification import GpuFacts
from agent.repair.befores import Before
from agent.repair.journal_shell import FILE, MAX_BYTES, JournalEntry, RepairJournal
from inventory.devices import GpuUuid
from inventory.mig.parts import Part
from inventory.mig.plan import Slot

GPU = GpuUuid("GPU-0")
ENTRY = JournalEntry(
    boot_id="boot",
    snapshot=RepairSnapshot(
        repairs=(Repair(gpu=GPU, state=RepairState.RESETTING, since_s=2.0, fault_s=1.0, reason="Xid119", attempt=1),),
        faults={GPU: {"Xid119": (1.0,)}},
        resets={GPU: 2.0},
    ),
    before={GPU: Before(facts=GpuFacts(memory_mib=1), slots=(Slot("3g.40gb", 0, 4, (Part(0, 3),)),))},
    recorded={GPU: GpuFacts(memory_mib=2, link_mbps=26562, pcie_width=16, links_down=(1,))},
)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    RepairJournal(tmp_path).write(ENTRY)
    assert RepairJournal(tmp_path).read() == ENTRY


def test_without_a_file_there_is_nothing(tmp_path: Path) -> None:
    assert RepairJournal(tmp_path).read() is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[]", b'{"version": 99, "boot_id": "b", "snapshot": {}}', b" " * (MAX_BYTES + 1)]
)
def test_what_cannot_be_understood_is_ignored(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert RepairJournal(tmp_path).read() is None
