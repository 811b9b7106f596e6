"""Decides on ProvisioningRequests: which are created and removed, and what checks say by them.

Objects -> ``Provisioning`` -> the next steps of one workload. Rules and order are those of Kueue's controller of the
check (KEP-1136): a request exists from when the workload holds quota until it is evicted or ends, one for each check
and attempt. A request that failed sends the workload back to its queue (Retry); the next attempt is another request.

Invariants, which ``validate`` recomputes: ``_owned`` has each request exactly once, under the workload that owns it; a
step never creates a request while one of the same check may still give nodes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

import msgspec

from controller.messages import provisioning as words
from controller.objects.meta import Struct, find_condition, is_true, object_key
from controller.objects.provisioning import ProvisioningRequest, ProvisioningRequestConfig
from controller.objects.queues import AdmissionCheck
from controller.objects.workload import AdmissionCheckState, CheckState, PodSetUpdate, Workload
from controller.reconcile.provisioning.checks import config_of, is_ours
from controller.reconcile.provisioning.requests import (
    NeededPodSet,
    attempt_of,
    is_in_sync,
    needed,
    request_name,
    updates,
)
from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.decisions import Event
from controller.scheduler.decisions.reasons import EventType
from controller.scheduler.decisions.status import MESSAGE_LIMIT, moment
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import FLAVORS_GIVEN_UP

CHECK_UPDATED: Final = "AdmissionCheckUpdated"
CLEAN_UP: Final = "CleanupProvisioningRequestsOnEviction"
"""The gate with which requests are removed at an eviction too; without it the autoscaler removes them days later."""

ACCEPTED: Final = "Accepted"
PROVISIONED: Final = "Provisioned"
FAILED: Final = "Failed"
BOOKING_EXPIRED: Final = "BookingExpired"
CAPACITY_REVOKED: Final = "CapacityRevoked"
_LIMIT_COUNT: Final = 3
_BASE_S: Final = 60
_MAX_S: Final = 1800
_MOST_DOUBLINGS: Final = 31


class Wanted(NamedTuple):
    """A request to create, of one attempt of a check."""

    name: str
    check: str
    config: ProvisioningRequestConfig


class Steps(Struct, frozen=True, kw_only=True):
    """The next steps of a workload, in this order. ``kept``: requests whose PodTemplates are to be theirs. ``after``:
    the workload with other states of its checks; None if they stay.
    """

    remove: tuple[ProvisioningRequest, ...] = ()
    create: tuple[Wanted, ...] = ()
    kept: tuple[ProvisioningRequest, ...] = ()
    after: Workload | None = None
    events: tuple[Event, ...] = ()
    give_up: tuple[str, ...] = ()
    """All flavors that the workload is to be kept from, where these are more than before."""


class Current(NamedTuple):
    """A check's newest request, and its attempt."""

    request: ProvisioningRequest
    attempt: int

    def says(self, type_: str) -> bool:
        return is_true(self.request.status.conditions, type_)

    def why(self, type_: str) -> str:
        found = find_condition(self.request.status.conditions, type_)
        return found.message if found is not None else ""

    def is_over(self, *, admitted: bool) -> bool:
        """Whether it gives no nodes any more to a workload that waits for them."""
        return self.says(FAILED) or self.says(CAPACITY_REVOKED) or (self.says(BOOKING_EXPIRED) and not admitted)


