"""Writes of objects whose stored form is not needed: the answer tells the version, and a failure is tried again.

The watch brings what became of the object. A reconciler says which ends besides the stored one it takes for done: an
object that is gone, say, or one that has changed meanwhile.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

import msgspec

from controller.cluster.watching.workqueue import ActionFailedError
from controller.cluster.writing.mergepatch import Json
from failpoints.names import Failpoint
from kube.resources import Resource
from kube.writing.writes import Conflicted, Outcome, Verb, Write, Written

T = TypeVar("T")


class Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class Stamped(msgspec.Struct, frozen=True):
    """The part of an answer that is read: the version."""

    metadata: Version = Version()


def stamped_write(
    verb: Verb,
    resource: Resource,
    meta: Json,
    body: Any,
    failpoint: Failpoint,
    *,
    subresource: str | None = None,
    slot: Hashable = None,
    foreground: bool = False,
) -> Write[Stamped]:
    """A write of the object with this metadata, whose answer tells the version. ``slot``: see ``kube.writing``."""
    return Write(
        verb=verb,
        resource=resource,
        namespace=meta.get("namespace") or None,
        name=meta["name"],
        subresource=subresource,
        body=body,
        kind=Stamped,
        slot=slot,
        foreground=foreground,
        failpoint=failpoint,
    )


async def written(
    put: Callable[[Write[T]], Awaitable[Outcome[T]]], write: Write[T], *done: type[Outcome[Any]]
) -> T | None:
    """The answer to a write that must be stored; None where it ends in one of ``done``. Raises ActionFailedError for
    any other end.
    """
    outcome = await put(write)
    if isinstance(outcome, Written):
        return outcome.object
    if isinstance(outcome, done):
        return None
    raise failure(outcome)


def failure(outcome: Outcome[Any]) -> ActionFailedError:
    """The error of a write that was not stored."""
    return ActionFailedError(why_not(outcome))


def why_not(outcome: Outcome[Any]) -> str:
    """Why a write was not stored, in one line."""
    return str(getattr(outcome, "error", outcome))


def is_taken(outcome: Outcome[Any]) -> bool:
    """Whether a creation found an object of the name."""
    return isinstance(outcome, Conflicted) and outcome.error.reason == "AlreadyExists"
