"""Whatever changes wakes whom it could help.

Flavors, cohorts, queues, namespaces, limits, admission checks and workloads come, change and go in any order; at rest
nobody waits whom an engine that starts anew would admit, or make others leave for.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.objects.core import LimitRange
from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import KubernetesObject
from controller.objects.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from controller.objects.workload import CheckState
from controller.scheduler.model.config import EngineConfig, Extensions
from tests.controller.scheduler.test_engine_properties import (
    Act,
    Run,
    acts,
    arrives,
    begun,
    extended,
    queue_object,
    settles,
    setups,
)
from tests.support.engine.contention import PREEMPTING, QUEUES, begins_anew
from tests.support.engine.world import World, cluster_queue, cohort, flavor, local_queue, workload

TAINT = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}
FLAVORS = ("default", "spot")
COHORTS = ("left", "right", "root")
CHECK = "check"
SAID: tuple[CheckState, ...] = ("Ready", "Ready", "Retry", "Rejected")
STOPS = ("None", "Hold", "HoldAndDrain")
KINDS: dict[type[KubernetesObject], tuple[str, ...]] = {
    ResourceFlavor: FLAVORS,
    Cohort: COHORTS,
    LocalQueue: QUEUES,
    ClusterQueue: QUEUES,
    LimitRange: ("limits",),
    AdmissionCheck: (CHECK,),
}
SELECTORS: tuple[Mapping[str, Any], ...] = ({}, {"matchLabels": {"team": "a"}})


def puts(given: KubernetesObject) -> Act:
    return lambda run: run.world.put(given)


def tainted(draw: st.DrawFn) -> Act:
    taints = [TAINT] if draw(st.booleans()) else []
    return puts(flavor(draw(st.sampled_from(FLAVORS)), nodeTaints=taints))


def with_quota(draw: st.DrawFn) -> Act:
    """A cohort, with quota of its own or without."""
    name = draw(st.sampled_from(COHORTS))
    parent = draw(st.sampled_from(("", "root"))) if name != "root" else ""
    quota: dict[str, Any] = {"name": "gpu", "nominalQuota": str(draw(st.integers(0, 4)))}
    limit = draw(st.none() | st.integers(0, 3))
    if parent and limit is not None:
        quota["borrowingLimit"] = str(limit)
    groups = [{"coveredResources": ["gpu"], "flavors": [{"name": "default", "resources": [quota]}]}]
    spec = {"parentName": parent, "resourceGroups": groups if draw(st.booleans()) else []}
    made = {"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}
    return puts(decode_object(made))


def leads(draw: st.DrawFn) -> Act:
    return puts(local_queue(draw(st.sampled_from(QUEUES)), stopPolicy=draw(st.sampled_from(STOPS))))


def selects(draw: st.DrawFn) -> Act:
    """A ClusterQueue as ``queue_object`` draws it, which may be stopped, and may take one team only."""
    name, stop, selector = draw(st.sampled_from(QUEUES)), draw(st.sampled_from(STOPS)), draw(st.sampled_from(SELECTORS))
    made = queue_object(draw, name)
    assert isinstance(made, ClusterQueue)
    other = cluster_queue(name, stopPolicy=stop, namespaceSelector=selector)
    assert isinstance(other, ClusterQueue)
    spec = msgspec.structs.replace(
        made.spec, stop_policy=other.spec.stop_policy, namespace_selector=other.spec.namespace_selector
    )
    return puts(msgspec.structs.replace(made, spec=spec))


def labelled(draw: st.DrawFn) -> Act:
    metadata = {"name": "ns", "labels": {"team": draw(st.sampled_from(("a", "b")))}}
    return puts(decode_object({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))


def limited(draw: st.DrawFn) -> Act:
    limits = [{"type": "Container", "max": {"gpu": str(draw(st.integers(1, 3)))}}]
    metadata = {"name": "limits", "namespace": "ns"}
    return puts(
        decode_object({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}})
    )


def goes(draw: st.DrawFn) -> Act:
    kind = draw(st.sampled_from(list(KINDS)))
    return partial(_drop, kind, draw(st.sampled_from(KINDS[kind])))


def _drop(kind: type[KubernetesObject], name: str, run: Run) -> None:
    for known, key in tuple(run.world.others):
        if known is kind and key.rpartition("/")[2] == name:
            run.world.drop(kind, key)


def changed(draw: st.DrawFn) -> Act:
    """A workload is stopped, resumed, raised, or moved while it waits."""
    field, values = draw(
        st.sampled_from((("active", (True, False)), ("priority", (0, 1, 2)), ("queue_name", tuple(QUEUES))))
    )
    return partial(_change, draw(st.integers(0, 9)), {field: draw(st.sampled_from(values))})


def _change(pick: int, fields: Mapping[str, Any], run: Run) -> None:
    names = sorted(run.world.workloads)
    if names:
        found = run.world.workloads[names[pick % len(names)]]
        if "queue_name" not in fields or not World.held(found):
            run.world.put(msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, **fields)))


def checks(draw: st.DrawFn) -> Act:
    """The admission check is active, or not."""
    active = {"type": "Active", "status": draw(st.sampled_from(("True", "True", "False"))), "reason": "Said"}
    condition = {**active, "message": "", "lastTransitionTime": "2025-01-01T00:00:00Z"}
    made = {
        "apiVersion": KUEUE,
        "kind": "AdmissionCheck",
        "metadata": {"name": CHECK},
        "spec": {"controllerName": "own"},
    }
    return puts(decode_object({**made, "status": {"conditions": [condition]}}))


def checked(draw: st.DrawFn) -> Act:
    """A ClusterQueue that asks the check of all that it admits."""
    made = queue_object(draw, draw(st.sampled_from(QUEUES)))
    asking = cluster_queue("asking", admissionChecksStrategy={"admissionChecks": [{"name": CHECK}]})
    assert isinstance(made, ClusterQueue)
    assert isinstance(asking, ClusterQueue)
    spec = msgspec.structs.replace(made.spec, admission_checks_strategy=asking.spec.admission_checks_strategy)
    return puts(msgspec.structs.replace(made, spec=spec))


def says(draw: st.DrawFn) -> Act:
    """The check's controller, of one workload."""
    return partial(_say, draw(st.integers(0, 9)), draw(st.sampled_from(SAID)))


