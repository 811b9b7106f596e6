"""Pods that are larger than any node: quota may admit them, and no scheduler finds a node for them.

Where a flavor names a topology the engine places pods and refuses such a workload itself. Elsewhere quota alone
decides, as in Kueue, and this is what is said beside it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controller.messages import forecasts, pending
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import PodSet, Workload
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.decisions.sentences import asked_for, listed, shown
from controller.scheduler.model.nodetemplate import NodeTemplateError, template_of
from controller.scheduler.model.podrequests import amounts, one_pod
from controller.scheduler.model.resources import Amount, FlavorName, ResourceName
from controller.scheduler.quota.queuestate import QueueState
from inventory.words.catalog import plural

_Amounts = Mapping[ResourceName, Amount]


class PodSizeNoFit(NamedTuple):
    """``asked``: the request of one pod, of the resources that tell. ``most``: what the largest node of ``flavors``
    has of each; empty where no node has all of ``asked`` at once.
    """

    pod_set: str
    flavors: tuple[FlavorName, ...]
    asked: _Amounts
    most: _Amounts

    @property
    def sentence(self) -> str:
        names = f"{plural(len(self.flavors), 'flavor').partition(' ')[2]} {listed(self.flavors)}"
        asked = " and ".join(f"{asked_for(name, amount)} {name}" for name, amount in sorted(self.asked.items()))
        alone = len(self.most) == 1
        most = (f"{shown(name, amount)}" + ("" if alone else f" {name}") for name, amount in sorted(self.most.items()))
        largest = pending.largest_node_has(" and ".join(most)) if self.most else pending.no_node_has_all()
        return pending.pod_too_large(self.pod_set, names, asked, largest)

    @property
    def clause(self) -> str:
        """What would have to change for a start."""
        if not self.most:
            return forecasts.nodes_take_it()
        most = " and ".join(f"{shown(name, amount)} {name}" for name, amount in sorted(self.most.items()))
        return forecasts.nodes_take_less(forecasts.in_each_pod(most, self.pod_set))


def too_large(cluster: Cluster, queue: QueueState, workload: Workload) -> PodSizeNoFit | None:
    """The first pod set of which no node takes one pod: by the flavors that it was admitted to, else by all of its
    queue's. None where nodes come by admission checks, and where none is known.
    """
    strategy = queue.object.spec.admission_checks_strategy
    if strategy is not None and strategy.admission_checks:
        return None
    admission = workload.status.admission
    given = {} if admission is None else {each.name: each.flavors for each in admission.pod_set_assignments}
    for pod_set in workload.spec.pod_sets:
        pod = _fixed(cluster, one_pod(pod_set.template.spec))
        for flavors in _choices(queue, pod, given.get(pod_set.name)):
            if (found := _on_all(cluster, pod_set, pod, flavors)) is not None:
                return found
    return None


def _fixed(cluster: Cluster, pod: _Amounts) -> _Amounts:
    """The requests without the resources of which a layout could make more than nodes have now."""
    made = cluster.placement.could_be_made
    return {name: amount for name, amount in pod.items() if next(iter(made(name)), None) is None}


def _comes(flavor: ResourceFlavor, pod: _Amounts) -> bool:
    """Whether a node can come that is large enough."""
    try:
        template = template_of(flavor)
    except NodeTemplateError:
        return False
    offered = amounts(template.offered) if template is not None else {}
    return all(offered.get(name, 0) >= amount for name, amount in pod.items())


def _choices(queue: QueueState, pod: _Amounts, given: Mapping[str, str] | None) -> Iterable[tuple[FlavorName, ...]]:
    """The flavors of each group of resources; the group gets one of them."""
    if given:
        return dict.fromkeys((FlavorName(flavor),) for flavor in given.values())
    return (group.flavors for group in queue.groups if any(name in pod for name in group.resources))


def _on_all(cluster: Cluster, pod_set: PodSet, pod: _Amounts, flavors: tuple[FlavorName, ...]) -> PodSizeNoFit | None:
    """None where the nodes of one of the flavors are large enough, or are not known."""
    most: dict[ResourceName, Amount] = {}
    joint = False
    for name in flavors:
        flavor = cluster.flavors.get(name)
        if flavor is not None and cluster.config.extensions.coming_nodes and _comes(flavor, pod):
            return None
        beyond = cluster.placement.too_large(pod, flavor.spec) if flavor is not None else None
        if beyond is None:
            return None
        joint = joint or not beyond
        for resource, amount in beyond.items():
            most[resource] = max(most.get(resource, 0), amount)
    if not flavors:
        return None
    # Where flavors lack different things, no single amount would do on one of them.
    most = {} if joint else most
    asked = {name: amount for name, amount in pod.items() if name in most} if most else pod
    return PodSizeNoFit(pod_set.name, flavors, asked, most)
