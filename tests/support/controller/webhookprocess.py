"""The process that serves webhooks, on the test's own loop: the same words over the same kind of socket."""

import asyncio
import socket

from controller.cluster.webhooks.apart.child_shell import serve


class InThisLoop:
    """A ``controller.cluster.webhooks.apart.parent_shell.Child`` that is a task."""

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self.task = task

    async def wait(self) -> int:
        await asyncio.wait([self.task])
        return 0

    def kill(self) -> None:
        self.task.cancel()


async def in_this_loop(end: socket.socket) -> InThisLoop:
    return InThisLoop(asyncio.create_task(serve(end.dup()), name="webhooks"))
