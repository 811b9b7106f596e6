"""``tensorflow``: the variable ``TF_CONFIG``, which says what the cluster is and which of its tasks runs here."""

import json
from collections.abc import Mapping
from typing import Final

from controller.foreign.jobs.plugins.flags import Parsed, Value
from controller.foreign.jobs.plugins.plugin import (
    JobView,
    PluginDefaults,
    PodView,
    containers,
    fits,
    set_variables,
    variable,
)
from controller.jobs.framework.raw import Json

_ROLES: Final = ("ps", "worker", "chief", "evaluator")


class Tensorflow(PluginDefaults):
    name = "tensorflow"
    flags: Mapping[str, Value] = {**{role: role for role in _ROLES}, "port": 2222}

    def write(self, pod: Json, made: PodView, job: JobView, given: Parsed) -> None:
        if len(job.tasks) == 1 and job.tasks[0].replicas == 1:
            return  # no cluster: TensorFlow would look for one
        roles = {given.text(role): role for role in _ROLES}
        port = given.number("port")
        tasks = [task for task in job.tasks if task.name in roles and task.replicas > 0]
        # Names by index are no shorter than the first. A hostname that all pods share is written for each of them.
        fits("TF_CONFIG", sum(len(f'"{task.host(0)}:{port}",') * task.replicas for task in tasks))
        cluster = {roles[task.name]: [f"{task.host(index)}:{port}" for index in range(task.replicas)] for task in tasks}
        here = {"type": roles.get(made.task, made.task), "index": made.index}
        config = json.dumps({"cluster": cluster, "task": here}, separators=(",", ":"))
        for container in containers(pod, initial=False):
            set_variables(container, variable("TF_CONFIG", config))
