"""The questions to Prometheus and what their answers say. Pure: no text of a user is part of a query, except for a name
that was checked, within quotes.

Series that two leaders, or two agents, write for a moment are counted once: ``max by`` stands before every sum.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from controller.people.history.figures import Figures
from kube.prometheus import Matrix, Span, Vector

Json = dict[str, Any]
STEP_S: Final = 3600
MOST_HOURS: Final = 31 * 24
MOST_SERIES: Final = 24
"""Series of one answer: a chart with more cannot be read."""
MOST_PODS: Final = 200
"""Pods of one workload that are part of a query; further ones are left out."""
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_MIB: Final = 1024 * 1024
_ROUNDED_MIB: Final = 64
_ROUNDED_C: Final = 5


class HistoryError(ValueError):
    """The question has a parameter that is wrong: parameter, found, expected."""


def hours(text: str) -> int:
    """The number of hours that the text holds. Raises HistoryError."""
    if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= MOST_HOURS:
        raise HistoryError(f"hours: found {text[:20]!r}, expected 1 to {MOST_HOURS}")
    return int(text)


def name(text: str) -> str:
    """The text, checked to be the name of a Kubernetes object. Raises HistoryError."""
    if not _NAME.fullmatch(text):
        raise HistoryError(f"name: found {text[:60]!r}, expected a name")
    return text


def span(now_s: float, back: int) -> Span:
    """The span of the last ``back`` hours: whole hours of the clock, and the one that runs now."""
    end_s = (math.floor(now_s) // STEP_S + 1) * STEP_S
    return Span(end_s - (back - 1) * STEP_S, end_s, STEP_S)


def _by_hour(expression: str) -> str:
    return f"avg_over_time(({expression})[1h:5m])"


def queue(of: str) -> dict[str, str]:
    """Queries of a ClusterQueue by resource: used, nominal and borrowed."""
    by = "cluster_queue, flavor, resource"
    used, nominal = (
        f'max by ({by}) (kueue_cluster_queue_{series}{{cluster_queue="{of}"}})'
        for series in ("resource_reservation", "nominal_quota")
    )
    return {
        "used": _by_hour(f"sum by (resource) ({used})"),
        "nominal": _by_hour(f"sum by (resource) ({nominal})"),
        "borrowed": _by_hour(f"sum by (resource) (clamp_min({used} - {nominal}, 0))"),
    }


def cohort(of: str) -> dict[str, str]:
    """Queries of a Cohort and all below it, by resource: used, nominal and borrowed."""
    by = "cohort, flavor, resource"
    used, nominal = (
        f'max by ({by}) (kueue_cohort_subtree_{series}{{cohort="{of}"}})'
        for series in ("resource_reservations", "quota")
    )
    return {
        "used": _by_hour(f"sum by (resource) ({used})"),
        "nominal": _by_hour(f"sum by (resource) ({nominal})"),
        "borrowed": _by_hour(f"sum by (resource) (clamp_min({used} - {nominal}, 0))"),
    }


def fleet() -> dict[str, str]:
    """Queries of the fleet in GPUs: how many exist, are held, and are busy."""
    device = "UUID, GPU_I_ID"
    return {
        "busy": _by_hour(f"sum(avg by (UUID) (max by ({device}) (tessera_gpu_busy_ratio)))"),
        "held": _by_hour(f"sum(max by ({device}, namespace, pod, container) (tessera_gpu_allocation))"),
        "there": _by_hour("count(count by (UUID) (tessera_gpu_busy_ratio))"),
    }


def node(of: str) -> dict[str, str]:
    """Queries of a node in GPUs: how many exist, are held, and are busy. The label of a node's name is the agent's
    ``metrics.hostnameLabel``.
    """
    device, busy, held = (
        "UUID, GPU_I_ID",
        _on_node("tessera_gpu_busy_ratio", of),
        _on_node("tessera_gpu_allocation", of),
    )
    return {
        "busy": _by_hour(f"sum(avg by (UUID) (max by ({device}) ({busy})))"),
        "held": _by_hour(f"sum(max by ({device}, namespace, pod, container) ({held}))"),
        "there": _by_hour(f"count(count by (UUID) ({busy}))"),
    }


def _on_node(series: str, node: str) -> str:
    return " or ".join(f'{series}{{{label}="{node}"}}' for label in ("Hostname", "hostname"))


def workload(namespace: str, pods: Sequence[str]) -> dict[str, str]:
    """Queries of a workload in GPUs: how many its pods hold, and how much of them is busy. ``pods``: names from the
    cluster.
    """
    each = "|".join(name(pod).replace(".", "[.]") for pod in pods[:MOST_PODS])
    mine = f'{{namespace="{name(namespace)}", pod=~"{each}"}}'
    by = "UUID, GPU_I_ID, pod, container"
    return {
        "busy": _by_hour(f"sum(max by ({by}) (tessera_pod_gpu_busy_ratio{mine}))"),
        "held": _by_hour(f"sum(max by ({by}) (tessera_gpu_allocation{mine}))"),
    }


NOW: Final = {
    "busy": "avg by (UUID) (max by (UUID, GPU_I_ID) (tessera_gpu_busy_ratio))",
    "peak": "max by (UUID) (max_over_time(tessera_gpu_busy_ratio[1h]))",
    "used": "sum by (UUID) (max by (UUID, GPU_I_ID) (DCGM_FI_DEV_FB_USED))",
    "temperature": "max by (UUID) (DCGM_FI_DEV_GPU_TEMP)",
}
"""Queries of all GPUs at this moment; ``peak`` is the most of the last hour."""


def figures(answers: Mapping[str, Vector]) -> dict[str, Figures]:
    """Figures by UUID. They are rounded, so that a row of the page changes only by what a reader would notice."""
    by_uuid: dict[str, dict[str, float]] = defaultdict(dict)
    for kind, vector in answers.items():
        for labels, value in vector:
            uuid = labels.get("UUID", "")
            if uuid and math.isfinite(value) and value >= 0:
                by_uuid[uuid][kind] = value
    return {uuid: _figures(each) for uuid, each in by_uuid.items()}


def _figures(found: Mapping[str, float]) -> Figures:
    busy, peak, used, warm = (found.get(kind) for kind in ("busy", "peak", "used", "temperature"))
    return Figures(
        busy=None if busy is None else round(min(busy, 1.0), 2),
        used_mib=None if used is None else round(used / _ROUNDED_MIB) * _ROUNDED_MIB,
        peak=None if peak is None else round(min(peak, 1.0), 3),
        temperature_c=None if warm is None else round(warm / _ROUNDED_C) * _ROUNDED_C,
    )


def series(answers: Mapping[str, Matrix], at: Span, *, resource: str | None = None) -> list[Json]:
    """Series as the page has them: a number or null for each hour. No label but ``resource`` is passed on.
    ``resource``: the resource of answers that have no such label.
    """
    lines: list[Json] = [
        {
            "name": kind,
            "resource": labels.get("resource", "") if resource is None else resource,
            "points": _points(samples, at),
        }
        for kind, matrix in answers.items()
        for labels, samples in sorted(matrix, key=lambda line: labels_key(line[0]))
    ]
    return lines[:MOST_SERIES]


def labels_key(labels: Mapping[str, str]) -> tuple[bool, str]:
    """The sort key of a series: GPUs come first, because a chart with too many lines loses the last."""
    of = labels.get("resource", "")
    return "gpu" not in of, of


def _points(samples: Iterable[tuple[float, float]], at: Span) -> list[float | None]:
    points: list[float | None] = [None] * ((at.end_s - at.start_s) // at.step_s + 1)
    for at_s, value in samples:
        index = (at_s - at.start_s) / at.step_s
        if math.isfinite(value) and index == int(index) and 0 <= index < len(points):
            points[int(index)] = round(value, 3)
    return points
