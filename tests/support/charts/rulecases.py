"""What each rule says of which series: cases for promtool. Of every alert one where it fires and one where not."""

from collections.abc import Mapping
from dataclasses import dataclass
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
        return {"interval": "1m", "input_series": inputs(self.series), "alert_rule_test": wanted}


def inputs(series: Series) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def steady(value: str) -> str:
    """For eight hours."""
    return f"{value}x480"


def _idle(use: str, seconds: int) -> Series:
    return {
        f'tessera_pod_gpu_use{{{POD},{OWN},use="{use}"}}': steady("1"),
        f"tessera_pod_gpu_idle_seconds{{{POD},{OWN}}}": steady(str(seconds)),
    }


def _turns(low: float, high: float) -> str:
    """Half an hour each, for eight hours. Between them the mean: whether a window has its left edge does not matter."""
    mean = round((low + high) / 2, 6)
    return " ".join([f"{low}x28 {mean} {high}x28 {mean}"] * 8)


def sm(ratio: float | str, idle_s: int = 0) -> Series:
    """A pod with a GPU of its own."""
    work = ratio if isinstance(ratio, str) else steady(str(ratio))
    return {
        f'tessera_gpu_allocation{{{POD},resource="nvidia.com/gpu",mode="whole"}}': steady("1"),
        f"tessera_pod_gpu_sm_utilization_ratio{{{POD},{OWN}}}": work,
        f'tessera_pod_gpu_sm_utilization_ratio{{{GPU},owner="unattributed"}}': steady("0.01"),
        f"tessera_pod_gpu_idle_seconds{{{POD},{OWN}}}": steady(str(idle_s)),
    }


def shared(busy: float, other: bool = True) -> Series:
    """A pod with a quarter of a GPU, and another one."""
    found = {
        f'tessera_gpu_allocation{{{POD},resource="nvidia.com/gpu",mode="time-slicing"}}': steady("0.25"),
        f'tessera_pod_gpu_busy_ratio{{{POD},{OWN},source="gpm"}}': steady(str(busy)),
    }
    found[f'tessera_pod_gpu_busy_ratio{{{GPU},owner="unattributed",source="gpm"}}'] = steady("0.9")
    if other:
        rest = f'tessera_gpu_allocation{{{OTHER},resource="nvidia.com/gpu",mode="time-slicing"}}'
        found[rest] = steady("0.25")
        found[f'tessera_pod_gpu_busy_ratio{{{OTHER},{OWN},source="gpm"}}'] = steady("0.1")
    return found


def held(mib: int, other: bool = True) -> Series:
    """A pod with a quarter of a GPU of 1000 MiB."""
    return shared(0.1, other) | {
        f"tessera_pod_gpu_memory_used_bytes{{{POD},{OWN}}}": steady(str(mib << 20)),
        f'tessera_pod_gpu_memory_used_bytes{{{GPU},owner="unattributed"}}': steady(str(900 << 20)),
        f'DCGM_FI_DEV_FB_USED{{{POD},modelName="m"}}': steady(str(mib)),
        f'DCGM_FI_DEV_FB_USED{{{GPU},modelName="m"}}': steady("200"),
        f'DCGM_FI_DEV_FB_FREE{{{GPU},modelName="m"}}': steady(str(800 - mib)),
    }


