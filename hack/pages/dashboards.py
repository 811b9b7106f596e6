"""Grafana's dashboards, as the chart ships them: ``python -m hack.pages.dashboards`` writes them below its ``files``.

Kept as lines of title, unit and queries: the JSON around them is the same for every panel. A node is chosen by its
agent's ``instance`` and shown by its name, so that it does not matter which label the name is in.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "charts" / "tessera" / "files" / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
N = 'instance=~"$node"'
G = 'instance=~"$node", UUID=~"$gpu"'
NS = 'namespace=~"$namespace"'
CQ = 'cluster_queue=~"$cluster_queue"'

Query = tuple[str, str]
"""Expression and legend."""


@dataclass(frozen=True)
class Panel:
    """``kind`` is Grafana's: timeseries, stat or table."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    text: str = ""
    stacked: bool = False

    def json(self, number: int, x: int, y: int) -> dict[str, Any]:
        instant = self.kind == "table"
        targets = [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
                **({"instant": True, "range": False, "format": "table"} if instant else {"range": True}),
            }
            for index, (expression, legend) in enumerate(self.queries)
        ]
        custom: dict[str, Any] = {"fillOpacity": 10, "showPoints": "never"}
        if self.stacked:
            custom |= {"fillOpacity": 40, "stacking": {"mode": "normal"}}
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.text,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {
                "defaults": {"unit": self.unit, **({"custom": custom} if self.kind == "timeseries" else {})},
                "overrides": [],
            },
            "targets": targets,
        }


def stat(title: str, unit: str, expression: str, text: str = "") -> Panel:
    return Panel(title, unit, ((expression, ""),), kind="stat", width=4, height=4, text=text)


def graph(title: str, unit: str, *queries: Query, text: str = "", stacked: bool = False) -> Panel:
    return Panel(title, unit, queries, text=text, stacked=stacked)


def table(title: str, unit: str, expression: str, text: str = "") -> Panel:
    return Panel(title, unit, ((expression, ""),), kind="table", width=12, text=text)


@dataclass(frozen=True)
class Variable:
    name: str
    query: str
    regex: str = ""
    multi: bool = True

    def json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": self.query, "refId": self.name},
            "regex": self.regex,
            "multi": self.multi,
            "includeAll": self.multi,
            **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if self.multi else {}),
            "refresh": 2,
            "sort": 1,
        }


@dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    panels: Sequence[Panel]
    variables: Sequence[Variable] = field(default_factory=tuple)

    def json(self) -> dict[str, Any]:
        source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
        return {
            "uid": f"tessera-{self.name}",
            "title": f"Tessera / {self.title}",
            "tags": ["tessera", "gpu"],
            "schemaVersion": 39,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "links": [{"type": "dashboards", "tags": ["tessera"], "title": "Tessera", "asDropdown": True}],
            "templating": {"list": [source, *(variable.json() for variable in self.variables)]},
            "panels": self._placed(),
        }

    def _placed(self) -> list[dict[str, Any]]:
        placed: list[dict[str, Any]] = []
        x = y = row = 0
        for number, panel in enumerate(self.panels, 1):
            if x + panel.width > COLUMNS:
                x, y, row = 0, y + row, 0
            placed.append(panel.json(number, x, y))
            x, row = x + panel.width, max(row, panel.height)
        return placed


NODE = Variable(
    "node",
    "query_result(max by (instance, Hostname, hostname) (tessera_gpu_busy_ratio))",
    regex='/instance="(?<value>[^"]+)"|[Hh]ostname="(?<text>[^"]+)"/g',
)
GPU = Variable("gpu", f"label_values(tessera_gpu_busy_ratio{{{N}}}, UUID)")

