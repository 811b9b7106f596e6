"""Which replicas are above the minimum, and whose quota a replica takes over."""

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.reconcile.serving.replicas import Replica, above_minimum, changed_marks, takeovers

REPLICAS = st.lists(
    st.builds(
        Replica,
        name=st.text("abcdefgh", min_size=1, max_size=3),
        created_s=st.integers(0, 3).map(float),
        revision=st.integers(1, 3),
        holds=st.booleans(),
        leaves=st.booleans(),
        is_ready=st.booleans(),
        is_spare=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda replica: replica.name,
)
MINIMUM = st.none() | st.integers(0, 5)


def marked(replicas: list[Replica], marks: dict[str, bool]) -> list[Replica]:
    """The replicas with these marks."""
    return [
        msgspec.structs.replace(replica, is_spare=marks.get(replica.name, replica.is_spare)) for replica in replicas
    ]


@given(REPLICAS, MINIMUM)
def test_the_minimum_is_kept_by_those_that_hold_quota_and_no_more_are_unmarked(
    replicas: list[Replica], minimum: int | None
) -> None:
    after = marked(replicas, changed_marks(replicas, minimum))
    staying = [replica for replica in after if not replica.leaves]
    if minimum is None:
        assert not any(replica.is_spare for replica in staying)
        return
    kept = [replica for replica in staying if not replica.is_spare]
    assert len(kept) == min(minimum, len(staying))
    assert sum(replica.holds for replica in kept) == min(len(kept), sum(replica.holds for replica in staying))


@given(REPLICAS, MINIMUM)
def test_marks_that_are_right_stay(replicas: list[Replica], minimum: int | None) -> None:
    after = marked(replicas, changed_marks(replicas, minimum))
    assert changed_marks(after, minimum) == {}


@given(REPLICAS, MINIMUM)
def test_who_keeps_the_minimum_is_found_before_another_is_let_go(replicas: list[Replica], minimum: int | None) -> None:
    """At no moment are fewer protected than at the end."""
    changes = list(changed_marks(replicas, minimum).values())
    assert changes == sorted(changes)


def test_a_replica_that_was_above_moves_up_when_another_is_gone() -> None:
    replicas = [Replica(name=name, created_s=at, holds=True) for at, name in enumerate("abc")]
    assert above_minimum(replicas, 2) == {"c"}
    assert above_minimum(replicas[1:], 2) == frozenset()
    assert above_minimum(replicas, 0) == {"a", "b", "c"}


# -- takeovers


def old(name: str, **more: object) -> Replica:
    return Replica(**{"name": name, "created_s": 1.0, "revision": 1, "holds": True, "is_ready": True, **more})  # type: ignore[arg-type]


def new(name: str, **more: object) -> Replica:
    return Replica(**{"name": name, "created_s": 2.0, "revision": 2, "waits": True, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("others", "taken"),
    [
        ([old("a"), old("b", created_s=2.0)], "b"),
        ([old("a", is_ready=False), old("b")], "a"),
        ([old("a"), old("b", is_spare=True)], "b"),
        ([old("a", is_spare=True), old("b", leaves=True)], "b"),
        ([new("c", waits=False, holds=True, leaves=True), old("a")], "c"),
        ([old("a", holds=False)], None),
        ([new("c", waits=False, holds=True)], None),
    ],
    ids=["newest", "not ready", "above the minimum", "leaving", "leaving of its own", "evicted", "of its own"],
)
def test_quota_is_taken_from_who_is_missed_least(others: list[Replica], taken: str | None) -> None:
    assert takeovers([*others, new("n")], lambda _: True) == ({} if taken is None else {"n": taken})


def test_an_older_revision_takes_nothing_from_a_newer_one() -> None:
    assert takeovers([new("n", waits=False, holds=True), old("a", holds=False, waits=True)], lambda _: True) == {}


def test_where_there_is_room_nothing_is_taken_over() -> None:
    assert takeovers([old("a"), new("n")], lambda _: False) == {}


def test_nobody_is_followed_by_two_and_who_follows_nobody_any_more_looks_again() -> None:
    replicas = [old("a"), new("n", follows="a"), new("m", created_s=3.0)]
    assert takeovers(replicas, lambda _: True) == {}
    replicas = [old("a", holds=False), old("b"), new("n", follows="a")]
    assert takeovers(replicas, lambda _: True) == {"n": "b"}
    assert takeovers(replicas[2:], lambda _: True) == {"n": ""}


# -- a rollout at full quota


@dataclass
class Pod:
    name: str
    revision: int
    holds: bool = False
    """Its Workload has quota."""
    runs: bool = False
    ready: bool = False
    leaves: bool = False
    follows: str = ""
    taken_over: bool = False


@dataclass
class Rollout:
    """A Deployment, its two ReplicaSets, and a queue of ``quota`` pods. One step of each at a time."""

    replicas: int
    surge: int
    unavailable: int
    quota: int
    sizes: dict[int, int] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    made: int = 0

    def deployment(self) -> None:
        """As the Deployment controller: new pods up to the surge, old ones go while enough are available."""
        total = sum(self.sizes.values())
        room = self.replicas + self.surge - total
        self.sizes[2] += max(0, min(room, self.replicas - self.sizes[2]))
        total = sum(self.sizes.values())
        available = [pod for pod in self.pods if pod.ready and not pod.leaves]
        new_ones = sum(pod.revision == 2 for pod in available)
        floor = self.replicas - self.unavailable
        spare = total - floor - (self.sizes[2] - new_ones)
        unhealthy = self.sizes[1] - sum(pod.revision == 1 for pod in available)
        broken = max(0, min(spare, unhealthy))
        self.sizes[1] -= broken
        self.sizes[1] -= max(0, min(len(available) - floor, self.sizes[1], spare - broken))

    def replica_sets(self) -> None:
        for revision, size in self.sizes.items():
            mine = [pod for pod in self.pods if pod.revision == revision and not pod.leaves]
            for _ in range(size - len(mine)):
                self.made += 1
                self.pods.append(Pod(f"p{self.made}", revision))
            mine.sort(key=lambda pod: (pod.runs, pod.ready))
            for pod in mine[: max(0, len(mine) - size)]:
                pod.leaves = True

    def queue(self) -> None:
        for pod in self.pods:
            if not pod.holds and not pod.taken_over and not pod.leaves and self.held() < self.quota:
                pod.holds = True
        seen = [self.seen(pod) for pod in self.pods if not pod.taken_over]
        pods = {pod.name: pod for pod in self.pods}
        for name, giver in takeovers(seen, lambda _: self.held() >= self.quota).items():
            pods[name].follows = giver
            if giver:
                pods[giver].holds, pods[giver].taken_over, pods[giver].leaves = False, True, True
                pods[name].holds = True

    def kubelet(self) -> None:
        """What leaves, ends; what has quota starts once the pod that it was taken from has ended."""
        self.pods = [pod for pod in self.pods if not pod.leaves]
        there = {pod.name for pod in self.pods}
        for pod in self.pods:
            pod.ready = pod.runs
            pod.runs = pod.holds and pod.follows not in there

    def seen(self, pod: Pod) -> Replica:
        return Replica(
            name=pod.name,
            created_s=float(pod.name[1:]),
            revision=pod.revision,
            holds=pod.holds,
            waits=not pod.holds and not pod.leaves,
            leaves=pod.leaves,
            is_ready=pod.ready,
            follows=pod.follows,
        )

    def held(self) -> int:
        return sum(pod.holds for pod in self.pods)


@settings(max_examples=40, deadline=None)
@given(
    replicas=st.integers(1, 6),
    surge=st.integers(0, 3),
    unavailable=st.integers(0, 2),
    spare=st.integers(-2, 2),
    order=st.lists(st.sampled_from(["deployment", "replica_sets", "queue", "kubelet"]), max_size=40),
)
def test_a_rollout_goes_through_at_any_quota_and_never_exceeds_it(
    replicas: int, surge: int, unavailable: int, spare: int, order: list[str]
) -> None:
    if surge == 0 and unavailable == 0:
        surge = 1  # the API server refuses two zeros
    quota = max(1, replicas + spare)
    world = Rollout(replicas, surge, unavailable, quota, sizes={1: replicas, 2: 0})
    world.replica_sets()
    world.queue()
    world.kubelet()
    world.kubelet()
    rounds = ["deployment", "replica_sets", "queue", "kubelet"] * 60
    for step in [*order, *rounds]:
        getattr(world, step)()
        running = sum(pod.runs for pod in world.pods)
        assert world.held() <= quota
        assert running <= quota
    assert [pod.revision for pod in world.pods if pod.ready] == [2] * min(replicas, quota)
    # With less quota than replicas the Deployment waits for one that is available; the old ones wait as well.
    assert world.sizes[1] == 0 or quota < replicas
