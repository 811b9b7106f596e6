"""Taints of nodes and devices, and which pods and claims tolerate them, by the rules of kube-scheduler."""

from collections.abc import Iterable, Sequence
from typing import Final

from controller.objects.core import Taint, Toleration

_REPELLING: Final = ("NoSchedule", "NoExecute")
"""Effects that keep pods away. PreferNoSchedule keeps none away for good, and None is a dry run."""


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint that keeps the pods away; None if they tolerate all."""
    for taint in taints:
        if taint.effect in _REPELLING and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration matches, by kube-scheduler's rules: an empty effect means every effect, an empty key (with
    Exists) every key.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return bool(toleration.key) and toleration.value == taint.value
    return False
