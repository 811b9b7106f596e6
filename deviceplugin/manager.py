"""Keeps one registered server for each resource the node advertises, whatever the kubelet does meanwhile.

``apply`` takes the desired state. One task (``run``) compares it, the kubelet's socket and our own sockets, and mends
what differs: a new kubelet, a removed socket, a refused registration. It looks when news of the folder come or a stream
ends, and every few seconds in any case: each second where something is not as desired, or no news would tell. Views of
resources that already have a server are swapped at once, without waiting for the task.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from deviceplugin.choice import Preferrer
from deviceplugin.foldernews import FolderNews
from deviceplugin.kubelet import RegistrationError, SocketIdentity, identify, register, stands
from deviceplugin.server import SOCKET, DevicePluginServer, PluginObserver
from deviceplugin.view import ResourceView
from failpoints import points
from failpoints.names import Failpoint
from inventory.devices import ResourceName

log = logging.getLogger(__name__)

POLL_S = 1.0
QUIET_POLL_S = 5.0
"""The seconds between two looks where all is well and the folder is watched: news may be lost, so that looks
never end.
"""
UNHEARD_S = 3.0
"""The seconds for which a registered server may be without a stream before it registers again."""
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 5.0


class ServerStatus(Struct, frozen=True):
    """The registration of one resource with the kubelet."""

    resource: ResourceName
    socket: str
    registered: bool
    streams: int
    last_error: str | None = None


class _Slot:
    """One resource's server and its registration. ``spent``: the slot whose registration it is to repeat."""

    def __init__(self, server: DevicePluginServer, spent: "_Slot | None" = None) -> None:
        self.server = server
        self.identity: SocketIdentity | None = None
        self.registered_with: SocketIdentity | None = None
        self.heard_at = 0.0
        """The time at which the kubelet was last seen to listen, or was asked to."""
        self.retry_at: float = spent.retry_at if spent else 0.0
        self.retry_delay_s: float = spent.retry_delay_s if spent else FIRST_RETRY_S
        self.last_error: str | None = spent.last_error if spent else None
        self.spent = False
        """Whether the kubelet may have this server's socket, so that only a fresh one can be registered."""