FLEET = Dashboard(
    "fleet",
    "Fleet",
    (
        stat("GPUs", "none", "tessera:fleet_gpus:count"),
        stat("Allocated", "percentunit", "tessera:fleet_gpus:allocated / tessera:fleet_gpus:count"),
        stat("Busy", "percentunit", "tessera:fleet_gpus:busy / tessera:fleet_gpus:count"),
        stat("Given and never used or idle", "none", 'count(tessera_pod_gpu_use{use=~"empty|held"}) or vector(0)'),
        stat("Not healthy", "none", 'sum(max by (instance, uuid) (tessera_gpu_device_health{state!="Healthy"}))'),
        stat("Pending workloads", "none", "sum(max by (cluster_queue, status) (kueue_pending_workloads))"),
        graph(
            "GPUs",
            "none",
            ("tessera:fleet_gpus:count", "there"),
            ("tessera:fleet_gpus:allocated", "allocated"),
            ("tessera:fleet_gpus:busy", "busy"),
        ),
        graph("Allocated by namespace", "none", ("tessera:namespace_gpus:allocated", "{{namespace}}"), stacked=True),
        graph(
            "Allocated and not busy",
            "none",
            (
                "topk(10, tessera:namespace_gpus:allocated - on (namespace) tessera:namespace_gpus:busy)",
                "{{namespace}}",
            ),
            text="GPUs that a namespace holds beyond what it keeps busy.",
        ),
        graph(
            "GPU-hours a day by namespace",
            "h",
            ("sum_over_time(tessera:namespace_gpu_hours:sum1h[1d:1h])", "{{namespace}}"),
        ),
        graph(
            "GPU-hours a day by queue",
            "h",
            ("sum_over_time(tessera:cluster_queue_gpu_hours:sum1h[1d:1h])", "{{cluster_queue}}"),
        ),
        graph("Power", "watt", ("sum(max by (instance, UUID) (DCGM_FI_DEV_POWER_USAGE))", "all GPUs")),
        graph("Fragmentation", "percentunit", ("max by (flavor) (tessera_gpu_fragmentation_ratio)", "{{flavor}}")),
        graph(
            "Largest placeable gang",
            "none",
            ("max by (flavor, level) (tessera_largest_placeable_gang)", "{{flavor}} {{level}}"),
        ),
        graph(
            "Devices by health",
            "none",
            ("sum by (state) (max by (instance, uuid, state) (tessera_gpu_device_health))", "{{state}}"),
        ),
        table("Open faults", "none", "tessera_gpu_open_xid > 0", text="The worst XID that is open on each GPU."),
        table("Alerts", "none", 'ALERTS{alertname=~"Tessera.+", alertstate="firing"}'),
    ),
)

NODES = Dashboard(
    "node",
    "Node",
    (
        graph("Busy", "percentunit", (f'tessera_gpu_busy_ratio{{{N}, GPU_I_ID=""}}', "GPU {{gpu}}")),
        graph(
            "Memory used",
            "mbytes",
            (f"sum by (instance, gpu) (DCGM_FI_DEV_FB_USED{{{N}}})", "GPU {{gpu}}"),
        ),
        graph(
            "Allocated", "none", (f"sum by (namespace, pod) (tessera_gpu_allocation{{{N}}})", "{{namespace}}/{{pod}}")
        ),
        graph("Temperature", "celsius", (f"DCGM_FI_DEV_GPU_TEMP{{{N}}}", "GPU {{gpu}}")),
        graph("Power", "watt", (f"DCGM_FI_DEV_POWER_USAGE{{{N}}}", "GPU {{gpu}}")),
        graph("SM clock", "hertz", (f"DCGM_FI_DEV_SM_CLOCK{{{N}}} * 1e6", "GPU {{gpu}}")),
        graph("What holds clocks down", "none", (f"tessera_gpu_throttled{{{N}}} == 1", "GPU {{gpu}} {{reason}}")),
        graph("NVLinks", "none", (f"tessera_gpu_nvlinks{{{N}}}", "GPU {{gpu}} {{state}}")),
        graph("Health", "none", (f"tessera_gpu_device_health{{{N}}} == 1", "{{uuid}} {{state}}")),
        graph("Devices by view", "none", (f"tessera_agent_devices{{{N}}}", "{{resource}} {{view}}")),
        graph(
            "kubelet's calls, 99th percentile",
            "s",
            (
                (
                    "histogram_quantile(0.99, sum by (method, le)"
                    f" (rate(tessera_agent_call_duration_seconds_bucket{{{N}}}[$__rate_interval])))"
                ),
                "{{method}}",
            ),
        ),
        graph(
            "Looks at GPUs",
            "ops",
            (f"rate(tessera_agent_gpu_samples_total{{{N}}}[$__rate_interval])", "{{result}}"),
            (f"tessera_agent_sample_duration_seconds{{{N}}}", "seconds for a pass"),
        ),
        table(
            "Share of each GPU by pod",
            "percentunit",
            f"tessera_gpu_allocation{{{N}}}",
            text="Share of the GPU, by pod and mode.",
        ),
        table("XIDs since the agent started", "none", f"tessera_gpu_xid_errors_total{{{N}}}"),
    ),
    (NODE,),
)

