"""``kubeflow.org/v2beta1`` MPIJob: a launcher and its workers.

Facts (kubeflow/mpi-operator, pkg/controller, pkg/apis/kubeflow/v2beta1):
- ``launcherCreationPolicy: WaitForWorkersReady`` makes the launcher's pod last; its quota is held from the beginning.
- With ``runLauncherAsWorker`` the launcher is rank 0 and the workers' indexes begin at 1.
- The older ``kubeflow.org/v1`` MPIJob, of the training operator, has the same plural: a cluster serves one or the
  other.
"""

from functools import cached_property
from types import MappingProxyType
from typing import Final

from controller.jobs.framework.podview import INDEX_OFFSET
from controller.jobs.framework.raw import Json, flag, mapping, strings
from controller.jobs.framework.templated import replaced
from controller.jobs.framework.topologyrequest import GROUP_NAME
from controller.jobs.kinds.kubeflow import ReplicaKind
from controller.jobs.rules import cel
from controller.scheduler.model.gates import FeatureGates

_OLD: Final = "an MPIJob of the training operator is not queued, write it as kubeflow.org/v2beta1 for the MPI operator"
_REPLICAS: Final = "mpiReplicaSpecs"
_LAUNCHER_TEMPLATE: Final = ("spec", _REPLICAS, "Launcher", "template")
_WORKER_TEMPLATE: Final = ("spec", _REPLICAS, "Worker", "template")


class MPIJob(ReplicaKind):
    """MPIJobs of the MPI operator, see ``kind.JobKind``."""

    framework = "kubeflow.org/mpijob"
    version = "v2beta1"
    kind = "MPIJob"
    plural = "mpijobs"
    own_controller = "kubeflow.org/mpi-operator"
    operator = "mpi-operator"
    replicas = _REPLICAS
    types = ("Launcher", "Worker")
    refused_versions = MappingProxyType({"v1": _OLD})

    @cached_property
    def defaults_in_cel(self) -> str:
        specs = cel.field("object", "spec", _REPLICAS)
        worker = cel.field("object", *_WORKER_TEMPLATE, "metadata")
        works = f"{cel.field('object', 'spec', 'runLauncherAsWorker')}.orValue(false)"
        grouped = cel.field("object", *_LAUNCHER_TEMPLATE, "metadata", "annotations")
        alone = f"!({cel.quoted(GROUP_NAME)} in {grouped}.orValue({{}}))"
        metadata, offset = (*_WORKER_TEMPLATE, "metadata"), f"{{{cel.quoted(INDEX_OFFSET)}: '1'}}"
        steps = (*metadata, "annotations")
        whole = cel.added(cel.quoted(cel.pointer(*metadata)), f"{{'annotations': {offset}}}")
        first = cel.added(cel.quoted(cel.pointer(*steps)), offset)
        more = cel.added(cel.quoted(cel.pointer(*steps, INDEX_OFFSET)), "'1'")
        patch = f"{worker}.?annotations.hasValue() ? {more} : {worker}.hasValue() ? {first} : {whole}"
        both = f"{specs}.?Launcher.hasValue() && {specs}.?Worker.hasValue()"
        return f"(variables.gates.TopologyAwareScheduling && {works} && {both} && {alone} ? [{patch}] : [])"

    def defaulted(self, job: Json, gates: FeatureGates | None = None) -> Json:
        """The job with ranks of workers that begin at 1 if the launcher works itself, unless both are placed as one
        group.
        """
        if not (gates or FeatureGates()).on("TopologyAwareScheduling"):
            return job
        specs = mapping(job, "spec", _REPLICAS)
        both = specs.get("Launcher") is not None and specs.get("Worker") is not None
        if not flag(job, "spec", "runLauncherAsWorker") or not both:
            return job
        launcher, worker = mapping(job, *_LAUNCHER_TEMPLATE), mapping(job, *_WORKER_TEMPLATE)
        if GROUP_NAME in strings(launcher, "metadata", "annotations"):
            return job
        at = (*_WORKER_TEMPLATE, "metadata", "annotations")
        return replaced(job, at, {**strings(worker, "metadata", "annotations"), INDEX_OFFSET: "1"})
