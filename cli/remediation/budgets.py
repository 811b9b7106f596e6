"""PodDisruptionBudgets that keep pods on a GPU which is drained: what the API server would answer to evictions. Pure.

(pods that hold the GPU, PodDisruptionBudgets of their namespaces) -> refusals() -> BudgetRow, one for each that refuses

The rules are Kubernetes' own for the subresource ``pods/eviction`` (``pkg/registry/core/pod/storage/eviction.go``).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from controller.jobs.framework.podview import workload_of
from controller.objects.core import ENDED_PHASES, Pod, PodStatus
from controller.objects.meta import Condition, KubernetesObject, LabelSelector, Struct, is_true
from inventory.api.names import ON_GPU_FAILURE

_UNGUARDED: Final = frozenset({"Pending", *ENDED_PHASES})
"""The phases in which no budget is asked."""
EVICT: Final = "evict"
"""The policy ``OnGpuFailure.EVICT`` as pods say it, without the import of the controller's whole configuration."""


class HoldersStatus(PodStatus, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class Holder(Pod, frozen=True, kw_only=True):
    """A pod that holds a GPU, as far as its eviction depends on it."""

    status: HoldersStatus = HoldersStatus()


class BudgetSpec(Struct, frozen=True, kw_only=True):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Struct, frozen=True, kw_only=True):
    """The counts of the disruption controller: pods, and evictions that are allowed now."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class Budget(KubernetesObject, frozen=True, kw_only=True):
    """A PodDisruptionBudget of ``policy/v1``."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A budget, NAMESPACE/NAME, that refuses the eviction of at least one of ``pods`` now. ``is_alone`` is False for
    one beside which another selects the same pod: the API server evicts no such pod. ``is_counted`` is False while the
    disruption controller has not counted its pods since it was changed.
    """

    budget: str
    disruptions_allowed: int
    current_healthy: int
    desired_healthy: int
    pods: tuple[str, ...]
    is_alone: bool = True
    is_counted: bool = True


class Guards(msgspec.Struct, frozen=True, kw_only=True):
    """Pods by key, NAMESPACE/NAME, and the budgets of their namespaces."""

    pods: Mapping[str, Holder] = {}
    budgets: tuple[Budget, ...] = ()

    def refusals(self, holders: Iterable[str], *, drained: bool) -> tuple[BudgetRow, ...]:
        """The budgets that refuse evictions of these pods now, by name; pods that are not known have none."""
        known = [self.pods[key] for key in holders if key in self.pods]
        return refusals([pod for pod in known if is_evicted(pod, drained=drained)], self.budgets)


NO_GUARDS: Final = Guards()


def is_evicted(pod: Holder, *, drained: bool) -> bool:
    """Whether the pod leaves by an eviction, which budgets may refuse. Where its GPU is ``drained``, a pod of a
    Workload is requeued with it, past all budgets, unless its annotation says ``evict``; where it is not, others stay.
    """
    if pod.status.phase in ENDED_PHASES or pod.metadata.deletion_timestamp is not None:
        return False
    if pod.metadata.annotations.get(ON_GPU_FAILURE) == EVICT:
        return True
    return drained and workload_of(pod) is None


def refusals(pods: Iterable[Holder], budgets: Iterable[Budget]) -> tuple[BudgetRow, ...]:
    """The budgets that refuse evictions of ``pods`` now, by name. A budget that lets some of them go and not all is one
    of these.
    """
    by_name = sorted(budgets, key=_name)
    guarded: dict[str, list[str]] = {}
    crowded: set[str] = set()
    for pod in sorted(pods, key=_name):
        mine = [budget for budget in by_name if _selects(budget, pod)] if pod.status.phase not in _UNGUARDED else []
        if len(mine) == 1 and _passes_unhealthy(mine[0], pod):
            continue
        for budget in mine:
            guarded.setdefault(_name(budget), []).append(_name(pod))
        if len(mine) > 1:
            crowded.update(map(_name, mine))
    return tuple(
        BudgetRow(
            budget=_name(budget),
            disruptions_allowed=budget.status.disruptions_allowed,
            current_healthy=budget.status.current_healthy,
            desired_healthy=budget.status.desired_healthy,
            pods=tuple(guarded[_name(budget)]),
            is_alone=_name(budget) not in crowded,
            is_counted=_is_counted(budget),
        )
        for budget in by_name
        if _name(budget) in crowded or _refuses(budget, len(guarded.get(_name(budget), ())))
    )


def _refuses(budget: Budget, evictions: int) -> bool:
    return evictions > 0 and (not _is_counted(budget) or budget.status.disruptions_allowed < evictions)


def _is_counted(budget: Budget) -> bool:
    return budget.status.observed_generation >= budget.metadata.generation


def _selects(budget: Budget, pod: Holder) -> bool:
    """Whether the budget is one of the pod's: an empty selector selects all pods of its namespace, an absent one
    none.
    """
    selector = budget.spec.selector
    same = budget.metadata.namespace == pod.metadata.namespace
    return same and selector is not None and selector.matches(pod.metadata.labels)


def _passes_unhealthy(budget: Budget, pod: Holder) -> bool:
    """Whether a pod that is not ready leaves without the budget's leave."""
    if is_true(pod.status.conditions, "Ready"):
        return False
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return budget.status.current_healthy >= budget.status.desired_healthy > 0


def _name(found: KubernetesObject) -> str:
    return f"{found.metadata.namespace}/{found.metadata.name}"