class PluginManager:
    """Servers below ``folder`` (the kubelet's ``device-plugins``), registered at ``kubelet_socket``.

    ``kubelet_socket`` None: serve without registering. ``clock`` is monotonic seconds.

    ``_desired`` is written by ``apply`` alone, ``_slots`` and ``_kubelet`` by ``mend`` and ``close``, which are never
    run at once; all on one event loop. A server answers from the view last given to ``apply``, also while it ends
    (``_leaving``); one whose resource is no longer desired has no devices from ``apply`` on, and is retired by the next
    ``mend``. A slot is registered while its kubelet is ``_kubelet``.
    """

    def __init__(
        self,
        folder: Path,
        kubelet_socket: Path | None,
        preferrer: Preferrer,
        observer: PluginObserver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._kubelet_socket = kubelet_socket
        self._preferrer = preferrer
        self._observer = observer
        self._clock = clock
        self._desired: dict[ResourceName, ResourceView] = {}
        self._slots: dict[ResourceName, _Slot] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._leaving: set[DevicePluginServer] = set()
        self._refused: dict[ResourceName, str] = {}
        self._kubelet: SocketIdentity | None = None
        self._wake = asyncio.Event()

    def apply(self, views: Iterable[ResourceView]) -> None:
        """Advertise exactly these resources from now on. Served views change at once, other resources come when the
        task runs next: no server gives a device in a shape that is withdrawn.
        """
        self._desired = {view.resource.name: view for view in views}
        for server in (*(slot.server for slot in self._slots.values()), *self._leaving):
            desired = self._desired.get(server.name)
            if desired is None:
                server.empty()
            else:
                server.update(desired)
        if self._desired.keys() != self._slots.keys():
            self._wake.set()

    def status(self) -> tuple[ServerStatus, ...]:
        return tuple(
            ServerStatus(
                resource=name,
                socket=str(slot.server.socket or ""),
                registered=self._is_registered(slot),
                streams=slot.server.streams,
                last_error=slot.last_error,
            )
            for name, slot in self._slots.items()
        )

    @property
    def ready(self) -> bool:
        """Whether every desired resource is registered with the kubelet that runs now."""
        if self._desired.keys() != self._slots.keys():
            return False
        return self._kubelet_socket is None or all(map(self._is_registered, self._slots.values()))

    def _is_registered(self, slot: _Slot) -> bool:
        return self._kubelet is not None and slot.registered_with == self._kubelet

    async def run(self) -> None:
        """Mend the servers until cancelled."""
        news = FolderNews((self._kubelet_socket or self._folder / "none").parent, self._hinted)
        news.start()
        try:
            await self._run(news)
        finally:
            news.stop()

    def _hinted(self) -> None:
        """Wake the task where a new kubelet is there, or a socket of ours is gone; other changes of the folder do not
        matter.
        """
        gone = any(not stands(slot.server.socket, slot.identity) for slot in self._slots.values() if slot.server.socket)
        if gone or self._identify_kubelet() != self._kubelet:
            self._wake.set()

    def _stream_ended(self, server: DevicePluginServer) -> None:
        for slot in self._slots.values():
            if slot.server is server and not server.streams:
                slot.heard_at = self._clock()
                self._wake.set()

    async def _run(self, news: FolderNews) -> None:
        while True:
            self._wake.clear()
            await self.mend()
            news.renew()
            # The task looks whatever wakes it: a timer that sets the event costs half of a timeout that is raised.
            timer = asyncio.get_running_loop().call_later(self._pause_s(watched=news.watching), self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    async def mend(self) -> None:
        """One pass: a server for each desired resource, registered with the present kubelet; none for the others."""
        kubelet = self._kubelet = self._identify_kubelet()
        for name in [name for name in self._slots if name not in self._desired]:
            await self._retire(name)
        for name, view in tuple(self._desired.items()):
            slot = self._slots.get(name)
            if slot is not None:
                self._check_heard(name, slot)
            if slot is None or self._stale(slot, kubelet):
                slot = await self._replace(name, view)
            if slot is not None and kubelet is not None and slot.registered_with != kubelet:
                await self._register(name, slot, kubelet)

    async def close(self) -> None:
        """End all streams, remove all sockets. Cancel ``run`` before, or it serves them again."""
        slots, self._slots = self._slots, {}
        for slot in slots.values():
            self._end(slot.server)
        await asyncio.gather(*self._ending)

    def _end(self, server: DevicePluginServer) -> "asyncio.Task[None]":
        """Stop a server, in a task of its own that ``close`` waits for.

        Awaited directly, gRPC's stop swallows a cancellation now and then (it uses ``asyncio.wait_for``, before Python
        3.12), and the caller that cancelled ``run`` would wait for ever. ``asyncio.wait`` on the task never does.
        """
        task = asyncio.create_task(server.stop())
        self._ending.add(task)
        self._leaving.add(server)

        def ended(task: "asyncio.Task[None]") -> None:
            self._ending.discard(task)
            self._leaving.discard(server)

        task.add_done_callback(ended)
        return task

    def _identify_kubelet(self) -> SocketIdentity | None:
        return None if self._kubelet_socket is None else identify(self._kubelet_socket)

    def _pause_s(self, *, watched: bool = False) -> float:
        """The seconds until the next look: the poll, or a retry that falls due earlier.

        Polls are on whole multiples of their interval: those of one process that fall together cost one wake-up.
        """
        due = (slot.retry_at - self._clock() for slot in self._slots.values() if not self._is_registered(slot))
        # A retry that was due before this look could not be done in it: no kubelet is there, and only the poll will
        # tell.
        well = watched and self.ready and all(slot.server.streams for slot in self._slots.values())
        poll_s = QUIET_POLL_S if well else POLL_S
        return min([poll_s - self._clock() % poll_s, *(max(0.01, wait_s) for wait_s in due if wait_s > 0)])

    @staticmethod
    def _stale(slot: _Slot, kubelet: SocketIdentity | None) -> bool:
        """Whether the server's socket no longer serves: removed or replaced, or a new kubelet swept the folder, or this
        one has it and does not listen.
        """
        if slot.spent or slot.server.socket is None or not stands(slot.server.socket, slot.identity):
            return True
        return kubelet is not None and slot.registered_with not in {None, kubelet}

    def _check_heard(self, name: ResourceName, slot: _Slot) -> None:
        """Mark a server as spent that has no stream: the kubelet drops a plugin whose stream ended and never calls
        again by itself.
        """
        if slot.server.streams or not self._is_registered(slot):
            slot.heard_at = self._clock()
        elif not slot.spent and self._clock() - slot.heard_at > UNHEARD_S:
            log.warning("kubelet does not listen: registering again", extra={"resource": name})
            slot.spent = True

    async def _replace(self, name: ResourceName, view: ResourceView) -> _Slot | None:
        """Make a server for ``view`` on a fresh socket. It is registered only after the old one's streams have ended.

        The other order would keep devices from flickering, but kubelets up to 1.36 (``runClient``) drop the plugin that
        is registered under the name by then, whichever stream it was that ended: the new one would go with the old.
        Since 1.37 they keep apart several plugins of a name by their sockets.
        """
        old = self._slots.get(name)
        server = DevicePluginServer(view, self._preferrer, self._observer, self._stream_ended)
        try:
            socket = await server.start(self._folder)
        except OSError as refused:
            if self._refused.get(name) != str(refused):
                log.warning("cannot serve", extra={"resource": name, "error": str(refused)})
            self._refused[name] = str(refused)
            return old
        except asyncio.CancelledError:
            self._end(server)
            raise
        self._refused.pop(name, None)
        slot = _Slot(server, old if old is not None and old.spent else None)
        slot.identity = identify(socket)
        self._slots[name] = slot
        log.info("serving", extra={"resource": name, "socket": socket.name, "devices": len(view.resource.devices)})
        if old is not None:
            await asyncio.wait([self._end(old.server)])
        # The desired view may have changed while this waited.
        server.update(self._desired.get(name, view))
        return slot

    async def _register(self, name: ResourceName, slot: _Slot, kubelet: SocketIdentity) -> None:
        if self._kubelet_socket is None or slot.server.socket is None or self._clock() < slot.retry_at:
            return
        try:
            points.before(Failpoint.REGISTERED)
            await register(self._kubelet_socket, name, slot.server.socket.name)
            points.after(Failpoint.REGISTERED)
        except RegistrationError as failed:
            if slot.last_error != str(failed):
                log.warning("registration failed", extra={"resource": name, "error": str(failed)})
            slot.last_error = str(failed)
            slot.spent = failed.spent
            slot.retry_at = self._clock() + slot.retry_delay_s
            slot.retry_delay_s = min(slot.retry_delay_s * 2, LONGEST_RETRY_S)
            self._observer.registered(name, str(failed))
            return
        slot.registered_with = kubelet
        slot.heard_at = self._clock()
        slot.last_error = None
        slot.retry_delay_s = FIRST_RETRY_S
        log.info("registered", extra={"resource": name, "socket": slot.server.socket.name})
        self._observer.registered(name, None)

    async def _retire(self, name: ResourceName) -> None:
        """Tell the kubelet that no device is left (there is no unregister), then stop the server."""
        slot = self._slots.pop(name)
        slot.server.empty()
        await asyncio.wait([self._end(slot.server)])
        log.info("no longer advertised", extra={"resource": name})


def sweep(folder: Path, name: str = SOCKET) -> int:
    """Remove sockets of agents that no longer run; return their number. Sockets of another agent that runs stay."""
    import socket

    removed = 0
    for path in folder.glob(name.format("*")):
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            removed += 1
        except OSError:
            continue
        finally:
            probe.close()
    return removed
