"""The accounts' rights against what they did in all tests before, by the audit logs of their API servers."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

import pytest

from hack.cluster.programs import binaries
from tests.support.e2e import rights
from tests.support.e2e.queuelab import NAMESPACE
from tests.support.e2e.rights import Grant, Logs, Right, Use

pytestmark = [pytest.mark.e2e, pytest.mark.alone("it judges what all others did: it comes last")]

CONTROLLER, AGENT = rights.ACCOUNTS
UNUSED: Final[Mapping[str, str]] = {
    f"{CONTROLLER}: update */finalizers*": "the API server asks for it, where it enforces that an owner's deletion "
    "may be blocked only by those who may change the owner; there is no request of its own",
    f"{AGENT}: create gpunodes.tessera.dev": "an apply that makes it needs both; the log has the patch",
    f"{AGENT}: [lw]* gpunodes.tessera.dev": "an agent that may reset GPUs watches its own",
    f"{AGENT}: associated-node:patch resourceclaims/driver.resource.k8s.io": "the API server asks for it beside the "
    "patch of a claim's status.devices; there is no request of its own",
    f"{AGENT}: delete resourceslices.resource.k8s.io": "a slice that is needed no more: a GPU leaves mode dra",
    "*: patch events.events.k8s.io": "an Event that comes again within minutes is counted up",
    f"{CONTROLLER}: delete workloads.kueue.x-k8s.io": "most workloads go with their jobs; else after a race, and "
    "where a site sets objectRetentionPolicies",
    f"{CONTROLLER}: patch jobs/status.batch": "up to Kubernetes 1.35 it unsets the start time of a Job that "
    "is suspended; newer ones, as here, do that themselves",
    f"{CONTROLLER}: patch admissionchecks.kueue.x-k8s.io": "the finalizer of a check that a ClusterQueue names",
    f"{CONTROLLER}: patch cohorts/status.kueue.x-k8s.io": "the share of a cohort that is an object, under fair sharing",
    f"{CONTROLLER}: update secrets": "certificates are renewed after months",
    f"{CONTROLLER}: [lw]* configmaps": "Kubernetes' role to read the front proxy's authority has list and watch too",
    f"{CONTROLLER}: * jobkinds*.tessera.dev": "written where a site declares a kind of its own",
    f"{CONTROLLER}: * leaderworkersets.leaderworkerset.x-k8s.io": "read where LeaderWorkerSet is installed",
    f"{CONTROLLER}: * queues*.scheduling.*": "where Volcano's or KAI's Queues are installed",
    f"{CONTROLLER}: * *podgroups*.scheduling.*": "where PodGroups of Volcano, KAI or Kubernetes itself are served",
    f"{CONTROLLER}: * *.janitor.dgxc.nvidia.com": "where the janitor's kinds of NVSentinel are installed",
    f"{CONTROLLER}: create pods/eviction": "a pod whose GPU has failed, or is drained for its repair",
    f"{CONTROLLER}: [gp]* nodes*": "a node whose repair wants a reboot, or whose agent is away",
    f"{CONTROLLER}: get *.apps": "an owner that is gone is looked for once more before its workloads are given up",
}
"""Why a right is there that no test needs: by patterns of rights."""

GRANTED_ELSEWHERE: Final[Mapping[str, str]] = {
    f"{CONTROLLER}: create selfsubjectaccessreviews.authorization.k8s.io": "by Kubernetes' role system:basic-user "
    "every account may ask what it may do",
    f"{CONTROLLER}: * sweeps*.lab.example": "a kind of a site's own: the role that comes with its JobKind",
}
"""Rights that the chart does not grant: by patterns, and who does."""


@pytest.fixture(scope="module")
def granted() -> list[Grant]:
    binaries.build("helm")
    return rights.granted()


def test_every_verb_that_was_used_is_granted(audit: Logs, granted: list[Grant]) -> None:
    def covered(use: Use) -> bool:
        return any(grant.covers(use) for grant in granted)

    def granted_elsewhere(use: Use) -> bool:
        return any(fnmatchcase(str(use.right), pattern) for pattern in GRANTED_ELSEWHERE)

    beyond = [use for use in audit.used() if not covered(use) and not granted_elsewhere(use)]
    wrong = {f"{use.right} ({use.namespace}/{use.name})" for use in beyond}
    assert not wrong, "\n".join(sorted(wrong))


def test_a_verb_that_is_granted_and_was_never_used_has_its_reason(audit: Logs, granted: list[Grant]) -> None:
    """Of a part of the tests only the reasons are looked at."""
    given = {str(grant.right) for grant in granted}
    stale = [pattern for pattern in UNUSED if not any(fnmatchcase(right, pattern) for right in given)]
    assert not stale, "these rights are not granted any more"
    if audit.of_all_tests:
        idle = given - {str(use.right) for use in audit.used()}
        wrong = [right for right in idle if not any(fnmatchcase(right, pattern) for pattern in UNUSED)]
        assert not wrong, "\n".join(sorted(wrong))


def test_a_line_of_the_log_is_a_use_if_an_account_asked_for_an_object() -> None:
    def line(user: str, **what: str) -> str:
        return json.dumps({"user": {"username": user}, "verb": "patch", "objectRef": what})

    ours = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER}"
    jobs = {"resource": "jobs", "apiGroup": "batch", "namespace": "team", "name": "a"}
    discovery = json.dumps({"user": {"username": ours}, "verb": "get", "requestURI": "/apis"})
    lines = [line(ours, **jobs), line(ours, **jobs, subresource="status"), line("admin", **jobs), discovery, '{"user']
    assert list(rights.read(lines)) == [
        Use(Right(CONTROLLER, "patch", "batch", resource), "team", "a") for resource in ("jobs", "jobs/status")
    ]


def test_a_grant_is_bound_to_its_names_and_its_namespace() -> None:
    right = Right(AGENT, "get", "", "secrets")
    grant = Grant(right, "here", frozenset({"mine"}))
    assert grant.covers(Use(right, "here", "mine"))
    assert not grant.covers(Use(right, "here", "other"))
    assert not grant.covers(Use(right, "there", "mine"))


def test_rights_to_foreign_kinds_are_those_of_the_aggregated_role(granted: list[Grant]) -> None:
    for verb in ("get", "list", "watch", "patch"):
        assert Right(CONTROLLER, verb, "jobset.x-k8s.io", "jobsets") in {grant.right for grant in granted}
