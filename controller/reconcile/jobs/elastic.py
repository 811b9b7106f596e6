"""Elastic jobs: a running job changes its size without being stopped. A workload of it is called a slice.

For more pods a new slice is made that is to replace the running one: it must be admitted as a whole, and the pods wait
behind a scheduling gate until then. For fewer pods the count of the running slice is lowered, at once. Source: Kueue's
KEP 77, "Elastic jobs via workload slices".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.jobs.framework import compose, names
from controller.jobs.framework.actions import Action, CreateWorkload, UngatePods
from controller.jobs.framework.context import Context
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.steps import delete, event, finish, update
from controller.messages import jobs as words
from controller.objects.meta import is_true
from controller.scheduler.model.resources import WorkloadKey
from inventory.words.catalog import plural


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What becomes of the unfinished slices of a job that has another size now, or still the same.

    ``base``: the slice that pods run by, or that holds quota. ``going_on``: the slice that is to request the job's
    size; None if that takes a new slice. ``resized``: ``going_on`` still requests another size. ``comparable``: the job
    has the pod sets of its slices; nothing is done otherwise.
    """

    base: SeenWorkload | None = None
    going_on: SeenWorkload | None = None
    resized: bool = False
    replaced: tuple[SeenWorkload, ...] = ()
    withdrawn: tuple[SeenWorkload, ...] = ()
    comparable: bool = True


def settle(live: Iterable[SeenWorkload], asked: Mapping[str, int]) -> Settled:
    """What becomes of these slices if the job requests these pods by pod set. Kueue's function is EnsureWorkloadSlices.

    Fewer pods lower the base at once and leave nothing to wait for. More pods are requested by the slice that is to
    replace the base, which follows the job while it holds no quota itself. An evicted base is left alone: its pods stop
    first.
    """
    ordered = in_order(live)
    if not ordered:
        return Settled()
    holders = [slice_ for slice_ in ordered if is_true(slice_.typed.status.conditions, "Admitted")]
    holders = holders or [slice_ for slice_ in ordered if slice_.is_reserved]
    waiting = [slice_ for slice_ in ordered if slice_ not in holders]
    if not holders:
        newest = surviving(waiting)[1] or waiting[-1]
        return _going_on(None, newest, asked, waiting)
    base, replaced = holders[-1], tuple(holders[:-1])
    if base.eviction is not None:
        return Settled(base=base, going_on=base, replaced=replaced)
    have = compose.counts_of(base.typed.spec.pod_sets)
    shrunk = asked == have or scaled_down(have, asked)
    survivor = base if shrunk or asked.keys() != have.keys() else surviving([base, *waiting])[1]
    return _going_on(base, survivor or base, asked, waiting, replaced)


def _going_on(
    base: SeenWorkload | None,
    slice_: SeenWorkload,
    asked: Mapping[str, int],
    waiting: Iterable[SeenWorkload],
    replaced: tuple[SeenWorkload, ...] = (),
) -> Settled:
    have = compose.counts_of(slice_.typed.spec.pod_sets)
    if asked.keys() != have.keys():
        return Settled(base=base, replaced=replaced, comparable=False)
    withdrawn = tuple(other for other in waiting if other is not slice_)
    if slice_.is_reserved and slice_ is base and asked != have and not scaled_down(have, asked):
        return Settled(base=base, replaced=replaced, withdrawn=withdrawn)
    # A replacement that holds quota replaces the base first; then it is the base.
    resized = asked != have and (slice_ is base or not slice_.is_reserved)
    return Settled(base=base, going_on=slice_, resized=resized, replaced=replaced, withdrawn=withdrawn)


def slices(context: Context, live: list[SeenWorkload]) -> tuple[SeenWorkload | None, list[Action]]:
    """The slice that a running job runs by, and the actions that change its slices. None if it has none."""
    asked = context.kind.counts(context.job)
    settled = settle(live, asked)
    base = settled.base
    if base is None or not is_true(base.typed.status.conditions, "Admitted"):
        return None, []
    actions: list[Action] = [
        finish(old, "WorkloadSliceReplaced", words.slice_replaced(base.name)) for old in settled.replaced
    ]
    actions += [delete(slice_) for slice_ in settled.withdrawn]
    if settled.going_on is None and settled.comparable and not settled.withdrawn:
        actions += _created(context, base, asked)
    elif settled.going_on is not None and settled.resized:
        actions += resized(settled.going_on, asked)
    return base, actions


