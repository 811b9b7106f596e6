"""Workloads that start only beside others: those above the minimum of a gang, and sisters, which get quota at once."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from controller.insight.forecast.model import Model, Tree, Waiting
from controller.insight.forecast.parts import Parts
from controller.messages import forecasts as words
from controller.scheduler.decisions.sentences import shown
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import Amount, ResourceName, WorkloadKey
from controller.scheduler.quota.cells import Cell
from controller.scheduler.state import minimums
from inventory.api.names import STARTS_WITH


class Sisters(NamedTuple):
    """Waiting workloads that get quota at once. ``never``: what would have to change if their sum is above all that
    their queue can ever have; empty where it is not.
    """

    keys: tuple[WorkloadKey, ...]
    never: str


class Beside(NamedTuple):
    """``minimums``: by workload the minimum of its gang, which holds no quota yet."""

    minimums: Mapping[WorkloadKey, WorkloadKey]
    sisters: tuple[Sisters, ...]


def beside_parts(engine: Engine, model: Model) -> Parts[Beside]:
    """The workloads of the engine that start only beside others. One pause for each group."""
    state, above = engine.state, dict[WorkloadKey, WorkloadKey]()
    for minimum, keys in list(state.workloads.above.items()):
        if minimums.is_missing(state, minimum):
            above |= dict.fromkeys(keys, minimum)
        yield
    if not state.workloads.together:
        return Beside(above, ())
    places = {each.key: (tree, each) for tree in model.trees for line in tree.lines for each in line.waiting}
    together: list[Sisters] = []
    for sisters in [sorted(each) for each in state.workloads.together.values()]:
        yield
        known = {key: state.cluster.holders.get(key) for key in sisters}
        waiting = tuple(key for key, holder in known.items() if holder is None or holder.evicted)
        placed = [places[key] for key in waiting if key in places]
        if len(waiting) > 1 and placed and not engine.mirror.is_leaf(placed[0][1].queue):
            together.append(Sisters(waiting, _never(engine, placed)))
    return Beside(above, tuple(together))


def _never(engine: Engine, placed: Collection[tuple[Tree, Waiting]]) -> str:
    """The clause on sisters that ask for more than there ever is: without one where quotas change, and where a claim
    that several share is charged once.
    """
    pending = [engine.state.queues.get(each.key) for _, each in placed]
    if any(tree.changes or tree.absent for tree, _ in placed):
        return ""
    if any(each is None or each.info.claims is not None for each in pending):
        return ""
    asked: defaultdict[ResourceName, Amount] = defaultdict(int)
    cells: defaultdict[ResourceName, dict[int, Cell]] = defaultdict(dict)
    for _, waiting in placed:
        for options in waiting.choices:
            for charge in options[0] if options else ():
                asked[charge.fr.resource] += charge.amount
            for charge in (charge for charges in options for charge in charges):
                cells[charge.fr.resource][id(charge.cell)] = charge.cell
    most = {resource: _potential(cells[resource].values()) for resource in asked}
    beyond = [f"{shown(each, most[each])} {each}" for each in sorted(asked) if asked[each] > most[each]]
    first = next((each for each in pending if each is not None), None)
    if not beyond or first is None:
        return ""
    group = first.info.workload.metadata.annotations.get(STARTS_WITH, "")
    return words.sisters_ask_for_less(group, " and ".join(beyond))


def _potential(cells: Iterable[Cell]) -> Amount:
    return sum(cell.potential() for cell in cells)
