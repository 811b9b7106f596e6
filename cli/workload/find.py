"""Finds a Workload by its own name or by that of the job that it stands for."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

import click

from cli.access.kubeapi import namespaced
from cli.naming.meant import meant_elsewhere
from cli.printing.console import Json
from cli.words import given, queues
from cli.workload.story import Moment, concerns, moment_of
from controller.cluster.watching.kinds import DECLARATIONS, WORKLOADS
from controller.jobs.framework import names
from controller.jobs.framework.kind import JobKind, api_version
from controller.jobs.framework.podview import GroupName
from controller.jobs.kinds.declared.accepting import verdicts
from controller.jobs.kinds.table import JOB_KINDS
from controller.jobs.serving.table import STAMPED_KINDS
from controller.reconcile.jobshell.watched import KNOWN_KINDS, resource_of
from inventory.api.names import STARTS_WITH
from kube.client import Client
from kube.errors import ForbiddenError, NotFoundError
from kube.resources import EVENTS, PODS, Resource

_WORKLOAD: Final = ("workload", "wl")
_NATIVE: Final = ("podgroup", "compositepodgroup")


def typed(job: str) -> tuple[str, str]:
    """The kind in TYPE/NAME in small letters, singular and without its group, and the name. Raises click.UsageError."""
    type_, slash, name = job.partition("/")
    kind = type_.partition(".")[0].lower()
    if not (kind and slash and name) or "/" in name:
        raise click.UsageError(given.bad_job(job))
    return kind.removesuffix("s"), name


async def find_workload(client: Client, namespace: str, name: str, kind: str = "") -> Json:
    """The Workload of that name, else the Workload of the job of that name. Raises click.ClickException, also where
    jobs of several kinds have that name.

    ``kind``: as ``typed`` gives it, the only one that is meant; empty for any.
    """
    if kind in ("", *_WORKLOAD):
        with suppress(NotFoundError):
            return await client.get(WORKLOADS, name, Json, namespace=namespace)
    there = await namespaced(client, WORKLOADS, namespace) if kind not in _WORKLOAD else []
    natives = [each for each in there if kind in ("", *_NATIVE) and _is_of_native_group(each, name)]
    owned = [each for each in there if owner_name(each) == name and kind in ("", owner_kind(each).lower())]
    if groups := [each for each in there if name in _group_names(each) and kind in ("", *_kinds_of_group(each))]:
        return min(groups, key=_least_said)
    if natives and not owned:
        return min(natives, key=_least_said)
    replicas = [each for each in there if kind in ("", "deployment") and _is_replica(each, name)]
    if replicas and not owned:
        return min(replicas, key=_least_said)
    if len({owner_kind(each) for each in owned}) > 1:
        those = ", ".join(sorted(f"{each['metadata']['name']} (of a {owner_kind(each)})" for each in owned))
        raise click.ClickException(queues.several_kinds(name, those))
    if owned:
        return max(owned, key=_most_meant)
    shown = f"{namespace}/{name}"
    jobs = [job async for job in _jobs(client, namespace, name) if kind in ("", job[0].lower())]
    if not jobs:
        near = await meant_elsewhere(client, WORKLOADS, name, namespace, _names_of)
        raise click.ClickException(queues.no_workload(shown) + near)
    # Where several kinds have the name, the one that is in a queue is meant.
    kind, job = next((each for each in jobs if names.QUEUE_NAME in _labels(each[1])), jobs[0])
    if names.QUEUE_NAME not in _labels(job):
        raise click.ClickException(queues.in_no_queue(shown, kind, names.QUEUE_NAME))
    told = await last_warning(client, job, kind)
    raise click.ClickException(queues.no_workload_yet(shown, kind, "" if told is None else told.text))


async def last_warning(client: Client, given: Json, kind: str) -> Moment | None:
    """The last Warning about the object: the controller writes one where it queues none. None where the API server
    keeps none any more, or Events may not be read.
    """
    warnings = (each for each in await events_about(client, [given], kind) if each.get("type") == "Warning")
    return max(filter(None, map(moment_of, warnings)), key=lambda moment: moment.at, default=None)


async def events_about(client: Client, given: Sequence[Json], kind: str) -> list[Json]:
    """The Events about any of the objects of one namespace; none where they may not be read."""
    metas = [each["metadata"] for each in given]
    uids = frozenset(str(meta.get("uid")) for meta in metas)
    named = frozenset((kind, str(meta["name"])) for meta in metas)
    try:
        found = await namespaced(client, EVENTS, metas[0].get("namespace"))
    except (ForbiddenError, NotFoundError):
        return []
    return [each for each in found if concerns(each, uids, named)]


async def _jobs(client: Client, namespace: str, name: str) -> AsyncIterator[tuple[str, Json]]:
    """The jobs of that name, each with its kind, of all kinds whose CRD is installed and that may be read."""
    served = await client.group_versions()
    for kind in (*JOB_KINDS, *await _declared(client)):
        if api_version(kind) not in served:
            continue
        with suppress(NotFoundError, ForbiddenError):
            yield kind.kind, await client.get(resource_of(kind), name, Json, namespace=namespace)


async def _declared(client: Client) -> list[JobKind]:
    """The kinds that JobKinds declare, as far as they may be read and are right."""
    try:
        given = (await client.list_all(DECLARATIONS, Json)).items
    except (NotFoundError, ForbiddenError):
        return []
    return [each.kind for each in verdicts(given, KNOWN_KINDS, ()).values() if each.kind is not None]


def _labels(job: Json) -> Json:
    return job["metadata"].get("labels") or {}


def owner_kind(workload: Json) -> str:
    """The kind of the object that controls the Workload; empty for none."""
    return next((str(each.get("kind")) for each in _references(workload) if each.get("controller")), "")


def uid_of(workload: Json, name: str) -> str | None:
    """The uid of the object of that name that the Workload refers to, so that no other of its name is meant."""
    return next(
        (str(each["uid"]) for each in _references(workload) if each.get("name") == name and "uid" in each), None
    )


def owner_name(workload: Json) -> str | None:
    owners = workload["metadata"].get("ownerReferences") or []
    return next((str(owner["name"]) for owner in owners if owner.get("controller")), None)


def _kinds_of_group(workload: Json) -> set[str]:
    return {str(each.get("kind")).lower() for each in _references(workload)} | {"pod"}


def _group_names(workload: Json) -> tuple[str, ...]:
    """The names of the object and of the group of a Workload for a group of pods; empty for any other Workload."""
    notes = workload["metadata"].get("annotations") or {}
    if owner_name(workload) is not None or names.JOB_OWNER_NAME not in notes:
        return ()
    name, index = notes[names.JOB_OWNER_NAME], notes.get(names.COMPONENT_INDEX)
    return (name,) if index is None else (name, f"{name}-{index}")


def _is_of_native_group(workload: Json, group: str) -> bool:
    """Whether the Workload is that of a PodGroup or CompositePodGroup of Kubernetes' own, or of a pod of one whose pods
    start together.
    """
    made = {GroupName(None, group, composite=composite).workload for composite in (False, True)}
    notes = workload["metadata"].get("annotations") or {}
    return workload["metadata"]["name"] in made or notes.get(STARTS_WITH) == group


def _is_replica(workload: Json, deployment: str) -> bool:
    """Whether the Workload is that of a pod of the Deployment: it is named after it, a template's hash, and five
    letters.
    """
    owner, _, _ = (owner_name(workload) or "").rpartition("-")
    name, _, template = owner.rpartition("-")
    return name == deployment and template.isalnum() and workload["spec"].get("podSets", [{}])[0].get("count") == 1


def _least_said(workload: Json) -> tuple[bool, bool, str]:
    """The sort key that finds, among several replicas or groups, the oldest that waits; else one that runs; one that is
    over last.
    """
    true = _true(workload)
    return "Finished" in true, "QuotaReserved" in true, str(workload["metadata"].get("creationTimestamp", ""))


def _most_meant(workload: Json) -> tuple[bool, bool, str, bool]:
    """The sort key by which the last of a job's Workloads is meant: one that holds quota; else one that waits; else
    the newest that is over. Of two of one second, the slice that replaces another is the newer.
    """
    true, meta = _true(workload), workload["metadata"]
    follows = names.REPLACEMENT_FOR in (meta.get("annotations") or {})
    live = "Finished" not in true
    return live, live and "QuotaReserved" in true, str(meta.get("creationTimestamp", "")), follows


def _true(workload: Json) -> set[str]:
    """The types of the conditions that are True."""
    conditions = workload.get("status", {}).get("conditions") or []
    return {each["type"] for each in conditions if each["status"] == "True"}


def group_pods(workload: Json) -> list[str]:
    """The names of the pods of a Workload for a plain group of pods, which no other object owns; empty for any other
    Workload.
    """
    references = _references(workload)
    pods = [each for each in references if (each.get("apiVersion"), each.get("kind")) == ("v1", "Pod")]
    if len(pods) < len(references) or any(each.get("controller") for each in pods):
        return []
    return [str(each.get("name")) for each in pods]


def _references(workload: Json) -> list[Json]:
    return [each for each in workload["metadata"].get("ownerReferences") or [] if isinstance(each, dict)]


async def owner_of(client: Client, workload: Json) -> tuple[Resource, str] | None:
    """The kind and the name of the object that the Workload stands for; None where it stands for none but itself.

    For a group of pods that is the object that made it, else its first pod. Raises click.ClickException for a kind that
    is not known.
    """
    if members := group_pods(workload):
        return PODS, members[0]
    references = _references(workload)
    made_of = (workload["metadata"].get("annotations") or {}).get(names.JOB_OWNER_NAME)
    owner = next((each for each in references if each.get("controller")), None)
    owner = owner or next((each for each in references if made_of and each.get("name") == made_of), None)
    if owner is None:
        return None
    group, _, version = str(owner.get("apiVersion")).rpartition("/")
    kind, name = str(owner.get("kind")), str(owner.get("name"))
    if (group, kind) == (PODS.group, PODS.kind):
        return PODS, name
    known = [Resource(each.group, each.version, each.plural, each.kind, namespaced=True) for each in STAMPED_KINDS]
    known += map(resource_of, JOB_KINDS)
    resource = next((each for each in known if (each.group, each.kind) == (group, kind)), None)
    if resource is None:  # kinds that a cluster declares besides are read only where they are needed
        declared = map(resource_of, await _declared(client))
        resource = next((each for each in declared if (each.group, each.kind) == (group, kind)), None)
    if resource is None:
        raise click.ClickException(queues.unknown_owner(kind, name, f"{group}/{version}"))
    return resource, name


def _names_of(workload: Json) -> tuple[str, ...]:
    """The names of the Workload and of its job."""
    owner = owner_name(workload)
    return (str(workload["metadata"]["name"]), *(() if owner is None else (owner,)))