def fleet(namespace: float, pending: int) -> Series:
    return {
        **{f'tessera_gpu_device_health{{{SCRAPED},uuid="GPU-{n}",state="Healthy"}}': steady("1") for n in range(4)},
        f'tessera_gpu_device_health{{{SCRAPED},uuid="MIG-1",state="Healthy"}}': steady("1"),
        f'tessera_gpu_allocation{{{POD},resource="nvidia.com/gpu",mode="whole"}}': steady(str(namespace)),
        'kueue_pending_workloads{cluster_queue="q",status="inadmissible",replica_role="leader"}': steady(str(pending)),
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


def _repairs(step: str, result: str, values: str) -> Series:
    return _agent("tessera_gpu_repairs_total", values, step=step, result=result)


def _at_agent(summary: str) -> Firing:
    return Firing({"instance": AT["instance"]}, summary)


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
        sm(0.05, idle_s=1800),
        "2h",
        (Firing(OF_POD, "team/train uses 5% of what it has of GPU 0 of n1"),),
        before="119m",
    ),
    Fires(
        "TesseraGpuOversized",
        sm(_turns(0, 0.18)),
        "179m",
        (Firing(OF_POD, "team/train uses 9% of what it has of GPU 0 of n1"),),
    ),
    Fires("TesseraGpuOversized", sm(0.10), "3h"),
    Fires("TesseraGpuOversized", sm(0.0, idle_s=1801), "3h"),
    Fires(
        "TesseraGpuUnderused",
        sm(0.10, idle_s=1800),
        "6h",
        (Firing(OF_POD, "team/train uses 10% of what it has of GPU 0 of n1"),),
        before="359m",
    ),
    Fires(
        "TesseraGpuUnderused",
        sm(_turns(0.2, 0.36)),
        "419m",
        (Firing(OF_POD, "team/train uses 28% of what it has of GPU 0 of n1"),),
    ),
    Fires("TesseraGpuUnderused", sm(0.30), "8h"),
    Fires("TesseraGpuUnderused", sm(0.25, idle_s=1801), "8h"),
    Fires("TesseraGpuUnderused", sm(0.05), "8h"),
    Fires(
        "TesseraGpuFragmentation",
        {'tessera_gpu_fragmentation_ratio{flavor="h100",replica_role="leader"}': steady("0.6")},
        "30m",
        (
            Firing(
                {"flavor": "h100"}, "flavor h100: 60% of the free GPUs cannot be used by requests as they came of late"
            ),
        ),
        before="29m",
    ),
    Fires("TesseraGpuFragmentation", {'tessera_gpu_fragmentation_ratio{flavor="h100"}': steady("0.5")}, "40m"),
    Fires(
        "TesseraNamespaceHogsGpus",
        fleet(3, pending=1),
        "60m",
        (Firing({"namespace": "team"}, "namespace team holds 75% of all GPUs while workloads wait"),),
        before="59m",
    ),
    Fires("TesseraNamespaceHogsGpus", fleet(3, pending=0), "70m"),
    Fires("TesseraNamespaceHogsGpus", fleet(2, pending=2), "70m"),
    Fires(
        "TesseraNoisyNeighbour",
        shared(0.5),
        "15m",
        (
            Firing(
                {**ON_GPU, "namespace": "team", "pod": "train"},
                "team/train uses 2.00 times its share of GPU 0 of n1, which others share",
            ),
        ),
        before="14m",
    ),
    Fires("TesseraNoisyNeighbour", shared(0.3125), "20m"),
    Fires("TesseraNoisyNeighbour", shared(0.5, other=False), "20m"),
    Fires(
        "TesseraMemoryAboveShare",
        held(300),
        "15m",
        (
            Firing(
                {**ON_GPU, "namespace": "team", "pod": "train"},
                "team/train holds 1.20 times its share of the memory of GPU 0 of n1, which others share",
            ),
        ),
        before="14m",
    ),
    Fires("TesseraMemoryAboveShare", held(275), "20m"),
    Fires("TesseraMemoryAboveShare", held(300, other=False), "20m"),
)

