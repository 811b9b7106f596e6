"""All kinds of jobs that are managed: a new kind is one module and one row here."""

from typing import Final

from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.templated import TemplatedKind
from controller.jobs.kinds.appwrapper import AppWrapper
from controller.jobs.kinds.batchjob import BatchJob
from controller.jobs.kinds.jobset import JobSet
from controller.jobs.kinds.kubeflow import KUBEFLOW_JOBS
from controller.jobs.kinds.mpijob import MPIJob
from controller.jobs.kinds.raycluster import RayCluster
from controller.jobs.kinds.rayjob import RayJob
from controller.jobs.kinds.rayservice import RayService
from controller.jobs.kinds.sparkapplication import SparkApplication
from controller.jobs.kinds.trainjob import TrainJob

DECLARED_KINDS: Final[tuple[TemplatedKind, ...]] = (
    JobSet(),
    *KUBEFLOW_JOBS,
    MPIJob(),
    TrainJob(),
    RayCluster(),
    RayJob(),
    RayService(),
    AppWrapper(),
    SparkApplication(),
)
"""Kinds whose CRD need not be installed."""

JOB_KINDS: Final[tuple[JobKind, ...]] = (BatchJob(), *DECLARED_KINDS)