GPUS = Dashboard(
    "gpu",
    "GPU",
    (
        graph("Busy", "percentunit", (f"tessera_gpu_busy_ratio{{{G}}}", "{{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}")),
        graph(
            "Busy by pod",
            "percentunit",
            (f"tessera_pod_gpu_busy_ratio{{{G}}}", "{{namespace}}/{{pod}} {{owner}}"),
            stacked=True,
        ),
        graph(
            "Memory by pod",
            "bytes",
            (f"tessera_pod_gpu_memory_used_bytes{{{G}}}", "{{namespace}}/{{pod}} {{owner}}"),
            stacked=True,
        ),
        graph(
            "SM, tensor, memory activity",
            "percentunit",
            (f"DCGM_FI_PROF_SM_ACTIVE{{{G}}}", "SM {{GPU_I_ID}}"),
            (f"DCGM_FI_PROF_SM_OCCUPANCY{{{G}}}", "occupancy {{GPU_I_ID}}"),
            (f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{G}}}", "tensor {{GPU_I_ID}}"),
            (f"DCGM_FI_PROF_DRAM_ACTIVE{{{G}}}", "DRAM {{GPU_I_ID}}"),
            text="Hopper and newer.",
        ),
        graph(
            "Utilisation",
            "percent",
            (f"sum by (instance, gpu) (DCGM_FI_DEV_GPU_UTIL{{{G}}})", "GPU"),
            (f"sum by (instance, gpu) (DCGM_FI_DEV_MEM_COPY_UTIL{{{G}}})", "memory"),
            (f"sum by (instance, gpu) (DCGM_FI_DEV_ENC_UTIL{{{G}}})", "encoder"),
            (f"sum by (instance, gpu) (DCGM_FI_DEV_DEC_UTIL{{{G}}})", "decoder"),
            text="Not in MIG mode.",
        ),
        graph(
            "Memory",
            "mbytes",
            (f"sum by (instance, gpu, GPU_I_ID) (DCGM_FI_DEV_FB_USED{{{G}}})", "used {{GPU_I_ID}}"),
            (f"max by (instance, gpu, GPU_I_ID) (DCGM_FI_DEV_FB_FREE{{{G}}})", "free {{GPU_I_ID}}"),
        ),
        graph(
            "Power",
            "watt",
            (f"DCGM_FI_DEV_POWER_USAGE{{{G}}}", "board"),
            (f"DCGM_FI_DEV_POWER_MGMT_LIMIT{{{G}}}", "limit"),
            (f"tessera_pod_gpu_power_estimate_watts{{{G}}}", "{{namespace}}/{{pod}} {{owner}} (estimate)"),
        ),
        graph(
            "Temperature",
            "celsius",
            (f"DCGM_FI_DEV_GPU_TEMP{{{G}}}", "GPU"),
            (f"DCGM_FI_DEV_MEMORY_TEMP{{{G}}}", "memory"),
        ),
        graph(
            "Clocks",
            "hertz",
            (f"DCGM_FI_DEV_SM_CLOCK{{{G}}} * 1e6", "SM"),
            (f"DCGM_FI_DEV_MEM_CLOCK{{{G}}} * 1e6", "memory"),
        ),
        graph("What holds clocks down", "none", (f"tessera_gpu_throttled{{{G}}} == 1", "{{reason}}")),
        graph(
            "PCIe",
            "Bps",
            (f"DCGM_FI_PROF_PCIE_TX_BYTES{{{G}}}", "sent"),
            (f"DCGM_FI_PROF_PCIE_RX_BYTES{{{G}}}", "received"),
        ),
        graph(
            "NVLink",
            "KiBs",
            (f"rate(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{{{G}}}[$__rate_interval])", "all links, both ways"),
        ),
        graph(
            "Memory errors",
            "none",
            (f"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{{G}}}", "corrected"),
            (f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{G}}}", "uncorrected"),
            (f"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{{{G}}}", "rows remapped, corrected"),
            (f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{G}}}", "rows remapped, uncorrected"),
            (f"DCGM_FI_DEV_ROW_REMAP_PENDING{{{G}}}", "remap pending"),
            (f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{G}}}", "remap failed"),
        ),
        graph("Open XID", "none", (f"max by (instance, gpu, UUID) (tessera_gpu_open_xid{{{G}}})", "GPU {{gpu}}")),
        graph("NVLinks", "none", (f"tessera_gpu_nvlinks{{{G}}}", "{{state}}")),
    ),
    (NODE, GPU),
)

