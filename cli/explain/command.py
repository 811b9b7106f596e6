"""``tessera explain``: why one workload waits, by which numbers, who holds what it needs, and how it came to be so."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import click

from cli.cluster import Where, cluster_options, run
from cli.console import Json
from cli.explain import tables
from cli.local import output_option
from cli.offline import Offline
from cli.queue.command import MANAGER, AnswerSource, namespaced, printed, source
from controller.engine.model.resources import ResourceName
from controller.engine.quota.queueusage import quantity_of
from controller.jobframework import names
from controller.jobframework.kind import JobKind, api_version
from controller.jobkinds.declared.accepting import verdicts
from controller.jobkinds.table import JOB_KINDS
from controller.jobshell.watched import KNOWN_KINDS, resource_of
from controller.objects.decode import decode
from controller.objects.meta import to_json
from controller.objects.quantity import NANO, Quantity, parse_quantity
from controller.objects.workload import Workload
from controller.watching.kinds import DECLARATIONS, LOCAL_QUEUES, WORKLOADS
from kube.client import Client
from kube.errors import ForbiddenError, KubeError, NotFoundError

QUEUE_NAME = "kueue.x-k8s.io/queue-name"


def _workload_name(_: click.Context, __: click.Parameter, value: str) -> str:
    if not value or value.count("/") > 1 or value.startswith("/") or value.endswith("/"):
        raise click.BadParameter(f"found {value!r}, expected NAME or NAMESPACE/NAME")
    return value


@click.command(short_help="Why a workload waits, in numbers.")
@click.argument("name", metavar="WORKLOAD", callback=_workload_name)
@click.option("-n", "--namespace", help="Without it the one before a slash in WORKLOAD, else the context's.")
@cluster_options
@output_option
def explain(where: Where, name: str, namespace: str | None, output: str) -> None:
    """Why WORKLOAD waits: what it needs, what is free, who holds it, what would admit it, and its story so far.

    WORKLOAD is a Workload or a job: NAME or NAMESPACE/NAME. Of a Deployment it is a replica that waits, of a
    LeaderWorkerSet a group.

    \b
    Examples:
      tessera explain -n team-a bert-large
      tessera explain team-a/job-bert-large-4f1c2
      tessera explain team-a/bert-large -o json | jq .wouldAdmit
    """

    async def work() -> None:
        space, _, bare = name.rpartition("/")
        space = namespace or space or where.cluster().namespace
        try:
            async with source(where) as asked:
                body = await _explained(asked, decode(await _workload(asked.client, space, bare), Workload))
        except ForbiddenError:
            # An account that may read its own namespace only: what the controller wrote there is still its to read.
            body = await _read_off(where, space, bare)
        if output == "json":
            printed(body)
        else:
            tables.show(body)

    run(work())


async def _read_off(where: Where, namespace: str, name: str) -> Json:
    """What the Workload's own status says. Raises KubeError where that may not be read either."""
    async with Client(where.cluster(), user_agent=MANAGER) as client:
        workload = decode(await _workload(client, namespace, name), Workload)
        click.echo("note: you may not read the queues: this is what the Workload's own status says", err=True)
        with suppress(KubeError):
            queue = await client.get(LOCAL_QUEUES, workload.spec.queue_name, Json, namespace=namespace)
            return _of_status(workload, str(queue["spec"].get("clusterQueue", "")))
        return _of_status(workload, None)


