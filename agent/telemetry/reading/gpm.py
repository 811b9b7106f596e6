"""GPU performance monitoring (Hopper and newer): the mean of what happened between two passes.

A scope is the GPU (None) or one GPU instance of it; each holds two of NVML's sample buffers, never more. All calls are
made on the GPU's own thread. Before Hopper NVML has no counterpart of DCGM's profiling figures: they are absent.
"""

import math
from typing import Any

import pynvml

from agent.hardware.query import CallFailed, NvmlError, ask, must
from agent.telemetry.fields import GPM_METRICS, GPM_USUAL
from agent.telemetry.reading.readings import Values

SHORTEST_S = 0.1
"""The shortest time in seconds between two samples: closer ones give noise (NVML's own advice)."""
MOST_RATIO = 1.05
"""The largest share of the time that counts as a figure: above it an instance was made anew between the samples."""

_Metrics = tuple[tuple[str, tuple[int, float]], ...]
_USUAL: _Metrics = tuple(GPM_USUAL.items())


class _Scope:
    """The two buffers of one scope: the last sample, and the one that is taken next."""

    def __init__(self) -> None:
        self.last: Any = must(pynvml.nvmlGpmSampleAlloc)
        self.spare: Any = must(pynvml.nvmlGpmSampleAlloc)
        self.taken_s: float | None = None


class GpmReader:
    """One GPU's scopes."""

    def __init__(self) -> None:
        self._scopes: dict[int | None, _Scope] = {}
        self._supported: bool | None = None
        self._request: Any = None
        """The request for figures, made with the first ones: it is 19 KiB, and many GPUs have none."""
        self._metrics = _USUAL
        self._wanted: frozenset[str] = frozenset()

    def want(self, names: frozenset[str]) -> None:
        """Ask for these fields beside the usual ones, from the next read on."""
        if names != self._wanted:
            self._wanted, self._request = names, None
            self._metrics = tuple(item for item in GPM_METRICS.items() if item[0] in names or item[0] in GPM_USUAL)

    def read(self, handle: Any, gi_id: int | None, now_s: float) -> Values:
        """The figures since the last read of this scope; none the first time, or where there is no GPM.

        Raises GpuLost, DriverUnavailable.
        """
        if self._supported is None:
            answer = ask(pynvml.nvmlGpmQueryDeviceSupport, handle)
            self._supported = answer is not None and bool(answer.isSupportedDevice)
        if not self._supported:
            return {}
        scope = self._scopes.get(gi_id)
        try:
            if scope is None:
                scope = self._scopes[gi_id] = _Scope()
            if scope.taken_s is not None and now_s - scope.taken_s < SHORTEST_S:
                return {}
            return self._read(handle, gi_id, now_s, scope)
        except CallFailed:
            # The samples lie before and after a reset of the GPU or instance: the next read starts with a new pair.
            self.forget(gi_id)
            return {}

    def _read(self, handle: Any, gi_id: int | None, now_s: float, scope: _Scope) -> Values:
        if gi_id is None:
            taken = ask(pynvml.nvmlGpmSampleGet, handle, scope.spare)
        else:
            taken = ask(pynvml.nvmlGpmMigSampleGet, handle, gi_id, scope.spare)
        if taken is None:
            self.forget(gi_id)
            return {}
        before, scope.last, scope.spare = scope.last, scope.spare, scope.last
        was_taken, scope.taken_s = scope.taken_s is not None, now_s
        if not was_taken:
            return {}
        if self._request is None:
            self._request = _request(self._metrics)
        self._request.sample1, self._request.sample2 = before, scope.last
        must(pynvml.nvmlGpmMetricsGet, self._request)
        return dict(self._figures())

    def _figures(self) -> Values:
        figures: Values = {}
        for i, (name, (_, factor)) in enumerate(self._metrics):
            metric = self._request.metrics[i]
            if metric.nvmlReturn != pynvml.NVML_SUCCESS or not math.isfinite(metric.value) or metric.value < 0:
                continue
            value = metric.value * factor
            if factor < 1:
                if value > MOST_RATIO:
                    continue
                value = min(value, 1.0)
            figures[name] = value
        return figures

    def keep(self, gi_ids: set[int]) -> None:
        """Drop the instances that are not in ``gi_ids``."""
        for gi_id in [scope for scope in self._scopes if scope is not None and scope not in gi_ids]:
            self.forget(gi_id)

    def forget(self, gi_id: int | None) -> None:
        scope = self._scopes.pop(gi_id, None)
        if scope is None:
            return
        for sample in (scope.last, scope.spare):
            try:
                ask(pynvml.nvmlGpmSampleFree, sample)
            except NvmlError:
                continue  # the driver is being unloaded and frees its buffers itself

    def clear(self) -> None:
        """Free every buffer; the next read asks again whether the GPU supports GPM."""
        self._supported = None
        for gi_id in list(self._scopes):
            self.forget(gi_id)


def _request(metrics: _Metrics) -> Any:
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    for i, (_, (metric, _)) in enumerate(metrics):
        request.metrics[i].metricId = metric
    return request
