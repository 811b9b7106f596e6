"""The kinds of jobs that are queued now: the kinds of the table that the configuration names, and those of JobKinds.

A kind that a JobKind declares comes and goes while the process runs. Everything that a term knows about jobs follows
from its kinds, and a term takes all of its state from objects; so a change of kinds begins a new term, after the
objects of a new kind have been listed. Changing kinds within a term was rejected: each index by kind would have to be
kept right by hand, for a change that a cluster sees a few times in its life.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import DECLARATIONS
from controller.foreign.jobs.reconcile_shell import foreign_kinds
from controller.jobs.framework.kind import JobKind
from controller.jobs.kinds.declared.accepting import verdicts
from controller.jobs.kinds.declared.kind import DeclaredKind
from controller.reconcile.jobshell.watched import (
    KNOWN_KINDS,
    JobKinds,
    job_kinds,
    keep_job,
    keep_owner,
    owned_kinds,
    resource_of,
)
from kube.clock import Clock, sleep
from kube.resources import Resource

GATHER_S: Final = 0.5
"""The time for which changes are gathered: JobKinds that are written together begin one term."""


class ManagedKinds:
    """The kinds in force. ``adopt`` before each term, ``while_in_force`` around it. ``declared``: whether JobKinds
    count at all.

    ``kinds`` and ``owned`` change in ``adopt`` alone. ``suspend_paths`` is always the same object, and follows the
    JobKinds at once: replicas that do not lead answer the webhook by it.
    """

    def __init__(self, config: ControllerConfig, feeds: Feeds, clock: Clock, *, declared: bool) -> None:
        self._config = config
        self._feeds = feeds
        self._clock = clock
        self._table = job_kinds(config.integrations.frameworks, grow=config.jobs_grow)
        self._foreign: JobKinds = {} if config.foreign_jobs is None else foreign_kinds(config.tiers)
        self._in_force: Mapping[Resource, DeclaredKind] = {}
        self._followed: set[Resource] = set()
        self._changed = asyncio.Event()
        self._declares = declared
        self.suspend_paths = _suspend_paths(self._table)
        if declared:
            feeds.note(DECLARATIONS, self._hear)

    @property
    def kinds(self) -> JobKinds:
        found: dict[Resource, JobKind] = {**self._in_force, **self._table, **self._foreign}
        return found

    @property
    def declared(self) -> frozenset[str]:
        """The names of kinds that JobKinds declare."""
        return frozenset(kind.kind for kind in self._in_force.values())

    @property
    def owned(self) -> tuple[Resource, ...]:
        return owned_kinds(self._in_force.values())

    def _hear(self) -> None:
        wanted = self._wanted()
        self.suspend_paths.clear()
        self.suspend_paths.update(_suspend_paths({**wanted, **self._table}))
        if wanted != self._in_force:
            self._changed.set()

    def _wanted(self) -> Mapping[Resource, DeclaredKind]:
        if not self._declares:
            return {}
        externals = self._config.integrations.external_frameworks
        found = verdicts(self._feeds[DECLARATIONS].objects(), KNOWN_KINDS, externals).values()
        return {resource_of(each.kind): each.kind for each in found if each.kind is not None}

    async def adopt(self) -> None:
        """Takes the kinds for the next term, which waits for their objects; kinds that are gone are watched no more."""
        if self._declares:
            await self._feeds.listed(DECLARATIONS)
        self._changed.clear()
        wanted = self._wanted()
        await self._follow(wanted)
        self._in_force = wanted
        gone = self._followed - {*wanted, *self.owned}
        for resource in gone:
            self._feeds.drop(resource)
        self._followed -= gone
        if self._wanted() != wanted:
            self._changed.set()

    async def while_in_force(
        self, work: Coroutine[Any, Any, None], changes: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> bool:
        """Runs ``work`` until it ends, or until the kinds have changed, or ``changes`` has returned: then it is ended,
        and this returns True.
        """
        tasks = [asyncio.create_task(work, name="term"), asyncio.create_task(self._change(), name="kinds")]
        if changes is not None:
            tasks.append(asyncio.create_task(changes(), name="systems"))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            task.result()
        return tasks[0] not in ended

    async def _change(self) -> None:
        """Returns when the kinds have changed, and new ones are listed: until then the term goes on."""
        while True:
            await self._changed.wait()
            await sleep(self._clock, GATHER_S)
            self._changed.clear()
            wanted = self._wanted()
            if wanted != self._in_force:
                await self._follow(wanted)
                await self._feeds.synced()
                return

    async def _follow(self, wanted: Mapping[Resource, DeclaredKind]) -> None:
        for resource in wanted:
            await self._add(resource, keep_job)
        for resource in owned_kinds(wanted.values()):
            await self._add(resource, keep_owner)

    async def _add(self, resource: Resource, decode: Any) -> None:
        if resource not in self._feeds:
            self._followed.add(resource)
            await self._feeds.follow(resource, decode)


def _suspend_paths(kinds: JobKinds) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(kind.group, kind.kind): kind.suspend_path for kind in kinds.values()}
