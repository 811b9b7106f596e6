"""ResourceClaims in the engine: which workloads name them, and which workload is charged for a claim that several
share.

A shared claim is charged to the first workload with quota that names it, by the time of its reservation, in that
workload's own flavor. When that workload leaves, the next one is charged. All of this follows from the objects, and no
admission says it: an admission says what the workload takes by itself.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec

from controller.objects.deviceclaims import ResourceClaim, ResourceClaimTemplate
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import Cluster, DriftError
from controller.scheduler.dra.claims.amounts import ClaimProblemError
from controller.scheduler.dra.claims.book import ClaimBook, claims_of
from controller.scheduler.model.deviceclaims import ClaimKey, WorkloadClaims, claim_names
from controller.scheduler.model.resources import (
    UNLIMITED,
    Amount,
    FlavorName,
    FlavorResource,
    ResourceName,
    WorkloadKey,
)
from controller.scheduler.model.workload import active_counts
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.topology.requests import topology_request

_Named = tuple[bool, str]
_Charges = dict[FlavorResource, Amount]


class ClaimExplanation(NamedTuple):
    """One ResourceClaim (or template) of a workload, as ``tessera explain`` shows it."""

    name: str
    template: bool
    amounts: Mapping[ResourceName, Amount]
    problem: str
    charged_to: tuple[WorkloadKey, ...]
    not_placed: str
    """Why the claim does not count where its pods are placed; empty where it does."""


class DeviceClaims:
    """The claims of workloads and their charges. ``WorkloadEvents`` and ``ClusterEvents`` write; ``settle`` is called
    before anything is decided.

    ``_users`` has every holder that names a claim, and no claim without one; ``_payers`` says which of them is charged
    which resource of it, as of the last ``settle``. A holder's usage is then what its admission says plus those
    charges.
    """

    def __init__(self, cluster: Cluster) -> None:
        config = cluster.config
        self.book = ClaimBook(config.claim_rules, config.request_rules)
        self._cluster = cluster
        self._naming: dict[_Named, dict[WorkloadKey, None]] = {}
        self._with_claims: dict[WorkloadKey, tuple[_Named, ...]] = {}
        self._users: dict[ClaimKey, dict[WorkloadKey, None]] = {}
        self._payers: dict[ClaimKey, dict[ResourceName, WorkloadKey]] = {}
        self._amounts: dict[ClaimKey, Mapping[ResourceName, Amount]] = {}
        self._charges: dict[WorkloadKey, _Charges] = {}
        self._unsettled: set[ClaimKey] = set()
        self._recount_all = False
        cluster.observe(self)

    # -- which workloads name what -----------------------------------------------------------------------------------

    def tell(self, key: WorkloadKey, workload: Workload) -> None:
        """Store the claims that a new or changed workload names."""
        self.forget(key)
        named = tuple(dict.fromkeys(claims_of(workload)))
        if named:
            self._with_claims[key] = named
            for each in named:
                self._naming.setdefault(each, {})[key] = None

    def forget(self, key: WorkloadKey) -> None:
        for each in self._with_claims.pop(key, ()):
            del self._naming[each][key]
            if not self._naming[each]:
                del self._naming[each]

    def affected_by(self, kind: type[KubernetesObject], namespace: str, name: str) -> tuple[WorkloadKey, ...]:
        """The workloads whose claims may count differently after a change of this object."""
        if kind is ResourceClaim or kind is ResourceClaimTemplate:
            return tuple(self._naming.get((kind is ResourceClaimTemplate, f"{namespace}/{name}"), ()))
        return tuple(self._with_claims)

    def count(self, workload: Workload) -> WorkloadClaims | None:
        counts = active_counts(workload, self._cluster.config.gates)
        return self.book.count(workload, counts, lambda claim, name: name in self._payers.get(claim, ()))

    def beside(self, workload: Workload, paid: Collection[ClaimKey]) -> WorkloadClaims | None:
        """The result of ``count`` where others are charged these claims too."""
        counts = active_counts(workload, self._cluster.config.gates)
        return self.book.count(
            workload, counts, lambda claim, name: claim in paid or name in self._payers.get(claim, ())
        )

    def told(self, workload: Workload) -> Iterator[ClaimExplanation]:
        """What each claim of the workload counts as by itself; nothing without the gate."""
        unplaced = self._unplaced(workload)
        for template, name in dict.fromkeys(claims_of(workload)) if self.book.rules.on else ():
            try:
                amounts, problem = self.book.of_template(name) if template else self.book.of_claim(name), ""
            except ClaimProblemError as error:
                amounts, problem = {}, str(error)
            payers = () if template else tuple(dict.fromkeys(self._payers.get(name, {}).values()))
            yield ClaimExplanation(name, template, amounts, problem, payers, unplaced.get((template, name), ""))

    def _unplaced(self, workload: Workload) -> Mapping[_Named, str]:
        """Claims that do not count where pods are placed, for pod sets whose pods must be placed."""
        unplaced: dict[_Named, str] = {}
        for pod_set in workload.spec.pod_sets if self.book.rules.placed else ():
            names = claim_names(workload.metadata.namespace, pod_set.template)
            if names is not None and topology_request(pod_set).placed:
                unplaced |= self._cluster.placement.uncounted_claims(names)
        return unplaced

    def claim_changed(self, claim: ClaimKey) -> None:
        """Note that the claim itself is new, changed or gone."""
        if claim in self._users:
            self._unsettled.add(claim)

    def all_changed(self) -> None:
        """Note that every claim may count differently. Drivers publish node by node, so claims are counted once, when
        needed.
        """
        self._unsettled.update(self._users)
        self._recount_all = True

    # -- holders: what the cluster tells -----------------------------------------------------------------------------

    def added(self, holder: Holder) -> None:
        for claim in _named(holder):
            self._users.setdefault(claim, {})[holder.key] = None
            self._unsettled.add(claim)

    def removed(self, holder: Holder) -> None:
        for claim in _named(holder):
            users = self._users[claim]
            del users[holder.key]
            if not users:
                del self._users[claim]
            self._unsettled.add(claim)

    def changed(self, known: Holder, holder: Holder) -> None:
        if _named(known) or _named(holder):
            self.removed(known)
            self.added(holder)

    def carried(self, holder: Holder) -> Holder:
        """The holder as its object says, with the charges that it has."""
        charges = self._charges.get(holder.key)
        return holder if charges is None else _charged(holder, charges)

    def settle(self) -> tuple[list[Holder], set[WorkloadKey]]:
        """Charge every claim to the first workload that names it. Returns the holders that take less than before, as
        they were before, and the workloads whose claims mean something else now.
        """
        eased: list[Holder] = []
        recount = set(self._with_claims) if self._recount_all else set[WorkloadKey]()
        self._recount_all = False
        users: set[WorkloadKey] = set()
        claims, self._unsettled = sorted(self._unsettled), set()
        for claim in claims:
            before = self._payers.pop(claim, {})
            users |= {*before.values(), *self._users.get(claim, ())}
            payers = self._first_of(claim)
            if payers:
                self._payers[claim] = payers
            if before.keys() != payers.keys():
                recount |= self._naming.get((False, claim), {}).keys()
        for key in sorted(users):
            known = self._cluster.holders.get(key)
            charges = self._due(known) if known is not None else {}
            if charges:
                self._charges[key] = charges
            else:
                self._charges.pop(key, None)
            if known is None:
                continue
            holder = _charged(known, charges)
            if holder.usage != known.usage:
                self._cluster.replace_holder(holder)
                if any(holder.usage.get(fr, 0) < amount for fr, amount in known.usage.items()):
                    eased.append(known)
        self._unsettled.clear()
        return eased, recount

    def _first_of(self, claim: ClaimKey) -> dict[ResourceName, WorkloadKey]:
        """The workload that is charged for each resource of the claim: the first user that has a flavor for it."""
        users = [self._cluster.holders[key] for key in self._users.get(claim, ())]
        if not users:
            self._amounts.pop(claim, None)
            return {}
        users.sort(key=lambda holder: (holder.reserved_at_s, holder.key))
        payers: dict[ResourceName, WorkloadKey] = {}
        for name in self._counted(claim):
            payer = next((holder for holder in users if _flavor(holder, claim, name) is not None), None)
            if payer is not None:
                payers[name] = payer.key
        return payers

    def _counted(self, claim: ClaimKey) -> Mapping[ResourceName, Amount]:
        """What the claim counts as; while it cannot be counted, the amounts of before."""
        try:
            self._amounts[claim] = self.book.of_claim(claim)
        except ClaimProblemError:
            self._amounts.setdefault(claim, {})
        return self._amounts[claim]

    def _due(self, holder: Holder) -> _Charges:
        """What the holder is charged for shared claims."""
        charges: _Charges = {}
        for claim in _named(holder):
            for name, payer in self._payers.get(claim, {}).items():
                flavor = _flavor(holder, claim, name)
                if payer == holder.key and flavor is not None:
                    fr = FlavorResource(flavor, name)
                    charges[fr] = min(charges.get(fr, 0) + self._amounts[claim][name], UNLIMITED)
        return charges

    def validate(self, objects: Mapping[WorkloadKey, Workload]) -> None:
        """Check users and charges; ``objects`` are the known workloads. Charges that are not settled yet are not
        checked. Raises DriftError.
        """
        holders = self._cluster.holders
        users = {(claim, holder.key) for holder in holders.values() for claim in _named(holder)}
        if users != {(claim, key) for claim, keys in self._users.items() for key in keys}:
            raise DriftError("claims by name: their users are not those that hold quota")
        named = {key: tuple(dict.fromkeys(claims_of(workload))) for key, workload in objects.items()}
        if self._with_claims != {key: claims for key, claims in named.items() if claims}:
            raise DriftError("what workloads name differs from what their objects say")
        if self._unsettled:
            return
        for claim in self._users:
            if self._payers.get(claim, {}) != self._first_of(claim):
                raise DriftError(
                    f"ResourceClaim {claim} is charged to {self._payers.get(claim)}, which is not the first"
                )
        for holder in holders.values():
            if _named(holder) and holder.usage != _charged(holder, self._due(holder)).usage:
                raise DriftError(f"{holder.key} is charged {holder.usage}, which is not its own and its claims'")


def _named(holder: Holder) -> Mapping[ClaimKey, str]:
    claims = holder.info.claims
    return {} if claims is None else claims.named


def _flavor(holder: Holder, claim: ClaimKey, name: ResourceName) -> FlavorName | None:
    """The flavor that the holder was admitted to with the claim. The flavor of another pod set counts only where that
    pod set has none of the resource: the mapping has changed since, and no charge at all would be too low.
    """
    has = _named(holder)[claim]
    pod_sets = sorted(holder.info.pod_sets, key=lambda pod_set: pod_set.name != has)
    return next((found for pod_set in pod_sets if (found := pod_set.flavors.get(name)) is not None), None)


def _charged(holder: Holder, charges: Mapping[FlavorResource, Amount]) -> Holder:
    """The holder with its own usage and these charges."""
    usage = dict(holder.info.usage().assigned)
    for fr, amount in charges.items():
        usage[fr] = min(usage.get(fr, 0) + amount, UNLIMITED)
    return msgspec.structs.replace(holder, usage=usage)
