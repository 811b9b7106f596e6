"""What the controller's metrics say, for tests."""

from controller.cluster.metrics.instruments import Instruments
from controller.cluster.metrics.table import COUNTED, Type
from controller.cluster.process.process import Process
from controller.insight.forecast.parts import finished

LABELS = {one.name: one.labels for one in COUNTED}
HISTOGRAMS = {one.name for one in COUNTED if one.type is Type.HISTOGRAM}


def page(process: Process) -> str:
    """The page of /metrics."""
    return finished(process.exposing()).text().decode()


def value(instruments: Instruments, name: str, *labels: str) -> float:
    """A counter's value; how often a histogram was told. 0 without a series."""
    sample = f"{name}_count" if name in HISTOGRAMS else name
    return instruments.registry.get_sample_value(sample, dict(zip(LABELS[name], labels, strict=True))) or 0.0
