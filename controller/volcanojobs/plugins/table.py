"""The plugins by their names, and what those of a job do together.

Volcano runs a job's plugins in no order. Here the order is that of the table: one that reads what another writes stands
behind it.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Final

from controller.foreignrules.volcanodefaults import PLUGINS as NAMES
from controller.foreignrules.volcanodefaults import PULLED_IN
from controller.jobframework.raw import JobError, Json, mapping, sequence, shown
from controller.volcanojobs.plugins.env import Env
from controller.volcanojobs.plugins.flags import Parsed, parsed
from controller.volcanojobs.plugins.hcclrank import Hcclrank
from controller.volcanojobs.plugins.mpi import Mpi
from controller.volcanojobs.plugins.plugin import LONGEST_VARIABLE, Kept, Plugin, PodView, view
from controller.volcanojobs.plugins.pytorch import Pytorch
from controller.volcanojobs.plugins.ray import Ray
from controller.volcanojobs.plugins.ssh import Ssh, keyed, secret_bytes
from controller.volcanojobs.plugins.svc import Svc
from controller.volcanojobs.plugins.tensorflow import Tensorflow

PLUGINS: Final[tuple[Plugin, ...]] = (
    Svc(),
    Ssh(),
    Env(),
    Pytorch(),
    Tensorflow(),
    Mpi(),
    Ray(),
    Hcclrank(),
)


_SURELY_FEW: Final = LONGEST_VARIABLE // 160
"""Pods whose names are no variable too long: a label of DNS has 63 characters, two and a port are a host."""

_MOST_IN_OBJECT: Final = 1024 * 1024
"""Bytes of the data of a ConfigMap or Secret: the API server takes no more."""

Writer = Callable[[str, int, Json], Json]
"""The pod of a task and index with what the job's plugins write into it; the given one is not touched."""


def writer(job: Json) -> Writer:
    """Made once for all pods of the job: it knows all its tasks. It, and what it gives, raise JobError."""
    seen, enabled = view(job), tuple(_enabled(job))

    def applied(task: str, index: int, pod: Json) -> Json:
        whole, made = copy.deepcopy(pod), PodView(task=task, index=index)
        for plugin, given in enabled:
            plugin.write(whole, made, seen, given)
        return whole

    return applied


def check(job: Json) -> None:
    """Raises JobError for a job of so many pods that what plugins tell them all is too long for a variable or object.

    The sizes of objects are reckoned before any list is made: this runs beside all other work of the controller.
    """
    tasks = view(job).tasks if mapping(job, "spec", "plugins") else ()
    if sum(task.replicas for task in tasks) < _SURELY_FEW:
        return
    for plugin, given in _enabled(job):
        if plugin.name == "svc":
            kind, found = "ConfigMap", 2 * sum(task.listed_bytes for task in tasks)
        elif plugin.name == "ssh":
            kind, found = "Secret", secret_bytes(view(job), given)
        else:
            continue
        if found > _MOST_IN_OBJECT:
            raise JobError(
                f"spec.plugins.{plugin.name}: expected at most {_MOST_IN_OBJECT} bytes in its {kind}, found {found}: "
                "the names of all pods stand there twice"
            )
    apply = writer(job)
    objects(job)
    for task in tasks:
        apply(task.name, task.replicas - 1, {"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "any"}]}})


def objects(job: Json) -> tuple[Kept, ...]:
    """What the job keeps beside its pods until all of it is killed. Raises JobError."""
    seen = view(job)
    return tuple(kept for plugin, given in _enabled(job) for kept in plugin.objects(seen, given))


def made(kept: Kept) -> Json:
    """The object as it is created. A Secret gets its keys now, which takes some hundred milliseconds."""
    return keyed(kept.body) if kept.body["kind"] == "Secret" else kept.body


def controlled(job: Json) -> dict[str, str]:
    """``status.controlledResources`` once the objects are there."""
    return {f"plugin-{plugin.name}": plugin.name for plugin, _ in _enabled(job)}


def complaints(job: Json) -> tuple[str, ...]:
    """A sentence for each plugin whose arguments are wrong: it runs with those before the wrong one."""
    return tuple(f"spec.plugins.{plugin.name}: {given.complaint}" for plugin, given in _enabled(job) if given.complaint)


def _enabled(job: Json) -> Iterator[tuple[Plugin, Parsed]]:
    named = mapping(job, "spec", "plugins")
    unknown = next((name for name in named if name not in NAMES), None)
    if unknown is not None:
        raise JobError(f"spec.plugins: expected one of {', '.join(NAMES)}, found {shown(unknown)}")
    wanted = {*named, *(pulled for name in named for pulled in PULLED_IN.get(name, ()))}
    for plugin in PLUGINS:
        if plugin.name in wanted:
            yield plugin, parsed(_arguments(job, plugin.name), plugin.flags)


def _arguments(job: Json, plugin: str) -> list[str]:
    arguments = sequence(job, "spec", "plugins", plugin)
    wrong = next((each for each in arguments if not isinstance(each, str)), None)
    if wrong is not None:
        raise JobError(f"spec.plugins.{plugin}: expected a string, found {type(wrong).__name__}")
    return arguments