def resized(slice_: SeenWorkload, asked: dict[str, int]) -> list[Action]:
    told = event("UpdatedWorkload", f"Updated workload {slice_.name} to {_listed(asked)}")
    return [update(slice_, {"spec": compose.with_counts(slice_, asked)}), told]


def lowered(context: Context, workload: SeenWorkload) -> list[Action]:
    """Actions for a stopped job that requests fewer pods than its slice holds quota for, and no other change: it keeps
    its quota.
    """
    asked = context.kind.counts(context.job)
    if not workload.is_reserved or not settle([workload], asked).resized:
        return []
    smaller = SeenWorkload.of(
        {**workload.raw, "spec": {**workload.raw["spec"], **compose.with_counts(workload, asked)}}
    )
    return resized(workload, asked) if context.fits(smaller) else []


def in_order(live: Iterable[SeenWorkload]) -> list[SeenWorkload]:
    """Slices from the oldest on; of two of the same second the one that replaces the other comes after it."""
    known = {workload.typed.key: workload for workload in live}

    def depth(workload: SeenWorkload) -> int:
        levels, current = 0, workload
        while levels < len(known):
            before = known.get(WorkloadKey(current.typed.metadata.annotations.get(names.REPLACEMENT_FOR, "")))
            if before is None or before.age_key[0] != workload.age_key[0]:
                break
            levels, current = levels + 1, before
        return levels

    return sorted(known.values(), key=lambda workload: (workload.age_key[0], depth(workload), workload.name))


def latest_active(live: Iterable[SeenWorkload]) -> SeenWorkload | None:
    """The newest slice that holds quota and is not being evicted."""
    holding = [each for each in in_order(live) if each.is_live and each.is_reserved and each.eviction is None]
    return holding[-1] if holding else None


def surviving(live: Iterable[SeenWorkload]) -> tuple[SeenWorkload | None, SeenWorkload | None]:
    """The slice that holds the quota, and the slice to go on with: the newest that is to replace it, else itself.

    If none holds quota it is the newest of all. A slice that is being evicted is neither.
    """
    active = [slice_ for slice_ in in_order(live) if slice_.is_live and slice_.eviction is None]
    holder = latest_active(active)
    if holder is None:
        return None, active[-1] if active else None
    key = holder.typed.key
    waiting = [
        slice_
        for slice_ in active
        if not slice_.is_reserved and slice_.typed.metadata.annotations.get(names.REPLACEMENT_FOR) == key
    ]
    return holder, waiting[-1] if waiting else holder


def may_run(slice_: SeenWorkload) -> bool:
    """Whether pods may run by the slice."""
    return slice_.is_live and slice_.is_admitted and slice_.eviction is None


def granted(slices_: Iterable[SeenWorkload]) -> dict[str, int]:
    """Pods by pod set that may be without the gate; empty while none may."""
    slice_ = latest_active(filter(may_run, slices_))
    return {} if slice_ is None else compose.counts_of(slice_.typed.spec.pod_sets)


def scaled_down(old: Mapping[str, int], new: Mapping[str, int]) -> bool:
    """Whether a pod set has fewer pods, and no pod set more. A pod set that is in one of the maps only is ignored."""
    both = [(old[name], new[name]) for name in old if name in new]
    return any(after < before for before, after in both) and all(after <= before for before, after in both)


def _created(context: Context, base: SeenWorkload, asked: dict[str, int]) -> list[Action]:
    body = compose.workload_body(context.kind, context.job, context.settings, context.cluster, replaces=base)
    if body["metadata"]["name"] == base.name:
        return []  # what marks its slices has not been seen to change
    created = f"Created workload {body['metadata']['name']} for {_listed(asked)}, to replace {base.name}"
    return [CreateWorkload(body=body), event("CreatedWorkload", created)]


def ungated(context: Context, workload: SeenWorkload) -> list[Action]:
    """Actions that ungate as many pods as were admitted."""
    counts = granted([workload])
    if not context.seen.gated_pods or not counts:
        return []
    return [UngatePods(gate=names.ELASTIC_JOB, counts=counts)]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{plural(count, 'pod')} in {name}" for name, count in counts.items())
