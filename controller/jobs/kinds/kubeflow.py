"""Jobs of Kubeflow's training operator, ``kubeflow.org/v1``: a pod set for each type of replica. One table.

Facts (kubeflow/training-operator, release 1.9, pkg/controller.v1/common):
- A suspended job's pods are deleted and its condition Suspended is True; nothing in its spec is immutable but
  ``schedulingPolicy.queue``.
- ``schedulingPolicy.minAvailable`` and ``elasticPolicy.minReplicas`` make a gang of fewer pods for a pod grouper: a
  job in its system's queue begins with them. Any other job requests all its pods, and one whose replicas change while
  it runs is stopped and queued again. (An MPIJob's launcher waits for all workers of its hostfile: an MPIJob never
  grows.)
- A missing pod is created again, whatever became of it. A pod that is being deleted counts as failed.
- A replica's ``restartPolicy`` wins over its template's. Restarts within the job keep its quota.
- A job has ended when its chief, master or launcher has. Its other pods run on under ``cleanPodPolicy: None``, the
  default, and are deleted afterwards under the other policies. The status of a job that has succeeded counts all of
  them as succeeded. A finished job's pods are never made anew, and the policy is obeyed when it changes afterwards.
"""

from functools import cached_property
from typing import Final

import msgspec

from controller.jobs.framework.growing import begins_with, kubeflow_minimum
from controller.jobs.framework.kind import Outcome, Patch
from controller.jobs.framework.raw import Json, has_condition, integer, mapping, text
from controller.jobs.framework.templated import Slot, TemplatedKind, ended, nested, selector
from controller.jobs.rules import cel
from controller.jobs.rules.topology import pod_set

INIT_PYTORCH: Final = "init-pytorch"
"""The init container that waits for the master's address: only a PyTorchJob with a master has it, in each worker."""
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
_CLEAN: Final = ("spec", "runPolicy", "cleanPodPolicy")


class ReplicaKind(TemplatedKind):
    """A kind with ``spec.<replicas>.<type>.{replicas, template}`` and Kubeflow's ``runPolicy`` and conditions.

    ``types``: the names of replica types, in the order of their pod sets; a job need not have all of them.
    ``operator``: the value of the pods' label operator-name.
    """

    group = "kubeflow.org"
    suspend_path = ("spec", "runPolicy", "suspend")
    priority_class_path = ("spec", "runPolicy", "schedulingPolicy", "priorityClass")
    managed_by_path = ("spec", "runPolicy", "managedBy")
    ends_before_its_pods = True
    replicas: str
    types: tuple[str, ...]
    operator: str

    @property
    def template_paths(self) -> tuple[str, ...]:
        return (f"spec.{self.replicas}{{}}.template",)

    @cached_property
    def pod_sets_in_cel(self) -> str:
        written = cel.field("object", "spec", self.replicas)
        parts = []
        for type_ in self.types:
            one = pod_set(
                name=cel.quoted(type_.lower()),
                path=cel.quoted(f"spec.{self.replicas}[{type_}].template.metadata.annotations"),
                count=f"{written}.?{type_}.?replicas.orValue(1)",
                annotations=cel.field(f"{written}.?{type_}", "template", "metadata", "annotations"),
            )
            parts.append(f"({written}.?{type_}.hasValue() ? [{one}] : [])")
        return " + ".join(parts)

    def slots(self, job: Json) -> tuple[Slot, ...]:
        written = mapping(job, "spec", self.replicas)
        return tuple(
            Slot(
                name=type_.lower(),
                path=("spec", self.replicas, type_, "template"),
                count=integer(job, "spec", self.replicas, type_, "replicas", default=1),
                index_label=REPLICA_INDEX,
                injected=self.injected_into(type_, written),
                field=f"spec.{self.replicas}[{type_}].template",
            )
            for type_ in self.types
            if written.get(type_) is not None
        )

    def injected_into(self, _type: str, _replicas: Json) -> str:
        return ""

    def pod_selector(self, job: Json) -> str:
        own = selector("training.kubeflow.org/job-name", job)
        return f"{own},training.kubeflow.org/operator-name={self.operator}"

    def finished(self, job: Json) -> Outcome | None:
        return ended(job, "Succeeded", "Failed", what=self.kind)

    def taken_away(self, job: Json) -> tuple[Patch, ...]:
        if text(job, *_CLEAN) in ("Running", "All"):
            return ()
        return (Patch(body={"metadata": {"uid": text(job, "metadata", "uid")}, **nested(_CLEAN, "Running")}),)

    def pods_ready(self, job: Json) -> bool:
        return has_condition(job, "Running")

    def is_active(self, job: Json) -> bool:
        statuses = mapping(job, "status", "replicaStatuses")
        return any(integer(mapping(statuses, type_), "active", default=0) > 0 for type_ in statuses)


class KubeflowJob(ReplicaKind):
    """A kind of the training operator, see ``kind.JobKind``. All names follow from the kind's."""

    version = "v1"
    own_controller = "kubeflow.org/training-operator"

    def __init__(self, kind: str, replicas: str, types: tuple[str, ...] = ("Master", "Worker")) -> None:
        name = kind.lower()
        self.kind, self.plural, self.framework = kind, f"{name}s", f"kubeflow.org/{name}"
        self.operator = f"{name}-controller"
        self.replicas, self.types = replicas, types

    def slots(self, job: Json) -> tuple[Slot, ...]:
        """The slots with the pods that start together, replica types in their order: a master comes before its
        workers.
        """
        every = super().slots(job)
        first = self._first(job, every)
        return tuple(msgspec.structs.replace(slot, count=first[slot.name]) for slot in every)

    def makes_all_at_once(self, _job: Json) -> bool:
        return True

    def pods_left(self, job: Json) -> int | None:
        statuses = mapping(job, "status", "replicaStatuses")
        told = [mapping(statuses, type_) for type_ in statuses]
        left = sum(self.counts(job).values()) - sum(integer(each, "succeeded", default=0) for each in told)
        return left if sum(integer(each, "active", default=0) for each in told) < left else None

    def counts_above(self, job: Json) -> dict[str, int]:
        every = super().slots(job)
        first = self._first(job, every)
        return {slot.name: above for slot in every if (above := slot.count - first[slot.name])}

    def _first(self, job: Json, every: tuple[Slot, ...]) -> dict[str, int]:
        counts = {slot.name: slot.count for slot in every}
        templates = [slot.written(job) for slot in every]
        return begins_with(job, counts, kubeflow_minimum(job), templates, may_grow=self.may_grow)


class PyTorchJob(KubeflowJob):
    def injected_into(self, type_: str, replicas: Json) -> str:
        return injected_into_pytorch(type_, replicas)


def injected_into_pytorch(type_: str, replicas: Json) -> str:
    """The init container that the operator adds to a replica type; empty for none. Source: ``setInitContainer`` of the
    operator's pkg/controller.v1/pytorch.
    """
    return INIT_PYTORCH if type_ == "Worker" and replicas.get("Master") is not None else ""


KUBEFLOW_JOBS: Final = (
    PyTorchJob("PyTorchJob", "pytorchReplicaSpecs"),
    KubeflowJob("TFJob", "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator")),
    KubeflowJob("XGBoostJob", "xgbReplicaSpecs"),
    KubeflowJob("PaddleJob", "paddleReplicaSpecs"),
    KubeflowJob("JAXJob", "jaxReplicaSpecs", ("Worker",)),
)
