"""Forecasts with GPUs in repair: quota that follows capacity comes back with them, and so do places on nodes."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.insight.forecast import model
from controller.insight.forecast.forecast import Forecast, Forecaster
from controller.insight.forecast.parts import finished
from controller.insight.forecast.repairtimes import DEFAULT_S, node_facts
from controller.insight.forecast.returning import grown
from controller.insight.forecast.shown import shown
from controller.objects.core import Node
from controller.objects.decode import KUEUE, decode_object
from controller.objects.queues import ClusterQueue, Cohort
from controller.objects.workload import Workload
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, FlavorResource, ResourceName, WorkloadKey
from controller.scheduler.quota.quota import QuotaTree
from inventory.api.names import QUOTA_CALENDAR, QUOTA_SHARES, RUNTIME
from tests.controller.insight.forecast.test_gates import begun, lab, on_a_host
from tests.controller.insight.forecast.test_repairtimes import LABELS, repaired, status
from tests.support.engine.topologylab import node
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

FOLLOWS = EngineConfig(extensions=Extensions(quota_from_capacity=True))


def shared(owner: Any, share: str) -> Any:
    assert isinstance(owner, ClusterQueue | Cohort)
    annotations = {QUOTA_SHARES: f'{{"f": {{"gpu": "{share}"}}}}'}
    return msgspec.structs.replace(owner, metadata=msgspec.structs.replace(owner.metadata, annotations=annotations))


def following(*gpus: int, share: str = "100%") -> World:
    """A queue whose quota is a share of the capacity of nodes with so many GPUs each."""
    made = World(FOLLOWS)
    made.put(flavor("f", nodeLabels=LABELS), shared(cluster_queue("q", 99, flavors=("f",)), share), local_queue("q"))
    made.put(*(node(f"b/r/n{number}", each, labels=LABELS) for number, each in enumerate(gpus)))
    return made


def many(name: str, pods: int, **more: Any) -> Workload:
    """A workload of ``pods`` pods with one GPU each."""
    return workload(name, "q", 1, count=pods, **more)


def nodes_of(made: World) -> dict[str, Node]:
    found = [each for each in made.others.values() if isinstance(each, Node)]
    return {each.metadata.name: each for each in found}


def in_repair(made: World, *begun_before_s: float) -> Forecaster:
    """A GPU of each of as many nodes is in repair, for so long already."""
    forecaster = Forecaster()
    for number, before_s in enumerate(begun_before_s):
        forecaster.repairs.set_node(f"n{number}", node_facts(nodes_of(made)[f"n{number}"]))
        forecaster.repairs.set_gpu_node(f"n{number}", status("Draining", made.now_s - before_s), made.now_s)
    return forecaster


def forecast(made: World, forecaster: Forecaster, name: str = "next") -> Forecast:
    found = forecaster.all(made.engine, made.now_s)[WorkloadKey(f"ns/{name}")]
    made.engine.validate()
    return found


def about(at_s: float) -> Any:
    return pytest.approx(at_s, rel=0.02, abs=2.0)


def test_quota_that_follows_capacity_comes_back_with_the_gpu() -> None:
    made = begun(following(7), many("next", 8))
    assert forecast(made, Forecaster()).never is not None, "nobody knows that it comes back"
    found = forecast(made, in_repair(made, 100.0))
    assert found.never is None
    assert found.likely_s == about(DEFAULT_S - 100.0)
    assert found.assumes[0] == "1 GPU in repair: back 5m after the fault is assumed, since no repair has been seen yet"


@pytest.mark.parametrize("named", ["g", "f"])
def test_only_shares_that_no_calendar_names_are_put_at_what_they_will_be(named: str) -> None:
    """What one names changes at its times, in the runs."""
    made = World(FOLLOWS)
    queue = shared(cluster_queue("q", 99, flavors=("f", "g")), "100%")
    made.put(flavor("f", nodeLabels=LABELS), flavor("g", nodeLabels={"pool": "other"}))
    calendar = f'[{{from: "0 20 * * *", for: 1h, nominal: {{{named}: {{gpu: 1}}}}}}]'
    made.put(by_calendar(queue, calendar), local_queue("q"), node("b/r/n0", 7, labels=LABELS))
    quota = copied(made)
    growing = grown(made.engine, quota, in_repair(made, 100.0).repairs.comebacks(made.now_s))
    assert [(each.fr.flavor, each.amount) for each in growing] == ([("f", 1)] if named == "g" else [])


def by_calendar(owner: ClusterQueue, calendar: str) -> ClusterQueue:
    annotations = {**owner.metadata.annotations, QUOTA_CALENDAR: calendar}
    return msgspec.structs.replace(owner, metadata=msgspec.structs.replace(owner.metadata, annotations=annotations))


def window(begin_s: float, minutes: int, nominal: int) -> str:
    """A window of the queue's one quota, from the last whole minute before ``begin_s`` on."""
    begin = datetime.fromtimestamp(begin_s, UTC)
    return f'[{{from: "{begin:%M %H} * * *", for: {minutes}m, nominal: {{f: {{gpu: {nominal}}}}}}}]'


