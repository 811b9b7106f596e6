"""Writes the node's ResourceSlices to the API server, and again where they differ.

    publish(offer) -> SlicePublisher -> API server; watch of the node's own slices -> written again where they differ

A kubelet that starts deletes all slices of its node, and those of a driver 30 s after it was last connected: so the
slices are watched. Nothing is asked of the API server before something is to be published.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.dra.publishing.devices import Offer
from agent.dra.publishing.slices import (
    CONSUMES,
    COUNTERS,
    POLICY,
    RESOURCE_SLICES,
    SHARED,
    FoundSlice,
    Pool,
    Sync,
    contents,
    counted,
    dropped,
    fields,
    sync,
)
from agent.persistence.files import write_atomically
from agent.process.spread import Spread, fleet_backoff
from agent.words import node as words
from failpoints import points
from failpoints.names import Failpoint
from kube.client import Client, Selection
from kube.clock import Clock, SystemClock
from kube.errors import InvalidError, KubeError, NotFoundError
from kube.objects import Metadata
from kube.reading.reflector import Change, Reflector
from kube.resources import NODES
from kube.writing.latest import LatestWriter

log = logging.getLogger(__name__)

INTERVAL_S: Final = 0.2
RESYNC_S: Final = (1800.0, 3600.0)
"""The range in seconds of the time between two comparisons with the server, beside the watch."""
RETRY_SERVED_S: Final = 60.0


class SlicePublisher:
    """A follower of the API server. ``publish`` returns at once; ``say`` gets the problems, one line each.

    ``_wanted`` is written by ``publish`` alone: None before anything is to be published, and after everything was
    withdrawn no slice is left. Once the server was seen to keep no counters ``_whole_only`` is true for good: parts of
    GPUs that nothing keeps apart are never published. ``_unshared`` becomes true for good once the server kept no
    shares. ``_dropped`` are the fields that the server did not keep when they were last written.

    ``note`` is a file that is there from before the first slice until the last is gone: an agent that finds it, and
    that offers nothing, withdraws the slices of an agent before it. No other agent asks the API server for slices.
    """

    def __init__(
        self,
        driver: str,
        say: Callable[[tuple[str, ...]], None],
        clock: Clock | None = None,
        spread: Spread | None = None,
        note: Path | None = None,
    ) -> None:
        self._driver = driver
        self._note = note
        self._may_be_left = note is not None and note.exists()
        self._spread = spread or Spread()
        self._say = say
        self._clock = clock or SystemClock()
        self._wanted: Offer | None = None
        self._whole_only = False
        self._unshared = False
        self._begun = asyncio.Event()
        self._writer: LatestWriter[Offer | None] | None = None
        self._slices: Reflector[FoundSlice] | None = None
        self._pool: Pool | None = None
        self._dropped: tuple[str, ...] = ()

    def publish(self, offer: Offer | None) -> None:
        """Offer exactly ``offer`` from now on; None: the driver serves nothing here."""
        begins = offer is not None or self._may_be_left
        if offer == self._wanted and (offer is not None or not (begins or self._begun.is_set())):
            return
        self._wanted = offer
        if begins:
            self._begun.set()
        if self._writer is not None:
            self._writer.put(offer)

    @property
    def settled(self) -> bool:
        """Whether the last published offer has arrived."""
        return self._wanted is None or (self._writer is not None and self._writer.settled)

    async def follow(self, client: Client, node_name: str, random: Callable[[], float]) -> None:
        """Write and watch until cancelled, from the first ``publish`` on."""
        await self._begun.wait()
        await self._until_served(client)
        selection = Selection(field_selector=f"spec.nodeName={node_name},spec.driver={self._driver}")

        async def write(wanted: Offer | None) -> None:
            self._pool = Pool(self._driver, node_name, await _owner(client, node_name))
            carried_out = False
            if wanted is not None:
                self._noted()
            while not carried_out:
                found = (await client.list_all(RESOURCE_SLICES, FoundSlice, selection)).items
                carried_out = await self._carry_out(client, self._sync(self._pool, found, wanted))
            if wanted is None:
                self._forgotten()
                self._say(())

        self._writer = LatestWriter(
            "ResourceSlices",
            write,
            clock=self._clock,
            backoff=fleet_backoff(random),
            min_interval_s=INTERVAL_S,
            resync_s=self._spread.every_s("ResourceSlices", *RESYNC_S),
        )
        self._slices = Reflector(
            client,
            RESOURCE_SLICES,
            msgspec.json.Decoder(FoundSlice).decode,
            self._heard,
            clock=self._clock,
            backoff=fleet_backoff(random),
            selection=selection,
            pace=self._spread.pace("ResourceSlices"),
        )
        self._writer.put(self._wanted)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writer.run())
            tasks.create_task(self._slices.run())

    def _noted(self) -> None:
        if self._note is not None and not self._note.exists():
            with contextlib.suppress(OSError):
                write_atomically(self._note, b"", Failpoint.SLICES_NOTED)

    def _forgotten(self) -> None:
        self._may_be_left = False
        if self._note is not None:
            points.before(Failpoint.SLICES_FORGOTTEN)
            with contextlib.suppress(OSError):
                self._note.unlink(missing_ok=True)
            points.after(Failpoint.SLICES_FORGOTTEN)

    async def _until_served(self, client: Client) -> None:
        """Return when the API server serves slices; report once that it does not."""
        while True:
            try:
                if RESOURCE_SLICES.api_version in await client.group_versions():
                    self._say(())
                    return
                self._say((words.no_claims_api(),))
            except KubeError as error:
                log.info("cannot ask for the API's versions", extra={"error": str(error)})
            await self._clock.wait(asyncio.Event(), RETRY_SERVED_S)

    def _heard(self, change: Change[FoundSlice]) -> None:  # noqa: ARG002 - the copy as a whole is compared
        """Compare all slices with the offer after a slice has changed, by our own writes or another client's."""
        if self._writer is None or self._slices is None or self._pool is None or not self._writer.settled:
            return
        if self._sync(self._pool, tuple(self._slices.objects()), self._wanted):
            self._writer.put(self._wanted)

    def _sync(self, pool: Pool, found: Sequence[FoundSlice], wanted: Offer | None) -> Sync:
        if wanted is None:
            return Sync(deletes=tuple(found))
        wanted = wanted.undivided() if self._whole_only else wanted
        return sync(pool, found, contents(wanted.unshared() if self._unshared else wanted), self._dropped)

    async def _carry_out(self, client: Client, todo: Sync) -> bool:
        """Write ``todo``. False where the server keeps no counters, or no shares: no slice that needs them was written
        behind that.
        """
        for slice_ in todo.deletes:
            with contextlib.suppress(NotFoundError):
                points.before(Failpoint.SLICE_REMOVED)
                await client.delete(RESOURCE_SLICES, slice_.metadata.name, uid=slice_.metadata.uid)
                points.after(Failpoint.SLICE_REMOVED)
        lost = set(self._dropped) if todo.updates or todo.creates else set()
        # New counter sets are written first: without them no device that consumes any may be there.
        for body in sorted((*todo.updates, *todo.creates), key=lambda body: COUNTERS not in body["spec"]):
            gone = await self._write(client, body)
            if not self._whole_only and {COUNTERS, CONSUMES} & set(gone):
                self._whole_only = True
                return False
            if not self._unshared and {SHARED, POLICY} & set(gone):
                self._unshared = True
                return False
            lost = (lost - fields(body)) | set(gone)
        if todo:
            self._tell(tuple(sorted(lost)))
            log.info(
                "slices written",
                extra={"new": len(todo.creates), "changed": len(todo.updates), "removed": len(todo.deletes)},
            )
        return True

    async def _write(self, client: Client, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Write one slice; return the fields that the server did not keep."""
        try:
            if "resourceVersion" in body["metadata"]:
                points.before(Failpoint.SLICE_CHANGED)
                stored = await client.update(RESOURCE_SLICES, body["metadata"]["name"], body, FoundSlice)
                points.after(Failpoint.SLICE_CHANGED)
            else:
                points.before(Failpoint.SLICE)
                stored = await client.create(RESOURCE_SLICES, body, FoundSlice)
                points.after(Failpoint.SLICE)
        except InvalidError as refused:
            # Kubernetes 1.34 wants counters and devices in one slice, where its gate is on at all.
            if self._whole_only or not counted(body) or "counter" not in str(refused).lower():
                raise
            log.info("slices with counters refused", extra={"error": str(refused)})
            return (COUNTERS,)
        return dropped(body, stored)

    def _tell(self, lost: tuple[str, ...]) -> None:
        if lost != self._dropped or self._whole_only or self._unshared:
            self._dropped = lost
            gone = (words.field_dropped(field) for field in lost)
            limits = ((words.no_counters(), self._whole_only), (words.no_shares(), self._unshared))
            self._say((*gone, *(line for line, limited in limits if limited)))


async def _owner(client: Client, node_name: str) -> dict[str, Any]:
    """The reference to the Node as owner: slices go with it."""
    node = await client.get(NODES, node_name, Metadata)
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "name": node_name,
        "uid": node.metadata.uid,
        "controller": True,
    }
