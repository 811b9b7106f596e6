"""Where the objects of manifests go: whether their namespace, their queue and their class are there.

A namespace or a class that is not there ends the command; a queue may be created later, and is a warning, as in a
simulation.
"""

from collections.abc import Iterable
from typing import NamedTuple

import click

from cli.access.cluster import told
from cli.access.spaces import no_namespace
from cli.naming.meant import listed
from cli.printing.console import aside
from controller.cluster.watching.kinds import LOCAL_QUEUES, NAMESPACES, WORKLOAD_CLASSES
from controller.insight.simulation.documents import Document
from controller.insight.simulation.fields import POD_SPEC, typed
from controller.insight.simulation.inputs.known import known
from controller.insight.simulation.inputs.queuewords import mistaken_label, queue_of, unknown_queue
from controller.insight.simulation.inputs.references import missing_classes
from kube.client import Client
from kube.errors import ForbiddenError, KubeError, NotFoundError


class Target(NamedTuple):
    """The destination of a document. ``place`` is the namespace's source in messages."""

    document: Document
    namespace: str
    place: str


def target(document: Document, option: str | None, of_context: str) -> Target:
    """The destination: ``-n`` goes before the manifest's own namespace, and that before the context's."""
    path = ("metadata", "namespace")
    own = document.data["metadata"].get("namespace")
    if option:
        return Target(document, option, "--namespace")
    if isinstance(own, str) and own:
        return Target(document, own, f"{document.place(path)}: {document.subject}metadata.namespace")
    return Target(document, of_context, "the kubeconfig's context: namespace")


async def unknown_queues(client: Client, targets: Iterable[Target]) -> list[str]:
    """A warning for each queue that its namespace does not have; those of the manifests count as existing.

    Raises click.ClickException for a namespace that does not exist, KubeError where no cluster answers.
    """
    every = tuple(targets)
    made: dict[str, set[str]] = {}
    for each in every:
        if each.document.kind == LOCAL_QUEUES.kind:
            made.setdefault(each.namespace, set()).add(str(each.document.data["metadata"].get("name")))
    spaces = {each.document.data["metadata"].get("name") for each in every if each.document.kind == NAMESPACES.kind}
    there: dict[str, set[str] | None] = {}
    warnings: list[str] = []
    for target in every:
        if not queue_of(target.document)[1]:
            continue
        if target.namespace not in there:
            found = await _queues(client, target.namespace)
            if found is not None and not found and target.namespace not in spaces:
                await _look_for(client, target)
            there[target.namespace] = found
        known = there[target.namespace]
        if known is not None:
            queues = {target.namespace: known | made.get(target.namespace, set())}
            warnings.append(unknown_queue(target.document, queues, namespace=target.namespace))
    return [line for line in warnings if line]


async def mistaken_labels(client: Client, targets: Iterable[Target]) -> list[str]:
    """A line for each object with pods that names no queue, and has a label of its own that is almost the one which
    does.
    """
    wrong = [each for each in targets if mistaken_label(each.document, ()) and _has_pods(each.document)]
    there = {space: await _queues(client, space) for space in {each.namespace for each in wrong}}
    return [mistaken_label(each.document, there[each.namespace] or (), each.namespace) for each in wrong]


def _has_pods(document: Document) -> bool:
    return any(type_ == POD_SPEC for _, type_, _ in typed(document.data))


async def unknown_classes(client: Client, documents: Iterable[Document]) -> list[str]:
    """A line for each job of a WorkloadPriorityClass that is neither there nor in the manifests.

    Empty where classes may not be read. Raises KubeError where no cluster answers.
    """
    every = list(documents)
    defined = known(every)
    if not list(missing_classes(every, defined)):
        return []
    try:
        there = {str(each["metadata"]["name"]) for each in await listed(client, WORKLOAD_CLASSES, None)}
    except (ForbiddenError, NotFoundError) as failed:
        aside(f"priority classes are not looked up: {told(failed)}")
        return []
    defined.by_kind.setdefault(WORKLOAD_CLASSES.kind, set()).update(there)
    return list(missing_classes(every, defined))


async def _queues(client: Client, namespace: str) -> set[str] | None:
    """The names of the namespace's LocalQueues; None, with a note, where they may not be read, or the cluster does not
    have the kind.
    """
    try:
        return {str(each["metadata"]["name"]) for each in await listed(client, LOCAL_QUEUES, namespace)}
    except (ForbiddenError, NotFoundError) as failed:
        aside(f"queues of {namespace} are not looked up: {told(failed)}")
        return None


async def _look_for(client: Client, one: Target) -> None:
    """Check that a namespace without queues exists at all. Raises click.ClickException."""
    try:
        spaces = {str(each["metadata"]["name"]) for each in await listed(client, NAMESPACES, None)}
    except KubeError:  # an account that may not list them hears of it when the object is created
        return
    if spaces and one.namespace not in spaces:
        raise click.ClickException(await no_namespace(client, one.place, one.namespace))
