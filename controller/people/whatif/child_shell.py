"""The process of one what-if: ``python -m controller.people.whatif.child_shell BYTES``.

The process reads pickles that its parent wrote: a ``Given``, lists of objects, lists of Workloads, each ended by an
empty one. It answers with JSON: at once a line with the namespace of the question, at the end the outcome. A manifest's
text is read here and nowhere else: YAML may hold a parser for ever, or end its process.

The start of this process is most of the cost of a small question: the module imports neither a server nor a client.
"""

import gc
import os
import pickle
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from controller.insight.simulation.settling import UnsettledError
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.people.whatif.manifest import Composer
from controller.people.whatif.question import Asked, Json, Question, compared
from controller.people.whatif.quotas import WrongChangeError

LIMIT_S: Final = 25.0
WRONG: Final = "wrong"
NAMESPACE: Final = "namespace"
"""The keys of an answer."""


class Given(NamedTuple):
    """The first pickle that the process reads. ``composer`` is set if the question is about a manifest."""

    question: Question
    asked: Asked
    composer: Composer | None = None


def answers(sent: BinaryIO) -> Iterator[Json]:
    """Yields the namespace of the question before the objects are read, then the outcome."""
    work: Given = pickle.load(sent)  # noqa: S301 - from our parent
    asked, namespace = work.asked, work.asked.namespace
    try:
        if work.composer is not None:
            namespace = work.composer.namespace(asked.manifest, namespace)
    except WrongChangeError as wrong:
        yield {WRONG: str(wrong)}
        return
    yield {NAMESPACE: namespace}
    yield _outcome(work, namespace, list(_read(sent)), list(_read(sent)))


def _outcome(given: Given, namespace: str, objects: list[KubernetesObject], workloads: list[Workload]) -> Json:
    question = given.question
    try:
        if given.composer is not None:
            arrival = given.composer.composed(given.asked.manifest, namespace, objects, question.now_s)
            question = msgspec.structs.replace(question, arrival=arrival)
        return compared(question, objects, workloads)
    except (WrongChangeError, UnsettledError) as wrong:
        return {WRONG: str(wrong)}


def _read(sent: BinaryIO) -> Iterator[Any]:
    while many := pickle.load(sent):  # noqa: S301 - from our parent
        yield from many


def main() -> None:
    free_bytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (free_bytes, free_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (int(LIMIT_S), int(LIMIT_S) + 1))
    with suppress(OSError):
        # Where memory is short the kernel ends the simulation first, not the controller.
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(OSError):
        os.nice(10)
    # The process ends before garbage is worth collecting.
    gc.disable()
    for found in answers(sys.stdin.buffer):
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