class Provisioning:
    """Requests of all workloads. ``extended``: beyond Kueue, revoked capacity sends the workload back to its queue, and
    a workload whose pods got places without its request takes it back.

    Each method that sets an object takes None for one that is gone, and returns the workloads to decide on.
    """

    def __init__(self, gates: FeatureGates, *, extended: bool) -> None:
        self._gates = gates
        self._extended = extended
        self._workloads: dict[WorkloadKey, Workload] = {}
        """Workloads with checks or with requests."""
        self._requests: dict[str, tuple[ProvisioningRequest, WorkloadKey]] = {}
        self._owned: dict[WorkloadKey, dict[str, ProvisioningRequest]] = {}
        self.checks: dict[str, AdmissionCheck] = {}
        self.configs: dict[str, ProvisioningRequestConfig] = {}
        self._served = False
        """Whether there can be requests in this cluster, and all of them are known."""

    # -- events --------------------------------------------------------------------------------------------------------

    def set_workload(self, key: WorkloadKey, workload: Workload | None) -> Collection[WorkloadKey]:
        if workload is not None and (workload.status.admission_checks or key in self._owned):
            self._workloads[key] = workload
        else:
            known = self._workloads.pop(key, None)
            if known is None and key not in self._owned:
                return ()
        return (key,)

    def set_request(self, key: str, request: ProvisioningRequest | None) -> Collection[WorkloadKey]:
        """``key``: ``namespace/name``."""
        affected: set[WorkloadKey] = set()
        _, before = self._requests.pop(key, (None, None))
        if before is not None:
            affected.add(before)
            self._owned[before].pop(key)
            if not self._owned[before]:
                del self._owned[before]
        owner = owner_of(request) if request is not None else None
        if request is not None and owner is not None:
            affected.add(owner)
            self._requests[key] = request, owner
            self._owned.setdefault(owner, {})[key] = request
        return affected

    def set_check(self, name: str, check: AdmissionCheck | None) -> Collection[WorkloadKey]:
        known = self.checks.pop(name, None)
        if check is not None and is_ours(check):
            self.checks[name] = check
        if known is None and name not in self.checks:
            return ()
        return [key for key, workload in self._workloads.items() if _state(workload, name) is not None]

    def set_config(self, name: str, config: ProvisioningRequestConfig | None) -> Collection[WorkloadKey]:
        if config is None:
            self.configs.pop(name, None)
        else:
            self.configs[name] = config
        concerned = {
            each
            for each, check in self.checks.items()
            if check.spec.parameters is not None and check.spec.parameters.name == name
        }
        return [
            key
            for key, workload in self._workloads.items()
            if any(state.name in concerned for state in workload.status.admission_checks)
        ]

    def set_served(self, *, served: bool) -> Collection[WorkloadKey]:
        if served == self._served:
            return ()
        self._served = served
        return [
            key
            for key, workload in self._workloads.items()
            if any(state.name in self.checks for state in workload.status.admission_checks)
        ]

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decide(
        self, key: WorkloadKey, workload: Workload | None, now_s: float, groups: Collection[Collection[str]] = ()
    ) -> Steps:
        """The next steps of the workload, in its newest state; None if it is gone. ``groups``: the flavors of its
        ClusterQueue, of which those of one group stand in for each other.
        """
        owned = [each for each in self._owned.get(key, {}).values() if each.metadata.deletion_timestamp is None]
        if workload is None or is_true(workload.status.conditions, reasons.FINISHED):
            return Steps(remove=tuple(owned))
        mine = tuple(each for each in owned if _is_owner(each, workload))
        strangers = tuple(each for each in owned if not _is_owner(each, workload))
        if not _waits_or_runs(workload):
            return Steps(remove=tuple(owned) if self._gates.on(CLEAN_UP) else strangers)
        states = workload.status.admission_checks
        if any(state.state in ("Retry", "Rejected") for state in states):
            return Steps(remove=strangers)  # its eviction follows
        every = (*mine, *self._going(key, workload))
        asked = {state.name: self._asked(workload, state, every) for state in states if state.name in self.checks}
        admitted = is_true(workload.status.conditions, reasons.ADMITTED)
        given_up = self._given_up(workload, asked, groups) if not admitted else ()
        if given_up:
            return Steps(give_up=given_up)
        create = () if admitted else tuple(self._created(workload, asked))
        after = tuple(self._checked(workload, state, asked, now_s) for state in states)
        return Steps(
            remove=(*strangers, *_unused(workload, mine, asked, after)),
            create=create,
            kept=tuple(each.current.request for each in asked.values() if each.current is not None and each.goes_on),
            after=_with_states(workload, after) if after != states else None,
            events=tuple(_told(workload, states, after)),
        )

    def _going(self, key: WorkloadKey, workload: Workload) -> list[ProvisioningRequest]:
        """The workload's requests that are being deleted: their names are taken until they are gone."""
        return [
            each
            for each in self._owned.get(key, {}).values()
            if each.metadata.deletion_timestamp is not None and _is_owner(each, workload)
        ]

    def _asked(self, workload: Workload, state: AdmissionCheckState, mine: tuple[ProvisioningRequest, ...]) -> "_Asked":
        """What one check requests, and the newest request that is still for that."""
        config = config_of(self.checks[state.name], self.configs)
        if isinstance(config, str) or not self._served:
            return _Asked(None, (), None, is_name_taken=False)
        wanted = needed(workload, config)
        most, valid = (state.retry_count or 0) + 2, list[Current]()
        taken = False
        for request in mine if wanted else ():
            attempt = attempt_of(request.metadata.name, workload.metadata.name, state.name, most)
            if attempt is None:
                continue
            if request.metadata.deletion_timestamp is not None:
                taken = taken or attempt == (state.retry_count or 0) + 1
            elif is_in_sync(request, workload, config):
                valid.append(Current(request, attempt))
        newest = max(valid, key=lambda each: each.attempt, default=None)
        return _Asked(config, wanted, newest, is_name_taken=taken and newest is None)

    def _created(self, workload: Workload, asked: Mapping[str, "_Asked"]) -> Iterator[Wanted]:
        for name, check_asked in asked.items():
            state = _state(workload, name)
            if check_asked.config is None or not check_asked.wanted or state is None or state.state != "Pending":
                continue
            retried, attempt = state.retry_count or 0, (state.retry_count or 0) + 1
            if check_asked.current is not None:
                if not check_asked.current.is_over(admitted=False) or check_asked.current.attempt > retried:
                    continue
                attempt = check_asked.current.attempt + 1
            if check_asked.is_name_taken or (self._extended and _is_placed(workload, check_asked.wanted)):
                continue
            yield Wanted(request_name(workload.metadata.name, name, attempt), name, check_asked.config)

    def _given_up(
        self, workload: Workload, asked: Mapping[str, "_Asked"], groups: Collection[Collection[str]]
    ) -> tuple[str, ...]:
        """The flavors to be given up with those that are, after the last attempt for one of them; none where it has no
        other flavor in its place.
        """
        known = flavors_given_up(workload)
        flavors: set[str] = set()
        for name, check_asked in asked.items():
            state = _state(workload, name)
            if not self._extended or check_asked.config is None or check_asked.current is None or state is None:
                continue
            over = check_asked.current.says(FAILED) or check_asked.current.says(BOOKING_EXPIRED)
            if over and check_asked.current.attempt > _limit(check_asked.config, workload, state):
                flavors |= {flavor for pod_set in check_asked.wanted for flavor in pod_set.flavors}
        given_up = flavors - known
        stood_in = {
            flavor for flavor in given_up for group in groups if flavor in group and {*group} - known - given_up
        }
        return tuple(sorted(known | stood_in)) if stood_in else ()

    # -- states of checks ----------------------------------------------------------------------------------------------

    def _checked(
        self, workload: Workload, state: AdmissionCheckState, asked: Mapping[str, "_Asked"], now_s: float
    ) -> AdmissionCheckState:
        """The state of a check as it has to be."""
        check_asked = asked.get(state.name)
        if check_asked is None:
            return state
        admitted = is_true(workload.status.conditions, reasons.ADMITTED)
        if check_asked.config is None:
            return state if admitted else _moved(state, "Pending", words.check_not_active(), now_s)
        if not check_asked.wanted:
            return state if state.state == "Ready" else _moved(state, "Ready", words.not_needed(), now_s)
        current = check_asked.current
        # Node selectors of the request would contradict places that were found without them.
        selects = (
            check_asked.config.spec.pod_set_updates is not None
            and check_asked.config.spec.pod_set_updates.node_selector
        )
        gives = (
            current is not None and current.says(PROVISIONED) and not current.is_over(admitted=False) and not selects
        )
        waits = self._extended and not admitted and not gives and state.state == "Pending"
        if waits and _is_placed(workload, check_asked.wanted):
            return _moved(state, "Ready", words.found_without(), now_s)
        if current is None:
            return state
        return self._by_request(workload, state, check_asked.config, check_asked.wanted, current, now_s)

    def _by_request(
        self,
        workload: Workload,
        state: AdmissionCheckState,
        config: ProvisioningRequestConfig,
        wanted: tuple[NeededPodSet, ...],
        current: Current,
        now_s: float,
    ) -> AdmissionCheckState:
        """The state that the conditions of the request make. The first of these that is True counts: Failed,
        CapacityRevoked, BookingExpired, Provisioned, Accepted.
        """
        admitted = is_true(workload.status.conditions, reasons.ADMITTED)
        again = partial(_again, workload, state, config, wanted, current, now_s)
        if current.says(FAILED):
            return again(FAILED, words.failed)
        if current.says(CAPACITY_REVOKED):
            why = current.why(CAPACITY_REVOKED)
            if self._extended:
                return again(CAPACITY_REVOKED, words.revoked)
            return _moved(state, "Rejected", why, now_s) if workload.spec.active else state
        if current.says(BOOKING_EXPIRED):
            return state if admitted else again(BOOKING_EXPIRED, words.expired)
        if current.says(PROVISIONED):
            if state.state == "Ready":
                return state
            given = updates(current.request, wanted, config)
            return _moved(state, "Ready", current.why(PROVISIONED), now_s, given)
        if admitted:
            return state
        name, class_name = current.request.metadata.name, current.request.spec.provisioning_class_name
        message = words.requested(name, class_name) if self._extended else ""
        if current.says(ACCEPTED):
            message = current.why(PROVISIONED) or (words.accepted(name, class_name) if self._extended else "")
            if not message:
                return state
        return _moved(state, "Pending", message, now_s)

    # -- invariants ----------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises DriftError."""
        flat = {key: (each, owner) for owner, own in self._owned.items() for key, each in own.items()}
        if flat != self._requests or sum(map(len, self._owned.values())) != len(self._requests):
            raise DriftError("requests by owner differ from all requests")
        wrong = [key for key, (each, owner) in self._requests.items() if owner_of(each) != owner]
        if wrong:
            raise DriftError(f"requests under another owner than theirs: {wrong[:5]}")
        if strange := [name for name, check in self.checks.items() if not is_ours(check)]:
            raise DriftError(f"checks of other controllers: {strange[:5]}")


