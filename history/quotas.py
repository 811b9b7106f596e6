"""Quota recomputed: what each Workload is to be charged, and what the tree of cohorts has room for.

A Workload that holds quota is charged, in the flavor that it was given of each resource, the larger of two: its pod
sets by their counts, less those pods that need nothing any more; and the pods of it that are bound, by their own specs.
What its status says of amounts is not read. A claim by name is charged once, to the first of those that hold quota.

A ClusterQueue or Cohort has a subtree's quota: its nominal quota and what its children lend (all, or ``lendingLimit``
at most). What a child keeps to itself it uses first; the rest of its use is its parent's. Source: Kueue's pages.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from history import objects as api
from history.objects import Json, Key
from history.podcost import UNIT, Cost, add, claim_cost, claim_names, pod_cost, quantity
from history.world import World

_REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
_CHANGING = ("tessera.dev/quota-shares", "tessera.dev/quota-calendar")
_DEPTH = 64
"""The levels of a tree; what is deeper is not judged."""


class Cell(NamedTuple):
    flavor: str
    resource: str


Charge = dict[Cell, int]
More = dict[str, Counter[Cell]]


class Limits(NamedTuple):
    """The limits of one cell of a ClusterQueue or Cohort in 10**-9 units; None: no limit."""

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None


class Node(Struct):
    """A ClusterQueue or Cohort with what is below it. ``first``: of a root, the first ClusterQueue of its tree."""

    name: str
    is_queue: bool
    limits: dict[Cell, Limits] = {}
    children: "list[Node]" = []
    follows_capacity: bool = False
    first: str = ""


class Use(NamedTuple):
    """``limit``: what may be used."""

    node: Node
    cell: Cell
    used: int
    limit: float


class Quotas:
    """``charges`` has each Workload that holds quota; ``used`` is their sum by ClusterQueue; ``_claims`` says which of
    them name a claim.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.charges: dict[Key, tuple[str, Charge]] = {}
        self.used: dict[str, Counter[Cell]] = {}
        self._claims: dict[Key, set[Key]] = {}
        self._claimed: dict[Key, set[Key]] = {}
        self.replaced: dict[Key, Key] = {}
        """The slice whose place another of the same job takes, by that other one, which has quota."""
        self._shapes: dict[Key, object] = {}
        self._trees: dict[str, Node] | None = None
        self.reshaped = False
        """Whether the last fact did so (``reshape``); ``Judge`` clears it."""

    # -- charges -------------------------------------------------------------------------------------------------------

    def update(self, workload: Key) -> set[str]:
        """Charges it anew, and those that share claims with it. The ClusterQueues of which anything changed."""
        shared = set(self._claimed.get(workload, ()))
        self._note_claims(workload)
        shared |= self._claimed.get(workload, set())
        changed = {workload}.union(*(self._claims.get(claim, set()) for claim in shared))
        changed |= self._note_replaced(workload)
        return set().union(*(self._charge(each) for each in changed))

    def concerned(self, key: Key) -> set[Key]:
        """The Workloads whose charge may depend on a claim, or on a template of claims."""
        if key.kind == "ResourceClaimTemplate":
            return {each for each in self.charges if each.namespace == key.namespace}
        return self._claims.get(key, set())

    def _charge(self, workload: Key) -> set[str]:
        body = self._world.objects.get(workload)
        old = self.charges.pop(workload, None)
        counts = body is not None and api.holds(body) and workload not in self.replaced.values()
        new = (api.queue_of(body), self._cost(workload, body)) if body is not None and counts else None
        if new is not None:
            self.charges[workload] = new
        if old == new:
            return set()
        for sign, entry in ((-1, old), (1, new)):
            if entry is not None:
                used = self.used.setdefault(entry[0], Counter())
                for cell, amount in entry[1].items():
                    used[cell] += sign * amount
        return {entry[0] for entry in (old, new) if entry is not None}

    def _note_replaced(self, workload: Key) -> set[Key]:
        body = self._world.objects.get(workload)
        before = {self.replaced.pop(workload, workload)}
        space, _, name = api.note(body or {}, _REPLACES).rpartition("/")
        other = Key("Workload", space or workload.namespace, name)
        if body is not None and api.holds(body) and self._world.is_of_same_job(body, other):
            self.replaced[workload] = other
        return before | {self.replaced.get(workload, workload)}

    def _note_claims(self, workload: Key) -> None:
        for claim in self._claimed.pop(workload, ()):
            self._claims[claim].discard(workload)
        body = self._world.objects.get(workload)
        if body is None or not api.holds(body):
            return
        specs = [api.inner(each, "template", "spec") for each in api.rows(body, "spec", "podSets")]
        found = {Key("ResourceClaim", workload.namespace, name) for spec in specs for name in claim_names(spec)[0]}
        self._claimed[workload] = found
        for claim in found:
            self._claims.setdefault(claim, set()).add(workload)

    def _cost(self, workload: Key, body: Json) -> Charge:
        """The charge in the flavors of the admission. A resource without one has the flavor "": see ``uncharged``."""
        pods = [self._world.objects[each] for each in self._world.pods_of(workload)]
        live = [pod for pod in pods if api.is_bound(pod) and not api.is_leaving(pod)]
        ended, sets = api.reclaimable(body), api.assignments(body)
        wanted_sets = {api.text(each, "name"): each for each in api.rows(body, "spec", "podSets")}
        total: Charge = {}
        for assignment in sets:
            name = api.text(assignment, "name")
            count = max(0, api.whole(assignment, "count", default=1) - ended.get(name, 0))
            planned = self._each(workload.namespace, api.inner(wanted_sets.get(name), "template", "spec"))
            run: Cost = {}
            for pod in live:
                if api.label(pod, api.POD_SET) == name or len(sets) == 1:
                    add(run, self._each(workload.namespace, api.inner(pod, "spec")))
                    run["pods"] = run.get("pods", 0) + UNIT
            flavors = api.inner(assignment, "flavors")
            wanted = {resource: amount * count for resource, amount in planned.items()} | {"pods": count * UNIT}
            for resource in {*wanted, *run}:
                if resource != "pods" or resource in flavors:
                    cell = Cell(api.text(flavors, resource), resource)
                    total[cell] = total.get(cell, 0) + max(wanted.get(resource, 0), run.get(resource, 0))
        for claim in self._claimed.get(workload, ()):
            self._add_claim(total, workload, claim, sets)
        return {cell: amount for cell, amount in total.items() if amount and not self.is_uncounted(cell.resource)}

    def _each(self, namespace: str, spec: Json) -> Cost:
        """The cost of one pod, with the claims that are made for it alone."""
        cost = pod_cost(spec)
        for name in claim_names(spec)[1]:
            template = self._world.get("ResourceClaimTemplate", namespace, name)
            add(cost, claim_cost(api.inner(template, "spec", "spec"), self._world.settings.device_classes))
        return cost

    def _add_claim(self, total: Charge, workload: Key, claim: Key, sets: list[Json]) -> None:
        if workload != min(self._claims[claim], key=self._since):
            return
        found = claim_cost(api.inner(self._world.objects.get(claim), "spec"), self._world.settings.device_classes)
        for resource, amount in found.items():
            flavors = [api.text(each, "flavors", resource) for each in sets]
            cell = Cell(next(filter(None, flavors), ""), resource)
            if cell.flavor:  # the status of a Workload need not say what claims by name take
                total[cell] = total.get(cell, 0) + amount

    def _since(self, workload: Key) -> tuple[float, Key]:
        times = self._world.times.get(workload)
        return (times.reserved_s or 0.0) if times is not None else 0.0, workload

    def is_uncounted(self, resource: str) -> bool:
        return resource.startswith(self._world.settings.uncounted or ("\0",))

    def uncharged(self, workload: Key) -> Iterator[tuple[str, int]]:
        """Resources that it takes, that its ClusterQueue has quota of, and for which it was given no flavor."""
        queue, charge = self.charges.get(workload, ("", {}))
        if any(not cell.flavor for cell in charge):
            covered = self.flavors(queue)
            free = ((cell, amount) for cell, amount in charge.items() if not cell.flavor)
            yield from ((cell.resource, amount) for cell, amount in free if cell.resource in covered)

    # -- the tree ------------------------------------------------------------------------------------------------------

    def reshape(self, queue: Key) -> bool:
        """Takes in a ClusterQueue or Cohort. Whether its spec is another now, or it is new or gone."""
        body = self._world.objects.get(queue)
        shape = None if body is None else (api.inner(body, "spec"), *(api.note(body, each) for each in _CHANGING))
        self.reshaped = shape != self._shapes.get(queue)
        if self.reshaped:
            self._shapes[queue], self._trees = shape, None
        return self.reshaped

    def flavors(self, queue: str) -> dict[str, list[str]]:
        """The flavors in which the ClusterQueue has quota, by resource."""
        found: dict[str, list[str]] = {}
        for cell in _node(queue, self._world.get("ClusterQueue", "", queue), is_queue=True).limits:
            found.setdefault(cell.resource, []).append(cell.flavor)
        return found

    def root_of(self, queue: str) -> Node | None:
        """The root of its tree; None where the queue is not there, or its Cohorts name each other in a circle."""
        return self.roots().get(queue)

    def queues(self, node: Node) -> list[str]:
        """The ClusterQueues in the tree below it."""
        return [node.name] if node.is_queue else [name for each in node.children for name in self.queues(each)]

    def roots(self) -> dict[str, Node]:
        if self._trees is None:
            self._trees = self._grown()
        return self._trees

    def _grown(self) -> dict[str, Node]:
        cohorts = {key.name: body for key, body in self._world.all("Cohort").items()}
        parents: dict[str, str] = {name: api.text(body, "spec", "parentName") for name, body in cohorts.items()}
        queues = self._world.all("ClusterQueue")
        named = {api.text(body, "spec", "cohortName") for body in queues.values()} | set(parents.values())
        nodes = {name: _node(name, cohorts.get(name), is_queue=False) for name in sorted({*cohorts, *named} - {""})}
        for name, node in nodes.items():
            if parents.get(name) and _root(name, parents):
                nodes[parents[name]].children.append(node)
        roots: dict[str, Node] = {}
        for key, body in sorted(queues.items()):
            leaf = _node(key.name, body, is_queue=True)
            above = api.text(body, "spec", "cohortName")
            root = nodes[_root(above, parents)] if _root(above, parents) else None if above else leaf
            if above:
                nodes[above].children.append(leaf)
            if root is not None:
                roots[key.name], root.first = root, root.first or key.name
        return roots

    def uses(self, root: Node, more: More | None = None) -> Iterator[Use]:
        """The use of each cell in the tree. ``more``: by ClusterQueue, what would be used on top."""
        for cell in sorted(self._cells(root, more or {})):
            yield from self._walk(root, cell, more or {}, is_root=True)[2]

    def _cells(self, node: Node, more: More) -> set[Cell]:
        if node.is_queue:
            used = self.used.get(node.name, Counter())
            found = {cell for cell, amount in used.items() if amount > 0 and cell.flavor}
            return found.union(node.limits, more.get(node.name, ()))
        return set(node.limits).union(*(self._cells(each, more) for each in node.children))

    def _walk(self, node: Node, cell: Cell, more: More, *, is_root: bool) -> tuple[int, int, list[Use]]:
        """The amount that the parent has to bear, the quota that it is lent, and the uses below."""
        limits = node.limits.get(cell, Limits(borrowing=0 if node.is_queue else None))
        quota, used, uses = limits.nominal, 0, list[Use]()
        if node.is_queue:
            used = self.used.get(node.name, Counter())[cell] + more.get(node.name, Counter())[cell]
        for child in node.children:
            borne, lent, below = self._walk(child, cell, more, is_root=False)
            quota, used = quota + lent, used + borne
            uses += below
        most = quota if is_root else None if limits.borrowing is None else quota + limits.borrowing
        uses.append(Use(node, cell, used, float("inf") if most is None else most))
        lent = quota if limits.lending is None or is_root else min(quota, limits.lending)
        return max(0, used - (quota - lent)), lent, uses


def _root(cohort: str, parents: Mapping[str, str]) -> str:
    """The highest above it; empty where that is too far, or the cohorts name each other in a circle."""
    for _ in range(_DEPTH):
        if not parents.get(cohort):
            return cohort
        cohort = parents[cohort]
    return ""


def _node(name: str, body: Json | None, *, is_queue: bool) -> Node:
    limits: dict[Cell, Limits] = {}
    for group in api.rows(body, "spec", "resourceGroups"):
        for flavor in api.rows(group, "flavors"):
            for each in api.rows(flavor, "resources"):
                cell = Cell(api.text(flavor, "name"), api.text(each, "name"))
                nominal = quantity(each.get("nominalQuota")) or 0
                limits[cell] = Limits(nominal, quantity(each.get("borrowingLimit")), quantity(each.get("lendingLimit")))
    return Node(name, is_queue, limits, [], any(body and api.note(body, each) for each in _CHANGING))


def follows_capacity(node: Node) -> bool:
    """Whether a quota in the tree is a share of live capacity or changes by a calendar: neither is recomputed."""
    return node.follows_capacity or any(map(follows_capacity, node.children))
