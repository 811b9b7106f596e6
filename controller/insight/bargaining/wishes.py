"""What a CapacityRequest asks for: its fields read and checked, and the Workload of some of its units. Pure."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from controller.jobs.framework import compose, names
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.objects.capacityrequests import LONGEST_NAME, MOST_UNITS, CapacityRequest, CapacityRequestSpec
from controller.objects.core import PodTemplateSpec
from controller.objects.decode import KUEUE, decode
from controller.objects.quantity import NANO
from controller.objects.workload import Workload
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import Amount, ResourceName
from inventory.api.names import CAPACITY_OFFER, GROUP, RUNTIME
from yamlfile.parsers import Unfit, go_duration

ANSWER_WITHIN_S: Final = 30.0
USE_WITHIN_S: Final = 600.0
POD_SET: Final = "main"
"""The pod set of a request's Workload: a pod for each unit."""
_LONGEST_S: Final = 366 * 86_400.0
_DIVIDED: Final = ("cpu", "memory", "ephemeral-storage")
_DURATION: Final = "a duration above 0 such as 30m, at most 8784h"
_MOMENT: Final = "a duration from the request's creation such as 2h, or a time such as 2026-11-21T22:00:00Z"
_TIME: Final = "a time such as 2026-11-21T22:00:00Z"


class Problem(NamedTuple):
    """A wrong field: its path below the object, what was found and what is expected."""

    path: tuple[str, ...]
    found: str
    expected: str
    hint: str = "Correct it"

    @property
    def sentence(self) -> str:
        return f"{'.'.join(self.path)}: found {self.found}, expected {self.expected}"


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is right. Times are seconds since 1970. ``duration_s`` None: without an end; ``not_after_s``
    None: whenever.

    ``unit``: what one unit requests, as quota counts it.
    """

    key: str
    queue: str
    unit: dict[ResourceName, Amount]
    least: int
    most: int
    duration_s: float | None
    not_before_s: float
    not_after_s: float | None
    answer_within_s: float
    use_within_s: float
    renewed_s: float | None
    accepts: str

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]


def problems(spec: CapacityRequestSpec) -> Iterator[Problem]:
    """All that is wrong with the fields of a request."""
    if not spec.queue_name:
        yield Problem(("spec", "queueName"), "nothing", "the name of a LocalQueue of its namespace", "Write it")
    yield from _unit_problems(spec)
    least, most = _bounds(spec)
    if least < 1:
        yield Problem(("spec", "min"), str(least), "at least 1")
    if most > MOST_UNITS:
        yield Problem(("spec", "max"), str(most), f"at most {MOST_UNITS}")
    elif most < least:
        yield Problem(("spec", "max"), str(most), f"at least min, {least}")
    for name, text in (
        ("duration", spec.duration),
        ("answerWithin", spec.answer_within),
        ("useWithin", spec.use_within),
    ):
        if text and not 0.0 < (_seconds(text) or 0.0) <= _LONGEST_S:
            yield Problem(("spec", name), _quoted(text), _DURATION)
    for name, text in (("notBefore", spec.not_before), ("notAfter", spec.not_after)):
        if text and _moment(text, 0.0) is None:
            yield Problem(("spec", name), _quoted(text), _MOMENT)
    if spec.renew and _time(spec.renew) is None:
        yield Problem(("spec", "renew"), _quoted(spec.renew), _TIME)
    if spec.renew and not spec.duration:
        yield Problem(("spec", "renew"), _quoted(spec.renew), "a duration beside it, which begins anew", "Write it")


def name_problem(name: str) -> Problem | None:
    """The problem of a name that pods cannot have in a label."""
    if len(name) <= LONGEST_NAME:
        return None
    expected = f"at most {LONGEST_NAME} characters: its pods name it in a label"
    return Problem(("metadata", "name"), f"{len(name)} characters", expected, "Take a shorter one")


def timed(spec: CapacityRequestSpec) -> Iterator[Problem]:
    """The fields that say a time, as problems of a request that comes at no time of the calendar."""
    for name, text in (("notBefore", spec.not_before), ("notAfter", spec.not_after), ("renew", spec.renew)):
        if text and _seconds(text) is None and _time(text) is not None:
            expected = "no time without --start" if name == "renew" else "a duration such as 2h, or --start beside it"
            yield Problem(("spec", name), _quoted(text), expected, "Give --start TIME, or correct it")


def order_problem(spec: CapacityRequestSpec, created_s: float) -> Problem | None:
    """The problem of a window that is over before it begins. The fields are right by themselves."""
    begins, ends = _moment(spec.not_before, created_s), _moment(spec.not_after, created_s)
    if begins is None or ends is None or begins <= ends:
        return None
    return Problem(("spec", "notAfter"), _quoted(spec.not_after), f"a time after notBefore, {spec.not_before}")


def wish_of(request: CapacityRequest, created_s: float) -> Wish:
    """The wish of a request without problems."""
    spec = request.spec
    least, most = _bounds(spec)
    return Wish(
        key=request.key,
        queue=spec.queue_name,
        unit=dict(one_pod(template_of(spec).spec)),
        least=least,
        most=most,
        duration_s=_seconds(spec.duration),
        not_before_s=_moment(spec.not_before, created_s) or created_s,
        not_after_s=_moment(spec.not_after, created_s),
        answer_within_s=_seconds(spec.answer_within) or ANSWER_WITHIN_S,
        use_within_s=_seconds(spec.use_within) or USE_WITHIN_S,
        renewed_s=_time(spec.renew),
        accepts=spec.accept,
    )


def template_of(spec: CapacityRequestSpec) -> PodTemplateSpec:
    """The pod that is one unit."""
    if spec.template is not None:
        return spec.template
    asked = {name: str(amount) for name, amount in spec.unit.items()}
    container = {"name": "unit", "image": "none", "resources": {"requests": asked, "limits": asked}}
    return decode({"spec": {"containers": [container]}}, PodTemplateSpec)


class Composer(NamedTuple):
    """Composes the Workloads of requests."""

    settings: JobSettings
    cluster: ClusterObjects

    def priority(self, spec: CapacityRequestSpec) -> Json | None:
        """The fields of the request's priority; None if its class does not exist."""
        name = spec.priority_class_name
        if not name:
            return compose.default_class(self.settings, self.cluster)
        if self.cluster.workload_priority(name) is not None:
            return compose.workload_class(name, self.cluster)
        value = self.cluster.pod_priority(name)
        return None if value is None else compose.pod_class(name, value)

    def workload(self, request: CapacityRequest, units: int, metadata: Json, runtime: str, offer: str = "") -> Workload:
        """The Workload of so many units, all or none. ``runtime``: how long it is taken to hold them; empty if that is
        not known.
        """
        template = msgspec.to_builtins(template_of(request.spec), enc_hook=str)
        return decode(self.body(request, units, template, metadata, notes(runtime, offer)), Workload)

    def body(
        self, request: CapacityRequest, units: int, template: Json, metadata: Json, annotations: dict[str, str]
    ) -> Json:
        """The JSON of that Workload. ``template``: the pod that is one unit, whole; ``annotations``: see ``notes``."""
        return {
            "apiVersion": KUEUE,
            "kind": "Workload",
            "metadata": {**metadata, "annotations": annotations},
            "spec": {
                "podSets": [{"name": POD_SET, "count": units, "template": template}],
                "active": True,
                "queueName": request.spec.queue_name,
                **(self.priority(request.spec) or {}),
            },
        }