def _say(pick: int, state: CheckState, run: Run) -> None:
    names = sorted(name for name, one in run.world.workloads.items() if one.status.admission_checks)
    if names:
        found = run.world.workloads[names[pick % len(names)]]
        said = tuple(msgspec.structs.replace(one, state=state) for one in found.status.admission_checks)
        run.world.put(
            msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, admission_checks=said))
        )


_CHANGES: tuple[Callable[[st.DrawFn], Act], ...] = (
    tainted,
    with_quota,
    leads,
    selects,
    selects,
    labelled,
    limited,
    goes,
    goes,
    changed,
    changed,
    checks,
    checked,
    says,
)


@st.composite
def events(draw: st.DrawFn) -> Act:
    return draw(st.sampled_from(_CHANGES))(draw)


@st.composite
def histories(draw: st.DrawFn) -> list[Act]:
    filling = [arrives(name, 1, 0, None, None) for name in QUEUES for _ in range(3)] if draw(st.booleans()) else []
    return [*filling, settles, *draw(st.lists(acts() | events(), max_size=20))]


@given(extended(), setups(), histories())
@settings(max_examples=60, deadline=None)
def test_no_change_leaves_anybody_asleep_whom_a_fresh_look_would_start(
    config: EngineConfig, given: list[KubernetesObject], history: list[Act]
) -> None:
    run = begun(config, given)
    for act in history:
        act(run)
    assume(run.world.rest())
    assert begins_anew(run.world, config, unless_woken=config.fair_sharing is not None) == []


@pytest.mark.parametrize(("whole", "victims"), [(True, {"a0"}), (False, set())])
def test_one_whose_flavor_was_taken_asks_it_again_before_it_is_parked(whole: bool, victims: set[str]) -> None:
    """Its search goes on after that flavor, finds nothing there, and could preempt where it was overtaken."""
    world = World(EngineConfig(extensions=Extensions(whole_searches=whole)))
    world.put(flavor("default"), flavor("spot"), cohort("left", "root"), cohort("right", "root"))
    world.put(*map(local_queue, QUEUES))
    world.put(cluster_queue("a", 0, cohort="left"), cluster_queue("b", 4, cohort="right"))
    world.put(cluster_queue("c", 0, cohort="right", preemption=PREEMPTING[1], flavors=FLAVORS))
    for number, queue in enumerate(name for name in QUEUES for _ in range(3)):
        world.put(workload(f"{queue}{number}", queue, created_s=number))
    world.settle()
    assert {one.metadata.name for one in world.leaving()} == victims, "without whole searches as Kueue"