NAMESPACES = Dashboard(
    "namespace",
    "Namespace",
    (
        stat("Allocated", "none", f"sum(tessera:namespace_gpus:allocated{{{NS}}})"),
        stat("Busy", "none", f"sum(tessera:namespace_gpus:busy{{{NS}}})"),
        stat("GPU-hours, last day", "h", f"sum(sum_over_time(tessera:namespace_gpu_hours:sum1h{{{NS}}}[1d:1h]))"),
        stat("Of those busy", "h", f"sum(sum_over_time(tessera:namespace_gpu_busy_hours:sum1h{{{NS}}}[1d:1h]))"),
        stat("Power (estimate)", "watt", f"sum(tessera_pod_gpu_power_estimate_watts{{{NS}}})"),
        stat("Memory", "bytes", f"sum(tessera_pod_gpu_memory_used_bytes{{{NS}}})"),
        graph(
            "Allocated by pod", "none", (f"tessera:pod_gpus:allocated{{{NS}}}", "{{namespace}}/{{pod}}"), stacked=True
        ),
        graph("Busy by pod", "none", (f"tessera:pod_gpus:busy{{{NS}}}", "{{namespace}}/{{pod}}"), stacked=True),
        graph(
            "SM activity of what was given",
            "percentunit",
            (f"tessera:pod_gpu_sm_of_share:ratio{{{NS}}}", "{{pod}} {{Hostname}}{{hostname}} GPU {{gpu}}"),
            text="Above 100 %: more than its share of a shared GPU.",
        ),
        graph(
            "Memory by pod",
            "bytes",
            (f"sum by (namespace, pod) (tessera_pod_gpu_memory_used_bytes{{{NS}}})", "{{namespace}}/{{pod}}"),
        ),
        graph(
            "Power by pod (estimate)",
            "watt",
            (f"sum by (namespace, pod) (tessera_pod_gpu_power_estimate_watts{{{NS}}})", "{{namespace}}/{{pod}}"),
        ),
        graph(
            "Energy by pod (estimate)",
            "watt",
            (
                (
                    "sum by (namespace, pod)"
                    f" (rate(tessera_pod_gpu_energy_estimate_joules_total{{{NS}}}[$__rate_interval]))"
                ),
                "{{namespace}}/{{pod}}",
            ),
        ),
        table(
            "Idle for",
            "s",
            f"tessera_pod_gpu_idle_seconds{{{NS}}} and on (UUID, GPU_I_ID, namespace, pod, container)"
            ' tessera_pod_gpu_use{use!="active"}',
        ),
        table("Use", "none", f"tessera_pod_gpu_use{{{NS}}}", text="active, warm, held (idle, memory held) or empty."),
    ),
    (Variable("namespace", "label_values(tessera_gpu_allocation, namespace)"),),
)

