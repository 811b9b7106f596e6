"""The sources of answers about queues: the controller, or the same engine in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import click

from cli.access.cluster import Controller, UnreachableError, Where
from cli.access.kubeapi import MANAGER
from cli.printing.console import Json, aside
from cli.words import servers
from kube.client import Client
from kube.errors import KubeError

if TYPE_CHECKING:
    from cli.access.offline import Offline

COMPUTED: Final = "computed here"


def offline_engine() -> "type[Offline]":
    """The class of the engine here. Its modules are not loaded where the controller answers."""
    from cli.access.offline import Offline

    return Offline


class AnswerSource:
    """Answers from the controller, or computed here; ``name`` says which."""

    def __init__(self, client: Client, where: Where, controller: Controller, offline: "Offline | None") -> None:
        self.client = client
        self.where = where
        self.controller = controller
        self._offline = offline

    @property
    def name(self) -> str:
        return "controller" if self._offline is None else COMPUTED

    @property
    def is_live(self) -> bool:
        return self._offline is None

    async def offline(self) -> "Offline":
        if self._offline is None:
            return await offline_engine().load(self.client, self.where)
        return self._offline

    async def queues(self) -> list[Json]:
        if self._offline is not None:
            return self._offline.queues()
        body = await self.controller.ask("queues")
        return list(body["clusterQueues"]) if body is not None else []

    async def pending(self, name: str, limit: int) -> list[Json] | None:
        if self._offline is not None:
            return self._offline.pending(name, limit=limit)
        body = await self.controller.ask("pending", clusterQueue=name, limit=limit)
        return None if body is None else list(body["items"])


@asynccontextmanager
async def source(where: Where, *, look: bool = True) -> AsyncIterator[AnswerSource]:
    """The source: the controller where it answers, else the same engine in this process, with a note on standard error.

    Without a ``look`` the controller is not asked about queues first: an account may have the right to less.
    """
    cluster = where.cluster()
    async with Client(cluster, timeout_s=30.0, user_agent=MANAGER) as client:
        controller = Controller(where, cluster, client)
        offline = None
        if where.offline:
            offline = _noted(await offline_engine().load(client, where))
        elif look:
            try:
                await controller.ask("queues")
            except UnreachableError as failed:
                offline = await instead(client, where, failed)
        try:
            yield AnswerSource(client, where, controller, offline)
        except UnreachableError as failed:
            raise click.ClickException(servers.controller_gone(str(failed))) from None


def _noted(made: "Offline") -> "Offline":
    for note in made.notes:
        aside(note)
    return made


async def instead(client: Client, where: Where, failed: UnreachableError) -> "Offline":
    """The engine here. Where the API server does not answer either, that alone is told."""
    note = f"note: the controller cannot be reached ({failed})"
    try:
        made = await offline_engine().load(client, where)
    except KubeError as wrong:
        if wrong.status is not None:
            click.echo(note, err=True)
        raise
    click.echo(f"{note}: computed here", err=True)
    return _noted(made)
