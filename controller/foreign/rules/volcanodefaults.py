"""Defaults of the fields of a Volcano Job: in Python, and as patches in CEL.

Source: Volcano's webhook of Jobs. The queue and the job's maxRetry have their defaults in the CRD.
"""

import copy
from typing import Final

from controller.foreign.rules.ruled import first_items
from controller.jobs.framework.raw import Json, at, flag, integer, mapping, text
from controller.jobs.rules import cel

PLUGINS: Final = ("svc", "ssh", "env", "pytorch", "tensorflow", "mpi", "ray", "hcclrank")
PULLED_IN: Final = {"mpi": ("svc", "ssh"), "tensorflow": ("svc",), "pytorch": ("svc",), "ray": ("svc",)}
"""Plugins that need others, with those that they need."""
DEFAULT_TASK: Final = "default"
"""The name of a task without one, before its index."""
DEFAULT_QUEUE: Final = "default"
RETRIES: Final = 3
_HOST_DNS: Final = "ClusterFirstWithHostNet"


def defaulted(job: Json) -> Json:
    """A job with its defaults, for new ones and for those that bypassed the policies; the same object if nothing is
    missing. Raises JobError.
    """
    made = copy.deepcopy(job)
    spec = made["spec"] = mapping(made, "spec")
    spec["queue"] = spec.get("queue") or DEFAULT_QUEUE
    spec["maxRetry"] = spec.get("maxRetry") or RETRIES
    for index, task in enumerate(first_items(made, "spec", "tasks")):
        task["name"] = text(task, "name") or f"{DEFAULT_TASK}{index}"
        task["minAvailable"] = _minimum(task)
        task["maxRetry"] = integer(task, "maxRetry", default=0) or RETRIES
        if flag(task, "template", "spec", "hostNetwork") and not text(task, "template", "spec", "dnsPolicy"):
            task["template"]["spec"]["dnsPolicy"] = _HOST_DNS
    if not integer(made, "spec", "minAvailable", default=0):
        spec["minAvailable"] = sum(task["minAvailable"] for task in first_items(made, "spec", "tasks"))
    for name in list(mapping(made, "spec", "plugins")):
        for needed in PULLED_IN.get(name, ()):
            spec["plugins"].setdefault(needed, [])
    return job if made == job else made


def _minimum(task: Json) -> int:
    """The minimum of a task. If it has partitions, it is the number of pods of the partitions that it needs."""
    if at(task, "minAvailable") is not None:
        return integer(task, "minAvailable", default=0)
    needed = integer(task, "partitionPolicy", "minPartitions", default=0)
    of_partitions = needed * integer(task, "partitionPolicy", "partitionSize", default=0)
    return of_partitions or integer(task, "replicas", default=0)


_PARTITIONS: Final = "{0}.?partitionPolicy.?minPartitions.orValue(0) * {0}.?partitionPolicy.?partitionSize.orValue(0)"
_OF_REPLICAS: Final = f"({_PARTITIONS} > 0 ? {_PARTITIONS} : {{0}}.?replicas.orValue(0))"
_MINIMUM: Final = f"{{0}}.?minAvailable.orValue({_OF_REPLICAS})"


def _in_tasks(missing: str, field: str, value: str) -> str:
    """Patches of the tasks ``t[i]`` for which ``missing`` holds."""
    path = cel.text("'/spec/tasks/'", "string(i)", cel.quoted(f"/{field}"))
    places = f"{cel.places('variables.tasks')}.filter(i, {missing})"
    return f"{places}.map(i, {cel.added(path, value)})"


def _patches() -> str:
    task = "variables.tasks[i]"
    host = f"{task}.?template.?spec.?hostNetwork.orValue(false)"
    dns = f"{task}.?template.?spec.?dnsPolicy.orValue('') == ''"
    total = f"variables.tasks.map(t, {_MINIMUM.format('t')}).sum()"
    parts = [
        _in_tasks(f"{task}.?name.orValue('') == ''", "name", f"'{DEFAULT_TASK}' + string(i)"),
        _in_tasks(f"!{task}.?minAvailable.hasValue()", "minAvailable", _OF_REPLICAS.format(task)),
        _in_tasks(f"{task}.?maxRetry.orValue(0) == 0", "maxRetry", str(RETRIES)),
        _in_tasks(f"{host} && {dns}", "template/spec/dnsPolicy", cel.quoted(_HOST_DNS)),
        _where("object.?spec.?queue.orValue('') == ''", "queue", cel.quoted(DEFAULT_QUEUE)),
        _where("object.?spec.?maxRetry.orValue(0) == 0", "maxRetry", str(RETRIES)),
        _where("object.?spec.?minAvailable.orValue(0) == 0", "minAvailable", total),
    ]
    for needed in dict.fromkeys(needed for names in PULLED_IN.values() for needed in names):
        pulling = " || ".join(f"{cel.quoted(name)} in p" for name, names in PULLED_IN.items() if needed in names)
        asked = f"[object.?spec.?plugins.orValue({{}})].exists(p, !({cel.quoted(needed)} in p) && ({pulling}))"
        parts.append(_where(asked, f"plugins/{needed}", "[]"))
    return " + ".join(parts)


def _where(missing: str, field: str, value: str) -> str:
    return f"({missing} ? [{cel.added(cel.quoted(f'/spec/{field}'), value)}] : [])"


DEFAULTS: Final = _patches()