HARDWARE = (
    Fires(
        "TesseraGpuUnhealthy",
        _agent("tessera_gpu_device_health", steady("1"), uuid="GPU-1", state="Unhealthy"),
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
        _agent("tessera_gpu_device_health", steady("1"), uuid="GPU-1", state="Suspect")
        | _agent("tessera_gpu_device_health", steady("0"), uuid="GPU-1", state="Unhealthy"),
        "6m",
    ),
    Fires(
        "TesseraGpuXid",
        _gpu("tessera_gpu_open_xid", "0 1 1"),
        "1m",
        (Firing(ON_GPU, "XID 1 is open on GPU 0 of n1"),),
        before="0m",
    ),
    Fires("TesseraGpuXid", _gpu("tessera_gpu_open_xid", "79 0 0"), "2m"),
    # As the agent writes it with metrics.hostnameLabel: hostname.
    Fires(
        "TesseraGpuXid",
        {'tessera_gpu_open_xid{hostname="n1",gpu="0",UUID="GPU-1"}': "79 79"},
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
        (Firing(ON_GPU, "uncorrected memory errors in an hour on GPU 0 of n1: 1"),),
    ),
    Fires("TesseraGpuEccUncorrected", _gpu("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "2x120"), "60m"),
    Fires(
        "TesseraGpuRowRemapPending",
        _gpu("DCGM_FI_DEV_ROW_REMAP_PENDING", steady("1")),
        "10m",
        (Firing(ON_GPU, "GPU 0 of n1 waits for a reset to remap memory rows (pending: 1)"),),
        before="9m",
    ),
    Fires("TesseraGpuRowRemapPending", _gpu("DCGM_FI_DEV_ROW_REMAP_PENDING", steady("0")), "15m"),
    Fires(
        "TesseraGpuRowRemapFailed",
        _gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE", steady("1")),
        "1m",
        (Firing(ON_GPU, "GPU 0 of n1 cannot remap a bad memory row (failed: 1)"),),
    ),
    Fires("TesseraGpuRowRemapFailed", _gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE", steady("0")), "1m"),
    Fires(
        "TesseraGpuRepairFails",
        {
            **_repairs("reset", "failed", "_x10 1x20 2x100"),
            **_repairs("verify", "failed", "_x10 1x130"),
            **_repairs("reset", "done", steady("9")),
        },
        "35m",
        (_at_agent("3 resets of GPUs at 10.0.0.1:9400 failed, hung or did not help within an hour"),),
        before="9m",
    ),
    Fires("TesseraGpuRepairFails", _repairs("reset", "hung", "_x10 1x130"), "75m"),
    Fires("TesseraGpuRepairFails", _repairs("reset", "busy", "_x10 1x130"), "20m"),
    Fires("TesseraGpuRepairFails", _repairs("reset", "failed", "5x70 0x60"), "90m"),
    Fires(
        "TesseraGpuRebootWanted",
        _agent("tessera_gpu_reboot_wanted", "0x10 1x300"),
        "11m 200m",
        (_at_agent("1 GPUs at 10.0.0.1:9400 wait for a reboot of the node"),),
        before="9m",
    ),
    Fires(
        "TesseraGpuRebootWanted",
        # The agent restarted: its counters begin anew, what it knows does not.
        {**_agent("tessera_gpu_reboot_wanted", steady("2")), **_repairs("reboot", "wanted", steady("0"))},
        "60m",
        (_at_agent("2 GPUs at 10.0.0.1:9400 wait for a reboot of the node"),),
    ),
    Fires(
        "TesseraGpuRebootWanted",
        {**_agent("tessera_gpu_reboot_wanted", "1x30 0x270"), **_repairs("reboot", "wanted", steady("1"))},
        "60m",
    ),
    Fires(
        "TesseraGpuRetired",
        _agent("tessera_gpu_retired", "0x10 2x20"),
        "15m",
        (_at_agent("2 GPUs at 10.0.0.1:9400 are retired"),),
        before="9m",
    ),
    Fires("TesseraGpuRetired", _agent("tessera_gpu_retired", steady("0")), "15m"),
    Fires(
        "TesseraGpuThermal",
        {f'tessera_gpu_throttled{{{GPU},reason="hw_thermal"}}': steady("1")},
        "5m",
        (Firing(ON_GPU, "GPU 0 of n1 was slowed down for heat during 100% of ten minutes"),),
        before="4m",
    ),
    Fires(
        "TesseraGpuThermal",
        {f'tessera_gpu_throttled{{{GPU},reason="sw_thermal"}}': steady("0.3")},
        "50m",
        (Firing(ON_GPU, "GPU 0 of n1 was slowed down for heat during 30% of ten minutes"),),
    ),
    Fires("TesseraGpuThermal", {f'tessera_gpu_throttled{{{GPU},reason="hw_thermal"}}': steady("0.25")}, "50m"),
    Fires("TesseraGpuThermal", {f'tessera_gpu_throttled{{{GPU},reason="hw_thermal"}}': _throttled(0.1)}, "50m"),
    Fires("TesseraGpuThermal", {f'tessera_gpu_throttled{{{GPU},reason="power_cap"}}': steady("1")}, "20m"),
    Fires(
        "TesseraGpuThrottled",
        {
            f'tessera_gpu_throttled{{{GPU},reason="hw_power_brake"}}': steady("1"),
            f'tessera_gpu_throttled{{{GPU},reason="hw_thermal"}}': steady("0"),
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
            f'tessera_gpu_throttled{{{GPU},reason="hw_slowdown"}}': steady("0.3"),
            f'tessera_gpu_throttled{{{GPU},reason="hw_thermal"}}': steady("0.25"),
        },
        "50m",
        (
            Firing(
                {**ON_GPU, "reason": "hw_slowdown"},
                "GPU 0 of n1: hw_slowdown held its clocks down during 30% of ten minutes",
            ),
        ),
    ),
    Fires("TesseraGpuThrottled", {f'tessera_gpu_throttled{{{GPU},reason="power_cap"}}': steady("1")}, "20m"),
    Fires("TesseraGpuThrottled", {f'tessera_gpu_throttled{{{GPU},reason="hw_slowdown"}}': steady("0.25")}, "50m"),
    Fires("TesseraGpuThrottled", {f'tessera_gpu_throttled{{{GPU},reason="hw_slowdown"}}': _throttled(0.1)}, "50m"),
    Fires(
        "TesseraGpuThrottled",
        {
            f'tessera_gpu_throttled{{{GPU},reason="hw_slowdown"}}': steady("1"),
            f'tessera_gpu_throttled{{{GPU},reason="sw_thermal"}}': steady("0.3"),
        },
        "50m",
    ),
    Fires(
        "TesseraNvLinkDown",
        {f'tessera_gpu_nvlinks{{{GPU},state="down"}}': steady("1")},
        "5m",
        (Firing(ON_GPU, "NVLinks of GPU 0 of n1 that are down: 1"),),
        before="4m",
    ),
    Fires("TesseraNvLinkDown", {f'tessera_gpu_nvlinks{{{GPU},state="up"}}': steady("18")}, "6m"),
    Fires("TesseraNvLinkDown", {f'tessera_gpu_nvlinks{{{GPU},state="down"}}': steady("0")}, "6m"),
)

_DEVICES = "tessera_agent_devices"


def _views(first: str, amount: str, second: str, other: str) -> Series:
    return {
        **_agent(_DEVICES, steady(amount), resource="nvidia.com/gpu", view=first),
        **_agent(_DEVICES, steady(other), resource="nvidia.com/gpu", view=second),
    }


def _samples(ok: str, error: str, up: str = "1") -> Series:
    return {
        **_agent("tessera_agent_gpu_samples_total", ok, result="ok"),
        **_agent("tessera_agent_gpu_samples_total", error, result="error"),
        **_agent("tessera_agent_driver_up", steady(up)),
        **_agent("tessera_gpu_device_health", steady("1"), uuid="GPU-1", state="Healthy"),
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
                {**AT, "resource": "nvidia.com/gpu"},
                "10.0.0.1:9400: devices of nvidia.com/gpu that are not advertised: 1",
            ),
        ),
        before="9m",
    ),
    Fires("TesseraDevicesMissing", _views("inventory", "8", "advertised", "8"), "15m"),
)

