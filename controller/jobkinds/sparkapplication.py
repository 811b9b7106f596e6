"""``sparkoperator.k8s.io/v1beta2`` SparkApplication: pod sets ``driver`` and ``executor``.

Its roles are not pod templates: a start writes labels, annotations, node selector and tolerations into fields of the
role, and the gates into the role's template. ``spec.nodeSelector`` excludes those of the roles: it goes into both.
"""

from collections.abc import Iterator
from typing import Any, Final

from controller.jobframework.kind import Outcome, Refusal
from controller.jobframework.marks import is_elastic
from controller.jobframework.podsets import SeenWorkload, template_patch
from controller.jobframework.raw import Json, at, flag, integer, mapping, sequence, strings, text
from controller.jobframework.templated import Slot, TemplatedKind, replaced, selector
from controller.jobkinds.sparkpods import ROLES, least_template, pod

_DRIVER, _EXECUTOR = ROLES
_INSTANCES: Final = ("spec", "executor", "instances")
_DEFAULT_INSTANCES: Final = 1
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
_WITHOUT_PODS: Final = ("", "SUSPENDED", "COMPLETED", "FAILED", "SUBMISSION_FAILED")
_READY: Final = ("RUNNING", "COMPLETED")


class SparkApplication(TemplatedKind):
    framework = "sparkoperator.k8s.io/sparkapplication"
    group = "sparkoperator.k8s.io"
    version = "v1beta2"
    kind = "SparkApplication"
    plural = "sparkapplications"
    only_queued_are_judged = True

    def slots(self, job: Json) -> tuple[Slot, ...]:
        counts = {_DRIVER: 1, _EXECUTOR: _executors(job)}
        return tuple(
            Slot(
                name=role,
                path=("spec", role),
                count=counts[role],
                source=pod(mapping(job, "spec", role), job, role),
                annotations_field=f"spec.{role}.annotations",
            )
            for role in ROLES
        )

    def placed(self, job: Json, wanted: dict[str, Json]) -> Json:
        whole = job
        for role in ROLES:
            now = mapping(job, "spec", role)
            if template_patch(pod(now, job, role), wanted[role]) or at(job, "spec", "nodeSelector") is not None:
                whole = replaced(whole, ("spec", role), _role(now, wanted[role], role))
        if whole is job:
            return job
        spec = {key: value for key, value in whole["spec"].items() if key != "nodeSelector"}
        # The number that was charged, whatever the operator's default is.
        executor = {**spec["executor"], "instances": _executors(job)}
        return {**whole, "spec": {**spec, "executor": executor}}

    def restored(self, job: Json, workload: SeenWorkload) -> Json:
        asked = {pod_set.name: pod_set.count for pod_set in workload.typed.spec.pod_sets}
        count = asked.get(_EXECUTOR, _executors(job))
        back = super().restored(job, workload)
        return back if _executors(back) == count else replaced(back, _INSTANCES, count)

    def pod_selector(self, job: Json) -> str:
        return selector("sparkoperator.k8s.io/app-name", job)

    def finished(self, job: Json) -> Outcome | None:
        """A submission that failed is tried again where the restart policy says so; FAILED is the end."""
        state, message = _state(job), text(job, "status", "applicationState", "errorMessage")
        retried = text(job, "spec", "restartPolicy", "type") == "OnFailure"
        if state == "COMPLETED":
            return Outcome(reason="Succeeded", message=message or "SparkApplication finished successfully")
        if state == "FAILED" or (state == "SUBMISSION_FAILED" and not retried):
            return Outcome(reason="Failed", message=message or "SparkApplication failed")
        return None

    def pods_ready(self, job: Json) -> bool:
        states = mapping(job, "status", "executorState").values()
        return _state(job) == "RUNNING" and sum(state in _READY for state in states) >= _executors(job)

    def is_active(self, job: Json) -> bool:
        return _state(job) not in _WITHOUT_PODS

    def says_suspended(self, _job: Json) -> bool:
        """The operator writes each state under the resourceVersion that it saw: none is older than the suspension."""
        return True

    def validate(self, job: Json) -> tuple[Refusal, ...]:
        return tuple(_refusals(job))

    def validate_update(self, old: Json, new: Json) -> tuple[Refusal, ...]:
        """The operator submits a running application anew when its specification changes, at once."""
        if self.is_suspended(old) or self.is_suspended(new):
            return ()
        changed = [role for role in ROLES if _charged(old, role) != _charged(new, role)]
        sentence = "a change while it runs starts pods that are not charged: expected none, or spec.suspend true"
        return tuple(Refusal(type="Forbidden", field=f"spec.{role}", sentence=sentence) for role in changed)


def _charged(job: Json, role: str) -> Any:
    spec = mapping(pod(mapping(job, "spec", role), job, role), "spec")
    return sequence(spec, "containers"), sequence(spec, "initContainers"), role == _EXECUTOR and _executors(job)


def _refusals(job: Json) -> Iterator[Refusal]:
    if text(job, "spec", "mode") != "cluster":
        sentence = f"a queued application runs its driver in the cluster: expected 'cluster', found {_mode(job)!r}"
        yield Refusal(type="Invalid", field="spec.mode", sentence=sentence)
    for where, on in (
        ("spec.dynamicAllocation.enabled", flag(job, "spec", "dynamicAllocation", "enabled")),
        (f"spec.sparkConf[{_DYNAMIC}]", strings(job, "spec", "sparkConf").get(_DYNAMIC, "").lower() == "true"),
    ):
        if on and not is_elastic(job):
            sentence = "a queued application keeps the number of its executors: expected false, found true"
            yield Refusal(type="Invalid", field=where, sentence=sentence)
    if text(job, "spec", "restartPolicy", "type") == "Always":
        sentence = "a queued application comes to an end: expected 'Never' or 'OnFailure', found 'Always'"
        yield Refusal(type="Invalid", field="spec.restartPolicy.type", sentence=sentence)


def _role(now: Json, wanted: Json, name: str) -> Json:
    """The role with the placement of the template ``wanted``: in its own fields what its template does not have."""
    gates = sequence(wanted, "spec", "schedulingGates")
    template = least_template(now, name)
    spec = {key: value for key, value in template["spec"].items() if key != "schedulingGates"}
    tolerated = sequence(spec, "tolerations")
    written: Json = {
        "tolerations": [each for each in sequence(wanted, "spec", "tolerations") if each not in tolerated],
        "template": {**template, "spec": {**spec, **({"schedulingGates": gates} if gates else {})}},
    }
    for key, part in (("labels", "metadata"), ("annotations", "metadata"), ("nodeSelector", "spec")):
        have = strings(template, part, key)
        written[key] = {name: value for name, value in strings(wanted, part, key).items() if have.get(name) != value}
    rest = {key: value for key, value in now.items() if key not in written}
    return {**rest, **{key: value for key, value in written.items() if value}}


def _executors(job: Json) -> int:
    if at(job, *_INSTANCES) is not None:
        return integer(job, *_INSTANCES, default=0)
    written = strings(job, "spec", "sparkConf").get("spark.executor.instances", "")
    return int(written) if written.isascii() and written.isdecimal() else _DEFAULT_INSTANCES


def _mode(job: Json) -> str:
    return text(job, "spec", "mode")


def _state(job: Json) -> str:
    return text(job, "status", "applicationState", "state")
