"""Whole free nodes as a second aim of placement."""

from collections.abc import Sequence
from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.topology.packing import Vacancy, packed
from controller.scheduler.topology.port import Placed, PlacementRequest
from inventory.api.names import RUNTIME
from tests.controller.scheduler.consolidation.test_packing import config, rest, world
from tests.controller.scheduler.topology.test_topology_properties import check, free, labs, requests
from tests.support.engine.topologylab import FLAVOR, HOST, RACK, Lab, ask, node, pod
from tests.support.engine.world import workload

MANY = settings(max_examples=120, deadline=None)

Held = list[tuple[int, int]]


def first(able: Sequence[int], _: int) -> int:
    return able[0]


def cost(vacancies: Sequence[Vacancy], leaves: Sequence[int], weight: float) -> float:
    """What a choice counts, by the definition."""
    return len(leaves) + weight * sum(vacancies[leaf].empty for leaf in leaves)


@st.composite
def vacancies(draw: st.DrawFn) -> list[Vacancy]:
    sizes = draw(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=7))
    return [Vacancy(leaf, units, empty) for leaf, (units, empty) in enumerate(sizes)]


@MANY
@given(vacancies(), st.integers(1, 24), st.sampled_from([0.25, 1.0, 1.5, 4.0, 100.0]))
def test_no_other_choice_of_nodes_counts_less_and_none_that_counts_as_much_opens_fewer(
    nodes: list[Vacancy], units: int, weight: float
) -> None:
    found = packed(nodes, units, weight, first)
    held = sum(vacancy.units for vacancy in nodes)
    assert sum(taken for _, taken in found) == min(held, units)
    assert all(0 < taken <= nodes[leaf].units for leaf, taken in found)
    if held < units:
        return
    leaves = [leaf for leaf, _ in found]
    every = chain.from_iterable(combinations(range(len(nodes)), n) for n in range(1, len(nodes) + 1))
    able = [some for some in every if sum(nodes[leaf].units for leaf in some) >= units]
    least = min(cost(nodes, some, weight) for some in able)
    assert cost(nodes, leaves, weight) == least
    opened = min(sum(nodes[leaf].empty for leaf in some) for some in able if cost(nodes, some, weight) == least)
    assert sum(nodes[leaf].empty for leaf in leaves) == opened


@MANY
@given(vacancies(), st.integers(1, 24), st.floats(0.1, 10))
def test_the_last_node_is_the_tightest_of_its_kind(nodes: list[Vacancy], units: int, weight: float) -> None:
    found = packed(nodes, units, weight, first)
    if sum(vacancy.units for vacancy in nodes) < units:
        return
    (last, rest), taken = found[-1], {leaf for leaf, _ in found}
    others = (vacancy for vacancy in nodes if vacancy.leaf not in taken and vacancy.empty == nodes[last].empty)
    assert not [vacancy for vacancy in others if rest <= vacancy.units < nodes[last].units]


def test_nodes_that_pods_prefer_go_first_whatever_they_count() -> None:
    nodes = [Vacancy(0, 2, empty=True, score=1), Vacancy(1, 4, empty=False)]
    assert packed(nodes, 4, 10.0, first) == [(0, 2), (1, 2)]


# -- on nodes --------------------------------------------------------------------------------------------------------


def a_lab(weight: float, *, mixed: bool = True) -> Lab:
    """Four nodes of 8 GPUs, of which two have 4 in use."""
    hosts = {f"b/r{at % 2}/h{at}": 8 for at in range(4)}
    lab = Lab(hosts, {"TASProfileMixed": mixed}, empty_nodes=weight)
    lab.hold({"h0": 4, "h1": 4})
    return lab


def test_a_job_that_fits_one_empty_node_goes_to_two_busy_ones_where_an_empty_one_is_worth_it() -> None:
    wanted = ask(8, 1, unconstrained=True)
    assert a_lab(0.0).main(wanted) == a_lab(0.5).main(wanted) == {"h2": 8}
    assert a_lab(1.0).main(wanted) == a_lab(3.0, mixed=False).main(wanted) == {"h0": 4, "h1": 4}
    assert a_lab(1.0).main(ask(12, 1, unconstrained=True)) == {"h0": 4, "h2": 8}
    assert a_lab(9.0).main(ask(16, 1, unconstrained=True)) == {"h0": 4, "h1": 4, "h2": 8}


def test_a_node_in_use_takes_the_pod_that_an_empty_one_would_hold_as_tightly() -> None:
    lab = Lab({"b/r/empty": 8, "b/r/used": 8}, empty_nodes=0.1)
    lab.hold({"used": 2})
    assert lab.main(ask(1, 5, unconstrained=True)) == {"used": 1}
    assert lab.main(ask(1, 5, required=HOST)) == {"used": 1}
    assert lab.main(ask(1, 5, preferred=RACK)) == {"used": 1}


def test_a_node_whose_gpus_others_have_is_not_empty() -> None:
    lab = Lab({"b/r/empty": 8, "b/r/lends": 8}, empty_nodes=1.0)
    lab.topologies.set_pod(pod("other", "lends", gpus=1))
    assert lab.main(ask(1, 5, unconstrained=True)) == {"lends": 1}


@MANY
@given(labs(), requests(), st.sampled_from([0.3, 1.0, 50.0]))
def test_packing_decides_which_nodes_a_job_gets_and_not_whether_it_gets_some(
    given_lab: tuple[Lab, dict[str, int]], request: PlacementRequest, weight: float
) -> None:
    lab, _ = given_lab
    before = lab.topologies.place((request,), on_empty=False)
    tree = lab.topologies.tree(FLAVOR)
    assert tree is not None
    tree.empty_nodes = weight
    after = lab.topologies.place((request,), on_empty=False)
    assert lab.topologies.can_place((request,)) == isinstance(before, Placed) == isinstance(after, Placed)
    if isinstance(after, Placed):
        check(lab, request, after.topologies[request.pod_set.name], free(lab))


def test_of_nodes_in_use_the_one_whose_work_never_ends_takes_the_pod() -> None:
    """An end that is not known is infinite: its span of ten minutes is no number, and equal to nothing."""
    lab = world([node("b/r/n1", 4), node("b/r/n2", 4)], config(empty_nodes=1.0))
    for at, (name, gpus, told) in enumerate((("short", 3, {RUNTIME: "1h"}), ("endless", 2, {}), ("next", 1, {}))):
        lab.put(workload(name, "q", gpus, created_s=at, annotations=told))
        rest(lab)
    places = {key: holder.info.pod_sets[0].topology for key, holder in lab.engine.state.cluster.holders.items()}
    on = {key: [domain.values[-1] for domain in place.domains] for key, place in places.items() if place is not None}
    assert on == {"ns/short": ["n1"], "ns/endless": ["n2"], "ns/next": ["n2"]}
