"""Writes and their outcomes: the values between a caller and ``kube.writing.writer``."""

import enum
from collections.abc import Hashable
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from failpoints.names import Failpoint
from kube.errors import KubeError
from kube.resources import Resource

T = TypeVar("T")


class Verb(enum.Enum):
    CREATE = "create"
    UPDATE = "update"
    APPLY = "apply"
    MERGE_PATCH = "merge"
    JSON_PATCH = "json"
    DELETE = "delete"


class Write(Struct, Generic[T], frozen=True, kw_only=True):
    """One write that a caller submits.

    ``body`` is anything msgspec encodes, or a function that makes it when its turn has come (with the version that the
    write before it left, say). The answer is decoded into ``kind``. ``slot``: see the module. ``force`` is for APPLY.
    DELETE's body is the uid that the object must have, or None; ``foreground``: see ``Client.delete``.
    ``failpoint`` names what is made durable: no write of the product is without one.
    """

    verb: Verb
    resource: Resource
    name: str
    body: Any
    kind: type[T]
    namespace: str | None = None
    subresource: str | None = None
    slot: Hashable = None
    force: bool = True
    foreground: bool = False
    failpoint: Failpoint | None = None

    @property
    def lane(self) -> tuple[str, str, str, str]:
        return self.resource.group, self.resource.plural, self.namespace or "", self.name


class Written(Struct, Generic[T], frozen=True):
    """The write was applied. ``object`` is the answer; None for DELETE."""

    object: T | None
    attempts: int = 1


class Conflicted(Struct, frozen=True):
    """409: another client wrote first, or the name is taken (``error.reason`` AlreadyExists)."""

    error: KubeError
    attempts: int = 1


class Missing(Struct, frozen=True):
    """404: no such object, namespace or kind."""

    error: KubeError
    attempts: int = 1


class Refused(Struct, frozen=True):
    """The write can never succeed unchanged: invalid (400, 422 ...), or not allowed (401, 403)."""

    error: KubeError
    attempts: int = 1


class Superseded(Struct, frozen=True):
    """The write was never sent: a newer write of its slot has replaced it."""


class Abandoned(Struct, frozen=True):
    """The write was given up: lost leadership, or closing. After an attempt whose answer was lost it may still be
    applied.
    """

    why: str
    attempts: int = 0


Outcome = Written[T] | Conflicted | Missing | Refused | Superseded | Abandoned


class WriteObserver(Protocol):
    """Counts writes. Its methods are called from the event loop; they must not block or raise."""

    def attempted(self, write: Write[Any], latency_s: float, status: int | None) -> None:
        """One request was answered with ``status`` (200 for any success), or not answered (None)."""

    def finished(self, write: Write[Any], outcome: Outcome[Any], waited_s: float) -> None:
        """A write's outcome is known, ``waited_s`` after it was submitted."""
