"""The order in which files of the tier are run: the longest first, so that two workers end at the same time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2]
LAST: Final = "e2e/test_rights.py"
SECONDS: Final[Mapping[str, int]] = {
    "e2e/kai/test_kai.py": 336,
    "e2e/chaos/test_chaos.py": 299,
    "e2e/queues/test_devices.py": 258,
    "e2e/queues/test_job_kinds.py": 225,
    "e2e/agent/test_daemonset.py": 192,
    "e2e/chart/test_life.py": 177,
    "e2e/examples/test_articles.py": 139,
    "e2e/claims/test_mig.py": 138,
    "e2e/agent/test_soak.py": 133,
    "e2e/page/test_live_page.py": 132,
    "e2e/sharing/test_mixed_node.py": 129,
    "e2e/queues/test_controller_jobs.py": 129,
    "e2e/chart/test_defaults.py": 122,
    "e2e/admission/test_queue_api.py": 118,
    "e2e/volcano/test_jobs.py": 117,
    "e2e/queues/test_plain_pods.py": 108,
    "e2e/chart/test_conversion.py": 108,
    "e2e/claims/test_older.py": 106,
    "e2e/volcano/test_queues.py": 102,
    "e2e/page/test_page.py": 101,
    "e2e/claims/test_bursts.py": 98,
    "e2e/claims/test_claims.py": 95,
    "hack/cluster/test_lifecycle.py": 91,
    "e2e/chart/test_agent.py": 90,
    "e2e/admission/test_kueue_crds.py": 88,
    "e2e/volcano/test_containers.py": 88,
}
"""Of the files that take longest, measured on two cores, two at a time: what counts is their order.
``make e2e`` prints those of each pass.
"""


def place(file: Path) -> tuple[bool, int]:
    """What files are sorted by; those with the same keep their order."""
    name = file.relative_to(TESTS).as_posix()
    return name == LAST, -SECONDS.get(name, 0)
