"""Which JobKinds make a kind of job: each that can be read, and whose kind is not queued otherwise.

Of two JobKinds for one kind the older counts. A verdict is about one JobKind as it is; whether its CRD exists, and
whether the controller may read its objects, the watch tells.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from controller.jobs.framework.raw import Json
from controller.jobs.kinds.declared.kind import DeclaredKind
from controller.jobs.kinds.declared.spec import Declaration, JobKindError, read
from controller.objects.meta import Struct

ACCEPTED: Final = "Accepted"
INVALID: Final = "Invalid"
KNOWN: Final = "KindIsKnown"
EXTERNAL: Final = "KindIsExternal"
TWICE: Final = "DeclaredTwice"


class Verdict(Struct, frozen=True):
    """The verdict on a JobKind. ``kind`` is None if it is not accepted; ``reason`` and ``message`` are those of its
    condition.
    """

    reason: str
    message: str
    kind: DeclaredKind | None = None


def verdicts(
    given: Iterable[Json], known: Collection[tuple[str, str]], externals: Collection[str]
) -> Mapping[str, Verdict]:
    """The verdicts by name of the JobKind. ``known``: kinds that are queued without a JobKind, by group and kind.
    ``externals``: kinds that other controllers queue, as ``Kind.version.group``.
    """
    by_name: dict[str, Verdict] = {}
    readable: list[Declaration] = []
    for job_kind in given:
        try:
            readable.append(read(job_kind))
        except JobKindError as error:
            metadata = job_kind.get("metadata")
            name = metadata.get("name") if isinstance(metadata, dict) else None
            by_name[str(name)] = Verdict(INVALID, str(error))
    taken: dict[tuple[str, str], str] = {}
    for declaration in sorted(readable, key=lambda each: (each.created, each.name)):
        by_name[declaration.name] = _verdict(declaration, known, taken, externals)
        if by_name[declaration.name].kind is not None:
            taken[declaration.spec.group, declaration.spec.kind] = declaration.name
    return by_name


def _verdict(
    given: Declaration,
    known: Collection[tuple[str, str]],
    taken: Mapping[tuple[str, str], str],
    externals: Collection[str],
) -> Verdict:
    spec = given.spec
    named = f"spec.kind: found {spec.kind} of {spec.group}"
    if (spec.group, spec.kind) in known:
        return Verdict(KNOWN, f"{named}, which is queued without a JobKind: expected another kind")
    if f"{spec.kind}.{spec.version}.{spec.group}" in externals:
        return Verdict(EXTERNAL, f"{named}, which integrations.externalFrameworks leaves to another controller")
    if (other := taken.get((spec.group, spec.kind))) is not None:
        return Verdict(TWICE, f"{named}, which the older JobKind {other} declares: expected one JobKind a kind")
    return Verdict(ACCEPTED, f"{spec.kind} of {spec.group} is a kind of job", DeclaredKind(spec, leaving=given.leaving))
