"""Past use of KAI's Queues as Prometheus measured it: the queries, and what their answers say.

Use is defined as in KAI: what a Queue had over the window, divided by the capacity in it; both halved with age if a
half-life is set. Windows are written into the query as a number of seconds, so that any Prometheus can parse it.
"""

import math
from collections.abc import Mapping

from controller.cluster.config.settings import UsageMetrics, UsageSource
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts
from controller.scheduler.model.config import QueueUsage
from controller.scheduler.model.resources import ResourceName
from kube.prometheus import Vector


class UsageAnswerError(ValueError):
    """The answer tells nothing of past use: what was found, what was expected."""


def queries(source: UsageSource, rules: QueueUsage, now_s: float) -> dict[str, str]:
    """The queries by resource."""
    # The window has at least one sample, also if it has just begun.
    window_s = max(now_s - rules.begin_s(now_s), source.resolution_s)
    over = f"[{math.ceil(window_s)}s:{math.ceil(source.resolution_s)}s]"
    weight = f" * 0.5 ^ (({now_s:.0f} - time()) / {rules.half_life_s:.12g})" if rules.half_life_s else ""
    return {str(resource): _query(metrics, over, weight) for resource, metrics in source.metrics.items()}


def _query(metrics: UsageMetrics, over: str, weight: str) -> str:
    """The query of one resource. Two leaders have the same series for a moment, by other labels: the larger counts."""
    has = f"sum_over_time((max by (queue_name) ({metrics.allocated}){weight}){over})"
    there_is = f"sum_over_time((max({metrics.capacity}){weight}){over})"
    return f"{has} / scalar({there_is})"


def usage(answers: Mapping[str, Vector]) -> Mapping[QueueName, Amounts]:
    """Past use by queue and resource, as parts from 0 to 1. A resource without capacity is left out. Raises
    UsageAnswerError.
    """
    by_queue: dict[QueueName, dict[ResourceName, float]] = {}
    for resource, vector in answers.items():
        for labels, part in vector:
            name = labels.get("queue_name")
            if name is None:
                raise UsageAnswerError(f"found a series of {resource} without queue_name, expected one by it")
            if part < 0.0:
                raise UsageAnswerError(f"found {part:g} of {resource} for {name[:63]}, expected at least 0")
            if math.isfinite(part):
                by_queue.setdefault(QueueName(name), {})[ResourceName(resource)] = min(1.0, part)
    if not by_queue:
        raise UsageAnswerError("found no series of any Queue, expected a Prometheus that scrapes the controller")
    return by_queue
