"""Minimum runtime and the order by least lost time: each off unless asked for."""

from typing import Any

import msgspec
import pytest

from controller.scheduler.model.config import EngineConfig, Extensions, FairSharing, MinimumRuntime, VictimOrder
from controller.scheduler.model.resources import CPU, FlavorName, FlavorResource, ResourceName, is_gpu
from controller.scheduler.preemption.index import lost_weight
from tests.support.engine.preemptionlab import GPU, NOW_S, Lab, reasons

LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}


def running(minimum: MinimumRuntime | None, annotation: str | None = None, **holder: Any) -> Lab:
    """One workload of 4 GPUs that has run for ten minutes."""
    lab = Lab.with_(minimum_runtime=minimum)
    lab.queue("a", 4, preemption=LOWER, minimum_runtime=annotation)
    lab.hold("w", "a", 4, **({"ran_s": 600.0} | holder))
    return lab


def asked(lab: Lab) -> set[str]:
    return set(lab.ask("a", 4, priority=9))


@pytest.mark.parametrize(("minimum_s", "victims"), [(599.0, {"w"}), (600.0, {"w"}), (601.0, set())])
def test_no_workload_is_a_victim_before_its_minimum_runtime(minimum_s: float, victims: set[str]) -> None:
    assert asked(running(MinimumRuntime(default_s=minimum_s))) == victims


def test_the_priority_class_goes_before_the_default_and_the_queue_before_both() -> None:
    by_class = MinimumRuntime(default_s=1e6, by_priority_class={"short": 60.0, "long": 1e6})
    assert asked(running(by_class, priority_class="short")) == {"w"}
    assert asked(running(by_class, priority_class="long")) == set()
    assert asked(running(by_class, priority_class="other")) == set()
    assert asked(running(by_class, "5m", priority_class="long")) == {"w"}
    assert asked(running(by_class, "1h", priority_class="short")) == set()
    assert asked(running(by_class, "0")) == {"w"}
    assert asked(running(MinimumRuntime(), "1h")) == set()
    assert asked(running(MinimumRuntime(), "soon")) == {"w"}


def test_off_means_off_for_annotations_too() -> None:
    assert asked(running(None, "1h")) == {"w"}


def test_an_annotation_that_changes_counts_from_then_on() -> None:
    lab = running(MinimumRuntime(), "1h")
    lab.queue("a", 4, preemption=LOWER, minimum_runtime="1m")
    assert asked(lab) == {"w"}


def test_a_workload_that_has_not_started_or_is_evicted_is_not_protected() -> None:
    assert asked(running(MinimumRuntime(default_s=1e6), admitted=False)) == {"w"}
    assert asked(running(MinimumRuntime(default_s=1e6), evicted=True)) == {"w"}


def test_candidates_behind_protected_ones_are_found() -> None:
    lab = Lab.with_(minimum_runtime=MinimumRuntime(default_s=100.0))
    lab.queue("a", 2000, preemption=LOWER)
    for at in range(2000):
        lab.hold(f"w{at:04}", "a", 1, ran_s=float(at))
    assert set(lab.ask("a", 2, priority=1)) == {"w0100", "w0101"}


def test_the_end_of_the_first_protection_is_known() -> None:
    lab = Lab.with_(minimum_runtime=MinimumRuntime(default_s=100.0))
    lab.queue("a", 2, preemption=LOWER)
    lab.hold("w0", "a", 1, ran_s=10.0)
    lab.hold("w1", "a", 1, ran_s=30.0)
    incoming = lab.incoming("in", "a", 1, 9)
    assert lab.preemption.next_due_s() is None
    assert lab.targets(incoming) == ()
    due_s = lab.preemption.next_due_s()
    assert due_s == NOW_S + 70.0
    assert lab.preemption.due(due_s - 1.0) == ()
    assert lab.preemption.due(due_s) == ("a",)
    assert reasons(lab.targets(incoming, due_s)) == {"w1": "InClusterQueue"}
    assert lab.preemption.next_due_s() is None


def test_the_end_of_protection_is_known_in_other_queues_too() -> None:
    lab = Lab.with_(minimum_runtime=MinimumRuntime())
    lab.queue("a", 2, "all", preemption={"reclaimWithinCohort": "Any"})
    lab.queue("b", 2, "all", minimum_runtime="1m")
    lab.hold("w0", "b", 4, ran_s=10.0)
    assert lab.ask("a", 1) == {}
    assert lab.preemption.next_due_s() == NOW_S + 50.0


@pytest.mark.parametrize("fair", [None, FairSharing()])
def test_the_least_lost_gpu_time_goes_first_among_equals(fair: FairSharing | None) -> None:
    def victims(order: VictimOrder, amount: int, priority_of_small: int = 0) -> set[str]:
        lab = Lab(EngineConfig(fair_sharing=fair, extensions=Extensions(victim_order=order)))
        lab.queue("a", 13, preemption=LOWER)
        lab.hold("large-new", "a", 8, ran_s=100.0)
        lab.hold("small-old", "a", 1, ran_s=700.0, priority=priority_of_small)
        lab.hold("middle", "a", 4, ran_s=300.0)
        return set(lab.ask("a", amount, priority=9))

    assert victims(VictimOrder.NEWEST, 1) == {"large-new"}
    assert victims(VictimOrder.LEAST_LOST, 1) == {"small-old"}
    assert victims(VictimOrder.LEAST_LOST, 2) == {"large-new"}  # 700 and 800 go, 700 comes back: 800 alone will do
    assert victims(VictimOrder.LEAST_LOST, 9) == {"small-old", "large-new"}
    assert victims(VictimOrder.LEAST_LOST, 1, priority_of_small=1) == {"large-new"}


def test_a_workload_that_has_not_started_loses_nothing() -> None:
    lab = Lab.with_(victim_order=VictimOrder.LEAST_LOST)
    lab.queue("a", 9, preemption=LOWER)
    lab.hold("reserved", "a", 8, ran_s=9999.0, admitted=False)
    lab.hold("running", "a", 1, ran_s=1.0)
    assert set(lab.ask("a", 1, priority=9)) == {"reserved"}


def test_time_is_weighed_by_gpus_and_without_any_by_cpus() -> None:
    lab = Lab()
    lab.queue("a", 9)
    holder = lab.holder("w", "a", 3)
    cpu = FlavorResource(FlavorName("default"), CPU)
    gpu = FlavorResource(FlavorName("default"), GPU)

    def weight(**usage: int) -> tuple[int, int]:
        frs = {"cpu": cpu, "gpu": gpu}
        return lost_weight(msgspec.structs.replace(holder, usage={frs[name]: one for name, one in usage.items()}))

    assert weight(gpu=3, cpu=4000) == (3, 0)
    assert weight(cpu=4000) == (0, 4000)
    assert weight() == (0, 0)


def test_what_a_gpu_is() -> None:
    names = ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"]
    assert all(map(is_gpu, names))
    assert not any(map(is_gpu, [ResourceName("cpu"), "memory", "nvidia.com/gpumem", "example.com/gpu-memory"]))
