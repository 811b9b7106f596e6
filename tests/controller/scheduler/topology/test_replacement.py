"""A lost node's pods move, everybody else stays; an elastic workload's running pods stay as well."""

from typing import Any

import msgspec
import pytest

from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.scheduler.topology.replacement import stays
from tests.support.engine.topologylab import BLOCK, FLAVOR, HOST, RACK, Lab, ask, usage

TWO_RACKS = {"b/r1/a": 2, "b/r1/b": 2, "b/r1/c": 2, "b/r2/d": 4}


def replaced(lab: Lab, places: dict[str, int], lost: str, **asked: Any) -> dict[str, int] | None:
    """The pods run on ``places`` and are counted there; ``lost`` goes."""
    lab.hold(places)
    lab.topologies.remove_node(lost)
    return lab.main(ask(sum(places.values()), previous=usage(places), lost=lost, **asked))


def test_where_a_domain_is_required_the_pods_stay_in_it() -> None:
    assert replaced(Lab(TWO_RACKS), {"a": 2, "b": 2}, "b", required=RACK) == {"a": 2, "c": 2}
    assert replaced(Lab(TWO_RACKS), {"a": 2, "b": 2, "c": 1}, "b", required=RACK) is None


def test_where_none_is_they_go_where_there_is_room() -> None:
    assert replaced(Lab(TWO_RACKS), {"a": 2, "b": 2, "c": 1}, "b", preferred=RACK) == {"a": 2, "c": 1, "d": 2}


def test_a_torn_slice_is_made_whole_in_its_own_domain() -> None:
    lab = Lab({"b/r1/a": 1, "b/r1/b": 1, "b/r1/c": 1, "b/r2/d": 2, "b/r2/e": 8})
    sliced: dict[str, Any] = {"required": BLOCK, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2}
    assert replaced(lab, {"a": 1, "b": 1, "d": 2}, "b", **sliced) == {"a": 1, "c": 1, "d": 2}


def test_a_whole_lost_slice_may_move_to_another_domain() -> None:
    lab = Lab({"b/r1/a": 2, "b/r2/d": 2, "b/r3/e": 3})
    sliced: dict[str, Any] = {"required": BLOCK, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2}
    assert replaced(lab, {"a": 2, "d": 2}, "a", **sliced) == {"d": 2, "e": 2}


LED: dict[str, Any] = {"required": RACK, "podSetGroupName": "g"}


def test_a_lost_leader_goes_where_its_workers_are() -> None:
    lab = Lab({"b/r1/a": 2, "b/r1/b": 2, "b/r1/c": 2, "b/r2/d": 1})
    lab.topologies.remove_node("a")
    leader = ask(1, name="leader", previous=usage({"a": 1}), lost="a", **LED)
    leader = msgspec.structs.replace(leader, beside=usage({"b": 2}).domains)
    assert lab.place(leader) == {"leader": {"b": 1}}
    lab.hold({"b": 2, "c": 2})
    assert lab.main(leader) is None


def test_a_group_that_was_on_one_node_moves_as_one() -> None:
    lab = Lab({"b/r1/a": 3, "b/r2/b": 2, "b/r3/c": 2, "b/r3/d": 1})
    lab.topologies.remove_node("a")
    leader = ask(1, name="leader", previous=usage({"a": 1}), lost="a", **LED)
    workers = ask(2, name="workers", previous=usage({"a": 2}), lost="a", **LED)
    assert lab.place(leader, workers) == {"leader": {"c": 1}, "workers": {"c": 1, "d": 1}}


def test_only_one_lost_node_is_replaced() -> None:
    lab = Lab(TWO_RACKS)
    lab.topologies.remove_node("a")
    found = lab.place(ask(4, previous=usage({"a": 2, "b": 2}), lost="b", preferred=RACK))
    assert found == "a is lost as well as b: only one lost node is replaced"


def test_pods_of_one_node_are_merged_and_nothing_stays_assumed() -> None:
    lab = Lab({"b/r1/a": 4, "b/r1/b": 2})
    assert replaced(lab, {"a": 1, "b": 2}, "b", required=RACK) == {"a": 3}
    lab.topologies.validate([(FLAVOR, usage({"a": 1, "b": 2}))])


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}, True),
        ({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name} for name in "pq"]}, False),
        ({"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j"}]}, False),
        (
            {
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}],
                "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
            },
            False,
        ),
    ],
)
def test_one_single_pod_stays_where_it_is(metadata: dict[str, Any], expected: bool) -> None:
    assert stays(decode({"metadata": metadata}, Workload)) is expected


ELASTIC = {"ElasticJobsViaWorkloadSlicesWithTAS": True}


def test_of_an_elastic_workload_only_new_pods_are_placed_and_the_last_ones_go() -> None:
    lab = Lab({"b/r/a": 2, "b/r/b": 3, "b/r/c": 4}, ELASTIC)
    old = usage({"a": 1, "c": 2})
    assert lab.main(ask(6, unconstrained=True, previous=old)) == {"a": 1, "b": 3, "c": 2}
    assert lab.main(ask(9, unconstrained=True, previous=old)) == {"a": 2, "b": 3, "c": 4}
    assert lab.main(ask(10, unconstrained=True, previous=old)) is None
    assert lab.main(ask(2, unconstrained=True, previous=old)) == {"a": 1, "c": 1}
    assert lab.main(ask(3, unconstrained=True, previous=old)) == {"a": 1, "c": 2}


def test_where_a_domain_is_required_an_elastic_workload_grows_in_it() -> None:
    lab = Lab({"b/r1/a": 2, "b/r1/b": 2, "b/r2/d": 8}, ELASTIC)
    assert lab.main(ask(4, required=RACK, previous=usage({"a": 2}))) == {"a": 2, "b": 2}
    assert lab.main(ask(5, required=RACK, previous=usage({"a": 2}))) is None


def test_where_its_places_are_gone_it_is_placed_anew() -> None:
    lab = Lab({"b/r/a": 2, "b/r/c": 4}, ELASTIC)
    assert lab.main(ask(3, required=HOST, previous=usage({"gone": 3}))) == {"c": 3}
