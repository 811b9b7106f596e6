"""Several changes of one object within 50 ms, when what stood there before has just been acted upon.

What was decided by the first may be written after the last: quota after an admission, labels after a start, a node
after placement, a layout and health after Allocate. The last change makes it as it was.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from hack.chaos.api import JOBS, QUEUES, AwayError, RefusedError
from hack.chaos.faults.processes import Heal, nothing
from hack.chaos.invariants import Json, is_true
from hack.chaos.load import GPU, QUOTA
from hack.chaos.members import resource_groups
from hack.chaos.schedule import Act
from hack.chaos.world import HALVES, LAYOUT, QUARTERS, SPARE, World
from tests.support.e2e.lab import FAST

NODES: Final = "/api/v1/nodes"
MARK: Final = "example.com/mark"
QUEUE: Final = "research"


class Patches(Protocol):
    """The part of the runner's API client that is needed here."""

    def items(self, path: str) -> list[Json]: ...

    def patch(self, path: str, body: Json) -> Json: ...


class Edits(NamedTuple):
    """Merge patches of the object at ``path``, in their order; ``last`` makes it as it was."""

    path: str
    rapid: Sequence[Json]
    last: Json


def quota(_: Patches) -> Edits | None:
    """A queue has more, then less, then none, within a decision."""
    usual = QUOTA[QUEUE]
    amounts = [{**usual, GPU: amount} for amount in (usual[GPU] + 1, usual[GPU] - 1, 0)]
    return Edits(f"{QUEUES}/clusterqueues/{QUEUE}", [_groups(each) for each in amounts], _groups(usual))


def _groups(amounts: Mapping[str, int]) -> Json:
    return {"spec": {"resourceGroups": resource_groups(amounts)}}


def label(api: Patches) -> Edits | None:
    """Of a job that has started; None while there is none."""
    started = [job for job in api.items(JOBS) if not job["spec"].get("suspend") and not is_true(job, "Complete")]
    if not started:
        return None
    path = f"{JOBS}/{started[0]['metadata']['name']}"
    return Edits(path, [_marked(each) for each in ("a", "b", None, "c")], _marked(None))


def _marked(value: str | None) -> Json:
    return {"metadata": {"labels": {MARK: value}}}


def node(api: Patches) -> Edits | None:
    """It takes no pods, does again, and has another label."""
    name = api.items(NODES)[0]["metadata"]["name"]
    cordoned: Json = {"spec": {"unschedulable": True}}
    free: Json = {"spec": {"unschedulable": None}}
    return Edits(f"{NODES}/{name}", [cordoned, free, _marked("a"), cordoned], {**free, **_marked(None)})


EDITS: Final[tuple[Callable[[Patches], Edits | None], ...]] = (quota, label, node)


def edited(api: Patches, choose: Callable[[Patches], Edits | None], owed: list[Callable[[], object]]) -> Heal:
    """One write after the other, as fast as the API server takes them. An end that it cannot take becomes ``owed``."""
    edits: Edits | None = None
    with contextlib.suppress(AwayError, RefusedError):
        edits = choose(api)
        if edits is not None:
            for body in edits.rapid:
                api.patch(edits.path, body)
    if edits is None:
        return nothing
    end = partial(_end, api, edits)

    def heal() -> None:
        try:
            end()
        except AwayError:
            owed.append(end)

    return heal


def _end(api: Patches, edits: Edits) -> None:
    with contextlib.suppress(RefusedError):  # the job is gone by now
        api.patch(edits.path, edits.last)


def rapid_edits(world: World, act: Act) -> Heal:
    return edited(world.api, act.chosen(EDITS), world.ends)


def rapid_layouts(world: World, _: Act) -> Heal:
    """Two layouts and a GPU that is lost between them, while pods hold what the kubelet has just allocated."""
    world.agent.reload(LAYOUT % (FAST, QUARTERS))
    world.order(gpu=SPARE, lost=True)
    world.agent.reload(LAYOUT % (FAST, HALVES))

    def heal() -> None:
        world.order_at_last(gpu=SPARE, reset=True)
        world.agent.reload(LAYOUT % (FAST, HALVES))

    return heal
