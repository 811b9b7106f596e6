import math
import time
from typing import Any

import pynvml
import pytest

from tests.simulator.conftest import Simulate, gpu, node

LOADS = """  mig: {1: [3g.40gb, 3g.40gb]}
load:
- {gpu: 0, smUtil: 0.8, tensorUtil: 0.6, memUtil: 0.3, nvlinkTxMiBs: 1800, pcieRxMiBs: 50, pid: 1}
- {gpu: 1, gi: 2, smUtil: 0.5, pid: 2}
"""


def metrics(first: Any, second: Any, *ids: int) -> dict[int, Any]:
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.sample1, request.sample2 = first, second
    request.numMetrics = len(ids)
    for i, metric in enumerate(ids):
        request.metrics[i].metricId = metric
    pynvml.nvmlGpmMetricsGet(request)
    return {
        request.metrics[i].metricId: (request.metrics[i].nvmlReturn, request.metrics[i].value) for i in range(len(ids))
    }


def pair(index: int, gi: int | None = None) -> tuple[Any, Any]:
    samples = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    for sample in samples:
        if gi is None:
            pynvml.nvmlGpmSampleGet(gpu(index), sample)
        else:
            pynvml.nvmlGpmMigSampleGet(gpu(index), gi, sample)
        moment = time.time()
        while time.time() == moment:
            pass
    return samples


def test_metrics_are_means_between_two_samples(simulate: Simulate) -> None:
    simulate(node(2, "NVIDIA H100 80GB HBM3", LOADS))
    assert pynvml.nvmlGpmQueryDeviceSupport(gpu()).isSupportedDevice == 1
    found = metrics(*pair(0), 1, 2, 5, 10, 21, 61, 63, 300)
    assert found[1] == (0, pytest.approx(80))
    assert found[5] == (0, pytest.approx(60))
    assert found[10] == (0, pytest.approx(30))
    assert found[21] == (0, pytest.approx(50))
    assert found[61] == (0, pytest.approx(1800))
    assert found[63] == (0, pytest.approx(100))
    assert found[300][0] == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_an_instance_is_sampled_by_itself(simulate: Simulate) -> None:
    simulate(node(2, "NVIDIA H100 80GB HBM3", LOADS))
    assert metrics(*pair(1, gi=2), 2)[2] == (0, pytest.approx(50))
    assert metrics(*pair(1, gi=1), 2)[2] == (0, 0.0)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pair(1, gi=9)


def test_samples_of_different_scopes_do_not_mix(simulate: Simulate) -> None:
    simulate(node(2, "NVIDIA H100 80GB HBM3", LOADS))
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        metrics(pair(0)[0], pair(1)[1], 2)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        metrics(pynvml.nvmlGpmSampleAlloc(), pair(1)[1], 2)


def test_no_time_between_samples_gives_no_number(simulate: Simulate) -> None:
    simulate(node(2, "NVIDIA H100 80GB HBM3", LOADS))
    sample = pair(0)[0]
    assert math.isnan(metrics(sample, sample, 2)[2][1])
    pynvml.nvmlGpmSampleFree(sample)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlGpmSampleFree(sample)


def test_boards_before_hopper_have_no_monitoring(simulate: Simulate) -> None:
    simulate(node(1))
    assert pynvml.nvmlGpmQueryDeviceSupport(gpu()).isSupportedDevice == 0
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pair(0)