class _Asked(NamedTuple):
    """What one check requests. ``config``: None while the check is not active. ``is_name_taken``: the request of the
    next attempt's name is from an earlier reservation, and has to go first.
    """

    config: ProvisioningRequestConfig | None
    wanted: tuple[NeededPodSet, ...]
    current: Current | None
    is_name_taken: bool

    @property
    def goes_on(self) -> bool:
        return self.current is not None and not self.current.is_over(admitted=False)


def owner_of(request: ProvisioningRequest) -> WorkloadKey | None:
    """The workload whose request it is; None for a request of somebody else."""
    for owner in request.metadata.owner_references:
        if owner.kind in ("Workload", "") and owner.name:
            return WorkloadKey(object_key(request.metadata.namespace, owner.name))
    return None


def with_message(workload: Workload, check: str, message: str, now_s: float) -> Workload | None:
    """The workload with this message in the state of a check; None if it is there already."""
    states = workload.status.admission_checks
    after = tuple(
        _moved(state, state.state, message, now_s, state.pod_set_updates) if state.name == check else state
        for state in states
    )
    return _with_states(workload, after) if after != states else None


def _is_owner(request: ProvisioningRequest, workload: Workload) -> bool:
    own = workload.metadata
    return any((owner.name, owner.uid) == (own.name, own.uid) for owner in request.metadata.owner_references)


