"""What is written of queues: what their workloads have, each queue's own, and a condition that keeps its time."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controller.cluster.watching.kinds import CLUSTER_QUEUES, LOCAL_QUEUES
from controller.cluster.writing.pace import Pace
from controller.cluster.writing.queuestatus import QueueStatuses
from controller.objects.decode import decode
from controller.objects.meta import KubernetesObject, to_json
from controller.objects.queues import ClusterQueue, ClusterQueueStatus, LocalQueue, ResourceFlavor
from controller.objects.workload import AdmissionCheckState, EvictionCount, ReclaimablePod
from controller.scheduler.model.config import EngineConfig, Extensions
from kube.writing.writes import Write
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

BOTH = (CLUSTER_QUEUES, LOCAL_QUEUES)


class Statuses:
    """The writer on an engine, and what the API server has by its writes."""

    def __init__(self, *queues: KubernetesObject, config: EngineConfig | None = None) -> None:
        self.world = World(config or EngineConfig())
        self.world.put(flavor(), *queues)
        self.shown: dict[tuple[str, str], dict[str, Any]] = {}
        self.writes = 0
        self.order: list[tuple[str, str]] = []
        self.backlog = 0
        self.pace = Pace()
        self._writer = QueueStatuses(self.world.engine, self._put, pace=self.pace, backlog=lambda: self.backlog)
        self._now_s = self.world.now_s

    def _put(self, write: Write[Any]) -> None:
        self.writes += 1
        self.order.append((write.resource.kind, write.name))
        self.shown.setdefault((write.resource.kind, write.name), {}).update(write.body["status"])

    def observed(self, queue: LocalQueue) -> None:
        self._writer.observed(LOCAL_QUEUES, queue)

    def written(self) -> None:
        """Two seconds later, all that is due is written."""
        self.world.settle()
        self._now_s += 2
        self._writer.touch()
        self._writer.write(self._now_s)

    def busy(self) -> None:
        """Decisions are written quickly, other writes wait, and the server is slow."""
        for _ in range(100):
            self.pace.carried_out(self._now_s)
        self.pace.answered(1.0, self._now_s)
        self.backlog = 20

    def due_in_s(self) -> float | None:
        due_s = self._writer.next_due_s(self._now_s)
        return None if due_s is None else due_s - self._now_s

    def written_after(self, seconds: float) -> list[tuple[str, str]]:
        """What is written then, in its order."""
        self.world.settle()
        self._now_s += seconds
        before = len(self.order)
        self._writer.write(self._now_s)
        return self.order[before:]


def gpus(status: Mapping[str, Any], key: str) -> str:
    (each,) = status[key]
    (resource,) = each["resources"]
    return str(resource["total"])


@pytest.fixture
def shared() -> Statuses:
    """Two LocalQueues of one ClusterQueue."""
    return Statuses(cluster_queue("a", 10), local_queue("a"), local_queue("b", "a"))


def test_a_local_queue_says_what_its_own_workloads_have_and_the_cluster_queue_what_all_have(shared: Statuses) -> None:
    shared.world.put(workload("one", "a", 3))
    shared.written()
    for name, total in (("a", "3"), ("b", "0")):
        assert gpus(shared.shown[LOCAL_QUEUES.kind, name], "flavorsReservation") == total
    shared.world.put(workload("two", "b", 4))
    shared.written()
    for name, total in (("a", "3"), ("b", "4")):
        assert gpus(shared.shown[LOCAL_QUEUES.kind, name], "flavorsUsage") == total
    assert gpus(shared.shown[CLUSTER_QUEUES.kind, "a"], "flavorsReservation") == "7"
    shared.world.finish("one")
    shared.written()
    assert gpus(shared.shown[LOCAL_QUEUES.kind, "a"], "flavorsUsage") == "0"
    assert gpus(shared.shown[LOCAL_QUEUES.kind, "b"], "flavorsUsage") == "4"
    assert shared.shown[LOCAL_QUEUES.kind, "b"]["admittedWorkloads"] == 1


def test_counts_of_nothing_are_written_once_also_when_the_watch_shows_them(shared: Statuses) -> None:
    shared.written()
    for kind, name in ((CLUSTER_QUEUES.kind, "a"), (LOCAL_QUEUES.kind, "a"), (LOCAL_QUEUES.kind, "b")):
        counts = {key: value for key, value in shared.shown[kind, name].items() if key.endswith("Workloads")}
        assert counts == dict.fromkeys(("pendingWorkloads", "reservingWorkloads", "admittedWorkloads"), 0)
    before = shared.writes
    for queue in ("a", "b"):
        shown = {"status": shared.shown[LOCAL_QUEUES.kind, queue], "spec": {"clusterQueue": "a"}}
        shared.observed(decode({"metadata": {"name": queue, "namespace": "ns"}, **shown}, LocalQueue))
    shared.written()
    assert shared.writes == before


def test_what_the_schema_requires_is_written_also_where_it_is_empty() -> None:
    check = AdmissionCheckState(name="c", state="Pending")
    assert to_json(check) == {"name": "c", "state": "Pending", "message": ""}
    assert to_json(ReclaimablePod(name="main")) == {"name": "main", "count": 0}
    assert to_json(EvictionCount(reason="Preempted")) == {"reason": "Preempted", "underlyingCause": "", "count": 0}
    assert to_json(ClusterQueueStatus()) == {}


def test_nothing_is_written_twice(shared: Statuses) -> None:
    shared.world.put(workload("one", "a", 3))
    shared.written()
    before = shared.writes
    shared.written()
    assert shared.writes == before == 3


def test_the_time_of_a_condition_is_that_of_its_change_also_before_the_watch_shows_it(shared: Statuses) -> None:
    shared.written()
    key = (LOCAL_QUEUES.kind, "b")
    (active,) = shared.shown[key]["conditions"]
    shared.written()
    assert shared.shown[key]["conditions"] == [active]
    (given,) = (queue for queue in shared.world.engine.state.cluster.local_queues.values() if queue.key == "ns/b")
    assert isinstance(given, LocalQueue)
    shared.world.put(msgspec.structs.replace(given, spec=msgspec.structs.replace(given.spec, stop_policy="Hold")))
    shared.written()
    (stopped,) = shared.shown[key]["conditions"]
    assert (active["status"], stopped["status"]) == ("True", "False")
    assert stopped["lastTransitionTime"] > active["lastTransitionTime"]


def queues(count: int) -> Statuses:
    """So many ClusterQueues with a LocalQueue each, every one with a workload that runs, as the statuses say."""
    names = [f"q{number:02}" for number in range(count)]
    made = Statuses(*(cluster_queue(name, 10) for name in names), *(local_queue(name) for name in names))
    for name in names:
        made.world.put(workload(f"w-{name}", name, 3))
    made.written()
    for _ in range(8):  # all of the allowance's burst is spent
        made.written_after(2)
    assert made.writes == 2 * count
    return made


def test_when_nothing_is_pending_queues_that_emptied_say_so_at_once_cluster_queues_first() -> None:
    made = queues(8)
    made.busy()
    made.written_after(1.0)
    for number in range(8):
        made.world.finish(f"w-q{number:02}")
    due_s = made.due_in_s()
    assert due_s is not None
    assert due_s <= 0.1, "nobody holds quota: the comparison is due"
    told = made.written_after(0.1)
    assert told == [(kind.kind, f"q{number:02}") for kind in BOTH for number in range(8)]
    assert {each["reservingWorkloads"] for each in made.shown.values()} == {0}
    assert made.due_in_s() is None


def test_while_workloads_are_pending_an_emptied_queue_waits_as_others_do() -> None:
    made = queues(2)
    made.world.put(workload("large", "q00", 30))
    made.written_after(2)
    made.busy()
    made.world.finish("w-q00")
    made.world.finish("w-q01")
    assert made.written_after(1.5) == [], "decisions and other writes go first"
    made.world.finish("large")
    assert made.written_after(0.1) == [(kind.kind, name) for kind in BOTH for name in ("q00", "q01")]


def test_a_queue_whose_workloads_run_on_and_one_that_is_new_wait_their_turn() -> None:
    made = queues(2)
    made.world.put(workload("more", "q00", 3))
    made.written_after(2)
    made.busy()
    made.world.finish("w-q00")
    made.world.put(cluster_queue("new", 10))
    assert made.written_after(1.5) == []
    made.world.finish("w-q01")
    assert made.written_after(1.5) == [(CLUSTER_QUEUES.kind, "q01"), (LOCAL_QUEUES.kind, "q01")]


def test_many_queues_that_empty_together_do_not_fill_the_writers_queue() -> None:
    made = queues(8)
    made.busy()
    made.backlog = 65
    for number in range(8):
        made.world.finish(f"w-q{number:02}")
    assert made.written_after(1.5) == []
    assert (made.due_in_s() or 1.0) <= 0.05
    made.backlog = 20
    assert len(made.written_after(0.05)) == 16


def annotated(calendar: str | None, shares: str | None = None) -> KubernetesObject:
    given: Any = to_json(cluster_queue("cq"))
    given["metadata"]["annotations"] = {
        key: value
        for key, value in (("tessera.dev/quota-calendar", calendar), ("tessera.dev/quota-shares", shares))
        if value is not None
    }
    return decode(given, ClusterQueue)


def told(statuses: Statuses) -> list[tuple[str, str]]:
    conditions = statuses.shown["ClusterQueue", "cq"]["conditions"]
    return [(each["status"], each["message"]) for each in conditions if each["type"] == "tessera.dev/QuotaAnnotations"]


def test_a_wrong_entry_of_a_calendar_is_a_condition_until_it_is_corrected(caplog: pytest.LogCaptureFixture) -> None:
    right = '{from: "0 20 * * *", for: 1h, nominal: {default: {gpu: 1}}}'
    statuses = Statuses(annotated(f'[{{from: "0 25 * * *", for: 1h}}, {right}]'), local_queue("lq", "cq"))
    statuses.written()
    ((status, message),) = told(statuses)
    assert status == "False"
    assert message.startswith('tessera.dev/quota-calendar: entry 1, {"from":"0 25 * * *","for":"1h"}: ')
    statuses.written()
    assert [record.getMessage() for record in caplog.records] == [f"ClusterQueue cq: {message}"]
    statuses.world.put(annotated(f"[{right}]"))
    statuses.written()
    assert told(statuses) == []
    assert [each["type"] for each in statuses.shown["ClusterQueue", "cq"]["conditions"]] == ["Active"]


def test_shares_that_cannot_be_used_are_a_condition_too() -> None:
    statuses = Statuses(
        annotated(None, '{"default": {"gpu": "lots"}}'),
        local_queue("lq", "cq"),
        config=EngineConfig(extensions=Extensions(quota_from_capacity=True)),
    )
    statuses.written()
    ((status, message),) = told(statuses)
    assert (status, message.partition(":")[0]) == ("False", "tessera.dev/quota-shares")


def test_words_about_spot_nodes_that_mean_nothing_are_conditions_of_both_kinds_of_queues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def queues_with(notes: dict[str, str]) -> list[KubernetesObject]:
        given: list[KubernetesObject] = []
        for each in (cluster_queue("cq"), local_queue("lq", "cq")):
            raw: Any = to_json(each)
            raw["metadata"]["annotations"] = notes
            given.append(decode(raw, type(each)))
        return given

    notes = {"tessera.dev/spot": "nevr", "tessera.dev/on-demand-floor": "lots", "tessera.dev/units": "{}{"}
    config = EngineConfig(extensions=Extensions(spot_words=True))
    statuses = Statuses(*queues_with(notes), config=config)
    statuses.written()
    statuses.written()
    ((_, of_cluster_queue),) = told(statuses)
    of_local_queue = {each["type"]: each["message"] for each in statuses.shown["LocalQueue", "lq"]["conditions"]}
    assert of_cluster_queue == of_local_queue.pop("tessera.dev/QuotaAnnotations")
    assert of_cluster_queue == (
        'metadata.annotations[tessera.dev/spot]: found "nevr", expected never, allowed or preferred. Correct it; '
        'metadata.annotations[tessera.dev/on-demand-floor]: found "lots", expected a percentage from "0%" to "100%". '
        "Correct it"
    )
    assert of_local_queue.keys() == {"Active", "tessera.dev/Units"}
    assert len(caplog.records) == 5, "two sentences of each queue, and its units"
    for each in queues_with({"tessera.dev/spot": "never", "tessera.dev/on-demand-floor": "25%"}):
        statuses.world.put(each)
    statuses.written()
    assert told(statuses) == []
    assert [each["type"] for each in statuses.shown["LocalQueue", "lq"]["conditions"]] == ["Active"]
    without = Statuses(*queues_with(notes))
    without.written()
    assert told(without) == [], "the words mean nothing there, right or wrong"


def test_prices_orders_and_times_that_cannot_be_read_are_conditions_of_the_queues_of_their_flavor() -> None:
    raw: Any = to_json(flavor("default", topologyName="t"))
    raw["metadata"]["annotations"] = {"tessera.dev/hourly-price": "cheap", "tessera.dev/provision-timeout": "15"}
    queue: Any = to_json(cluster_queue("cq"))
    queue["metadata"]["annotations"] = {"tessera.dev/flavor-order": "hourly-prize"}
    objects = (decode(raw, ResourceFlavor), decode(queue, ClusterQueue), local_queue("lq", "cq"))
    beyond = Extensions(coming_nodes=True, priced_flavors=True)
    statuses = Statuses(*objects, config=EngineConfig(extensions=beyond))
    statuses.written()
    ((_, message),) = told(statuses)
    assert message == (
        'metadata.annotations[tessera.dev/flavor-order]: found "hourly-prize", expected hourly-price. Correct it; '
        'ResourceFlavor default: metadata.annotations[tessera.dev/hourly-price]: found "cheap", expected a number such '
        'as "12.5". Correct it; '
        'ResourceFlavor default: metadata.annotations[tessera.dev/provision-timeout]: found "15", expected a duration '
        "such as 90s or 15m, at most 24h. Correct it"
    )
    without = Statuses(*objects)
    without.written()
    assert told(without) == [], "they mean nothing there"


def test_a_node_template_that_cannot_be_used_is_a_condition_of_the_queues_of_its_flavor() -> None:
    given: Any = to_json(flavor("default", topologyName="t"))
    given["metadata"]["annotations"] = {"tessera.dev/node-template": "{gpus: 8}"}
    statuses = Statuses(
        decode(given, ResourceFlavor),
        cluster_queue("cq"),
        local_queue("lq", "cq"),
        config=EngineConfig(extensions=Extensions(coming_nodes=True)),
    )
    statuses.written()
    ((status, message),) = told(statuses)
    assert status == "False"
    assert message == (
        "ResourceFlavor default: tessera.dev/node-template: max: found nothing, expected the most nodes at once"
    )
    given["metadata"]["annotations"]["tessera.dev/node-template"] = "{gpus: 8, max: 1}"
    statuses.world.put(decode(given, ResourceFlavor))
    statuses.written()
    assert told(statuses) == []
