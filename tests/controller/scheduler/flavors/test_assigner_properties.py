"""What holds for every cluster and every workload."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.core import Toleration
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assignment import Mode, NoFitReason, Possibility
from controller.scheduler.model.resources import UNLIMITED
from controller.scheduler.model.taints import untolerated
from tests.support.engine.flavorlab import Lab, fr, pod_set

# A cluster costs more to draw than to ask: few of them, each of many parts.
few = settings(max_examples=30)

FLAVORS = ("f0", "f1", "f2")
RESOURCES = ("gpu", "fpga")
TAINT = {"key": "spot", "effect": "NoSchedule"}

amounts = st.integers(0, 6)
quotas = st.builds(
    lambda nominal, borrow, lend: {
        "nominalQuota": str(nominal),
        **({} if borrow is None else {"borrowingLimit": str(borrow)}),
        **({} if lend is None else {"lendingLimit": str(lend)}),
    },
    amounts,
    st.none() | amounts,
    st.none() | amounts,
)
fungibility = st.fixed_dictionaries(
    {
        "whenCanBorrow": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
        "whenCanPreempt": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
        "preference": st.sampled_from([None, "BorrowingOverPreemption", "PreemptionOverBorrowing"]),
    }
)
pod_sets = st.lists(
    st.fixed_dictionaries(
        {
            "count": st.integers(0, 3),
            "requests": st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 3)),
            "tolerates": st.booleans(),
        }
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def labs(draw: st.DrawFn) -> Lab:
    lab = Lab()
    for name in FLAVORS:
        lab.flavor(name, **({"nodeTaints": [TAINT]} if draw(st.booleans()) else {}))
    policies = {"flavorFungibility": draw(fungibility), "preemption": {"reclaimWithinCohort": "Any"}}
    groups = [{name: {resource: draw(quotas) for resource in RESOURCES} for name in FLAVORS}]
    if draw(st.booleans()):
        groups = [{name: {resource: one[resource]} for name, one in groups[0].items()} for resource in RESOURCES]
    lab.queue("q", *groups, cohort="all", **policies)
    lab.queue("other", {name: {resource: draw(quotas) for resource in RESOURCES} for name in FLAVORS}, cohort="all")
    for queue in ("q", "other"):
        for name in FLAVORS:
            for resource in RESOURCES:
                lab.use(queue, name, resource, draw(amounts))
                answer = draw(st.sampled_from(Possibility)), draw(st.integers(0, 1))
                lab.oracle.answers[fr(name, resource)] = answer
    return lab


def job(lab: Lab, sets: list[dict[str, Any]]) -> Incoming:
    return lab.incoming(
        "q",
        *(
            pod_set(
                f"p{index}",
                one["count"],
                requests=one["requests"],
                spec={"tolerations": [{"key": "spot", "operator": "Exists"}]} if one["tolerates"] else {},
            )
            for index, one in enumerate(sets)
        ),
    )


@few
@given(labs(), pod_sets)
def test_the_mode_is_the_worst_of_all_resources_and_fit_means_that_the_usage_fits(
    lab: Lab, sets: list[dict[str, Any]]
) -> None:
    incoming = job(lab, sets)
    found = lab.assign(incoming)
    modes = [choice.mode for one in found.pod_sets for choice in one.choices.values()]
    if any(one.refused for one in found.pod_sets):
        assert (found.mode, len(found.pod_sets) <= len(sets)) == (Mode.NO_FIT, True)
        assert found.no_fit_reason is not NoFitReason.NONE
    else:
        assert found.mode is min(modes, default=Mode.FIT)
        assert found.no_fit_reason is NoFitReason.NONE
        assert len(found.pod_sets) == len(sets)
        if found.mode is Mode.FIT:
            assert incoming.queue.node.fits(found.usage)
        else:
            assert not incoming.queue.node.fits(found.usage)
            assert found.preempting() <= found.usage.keys()


@few
@given(labs(), pod_sets)
def test_usage_is_what_the_pod_sets_with_flavors_ask_for(lab: Lab, sets: list[dict[str, Any]]) -> None:
    found = lab.assign(job(lab, sets))
    total: dict[Any, int] = {}
    for one in found.pod_sets:
        assert not one.choices or one.choices.keys() == one.requests.keys()
        for resource, choice in one.choices.items():
            cell = fr(choice.flavor, resource)
            total[cell] = total.get(cell, 0) + one.requests[resource]
    assert found.usage == total
    assert found.borrowing == max(
        (choice.borrow for one in found.pod_sets for choice in one.choices.values()), default=0
    )


@few
@given(labs(), pod_sets)
def test_a_chosen_flavor_has_no_taint_that_its_pods_do_not_tolerate(lab: Lab, sets: list[dict[str, Any]]) -> None:
    incoming = job(lab, sets)
    specs = incoming.info.workload.spec.pod_sets
    for spec, one in zip(specs, lab.assign(incoming).pod_sets, strict=False):
        tolerations: tuple[Toleration, ...] = spec.template.spec.tolerations
        for choice in one.choices.values():
            assert untolerated(lab.cluster.flavors[choice.flavor].spec.node_taints, tolerations) is None


@few
@given(labs(), pod_sets)
def test_asking_changes_nothing_and_the_same_question_has_the_same_answer(lab: Lab, sets: list[dict[str, Any]]) -> None:
    before = [lab.cluster.queue(name).node.used() for name in lab.cluster.queues]
    first = lab.assign(job(lab, sets))
    assert lab.assign(job(lab, sets)) == first
    assert [lab.cluster.queue(name).node.used() for name in lab.cluster.queues] == before


@few
@given(labs(), pod_sets, st.integers(0, 2))
def test_fewer_pods_never_make_a_single_flavor_fit_worse(lab: Lab, sets: list[dict[str, Any]], fewer: int) -> None:
    lab.queue("q", {"f0": {resource: {"nominalQuota": "5"} for resource in RESOURCES}}, cohort="all")
    incoming = job(lab, sets)
    counts = {f"p{index}": max(0, one["count"] - fewer) for index, one in enumerate(sets)}
    full, reduced = lab.assign(incoming), lab.assign(incoming, counts=counts)
    assert {one.name: one.count for one in reduced.pod_sets}.items() <= counts.items()
    if full.mode is Mode.FIT:
        assert reduced.mode is Mode.FIT


@few
@given(labs(), st.integers(1, 6))
def test_tries_by_bookmark_look_at_every_flavor_in_turn_and_at_none_twice_until_all_were_tried(
    lab: Lab, gpus: int
) -> None:
    incoming = lab.incoming("q", pod_set(requests={"gpu": gpus}))
    seen: list[str] = []
    bookmark = None
    for cycle in range(len(FLAVORS)):
        found = lab.assign(incoming, bookmark=bookmark, cycle=cycle)
        seen += [str(one.flavor) for one in found.pod_sets[0].attempts]
        bookmark = found.bookmark
        if not bookmark.more_flavors():
            break
    assert seen == list(FLAVORS)


@few
@given(labs(), st.integers(0, 6), st.integers(0, 6))
def test_a_shortfall_tells_the_numbers_that_the_queue_has(lab: Lab, gpus: int, fpgas: int) -> None:
    incoming = lab.incoming("q", pod_set(requests={"gpu": gpus, "fpga": fpgas}))
    node = incoming.queue.node
    for attempt in lab.assign(incoming).pod_sets[0].attempts:
        for one in attempt.shortfalls:
            cell = fr(attempt.flavor, one.resource)
            assert one.needed == {"gpu": gpus, "fpga": fpgas}[one.resource] > one.available == node.available(cell)
            assert one.potential == min(node.potential_available(cell), UNLIMITED)
            assert one.used == node.usage(cell)
            exceeds = attempt.no_fit_reason is NoFitReason.ExceedsMaxQuota
            assert exceeds or one.needed <= one.potential
