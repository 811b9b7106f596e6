"""A sentence as a function of its parameters, with the place where it is read and whether the reader has something to
do.

``said`` records a function and returns it unchanged: a sentence costs what its f-string costs. ``python -m
hack.pages.messages`` prints all of them to ``docs/messages.md``, each parameter by its name, so that they can be read
as one text.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple, ParamSpec

P = ParamSpec("P")


class Kind(StrEnum):
    """The action expected of the reader. A refusal ends with the next step."""

    REFUSAL = "somebody must act"
    WAITING = "goes on by itself"
    NOTE = "tells what happened"
    PART = "a clause of one of the others"


class Place(StrEnum):
    """The place where a sentence is read."""

    PENDING = "Workload: QuotaReserved=False"
    ADMITTED = "Workload: QuotaReserved, Admitted"
    EVICTED = "Workload: Evicted, Requeued, Finished"
    QUEUES = "ClusterQueue and LocalQueue: Active=False"
    UNITS = "LocalQueue: tessera.dev/Units"
    CHECKS = "Workload: status.admissionChecks; AdmissionCheck: Active"
    JOB_EVENTS = "Events of jobs, pods and Workloads"
    HEALTH = "GpuNode: health of a device; Events of its node"
    LAYOUT = "GpuNode: problems; Events NotAsConfigured of its node; tessera layout"
    NODE = "GpuNode: problems; Events of its node"
    REPAIRS = "Events of Nodes, ResourceFlavors and pods: repairs of GPUs"
    CLAIM = "ResourceClaim: status.devices"
    CLAIM_EVENTS = "Events of pods: why a ResourceClaim is not prepared"
    COMMANDS = "tessera: what a command refuses"
    DOCTOR = "tessera doctor"
    FORECASTS = "Forecasts: tessera explain, tessera submit, the page"
    CAPACITY_REQUESTS = "CapacityRequest: status.message, offers; jobs inside of one"


class Sentence(NamedTuple):
    """A function that was recorded."""

    function: Callable[..., str]
    place: Place
    kind: Kind

    @property
    def module(self) -> str:
        return self.function.__module__

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def text(self) -> str:
        """The sentence with each parameter as its name in capitals."""
        names: Any = self.function.__code__.co_varnames[: self.function.__code__.co_argcount]
        return self.function(*(name.upper() for name in names))


EVERY: Final[list[Sentence]] = []
"""All sentences, in the order in which modules are imported and functions stand in them; written by ``said`` alone."""


def because(why: str) -> str:
    """The text behind a sentence that may have a cause; empty for none."""
    return f": {why}" if why else ""


def plural(number: object, one: str, many: str = "") -> str:
    """``1 pod``, ``2 pods``; ``many`` where it is not the word with an s, as in ``1 pod is``, ``2 pods are``."""
    return f"{number} {one if str(number) == '1' else many or f'{one}s'}"


def said(place: Place, kind: Kind) -> Callable[[Callable[P, str]], Callable[P, str]]:
    """A decorator for a function that makes a sentence of strings and of numbers that it only writes down."""

    def note(function: Callable[P, str]) -> Callable[P, str]:
        EVERY.append(Sentence(function, place, kind))
        return function

    return note