QUEUES = Dashboard(
    "queue",
    "Queue",
    (
        graph(
            "Waiting",
            "none",
            (f"max by (cluster_queue, status) (kueue_pending_workloads{{{CQ}}})", "{{cluster_queue}} {{status}}"),
            stacked=True,
        ),
        graph(
            "Admitted",
            "none",
            (f"max by (cluster_queue) (kueue_admitted_active_workloads{{{CQ}}})", "{{cluster_queue}} admitted"),
            (f"max by (cluster_queue) (kueue_reserving_active_workloads{{{CQ}}})", "{{cluster_queue}} with quota"),
        ),
        graph(
            "Why they wait",
            "none",
            (f"max by (cluster_queue, reason) (tessera_parked_workloads{{{CQ}}})", "{{cluster_queue}} {{reason}}"),
        ),
        graph(
            "Quota and use",
            "none",
            (
                (
                    "max by (cluster_queue, flavor, resource)"
                    f' (kueue_cluster_queue_resource_usage{{{CQ}, resource=~".*gpu.*|.*mig.*"}})'
                ),
                "{{cluster_queue}} {{flavor}} {{resource}} used",
            ),
            (
                (
                    "max by (cluster_queue, flavor, resource)"
                    f' (kueue_cluster_queue_nominal_quota{{{CQ}, resource=~".*gpu.*|.*mig.*"}})'
                ),
                "{{cluster_queue}} {{flavor}} {{resource}} nominal",
            ),
        ),
        graph("GPUs in use", "none", (f"tessera:cluster_queue_gpus:used{{{CQ}}}", "{{cluster_queue}}"), stacked=True),
        graph(
            "GPU-hours a day",
            "h",
            (f"sum_over_time(tessera:cluster_queue_gpu_hours:sum1h{{{CQ}}}[1d:1h])", "{{cluster_queue}}"),
        ),
        graph(
            "Admitted an hour",
            "none",
            (f"sum by (cluster_queue) (increase(kueue_admitted_workloads_total{{{CQ}}}[1h]))", "{{cluster_queue}}"),
        ),
        graph(
            "Wait until admission",
            "s",
            *(
                (
                    (
                        f"histogram_quantile({part}, sum by (cluster_queue, le)"
                        f" (rate(kueue_admission_wait_time_seconds_bucket{{{CQ}}}[$__rate_interval])))"
                    ),
                    f"{{{{cluster_queue}}}} {name}",
                )
                for part, name in ((0.5, "median"), (0.95, "95 %"))
            ),
        ),
        graph(
            "Evicted an hour",
            "none",
            (
                f"sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total{{{CQ}}}[1h]))",
                "{{cluster_queue}} {{reason}}",
            ),
        ),
        graph(
            "Share",
            "none",
            (f"max by (cluster_queue, cohort) (kueue_cluster_queue_weighted_share{{{CQ}}})", "{{cluster_queue}}"),
            text="Dominant resource share over weight, in thousandths; with fair sharing.",
        ),
        graph(
            "Kinds of jobs",
            "none",
            ('max by (job_kind, state) (tessera_workloads{state!="finished"})', "{{job_kind}} {{state}}"),
            text="In all queues.",
            stacked=True,
        ),
        graph(
            "Started an hour",
            "none",
            ("sum by (job_kind) (increase(tessera_job_starts_total[1h]))", "{{job_kind}}"),
            text="Jobs that were told to run, in all queues; one that was preempted counts anew.",
        ),
        graph(
            "Time to decide",
            "s",
            (
                "histogram_quantile(0.99, sum by (le) (rate(tessera_decision_seconds_bucket[$__rate_interval])))",
                "99 %",
            ),
        ),
        graph(
            "Writes",
            "ops",
            ("sum by (resource, result) (rate(tessera_writes_total[$__rate_interval]))", "{{resource}} {{result}}"),
            ("max(tessera_writes_pending)", "not done yet"),
        ),
    ),
    (Variable("cluster_queue", "label_values(kueue_pending_workloads, cluster_queue)"),),
)

ALL = (FLEET, NODES, GPUS, NAMESPACES, QUEUES)


def rendered() -> dict[Path, str]:
    return {FOLDER / f"{dashboard.name}.json": json.dumps(dashboard.json(), indent=1) + "\n" for dashboard in ALL}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in rendered().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
