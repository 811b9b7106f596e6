"""The plugins by their names, and what the plugins of a job do together.

Volcano runs a job's plugins in no order. Here the order is that of the table: a plugin that reads what another writes
stands behind it.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Final

from controller.foreign.jobs.plugins.flags import Parsed, parsed
from controller.foreign.jobs.plugins.frameworks import Mpi, Pytorch, Ray, Tensorflow
from controller.foreign.jobs.plugins.plugin import LONGEST_VARIABLE, Kept, Plugin, PodView, view
from controller.foreign.jobs.plugins.ranks import Env, Hcclrank
from controller.foreign.jobs.plugins.ssh import Ssh, keyed, secret_bytes
from controller.foreign.jobs.plugins.svc import Svc
from controller.foreign.rules.volcanodefaults import PLUGINS as NAMES
from controller.foreign.rules.volcanodefaults import PULLED_IN
from controller.jobs.framework.raw import JobError, Json, mapping, sequence, shown

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
"""Pods whose names always fit into one variable: a label of DNS has 63 characters, and a host is two labels and a
port."""

_MOST_IN_OBJECT: Final = 1024 * 1024
"""Bytes of the data of a ConfigMap or Secret: the API server takes no more."""

Writer = Callable[[str, int, Json], Json]
"""Returns the pod of a task and index with what the job's plugins write into it; the given pod is not changed."""


def writer(job: Json) -> Writer:
    """The writer for all pods of the job: it knows all its tasks. The function and the writer raise JobError."""
    seen, enabled = view(job), tuple(_enabled(job))

    def applied(task: str, index: int, pod: Json) -> Json:
        whole, made = copy.deepcopy(pod), PodView(task=task, index=index)
        for plugin, given in enabled:
            plugin.write(whole, made, seen, given)
        return whole

    return applied


def check(job: Json) -> None:
    """Checks the number of a job's pods. Raises JobError if the plugins' lists of them are too long for a variable or
    object.

    The sizes of objects are computed before any list is made: this runs beside all other work of the controller.
    """
    tasks = view(job).tasks if mapping(job, "spec", "plugins") else ()
    if sum(task.replicas for task in tasks) < _SURELY_FEW:
        return
    for plugin, arguments in _enabled(job):
        if plugin.name == "svc":
            kind, size = "ConfigMap", 2 * sum(task.listed_bytes for task in tasks)
        elif plugin.name == "ssh":
            kind, size = "Secret", secret_bytes(view(job), arguments)
        else:
            continue
        if size > _MOST_IN_OBJECT:
            raise JobError(
                f"spec.plugins.{plugin.name}: expected at most {_MOST_IN_OBJECT} bytes in its {kind}, found {size}: "
                "the names of all pods stand there twice"
            )
    apply = writer(job)
    objects(job)
    for task in tasks:
        apply(task.name, task.replicas - 1, {"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "any"}]}})


def objects(job: Json) -> tuple[Kept, ...]:
    """The objects that the job keeps beside its pods until all of it is killed. Raises JobError."""
    seen = view(job)
    return tuple(kept for plugin, given in _enabled(job) for kept in plugin.objects(seen, given))


def made(kept: Kept) -> Json:
    """The object to create. A Secret gets its keys now, which takes some hundred milliseconds."""
    return keyed(kept.body) if kept.body["kind"] == "Secret" else kept.body


def controlled(job: Json) -> dict[str, str]:
    """``status.controlledResources`` once the objects exist."""
    return {f"plugin-{plugin.name}": plugin.name for plugin, _ in _enabled(job)}


def complaints(job: Json) -> tuple[str, ...]:
    """A sentence for each plugin with a wrong argument: it runs with the arguments before that."""
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
