"""Queues, groups and jobs of other systems as structs. The engine is handed their Queues."""

from typing import Final

from controller.foreign.objects.kai import DEEPEST_SUBGROUP, KAI_QUEUE, MOST_SUBGROUPS, KaiQueue
from controller.foreign.objects.volcanoqueue import VOLCANO_QUEUE, VolcanoQueue
from controller.objects import decode
from controller.objects.meta import KubernetesObject

__all__ = ["DEEPEST_SUBGROUP", "KINDS", "MOST_SUBGROUPS"]

KINDS: Final[dict[tuple[str, str], type[KubernetesObject]]] = {
    **decode.KINDS,
    (KAI_QUEUE, "Queue"): KaiQueue,
    (VOLCANO_QUEUE, "Queue"): VolcanoQueue,
}
"""All kinds that manifests may be of, for ``decode.decode_object``."""
