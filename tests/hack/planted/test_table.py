"""What is said of planted faults."""

import pytest

from hack.planted import table
from hack.planted.planting import Fault
from hack.planted.running import Finding, Ran, Trial

FAULT = Fault("double charge", "Cluster.charge", "a", "b", "queues", ("history",), "Quota lies idle.")
FOUND = Trial(FAULT, Ran((Finding("history", "over-quota: x"), Finding("kubelet", "y")), "", 12.0))
MISSED = Trial(FAULT, Ran((), "", 3.0))
BROKEN = Trial(FAULT, Ran((), "no verdict within 240 s", 240.0))


def test_a_fault_is_found_by_the_nets_that_spoke() -> None:
    assert table.line(FOUND) == "double charge: found by history, kubelet: over-quota: x (12 s)"
    assert table.lines([FOUND, MISSED]) == [
        "fault          history  outside  hardware  kubelet  account",
        "double charge  found    -        -         found    -      ",
        "double charge  -        -        -         -        -      ",
    ]


def test_neither_silence_nor_a_program_that_failed_counts_as_found() -> None:
    assert "NOT FOUND" in table.line(MISSED)
    assert "no verdict within 240 s" in table.line(BROKEN)
    assert table.last_line([FOUND, MISSED, BROKEN]) == "planted: 1 of 3 found from outside"


def test_the_table_of_a_page_is_written_anew_between_its_marks() -> None:
    page = "Before.\n<!-- planted: table -->\nold\n<!-- planted: end -->\nAfter.\n"
    found = table.with_table(page, [FOUND])
    assert "old" not in found
    assert found.startswith("Before.\n")
    assert found.endswith("<!-- planted: end -->\nAfter.\n")
    assert "| double charge | `Cluster.charge` | Quota lies idle. | found |  |  | found |  |" in found
    assert table.with_table(found, [FOUND]) == found
    with pytest.raises(ValueError, match="found no"):
        table.with_table("nothing", [FOUND])
