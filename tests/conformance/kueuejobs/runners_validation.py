"""Runners of the suites about what may be created and changed: type and field of each error, in order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controller.jobs.framework.kind import Refusal
from controller.jobs.framework.topologyrequest import AskingPodSet, refusals, size_refusals
from controller.jobs.rules import batchjob, marks, pods, podspec, serving
from controller.jobs.rules.fields import forbidden, invalid
from tests.conformance.replay import Case, Difference, first_difference, runner


def errors_differ(wanted: Sequence[Mapping[str, str]] | None, found: Iterable[Refusal]) -> Difference | None:
    listed = [{"type": f"FieldValue{one.type}", "field": one.field} for one in found]
    return first_difference([{"type": one["type"], "field": one["field"]} for one in wanted or ()], listed, "errors")


def wanted_errors(case: Case) -> Any:
    return case.expect.get("wantErr") or case.expect.get("wantValidationErrs")


@runner("jobs-job-TestValidateCreate")
def job_created(case: Case) -> Difference | None:
    return errors_differ(wanted_errors(case), batchjob.created(case.input["job"], case.gates))


@runner("jobs-job-TestValidateUpdate")
def job_updated(case: Case) -> Difference | None:
    given = case.input
    return errors_differ(wanted_errors(case), batchjob.updated(given["oldJob"], given["newJob"], case.gates))


@runner("jobs-jobframework-TestValidateJobOnCreate")
def any_job_created(case: Case) -> Difference | None:
    found = marks.created(case.input["job"], case.input["gvk"]["Kind"], case.input["gvk"]["Group"], case.gates)
    return errors_differ(wanted_errors(case), found)


@runner("jobs-jobframework-TestValidateJobOnUpdate")
def any_job_updated(case: Case) -> Difference | None:
    given = case.input
    found = _marks_updated(case, given["oldJob"], given["newJob"], has_default_queue=given["nsHasDefaultQueue"])
    return errors_differ(wanted_errors(case), found)


def _marks_updated(
    case: Case, old: dict[str, Any], new: dict[str, Any], *, has_default_queue: bool = False
) -> list[Refusal]:
    return marks.updated(
        old,
        new,
        new["kind"],
        new["apiVersion"].rpartition("/")[0],
        case.gates,
        was_suspended=old["spec"]["suspend"],
        is_suspended=new["spec"]["suspend"],
        has_default_queue=has_default_queue,
    )


def _custom(failures: Sequence[Mapping[str, str]] | None) -> list[Refusal]:
    """What the kind's own rules refuse."""
    return [
        invalid(one["field"], "the kind's own") if one["type"] == "FieldValueInvalid" else forbidden("", "")
        for one in failures or ()
    ]


@runner("jobs-jobframework-TestValidateOnCreate")
def webhook_created(case: Case) -> Difference | None:
    given = case.input
    if given.get("customValidationError"):
        return first_difference(given["customValidationError"], case.expect["wantError"])
    found = marks.created(given["job"], given["job"]["kind"], "batch", case.gates)
    return errors_differ(case.expect["wantError"], [*found, *_custom(given.get("customValidationFailure"))])


@runner("jobs-jobframework-TestValidateOnUpdate")
def webhook_updated(case: Case) -> Difference | None:
    given = case.input["args"]
    if given.get("customValidationError"):
        return first_difference(given["customValidationError"], case.expect["wantError"])
    found = _marks_updated(case, given["oldObj"], given["newObj"])
    return errors_differ(case.expect["wantError"], [*found, *_custom(given.get("customValidationFailure"))])


@runner("jobs-jobframework-TestValidateImmutablePodSpec")
def pod_spec_changed(case: Case) -> Difference | None:
    return errors_differ(
        case.expect["wantErr"], podspec.changed(case.input["oldPodSpec"], case.input["newPodSpec"], "spec")
    )


@runner("jobs-jobframework-TestValidateSliceRequiredTopologyConstraintsAnnotation")
def topology_annotations(case: Case) -> Difference | None:
    found = refusals(_asking(case, 0), case.gates)
    return first_difference(case.expect["wantErrNum"], len(found), "errors")


@runner("jobs-jobframework-TestValidateSliceSizeAnnotationUpperBound")
def slice_sizes(case: Case) -> Difference | None:
    found = size_refusals(_asking(case, case.input["podSetCount"]))
    return first_difference(case.expect["wantErrNum"], len(found), "errors")


def _asking(case: Case, count: int) -> AskingPodSet:
    return AskingPodSet(name="", path="metadata.annotations", count=count, annotations=case.input["annotations"])


@runner("jobs-pod-TestValidateCreate")
def pod_created(case: Case) -> Difference | None:
    pod = case.input["pod"]
    return errors_differ(case.expect["wantErr"], pods.created(pod, case.gates)) or _warned(case, pod)


@runner("jobs-pod-TestValidateUpdate")
def pod_updated(case: Case) -> Difference | None:
    given = case.input
    found = pods.updated(given["oldPod"], given["newPod"], case.gates)
    return errors_differ(case.expect["wantErr"], found) or _warned(case, given["newPod"])


def _warned(case: Case, pod: dict[str, Any]) -> Difference | None:
    """Every owner in these cases is of a kind that is queued as a whole."""
    warned = pods.warnings(pod, is_job_kind=True)
    return first_difference(len(case.expect["wantWarns"] or ()), len(warned), "warnings")


@runner("jobs-deployment-TestValidateCreate")
def deployment_created(case: Case) -> Difference | None:
    return errors_differ(wanted_errors(case), serving.deployment_created(case.input["deployment"], case.gates))


@runner("jobs-deployment-TestValidateUpdate")
def deployment_updated(case: Case) -> Difference | None:
    given = case.input
    found = serving.deployment_updated(given["oldDeployment"], given["newDeployment"], case.gates)
    return errors_differ(wanted_errors(case), found)


@runner("jobs-statefulset-TestValidateCreate")
def statefulset_created(case: Case) -> Difference | None:
    return errors_differ(wanted_errors(case), serving.statefulset_created(case.input["sts"], case.gates))


@runner("jobs-statefulset-TestValidateUpdate")
def statefulset_updated(case: Case) -> Difference | None:
    """Owners in these cases are of known kinds and queued; the one Workload is the StatefulSet's own."""
    given = case.input
    owned = bool(given["newObj"]["metadata"].get("ownerReferences"))
    there = [*(given.get("objs") or ()), *(one.get("object", one) for one in given.get("apiObjects") or ())]
    workload = next((one for one in there if one["kind"] == "Workload"), None)
    found = serving.statefulset_updated(given["oldObj"], given["newObj"], case.gates, is_owned=owned, workload=workload)
    return errors_differ(wanted_errors(case), found)


@runner("jobs-leaderworkerset-TestValidateCreate")
def leaderworkerset_created(case: Case) -> Difference | None:
    return errors_differ(wanted_errors(case), serving.leaderworkerset_created(case.input["lws"], case.gates))


@runner("jobs-leaderworkerset-TestValidateUpdate")
def leaderworkerset_updated(case: Case) -> Difference | None:
    given = case.input
    found = serving.leaderworkerset_updated(given["oldObj"], given["newObj"], case.gates)
    return errors_differ(wanted_errors(case), found)
