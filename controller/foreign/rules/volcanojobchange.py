"""The fields of a Volcano Job that may change: minimums, numbers of replicas, the priority class.

Source: Volcano's webhook of Jobs.
"""

from collections.abc import Iterator
from typing import Any, Final

from controller.foreign.rules.ruled import MOST, bounded, first_items, place
from controller.jobs.framework.kind import Refusal, Review, Rule
from controller.jobs.framework.raw import Json, at, sequence, text
from controller.jobs.rules import cel
from controller.jobs.rules.fields import forbidden

_FIXED: Final = (
    "schedulerName", "policies", "plugins", "runningEstimate", "queue", "maxRetry", "ttlSecondsAfterFinished",
    "minSuccess", "networkTopology",
)  # fmt: skip
_FIXED_IN_TASKS: Final = (
    "template", "policies", "topologyPolicy", "maxRetry", "dependsOn", "partitionPolicy",
)  # fmt: skip
_KEEPS: Final = (
    "expected no change: of a job only minAvailable, priorityClassName and the tasks' replicas and minAvailable change"
)
_SAME_TASKS: Final = "expected the tasks that the job was created with, found others"


def _changed(review: Review) -> Iterator[Refusal]:
    old, new = review.before, review.new
    if old is None:
        return
    for key in _FIXED:
        if _differ(at(old, "spec", key), at(new, "spec", key)):
            yield forbidden(f"spec.{key}", _KEEPS)
    if _claims(old) != _claims(new):
        yield forbidden("spec.volumes", _KEEPS)
    before, after = (first_items(each, "spec", "tasks") for each in (old, new))
    if len(sequence(old, "spec", "tasks")) != len(sequence(new, "spec", "tasks")) or _names(before) != _names(after):
        yield forbidden("spec.tasks", _SAME_TASKS)
        return
    for index, (was, now) in enumerate(zip(before, after, strict=True)):
        for key in _FIXED_IN_TASKS:
            if _differ(was.get(key), now.get(key)):
                yield forbidden(f"spec.tasks[{index}].{key}", _KEEPS)


def _says() -> dict[str, str]:
    own = [
        cel.when(f"{_same('object.?spec', 'oldObject.?spec', key)}", "''", cel.says(f"spec.{key}", _KEEPS))
        for key in _FIXED
    ]
    claims, claims_before = (_claims_in_cel(f"{each}.?spec.?volumes.orValue([])") for each in ("object", "oldObject"))
    volumes = cel.when(f"{claims} != {claims_before}", cel.says("spec.volumes", _KEEPS))
    tasks, before = (f"{each}.?spec.?tasks.orValue([])" for each in ("object", "oldObject"))
    others = f"{tasks}.map(t, t.?name.orValue('')) != {before}.map(t, t.?name.orValue(''))"
    of_task = cel.any_of(
        *(
            cel.when(_same(f"{tasks}[i]", f"{before}[i]", key), "''", place("spec.tasks", "i", f".{key}: {_KEEPS}"))
            for key in _FIXED_IN_TASKS
        )
    )
    in_tasks = cel.first(f"{cel.places(tasks)}.map(i, {of_task})")
    sentences = {
        "change": cel.any_of(*own, volumes),
        "taskChange": cel.when(others, cel.says("spec.tasks", _SAME_TASKS), in_tasks),
    }
    return {name: cel.when("variables.updated", sentence) for name, sentence in sentences.items()}


def _same(now: str, was: str, key: str) -> str:
    return f"{now}.?{key} == {was}.?{key}"


def _claims(job: Json) -> list[list[Any]]:
    """The volumes of a job, without the names that the controller has written for claims."""
    volumes = first_items(job, "spec", "volumes")
    return [
        [each.get("mountPath"), each.get("volumeClaim"), "volumeClaim" in each or text(each, "volumeClaimName")]
        for each in volumes
    ]


def _claims_in_cel(volumes: str) -> str:
    claimed = "v.?volumeClaim.hasValue() ? dyn(true) : dyn(v.?volumeClaimName.orValue(''))"
    return f"{bounded(volumes)}.map(v, [dyn(v.?mountPath), dyn(v.?volumeClaim), {claimed}])"


def _names(tasks: list[Json]) -> list[str]:
    return [text(task, "name") for task in tasks[:MOST]]


def _differ(was: Any, now: Any) -> bool:
    return bool(was != now)


RULE: Final = Rule(refused=_changed, says=_says())
