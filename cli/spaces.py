"""A namespace that is not there, in words: with the nearest that is."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import click

from cli.cluster import is_kind_missing
from cli.meant import meant
from cli.words import queues as say
from controller.watching.kinds import NAMESPACES
from kube.client import Client
from kube.errors import NotFoundError

_MISSING: Final = re.compile(r"namespaces \"(?P<name>[^\"]*)\" not found")
"""What the API server answers to whatever is created in a namespace that is not there."""


@asynccontextmanager
async def namespace_told(client: Client, place: str, namespace: str) -> AsyncIterator[None]:
    """What is created in the block is refused in words where its namespace is not there."""
    try:
        yield
    except NotFoundError as failed:
        missing = _MISSING.search(str(failed))
        if is_kind_missing(failed) or missing is None or missing["name"] != namespace:
            raise
        raise click.ClickException(await no_namespace(client, place, namespace)) from None


async def no_namespace(client: Client, place: str, namespace: str) -> str:
    return say.no_namespace(place, namespace) + await meant(client, NAMESPACES, namespace)
