"""What can be set about metrics."""

from enum import StrEnum
from pathlib import Path

from msgspec import Struct


class HostnameLabel(StrEnum):
    """How dcgm-exporter spells the label with the node's name: up to 4.x with a capital, after it without."""

    CAPITAL = "Hostname"
    SMALL = "hostname"


class MetricsSettings(Struct, frozen=True):
    """``collectors`` is a file in dcgm-exporter's form; None: the usual fields."""

    interval_s: float = 15.0
    collectors: Path | None = None
    hostname_label: HostnameLabel = HostnameLabel.CAPITAL
