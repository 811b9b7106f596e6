"""The cohort forest: which queue may use how much of what, kept so that a question or a change costs one step for each
level.

ClusterQueues and Cohorts come and go as their objects do, in any order: a Cohort without an object exists as long as
another object names it. Usage is charged to ClusterQueues. Every change notes its reverse in the undo log, so trying
one is ``with tree.trial(): ...``; no copy is ever made, and nothing here knows workloads or depends on how many there
are.
"""

from controller.scheduler.model.resources import Amount, ClusterQueueName, CohortName, FlavorResource, Usage
from controller.scheduler.model.undo import Trial, UndoLog
from controller.scheduler.quota.audit import QuotaDriftError, drift
from controller.scheduler.quota.cells import NO_QUOTA, Cell
from controller.scheduler.quota.quotanode import QuotaNode, QuotaNodeSpec

_NOTHING = QuotaNodeSpec()


class UnknownClusterQueueError(LookupError):
    """No ClusterQueue has this name: the caller decides whether to wait for it or to refuse."""


class QuotaTree:
    """The forest. Others may read ``cluster_queues`` and ``cohorts``; only the methods write them."""

    def __init__(self, undo: UndoLog | None = None) -> None:
        self.undo = undo if undo is not None else UndoLog()
        self.cluster_queues: dict[ClusterQueueName, QuotaNode] = {}
        self.cohorts: dict[CohortName, QuotaNode] = {}
        self.generation = 0
        """A number that grows with every change of shape or quotas anywhere in the forest."""

    def trial(self) -> Trial:
        """A trial: whatever is done inside the ``with`` is undone on leaving it, unless the trial is kept."""
        return self.undo.trial()

    def cluster_queue(self, name: ClusterQueueName) -> QuotaNode:
        try:
            return self.cluster_queues[name]
        except KeyError:
            raise UnknownClusterQueueError(name) from None

    # -- shape -------------------------------------------------------------------------------------------------------

    def set_cluster_queue(self, name: ClusterQueueName, spec: QuotaNodeSpec) -> None:
        """Add the ClusterQueue or replace its spec; its usage stays."""
        node = self.cluster_queues.get(name)
        if node is None:
            node = self.cluster_queues[name] = QuotaNode(name, None, is_queue=True)
            self.undo.record(self.remove_cluster_queue, name)
        elif node.spec is not None:
            self.undo.record(self.set_cluster_queue, name, node.spec)
        self._respecify(node, spec)

    def remove_cluster_queue(self, name: ClusterQueueName) -> None:
        """Remove the ClusterQueue with all usage charged to it."""
        node = self.cluster_queue(name)
        self.undo.record(self._restore_cluster_queue, name, node.spec, node.used())
        self._respecify(node, None)
        del self.cluster_queues[name]

    def set_cohort(self, name: CohortName, spec: QuotaNodeSpec) -> None:
        """Add the Cohort or replace its spec. A circle of parents puts the whole tree out of use."""
        node = self._named_cohort(name)
        self.undo.record(self._reset_cohort, name, node.spec)
        self._respecify(node, spec)

    def remove_cohort(self, name: CohortName) -> None:
        """Forget the Cohort's spec: its quota is gone at once. While it has members it lives on as a root."""
        node = self.cohorts.get(name)
        if node is None or node.spec is None:
            return
        self.undo.record(self.set_cohort, name, node.spec)
        self._respecify(node, None)
        self._prune(node)

    # -- usage -------------------------------------------------------------------------------------------------------

    def add_usage(self, name: ClusterQueueName, usage: Usage) -> None:
        """Charge usage, whether or not it fits: what runs is counted even where its quota was taken away."""
        node = self.cluster_queue(name)
        if self.undo.recording:
            self.undo.record(self.remove_usage, name, dict(usage))
        for fr, amount in usage.items():
            (node.cells.get(fr) or self._cell(node, fr)).charge(amount)

    def keep_usage(self, node: QuotaNode, usage: Usage) -> None:
        """Charge a ClusterQueue's node so that no open trial undoes it."""
        for fr, amount in usage.items():
            (node.cells.get(fr) or self._cell(node, fr)).charge(amount)

    def remove_usage(self, name: ClusterQueueName, usage: Usage) -> None:
        """Give back what was charged. Giving back more is a bug of the caller and raises QuotaDriftError."""
        node = self.cluster_queue(name)
        cells = node.cells
        for fr, amount in usage.items():
            cell = cells.get(fr)
            if amount > (0 if cell is None else cell.usage):
                raise QuotaDriftError(f"{node}: {amount} of {fr} given back, {node.usage(fr)} charged")
        if self.undo.recording:
            self.undo.record(self.add_usage, name, dict(usage))
        for fr, amount in usage.items():
            if amount:
                cells[fr].charge(-amount)

    def validate(self) -> None:
        """Recompute everything from specs and charges; QuotaDriftError names the first sums that differ."""
        found = drift(self.cluster_queues, self.cohorts)
        if found:
            raise QuotaDriftError("; ".join(found[:5]))

    # -- how the shape changes ---------------------------------------------------------------------------------------

    def _respecify(self, node: QuotaNode, spec: QuotaNodeSpec | None) -> None:
        """Give the node its new spec and place. None leaves a Cohort implicit and a ClusterQueue without quotas and
        parent.
        """
        before, says = node.spec or _NOTHING, spec or _NOTHING
        old_parent, old_root = node.parent, node.root()
        moves = before.parent != says.parent or (node.is_queue and spec is None)
        if moves:
            self._leave(node)
        node.spec = spec
        self._configure(node, before, says)
        if moves:
            self._join(node)
            if old_root is not node and old_root.broken:
                # The circle ran through a node that has just moved out of it.
                self._join(old_root)
        self.generation += 1
        old_root.generation = node.root().generation = self.generation
        if moves and old_parent is not None:
            self._prune(old_parent)

    def _configure(self, node: QuotaNode, said: QuotaNodeSpec, says: QuotaNodeSpec) -> None:
        for fr in said.quotas:
            if fr not in says.quotas:
                node.cells[fr].configure(NO_QUOTA)
        for fr, quota in says.quotas.items():
            if said.quotas.get(fr) != quota:
                self._cell(node, fr).configure(quota)

    def _join(self, node: QuotaNode) -> None:
        """Attach the node to the parent in its spec, unless that parent is below the node itself."""
        node.broken = False
        if node.spec is None or node.spec.parent is None:
            return
        parent = self._named_cohort(node.spec.parent)
        if parent.root() is node:
            node.broken = True
            return
        node.parent = parent
        if node.is_queue:
            parent.queues[ClusterQueueName(node.name)] = node
        else:
            parent.cohorts[CohortName(node.name)] = node
        for fr, cell in node.cells.items():
            cell.attach(self._cell(parent, fr))
        _grow(node)

    def _leave(self, node: QuotaNode) -> None:
        parent = node.parent
        if parent is None:
            return
        for cell in node.cells.values():
            cell.detach()
        node.parent = None
        if node.is_queue:
            del parent.queues[ClusterQueueName(node.name)]
        else:
            del parent.cohorts[CohortName(node.name)]
        _shrink(parent)

    def _named_cohort(self, name: CohortName) -> QuotaNode:
        node = self.cohorts.get(name)
        if node is None:
            node = self.cohorts[name] = QuotaNode(name, None, is_queue=False)
        return node

    def _prune(self, cohort: QuotaNode) -> None:
        if cohort.spec is None and not cohort.queues and not cohort.cohorts:
            del self.cohorts[CohortName(cohort.name)]

    def _cell(self, node: QuotaNode, fr: FlavorResource) -> Cell:
        cell = node.cells.get(fr)
        if cell is None:
            cell = node.cells[fr] = Cell()
            if node.parent is not None:
                cell.attach(self._cell(node.parent, fr))
        return cell

    # -- undo --------------------------------------------------------------------------------------------------------

    def _reset_cohort(self, name: CohortName, spec: QuotaNodeSpec | None) -> None:
        if spec is None:
            self.remove_cohort(name)
        else:
            self.set_cohort(name, spec)

    def _restore_cluster_queue(
        self, name: ClusterQueueName, spec: QuotaNodeSpec, used: dict[FlavorResource, Amount]
    ) -> None:
        self.set_cluster_queue(name, spec)
        self.add_usage(name, used)


def _grow(node: QuotaNode) -> None:
    """Raise the heights above a node that was attached."""
    while (parent := node.parent) is not None and parent.height <= node.height:
        parent.height = node.height + 1
        node = parent


def _shrink(node: QuotaNode | None) -> None:
    """Lower the heights from a node's old parent up, as far as no other child keeps them."""
    while node is not None:
        below = node.height - 1
        if (below == 0 and node.queues) or any(child.height == below for child in node.cohorts.values()):
            return
        node.height = max((child.height + 1 for child in node.cohorts.values()), default=1 if node.queues else 0)
        node = node.parent
