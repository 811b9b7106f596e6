"""``tessera queue``: shows the queues' quota and the workloads that wait in them; stops and resumes queues."""

import click

from cli.access.cluster import Where, cluster_options, is_kind_missing, run
from cli.access.local import Whole
from cli.evictions import yes_option
from cli.naming.meant import meant
from cli.naming.nearest import NearestGroup
from cli.naming.suggestions import everywhere, names
from cli.printing.console import Json
from cli.printing.output import FOR_PEOPLE, list_option, output_option, print_names, printed
from cli.queue import tables
from cli.queue.policy import DRAIN, HOLD, set_policy
from cli.queue.running import admitted, with_running
from cli.queue.source import AnswerSource, source
from cli.words import given, queues
from controller.cluster.watching.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from kube.client import Client
from kube.errors import NotFoundError

_MOST = 500


@click.group(cls=NearestGroup, short_help="What queues have and who waits; stop and resume them.")
def queue() -> None:
    """What queues have, who waits in them and why; stop and resume them.

    NAME is a ClusterQueue, or NAMESPACE/NAME for a LocalQueue.

    \b
    Examples:
      tessera queue list                          quota, use and who waits, queue by queue
      tessera queue pending --queue research      who is next in a ClusterQueue, and why not yet
      tessera queue pending --local team-a/jobs   the same for one LocalQueue
      tessera queue stop research                 admit nothing more; what runs goes on
      tessera queue stop research --drain         ... and evict what runs
      tessera queue resume research
    """


@queue.command("list", short_help="Queues with their quota, use and waiting workloads.")
@cluster_options
@list_option
def list_(where: Where, output: str) -> None:
    """ClusterQueues with their quota, use and waiting workloads, and the LocalQueues that lead to them.

    A workload counts as running once one of its pods runs; a line says how many are admitted without.

    \b
    Examples:
      tessera queue list
      tessera queue list -o json | jq '.clusterQueues[].name'
    """

    async def work() -> None:
        async with source(where) as asked:
            queues = await asked.queues()
            objects = await asked.client.list_all(CLUSTER_QUEUES, Json)
            locals_ = await asked.client.list_all(LOCAL_QUEUES, Json)
            running = None if output == "name" else await admitted(asked.client)
            body = {
                "source": asked.name,
                "clusterQueues": with_running(tables.with_quotas(queues, objects.items), running),
                "localQueues": with_running(tables.local_queues(locals_.items), running),
            }
            if output == "name":
                print_names(CLUSTER_QUEUES, (each["name"] for each in queues))
                print_names(LOCAL_QUEUES, (each["name"] for each in tables.local_queues(locals_.items)))
            elif output in FOR_PEOPLE:
                tables.show_queues(body, wide=output == "wide")
            else:
                printed(body, output)

    run(work())


@queue.command()
@click.option("--queue", "name", help="A ClusterQueue; without one all of them.", shell_complete=names("clusterqueues"))
@click.option("--local", help="NAMESPACE/NAME of a LocalQueue.", shell_complete=everywhere("localqueues"))
@click.option("--limit", type=Whole(1, 100_000), default=_MOST, show_default=True, help="Of each queue.")
@cluster_options
@list_option
def pending(where: Where, name: str | None, local: str | None, limit: int, output: str) -> None:
    """Pending workloads in queue order, and why they wait.

    \b
    Examples:
      tessera queue pending                       in all ClusterQueues
      tessera queue pending --queue research -o json | jq '.clusterQueues[].pending[].sentence'
    """
    if name is not None and local is not None:
        raise click.UsageError(given.queue_and_local())
    if local is not None:
        _door(local)

    async def work() -> None:
        async with source(where) as asked:
            chosen = await _chosen(asked, name, local)
            problems = {each["name"]: each["problems"] for each in await asked.queues()}
            answers: list[Json] = []
            for queue_name in chosen:
                items = await asked.pending(queue_name, limit)
                if items is None:
                    near = await meant(asked.client, CLUSTER_QUEUES, queue_name)
                    raise click.ClickException(queues.no_cluster_queue("--queue", queue_name) + near)
                found = [item for item in items if local is None or item["localQueue"] == local]
                answers.append({"clusterQueue": queue_name, "problems": problems.get(queue_name, []), "pending": found})
            body = {"source": asked.name, "clusterQueues": answers}
            if output == "name":
                print_names(WORKLOADS, (item["workload"] for each in answers for item in each["pending"]))
            elif output in FOR_PEOPLE:
                tables.show_pending(body, wide=output == "wide")
            else:
                printed(body, output)

    run(work())


async def _chosen(asked: AnswerSource, name: str | None, local: str | None) -> list[str]:
    """The ClusterQueues to show. Raises click.ClickException."""
    if local is not None:
        return [str((await _local(asked.client, local))["spec"].get("clusterQueue", ""))]
    if name is not None:
        return [name]
    return [str(each["name"]) for each in await asked.queues()]


async def _local(client: Client, local: str) -> Json:
    namespace, name = _door(local)
    try:
        return await client.get(LOCAL_QUEUES, name, Json, namespace=namespace)
    except NotFoundError as failed:
        if is_kind_missing(failed):
            raise
        near = await meant(client, LOCAL_QUEUES, name, namespace)
        raise click.ClickException(queues.no_local_queue(local) + near) from None


def _door(local: str) -> tuple[str, str]:
    """A LocalQueue's namespace and name. Raises click.UsageError."""
    namespace, slash, name = local.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.UsageError(given.bad_local_queue(local))
    return namespace, name


def _queue_name(_: click.Context, __: click.Parameter, value: str) -> str:
    if not value or value.count("/") > 1 or value.startswith("/") or value.endswith("/"):
        raise click.BadParameter(given.bad_queue_name(value))
    return value


@queue.command(short_help="Admit nothing more from a queue.")
@click.argument("name", callback=_queue_name, shell_complete=everywhere("localqueues", "clusterqueues"))
@click.option("--drain", is_flag=True, help="Evict what runs, too; on a terminal it asks before.")
@yes_option
@cluster_options
@output_option
def stop(where: Where, name: str, drain: bool, yes: bool, output: str) -> None:
    """Admit nothing more from NAME: what runs goes on, what only holds quota gives it back.

    tessera stop cq NAME evicts what runs, as kubectl kueue stop does; so does --drain here.

    \b
    Examples:
      tessera queue stop research                 a ClusterQueue
      tessera queue stop team-a/jobs --drain      a LocalQueue; what runs is evicted
    """
    run(_set(where, name, DRAIN if drain else HOLD, output, yes=yes))


@queue.command()
@click.argument("name", callback=_queue_name, shell_complete=everywhere("localqueues", "clusterqueues"))
@cluster_options
@output_option
def resume(where: Where, name: str, output: str) -> None:
    """Let NAME admit again; what waited keeps its place.

    \b
    Example:
      tessera queue resume research
    """
    run(_set(where, name, "None", output))


async def _set(where: Where, name: str, policy: str, output: str, *, yes: bool = True) -> None:
    namespace, slash, bare = name.rpartition("/")
    resource = LOCAL_QUEUES if slash else CLUSTER_QUEUES
    await set_policy(where, resource, (namespace or None, bare), policy, dry_run="none", output=output, yes=yes)
