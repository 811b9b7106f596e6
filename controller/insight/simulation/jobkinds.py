"""The kinds of jobs that a simulation reads: those of the table, and those that JobKinds of the manifests declare."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from controller.foreign.jobs.kind import ForeignJobKind
from controller.insight.simulation.documents import Document
from controller.insight.simulation.submissions import KINDS_OF_JOBS
from controller.jobs.framework.kind import JobKind, api_version
from controller.jobs.framework.tiers import Tiers
from controller.jobs.kinds.declared.accepting import verdicts
from controller.jobs.serving.table import SERVING_KINDS, STAMPED_KINDS
from inventory.api.jobkind import KIND
from inventory.api.names import GROUP, VERSION

JobKindsRead = Mapping[tuple[str, str], JobKind]
"""Kinds of jobs by ``apiVersion`` and ``kind`` of their objects."""

_KNOWN: Final = frozenset(
    {(kind.group, kind.kind) for kind in KINDS_OF_JOBS.values()}
    | {(each.group, each.kind) for each in (*SERVING_KINDS, *STAMPED_KINDS)}
)


def is_declaration(document: Document) -> bool:
    return (document.version, document.kind) == (f"{GROUP}/{VERSION}", KIND)


def kinds_read(
    documents: Iterable[Document], externals: Collection[str], tiers: Tiers = (), *, grow: bool = True
) -> JobKindsRead:
    """The kinds of jobs that are read. Of two documents for one JobKind the later counts. Raises InputError for one
    that declares no kind.

    ``grow``: see ``ControllerConfig.jobs_grow``.
    """
    declared = {each.data["metadata"]["name"]: each for each in documents if is_declaration(each)}
    foreign = ForeignJobKind(tiers)
    known = KINDS_OF_JOBS if grow else {key: kind.whole() for key, kind in KINDS_OF_JOBS.items()}
    kinds = {**known, (api_version(foreign), foreign.kind): foreign}
    for name, verdict in verdicts([each.data for each in declared.values()], _KNOWN, externals).items():
        if verdict.kind is None:
            raise declared[name].error(f"{KIND} {name}: {verdict.message}")
        kinds[api_version(verdict.kind), verdict.kind.kind] = verdict.kind
    return kinds
