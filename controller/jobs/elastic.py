"""Elastic jobs: a running job changes its size without being stopped. A workload of it is called a slice.

More pods are asked for by a new slice that is to replace the one that runs: it must be admitted as a whole, the pods
wait behind a scheduling gate until then. Fewer pods lower the count of the slice that runs, at once.
Source: Kueue's KEP 77, "Elastic jobs via workload slices".
"""

from collections.abc import Iterable, Mapping

from controller.engine.model.resources import WorkloadKey
from controller.jobframework import compose, names
from controller.jobframework.actions import Action, CreateWorkload, UngatePods
from controller.jobframework.context import Context
from controller.jobframework.podsets import SeenWorkload
from controller.jobframework.steps import delete, event, finish, update
from controller.objects.meta import is_true


def slices(context: Context, live: list[SeenWorkload]) -> tuple[SeenWorkload | None, list[Action]]:
    """The slice that a running job runs by, and what is to change about its slices. None where it has none."""
    ordered = in_order(live)
    admitted = [workload for workload in ordered if is_true(workload.typed.status.conditions, "Admitted")]
    if not admitted:
        return None, []
    base = admitted[-1]
    actions: list[Action] = [
        finish(old, "WorkloadSliceReplaced", f"Replaced by workload {base.name}") for old in admitted[:-1]
    ]
    if base.eviction is not None:
        return base, actions
    waiting = [workload for workload in ordered if workload not in admitted]
    return base, actions + _sized(context, base, waiting)


def in_order(live: Iterable[SeenWorkload]) -> list[SeenWorkload]:
    """Slices from the oldest on; of those of one second the one that replaces another comes after it."""
    known = {workload.typed.key: workload for workload in live}

    def depth(workload: SeenWorkload) -> int:
        found, current = 0, workload
        while found < len(known):
            before = known.get(WorkloadKey(current.typed.metadata.annotations.get(names.REPLACEMENT_FOR, "")))
            if before is None or before.age_key[0] != workload.age_key[0]:
                break
            found, current = found + 1, before
        return found

    return sorted(known.values(), key=lambda workload: (workload.age_key[0], depth(workload), workload.name))


def latest_active(live: Iterable[SeenWorkload]) -> SeenWorkload | None:
    """The newest slice that holds quota and is not being evicted."""
    holding = [each for each in in_order(live) if each.is_live and each.is_reserved and each.eviction is None]
    return holding[-1] if holding else None


def surviving(live: Iterable[SeenWorkload]) -> tuple[SeenWorkload | None, SeenWorkload | None]:
    """The slice that holds the quota, and the one to go on with: the newest that is to replace it, else itself.

    Where none holds quota it is the newest of all. A slice that is being evicted is neither.
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
    """Whether pods may run by it."""
    return slice_.is_live and slice_.is_admitted and slice_.eviction is None


def granted(slices_: Iterable[SeenWorkload]) -> dict[str, int]:
    """Pods by pod set that may be without the gate; empty while none may."""
    slice_ = latest_active(filter(may_run, slices_))
    return {} if slice_ is None else compose.counts_of(slice_.typed.spec.pod_sets)


def scaled_down(old: Mapping[str, int], new: Mapping[str, int]) -> bool:
    """Whether a pod set has fewer pods, and none of them more. A pod set that one of them lacks says nothing."""
    both = [(old[name], new[name]) for name in old if name in new]
    return any(after < before for before, after in both) and all(after <= before for before, after in both)


def _sized(context: Context, base: SeenWorkload, waiting: list[SeenWorkload]) -> list[Action]:
    asked = context.kind.counts(context.job)
    have = compose.counts_of(base.typed.spec.pod_sets)
    if asked.keys() != have.keys():
        return []  # no change of size: the job is another one, which its kind does not allow while it runs
    if asked != have and not scaled_down(have, asked):
        return _grown(context, base, waiting, asked)
    actions: list[Action] = [delete(workload) for workload in waiting]
    if asked != have:
        actions.append(update(base, {"spec": compose.with_counts(base, asked)}))
        actions.append(event("UpdatedWorkload", f"Updated workload {base.name} to {_listed(asked)}"))
    return actions


def _grown(context: Context, base: SeenWorkload, waiting: list[SeenWorkload], asked: dict[str, int]) -> list[Action]:
    if not waiting:
        body = compose.workload_body(context.kind, context.job, context.settings, context.cluster, replaces=base)
        if body["metadata"]["name"] == base.name:
            return []  # what marks its slices has not been seen to change
        created = f"Created workload {body['metadata']['name']} for {_listed(asked)}, to replace {base.name}"
        return [CreateWorkload(body=body), event("CreatedWorkload", created)]
    _, found = surviving([base, *waiting])
    slice_ = waiting[-1] if found is None or found is base else found
    actions: list[Action] = [delete(workload) for workload in waiting if workload is not slice_]
    if compose.counts_of(slice_.typed.spec.pod_sets) != asked and not slice_.is_reserved:
        actions.append(update(slice_, {"spec": compose.with_counts(slice_, asked)}))
        actions.append(event("UpdatedWorkload", f"Updated workload {slice_.name} to {_listed(asked)}"))
    return actions


def ungated(context: Context, workload: SeenWorkload) -> list[Action]:
    """As many pods as were admitted may be scheduled."""
    counts = granted([workload])
    if not context.seen.gated_pods or not counts:
        return []
    return [UngatePods(gate=names.ELASTIC_JOB, counts=counts)]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} pods in {name}" for name, count in counts.items())
