"""What a conformance run says, on a folder of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.conformance

QUEUE = {"metadata": {"name": "cq"}, "spec": {"resourceGroups": []}}


def case(folder: Path, parent: str, slug: str, **given: Any) -> None:
    file = folder / parent / f"{slug}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"tags": [], **given}), encoding="utf-8")


def run(folder: Path) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "test_case"]
    result = subprocess.run(
        [*command, "-m", "conformance", "tests/conformance/kueue/test_cases.py"],
        env={**os.environ, "TESSERA_CORPUS": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout.splitlines()


def test_a_run_names_each_failure_with_its_first_difference_and_ends_with_the_sum_of_all_files(tmp_path: Path) -> None:
    given = {"clusterQueues": [QUEUE], "clusterQueueUsage": {}, "requestedFRs": []}
    right = {"wantBorrowing": False, "wantBorrowingOnRequested": False}
    case(tmp_path, "cache-TestIsBorrowingOn", "right", input=given, expect=right)
    case(tmp_path, "cache-TestIsBorrowingOn", "wrong", input=given, expect={**right, "wantBorrowing": True})
    case(tmp_path, "cache-TestIsBorrowingOn", "broken", input={}, expect={})
    case(tmp_path, "scheduler-TestNobodyRunsThis", "unknown", input={}, expect={})
    code, lines = run(tmp_path)
    assert code == 1
    assert "FAIL cache-TestIsBorrowingOn/wrong: wantBorrowing: expected true, found false" in lines
    assert any(line.startswith("FAIL cache-TestIsBorrowingOn/broken: raised KeyError") for line in lines)
    assert lines[-2:] == [
        "conformance: 1 not yet in force: no runner",
        "conformance: 1 passed of 4 cases, 0 declared different",
    ]


def test_a_folder_may_hold_cases_at_any_depth_beside_files_that_are_none(tmp_path: Path) -> None:
    given = {"clusterQueues": [QUEUE], "clusterQueueUsage": {}, "requestedFRs": []}
    right = {"wantBorrowing": False, "wantBorrowingOnRequested": False}
    nested = tmp_path / "scheduling"
    nested.mkdir()
    case(nested, "cache-TestIsBorrowingOn", "in-its-suite", input=given, expect=right)
    case(tmp_path, "loose", "names-its-suite", suite="cache-TestIsBorrowingOn", input=given, expect=right)
    case(tmp_path, "loose", "note", what="no case", input=given)
    (nested / "index.json").write_text("[1]", encoding="utf-8")
    (tmp_path / "lines.jsonl").write_text("{}\n{}\n", encoding="utf-8")
    code, lines = run(tmp_path)
    assert code == 0, lines
    assert lines[-3:] == [
        "conformance: 3 files hold no case and were passed over: lines.jsonl, loose/note.json, scheduling/index.json",
        "conformance: 0 not yet in force: no runner",
        "conformance: 2 passed of 2 cases, 0 declared different",
    ]
