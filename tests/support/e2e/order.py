"""The order in which files of the tier are run: the longest first, so that all workers end at the same time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[2]
LAST: Final = "e2e/test_rights.py"
SECONDS: Final[Mapping[str, int]] = {
    "e2e/kai/test_kai.py": 483,
    "e2e/agent/test_daemonset.py": 327,
    "e2e/queues/test_devices.py": 306,
    "e2e/queues/test_job_kinds.py": 287,
    "e2e/chaos/test_chaos.py": 283,
    "e2e/queues/test_native_gangs_waiting.py": 240,
    "e2e/chart/test_life.py": 224,
    "e2e/queues/test_karpenter.py": 214,
    "e2e/chart/test_rehearsal.py": 190,
    "e2e/queues/test_controller_jobs.py": 183,
    "e2e/volcano/test_jobs.py": 167,
    "e2e/admission/test_queue_api.py": 166,
    "e2e/chart/test_conversion.py": 158,
    "e2e/examples/test_articles.py": 157,
    "e2e/queues/test_plain_pods.py": 156,
    "e2e/chart/test_defaults.py": 148,
    "e2e/page/test_page.py": 142,
    "e2e/queues/test_repairs.py": 140,
    "e2e/agent/test_soak.py": 136,
    "e2e/volcano/test_containers.py": 128,
    "e2e/page/test_live_page.py": 125,
    "e2e/queues/test_capacity_requests.py": 125,
    "e2e/queues/test_serving_scale.py": 120,
    "e2e/sharing/test_mixed_node.py": 118,
    "e2e/claims/test_bursts.py": 113,
    "e2e/claims/test_claims.py": 108,
    "e2e/claims/test_mig.py": 105,
    "e2e/admission/test_kueue_crds.py": 101,
    "e2e/chart/test_agent.py": 97,
    "e2e/queues/test_jobs_core.py": 95,
    "e2e/volcano/test_queues.py": 93,
    "e2e/queues/test_topology_fleet.py": 92,
}
"""Of the files that take longest, measured on two cores, three at a time: what counts is their order.
``make e2e`` prints those of each pass.
"""


def place(file: Path) -> tuple[bool, int]:
    """What files are sorted by; those with the same keep their order."""
    name = file.relative_to(TESTS).as_posix()
    return name == LAST, -SECONDS.get(name, 0)
