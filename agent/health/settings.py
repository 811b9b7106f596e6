"""Health settings that an administrator may change: the config file's ``health`` section."""

from msgspec import Struct

from agent.health.xids import XIDS, FaultClass, XidRule, XidScope, unknown_rule


class XidOverride(Struct, frozen=True):
    """A row of ``health.xids``: given fields replace the table's, the others stay."""

    fault_class: FaultClass | None = None
    scope: XidScope | None = None
    action: str | None = None


class HealthSettings(Struct, frozen=True, kw_only=True):
    """The settings of health. Defaults are the documented ones, times are in seconds.

    ``disabled_xids`` and ``enabled_xids`` are NVIDIA's DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS: None means
    all of them; an enabled XID wins over a disabled one and over the table's application and notice rows.
    """

    enabled: bool = True
    """Whether faults take devices out; when False, only a GPU that is gone is taken out."""
    probation_s: float = 10.0
    clean_probes: int = 3
    failed_probes: int = 3
    """Consecutive failures that make Suspect into Unhealthy. A lost GPU needs only one."""
    probe_interval_s: float = 5.0
    probe_timeout_s: float = 2.0
    disabled_xids: frozenset[int] | None = frozenset()
    enabled_xids: frozenset[int] | None = frozenset()
    xids: dict[int, XidOverride] = {}
    unknown_xids: FaultClass = FaultClass.RESET
    ecc_uncorrected: FaultClass = FaultClass.RESET
    row_remap_pending: FaultClass = FaultClass.CONTAINED
    row_remap_failure: FaultClass = FaultClass.REPLACE
    nvlink_down: FaultClass = FaultClass.DEGRADED
    """The class of a direct NVLink that is down: traffic falls back to PCIe."""
    nvswitch_link_down: FaultClass = FaultClass.RESET
    """The class of a link into an NVSwitch that is down: collectives over the fabric fail."""

    def rule(self, xid: int) -> XidRule:
        """The rule of ``xid`` under these settings: the table's row, the override over it, the switches over both."""
        base = XIDS.get(xid) or unknown_rule(xid, self.unknown_xids)
        override = self.xids.get(xid, XidOverride())
        fault_class = override.fault_class or base.fault_class
        if self.enabled_xids is None or xid in self.enabled_xids:
            fault_class = fault_class if fault_class.opens else FaultClass.RESET
        elif self.disabled_xids is None or xid in self.disabled_xids:
            fault_class = FaultClass.NOTICE
        return XidRule(
            xid=xid,
            name=base.name,
            fault_class=fault_class,
            scope=override.scope or base.scope,
            action=override.action or base.action,
            source="configuration" if override != XidOverride() else base.source,
        )
