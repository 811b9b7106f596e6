"""CapacityRequests of the manifests, and the jobs that name one."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from controller.insight.bargaining.wishes import (
    Composer,
    Problem,
    Wish,
    name_problem,
    order_problem,
    problems,
    timed,
    wish_of,
)
from controller.insight.simulation.documents import Document, InputError, Json, warned
from controller.insight.simulation.problems import expected_one, found_first, meant, shown
from controller.jobs.framework import names
from controller.jobs.framework.raw import strings
from controller.objects.capacityrequests import API_VERSION, KIND, CapacityRequest
from controller.objects.decode import DecodeError, decode
from controller.objects.workload import Workload
from inventory.api.names import ARRIVAL, CAPACITY_REQUEST
from yamlfile.parsers import Unfit, go_duration

REQUEST: Final = (API_VERSION, KIND)
_MICROSECONDS: Final = 999_999


class GivenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request and the time of its arrival. ``order``: its place among the jobs of the files. ``name``: the name of
    its Workload in the simulation, which no job has.
    """

    order: int
    arrival_s: float
    request: CapacityRequest
    wish: Wish
    name: str
    composer: Composer

    @property
    def key(self) -> str:
        return self.request.key

    def workload(self, units: int, asked_s: float, *, lasts_s: float | None, offer: str) -> Workload:
        """The Workload of so many units, asked for at ``asked_s``, in seconds since 1970. Of what is asked for at one
        moment the first in the files is the oldest.
        """
        created = datetime.fromtimestamp(asked_s, UTC) + timedelta(microseconds=min(self.order, _MICROSECONDS))
        metadata = {
            "name": self.name,
            "namespace": self.request.metadata.namespace,
            "uid": f"{self.order - 1:08d}~" if self.order else "/",
            "creationTimestamp": created.isoformat(),
        }
        runtime = "" if lasts_s is None else f"{lasts_s:.6f}s"
        return self.composer.workload(self.request, units, metadata, runtime, offer)


class Keyed(Protocol):
    """A job of the simulation."""

    @property
    def key(self) -> str: ...


def is_request(document: Document) -> bool:
    return (document.version, document.kind) == REQUEST


def queue_of_request(document: Document) -> str:
    """The LocalQueue that a request names; empty where it names none."""
    spec = document.data.get("spec")
    found = spec.get("queueName") if isinstance(spec, dict) else None
    return found if isinstance(found, str) else ""


def requests(
    documents: Iterable[tuple[int, Document]],
    composer: Composer,
    base_s: float,
    jobs: Iterable[Keyed],
    *,
    start_told: bool,
) -> tuple[GivenRequest, ...]:
    """The requests in the order of their arrival. ``documents``: each with its place among the jobs. ``jobs``: what has
    a key already. ``start_told``: whether ``base_s`` is a time that somebody gave, so that others can be compared with
    it. Raises InputError with all problems.
    """
    used = {each.key for each in jobs}
    wrong: list[str] = []
    arrivals: list[GivenRequest] = []
    seen: dict[str, Document] = {}
    for order, document in documents:
        first = seen.setdefault(document.key, document)
        if first is not document:
            sentence = f"found the name {document.key}, expected another: {first.kind} in {first.place()} has it"
            wrong.append(document.told(("metadata", "name"), sentence))
            continue
        try:
            arrival = _given(document, order, composer, base_s, used)
        except InputError as error:
            wrong += error.lines
            continue
        arrivals.append(arrival)
        if not start_told:
            wrong += [_line(document, each) for each in timed(arrival.request.spec)]
    if wrong:
        raise InputError.of(wrong)
    return tuple(sorted(arrivals, key=lambda each: (each.arrival_s, each.order)))


