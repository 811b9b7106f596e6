"""What ``tessera advise`` asks, answered by Prometheus' own engine from series that are written down here."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.advise.queries import queries
from hack import prometheus

pytestmark = pytest.mark.e2e

HOUR_S = 3600
GPU = 'Hostname="n1",UUID="GPU-1"'
TRAIN = f'{GPU},namespace="team",pod="train",container="main"'
SLICE = f'Hostname="n1",UUID="GPU-2",GPU_I_ID="1",GPU_I_PROFILE="3g.40gb",{TRAIN.partition("GPU-1")[2][2:]}'
OTHER = 'hostname="n2",UUID="GPU-3",namespace="else",pod="serve",container="main"'


@pytest.fixture(scope="module", autouse=True)
def promtool() -> None:
    prometheus.ensure()


def steps(*parts: tuple[float, int]) -> str:
    """A sample a minute: each value for so many minutes."""
    return " ".join(f"{value:g}x{minutes - 1}" for value, minutes in parts)


OF_WHOLE, OF_SLICE = 'resource="nvidia.com/gpu",mode="whole"', 'resource="nvidia.com/mig-3g.40gb",mode="mig"'
SERIES = {
    f"tessera_gpu_allocation{{{TRAIN},{OF_WHOLE},job='a'}}": f"_x30 {steps((1, 31))}",
    f"tessera_gpu_allocation{{{SLICE},{OF_SLICE}}}": steps((0.5, 61)),
    f"tessera_gpu_allocation{{{OTHER},{OF_WHOLE}}}": steps((1, 61)),
    "tessera_agent_info{instance='x'}": steps((1, 61)),
    # Six minutes of an hour are more than a twentieth, two are less.
    f'tessera_pod_gpu_busy_ratio{{{TRAIN},owner="pod",source="gpm"}}': steps((0.25, 55), (0.75, 6)),
    f'tessera_pod_gpu_busy_ratio{{{SLICE},owner="pod",source="gpm"}}': steps((0.25, 59), (0.75, 2)),
    f'tessera_pod_gpu_busy_ratio{{{GPU},owner="unattributed",source="gpm"}}': steps((0.9, 61)),
    f"DCGM_FI_PROF_SM_ACTIVE{{{TRAIN},modelName='H'}}": steps((0.125, 55), (0.5, 6)),
    f"DCGM_FI_PROF_SM_ACTIVE{{{GPU},modelName='H'}}": steps((0.9, 61)),
    f"DCGM_FI_PROF_DRAM_ACTIVE{{{TRAIN},modelName='H'}}": steps((0.125, 55), (0.25, 4), (0.5, 2)),
    f'tessera_pod_gpu_memory_used_bytes{{{TRAIN},owner="pod"}}': steps((1e9, 55), (2e9, 4), (3e9, 2)),
    f'tessera_pod_gpu_memory_used_bytes{{{GPU},owner="unattributed"}}': steps((9e9, 61)),
    f'tessera_pod_gpu_use{{{TRAIN},owner="pod",use="empty"}}': "_x54 1x5",
    f'tessera_pod_gpu_use{{{TRAIN},owner="pod",use="active"}}': "_x57 1x2",
    f"DCGM_FI_DEV_FB_USED{{{TRAIN},modelName='H'}}": steps((600, 61)),
    f"DCGM_FI_DEV_FB_USED{{{GPU},modelName='H'}}": steps((100, 61)),
    f"DCGM_FI_DEV_FB_FREE{{{GPU},modelName='H'}}": steps((300, 61)),
}
ALLOCATED = {f"{TRAIN},{OF_WHOLE}": 1.0, f"{SLICE},{OF_SLICE}": 0.5, f"{OTHER},{OF_WHOLE}": 1.0}
AGES = {f"{TRAIN},{OF_WHOLE}": 1800.0, f"{SLICE},{OF_SLICE}": 3600.0, f"{OTHER},{OF_WHOLE}": 3600.0}
ANSWERS: dict[str, dict[str, float]] = {
    "there": {"": 1},
    "renamed": {},
    "allocation": ALLOCATED,
    "age": AGES,
    "busy": {TRAIN: 0.75, SLICE: 0.25},
    "sm": {TRAIN: 0.5},
    "dram": {TRAIN: 0.25},
    "memory": {TRAIN: 2e9},
    "most": {TRAIN: 3e9},
    "empty": {TRAIN: 6},
    "used": {TRAIN: 3},
    "models": {f'{GPU},modelName="H"': 1},
    "sizes": {f'{GPU},modelName="H"': 1000},
}
"""By query, then by labels."""


def mine(answers: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Those of the namespace ``else``; what is not about containers is as before."""
    general = ("there", "renamed", "models", "sizes")
    return {
        name: {key: value for key, value in found.items() if name in general or 'namespace="else"' in key}
        for name, found in answers.items()
    }


@pytest.mark.parametrize(("namespace", "answers"), [(None, ANSWERS), ("else", mine(ANSWERS))])
def test_each_query_is_answered_as_the_advice_takes_it(
    namespace: str | None, answers: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    asked = queries(HOUR_S, namespace)
    assert asked.keys() == answers.keys()
    tests: list[dict[str, Any]] = [
        {
            "expr": query,
            "eval_time": "60m",
            "exp_samples": [{"labels": f"{{{labels}}}", "value": value} for labels, value in answers[name].items()],
        }
        for name, query in asked.items()
    ]
    series = [{"series": name.replace("'", '"'), "values": values} for name, values in SERIES.items()]
    case = {"interval": "1m", "input_series": series, "promql_expr_test": tests}
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_scrape_that_renames_labels_is_seen(tmp_path: Path) -> None:
    name = 'tessera_gpu_allocation{exported_pod="train",pod="agent"}'
    test = {"expr": queries(HOUR_S, None)["renamed"], "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": 1}]}
    case = {"interval": "1m", "input_series": [{"series": name, "values": "1x9"}], "promql_expr_test": [test]}
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
