"""What nomination asks and remembers: victims for several resources together, flavors tried by who was overtaken."""

from collections.abc import Mapping
from typing import Any

import pytest

from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import KubernetesObject
from controller.scheduler.cluster.incoming import Incoming, Target
from controller.scheduler.decisions.decisions import Evicted, Pending
from controller.scheduler.decisions.records import Rule
from controller.scheduler.flavors.assignment import Assignment, FlavorChoice, Mode, PodSetChoice
from controller.scheduler.kueue.nomination import Nominator
from controller.scheduler.model.config import EngineConfig, FairSharing
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, FlavorResource, ResourceName, WorkloadKey
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

DEFAULT = FlavorName("default")
PREEMPTION = {
    "withinClusterQueue": "LowerPriority",
    "reclaimWithinCohort": "LowerPriority",
    "borrowWithinCohort": {"policy": "LowerPriority"},
}


def both(name: str, cpu: int, memory: int) -> KubernetesObject:
    """A ClusterQueue of a common cohort with quota on cpu and memory."""
    quotas = [{"name": "cpu", "nominalQuota": str(cpu)}, {"name": "memory", "nominalQuota": str(memory)}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quotas}]}
    spec = {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": [group], "preemption": PREEMPTION}
    return decode_object({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})


def asks(name: str, queue: str, requests: Mapping[str, str], priority: int) -> KubernetesObject:
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": dict(requests)}}]}}
    spec = {"queueName": queue, "priority": priority, "podSets": [{"name": "main", "count": 1, "template": template}]}
    metadata = {"name": name, "namespace": "ns", "uid": name}
    return decode_object({"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": spec})


@pytest.mark.parametrize("fair", [False, True])
def test_a_queue_that_borrows_one_contested_resource_gives_the_other_as_well(*, fair: bool) -> None:
    """Of cpu alone nobody holds more than is theirs; who borrows memory is asked for both."""
    world = World(EngineConfig(fair_sharing=FairSharing() if fair else None))
    world.put(flavor(), both("a", 4, 4), both("b", 4, 4), local_queue("a"), local_queue("b"))
    world.put(asks("holds", "b", {"cpu": "4", "memory": "6"}, 0))
    world.cycle()
    world.put(asks("wants", "a", {"cpu": "5", "memory": "4"}, 10))
    made = world.cycle().made
    assert [one.key for one in made if isinstance(one, Evicted)] == ["ns/holds"]


@pytest.mark.parametrize(("keeps", "tried"), [(True, ({"gpu": 0},)), (False, None)])
def test_who_was_overtaken_begins_anew_unless_scan_progress_is_kept(*, keeps: bool, tried: object) -> None:
    gates = FeatureGates({"FlavorFungibilityPreserveScanProgress": keeps})
    world = World(EngineConfig(gates=gates))
    world.put(flavor("default"), flavor("spot"))
    for name, nominal in (("a", 0), ("b", 0), ("bank", 4)):
        world.put(cluster_queue(name, nominal, cohort="all", flavors=("default", "spot")), local_queue(name))
    world.put(workload("first", "b", 3), workload("overtaken", "a", 3, created_s=5))
    world.cycle()
    pending = world.engine.state.queues.get(WorkloadKey("ns/overtaken"))
    assert pending is not None
    assert (pending.bookmark.tried if pending.bookmark else None) == tried


def test_whose_victims_go_for_another_is_tried_with_fewer_pods_again() -> None:
    """The one holder goes for the first; what the second may have at most then fits without anybody more."""
    world = World()
    reclaims = {"reclaimWithinCohort": "Any"}
    world.put(flavor(), cluster_queue("hog", 0, cohort="all"))
    world.put(*(cluster_queue(name, 2, cohort="all", borrow=0, preemption=reclaims) for name in "ab"))
    world.put(*map(local_queue, ("hog", "a", "b")))
    world.put(workload("holds", "hog", 4))
    world.cycle()
    world.put(workload("first", "a", 2, created_s=1), workload("second", "b", count=3, least=1, created_s=2))
    made = {one.key: one.record.rule for one in world.cycle().made if isinstance(one, Pending)}
    assert made == {"ns/first": Rule.PREEMPTS, "ns/second": Rule.FITS_AFTER_PREEMPTION}


def test_who_is_refused_outright_is_told_after_all_others() -> None:
    world = World()
    world.put(flavor(), cluster_queue("a", 1, namespaceSelector=None), cluster_queue("b", 1), cluster_queue("c", 1))
    world.put(*map(local_queue, "abc"))
    world.put(workload("closed", "a"), workload("waits", "b", 2), workload("runs", "c"))
    assert [one.key for one in world.cycle().made] == ["ns/runs", "ns/waits", "ns/closed"]


class Asked:
    """An assigner that answers with modes by pod set, all on one flavor, and a preemptor that counts its questions."""

    def __init__(self, *modes: Mode) -> None:
        self.modes, self.questions = modes, 0

    def assign(self, incoming: Incoming, **_: object) -> Assignment:  # noqa: ARG002
        gpu = ResourceName("gpu")
        sets = tuple(
            PodSetChoice(name=f"set{at}", count=1, requests={gpu: 1}, choices={gpu: FlavorChoice(DEFAULT, mode, 0, -1)})
            for at, mode in enumerate(self.modes)
        )
        return Assignment(pod_sets=sets, mode=min(self.modes), usage={FlavorResource(DEFAULT, gpu): len(sets)})

    def targets(self, incoming: Incoming, assignment: Assignment, now_s: float) -> tuple[Target, ...]:  # noqa: ARG002
        self.questions += 1
        return ()


@pytest.mark.parametrize(
    ("modes", "questions"),
    [
        ((Mode.NO_CANDIDATES,), 0),
        ((Mode.FIT, Mode.NO_CANDIDATES), 0),
        ((Mode.NO_CANDIDATES, Mode.PREEMPT), 1),
        ((Mode.PREEMPT,), 1),
        ((Mode.NO_FIT,), 0),
    ],
)
def test_a_search_is_left_out_only_where_the_oracle_found_nobody_for_the_whole(
    modes: tuple[Mode, ...], questions: int
) -> None:
    """What two pod sets ask of one flavor is more than the first one's part, and may find somebody where that did not:
    with fair sharing the larger request makes room among its own first.
    """
    world, asked = World(), Asked(*modes)
    world.put(flavor(), cluster_queue("a"), local_queue("a"), workload("one", "a"))
    state = world.engine.state
    pending = state.queues.get(WorkloadKey("ns/one"))
    assert pending is not None
    incoming = pending.incoming(state.cluster.queue(ClusterQueueName("a")))
    stand_in: Any = asked  # for the assigner and for preemption
    Nominator(state.cluster, stand_in, stand_in).again(incoming, {}, 0.0)
    assert asked.questions == questions
