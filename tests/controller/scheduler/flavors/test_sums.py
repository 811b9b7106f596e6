"""Workloads that ask for the same sums: how these are divided into pod sets matters only where there is a choice."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.decode import decode
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import Workload
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Mode
from controller.scheduler.model.config import EngineConfig, FairSharing
from controller.scheduler.model.limitrange import LimitSummary
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.scheduler.model.workload import WorkloadInfo
from controller.scheduler.state.intake import Shapes
from tests.controller.scheduler.flavors.test_assigner_properties import job, labs, pod_sets
from tests.controller.scheduler.preemption.test_preemption_properties import labs as worlds
from tests.support.engine.flavorlab import Lab, pod_set
from tests.support.engine.preemptionlab import FLAVOR, GPU, NOW_S, reasons
from tests.support.engine.preemptionlab import Lab as PreemptionLab

JSON = dict[str, Any]


@settings(max_examples=30)
@given(labs(), pod_sets, st.booleans())
def test_several_pod_sets_are_answered_at_once_as_one_after_the_other(
    lab: Lab, sets: list[JSON], several: bool
) -> None:
    quota = {resource: {"nominalQuota": "5"} for resource in ("gpu", "fpga")}
    lab.queue("q", dict.fromkeys(("f0", "f1") if several else ("f0",), quota), cohort="all")
    incoming = job(lab, sets)
    # Counts of one's own rule the short way out, whatever they are.
    found, plain = lab.assign(incoming), lab.assign(incoming, counts={})
    for name in ("pod_sets", "mode", "usage", "borrowing", "no_fit_reason"):
        assert getattr(found, name) == getattr(plain, name), name
    assert found.bookmark.more_flavors() == plain.bookmark.more_flavors()
    if found.held is not None:
        assert [(each.name, each.count, each.requests) for each in found.held] == [
            (each.name, each.count, each.requests) for each in plain.pod_sets
        ]


def asking(lab: PreemptionLab, queue: str, priority: int, *amounts: int) -> Incoming:
    sets = [pod_set(f"p{index}", requests={GPU: amount}) for index, amount in enumerate(amounts)]
    data = {"metadata": {"name": "in", "namespace": "ns"}, "spec": {"podSets": sets}}
    config = lab.cluster.config
    return Incoming(
        info=WorkloadInfo.of(decode(data, Workload), rules=config.request_rules, gates=config.gates),
        queue=lab.cluster.queue(ClusterQueueName(queue)),
        local_queue=LocalQueueKey("ns/lq"),
        priority=priority,
        queued_at_s=NOW_S,
    )


@settings(max_examples=30)
@given(worlds(EngineConfig()), st.lists(st.integers(0, 4), min_size=2, max_size=4), st.integers(-1, 2))
def test_the_same_sum_fits_preempts_and_fails_alike_however_it_is_divided(
    case: tuple[PreemptionLab, Incoming], amounts: list[int], priority: int
) -> None:
    lab = case[0]
    lab.cluster.set_flavor(decode({"metadata": {"name": FLAVOR}}, ResourceFlavor))
    lab.preemption.oracle.now_s = NOW_S
    assigner = FlavorAssigner(lab.cluster, lab.preemption.oracle)
    outcomes = []
    for parts in (amounts, [sum(amounts)]):
        incoming = asking(lab, "q0", priority, *parts)
        found = assigner.assign(incoming)
        assert found.by_sums or found.mode is Mode.FIT
        victims = lab.preemption.targets(incoming, found, NOW_S) if Mode.NO_FIT < found.mode < Mode.FIT else ()
        asked_in_vain = not victims and found.mode in (Mode.PREEMPT, Mode.RECLAIM, Mode.NO_CANDIDATES)
        outcomes.append((found.mode is Mode.FIT, found.mode is Mode.NO_FIT, asked_in_vain, reasons(victims)))
    assert outcomes[0] == outcomes[1]


QUOTA = {"gpu": 2}


@pytest.mark.parametrize(
    ("flavors", "config", "by_sums"),
    [
        ({"f0": QUOTA}, EngineConfig(), True),
        ({"f0": QUOTA, "f1": QUOTA}, EngineConfig(), False),
        ({"f0": QUOTA, "tainted": QUOTA}, EngineConfig(), True),
        ({"f0": QUOTA | {"pods": 4}}, EngineConfig(), False),
        ({"f0": QUOTA}, EngineConfig(fair_sharing=FairSharing()), False),
    ],
    ids=["one flavor", "a choice", "a flavor that is closed", "a quota on pods", "fair sharing"],
)
def test_sums_alone_decide_where_there_is_no_choice(flavors: JSON, config: EngineConfig, *, by_sums: bool) -> None:
    lab = Lab(config)
    lab.oracle.is_monotonic = config.fair_sharing is None
    lab.flavor("f0")
    lab.flavor("f1")
    lab.flavor("tainted", nodeTaints=[{"key": "spot", "effect": "NoSchedule"}])
    lab.queue("q", flavors)
    sets = [pod_set(f"p{index}", requests={"gpu": 3}) for index in range(2)]
    found = lab.assign(lab.incoming("q", *sets))
    assert (found.mode, found.by_sums) == (Mode.NO_FIT, by_sums)


SELECTS = {"spec": {"nodeSelector": {"gpu": "h200"}}}


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ([{"count": 4}], [{"count": 1}, {"count": 3}], True),
        ([{"count": 4}], [{"count": 1}, {"count": 2}], False),
        ([{"count": 4, **SELECTS}], [{"count": 1, **SELECTS}, {"count": 3, **SELECTS}], True),
        ([{"count": 4}], [{"count": 4, **SELECTS}], False),
        ([{"count": 4, **SELECTS}], [{"count": 1, **SELECTS}, {"count": 3}], False),
        ([{"count": 4}], [{"count": 4, "minCount": 1}], False),
        ([{"count": 4}], [{"count": 4, "topologyRequest": {"required": "rack"}}], False),
        ([{"count": 4}], [{"count": 4, "topologyRequest": {"podIndexLabel": "index"}}], True),
    ],
    ids=["divided", "less", "all select", "one selects", "some select", "fewer would do", "in a rack", "ranked"],
)
def test_shapes_have_a_sum_in_common_where_nothing_else_tells_them_apart(
    one: list[JSON], other: list[JSON], *, alike: bool
) -> None:
    assert (_sum_shape(one) == _sum_shape(other)) is alike
    assert _sum_shape(one, priority=1) != _sum_shape(one)


def _sum_shape(sets: list[JSON], priority: int = 0) -> str:
    asked = [pod_set(f"p{index}", requests={"gpu": 1}, **each) for index, each in enumerate(sets)]
    data = {"metadata": {"name": "w", "namespace": "ns"}, "spec": {"podSets": asked, "priority": priority}}
    pending, _ = Shapes().pending_of(
        WorkloadKey("ns/w"), decode(data, Workload), EngineConfig(), limits=LimitSummary(), overheads={}
    )
    return pending.sum_shape
