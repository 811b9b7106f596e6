"""A Workload is counted under the name of its job's kind, and no user of the API can make series of names."""

import msgspec
import pytest

from controller.cluster.metrics.workloadkinds import OTHER, job_kind
from controller.jobs.framework.podview import SUSPENDING_PARENT
from controller.jobs.kinds.table import JOB_KINDS
from controller.jobs.serving.table import SERVING_KINDS
from controller.objects.core import PodTemplateSpec
from controller.objects.meta import ObjectMeta, OwnerReference
from controller.objects.workload import PodSet, Workload, WorkloadSpec


def of_kind(given: Workload, *kinds: str, controller: bool = True) -> Workload:
    owners = tuple(OwnerReference(kind=kind, name=kind.lower(), uid=kind, controller=controller) for kind in kinds)
    metadata = msgspec.structs.replace(given.metadata, owner_references=owners)
    return msgspec.structs.replace(given, metadata=metadata)


def of_pods(parent: str = "") -> Workload:
    metadata = ObjectMeta(annotations={SUSPENDING_PARENT: parent} if parent else {})
    spec = WorkloadSpec(pod_sets=(PodSet(name="main", template=PodTemplateSpec(metadata=metadata)),))
    return of_kind(Workload(spec=spec), "Pod", "Pod", controller=False)


@pytest.mark.parametrize("kind", [*(kind.kind for kind in JOB_KINDS), *(kind.kind for kind in SERVING_KINDS)])
def test_every_kind_has_its_own_name(kind: str) -> None:
    assert job_kind(of_kind(Workload(), kind)) == kind


def test_pods_are_their_own_kind_but_for_those_of_a_deployment() -> None:
    assert job_kind(of_pods()) == "Pod"
    assert job_kind(of_pods("deployment")) == "Deployment"
    assert job_kind(of_pods("of-somebody-else")) == "Pod"


def test_what_no_known_kind_owns_shares_one_series() -> None:
    assert job_kind(Workload()) == OTHER
    assert job_kind(of_kind(Workload(), "Sweep")) == OTHER
    assert job_kind(of_kind(Workload(), "Sweep"), ("Sweep",)) == "Sweep"
