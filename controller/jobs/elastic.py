"""Elastic jobs: a running job changes its size without being stopped. A workload of it is called a slice.

More pods are asked for by a new slice that is to replace the one that runs: it must be admitted as a whole, the pods
wait behind a scheduling gate until then. Fewer pods lower the count of the slice that runs, at once.
Source: Kueue's KEP 77, "Elastic jobs via workload slices".
"""

from controller.jobframework import compose, names
from controller.jobframework.actions import Action, CreateWorkload, UngatePods
from controller.jobframework.context import Context
from controller.jobframework.podsets import SeenWorkload
from controller.jobframework.steps import delete, event, finish, update
from controller.objects.meta import epoch_s, is_true


def slices(context: Context, live: list[SeenWorkload]) -> tuple[SeenWorkload | None, list[Action]]:
    """The slice that a running job runs by, and what is to change about its slices. None where it has none."""
    ordered = sorted(live, key=lambda workload: (epoch_s(workload.typed.metadata.creation_timestamp), workload.name))
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


def _sized(context: Context, base: SeenWorkload, waiting: list[SeenWorkload]) -> list[Action]:
    asked = context.kind.counts(context.job)
    have = compose.counts_of(base.typed.spec.pod_sets)
    if asked.keys() != have.keys():
        return []  # no change of size: the job is another one, which its kind does not allow while it runs
    if any(asked[name] > have[name] for name in asked):
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
    slice_ = waiting[-1]
    actions: list[Action] = [delete(workload) for workload in waiting[:-1]]
    if compose.counts_of(slice_.typed.spec.pod_sets) != asked and not slice_.is_reserved:
        actions.append(update(slice_, {"spec": compose.with_counts(slice_, asked)}))
        actions.append(event("UpdatedWorkload", f"Updated workload {slice_.name} to {_listed(asked)}"))
    return actions


def ungated(context: Context, workload: SeenWorkload) -> list[Action]:
    """As many pods as were admitted may be scheduled."""
    if not context.seen.gated_pods:
        return []
    return [UngatePods(gate=names.ELASTIC_JOB, counts=compose.counts_of(workload.typed.spec.pod_sets))]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} pods in {name}" for name, count in counts.items())
