"""Commands about Volcano's Queues, as ``vcctl queue operate`` writes them: the state of the Queue is written, then the
Command is deleted.

A closed Queue admits no jobs; it is Closing until none of its jobs runs any more, which
``controller.foreign.rules.queuestatus`` writes into its status. The Queues below it close with it. It opens after
those above it.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import VOLCANO_COMMANDS, VOLCANO_QUEUES
from controller.cluster.watching.workqueue import WorkQueue
from controller.cluster.writing.stampedwrites import Stamped, stamped_write, written
from controller.foreign.objects.volcanojob import VolcanoCommand
from controller.foreign.objects.volcanoqueue import CLOSED_BY_PARENT, VOLCANO_QUEUE, VolcanoQueue
from failpoints.names import Failpoint
from kube.objects import ObjectReference
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Verb, Write

_STATES: Final = {"OpenQueue": "Open", "CloseQueue": "Closing"}


class CommandKey(NamedTuple):
    namespace: str
    name: str


def state_after(action: str, queue: VolcanoQueue) -> str | None:
    """The state to write; None if the Queue has it, or the action is not one of Queues."""
    wanted = _STATES.get(action)
    if wanted is None or queue.status.open == (wanted == "Open"):
        return None
    return wanted


def closed_above(queue: VolcanoQueue, find: Callable[[str], VolcanoQueue | None]) -> VolcanoQueue | None:
    """The nearest Queue above it that is closed; None if there is none."""
    seen: set[str] = set()
    name = queue.spec.parent
    while name and name not in seen and (above := find(name)) is not None:
        if not above.status.open:
            return above
        seen.add(name)
        name = above.spec.parent
    return None


def is_about_a_queue(command: VolcanoCommand) -> bool:
    return (command.target.api_version, command.target.kind) == (VOLCANO_QUEUE, "Queue")


class QueueCommandController:
    """Carries out Commands. ``hear`` takes changes; ``run`` works on them until cancelled. ``tell`` records an Event
    about a Queue.
    """

    def __init__(self, feeds: Feeds, writer: Writer, tell: Callable[[ObjectReference, str, str, str], None]) -> None:
        self._feeds = feeds
        self._writer = writer
        self._tell = tell
        self._queue: WorkQueue[CommandKey] = WorkQueue("queue-commands", self._reconcile)

    async def run(self) -> None:
        await self._queue.run()

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) if observed.resource == VOLCANO_COMMANDS and is_about_a_queue(entry.object):
                self._queue.put(CommandKey(*key))

    async def _reconcile(self, key: CommandKey) -> None:
        entry = self._feeds[VOLCANO_COMMANDS].get(ObjectKey(*key))
        if entry is None:
            return
        command: VolcanoCommand = entry.object
        found = self._feeds[VOLCANO_QUEUES].get(ObjectKey("", command.target.name))
        if found is not None and command.action in _STATES:
            await self._set(command, found.object, {"uid": found.uid, "resourceVersion": found.resource_version})
        meta = {"namespace": key.namespace, "name": key.name}
        write = stamped_write(Verb.DELETE, VOLCANO_COMMANDS, meta, entry.uid, Failpoint.VOLCANO_COMMAND)
        await written(self._writer.put, write, Missing, Conflicted)

    async def _set(self, command: VolcanoCommand, queue: VolcanoQueue, tied: dict[str, str]) -> None:
        """``tied``: the uid and version of ``queue``. A former leader's write that is late must not close it again."""
        name, opens = queue.metadata.name, command.action == "OpenQueue"
        about = ObjectReference(VOLCANO_QUEUE, "Queue", name, tied["uid"], "")
        if opens and (above := closed_above(queue, self._find)) is not None:
            wanted = f"found {above.metadata.name!r}, which is {above.status.state}, expected an open Queue"
            self._tell(about, "Warning", command.action, f"The queue stays closed: spec.parent: {wanted}")
            return
        if queue.closed_by_parent:
            # From now on the state is its own: it must not follow the one above.
            body = {"metadata": {**tied, "annotations": {CLOSED_BY_PARENT: "false"}}}
            answer = await written(self._writer.put, _patch(name, body))
            if answer is not None:
                tied = {**tied, "resourceVersion": answer.metadata.resource_version}
        state = state_after(command.action, queue)
        if state is not None:
            await written(self._writer.put, _patch(name, {"metadata": tied, "status": {"state": state}}, "status"))
            self._tell(about, "Normal", command.action, command.message or f"The queue is {state}")

    def _find(self, name: str) -> VolcanoQueue | None:
        entry = self._feeds[VOLCANO_QUEUES].get(ObjectKey("", name))
        return None if entry is None else entry.object


def _patch(name: str, body: dict[str, Any], subresource: str | None = None) -> Write[Stamped]:
    meta = {"name": name}
    return stamped_write(Verb.MERGE_PATCH, VOLCANO_QUEUES, meta, body, Failpoint.VOLCANO_QUEUE, subresource=subresource)
