"""Devices on their way to a node that a pod waits for: a GpuLayout that its agent is carrying out, or devices that the
agent offers and the kubelet has not taken up. Pure.

A layout is on its way where the agent's own planning, on the node's GpuNode, still finds a change to make.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from agent.cluster.gpulayouts import Found
from cli.layout.plan import GpuChange, NodePlan, planned, seen_of
from controller.objects.core import Node
from controller.objects.decode import GpuNode
from inventory.layout.entries import LayoutMode, WhenBusy
from inventory.words.catalog import plural

_NAMED = 4
"""The most GPUs whose change is described; of more there is a number."""


class Coming(Struct, frozen=True, kw_only=True):
    """A change on its way to a node. ``layout`` is empty where the agent has made the change."""

    node: str
    layout: str
    sentence: str


class Plans:
    """The changes that the cluster's GpuLayouts would still make, by node."""

    def __init__(self, nodes: Iterable[Node], agents: Mapping[str, GpuNode], layouts: Sequence[Found]) -> None:
        self._agents = agents
        self._plans: list[tuple[Found, NodePlan]] = []
        self._rivals: list[Coming] = []
        for node in sorted(nodes, key=lambda each: each.metadata.name):
            name = node.metadata.name
            own = [each for each in layouts if each.selects(node.metadata.labels)]
            if name not in agents or not own:
                continue
            if len(own) > 1:
                both = ", ".join(sorted(each.name for each in own))
                sentence = f"{name} changes nothing: the GpuLayouts {both} all select it, expected one"
                self._rivals.append(Coming(node=name, layout="", sentence=sentence))
            elif own[0].layout is not None:
                self._plans.append((own[0], planned(seen_of(name, agents[name].status), own[0].layout)))

    def of_resource(self, resource: str, offered: Mapping[str, int]) -> Iterator[Coming]:
        """The changes that bring devices of the resource. ``offered``: the number that each node offers by the kubelet,
        0 left out. Layouts that no agent can carry out are told where no node offers the resource.
        """
        for layout, plan in self._plans:
            more = plan.after.get(resource, 0)
            if more > plan.before.get(resource, 0):
                yield _told(layout, plan, lambda _: True, f"it will offer {more} {resource}")
            elif plan.problems and not offered:
                yield _not_applied(layout, plan)
        for name, node in sorted(self._agents.items()):
            known = sum(each.devices for each in node.status.resources if each.name == resource)
            if known and name not in offered:
                sentence = f"{name}: its agent offers {known} {resource}, which its kubelet has not taken up yet"
                yield Coming(node=name, layout="", sentence=f"{sentence}: the pod waits for it")
        if not offered:
            yield from self._rivals

    def by_claim(self) -> Iterator[Coming]:
        """The changes to GPUs that are given out by claim, whichever class they are of."""
        for layout, plan in self._plans:
            if any(map(_is_claimed, plan.changes)):
                yield _told(layout, plan, _is_claimed, "they are given out by claim then")
            elif plan.problems:
                yield _not_applied(layout, plan)
        yield from self._rivals


def _is_claimed(change: GpuChange) -> bool:
    return change.after == LayoutMode.DRA.value


def _not_applied(layout: Found, plan: NodePlan) -> Coming:
    return Coming(
        node=plan.node, layout=layout.name, sentence=f"GpuLayout {layout.name} is not applied: {plan.problems[0]}"
    )


def _told(layout: Found, plan: NodePlan, is_about: Callable[[GpuChange], bool], then: str) -> Coming:
    """The change in a sentence. The pods in the way decide whether the layout is carried out at all, and what the pod
    waits for.
    """
    changes = [each for each in plan.changes if is_about(each)] or list(plan.changes)
    shown = ", ".join(f"GPU {each.gpu}: {each.before} -> {each.after}" for each in changes[:_NAMED])
    if len(changes) > _NAMED:
        shown += f", and {plural(len(changes) - _NAMED, 'GPU')} more"
    refusing = sorted({pod for each in plan.changes if each.when_busy is WhenBusy.REFUSE for pod in each.disturbs})
    if refusing:
        sentence = (
            f"GpuLayout {layout.name} is to change {plan.node} ({shown}) and is refused while "
            f"{', '.join(refusing)} hold what it changes: end them, or set whenBusy to wait or drain; {then}"
        )
        return Coming(node=plan.node, layout=layout.name, sentence=sentence)
    waited = sorted({pod for each in changes for pod in each.disturbs})
    drained = any(each.disturbs and each.when_busy is WhenBusy.DRAIN for each in changes)
    until = ""
    if waited:
        until = f" once {', '.join(waited)} {'are evicted' if drained else 'have ended'}"
    sentence = f"GpuLayout {layout.name} is changing {plan.node} ({shown}){until}: {then}, and the pod waits for it"
    return Coming(node=plan.node, layout=layout.name, sentence=sentence)
