"""``tessera explain``: why one workload waits, with the numbers, the holders of what it needs, and its story."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from cli.access.cluster import UnreachableError, Where, cluster_options, run
from cli.access.kubeapi import MANAGER, named_workload, place
from cli.explain import podtables, tables
from cli.explain.podexplained import POD_WORDS, pod_of
from cli.explain.podexplained import explained as explained_pod
from cli.explain.running import running
from cli.naming.suggestions import names, workloads_and_pods
from cli.printing.console import Json, show
from cli.printing.output import FOR_PEOPLE, printed, table_option
from cli.queue.source import COMPUTED, AnswerSource, instead, source
from cli.workload.find import find_workload
from controller.cluster.watching.kinds import LOCAL_QUEUES
from controller.insight.podtroubles import with_sizes
from controller.jobs.framework import names as known
from controller.objects.decode import decode
from controller.objects.meta import to_json
from controller.objects.quantity import NANO, Quantity, parse_quantity
from controller.objects.workload import Workload
from kube.client import Client
from kube.errors import ForbiddenError, KubeError

if TYPE_CHECKING:
    from cli.access.offline import Offline


@click.command(short_help="Why a workload waits, in numbers.")
@click.argument("name", metavar="WORKLOAD", callback=named_workload, shell_complete=workloads_and_pods)
@click.option(
    "-n",
    "--namespace",
    help="Without it the one before a slash in WORKLOAD, else the context's.",
    shell_complete=names("namespaces"),
)
@cluster_options
@table_option
def explain(where: Where, name: str, namespace: str | None, output: str) -> None:
    """Why WORKLOAD waits: what it needs, what is free, who holds it, what would admit it, and its story so far. Of one
    that is admitted: which pods do not run, and why.

    WORKLOAD is a Workload or a job: NAME or NAMESPACE/NAME. Of a Deployment it is a replica that waits, of a
    LeaderWorkerSet a group. pod/NAME is any pod that asks for GPUs, also in no queue: which nodes offer them, how many
    are free, who holds the others, and which layout would offer what no node does.

    \b
    Examples:
      tessera explain -n team-a bert-large
      tessera explain team-a/job-bert-large-4f1c2
      tessera explain team-a/bert-large -o json | jq .wouldAdmit
      tessera explain -n team-a pod/notebook-0
    """

    async def work() -> None:
        space, bare = place(where, name, namespace)
        type_, slash, pod = name.partition("/")
        if slash and type_ in POD_WORDS:
            space = namespace or where.cluster().namespace
            await _pod(where, space, pod, output)
            return
        body = await _workload(where, space, bare)
        if output not in FOR_PEOPLE:
            printed(body, output)
        else:
            tables.show(body, wide=output == "wide")

    run(work())


async def _pod(where: Where, namespace: str, name: str, output: str) -> None:
    """Explain the Workload that a pod belongs to, then the pod."""
    async with Client(where.cluster(), timeout_s=30.0, user_agent=MANAGER) as client:
        pod = await pod_of(client, namespace, name)
        body = await explained_pod(client, pod)
    workload: Json | None = None
    if body["workload"] is not None:
        with suppress(click.ClickException):
            workload = await _workload(where, namespace, body["workload"])
            body["refusal"] = None  # it was before its Workload was made
    if output not in FOR_PEOPLE:
        printed({**body, "explanation": workload}, output)
        return
    if workload is not None:
        tables.show(workload, wide=output == "wide")
        show("")
    show(*podtables.parts(body), wide=output == "wide")


async def _workload(where: Where, namespace: str, name: str) -> Json:
    try:
        async with source(where, look=False) as asked:
            workload = decode(await find_workload(asked.client, namespace, name), Workload)
            body = await _explained(asked, workload)
            pods = await running(asked.client, where, workload) if _runs(body) else None
            body["pods"] = with_sizes(pods, body.get("tooLarge"))
            return body
    except ForbiddenError:
        # The account may read its own namespace only: it may still read what the controller wrote there.
        return await _read_off(where, namespace, name)


async def _read_off(where: Where, namespace: str, name: str) -> Json:
    """The answer by the Workload's own status. Raises KubeError where that may not be read either."""
    async with Client(where.cluster(), user_agent=MANAGER) as client:
        workload = decode(await find_workload(client, namespace, name), Workload)
        click.echo("note: you may not read the queues: this is what the Workload's own status says", err=True)
        queue: str | None = None
        with suppress(KubeError):
            found = await client.get(LOCAL_QUEUES, workload.spec.queue_name, Json, namespace=namespace)
            queue = str(found["spec"].get("clusterQueue", ""))
        body = _of_status(workload, queue)
        body["pods"] = None
        with suppress(KubeError):
            body["pods"] = await running(client, where, workload) if _runs(body) else None
        return body


