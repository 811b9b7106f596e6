"""Kinds of Volcano and KAI that have no effect here: creating one is refused, and the sentence says what to write
instead.
"""

from typing import Final

from controller.foreign.rules.ruled import System
from controller.objects.meta import Struct


class RefusedKind(Struct, frozen=True, kw_only=True):
    """One kind: ``group/plural``, of all versions."""

    system: System
    group: str
    kind: str
    plural: str
    sentence: str


def _of(system: System, group: str, kind: str, plural: str, sentence: str) -> RefusedKind:
    return RefusedKind(system=system, group=group, kind=kind, plural=plural, sentence=f"{kind}.{group}: {sentence}")


_FLOW: Final = (
    "no controller makes Jobs of it here: expected each Job of the flow on its own, with dependsOn among its tasks, or"
    " a workflow engine"
)
REFUSED: Final = (
    _of("volcano", "flow.volcano.sh", "JobFlow", "jobflows", _FLOW),
    _of("volcano", "flow.volcano.sh", "JobTemplate", "jobtemplates", _FLOW),
    _of(
        "volcano",
        "batch.volcano.sh",
        "CronJob",
        "cronjobs",
        "no controller makes Jobs of it here: expected a batch/v1 CronJob that creates the Job",
    ),
    _of(
        "volcano",
        "training.volcano.sh",
        "HyperJob",
        "hyperjobs",
        "no controller divides it among clusters here: expected a Job in each cluster",
    ),
    _of(
        "volcano",
        "topology.volcano.sh",
        "HyperNode",
        "hypernodes",
        "nodes are grouped by their labels here: expected a label of nodes for each tier, in tessera.volcano.topology",
    ),
    _of(
        "volcano",
        "nodeinfo.volcano.sh",
        "Numatopology",
        "numatopologies",
        "no scheduler places pods on NUMA nodes here: expected none, the agent of each node reports its GPUs' own",
    ),
    _of(
        "volcano",
        "shard.volcano.sh",
        "NodeShard",
        "nodeshards",
        "nodes are not divided among schedulers here: expected a ResourceFlavor with nodeLabels",
    ),
    _of(
        "kai",
        "kai.scheduler",
        "SchedulingShard",
        "schedulingshards",
        "one controller decides for all nodes here: expected a ResourceFlavor with nodeLabels for each node pool",
    ),
    _of(
        "kai",
        "scheduling.run.ai",
        "BindRequest",
        "bindrequests",
        "the default scheduler binds pods here: expected none",
    ),
)
