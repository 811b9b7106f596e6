"""``env``: each container knows which pod of its task it is in."""

from controller.foreign.jobs.plugins.flags import Parsed
from controller.foreign.jobs.plugins.plugin import (
    JobView,
    PluginDefaults,
    PodView,
    containers,
    set_variables,
    variable,
)
from controller.jobs.framework.raw import Json

_NAMES = ("VK_TASK_INDEX", "VC_TASK_INDEX")
"""The variables with the pod's index. The first is the older one."""


class Env(PluginDefaults):
    name = "env"

    def write(self, pod: Json, made: PodView, _job: JobView, _given: Parsed) -> None:
        for container in containers(pod):
            set_variables(container, *(variable(name, made.index) for name in _NAMES))