_PENDING = 'kueue_pending_workloads{cluster_queue="q",status="%s",replica_role="leader"}'
_ADMITTED = 'kueue_admitted_workloads_total{cluster_queue="q",priority_class="",replica_role="leader"}'
_WAIT = 'kueue_admission_wait_time_seconds_bucket{cluster_queue="q",priority_class="",replica_role="leader",le="%s"}'
_NONE = "no-flavor.tessera.dev"
_UNANSWERED = 'tessera_queue_usage_unanswered{instance="%s"}'

QUEUES = (
    Fires(
        "TesseraQueueStuck",
        {_PENDING % "active": steady("1"), _PENDING % "inadmissible": steady("2"), _ADMITTED: steady("7")},
        "1h",
        (Firing({"cluster_queue": "q"}, "queue q: workloads that wait: 3, and none was admitted for an hour"),),
        before="59m",
    ),
    # One was admitted after half an hour, and none since.
    Fires(
        "TesseraQueueStuck",
        {_PENDING % "active": steady("1"), _ADMITTED: "0x30 1x450"},
        "152m",
        (Firing({"cluster_queue": "q"}, "queue q: workloads that wait: 1, and none was admitted for an hour"),),
        before="140m",
    ),
    Fires("TesseraQueueStuck", {_PENDING % "active": steady("1"), _ADMITTED: "0+1x480"}, "2h"),
    Fires("TesseraQueueStuck", {_PENDING % "active": steady("0"), _ADMITTED: steady("7")}, "2h"),
    Fires(
        "TesseraQueueWaitLong",
        {_WAIT % "3600": "0x480", _WAIT % "7200": "0+1x10 10x480", _WAIT % "+Inf": "0+1x10 10x480"},
        "16m 50m",
        (Firing({"cluster_queue": "q"}, "queue q: one in twenty waits 1h 57m 0s or longer"),),
        before="15m",
    ),
    Fires("TesseraQueueWaitLong", {_WAIT % "3600": "0+1x480", _WAIT % "+Inf": "0+1x480"}, "2h"),
    Fires(
        "TesseraPastUseUnanswered",
        {_UNANSWERED % "a": "0x10 1x480", _UNANSWERED % "b": steady("0")},
        "26m",
        (Firing({}, "Prometheus does not answer what KAI's Queues had before (unanswered: 1)"),),
        before="25m",
    ),
    Fires("TesseraPastUseUnanswered", {_UNANSWERED % "a": steady("0")}, "1h"),
    Fires(
        "TesseraRepairBreakerTripped",
        {'tessera_gpu_repair_breaker_tripped{pod="a",flavor="h100"}': "0x5 1x30"},
        "25m",
        (Firing({"flavor": "h100"}, "repairs of GPUs of flavor h100 wait for the budget (1 breaker tripped)"),),
        before="15m",
    ),
    Fires(
        "TesseraRepairBreakerTripped",
        {f'tessera_gpu_repair_breaker_tripped{{pod="a",flavor="{_NONE}"}}': steady("1")},
        "20m",
        (Firing({"flavor": _NONE}, f"repairs of GPUs of flavor {_NONE} wait for the budget (1 breaker tripped)"),),
    ),
    Fires("TesseraRepairBreakerTripped", {'tessera_gpu_repair_breaker_tripped{flavor="h100"}': steady("0")}, "60m"),
    Fires(
        "TesseraNobodyLeads",
        {f'tessera_leading{{instance="{n}",replica_role="follower"}}': steady("0") for n in "ab"},
        "2m",
        (Firing({}, "no replica of the controller leads (leading: 0)"),),
        before="1m",
    ),
    Fires(
        "TesseraNobodyLeads",
        {'tessera_leading{instance="a"}': steady("0"), 'tessera_leading{instance="b"}': steady("1")},
        "5m",
    ),
)

ALERTS = (*WASTE, *HARDWARE, *AGENT, *QUEUES)
