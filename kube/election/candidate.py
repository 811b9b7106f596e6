"""One candidate for one Lease, as a pure state machine: the clock's reading is an argument, requests are values.

    begin()                                          a round of requests, every ``retry_s``
    ask(now, ..., life) -> Read | Create | Replace | None     the shell sends it; None: enough for this round
    answered(request, answer, now)                   takes the answer

The rules, after client-go's leader election and the faults that were reported of it:

- A foreign lease is judged by our own clock since we last saw its record change; times written in it are never compared
  with ours, so clocks may be wrong by any amount. They may run at different speeds too, as long as the fastest gains
  less than ``lease_s / renew_s`` on the slowest.
- Our lease lasts ``renew_s`` from the moment *before* the write that renewed it was sent. A candidate that takes over
  waits ``lease_s`` from some moment after that. The time between the two is for requests already under way: they must
  not take longer than ``lease_s - renew_s``.
- A holder whose loop stands still must lose the lease, though what renews it may run apart from that loop: nothing is
  acquired or renewed while the loop that acts has shown no life for the last third of the lease.
- Every write names the version that it replaces. After a lost answer the record is read: if it is what we wrote, the
  write was applied.
"""

from datetime import UTC, datetime
from typing import NewType

from msgspec import Struct

from kube.errors import ConflictError, KubeError, NotFoundError
from kube.objects import HeadMeta

_MOST = 2**31 - 1
"""The most transitions that the API takes; a write of one more would be refused for ever."""
Identity = NewType("Identity", str)
"""The identity of the candidate: unique for each process, so that a process never takes its predecessor for itself."""


class LeaseTiming(Struct, frozen=True, kw_only=True):
    """The times of a lease in seconds: how long it lasts, when its holder gives up, and how often each candidate tries.
    The defaults are Kubernetes' own.
    """

    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_s < self.lease_s:
            raise ValueError(
                f"found lease {self.lease_s} s, renew {self.renew_s} s and retry {self.retry_s} s, "
                "expected lease > renew > retry > 0"
            )

    @property
    def silence_s(self) -> float:
        """The seconds for which the loop that acts may show no life before its lease is no longer renewed."""
        return self.lease_s / 3


class LeaseSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The ``spec`` of a coordination.k8s.io/v1 Lease. Times are RFC 3339 with microseconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True):
    """A coordination.k8s.io/v1 Lease, less the metadata that nobody reads."""

    metadata: HeadMeta = HeadMeta()
    spec: LeaseSpec = LeaseSpec()


class LeaseRecord(Struct, frozen=True):
    """A Lease at the API server: its spec and its resourceVersion."""

    spec: LeaseSpec
    version: str


class Read(Struct, frozen=True):
    """GET the lease."""


class Create(Struct, frozen=True):
    """POST the lease."""

    spec: LeaseSpec


class Replace(Struct, frozen=True):
    """PATCH the lease, on condition that it still has ``version``: to acquire, renew or release it."""

    spec: LeaseSpec
    version: str


LeaseRequest = Read | Create | Replace