def _given(document: Document, order: int, composer: Composer, base_s: float, used: set[str]) -> GivenRequest:
    try:
        request = decode({key: each for key, each in document.data.items() if key != "status"}, CapacityRequest)
    except DecodeError as error:
        raise document.error(error) from None
    arrival_s, told = _arrival(document)
    named = name_problem(request.metadata.name)
    wrong = [*([named] if named is not None else []), *told, *problems(request.spec)]
    if not wrong and (problem := order_problem(request.spec, base_s + arrival_s)) is not None:
        wrong.append(problem)
    if composer.priority(request.spec) is None:
        name = request.spec.priority_class_name
        expected = "a WorkloadPriorityClass or PriorityClass that exists"
        wrong.append(Problem(("spec", "priorityClassName"), shown(name), expected, "Create it, or correct the name"))
    if wrong:
        raise InputError.of(_line(document, each) for each in wrong)
    space, name = document.key.split("/", 1)
    while f"{space}/{name}" in used:
        name = f"{name}-request"
    used.add(f"{space}/{name}")
    return GivenRequest(
        order=order,
        arrival_s=arrival_s,
        request=request,
        wish=wish_of(request, base_s + arrival_s),
        name=name,
        composer=composer,
    )


def _arrival(document: Document) -> tuple[float, list[Problem]]:
    text = strings(document.data, "metadata", "annotations").get(ARRIVAL)
    try:
        return (0.0 if text in (None, "0") else go_duration(str(text))), []
    except Unfit:
        path = ("metadata", "annotations", ARRIVAL)
        return 0.0, [Problem(path, shown(text), 'a duration such as "90s"')]


def _line(document: Document, one: Problem) -> str:
    return found_first(document.told(one.path, f"found {one.found}, expected {one.expected}. {one.hint}"))


# -- jobs that name one ------------------------------------------------------------------------------------------------


def named_by(data: Json) -> str:
    """The request that a job names in its label, or in the label of its pods; empty for none, and for labels that
    cannot be read.
    """
    if name := _label(data):
        return name
    return next(filter(None, (_label(each) for each in _templates(data.get("spec"), 0))), "")


def named_by_workload(workload: Workload) -> str:
    """The request that a composed Workload's job or pods name; empty for none."""
    own = workload.metadata.labels.get(CAPACITY_REQUEST, "")
    of_pods = (each.template.metadata.labels.get(CAPACITY_REQUEST, "") for each in workload.spec.pod_sets)
    return own or next(filter(None, of_pods), "")


def queued_by_request(document: Document, queues: Mapping[str, str]) -> Document:
    """A job without a queue that names a request, in the request's queue. ``queues``: by request key."""
    data = document.data
    name = named_by(data)
    labels = data["metadata"].get("labels") or {}
    if not name or labels.get(names.QUEUE_NAME):
        return document
    queue = queues.get(f"{data['metadata'].get('namespace') or 'default'}/{name}", "")
    if not queue:
        return document
    return document.having({**data, "metadata": {**data["metadata"], "labels": {**labels, names.QUEUE_NAME: queue}}})


def unknown_requests(documents: Collection[Document]) -> Iterator[str]:
    """A warning for each job that names a request which is not among the documents."""
    known = {each.key for each in documents if is_request(each)}
    for job in documents:
        name, space = named_by(job.data), str(job.data["metadata"].get("namespace") or "default")
        if not name or f"{space}/{name}" in known:
            continue
        there = [key.split("/", 1)[1] for key in known if key.startswith(f"{space}/")]
        path = ("metadata", "labels", CAPACITY_REQUEST)
        hint = f"Create it, or correct the label.{meant(name, there)}".removesuffix(".")
        expected = expected_one(f"CapacityRequest of {space}", there)
        yield warned(job.told(path, f"found {shown(name)}, expected {expected}. {hint}"))


_DEEPEST: Final = 6


def _templates(value: Any, depth: int) -> Iterable[Json]:
    """The pod templates below a job's spec."""
    if not isinstance(value, dict | list) or depth > _DEEPEST:
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if key == "template" and isinstance(inner, dict):
            yield inner
        yield from _templates(inner, depth + 1)


def _label(template: Json) -> str:
    metadata = template.get("metadata")
    given = metadata.get("labels") if isinstance(metadata, dict) else None
    found = given.get(CAPACITY_REQUEST) if isinstance(given, dict) else None
    return found if isinstance(found, str) else ""
