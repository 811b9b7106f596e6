"""``mpi``: the master knows its workers, and accepts them by ssh. Names and keys are those of ``svc`` and ``ssh``."""

from collections.abc import Mapping

from controller.foreign.jobs.plugins.flags import Parsed, Value
from controller.foreign.jobs.plugins.plugin import (
    JobView,
    PluginDefaults,
    PodView,
    containers,
    open_port,
    set_variables,
    variable,
)
from controller.jobs.framework.raw import Json


class Mpi(PluginDefaults):
    name = "mpi"
    flags: Mapping[str, Value] = {"master": "master", "worker": "worker", "port": 22}

    def write(self, pod: Json, made: PodView, job: JobView, given: Parsed) -> None:
        workers = job.task(given.text("worker"))
        if made.task == given.text("master") and workers is not None:
            for container in containers(pod):
                set_variables(container, variable("MPI_HOST", ",".join(workers.hosts)))
        if made.task == given.text("worker"):
            for container in containers(pod, initial=False):
                open_port(container, "mpijob-port", given.number("port"))
