"""Which pods may go where: claims, and what holds whatever the pods and the assignment are."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.decode import decode
from controller.objects.meta import to_json
from controller.objects.placeencoding import Domain, encode
from controller.objects.workload import PodSet, PodSetAssignment, Workload
from controller.reconcile.placing.ungating import (
    PlacedPod,
    PodPlace,
    PodSetPlaces,
    Ranks,
    before,
    pod_set_places,
    rank,
    ungated,
)

HOST = "kubernetes.io/hostname"
LEVELS = ("rack", HOST)
INDEX = Ranks(index_label="i")


def places(domains: dict[str, int], *, name: str = "main", ranks: Ranks | None = None, **more: int) -> PodSetPlaces:
    count = more.get("count", sum(domains.values()))
    return PodSetPlaces(
        name=name,
        count=count,
        needed=more.get("needed", count),
        levels=LEVELS,
        domains=tuple(Domain(("r", host), pods) for host, pods in domains.items()),
        ranks=ranks,
    )


def waiting(uid: str, *, index: int | None = None, pod_set: str = "main", age: float = 0) -> PlacedPod:
    labels = {} if index is None else {"i": str(index)}
    return PlacedPod(uid=uid, pod_set=pod_set, age=(age, uid), waits=True, labels=labels)


def gone(uid: str, host: str, *, index: int | None = None, ended: bool = False) -> PlacedPod:
    labels = {} if index is None else {"i": str(index)}
    where = {"rack": "r", HOST: host}
    return PlacedPod(
        uid=uid, pod_set="main", age=(0, uid), waits=False, ended=ended, labels=labels, node_selector=where
    )


def where(found: tuple[PodPlace, ...]) -> dict[str, str]:
    return {one.uid: one.node_selector[HOST] for one in found}


def test_ranks_are_counted_through_the_domains_in_order() -> None:
    pods = [waiting(f"p{i}", index=i) for i in (2, 0, 3, 1)]
    found = ungated([places({"b": 1, "a": 2, "c": 1}, ranks=INDEX)], pods, gang=True)
    assert where(found) == {"p0": "b", "p1": "a", "p2": "a", "p3": "c"}
    assert all(dict(one.node_selector)["rack"] == "r" for one in found)


def test_without_ranks_the_oldest_goes_first() -> None:
    pods = [waiting("new", age=2), waiting("old", age=1)]
    assert where(ungated([places({"a": 1, "b": 1})], pods, gang=False)) == {"old": "a", "new": "b"}


@pytest.mark.parametrize(
    ("ranks", "labels", "expected"),
    [
        (INDEX, {"i": "3"}, 3),
        (INDEX, {"i": "4"}, None),
        (INDEX, {"i": "-1"}, None),
        (INDEX, {"i": "²"}, None),
        (INDEX, {}, None),
        (Ranks(index_label="i", offset=1), {"i": "1"}, 0),
        (Ranks(index_label="i", offset=1), {"i": "0"}, None),
        (Ranks(index_label="i", sub_group_label="g", sub_group_count=2), {"i": "1", "g": "1"}, 3),
        (Ranks(index_label="i", sub_group_label="g", sub_group_count=2), {"i": "2", "g": "0"}, None),
        (Ranks(index_label="i", sub_group_label="g", sub_group_count=2), {"i": "0", "g": "2"}, None),
        (Ranks(index_label="i", sub_group_label="g", sub_group_count=3), {"i": "0", "g": "0"}, None),
        (Ranks(index_label="i", sub_group_label="g", sub_group_count=2, offset=1), {"i": "1", "g": "1"}, 2),
    ],
)
def test_a_rank_is_index_plus_sub_group_minus_offset(
    ranks: Ranks, labels: dict[str, str], expected: int | None
) -> None:
    assert rank(ranks, labels, 4) == expected


def test_one_pod_without_a_rank_and_none_has_one() -> None:
    pods = [waiting("p0", index=1, age=0), waiting("p1", age=1)]
    assert where(ungated([places({"a": 1, "b": 1}, ranks=INDEX)], pods, gang=True)) == {"p0": "a", "p1": "b"}


def test_the_second_of_a_rank_waits_for_the_first_to_end() -> None:
    one = places({"a": 1, "b": 1}, ranks=INDEX)
    running = [gone("p0", "a", index=0), gone("p1", "b", index=1)]
    assert ungated([one], [*running, waiting("again", index=1)], gang=True) == ()
    assert where(ungated([one], [running[0], waiting("again", index=1)], gang=True)) == {"again": "b"}


def test_the_second_of_a_rank_does_not_take_the_place_of_another() -> None:
    pods = [waiting("p0", index=0, age=1), waiting("twin", index=0, age=2)]
    assert where(ungated([places({"a": 2, "b": 1}, ranks=INDEX)], pods, gang=False)) == {"p0": "a"}


def test_a_domain_that_is_listed_twice_is_one() -> None:
    domains = (Domain(("r", "a"), 1), Domain(("r", "b"), 1), Domain(("r", "a"), 1))
    one = PodSetPlaces(name="main", count=3, needed=3, levels=LEVELS, domains=domains)
    running = [gone("p0", "a"), gone("p1", "a")]
    assert where(ungated([one], [*running, waiting("p2"), waiting("p3")], gang=True)) == {"p2": "b"}
    assert where(ungated([one], [waiting("p0"), waiting("p1")], gang=False)) == {"p0": "a", "p1": "a"}


def test_where_a_domain_was_replaced_those_that_run_stay_and_the_new_one_is_taken() -> None:
    # Rank 1 ran on b, which is lost; its place is d now, and the order by rank is no longer that of the domains.
    one = places({"a": 1, "c": 1, "d": 1}, ranks=INDEX)
    pods = [gone("p0", "a", index=0), gone("p2", "c", index=2), waiting("again", index=1)]
    assert where(ungated([one], pods, gang=True)) == {"again": "d"}
    dying = gone("p1", "b", index=1)
    assert where(ungated([one], [*pods, dying], gang=True)) == {"again": "d"}


def test_nobody_of_a_gang_goes_before_every_set_is_whole() -> None:
    sets = [places({"a": 1}, name="driver"), places({"a": 1, "b": 1}, name="worker")]
    pods = [waiting("d", pod_set="driver"), waiting("w0", pod_set="worker")]
    assert ungated(sets, pods, gang=True) == ()
    assert set(where(ungated(sets, pods, gang=False))) == {"d", "w0"}
    assert set(where(ungated(sets, [*pods, waiting("w1", pod_set="worker")], gang=True))) == {"d", "w0", "w1"}


def test_what_has_begun_is_carried_on_after_a_crash() -> None:
    one = places({"a": 1, "b": 1, "c": 1})
    assert where(ungated([one], [gone("p0", "a"), waiting("p1")], gang=True)) == {"p1": "b"}


def test_who_has_succeeded_keeps_a_place_and_begins_nothing() -> None:
    one = places({"a": 1, "b": 1, "c": 1})
    done = gone("p0", "a", ended=True)
    assert ungated([one], [done, waiting("p1")], gang=True) == ()
    assert where(ungated([one], [done, waiting("p1"), waiting("p2")], gang=True)) == {"p1": "b", "p2": "c"}


def test_nobody_is_sent_to_an_unhealthy_node() -> None:
    one, bad = places({"a": 1, "b": 1}), frozenset({"a"})
    assert where(ungated([one], [waiting("p0"), waiting("p1")], bad, gang=False)) == {"p0": "b"}
    assert ungated([one], [waiting("p0"), waiting("p1")], bad, gang=True) == ()


def test_a_set_without_a_place_goes_as_it_was_admitted() -> None:
    one = PodSetPlaces(name="main", count=2, needed=2)
    found = ungated([one], [waiting("a", age=1), waiting("b", age=2), waiting("c", age=3)], gang=True)
    assert [(pod.uid, pod.node_selector) for pod in found] == [("a", {}), ("b", {})]


def test_an_assignment_is_read_as_the_api_writes_it() -> None:
    domains = [Domain(("r1", "n-1"), 2), Domain(("r2", "n-7"), 1)]
    raw = {"name": "main", "count": 3, "topologyAssignment": to_json(encode(LEVELS, domains))}
    asked = {
        "name": "main",
        "count": 4,
        "minCount": 1,
        "topologyRequest": {"podIndexLabel": "i", "subGroupIndexLabel": "g"},
    }
    found = pod_set_places(decode(asked, PodSet), decode(raw, PodSetAssignment), offset=1)
    assert (found.count, found.needed, found.levels, found.domains) == (3, 3, LEVELS, tuple(domains))
    assert found.ranks == Ranks(index_label="i", sub_group_label="g", offset=1)


@pytest.mark.parametrize(("said", "offset"), [("1", 1), ("12", 12), ("-1", 0), ("one", 0), (None, 0)])
def test_where_the_pods_numbers_begin_is_said_by_their_template(said: str | None, offset: int) -> None:
    annotations = {} if said is None else {"kueue.x-k8s.io/pod-index-offset": said}
    template = {"metadata": {"annotations": annotations}}
    asked = {"name": "main", "count": 2, "template": template, "topologyRequest": {"podIndexLabel": "i"}}
    domains = [Domain(("r", "a"), 1), Domain(("r", "b"), 1)]
    raw = {"name": "main", "count": 2, "topologyAssignment": to_json(encode(LEVELS, domains))}
    one = pod_set_places(decode(asked, PodSet), decode(raw, PodSetAssignment))
    assert one.ranks == Ranks(index_label="i", offset=offset)
    pods = [waiting("last", index=offset + 1), waiting("first", index=offset, age=1)]
    assert where(ungated([one], pods, gang=False)) == {"first": "a", "last": "b"}


LWS = "leaderworkerset.sigs.k8s.io/worker-index"
REPLICA = "training.kubeflow.org/replica-index"
COMPLETION = "batch.kubernetes.io/job-completion-index"


def leader_and_workers(label: str, *, leaders: int = 1, workers: int = 4, owner: str = "") -> Workload:
    """Both in one group; the workers stand first."""
    request = {"podIndexLabel": label, "podSetGroupName": "g"}
    sizes = {"workers": workers, "leader": leaders}
    pod_sets = [{"name": name, "count": count, "topologyRequest": request} for name, count in sizes.items()]
    domains = [Domain(("r", "a"), 1), Domain(("r", "b"), 1), Domain(("r", "c"), 2)]
    assigned = [
        {"name": name, "count": count, "topologyAssignment": to_json(encode(LEVELS, domains))}
        for name, count in sizes.items()
    ]
    owners = [{"kind": owner, "apiVersion": "v1", "name": "o", "uid": "u", "controller": True}] if owner else []
    status = {"admission": {"clusterQueue": "cq", "podSetAssignments": assigned}}
    raw = {"metadata": {"name": "w", "ownerReferences": owners}, "spec": {"podSets": pod_sets}, "status": status}
    return decode(raw, Workload)


def workers_go(workload: Workload, label: str, indexes: tuple[int, ...]) -> str:
    """Hosts of the workers with these indexes, in which order they come."""
    asked, admission = workload.spec.pod_sets[0], workload.status.admission
    assert admission is not None
    own = pod_set_places(asked, admission.pod_set_assignments[0], before=before(workload).get("workers", 0))
    pods = [
        PlacedPod(uid=f"w{index}", pod_set="workers", age=(age, ""), waits=True, labels={label: str(index)})
        for age, index in enumerate(indexes)
    ]
    found = where(ungated([own], pods, gang=False))
    return "".join(found[f"w{index}"] for index in indexes)


@pytest.mark.parametrize(("label", "owner"), [(LWS, "LeaderWorkerSet"), (LWS, ""), (REPLICA, "MPIJob")])
def test_workers_that_are_numbered_behind_their_leader_go_by_their_own_order(label: str, owner: str) -> None:
    assert workers_go(leader_and_workers(label, owner=owner), label, (2, 1, 3, 4)) == "bacc"
    assert workers_go(leader_and_workers(label, owner=owner), label, (3,)) == "c"


@pytest.mark.parametrize(("label", "owner"), [(COMPLETION, "JobSet"), (COMPLETION, ""), (REPLICA, "PyTorchJob")])
def test_workers_that_are_numbered_by_themselves_go_by_that_number(label: str, owner: str) -> None:
    assert workers_go(leader_and_workers(label, owner=owner), label, (2, 1, 3)) == "cbc"


def test_an_index_below_the_leaders_says_that_workers_are_numbered_by_themselves() -> None:
    assert workers_go(leader_and_workers(REPLICA, owner="MPIJob"), REPLICA, (3, 1, 0, 2)) == "cbac"


@pytest.mark.parametrize(("leaders", "workers", "said"), [(1, 4, {"workers": 1}), (2, 1, {"leader": 1}),
                                                          (1, 1, {"leader": 1})])  # fmt: skip
def test_the_leader_is_the_smaller_set_and_of_equal_ones_the_first(
    leaders: int, workers: int, said: dict[str, int]
) -> None:
    assert before(leader_and_workers(LWS, leaders=leaders, workers=workers)) == said


def test_a_set_without_a_group_has_no_leader() -> None:
    alone = leader_and_workers(LWS)
    sets = tuple(msgspec.structs.replace(one, topology_request=None) for one in alone.spec.pod_sets)
    assert before(msgspec.structs.replace(alone, spec=msgspec.structs.replace(alone.spec, pod_sets=sets))) == {}


DOMAINS = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 3), min_size=1, max_size=4)


@st.composite
def pods_of(draw: st.DrawFn, hosts: list[str], size: int) -> list[PlacedPod]:
    """Pods that are missing, twice, without rank, with a wrong one, or somewhere they ought not to be."""
    found = []
    for number in range(draw(st.integers(0, size + 2))):
        index = draw(st.one_of(st.none(), st.integers(0, size + 1), st.just(number)))
        if draw(st.booleans()):
            found.append(gone(f"p{number}", draw(st.sampled_from([*hosts, "lost"])), index=index))
        else:
            found.append(waiting(f"p{number}", index=index, age=draw(st.integers(0, 3))))
    return draw(st.permutations(found + found[: draw(st.integers(0, 2))]))


@settings(max_examples=40, deadline=None)
@given(data=st.data(), domains=DOMAINS, ranked=st.booleans(), gang=st.booleans())
def test_nobody_goes_twice_nowhere_or_where_there_is_no_room(
    data: st.DataObject, domains: dict[str, int], *, ranked: bool, gang: bool
) -> None:
    pods = data.draw(pods_of(list(domains), sum(domains.values())))
    bad = frozenset(data.draw(st.sets(st.sampled_from(sorted(domains)), max_size=1)))
    one = places(domains, ranks=INDEX if ranked else None)
    found = ungated([one], pods, bad, gang=gang)
    assert found == ungated([one], list(reversed(pods)), bad, gang=gang)
    assert len({place.uid for place in found}) == len(found)
    assert {place.uid for place in found} <= {pod.uid for pod in pods if pod.waits}
    known = {pod.uid: pod for pod in pods}
    before = Counter(pod.node_selector[HOST] for pod in known.values() if not pod.waits)
    after = before + Counter(place.node_selector[HOST] for place in found)
    assert all(after[host] <= domains[host] or after[host] == before[host] for host in domains)
    assert not any(place.node_selector[HOST] in bad for place in found)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), domains=DOMAINS)
def test_ranks_go_to_the_domains_in_order_whatever_goes_first(data: st.DataObject, domains: dict[str, int]) -> None:
    owners = [host for host, number in domains.items() for _ in range(number)]
    order = data.draw(st.permutations(range(len(owners))))
    there: list[PlacedPod] = []
    for index in order:  # the pods come one by one, each is let go at once, some end and come again
        there.append(waiting(f"p{index}", index=index))
        for place in ungated([places(domains, ranks=INDEX)], there, gang=False):
            number = next(i for i, pod in enumerate(there) if pod.uid == place.uid)
            there[number] = gone(place.uid, place.node_selector[HOST], index=int(place.uid[1:]))
        if data.draw(st.booleans()):
            there.pop(data.draw(st.integers(0, len(there) - 1)))
    for pod in there:
        assert not pod.waits
        assert pod.node_selector[HOST] == owners[int(pod.labels["i"])]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), domains=DOMAINS, ranked=st.booleans())
def test_a_gang_goes_as_a_whole_or_not_at_all(data: st.DataObject, domains: dict[str, int], *, ranked: bool) -> None:
    size = sum(domains.values())
    here = data.draw(st.integers(0, size))
    bad = frozenset(data.draw(st.sets(st.sampled_from(sorted(domains)), max_size=1)))
    pods = [waiting(f"p{i}", index=i) for i in range(here)]
    found = ungated([places(domains, ranks=INDEX if ranked else None)], pods, bad, gang=True)
    reachable = sum(number for host, number in domains.items() if host not in bad)
    assert len(found) == (size if here == size == reachable else 0)