def _of_status(workload: Workload, cluster_queue: str | None) -> Json:
    """The keys of an answer, without those that need a view of the whole cluster."""
    true = {condition.type for condition in workload.status.conditions if condition.status == "True"}
    state = next((type_ for type_ in ("Finished", "Evicted", "Admitted", "QuotaReserved") if type_ in true), "Pending")
    waits = next((condition for condition in workload.status.conditions if condition.type == "QuotaReserved"), None)
    waits = waits if state in ("Pending", "Evicted") else None
    admission = workload.status.admission
    return {
        "source": "the Workload's status",
        "job": _owner_of(workload),
        "workload": workload.key,
        "localQueue": workload.spec.queue_name,
        "clusterQueue": admission.cluster_queue if admission is not None else cluster_queue,
        "priority": workload.spec.priority or 0,
        "state": state,
        "conditions": to_json(workload.status.conditions),
        "admission": to_json(admission) if admission is not None else None,
        "reason": waits.reason if waits is not None else None,
        "sentence": waits.message if waits is not None else None,
        "decision": None,
        "wouldAdmit": None,
        "position": None,
        "story": [],
        "devices": [],
        "claims": [],
        "couldBeMade": [],
        "deviceDrift": [],
    }


async def _workload(client: Client, namespace: str, name: str) -> Json:
    """The Workload of that name, else that of the job of that name. Raises click.ClickException."""
    try:
        return await client.get(WORKLOADS, name, Json, namespace=namespace)
    except NotFoundError:
        pass
    there = await namespaced(client, WORKLOADS, namespace)
    owned = [workload for workload in there if _owner(workload) == name]
    if groups := [workload for workload in there if name in _group_names(workload)]:
        return min(groups, key=_least_said)
    if not owned and (replicas := [workload for workload in there if _is_replica(workload, name)]):
        return min(replicas, key=_least_said)
    if owned:
        return max(owned, key=lambda workload: str(workload["metadata"].get("creationTimestamp", "")))
    where = f"WORKLOAD: found {namespace}/{name}"
    found = [job async for job in _jobs(client, namespace, name)]
    if not found:
        raise click.ClickException(f"{where}, expected a Workload or a job that exists")
    # Of several kinds under one name, the one that is in a queue is meant.
    kind, job = next((each for each in found if QUEUE_NAME in _labels(each[1])), found[0])
    if QUEUE_NAME not in _labels(job):
        raise click.ClickException(f"{where}, a {kind} without the label {QUEUE_NAME}: it is in no queue")
    raise click.ClickException(f"{where}, a {kind} that has no Workload yet: see its events")


async def _jobs(client: Client, namespace: str, name: str) -> AsyncIterator[tuple[str, Json]]:
    """Jobs of that name, each with its kind, of all kinds whose CRD is there and that may be read."""
    served = await client.group_versions()
    for kind in (*JOB_KINDS, *await _declared(client)):
        if api_version(kind) not in served:
            continue
        with suppress(NotFoundError, ForbiddenError):
            yield kind.kind, await client.get(resource_of(kind), name, Json, namespace=namespace)


async def _declared(client: Client) -> list[JobKind]:
    """Kinds that JobKinds declare, as far as they may be read and are right."""
    try:
        given = (await client.list_all(DECLARATIONS, Json)).items
    except (NotFoundError, ForbiddenError):
        return []
    return [each.kind for each in verdicts(given, KNOWN_KINDS, ()).values() if each.kind is not None]


def _labels(job: Json) -> Json:
    return job["metadata"].get("labels") or {}


def _owner(workload: Json) -> str | None:
    owners = workload["metadata"].get("ownerReferences") or []
    return next((str(owner["name"]) for owner in owners if owner.get("controller")), None)


def _group_names(workload: Json) -> tuple[str, ...]:
    """Of the Workload of a group of pods the names of its object and of the group; nothing of another."""
    notes = workload["metadata"].get("annotations") or {}
    if _owner(workload) is not None or names.JOB_OWNER_NAME not in notes:
        return ()
    name, index = notes[names.JOB_OWNER_NAME], notes.get(names.COMPONENT_INDEX)
    return (name,) if index is None else (name, f"{name}-{index}")


def _is_replica(workload: Json, deployment: str) -> bool:
    """Whether it is that of a pod of the Deployment: it is named after it, a template's hash, and five letters."""
    owner, _, _ = (_owner(workload) or "").rpartition("-")
    name, _, template = owner.rpartition("-")
    return name == deployment and template.isalnum() and workload["spec"].get("podSets", [{}])[0].get("count") == 1


