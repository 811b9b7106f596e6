"""Options, names and lists of the commands that work on the API server's objects with the caller's own rights."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from cli.access.cluster import CONTEXT_OPTION, KUBECONFIG_OPTION, SERVICE, Where
from cli.naming.suggestions import names
from cli.printing.console import Json
from cli.words import given as say
from kube.client import Client, Selection
from kube.resources import Resource

MANAGER: Final = "tessera-cli"
DRY_RUNS: Final = ("none", "client", "server")


def kube_options(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator that gives the command ``where``: a ``Where`` from the options that say which API server; the
    controller is not asked.
    """

    @KUBECONFIG_OPTION
    @CONTEXT_OPTION
    @functools.wraps(command)
    def wrapped(*args: Any, kubeconfigs: tuple[Path, ...], context: str | None, **others: Any) -> None:
        where = Where(
            kubeconfigs=kubeconfigs, context=context, server=None, controller=SERVICE, config=None, offline=True
        )
        command(*args, where=where, **others)

    return wrapped


space_option = click.option("-n", "--namespace", help="Without it the context's.", shell_complete=names("namespaces"))
all_spaces_option = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In all namespaces.")
dry_run_option = click.option(
    "--dry-run",
    type=click.Choice(DRY_RUNS),
    default="none",
    help="client: print what would be sent; server: let the API server check it and keep nothing.",
)


def named_workload(_: click.Context, __: click.Parameter, value: str) -> str:
    """A callback of an argument that is NAME or NAMESPACE/NAME."""
    if not value or value.count("/") > 1 or value.startswith("/") or value.endswith("/"):
        raise click.BadParameter(say.bad_name(value))
    return value


def place(where: Where, name: str, namespace: str | None) -> tuple[str, str]:
    """The namespace and the bare name: ``-n`` goes before the part before a slash, and that before the context's."""
    space, _, bare = name.rpartition("/")
    return namespace or space or where.cluster().namespace, bare


def opened(where: Where) -> Client:
    return Client(where.cluster(), timeout_s=30.0, user_agent=MANAGER)


async def namespaced(client: Client, resource: Resource, namespace: str | None) -> tuple[Json, ...]:
    """All objects of the kind in the namespace; None: in all namespaces."""
    return (await client.list_all(resource, Json, Selection(namespace=namespace))).items