def _runs(body: Json) -> bool:
    return body["state"] in ("Admitted", "QuotaReserved")


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
        "checks": [],
        "nodesToCome": None,
        "preempted": None,
        "decision": None,
        "evictionsHeld": None,
        "inRepair": None,
        "calendar": None,
        "passedOver": None,
        "wouldAdmit": None,
        "position": None,
        "story": [],
        "devices": [],
        "claims": [],
        "couldBeMade": [],
        "growth": None,
        "tooLarge": None,
        "deviceDrift": [],
        "forecast": None,
    }


async def _explained(asked: AnswerSource, workload: Workload) -> Json:
    """The explanation, the controller's or one made here, with the facts that a person wants first."""
    answer = await _live(asked, workload)
    local, explanation = (None, answer) if isinstance(answer, dict) else (answer, answer.explain(workload))
    name = asked.name if local is None else COMPUTED
    body: Json = {"source": name, "job": _owner_of(workload), **explanation, "reason": None, "sentence": None}
    blocked, decision = body.pop("blocked"), explanation["decision"]
    if decision is not None:
        body["reason"], body["sentence"] = decision["reason"], decision["sentence"]
    if blocked is not None:
        body["reason"], body["sentence"] = blocked["reason"], blocked["sentence"]
    elif explanation["state"] in ("Pending", "HeldBack") and (decision is None or decision["rule"] == "fits"):
        said = _of_status(workload, None)
        body["reason"], body["sentence"] = (
            local.why(workload) if local is not None else (said["reason"], said["sentence"])
        )
    wanted = decision["wouldAdmit"] if decision is not None else None
    body["wouldAdmit"] = None
    if wanted is not None:
        body["wouldAdmit"] = {**wanted, "resources": [_row(resource) for resource in wanted["resources"]]}
    if decision is not None:
        body["decision"] = {key: value for key, value in decision.items() if key != "wouldAdmit"}
    return body


async def _live(asked: AnswerSource, workload: Workload) -> "Json | Offline":
    """The controller's answer, or the source that is asked in its place."""
    if not asked.is_live:
        return await asked.offline()
    try:
        answer = await asked.controller.ask("explain", workload=workload.key)
    except UnreachableError as failed:
        return await instead(asked.client, asked.where, failed)
    # The controller has not seen an object that was just made at the API server.
    return answer if answer is not None else await asked.offline()


def _owner_of(workload: Workload) -> str | None:
    """The owner that controls it; for a group of pods the object that the group was made of."""
    meta = workload.metadata
    made_of = meta.annotations.get(known.JOB_OWNER_NAME)
    owners = [owner for owner in meta.owner_references if owner.controller or owner.name == made_of]
    return f"{owners[0].kind} {owners[0].name}" if owners else None


def _row(given: Json) -> Json:
    """The needed and free amounts, and the parts of the free amount that are the queue's own quota and that would be
    borrowed.
    """
    nominal, used, free = (_nanos(given[key]) for key in ("nominal", "used", "available"))
    left = None if nominal is None or used is None else max(0, nominal - used)
    own = left if free is None else free if left is None else min(left, free)
    borrowable = None if free is None else free - (own or 0)
    lacking = None if free is None else max(0, (_nanos(given["needed"]) or 0) - free)
    return {
        **given,
        "quotaLeft": _quantity(left, given),
        "borrowable": _quantity(borrowable, given),
        "lacking": _quantity(lacking, given),
    }


def _nanos(text: Any) -> int | None:
    return None if text is None else parse_quantity(text).nanos


def _quantity(nanos: int | None, like: Json) -> str | None:
    """The amount as the API writes those beside it: memory in Gi where ``needed`` is."""
    if nanos is None:
        return None
    if nanos % NANO:
        return str(Quantity(nanos))
    return str(Quantity(nanos, parse_quantity(like["needed"]).format))
