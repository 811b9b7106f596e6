"""All kinds of jobs that are managed: a new kind is one module and one row here."""

from typing import Final

from controller.jobframework.kind import JobKind
from controller.jobframework.templated import TemplatedKind
from controller.jobkinds.appwrapper import AppWrapper
from controller.jobkinds.batchjob import BatchJob
from controller.jobkinds.jobset import JobSet
from controller.jobkinds.kubeflow import KUBEFLOW_JOBS
from controller.jobkinds.mpijob import MPIJob
from controller.jobkinds.raycluster import RayCluster
from controller.jobkinds.rayjob import RayJob
from controller.jobkinds.rayservice import RayService
from controller.jobkinds.sparkapplication import SparkApplication
from controller.jobkinds.trainjob import TrainJob

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
