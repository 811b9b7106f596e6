"""What each recording rule makes of which series: cases for promtool."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.charts.rulecases import GPU, OWN, POD, SCRAPED, SLICE, Series, fleet, inputs, shared, sm, steady


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
        return {"interval": "1m", "input_series": inputs(self.series), "promql_expr_test": [wanted]}


_IN_SLICE = {
    f'tessera_gpu_allocation{{{SLICE},resource="nvidia.com/mig-3g.40gb",mode="mig"}}': steady("0.5"),
    f'tessera_pod_gpu_busy_ratio{{{SLICE},{OWN},source="gpm"}}': steady("0.8"),
}
_KEY = f"{{{POD}}}"
_USAGE = (
    'kueue_cluster_queue_resource_usage{cohort="",cluster_queue="q",flavor="f",resource="%s",replica_role="leader"}'
)

RECORDS = (
    Records("tessera:fleet_gpus:count", fleet(1, 0), "5m", {"": 4}),
    Records(
        "tessera:pod_gpus:allocated",
        {**shared(0.5), **_IN_SLICE},
        "5m",
        {'{namespace="team",pod="train"}': 0.75, '{namespace="team",pod="serve"}': 0.25},
    ),
    Records("tessera:namespace_gpus:allocated", {**shared(0.5), **_IN_SLICE}, "5m", {'{namespace="team"}': 1.0}),
    Records("tessera:fleet_gpus:allocated", {**shared(0.5), **_IN_SLICE}, "5m", {"": 1.0}),
    Records("tessera:pod_gpu_sm:ratio", sm(0.2), "5m", {_KEY: 0.2}),
    Records(
        "tessera:pod_gpu_sm:ratio",
        {**sm(0.9), f'DCGM_FI_PROF_SM_ACTIVE{{{POD},modelName="m"}}': steady("0.3")},
        "5m",
        {_KEY: 0.3},
    ),
    Records("tessera:pod_gpu_sm:ratio", _IN_SLICE, "5m", {f"{{{SLICE}}}": 0.8}),
    Records(
        "tessera:pod_gpu_sm_of_share:ratio",
        {**shared(0.2, other=False), **_IN_SLICE},
        "5m",
        {_KEY: 0.8, f"{{{SLICE}}}": 0.8},
    ),
    Records(
        "tessera:pod_gpus:busy",
        {**shared(0.5), **_IN_SLICE},
        "5m",
        {'{namespace="team",pod="train"}': 0.9, '{namespace="team",pod="serve"}': 0.1},
    ),
    Records("tessera:namespace_gpus:busy", {**shared(0.5), **_IN_SLICE}, "5m", {'{namespace="team"}': 1.0}),
    Records(
        "tessera:fleet_gpus:busy",
        {
            f'tessera_gpu_busy_ratio{{{SCRAPED},{GPU},source="gpm"}}': steady("0.5"),
            f'tessera_gpu_busy_ratio{{{SCRAPED},{GPU},GPU_I_ID="1",source="gpm"}}': steady("0.9"),
        },
        "5m",
        {"": 0.5},
    ),
    Records(
        "tessera:cluster_queue_gpus:used",
        {
            _USAGE % "nvidia.com/gpu": steady("2"),
            _USAGE % "tessera.dev/gpu-percent": steady("150"),
            **{_USAGE % f"nvidia.com/mig-{n}g.{n}0gb": steady("7") for n in (1, 2, 3, 4)},
            _USAGE % "nvidia.com/mig-7g.80gb": steady("1"),
            _USAGE % "nvidia.com/mig-1g.6gb": steady("4"),
            _USAGE % "nvidia.com/mig-1g.6gb.me": steady("4"),
            _USAGE % "nvidia.com/mig-2g.12gb": steady("2"),
            _USAGE % "nvidia.com/mig-4g.24gb": steady("1"),
            _USAGE % "nvidia.com/gpu.shared": steady("9"),
            _USAGE % "cpu": steady("64"),
        },
        "5m",
        {'{cluster_queue="q"}': 2 + 1.5 + (1 + 2 + 3 + 4) + 1 + (1 + 1 + 1 + 1)},
    ),
    # Sixty minutely samples are an hour; those before there was any count nothing.
    Records("tessera:namespace_gpu_hours:sum1h", sm(0.5), "2h", {'{namespace="team"}': 1.0}),
    Records(
        "tessera:namespace_gpu_busy_hours:sum1h",
        {f'tessera_pod_gpu_busy_ratio{{{POD},{OWN},source="gpm"}}': steady("0.5")},
        "2h",
        {'{namespace="team"}': 0.5},
    ),
    Records(
        "tessera:cluster_queue_gpu_hours:sum1h",
        {_USAGE % "nvidia.com/gpu": steady("4")},
        "2h",
        {'{cluster_queue="q"}': 4.0},
    ),
)
