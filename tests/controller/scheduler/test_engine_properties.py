"""Whole histories: workloads come, run, finish and vanish, queues change, writes fail, in any order."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.objects.meta import KubernetesObject
from controller.objects.queues import ClusterQueue
from controller.scheduler.decisions.decisions import Admitted, Evicted
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import BackfillPolicy, EngineConfig, Extensions, FairSharing, VictimOrder
from controller.scheduler.model.resources import Amount, FlavorResource, WorkloadKey
from controller.scheduler.quota.quotanode import QuotaNode
from inventory.api.names import RUNTIME
from tests.support.engine.contention import PREEMPTING, QUEUES, begins_anew
from tests.support.engine.world import World, cluster_queue, cohort, flavor, local_queue, workload

POLICIES = (None, *PREEMPTING, {"withinClusterQueue": "Never", "reclaimWithinCohort": "LowerPriority"})
_POLICY = st.sampled_from(POLICIES)


@dataclass
class Run:
    """A world on its way: ``number`` names what comes next."""

    world: World
    number: int = 0
    excess: dict[tuple[str, FlavorResource], Amount] = field(default_factory=dict)


Act = Callable[[Run], None]


def queue_object(draw: st.DrawFn, name: str) -> KubernetesObject:
    return cluster_queue(
        name,
        draw(st.integers(0, 6)),
        cohort=draw(st.sampled_from(("", "left", "right", "root"))),
        borrow=draw(st.none() | st.integers(0, 5)),
        lend=None,
        preemption=draw(_POLICY),
        flavors=draw(st.sampled_from((("default",), ("default", "spot")))),
        queueingStrategy=draw(st.sampled_from(("StrictFIFO", "BestEffortFIFO"))),
    )


@st.composite
def setups(draw: st.DrawFn) -> list[KubernetesObject]:
    given: list[KubernetesObject] = [flavor("default"), flavor("spot"), cohort("left", "root"), cohort("right", "root")]
    for name in QUEUES:
        given += [queue_object(draw, name), local_queue(name)]
    return given


def arrives(queue: str, gpus: int, priority: int, least: int | None, runtime_s: int | None) -> Act:
    def act(run: Run) -> None:
        run.number += 1
        count = 1 if least is None else 3
        run.world.put(
            workload(
                f"w{run.number}",
                queue,
                gpus,
                priority=priority,
                count=count,
                least=least,
                created_s=run.number,
                annotations={} if runtime_s is None else {RUNTIME: f"{runtime_s}s"},
            )
        )

    return act


def with_one(act: Callable[[World, str], None], pick: int, *, held: bool) -> Act:
    def doing(run: Run) -> None:
        world = run.world
        names = sorted(world.running() if held else {one.metadata.name for one in world.workloads.values()})
        if names:
            act(world, names[pick % len(names)])

    return doing


def cycles(run: Run) -> None:
    run.world.cycle()


def cycle_refused(run: Run) -> None:
    run.world.cycle(refuse=[Admitted, Evicted])


def stops(run: Run) -> None:
    run.world.stop_evicted()


# Made once: Hypothesis looks each new strategy through before it draws from it.
_KIND = st.sampled_from(("arrive", "arrive", "arrive", "cycle", "cycle", "refused", "stop", "finish", "delete"))
_LEAST, _RUNTIME_S = st.none() | st.integers(1, 3), st.none() | st.sampled_from((10, 100))


@st.composite
def acts(draw: st.DrawFn) -> Act:
    kind = draw(_KIND)
    match kind:
        case "arrive":
            least, runtime_s = draw(_LEAST), draw(_RUNTIME_S)
            queue, gpus, priority = draw(st.sampled_from(QUEUES)), draw(st.integers(1, 4)), draw(st.integers(0, 2))
            return arrives(queue, gpus, priority, least, runtime_s)
        case "finish":
            return with_one(World.finish, draw(st.integers(0, 9)), held=True)
        case "delete":
            return with_one(World.delete, draw(st.integers(0, 9)), held=False)
        case "cycle":
            return cycles
        case "refused":
            return cycle_refused
    return stops


@st.composite
def respecified(draw: st.DrawFn) -> Act:
    given = queue_object(draw, draw(st.sampled_from(QUEUES)))
    return lambda run: run.world.put(given)


configs = st.sampled_from((EngineConfig(), EngineConfig(fair_sharing=FairSharing())))
EXTENSIONS = (
    Extensions(),
    Extensions(reserve_for_preemptor=True),
    Extensions(no_eviction_cycles=True),
    Extensions(backfill=BackfillPolicy.CONSERVATIVE),
    Extensions(
        reserve_for_preemptor=True,
        backfill=BackfillPolicy.CONSERVATIVE,
        victim_order=VictimOrder.LEAST_LOST,
        takeovers_first=True,
        exact_fair_sharing=True,
    ),
    Extensions(no_eviction_cycles=True, exact_fair_sharing=True),
)


@st.composite
def extended(draw: st.DrawFn) -> EngineConfig:
    """With whole searches: a fresh engine would start some of those that Kueue parks after a part of one."""
    extensions = msgspec.structs.replace(draw(st.sampled_from(EXTENSIONS)), whole_searches=True)
    return msgspec.structs.replace(draw(configs), extensions=extensions)


def settles(run: Run) -> None:
    run.world.settle()


_ACTS = st.lists(acts() | respecified(), max_size=20)


@st.composite
def filled(draw: st.DrawFn) -> list[Act]:
    """Half of them begin with queues full of the lowest: without that hardly anybody is preempted."""
    filling = [arrives(name, 1, 0, None, None) for name in QUEUES for _ in range(4)] if draw(st.booleans()) else []
    return [*filling, settles, *draw(_ACTS)]


histories = filled()


def begun(config: EngineConfig, given: list[KubernetesObject]) -> Run:
    run = Run(World(config))
    run.world.put(*given)
    return run


def over(engine: Engine) -> dict[tuple[str, FlavorResource], Amount]:
    """How far each queue and cohort is beyond what it may use, recomputed from specs and holders alone."""
    cluster = engine.state.cluster
    found: dict[tuple[str, FlavorResource], Amount] = {}

    def visit(node: QuotaNode) -> dict[FlavorResource, tuple[Amount, Amount]]:
        """Quota and usage of the subtree; nothing here lends with a limit."""
        sums: dict[FlavorResource, tuple[Amount, Amount]] = {}
        if node.is_queue:
            for holder in cluster.queues[node.name].holders.values():  # type: ignore[index]
                for fr, amount in holder.usage.items():
                    quota, used = sums.get(fr, (0, 0))
                    sums[fr] = (quota, used + amount)
        for child in (*node.queues.values(), *node.cohorts.values()):
            for fr, (quota, used) in visit(child).items():
                known = sums.get(fr, (0, 0))
                sums[fr] = (known[0] + quota, known[1] + used)
        quotas = node.spec.quotas if node.spec is not None else {}
        for fr in {*sums, *quotas}:
            own = quotas.get(fr)
            quota, used = sums.get(fr, (0, 0))
            quota += own.nominal if own is not None else 0
            sums[fr] = (quota, used)
            bound: float = quota
            if node.parent is not None:
                limit = own.borrowing_limit if own is not None else None
                bound = float("inf") if limit is None else quota + limit
            if used > bound:
                found[node.name, fr] = int(used - bound)
        return sums

    nodes = [*cluster.quota.cluster_queues.values(), *cluster.quota.cohorts.values()]
    for node in nodes:
        if node.parent is None:
            visit(node)
    return found


@given(configs, setups(), histories)
@settings(max_examples=60, deadline=None)
def test_no_cycle_takes_any_level_beyond_its_quota_or_further_beyond(
    config: EngineConfig, given: list[KubernetesObject], history: list[Act]
) -> None:
    run = begun(config, given)
    for act in history:
        before = over(run.world.engine)
        act(run)
        if act in (cycles, cycle_refused):
            after = over(run.world.engine)
            assert all(amount <= before.get(where, 0) for where, amount in after.items())


@given(configs, setups(), histories)
@settings(max_examples=40, deadline=None)
def test_every_workload_is_in_one_place_and_every_run_without_events_settles(
    config: EngineConfig, given: list[KubernetesObject], history: list[Act]
) -> None:
    """``World`` validates after every step: each workload holds, waits, or is gone, and every sum is right."""
    run = begun(config, given)
    for act in history:
        act(run)
    run.world.settle()
    state = run.world.engine.state
    assert set(run.world.workloads) == {*state.cluster.holders, *(one.key for one in state.queues)}


@given(setups(), histories, st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_world_whose_jobs_obey_settles_where_nobody_may_evict_in_circles(
    given: list[KubernetesObject], history: list[Act], fair: bool
) -> None:
    beyond = Extensions(no_eviction_cycles=True)
    run = begun(EngineConfig(fair_sharing=FairSharing() if fair else None, extensions=beyond), given)
    for act in history:
        act(run)
    assert run.world.rest(100), f"they go on evicting each other: {run.world.log[-20:]}"


@given(configs, setups(), histories)
@settings(max_examples=25, deadline=None)
def test_the_same_events_bring_the_same_decisions(
    config: EngineConfig, given: list[KubernetesObject], history: list[Act]
) -> None:
    logs = []
    for _ in range(2):
        run = begun(config, given)
        for act in history:
            act(run)
        run.world.settle()
        logs.append(run.world.log)
    assert logs[0] == logs[1]


@given(configs, setups(), histories, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_in_which_objects_are_told_changes_nothing(
    config: EngineConfig, given: list[KubernetesObject], history: list[Act], chance: random.Random
) -> None:
    """Some run, some wait, some are evicted: an engine that starts anew comes to the same end either way."""
    run = begun(config, given)
    queues: dict[str, KubernetesObject] = {}
    for act in history:
        act(run)
    for name, state in run.world.engine.state.cluster.queues.items():
        queues[name] = state.object
    others = [one for one in given if not isinstance(one, ClusterQueue)]
    objects = [*others, *queues.values(), *run.world.workloads.values()]
    ends = []
    for _ in range(2):
        world = World(config)
        world.put(*objects)
        world.settle()
        waiting = {
            name: [one.key for one in world.engine.state.queues.active(name)]  # type: ignore[arg-type]
            for name in QUEUES
        }
        ends.append((world.running(), sorted(world.log), waiting))
        objects = [*objects]
        chance.shuffle(objects)
    assert ends[0] == ends[1]


@given(extended(), setups(), histories)
@settings(max_examples=60, deadline=None)
def test_nobody_sleeps_whom_a_fresh_look_would_start(
    config: EngineConfig, given: list[KubernetesObject], history: list[Act]
) -> None:
    """A wake-up that is forgotten leaves somebody parked for ever: an engine that starts anew would start it.

    Asked at rest: a preemptor keeps the head of its queue while its victims leave, and a new engine does not know it.
    """
    run = begun(config, given)
    for act in history:
        act(run)
    assume(run.world.rest())
    assert begins_anew(run.world, config, unless_woken=config.fair_sharing is not None) == []


def test_a_share_that_an_admission_enlarged_is_looked_at_with_the_next_change_of_the_cohort() -> None:
    world = World(EngineConfig(fair_sharing=FairSharing()))
    both, reclaiming = ("default", "spot"), {"reclaimWithinCohort": "Any"}
    world.put(flavor("default"), flavor("spot"))
    world.put(cluster_queue("b", 2, cohort="left", flavors=both), local_queue("b"))
    world.put(cluster_queue("c", 1, cohort="left", preemption=reclaiming), local_queue("c"))
    borrower = cluster_queue("a", 0, cohort="left"), local_queue("a")
    world.put(*borrower, workload("b1", "b", 1), workload("c1", "c", 1), workload("a1", "a", 1))
    world.settle()
    world.put(workload("a2", "a", 1, created_s=1), workload("c2", "c", 1, created_s=2))
    world.put(cluster_queue("a", 0, cohort="left", flavors=both))
    world.settle()
    assert sorted(world.running()) == ["a1", "a2", "b1", "c1"]
    assert "Evicted" not in {kind for kind, _ in world.log}
    world.put(cluster_queue("b", 2, cohort="left", flavors=both, preemption=reclaiming))
    world.settle()
    assert ("Evicted", "ns/a2") in world.log or ("Evicted", "ns/a1") in world.log


def test_the_claims_above_would_see_an_engine_that_forgets_a_workload() -> None:
    world = World()
    world.put(flavor(), cluster_queue("a", 1), local_queue("a"), workload("w", "a"))
    world.engine.state.queues.remove(WorkloadKey("ns/w"))
    try:
        world.engine.validate()
    except AssertionError:
        return
    raise AssertionError("nobody missed it")