class Candidate:
    """The state of one candidate for one lease. ``wall`` readings go into the record for people to read, and nowhere
    else.

    ``absent_is_held``: a lease that cannot exist because its namespace does not (404 on creation) counts as ours.

    Written by the one task that calls ``begin``, ``ask`` and ``answered`` in turn. ``_held_until_s`` counts from the
    time at which the write that renewed the lease was sent; reading another holder's record or ``leave`` clears it.
    ``_tried`` is empty after every answer that shows what the server holds.
    """

    def __init__(self, me: Identity, timing: LeaseTiming, *, absent_is_held: bool = False) -> None:
        self._me = me
        self._timing = timing
        self._absent_is_held = absent_is_held
        self.namespace_absent = False
        """Whether the last creation found no namespace. Then a creation alone is tried in each round: it is the one
        request that finds the namespace there, and is refused where another process was faster."""
        self._record: LeaseRecord | None = None
        self._changed_s = 0.0
        self._known = False
        """Whether ``_record`` is what the server held at the last exchange with it; otherwise it is read before a
        write.
        """
        self._done = False
        self._leaving = False
        self._sent_s = 0.0
        self._tried: dict[LeaseSpec, float] = {}
        """The writes whose answer never came, with the time at which each was first sent."""
        self._owed_until_s: float | None = None
        """The time until which a lease that was deleted under its holder is still owed to it."""
        self._held_until_s: float | None = None

    def held_for(self, now_s: float) -> float:
        """The seconds for which this process may act as the holder if nothing else happens; 0 if it may not."""
        return 0.0 if self._held_until_s is None else max(0.0, self._held_until_s - now_s)

    @property
    def holder(self) -> str | None:
        """The holder by the last record seen; None where the lease is free."""
        return (self._record.spec.holder_identity or None) if self._record else None

    def free_in(self, now_s: float) -> float:
        """The seconds until this process may take the lease if its holder stays silent; 0 if it may now."""
        if self._record is None:
            return max(0.0, (self._owed_until_s or now_s) - now_s)
        spec = self._record.spec
        return 0.0 if not spec.holder_identity or self._is_mine(spec) else max(0.0, self._expiry_s(spec) - now_s)

    def begin(self, now_s: float) -> None:
        """Start a round of requests. Only the holder of the lease relies on the record it has; another candidate reads
        the lease first, unless there is none to read.
        """
        self._done = False
        self._known = self._known and (self.held_for(now_s) > 0 or self.namespace_absent)

    def leave(self) -> None:
        """Give up the lease for good: the requests that ``ask`` gives until its None release it."""
        mine = self._record is not None and self._is_mine(self._record.spec)
        self._leaving, self._done, self._held_until_s = True, not (mine or self._tried), None

    def is_silent(self, now_s: float, life_s: float | None) -> bool:
        """Whether the loop that acts, which last showed life at ``life_s``, must not get the lease renewed."""
        return life_s is not None and now_s - life_s > self._timing.silence_s

    def ask(self, now_s: float, wall_s: float, life_s: float | None = None) -> LeaseRequest | None:
        """The request to make now; None when this round has nothing more to do.

        ``life_s``: when the loop that acts last showed life, by the clock of ``now_s``; None where that loop is the
        caller.
        """
        self._sent_s = now_s
        if self._done:
            return None
        if not self._known:
            return Read()
        if self._leaving:
            return self._release(wall_s)
        if self.free_in(now_s) > 0 or self.is_silent(now_s, life_s):
            return None
        if self._record is None:
            return Create(self._spec(wall_s, None))
        return Replace(self._spec(wall_s, self._record.spec), self._record.version)

    def answered(self, request: LeaseRequest, answer: LeaseRecord | KubeError, now_s: float) -> None:
        """Take the answer to the request that ``ask`` gave last. Errors other than 404 and 409 leave the outcome
        open.
        """
        match request, answer:
            case Read(), LeaseRecord():
                self._read(answer, now_s)
            case Read(), NotFoundError():
                self._forget()
                self._known = True
            case Read(), KubeError():
                self._done = True
            case ((Create() | Replace()), LeaseRecord()):
                self._see(answer, now_s)
                self._hold(self._sent_s)
            case Create(), NotFoundError():
                self._known, self._done, self.namespace_absent = True, True, True
                if self._absent_is_held:
                    self._hold(self._sent_s)
            case Replace(), NotFoundError():
                self._forget()
            case ((Create() | Replace()), ConflictError()):
                self._known = self.namespace_absent = False
            case ((Create() | Replace()), KubeError()):
                self._known, self._done, self.namespace_absent = False, True, False
                # The earliest of equal writes counts: the lease lasts from the first that may have been applied.
                self._tried.setdefault(request.spec, self._sent_s)

    def _hold(self, since_s: float) -> None:
        self._done = True
        self._tried.clear()
        self._owed_until_s = None
        if not self._leaving:
            self._held_until_s = since_s + self._timing.renew_s

    def _read(self, record: LeaseRecord, now_s: float) -> None:
        self._see(record, now_s)
        if record.spec in self._tried and not self._leaving:
            # The write was applied and its answer was lost. The lease lasts from when it was sent; the next round
            # renews it.
            until_s = self._tried[record.spec] + self._timing.renew_s
            self._held_until_s = max(until_s, self._held_until_s or until_s)
        elif not self._is_mine(record.spec):
            self._held_until_s = None
        self._tried.clear()

    def _see(self, record: LeaseRecord, now_s: float) -> None:
        if self._record != record:
            self._changed_s = now_s
        self._known, self._record, self.namespace_absent = True, record, False

    def _forget(self) -> None:
        """Take note that the record was deleted. Its last holder may not know that yet."""
        if self._record is not None and self._record.spec.holder_identity and not self._is_mine(self._record.spec):
            self._owed_until_s = self._expiry_s(self._record.spec)
        self._known, self._record = False, None

    def _expiry_s(self, spec: LeaseSpec) -> float:
        seconds = spec.lease_duration_seconds
        return self._changed_s + (self._timing.lease_s if seconds is None else seconds)

    def _release(self, wall_s: float) -> LeaseRequest | None:
        if self._record is None or not self._is_mine(self._record.spec):
            return None
        now = stamp(wall_s)
        # As client-go does, an empty holder is written for one second, so that candidates of other makes need not wait
        # either.
        gone = LeaseSpec(
            holder_identity="",
            lease_duration_seconds=1,
            acquire_time=now,
            renew_time=now,
            lease_transitions=self._record.spec.lease_transitions,
        )
        return Replace(gone, self._record.version)

    def _is_mine(self, spec: LeaseSpec) -> bool:
        return spec.holder_identity == self._me

    def _spec(self, wall_s: float, old: LeaseSpec | None) -> LeaseSpec:
        now = stamp(wall_s)
        mine = old is not None and self._is_mine(old)
        transitions = (old.lease_transitions or 0) if old is not None else 0
        return LeaseSpec(
            holder_identity=self._me,
            lease_duration_seconds=max(1, round(self._timing.lease_s)),
            acquire_time=old.acquire_time if mine and old is not None else now,
            renew_time=now,
            lease_transitions=transitions if mine or old is None else min(transitions + 1, _MOST),
        )


def stamp(wall_s: float) -> str:
    """``wall_s`` as RFC 3339 with microseconds, the form of Lease times."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
