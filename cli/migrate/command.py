"""``tessera migrate``: reads what runs today from files, and prints the plan of moving to Tessera. Changes nothing."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from cli.access.cluster import Where, run
from cli.access.kubeapi import kube_options
from cli.manifests import WrongInputError, in_order, note
from cli.migrate.check import checked
from cli.migrate.inputs import Inputs
from cli.migrate.judging import strangers, wrong
from cli.migrate.live import read_after, read_cluster
from cli.migrate.plan import MigrationPlan, obeyed, planned, policies_of
from cli.migrate.reading import read_inputs
from cli.printing.output import one_line, output_option, printed, visible
from cli.words import given
from cli.words import migrating as say
from controller.insight.simulation.documents import InputError
from controller.jobs.framework.names import is_object_name


@click.command("migrate", short_help="A plan of moving to Tessera: values, steps and the way back.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--image", default="", metavar="IMAGE", help="The agent's image, for the values, with a tag or digest if you like."
)
@click.option(
    "--node", "nodes", multiple=True, help="Move this node alone, by its labels; may be given more than once."
)
@click.option("--check", is_flag=True, help="Afterwards: what is left of the old parts, and do pods have their GPUs?")
@kube_options
@output_option
def migrate(
    files: tuple[Path, ...], image: str, nodes: tuple[str, ...], check: bool, where: Where, output: str
) -> None:
    """What stays, what changes and what would be lost on the way to Tessera? It changes nothing.

    FILES are files, folders of them, or - for standard input: NVIDIA's ClusterPolicy or GPUCluster; ConfigMaps,
    configuration files and Helm values of its device plugin, MIG manager, dcgm-exporter and DRA driver; Kueue's,
    Volcano's and KAI's configurations and objects; Nodes, for their labels. They become values for charts/tessera and
    steps to run from a checkout, each with the way back. Other kinds are named and passed over. Without FILES the
    cluster is read, by lists alone.

    Exits with 0 where something is lost too, with 2 where a file cannot be read or has a value that its kind does not
    allow, or the account may not list a kind. With --check it reads the cluster and exits with 1 where something is
    left, or a pod misses its GPUs; with 2 where it found neither and may not list all of what it looks at.

    \b
    Examples:
      tessera migrate                                         the cluster's, as the kubeconfig names it
      tessera migrate --check                                 after the last step
      tessera migrate clusterpolicy.yaml
      tessera migrate plugin-config.yaml kueue-manager-config.yaml queues/
      tessera migrate clusterpolicy.yaml --image registry.example.com/tessera-agent --node gpu-1
      kubectl get clusterpolicies -o yaml | tessera migrate -
      tessera migrate clusterpolicy.yaml -o json | jq .values | helm template charts/tessera -f -
    """
    for name in nodes:
        if not is_object_name(name):
            raise click.BadParameter(given.bad_value(name, "the name of a node"), param_hint="--node")
    if check and files:
        raise click.UsageError(say.CHECK_OF_FILES)
    if check:
        run(_check(where, output))
    elif files:
        _show(_planned(read_inputs(files), image, nodes), output)
    else:
        run(_live(where, image, nodes, output))


async def _live(where: Where, image: str, nodes: tuple[str, ...], output: str) -> None:
    cluster = await read_cluster(where)
    there = {each.data["metadata"].get("name") for each in cluster.nodes}
    for name in nodes:
        if name not in there:
            raise click.BadParameter(given.bad_value(name, "the name of a node of the cluster"), param_hint="--node")
    _show(_planned(cluster, image, nodes), output)


async def _check(where: Where, output: str) -> None:
    """Print what is left and what pods miss. Exits with 1 where there is anything, else with 2 where something could
    not be looked at.
    """
    outcome = checked(await read_after(where))
    if output != "text":
        printed(outcome, output)
    for key, heading in say.CHECK_HEADINGS.items() if output == "text" else ():
        several = getattr(outcome, key)
        if several:
            click.echo(heading)
        elif key in say.NOTHING_THERE and not outcome.unknown:
            click.echo(say.NOTHING_THERE[key])
        for each in several:
            click.echo(f"  {one_line(each.what)}: {each.why}")
    if outcome.left or outcome.lacking or outcome.unknown:
        sys.exit(1 if outcome.left or outcome.lacking else 2)


def _planned(found: Inputs, image: str, nodes: tuple[str, ...]) -> MigrationPlan:
    """Raises WrongInputError where no plan can be made of what was read."""
    try:
        return planned(_judged(found, nodes), image=image, nodes=nodes)
    except InputError as wrong:
        raise WrongInputError("\n".join(wrong.lines)) from None


def _show(plan: MigrationPlan, output: str) -> None:
    if output == "text":
        for line in _text(plan):
            click.echo(visible(line))
    else:
        printed(plan, output)


def _judged(found: Inputs, nodes: tuple[str, ...]) -> Inputs:
    """What was read, where all of its values are allowed. What is passed over is noted on standard error.

    Raises WrongInputError with a line for each value that is not allowed.
    """
    note(strangers(found))
    if lines := list(dict.fromkeys(wrong(found))):
        raise WrongInputError("\n".join(in_order(lines)))
    for several in (policies_of(found), found.gpu_clusters):
        first = obeyed(several)
        note(f"{each.place()}: {each.subject}{say.OTHER_POLICY}" for each in several if first and each is not first)
    has_operator = bool(policies_of(found) or found.gpu_clusters)
    if nodes and not has_operator:
        raise click.BadParameter(say.NODES_WITHOUT_OPERATOR, param_hint="--node")
    return found


def _text(plan: MigrationPlan) -> Iterator[str]:
    if not (plan.steps or plan.lost or plan.kept):
        yield say.NO_STEPS
        return
    yield say.HEADINGS["lost"] if plan.lost else say.NOTHING_LOST
    yield from (f"  {one_line(each.what)}: {each.why}" for each in plan.lost)
    if plan.kept:
        yield from ("", say.HEADINGS["kept"])
        yield from (f"  {each.what}: {each.why}" for each in plan.kept)
    if not plan.steps:
        return
    yield from ("", say.HEADINGS["values"])
    yield from (f"  {line}" for line in msgspec.yaml.encode(plan.values).decode().splitlines())
    yield from ("", say.HEADINGS["steps"])
    for number, step in enumerate(plan.steps, 1):
        yield from (f"  {number}. {step.do}", f"     {one_line(step.command)}", f"     back: {one_line(step.undo)}")
