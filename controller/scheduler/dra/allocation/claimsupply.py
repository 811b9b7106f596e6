"""How many pods find devices for their claims on a node: what drivers publish there, less what claims hold and what is
planned for pods that were placed and have none yet.

    ResourceSlice -> offer     ResourceClaim -> what is held     placement -> grants

What claims hold replaces the plan. A claim that a pod still has after its workload gave back its place is free: the pod
is on its way out. So is one of a placeholder, which gives way. Grants change inside trials and are undone exactly;
objects change outside of trials.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from controller.objects.deviceclaims import DeviceClass, ResourceClaim, ResourceSlice
from controller.objects.meta import KubernetesObject
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.scheduler.devices.cache import HeldPlace
from controller.scheduler.devices.grants import PLACEHOLDERS, GrantOwner
from controller.scheduler.devices.pods import KnownPods
from controller.scheduler.dra.allocation.allocator import sets_of, still_free, with_sets
from controller.scheduler.dra.allocation.checks import check
from controller.scheduler.dra.allocation.held import HeldClaim, HeldClaims, pod_of
from controller.scheduler.dra.allocation.nodeclaims import (
    NOTHING,
    ClaimGrant,
    Holdings,
    NodeClaims,
    handed_over,
    merged,
)
from controller.scheduler.dra.allocation.offers import Offer, PoolKey, Slices
from controller.scheduler.dra.allocation.planned import Planned
from controller.scheduler.dra.allocation.requests import PodClaimsRequest
from controller.scheduler.dra.allocation.resolving import ELSEWHERE, ClaimRequests, Extended
from controller.scheduler.dra.allocation.views import Set, State, View, Views
from controller.scheduler.model.deviceclaims import ClaimKey, ClaimNames
from controller.scheduler.model.resources import Amount, ResourceName
from controller.scheduler.model.undo import UndoLog
from controller.scheduler.model.workload import TopologyUsage

UNBOUNDED: Final = 1 << 30


class ClaimSupply:
    """The devices that pods can get through claims, node by node. ``pods`` are those of ``DeviceSupply``, which reports
    their changes. ``held`` returns all places that are held now. ``touch`` is called with nodes on which other devices
    are given away after a place has come or gone. ``offers``: whether a node has a resource itself, through a device
    plugin; if it has not and a class has the resource, pods there get it through a claim.

    A node is kept while it has a grant, or pods whose devices come free. ``_planned`` counts, by shared claim and node,
    the grants that plan its devices there; only ``_grant`` writes it and the nodes' grants.
    """

    def __init__(
        self,
        undo: UndoLog,
        pods: KnownPods,
        held: Callable[[], Iterable[HeldPlace]] = tuple,
        touch: Callable[[Sequence[str]], object] = len,
        offers: Callable[[str, ResourceName], bool] = lambda _node, _resource: False,
    ) -> None:
        self._undo = undo
        self._offers = offers
        self._pods = pods
        self._held_places = held
        self._touch = touch
        self.slices = Slices()
        self._held = HeldClaims()
        self.requests = ClaimRequests(self.slices, self._where)
        self._views = Views()
        self._nodes: dict[str, NodeClaims] = {}
        self._planned: dict[ClaimKey, Counter[str]] = {}
        self._renamed = False
        """Whether grants must be made anew from the held places before the next question, because a node has another
        name or other resources come from claims.
        """

    # -- objects -----------------------------------------------------------------------------------------------------

    def put(self, given: KubernetesObject) -> tuple[str, ...]:
        """Store an object. Returns the nodes whose devices changed, or on which other devices are given away now."""
        if isinstance(given, ResourceSlice):
            return self._offered(self.slices.put(given))
        pools = self._held.put(given) if isinstance(given, ResourceClaim) else ()
        planned: tuple[str, ...] = ()
        if pools and not pod_of(given.metadata):
            self.requests.stale()
            planned = tuple(self._planned.get(given.key, ()))
        extended = self.requests.extended
        changed = self.requests.put(given)
        if self.requests.extended != extended or (changed and isinstance(given, DeviceClass)):
            return self._remade()
        return self._told(pools, planned, changed=changed)

    def drop(self, kind: type[KubernetesObject], namespace: str, name: str) -> tuple[str, ...]:
        if kind is ResourceSlice:
            return self._offered(self.slices.drop(name))
        key = f"{namespace}/{name}"
        pools = self._held.drop(key) if kind is ResourceClaim else ()
        extended = self.requests.extended
        changed = self.requests.drop(kind, key)
        return self._remade() if self.requests.extended != extended else self._told(pools, changed=changed)

    def _remade(self) -> tuple[str, ...]:
        """Plans everything anew after a change of which resources come from claims, or of which devices serve them."""
        before = tuple(self._nodes)
        self._renamed = True
        self._catch_up()
        return tuple(dict.fromkeys((*before, *self._nodes, *self.slices.nodes)))

    def _offered(self, nodes: Sequence[str]) -> tuple[str, ...]:
        if "" in nodes:
            self.requests.forget()
        elif nodes and self.requests.by_name:
            self.requests.stale()
        named = tuple(name for name in nodes if name)
        for name in named:
            self._settle(name)
        return named

    def _told(self, pools: Iterable[PoolKey], planned: Iterable[str] = (), *, changed: bool) -> tuple[str, ...]:
        """Settles the nodes of these pools. ``planned``: nodes where the claim's devices were planned."""
        nodes = dict.fromkeys((*planned, *(node for pool in pools if (node := self.slices.node_of(pool)))))
        if changed:
            nodes.update(dict.fromkeys(name for name, node in self._nodes.items() if node.grants))
        return tuple(name for name in nodes if self._settle(name))

    def pods_changed(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Settle nodes whose pods have come, gone or changed. A node without pools, grants and seen pod sets has no
        claims.
        """
        return tuple(name for name in nodes if name in self._nodes and self._settle(name))

    def nodes_of(self, pod: str) -> Iterable[str]:
        """The nodes that have the devices of claims that were made for the pod."""
        pools = [(device.key[0], device.key[1]) for held in self._held.of_pod(pod) for device in held.devices]
        return [node for pool in pools if (node := self.slices.node_of(pool))]

    def hosts_changed(self) -> None:
        """Note that a node is known by another name."""
        self._renamed = bool(self._nodes) or self._renamed

    # -- questions ---------------------------------------------------------------------------------------------------

    def ask(self, names: ClaimNames | None) -> PodClaimsRequest | None:
        """What the pod's claims ask; None where it has no claims, or none that are counted."""
        return None if names is None else self.requests.of(names)

    def open_claims(self, names: ClaimNames) -> tuple[ClaimKey, ...]:
        """The shared claims that have no node yet."""
        ask = self.ask(names)
        return tuple(shared.key for shared in ask.shared if not shared.node) if ask is not None else ()

    def concerns(self, usage: TopologyUsage) -> bool:
        """Whether the pods of the assignment may have devices through claims."""
        return usage.claims is not None or bool(self._extended(usage.single_pod.items()))

    def served(
        self, host: str, each: Extended, ask: PodClaimsRequest | None
    ) -> tuple[Extended, PodClaimsRequest | None]:
        """Splits what a pod asks for into what it takes of the node's own resources, and what it gets through claims
        there.
        """
        wanted = self._by_claim(self._pods.name(host), self._extended(each))
        if not wanted:
            return each, ask
        return tuple(pair for pair in each if pair not in wanted), self.requests.joined(ask, wanted)

    def free(self, name: str) -> dict[ResourceName, Amount]:
        """How many devices a node can still give of each resource that its pods get through claims."""
        amounts: dict[ResourceName, Amount] = {}
        for resource in map(ResourceName, self.requests.extended):
            one = self.requests.joined(None, self._by_claim(name, ((resource, 1),)))
            if one is not None:
                amounts[resource] = self.fitting_pods(name, one, empty=False)
        return amounts

    def _extended(self, each: Iterable[tuple[ResourceName, Amount]]) -> Extended:
        """The extended resources of device classes that a pod asks for, sorted by name."""
        known = self.requests.extended
        return tuple(sorted(pair for pair in each if pair[0] in known and pair[1] > 0)) if known else ()

    def _by_claim(self, name: str, extended: Extended) -> Extended:
        return tuple(pair for pair in extended if not self._offers(name, pair[0]))

    def _asked(self, name: str, grant: ClaimGrant) -> PodClaimsRequest | None:
        return self.requests.joined(self.ask(grant.names), self._by_claim(name, grant.extended))

    def fitting_pods(
        self,
        host: str,
        ask: PodClaimsRequest,
        *,
        empty: bool,
        beside: Sequence[tuple[ClaimKey | None, Set]] = (),
    ) -> int:
        """How many such pods find devices on the host. ``empty``: as if nothing preemptible were running. ``beside``:
        further sets that count as given away, with the key of the shared claim that has the set (None for a claim of
        one pod).
        """
        self._catch_up()
        name = self._pods.name(host)
        state = self.state(name, empty=empty)
        if beside:
            state = with_sets(state, (one for _, one in beside))
        offer = self.slices.offer(name)
        for shared in ask.shared:
            if shared.node and shared.node != name:
                return 0
            if not shared.node and all(key != shared.key for key, _ in beside):
                found = sets_of(self._views.of(shared.asked, offer), state)
                if not found:
                    return 0
                state = with_sets(state, found[:1])
        return len(sets_of(self._views.of(ask, offer), state)) if ask.each else UNBOUNDED

    def fitting_workers(
        self, host: str, leader: PodClaimsRequest | None, workers: PodClaimsRequest | None, *, empty: bool
    ) -> int | None:
        """``fitting_pods`` for workers once their leader has its devices; None where the leader finds none."""
        leaders: list[tuple[ClaimKey | None, Set]] = []
        if leader is not None:
            if not self.fitting_pods(host, leader, empty=empty):
                return None
            offer = self.slices.offer(self._pods.name(host))
            state = self.state(self._pods.name(host), empty=empty)
            named = ((shared.key, shared.asked) for shared in leader.shared if not shared.node)
            for key, asked in (*named, (None, leader)):
                for one in sets_of(self._views.of(asked, offer), state)[:1]:
                    leaders.append((key, one))
                    state = with_sets(state, (one,))
        return UNBOUNDED if workers is None else self.fitting_pods(host, workers, empty=empty, beside=leaders)

    def state(self, name: str, *, empty: bool) -> State:
        """Everything that is given away on a node."""
        node = self._node(name)
        known = node.states.get(empty)
        if known is None:
            known = node.states[empty] = self._state(node, node.grants, empty=empty)
        return known

    def view(self, ask: PodClaimsRequest, name: str) -> View:
        return self._views.of(ask, self.slices.offer(name))

    def plan(self, owner: GrantOwner, host: str | None = None) -> Iterator[Planned]:
        """The planned devices of each pod of the owner that has none yet, on the host or, without one, on all nodes."""
        self._catch_up()
        names = sorted(self._nodes) if host is None else [self._pods.name(host)]
        for name in names:
            node = self._nodes.get(name)
            for grant in node.grants if node is not None else ():
                ask = self._asked(name, grant) if grant.owner == owner and grant.sets else None
                if ask is not None:
                    claims = self.requests.claims_of(grant.names) if grant.names is not None else ()
                    offer = self.slices.offer(name)
                    yield from (Planned(ask, offer, one, claims) for one in grant.sets)

    # -- places ------------------------------------------------------------------------------------------------------

    def add(self, usage: TopologyUsage, owner: GrantOwner, *, assumed: bool = False, empty: bool = False) -> None:
        """Plans devices for all pods of an assignment. ``assumed``: only while a question is answered."""
        if usage.levels[-1:] != (HOSTNAME_LABEL,) or not self.concerns(usage):
            return
        recording = self._undo.recording
        for values, pods in usage.domains:
            node = self._node(self._pods.name(values[-1]))
            before = node.grants
            if not recording and not assumed and owner not in node.seen:
                self._see(node, owner)
            extended = self._extended(usage.single_pod.items())
            grant = ClaimGrant(owner, pods, usage.claims, assumed=assumed, extended=extended)
            self._grant(node, (*before, self._filled(node, before, grant, empty=empty)))
            if not assumed:
                self._undo.record(self._grant, node, before)
            if not recording and not assumed and owner in self._holdings(node).by_owner:
                self._resettle(node.name)

    def remove(self, usage: TopologyUsage, owner: GrantOwner, *, assumed: bool = False) -> None:
        """Takes back what ``add`` planned."""
        if usage.levels[-1:] != (HOSTNAME_LABEL,) or not self.concerns(usage):
            return
        for values, pods in usage.domains:
            node = self._nodes.get(self._pods.name(values[-1]))
            before = node.grants if node is not None else ()
            mine = [at for at, grant in enumerate(before) if (grant.owner, grant.pods) == (owner, pods)]
            at = mine[-1] if mine else None
            if node is None or at is None:
                continue
            self._grant(node, handed_over(before[at], (*before[:at], *before[at + 1 :])))
            if not assumed:
                self._undo.record(self._grant, node, before)
            if not assumed and not self._undo.recording:
                self._resettle(node.name)

    def complete(self, usage: TopologyUsage, owner: GrantOwner) -> bool:
        """Whether each pod of the assignment has devices for its claims."""
        if usage.levels[-1:] != (HOSTNAME_LABEL,):
            return True
        for values, pods in usage.domains:
            node = self._nodes.get(self._pods.name(values[-1]))
            _, ask = self.served(values[-1], tuple(usage.single_pod.items()), self.ask(usage.claims))
            if ask is None:
                continue
            mine = [grant for grant in node.grants if grant.owner == owner] if node is not None else []
            planned = {key for grant in mine for key, _ in grant.shared}
            if any(not shared.node and shared.key not in planned for shared in ask.shared):
                return False
            if any(shared.node and node is not None and shared.node != node.name for shared in ask.shared):
                return False
            if ask.each and sum(len(grant.sets) for grant in mine) < pods:
                return False
        return True

    def validate(self) -> None:
        """Recompute what is kept. AssertionError for a difference, for a plan that cannot be carried out, or for one of
        an owner without a place.
        """
        self.slices.validate()
        self._held.validate()
        planned: dict[ClaimKey, Counter[str]] = {}
        for node in self._nodes.values():
            for key in (key for grant in node.grants for key, _ in grant.shared):
                planned.setdefault(key, Counter())[node.name] += 1
            for empty, kept in list(node.states.items()):
                if self._state(node, node.grants, empty=empty) != kept:
                    raise AssertionError(f"{node.name}: what is kept as given away differs from what is")
            check(node, self.slices.offer(node.name), self._state(node, node.grants, empty=False))
        if planned != self._planned:
            raise AssertionError(f"claims by name are planned at {self._planned}, expected {planned}")
        if not self._undo.recording and not self._renamed and self._held_places is not tuple:
            self._validate_owners()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _node(self, name: str) -> NodeClaims:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeClaims(name)
        return node

    def _where(self, key: ClaimKey) -> str:
        """The node where a shared claim has its devices, or where they are planned; empty for neither."""
        held = self._held.get(key)
        if held is not None:
            pools = [(device.key[0], device.key[1]) for device in held.devices]
            return next((node for pool in pools if (node := self.slices.node_of(pool))), ELSEWHERE)
        return next(iter(self._planned.get(key, ())), "")

    def _grant(self, node: NodeClaims, grants: tuple[ClaimGrant, ...]) -> None:
        """Sets the grants of a node. Where planned devices of shared claims change, what pods ask changes with them."""
        before = {key for grant in node.grants for key, _ in grant.shared}
        now = {key for grant in grants for key, _ in grant.shared}
        for key in before ^ now:
            places = self._planned.setdefault(key, Counter())
            places[node.name] += 1 if key in now else -1
            if not places[node.name]:
                del places[node.name]
            if not places:
                del self._planned[key]
            self.requests.stale()
        node.put(grants)

    def _filled(
        self,
        node: NodeClaims,
        before: tuple[ClaimGrant, ...],
        grant: ClaimGrant,
        beside: Collection[GrantOwner] = (),
        *,
        empty: bool,
    ) -> ClaimGrant:
        """The grant with devices for those of its pods that have none. They are free beside the grants ``before`` and
        beside what pods of the owners ``beside`` hold.
        """
        ask = self._asked(node.name, grant)
        if ask is None:
            return grant._replace(sets=(), shared=())
        state = self._state(node, before, empty=empty, beside=(grant.owner, *beside))
        offer = self.slices.offer(node.name)
        there = {key for other in before for key, _ in other.shared}
        shared = []
        for claim in ask.shared:
            if (claim.node and claim.node != node.name) or self._held.get(claim.key) is not None or claim.key in there:
                continue
            found = sets_of(self._views.of(claim.asked, offer), state)[:1]
            if found:
                shared.append((claim.key, found[0]))
                state = with_sets(state, found)
        missing = self._missing(node, grant)
        view, free_sets = self._views.of(ask, offer), list[Set]()
        for one in grant.sets[:missing]:
            if still_free(view, state, one):
                free_sets.append(one)
                state = with_sets(state, (one,))
        more = sets_of(view, state)[: missing - len(free_sets)]
        return grant._replace(sets=(*free_sets, *more), shared=tuple(shared))

    def _missing(self, node: NodeClaims, grant: ClaimGrant) -> int:
        """The number of the grant's pods that do not have all of their devices yet."""
        backed = self._holdings(node).claims.get(grant.owner, ())
        wanted = len(grant.names.templates) if grant.names is not None else 0
        wanted += bool(self._by_claim(node.name, grant.extended))
        return max(grant.pods - sum(claims >= wanted for claims in backed), 0)

    def _see(self, node: NodeClaims, owner: GrantOwner) -> None:
        """Marks the pod set as seen: what its pods hold is its own from now on, also when the cluster is taken as
        empty.
        """
        before = self.state(node.name, empty=True)
        node.seen.add(owner)
        node.forget()
        if self.state(node.name, empty=True) != before:
            self._touch((node.name,))

    def _resettle(self, name: str) -> None:
        if self._settle(name):
            self._touch((name,))

    def _settle(self, name: str) -> bool:
        """Plans a node anew, after an object has changed. Returns whether other devices are given away now."""
        node = self._node(name)
        before = self.state(name, empty=False), self.state(name, empty=True)
        there = self._pods.on(name).values()
        node.seen = {grant.owner for grant in node.grants} | (node.seen & {facts.owner for facts in there})
        node.forget()
        grants: tuple[ClaimGrant, ...] = ()
        old, new = node.grants, list[ClaimGrant]()
        owners = {grant.owner for grant in old}
        self._grant(node, ())
        for grant in old:
            new.append(self._filled(node, grants, grant, owners, empty=False))
            grants = tuple(new)
        self._grant(node, grants)
        after = self.state(name, empty=False), self.state(name, empty=True)
        if not node.grants and not node.seen and not any(self.slices.pools(name)):
            del self._nodes[name]
        return before != after

    def _state(
        self, node: NodeClaims, grants: Iterable[ClaimGrant], *, empty: bool, beside: Collection[GrantOwner] = ()
    ) -> State:
        """Everything that is given away on a node with these grants. ``beside``: pod sets that are about to get a
        grant; what their pods hold counts as theirs.
        """
        holdings = self._holdings(node)
        counted = {grant.owner for grant in grants if grant.assumed or not empty}
        state = holdings.foreign
        for owner, held in holdings.by_owner.items():
            if owner not in node.seen or (not empty and (owner in counted or owner in beside)):
                state = merged(state, held)
        for grant in grants:
            if grant.assumed or not empty:
                state = with_sets(state, (*grant.sets, *(one for _, one in grant.shared)))
        return state

    def _holdings(self, node: NodeClaims) -> Holdings:
        if node.holdings is None:
            node.holdings = self._holdings_of(node.name)
        return node.holdings

    def _holdings_of(self, name: str) -> Holdings:
        offer = self.slices.offer(name)
        foreign, by_owner, pods = NOTHING, dict[GrantOwner, State](), dict[GrantOwner, Counter[str]]()
        for held in self._held.within(offer.pools):
            facts = self._pods.get(held.pod) if held.pod else None
            if facts is not None and (facts.leaving or facts.owner == PLACEHOLDERS):
                continue
            if facts is None and held.pod and self._pods.is_over(held.pod):
                continue
            state = _of_claim(held, offer)
            if facts is None:
                foreign = merged(foreign, state)
            else:
                by_owner[facts.owner] = merged(by_owner.get(facts.owner, NOTHING), state)
                pods.setdefault(facts.owner, Counter())[held.pod] += 1
        return Holdings(foreign, by_owner, {owner: tuple(claims.values()) for owner, claims in pods.items()})

    def _catch_up(self) -> None:
        """Makes all grants anew if nodes have other names than when the grants were made."""
        if not self._renamed or self._undo.recording:
            return
        self._renamed = False
        for node in list(self._nodes.values()):
            self._grant(node, ())
        self._nodes.clear()
        for _, usage, owner in self._held_places():
            self.add(usage, owner)

    def _validate_owners(self) -> None:
        expected: Counter[tuple[str, GrantOwner, int]] = Counter()
        for _, usage, owner in self._held_places():
            if self.concerns(usage) and usage.levels[-1:] == (HOSTNAME_LABEL,):
                expected.update((self._pods.name(values[-1]), owner, pods) for values, pods in usage.domains)
        found = Counter((node.name, grant.owner, grant.pods) for node in self._nodes.values() for grant in node.grants)
        if found != expected:
            raise AssertionError(f"devices are planned for {found - expected} and not for {expected - found}")


def _of_claim(held: HeldClaim, offer: Offer) -> State:
    """What the claim holds of the offer; devices that are no longer offered are left out."""
    devices, parts = 0, dict[tuple[int, str], int]()
    for device in held.devices:
        at = None if device.admin else offer.place(device.key)
        if at is None:
            continue
        devices |= 1 << at
        if offer.devices[at].allow_multiple_allocations:
            driver, names = offer.drivers[at], offer.devices[at].capacity
            for name, nanos in device.consumed:
                plain = name if name in names else name.removeprefix(f"{driver}/")
                part = at, plain if plain in names else f"{driver}/{plain}"
                if part[1] in names:
                    parts[part] = parts.get(part, 0) + nanos
    return State(devices, tuple(sorted(parts.items())))
