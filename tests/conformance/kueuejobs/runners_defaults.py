"""Runners of the suites about what a job gets when it is created: its queue, its suspension, what its kind needs."""

import json
from typing import Any, Final

from controller.cluster.webhooks.jobs import patch
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.names import QUEUE_NAME
from controller.jobs.framework.raw import Json, at, labels
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.kueuejobs.world import KINDS
from tests.conformance.replay import Case, Difference, first_difference, runner

_GIVEN: Final = ("job", "jobSet", "mpiJob", "trainJob", "rayJob", "oldJob", "sparkApp")
_WANTED: Final = ("want", "wantTrainJob", "wantJob", "wantSparkApp")


def applied(job: Json, operations: list[Json]) -> Json:
    """The ``add`` operations of a JSON patch (RFC 6902)."""
    result: Json = json.loads(json.dumps(job))
    for operation in operations:
        *above, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
        target: Any = result
        for key in above:
            target = target[key]
        target[last] = operation["value"]
    return result


def defaulted(case: Case, kind: JobKind, job: Json) -> Json:
    """As our webhook leaves it, or the policies that do the same; what the kind needs beside is the kind's."""
    given = case.input
    has_queue = bool(given.get("defaultLqExist") or given.get("withDefaultLocalQueue"))
    managed = bool(given.get("manageJobsWithoutQueueName") or given.get("manageAll"))
    operations = patch(
        job,
        has_default_queue=lambda: has_queue,
        manage_without_queue_name=managed,
        suspend_path=kind.suspend_path,
    )
    return kind.defaulted(applied(job, operations), case.gates)


def _kind(case: Case) -> JobKind:
    name = case.suite.split("-")[1]
    return next(kind for kind in KINDS if kind.kind.lower() == (name if name != "jobframework" else "job"))


def run(case: Case) -> Difference | None:
    kind = _kind(case)
    job = next(case.input[key] for key in _GIVEN if case.input.get(key) is not None)
    found = defaulted(case, kind, job)
    wanted = next((case.expect[key] for key in _WANTED if case.expect.get(key) is not None), None)
    if wanted is not None:
        return first_difference(filled(wanted), filled(found))
    return first_difference(case.expect.get("wantManagedBy"), at(found, *_managed_by(kind)), "managedBy")


def _managed_by(kind: JobKind) -> tuple[str, ...]:
    return kind.managed_by_path or ("spec", "managedBy")


for _name in ("job", "jobset", "mpijob", "rayjob", "sparkapplication", "trainjob"):
    runner(f"jobs-{_name}-TestDefault")(run)
runner("jobs-raycluster-TestValidateDefault")(run)
runner("jobs-jobframework-TestBaseWebhookDefault")(run)


@runner("jobs-jobframework-TestApplyDefaultLocalQueue")
def default_queue(case: Case) -> Difference | None:
    """The selector of managed namespaces is the webhook's own; every namespace has a default queue."""
    job = case.input["job"]
    managed = job["metadata"]["namespace"] != "unmanaged-ns"
    found = applied(job, patch(job, has_default_queue=lambda: managed, manage_without_queue_name=False))
    return first_difference(case.expect["wantQueueLabel"], labels(found).get(QUEUE_NAME, ""))
