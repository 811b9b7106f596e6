"""The agent's own figures: what is documented is there, what is there is documented, and nothing grows for ever."""

import re
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from agent.health.repairstate import RepairChange, RepairState
from agent.health.states import HealthState, Transition
from agent.mps.core import DaemonState, Phase
from agent.serving.metrics import MOST_REASONS, MOST_XIDS, AgentMetrics
from inventory.devices import GpuUuid, ResourceName

PAGE = Path(__file__).parents[3] / "docs/metrics.md"
GPU = ResourceName("nvidia.com/gpu")


def documented() -> dict[str, tuple[str, ...]]:
    """Labels by metric of the agent itself, from the page's first table."""
    page = PAGE.read_text().split("## What the GPUs do")[0]
    rows = re.findall(r"^\| `(tessera_\w+)` \| ([^|]*)\|", page, re.MULTILINE)
    return {name: tuple(label.strip() for label in labels.split(",") if label.strip()) for name, labels in rows}


def used() -> AgentMetrics:
    """Each metric with one series."""
    metrics = AgentMetrics()
    metrics.registered(GPU, None)
    metrics.registered(GPU, "refused")
    metrics.stream_opened(GPU)
    metrics.called(GPU, "Allocate", 0.0004, None)
    metrics.called(GPU, "Allocate", 0.2, "unknown device")
    metrics.devices([(GPU, {"inventory": 8, "advertised": 7, "allocatable": 7})])
    metrics.claim_called("Prepare", 0.3, "ok")
    metrics.claim_called("Prepare", 60.0, "api")
    metrics.claim_devices({("gpu", "published"): 2, ("gpu", "held"): 1})
    metrics.states({"GPU-0": HealthState.UNHEALTHY})
    metrics.xid("GPU-0", 79)
    metrics.repaired(
        RepairChange(
            gpu=GpuUuid("GPU-0"),
            old=RepairState.VERIFYING,
            new=RepairState.REBOOT_WANTED,
            step="verify",
            result="failed",
            note="a link is down",
            at_s=2.0,
        )
    )
    metrics.retired(1)
    metrics.driver_up(up=True)
    metrics.reloaded(None)
    metrics.sampled(7, 1, 0.02)
    metrics.mps([DaemonState("GPU-0", "GPU 0", Phase.WAITING, "no CUDA", 0.0, 2, wanted=True)])
    metrics.transition(
        Transition(
            gpu=GpuUuid("GPU-0"),
            mig=None,
            old=HealthState.HEALTHY,
            new=HealthState.UNHEALTHY,
            reason="Xid79",
            cause="XID 79",
            at_s=2.0,
            age_s=1.0,
        )
    )
    return metrics


def families(metrics: AgentMetrics) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(metrics.exposition().decode())}


def series(metrics: AgentMetrics, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in families(metrics).values()
        for sample in family.samples
        if sample.name == name
    }


def value(metrics: AgentMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_the_page_and_the_code_name_the_same_metrics_with_the_same_labels() -> None:
    found: dict[str, set[str]] = {}
    for family in families(used()).values():
        if not family.name.startswith("tessera_"):
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        found[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    assert found == {name: set(labels) for name, labels in documented().items()}


def test_an_mps_daemon_that_is_gone_takes_its_series_along() -> None:
    metrics = used()
    assert value(metrics, "tessera_agent_mps_daemon_ready", device="GPU-0") == 0
    assert value(metrics, "tessera_agent_mps_daemon_restarts", device="GPU-0") == 2
    metrics.mps([])
    assert not series(metrics, "tessera_agent_mps_daemon_ready")
    assert not series(metrics, "tessera_agent_mps_daemon_restarts")


def test_devices_of_claims_that_are_gone_take_their_series_along() -> None:
    metrics = used()
    assert value(metrics, "tessera_agent_claim_devices", type="gpu", view="published") == 2
    assert value(metrics, "tessera_agent_claim_calls_total", method="Prepare", result="api") == 1
    assert value(metrics, "tessera_agent_claim_duration_seconds_bucket", method="Prepare", le="0.5") == 1
    metrics.claim_devices({("gpu", "held"): 0})
    assert series(metrics, "tessera_agent_claim_devices") == {(("type", "gpu"), ("view", "held")): 0}


def test_the_page_names_metrics_in_its_alerts_that_exist() -> None:
    alerts = PAGE.read_text().split("Worth an alert:")[1].split("## What the GPUs do")[0]
    assert set(re.findall(r"tessera_\w+", alerts)) <= documented().keys()
    assert set(re.findall(r'view="(\w+)"', alerts)) == {"inventory", "advertised", "allocatable"}


def test_the_process_is_measured_too() -> None:
    assert "process_resident_memory_bytes" in families(used())


def test_calls_are_counted_by_result_and_timed() -> None:
    metrics = used()
    for result in ("ok", "error"):
        assert value(metrics, "tessera_agent_calls_total", resource=GPU, method="Allocate", result=result) == 1
    assert value(metrics, "tessera_agent_call_duration_seconds_count", method="Allocate") == 2
    assert value(metrics, "tessera_agent_call_duration_seconds_bucket", method="Allocate", le="0.003") == 1


def test_numbers_that_a_gpu_makes_up_do_not_make_series_for_ever() -> None:
    metrics = AgentMetrics()
    for xid in range(1000, 1200):
        metrics.xid("GPU-0", xid)
        metrics.transition(
            Transition(
                gpu=GpuUuid("GPU-0"),
                mig=None,
                old=HealthState.HEALTHY,
                new=HealthState.UNHEALTHY,
                reason=f"Xid{xid}",
                cause="odd",
                at_s=2.0,
                age_s=1.0,
            )
        )
    xids = series(metrics, "tessera_gpu_xid_errors_total")
    reasons = series(metrics, "tessera_agent_health_transitions_total")
    assert len(xids) == MOST_XIDS + 1
    assert len(reasons) == MOST_REASONS + 1
    assert sum(xids.values()) == sum(reasons.values()) == 200, "all are counted"
    assert value(metrics, "tessera_gpu_xid_errors_total", UUID="GPU-0", xid="other") == 200 - MOST_XIDS
    metrics.xid("GPU-0", 1000)
    assert value(metrics, "tessera_gpu_xid_errors_total", UUID="GPU-0", xid="1000") == 2


def test_a_device_is_in_one_state_at_a_time() -> None:
    metrics = AgentMetrics()
    for state in (HealthState.HEALTHY, HealthState.UNHEALTHY, HealthState.PROBATION):
        metrics.states({"GPU-0": state, "GPU-1": HealthState.HEALTHY})
        shown = series(metrics, "tessera_gpu_device_health")
        assert len(shown) == 2 * len(HealthState)
        current = {
            dict(labels)["state"] for labels, number in shown.items() if number and dict(labels)["uuid"] == "GPU-0"
        }
        assert current == {state.value}


def test_what_is_gone_loses_its_series() -> None:
    metrics = used()
    metrics.states({})
    metrics.devices([])
    assert series(metrics, "tessera_gpu_device_health") == {}
    assert series(metrics, "tessera_agent_devices") == {}


def test_devices_of_a_resource_that_comes_back_are_counted_anew() -> None:
    metrics = used()
    metrics.devices([])
    metrics.devices([(GPU, {"inventory": 2})])
    assert series(metrics, "tessera_agent_devices") == {(("resource", GPU), ("view", "inventory")): 2.0}


def test_streams_go_up_and_down() -> None:
    metrics = used()
    metrics.stream_closed(GPU)
    assert value(metrics, "tessera_agent_list_and_watch_streams", resource=GPU) == 0