def _least_said(workload: Json) -> tuple[bool, bool, str]:
    """Of several replicas or groups one that waits, the oldest of them; else one that runs; one that is over last."""
    conditions = workload.get("status", {}).get("conditions") or []
    true = {each["type"] for each in conditions if each["status"] == "True"}
    return "Finished" in true, "QuotaReserved" in true, str(workload["metadata"].get("creationTimestamp", ""))


async def _explained(asked: AnswerSource, workload: Workload) -> Json:
    """The controller's explanation, with the holders of the missing quota."""
    local: Offline | None = None
    live: Json | None = None
    if asked.is_live:
        live = await asked.controller.ask("explain", workload=workload.key)
    if live is None:
        local = await asked.offline()
        live = local.explain(workload)
    body: Json = {"source": asked.name, "job": _owner_of(workload), **live, "reason": None, "sentence": None}
    decision = live["decision"]
    if decision is not None:
        body["reason"], body["sentence"] = decision["reason"], decision["sentence"]
    wanted = decision["wouldAdmit"] if decision is not None else None
    waits = live["state"] in ("Pending", "HeldBack")
    if local is None and (waits or wanted is not None):
        local = await _beside(asked)
    if waits:
        blocked = local.blocked(workload) if local is not None else None
        if blocked is not None:
            body["reason"], body["sentence"] = blocked
        elif decision is None or decision["rule"] == "fits":
            said = _of_status(workload, None)
            known = (said["reason"], said["sentence"])
            body["reason"], body["sentence"] = local.why(workload) if local is not None else known
    body["wouldAdmit"] = None
    if wanted is not None:
        queue = str(live["clusterQueue"])
        body["wouldAdmit"] = {
            **wanted,
            "resources": [_row(local, queue, wanted, resource) for resource in wanted["resources"]],
        }
    if decision is not None:
        body["decision"] = {key: value for key, value in decision.items() if key != "wouldAdmit"}
    return body


async def _beside(asked: AnswerSource) -> Offline | None:
    """The engine here, for what the controller does not tell; None for an account that may not read all queues."""
    try:
        return await asked.offline()
    except ForbiddenError as refused:
        click.echo(f"note: who holds it is not shown: {refused}", err=True)
        return None


def _owner_of(workload: Workload) -> str | None:
    """What controls it; of a group of pods what it was made of."""
    meta = workload.metadata
    made_of = meta.annotations.get(names.JOB_OWNER_NAME)
    owners = [owner for owner in meta.owner_references if owner.controller or owner.name == made_of]
    return f"{owners[0].kind} {owners[0].name}" if owners else None


def _row(local: Offline | None, queue: str, wanted: Json, given: Json) -> Json:
    """Needed and free, and of what is free how much is the queue's own quota and how much would be borrowed."""
    resource = str(given["resource"])
    nominal, used, free = (_nanos(given[key]) for key in ("nominal", "used", "available"))
    left = None if nominal is None or used is None else max(0, nominal - used)
    own = left if free is None else free if left is None else min(left, free)
    borrowable = None if free is None else free - (own or 0)
    lacking = None if free is None else max(0, (_nanos(given["needed"]) or 0) - free)
    holders = local.held_by(queue, str(wanted["flavor"]), resource) if local is not None else []
    return {
        **given,
        "quotaLeft": _quantity(left, given),
        "borrowable": _quantity(borrowable, given),
        "lacking": _quantity(lacking, given),
        "heldBy": [
            {**holder, "amount": str(quantity_of(ResourceName(resource), holder["amount"]))} for holder in holders
        ],
    }


def _nanos(text: Any) -> int | None:
    return None if text is None else parse_quantity(text).nanos


def _quantity(nanos: int | None, like: Json) -> str | None:
    """As the API writes the amounts beside it: memory in Gi where ``needed`` is."""
    if nanos is None:
        return None
    if nanos % NANO:
        return str(Quantity(nanos))
    return str(Quantity(nanos, parse_quantity(like["needed"]).format))
