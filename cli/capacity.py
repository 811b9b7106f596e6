"""``tessera capacity``: what a program could have of a queue, asked of the controller; nothing is created."""

from collections.abc import Iterator
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.text import Text

from cli.access.cluster import Controller, UnreachableError, Where, awaited, run
from cli.access.kubeapi import kube_options, opened, space_option
from cli.printing.console import Json, patience, titled
from cli.printing.console import show as print_parts
from cli.printing.output import output_option, printed
from cli.printing.table import prose
from cli.words import given as say
from controller.objects.capacityrequests import API_VERSION, KIND
from controller.objects.quantity import QuantityError, parse_quantity

_FIELDS: Final = {
    "least": "min",
    "most": "max",
    "duration": "duration",
    "not_before": "notBefore",
    "not_after": "notAfter",
    "class_name": "priorityClassName",
}
"""Fields of a request's spec, by the parameters of the command."""
_STYLES: Final = {"Granted": "green", "Offered": "yellow", "Refused": "red"}


class Amount(click.ParamType[tuple[str, str]]):
    """``RESOURCE=AMOUNT``, such as ``nvidia.com/gpu=1``."""

    name = "resource=amount"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, sign, amount = str(value).partition("=")
        if not (name and sign and amount):
            self.fail(say.bad_value(str(value), "RESOURCE=AMOUNT, such as nvidia.com/gpu=1"), param, ctx)
        try:
            parse_quantity(amount)
        except QuantityError:
            self.fail(say.bad_value(str(value), "a quantity for AMOUNT, such as nvidia.com/gpu=1"), param, ctx)
        return name, amount


Amounts = tuple[tuple[str, str], ...]


def _once(ctx: click.Context, param: click.Parameter, given: Amounts) -> Amounts:
    """The amounts, of which no two are of one resource."""
    names = [name for name, _ in given]
    for name in names:
        if names.count(name) > 1:
            told = f"found {name} {names.count(name)} times, expected each resource once"
            raise click.BadParameter(told, ctx, param)
    return given


@click.command("capacity", short_help="What a program could have of a queue now, and when more.")
@click.argument("queue")
@click.option(
    "--unit",
    "unit",
    type=Amount(),
    multiple=True,
    required=True,
    callback=_once,
    help="What one unit requests; repeat it for each resource.",
)
@click.option("--min", "least", type=click.IntRange(min=1), default=1, show_default=True, help="The fewest units.")
@click.option("--max", "most", type=click.IntRange(min=1), help="The most units; without it as --min.")
@click.option("--for", "duration", metavar="DURATION", help="How long, such as 2h; without it for ever.")
@click.option("--not-before", metavar="WHEN", help="The earliest start: a time, or a duration from now.")
@click.option("--not-after", metavar="WHEN", help="The latest start: a time, or a duration from now.")
@click.option("--class", "class_name", metavar="NAME", help="A priority class.")
@space_option
@kube_options
@output_option
def capacity(where: Where, queue: str, namespace: str | None, output: str, **asked: Any) -> None:
    """What could a program have of LocalQueue QUEUE? As many units as are free between --min and --max; else offers:
    fewer, later, or another flavor, each with its arithmetic. Nothing is created or kept.

    \b
    Examples:
      tessera capacity agents --unit nvidia.com/gpu=1 --min 2 --max 8
      tessera capacity agents -n research --unit nvidia.com/gpu=4 --unit cpu=16 --for 2h --not-after 6h
      tessera capacity agents --unit nvidia.com/gpu=1 --max 8 -o json | jq '.offers[] | select(.from)'
    """
    spec = {"queueName": queue, "unit": dict(asked["unit"])}
    spec |= {field: asked[name] for name, field in _FIELDS.items() if asked[name] is not None}

    async def work() -> None:
        async with opened(where) as client:
            space = namespace or where.cluster().namespace
            manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"namespace": space}, "spec": spec}
            try:
                async with patience(awaited):
                    forecast = await Controller(where, where.cluster(), client).forecast(manifest, space)
            except UnreachableError as failed:
                raise click.ClickException(str(failed)) from None
            if output == "text":
                print_parts(*_parts(forecast))
            else:
                printed(forecast, output)

    run(work(), patiently=False)


def _parts(found: Json) -> Iterator[RenderableType]:
    yield Text(found["message"], style=_STYLES.get(found["state"], ""))
    if not found["offers"]:
        return
    made = titled("Offers", "offer", "units", "from", "until", "flavor", prose(""))
    for each in found["offers"]:
        made.add_row(
            each["id"], str(each["units"]), each["from"], each["until"] or "-", each["flavor"] or "-", each["why"]
        )
    yield made
