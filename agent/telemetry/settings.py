"""What can be set about metrics."""

from pathlib import Path

from msgspec import Struct


class MetricsSettings(Struct, frozen=True):
    """``collectors`` is a file in dcgm-exporter's form; None: the usual fields.

    ``hostname_label`` is the label that holds the node's name: ``Hostname``, or ``hostname`` as newer dcgm-exporters.
    """

    interval_s: float = 15.0
    collectors: Path | None = None
    hostname_label: str = "Hostname"
