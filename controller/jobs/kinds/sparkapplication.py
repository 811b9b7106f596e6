"""``sparkoperator.k8s.io/v1beta2`` SparkApplication: pod sets ``driver`` and ``executor``.

Its roles are not pod templates: a start writes labels, annotations, node selector and tolerations into fields of the
role, and the gates into the role's template. ``spec.nodeSelector`` excludes the selectors of roles: it is merged into
both.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from controller.jobs.framework.kind import Outcome, Refusal, Review, Rule
from controller.jobs.framework.marks import is_elastic
from controller.jobs.framework.podsets import SeenWorkload, template_patch
from controller.jobs.framework.raw import Json, at, flag, integer, mapping, sequence, strings, text
from controller.jobs.framework.templated import Slot, TemplatedKind, replaced, selector
from controller.jobs.kinds.sparkpods import ROLES, least_template, pod
from controller.jobs.rules import cel
from controller.jobs.rules.topology import pod_set

_DRIVER, _EXECUTOR = ROLES
_INSTANCES: Final = ("spec", "executor", "instances")
_DEFAULT_INSTANCES: Final = 1
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
_WITHOUT_PODS: Final = ("", "SUSPENDED", "COMPLETED", "FAILED", "SUBMISSION_FAILED")
_READY: Final = ("RUNNING", "COMPLETED")
_MODE, _RESTART, _ALLOCATED = "spec.mode", "spec.restartPolicy.type", "spec.dynamicAllocation.enabled"
_CONFIGURED: Final = f"spec.sparkConf[{_DYNAMIC}]"
_IN_THE_CLUSTER: Final = "a queued application runs its driver in the cluster: expected 'cluster'"
_KEEPS_EXECUTORS: Final = "a queued application keeps the number of its executors: expected false, found true"
_COMES_TO_AN_END: Final = "a queued application comes to an end: expected 'Never' or 'OnFailure', found 'Always'"
_ALWAYS: Final = f"{cel.field('object', 'spec', 'restartPolicy', 'type')}.orValue('') == 'Always'"
_SPARK_CONF: Final = f"{cel.field('object', 'spec', 'sparkConf')}.orValue({{}})"
_WRITTEN: Final = cel.key(_SPARK_CONF, "spark.executor.instances")
_COUNTED: Final = f"{_WRITTEN}.matches('^[0-9]{{1,9}}$') ? int({_WRITTEN}) : {_DEFAULT_INSTANCES}"
_EXECUTORS: Final = f"{cel.field('object', *_INSTANCES)}.orValue({_COUNTED})"


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
        # The patch writes the number that was charged, whatever the operator's default is.
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
        """How the application ended. A failed submission is retried if the restart policy says so; FAILED is the
        end.
        """
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
        """Always true: the operator writes each state under the resourceVersion that it saw, so none is older than the
        suspension.
        """
        return True

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The kind's rules. A change is checked without CEL: requests follow from amounts of memory as Java writes
        them.
        """
        return (
            Rule(refused=_client, says={"mode": _client_says()}),
            Rule(refused=_dynamic, says=_dynamic_says()),
            Rule(refused=_endless, says={"restart": cel.when(_ALWAYS, cel.says(_RESTART, _COMES_TO_AN_END))}),
            Rule(refused=self._changed),
        )

    def _changed(self, review: Review) -> Iterator[Refusal]:
        """Refusals of a change to a running application: the operator would submit it again at once."""
        old, new = review.before, review.new
        if old is None or self.is_suspended(old) or self.is_suspended(new):
            return
        sentence = "a change while it runs starts pods that are not charged: expected none, or spec.suspend true"
        for role in ROLES:
            if _charged(old, role) != _charged(new, role):
                yield Refusal(type="Forbidden", field=f"spec.{role}", sentence=sentence)

    @cached_property
    def pod_sets_in_cel(self) -> str:
        """The pod sets in CEL. Templates of roles have the roles' own annotations."""
        pod_sets = []
        for role, count in zip(ROLES, ("1", _EXECUTORS), strict=True):
            of_role = cel.field("object", "spec", role)
            own, base = f"{of_role}.?annotations", cel.field(of_role, "template", "metadata", "annotations")
            path = cel.quoted(f"spec.{role}.annotations")
            pod_sets.append(pod_set(name=cel.quoted(role), path=path, count=count, annotations=f"{own}.or({base})"))
        return f"[{', '.join(pod_sets)}]"


def _charged(job: Json, role: str) -> Any:
    spec = mapping(pod(mapping(job, "spec", role), job, role), "spec")
    return sequence(spec, "containers"), sequence(spec, "initContainers"), role == _EXECUTOR and _executors(job)


def _client(review: Review) -> Iterator[Refusal]:
    mode = text(review.new, "spec", "mode")
    if mode != "cluster":
        yield Refusal(type="Invalid", field=_MODE, sentence=f"{_IN_THE_CLUSTER}, found {mode!r}")


def _client_says() -> str:
    mode = f"{cel.field('object', 'spec', 'mode')}.orValue('')"
    return cel.when(
        f"{mode} != 'cluster'", cel.text(cel.quoted(f"{_MODE}: {_IN_THE_CLUSTER}, found "), cel.shown(mode))
    )


def _dynamic(review: Review) -> Iterator[Refusal]:
    job = review.new
    for where, on in (
        (_ALLOCATED, flag(job, "spec", "dynamicAllocation", "enabled")),
        (_CONFIGURED, strings(job, "spec", "sparkConf").get(_DYNAMIC, "").lower() == "true"),
    ):
        if on and not (is_elastic(job) and review.gates.on("ElasticJobsViaWorkloadSlices")):
            yield Refusal(type="Invalid", field=where, sentence=_KEEPS_EXECUTORS)


def _dynamic_says() -> dict[str, str]:
    on = f"{cel.field('object', 'spec', 'dynamicAllocation', 'enabled')}.orValue(false)"
    inelastic = "!(variables.elastic && variables.gates.ElasticJobsViaWorkloadSlices)"
    configured = f"{cel.key(_SPARK_CONF, _DYNAMIC)}.lowerAscii() == 'true'"
    return {
        "dynamic": cel.when(f"{inelastic} && {on}", cel.says(_ALLOCATED, _KEEPS_EXECUTORS)),
        "dynamicConf": cel.when(f"{inelastic} && {configured}", cel.says(_CONFIGURED, _KEEPS_EXECUTORS)),
    }


def _endless(review: Review) -> Iterator[Refusal]:
    if text(review.new, "spec", "restartPolicy", "type") == "Always":
        yield Refusal(type="Invalid", field=_RESTART, sentence=_COMES_TO_AN_END)


def _role(now: Json, wanted: Json, name: str) -> Json:
    """The role with the placement of the template ``wanted``: fields of the role hold what its template cannot."""
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


def _state(job: Json) -> str:
    return text(job, "status", "applicationState", "state")
