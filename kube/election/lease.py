"""Leader election: one process acts, the others wait, and a process that cannot prove that it leads stops.

    leadership = Leadership(client, [LeaseRef("tessera", "tessera-controller"), ...], ...)
    while not await leadership.lead(work):
        ...   # lost: the work was cancelled; campaign anew, or end

Several leases can be held as one leadership: a controller that must not run beside the one it replaces holds that one's
lease too. They are taken in the order given, so that two candidates never hold half each, and only all of them together
are leadership. ``kube.election.candidate`` has the rules of one lease; this module makes the calls.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct

from failpoints import points
from failpoints.names import Failpoint
from kube.client import Client
from kube.clock import Clock, sleep
from kube.election.candidate import (
    Candidate,
    Create,
    Identity,
    Lease,
    LeaseRecord,
    LeaseRequest,
    LeaseTiming,
    Read,
    Replace,
)
from kube.errors import KubeError, UnavailableError
from kube.resources import LEASES

__all__ = ["Identity", "Leadership", "LeaseRef", "LeaseTiming"]

log = logging.getLogger(__name__)
T = TypeVar("T")

_JITTER = 0.2
_RELEASE_S = 2.0
"""The seconds that the release of the leases may take: the process is being ended."""
_REQUESTS = 6
"""The most requests in one round: read, write, and twice more where others write at the same time."""
_REPEAT_LOG_S = 60.0


class LeaseRef(Struct, frozen=True):
    """The name of a lease. ``absent_is_held``: where its namespace does not exist no process can hold it, which counts
    as ours.

    The lease is looked for again at each renewal, and made as soon as its namespace exists; if another process was
    faster, leadership ends.
    """

    namespace: str
    name: str
    absent_is_held: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Leadership:
    """Campaigns for ``leases`` and says whether this process leads. ``me`` names this process and no other, ever.

    ``leading`` is a promise until the next ``await`` only, and about this process alone: a request that is under way
    must be answered or given up within ``lease_s - renew_s``, so give the client that writes a timeout below that.
    ``random`` returns 0 to 1.

    ``_candidates`` is in the order of ``_refs`` and is written by ``lead``'s task alone; the properties only read it.
    """

    def __init__(
        self,
        client: Client,
        leases: Sequence[LeaseRef],
        *,
        me: Identity,
        clock: Clock,
        random: Callable[[], float],
        timing: LeaseTiming | None = None,
        life_s: Callable[[], float] | None = None,
    ) -> None:
        """``life_s``: when the loop that acts last showed life, by ``clock``; None where ``lead`` is called on it."""
        if not leases:
            raise ValueError("leases: found none, expected at least one")
        self._client = client
        self._refs = tuple(leases)
        self._me = me
        self._clock = clock
        self._random = random
        self._timing = timing or LeaseTiming()
        self._life_s = life_s or clock.monotonic
        self._candidates = self._fresh()
        self._said: tuple[str, float] = ("", 0.0)
        self._absent: set[LeaseRef] = set()
        """The leases whose absent namespace was logged, until it exists."""

    def _fresh(self) -> tuple[Candidate, ...]:
        return tuple(Candidate(self._me, self._timing, absent_is_held=ref.absent_is_held) for ref in self._refs)

    @property
    def leading(self) -> bool:
        """Whether this process may act now: every lease is held, by its own clock."""
        return self.held_for_s > 0

    @property
    def held_for_s(self) -> float:
        """The seconds for which this process may act if no renewal succeeds."""
        now_s = self._clock.monotonic()
        return min(candidate.held_for(now_s) for candidate in self._candidates)

    @property
    def waiting_for(self) -> str | None:
        """The lease that this process lacks and its holder, for people; None while it leads."""
        lacking = self._lacking()
        if lacking is None:
            return None
        ref, candidate = lacking
        if candidate.namespace_absent:
            return f"lease {ref}: the namespace {ref.namespace} is not there"
        return f"lease {ref}: held by {candidate.holder or 'nobody'}"

    def _lacking(self) -> tuple[LeaseRef, Candidate] | None:
        """The first lease that this process does not hold."""
        now_s = self._clock.monotonic()
        pairs = zip(self._refs, self._candidates, strict=True)
        return next(((ref, candidate) for ref, candidate in pairs if not candidate.held_for(now_s)), None)

    async def lead(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Wait for leadership, then run ``work`` as long as it lasts.

        True if ``work`` ended by itself (what it raises comes through), False if leadership was lost and ``work`` was
        cancelled, which was before another process could lead. Either way, and when this call is cancelled, the leases
        are released after ``work`` has ended: the next leader need not wait for them to expire.
        """
        try:
            await self._campaign()
            log.info("leading as %s: %s", self._me, ", ".join(map(str, self._refs)))
            return await self._run(work)
        finally:
            await self._release()
            self._candidates = self._fresh()

    async def _run(self, work: Callable[[], Awaitable[None]]) -> bool:
        async def working() -> None:
            await work()

        tasks = (asyncio.create_task(working(), name="leader"), asyncio.create_task(self._keep(), name="lease"))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            lost = not tasks[0].done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if lost:
            log.warning("no longer leading: %s", self.waiting_for)
        for task in tasks:
            if not task.cancelled():
                task.result()
        return not lost

    async def _campaign(self) -> None:
        while not self.leading:
            for index in range(len(self._refs)):
                await self._round(index)
                # Leases after one that is lacking are not requested: see the module.
                if not self._candidates[index].held_for(self._clock.monotonic()):
                    break
            if not self.leading:
                self._say()
                await self._pause()

    async def _keep(self) -> None:
        """Renew the leases until leadership is lost, and not a moment longer."""
        silent = False
        while self.leading:
            await self._pause()
            before, silent = silent, self._candidates[0].is_silent(self._clock.monotonic(), self._life_s())
            if silent and not before:
                log.warning("not renewed: what decides has shown no life for %.1f s", self._timing.silence_s)
            rounds = [self._round(index) for index in range(len(self._refs))]
            with suppress(UnavailableError):
                await self._within(asyncio.gather(*rounds), self.held_for_s)

    async def _pause(self) -> None:
        pause_s = self._timing.retry_s * (1 + _JITTER * self._random())
        await sleep(self._clock, min(pause_s, self.held_for_s or pause_s))

    async def _release(self) -> None:
        async def let_go() -> None:
            for index in reversed(range(len(self._refs))):
                self._candidates[index].leave()
                await self._round(index, begin=False)

        # The release is shielded: a process that is being cancelled must still release its leases.
        task = asyncio.ensure_future(let_go())
        try:
            await asyncio.shield(self._within(task, _RELEASE_S))
        except UnavailableError as error:
            log.warning("the leases were not let go, others wait until they run out: %s", error)

    async def _round(self, one: int, *, begin: bool = True) -> None:
        """Send all requests that a lease needs now."""
        candidate, ref = self._candidates[one], self._refs[one]
        if begin:
            candidate.begin(self._clock.monotonic())
        for _ in range(_REQUESTS):
            request = candidate.ask(self._clock.monotonic(), self._clock.wall(), self._life_s())
            if request is None:
                break
            answer: LeaseRecord | KubeError = UnavailableError("given up")
            try:
                answer = await self._within(self._call(ref, request), self._timing.lease_s - self._timing.renew_s)
            except KubeError as error:
                answer = error
                if error.status not in (404, 409):
                    log.warning("lease %s: %s", ref, error)
            finally:  # also when cancelled: a request that was sent may have been applied
                candidate.answered(request, answer, self._clock.monotonic())
        self._say_absent(ref, candidate)

    def _say_absent(self, ref: LeaseRef, candidate: Candidate) -> None:
        """Log that the namespace does not exist, once for as long as that lasts."""
        if not candidate.namespace_absent:
            self._absent.discard(ref)
        elif ref not in self._absent:
            self._absent.add(ref)
            so = "nobody holds it, which counts as ours" if ref.absent_is_held else "it is waited for"
            log.info("lease %s: the namespace %s is not there: %s", ref, ref.namespace, so)

    async def _call(self, ref: LeaseRef, request: LeaseRequest) -> LeaseRecord:
        match request:
            case Read():
                lease = await self._client.get(LEASES, ref.name, Lease, namespace=ref.namespace)
            case Create(spec=spec):
                body: dict[str, Any] = {"metadata": {"name": ref.name, "namespace": ref.namespace}, "spec": spec}
                body |= {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
                points.before(Failpoint.LEASE)
                lease = await self._client.create(LEASES, body, Lease, namespace=ref.namespace)
                points.after(Failpoint.LEASE)
            case Replace(spec=spec, version=version):
                # This is a merge patch, so that labels and fields of later API versions stay.
                body = {"metadata": {"resourceVersion": version}, "spec": spec}
                points.before(Failpoint.LEASE_CHANGED)
                lease = await self._client.merge_patch(LEASES, ref.name, body, Lease, namespace=ref.namespace)
                points.after(Failpoint.LEASE_CHANGED)
        return LeaseRecord(lease.spec, lease.metadata.resource_version)

    async def _within(self, call: Coroutine[Any, Any, T] | asyncio.Future[T], seconds: float) -> T:
        """The call's result; UnavailableError if it takes longer, and then it is cancelled."""
        task = asyncio.ensure_future(call)
        over = asyncio.Event()
        task.add_done_callback(lambda _: over.set())
        try:
            if await self._clock.wait(over, seconds):
                return task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, KubeError):
                await task
        raise UnavailableError(f"no answer within {seconds:.1f} s")

    def _say(self) -> None:
        if any(candidate.namespace_absent for candidate in self._candidates):
            return  # logged once: see ``_say_absent``
        what, now_s = self.waiting_for or "", self._clock.monotonic()
        if what != self._said[0] or now_s - self._said[1] >= _REPEAT_LOG_S:
            self._said = (what, now_s)
            log.info("waiting for %s", what)
