"""``env`` and ``hcclrank``: which pod of its task a pod is, as variables of its containers, and its rank in Huawei's
collective communication, as an annotation.
"""

from collections.abc import Mapping
from typing import Final

from controller.foreign.jobs.plugins.flags import Parsed, Value
from controller.foreign.jobs.plugins.plugin import JobView, PluginDefaults, PodView, containers, set_variables, variable
from controller.jobs.framework.raw import Json

_NAMES = ("VK_TASK_INDEX", "VC_TASK_INDEX")
"""The variables with the pod's index. The first is the older one."""
_RANK: Final = "hccl/rankIndex"


class Env(PluginDefaults):
    name = "env"

    def write(self, pod: Json, made: PodView, _job: JobView, _given: Parsed) -> None:
        for container in containers(pod):
            set_variables(container, *(variable(name, made.index) for name in _NAMES))


class Hcclrank(PluginDefaults):
    """Writes the pod's rank. A rank that it has already stays; else it is the variable ``RANK``, else masters come
    before workers.
    """

    name = "hcclrank"
    flags: Mapping[str, Value] = {"master": "master", "worker": "worker"}

    def write(self, pod: Json, made: PodView, job: JobView, given: Parsed) -> None:
        annotations = pod["metadata"].setdefault("annotations", {})
        if annotations.get(_RANK):
            return
        master = given.text("master")
        if (known := _variable(pod)) != "":
            annotations[_RANK] = known
        elif made.task == master:
            annotations[_RANK] = str(made.index)
        elif made.task == given.text("worker"):
            annotations[_RANK] = str(job.replicas(master) + made.index)


def _variable(pod: Json) -> str:
    ranks = (
        each.get("value", "")
        for container in containers(pod, initial=False)
        for each in container.get("env") or ()
        if each.get("name") == "RANK"
    )
    return next(ranks, "")
