"""The order in which files of the tier are run: the longest first, so that two workers end at the same time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2]
LAST: Final = "e2e/test_rights.py"
SECONDS: Final[Mapping[str, int]] = {
    "e2e/queues/test_job_kinds.py": 220,
    "e2e/queues/test_devices.py": 210,
    "e2e/queues/test_controller_jobs.py": 160,
    "e2e/queues/test_plain_pods.py": 130,
    "e2e/agent/test_soak.py": 125,
    "hack/cluster/test_lifecycle.py": 120,
    "e2e/examples/test_articles.py": 115,
    "e2e/queues/test_kinds_come_and_go.py": 100,
    "e2e/queues/test_topology_fleet.py": 95,
    "e2e/agent/test_daemonset.py": 90,
    "e2e/sharing/test_mixed_node.py": 90,
    "e2e/sharing/test_mig_layouts.py": 80,
    "e2e/agent/test_restarts.py": 80,
    "e2e/admission/test_webhooks.py": 75,
    "e2e/examples/test_examples.py": 70,
    "e2e/chart/test_agent.py": 65,
    "e2e/queues/test_gangs.py": 65,
}
"""Of files that take more than a minute on two idle cores: ``pytest --durations=0`` tells. The others' order is of no
matter.
"""


def place(file: Path) -> tuple[bool, int]:
    """What files are sorted by; those with the same keep their order."""
    name = file.relative_to(TESTS).as_posix()
    return name == LAST, -SECONDS.get(name, 0)
