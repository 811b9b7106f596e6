"""The order in which files of the tier are run: the longest first, so that two workers end at the same time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2]
LAST: Final = "e2e/test_rights.py"
SECONDS: Final[Mapping[str, int]] = {
    "e2e/queues/test_job_kinds.py": 480,
    "e2e/chaos/test_chaos.py": 330,
    "e2e/queues/test_devices.py": 450,
    "e2e/queues/test_plain_pods.py": 390,
    "e2e/queues/test_controller_jobs.py": 380,
    "e2e/examples/test_articles.py": 210,
    "e2e/queues/test_jobs_core.py": 200,
    "e2e/agent/test_daemonset.py": 240,
    "e2e/chart/test_life.py": 210,
    "e2e/chart/test_conversion.py": 150,
    "e2e/sharing/test_mixed_node.py": 180,
    "hack/cluster/test_lifecycle.py": 170,
    "e2e/queues/test_gangs.py": 150,
    "e2e/agent/test_soak.py": 140,
    "e2e/chart/test_agent.py": 130,
    "e2e/queues/test_topology_fleet.py": 130,
    "e2e/admission/test_queue_api.py": 120,
    "e2e/claims/test_older.py": 120,
    "e2e/kai/test_kai.py": 170,
    "e2e/queues/test_kinds_come_and_go.py": 110,
    "e2e/admission/test_webhooks.py": 110,
    "e2e/admission/test_kueue_crds.py": 110,
    "e2e/volcano/test_queues.py": 110,
    "e2e/volcano/test_jobs.py": 110,
    "e2e/queues/test_controller_watches.py": 110,
    "e2e/examples/test_examples.py": 90,
    "e2e/volcano/test_containers.py": 90,
    "e2e/admission/test_webhooks_older.py": 80,
    "e2e/page/test_live_page.py": 100,
    "e2e/chart/test_defaults.py": 80,
    "e2e/agent/test_restarts.py": 70,
    "e2e/page/test_page.py": 90,
}
"""Of the files that take longest, measured on two cores beside other work: what counts is their order.
``make e2e`` prints those of each pass.
"""


def place(file: Path) -> tuple[bool, int]:
    """What files are sorted by; those with the same keep their order."""
    name = file.relative_to(TESTS).as_posix()
    return name == LAST, -SECONDS.get(name, 0)
