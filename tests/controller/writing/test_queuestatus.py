"""What is written of queues: what their workloads have, each queue's own, and a condition that keeps its time."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controller.engine.model.config import EngineConfig
from controller.objects.decode import decode
from controller.objects.meta import KubernetesObject, to_json
from controller.objects.queues import ClusterQueueStatus, LocalQueue
from controller.objects.workload import AdmissionCheckState, EvictionCount, ReclaimablePod
from controller.watching.kinds import CLUSTER_QUEUES, LOCAL_QUEUES
from controller.writing.pace import Pace
from controller.writing.queuestatus import QueueStatuses
from kube.writing.writes import Write
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload


class Statuses:
    """The writer on an engine, and what the API server has by its writes."""

    def __init__(self, *queues: KubernetesObject) -> None:
        self.world = World(EngineConfig())
        self.world.put(flavor(), *queues)
        self.shown: dict[tuple[str, str], dict[str, Any]] = {}
        self.writes = 0
        self._writer = QueueStatuses(self.world.engine, self._put, pace=Pace(), backlog=lambda: 0)
        self._now_s = self.world.now_s

    def _put(self, write: Write[Any]) -> None:
        self.writes += 1
        self.shown.setdefault((write.resource.kind, write.name), {}).update(write.body["status"])

    def observed(self, queue: LocalQueue) -> None:
        self._writer.observed(LOCAL_QUEUES, queue)

    def written(self) -> None:
        """Two seconds later, all that is due is written."""
        self.world.settle()
        self._now_s += 2
        self._writer.touch()
        self._writer.write(self._now_s)


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
