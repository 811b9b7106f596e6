"""The example on the page of placement is what the engine does."""

from pathlib import Path
from typing import Any, Final

import msgspec

from controller.objects.decode import KUEUE, decode_object
from controller.objects.placeencoding import decode as decode_places
from controller.objects.workload import PodSetTopologyRequest, Workload
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.topology.counts import Counts
from controller.scheduler.topology.placement import Topologies
from controller.scheduler.topology.requests import Filter, RequestShape, each_of
from tests.support.engine.topologylab import BLOCK, GPU, HOST, RACK, node
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload
from tests.support.pagetables import Row, numbers, table

PAGE = Path(__file__).resolve().parents[3] / "docs/scheduler/placement.md"
GPUS_EACH: Final = 2
NODES, JOBS, COUNTS = (table(PAGE, column) for column in ("node", "job", "domain"))
ASKED = {
    "required rack": PodSetTopologyRequest(required=RACK),
    "preferred rack": PodSetTopologyRequest(preferred=RACK),
    "unconstrained": PodSetTopologyRequest(unconstrained=True),
}


def data_centre() -> World:
    levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOST)]
    world = World()
    world.put(
        decode_object(
            {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "dc"}, "spec": {"levels": levels}}
        ),
        flavor("default", topologyName="dc"),
        cluster_queue("q", 100),
        local_queue("q"),
        *(node(f"{row['block']}/{row['rack']}/{row['node']}", int(row["GPUs"])) for row in NODES),
    )
    return world


def arrive(world: World, row: Row, at: int) -> None:
    made = workload(row["job"], "q", GPUS_EACH, count=int(row["pods"]), created_s=at)
    sets = (msgspec.structs.replace(made.spec.pod_sets[0], topology_request=ASKED[row["asks for"]]),)
    world.put(msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets)))
    world.settle()


def decided(world: World, name: str) -> dict[str, int] | str:
    """Pods by node, or the sentence that says why the job waits."""
    job: Workload = world.workloads[WorkloadKey(f"ns/{name}")]
    if job.status.admission is None:
        told = world.engine.explain(WorkloadKey(job.key), world.now_s)
        assert told is not None
        return sentence(told.record)
    places = job.status.admission.pod_set_assignments[0].topology_assignment
    assert places is not None
    return {values[-1]: pods for values, pods in decode_places(places)}


def counts_of(world: World) -> Counts:
    placement = world.engine.state.cluster.placement
    assert isinstance(placement, Topologies)
    tree = placement.tree(FlavorName("default"))
    assert tree is not None
    lowest: dict[str, Any] = {"slice_level": tree.depth - 1, "slice_size": 1, "inner": (0,) * tree.depth}
    return Counts(tree, RequestShape(each=each_of({GPU: GPUS_EACH}), leader=(), filter=Filter(), empty=False, **lowest))


def test_jobs_get_the_places_of_the_page() -> None:
    world = data_centre()
    for at, row in enumerate(JOBS):
        arrive(world, row, at)
        found = decided(world, row["job"])
        if isinstance(found, str):
            assert row["pods by node"] in found
        else:
            assert found == numbers(row["pods by node"])


def test_counts_change_with_each_job_as_the_page_says() -> None:
    world = data_centre()
    counts = counts_of(world)
    columns = ["at first", *(row["job"] for row in JOBS)]
    assert columns == [*COUNTS[0]][1:]
    for at, column in enumerate(columns):
        if at:
            arrive(world, JOBS[at - 1], at)
        counts.sync().validate()
        found = {"/".join(path): counts.pods[domain] for domain, path in enumerate(counts.tree.path)}
        assert found == {row["domain"]: int(row[column]) for row in COUNTS}, column
