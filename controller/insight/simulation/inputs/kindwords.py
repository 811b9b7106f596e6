"""The kinds that no API server has and that are close to one that is read: ``Job`` of ``batch/v2``, ``ClusterQeue``."""

from collections.abc import Collection
from typing import Final

from controller.insight.simulation.documents import Document, group_of
from controller.insight.simulation.fields import is_known
from controller.insight.simulation.problems import nearest, shown

Kind = tuple[str, str]
"""``apiVersion`` and ``kind``."""

_NEAR: Final = 0.85
"""The similarity from which a kind counts as misspelt. ``ReplicaSet`` is below it: it is a kind of its own beside
``StatefulSet``."""


def another_kind(document: Document, known: Collection[Kind]) -> str:
    """The problem of a document whose kind is read in another version, or is misspelt; empty for any other kind."""
    version, kind = document.version, document.kind
    if is_known(version, kind):
        return ""
    versions = sorted({each for each, other in known if other == kind and group_of(each) == document.group})
    if versions:
        return document.told(("apiVersion",), f"found {version[:63]}, expected {' or '.join(versions)}. Correct it")
    near = nearest(kind, {other for each, other in known if each == version}, _NEAR)
    if near:
        return document.told(("kind",), f"found {shown(kind)}, expected {near}. Correct it")
    return ""


def unread_kind(document: Document, jobs: Collection[Kind]) -> str:
    """The problem of a document that is meant to queue, and is of no kind of job that is read."""
    version, kind = document.version, document.kind
    same = sorted({each for each, other in jobs if other == kind})
    if same:
        return document.told(("apiVersion",), f"found {version[:63]}, expected {' or '.join(same)}. Correct it")
    versions = {other: each for each, other in jobs}
    near = nearest(kind, versions)
    meant = f" Did you mean {near} of {versions[near]}?" if near else ""
    every = ", ".join(sorted({other for _, other in jobs}))
    said = f"found {kind[:63]} of {version[:63]}, expected a kind of job that is read here: {every}"
    return document.told(("kind",), f"{said}. Correct it, or take it out.{meant}".removesuffix("."))