def following_by_calendar(calendar: str, gpus: int, share: str = "100%") -> World:
    made = World(FOLLOWS)
    queue = by_calendar(shared(cluster_queue("q", 99, flavors=("f",)), share), calendar)
    made.put(flavor("f", nodeLabels=LABELS), queue, local_queue("q"), node("b/r/n0", gpus, labels=LABELS))
    return made


def test_a_share_that_a_calendar_names_comes_back_with_the_gpu_while_no_window_is_open() -> None:
    made = following_by_calendar(window(World(FOLLOWS).now_s + 43_200, 60, 1), 7)
    begun(made, many("next", 8))
    found = forecast(made, in_repair(made, 100.0))
    assert found.never is None
    assert found.likely_s == about(DEFAULT_S - 100.0)
    assert found.assumes[0].startswith("1 GPU in repair: back 5m after the fault is assumed")
    assert not [each for each in forecast(made, Forecaster()).assumes if "repair" in each]


def test_a_gpu_that_comes_back_in_a_window_counts_from_the_windows_end_on() -> None:
    now_s = World(FOLLOWS).now_s
    made = following_by_calendar(window(now_s - 60.0, 10, 1), 7)
    ends_s = now_s - (now_s % 60.0) - 60.0 + 600.0
    begun(made, many("next", 8))
    assert ends_s - now_s > DEFAULT_S - 100.0, "it is back while the window is open"
    assert forecast(made, in_repair(made, 100.0)).likely_s == about(ends_s - now_s)


@given(
    begin_s=st.floats(-900, 900),
    minutes=st.integers(1, 30),
    nominal=st.integers(0, 12),
    in_repair_s=st.floats(0, 290),
    share=st.sampled_from(["100%", "50%", "30%"]),
    after_s=st.floats(0, 3600),
)
def test_a_forecast_has_at_each_time_the_quota_that_the_engine_has_then(
    begin_s: float, minutes: int, nominal: int, in_repair_s: float, share: str, after_s: float
) -> None:
    now_s = World(FOLLOWS).now_s
    calendar = window(now_s + begin_s, minutes, nominal)
    made = following_by_calendar(calendar, 7, share)
    begun(made, many("next", 20))
    found = model.model_parts(made.engine, now_s, comebacks=in_repair(made, in_repair_s).repairs.comebacks(now_s))
    (tree,) = finished(found).trees
    (cell,) = tree.lines[0].node.cells.values()
    told = [cell.nominal, *(change.quota.nominal for change in tree.changes if change.at_s <= now_s + after_s)][-1]
    is_back = DEFAULT_S - in_repair_s <= after_s
    then = following_by_calendar(calendar, 8 if is_back else 7, share)
    then.engine.cycle(now_s + after_s)
    spec = then.engine.state.cluster.quota.cluster_queue(ClusterQueueName("q")).spec
    assert spec is not None
    assert told == spec.quotas[FlavorResource(FlavorName("f"), ResourceName("gpu"))].nominal


def copied(made: World) -> QuotaTree:
    """The quota of the world's engine, for a forecast to change."""
    parts = model._copied(made.engine)
    while True:
        try:
            next(parts)
        except StopIteration as done:
            found: QuotaTree = done.value
            return found


