"""The price of a preemption: what a workload loses if it stops now.

It is the work since its last checkpoint and the time that its restart takes, both times its GPUs. The last checkpoint
is the one that the program tells (``tessera.dev/last-checkpoint``), else the last multiple of its interval since the
start; without either all work since the start is lost. A workload that writes one between SIGTERM and its end loses no
work.

The rule is our own. What a program says of itself is a claim: a time before its start or in the future counts as not
told, and so does whatever cannot be read; of a restart at most ``MOST_RESTART_S`` counts, and a grace that is longer
than pods are given is none. Whoever claims to have saved more than it has is evicted sooner, not later.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

import msgspec

from controller.objects.workload import PodSet
from controller.scheduler.model.config import MAX_GRACE_S
from controller.scheduler.model.toldtimes import duration_s, rfc3339_s
from inventory.api.names import CHECKPOINT_GRACE, CHECKPOINT_INTERVAL, LAST_CHECKPOINT, OF_CHECKPOINTS, RESTART_COST

MOST_RESTART_S: Final = 3600.0
_DEFAULT_GRACE_S: Final = 30
"""Kubernetes' own, where a template says none."""
_KEYS: Final = frozenset(OF_CHECKPOINTS)
_ROUNDING_S: Final = 1e-6
"""Work that is short of a multiple by no more than this is taken to have reached it."""


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """How a job keeps its work. None for an interval or a grace that it does not have; ``last_s`` is when it wrote the
    last one by its own word, in seconds since 1970.
    """

    interval_s: float | None = None
    grace_s: float | None = None
    restart_cost_s: float = 0.0
    last_s: float | None = None


def checkpoints_of(
    annotations: Mapping[str, str], pod_sets: Sequence[PodSet] = (), max_grace_s: float = MAX_GRACE_S
) -> Checkpoints | None:
    """What the annotations of a workload say of its checkpoints; None where they say nothing. A grace that the pods of
    one of its sets are not given in full counts as not told: the cluster raises that of any pod up to ``max_grace_s``,
    which templates do not show.
    """
    if _KEYS.isdisjoint(annotations):
        return None
    grace_s = duration_s(annotations.get(CHECKPOINT_GRACE))
    return Checkpoints(
        interval_s=duration_s(annotations.get(CHECKPOINT_INTERVAL)),
        grace_s=None if grace_s is None or grace_s > max(max_grace_s, _told_s(pod_sets)) else grace_s,
        restart_cost_s=duration_s(annotations.get(RESTART_COST)) or 0.0,
        last_s=rfc3339_s(annotations.get(LAST_CHECKPOINT)),
    )


def _told_s(pod_sets: Sequence[PodSet]) -> int:
    """The seconds between SIGTERM and SIGKILL that the templates of all pods say."""
    said = (pod_set.template.spec.termination_grace_period_seconds for pod_set in pod_sets)
    return min((_DEFAULT_GRACE_S if told_s is None else told_s for told_s in said), default=_DEFAULT_GRACE_S)


def kept_s(given: Checkpoints, done_s: float, notice_s: float = inf) -> float:
    """The seconds of work in the last checkpoint of a job that is stopped after ``done_s`` of work, and killed
    ``notice_s`` after SIGTERM; its own word on the last one is not asked for.
    """
    if given.grace_s is not None and notice_s >= given.grace_s:
        return done_s
    if given.interval_s is None:
        return 0.0
    if not given.interval_s:
        return done_s
    return min(done_s, (done_s + _ROUNDING_S) // given.interval_s * given.interval_s)


def lost_s(given: Checkpoints | None, since_s: float, now_s: float, notice_s: float = inf) -> float:
    """The seconds of work that are lost if a workload that runs since ``since_s`` is stopped now, and killed
    ``notice_s`` after SIGTERM.
    """
    done_s = max(0.0, now_s - since_s)
    if given is None:
        return done_s
    is_granted = given.grace_s is not None and notice_s >= given.grace_s
    if not is_granted and given.last_s is not None and since_s <= given.last_s <= now_s:
        return now_s - given.last_s
    return done_s - kept_s(given, done_s, notice_s)


def restart_s(given: Checkpoints | None) -> float:
    """The seconds of its restart that count."""
    return 0.0 if given is None else min(given.restart_cost_s, MOST_RESTART_S)
