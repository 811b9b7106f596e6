"""What can be set about metrics."""

import re
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from agent.telemetry.podlabels import PodLabelChoice


class HostnameLabel(StrEnum):
    """How dcgm-exporter spells the label with the node's name: up to 4.x with a capital, after it without."""

    CAPITAL = "Hostname"
    SMALL = "hostname"


class XidErrors(StrEnum):
    """What ``DCGM_FI_DEV_XID_ERRORS`` shows: the last XID of any kind, or that of the worst fault that is open."""

    LAST = "last"
    WORST = "worst"


class MetricsSettings(Struct, frozen=True):
    """``collectors`` is a file in dcgm-exporter's form; None: the usual fields.

    ``xid_shown_s``: so long after it was seen an XID of no open fault is shown as the last. The windows are those of
    dcgm-exporter's counts.
    """

    interval_s: float = 15.0
    collectors: Path | None = None
    hostname_label: HostnameLabel = HostnameLabel.CAPITAL
    xid_errors: XidErrors = XidErrors.LAST
    xid_shown_s: float = 600.0
    xid_window_ms: int = 300_000
    clock_window_ms: int = 300_000
    pod_uid: bool = False
    pod_labels: bool = False
    pod_label_allowlist: tuple[str, ...] = ()
    """Regular expressions, checked when they were read."""

    @property
    def pod_choice(self) -> PodLabelChoice:
        patterns = tuple(map(re.compile, self.pod_label_allowlist))
        return PodLabelChoice(self.pod_uid, self.pod_labels, patterns)