def test_the_median_of_repairs_that_were_seen_counts() -> None:
    made = begun(following(7), many("next", 8))
    forecaster = in_repair(made, 0.0)
    for took_s in (30.0, 120.0, 4000.0):
        repaired(forecaster.repairs, "other", took_s)
    found = forecast(made, forecaster)
    assert found.likely_s == about(120.0)
    assert found.assumes[0] == "1 GPU in repair: back 2m after the fault, the median of the last 3 repairs"


def test_a_job_that_is_not_sent_yet_has_the_same_forecast() -> None:
    made = following(7)
    made.settle()
    asked = made.engine.as_pending(many("new", 8))
    found = in_repair(made, 100.0).of(made.engine, asked, made.now_s)
    assert found is not None
    assert found.likely_s == about(DEFAULT_S - 100.0)


def test_a_share_is_rounded_as_it_will_be_once_each_is_back() -> None:
    """Half of 6, of 7 and of 8 GPUs: the second one brings the fourth of the quota."""
    made = begun(following(3, 3, share="50%"), many("next", 4))
    found = forecast(made, in_repair(made, 200.0, 100.0))
    assert found.likely_s == about(DEFAULT_S - 100.0)


def test_more_than_what_comes_back_never_starts() -> None:
    made = begun(following(7), many("next", 9))
    assert forecast(made, in_repair(made, 100.0)).never is not None


def test_a_job_waits_for_the_gpu_or_for_the_end_of_another_whichever_lets_it_in() -> None:
    made = begun(following(7), many("runs", 7, annotations={RUNTIME: "60s"}), many("next", 8))
    found = forecast(made, in_repair(made, 0.0))
    assert found.from_s is not None
    assert found.from_s >= DEFAULT_S * 0.9
    made = begun(following(7), many("runs", 7), many("next", 1))
    assert forecast(made, in_repair(made, 100.0)).likely_s == about(DEFAULT_S - 100.0)


def test_the_quota_of_a_cohort_comes_back_too() -> None:
    made = World(FOLLOWS)
    made.put(flavor("f", nodeLabels=LABELS), node("b/r/n0", 7, labels=LABELS))
    quota = {"name": "gpu", "nominalQuota": "0"}
    groups = ({"coveredResources": ["gpu"], "flavors": [{"name": "f", "resources": [quota]}]},)
    given = {"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": "c"}, "spec": {"resourceGroups": groups}}
    made.put(shared(decode_object(given), "100%"))
    made.put(cluster_queue("q", 0, cohort="c", flavors=("f",)), local_queue("q"))
    begun(made, many("next", 8))
    assert forecast(made, in_repair(made, 100.0)).likely_s == about(DEFAULT_S - 100.0)


def test_a_pod_that_no_node_has_room_for_until_the_gpu_is_back_starts_then_at_the_earliest() -> None:
    made = begun(following(7), workload("next", "q", 8), workload("more", "q", 9))
    found = forecast(made, in_repair(made, 60.0))
    assert (found.never, found.likely_s, found.to_s) == (None, None, None)
    assert found.from_s is not None
    assert DEFAULT_S - 60.0 <= found.from_s < DEFAULT_S
    assert forecast(made, in_repair(made, 60.0), "more").never is not None


def test_a_pod_that_lacks_a_gpu_of_its_node_starts_when_that_is_back_at_the_earliest() -> None:
    made = lab("f", hosts=0)
    whole = node("b/r/n0", 8, labels=LABELS)
    status_ = msgspec.structs.replace(whole.status, capacity=whole.status.allocatable)
    broken = node("b/r/n0", 7, labels=LABELS)
    assert isinstance(broken, Node)
    made.put(msgspec.structs.replace(broken, status=msgspec.structs.replace(broken.status, capacity=status_.capacity)))
    begun(made, on_a_host("next", "f", 8))
    found = forecast(made, in_repair(made, 60.0))
    assert (found.from_s, found.to_s) == (about(DEFAULT_S - 60.0), None)
    assert shown(found, (), ())["starts"] == "in 4m or later"
    assert "the first is back" in found.assumes[0]
    late = forecast(made, in_repair(made, DEFAULT_S - 1.0))
    assert late.from_s == about(60.0), "no nearer than a minute"
    assert forecast(made, Forecaster()).from_s is None
