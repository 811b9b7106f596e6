"""Output of commands: text for people, JSON, YAML or names for programs. The formats of all commands stand here.

    output_option   -o text|json|yaml              every command
    table_option    -o text|wide|json|yaml         commands that show tables
    list_option     -o text|wide|name|json|yaml    commands that list objects

``wide`` is text with more columns, and leaves none out however narrow the terminal is; ``name`` is KIND.GROUP/NAME, one
a line, as kubectl takes it. Text of objects may come from anybody: characters that a terminal would obey are escaped.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import click
import msgspec

from kube.resources import Resource

FORMATS: Final = ("text", "json", "yaml")
TABLE_FORMATS: Final = ("text", "wide", "json", "yaml")
LIST_FORMATS: Final = ("text", "wide", "name", "json", "yaml")
FOR_PEOPLE: Final = ("text", "wide")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

output_option = click.option(
    "-o", "--output", type=click.Choice(FORMATS), default="text", help="For people, or for programs."
)
table_option = click.option(
    "-o",
    "--output",
    type=click.Choice(TABLE_FORMATS),
    default="text",
    help="For people (wide: every column), or for programs.",
)
list_option = click.option(
    "-o",
    "--output",
    type=click.Choice(LIST_FORMATS),
    default="text",
    help="For people (wide: more columns), or for programs.",
)


def printed(body: Any, output: str = "json") -> None:
    """Print ``body``, any value that msgspec encodes, as JSON or YAML."""
    printed_json(msgspec.json.encode(body), output)


def printed_json(body: bytes, output: str = "json") -> None:
    """Print JSON text unchanged, or as YAML with the same keys in the same order."""
    if output == "yaml":
        # The way is by JSON: times and numbers are then written as the JSON has them.
        click.echo(msgspec.yaml.encode(msgspec.json.decode(body)).decode().removesuffix("\n"))
    else:
        click.echo(msgspec.json.format(body, indent=2).decode())


def print_names(resource: Resource, names: Iterable[str]) -> None:
    """Print ``workload.kueue.x-k8s.io/NAME``, one a line; a namespace before the name is left out, as kubectl does."""
    prefix = ".".join(filter(None, (resource.kind.lower(), resource.group)))
    for name in names:
        click.echo(f"{prefix}/{name.rpartition('/')[2]}")


def visible(text: str) -> str:
    """The text with every control character but line ends and tabs as its escape: ``\\x1b`` for ESC."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def one_line(text: str) -> str:
    """The visible text, with line ends and tabs as their escapes too: an object's text stays in its line."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")
