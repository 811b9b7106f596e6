"""The objects with which the playground begins, and the events of each round: from a fleet file and manifests.

Events by the clock come again with each round: Jobs by ``tessera.dev/arrival``, faults by the fleet's events.
"""

import copy
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from controller.insight.simulation.documents import Document, InputError
from controller.insight.simulation.problems import shown
from inventory.api.names import ARRIVAL, RUNTIME
from simulator.fleet.fleet import Fleet
from simulator.fleet.orders import Order
from yamlfile.parsers import Unfit, go_duration

Json = dict[str, Any]
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_REST_S: Final = 30.0
"""The seconds between the last arrival or end of a round and the next round."""
_CLUSTER_SCOPED: Final = ("Namespace", "Node", "Topology", "ResourceFlavor", "ClusterQueue", "Cohort", "PriorityClass")
_ALSO: Final = ("WorkloadPriorityClass", "AdmissionCheck", "RuntimeClass")
_RUN: Final = frozenset({"Job", "Pod"})
"""The kinds of objects that run."""


class Arrival(Struct, frozen=True):
    """A Job that comes ``at_s`` seconds after the beginning of each round; without an end it comes once."""

    at_s: float
    body: Json
    ends: bool

    @property
    def key(self) -> tuple[str, str]:
        return self.body["metadata"]["namespace"], self.body["metadata"]["name"]


class Fault(Struct, frozen=True):
    """An event of the hardware of ``node``, ``at_s`` seconds after the beginning of each round."""

    at_s: float
    node: str
    order: Order


class World(Struct, frozen=True):
    """The world of the playground. ``objects`` exist from the beginning. ``round_s``: the length of a round in
    seconds.
    """

    fleet: Fleet
    objects: tuple[Json, ...]
    arrivals: tuple[Arrival, ...]
    faults: tuple[Fault, ...]
    round_s: float


class Course:
    """Gives the events that are due, each once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._until_s = -1.0

    def due(self, now_s: float, there: Collection[tuple[str, str]]) -> tuple[list[Json], list[Fault]]:
        """The Jobs and faults from after the last call up to ``now_s``, in their order. ``there``: namespace and name
        of the Jobs that have not ended; one that still exists does not come a second time.
        """
        since_s, self._until_s = self._until_s, now_s
        jobs: list[tuple[float, Json]] = []
        faults: list[tuple[float, Fault]] = []
        world = self._world
        for number in range(max(0, int(since_s // world.round_s)), int(now_s // world.round_s) + 1):
            begins_s = number * world.round_s

            def is_due(at_s: float, begins_s: float = begins_s) -> bool:
                return since_s < begins_s + at_s <= now_s

            for each in world.arrivals:
                busy = any(_named(each, earlier) in there for earlier in range(number))
                if is_due(each.at_s) and (each.ends or number == 0) and not busy:
                    jobs.append((begins_s + each.at_s, _body(each, number)))
            faults += [(begins_s + each.at_s, each) for each in world.faults if is_due(each.at_s)]
        jobs.sort(key=lambda one: one[0])
        faults.sort(key=lambda one: one[0])
        return [body for _, body in jobs], [fault for _, fault in faults]


def _named(arrival: Arrival, number: int) -> tuple[str, str]:
    namespace, name = arrival.key
    return namespace, name if number == 0 else f"{name}-{number + 1}"


def _body(arrival: Arrival, number: int) -> Json:
    body = copy.deepcopy(arrival.body)
    body["metadata"]["name"] = _named(arrival, number)[1]
    return body


def packaged() -> tuple[Path, tuple[Path, ...]]:
    """The fleet file and the manifests that are part of the package."""
    folder = Path(str(resources.files("cli.playground"))) / "world"
    return folder / "fleet.yaml", (folder / "queues.yaml", folder / "jobs.yaml")


def world(fleet: Fleet, documents: Iterable[Document]) -> World:
    """The world of a fleet and manifests. Jobs and pods without a queue are left out: nobody would start them. Raises
    InputError with all problems.
    """
    objects: list[Json] = []
    arrivals: list[Arrival] = []
    wrong: list[str] = []
    for document in documents:
        body = _placed(document)
        if QUEUE_LABEL in (body["metadata"].get("labels") or {}):
            try:
                arrivals.append(_arrival(document, body))
            except InputError as error:
                wrong += error.lines
        elif document.kind not in _RUN:
            objects.append(body)
    if wrong:
        raise InputError.of(wrong)
    faults = tuple(
        Fault(event.at, node.name, order) for node in fleet.nodes for event in node.events for order in event.orders
    )
    spaces = _namespaces([*objects, *(each.body for each in arrivals)])
    return World(fleet, (*spaces, *objects), tuple(arrivals), faults, _round_s(arrivals, faults))


def _placed(document: Document) -> Json:
    body = copy.deepcopy(document.data)
    if document.kind not in (*_CLUSTER_SCOPED, *_ALSO):
        body["metadata"].setdefault("namespace", "default")
    return body


def _arrival(document: Document, body: Json) -> Arrival:
    if (document.version, document.kind) != ("batch/v1", "Job"):
        raise document.error(
            f"kind: found {document.kind} of {document.version}, expected Job of batch/v1: no other kind runs here. "
            "tessera simulate takes jobs of all kinds"
        )
    notes = body["metadata"].get("annotations") or {}
    runtime = RUNTIME in notes
    if runtime:
        _seconds(document, RUNTIME, notes[RUNTIME])
    at_s = _seconds(document, ARRIVAL, notes[ARRIVAL]) if ARRIVAL in notes else 0.0
    return Arrival(at_s, body, runtime)


def _seconds(document: Document, key: str, value: object) -> float:
    try:
        return float(go_duration(str(value)))
    except (Unfit, ValueError):
        sentence = f'found {shown(value)}, expected a duration such as "90s". Correct it'
        raise InputError(document.told(("metadata", "annotations", key), sentence)) from None


def _round_s(arrivals: Sequence[Arrival], faults: Sequence[Fault]) -> float:
    ends = [each.at_s + runtime_s(each.body, 0.0) for each in arrivals] + [each.at_s for each in faults]
    return max(ends, default=0.0) + _REST_S


def runtime_s(body: Json, otherwise: float) -> float:
    """The run time of a Job in seconds by its annotation; ``otherwise`` without one."""
    text = (body["metadata"].get("annotations") or {}).get(RUNTIME)
    return otherwise if text is None else float(go_duration(str(text)))


def _namespaces(bodies: Iterable[Json]) -> Iterator[Json]:
    bodies = list(bodies)
    given = {body["metadata"]["name"] for body in bodies if body["kind"] == "Namespace"}
    used = {body["metadata"]["namespace"] for body in bodies if "namespace" in body["metadata"]}
    for name in sorted(used - given):
        labels = {"kubernetes.io/metadata.name": name}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


__all__ = ["Arrival", "Course", "Fault", "InputError", "World", "packaged", "runtime_s", "world"]
