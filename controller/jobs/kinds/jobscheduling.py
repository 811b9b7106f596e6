"""``spec.scheduling`` of a ``batch/v1`` Job: how many of its pods start together, and in one domain of which level.

Source: Kubernetes 1.37, the types of ``batch/v1``, gate WorkloadWithJob; a gate that is off drops the field. The
Job controller makes a PodGroup of it, which kube-scheduler starts.
"""

from collections.abc import Mapping
from typing import Final

from controller.jobs.framework.names import MIN_PARALLELISM, is_label_key
from controller.jobs.framework.podsets import UNCONSTRAINED
from controller.jobs.framework.raw import JobError, Json, at, integer, mapping, sequence, shown, strings
from controller.jobs.framework.topologyrequest import PREFERRED, REQUIRED
from controller.objects.decode import DecodeError, decode
from controller.objects.nativegroups import GroupSpec, problems
from inventory.api.names import GROUP_CLAIMS

_WHERE: Final = "spec.scheduling"
_OF_PARENT: Final = "scheduling.k8s.io/group-template-name"
"""An annotation of a Job whose parent's controller has made a Workload for it (KEP-5547)."""
_BASIC: Final[Json] = {"schedulingPolicy": {"basic": {}}}


def scheduling_of(job: Json) -> GroupSpec | None:
    """The field, with the policy basic where it has none; None for a Job without it. Raises JobError."""
    if at(job, "spec", "scheduling") is None:
        return None
    try:
        spec = decode({**_BASIC, **mapping(job, "spec", "scheduling")}, GroupSpec)
    except DecodeError as error:
        raise JobError(f"{_WHERE}: {error}") from None
    for problem in problems(spec, of_job=True):
        raise JobError(f"{_WHERE}.{problem}")
    if spec.level and not is_label_key(spec.level):
        where = f"{_WHERE}.schedulingConstraints.topology[0].key"
        raise JobError(f"{where}: expected a label of nodes, found {shown(spec.level)}")
    return spec


def with_group_claims(job: Json, template: Json) -> Json:
    """The template with the names of its claims of which the Job controller makes one for the Job's PodGroup. Raises
    JobError.
    """
    spec = scheduling_of(job)
    asked = {(each.name, each.resource_claim_template_name) for each in (spec.resource_claims if spec else ())}
    named = [
        each["name"]
        for each in sequence(template, "spec", "resourceClaims")
        if isinstance(each, dict) and (each.get("name"), each.get("resourceClaimTemplateName")) in asked
    ]
    if not named:
        return template
    metadata = mapping(template, "metadata")
    notes = {**strings(template, "metadata", "annotations"), GROUP_CLAIMS: ",".join(sorted(named))}
    return {**template, "metadata": {**metadata, "annotations": notes}}


def is_grouped(job: Json) -> bool:
    """Whether the Job controller makes a PodGroup for the Job: by the field, or for its parent."""
    return at(job, "spec", "scheduling") is not None or _OF_PARENT in strings(job, "metadata", "annotations")


def native_minimum(job: Json, pods: int) -> int | None:
    """The fewest pods with which the Job may start, out of its ``pods``; None if it starts with all of them.

    It is a partial admission, which lowers the parallelism: kube-scheduler starts no pod of a group while one of it is
    behind a gate, so no pod may wait above the minimum. The Job grows later, see ``JobKind.full_counts``. A Job that
    asks for one domain starts with all its pods. Raises JobError.
    """
    spec = scheduling_of(job)
    gang = None if spec is None else spec.scheduling_policy.gang
    if spec is None or gang is None or gang.min_count is None:
        return None
    parallelism = integer(job, "spec", "parallelism", default=1)
    if gang.min_count > parallelism:
        where = f"{_WHERE}.schedulingPolicy.gang.minCount"
        raise JobError(f"{where}: expected at most the parallelism, {parallelism}, found {gang.min_count}")
    return None if spec.level or gang.min_count >= pods else gang.min_count


def gang_minimum(job: Json, pods: int) -> int | None:
    """``native_minimum`` of a Job that may have been wrong since it was queued: None then."""
    try:
        return native_minimum(job, pods)
    except JobError:
        return None


def check_minimum(job: Json, minimum: int) -> None:
    """Checks the fewest pods of a partial admission: the API server refuses a parallelism below ``minCount``. Raises
    JobError.
    """
    spec = scheduling_of(job)
    gang = None if spec is None else spec.scheduling_policy.gang
    if gang is not None and (gang.min_count or 0) > minimum:
        least = f"{_WHERE}.schedulingPolicy.gang.minCount, {gang.min_count}"
        raise JobError(f"metadata.annotations[{MIN_PARALLELISM}]: expected at least {least}, found {minimum}")


def placed_by(job: Json, said: Mapping[str, str]) -> Mapping[str, str]:
    """The annotations of the Job's template by which its pods are placed, with the level of ``spec.scheduling`` if they
    name none. Raises JobError.
    """
    spec = scheduling_of(job)
    if spec is None or not spec.level or not {REQUIRED, PREFERRED, UNCONSTRAINED}.isdisjoint(said):
        return said
    return {**said, REQUIRED: spec.level}
