"""``tessera migrate``: reads what runs today from files, and prints the plan of moving to Tessera. Changes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import msgspec

from cli.manifests import WrongInputError, note, read_documents
from cli.migrate.plan import MigrationPlan, planned
from cli.migrate.shapes import SPEC, STATUS, misfits
from cli.printing.output import one_line, output_option, printed, visible
from cli.words import given
from cli.words import migrating as say
from controller.insight.simulation.documents import Document, InputError
from controller.insight.simulation.problems import field
from controller.jobs.framework.names import is_object_name

KIND: Final = "ClusterPolicy"
GROUP_VERSION: Final = "nvidia.com/v1"


@click.command("migrate", short_help="A plan of moving to Tessera: values, steps and the way back.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--image", default="", metavar="REPOSITORY", help="The repository of the agent's image, for the values.")
@click.option(
    "--node", "nodes", multiple=True, help="Move this node alone, by its labels; may be given more than once."
)
@output_option
def migrate(files: tuple[Path, ...], image: str, nodes: tuple[str, ...], output: str) -> None:
    """What stays, what changes and what would be lost on the way from NVIDIA's GPU Operator? It changes nothing.

    FILES are files, folders of them, or - for standard input. A ClusterPolicy (nvidia.com/v1) among them becomes values
    for charts/tessera and steps to run from a checkout, each with the way back. Other kinds are named and passed over.

    Exits with 0 where something is lost too, with 2 where a file cannot be read or has a value that its kind does not
    allow.

    \b
    Examples:
      tessera migrate clusterpolicy.yaml
      tessera migrate clusterpolicy.yaml --image registry.example.com/tessera-agent --node gpu-1
      kubectl get clusterpolicies -o yaml | tessera migrate -
      tessera migrate clusterpolicy.yaml -o json | jq .values | helm template charts/tessera -f -
    """
    for name in nodes:
        if not is_object_name(name):
            raise click.BadParameter(given.bad_value(name, "the name of a node"), param_hint="--node")
    plan = _plan(_policies(files), image, nodes)
    if output == "text":
        for line in _text(plan):
            click.echo(visible(line))
    else:
        printed(plan, output)


def _policies(files: tuple[Path, ...]) -> list[Document]:
    """The ClusterPolicies in the files. Other documents and unknown fields are noted on standard error.

    Raises WrongInputError with a line for each problem.
    """
    try:
        documents = read_documents(files)
    except InputError as error:
        raise WrongInputError(str(error)) from None
    policies = [each for each in documents if (each.kind, each.version) == (KIND, GROUP_VERSION)]
    note(say.not_read(each.place(), each.version, each.kind) for each in documents if each not in policies)
    note(line for each in policies for line in _unknown(each))
    if wrong := [line for each in policies for line in _wrong(each)]:
        raise WrongInputError("\n".join(wrong))
    return policies


def _wrong(document: Document) -> Iterator[str]:
    """A line for every value that a ClusterPolicy does not allow."""
    name = document.data["metadata"].get("name")
    if not (isinstance(name, str) and is_object_name(name)):
        path = ("metadata", "name")
        yield say.found_expected(document.place(path), field(path), one_line(str(name)), "the name of an object")
    for key, shape in (("spec", SPEC), ("status", STATUS)):
        for one in misfits(document.data.get(key), shape, (key,)):
            if one.expected:
                yield say.found_expected(document.place(one.path), field(one.path), one.found, one.expected)


def _unknown(document: Document) -> Iterator[str]:
    for key, shape in (("spec", SPEC), ("status", STATUS)):
        for one in misfits(document.data.get(key), shape, (key,)):
            if not one.expected:
                yield say.unknown_field(document.place(one.path), field(one.path), KIND)


def _plan(policies: list[Document], image: str, nodes: tuple[str, ...]) -> MigrationPlan:
    """The plan for the first ClusterPolicy that the operator does not ignore: it obeys one."""
    obeyed = [each for each in policies if (each.data.get("status") or {}).get("state") != "ignored"] or policies
    note(f"{each.place()}: {each.subject}{say.OTHER_POLICY}" for each in policies if obeyed and each is not obeyed[0])
    return planned(obeyed[0], image=image, nodes=nodes) if obeyed else MigrationPlan()


def _text(plan: MigrationPlan) -> Iterator[str]:
    if not plan.steps:
        yield say.NO_STEPS
        return
    yield say.HEADINGS["lost"] if plan.lost else say.NOTHING_LOST
    yield from (f"  {one_line(each.what)}: {each.why}" for each in plan.lost)
    if plan.kept:
        yield from ("", say.HEADINGS["kept"])
        yield from (f"  {each.what}: {each.why}" for each in plan.kept)
    yield from ("", say.HEADINGS["values"])
    yield from (f"  {line}" for line in msgspec.yaml.encode(plan.values).decode().splitlines())
    yield from ("", say.HEADINGS["steps"])
    for number, step in enumerate(plan.steps, 1):
        yield from (f"  {number}. {step.do}", f"     {one_line(step.command)}", f"     back: {one_line(step.undo)}")