def _waits_or_runs(workload: Workload) -> bool:
    """Whether the workload holds quota, to wait for its checks or to run."""
    conditions = workload.status.conditions
    held = is_true(conditions, reasons.QUOTA_RESERVED) and workload.status.admission is not None
    return held and not is_true(conditions, reasons.EVICTED) and workload.spec.active


def _is_placed(workload: Workload, pod_sets: tuple[NeededPodSet, ...]) -> bool:
    """Whether all pods for which nodes are requested have places, which they get after their checks as a rule."""
    admission = workload.status.admission
    placed = {
        each.name
        for each in (admission.pod_set_assignments if admission is not None else ())
        if each.topology_assignment is not None
    }
    return all(each.name in placed for each in pod_sets)


def _state(workload: Workload, check: str) -> AdmissionCheckState | None:
    return next((state for state in workload.status.admission_checks if state.name == check), None)


def _unused(
    workload: Workload,
    mine: tuple[ProvisioningRequest, ...],
    asked: Mapping[str, _Asked],
    after: tuple[AdmissionCheckState, ...],
) -> Iterator[ProvisioningRequest]:
    """Requests that no check goes by: of earlier attempts, out of sync, or of a check that is Ready without them. Those
    of a check that is not active stay. Of an admitted workload only the last are: others may be what it runs on.
    """
    admitted = is_true(workload.status.conditions, reasons.ADMITTED)
    without = {state.name for state in after if state.state == "Ready" and not state.pod_set_updates}
    stay = {name for name, each in asked.items() if name not in without and (admitted or each.config is None)}
    used = {each.current.request.metadata.name for name, each in asked.items() if each.current and name not in without}
    for request in mine:
        name, own = request.metadata.name, workload.metadata.name
        kept = name in used or any(_is_of(name, own, check, after) for check in stay)
        if not kept and (not admitted or any(_is_of(name, own, check, after) for check in without)):
            yield request


