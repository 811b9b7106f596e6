"""The Workload that a manifest's text would have, composed from facts that another process handed over. Pure.

The text is a user's: the YAML parser's time and memory are bounded by the process that this runs in. Here each value
may be used once, and nested in few levels.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from controller.insight.forecast.submitted import NoQueueError, NotQueuedError, Others, Reader
from controller.insight.simulation.documents import Document, InputError, documents, judged_values, unknown
from controller.insight.simulation.inputs.known import known_in
from controller.insight.simulation.inputs.queuewords import no_queue
from controller.insight.simulation.inputs.references import almost, loose_ends, missing_classes, unserved
from controller.insight.simulation.manifests import cluster_of, unqueued_kind
from controller.insight.simulation.queued.aboveminimum import count_above, pods_above
from controller.jobs.framework.kind import JobKind, ObjectKind, api_version
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.settings import JobSettings
from controller.objects.core import Namespace
from controller.objects.meta import KubernetesObject
from controller.objects.queues import LocalQueue
from controller.people.whatif.question import NAMESPACE, Arrival
from controller.people.whatif.quotas import WrongChangeError
from controller.reconcile.jobshell.watched import KeptJob
from yamlfile.levels import misshapen

MOST_LEVELS: Final = 64
"""Levels of a manifest: a Job has about ten, one in an AppWrapper some more."""
MOST_ABOVE: Final = 500
"""Pods above a job's minimum that are tried."""
_DEFAULT_QUEUE: Final = "default"
_MANIFEST: Final = "manifest"


class Composer(msgspec.Struct, frozen=True, kw_only=True):
    """How the leader composes Workloads, to be pickled. ``facts``: the objects that kinds of jobs read
    (``JobKind.reads``), by kind, namespace and name.
    """

    kinds: tuple[JobKind, ...]
    settings: JobSettings
    facts: Mapping[tuple[ObjectKind, str, str], KeptJob]
    others: Others = Others()

    def namespace(self, text: str, otherwise: str) -> str:
        """The namespace of the object that the text holds; ``otherwise`` where it names none. Raises
        WrongChangeError.
        """
        try:
            given = _only(text)
        except InputError as wrong:
            raise WrongChangeError(_lines(wrong)) from None
        found = given.data["metadata"].get("namespace", otherwise)
        if not isinstance(found, str) or NAMESPACE.fullmatch(found) is None:
            raise WrongChangeError(f"{_MANIFEST}: metadata.namespace: found {str(found)[:63]!r}, expected a name")
        return found

    def composed(self, text: str, namespace: str, objects: Sequence[KubernetesObject], now_s: float) -> Arrival:
        """The Workload of the manifest as if it were created now, beside these objects, and those of pods above
        its minimum, each of which waits by itself. Raises WrongChangeError.
        """
        try:
            document, reader = _only(text), self._reader(objects)
            own, known = _within(document, namespace), known_in(namespace, objects)
            refused, odd = judged_values(document)
            if meant := unqueued_kind(document, [(api_version(kind), kind.kind) for kind in self.kinds]):
                raise WrongChangeError(meant)
            strangers = [f"{line}. Correct it" for line in unknown(document)]
            if told := [*refused, *strangers, *missing_classes([own], known)]:
                raise WrongChangeError("\n".join(sorted(told, key=_line_of)))
            whole = document.having(reader.created(document.data, namespace))
            first = reader.workload(whole.data, namespace, now_s)
            above = (reader.workload(each.data, namespace, now_s) for each in islice(pods_above(whole), MOST_ABOVE))
            return Arrival(
                workloads=(first, *above),
                left_out=max(0, count_above(whole) - MOST_ABOVE),
                warnings=(*odd, *almost(own), *loose_ends([own], known)),
                unfit=tuple(unserved([own], known, objects)),
            )
        except NoQueueError:
            queues = {each.metadata.name for each in objects if _is_queue_of(each, namespace)}
            raise WrongChangeError(no_queue(_within(document, namespace), queues)) from None
        except (InputError, JobError, NotQueuedError) as wrong:
            raise WrongChangeError(_lines(wrong)) from None

    def _look(self, kind: ObjectKind, namespace: str, name: str) -> Json | None:
        kept = self.facts.get((kind, namespace, name))
        return None if kept is None else kept.json

    def _reader(self, objects: Sequence[KubernetesObject]) -> Reader:
        labels = {each.metadata.name: each.metadata.labels for each in objects if isinstance(each, Namespace)}
        queues = {each.key for each in objects if isinstance(each, LocalQueue)}
        return Reader(
            {(api_version(kind), kind.kind): kind for kind in self.kinds},
            self.settings,
            cluster_of(objects, self._look),
            lambda namespace: labels.get(namespace, {}),
            lambda namespace: f"{namespace}/{_DEFAULT_QUEUE}" in queues,
            self.others,
        )


def _lines(wrong: Exception) -> str:
    """One for each problem, with the manifest before it."""
    told = wrong.told if isinstance(wrong, NotQueuedError) else str(wrong).splitlines()
    lines = (" ".join(line.split()) for line in told)
    return "\n".join(line if line.startswith(_MANIFEST) else f"{_MANIFEST}: {line}" for line in lines)


def _is_queue_of(given: KubernetesObject, namespace: str) -> bool:
    return isinstance(given, LocalQueue) and given.metadata.namespace == namespace


def _within(given: Document, namespace: str) -> Document:
    """The document as an object of the namespace."""
    return given.having({**given.data, "metadata": {**given.data["metadata"], "namespace": namespace}})


def _only(text: str) -> Document:
    """The one document of a text. Raises InputError and WrongChangeError."""
    _check_shape(text)
    every = documents(text, _MANIFEST)
    if len(every) != 1:
        where = every[1].place() if every else _MANIFEST
        raise WrongChangeError(f"{where}: found {len(every)} documents, expected one")
    return every[0]


def _check_shape(text: str) -> None:
    """Checks aliases and depth by the parser's events, before values are made of them. Raises WrongChangeError."""
    wrong = misshapen(text, MOST_LEVELS)
    if wrong is None:
        return
    if wrong.is_alias:
        raise WrongChangeError(f"{_MANIFEST}:{wrong.line}: found an alias, expected none")
    raise WrongChangeError(f"{_MANIFEST}:{wrong.line}: nested too deeply, expected at most {MOST_LEVELS} levels")


def _line_of(told: str) -> int:
    number = told.split(":", 2)[1]
    return int(number) if number.isdigit() else 0
