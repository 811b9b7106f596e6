"""What reconcilers know of other objects is read from the watches' copies."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.cluster.watching.feeds import Feeds
from controller.jobs.kinds.batchjob import BatchJob
from controller.objects.meta import OwnerReference
from controller.reconcile.jobshell.clusterobjects import cluster_objects
from controller.reconcile.jobshell.watched import resource_of
from kube.reading.entries import ObjectKey

KIND = BatchJob()
RESOURCE = resource_of(KIND)


def ended(job: dict[str, Any] | None, *, uid: str = "u", kind: str = "Job") -> bool:
    """Whether the job that was called ``j`` has, by an owner reference with this uid."""
    entry = None if job is None else SimpleNamespace(uid="u", object=SimpleNamespace(json=job))
    feeds: Any = {RESOURCE: {ObjectKey("ns", "j"): entry}}
    known = cluster_objects(cast(Feeds, feeds), {RESOURCE: KIND}, lambda _uid: False)
    return known.has_ended("ns", OwnerReference(api_version="batch/v1", kind=kind, name="j", uid=uid))


def test_a_job_has_ended_when_its_kind_says_so() -> None:
    complete = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert ended(complete)
    assert not ended({"status": {}})
    assert not ended(complete, uid="of another"), "a new job of the name"
    assert not ended(complete, kind="Other")
    assert not ended(None)


@pytest.mark.parametrize("status", [7, {"conditions": 7}, {"conditions": [7]}])
def test_a_status_that_cannot_be_read_ends_no_job(status: Any) -> None:
    assert not ended({"status": status})