def notes(runtime: str, offer: str) -> dict[str, str]:
    """The annotations of a request's Workload."""
    return {CAPACITY_OFFER: offer, **({RUNTIME: runtime} if runtime else {})}


def workload_name(request: CapacityRequest, mark: str) -> str:
    """The name of the request's Workload. ``mark`` tells those of one request apart."""
    return names.workload_name(
        request.kind or "CapacityRequest", GROUP, request.metadata.name, request.metadata.uid, generation=mark
    )


def _bounds(spec: CapacityRequestSpec) -> tuple[int, int]:
    least = 1 if spec.min is None else spec.min
    return least, least if spec.max is None else spec.max


def _unit_problems(spec: CapacityRequestSpec) -> Iterator[Problem]:
    if spec.template is not None and spec.unit:
        yield Problem(("spec", "unit"), "it beside template", "one of them", "Take one of them away")
        return
    if spec.template is None and not spec.unit:
        yield Problem(("spec", "unit"), "nothing", "what one unit requests, such as nvidia.com/gpu: 1", "Write it")
        return
    if spec.template is not None and not any(one_pod(spec.template.spec).values()):
        yield Problem(("spec", "template"), "a pod that requests nothing", "a container with resources")
    for name, amount in spec.unit.items():
        if amount.nanos <= 0:
            yield Problem(("spec", "unit", name), str(amount), "more than 0")
        elif name not in _DIVIDED and amount.nanos % NANO:
            yield Problem(("spec", "unit", name), str(amount), "a whole number")


def _quoted(text: str) -> str:
    return f'"{text[:63]}"'


def _seconds(text: str) -> float | None:
    try:
        return go_duration(text) if text else None
    except Unfit:
        return None


def _time(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text) if "T" in text else None
    except ValueError:
        return None
    at_s = found.timestamp() if found is not None and found.tzinfo is not None else -1.0
    return at_s if at_s >= 0.0 else None


def _moment(text: str, created_s: float) -> float | None:
    """Seconds since 1970 of a time, or of a duration from the creation."""
    span_s = _seconds(text)
    if span_s is not None:
        return created_s + span_s if span_s <= _LONGEST_S else None
    return _time(text)