def _is_of(request: str, workload: str, check: str, states: tuple[AdmissionCheckState, ...]) -> bool:
    """Whether the name is one of a request of the check."""
    retried = next((state.retry_count or 0 for state in states if state.name == check), 0)
    return attempt_of(request, workload, check, retried + 2) is not None


def _again(
    workload: Workload,
    state: AdmissionCheckState,
    config: ProvisioningRequestConfig,
    wanted: tuple[NeededPodSet, ...],
    current: Current,
    now_s: float,
    type_: str,
    sentence: Callable[[str], str],
) -> AdmissionCheckState:
    """The state after a request that came to nothing: Retry, up to the limit, then Rejected; Retry as well where its
    flavors are given up for others. An attempt counts once: the eviction that follows a Retry raises the number of
    retries to it.
    """
    retried, why = state.retry_count or 0, current.why(type_)
    if current.attempt <= retried:
        return state  # another request follows
    message, delay_s = sentence(why), 0
    if current.attempt <= _limit(config, workload, state):
        delay_s = _delay_s(config, current.attempt)
    elif flavors := {flavor for pod_set in wanted for flavor in pod_set.flavors} & flavors_given_up(workload):
        message = words.next_flavor(", ".join(sorted(flavors)), why)
    else:
        return _moved(state, "Rejected", why, now_s)
    return msgspec.structs.replace(_moved(state, "Retry", message, now_s), requeue_after_seconds=delay_s)


def _limit(config: ProvisioningRequestConfig, workload: Workload, state: AdmissionCheckState) -> int:
    """The last attempt after which the same flavors are tried again. Each flavor that was given up had as many, unless
    the check began anew with the next one: then its retries tell.
    """
    strategy = config.spec.retry_strategy
    limit = _LIMIT_COUNT if strategy is None or strategy.backoff_limit_count is None else strategy.backoff_limit_count
    spent = (state.retry_count or 0) // (max(limit, 0) + 1)
    return limit + min(len(flavors_given_up(workload)), spent) * (max(limit, 0) + 1)


def _delay_s(config: ProvisioningRequestConfig, attempt: int) -> int:
    """The back-off after the attempt: doubled each time, and bounded."""
    strategy = config.spec.retry_strategy
    base = _BASE_S if strategy is None or strategy.backoff_base_seconds is None else strategy.backoff_base_seconds
    most = _MAX_S if strategy is None or strategy.backoff_max_seconds is None else strategy.backoff_max_seconds
    doubled: int = base << min(attempt - 1, _MOST_DOUBLINGS)
    return max(min(doubled, most), 0)


def flavors_given_up(workload: Workload) -> frozenset[str]:
    text = workload.metadata.annotations.get(FLAVORS_GIVEN_UP, "")
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _moved(
    state: AdmissionCheckState,
    to: CheckState,
    message: str,
    now_s: float,
    pod_set_updates: tuple[PodSetUpdate, ...] = (),
) -> AdmissionCheckState:
    """The state with another value and message. Its transition time is that of the last other value."""
    at: datetime | None = state.last_transition_time if state.state == to else moment(now_s)
    return msgspec.structs.replace(
        state,
        state=to,
        message=message[:MESSAGE_LIMIT],
        last_transition_time=at,
        pod_set_updates=pod_set_updates,
    )


def _with_states(workload: Workload, states: tuple[AdmissionCheckState, ...]) -> Workload:
    return msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, admission_checks=states))


def _told(
    workload: Workload, before: tuple[AdmissionCheckState, ...], after: tuple[AdmissionCheckState, ...]
) -> Iterator[Event]:
    for old, new in zip(before, after, strict=True):
        if old.state != new.state:
            note = words.check_changed(new.name, old.state, new.state, new.message)
            yield Event(WorkloadKey(workload.key), EventType.NORMAL, CHECK_UPDATED, note)
