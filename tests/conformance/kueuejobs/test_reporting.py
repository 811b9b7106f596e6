"""What a run over a folder of job kinds' cases says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.conformance

FOLDERS = ("tests/conformance/kueue", "tests/conformance/kueuejobs")


def case(folder: Path, suite: str, slug: str, given: Any, expect: Any) -> None:
    file = folder / suite / f"{slug}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"tags": [], "input": given, "expect": expect}), encoding="utf-8")


def test_a_folder_without_cases_of_webhooks_is_no_fault(tmp_path: Path) -> None:
    given = {"gateName": "a/b", "pod": {"metadata": {}, "spec": {"schedulingGates": [{"name": "a/b"}]}}}
    case(tmp_path, "jobs-podutil-TestHasGate", "right", given, {"want": True})
    files = [f"tests/conformance/kueuejobs/{name}.py" for name in ("test_cases", "test_policies", "test_differences")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "conformance", *files]
    environment = {**os.environ, "TESSERA_CORPUS": str(tmp_path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert result.stdout.splitlines()[-1] == "conformance: 1 passed of 1 cases, 0 declared different"


def test_a_folder_of_job_cases_is_known_by_its_suites_and_ends_with_the_sum_of_all_its_files(tmp_path: Path) -> None:
    given = {"gateName": "a/b", "pod": {"metadata": {}, "spec": {"schedulingGates": [{"name": "a/b"}]}}}
    case(tmp_path, "jobs-podutil-TestHasGate", "right", given, {"want": True})
    case(tmp_path, "jobs-podutil-TestHasGate", "wrong", given, {"want": False})
    case(tmp_path, "jobs-tfjob-TestMultiKueueAdapter", "elsewhere", {}, {})
    case(tmp_path, "jobs-pod-TestNothingOfOurs", "later", {}, {})
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "test_case",
            "-m",
            "conformance",
            *FOLDERS,
        ],
        env={**os.environ, "TESSERA_CORPUS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = result.stdout.splitlines()
    assert result.returncode == 1
    assert "FAIL jobs-podutil-TestHasGate/wrong: value: expected false, found true" in lines
    assert lines[-3].startswith("conformance: 1 cases of 1 suites are out of scope: multikueue, ")
    assert lines[-2:] == [
        "conformance: 1 cases of 1 suites are not replayed yet",
        "conformance: 1 passed of 4 cases, 0 declared different",
    ]
