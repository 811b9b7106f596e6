"""What each rule says of which series: cases for promtool. Of every alert one where it fires and one where not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Series = dict[str, str]

GPU = 'Hostname="n1",gpu="0",UUID="GPU-1"'
"""Labels of a GPU."""
POD = f'{GPU},container="main",namespace="team",pod="train"'
OTHER = f'{GPU},container="main",namespace="team",pod="serve"'
SLICE = f'Hostname="n1",gpu="1",UUID="GPU-2",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1",{POD.partition("GPU-1")[2][2:]}'
OWN, SCRAPED = 'owner="pod"', 'job="agents",instance="10.0.0.1:9400"'
ON_GPU = {"Hostname": "n1", "gpu": "0", "UUID": "GPU-1"}
OF_POD = {**ON_GPU, "container": "main", "namespace": "team", "pod": "train"}
AT = {"job": "agents", "instance": "10.0.0.1:9400"}


@dataclass(frozen=True)
class Firing:
    """One alert that is expected: its labels without ``severity``, and its summary."""

    labels: Mapping[str, str]
    summary: str


@dataclass(frozen=True)
class Fires:
    """At the times ``at`` of these series (a sample a minute) the alert fires so; without ``firing`` it does not.

    At ``before`` it does not fire yet.
    """

    alert: str
    series: Series
    at: str
    firing: tuple[Firing, ...] = ()
    before: str = ""

    def test(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        """The case in promtool's form; description and runbook are the rule's own."""
        fixed = {key: rule["annotations"][key] for key in ("description", "runbook_url")}
        expected = [
            {
                "exp_labels": {**one.labels, **rule["labels"]},
                "exp_annotations": {"summary": one.summary, **fixed},
            }
            for one in self.firing
        ]
        wanted = [{"eval_time": at, "alertname": self.alert, "exp_alerts": expected} for at in self.at.split()]
        if self.before:
            wanted.insert(0, {"eval_time": self.before, "alertname": self.alert, "exp_alerts": []})
        return {"interval": "1m", "input_series": _input(self.series), "alert_rule_test": wanted}


@dataclass(frozen=True)
class Records:
    """After ``at`` of these series the rule has recorded these samples: value by labels (``{a="b"}``)."""

    record: str
    series: Series
    at: str
    samples: Mapping[str, float] = field(default_factory=dict)

    def test(self) -> dict[str, Any]:
        expected = [{"labels": self.record + labels, "value": value} for labels, value in self.samples.items()]
        wanted = {"expr": self.record, "eval_time": self.at, "exp_samples": expected}
        return {"interval": "1m", "input_series": _input(self.series), "promql_expr_test": [wanted]}


def _input(series: Series) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def _steady(value: str) -> str:
    """For eight hours."""
    return f"{value}x480"


def _idle(use: str, seconds: int) -> Series:
    return {
        f'tessera_pod_gpu_use{{{POD},{OWN},use="{use}"}}': _steady("1"),
        f"tessera_pod_gpu_idle_seconds{{{POD},{OWN}}}": _steady(str(seconds)),
    }


def _turns(low: float, high: float) -> str:
    """Half an hour each, for eight hours. Between them the mean: whether a window has its left edge does not matter."""
    mean = round((low + high) / 2, 6)
    return " ".join([f"{low}x28 {mean} {high}x28 {mean}"] * 8)


def _sm(ratio: float | str, idle_s: int = 0) -> Series:
    """A pod with a GPU of its own."""
    work = ratio if isinstance(ratio, str) else _steady(str(ratio))
    return {
        f'tessera_gpu_allocation{{{POD},resource="nvidia.com/gpu",mode="whole"}}': _steady("1"),
        f"tessera_pod_gpu_sm_utilization_ratio{{{POD},{OWN}}}": work,
        f'tessera_pod_gpu_sm_utilization_ratio{{{GPU},owner="unattributed"}}': _steady("0.01"),
        f"tessera_pod_gpu_idle_seconds{{{POD},{OWN}}}": _steady(str(idle_s)),
    }


def _shared(busy: float, other: bool = True) -> Series:
    """A pod with a quarter of a GPU, and another one."""
    found = {
        f'tessera_gpu_allocation{{{POD},resource="nvidia.com/gpu",mode="time-slicing"}}': _steady("0.25"),
        f'tessera_pod_gpu_busy_ratio{{{POD},{OWN},source="gpm"}}': _steady(str(busy)),
    }
    found[f'tessera_pod_gpu_busy_ratio{{{GPU},owner="unattributed",source="gpm"}}'] = _steady("0.9")
    if other:
        rest = f'tessera_gpu_allocation{{{OTHER},resource="nvidia.com/gpu",mode="time-slicing"}}'
        found[rest] = _steady("0.25")
        found[f'tessera_pod_gpu_busy_ratio{{{OTHER},{OWN},source="gpm"}}'] = _steady("0.1")
    return found


def _fleet(namespace: float, pending: int) -> Series:
    return {
        **{f'tessera_gpu_device_health{{{SCRAPED},uuid="GPU-{n}",state="Healthy"}}': _steady("1") for n in range(4)},
        f'tessera_gpu_device_health{{{SCRAPED},uuid="MIG-1",state="Healthy"}}': _steady("1"),
        f'tessera_gpu_allocation{{{POD},resource="nvidia.com/gpu",mode="whole"}}': _steady(str(namespace)),
        'kueue_pending_workloads{cluster_queue="q",status="inadmissible",replica_role="leader"}': _steady(str(pending)),
    }


def _throttled(ratio: float) -> str:
    """A series that is 1 for this part of each ten minutes."""
    ones = round(ratio * 10)
    return " ".join(["1"] * ones + ["0"] * (10 - ones)) + " " + " ".join((["1"] * ones + ["0"] * (10 - ones)) * 5)


def _gpu(name: str, value: str) -> Series:
    return {f"{name}{{{GPU}}}": value}


def _agent(name: str, value: str, **labels: str) -> Series:
    more = "".join(f',{key}="{one}"' for key, one in labels.items())
    return {f"{name}{{{SCRAPED}{more}}}": value}


WASTE = (
    Fires(
        "TesseraGpuNeverUsed",
        _idle("empty", 1860),
        "10m",
        (Firing(OF_POD, "team/train has GPU 0 of n1 and nothing on it for 31m 0s"),),
        before="9m",
    ),
    Fires("TesseraGpuNeverUsed", _idle("empty", 1800), "20m"),
    Fires("TesseraGpuNeverUsed", _idle("held", 7200), "20m"),
    Fires(
        "TesseraGpuIdleMemoryHeld",
        _idle("held", 3660),
        "10m",
        (Firing(OF_POD, "team/train holds memory of GPU 0 of n1 and did nothing for 1h 1m 0s"),),
        before="9m",
    ),
    Fires("TesseraGpuIdleMemoryHeld", _idle("warm", 5400), "20m"),
    Fires("TesseraGpuIdleMemoryHeld", _idle("held", 3600), "20m"),
    Fires("TesseraGpuIdleMemoryHeld", _idle("empty", 5400), "20m"),
    Fires(
        "TesseraGpuOversized",
        _sm(0.05, idle_s=1800),
        "2h",
        (Firing(OF_POD, "team/train uses 5% of what it has of GPU 0 of n1"),),
        before="119m",
    ),
    Fires(
        "TesseraGpuOversized",
        _sm(_turns(0, 0.18)),
        "179m",
        (Firing(OF_POD, "team/train uses 9% of what it has of GPU 0 of n1"),),
    ),
    Fires("TesseraGpuOversized", _sm(0.10), "3h"),
    Fires("TesseraGpuOversized", _sm(0.0, idle_s=1801), "3h"),
    Fires(
        "TesseraGpuUnderused",
        _sm(0.10, idle_s=1800),
        "6h",
        (Firing(OF_POD, "team/train uses 10% of what it has of GPU 0 of n1"),),
        before="359m",
    ),
    Fires(
        "TesseraGpuUnderused",
        _sm(_turns(0.2, 0.36)),
        "419m",
        (Firing(OF_POD, "team/train uses 28% of what it has of GPU 0 of n1"),),
    ),
    Fires("TesseraGpuUnderused", _sm(0.30), "8h"),
    Fires("TesseraGpuUnderused", _sm(0.25, idle_s=1801), "8h"),
    Fires("TesseraGpuUnderused", _sm(0.05), "8h"),
    Fires(
        "TesseraGpuFragmentation",
        {'tessera_gpu_fragmentation_ratio{flavor="h100",replica_role="leader"}': _steady("0.6")},
        "30m",
        (
            Firing(
                {"flavor": "h100"}, "flavor h100: 60% of the free GPUs cannot be used by requests as they came of late"
            ),
        ),
        before="29m",
    ),
    Fires("TesseraGpuFragmentation", {'tessera_gpu_fragmentation_ratio{flavor="h100"}': _steady("0.5")}, "40m"),
    Fires(
        "TesseraNamespaceHogsGpus",
        _fleet(3, pending=1),
        "60m",
        (Firing({"namespace": "team"}, "namespace team holds 75% of all GPUs while workloads wait"),),
        before="59m",
    ),
    Fires("TesseraNamespaceHogsGpus", _fleet(3, pending=0), "70m"),
    Fires("TesseraNamespaceHogsGpus", _fleet(2, pending=2), "70m"),
    Fires(
        "TesseraNoisyNeighbour",
        _shared(0.5),
        "15m",
        (
            Firing(
                {**ON_GPU, "namespace": "team", "pod": "train"},
                "team/train uses 2.00 times its share of GPU 0 of n1, which others share",
            ),
        ),
        before="14m",
    ),
    Fires("TesseraNoisyNeighbour", _shared(0.3125), "20m"),
    Fires("TesseraNoisyNeighbour", _shared(0.5, other=False), "20m"),
)

HARDWARE = (
    Fires(
        "TesseraGpuUnhealthy",
        _agent("tessera_gpu_device_health", _steady("1"), uuid="GPU-1", state="Unhealthy"),
        "5m",
        (
            Firing(
                {"instance": AT["instance"], "uuid": "GPU-1"},
                "GPU-1 at 10.0.0.1:9400 is Unhealthy and given to nobody (1 device)",
            ),
        ),
        before="4m",
    ),
    Fires(
        "TesseraGpuUnhealthy",
        _agent("tessera_gpu_device_health", _steady("1"), uuid="GPU-1", state="Suspect")
        | _agent("tessera_gpu_device_health", _steady("0"), uuid="GPU-1", state="Unhealthy"),
        "6m",
    ),
    Fires(
        "TesseraGpuXid",
        _gpu("DCGM_FI_DEV_XID_ERRORS", "0 1 1"),
        "1m",
        (Firing(ON_GPU, "XID 1 is open on GPU 0 of n1"),),
        before="0m",
    ),
    Fires("TesseraGpuXid", _gpu("DCGM_FI_DEV_XID_ERRORS", "79 0 0"), "2m"),
    # As the agent writes it with metrics.hostnameLabel: hostname.
    Fires(
        "TesseraGpuXid",
        {'DCGM_FI_DEV_XID_ERRORS{hostname="n1",gpu="0",UUID="GPU-1"}': "79 79"},
        "1m",
        (Firing({"hostname": "n1", "gpu": "0", "UUID": "GPU-1"}, "XID 79 is open on GPU 0 of n1"),),
    ),
    Fires(
        "TesseraGpuXidRepeated",
        _agent("tessera_gpu_xid_errors_total", "0x60 0+1x299", UUID="GPU-1", xid="13"),
        "5h",
        (
            Firing(
                {"instance": AT["instance"], "UUID": "GPU-1", "xid": "13"},
                "XID 13 came 239 times in 6 hours on GPU-1 at 10.0.0.1:9400",
            ),
        ),
    ),
    *(
        Fires(
            "TesseraGpuXidRepeated",
            _agent("tessera_gpu_xid_errors_total", f"0x60 0+1x{times} {times}x290", UUID="GPU-1", xid="13"),
            "5h",
            (
                Firing(
                    {"instance": AT["instance"], "UUID": "GPU-1", "xid": "13"},
                    f"XID 13 came {times} times in 6 hours on GPU-1 at 10.0.0.1:9400",
                ),
            )
            if times > 5
            else (),
        )
        for times in (5, 6)
    ),
    Fires(
        "TesseraGpuEccUncorrected",
        _gpu("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "0x9 1x110"),
        "60m",
        (Firing(ON_GPU, "1 uncorrected memory errors in an hour on GPU 0 of n1"),),
    ),
    Fires("TesseraGpuEccUncorrected", _gpu("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "2x120"), "60m"),
    Fires(
        "TesseraGpuRowRemapPending",
        _gpu("DCGM_FI_DEV_ROW_REMAP_PENDING", _steady("1")),
        "10m",
        (Firing(ON_GPU, "GPU 0 of n1 waits for a reset to remap memory rows (pending: 1)"),),
        before="9m",
    ),
    Fires("TesseraGpuRowRemapPending", _gpu("DCGM_FI_DEV_ROW_REMAP_PENDING", _steady("0")), "15m"),
    Fires(
        "TesseraGpuRowRemapFailed",
        _gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE", _steady("1")),
        "1m",
        (Firing(ON_GPU, "GPU 0 of n1 cannot remap a bad memory row (failed: 1)"),),
    ),
    Fires("TesseraGpuRowRemapFailed", _gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE", _steady("0")), "1m"),
    Fires(
        "TesseraGpuThermal",
        {f'tessera_gpu_throttled{{{GPU},reason="hw_thermal"}}': _steady("1")},
        "5m",
        (Firing(ON_GPU, "GPU 0 of n1 was slowed down for heat during 100% of ten minutes"),),
        before="4m",
    ),
    Fires(
        "TesseraGpuThermal",
        {f'tessera_gpu_throttled{{{GPU},reason="sw_thermal"}}': _steady("0.3")},
        "50m",
        (Firing(ON_GPU, "GPU 0 of n1 was slowed down for heat during 30% of ten minutes"),),
    ),
    Fires("TesseraGpuThermal", {f'tessera_gpu_throttled{{{GPU},reason="hw_thermal"}}': _steady("0.25")}, "50m"),
    Fires("TesseraGpuThermal", {f'tessera_gpu_throttled{{{GPU},reason="hw_thermal"}}': _throttled(0.1)}, "50m"),
    Fires("TesseraGpuThermal", {f'tessera_gpu_throttled{{{GPU},reason="power_cap"}}': _steady("1")}, "20m"),
    Fires(
        "TesseraGpuThrottled",
        {
            f'tessera_gpu_throttled{{{GPU},reason="hw_power_brake"}}': _steady("1"),
            f'tessera_gpu_throttled{{{GPU},reason="hw_thermal"}}': _steady("0"),
        },
        "5m",
        (
            Firing(
                {**ON_GPU, "reason": "hw_power_brake"},
                "GPU 0 of n1: hw_power_brake held its clocks down during 100% of ten minutes",
            ),
        ),
        before="4m",
    ),
    Fires(
        "TesseraGpuThrottled",
        {
            f'tessera_gpu_throttled{{{GPU},reason="hw_slowdown"}}': _steady("0.3"),
            f'tessera_gpu_throttled{{{GPU},reason="hw_thermal"}}': _steady("0.25"),
        },
        "50m",
        (
            Firing(
                {**ON_GPU, "reason": "hw_slowdown"},
                "GPU 0 of n1: hw_slowdown held its clocks down during 30% of ten minutes",
            ),
        ),
    ),
    Fires("TesseraGpuThrottled", {f'tessera_gpu_throttled{{{GPU},reason="power_cap"}}': _steady("1")}, "20m"),
    Fires("TesseraGpuThrottled", {f'tessera_gpu_throttled{{{GPU},reason="hw_slowdown"}}': _steady("0.25")}, "50m"),
    Fires("TesseraGpuThrottled", {f'tessera_gpu_throttled{{{GPU},reason="hw_slowdown"}}': _throttled(0.1)}, "50m"),
    Fires(
        "TesseraGpuThrottled",
        {
            f'tessera_gpu_throttled{{{GPU},reason="hw_slowdown"}}': _steady("1"),
            f'tessera_gpu_throttled{{{GPU},reason="sw_thermal"}}': _steady("0.3"),
        },
        "50m",
    ),
    Fires(
        "TesseraNvLinkDown",
        {f'tessera_gpu_nvlinks{{{GPU},state="down"}}': _steady("1")},
        "5m",
        (Firing(ON_GPU, "1 NVLinks of GPU 0 of n1 are down"),),
        before="4m",
    ),
    Fires("TesseraNvLinkDown", {f'tessera_gpu_nvlinks{{{GPU},state="up"}}': _steady("18")}, "6m"),
    Fires("TesseraNvLinkDown", {f'tessera_gpu_nvlinks{{{GPU},state="down"}}': _steady("0")}, "6m"),
)

_DEVICES = "tessera_agent_devices"


def _views(first: str, amount: str, second: str, other: str) -> Series:
    return {
        **_agent(_DEVICES, _steady(amount), resource="nvidia.com/gpu", view=first),
        **_agent(_DEVICES, _steady(other), resource="nvidia.com/gpu", view=second),
    }


def _samples(ok: str, error: str, up: str = "1") -> Series:
    return {
        **_agent("tessera_agent_gpu_samples_total", ok, result="ok"),
        **_agent("tessera_agent_gpu_samples_total", error, result="error"),
        **_agent("tessera_agent_driver_up", _steady(up)),
        **_agent("tessera_gpu_device_health", _steady("1"), uuid="GPU-1", state="Healthy"),
    }


AGENT = (
    Fires(
        "TesseraAgentDown",
        _agent("up", "1x10 0x60") | _agent("tessera_agent_info", "1x10 stale", version="1"),
        "16m 60m",
        (Firing(AT, "the agent at 10.0.0.1:9400 cannot be scraped (up: 0)"),),
        before="15m",
    ),
    Fires("TesseraAgentDown", _agent("up", "1x10 0x60"), "20m"),
    Fires("TesseraAgentDown", _agent("up", "1x60") | _agent("tessera_agent_info", "1x60", version="1"), "20m"),
    Fires(
        "TesseraDriverDown",
        _agent("tessera_agent_driver_up", "1x10 0x1400"),
        "16m 20h",
        (Firing(AT, "10.0.0.1:9400 has no NVIDIA driver now (sessions: 0); it had one within a day"),),
        before="15m",
    ),
    Fires("TesseraDriverDown", _agent("tessera_agent_driver_up", "0x60"), "20m"),
    Fires("TesseraDriverDown", _agent("tessera_agent_driver_up", "1x60"), "20m"),
    Fires(
        "TesseraSamplingStale",
        _samples("0+4x5 20x60", "0x65"),
        "15m",
        (Firing(AT, "10.0.0.1:9400: GPUs do not answer (0.00 failed looks a second; 0: no looks at all)"),),
        before="14m",
    ),
    Fires(
        "TesseraSamplingStale",
        _samples("0+4x60", "0x20 0+6x60"),
        "30m",
        (Firing(AT, "10.0.0.1:9400: GPUs do not answer (0.10 failed looks a second; 0: no looks at all)"),),
        before="26m",
    ),
    # Three of four looks fail: the last error is four minutes old at most.
    Fires(
        "TesseraSamplingStale",
        _samples("0+4x60", " ".join(f"{n}x3" for n in range(15))),
        "30m",
        (Firing(AT, "10.0.0.1:9400: GPUs do not answer (0.00 failed looks a second; 0: no looks at all)"),),
    ),
    Fires("TesseraSamplingStale", _samples("0+4x60", "0x60"), "30m"),
    Fires("TesseraSamplingStale", _samples("20x60", "0x60", up="0"), "30m"),
    Fires(
        "TesseraKubeletDisagrees",
        _views("advertised", "8", "allocatable", "6"),
        "2m",
        (
            Firing(
                {**AT, "resource": "nvidia.com/gpu"},
                "10.0.0.1:9400: the kubelet's count of nvidia.com/gpu is 2 off from what the agent advertises",
            ),
        ),
        before="1m",
    ),
    Fires("TesseraKubeletDisagrees", _views("advertised", "8", "allocatable", "8"), "5m"),
    Fires(
        "TesseraDevicesMissing",
        _views("inventory", "8", "advertised", "7"),
        "10m",
        (
            Firing(
                {**AT, "resource": "nvidia.com/gpu"}, "10.0.0.1:9400: 1 devices of nvidia.com/gpu are not advertised"
            ),
        ),
        before="9m",
    ),
    Fires("TesseraDevicesMissing", _views("inventory", "8", "advertised", "8"), "15m"),
)

_PENDING = 'kueue_pending_workloads{cluster_queue="q",status="%s",replica_role="leader"}'
_ADMITTED = 'kueue_admitted_workloads_total{cluster_queue="q",priority_class="",replica_role="leader"}'
_WAIT = 'kueue_admission_wait_time_seconds_bucket{cluster_queue="q",priority_class="",replica_role="leader",le="%s"}'

QUEUES = (
    Fires(
        "TesseraQueueStuck",
        {_PENDING % "active": _steady("1"), _PENDING % "inadmissible": _steady("2"), _ADMITTED: _steady("7")},
        "1h",
        (Firing({"cluster_queue": "q"}, "queue q: 3 workloads wait and none was admitted for an hour"),),
        before="59m",
    ),
    # One was admitted after half an hour, and none since.
    Fires(
        "TesseraQueueStuck",
        {_PENDING % "active": _steady("1"), _ADMITTED: "0x30 1x450"},
        "152m",
        (Firing({"cluster_queue": "q"}, "queue q: 1 workloads wait and none was admitted for an hour"),),
        before="140m",
    ),
    Fires("TesseraQueueStuck", {_PENDING % "active": _steady("1"), _ADMITTED: "0+1x480"}, "2h"),
    Fires("TesseraQueueStuck", {_PENDING % "active": _steady("0"), _ADMITTED: _steady("7")}, "2h"),
    Fires(
        "TesseraQueueWaitLong",
        {_WAIT % "3600": "0x480", _WAIT % "7200": "0+1x10 10x480", _WAIT % "+Inf": "0+1x10 10x480"},
        "16m 50m",
        (Firing({"cluster_queue": "q"}, "queue q: one in twenty waits 1h 57m 0s or longer"),),
        before="15m",
    ),
    Fires("TesseraQueueWaitLong", {_WAIT % "3600": "0+1x480", _WAIT % "+Inf": "0+1x480"}, "2h"),
    Fires(
        "TesseraNobodyLeads",
        {f'tessera_leading{{instance="{n}",replica_role="follower"}}': _steady("0") for n in "ab"},
        "2m",
        (Firing({}, "no replica of the controller leads (leading: 0)"),),
        before="1m",
    ),
    Fires(
        "TesseraNobodyLeads",
        {'tessera_leading{instance="a"}': _steady("0"), 'tessera_leading{instance="b"}': _steady("1")},
        "5m",
    ),
)

ALERTS = (*WASTE, *HARDWARE, *AGENT, *QUEUES)

_IN_SLICE = {
    f'tessera_gpu_allocation{{{SLICE},resource="nvidia.com/mig-3g.40gb",mode="mig"}}': _steady("0.5"),
    f'tessera_pod_gpu_busy_ratio{{{SLICE},{OWN},source="gpm"}}': _steady("0.8"),
}
_KEY = f"{{{POD}}}"
_USAGE = (
    'kueue_cluster_queue_resource_usage{cohort="",cluster_queue="q",flavor="f",resource="%s",replica_role="leader"}'
)

RECORDS = (
    Records("tessera:fleet_gpus:count", _fleet(1, 0), "5m", {"": 4}),
    Records(
        "tessera:pod_gpus:allocated",
        {**_shared(0.5), **_IN_SLICE},
        "5m",
        {'{namespace="team",pod="train"}': 0.75, '{namespace="team",pod="serve"}': 0.25},
    ),
    Records("tessera:namespace_gpus:allocated", {**_shared(0.5), **_IN_SLICE}, "5m", {'{namespace="team"}': 1.0}),
    Records("tessera:fleet_gpus:allocated", {**_shared(0.5), **_IN_SLICE}, "5m", {"": 1.0}),
    Records("tessera:pod_gpu_sm:ratio", _sm(0.2), "5m", {_KEY: 0.2}),
    Records(
        "tessera:pod_gpu_sm:ratio",
        {**_sm(0.9), f'DCGM_FI_PROF_SM_ACTIVE{{{POD},modelName="m"}}': _steady("0.3")},
        "5m",
        {_KEY: 0.3},
    ),
    Records("tessera:pod_gpu_sm:ratio", _IN_SLICE, "5m", {f"{{{SLICE}}}": 0.8}),
    Records(
        "tessera:pod_gpu_sm_of_share:ratio",
        {**_shared(0.2, other=False), **_IN_SLICE},
        "5m",
        {_KEY: 0.8, f"{{{SLICE}}}": 0.8},
    ),
    Records(
        "tessera:pod_gpus:busy",
        {**_shared(0.5), **_IN_SLICE},
        "5m",
        {'{namespace="team",pod="train"}': 0.9, '{namespace="team",pod="serve"}': 0.1},
    ),
    Records("tessera:namespace_gpus:busy", {**_shared(0.5), **_IN_SLICE}, "5m", {'{namespace="team"}': 1.0}),
    Records(
        "tessera:fleet_gpus:busy",
        {
            f'tessera_gpu_busy_ratio{{{SCRAPED},{GPU},source="gpm"}}': _steady("0.5"),
            f'tessera_gpu_busy_ratio{{{SCRAPED},{GPU},GPU_I_ID="1",source="gpm"}}': _steady("0.9"),
        },
        "5m",
        {"": 0.5},
    ),
    Records(
        "tessera:cluster_queue_gpus:used",
        {
            _USAGE % "nvidia.com/gpu": _steady("2"),
            _USAGE % "tessera.dev/gpu-percent": _steady("150"),
            **{_USAGE % f"nvidia.com/mig-{n}g.{n}0gb": _steady("7") for n in (1, 2, 3, 4)},
            _USAGE % "nvidia.com/mig-7g.80gb": _steady("1"),
            _USAGE % "cpu": _steady("64"),
        },
        "5m",
        {'{cluster_queue="q"}': 2 + 1.5 + 1 + 2 + 3 + 4 + 1},
    ),
    # Sixty minutely samples are an hour; those before there was any count nothing.
    Records("tessera:namespace_gpu_hours:sum1h", _sm(0.5), "2h", {'{namespace="team"}': 1.0}),
    Records(
        "tessera:namespace_gpu_busy_hours:sum1h",
        {f'tessera_pod_gpu_busy_ratio{{{POD},{OWN},source="gpm"}}': _steady("0.5")},
        "2h",
        {'{namespace="team"}': 0.5},
    ),
    Records(
        "tessera:cluster_queue_gpu_hours:sum1h",
        {_USAGE % "nvidia.com/gpu": _steady("4")},
        "2h",
        {'{cluster_queue="q"}': 4.0},
    ),
)
