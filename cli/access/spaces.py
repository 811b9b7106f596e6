"""Tells of a namespace that does not exist, with the nearest one that does."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import click

from cli.access.cluster import is_kind_missing
from cli.naming.meant import meant
from cli.words import queues as say
from controller.cluster.watching.kinds import NAMESPACES
from kube.client import Client
from kube.errors import NotFoundError

_MISSING: Final = re.compile(r"namespaces \"(?P<name>[^\"]*)\" not found")
"""The API server's answer to a creation in a namespace that does not exist."""


@asynccontextmanager
async def namespace_told(client: Client, place: str, namespace: str) -> AsyncIterator[None]:
    """A context in which a creation in a namespace that does not exist is refused in words."""
    try:
        yield
    except NotFoundError as failed:
        missing = _MISSING.search(str(failed))
        if is_kind_missing(failed) or missing is None or missing["name"] != namespace:
            raise
        raise click.ClickException(await no_namespace(client, place, namespace)) from None


async def no_namespace(client: Client, place: str, namespace: str) -> str:
    return say.no_namespace(place, namespace) + await meant(client, NAMESPACES, namespace)
