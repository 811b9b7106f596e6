"""Runners of the suites about kinds that serve, and about kinds that need others."""

from collections.abc import Mapping
from typing import Any, Final

from controller.cluster.config.settings import KNOWN_FRAMEWORKS, implied
from controller.cluster.webhooks import serving
from controller.jobs.framework.marks import NestingTooDeepError, managed_ancestor
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import JobSettings
from controller.jobs.serving.table import STAMPED_KINDS
from controller.objects.meta import OwnerReference
from tests.conformance.kueuejobs.runners_defaults import applied
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.kueuejobs.world import KINDS
from tests.conformance.replay import Case, Difference, first_difference, runner
from tests.support.controller.jobmodel import cluster_objects

_GIVEN: Final = ("deployment", "statefulset", "lws")


def defaulted(case: Case) -> Difference | None:
    """As our webhook leaves it, or the policies that do the same."""
    job = next(case.input[key] for key in _GIVEN if case.input.get(key) is not None)
    kind = next(kind for kind in STAMPED_KINDS if kind.kind == job["kind"])
    operations = serving.patch(
        kind,
        job,
        has_default_queue=lambda: bool(case.input.get("defaultLqExist")),
        manage_without_queue_name=bool(case.input.get("manageJobsWithoutQueueName")),
        gates=case.gates,
    )
    return first_difference(filled(case.expect["want"]), filled(applied(job, operations)))


for _name in ("deployment", "statefulset", "leaderworkerset"):
    runner(f"jobs-{_name}-TestDefault")(defaulted)


@runner("jobs-jobframework-TestImplicitlyEnabledIntegrations")
def implied_kinds(case: Case) -> Difference | None:
    found = implied(case.input.get("enabled") or (), case.input.get("integrationsImplicit") or {})
    return first_difference(sorted(case.expect["wantImplicit"] or ()), sorted(found))


@runner("jobs-jobframework-TestEnabledIntegrationsDependencies")
def missing_kinds(case: Case) -> Difference | None:
    """A name that is not known is refused; what a known kind needs is on with it."""
    given: Mapping[str, Any] = case.input.get("integrationsDependencies") or {}
    known = {*KNOWN_FRAMEWORKS, *given}
    enabled = set(case.input["enabled"])
    refused = not (enabled | implied(enabled, given)) <= known
    return first_difference(bool(case.expect["wantError"]), refused, "error")


# -- owners

_BETWEEN = frozenset({("apps/v1", "ReplicaSet")})


@runner("jobs-jobframework-TestFindAncestorJobManagedByKueue")
def ancestor(case: Case) -> Difference | None:
    given = case.input
    known = {(f"{kind.group}/{kind.version}", kind.kind) for kind in KINDS}
    known |= {(f"{kind.group}/{kind.version}", kind.kind) for kind in STAMPED_KINDS}
    for name in given.get("externalFrameworks") or ():
        external, version, group = name.split(".", 2)
        known.add((f"{group}/{version}", external))
    objects = [*(given.get("ancestors") or ()), given["job"]]

    def owner(namespace: str, reference: OwnerReference) -> Json | None:
        place = (reference.api_version, reference.kind)
        for each in objects if place in known | _BETWEEN else ():
            meta = each["metadata"]
            where = (each["apiVersion"], each["kind"], meta["name"], meta.get("namespace", ""))
            if where == (*place, reference.name, namespace) and meta.get("uid", "") == reference.uid:
                return dict(each)
        return None

    cluster = cluster_objects(owner=owner, is_job_kind=lambda version, kind: (version, kind) in known)
    settings = JobSettings(manage_jobs_without_queue_name=given["manageJobsWithoutQueueName"], gates=case.gates)
    wanted = case.expect["wantManaged"] or {"metadata": {}}
    try:
        found = managed_ancestor(given["job"], settings, cluster)
    except NestingTooDeepError:
        return first_difference(bool(case.expect["wantErr"]), True, "error")
    return first_difference(bool(case.expect["wantErr"]), False, "error") or first_difference(
        wanted["metadata"].get("uid"), found, "ancestor"
    )
