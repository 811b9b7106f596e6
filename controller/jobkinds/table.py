"""All kinds of jobs that are managed: a new kind is one module and one row here."""

from typing import Final

from controller.jobframework.kind import JobKind
from controller.jobkinds.batchjob import BatchJob

JOB_KINDS: Final[tuple[JobKind, ...]] = (BatchJob(),)
